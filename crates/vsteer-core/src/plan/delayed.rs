//! Which VMs wait too long, and which of them does a plan help?
//!
//! A VM is delayed when its vCPUs are ready for longer, or run later after a wake-up, than [`Limits`] allow. A plan is for those that
//! mostly sleep: delay hurts them most.

use crate::model::{HostModel, VmModel};
use crate::nouns::Culprit;
use serde::{Deserialize, Serialize};

/// What a plan may cost, and when a VM counts as delayed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Largest fall of any other VM's work rate, as a fraction of it.
    pub work_loss: f64,
    /// Largest growth of any VM's ready share, summed over its vCPUs, as a fraction of a pCPU.
    pub ready_growth: f64,
    /// A VM is delayed when its vCPUs wait for others more than this share of the time on average…
    pub delayed_ready: f64,
    /// … or this much after a wake-up, at the 99th percentile, ns.
    pub delayed_wake_ns: f64,
    /// A VM that uses less than this share of each vCPU is one that mostly sleeps: for such ones delay hurts most, and
    /// real-time priority is safe.
    pub sleeper_run: f64,
    /// … and sleeps for at least this share of the time.
    pub sleeper_asleep: f64,
    /// What it costs a vCPU to be moved to another core, ns; `None`: by the caches that cores do not share.
    pub move_cost_ns: Option<f64>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            work_loss: 0.10,
            ready_growth: 0.05,
            delayed_ready: 0.01,
            delayed_wake_ns: 2e6,
            sleeper_run: 0.35,
            sleeper_asleep: 0.4,
            move_cost_ns: None,
        }
    }
}

/// A VM that mostly sleeps: every vCPU uses little and is asleep for a good part of the time. Use alone does not tell:
/// on a crowded host a VM that never sleeps uses little as well, because it waits.
pub fn is_sleeper(vm: &VmModel, limits: &Limits) -> bool {
    if vm.vcpu_threads().next().is_none() {
        // Of a group the worlds are not told apart: nobody knows.
        return vm.worlds.is_some();
    }
    vm.vcpu_threads().all(|t| {
        let (run, wait) = (t.shares.run.unwrap_or(1.0), t.shares.wait.unwrap_or(0.0));
        let asleep = t.shares.blocked.unwrap_or(1.0 - run - wait);
        run <= limits.sleeper_run && asleep >= limits.sleeper_asleep
    })
}

/// How long the VM's threads are ready on account of others, as a share per vCPU: its own threads in each other's way
/// and an idle pCPU not used are nothing that a plan against others mends. All of its vCPUs' ready where who ran
/// meanwhile is not measured.
fn kept_waiting(vm: &VmModel, model: &HostModel) -> Option<f64> {
    let ready = waits_per_vcpu(vm)?;
    let Some(blame) = &model.blame else { return Some(ready) };
    let by_others = |c: &Culprit| match c {
        Culprit::Vm(id) => *id != vm.id,
        Culprit::Process { .. } | Culprit::Kernel { .. } | Culprit::Unattributed => true,
        Culprit::Placement => false,
    };
    let theirs: f64 =
        blame.iter().filter(|b| b.victim == vm.id && by_others(&b.culprit)).map(|b| b.share).sum();
    Some(ready.min(theirs / vm.vcpu_threads().count().max(1) as f64))
}

fn wakes_late(vm: &VmModel, limits: &Limits) -> bool {
    vm.wake_latency.is_some_and(|l| l.p99_ns > limits.delayed_wake_ns && l.count >= 20)
}

/// Ready and co-stopped per vCPU; of a VM of which the group alone is known, whose vCPUs are not counted, of the group, as if
/// one vCPU had waited all of it: too much rather than too little.
fn waits_per_vcpu(vm: &VmModel) -> Option<f64> {
    let waited = |s: &crate::model::Shares| Some(s.ready.or(s.wait)? + s.costop.unwrap_or(0.0));
    vm.per_vcpu(waited).or_else(|| waited(vm.vcpus_or_group().0))
}

/// A VM that waits too long for what it does, for whomever.
pub fn is_delayed(vm: &VmModel, limits: &Limits) -> bool {
    waits_per_vcpu(vm).is_some_and(|w| w > limits.delayed_ready) || wakes_late(vm, limits)
}

/// A VM that waits too long for others.
pub fn is_delayed_by_others(vm: &VmModel, model: &HostModel, limits: &Limits) -> bool {
    // A wake-up that is late on account of nobody is no other's doing either.
    let least = if wakes_late(vm, limits) { limits.delayed_ready / 10.0 } else { limits.delayed_ready };
    kept_waiting(vm, model).is_some_and(|w| w > least)
}

/// What a vCPU runs per wake-up, ns, on average, if it runs briefly: others wait for so long, and no scheduler tick is
/// finer.
const BRIEF_NS: f64 = 1e6;

/// Do the VM's vCPUs run briefly at each wake-up? Then a timer or a device drives it, and what it asks for does not grow
/// when it waits less. `false` where neither wake-ups nor switches were measured.
pub fn runs_briefly(vm: &VmModel) -> bool {
    vm.vcpu_threads().all(|t| {
        // Switches are more frequent than wake-ups, so by them bursts look shorter than they are.
        match (t.shares.run, t.wakeups_per_s.or(t.switches_per_s)) {
            (Some(run), Some(per_s)) => run * 1e9 <= BRIEF_NS * per_s.max(1.0),
            _ => false,
        }
    })
}
