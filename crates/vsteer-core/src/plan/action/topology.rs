//! Shows guests a vCPU topology that fits the host: as few sockets as their vCPUs need nodes, evenly filled.
//!
//! A guest that sees one socket per vCPU (QEMU's default) balances as if every vCPU were far from every other. Takes
//! effect at the VM's next start, so it is proposed only when asked for by name, for the definition. Left out: guest
//! NUMA cells, and threads per core (vCPUs are not tied to sibling threads by this).

use super::{Action, Context};
use crate::nouns::GuestTopology;
use crate::setting;
use crate::setting::{Change, Step};

/// See the file's head.
pub const ACTION: Action = Action {
    name: "topology",
    doc: "show guests sockets that fit the host's nodes, at their next start",
    severity: 1,
    asked_only: true,
    propose,
};

fn propose(c: &Context<'_>) -> Result<Vec<Step>, String> {
    let topology = &c.config.topology;
    let cores_of = |cpus: &crate::CpuSet| topology.cores().iter().filter(|k| k.cpus.intersects(cpus)).count();
    let nodes = topology.nodes().iter().filter(|n| !n.cpus.is_empty());
    let per_node =
        nodes.map(|n| cores_of(&n.cpus)).min().unwrap_or_else(|| topology.cores().len()).max(1) as u32;
    let mut steps = Vec::new();
    for vm in &c.config.vms {
        let vcpus = vm.vcpu_count() as u32;
        // The fewest sockets that hold the vCPUs and fill evenly.
        let Some(sockets) = (vcpus.div_ceil(per_node).max(1)..=vcpus).find(|s| vcpus.is_multiple_of(*s))
        else {
            continue;
        };
        let to = GuestTopology { sockets, cores: vcpus / sockets, threads: 1 };
        if vm.guest_topology == Some(to) {
            continue;
        }
        let reason = format!("{vcpus} vCPUs fit {sockets} node(s) of {per_node} cores");
        let change = Change::Topology(setting::Topology { from: vm.guest_topology, to });
        steps.push(Step { vm: vm.id.clone(), vm_name: vm.name.clone(), change, reason });
    }
    if steps.is_empty() { Err("every guest's sockets fit the host already".to_owned()) } else { Ok(steps) }
}
