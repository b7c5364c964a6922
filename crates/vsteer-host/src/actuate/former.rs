//! What does a step overwrite? All of it, in full, so that `restore` puts back exactly what was there.
//!
//! The journal stores these values, so their form is a file format: a new field has a default.

use serde::{Deserialize, Serialize};
use vsteer_core::CpuSet;
use vsteer_core::nouns::Tid;
use vsteer_core::setting::Change;

/// All that a step overwrites, in full.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Former {
    /// The step's change with `from` as it was; `None` when the running VM is not touched.
    pub live: Option<Change>,
    /// Where each thread that the step moves could run.
    pub affinities: Vec<(Tid, CpuSet)>,
    /// Files of cpuset cgroups that the step writes, with their contents.
    pub cpusets: Vec<(String, String)>,
    /// The period of a limit that had none in force: the kernel keeps it beside an unlimited quota.
    pub period_us: Option<u64>,
    /// The elements of the definition that the step replaces; of the running VM's description where it is moved.
    pub definition: Vec<Part>,
    /// Files of a boot loader that the step edits, with their contents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<(String, String)>,
    /// The run of the VM whose settings `live` are; `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// The URI of the libvirt that keeps the definition: it is put back also when the VM is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<String>,
    /// The option of Proxmox VE that the step overwrites: it is put back also when the VM is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qm: Option<QmOption>,
    /// A VM's settings on vSphere, of which the step overwrites some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vsphere: Option<Box<Settings>>,
}

/// Which run of a VM a step was made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its process.
    pub pid: u32,
    /// When that started, clock ticks since the host's boot: with the pid, an identity.
    pub start_ticks: u64,
}

/// An option of a VM of Proxmox VE.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QmOption {
    /// The VM's number.
    pub id: u32,
    /// Name of the option, as `qm config` prints it.
    pub name: String,
    /// Its value before the step; `None`: it was not set.
    pub value: Option<String>,
    /// The value that the step gives it.
    pub to: String,
}

/// Some elements of a definition: all those of one tag under one parent (with one attribute's value).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The parent's tag, a child of `<domain>`.
    pub parent: String,
    /// Their tag.
    pub tag: String,
    /// Only those with this attribute and value.
    pub key: Option<(String, String)>,
    /// Text of the former elements; empty if there were none.
    pub elements: Vec<String>,
}

/// A VM's settings as they were said; what was not is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Its managed object id.
    pub id: String,
    /// Its instance's UUID.
    pub uuid: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// The object id of the host that runs it.
    pub host: Option<String>,
    /// Is it on? A VM that is suspended is not off either.
    pub powered_on: Option<bool>,
    /// The version of its configuration.
    pub version: Option<String>,
    /// Its vCPUs.
    pub vcpus: Option<u32>,
    /// Cores per socket.
    pub cores_per_socket: Option<u32>,
    /// Memory, MiB.
    pub memory_mib: Option<u64>,
    /// Of that, reserved, MiB.
    pub memory_reserved_mib: Option<u64>,
    /// Is all of it kept reserved, however much it is?
    pub memory_locked: Option<bool>,
    /// May vCPUs be added while it runs?
    pub cpu_hot_add: Option<bool>,
    /// Level of its CPU shares (`normal`, `custom`, ...).
    pub shares_level: Option<String>,
    /// Their number.
    pub shares: Option<u64>,
    /// CPU reservation, MHz.
    pub reservation_mhz: Option<i64>,
    /// May it take from what its resource pool may?
    pub expandable: Option<bool>,
    /// CPU limit, MHz; -1: none.
    pub limit_mhz: Option<i64>,
    /// Level of its latency sensitivity.
    pub latency: Option<String>,
    /// `config.cpuAffinity`.
    pub cpu_affinity: Vec<u32>,
    /// `sched.cpu.affinity`.
    pub cpu_affinity_option: Option<String>,
    /// `numa.nodeAffinity`.
    pub node_affinity: Option<String>,
}
