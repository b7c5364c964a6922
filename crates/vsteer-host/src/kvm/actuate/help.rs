//! The help texts for refused changes, and the faults that several files of this folder use.

use super::fault;
use vsteer_core::nouns::{Manager, VmConfig};
use vsteer_core::setting::{Affinity, Change, Quota, QuotaScope, Step, Weight};
use vsteer_core::{Fault, FaultKind};

pub(super) const NO_GROUP: &str = "the VM has no cgroup of its own with the cpu controller";
pub(super) const BUDGET_LASTS: &str = "a cgroup's real-time budget ends with the cgroup, when the VM stops";
pub(super) const TRANSIENT: &str = "the VM is transient: libvirt keeps no definition of it";
pub(super) const NOBODY: &str = "no manager keeps a definition of this QEMU: change how it is started";
pub(super) const QM: &str = "Proxmox keeps the definition: run qm set (see help)";
pub(super) const UNCONNECTED: &str = "vsteer is not connected to the VM's libvirt";

/// What the user can do if vsteer refuses a change for this reason.
pub(super) fn help_for(vm: &VmConfig, change: &Change, why: &str) -> Option<String> {
    match &vm.manager {
        Manager::Proxmox(id) => proxmox_command(*id, change).map(|c| format!("run: {c} (untried)")),
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
    let why = if let Manager::Proxmox(_) = vm.manager { QM } else { NOBODY };
    Fault { help: help_for(vm, &step.change, why), ..fault(FaultKind::Unsupported, step).because(why) }
}

/// The fault for a VM whose libvirt is not connected.
pub(super) fn not_connected(step: &Step) -> Fault {
    fault(FaultKind::Unsupported, step)
        .because(UNCONNECTED)
        .help("name the connection of the VM's libvirt: --connect URI")
}

/// The command with which a person makes this change in Proxmox's definition; `None` if `qm set` has no
/// option for it. Untried; from `man qm` of Proxmox VE 8.
pub fn proxmox_command(id: u32, change: &Change) -> Option<String> {
    Some(match change {
        Change::Affinity(Affinity { to, .. }) => format!("qm set {id} --affinity {to}"),
        Change::Weight(Weight { to, .. }) => format!("qm set {id} --cpuunits {}", to.number()),
        Change::Quota(Quota { scope: QuotaScope::WholeVm, to, .. }) => {
            format!("qm set {id} --cpulimit {}", to.map_or(0.0, vsteer_core::nouns::Quota::cpus))
        }
        _ => return None,
    })
}
