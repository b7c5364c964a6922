//! Is a VM's memory on another NUMA node than its vCPUs?

use super::{Context, Finding, Measure, Rule, percent};
use crate::model::VmModel;

pub const RULE: Rule = Rule {
    name: "memory_remote",
    doc: "a VM's memory is on another NUMA node than its vCPUs",
    explains: &[Measure::LocalMemory],
    check,
};

/// A VM with a smaller run share hardly suffers.
const RUNS: f64 = 0.05;

fn check(c: &Context<'_>) -> Vec<Finding> {
    let remote =
        |vm: &VmModel| Some(finding(c, vm, local(c, vm).filter(|l| *l < c.thresholds.memory_local)?));
    c.vms().filter_map(|(_, vm)| remote(vm)).collect()
}

fn run(vm: &VmModel) -> f64 {
    vm.vcpus_or_group().0.run.unwrap_or(0.0)
}

/// Local part of the VM's memory: what the hypervisor says, else what vCPUs and pages tell. `None` if unknown, and for a VM
/// that hardly runs.
pub(super) fn local(c: &Context<'_>, vm: &VmModel) -> Option<f64> {
    let nodes = || c.config.topology.nodes().iter().filter(|n| !n.cpus.is_empty());
    // Files of esxtop do not tell the nodes, but how much memory is local.
    let has_several = nodes().count() > 1 || nodes().any(|n| n.assumed) && vm.memory_local.is_some();
    let told = vm.memory_local.or_else(|| of_pages(c, vm, run(vm)));
    told.filter(|_| has_several && run(vm) >= RUNS)
}

/// Local part of the VM's memory accesses, if each vCPU accesses all memory evenly; `None` if unknown.
fn of_pages(c: &Context<'_>, vm: &VmModel, run: f64) -> Option<f64> {
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

fn finding(c: &Context<'_>, vm: &VmModel, local: f64) -> Finding {
    let run = run(vm);
    Finding {
        rule: RULE.name.to_owned(),
        vm: Some(vm.id.clone()),
        title: format!(
            "VM {:?} has {:.0} % of its memory on remote NUMA \
            nodes",
            vm.name,
            100.0 * (1.0 - local)
        ),
        explanation: format!(
            "The vCPUs run on one node and memory pages are on another, so each cache miss crosses nodes.{}",
            if vm.memory_local.is_some() {
                ""
            } else {
                " vsteer takes the pCPU on which a vCPU last ran as its place."
            }
        ),
        evidence: vec![percent("local share of this VM's memory", local, Some(c.thresholds.memory_local))],
        // A remote miss costs about 50 % more than a local one. The number of misses is not measured.
        loss_pcpus: 0.1 * run * (1.0 - local),
        disproved_by: "the vCPUs return to the node of their memory by themselves (watch N%L for a minute)"
            .into(),
        next: if c.config.vm(&vm.id).is_some_and(|v| v.manager.keeps_settings()) {
            "see whether ESXi still moves the memory (esxtop, key m, fields NUMA: N%L rises); if not, give the VM vCPUs and \
                memory that fit one node (vsteer numa)"
        } else {
            "pin the vCPUs to the node of the memory, or bind the memory to the vCPUs' node (a rollback \
                does not move pages back)"
        }
        .into(),
        ..Finding::default()
    }
}
