//! Finds what a thread of a VMM's process does for its VM. Its name says so, if QEMU names its threads.
//!
//! Source: QEMU 7.2, `debug-threads=on` (libvirt and Proxmox always set it): `CPU N/KVM`, `CPU N/TCG`
//! (`accel/*/`), `ALL CPUs/TCG` for one thread that runs all vCPUs in turn, `IO ID` (`iothread.c`, cut at 15
//! bytes), `IO mon_iothread` for monitors. `vhost-PID` is the kernel's (`drivers/vhost/vhost.c`): a thread of
//! the process since Linux 6.4, a kernel thread before. libvirt puts each vCPU into a cgroup `vcpuN`, which
//! shows the vCPU if the name does not.
//!
//! Left out: I/O threads of one cut name whose thread ids are not in the order of their start. Which vCPU the single TCG thread runs at a moment. That thread counts as vCPU 0.

use std::collections::{BTreeMap, BTreeSet};
use vsteer_core::nouns::{Accel, Role, Tid};

/// Facts about a process that help to distinguish its threads.
#[derive(Debug, Default)]
pub struct Known<'a> {
    /// The process id. The process's first thread is QEMU's main loop.
    pub pid: u32,
    /// Ids of its I/O threads, in the order of the command line.
    pub iothreads: &'a [String],
    /// The vCPU of a thread, as the monitor reported it.
    pub asked: Option<&'a BTreeMap<Tid, u32>>,
    /// Numbers of I/O threads that earlier threads have. The kernel cuts names, so two may have the same; QEMU
    /// starts them in the order of the command line.
    pub taken: BTreeSet<u32>,
}

/// How other VMMs name the thread of vCPU N, without the N: Firecracker, crosvm, kvmtool, cloud-hypervisor.
/// From their sources (2024), **untried**.
const OTHER_VCPUS: [&str; 4] = ["fc_vcpu ", "crosvm_vcpu", "kvm-vcpu-", "vcpu"];

/// The role of a thread of this name in this cgroup.
pub fn role(known: &Known<'_>, tid: Tid, comm: &str, cgroup: Option<&str>) -> Role {
    if tid.0 == known.pid {
        return Role::Emulator;
    }
    if let Some(vcpu) = vcpu_name(comm) {
        return Role::Vcpu(vcpu);
    }
    if let Some(vcpu) = known.asked.and_then(|all| all.get(&tid)) {
        return Role::Vcpu(*vcpu);
    }
    if let Some(id) = comm.strip_prefix("IO ").filter(|id| *id != "mon_iothread") {
        return iothread(known, id).map_or(Role::Worker, Role::IoThread);
    }
    if is_vhost(comm, known.pid) {
        return Role::Vhost;
    }
    let group = cgroup.and_then(|g| g.rsplit('/').next()).unwrap_or_default();
    match (numbered(group, "vcpu"), numbered(group, "iothread")) {
        (Some(vcpu), _) => Role::Vcpu(vcpu),
        (_, Some(id)) => Role::IoThread(id),
        _ => Role::Worker,
    }
}

/// N of `CPU N/KVM`; 0 for `ALL CPUs/TCG`; N of another VMM's name for a vCPU's thread.
fn vcpu_name(comm: &str) -> Option<u32> {
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

/// The number of an I/O thread whose name begins with `id`. libvirt calls them `iothreadN`. A person may
/// choose any name; then the number is the position on the command line, from 1.
fn iothread(known: &Known<'_>, id: &str) -> Option<u32> {
    if let Some(n) = numbered(id, "iothread") {
        return Some(n);
    }
    let fits = |full: &String| full == id || (id.len() >= 12 && full.starts_with(id));
    let mut fitting = known.iothreads.iter().zip(1u32..).filter(|(full, _)| fits(full)).map(|(_, n)| n);
    // One that was plugged in has a number that the command line does not give.
    fitting.find(|n| !known.taken.contains(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_tell() {
        let ids = vec!["disk".to_owned(), "a-very-long-name".to_owned()];
        let asked = BTreeMap::from([(Tid(99), 3)]);
        let known = Known { pid: 50, iothreads: &ids, asked: Some(&asked), ..Known::default() };
        let of = |tid, comm, group| role(&known, Tid(tid), comm, group);
        assert_eq!(of(50, "CPU 0/KVM", None), Role::Emulator);
        assert_eq!(of(51, "CPU 12/KVM", Some("/m/vcpu3")), Role::Vcpu(12));
        assert_eq!(of(51, "CPU 0/TCG", None), Role::Vcpu(0));
        assert_eq!(of(51, "ALL CPUs/TCG", None), Role::Vcpu(0));
        assert_eq!(of(51, "fc_vcpu 3", None), Role::Vcpu(3));
        assert_eq!(of(51, "vcpu2", None), Role::Vcpu(2));
        assert_eq!(of(51, "vcpus", None), Role::Worker);
        assert_eq!(of(52, "IO iothread2", None), Role::IoThread(2));
        assert_eq!(of(52, "IO disk", None), Role::IoThread(1));
        assert_eq!(of(52, "IO a-very-long-", None), Role::IoThread(2));
        assert_eq!(of(52, "IO mon_iothread", None), Role::Worker);
        assert_eq!(of(53, "vhost-50", None), Role::Vhost);
        assert_eq!(of(53, "vhost-51", None), Role::Worker);
        assert_eq!(of(54, "qemu-system-x86", Some("/m/vcpu3")), Role::Vcpu(3));
        assert_eq!(of(99, "qemu-system-x86", None), Role::Vcpu(3));
        assert_eq!(of(55, "worker", Some("/m/emulator")), Role::Worker);
        assert_eq!(
            (accel("CPU 1/KVM"), accel("ALL CPUs/TCG"), accel("x")),
            (Some(Accel::Kvm), Some(Accel::Tcg), None)
        );
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
