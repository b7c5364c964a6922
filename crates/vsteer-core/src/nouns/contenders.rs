//! Which programs on a host change by themselves what a plan changes?
//!
//! One row for each in [`CONTENDERS`]. A host's configuration lists those that run there; `plan/contested.rs` says which steps they
//! undo, and the rule `contested` which VMs two of them place.
//!
//! Sources, read and not tried, in copies whose release was not noted: `numad.c`, `manage_loads` and
//! `bind_process_and_migrate_memory`; Kubernetes' `pkg/kubelet/cm/cpumanager`; LXD's `lxd/devices.go`, `deviceTaskBalance`;
//! oVirt's `lib/vdsm/virt/cpumanagement.py` and `mom/Controllers/CpuTune.py`; systemd's issue 17938.
//!
//! Left out: Incus, whose `deviceTaskBalance` balances containers alone. libvirt and Proxmox VE set a VM up at its start,
//! which the scope of a plan tells. DRS: `GAP(vsphere-drs)`.
//! GAP(contenders): vsteer does not read what these programs were told, such as the VMs that numad leaves alone.

use super::{HostConfig, Manager, VmConfig};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A program on a host that changes settings of VMs, or of the host, by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contender {
    /// Pins processes to NUMA nodes and moves their memory.
    Numad,
    /// kubelet, whose CPU manager has the policy `static`.
    StaticCpuManager,
    /// LXD's daemon.
    Lxd,
    /// oVirt's agent on a host.
    Vdsm,
    /// oVirt's memory overcommitment manager.
    Mom,
    /// OpenStack's agent on a host.
    NovaCompute,
    /// Sets the kernel by profiles.
    Tuned,
    /// Keeps cgroups of its units.
    Systemd,
}

/// A setting that a program changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sets {
    /// Where threads may run.
    Affinity,
    /// The weight of a cgroup.
    Weight,
    /// The quota of each vCPU.
    VcpuQuota,
    /// The quota of a whole VM.
    VmQuota,
    /// Where memory lies.
    MemoryNodes,
    /// Settings of the kernel.
    Kernel,
}

/// When a program changes them again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// While the VM runs, and nobody asked for it.
    WhileRunning,
    /// When somebody reloads or changes the program's own configuration.
    AtReload,
    /// When the VM starts, from a definition that the program writes again.
    AtRestart,
}

/// A row of the table.
pub struct Row {
    /// Which program.
    pub contender: Contender,
    /// What to call it.
    pub name: &'static str,
    /// The names that the program's file has. None: vsteer finds it in another way.
    pub programs: &'static [&'static str],
    /// Does it run as root? Others run as a user that is not a person's.
    pub as_root: bool,
    /// What it changes.
    pub sets: &'static [Sets],
    /// When it does so again.
    pub when: When,
    /// What it does and when, as a sentence goes on after its name.
    pub does: &'static str,
    /// What a person can do about it. `{pid}` stands for the VM's process.
    pub help: &'static str,
}

/// Every program that vsteer knows.
pub const CONTENDERS: &[Row] = &[
    Row {
        contender: Contender::Numad,
        name: "numad",
        programs: &["numad"],
        as_root: true,
        sets: &[Sets::Affinity, Sets::MemoryNodes],
        when: When::WhileRunning,
        does: "pins the threads of large processes to NUMA nodes and moves their memory, again and again",
        help: "stop it (systemctl disable --now numad), or exclude the VM (numad -x {pid})",
    },
    Row {
        contender: Contender::StaticCpuManager,
        name: "kubelet's static CPU manager",
        programs: &["kubelet", "k3s"],
        as_root: true,
        sets: &[Sets::Affinity],
        when: When::WhileRunning,
        does: "writes the cpusets of pods again when pods with exclusive pCPUs start or end",
        help: "change the pod's resources instead",
    },
    Row {
        contender: Contender::Lxd,
        name: "LXD",
        programs: &["lxd"],
        as_root: true,
        sets: &[Sets::Affinity],
        when: When::WhileRunning,
        does: "pins its instances again when one starts or stops (newer versions: with limits.cpu.pin_strategy=auto)",
        help: "set limits.cpu of the instance instead (lxc config set NAME limits.cpu 0-3)",
    },
    Row {
        contender: Contender::Vdsm,
        name: "VDSM",
        programs: &["vdsmd"],
        as_root: false,
        sets: &[Sets::Affinity],
        when: When::WhileRunning,
        does: "pins all VMs without a CPU policy again when a VM with dedicated pCPUs starts or stops",
        help: "set the VM's CPU pinning policy in oVirt's engine instead",
    },
    Row {
        contender: Contender::Mom,
        name: "MoM",
        programs: &["momd"],
        as_root: false,
        sets: &[Sets::VcpuQuota],
        when: When::WhileRunning,
        does: "sets the quotas of vCPUs again every few seconds",
        help: "set the VM's CPU profile in oVirt's engine instead",
    },
    Row {
        contender: Contender::NovaCompute,
        name: "nova-compute",
        programs: &["nova-compute"],
        as_root: false,
        sets: &[Sets::Affinity, Sets::Weight, Sets::VcpuQuota, Sets::VmQuota, Sets::MemoryNodes],
        when: When::AtRestart,
        does: "writes the definitions of its VMs again at a hard reboot, a resize and a migration",
        help: "set the flavour's properties instead (hw:cpu_policy, quota:cpu_shares)",
    },
    Row {
        contender: Contender::Tuned,
        name: "tuned",
        programs: &["tuned"],
        as_root: true,
        sets: &[Sets::Kernel],
        when: When::AtReload,
        does: "sets what its profile names again when it starts or its profile changes",
        help: "keep the setting in a profile of tuned instead",
    },
    Row {
        contender: Contender::Systemd,
        name: "systemd",
        programs: &[],
        as_root: true,
        sets: &[Sets::Weight, Sets::VmQuota],
        when: When::AtReload,
        does: "writes the weight and the quota of its units again at systemctl daemon-reload and set-property",
        help: "set the unit's properties instead (systemctl set-property UNIT CPUWeight= CPUQuota=)",
    },
];

