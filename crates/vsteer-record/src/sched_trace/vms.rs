//! Which threads of a trace belong to which VM?
//!
//! A VMM names its vCPU threads: QEMU `CPU 0/KVM` (with `debug-threads=on`, as libvirt and Proxmox VE start it), Cloud
//! Hypervisor `vcpu0`, Firecracker `fc_vcpu 0`. If the trace names the process of each thread, that process is the VM.
//!
//! Otherwise vsteer orders the vCPU threads by their ids, because a VMM starts its vCPUs one after another. Where the
//! number of the vCPU does not rise, the next VM begins. The main thread is then the first one that has the name of a
//! VMM and stands between the vCPUs of the VM before and those of this one. VMs that started at the same moment may
//! be mixed up; a note says so.
//!
//! Sources: qemu@9.0/accel/kvm/kvm-accel-ops.c (VCPU_THREAD_NAME), cloud-hypervisor@41/vmm/src/cpu.rs,
//! firecracker@1.9/src/vmm/src/vstate/vcpu.rs.

use super::names::{is_vmm, vcpu};
use super::survey::Survey;
use crate::task::Task;
use std::collections::BTreeMap;
use vsteer_core::nouns::{Accel, HostConfig, Role, Tid, VmConfig, VmId, VmThread};
use vsteer_core::plural::counted;
use vsteer_core::topology::{Parts, Topology};
use vsteer_core::{CpuSet, Fault};

/// The VMs of a trace.
#[derive(Debug, Default)]
pub(super) struct Vms {
    pub vms: Vec<Vm>,
    /// No line names the process of any vCPU thread.
    pub grouped: bool,
}

/// One VM.
#[derive(Debug)]
pub(super) struct Vm {
    pub id: VmId,
    pub pid: u32,
    pub accel: Option<Accel>,
    /// Its threads, vCPUs first, in the order of their numbers.
    pub threads: Vec<(u32, Role)>,
}

/// What to call a VM whose main thread has this name.
fn kind(main: &str, vcpu: &str) -> &'static str {
    match main {
        "kvm" => "kvm",
        _ if main.starts_with("cloud-h") || vcpu.starts_with("vcpu") => "cloud-hypervisor",
        _ if main.starts_with("firecracker") || vcpu.starts_with("fc_vcpu") => "firecracker",
        _ => "qemu",
    }
}

/// Finds the VMs.
pub(super) fn find(survey: &Survey) -> Vms {
    let vcpus: Vec<(u32, u32)> =
        survey.threads.iter().filter_map(|(tid, t)| Some((*tid, vcpu(&t.comm)?.0))).collect();
    let mut vms: BTreeMap<u32, Vm> = BTreeMap::new();
    let mut unknown: Vec<(u32, u32)> = Vec::new();
    for (tid, index) in &vcpus {
        match survey.threads[tid].tgid {
            Some(pid) => join(&mut vms, survey, pid, *tid, *index),
            None => unknown.push((*tid, *index)),
        }
    }
    let grouped = !unknown.is_empty();
    let mut before: Option<(u32, u32)> = None;
    let mut pid = 0;
    for (tid, index) in unknown {
        if before.is_none_or(|(_, last)| index <= last) {
            let after = before.map_or(0, |(tid, _)| tid);
            let mut between = survey.threads.range(after + 1..tid);
            // Without its main thread, the first vCPU stands for the VM.
            pid = between.find(|(_, t)| is_vmm(&t.comm)).map_or(tid, |(main, _)| *main);
        }
        join(&mut vms, survey, pid, tid, index);
        before = Some((tid, index));
    }
    for (tid, thread) in survey.threads.iter().filter(|(_, t)| vcpu(&t.comm).is_none()) {
        let vhost = thread.comm.strip_prefix("vhost-").and_then(|owner| owner.parse().ok());
        let pid = thread.tgid.or(vhost).unwrap_or(*tid);
        if let Some(vm) = vms.get_mut(&vhost.unwrap_or(pid)) {
            vm.threads.push((*tid, role(*tid, pid, &thread.comm, vhost.is_some())));
        }
    }
    for vm in vms.values_mut() {
        vm.threads.sort_by_key(|(tid, role)| (role.vcpu().unwrap_or(u32::MAX), *tid));
    }
    Vms { vms: vms.into_values().collect(), grouped }
}

fn join(vms: &mut BTreeMap<u32, Vm>, survey: &Survey, pid: u32, tid: u32, index: u32) {
    let comm = &survey.threads[&tid].comm;
    let main = survey.threads.get(&pid).map_or("", |t| t.comm.as_str());
    let vm = vms.entry(pid).or_insert_with(|| Vm {
        id: VmId(format!("{}-{pid}", kind(main, comm)).into()),
        pid,
        accel: vcpu(comm).map(|(_, accel)| accel),
        threads: Vec::new(),
    });
    // A vCPU that was unplugged and plugged again has a new thread: the later one is a worker here, so that every
    // role is unique.
    let taken = vm.threads.iter().any(|(_, role)| role.vcpu() == Some(index));
    vm.threads.push((tid, if taken { Role::Worker } else { Role::Vcpu(index) }));
}

