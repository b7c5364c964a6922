//! Finds what a thread of a VMM's process does for its VM. Its name says so, if QEMU names its threads.
//!
//! Source: QEMU 7.2, `debug-threads=on` (libvirt and Proxmox always set it): `CPU N/KVM`, `CPU N/TCG`
//! (`accel/*/`), `ALL CPUs/TCG` for one thread that runs all vCPUs in turn, `IO ID` (`iothread.c`, cut at 15
//! bytes), `IO mon_iothread` for monitors. `vhost-PID` is the kernel's (`drivers/vhost/vhost.c`): a thread of
//! the process since Linux 6.4, a kernel thread before. libvirt puts each vCPU into a cgroup `vcpuN`, which
//! shows the vCPU if the name does not.
//!
//! Other VMMs have no numbers of I/O threads. vsteer counts them in the order of their start, from 1. Their names, from
//! their sources, **untried**:
//! - Cloud Hypervisor 53.0: `vcpuN` (`vmm/src/cpu.rs`); a thread for each queue of a device, `DEVICE_qN` or `DEVICE_qpN`
//!   (`virtio-devices/src/block.rs`, `net.rs`), where the user may name the device (`vmm/src/device_manager.rs`);
//! - crosvm (August 2026): `crosvm_vcpuN` (`src/crosvm/sys/linux/vcpu.rs`), `v_DEVICE` (`devices/src/virtio`);
//! - Firecracker 1.x: `fc_vcpu N`; its first thread does the I/O (`src/vmm/src/vstate/vcpu.rs`);
//! - Dragonball, the VMM within Kata's shim: `db_vcpuN` (`src/dragonball/src/vcpu/vcpu_impl.rs`).
//!
//! Left out: I/O threads of one cut name whose thread ids are not in the order of their start. Which vCPU the single TCG
//! thread runs at a moment: that thread counts as vCPU 0. Devices of crosvm in processes of their own.

use std::collections::{BTreeMap, BTreeSet};
use vsteer_core::nouns::{Accel, Role, Tid};

/// Facts about a process that help to distinguish its threads.
#[derive(Debug, Default)]
pub struct Known<'a> {
    /// The process id. The process's first thread is QEMU's main loop.
    pub pid: u32,
    /// Is it a QEMU?
    pub is_qemu: bool,
    /// Ids of its I/O threads, in the order of the command line.
    pub iothreads: &'a [String],
    /// The vCPU of a thread, as the monitor reported it.
    pub asked: Option<&'a BTreeMap<Tid, u32>>,
}

/// What a thread's name and cgroup say of its role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The role.
    Role(Role),
    /// An I/O thread with this name, perhaps a cut one. Its number follows from those of the others: [`number`].
    IoThread(String),
}

/// How other VMMs name the thread of vCPU N, without the N: Firecracker, crosvm, kvmtool, Cloud Hypervisor, Dragonball.
const OTHER_VCPUS: [&str; 5] = ["fc_vcpu ", "crosvm_vcpu", "kvm-vcpu-", "vcpu", "db_vcpu"];
/// How other VMMs name the threads of devices: the beginnings that Cloud Hypervisor and crosvm use.
const OTHER_DEVICES: [&str; 17] = [
    "_disk",
    "_fs",
    "_net",
    "_generic_vhost_",
    "_pmem",
    "_vdpa",
    "_vsock",
    "_vfio_user",
    "__rng",
    "__iommu",
    "__balloon",
    "__console",
    "__watchdog",
    "v_",
    "virtio_blk",
    "vhost_net",
    "vhost_vsock",
];

/// The role of a thread of this name in this cgroup.
pub fn role(known: &Known<'_>, tid: Tid, comm: &str, cgroup: Option<&str>) -> Said {
    if tid.0 == known.pid {
        return Said::Role(Role::Emulator);
    }
    if let Some(vcpu) = vcpu_name(comm) {
        return Said::Role(Role::Vcpu(vcpu));
    }
    if let Some(vcpu) = known.asked.and_then(|all| all.get(&tid)) {
        return Said::Role(Role::Vcpu(*vcpu));
    }
    if let Some(id) = comm.strip_prefix("IO ").filter(|id| *id != "mon_iothread") {
        return match numbered(id, "iothread").filter(|_| !is_ambiguous(known.iothreads, id)) {
            Some(number) => Said::Role(Role::IoThread(number)),
            None => Said::IoThread(id.to_owned()),
        };
    }
    if is_vhost(comm, known.pid) {
        return Said::Role(Role::Vhost);
    }
    if !known.is_qemu && is_device(comm) {
        return Said::IoThread(comm.to_owned());
    }
    let group = cgroup.and_then(|g| g.rsplit('/').next()).unwrap_or_default();
    Said::Role(match (numbered(group, "vcpu"), numbered(group, "iothread")) {
        (Some(vcpu), _) => Role::Vcpu(vcpu),
        (_, Some(id)) => Role::IoThread(id),
        _ => Role::Worker,
    })
}

