//! Has a VM more vCPUs than it uses, and do they wait for each other?
//!
//! Unused vCPUs cost: their timers and the guest's own scheduling make every sibling wait for a pCPU (lag).

use super::{Context, Finding, Rule, count, percent};

/// See the file's head.
pub const RULE: Rule =
    Rule { name: "too_many_vcpus", doc: "a VM has more vCPUs than it uses, and they lag", check };

/// A VM is right-sized when its vCPUs, in use on average, are busy for at least this share.
const FILL: f64 = 0.7;

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, vm) in c.vms() {
        let has = vm.vcpu_threads().count();
        let (Some(demand), Some(lag)) = (vm.vcpus.demand(), vm.vcpus.lag) else { continue };
        let needs = (libm::ceil(demand / FILL) as usize).max(1);
        if has < 2 || needs >= has || lag < c.thresholds.lag_group {
            continue;
        }
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(vm.id.clone()),
            title: format!("VM {:?} has {has} vCPUs and uses {demand:.1}: {needs} would do", vm.name),
            explanation: "Its vCPUs hold each other up: one is ready while a sibling runs, and whoever waits for it (a \
                          lock, an interrupt, a barrier) waits too. Fewer vCPUs would run more."
                .into(),
            evidence: vec![
                count("vCPUs", has as f64, "vCPUs", Some(needs as f64)),
                count("asked for, run and wait", demand, "pCPUs", None),
                percent("lag share, summed over vCPUs", lag, Some(c.thresholds.lag_group)),
            ],
            loss_pcpus: lag,
            disproved_by: "a longer window shows bursts that use all of its vCPUs".into(),
            next: format!("give it {needs} vCPUs at its next start, after a look at a whole day"),
        });
    }
    findings
}
