//! Gives the delayed VMs pCPUs of their own, away from the VMs that keep pCPUs busy.
//!
//! The fewest whole cores that hold what the delayed VMs use, with room, taken where they share a node and a last
//! level cache; everybody else gets the rest. All threads move, emulator and I/O threads too: under QEMU's
//! translator the guest's timers run in the emulator thread. A pin that keeps a thread within what it gets stays, and one that
//! does so in part is kept to that part. Costs the others what the delayed VMs leave unused.

use super::{Action, Context};
use super::{Step, placing};
use crate::CpuSet;
use crate::nouns::VmThread;
use crate::topology::Topology;

/// See the file's head.
pub const ACTION: Action = Action {
    name: "separate",
    doc: "pin the delayed VMs to pCPUs of their own, all others to the rest",
    severity: 3,
    asked_only: false,
    propose,
};

/// The delayed VMs fill at most this much of their own pCPUs, or they would wait for each other.
const FILL: f64 = 0.6;

fn propose(c: &Context<'_>) -> Result<Vec<Step>, String> {
    if c.delayed.is_empty() {
        return Err("no VM that mostly sleeps is kept waiting".to_owned());
    }
    // Who is on pCPUs that the kernel isolates is apart already, and nobody else is put there.
    let usable = c.config.housekeeping();
    let wanted: f64 =
        c.delayed.iter().filter_map(|vm| c.model.vm(&vm.id)).filter_map(|m| m.group.run).sum::<f64>() / FILL;
    let own = whole_cores(&c.config.topology, &usable, wanted);
    let rest = usable.difference(&own);
    if rest.is_empty() {
        return Err(format!("the delayed VMs need {wanted:.1} pCPUs to themselves, which leaves none"));
    }
    let mut steps = Vec::new();
    for vm in &c.config.vms {
        let delayed = c.delayed.iter().any(|d| d.id == vm.id);
        let (to, reason) = if delayed {
            (&own, "its wake-ups must not queue behind VMs that use much")
        } else {
            (&rest, "it keeps pCPUs busy that delayed VMs need at once")
        };
        steps.extend(placing(vm, &|t| t.affinity.intersects(&usable).then(|| within(t, to)), reason));
    }
    if steps.is_empty() { Err("they are separated already".to_owned()) } else { Ok(steps) }
}

/// Where a thread may run of `to`: where it may now, as far as that is there, else anywhere in it.
fn within(t: &VmThread, to: &CpuSet) -> CpuSet {
    let kept = t.affinity.intersection(to);
    if kept.is_empty() { to.clone() } else { kept }
}

/// Whole cores, last ones first (the first pCPU serves most interrupts), neighbours in node and cache together,
/// until they hold `wanted` pCPUs.
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
