//! Reads a file next to the batch file with what esxtop does not report: sockets, cores, nodes; home nodes;
//! settings.
//!
//! The file is `esxtop.host.toml` beside `esxtop.csv` or `esxtop.csv.gz`, otherwise `host.toml` in the same
//! folder. Every line is optional:
//!
//! ```toml
//! esxi = "7.0.2"          # the version: what vNUMA does depends on it
//! sockets = 2
//! nodes_per_socket = 1
//! cores_per_socket = 18
//! threads_per_core = 1    # 2 with hyper-threading
//! memory_gib = 384        # of the host, the same on each node
//!
//! [[vm]]
//! name = "VM19"           # or gid = 4711, if two VMs share a name
//! vcpus = 12              # needed if the file has only groups
//! memory_gib = 16
//! home_nodes = [0]        # esxtop's NHN
//! node_affinity = [0]     # numa.nodeAffinity, if it is set
//! cores_per_socket = 1
//! cpu_hot_add = false
//! ```
//!
//! Left out: shares, reservations and limits.

use crate::files;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use vsteer_core::CpuSet;
use vsteer_core::nouns::{GuestTopology, VsphereVm};
use vsteer_core::topology::machine;
use vsteer_core::topology::{Parts, Topology};
use vsteer_core::{Fault, FaultKind};

/// The content of the file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Beside {
    /// ESXi's version.
    pub esxi: Option<String>,
    /// Sockets of the host.
    pub sockets: Option<u32>,
    /// NUMA nodes of each socket; default 1.
    pub nodes_per_socket: Option<u32>,
    /// Cores of each socket.
    pub cores_per_socket: Option<u32>,
    /// Hyper-threads of each core; default 1.
    pub threads_per_core: Option<u32>,
    /// Memory of the host, GiB.
    pub memory_gib: Option<f64>,
    /// Settings of VMs.
    pub vm: Vec<Vm>,
    /// Path of the file, for faults.
    #[serde(skip)]
    pub(super) path: Option<PathBuf>,
}

/// Settings of one VM.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Vm {
    /// The VM's name.
    pub name: Option<String>,
    /// The number of the VM's group.
    pub gid: Option<u64>,
    /// The number of vCPUs.
    pub vcpus: Option<u32>,
    /// Memory, GiB.
    pub memory_gib: Option<f64>,
    /// The NUMA nodes on which ESXi keeps the VM.
    pub home_nodes: Option<Vec<u32>>,
    /// NUMA node affinity, if it is set.
    pub node_affinity: Option<Vec<u32>>,
    /// The cores per socket that the guest sees.
    pub cores_per_socket: Option<u32>,
    /// May vCPUs be added while the VM runs?
    pub cpu_hot_add: Option<bool>,
}

/// Bytes in a GiB.
const GIB: f64 = 1_073_741_824.0;

pub(super) fn bytes(gib: f64) -> u64 {
    (gib.max(0.0) * GIB) as u64
}

impl Beside {
    /// Reads the file next to a batch file; empty if there is none.
    ///
    /// # Errors
    /// `BadInput`, with the line, if the file is not valid.
    pub fn of_file(batch: &Path) -> Result<Beside, Fault> {
        let name = batch.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let stem = name.strip_suffix(".gz").unwrap_or(&name);
        let stem = stem.rsplit_once('.').map_or(stem, |(stem, _)| stem);
        for name in [format!("{stem}.host.toml"), "host.toml".to_owned()] {
            let path = batch.with_file_name(&name);
            match files::text_beside(batch, &name) {
                Ok(Some(text)) => {
                    let refused = |f: Fault| Fault { what: format!("{}: {}", path.display(), f.what), ..f };
                    return Beside::parse(&text)
                        .map_err(refused)
                        .map(|b| Beside { path: Some(path.clone()), ..b });
                }
                Ok(None) => {}
                Err(e) => {
                    return Err(Fault::io(format!("cannot read {}", path.display()), &e)
                        .help("copy the batch file into a folder of its own, without that file"));
                }
            }
        }
        Ok(Beside::default())
    }

