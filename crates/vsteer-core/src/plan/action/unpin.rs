//! Takes a pin away that keeps a VM on busy pCPUs while others idle.
//!
//! A pin is somebody's decision, so only one that plainly hurts is touched: the VM waits, every pCPU it may use is
//! busy, and the pCPUs it may not use have room for nearly all that it waits for. pCPUs that the kernel isolates are nobody's to be
//! let onto, and who is on them was put there.

use super::{Action, Context};
use super::{Step, placing};
use crate::CpuSet;
use crate::delay::is_delayed;
use crate::nouns::VmThread;

/// See the file's head.
pub const ACTION: Action = Action {
    name: "unpin",
    doc: "let VMs that are pinned onto busy pCPUs use the idle ones as well",
    severity: 0,
    asked_only: false,
    propose,
};

/// A pCPU with less than this share of its time in use has room.
const IDLE: f64 = 0.5;
/// Of what a VM waits, idle pCPUs elsewhere must have room for this part: one that is idle is never so all of the time.
const ROOM: f64 = 0.8;
/// A pCPU with more than this share of its time in use is busy.
const BUSY: f64 = 0.85;

fn propose(c: &Context<'_>) -> Result<Vec<Step>, String> {
    let anybodys = c.config.housekeeping();
    let busy = |cpu: u32| c.model.pcpus.iter().find(|p| p.cpu == cpu).map_or(1.0, |p| p.busy);
    let mut steps = Vec::new();
    for vm in &c.config.vms {
        let Some(seen) = c.model.vm(&vm.id) else { continue };
        if !is_delayed(seen, &c.limits.thresholds) {
            continue;
        }
        let pinned: CpuSet = vm.vcpus().fold(CpuSet::new(), |all, t| all.union(&t.affinity));
        let elsewhere = anybodys.difference(&pinned);
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
        let reason = format!("pCPUs {pinned} are busy while {elsewhere} have {room:.1} pCPUs of room");
        let wider = |t: &VmThread| t.affinity.intersects(&anybodys).then(|| anybodys.union(&t.affinity));
        steps.extend(placing(vm, &wider, &reason));
    }
    if steps.is_empty() { Err("no waiting VM is pinned away from idle pCPUs".to_owned()) } else { Ok(steps) }
}
