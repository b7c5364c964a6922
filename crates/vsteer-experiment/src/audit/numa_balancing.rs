//! Does the kernel move memory pages to the NUMA node of the threads that use them?
//!
//! This helps VMs that run on several nodes, but costs page faults. VMs bound to one node do not need it. Source:
//! Documentation/admin-guide/sysctl/kernel.rst.

use super::{Check, Finding, Tree};

pub const CHECK: Check = Check {
    name: "numa_balancing",
    doc: "automatic NUMA balancing",
    rests_on: &["kernel/numa_balancing"],
    look,
};

fn look(t: &Tree) -> Vec<Finding> {
    let nodes = t
        .text("/sys/devices/system/node/online")
        .and_then(|n| n.parse::<vsteer_core::CpuSet>().ok())
        .map(|n| n.len());
    match t.text("/proc/sys/kernel/numa_balancing") {
        None => vec![Finding::none("NUMA balancing", "this kernel does not support it")],
        Some(_) if nodes.is_none() => {
            vec![Finding::none("NUMA balancing", "the kernel does not report the number of NUMA nodes")]
        }
        Some(_) if nodes < Some(2) => vec![Finding::none("NUMA balancing", "the machine has one NUMA node")],
        Some("0") => vec![Finding::bad(
            "NUMA balancing",
            "off",
            format!("{} NUMA nodes: pages stay where they are when VMs move", nodes.unwrap_or(0)),
            (
                "costs page faults; useless if every VM is bound to a node",
                "sysctl kernel.numa_balancing=1",
                "sysctl kernel.numa_balancing=0",
            ),
        )],
        Some(v) => {
            vec![Finding::good(
                "NUMA balancing",
                v,
                format!("{} NUMA nodes: pages follow the VMs", nodes.unwrap_or(0)),
            )]
        }
    }
}
