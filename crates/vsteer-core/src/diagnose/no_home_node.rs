//! Has a Xen domain no node that it prefers, on a host with several?
//!
//! `xl` gives a new domain's vCPUs a soft affinity to the node that its memory comes from, unless it was told where they may run or
//! placed it itself over several. Without one, Credit and Credit2 move them from node to node, away from that memory.

use super::{Context, Finding, Rule, count, percent};

/// See the file's head.
pub const RULE: Rule =
    Rule { name: "no_home_node", doc: "a Xen domain may run on several nodes and prefers none", check };

/// One that runs less than this does not mind.
const RUNS: f64 = 0.05;

fn check(c: &Context<'_>) -> Vec<Finding> {
    let nodes: Vec<_> = c.config.topology.nodes().iter().filter(|n| !n.cpus.is_empty()).collect();
    let mut findings = Vec::new();
    for (config, vm) in c.vms().filter(|(config, _)| config.manager.is_xen() && nodes.len() > 1) {
        let run = vm.vcpus.run.unwrap_or(0.0);
        let may =
            config.vcpus().map(|t| nodes.iter().filter(|n| n.cpus.intersects(&t.affinity)).count()).max();
        let prefers = |t: &crate::nouns::VmThread| {
            let of = t.prefers.as_ref();
            of.is_some_and(|set| nodes.iter().any(|n| !n.cpus.intersects(set)))
        };
        let fits = nodes.iter().any(|n| n.cpus.len() >= config.vcpu_count());
        let may = may.unwrap_or(0);
        if run < RUNS || may < 2 || !fits || config.vcpus().any(prefers) {
            continue;
        }
        let distance = nodes.iter().flat_map(|n| n.distances.values().copied()).max().unwrap_or(10);
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(vm.id.clone()),
            title: format!("VM {:?} may run on {may} nodes and prefers none", vm.name),
            explanation: "Its memory lies on one of them, as a rule, or on some: a vCPU that runs elsewhere reaches it across nodes. Which pages lie \
                          where Xen's tools do not tell."
                .into(),
            evidence: vec![
                count("nodes that it may run on", may as f64, "nodes", Some(1.0)),
                count("the farthest node, by distance", f64::from(distance) / 10.0, "x", None),
                percent("its run share, summed over vCPUs", run, None),
            ],
            // As for memory on another node (memory_remote), by chance alone.
            loss_pcpus: 0.1 * run * (1.0 - 1.0 / may as f64),
            disproved_by: "its memory is spread over these nodes on purpose (xl debug-keys u; xl dmesg)".into(),
            next: "xl vcpu-pin DOMAIN all all NODE-PCPUS: soft affinity to the node of its memory".into(),
        });
    }
    findings
}
