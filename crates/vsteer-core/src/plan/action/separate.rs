//! Gives the delayed VMs pCPUs of their own, separate from the VMs that keep pCPUs busy.
//!
//! The delayed VMs get the fewest whole cores that hold their use with some room, preferably in one node and last
//! level cache. All other VMs get the rest. Emulator and I/O threads move too, because under QEMU's translator the
//! guest's timers run in the emulator thread. An existing pin stays as far as it lies within the new pCPUs. The
//! other VMs lose the time that the delayed VMs leave unused.
//!
//! Nobody gets slower cores, or pCPUs far from its memory: where that cannot be had, the action is refused with the reason. Nor
//! does anybody get fewer pCPUs than vCPUs, unless somebody asks for the action by name.

use super::{Action, Context, Propose};
use super::{Step, placing};
use crate::CpuSet;
use crate::nouns::VmThread;
use crate::topology::Topology;

pub const ACTION: Action = Action {
    name: "separate",
    doc: "pin the delayed VMs to pCPUs of their own and all other VMs to the rest",
    severity: 3,
    asked_only: false,
    on_vsphere: false,
    propose: Propose::Directly(propose),
};

/// Largest used share of the delayed VMs' own pCPUs. With more, they would wait for each other.
const FILL: f64 = 0.6;

fn propose(c: &Context<'_>) -> Result<Vec<Step>, String> {
    let spacious = placed(c, true);
    // Who asks for it by name may want it where pCPUs are too few for all vCPUs.
    if spacious.is_err() && c.asked { placed(c, false) } else { spacious }
}

/// `spacious`: nobody gets fewer pCPUs than vCPUs.
fn placed(c: &Context<'_>, spacious: bool) -> Result<Vec<Step>, String> {
    if c.delayed.is_empty() {
        return Err("no VM that mostly sleeps waits too long".to_owned());
    }
    if let Some(why) = c.confined() {
        return Err(why);
    }
    // VMs on pCPUs that the kernel isolates are separate already, and no other VM moves there.
    let usable = c.config.housekeeping();
    if c.has_unequal_cores() {
        return Err(
            "the host's cores differ in speed: with pCPUs of their own, some VMs would lose the fast ones"
                .to_owned(),
        );
    }
    // A pin of theirs stays, and they stay near their memory.
    let theirs = c.delayed.iter().fold(usable.clone(), |all, vm| {
        let may = vm.vcpus().fold(CpuSet::new(), |all, t| all.union(&t.affinity));
        let near = c.near_memory(vm).unwrap_or_else(|| usable.clone());
        all.intersection(&may).intersection(&near)
    });
    if theirs.is_empty() {
        return Err(
            "the delayed VMs have pins or memory on different pCPUs, so no pCPUs suit all of them".to_owned()
        );
    }
    let used: f64 =
        c.delayed.iter().filter_map(|vm| c.model.vm(&vm.id)).filter_map(|m| m.group.run).sum::<f64>() / FILL;
    let widest = c.delayed.iter().map(|vm| vm.vcpu_count()).max().unwrap_or(0);
    let wanted = if spacious { used.max(widest as f64) } else { used };
    let own = whole_cores(&c.config.topology, &theirs, wanted);
    let rest = usable.difference(&own);
    if rest.is_empty() {
        return Err(format!(
            "the delayed VMs need {wanted:.1} pCPUs of their own, which leaves none for the \
            other VMs"
        ));
    }
    if (own.len() as f64) < wanted {
        return Err(format!("the delayed VMs need {wanted:.1} pCPUs of their own and may use {}", own.len()));
    }
    suits_the_others(c, &rest, spacious)?;
    let mut steps = Vec::new();
    for vm in &c.config.vms {
        let delayed = c.delayed.iter().any(|d| d.id == vm.id);
        let (to, reason) = if delayed {
            (&own, "its wake-ups must not queue behind VMs that use much CPU time")
        } else {
            (&rest, "it keeps pCPUs busy that delayed VMs need as soon as they wake")
        };
        steps.extend(placing(vm, &|t| t.affinity.intersects(&usable).then(|| within(t, to)), reason));
    }
    if steps.is_empty() {
        return Err("the delayed VMs have pCPUs of their own already".to_owned());
    }
    c.leaves_memory(&steps).map_or(Ok(steps), Err)
}

/// Have all other VMs pCPUs there near their memory, and with `spacious` one per vCPU?
fn suits_the_others(c: &Context<'_>, rest: &CpuSet, spacious: bool) -> Result<(), String> {
    let usable = c.config.housekeeping();
    let others = c.config.vms.iter().filter(|vm| !c.delayed.iter().any(|d| d.id == vm.id));
    for vm in others {
        let left = |t: &VmThread| {
            if t.affinity.intersects(&usable) { within(t, rest) } else { t.affinity.clone() }
        };
        let cpus = vm.vcpus().fold(CpuSet::new(), |all, t| all.union(&left(t)));
        let before = vm.vcpus().fold(CpuSet::new(), |all, t| all.union(&t.affinity));
        // A VM that has fewer pCPUs already loses nothing.
        if spacious && cpus.len() < vm.vcpu_count().min(before.len()) {
            return Err(format!(
                "VM {:?} has {} vCPUs, and {} pCPUs would be left for it",
                vm.name,
                vm.vcpu_count(),
                cpus.len()
            ));
        }
        if c.near_memory(vm).is_some_and(|near| before.intersects(&near) && !cpus.intersects(&near)) {
            return Err(format!("VM {:?} would have no pCPU on the node of its memory", vm.name));
        }
    }
    Ok(())
}

/// The part of `to` where a thread may run now; all of `to` if that part is empty.
fn within(t: &VmThread, to: &CpuSet) -> CpuSet {
    let kept = t.affinity.intersection(to);
    if kept.is_empty() { to.clone() } else { kept }
}

/// Whole cores with at least `wanted` pCPUs. Takes the last cores first, because the first pCPU serves most
/// interrupts, and cores of one node and cache together.
fn whole_cores(topology: &Topology, usable: &CpuSet, wanted: f64) -> CpuSet {
    let mut cores: Vec<CpuSet> = topology
        .cores()
        .iter()
        .map(|core| core.cpus.intersection(usable))
        .filter(|c| !c.is_empty())
        .collect();
    let place = |c: &CpuSet| {
        let cpu = c.iter().next().unwrap_or(0);
        let node = topology.node_of(cpu).map(|n| n.id);
        let cache = topology.llc_of(cpu).and_then(|l| l.cpus.iter().next());
        (node, cache, cpu)
    };
    cores.sort_by_key(place);
    let mut own = CpuSet::new();
    for core in cores.iter().rev() {
        if own.len() as f64 >= wanted.max(f64::MIN_POSITIVE) {
            break;
        }
        own = own.union(core);
    }
    own
}
