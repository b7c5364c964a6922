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

/// A machine of one node with `fast` cores of two threads, and `slow` ones of one thread with about half of the capacity.
///
/// # Errors
/// As [`machine`].
pub fn hybrid(fast: u32, slow: u32) -> Result<Topology, Fault> {
    use crate::topology::{Core, CoreKind, Parts};
    let plain = machine(1, 1, 2 * fast + slow, 1)?;
    let all = plain.usable();
    let of = |cpus: CpuSet, kind, capacity| Core {
        cpus,
        kind: Some(kind),
        capacity: Some(capacity),
        ..Core::default()
    };
    let p = (0..fast).map(|i| of([2 * i, 2 * i + 1].into_iter().collect(), CoreKind::Performance, 1024));
    let e = (0..slow).map(|i| of(CpuSet::single(2 * fast + i), CoreKind::Efficiency, 550));
    Topology::new(Parts {
        present: all.clone(),
        online: all.clone(),
        allowed: all,
        nodes: plain.nodes().to_vec(),
        cores: p.chain(e).collect(),
        ..Parts::default()
    })
}
