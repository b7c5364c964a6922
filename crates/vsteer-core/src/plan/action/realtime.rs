//! Runs the delayed VMs' threads in a real-time class, so that their wake-ups preempt.
//!
//! `SCHED_RR` for the vCPU, emulator and I/O threads of VMs that use little. Measured: on the vCPU threads alone it
//! does nothing where the guest's timers run in the emulator thread. What they use is taken from others, no more, so
//! the others keep their work. Only VMs that run briefly each time qualify: a burst of real time delays everybody else
//! for as long as it lasts, other real-time VMs too (measured: 20 ms bursts of one made another's 10 ms timers later
//! than they had been). What protects the others from a VM that changes its ways is the kernel's real-time
//! throttling and, on cgroup v1 with RT_GROUP_SCHED, a budget per cgroup, which must be granted from the top down
//! before the class can be set. GAP(rt-v2): cgroup v2 has no such budget; there the kernel's global limit alone holds.

use super::{Action, Context};
use crate::delay::runs_briefly;
use crate::nouns::{Role, RtBudget, SchedClass, VmConfig};
use crate::realtime::granted;
use crate::setting;
use crate::setting::{Change, Step};
use std::collections::BTreeMap;

/// See the file's head.
pub const ACTION: Action = Action {
    name: "realtime",
    doc: "run the delayed VMs, which use little, in a real-time class with a budget",
    severity: 2,
    asked_only: false,
    propose,
};

/// Lowest real-time priority: above every ordinary thread, below every real-time one that was there before.
const PRIORITY: u8 = 1;
/// What the VMs to be raised may use together, as a share of all pCPUs. Beyond it others would notice.
const TOGETHER: f64 = 0.5;
/// Real time granted to a thread is this many times what it used, where the parent has that much.
const ROOM: f64 = 4.0;
/// Least room that is worth having: with less a burst would exhaust it and wait for the next period.
const ROOM_MIN: f64 = 1.5;
/// Least budget of a thread, as a share of a pCPU: covers bursts of a thread that hardly ran while observed.
const SHARE_MIN: f64 = 0.05;

fn propose(c: &Context<'_>) -> Result<Vec<Step>, String> {
    if c.delayed.is_empty() {
        return Err("no VM that mostly sleeps is kept waiting".to_owned());
    }
    let brief: Vec<&VmConfig> =
        c.delayed.iter().copied().filter(|vm| c.model.vm(&vm.id).is_some_and(runs_briefly)).collect();
    if brief.is_empty() {
        return Err("the delayed VMs run for too long at a time, or that is not measured".to_owned());
    }
    let pcpus = c.model.pcpus.len().max(1) as f64;
    let use_of = |vm: &VmConfig| c.model.vm(&vm.id).and_then(|m| m.group.run).unwrap_or(0.0);
    let together: f64 = brief.iter().map(|vm| use_of(vm)).sum();
    if together > TOGETHER * pcpus {
        return Err(format!(
            "together they use {together:.1} of {pcpus:.0} pCPUs: too much to put above everybody else"
        ));
    }
    let mut steps = budget_steps(c, &brief)?;
    for vm in brief {
        for t in vm.threads.iter().filter(|t| t.role != Role::Worker) {
            let Some(from) = t.class.filter(|class| !class.is_realtime()) else { continue };
            let change = Change::Class(setting::Class {
                role: t.role,
                tid: t.tid,
                from,
                to: SchedClass::RoundRobin(PRIORITY),
            });
            let reason = format!("uses {:.0} % of a pCPU and must run when it wakes", 100.0 * use_of(vm));
            steps.push(Step { vm: vm.id.clone(), vm_name: vm.name.clone(), change, reason });
        }
    }
    if steps.iter().any(|s| matches!(s.change, Change::Class(_))) {
        Ok(steps)
    } else {
        Err("their threads are in a real-time class already, or their class cannot be read".to_owned())
    }
}

/// Budgets for the cgroups of the threads to be raised and for their ancestors, parents first. None where the
/// kernel keeps none.
fn budget_steps(c: &Context<'_>, vms: &[&VmConfig]) -> Result<Vec<Step>, String> {
    let mut known: BTreeMap<&str, (&RtBudget, &VmConfig)> = BTreeMap::new();
    for vm in vms {
        for b in &vm.rt_budgets {
            known.entry(b.cgroup.as_str()).or_insert((b, vm));
        }
    }
    if known.is_empty() {
        return Ok(Vec::new());
    }
    // What each leaf needs, as a share of a pCPU: threads of one cgroup may all run on one pCPU.
    let mut need: BTreeMap<&str, f64> = BTreeMap::new();
    for vm in vms {
        let seen = c.model.vm(&vm.id);
        for t in vm.threads.iter().filter(|t| t.role != Role::Worker) {
            let Some(cgroup) = t.cgroup.as_deref() else { continue };
            let used =
                seen.and_then(|m| m.threads.iter().find(|s| s.tid == t.tid)).and_then(|s| s.shares.run);
            *need.entry(cgroup).or_default() += used.unwrap_or(0.0);
        }
    }
    let wanted: f64 = need.values().map(|used| (ROOM * used).max(SHARE_MIN)).sum();
    // The outermost cgroup's parent is the root, whose budget the kernel sets aside for real time as a whole.
    const AVAILABLE: f64 = 0.90;
    let used: f64 = need.values().sum();
    let scale = (AVAILABLE / wanted).min(1.0);
    if wanted * scale < ROOM_MIN * used {
        return Err(format!("real-time budgets of {:.0} % of a pCPU would leave them no room", 100.0 * used));
    }
    let shares: BTreeMap<&str, f64> =
        need.iter().map(|(leaf, used)| (*leaf, (ROOM * used).max(SHARE_MIN) * scale)).collect();
    let budgets = known.iter().map(|(group, (budget, _))| (*group, *budget)).collect();
    let rises = |(budget, to_us): &(&RtBudget, i64)| budget.runtime_us >= 0 && budget.runtime_us < *to_us;
    let step = |(budget, to_us): (&RtBudget, i64)| {
        let vm = known[budget.cgroup.as_str()].1;
        Step {
            vm: vm.id.clone(),
            vm_name: vm.name.clone(),
            change: Change::RtBudget(setting::RtBudget {
                cgroup: budget.cgroup.clone(),
                from_us: budget.runtime_us,
                to_us,
            }),
            reason: "the kernel refuses a real-time class to a cgroup without real-time budget".to_owned(),
        }
    };
    Ok(granted(&budgets, &shares).into_iter().filter(rises).map(step).collect())
}
