//! Does a VM's memory lie on another node than its vCPUs?

use super::{Context, Finding, Rule, percent};
use crate::model::VmModel;

/// See the file's head.
pub const RULE: Rule =
    Rule { name: "memory_remote", doc: "a VM's memory lies on another node than its vCPUs", check };

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

/// The part of its accesses that is local, if each vCPU's spread over the memory evenly; `None` where it is not known.
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
        title: format!("VM {:?} reaches {:.0} % of its memory across nodes", vm.name, 100.0 * (1.0 - local)),
        explanation:
            "Its vCPUs run on one node and its pages lie on another: every miss costs the way across. \
                          Where a vCPU last ran stands for where it runs."
                .into(),
        evidence: vec![percent("local share of its memory", local, Some(c.thresholds.memory_local))],
        // A remote miss costs about half as much again; how many misses there are is not measured.
        loss_pcpus: 0.1 * run * (1.0 - local),
        disproved_by: "its vCPUs move back to the memory's node by themselves (watch N%L for a minute)"
            .into(),
        next: "pin its vCPUs to the memory's node, or bind and move its memory (pages moved stay moved)"
            .into(),
    }
}
