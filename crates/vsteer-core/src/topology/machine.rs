//! A machine of equal parts, for scenarios that name no real one.

use crate::topology::NodeId;
use crate::{CpuSet, Fault, Topology};

/// A machine of equal parts: each socket has `nodes` nodes with a last-level cache each, each node `cores` cores of
/// `threads` threads. pCPUs are numbered core by core, threads side by side.
///
/// # Errors
/// As [`Topology::new`]: a machine without a pCPU.
pub fn machine(sockets: u32, nodes: u32, cores: u32, threads: u32) -> Result<Topology, Fault> {
    use crate::topology::{Cache, CacheKind, Core, NumaNode, Package, Parts};
    let range = |first: u32, n: u32| (first..first + n).collect::<CpuSet>();
    let (per_node, per_socket) = (cores * threads, nodes * cores * threads);
    let all = CpuSet::first(sockets * per_socket);
    let node_sets: Vec<CpuSet> = (0..sockets * nodes).map(|i| range(i * per_node, per_node)).collect();
    let distances = |i: u32| {
        let distance = |j: u32| if i == j { 10 } else { 21 };
        (0..sockets * nodes).map(|j| (NodeId(j), distance(j))).collect()
    };
    Topology::new(Parts {
        present: all.clone(),
        online: all.clone(),
        allowed: all,
        memory_bytes: None,
        packages: (0..sockets)
            .map(|i| Package { id: Some(i), cpus: range(i * per_socket, per_socket), assumed: false })
            .collect(),
        groups: Vec::new(),
        cores: (0..sockets * nodes * cores)
            .map(|i| Core { id: Some(i), cpus: range(i * threads, threads), ..Core::default() })
            .collect(),
        caches: node_sets
            .iter()
            .map(|cpus| Cache { level: 3, kind: CacheKind::Unified, size_bytes: None, cpus: cpus.clone() })
            .collect(),
        nodes: (0..sockets * nodes)
            .zip(&node_sets)
            .map(|(i, cpus)| NumaNode {
                id: NodeId(i),
                cpus: cpus.clone(),
                nearest_cpus: CpuSet::new(),
                memory_bytes: None,
                distances: distances(i),
                initiators: Vec::new(),
                gpu: None,
                allowed: true,
                assumed: false,
            })
            .collect(),
        oddities: Vec::new(),
    })
}
