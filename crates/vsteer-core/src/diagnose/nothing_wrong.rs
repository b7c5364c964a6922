//! Is it not scheduling at all? Says so, and where to look instead.
//!
//! It is silent where any VM's waits were not counted, for what was not looked at may be what is wrong, and where a thread that
//! serves a VM's devices waits, though its vCPUs do not.

use super::emulator_starved;
use super::{Context, Finding, Rule, percent};

/// See the file's head.
pub const RULE: Rule = Rule { name: "nothing_wrong", doc: "no VM waits for a CPU: look elsewhere", check };

fn check(c: &Context<'_>) -> Vec<Finding> {
    let held = |vm: &crate::model::VmModel| {
        vm.per_vcpu(|s| s.limited).unwrap_or(0.0) > c.thresholds.limited_per_vcpu
    };
    let uncounted = |vm: &crate::model::VmModel| {
        let (shares, _) = vm.vcpus_or_group();
        shares.ready.or(shares.wait).is_none()
    };
    let devices_wait = |vm: &crate::model::VmModel| vm.threads.iter().any(|t| emulator_starved::waits(c, t));
    let any = |vm: &crate::model::VmModel| c.waits(vm) || held(vm) || uncounted(vm) || devices_wait(vm);
    if c.vms().next().is_none() || c.vms().any(|(_, vm)| any(vm)) {
        return Vec::new();
    }
    let worst = c.vms().map(|(_, vm)| vm.per_vcpu(|s| s.ready.or(s.wait)).unwrap_or(0.0)).fold(0.0, f64::max);
    let mut evidence =
        vec![percent("largest ready share per vCPU", worst, Some(c.thresholds.ready_per_vcpu))];
    evidence.extend(c.model.busy_mean().map(|b| percent("busy share of the pCPUs, mean", b, None)));
    vec![Finding {
        rule: RULE.name.to_owned(),
        vm: None,
        title: "no VM waits for a CPU".into(),
        explanation: "In this window every VM got a pCPU about as soon as it could run. If something felt slow, it was \
                      not the host's CPU scheduling, or it was not in this window."
            .into(),
        evidence,
        loss_pcpus: 0.0,
        disproved_by: "a recording of the slow moment shows ready time: vsteer record --ring catches it".into(),
        next: "look inside the guest (its own run queue, swap), at storage latency and at the network".into(),
    }]
}
