//! Does a VM get less CPU time than another because its weight is smaller?

use super::{Context, Finding, Rule, count, percent};
use crate::nouns::CpuWeight;

pub const RULE: Rule = Rule {
    name: "weight_starved",
    doc: "a VM waits because another VM on its pCPUs has at least twice its \
        weight",
    check,
};

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (config, vm) in c.vms().filter(|(_, vm)| c.waits(vm)) {
        // A weight without effect is not the cause (see `dead_weight`).
        let works = config.weight.filter(|_| config.pinned_within().is_none());
        let Some(weight) = works.map(CpuWeight::relative) else { continue };
        let run = vm.vcpus.run.unwrap_or(0.0);
        // A VM on the same pCPUs that ran more and has at least twice the weight.
        let stronger = c.vms().find(|(other, seen)| {
            other.id != config.id
                && other.weight.is_some_and(|w| w.relative() >= 2.0 * weight)
                && seen.vcpus.run.unwrap_or(0.0) > run
                && other.vcpus().any(|a| config.vcpus().any(|b| a.affinity.intersects(&b.affinity)))
        });
        let Some((other, seen)) = stronger else { continue };
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(vm.id.clone()),
            title: format!("VM {:?} waits because VM {:?} has a larger CPU weight", vm.name, other.name),
            explanation: "Busy pCPUs divide their time by weight. This VM wants more than its weight gives \
                it."
            .into(),
            evidence: vec![
                count("weight of this VM, multiple of the default", weight, "x", None),
                count(
                    "weight of the other VM, multiple of the \
                    default",
                    other.weight.map_or(1.0, CpuWeight::relative),
                    "x",
                    None,
                ),
                percent("run share of this VM, summed over vCPUs", run, None),
                percent("run share of the other VM, summed over vCPUs", seen.vcpus.run.unwrap_or(0.0), None),
                percent("ready share of this VM, summed over vCPUs", c.ready(vm), None),
            ],
            loss_pcpus: c.ready(vm),
            disproved_by: "with equal weights, the VM's run share does not change".into(),
            next: "check whether the weight is intended; if not, run: vsteer plan --only weights".into(),
        });
    }
    findings
}
