//! Shows guests a vCPU topology that fits the host: one socket for each host node that the vCPUs need, evenly filled.
//!
//! QEMU shows one socket per vCPU by default. Such a guest balances as if every vCPU were far from every other. The
//! change takes effect at the VM's next start, so vsteer proposes it only on request (`--only topology`), for the
//! definition. Left out: guest NUMA cells, and threads per core, because vCPUs are not tied to sibling threads.

use super::{Action, Context, Propose};
use crate::nouns::GuestTopology;
use crate::plural::counted;
use crate::setting;
use crate::setting::{Change, Step};

pub const ACTION: Action = Action {
    name: "topology",
    doc: "show guests sockets that match the host's NUMA nodes, from their next start",
    severity: 1,
    asked_only: true,
    on_vsphere: true,
    propose: Propose::Directly(propose),
};

fn propose(c: &Context<'_>) -> Result<Vec<Step>, String> {
    let topology = &c.config.topology;
    let cores_of = |cpus: &crate::CpuSet| topology.cores().iter().filter(|k| k.cpus.intersects(cpus)).count();
    let nodes = topology.nodes().iter().filter(|n| !n.cpus.is_empty());
    let per_node =
        nodes.map(|n| cores_of(&n.cpus)).min().unwrap_or_else(|| topology.cores().len()).max(1) as u32;
    let nodes = topology.nodes().iter().filter(|n| !n.cpus.is_empty()).count().max(1) as u32;
    let (mut steps, mut left_out) = (Vec::new(), Vec::new());
    for vm in &c.config.vms {
        // vCPUs can be plugged in later: the guest's topology has room for all.
        let most = vm.guest_topology.map_or(0, |t| t.sockets * t.cores * t.threads);
        let vcpus = most.max(vm.vcpu_count() as u32);
        if vm.guest_topology.is_some_and(|t| t.threads > 1) {
            left_out
                .push(format!("VM {:?} shows threads, which may match sibling threads of the host", vm.name));
            continue;
        }
        if vcpus > per_node * nodes {
            left_out.push(format!(
                "VM {:?} has {}, more than the host's {}",
                vm.name,
                counted(vcpus, "vCPU"),
                counted(per_node * nodes, "core")
            ));
            continue;
        }
        // The fewest sockets that hold the vCPUs and fill evenly.
        let Some(sockets) =
            (vcpus.div_ceil(per_node).max(1)..=vcpus).find(|s| vcpus.is_multiple_of(*s) && *s <= nodes)
        else {
            left_out.push(format!("VM {:?} does not divide evenly among the NUMA nodes", vm.name));
            continue;
        };
        let to = GuestTopology { sockets, cores: vcpus / sockets, threads: 1 };
        if vm.guest_topology == Some(to) {
            continue;
        }
        let reason = format!(
            "{} fit into {} of {}",
            counted(vcpus, "vCPU"),
            counted(sockets, "NUMA node"),
            counted(per_node, "core")
        );
        let change = Change::Topology(setting::Topology { from: vm.guest_topology, to });
        steps.push(Step { vm: vm.id.clone(), vm_name: vm.name.clone(), change, reason });
    }
    if steps.is_empty() {
        left_out.insert(0, "no guest's sockets need to change".to_owned());
        Err(left_out.join("; "))
    } else {
        Ok(steps)
    }
}
