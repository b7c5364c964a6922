//! Does no VM wait for a CPU? Then something else is slow, and the rule says where to look.
//!
//! The rule finds nothing if the waits of any VM were not counted, because that VM may wait. It also finds nothing if a
//! thread that serves a VM's devices waits.

use super::{Context, Finding, Rule, percent};
use super::{emulator_starved, stalled};

pub const RULE: Rule = Rule {
    name: "nothing_wrong",
    doc: "no VM waits for a CPU, so the cause of slowness \
    is elsewhere",
    explains: &[],
    check,
};

fn check(c: &Context<'_>) -> Vec<Finding> {
    let uncounted = |vm: &crate::model::VmModel| {
        let (shares, _) = vm.vcpus_or_group();
        shares.ready.or(shares.wait).is_none()
    };
    let devices_wait = |vm: &crate::model::VmModel| vm.threads.iter().any(|t| emulator_starved::waits(c, t));
    let any = |vm: &crate::model::VmModel| !c.over(vm).is_empty() || uncounted(vm) || devices_wait(vm);
    if c.vms().next().is_none() || c.vms().any(|(_, vm)| any(vm)) {
        return Vec::new();
    }
    let worst = c.vms().map(|(_, vm)| vm.per_vcpu(|s| s.ready.or(s.wait)).unwrap_or(0.0)).fold(0.0, f64::max);
    let mut evidence =
        vec![percent("largest ready share per vCPU", worst, Some(c.thresholds.ready_per_vcpu))];
    evidence.extend(stalled::evidence("the host", &c.model.pressure, None));
    evidence.extend(c.model.busy_mean().map(|b| percent("busy share of the pCPUs, mean", b, None)));
    vec![Finding {
        rule: RULE.name.to_owned(),
        vm: None,
        title: "no VM waits for a CPU".into(),
        explanation: "During this recording every VM got a pCPU almost as soon as it could run. If a VM \
            was slow, the host's CPU scheduling was not the cause, or it happened outside the recording."
            .into(),
        evidence,
        loss_pcpus: 0.0,
        disproved_by: "a recording of the slow moment shows ready time (vsteer record --ring)".into(),
        next: "check the guest's run queue and swap, the storage latency and the network".into(),
        ..Finding::default()
    }]
}
