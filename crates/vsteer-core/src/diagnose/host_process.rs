//! Does a process or kernel thread of the host, or a container, make a VM wait?
//!
//! The processes of a container count together, because its limits apply to all of them.

use super::{Context, Finding, Measure, Rule, percent};
use crate::model::{Blame, VmModel};
use crate::nouns::Culprit;
use std::collections::BTreeMap;

pub const RULE: Rule = Rule {
    name: "host_process",
    doc: "a process, container or kernel thread of the host makes a VM wait",
    explains: &[Measure::Ready, Measure::WakeLatency],
    check,
};

/// A culprit is named if it causes more than this part of the VM's ready time.
const PART: f64 = 0.25;

fn check(c: &Context<'_>) -> Vec<Finding> {
    let Some(blame) = &c.model.blame else { return Vec::new() };
    let mut findings = Vec::new();
    for (_, vm) in c.vms().filter(|(_, vm)| c.waits(vm)) {
        let of_vm = || blame.iter().filter(|b| b.victim == vm.id);
        let all: f64 = of_vm().map(|b| b.share).sum();
        findings.extend(containers(of_vm(), all, vm));
        for b in of_vm().filter(|b| b.share > PART * all && b.culprit.container().is_none()) {
            if !matches!(b.culprit, Culprit::Process { .. } | Culprit::Kernel { .. }) {
                continue;
            }
            let who = c.culprit(&b.culprit);
            findings.push(Finding {
                rule: RULE.name.to_owned(),
                vm: Some(vm.id.clone()),
                title: format!("VM {:?} waits for the host's {who}", vm.name),
                culprit: Some(format!("the host's {who}")),
                explanation:
                    "While this VM was ready, that thread occupied the pCPUs that the VM queued on. The \
                        thread belongs to no VM, so weights and pins of VMs do not move it."
                        .into(),
                evidence: vec![
                    percent("ready share that this thread caused, all threads together", b.share, None),
                    percent("part of this VM's ready time", b.share / all, Some(PART)),
                ],
                loss_pcpus: b.share,
                disproved_by: "the VM's ready time does not change while that process is stopped".into(),
                next: "move the process to other pCPUs (taskset, a cpuset), or lower its weight".into(),
                ..Finding::default()
            });
        }
    }
    findings
}

/// A finding for each container whose processes together cause more than [`PART`].
fn containers<'a>(of_vm: impl Iterator<Item = &'a Blame>, all: f64, vm: &VmModel) -> Vec<Finding> {
    let mut by_name: BTreeMap<&str, Vec<&Blame>> = BTreeMap::new();
    of_vm
        .filter_map(|b| Some((b.culprit.container()?, b)))
        .for_each(|(name, b)| by_name.entry(name).or_default().push(b));
    let of = |(name, mut rows): (&str, Vec<&Blame>)| {
        let share: f64 = rows.iter().map(|b| b.share).sum();
        rows.sort_by(|a, b| b.share.total_cmp(&a.share));
        let mut names: Vec<&str> = rows.iter().filter_map(|b| comm(&b.culprit)).collect();
        let mut seen = std::collections::BTreeSet::new();
        names.retain(|name| seen.insert(*name));
        names.truncate(3);
        (share > PART * all).then(|| Finding {
            rule: RULE.name.to_owned(),
            vm: Some(vm.id.clone()),
            title: format!("VM {:?} waits for processes of {name}: {}", vm.name, names.join(", ")),
            culprit: Some(format!("processes of {name}")),
            explanation: "While this VM was ready, processes of that container occupied the pCPUs that the VM queued on. \
                They belong to no VM, so weights and pins of VMs do not move them."
                .into(),
            evidence: vec![
                percent("ready share that this container caused, all threads together", share, None),
                percent("part of this VM's ready time", share / all, Some(PART)),
            ],
            loss_pcpus: share,
            disproved_by: "the VM's ready time does not change while that container is paused".into(),
            next: "limit the container's CPU (a quota, a lower weight), or move it to other pCPUs".into(),
            ..Finding::default()
        })
    };
    by_name.into_iter().filter_map(of).collect()
}

fn comm(culprit: &Culprit) -> Option<&str> {
    match culprit {
        Culprit::Process { comm, .. } => Some(comm),
        _ => None,
    }
}