    /// Parses the text of the file.
    ///
    /// # Errors
    /// `BadInput` for a wrong key, a value out of range, or a VM without name and gid.
    pub fn parse(text: &str) -> Result<Beside, Fault> {
        let wrong =
            |why: String| Fault::new(FaultKind::BadInput, "not a valid description of a host").because(why);
        let beside: Beside = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        let in_range = |what: &str, n: Option<u32>, most: u32| match n {
            Some(n) if n == 0 || n > most => Err(wrong(format!("{what} = {n}: must be from 1 to {most}"))),
            _ => Ok(()),
        };
        in_range("sockets", beside.sockets, 64)?;
        in_range("nodes_per_socket", beside.nodes_per_socket, 16)?;
        in_range("cores_per_socket", beside.cores_per_socket, 1024)?;
        in_range("threads_per_core", beside.threads_per_core, 8)?;
        for vm in &beside.vm {
            if vm.name.is_none() && vm.gid.is_none() {
                return Err(wrong("a [[vm]] has neither name nor gid".into()));
            }
            in_range("vcpus", vm.vcpus, 4096)?;
            in_range("cores_per_socket", vm.cores_per_socket, 4096)?;
        }
        if let (Some(cores), Some(nodes)) = (beside.cores_per_socket, beside.nodes_per_socket)
            && !cores.is_multiple_of(nodes)
        {
            return Err(wrong(format!("{cores} cores of a socket do not divide into {nodes} equal nodes")));
        }
        Ok(beside)
    }

    /// Does the file name this VM?
    pub(super) fn names(&self, gid: u64, name: &str) -> bool {
        self.vm(gid, name).is_some()
    }

    /// Does the file name any VM?
    pub(super) fn has_vms(&self) -> bool {
        !self.vm.is_empty()
    }

    /// The settings of this VM. A match by number takes precedence over one by name.
    pub(super) fn vm(&self, gid: u64, name: &str) -> Option<&Vm> {
        let by_name = |vm: &&Vm| vm.gid.is_none() && vm.name.as_deref() == Some(name);
        self.vm.iter().find(|vm| vm.gid == Some(gid)).or_else(|| self.vm.iter().find(by_name))
    }

    /// The topology that the file describes; `None` if the file has too few values.
    ///
    /// # Errors
    /// `BadInput` if the number of pCPUs differs from the batch file.
    pub(super) fn topology(&self, pcpus: usize) -> Result<Option<Topology>, Fault> {
        let (Some(sockets), Some(cores)) = (self.sockets, self.cores_per_socket) else { return Ok(None) };
        let (nodes, threads) = (self.nodes_per_socket.unwrap_or(1), self.threads_per_core.unwrap_or(1));
        let said = sockets * cores * threads;
        if pcpus > 0 && pcpus != said as usize {
            let of = self.path.as_ref().map_or_else(String::new, |p| format!("{}: ", p.display()));
            return Err(Fault::new(
                FaultKind::BadInput,
                format!("{of}{said} pCPUs are described, but esxtop counted {pcpus}"),
            )
            .help("correct sockets, cores_per_socket and threads_per_core (2 with hyper-threading)"));
        }
        let topology = machine(sockets, nodes, (cores / nodes).max(1), threads)?;
        let Some(gib) = self.memory_gib else { return Ok(Some(topology)) };
        let mut parts = Parts::from(topology);
        let n = parts.nodes.len().max(1) as f64;
        parts.nodes.iter_mut().for_each(|node| node.memory_bytes = Some(bytes(gib / n)));
        Topology::new(parts).map(Some)
    }
}

fn nodes(list: &[u32]) -> CpuSet {
    list.iter().copied().filter(|n| *n < 1024).collect()
}

impl Vm {
    pub(super) fn vsphere(&self) -> VsphereVm {
        VsphereVm {
            vcpus: self.vcpus,
            home_nodes: self.home_nodes.as_deref().or(self.node_affinity.as_deref()).map(nodes),
            node_affinity: self.node_affinity.as_deref().map(nodes),
            cpu_hot_add: self.cpu_hot_add,
            ..VsphereVm::default()
        }
    }

    /// The topology that the guest sees, if it fits the number of vCPUs.
    pub(super) fn guest_topology(&self, vcpus: u32) -> Option<GuestTopology> {
        let cores = self.cores_per_socket?;
        (vcpus > 0 && vcpus.is_multiple_of(cores)).then(|| GuestTopology {
            sockets: vcpus / cores,
            cores,
            threads: 1,
        })
    }
}
