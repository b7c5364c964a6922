//! The help texts for refused changes, and the faults that several files of this folder use.

use super::fault;
use vsteer_core::nouns::{Manager, VmConfig};
use vsteer_core::setting::Step;
use vsteer_core::{Fault, FaultKind};

pub(super) const NO_GROUP: &str = "the VM has no cgroup of its own with the cpu controller";
pub(super) const BUDGET_LASTS: &str = "a cgroup's real-time budget ends with the cgroup, when the VM stops";
pub(super) const TRANSIENT: &str = "the VM is transient: libvirt keeps no definition of it";
pub(super) const NOBODY: &str = "no manager keeps a definition of this QEMU: change how it is started";
pub(super) const NO_QM_OPTION: &str = "Proxmox VE has no option for this setting";
pub(super) const ONE_AFFINITY: &str =
    "Proxmox VE keeps one affinity for all threads of a VM, and the plan pins them differently";
pub(super) const NO_QM: &str = "the tool of Proxmox VE, /usr/sbin/qm, is not on this host";
pub(super) const UNCONNECTED: &str = "vsteer is not connected to the VM's libvirt";

/// What the user can do if vsteer refuses a change for this reason.
pub(super) fn help_for(vm: &VmConfig, why: &str) -> Option<String> {
    match &vm.manager {
        Manager::Proxmox(_) => {
            (why == NO_QM_OPTION).then(|| "change the running VM only: --scope live".to_owned())
        }
        _ if why == UNCONNECTED => Some("name the connection of the VM's libvirt: --connect URI".into()),
        _ if why == NO_GROUP => Some(
            "start the VM through libvirt, or in its own scope: systemd-run --scope -p CPUWeight=100 qemu-…"
                .into(),
        ),
        _ if why == TRANSIENT || why == NOBODY || why == BUDGET_LASTS => {
            Some("change the running VM only: --scope live".into())
        }
        _ => None,
    }
}

/// The fault for a VM whose definition libvirt does not manage.
pub(super) fn no_definition(vm: &VmConfig, step: &Step) -> Fault {
    Fault { help: help_for(vm, NOBODY), ..fault(FaultKind::Unsupported, step).because(NOBODY) }
}

/// The fault for a VM whose libvirt is not connected.
pub(super) fn not_connected(step: &Step) -> Fault {
    fault(FaultKind::Unsupported, step)
        .because(UNCONNECTED)
        .help("name the connection of the VM's libvirt: --connect URI")
}
