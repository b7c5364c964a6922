//! Reads the configuration of this host and of each VM, which a plan reads and changes.
//!
//! vsteer reads the values in force from the kernel (affinity, class, cgroup files), and the rest from
//! libvirt's description or QEMU's command line. What cannot be read is `None`. If a VM disappears during the
//! reading, vsteer leaves it out.
//!
//! Source: as in the modules used. libvirt's quota parameters: `docs/manpages/virsh.rst`, schedinfo (libvirt
//! 9.0).
//!
//! Left out: pins that are defined and not in force.

use super::contenders;
use super::inventory::{Inventory, Thread, Vm};
use super::roles;
use crate::linux::cgroups::{self, Cgroups};
use crate::linux::{sched, task, topology, tuning};
use crate::root::Root;
use rustix::io::Errno;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use vsteer_core::Fault;
use vsteer_core::nouns::{
    Fixed, GroupQuota, GroupScheduling, HostConfig, Limits, Manager, Quota, Role, Tid, VmConfig, VmThread,
};

/// With cgroup version 2, libvirt shows "no quota" as the largest number that it accepts as a quota, µs.
const QUOTA_MOST_US: i64 = 17_592_186_044_415;

/// The configuration of the host, with the VMs that the inventory last saw.
///
/// # Errors
/// If the machine's topology cannot be read.
pub fn host(inventory: &mut Inventory) -> Result<HostConfig, Fault> {
    let topology = topology::read(&inventory.root)?;
    let vms = vms(inventory, Some(&mut Groups::default()));
    let line = |path: &str| {
        let text = task::text(&inventory.root, path).unwrap_or_default();
        text.trim().to_owned()
    };
    Ok(HostConfig {
        hostname: line("/proc/sys/kernel/hostname"),
        machine_id: Some(line("/etc/machine-id")).filter(|id| !id.is_empty()),
        kernel: line("/proc/sys/kernel/osrelease"),
        topology,
        cgroups: inventory.cgroups.layout,
        contenders: contenders::all(&inventory.root, &inventory.contenders),
        scheduler: Some(tuning::read(&inventory.root)),
        vms,
    })
}

/// The settings of cgroups that were read so far: VMs share slices, and each file is read once.
#[derive(Default)]
pub struct Groups {
    known: BTreeMap<String, GroupScheduling>,
    /// Does the kernel not tell cookies of core scheduling?
    no_cookies: bool,
}

impl Groups {
    /// The special settings of the groups that hold threads of the VM, at every level.
    fn scheduling(
        &mut self,
        at: (&Root, &Cgroups),
        own: Option<&str>,
        threads: &[VmThread],
    ) -> Vec<GroupScheduling> {
        let all = cgroups::lineages(threads.iter().filter_map(|t| t.cgroup.as_deref()));
        let of = |path: String| {
            let read = || {
                let group = at.1.scheduling(at.0, &path);
                // libvirt keeps its pins there, which the threads' affinity tells.
                let libvirts = cgroups::lineage(&path).iter().any(|above| is_libvirts(above));
                GroupScheduling { cpus: group.cpus.clone().filter(|_| !libvirts), ..group }
            };
            let known = self.known.entry(path.clone()).or_insert_with(read);
            let shared = !own.is_some_and(|own| cgroups::is_beneath(&path, own));
            known.is_special().then(|| GroupScheduling { shared, ..known.clone() })
        };
        all.into_iter().filter_map(of).collect()
    }

    /// The threads' cookies; `None` where the kernel does not tell.
    fn cookies(&mut self, root: &Root, threads: &[VmThread]) -> Option<BTreeMap<Tid, u64>> {
        if self.no_cookies || !root.is_live() {
            return None;
        }
        let mut all = BTreeMap::new();
        for t in threads {
            match sched::core_cookie(t.tid) {
                Ok(0) => {}
                Ok(cookie) => drop(all.insert(t.tid, cookie)),
                // It has just ended.
                Err(Errno::SRCH) => {}
                Err(_) => {
                    self.no_cookies = true;
                    return None;
                }
            }
        }
        Some(all)
    }
}

/// The configuration of every VM that the inventory last saw and that still exists; without `groups`, without the settings
/// that these read.
pub fn vms(inventory: &mut Inventory, mut groups: Option<&mut Groups>) -> Vec<VmConfig> {
    let threads = inventory.threads();
    let of = |(i, t): (usize, Vec<Thread>)| vm(inventory, &inventory.vms[i], &t, groups.as_deref_mut());
    threads.into_iter().filter_map(of).collect()
}

