//! To which NUMA nodes do memory and devices tie a VM, so that a move of its vCPUs would leave them behind?
//!
//! A tie is a set of nodes with its reason. A VM can move as a whole only to a node of all its ties. Three things tie it:
//!
//! - memory of the guest's nodes that is bound one by one: a binding of the whole VM does not move it;
//! - huge pages, locked memory, and memory that VFIO pins: they stay where they are;
//! - VFIO devices, on whose node DMA is local.
//!
//! Source: [`crate::nouns::Fixed`]. Memory that can move does not tie a VM, bound or not: a plan moves its binding, or the kernel
//! moves the pages.
//!
//! Left out: on which node each guest node's huge pages lie, if it is not bound.

use crate::CpuSet;
use crate::model::VmModel;
use crate::nouns::{Fixed, VmConfig};
use crate::topology::{NodeId, Topology};

/// A node with more than this part of a VM's memory is a home of it.
const MUCH: f64 = 0.2;

/// What ties a VM to nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tie {
    /// The nodes.
    pub nodes: CpuSet,
    /// Which memory or device is on them.
    pub why: String,
}

impl Tie {
    fn new(nodes: CpuSet, of: impl Fn(&str) -> String) -> Tie {
        let word = if nodes.len() == 1 { "node" } else { "nodes" };
        Tie { why: of(&format!("{word} {nodes}")), nodes }
    }
}

/// Nodes that hold a good part of a VM's pages; `None` if that was not measured.
pub fn of_pages(seen: Option<&VmModel>) -> Option<CpuSet> {
    let by_node = seen?.memory_by_node.as_ref()?;
    let total: u64 = by_node.iter().map(|(_, bytes)| bytes).sum();
    let much = by_node.iter().filter(|(_, bytes)| *bytes as f64 > MUCH * total as f64);
    Some(much.map(|(node, _)| *node).collect::<CpuSet>()).filter(|nodes| !nodes.is_empty())
}

/// What ties a VM. `seen`: what was measured of it.
pub fn of(topology: &Topology, vm: &VmConfig, seen: Option<&VmModel>) -> Vec<Tie> {
    let bound = vm.guest_nodes.iter().filter_map(|node| {
        let nodes = node.host_nodes.clone()?;
        Some(Tie::new(nodes, |at| format!("the memory of its guest NUMA node {} is bound to {at}", node.id)))
    });
    let mut ties: Vec<Tie> = bound.collect();
    if let (true, Some(fixed)) = (ties.is_empty(), vm.fixed.first()) {
        let here = || {
            let may = vm.vcpus().fold(CpuSet::new(), |all, t| all.union(&t.affinity));
            topology.nodes().iter().filter(|n| n.cpus.intersects(&may)).map(|n| n.id.0).collect()
        };
        // A binding may name more nodes than the pages are on.
        let nodes = of_pages(seen).or_else(|| vm.memory_nodes.clone()).unwrap_or_else(here);
        ties.push(Tie::new(nodes, |at| match fixed {
            Fixed::HugePages => format!("its memory is in huge pages on {at}"),
            Fixed::Locked => format!("its memory is locked on {at}"),
            Fixed::Device { address, .. } => format!("VFIO device {address} pins its memory on {at}"),
        }));
    }
    ties.extend(vm.fixed.iter().filter_map(|fixed| match fixed {
        Fixed::Device { address, node: Some(node) } => {
            Some(Tie::new(CpuSet::single(*node), |at| format!("its VFIO device {address} is on {at}")))
        }
        _ => None,
    }));
    ties
}

/// Why a tied VM cannot move to this node; `None` if it can.
pub fn against(ties: &[Tie], node: NodeId) -> Option<&str> {
    ties.iter().find(|tie| !tie.nodes.contains(node.0)).map(|tie| tie.why.as_str())
}
