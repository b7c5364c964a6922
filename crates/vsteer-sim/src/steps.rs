//! The setup of a simulated host after the steps of a plan.
//!
//! Left out: budgets of real-time groups, which the simulator does not have, and settings of vSphere.

use crate::ids::vm_id;
use crate::samples::tid;
use crate::setup::{Host, Setup};
use vsteer_core::nouns::{CpuWeight, Tid, VmId};
use vsteer_core::setting::{Change, QuotaScope, Step};
use vsteer_core::topology::NodeId;
use vsteer_core::{Fault, FaultKind};

/// `setup` after `steps` of a plan for [`crate::samples::config`]. `default_weight` is the policy's.
///
/// # Errors
/// `Unsupported` for a step that the simulator cannot make; `BadInput` for one of another host.
pub fn after(setup: &Setup, steps: &[Step], default_weight: u32) -> Result<Setup, Fault> {
    let host = Host::new(setup)?;
    let mut next = setup.clone();
    for step in steps {
        let vm = index(setup, &step.vm)?;
        let vcpu = |of: Tid| -> Result<usize, Fault> {
            let place = host.vcpus.iter().find(|v| v.vm.i() == vm && tid(setup, v) == of);
            let place = place.ok_or_else(|| bad(format!("VM {:?} has no thread {}", step.vm_name, of.0)))?;
            Ok(place.index as usize)
        };
        let changed = &mut next.vms[vm];
        match &step.change {
            Change::Affinity(c) => changed.vcpus[vcpu(c.tid)?].affinity = Some(c.to.clone()),
            Change::Class(c) => changed.vcpus[vcpu(c.tid)?].class = Some(c.to),
            Change::Weight(c) => changed.weight = Some(weight(c.to, default_weight)),
            Change::Quota(c) if c.scope == QuotaScope::WholeVm => changed.quota = c.to,
            Change::Quota(c) => changed.vcpus.iter_mut().for_each(|v| v.quota = c.to),
            Change::MemoryNodes(c) => {
                changed.memory_node = c.to.as_ref().and_then(|nodes| nodes.iter().next()).map(NodeId);
            }
            Change::RtBudget(_) => {}
            other => {
                return Err(Fault::new(
                    FaultKind::Unsupported,
                    format!("the simulator cannot make this change: {other}"),
                ));
            }
        }
    }
    Ok(next)
}

fn index(setup: &Setup, vm: &VmId) -> Result<usize, Fault> {
    (0..setup.vms.len())
        .find(|i| vm_id(*i) == *vm)
        .ok_or_else(|| bad(format!("the setup has no VM {}", vm.0)))
}

fn weight(to: CpuWeight, default_weight: u32) -> u32 {
    (to.relative() * f64::from(default_weight)).round().clamp(1.0, f64::from(u32::MAX)) as u32
}

fn bad(what: String) -> Fault {
    Fault::new(FaultKind::BadInput, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::Demand;
    use crate::samples::config;
    use crate::setup::{VcpuSetup, VmSetup};
    use vsteer_core::setting::{self, Step};
    use vsteer_core::topology::machine;

    #[test]
    fn steps_change_the_setup_that_they_were_planned_for() {
        let vms = vec![
            VmSetup::new("a", vec![VcpuSetup::new(Demand::Hog); 2]),
            VmSetup::new("b", vec![VcpuSetup::new(Demand::Hog)]),
        ];
        let setup = Setup::new(machine(1, 2, 2, 1).unwrap(), vms, 1);
        let host = config(&setup, "eevdf", 1024);
        let of = |vm: usize, change| Step {
            vm: host.vms[vm].id.clone(),
            vm_name: host.vms[vm].name.clone(),
            change,
            reason: String::new(),
        };
        let t = &host.vms[0].threads[1];
        let affinity = setting::Affinity {
            role: t.role,
            tid: t.tid,
            from: t.affinity.clone(),
            to: "2-3".parse().unwrap(),
        };
        let from = host.vms[1].weight.unwrap();
        let steps = [
            of(0, Change::Affinity(affinity)),
            of(1, Change::Weight(setting::Weight { from, to: from.with_relative(4.0) })),
            of(1, Change::MemoryNodes(setting::MemoryNodes { from: None, to: Some("1".parse().unwrap()) })),
        ];
        let next = after(&setup, &steps, 1024).unwrap();
        assert_eq!(
            (next.vms[0].vcpus[1].affinity.clone(), next.vms[0].vcpus[0].affinity.clone()),
            (Some("2-3".parse().unwrap()), None)
        );
        assert_eq!((next.vms[1].weight, next.vms[1].memory_node), (Some(4096), Some(NodeId(1))));
        let other = Step { vm: VmId("x".into()), ..steps[1].clone() };
        assert!(after(&setup, &[other], 1024).unwrap_err().to_string().contains("no VM x"));
    }
}
