//! Raises the CPU weight of VMs that mostly sleep and wait too long.
//!
//! A larger weight gives a woken group an earlier deadline. It costs other VMs almost nothing, because a sleeping
//! VM uses little. It shortens the wait but does not remove it. On request (`--only weights`), VMs that compute get as much
//! weight per vCPU as the VM with the most on the same pCPUs, which takes time from others.

use super::{Action, Context, Propose};
use crate::delay::is_delayed;
use crate::nouns::{CpuWeight, VmConfig};
use crate::setting;
use crate::setting::{Change, Step};

pub const ACTION: Action = Action {
    name: "weights",
    doc: "raise the CPU weight of the delayed VMs",
    severity: 1,
    asked_only: false,
    on_vsphere: false,
    propose: Propose::Directly(propose),
};

/// New weight as a multiple of the default. On EEVDF, more than about ten times brought no further gain.
const TIMES: f64 = 8.0;

fn propose(c: &Context<'_>) -> Result<Vec<Step>, String> {
    if c.delayed.is_empty() && c.asked {
        return in_proportion(c);
    }
    if c.delayed.is_empty() {
        return Err("no VM that mostly sleeps waits too long".to_owned());
    }
    let steps: Vec<Step> = c
        .delayed
        .iter()
        .filter_map(|vm| {
            // ESXi's shares are for all vCPUs of a VM together: the default grows with the number of vCPUs.
            let usual =
                if let Some(CpuWeight::Esxi(_)) = vm.weight { vm.vcpu_count().max(1) as f64 } else { 1.0 };
            let low = |w: &CpuWeight| w.relative() < TIMES * usual;
            // The kernel refuses another weight for an idle cgroup, and one below it has no effect on VMs outside.
            let has_effect = vm.pinned_within().is_none() && vm.idle_group().is_none();
            let from = vm.weight.filter(|w| low(w) && has_effect)?;
            let to = from.with_relative(TIMES * usual);
            let reason = "the VM uses little CPU time and waits for VMs that use much".to_owned();
            Some(Step {
                vm: vm.id.clone(),
                vm_name: vm.name.clone(),
                change: Change::Weight(setting::Weight { from, to }),
                reason,
            })
        })
        .collect();
    if steps.is_empty() {
        Err("no delayed VM has a weight that vsteer can raise with effect".to_owned())
    } else {
        Ok(steps)
    }
}

/// A vCPU with less weight than this part of another's is starved by it.
const LESS: f64 = 0.75;

/// As much weight for each vCPU as the VM has that has most, for VMs that wait beside it.
fn in_proportion(c: &Context<'_>) -> Result<Vec<Step>, String> {
    let each = |vm: &VmConfig| Some(vm.weight?.relative() / vm.vcpu_count().max(1) as f64);
    let mut steps = Vec::new();
    if !c.model.vms.iter().any(|seen| is_delayed(seen, &c.limits.thresholds)) {
        return Err("no VM waits too long".to_owned());
    }
    for vm in &c.config.vms {
        let waits = c.model.vm(&vm.id).is_some_and(|seen| is_delayed(seen, &c.limits.thresholds));
        let has_effect = vm.pinned_within().is_none() && vm.idle_group().is_none();
        let (Some(from), Some(own), true) = (vm.weight, each(vm), waits && has_effect) else { continue };
        let beside = c.config.vms.iter().filter(|other| {
            other.id != vm.id && other.vcpus().any(|a| vm.vcpus().any(|b| a.affinity.intersects(&b.affinity)))
        });
        let most = beside.filter_map(each).fold(0.0, f64::max);
        if own >= LESS * most {
            continue;
        }
        let reason = format!("each of its vCPUs has {own:.2} of a default weight, another VM's {most:.2}");
        let to = from.with_relative(most * vm.vcpu_count().max(1) as f64);
        let change = Change::Weight(setting::Weight { from, to });
        steps.push(Step { vm: vm.id.clone(), vm_name: vm.name.clone(), change, reason });
    }
    if steps.is_empty() {
        Err("no VM that waits has less weight per vCPU than another VM on its pCPUs".to_owned())
    } else {
        Ok(steps)
    }
}
