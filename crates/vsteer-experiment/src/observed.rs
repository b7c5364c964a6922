//! How long did VMs wait during a run? Computes a measure from the model of the run's time window.
//!
//! The VMs must run during the whole run with all their vCPUs. If a VM started, stopped or got another vCPU, the
//! run has no value but a reason, because its numbers cover another length of time. For several VMs, a share is the
//! mean over all their vCPUs, and a time is that of the worst VM.
//!
//! Left out: waits in parts of a run.

use std::collections::BTreeMap;
use vsteer_core::model::{HostModel, VmModel};
use vsteer_core::nouns::{HostConfig, VmConfig};
use vsteer_core::trigger::quantity::{Kind, Quantity};

/// vCPUs of a VM.
fn vcpus(vm: &VmConfig) -> usize {
    vm.threads.iter().filter(|t| t.role.vcpu().is_some()).count()
}

/// The quantity of the named VMs, in ms or per cent. `before` and `after` are the host's configuration at the run's
/// begin and end; `model` covers the time in between.
///
/// # Errors
/// Why the run has no value, as text for the log.
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
        return Err("no VM has this name".to_owned());
    }
    if let Some((name, _)) = first.iter().find_map(|(id, vm)| (!last.contains_key(id)).then_some(vm)) {
        return Err(format!("VM {name:?} stopped during the run"));
    }
    let mut of_vms = Vec::new();
    for (id, (name, n)) in &last {
        if !first.contains_key(id) {
            return Err(format!("VM {name:?} started during the run"));
        }
        let vm = model.vm(id).ok_or_else(|| format!("VM {name:?} was not measured during the whole run"))?;
        let seen = vm.vcpu_threads().filter(|t| t.seen > 0.999).count();
        if seen != *n || first[id].1 != *n {
            return Err(format!(
                "only {seen} of {n} vCPUs of VM {name:?} were measured during the whole run"
            ));
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
