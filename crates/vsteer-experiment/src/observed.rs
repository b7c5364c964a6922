//! What did VMs wait during a run? A measure of the observer's, from the model of the run's own window.
//!
//! The VMs that are meant must have been there throughout, with all their vCPUs: one that was started, stopped or given another vCPU meanwhile has
//! another length of time behind its numbers, and the run then has no value, with the reason, never one of what was left. Of several VMs a share is the mean
//! over all their vCPUs (a big VM weighs more), a time the worst VM's.
//!
//! Left out: what a VM waited in parts of a run: begin and end are all that is looked at.

use std::collections::BTreeMap;
use vsteer_core::model::{HostModel, VmModel};
use vsteer_core::nouns::{HostConfig, VmConfig};
use vsteer_core::quantity::{Kind, Quantity};

/// vCPUs of a VM.
fn vcpus(vm: &VmConfig) -> usize {
    vm.threads.iter().filter(|t| t.role.vcpu().is_some()).count()
}

/// The quantity of the VMs that are meant, in ms or per cent; or why there is none. `before` and `after` are how the host was set up at the
/// run's begin and end, `model` is of the time in between.
///
/// # Errors
/// The reason, as text: it stands in the run.
pub fn value(
    quantity: &Quantity,
    is_meant: &dyn Fn(&VmConfig) -> bool,
    (before, after): (&HostConfig, &HostConfig),
    model: &HostModel,
) -> Result<f64, String> {
    let meant = |host: &'_ HostConfig| -> BTreeMap<vsteer_core::nouns::VmId, (String, usize)> {
        let vms = host.vms.iter().filter(|vm| is_meant(vm));
        vms.map(|vm| (vm.id.clone(), (vm.name.clone(), vcpus(vm)))).collect()
    };
    let (first, last) = (meant(before), meant(after));
    if first.is_empty() && last.is_empty() {
        return Err("no such VM was there".to_owned());
    }
    if let Some((name, _)) = first.iter().find_map(|(id, vm)| (!last.contains_key(id)).then_some(vm)) {
        return Err(format!("VM {name:?} ended during the run"));
    }
    let mut of_vms = Vec::new();
    for (id, (name, n)) in &last {
        if !first.contains_key(id) {
            return Err(format!("VM {name:?} began during the run"));
        }
        let vm = model.vm(id).ok_or_else(|| format!("VM {name:?} was not there throughout"))?;
        let seen = vm.vcpu_threads().filter(|t| t.seen > 0.999).count();
        if seen != *n || first[id].1 != *n {
            return Err(format!("{seen} of the {n} vCPUs of VM {name:?} were there throughout"));
        }
        of_vms.push((of(quantity, vm, name, model)?, *n as f64));
    }
    let value = match quantity.kind {
        Kind::Time => of_vms.iter().map(|(v, _)| *v).fold(f64::MIN, f64::max),
        Kind::Share => {
            of_vms.iter().map(|(v, n)| v * n).sum::<f64>() / of_vms.iter().map(|(_, n)| *n).sum::<f64>()
        }
    };
    Ok(quantity.for_people(value))
}

fn of(quantity: &Quantity, vm: &VmModel, name: &str, model: &HostModel) -> Result<f64, String> {
    quantity.value(vm).ok_or_else(|| match (model.missing.get(quantity.counter), quantity.kind) {
        (Some(why), _) => format!("{} of VM {name:?} is not measured: {why}", quantity.name),
        (None, Kind::Time) => {
            format!("no vCPU of VM {name:?} woke or waited, so there is no {}", quantity.name)
        }
        (None, Kind::Share) => format!("{} of VM {name:?} was not measured", quantity.name),
    })
}

#[cfg(test)]
mod tests;
