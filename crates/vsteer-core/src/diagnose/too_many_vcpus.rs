//! Does a VM have more vCPUs than it uses, and do they wait for each other?
//!
//! Unused vCPUs cost CPU time. Their timers and the guest's own scheduling make every sibling wait for a pCPU (lag).

use super::{Context, Finding, Rule, count, percent};
use crate::plural::counted;

pub const RULE: Rule = Rule {
    name: "too_many_vcpus",
    doc: "a VM has more vCPUs than it uses, and the vCPUs lag",
    explains: &[],
    check,
};

/// A VM has the right size if its vCPUs are busy for at least this share on average.
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
            title: format!(
                "VM {:?} has {has} vCPUs and needs {needs}: it asks for {demand:.1} pCPUs on \
                average",
                vm.name
            ),
            explanation: "The vCPUs delay each other. One vCPU is ready while a sibling runs. A sibling \
                that needs it (a lock, an interrupt, a barrier) waits too. With fewer vCPUs each one runs \
                more."
                .into(),
            evidence: vec![
                count("vCPUs", has as f64, "vCPUs", Some(needs as f64)),
                count("demand: run and ready together", demand, "pCPUs", None),
                percent(
                    "lag share (ready while a sibling ran), summed over vCPUs",
                    lag,
                    Some(c.thresholds.lag_group),
                ),
            ],
            loss_pcpus: lag,
            disproved_by: "a longer recording shows bursts that use all vCPUs of this VM".into(),
            next: format!(
                "record a whole day; if the demand is as low all day, give the VM {} at its next start",
                counted(needs, "vCPU")
            ),
            ..Finding::default()
        });
    }
    findings
}
