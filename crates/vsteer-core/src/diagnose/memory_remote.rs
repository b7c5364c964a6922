//! Is a VM's memory on another NUMA node than its vCPUs?
//!
//! If the guest is shown NUMA nodes and the memory of each is bound to nodes of the host, a vCPU's accesses count as accesses
//! to the memory of its own guest node. A guest's kernel places memory so. Else each vCPU is taken to access all memory of
//! the VM evenly.
//!
//! Left out: guest nodes of which some are not bound, or whose vCPUs vsteer does not know. They count as memory of the VM.

use super::{Context, Evidence, Finding, Measure, Rule, percent};
use crate::CpuSet;
use crate::model::VmModel;
use crate::nouns::{GuestNode, VmConfig};
use crate::plural::pcpus;
use std::collections::BTreeMap;

pub const RULE: Rule = Rule {
    name: "memory_remote",
    doc: "a VM's memory is on another NUMA node than its vCPUs",
    explains: &[Measure::LocalMemory],
    check,
};

/// A VM, or a guest's node, with a smaller run share hardly suffers.
const RUNS: f64 = 0.05;

/// A node of a guest, whose memory is bound, and what its vCPUs do.
struct Cell<'a> {
    node: &'a GuestNode,
    /// Nodes of the host that its memory is bound to.
    memory: &'a CpuSet,
    /// Run share, summed over its vCPUs.
    run: f64,
    /// The part of it that runs beside the memory.
    run_local: f64,
    /// vCPUs of the node, by index.
    vcpus: CpuSet,
    /// Nodes of the host on which vCPUs run that have not all its memory beside them.
    away: CpuSet,
}

impl Cell<'_> {
    fn is_remote(&self, least: f64) -> bool {
        self.run >= RUNS && self.run_local < least * self.run
    }
}

fn check(c: &Context<'_>) -> Vec<Finding> {
    let least = c.thresholds.memory_local;
    let remote = |vm: &VmModel| {
        let local = local(c, vm)?;
        let cells = cells(c, vm).unwrap_or_default();
        let remote: Vec<&Cell<'_>> = cells.iter().filter(|cell| cell.is_remote(least)).collect();
        match remote.is_empty() {
            false => Some(of_cells(c, vm, local, &remote)),
            true => (local < least).then(|| finding(c, vm, local)),
        }
    };
    c.vms().filter_map(|(_, vm)| remote(vm)).collect()
}

fn run(vm: &VmModel) -> f64 {
    vm.vcpus_or_group().0.run.unwrap_or(0.0)
}

