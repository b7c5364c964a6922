//! Which steps will a program on the host undo by itself ([`Contender`])?
//!
//! vsteer does not propose a step that such a program undoes while the VM runs. A person may ask for one by name or with `--set`;
//! then the plan says what may not last. Programs that act only at a restart or reload are always a note.

use crate::nouns::contenders::{Sets, When};
use crate::nouns::{Contender, HostConfig};
use crate::setting::argv::shell_word;
use crate::setting::knob::How;
use crate::setting::{Change, QuotaScope, Scope, Step};
use std::collections::BTreeMap;

/// The setting that a change changes, as contenders know it; `None` for settings that none of them changes.
fn what(change: &Change) -> Option<Sets> {
    Some(match change {
        Change::Affinity(_) => Sets::Affinity,
        Change::Weight(_) => Sets::Weight,
        Change::Quota(q) if q.scope == QuotaScope::PerVcpu => Sets::VcpuQuota,
        Change::Quota(q) if q.scope == QuotaScope::WholeVm => Sets::VmQuota,
        Change::MemoryNodes(_) => Sets::MemoryNodes,
        // tuned's own profiles, the boot loader and definitions are not what tuned sets.
        Change::Knob(k)
            if k.knob.on.is_none() && matches!(k.knob.how, How::File { .. } | How::Commands { .. }) =>
        {
            Sets::Kernel
        }
        _ => return None,
    })
}

/// The programs that change the same again.
fn of_step<'a>(config: &'a HostConfig, step: &'a Step) -> impl Iterator<Item = Contender> + 'a {
    let sets = what(&step.change);
    let vm = config.vm(&step.vm);
    config.contenders.iter().copied().filter(move |contender| {
        let same = sets.is_some_and(|sets| contender.row().sets.contains(&sets));
        let concerned = sets == Some(Sets::Kernel) || vm.is_some_and(|vm| contender.concerns(config, vm));
        same && concerned
    })
}

/// Why a pin does not hold: the cpuset of a cgroup, such as systemd's `AllowedCPUs=`, excludes some of its pCPUs.
fn cut(config: &HostConfig, step: &Step) -> Option<String> {
    let Change::Affinity(pin) = &step.change else { return None };
    let vm = config.vm(&step.vm)?;
    let t = vm.threads.iter().find(|t| t.tid == pin.tid)?;
    let (group, cpus) = vm.cpusets_of(t).find(|(_, cpus)| !pin.to.is_subset(cpus))?;
    let unit = group.cgroup.rsplit('/').next().unwrap_or_default();
    Some(format!(
        "{}: the kernel cuts the pin to pCPUs {cpus}, the cpuset of the cgroup {}; widen it first (for a unit of systemd: systemctl \
            set-property {} AllowedCPUs=...)",
        step.whose(),
        group.cgroup,
        shell_word(unit)
    ))
}

/// Why vsteer does not propose these steps by itself: a program would undo one while the VM runs, or the kernel cuts it.
pub fn refused(config: &HostConfig, steps: &[Step]) -> Option<String> {
    if let Some(why) = steps.iter().find_map(|step| cut(config, step)) {
        return Some(why);
    }
    steps.iter().find_map(|step| {
        let undoes = |c: &Contender| c.row().when == When::WhileRunning;
        let row = of_step(config, step).find(undoes)?.row();
        let pid = config.vm(&step.vm).map_or(0, |vm| vm.pid);
        Some(format!(
            "{} would undo the change of {}, because it {}: {}. To make the change all the same, name the action (--only)",
            row.name,
            step.whose(),
            row.does,
            row.help_for(pid)
        ))
    })
}

/// What may not last, one line for each program.
pub fn notes(config: &HostConfig, steps: &[Step], scope: Scope) -> Vec<String> {
    let mut whose: BTreeMap<Contender, Vec<&Step>> = BTreeMap::new();
    for step in steps {
        // What a definition holds matters only to a plan that changes it.
        let counts = |c: &Contender| match c.row().when {
            When::AtRestart => scope.persistent(),
            When::AtReload | When::WhileRunning => scope.live() || matches!(step.change, Change::Knob(_)),
        };
        of_step(config, step).filter(counts).for_each(|c| whose.entry(c).or_default().push(step));
    }
    let line = |(contender, steps): (Contender, Vec<&Step>)| {
        let mut names: Vec<String> = steps.iter().map(|step| step.whose()).collect();
        names.dedup();
        let row = contender.row();
        let pid = config.vm(&steps[0].vm).map_or(0, |vm| vm.pid);
        format!("{}: {} {}; {}", names.join(", "), row.name, row.does, row.help_for(pid))
    };
    let mut lines: Vec<String> = whose.into_iter().map(line).collect();
    let mut cuts: Vec<String> =
        steps.iter().filter(|_| scope.live()).filter_map(|step| cut(config, step)).collect();
    cuts.dedup();
    lines.append(&mut cuts);
    lines
}
