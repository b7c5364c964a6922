//! Reads the memory nodes: their CPUs, their memory, and their distances.
//!
//! Source: `Documentation/ABI/stable/sysfs-devices-node`, `Documentation/admin-guide/mm/numaperf.rst`
//! (initiators), Linux 6.12. A row of distances follows the order of the *online* nodes, not the node
//! numbers. The driver's `/proc/driver/nvidia/gpus/*/numa_status` lists memory of NVIDIA GPUs that appears as
//! nodes.
//!
//! Left out: huge pages, latencies and bandwidths, memory-side caches, what is behind a DAX node.

use crate::linux::files::{Files, cpu_mask, memory_total_bytes, node_list, number, numbered};
use std::collections::{BTreeMap, BTreeSet};
use vsteer_core::CpuSet;
use vsteer_core::topology::{NodeId, NumaNode};

const NODE: &str = "/sys/devices/system/node";

/// The memory nodes; none on a kernel without NUMA. `allowed`: the nodes that the process may use (`None`:
/// all).
pub(super) fn read(files: &mut Files, allowed: &Option<BTreeSet<NodeId>>) -> Vec<NumaNode> {
    let listed = files.parsed(&format!("{NODE}/online"), node_list);
    let ids = listed.unwrap_or_else(|| {
        // Kernels before 2.6.26 have no list.
        let mut ids: Vec<u32> = files.names(NODE).iter().filter_map(|name| numbered(name, "node")).collect();
        ids.sort_unstable();
        ids
    });
    let mut gpus = gpu_nodes(files);
    let mut nodes = Vec::new();
    for &number in &ids {
        let id = NodeId(number);
        let folder = format!("{NODE}/node{number}");
        let Some(cpus) = files.mask_or_list(&format!("{folder}/cpumap"), &format!("{folder}/cpulist")) else {
            files.odd(&folder, "does not list its CPUs: vsteer ignores the node");
            continue;
        };
        let gpu = gpus.remove(&id);
        let nearest_cpus = gpu.as_ref().and_then(|g| g.near.clone()).unwrap_or_default();
        nodes.push(NumaNode {
            id,
            cpus,
            nearest_cpus,
            memory_bytes: files.parsed(&format!("{folder}/meminfo"), memory_total_bytes),
            distances: distances(files, &folder, &ids),
            initiators: initiators(files, &folder),
            gpu: gpu.map(|g| g.address),
            allowed: allowed.as_ref().is_none_or(|a| a.contains(&id)),
            assumed: false,
        });
    }
    nodes
}

/// A node's row of distances, by the online node to which each belongs.
fn distances(files: &mut Files, folder: &str, ids: &[u32]) -> BTreeMap<NodeId, u32> {
    let path = format!("{folder}/distance");
    let Some(row) = files.parsed(&path, distance_row) else { return BTreeMap::new() };
    if row.len() < ids.len() {
        files.odd(
            &path,
            format!("has {} distances for {} nodes: vsteer ignores the file", row.len(), ids.len()),
        );
        return BTreeMap::new();
    }
    ids.iter().map(|n| NodeId(*n)).zip(row).collect()
}

fn distance_row(text: &str) -> Result<Vec<u32>, String> {
    let one = |word| u32::try_from(number(word)?).map_err(|_| format!("`{word}` is not a distance"));
    text.split_ascii_whitespace().map(one).collect()
}

/// The nodes whose CPUs reach this one fastest. `access1` lists only CPUs. The older `access0` may name other
/// initiators, such as a GPU.
fn initiators(files: &mut Files, folder: &str) -> Vec<NodeId> {
    for class in ["access1", "access0"] {
        let path = format!("{folder}/{class}/initiators");
        if files.has_folder(&path) {
            let mut ids: Vec<NodeId> =
                files.names(&path).iter().filter_map(|n| numbered(n, "node")).map(NodeId).collect();
            ids.sort_unstable();
            return ids;
        }
    }
    Vec::new()
}

struct Gpu {
    address: String,
    near: Option<CpuSet>,
}

fn gpu_nodes(files: &mut Files) -> BTreeMap<NodeId, Gpu> {
    let mut nodes = BTreeMap::new();
    for address in files.names("/proc/driver/nvidia/gpus") {
        let status = files.text(&format!("/proc/driver/nvidia/gpus/{address}/numa_status"));
        if let Some(id) = status.as_deref().and_then(gpu_node) {
            let near = files.parsed(&format!("/sys/bus/pci/devices/{address}/local_cpus"), cpu_mask);
            nodes.insert(id, Gpu { address, near });
        }
    }
    nodes
}

/// The node of `Node: 255` in a `numa_status`.
fn gpu_node(text: &str) -> Option<NodeId> {
    let value = text.lines().find_map(|line| line.trim().strip_prefix("Node:"))?;
    value.trim().parse().ok().map(NodeId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_and_gpus() {
        assert_eq!(distance_row("10 21\n"), Ok(vec![10, 21]));
        assert!(distance_row("10 -1").is_err());
        assert_eq!(gpu_node("Node: 255\nStatus: online\n"), Some(NodeId(255)));
        assert_eq!(gpu_node("Node: none"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(s in "(Node:)?\\PC{0,30}") {
            let _ = (distance_row(&s), gpu_node(&s));
        }
    }
}
