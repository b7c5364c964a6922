//! Is a VM's memory on another NUMA node than its vCPUs?

use super::{Context, Finding, Rule, percent};
use crate::model::VmModel;

pub const RULE: Rule =
    Rule { name: "memory_remote", doc: "a VM's memory is on another NUMA node than its vCPUs", check };

fn check(c: &Context<'_>) -> Vec<Finding> {
    let nodes = c.config.topology.nodes();
    if nodes.iter().filter(|n| !n.cpus.is_empty()).count() < 2 {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (_, vm) in c.vms() {
        let run: f64 = vm.vcpus_or_group().0.run.unwrap_or(0.0);
        if run < 0.05 {
            continue;
        }
        let Some(local) = vm.memory_local.or_else(|| local(c, vm, run)) else { continue };
        if local >= c.thresholds.memory_local {
            continue;
        }
        findings.push(finding(c, vm, run, local));
    }
    findings
}

/// Local part of the VM's memory accesses, if each vCPU accesses all memory evenly; `None` if unknown.
fn local(c: &Context<'_>, vm: &VmModel, run: f64) -> Option<f64> {
    let memory = vm.memory_by_node.as_ref()?;
    let total: u64 = memory.iter().map(|(_, b)| b).sum();
    let nodes = vm
        .vcpu_threads()
        .filter_map(|t| Some((t.shares.run?, c.config.topology.node_of(t.last_cpu?)?.id)))
        .map(|(share, node)| {
            let here: u64 = memory.iter().filter(|(n, _)| *n == node.0).map(|(_, b)| *b).sum();
            share * here as f64 / total as f64
        });
    (total > 0).then(|| nodes.sum::<f64>() / run)
}

fn finding(c: &Context<'_>, vm: &VmModel, run: f64, local: f64) -> Finding {
    Finding {
        rule: RULE.name.to_owned(),
        vm: Some(vm.id.clone()),
        title: format!(
            "VM {:?} has {:.0} % of its memory on remote NUMA \
            nodes",
            vm.name,
            100.0 * (1.0 - local)
        ),
        explanation:
            "The vCPUs run on one node and memory pages are on another, so each cache miss crosses nodes. \
                vsteer takes the pCPU on which a vCPU last ran as its place."
                .into(),
        evidence: vec![percent("local share of this VM's memory", local, Some(c.thresholds.memory_local))],
        // A remote miss costs about 50 % more than a local one. The number of misses is not measured.
        loss_pcpus: 0.1 * run * (1.0 - local),
        disproved_by: "the vCPUs return to the node of their memory by themselves (watch N%L for a minute)"
            .into(),
        next: "pin the vCPUs to the node of the memory, or bind the memory to the vCPUs' node (a rollback \
            does not move pages back)"
            .into(),
    }
}
