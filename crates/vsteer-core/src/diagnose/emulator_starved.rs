//! Do a VM's emulator or I/O threads wait for a pCPU?
//!
//! These threads run device emulation, disk and network completions and, under QEMU's translator, the guest's timers.
//! If they wait, a VM is slow even though its vCPUs never wait. Statistics that cover only vCPUs do not show it.

use super::{Context, Finding, Measure, Rule, millis, percent};
use crate::model::ThreadModel;
use crate::nouns::Role;

pub const RULE: Rule = Rule {
    name: "emulator_starved",
    doc: "an emulator or I/O thread of a VM waits for a pCPU",
    explains: &[Measure::Devices],
    check,
};

fn ready(t: &ThreadModel) -> f64 {
    t.shares.ready.or(t.shares.wait).unwrap_or(0.0)
}

fn p99(t: &ThreadModel) -> Option<f64> {
    t.wake_latency.filter(|l| l.count >= 20).map(|l| l.p99_ns)
}

/// Does a thread that serves the VM's devices wait more than the thresholds allow?
pub(super) fn waits(c: &Context<'_>, t: &ThreadModel) -> bool {
    let slow = p99(t).is_some_and(|p| p > c.thresholds.wake_p99_ns);
    matches!(t.role, Role::Emulator | Role::IoThread(_) | Role::Vhost)
        && (ready(t) >= c.thresholds.ready_per_vcpu || slow && ready(t) > 0.005)
}

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, vm) in c.vms() {
        for t in vm.threads.iter().filter(|t| waits(c, t)) {
            let (ready, p99) = (ready(t), p99(t));
            // Only what exceeds its threshold is evidence.
            let long = (ready >= c.thresholds.ready_per_vcpu)
                .then(|| percent("ready share of this thread", ready, Some(c.thresholds.ready_per_vcpu)));
            let late = p99
                .filter(|p| *p > c.thresholds.wake_p99_ns)
                .map(|p| millis("wake-up to running, 99th percentile", p, Some(c.thresholds.wake_p99_ns)));
            findings.push(Finding {
                rule: RULE.name.to_owned(),
                vm: Some(vm.id.clone()),
                title: format!("the {} thread of VM {:?} waits for a pCPU", t.role, vm.name),
                explanation: "This thread serves the VM's disks, network or timers. While the thread \
                    waits, the guest waits, even if its vCPUs have no ready time."
                    .into(),
                evidence: long.into_iter().chain(late).collect(),
                loss_pcpus: ready,
                disproved_by: "the guest's latency does not improve when only this thread gets \
                    priority"
                    .into(),
                next: "run vsteer plan: it moves or raises emulator and I/O threads together with the \
                    vCPUs"
                    .into(),
                ..Finding::default()
            });
        }
    }
    findings
}
