//! Moves VMs from a NUMA node that carries too many vCPUs to one that has room, their memory binding with them.
//!
//! The flowchart of J. Park 2022 (doi:10.6109/jkiice.2022.26.10.1432), step 3, for all VMs of the host at once: as long
//! as a node is overloaded and its VMs wait, the waiting VM whose demand fits the emptiest other node best is moved
//! there. Step 4 (reduce vCPUs or upgrade) is the diagnosis's to say. Left out: the exact set of fewest moves
//! (GAP(fewest-moves)), and VMs larger than a node.

use super::advise::{Action, Context, is_delayed};
use super::{Change, Step};
use crate::CpuSet;
use crate::nouns::{Role, VmConfig};
use crate::topology::{NodeId, NumaNode};
use std::collections::BTreeMap;

/// See the file's head.
pub const ACTION: Action = Action {
    name: "node",
    doc: "move waiting VMs from an overloaded NUMA node to one that has room",
    severity: 2,
    asked_only: false,
    propose,
};

/// A node is filled by a move to at most this share of its pCPUs: bursts need room.
const FILL: f64 = 0.85;

fn propose(c: &Context<'_>) -> Result<Vec<Step>, String> {
    let nodes: Vec<&NumaNode> = c.config.topology.nodes().iter().filter(|n| !n.cpus.is_empty()).collect();
    if nodes.len() < 2 {
        return Err("this host has one NUMA node".to_owned());
    }
    let home = |vm: &VmConfig| {
        nodes
            .iter()
            .find(|n| vm.vcpus().all(|t| !t.affinity.is_empty() && t.affinity.is_subset(&n.cpus)))
            .map(|n| n.id)
    };
    let demand = |vm: &VmConfig| c.model.vm(&vm.id).and_then(|m| m.group.demand()).unwrap_or(0.0);
    // What each node is asked for: by VMs that are held on it, and by everybody else evenly.
    let free_everywhere: f64 =
        c.config.vms.iter().filter(|vm| home(vm).is_none()).map(demand).sum::<f64>() / nodes.len() as f64;
    let mut asked: BTreeMap<NodeId, f64> = nodes.iter().map(|n| (n.id, free_everywhere)).collect();
    for vm in &c.config.vms {
        if let Some(id) = home(vm) {
            *asked.entry(id).or_default() += demand(vm);
        }
    }
    let capacity = |n: &NumaNode| n.cpus.intersection(&c.config.topology.usable()).len() as f64;
    let mut steps = Vec::new();
    let mut waiting: Vec<&VmConfig> = c
        .config
        .vms
        .iter()
        .filter(|vm| c.model.vm(&vm.id).is_some_and(|m| is_delayed(m, &c.limits)))
        .collect();
    waiting.sort_by(|a, b| demand(b).total_cmp(&demand(a)).then_with(|| a.id.cmp(&b.id)));
    for vm in waiting {
        let Some(from) = home(vm).and_then(|id| nodes.iter().find(|n| n.id == id)) else { continue };
        if asked[&from.id] <= capacity(from) {
            continue;
        }
        let wants = demand(vm);
        let room = |n: &NumaNode| FILL * capacity(n) - asked[&n.id];
        let best = nodes.iter().filter(|n| n.id != from.id && room(n) >= wants);
        let Some(to) = best.max_by(|a, b| room(a).total_cmp(&room(b)).then_with(|| b.id.cmp(&a.id))) else {
            continue;
        };
        move_steps(vm, from, to, wants, &mut steps);
        *asked.entry(from.id).or_default() -= wants;
        *asked.entry(to.id).or_default() += wants;
    }
    if steps.is_empty() {
        Err("no waiting VM is held on an overloaded node that another node could relieve".to_owned())
    } else {
        Ok(steps)
    }
}

fn move_steps(vm: &VmConfig, from: &NumaNode, to: &NumaNode, wants: f64, steps: &mut Vec<Step>) {
    let reason = format!(
        "node {} is asked for more than it has, node {} has room for {wants:.1} pCPUs",
        from.id.0, to.id.0
    );
    let mut step = |change| {
        steps.push(Step { vm: vm.id.clone(), vm_name: vm.name.clone(), change, reason: reason.clone() });
    };
    for t in vm.threads.iter().filter(|t| t.role != Role::Worker && !t.affinity.is_subset(&to.cpus)) {
        step(Change::Affinity { role: t.role, tid: t.tid, from: t.affinity.clone(), to: to.cpus.clone() });
    }
    // Only a binding that is there is changed: unbound memory follows by itself where the kernel balances it.
    if let Some(bound) = &vm.memory_nodes {
        let nodes = Some(CpuSet::single(to.id.0));
        if Some(bound) != nodes.as_ref() {
            step(Change::MemoryNodes { from: Some(bound.clone()), to: nodes });
        }
    }
}
