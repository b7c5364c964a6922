//! Does a NUMA node carry more vCPUs than it has cores, while its VMs wait?
//!
//! The flowchart of J. Park 2022 (doi:10.6109/jkiice.2022.26.10.1432), step by step: (1) ready or co-stop above its
//! threshold; (2) more vCPUs on the VM's node than the node has cores; (3) another node has enough idle CPUs: move
//! the VM there and set its node affinity; (4) else reduce the vCPUs or upgrade. On hosts of one node step 3 has no
//! other node and the rule is silent: `pcpus_overloaded` and `overcommitted` say what there is to say.

use super::{Context, Finding, Rule, count, percent};
use crate::nouns::VmConfig;
use crate::topology::NumaNode;

/// See the file's head.
pub const RULE: Rule = Rule {
    name: "node_overloaded",
    doc: "a NUMA node carries more vCPUs than cores while its VMs wait",
    check,
};

/// The node that holds most of a VM's vCPUs' allowed pCPUs, if one holds all of them.
fn home<'a>(nodes: &[&'a NumaNode], vm: &VmConfig) -> Option<&'a NumaNode> {
    nodes
        .iter()
        .copied()
        .find(|n| vm.vcpus().all(|t| !t.affinity.is_empty() && t.affinity.is_subset(&n.cpus)))
}

fn check(c: &Context<'_>) -> Vec<Finding> {
    let nodes: Vec<&NumaNode> = c.config.topology.nodes().iter().filter(|n| !n.cpus.is_empty()).collect();
    if nodes.len() < 2 {
        return Vec::new();
    }
    let cores =
        |n: &NumaNode| c.config.topology.cores().iter().filter(|k| k.cpus.intersects(&n.cpus)).count();
    let vcpus_on = |n: &NumaNode| -> usize {
        c.vms()
            .filter(|(v, _)| home(&nodes, v).is_some_and(|h| h.id == n.id))
            .map(|(v, _)| v.vcpu_count())
            .sum()
    };
    let idle_on = |n: &NumaNode| -> f64 {
        c.model.pcpus.iter().filter(|p| n.cpus.contains(p.cpu)).map(|p| 1.0 - p.busy).sum()
    };
    let mut findings = Vec::new();
    for (config, vm) in c.vms().filter(|(_, vm)| c.waits(vm)) {
        let Some(node) = home(&nodes, config) else { continue };
        let (on_node, has) = (vcpus_on(node), cores(node));
        if on_node <= has {
            continue;
        }
        let wants = vm.vcpus.demand().unwrap_or(config.vcpu_count() as f64);
        let other = nodes.iter().filter(|n| n.id != node.id).find(|n| idle_on(n) >= wants);
        let next = match other {
            Some(n) => format!("move it to node {} (pCPUs {}), its memory with it", n.id.0, n.cpus),
            None => {
                "no other node has room: reduce the number of vCPUs, or upgrade the host's CPUs".to_owned()
            }
        };
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(vm.id.clone()),
            title: format!(
                "VM {:?} waits on node {}, which carries {on_node} vCPUs on {has} cores",
                vm.name, node.id.0
            ),
            explanation:
                "All vCPUs of these VMs are kept on one NUMA node; together they are more than its cores, so \
                          they take turns even when another node idles."
                    .into(),
            evidence: vec![
                percent("ready share, summed over vCPUs", c.ready(vm), Some(c.thresholds.ready_group)),
                count("vCPUs on the node", on_node as f64, "vCPUs", Some(has as f64)),
                count(
                    "idle elsewhere, best node",
                    nodes.iter().filter(|n| n.id != node.id).map(|n| idle_on(n)).fold(0.0, f64::max),
                    "pCPUs",
                    Some(wants),
                ),
            ],
            loss_pcpus: c.ready(vm),
            disproved_by: "its ready time stays when it alone is moved to an idle node".into(),
            next,
        });
    }
    findings
}
