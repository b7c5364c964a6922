//! Does a VM's weight do nothing, since it is pinned within a larger pool?
//!
//! Told only where it shows: shares that are not those of the weights.

use super::{Context, Finding, Rule, count, percent};
use crate::nouns::CpuWeight;
use crate::nouns::pinned_alike;

/// See the file's head.
pub const RULE: Rule = Rule {
    name: "dead_weight",
    doc: "a VM gets less than its weight would give, since it is pinned within a larger pool of Xen's Credit",
    check,
};

/// pCPUs by which a share has to differ from what the weights would give.
const APART: f64 = 0.03;

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (pool, cpus, vms) in pinned_alike(c.config) {
        let seen: Vec<_> = vms.iter().filter_map(|vm| Some((*vm, c.model.vm(&vm.id)?))).collect();
        let weight = |vm: &crate::nouns::VmConfig| vm.weight.map_or(1.0, CpuWeight::relative);
        // Only those who want more are given by weight.
        let waiting: Vec<_> = seen.iter().filter(|(_, m)| c.waits(m)).collect();
        let run: f64 = waiting.iter().filter_map(|(_, m)| m.vcpus.run).sum();
        let all: f64 = waiting.iter().map(|(vm, _)| weight(vm)).sum();
        for (vm, m) in waiting {
            let (got, due) = (m.vcpus.run.unwrap_or(0.0), weight(vm) / all * run);
            if due - got < APART {
                continue;
            }
            findings.push(Finding {
                rule: RULE.name.to_owned(),
                vm: Some(vm.id.clone()),
                title: format!(
                    "the weight of VM {:?} does nothing: it is pinned to pCPUs {cpus} of pool {pool}",
                    vm.name
                ),
                explanation: "Xen's Credit deals out credits by weight over the whole pool. VMs that are pinned to a part of it have more than \
                              they can use there, and take turns whatever their weights are."
                    .into(),
                evidence: vec![
                    count("its weight, times the default", weight(vm), "x", None),
                    percent("its run share, against what its weight would give", got, Some(due)),
                    percent("its ready share", c.ready(m), None),
                ],
                loss_pcpus: due - got,
                disproved_by: "its run share stays in a pool of these pCPUs alone".into(),
                next: "vsteer plan --only pool".into(),
            });
        }
    }
    findings
}
