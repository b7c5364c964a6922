//! Can a step be made on this VM? If not, why not, and what can the user do?
//!
//! The VM's manager comes first: it may refuse everything, or keep no definition. Then the setting itself is asked
//! ([`super::setting`]).

use super::fault;
use super::setting::{self, Able, Asked};
use crate::kvm::inventory::Inventory;
use vsteer_core::nouns::{Manager, VmConfig};
use vsteer_core::setting::{Affinity, Change, Quota, QuotaScope, Step, Weight};
use vsteer_core::{Fault, FaultKind};

pub(super) const NO_GROUP: &str = "it has no cgroup of its own with the cpu controller";
pub(super) const BUDGET_LASTS: &str =
    "a cgroup's real-time budget lasts as long as the cgroup, until the VM stops";
const TRANSIENT: &str = "the VM is transient: libvirt keeps no definition of it";
const NOBODY: &str = "nobody keeps a definition of a bare QEMU: change how it is started";
const NOT_LIBVIRTS: &str = "only a VM of libvirt's is moved";
const QM: &str = "Proxmox keeps the definition: run qm set (see the way out)";
const KUBEVIRT: &str =
    "KubeVirt's controller owns it and would undo a change: change the VirtualMachine resource";
const XEN: &str = "it is a Xen domain: connect to that host by xen: or xen+ssh://root@host";
const UNCONNECTED: &str = "it belongs to a libvirt that is not connected";

const VSPHERE: &str = "it runs on vSphere: connect to that by vsphere://USER@HOST";

/// Why nothing of this VM can be changed from here.
fn refuses_all(vm: &VmConfig) -> Option<&'static str> {
    match &vm.manager {
        Manager::KubeVirt => Some(KUBEVIRT),
        Manager::Libvirt(uri) if uri.is_empty() => Some(UNCONNECTED),
        _ => None,
    }
}

/// Is there a definition of this VM that can be changed?
fn has_definition(asked: &Asked<'_>) -> Able {
    let listed = asked.seen.and_then(|v| v.listed.as_ref());
    match &asked.vm.manager {
        Manager::Libvirt(_) if listed.is_some_and(|l| l.persistent) => Ok(()),
        Manager::Libvirt(_) => Err(TRANSIENT),
        Manager::Bare => Err(NOBODY),
        Manager::Proxmox(_) => Err(QM),
        Manager::KubeVirt => Err(KUBEVIRT),
        Manager::Xen => Err(XEN),
        Manager::Vsphere(_) => Err(VSPHERE),
    }
}

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
        has_definition(asked)?;
        setting.defined(asked)?;
    }
    Ok(())
}

/// Refuses a step that cannot be made there.
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
        Fault { way_out: way_out(vm, &step.change, why), ..refused }
    })
}

fn way_out(vm: &VmConfig, change: &Change, why: &str) -> Option<String> {
    match &vm.manager {
        Manager::Proxmox(id) => proxmox_command(*id, change).map(|c| format!("run: {c} (untried)")),
        _ if why == UNCONNECTED => Some("name its connection with --connect URI".into()),
        _ if why == NO_GROUP => Some(
            "start it through libvirt, or in a scope of its own: systemd-run --scope -p CPUWeight=100 qemu-…"
                .into(),
        ),
        _ if why == TRANSIENT || why == NOBODY || why == BUDGET_LASTS => {
            Some("change the running VM only: --scope live".into())
        }
        _ => None,
    }
}

/// The fault of a VM whose definition is not libvirt's.
pub(super) fn no_definition(vm: &VmConfig, step: &Step) -> Fault {
    let why = if let Manager::Proxmox(_) = vm.manager { QM } else { NOBODY };
    Fault { way_out: way_out(vm, &step.change, why), ..fault(FaultKind::Unsupported, step).because(why) }
}

/// The fault of a VM whose libvirt is not connected.
pub(super) fn not_connected(step: &Step) -> Fault {
    fault(FaultKind::Unsupported, step).because(UNCONNECTED).way_out("name its connection with --connect URI")
}

/// The command by which a person makes this change in Proxmox's definition; `None` where `qm set` has no word for it.
/// Untried: from `man qm` of Proxmox VE 8.
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
