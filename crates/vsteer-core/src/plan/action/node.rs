//! Moves VMs from NUMA nodes that are asked for more than they have to others that have room, as few VMs as can be.
//!
//! All VMs of the host at once ([`crate::numa::moves`]): the set of fewest moves after which every node has room, bursts
//! included. It is proposed where a VM waits on such a node. On vSphere a VM is kept on a node by `numa.nodeAffinity`, memory
//! with it, and then ESXi no longer moves it by itself; elsewhere by where its threads may run, and a memory binding that is
//! there goes with them.
//!
//! Left out: VMs on several nodes. Fewer vCPUs or more cores, where no moves mend it, are the diagnosis's to say.

use super::placing;
use super::{Action, Context};
use crate::CpuSet;
use crate::delay::is_delayed;
use crate::nouns::{VmConfig, VmThread};
use crate::numa::load::{Load, Node};
use crate::numa::moves::cannot;
use crate::numa::moves::{Mend, mend};
use crate::setting;
use crate::setting::{Change, Step};

/// See the file's head.
pub const ACTION: Action = Action {
    name: "node",
    doc: "move waiting VMs from an overloaded NUMA node to one that has room",
    severity: 2,
    asked_only: false,
    propose,
};

fn propose(c: &Context<'_>) -> Result<Vec<Step>, String> {
    let load = Load::of(c.config, c.model);
    if load.nodes.len() < 2 {
        return Err("this host has one NUMA node".to_owned());
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
        return Err("on which nodes ESXi keeps the VMs that wait is not told: home_nodes in host.toml beside the file (NHN on \
                    esxtop's memory screen)"
            .to_owned());
    }
    if !waits {
        return Err("no waiting VM is held on an overloaded node that another node could relieve".to_owned());
    }
    let moves = match mend(&load) {
        Mend::Moves { moves, .. } => moves,
        Mend::NothingToDo => return Err("every node has room".to_owned()),
        Mend::Cannot { relief, fewer_vcpus, more_cores, .. } if relief.is_empty() => {
            return Err(cannot(fewer_vcpus, more_cores));
        }
        Mend::Cannot { relief, .. } => relief,
    };
    let mut steps = Vec::new();
    for m in moves {
        let (from, to) = (&load.nodes[m.from], &load.nodes[m.to]);
        let wanted = load.wanted(m.from, &homes);
        let reason = format!(
            "node {} has {:.0} cores and is asked for {:.1} on average, for up to {:.1} at times; node {} has room for its {:.1}",
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

/// `anybodys`: the pCPUs that it may be let onto.
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
    // Only a binding that is there is changed: unbound memory follows by itself where the kernel balances it.
    if let Some(bound) = &vm.memory_nodes
        && Some(bound) != nodes.as_ref()
    {
        steps.push(step(Change::MemoryNodes(setting::MemoryNodes { from: Some(bound.clone()), to: nodes })));
    }
}
