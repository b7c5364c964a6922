//! Removes a pin that keeps a VM on busy pCPUs while other pCPUs idle.
//!
//! A person set the pin, so the action removes it only if it clearly harms. The VM waits, every allowed pCPU is busy, and the
//! other pCPUs of its CPU pool have room for nearly all of the wait. The action leaves pCPUs that the kernel isolates alone, and
//! VMs on them. It widens a pin within the NUMA nodes that the pin touches: memory would stay behind. Moving a VM with its memory
//! is what `node` does. Nor does a thread come to a node without bound memory of its own, if there is such memory, or to one
//! that memory and devices that cannot follow are not on. If the guest is shown several NUMA nodes, each vCPU stays on the
//! nodes of its own pin.

use super::{Action, Context, Propose};
use super::{Step, placing};
use crate::CpuSet;
use crate::delay::is_delayed;
use crate::nouns::VmThread;
use crate::plural::pcpus;

pub const ACTION: Action = Action {
    name: "unpin",
    doc: "let VMs that are pinned to busy pCPUs also use the idle ones",
    severity: 0,
    asked_only: false,
    on_vsphere: false,
    propose: Propose::Directly(propose),
};

/// A pCPU has room if at most this share of its time is used.
const IDLE: f64 = 0.5;
/// Least part of a VM's wait that must fit on other pCPUs. Not all of it, because no pCPU idles all the time.
const ROOM: f64 = 0.8;
/// A pCPU is busy if more than this share of its time is used.
const BUSY: f64 = 0.85;

fn propose(c: &Context<'_>) -> Result<Vec<Step>, String> {
    let busy = |cpu: u32| c.model.pcpus.iter().find(|p| p.cpu == cpu).map_or(1.0, |p| p.busy);
    let mut steps = Vec::new();
    for vm in &c.config.vms {
        let Some(seen) = c.model.vm(&vm.id) else { continue };
        if !is_delayed(seen, &c.limits.thresholds) {
            continue;
        }
        let anybodys = c.usable_of(vm);
        let pinned: CpuSet = vm.vcpus().fold(CpuSet::new(), |all, t| all.union(&t.affinity));
        let wide = |t: &VmThread| {
            let touched =
                if vm.guest_nodes.len() > 1 && t.role.vcpu().is_some() { &t.affinity } else { &pinned };
            let nodes = c.config.topology.nodes().iter().filter(|n| n.cpus.intersects(touched));
            let same_nodes = nodes.fold(CpuSet::new(), |all, n| all.union(&n.cpus)).intersection(&anybodys);
            c.kept_on(vm, t).map_or(same_nodes.clone(), |kept| same_nodes.intersection(&kept))
        };
        let may = vm.vcpus().fold(CpuSet::new(), |all, t| all.union(&wide(t)));
        let elsewhere = may.difference(&pinned);
        let room: f64 = elsewhere.iter().map(|cpu| (1.0 - busy(cpu)).max(0.0)).sum();
        let waits = seen.vcpus.ready.or(seen.vcpus.wait).unwrap_or(f64::INFINITY);
        let crowded = pinned.iter().all(|cpu| busy(cpu) > BUSY);
        if elsewhere.is_empty()
            || !pinned.intersects(&anybodys)
            || !crowded
            || room < ROOM * waits.min(1.0)
            || elsewhere.iter().all(|cpu| busy(cpu) > IDLE)
        {
            continue;
        }
        let reason = format!("busy: {}; idle time: {room:.1} pCPUs on {}", pcpus(&pinned), pcpus(&elsewhere));
        let wider = |t: &VmThread| t.affinity.intersects(&anybodys).then(|| wide(t).union(&t.affinity));
        steps.extend(placing(vm, &wider, &reason));
    }
    if steps.is_empty() {
        Err("no pin keeps a waiting VM away from idle \
        pCPUs"
            .to_owned())
    } else {
        Ok(steps)
    }
}