/// Is it the name of a device's thread in another VMM?
fn is_device(comm: &str) -> bool {
    let of_queue = |mark: &str| comm.rsplit_once(mark).is_some_and(|(_, n)| n.parse::<u32>().is_ok());
    OTHER_DEVICES.iter().any(|begin| comm.starts_with(begin)) || of_queue("_q") || of_queue("_qp")
}

/// The numbers of the I/O threads of a QEMU's command line. libvirt calls them `iothreadN`, and N is the number. A person
/// may choose any name; then the number is the position, from 1, or the next one that no other has.
fn numbers(iothreads: &[String]) -> Vec<u32> {
    let mut taken: BTreeSet<u32> = iothreads.iter().filter_map(|id| numbered(id, "iothread")).collect();
    let number = |(id, position): (&String, u32)| {
        numbered(id, "iothread").unwrap_or_else(|| {
            let free = (position..=u32::MAX).find(|n| !taken.contains(n)).expect("few of them are taken");
            taken.insert(free);
            free
        })
    };
    iothreads.iter().zip(1..).map(number).collect()
}

/// Does the id of the command line fit the thread's name? The kernel cuts names at 15 bytes, three of which are `IO `.
fn fits(id: &str, name: &str) -> bool {
    id == name || (name.len() >= 12 && id.starts_with(name))
}

fn is_ambiguous(iothreads: &[String], name: &str) -> bool {
    iothreads.iter().filter(|id| fits(id, name)).count() > 1
}

/// The number of an I/O thread of this name. `taken` are the numbers of other threads. QEMU starts its I/O threads in the
/// order of the command line, so of those with the same cut name, the first to ask gets the first number.
pub fn number(iothreads: &[String], name: &str, taken: &BTreeSet<u32>) -> u32 {
    let all = numbers(iothreads);
    let fitting = iothreads.iter().zip(&all).filter(|(id, _)| fits(id, name)).map(|(_, n)| *n);
    let plugged_in = || {
        // The numbers of the command line are those of its threads, which may not have started.
        let is_free = |n: &u32| !taken.contains(n) && !all.contains(n);
        (1..=u32::MAX).find(is_free).expect("few of them are taken")
    };
    fitting.into_iter().find(|n| !taken.contains(n)).unwrap_or_else(plugged_in)
}

/// N of `CPU N/KVM`; 0 for `ALL CPUs/TCG`; N of another VMM's name for a vCPU's thread.
pub fn vcpu_name(comm: &str) -> Option<u32> {
    if comm == "ALL CPUs/TCG" {
        return Some(0);
    }
    if let Some(n) = OTHER_VCPUS.iter().find_map(|prefix| numbered(comm, prefix)) {
        return Some(n);
    }
    let (number, accel) = comm.strip_prefix("CPU ")?.split_once('/')?;
    // The kernel cuts names at 15 bytes. The first letter of the accelerator remains for any vCPU number that
    // QEMU allows.
    (accel.starts_with('K') || accel.starts_with('T')).then(|| number.parse().ok())?
}

/// The accelerator of a vCPU thread with this name.
pub fn accel(comm: &str) -> Option<Accel> {
    match comm
        .strip_prefix("CPU ")
        .or_else(|| comm.strip_prefix("ALL CPUs"))?
        .split_once('/')?
        .1
        .chars()
        .next()?
    {
        'K' => Some(Accel::Kvm),
        'T' => Some(Accel::Tcg),
        _ => None,
    }
}

/// Is this the name of a vhost worker of that process?
pub fn is_vhost(comm: &str, pid: u32) -> bool {
    vhost_of(comm) == Some(pid)
}

/// PID of `vhost-PID`.
pub fn vhost_of(comm: &str) -> Option<u32> {
    numbered(comm, "vhost-")
}

