//! Does the kernel move pages after the threads that use them?
//!
//! It helps VMs that roam over nodes and costs faults; VMs that are bound to a node do not need it. Source: Documentation/admin-guide/sysctl/kernel.rst.

use super::{Check, Finding, Tree};

/// See the file's head.
pub const CHECK: Check = Check { name: "numa_balancing", doc: "automatic NUMA balancing", look };

fn look(t: &Tree) -> Vec<Finding> {
    let nodes = t
        .text("/sys/devices/system/node/online")
        .and_then(|n| n.parse::<vsteer_core::CpuSet>().ok())
        .map(|n| n.len());
    match t.text("/proc/sys/kernel/numa_balancing") {
        None => vec![Finding::none("NUMA balancing", "this kernel has none")],
        Some(_) if nodes.is_none() => {
            vec![Finding::none("NUMA balancing", "how many nodes there are is not told")]
        }
        Some(_) if nodes < Some(2) => vec![Finding::none("NUMA balancing", "there is one node")],
        Some("0") => vec![Finding::bad(
            "NUMA balancing",
            "off",
            format!("{} nodes, and pages stay where they are though VMs may move", nodes.unwrap_or(0)),
            (
                "page faults; of no use where every VM is bound to a node",
                "sysctl kernel.numa_balancing=1",
                "sysctl kernel.numa_balancing=0",
            ),
        )],
        Some(v) => {
            vec![Finding::good("NUMA balancing", v, format!("{} nodes: pages follow", nodes.unwrap_or(0)))]
        }
    }
}
