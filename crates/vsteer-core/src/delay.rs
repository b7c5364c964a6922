//! Which VMs wait too long? The one definition for `diagnose`, which names them, and for `plan`, which helps them.
//!
//! A VM that mostly sleeps is hurt by delay most, so it has stricter thresholds of its own ([`Thresholds::ready_sleeper`],
//! [`Thresholds::wake_p99_sleeper_ns`]).

use crate::model::{HostModel, Shares, VmModel};
use crate::nouns::Culprit;
use crate::thresholds::Thresholds;

/// A VM that mostly sleeps: every vCPU uses little and is asleep for a good part of the time. Use alone does not tell:
/// on a crowded host a VM that never sleeps uses little as well, because it waits.
pub fn is_sleeper(vm: &VmModel, t: &Thresholds) -> bool {
    if vm.vcpu_threads().next().is_none() {
        // Of a group the worlds are not told apart: nobody knows.
        return vm.worlds.is_some();
    }
    vm.vcpu_threads().all(|thread| {
        let (run, wait) = (thread.shares.run.unwrap_or(1.0), thread.shares.wait.unwrap_or(0.0));
        let asleep = thread.shares.blocked.unwrap_or(1.0 - run - wait);
        run <= t.sleeper_run && asleep >= t.sleeper_asleep
    })
}

/// Wake-ups below which a 99th percentile tells nothing.
const WAKES_MIN: u64 = 20;

impl Thresholds {
    /// The threshold of wake-ups for this VM; infinite for one that hardly sleeps, whose few wake-ups say little.
    pub fn wake_p99_of(&self, vm: &VmModel) -> f64 {
        match vm.per_vcpu(|s| s.run) {
            _ if is_sleeper(vm, self) => self.wake_p99_sleeper_ns,
            Some(run) if run < self.wakes_matter_run => self.wake_p99_ns,
            _ => f64::INFINITY,
        }
    }
}

/// The threshold of ready time for this VM, and so of [`waits_per_vcpu`].
fn ready_of(vm: &VmModel, t: &Thresholds) -> f64 {
    match vm.vcpu_threads().next() {
        // Only its group is counted.
        None => t.ready_group,
        Some(_) if is_sleeper(vm, t) => t.ready_sleeper,
        Some(_) => t.ready_per_vcpu,
    }
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

/// A VM that runs late after its wake-ups.
pub fn wakes_late(vm: &VmModel, t: &Thresholds) -> bool {
    vm.wake_latency.is_some_and(|l| l.p99_ns > t.wake_p99_of(vm) && l.count >= WAKES_MIN)
}

/// Ready and co-stopped per vCPU; of a VM of which the group alone is known, whose vCPUs are not counted, of the group, as if
/// one vCPU had waited all of it: too much rather than too little.
pub fn waits_per_vcpu(vm: &VmModel) -> Option<f64> {
    let waited = |s: &Shares| Some(s.ready.or(s.wait)? + s.costop.unwrap_or(0.0));
    vm.per_vcpu(waited).or_else(|| waited(vm.vcpus_or_group().0))
}

/// A VM that waits too long for what it does, for whomever.
pub fn is_delayed(vm: &VmModel, t: &Thresholds) -> bool {
    waits_per_vcpu(vm).is_some_and(|w| w > ready_of(vm, t)) || wakes_late(vm, t)
}

/// A VM that waits too long for others.
pub fn is_delayed_by_others(vm: &VmModel, model: &HostModel, t: &Thresholds) -> bool {
    // Others must cause at least a part of the delay: a wake-up can be late although no other VM was in the way.
    let ready = ready_of(vm, t);
    let least = if wakes_late(vm, t) { ready / 10.0 } else { ready };
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
