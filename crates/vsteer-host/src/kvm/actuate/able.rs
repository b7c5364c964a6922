//! Decides whether a step is possible on this VM, and why not.
//!
//! The VM's manager decides first: it may refuse every change, or keep no definition. Then the setting itself
//! decides ([`super::setting`]).

use super::fault;
use super::help::{NO_QM_OPTION, NOBODY, TRANSIENT, UNCONNECTED, help_for};
use super::qm;
use super::setting::{self, Able, Asked};
use crate::kvm::inventory::Inventory;
use vsteer_core::nouns::{Manager, VmConfig};
use vsteer_core::setting::{Change, Step};
use vsteer_core::{Fault, FaultKind};

const NOT_LIBVIRTS: &str = "vsteer moves only VMs that libvirt manages";
const KUBEVIRT: &str =
    "KubeVirt's controller would undo the change: change the VirtualMachine resource instead";
const KATA: &str = "Kubernetes sets the CPU of Kata's VMs: change the pod's resources instead";
const XEN: &str = "the VM is a Xen domain: add --connect xen: or --connect xen+ssh://root@host";
const VSPHERE: &str = "the VM runs on vSphere: add --connect vsphere://USER@HOST";

/// Why nothing of this VM can be changed from this host.
fn refuses_all(vm: &VmConfig) -> Option<&'static str> {
    match &vm.manager {
        Manager::KubeVirt => Some(KUBEVIRT),
        Manager::Kata => Some(KATA),
        Manager::Libvirt(uri) if uri.is_empty() => Some(UNCONNECTED),
        _ => None,
    }
}

/// Does this VM have a definition that vsteer can change in this way?
fn has_definition(asked: &Asked<'_>, change: &Change) -> Able {
    let listed = asked.seen.and_then(|v| v.listed.as_ref());
    match &asked.vm.manager {
        Manager::Libvirt(_) if listed.is_some_and(|l| l.persistent) => Ok(()),
        Manager::Libvirt(_) => Err(TRANSIENT),
        Manager::Bare => Err(NOBODY),
        Manager::Proxmox(_) => qm::option(change).map(|_| ()).ok_or(NO_QM_OPTION),
        Manager::KubeVirt => Err(KUBEVIRT),
        Manager::Kata => Err(KATA),
        Manager::Xen => Err(XEN),
        Manager::Vsphere(_) => Err(VSPHERE),
    }
}

/// Is the change possible in both places where it takes effect?
fn able(asked: &Asked<'_>, change: &Change, (live, persistent): (bool, bool)) -> Able {
    if let Some(why) = refuses_all(asked.vm) {
        return Err(why);
    }
    if let Change::Host(_) = change {
        return if asked.of_libvirt { Ok(()) } else { Err(NOT_LIBVIRTS) };
    }
    let setting = setting::of(change)?;
    if live {
        setting.live(asked)?;
    }
    if persistent {
        has_definition(asked, change)?;
        setting.defined(asked)?;
    }
    Ok(())
}

/// Refuses a step that is not possible.
pub(super) fn check(
    inventory: &Inventory,
    vm: &VmConfig,
    step: &Step,
    where_to: (bool, bool),
) -> Result<(), Fault> {
    let seen = inventory.vms.iter().find(|v| v.id == vm.id);
    let asked = Asked { vm, seen, of_libvirt: matches!(vm.manager, Manager::Libvirt(_)) };
    able(&asked, &step.change, where_to).map_err(|why| {
        let refused = fault(FaultKind::Unsupported, step).because(why);
        Fault { help: help_for(vm, why), ..refused }
    })
}
