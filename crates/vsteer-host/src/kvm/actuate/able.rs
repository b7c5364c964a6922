//! What can be changed of a VM, and if not, why not and what then?
//!
//! One table for asking ([`capabilities`]) and for refusing ([`check`]), so that a refusal never comes as a surprise.

use super::{fault, needs_budget};
use crate::actuate::{Able, Capabilities, Capability};
use crate::kvm::inventory::Inventory;
use vsteer_core::nouns::{CpuWeight, Manager, Role, VmConfig};
use vsteer_core::setting;
use vsteer_core::setting::{Change, QuotaScope, Step};
use vsteer_core::{Fault, FaultKind};

const NO_GROUP: &str = "it has no cgroup of its own with the cpu controller";
const NEXT_START: &str =
    "a guest's topology is fixed while it runs: change the definition, it holds from the next start";
const NO_FILES: &str = "the kernel budgets no real time per cgroup: classes need no budget here";
const BUDGET_LASTS: &str = "a cgroup's real-time budget lasts as long as the cgroup, until the VM stops";
const TRANSIENT: &str = "the VM is transient: libvirt keeps no definition of it";
const NOBODY: &str = "nobody keeps a definition of a bare QEMU: change how it is started";
const NOT_LIBVIRTS: &str = "only a VM of libvirt's is moved";
const QM: &str = "Proxmox keeps the definition: run qm set (see the way out)";
const KUBEVIRT: &str =
    "KubeVirt's controller owns it and would undo a change: change the VirtualMachine resource";
const XEN: &str = "it is a Xen domain: connect to that host by xen: or xen+ssh://root@host";
const UNCONNECTED: &str = "it belongs to a libvirt that is not connected";

pub(super) const XENS: &str = "only Xen has such a setting";
const VSPHERE: &str = "it runs on vSphere: connect to that by vsphere://USER@HOST";
pub(super) const VSPHERES: &str = "only vSphere has such a setting";
pub(super) const HOSTS: &str = "it is a setting of the host's, no VM's";
pub(super) const NO_POOLS: &str = "Linux has no pools of pCPUs";

fn no(why: &str) -> Able {
    Able::No(why.to_owned())
}

fn when(condition: bool, why: &str) -> Able {
    if condition { Able::Yes } else { no(why) }
}

/// What can be changed of a VM.
pub(super) fn capabilities(inventory: &Inventory, vm: &VmConfig) -> Capabilities {
    let seen = inventory.vms.iter().find(|v| v.id == vm.id);
    let listed = seen.and_then(|v| v.listed.as_ref());
    let of_libvirt = matches!(vm.manager, Manager::Libvirt(_));
    let persistent = match &vm.manager {
        Manager::Libvirt(_) => when(listed.is_some_and(|l| l.persistent), TRANSIENT),
        Manager::Bare => no(NOBODY),
        Manager::Proxmox(_) => no(QM),
        Manager::KubeVirt => no(KUBEVIRT),
        Manager::Xen => no(XEN),
        Manager::Vsphere(_) => no(VSPHERE),
    };
    let own = || when(vm.cgroup.is_some(), NO_GROUP);
    let both = |live: Able| Capability { live, persistent: persistent.clone() };
    let groups = || {
        if of_libvirt { own() } else { no("it has no cgroups of its own per vCPU: limit the whole VM") }
    };
    let class_persistent = match &persistent {
        Able::Yes if !vm.rt_budgets.is_empty() => no(
            "with real-time budgets per cgroup (RT_GROUP_SCHED) libvirt could not start a VM so defined: its cgroups \
             begin with none",
        ),
        other => other.clone(),
    };
    let mode = seen.and_then(|v| v.domain.as_ref()).and_then(|d| d.memory_mode.as_deref());
    let nodes = if of_libvirt {
        when(
            mode == Some("restrictive"),
            "libvirt moves the memory of a running VM only where numatune's mode is restrictive: change the definition, \
             it holds from the next start",
        )
    } else {
        no("a running QEMU's memory binding cannot be changed from outside: start it with host-nodes=")
    };
    let mut all = Capabilities {
        affinity: both(Able::Yes),
        weight: both(own()),
        quota_of_threads: both(groups()),
        quota_of_vm: both(own()),
        rt_budget: Capability {
            live: when(!vm.rt_budgets.is_empty(), NO_FILES),
            persistent: no(BUDGET_LASTS),
        },
        class: Capability { live: Able::Yes, persistent: class_persistent },
        memory_nodes: both(nodes),
        topology: both(no(NEXT_START)),
        host: Capability { live: when(of_libvirt, NOT_LIBVIRTS), persistent: when(of_libvirt, NOT_LIBVIRTS) },
        pool: both(no(NO_POOLS)),
        preference: both(no(XENS)),
        reservation: both(no(XENS)),
        node_affinity: both(no(VSPHERES)),
        of_vsphere: both(no(VSPHERES)),
    };
    let refuse_all = match &vm.manager {
        Manager::KubeVirt => Some(KUBEVIRT),
        Manager::Libvirt(uri) if uri.is_empty() => Some(UNCONNECTED),
        _ => None,
    };
    let untried = matches!(vm.manager, Manager::Proxmox(_));
    for capability in [
        &mut all.affinity,
        &mut all.weight,
        &mut all.quota_of_threads,
        &mut all.quota_of_vm,
        &mut all.rt_budget,
        &mut all.class,
        &mut all.memory_nodes,
        &mut all.topology,
        &mut all.host,
        &mut all.pool,
        &mut all.preference,
        &mut all.reservation,
        &mut all.node_affinity,
        &mut all.of_vsphere,
    ] {
        if let Some(why) = refuse_all {
            *capability = Capability { live: no(why), persistent: no(why) };
        } else if untried && capability.live == Able::Yes {
            capability.live = Able::Untried;
        }
    }
    all
}

