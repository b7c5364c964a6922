//! Moves as few VMs as possible from overloaded NUMA nodes to nodes that have room.
//!
//! [`crate::numa::moves`] considers all VMs of the host together. It finds the smallest set of moves after which
//! every node has room, bursts included. The action proposes it if a VM waits on an overloaded node. On vSphere,
//! `numa.nodeAffinity` keeps the VM and its memory on a node, and ESXi no longer moves it. Elsewhere the affinity
//! of the threads does, and an existing memory binding follows. A VM stays if its memory or devices could not follow:
//! [`crate::numa::ties`].
//!
//! Left out: VMs on several nodes. If no moves help, `diagnose` recommends fewer vCPUs or more cores.

use super::placing;
use super::{Action, Context, Propose};
use crate::CpuSet;
use crate::delay::is_delayed;
use crate::nouns::{VmConfig, VmThread};
use crate::numa::load::{Load, Node};
use crate::numa::moves::{Mend, Move, cannot, mend, tied};
use crate::setting;
use crate::setting::{Change, Step};

pub const ACTION: Action = Action {
    name: "node",
    doc: "move waiting VMs from an overloaded NUMA node to one that has room",
    severity: 2,
    asked_only: false,
    on_vsphere: true,
    propose: Propose::Directly(propose),
};

fn propose(c: &Context<'_>) -> Result<Vec<Step>, String> {
    let load = Load::of(c.config, c.model);
    if load.nodes.len() < 2 {
        return Err("this host has one NUMA node".to_owned());
    }
    if let Some(why) = c.confined() {
        return Err(why);
    }
    let homes = load.homes();
    let waits = load.guests.iter().zip(&homes).any(|(g, home)| {
        home.is_some_and(|h| !load.has_room(h, &homes))
            && c.model.vm(&g.vm).is_some_and(|m| is_delayed(m, &c.limits.thresholds))
    });
    let unknown = load.guests.iter().any(|g| {
        let of = c.config.vm(&g.vm).is_some_and(|vm| vm.manager.keeps_settings());
        of && g.home.is_none() && c.model.vm(&g.vm).is_some_and(|m| is_delayed(m, &c.limits.thresholds))
    });
    if !waits && unknown {
        return Err("vsteer does not know the home NUMA nodes of the waiting VMs; write home_nodes into \
            host.toml beside the file (NHN on esxtop's memory screen)"
            .to_owned());
    }
    if !waits {
        return Err("no VM waits on an overloaded NUMA node".to_owned());
    }
    let moves = match mend(&load) {
        Mend::Moves { moves, .. } => moves,
        Mend::NothingToDo => return Err("every NUMA node has room".to_owned()),
        Mend::Cannot { relief, fewer_vcpus, more_cores, .. } if relief.is_empty() => {
            let why = cannot(fewer_vcpus, more_cores);
            return Err(tied(&load).map_or(why.clone(), |tied| format!("{tied}; of the other VMs, {why}")));
        }
        Mend::Cannot { relief, .. } => relief,
    };
    let stay = |m: &&Move| c.config.vm(&load.guests[m.guest].vm).is_some_and(|vm| memory_stays(c, vm));
    if let Some(m) = moves.iter().find(stay).filter(|_| !c.asked) {
        return Err(format!(
            "the memory of VM {:?} would stay on node {}: it is not bound, and the kernel is not known to move it \
                (kernel.numa_balancing is 0 or was not read)",
            c.config.name_of(&load.guests[m.guest].vm),
            load.nodes[m.from].id.0
        ));
    }
    let mut steps = Vec::new();
    for m in moves {
        let (from, to) = (&load.nodes[m.from], &load.nodes[m.to]);
        let wanted = load.wanted(m.from, &homes);
        let reason = format!(
            "node {} has {:.0} cores, and its VMs need {:.1} on average and up to {:.1} at times; node {} \
                has room for this VM's {:.1}",
            from.id.0,
            from.cores,
            wanted.mean,
            wanted.most(),
            to.id.0,
            load.guests[m.guest].demand
        );
        if let Some(vm) = c.config.vm(&load.guests[m.guest].vm) {
            move_steps(vm, to, &c.config.housekeeping(), &reason, &mut steps);
        }
    }
    Ok(steps)
}

/// Would the VM's pages not follow its threads to another node?
fn memory_stays(c: &Context<'_>, vm: &VmConfig) -> bool {
    let balances = c.config.scheduler.as_ref().and_then(|s| s.numa_balancing);
    // A tied VM moves only to where its memory is already.
    let is_there = vm.bound_guest_nodes().is_some() || !vm.fixed.is_empty();
    !vm.manager.keeps_settings() && vm.memory_nodes.is_none() && !is_there && balances != Some(true)
}

/// `anybodys`: pCPUs that the kernel does not isolate.
fn move_steps(vm: &VmConfig, to: &Node, anybodys: &CpuSet, reason: &str, steps: &mut Vec<Step>) {
    let step =
        |change| Step { vm: vm.id.clone(), vm_name: vm.name.clone(), change, reason: reason.to_owned() };
    let nodes = Some(CpuSet::single(to.id.0));
    if vm.manager.keeps_settings() {
        let from = vm.vsphere.as_ref().and_then(|v| v.node_affinity.clone());
        steps.push(step(Change::NodeAffinity(setting::NodeAffinity { from, to: nodes })));
        return;
    }
    let cpus = to.cpus.intersection(anybodys);
    if cpus.is_empty() || !vm.vcpus().any(|t| t.affinity.intersects(anybodys)) {
        return;
    }
    let there = |t: &VmThread| (!t.affinity.is_subset(&to.cpus)).then(|| cpus.clone());
    steps.extend(placing(vm, &there, reason));
    // Only an existing binding changes, and only one of the whole VM. The kernel's NUMA balancing moves unbound memory by itself.
    if let Some(bound) = &vm.memory_nodes
        && Some(bound) != nodes.as_ref()
        && vm.bound_guest_nodes().is_none()
    {
        steps.push(step(Change::MemoryNodes(setting::MemoryNodes { from: Some(bound.clone()), to: nodes })));
    }
}
