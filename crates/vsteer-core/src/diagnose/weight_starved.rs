//! Does a VM get less than others because its weight is smaller?

use super::{Context, Finding, Rule, count, percent};
use crate::nouns::CpuWeight;

/// See the file's head.
pub const RULE: Rule =
    Rule { name: "weight_starved", doc: "a VM waits because its weight is below the others'", check };

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (config, vm) in c.vms().filter(|(_, vm)| c.waits(vm)) {
        // One that does nothing starves nobody (`dead_weight`).
        let works = config.weight.filter(|_| config.pinned_within().is_none());
        let Some(weight) = works.map(CpuWeight::relative) else { continue };
        let run = vm.vcpus.run.unwrap_or(0.0);
        // Someone who got more, on the same pCPUs, with at least twice the weight.
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
            title: format!("VM {:?} waits because its weight is low beside VM {:?}", vm.name, other.name),
            explanation: "On full pCPUs time is shared by weight. This VM wants more than its share.".into(),
            evidence: vec![
                count("its weight, times the default", weight, "x", None),
                count("the other's weight", other.weight.map_or(1.0, CpuWeight::relative), "x", None),
                percent("its run share, summed over vCPUs", run, None),
                percent("the other's run share", seen.vcpus.run.unwrap_or(0.0), None),
                percent("its ready share", c.ready(vm), None),
            ],
            loss_pcpus: c.ready(vm),
            disproved_by: "its run share stays when the weights are made equal".into(),
            next: "is that weight intended? vsteer plan --only weights".into(),
        });
    }
    findings
}