fn of_change<'a>(all: &'a Capabilities, change: &Change) -> &'a Capability {
    match change {
        Change::Affinity(_) => &all.affinity,
        Change::Weight(_) => &all.weight,
        Change::Quota(setting::Quota { scope: QuotaScope::WholeVm, .. }) => &all.quota_of_vm,
        Change::Quota(_) => &all.quota_of_threads,
        Change::RtBudget(_) => &all.rt_budget,
        Change::Class(_) => &all.class,
        Change::MemoryNodes(_) => &all.memory_nodes,
        Change::Topology(_) => &all.topology,
        Change::Host(_) => &all.host,
        Change::Pool(_) => &all.pool,
        Change::Preference(_) => &all.preference,
        Change::Reservation(_) => &all.reservation,
        Change::NodeAffinity(_) => &all.node_affinity,
        Change::VmAffinity(_) | Change::ReservationMhz(_) | Change::LimitMhz(_) | Change::Latency(_) => {
            &all.of_vsphere
        }
        Change::Knob(_) => unreachable!("it is no VM's, and `check` has refused it"),
    }
}

/// Refuses a step that cannot be made there.
pub(super) fn check(
    inventory: &Inventory,
    vm: &VmConfig,
    step: &Step,
    live: bool,
    persistent: bool,
) -> Result<(), Fault> {
    if matches!(step.change, Change::Knob(_)) {
        return Err(fault(FaultKind::Unsupported, step).because(HOSTS));
    }
    let all = capabilities(inventory, vm);
    let capability = of_change(&all, &step.change);
    let refused = |why: &str| {
        let mut fault = fault(FaultKind::Unsupported, step).because(why);
        fault.way_out = way_out(vm, &step.change, why);
        Err(fault)
    };
    if let (true, Able::No(why)) = (live, &capability.live) {
        return refused(why);
    }
    if let (true, Able::No(why)) = (persistent, &capability.persistent) {
        // Back to the default class is always definable.
        if !matches!(step.change, Change::Class(setting::Class { to, .. }) if !needs_budget(to) && why.contains("RT_GROUP_SCHED"))
        {
            return refused(why);
        }
    }
    if let Change::Weight(setting::Weight { to, .. }) = step.change
        && vm.weight.is_some_and(|now| !same_unit(now, to))
    {
        return refused("its weight is in the unit of the other cgroup version");
    }
    if let (
        Change::Affinity(setting::Affinity { role: Role::Vhost | Role::Worker, .. }),
        Manager::Libvirt(_),
    ) = (&step.change, &vm.manager)
    {
        return refused("libvirt places such a thread with the emulator");
    }
    Ok(())
}

fn same_unit(a: CpuWeight, b: CpuWeight) -> bool {
    matches!(
        (a, b),
        (CpuWeight::Shares(_), CpuWeight::Shares(_)) | (CpuWeight::Weight(_), CpuWeight::Weight(_))
    )
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
        Change::Affinity(setting::Affinity { to, .. }) => format!("qm set {id} --affinity {to}"),
        Change::Weight(setting::Weight { to, .. }) => format!("qm set {id} --cpuunits {}", to.number()),
        Change::Quota(setting::Quota { scope: QuotaScope::WholeVm, to, .. }) => {
            format!("qm set {id} --cpulimit {}", to.map_or(0.0, vsteer_core::nouns::Quota::cpus))
        }
        _ => return None,
    })
}
