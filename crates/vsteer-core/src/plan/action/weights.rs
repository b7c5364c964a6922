//! Raises the CPU weight of VMs that mostly sleep and wait too long.
//!
//! A larger weight gives a woken group an earlier deadline. It costs other VMs almost nothing, because a sleeping
//! VM uses little. It shortens the wait but does not remove it.

use super::{Action, Context};
use crate::nouns::CpuWeight;
use crate::setting;
use crate::setting::{Change, Step};

pub const ACTION: Action = Action {
    name: "weights",
    doc: "raise the CPU weight of the delayed VMs",
    severity: 1,
    asked_only: false,
    on_vsphere: false,
    propose,
};

/// New weight as a multiple of the default. On EEVDF, more than about ten times brought no further gain.
const TIMES: f64 = 8.0;

fn propose(c: &Context<'_>) -> Result<Vec<Step>, String> {
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