/// Local part of the VM's memory: what the hypervisor says, else what vCPUs and bound guest nodes or pages tell. `None` if
/// unknown, and for a VM that hardly runs.
pub(super) fn local(c: &Context<'_>, vm: &VmModel) -> Option<f64> {
    let nodes = || c.config.topology.nodes().iter().filter(|n| !n.cpus.is_empty());
    // Files of esxtop do not tell the nodes, but how much memory is local.
    let has_several = nodes().count() > 1 || nodes().any(|n| n.assumed) && vm.memory_local.is_some();
    let by_cells = || {
        let cells = cells(c, vm)?;
        let sum = |of: fn(&Cell<'_>) -> f64| cells.iter().map(of).sum::<f64>();
        Some(sum(|cell| cell.run_local) / sum(|cell| cell.run)).filter(|local| local.is_finite())
    };
    let told = vm.memory_local.or_else(by_cells).or_else(|| of_pages(c, vm, run(vm)));
    told.filter(|_| has_several && run(vm) >= RUNS)
}

/// The guest's nodes, if all vCPUs that ran are in one whose memory is bound.
fn cells<'a>(c: &'a Context<'_>, vm: &VmModel) -> Option<Vec<Cell<'a>>> {
    let config = c.config.vm(&vm.id)?;
    let mut cells: BTreeMap<u32, Cell<'a>> = BTreeMap::new();
    for t in vm.vcpu_threads() {
        let at = t.last_cpu.and_then(|cpu| c.config.topology.node_of(cpu));
        let (Some(share), Some(at)) = (t.shares.run, at) else { continue };
        let (vcpu, at) = (t.role.vcpu()?, at.id.0);
        let node = config.guest_node(vcpu)?;
        let memory = node.host_nodes.as_ref()?;
        let part = part_at(vm, memory, at)?;
        let cell = cells.entry(node.id).or_insert_with(|| {
            let (vcpus, away) = (CpuSet::new(), CpuSet::new());
            Cell { node, memory, run: 0.0, run_local: 0.0, vcpus, away }
        });
        cell.run += share;
        cell.run_local += share * part;
        cell.vcpus.insert(vcpu);
        if part < 1.0 {
            cell.away.insert(at);
        }
    }
    Some(cells.into_values().collect()).filter(|all: &Vec<Cell<'_>>| !all.is_empty())
}

/// The part of memory bound to these nodes that is at one node; `None` if unknown, or if the VM has no page on them, so that the
/// binding does not say where its memory is.
fn part_at(vm: &VmModel, memory: &CpuSet, at: u32) -> Option<f64> {
    let pages = vm.memory_by_node.as_ref().filter(|all| all.iter().any(|(_, bytes)| *bytes > 0));
    let on = |is: &dyn Fn(u32) -> bool| -> Option<u64> {
        Some(pages?.iter().filter(|(node, _)| is(*node)).map(|(_, bytes)| bytes).sum())
    };
    let bound = on(&|node| memory.contains(node));
    if bound == Some(0) {
        return None;
    }
    match (memory.contains(at), memory.len()) {
        (false, _) => Some(0.0),
        (true, 1) => Some(1.0),
        (true, _) => Some(on(&|node| node == at)? as f64 / bound? as f64),
    }
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
        loss_pcpus: loss(vm, local),
        disproved_by: "the vCPUs return to the node of their memory by themselves (watch N%L for a minute)"
            .into(),
        next: next(c.config.vm(&vm.id)),
        ..Finding::default()
    }
}

fn next(vm: Option<&VmConfig>) -> String {
    if vm.is_some_and(|v| v.manager.keeps_settings()) {
        return "see whether ESXi still moves the memory (esxtop, key m, fields NUMA: N%L rises); if not, give the VM vCPUs and \
                memory that fit one node (vsteer numa)"
            .into();
    }
    match vm.and_then(|v| v.fixed.first()) {
        Some(fixed) => format!("pin the vCPUs to the node of the memory, which cannot move: {fixed}"),
        None => "pin the vCPUs to the node of the memory, or bind the memory to the vCPUs' node (a rollback \
                does not move pages back)"
            .into(),
    }
}

/// The loss from remote memory, in pCPUs. A remote miss costs about 50 % more than a local one. The number of misses is not
/// measured.
fn loss(vm: &VmModel, local: f64) -> f64 {
    0.1 * run(vm) * (1.0 - local)
}

/// The finding that vCPUs of these guest nodes run away from the nodes' memory.
fn of_cells(c: &Context<'_>, vm: &VmModel, local: f64, remote: &[&Cell<'_>]) -> Finding {
    let place = |cell: &&Cell<'_>| {
        let (at, on) = (&cell.away, cell.memory);
        format!("guest NUMA node {} runs on {}, with memory on {}", cell.node.id, nodes(at), nodes(on))
    };
    let advice = |cell: &&Cell<'_>| {
        let (id, of) =
            (cell.node.id, c.config.topology.nodes().iter().filter(|n| cell.memory.contains(n.id.0)));
        let cpus = of.fold(CpuSet::new(), |all, n| all.union(&n.cpus));
        // On several nodes, no pin brings a vCPU to all memory.
        if cell.away.is_subset(cell.memory) || cpus.is_empty() {
            return format!("bind the memory of guest NUMA node {id} to one node, and pin its vCPUs there");
        }
        let word = if cell.vcpus.len() == 1 { "vCPU" } else { "vCPUs" };
        format!("pin {word} {} (guest NUMA node {id}) to {}", cell.vcpus, pcpus(&cpus))
    };
    let share = |cell: &&Cell<'_>| {
        let quantity = format!("local share of the memory of guest NUMA node {}", cell.node.id);
        percent(&quantity, cell.run_local / cell.run, Some(c.thresholds.memory_local))
    };
    let each = |of: &dyn Fn(&&Cell<'_>) -> String| remote.iter().map(of).collect::<Vec<_>>().join(", ");
    let mut evidence = vec![percent("local share of this VM's memory", local, None)];
    evidence.extend(remote.iter().map(share).collect::<Vec<Evidence>>());
    Finding {
        rule: RULE.name.to_owned(),
        vm: Some(vm.id.clone()),
        title: format!("VM {:?} runs away from its memory: {}", vm.name, each(&place)),
        explanation: "The guest is shown NUMA nodes, and the memory of each is bound to nodes of the host. vsteer counts a \
            vCPU's accesses as accesses to the memory of its own guest node. This rests on the binding and on a guest that \
            places memory by its NUMA nodes. vsteer takes the pCPU on which a vCPU last ran as its place."
            .into(),
        evidence,
        loss_pcpus: loss(vm, local),
        disproved_by: "programs in the guest use memory of other guest nodes (numastat -p in the guest)".into(),
        next: format!(
            "{}; or move both: bind the memory of each guest NUMA node to the node where its vCPUs shall run, in the \
                definition, which takes effect at the next start",
            each(&advice)
        ),
        ..Finding::default()
    }
}

fn nodes(set: &CpuSet) -> String {
    format!("node{} {set}", if set.len() == 1 { "" } else { "s" })
}
