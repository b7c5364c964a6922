//! Runs the delayed VMs' threads in a real-time class, so that their wake-ups preempt other threads.
//!
//! Sets `SCHED_RR` for the vCPU, emulator and I/O threads of VMs that use little. On the vCPU threads alone it has
//! no effect if the guest's timers run in the emulator thread (measured). Only VMs that run briefly each time
//! qualify, because a real-time burst delays all other VMs while it lasts. Measured: 20 ms bursts of one VM made
//! another's 10 ms timers later. The kernel's real-time throttling protects the others if a VM starts to use more.
//! On cgroup v1 with RT_GROUP_SCHED, so does a budget per cgroup, which must be granted from the top down before
//! the class can be set. GAP(rt-v2): cgroup v2 has no such budget. Then a limit for all
//! real-time threads (before Linux 6.12) or the fair server (since) leaves the others 5 % of a pCPU, so the action is proposed
//! only on request. Real-time threads do not obey quotas, so VMs with a quota are left out.

use super::{Action, Context, Propose};
use crate::delay::runs_briefly;
use crate::nouns::{Role, RtBudget, SchedClass, VmConfig};
use crate::realtime::granted;
use crate::setting;
use crate::setting::{Change, Step};
use std::collections::BTreeMap;

pub const ACTION: Action = Action {
    name: "realtime",
    doc: "run the delayed VMs, which use little CPU time, in a real-time class",
    severity: 2,
    asked_only: false,
    on_vsphere: false,
    propose: Propose::Directly(propose),
};

/// Lowest real-time priority: above every ordinary thread, at most that of any existing real-time thread.
const PRIORITY: u8 = 1;
/// Largest share of all pCPUs that the raised VMs may use together. More would slow other VMs noticeably.
const TOGETHER: f64 = 0.5;
/// Budget of a thread as a multiple of its use, if the parent has that much.
const ROOM: f64 = 4.0;
/// Least budget as a multiple of the use. With less, a burst would use it up and wait for the next period.
const ROOM_MIN: f64 = 1.5;
/// Least budget of a thread, as a share of a pCPU. Covers bursts of a thread that hardly ran during the recording.
const SHARE_MIN: f64 = 0.05;

fn propose(c: &Context<'_>) -> Result<Vec<Step>, String> {
    if c.delayed.is_empty() {
        return Err("no VM that mostly sleeps waits too long".to_owned());
    }
    let brief: Vec<&VmConfig> =
        c.delayed.iter().copied().filter(|vm| c.model.vm(&vm.id).is_some_and(runs_briefly)).collect();
    if brief.is_empty() {
        return Err("no delayed VM is known to run only briefly at a time".to_owned());
    }
    if let Some(vm) = brief.iter().find(|vm| has_quota(vm)) {
        return Err(format!(
            "VM {:?} has a CPU quota, which threads of a real-time class do not obey",
            vm.name
        ));
    }
    if !c.asked && brief.iter().any(|vm| vm.rt_budgets.is_empty()) {
        return Err("this kernel has no real-time budgets for cgroups, so nothing would stop a VM that begins to compute \
            (vsteer plan --only realtime proposes it all the same)"
            .to_owned());
    }
    let pcpus = c.model.pcpus.len().max(1) as f64;
    let use_of = |vm: &VmConfig| c.model.vm(&vm.id).and_then(|m| m.group.run).unwrap_or(0.0);
    let together: f64 = brief.iter().map(|vm| use_of(vm)).sum();
    if together > TOGETHER * pcpus {
        return Err(format!(
            "the delayed VMs use {together:.1} of {pcpus:.0} pCPUs together, too much for a real-time class"
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
            let reason = format!(
                "the VM uses {:.0} % of a pCPU and must run as soon as it \
                wakes",
                100.0 * use_of(vm)
            );
            steps.push(Step { vm: vm.id.clone(), vm_name: vm.name.clone(), change, reason });
        }
    }
    if steps.iter().any(|s| matches!(s.change, Change::Class(_))) {
        Ok(steps)
    } else {
        Err("no thread of the delayed VMs is known to run in a class below real-time".to_owned())
    }
}

fn has_quota(vm: &VmConfig) -> bool {
    let own = [vm.limits.whole_vm, vm.limits.per_vcpu, vm.limits.emulator];
    own.iter().any(Option::is_some) || !vm.quotas.is_empty()
}

/// Budgets for the cgroups of the raised threads and for their ancestors, parents first. Empty if the kernel has no
/// budgets.
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
    // Need of each leaf cgroup, as a share of a pCPU: its threads may all run on one pCPU.
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
    // The outermost cgroup's parent is the root. Its budget is the kernel's total for real time.
    const AVAILABLE: f64 = 0.90;
    let used: f64 = need.values().sum();
    let scale = (AVAILABLE / wanted).min(1.0);
    if wanted * scale < ROOM_MIN * used {
        return Err(format!(
            "the real-time budget is too small: the delayed VMs already use {:.0} % of a \
            pCPU",
            100.0 * used
        ));
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
            reason: "the kernel allows a real-time class only in a cgroup with a real-time budget".to_owned(),
        }
    };
    Ok(granted(&budgets, &shares).into_iter().filter(rises).map(step).collect())
}