/// numad leaves a process alone that uses less memory.
const NUMAD_LEAST: u64 = 300 << 20;

impl Contender {
    /// Its row of the table.
    ///
    /// # Panics
    /// Never: the tests look at every variant.
    pub fn row(self) -> &'static Row {
        CONTENDERS.iter().find(|row| row.contender == self).expect("each contender has a row")
    }

    /// Can it change this VM? One that changes settings of the host alone changes no VM.
    pub fn concerns(self, config: &HostConfig, vm: &VmConfig) -> bool {
        let is_libvirts = matches!(vm.manager, Manager::Libvirt(_));
        let is_nobodys = vm.manager == Manager::Bare;
        match self {
            Contender::Numad => {
                let nodes = config.topology.nodes().iter().filter(|n| !n.cpus.is_empty()).count();
                nodes > 1 && vm.memory_bytes.is_none_or(|bytes| bytes > NUMAD_LEAST)
            }
            Contender::StaticCpuManager => matches!(vm.manager, Manager::KubeVirt | Manager::Kata),
            Contender::Lxd => {
                let is_lxds = |cgroup: &str| cgroup.split('/').any(|part| part.contains("lxd"));
                is_nobodys && vm.threads.iter().filter_map(|t| t.cgroup.as_deref()).any(is_lxds)
            }
            Contender::Vdsm | Contender::Mom => is_libvirts,
            Contender::NovaCompute => is_libvirts && vm.labels.contains_key("flavour"),
            // libvirt sets the weight of a VM's unit through systemd, and the rest in a group below it.
            Contender::Systemd => {
                let is_unit =
                    |group: &str| [".scope", ".service", ".slice"].iter().any(|end| group.ends_with(end));
                (is_nobodys || matches!(vm.manager, Manager::Proxmox(_)))
                    && vm.cgroup.as_deref().is_some_and(is_unit)
            }
            Contender::Tuned => false,
        }
    }

    /// Does it decide where this VM runs, while the VM runs?
    pub fn places(self, config: &HostConfig, vm: &VmConfig) -> bool {
        let row = self.row();
        row.when == When::WhileRunning && row.sets.contains(&Sets::Affinity) && self.concerns(config, vm)
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().name)
    }
}

impl Row {
    /// The help for a VM whose process has this number.
    pub fn help_for(&self, pid: u32) -> String {
        self.help.replace("{pid}", &pid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_contender_has_one_row_under_its_own_name() {
        for row in CONTENDERS {
            assert_eq!(CONTENDERS.iter().filter(|r| r.contender == row.contender).count(), 1);
            assert_eq!(row.contender.to_string(), row.name);
            // The names of programs tell them apart.
            for program in row.programs {
                assert_eq!(
                    CONTENDERS.iter().filter(|r| r.programs.contains(program)).count(),
                    1,
                    "{program}"
                );
            }
            let known = serde_json::to_string(&row.contender).unwrap();
            assert_eq!(serde_json::from_str::<Contender>(&known).unwrap(), row.contender);
        }
    }
}