/// The configuration of one VM; `None` if it ended in the meantime.
pub fn vm(
    inventory: &Inventory,
    vm: &Vm,
    threads: &[Thread],
    settings: Option<&mut Groups>,
) -> Option<VmConfig> {
    let (root, groups) = (&inventory.root, &inventory.cgroups);
    let mut accel = vm.process.line.accel;
    let described: Vec<VmThread> = threads
        .iter()
        .filter_map(|t| {
            let stat = task::read_stat(root, t.pid, t.tid)?;
            if t.role.vcpu().is_some() {
                accel = roles::accel(&stat.comm).or(accel);
            }
            Some(VmThread {
                tid: t.tid,
                role: t.role,
                affinity: task::affinity(root, t.pid, t.tid)?,
                class: stat.class(),
                cgroup: groups.of_thread(root, t.pid, t.tid),
                prefers: None,
                reserved: None,
            })
        })
        .collect();
    // A process whose first thread is missing has ended.
    described.iter().find(|t| t.tid.0 == vm.process.pid)?;
    let kin: Vec<u32> = threads.iter().map(|t| t.pid).collect();
    let own = own_cgroup(root, groups, described.iter().map(|t| t.cgroup.as_deref()), &kin);
    let (scheduling, core_cookies) = match settings {
        Some(s) => (s.scheduling((root, groups), own.as_deref(), &described), s.cookies(root, &described)),
        None => (Vec::new(), None),
    };
    let line = &vm.process.line;
    let domain = vm.domain.as_ref();
    let sched = vm.listed.as_ref().and_then(|l| l.sched.as_ref());
    Some(VmConfig {
        id: vm.id.clone(),
        name: vm.name.clone(),
        labels: vm.labels(),
        manager: vm.manager.clone(),
        accel,
        pid: vm.process.pid,
        weight: own.as_deref().and_then(|g| groups.weight(root, g)),
        limits: match sched {
            Some(sched) => limits_of_libvirt(sched),
            None => limits_of_cgroups(root, groups, own.as_deref(), &described),
        },
        quotas: quotas(root, groups, own.as_deref(), &described),
        scheduling,
        core_cookies,
        rt_budgets: groups.rt_budgets(root, described.iter().filter_map(|t| t.cgroup.as_deref())),
        cgroup: own,
        threads: described,
        guest_topology: domain
            .and_then(super::xml::Domain::topology_shown)
            .or(line.topology.clone().and_then(Result::ok)),
        memory_bytes: domain.and_then(|d| d.memory_bytes).or(line.memory.clone().and_then(Result::ok)),
        memory_nodes: match (&vm.manager, domain) {
            (Manager::Libvirt(_), Some(d)) => d.memory_nodes.clone(),
            _ => line.memory_nodes.clone(),
        },
        guest_nodes: match (&vm.manager, domain) {
            (Manager::Libvirt(_), Some(d)) if !d.guest_nodes.is_empty() => d.guest_nodes.clone(),
            _ => line.guest_nodes.clone(),
        },
        fixed: fixed(root, line.fixed.iter().chain(domain.iter().flat_map(|d| &d.fixed))),
        pool: None,
        vsphere: None,
    })
}

/// What keeps memory and devices where they are, each once, with the devices' nodes.
fn fixed<'a>(root: &Root, all: impl Iterator<Item = &'a Fixed>) -> Vec<Fixed> {
    let with_node = |fixed: &Fixed| match fixed {
        Fixed::Device { address, .. } => {
            let text = task::text(root, &format!("/sys/bus/pci/devices/{address}/numa_node"));
            // -1: the firmware does not tell.
            let node = text.and_then(|text| text.trim().parse::<u32>().ok());
            Fixed::Device { address: address.clone(), node }
        }
        other => other.clone(),
    };
    all.map(with_node).collect::<BTreeSet<_>>().into_iter().collect()
}

