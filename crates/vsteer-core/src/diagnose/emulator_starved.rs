//! Do a VM's emulator or I/O threads wait?
//!
//! Device emulation, disk and network completions and, under QEMU's translator, the guest's timers run in them: a
//! VM whose vCPUs never wait can still feel slow. Hypervisor statistics that cover vCPUs alone cannot show it.

use super::{Context, Finding, Rule, millis, percent};
use crate::model::ThreadModel;
use crate::nouns::Role;

/// See the file's head.
pub const RULE: Rule =
    Rule { name: "emulator_starved", doc: "emulator or I/O threads of a VM wait for a pCPU", check };

fn ready(t: &ThreadModel) -> f64 {
    t.shares.ready.or(t.shares.wait).unwrap_or(0.0)
}

fn p99(t: &ThreadModel) -> Option<f64> {
    t.wake_latency.filter(|l| l.count >= 20).map(|l| l.p99_ns)
}

/// Is it a thread that serves the VM's devices, and does it wait more than the thresholds allow?
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
            let mut evidence = vec![percent("its ready share", ready, Some(c.thresholds.ready_per_vcpu))];
            evidence.extend(
                p99.map(|p| millis("wake-up to running, 99th percentile", p, Some(c.thresholds.wake_p99_ns))),
            );
            findings.push(Finding {
                rule: RULE.name.to_owned(),
                vm: Some(vm.id.clone()),
                title: format!("the {} thread of VM {:?} waits for a pCPU", t.role, vm.name),
                explanation: "Its disks, network and timers are served by this thread; while it waits, the guest waits, \
                              whatever its vCPUs' ready time says."
                    .into(),
                evidence,
                loss_pcpus: ready,
                disproved_by: "the guest's own latency does not improve when this thread alone is given priority".into(),
                next: "vsteer plan moves or raises emulator and I/O threads together with the vCPUs".into(),
            });
        }
    }
    findings
}
