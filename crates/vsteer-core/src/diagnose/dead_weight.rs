//! Does a VM's weight have no effect because the VM is pinned within a larger pool?
//!
//! The rule reports it only if the measured shares differ from those of the weights.

use super::{Context, Finding, Rule, count, percent};
use crate::nouns::CpuWeight;
use crate::nouns::pinned_alike;
use crate::plural::pcpus;

pub const RULE: Rule = Rule {
    name: "dead_weight",
    doc: "a VM gets less than its weight would give, because it is pinned within a larger Credit pool of Xen",
    explains: &[],
    check,
};

/// Least difference, in pCPUs, between the measured share and the share by weight.
const APART: f64 = 0.03;

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (pool, cpus, vms) in pinned_alike(c.config) {
        let seen: Vec<_> = vms.iter().filter_map(|vm| Some((*vm, c.model.vm(&vm.id)?))).collect();
        let weight = |vm: &crate::nouns::VmConfig| vm.weight.map_or(1.0, CpuWeight::relative);
        // Only VMs that want more CPU time are limited by weight.
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
                    "the weight of VM {:?} has no effect: the VM is pinned to {} of pool {pool}",
                    vm.name,
                    pcpus(&cpus)
                ),
                explanation: "Xen's Credit scheduler grants credits by weight over the whole pool. VMs \
                    pinned to a part of the pool get more credits than they can use there. They then take \
                    turns, whatever their weights are."
                    .into(),
                evidence: vec![
                    count("weight of this VM, multiple of the default", weight(vm), "x", None),
                    percent("run share of this VM, compared with the share by weight", got, Some(due)),
                    percent("ready share of this VM, summed over vCPUs", c.ready(m), None),
                ],
                loss_pcpus: due - got,
                disproved_by: "the VM's run share does not change in a pool of these pCPUs only".into(),
                next: "run: vsteer plan --only pool".into(),
                ..Finding::default()
            });
        }
    }
    findings
}