fn role(tid: u32, pid: u32, comm: &str, vhost: bool) -> Role {
    match comm.strip_prefix("IO ") {
        _ if vhost => Role::Vhost,
        _ if tid == pid => Role::Emulator,
        // libvirt names them `iothread1`.
        Some(name) => Role::IoThread(name.trim_start_matches("iothread").parse().unwrap_or(0)),
        None => Role::Worker,
    }
}

impl Vms {
    /// The configuration, as far as the trace tells.
    ///
    /// # Errors
    /// As [`Topology::new`].
    pub(super) fn config(&self, survey: &Survey) -> Result<HostConfig, Fault> {
        let cpus: CpuSet = survey.pcpus.clone();
        let topology = Topology::new(Parts {
            present: cpus.clone(),
            online: cpus.clone(),
            allowed: cpus.clone(),
            ..Parts::default()
        })?;
        let thread = |(tid, role): &(u32, Role)| VmThread {
            tid: Tid(*tid),
            role: *role,
            affinity: cpus.clone(),
            class: None,
            cgroup: None,
            prefers: None,
            reserved: None,
        };
        let mut vms: Vec<VmConfig> = self
            .vms
            .iter()
            .map(|vm| VmConfig {
                accel: vm.accel,
                threads: vm.threads.iter().map(thread).collect(),
                ..VmConfig::new(vm.id.clone(), vm.id.to_string(), vm.pid)
            })
            .collect();
        vms.sort_by(|a, b| a.id.cmp(&b.id));
        let hostname = survey.hostname.clone().unwrap_or_else(|| "unknown host".to_owned());
        let kernel = survey.kernel.clone().unwrap_or_else(|| "unknown".to_owned());
        Ok(HostConfig { vms, ..HostConfig::new(hostname, kernel, topology) })
    }

    /// The names of the threads, as `task.jsonl`.
    pub(super) fn tasks(&self, survey: &Survey) -> Vec<u8> {
        let of: BTreeMap<u32, (&VmId, Role)> = self
            .vms
            .iter()
            .flat_map(|vm| vm.threads.iter().map(move |(tid, role)| (*tid, (&vm.id, *role))))
            .collect();
        let mut lines = Vec::new();
        for (tid, thread) in &survey.threads {
            let vm = of.get(tid);
            let task = Task {
                mono_ns: thread.first_ns,
                tid: Tid(*tid),
                tgid: thread.tgid.unwrap_or(*tid),
                comm: thread.comm.clone(),
                vm: vm.map(|(id, _)| (*id).clone()),
                role: vm.map(|(_, role)| *role),
            };
            serde_json::to_writer(&mut lines, &task).expect("a task is plain data");
            lines.push(b'\n');
        }
        lines
    }

    /// How the VMs were found.
    pub(super) fn note(&self, name: &str) -> Option<String> {
        self.grouped.then(|| {
            format!(
                "{name}: the trace does not name processes: {} found by the order of thread ids \
                 (for exact VMs: perf script -F +pid, or ftrace's option record-tgid)",
                counted(self.vms.len() as u64, "VM")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey(threads: &[(u32, &str, Option<u32>)]) -> Survey {
        let mut survey = Survey::default();
        for (tid, comm, tgid) in threads {
            let thread =
                super::super::survey::Thread { comm: (*comm).to_owned(), tgid: *tgid, ..Default::default() };
            survey.threads.insert(*tid, thread);
        }
        survey
    }

    fn found(threads: &[(u32, &str, Option<u32>)]) -> Vec<(String, Vec<(u32, String)>)> {
        let vms = find(&survey(threads)).vms;
        vms.iter()
            .map(|vm| (vm.id.to_string(), vm.threads.iter().map(|(t, r)| (*t, r.to_string())).collect()))
            .collect()
    }

    #[test]
    fn processes_are_vms_where_they_are_named() {
        let got = found(&[
            (10, "kvm", Some(10)),
            (12, "CPU 0/KVM", Some(10)),
            (13, "CPU 0/KVM", Some(20)),
            (14, "CPU 1/KVM", Some(10)),
            (15, "IO iothread2", Some(10)),
            (16, "worker", Some(10)),
            (17, "vhost-10", Some(17)),
            (18, "bash", Some(18)),
        ]);
        let role = |tid, role: &str| (tid, role.to_owned());
        let first = vec![
            role(12, "vcpu0"),
            role(14, "vcpu1"),
            role(10, "emulator"),
            role(15, "iothread2"),
            role(16, "worker"),
            role(17, "vhost"),
        ];
        assert_eq!(got, [("kvm-10".to_owned(), first), ("qemu-20".to_owned(), vec![role(13, "vcpu0")])]);
    }

    #[test]
    fn numbers_that_do_not_rise_begin_a_vm() {
        let got = found(&[
            (7, "bash", None),
            (10, "qemu-system-x86", None),
            (11, "qemu-system-x86", None),
            (12, "CPU 0/KVM", None),
            (13, "CPU 1/KVM", None),
            (20, "CPU 0/KVM", None),
            (30, "fc_vcpu 0", None),
        ]);
        let role = |tid, role: &str| (tid, role.to_owned());
        assert_eq!(
            got,
            [
                ("qemu-10".to_owned(), vec![role(12, "vcpu0"), role(13, "vcpu1"), role(10, "emulator")]),
                ("qemu-20".to_owned(), vec![role(20, "vcpu0")]),
                ("firecracker-30".to_owned(), vec![role(30, "vcpu0")]),
            ]
        );
    }
}
