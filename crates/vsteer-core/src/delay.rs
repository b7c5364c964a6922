//! Which VMs wait too long? Defines this once, for `diagnose` and for `plan`.
//!
//! Delay harms a VM that mostly sleeps most, so such VMs have stricter thresholds ([`Thresholds::ready_sleeper`],
//! [`Thresholds::wake_p99_sleeper_ns`]).

use crate::model::{HostModel, Shares, VmModel};
use crate::nouns::Culprit;
use crate::thresholds::Thresholds;

/// A VM that mostly sleeps: every vCPU runs little and sleeps much of the time. Low use is not enough, because on a
/// busy host a VM that never sleeps also runs little: it waits.
pub fn is_sleeper(vm: &VmModel, t: &Thresholds) -> bool {
    if vm.vcpu_threads().next().is_none() {
        // If only the group is counted, vsteer does not know whether the vCPUs sleep.
        return vm.worlds.is_some();
    }
    vm.vcpu_threads().all(|thread| {
        let (run, wait) = (thread.shares.run.unwrap_or(1.0), thread.shares.wait.unwrap_or(0.0));
        let asleep = thread.shares.blocked.unwrap_or(1.0 - run - wait);
        run <= t.sleeper_run && asleep >= t.sleeper_asleep
    })
}

/// Least number of wake-ups for a meaningful 99th percentile.
const WAKES_MIN: u64 = 20;

impl Thresholds {
    /// Wake-up threshold of this VM, ns; infinite for a VM that hardly sleeps, because it has few wake-ups.
    pub fn wake_p99_of(&self, vm: &VmModel) -> f64 {
        match vm.per_vcpu(|s| s.run) {
            _ if is_sleeper(vm, self) => self.wake_p99_sleeper_ns,
            Some(run) if run < self.wakes_matter_run => self.wake_p99_ns,
            _ => f64::INFINITY,
        }
    }
}

/// Threshold of [`waits_per_vcpu`] for this VM, as a share.
fn ready_of(vm: &VmModel, t: &Thresholds) -> f64 {
    match vm.vcpu_threads().next() {
        // Only the VM's group is counted.
        None => t.ready_group,
        Some(_) if is_sleeper(vm, t) => t.ready_sleeper,
        Some(_) => t.ready_per_vcpu,
    }
}

/// Ready time that others cause, as a share per vCPU. It excludes waits for the VM's own threads and waits while an
/// allowed pCPU idles, because a plan against others does not reduce them. Without a blame matrix: all ready time
/// of the vCPUs.
pub(crate) fn kept_waiting(vm: &VmModel, model: &HostModel) -> Option<f64> {
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

/// Does the VM run late after its wake-ups?
pub fn wakes_late(vm: &VmModel, t: &Thresholds) -> bool {
    vm.wake_latency.is_some_and(|l| l.p99_ns > t.wake_p99_of(vm) && l.count >= WAKES_MIN)
}

/// Ready and co-stop per vCPU. If only the group is counted and the number of vCPUs is unknown, the group's sum as
/// if one vCPU had waited all of it, which is an upper bound.
pub fn waits_per_vcpu(vm: &VmModel) -> Option<f64> {
    let waited = |s: &Shares| Some(s.ready.or(s.wait)? + s.costop.unwrap_or(0.0));
    vm.per_vcpu(waited).or_else(|| waited(vm.vcpus_or_group().0))
}

/// Does the VM wait too long, whatever the cause?
pub fn is_delayed(vm: &VmModel, t: &Thresholds) -> bool {
    waits_per_vcpu(vm).is_some_and(|w| w > ready_of(vm, t)) || wakes_late(vm, t)
}

/// Does the VM wait too long because of others?
pub fn is_delayed_by_others(vm: &VmModel, model: &HostModel, t: &Thresholds) -> bool {
    // Others must cause at least part of the delay, because a wake-up can be late without another VM.
    let ready = ready_of(vm, t);
    let least = if wakes_late(vm, t) { ready / 10.0 } else { ready };
    kept_waiting(vm, model).is_some_and(|w| w > least)
}

/// Longest mean run time per wake-up, ns, that counts as brief. Others wait this long; no scheduler tick is finer.
const BRIEF_NS: f64 = 1e6;

/// Do the VM's vCPUs run briefly at each wake-up? Then a timer or a device drives the VM, and its demand does not
/// grow when it waits less. `false` if neither wake-ups nor switches were measured.
pub fn runs_briefly(vm: &VmModel) -> bool {
    vm.vcpu_threads().all(|t| {
        // There are more switches than wake-ups, so bursts look shorter than they are.
        match (t.shares.run, t.wakeups_per_s.or(t.switches_per_s)) {
            (Some(run), Some(per_s)) => run * 1e9 <= BRIEF_NS * per_s.max(1.0),
            _ => false,
        }
    })
}
