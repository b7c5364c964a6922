//! Does a program on the host change where a VM runs, while a pin or another program decides that?
//!
//! Only where it matters: numad on a host of one NUMA node changes nothing, and one program alone is not contested. numad pins to
//! whole nodes, so a pin to whole nodes may be its own: then vsteer finds nothing unless the memory is bound, which numad never
//! does.
//!
//! Left out: what was lost by it, which is not measured.

use super::{Context, Evidence, Finding, Rule, count};
use crate::CpuSet;
use crate::nouns::{Contender, VmConfig};

pub const RULE: Rule = Rule {
    name: "contested",
    doc: "two programs, or a program and a pin, decide where a VM runs",
    explains: &[],
    check,
};

fn check(c: &Context<'_>) -> Vec<Finding> {
    let found = |vm: &VmConfig| {
        let placers: Vec<Contender> =
            c.config.contenders.iter().copied().filter(|p| p.places(c.config, vm)).collect();
        match placers.as_slice() {
            [one, other, ..] => Some(finding(c, vm, *one, &format!("{other} places it, too"))),
            [Contender::Numad] => Some(finding(c, vm, Contender::Numad, bound(c, vm)?)),
            _ => None,
        }
    };
    c.vms().filter_map(|(vm, _)| found(vm)).collect()
}

/// What besides numad keeps the VM to a part of the host, in words; `None` if nothing does.
fn bound(c: &Context<'_>, vm: &VmConfig) -> Option<&'static str> {
    let nodes: Vec<_> = c.config.topology.nodes().iter().filter(|n| !n.cpus.is_empty()).collect();
    let anybodys = c.config.housekeeping();
    let is_whole = |cpus: &CpuSet| {
        let of_nodes = nodes.iter().filter(|n| n.cpus.intersects(cpus));
        let all = of_nodes.fold(CpuSet::new(), |all, n| all.union(&n.cpus));
        all.intersection(&anybodys).is_subset(cpus)
    };
    if vm.vcpus().any(|t| !is_whole(&t.affinity)) {
        return Some("its vCPUs are pinned");
    }
    let bound = vm.memory_nodes.as_ref().is_some_and(|bound| nodes.iter().any(|n| !bound.contains(n.id.0)));
    bound.then_some("its memory is bound to a node")
}

fn finding(c: &Context<'_>, vm: &VmConfig, contender: Contender, beside: &str) -> Finding {
    let row = contender.row();
    Finding {
        rule: RULE.name.to_owned(),
        vm: Some(vm.id.clone()),
        title: format!("{} may move VM {:?}, and {beside}", row.name, vm.name),
        explanation: format!(
            "{} {}. The last one to write wins, so pins do not last. vsteer does not see which VMs the program was told to leave \
                alone.",
            row.name, row.does
        ),
        evidence: evidence(c, vm),
        loss_pcpus: 0.0,
        disproved_by:
            "the affinity of the VM's threads stays the same for an hour under load (taskset -ap PID)".into(),
        next: row.help_for(vm.pid),
        ..Finding::default()
    }
}

fn evidence(c: &Context<'_>, vm: &VmConfig) -> Vec<Evidence> {
    let nodes = c.config.topology.nodes().iter().filter(|n| !n.cpus.is_empty()).count();
    let may = vm.vcpus().fold(CpuSet::new(), |all, t| all.union(&t.affinity));
    let all = c.config.housekeeping().len() as f64;
    vec![
        count("NUMA nodes with pCPUs", nodes as f64, "nodes", None),
        count("pCPUs that its vCPUs may use, of those of the host", may.len() as f64, "pCPUs", Some(all)),
    ]
}
