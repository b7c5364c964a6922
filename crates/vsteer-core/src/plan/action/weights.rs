//! Raises the CPU weight of VMs that mostly sleep and wait.
//!
//! A larger weight brings a woken group's deadline nearer and costs others next to nothing, since a sleeper uses
//! little. It shortens the wait; it does not remove it.

use super::{Action, Context};
use crate::nouns::CpuWeight;
use crate::setting;
use crate::setting::{Change, Step};

/// See the file's head.
pub const ACTION: Action = Action {
    name: "weights",
    doc: "raise the CPU weight of the delayed VMs",
    severity: 1,
    asked_only: false,
    propose,
};

/// How much weight is given: beyond about ten times the default there was no further gain on EEVDF.
const TIMES: f64 = 8.0;

fn propose(c: &Context<'_>) -> Result<Vec<Step>, String> {
    if c.delayed.is_empty() {
        return Err("no VM that mostly sleeps is kept waiting".to_owned());
    }
    let steps: Vec<Step> = c
        .delayed
        .iter()
        .filter_map(|vm| {
            // ESXi's shares are of a VM's vCPUs together: so many for each are normal.
            let usual =
                if let Some(CpuWeight::Esxi(_)) = vm.weight { vm.vcpu_count().max(1) as f64 } else { 1.0 };
            let low = |w: &CpuWeight| w.relative() < TIMES * usual;
            let from = vm.weight.filter(|w| low(w) && vm.pinned_within().is_none())?;
            let to = from.with_relative(TIMES * usual);
            let reason = "it uses little and waits for VMs that use much".to_owned();
            Some(Step {
                vm: vm.id.clone(),
                vm_name: vm.name.clone(),
                change: Change::Weight(setting::Weight { from, to }),
                reason,
            })
        })
        .collect();
    if steps.is_empty() {
        Err("their weights are high already, do nothing, or cannot be set".to_owned())
    } else {
        Ok(steps)
    }
}