fn numbered(name: &str, prefix: &str) -> Option<u32> {
    crate::linux::files::numbered(name, prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_tell() {
        let ids = vec!["disk".to_owned(), "a-very-long-name".to_owned()];
        let asked = BTreeMap::from([(Tid(99), 3)]);
        let known = Known { pid: 50, is_qemu: true, iothreads: &ids, asked: Some(&asked) };
        let of = |tid, comm, group| match role(&known, Tid(tid), comm, group) {
            Said::Role(role) => role,
            Said::IoThread(name) => Role::IoThread(number(&ids, &name, &BTreeSet::new())),
        };
        assert_eq!(of(50, "CPU 0/KVM", None), Role::Emulator);
        assert_eq!(of(51, "CPU 12/KVM", Some("/m/vcpu3")), Role::Vcpu(12));
        assert_eq!(of(51, "CPU 0/TCG", None), Role::Vcpu(0));
        assert_eq!(of(51, "ALL CPUs/TCG", None), Role::Vcpu(0));
        assert_eq!(of(51, "fc_vcpu 3", None), Role::Vcpu(3));
        assert_eq!(of(51, "vcpu2", None), Role::Vcpu(2));
        assert_eq!(of(51, "db_vcpu2", None), Role::Vcpu(2));
        assert_eq!(of(51, "vcpus", None), Role::Worker);
        assert_eq!(of(52, "IO iothread2", None), Role::IoThread(2));
        assert_eq!(of(52, "IO disk", None), Role::IoThread(1));
        assert_eq!(of(52, "IO a-very-long-", None), Role::IoThread(2));
        assert_eq!(of(52, "IO plugged-in", None), Role::IoThread(3));
        assert_eq!(of(52, "IO mon_iothread", None), Role::Worker);
        assert_eq!(of(53, "vhost-50", None), Role::Vhost);
        assert_eq!(of(53, "vhost-51", None), Role::Worker);
        assert_eq!(of(54, "qemu-system-x86", Some("/m/vcpu3")), Role::Vcpu(3));
        assert_eq!(of(99, "qemu-system-x86", None), Role::Vcpu(3));
        assert_eq!(of(55, "worker", Some("/m/emulator")), Role::Worker);
        assert_eq!(of(55, "_disk0_q0", None), Role::Worker, "a QEMU");
        assert_eq!(
            (accel("CPU 1/KVM"), accel("ALL CPUs/TCG"), accel("x")),
            (Some(Accel::Kvm), Some(Accel::Tcg), None)
        );
    }

    #[test]
    fn numbers_of_a_command_line_are_distinct() {
        let of = |ids: &str| numbers(&ids.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(of("iothread2 iothread1"), [2, 1]);
        assert_eq!(of("disk iothread1 net"), [2, 1, 3]);
        assert_eq!(of("iothread3 a b c"), [3, 2, 4, 5]);
    }

    #[test]
    fn a_cut_name_gets_no_number_that_another_name_holds() {
        let ids = ["virtioscsi-disks-a", "iothread1", "virtioscsi-disks-b"].map(str::to_owned);
        let mut taken = BTreeSet::from([1]);
        for expected in [2, 3, 4] {
            let number = number(&ids, "virtioscsi-d", &taken);
            assert_eq!(number, expected);
            taken.insert(number);
        }
        assert_eq!(number(&ids, "plugged-in", &BTreeSet::new()), 4, "the others may not have started");
        let long = ["iothread1000001", "iothread1000002"].map(str::to_owned);
        let known = Known { pid: 1, is_qemu: true, iothreads: &long, ..Known::default() };
        assert_eq!(role(&known, Tid(2), "IO iothread1000", None), Said::IoThread("iothread1000".to_owned()));
    }

    #[test]
    fn devices_of_other_vmms_are_io_threads() {
        let known = Known { pid: 1, ..Known::default() };
        let of = |comm: &str| role(&known, Tid(2), comm, None);
        for comm in [
            "_net0_qp0",
            "_disk0_q0",
            "_fs0",
            "boot-disk_q0",
            "__rng",
            "v_block",
            "v_net:rxtx",
            "v_net:0",
            "vhost_net",
        ] {
            assert_eq!(of(comm), Said::IoThread(comm.to_owned()));
        }
        for comm in
            ["vmm", "http-server", "fc_api", "event-monitor", "serial-manager", "vmm_signal_hand", "seq_qx"]
        {
            assert_eq!(of(comm), Said::Role(Role::Worker), "{comm}");
        }
        assert_eq!(of("crosvm_vcpu3"), Said::Role(Role::Vcpu(3)));
    }

    proptest! {
        #[test]
        fn any_name_has_a_role(comm in "\\PC{0,15}", group in "\\PC{0,20}") {
            let known = Known { pid: 1, ..Known::default() };
            let _ = (role(&known, Tid(2), &comm, Some(&group)), accel(&comm));
            let _ = role(&known, Tid(2), &format!("CPU {comm}"), None);
        }
    }
}