/// The cgroup that holds all threads of the VM, which are at `places`, and nothing else. libvirt's names show that a group belongs to
/// a VM. In any other group, every process must belong to the VM (`kin`) or to the kernel. Until Linux 6.14,
/// KVM's thread that recovers large pages (`kvm-nx-lpage-re`) is a kernel process in the group of the process
/// that made the VM.
pub(super) fn own_cgroup<'a>(
    root: &Root,
    groups: &Cgroups,
    places: impl Iterator<Item = Option<&'a str>>,
    kin: &[u32],
) -> Option<String> {
    let mine: Option<Vec<&str>> = places.collect();
    let mut shared = cgroups::common(mine?.into_iter())?;
    // With systemd and cgroup version 2, libvirt sets the controllers one level below the unit.
    if let Some(above) = shared.strip_suffix("/libvirt").filter(|p| is_libvirts(p)) {
        shared = above.to_owned();
    }
    if shared.ends_with("/emulator")
        && let Some(above) = shared.strip_suffix("/emulator").filter(|p| is_libvirts(p))
    {
        shared = above.to_owned();
    }
    let ours =
        |pid: u32| kin.contains(&pid) || task::read_stat(root, pid, Tid(pid)).is_some_and(|s| s.is_kernels());
    let alone = || {
        let there = groups.processes(root, &shared);
        there.iter().any(|pid| kin.contains(pid)) && there.into_iter().all(ours)
    };
    (is_libvirts(&shared) || alone()).then_some(shared)
}

/// Is it a group that libvirt made for one VM: `qemu-ID-NAME.libvirt-qemu`, or `machine-qemu\x2dID\x2dNAME.scope`?
pub(super) fn is_libvirts(cgroup: &str) -> bool {
    let name = cgroup.rsplit('/').next().unwrap_or_default();
    (name.starts_with("qemu-") && name.ends_with(".libvirt-qemu"))
        || (name.starts_with("machine-qemu") && name.ends_with(".scope"))
}

/// libvirt's scheduler parameters as limits. A quota of 0 or less means no quota.
pub fn limits_of_libvirt(sched: &Map<String, Value>) -> Limits {
    let quota = |name: &str| {
        let quota = sched.get(&format!("{name}_quota"))?.as_i64()?;
        let period_us = sched.get(&format!("{name}_period"))?.as_u64().filter(|p| *p > 0)?;
        (quota > 0 && quota < QUOTA_MOST_US).then_some(Quota { quota_us: quota as u64, period_us })
    };
    Limits { per_vcpu: quota("vcpu"), emulator: quota("emulator"), whole_vm: quota("global") }
}

/// The quotas that hold threads of the VM, at every level.
fn quotas(root: &Root, groups: &Cgroups, own: Option<&str>, threads: &[VmThread]) -> Vec<GroupQuota> {
    let all = groups.quotas(root, threads.iter().filter_map(|t| t.cgroup.as_deref()));
    let of = |(cgroup, quota): (String, Quota)| {
        let shared = !own.is_some_and(|own| cgroups::is_beneath(&cgroup, own));
        GroupQuota { cgroup, quota, shared }
    };
    all.into_iter().map(of).collect()
}

fn limits_of_cgroups(root: &Root, groups: &Cgroups, own: Option<&str>, threads: &[VmThread]) -> Limits {
    let Some(own) = own else { return Limits::default() };
    let of = |role: Role| {
        let group = threads.iter().find(|t| t.role == role)?.cgroup.as_deref()?;
        // If other threads share the group, its limit applies to them together, not to this thread.
        let shared = threads.iter().any(|t| {
            (t.role.vcpu().is_some() || role.vcpu().is_some())
                && t.role != role
                && t.cgroup.as_deref() == Some(group)
        });
        (group != own && !shared).then(|| groups.quota(root, group))?
    };
    Limits { per_vcpu: of(Role::Vcpu(0)), emulator: of(Role::Emulator), whole_vm: groups.quota(root, own) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn limits() {
        let sched = json!({
            "cpu_shares": 1024, "vcpu_period": 100_000, "vcpu_quota": 20_000, "emulator_period": 100_000,
            "emulator_quota": -1, "global_period": 100_000, "global_quota": 17_592_186_044_415u64,
        });
        let limits = limits_of_libvirt(sched.as_object().unwrap());
        assert_eq!(limits.per_vcpu, Some(Quota { quota_us: 20_000, period_us: 100_000 }));
        assert_eq!((limits.emulator, limits.whole_vm), (None, None));
        assert_eq!(limits_of_libvirt(&Map::new()), Limits::default());
    }

    #[test]
    fn names_of_libvirts_groups() {
        assert!(is_libvirts("/machine/qemu-1-a.libvirt-qemu"));
        assert!(is_libvirts("/machine.slice/machine-qemu\\x2d1\\x2da.scope"));
        assert!(!is_libvirts("/machine.slice") && !is_libvirts("/user.slice/session-1.scope"));
    }
}
