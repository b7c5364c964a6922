//! Does a Xen domain prefer no node on a host with several NUMA nodes?
//!
//! `xl` gives a new domain's vCPUs a soft affinity to the node of its memory. It does not if the configuration pins
//! the vCPUs or if the memory spans several nodes. Without soft affinity, Credit and Credit2 move vCPUs away from
//! the memory.

use super::{Context, Finding, Rule, count, percent};

pub const RULE: Rule = Rule {
    name: "no_home_node",
    doc: "a Xen domain may run on several NUMA nodes and prefers none",
    explains: &[],
    check,
};

/// A domain with a smaller run share hardly suffers.
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
            title: format!("VM {:?} may run on {may} NUMA nodes and prefers none", vm.name),
            explanation: "The domain's memory is usually on one or some of these nodes. A vCPU on another \
                node accesses it across nodes. Xen's tools do not show which pages are where."
                .into(),
            evidence: vec![
                count("nodes that this domain may run on", may as f64, "nodes", Some(1.0)),
                count(
                    "distance of the farthest node, multiple of local \
                    access",
                    f64::from(distance) / 10.0,
                    "x",
                    None,
                ),
                percent("run share of this domain, summed over vCPUs", run, None),
            ],
            // As in memory_remote, for a vCPU that runs on a random node.
            loss_pcpus: 0.1 * run * (1.0 - 1.0 / may as f64),
            disproved_by: "the domain's memory is spread over these nodes on purpose (xl debug-keys u; xl \
                dmesg)"
                .into(),
            next: "set soft affinity to the node of the memory: xl vcpu-pin DOMAIN all all NODE-PCPUS".into(),
            ..Finding::default()
        });
    }
    findings
}
