//! What does esxtop not report? A file next to the batch file holds it: sockets, cores, nodes; home nodes; settings.
//!
//! `esxtop.host.toml` beside `esxtop.csv` or `esxtop.csv.gz`, else `host.toml` in the same folder. Every line may be
//! left out:
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
//! name = "VM19"           # or gid = 4711, where two have one name
//! vcpus = 12              # needed where the file has groups alone
//! memory_gib = 16
//! home_nodes = [0]        # esxtop's NHN
//! node_affinity = [0]     # numa.nodeAffinity, where it is set
//! cores_per_socket = 1
//! cpu_hot_add = false
//! ```
//!
//! Left out: shares, reservations and limits.

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
    /// NUMA nodes of each, 1 unless said.
    pub nodes_per_socket: Option<u32>,
    /// Cores of each.
    pub cores_per_socket: Option<u32>,
    /// Hyper-threads of each core, 1 unless said.
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
    /// Its name.
    pub name: Option<String>,
    /// Its group's number.
    pub gid: Option<u64>,
    /// vCPUs.
    pub vcpus: Option<u32>,
    /// Memory, GiB.
    pub memory_gib: Option<f64>,
    /// Home nodes: where ESXi keeps the VM.
    pub home_nodes: Option<Vec<u32>>,
    /// NUMA node affinity, if it is set.
    pub node_affinity: Option<Vec<u32>>,
    /// Shown to the guest.
    pub cores_per_socket: Option<u32>,
    /// May vCPUs be added while it runs?
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
    /// `BadInput`, with the line, for a file that cannot be read as this.
    pub fn of_file(batch: &Path) -> Result<Beside, Fault> {
        let name = batch.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let stem = name.strip_suffix(".gz").unwrap_or(&name);
        let stem = stem.rsplit_once('.').map_or(stem, |(stem, _)| stem);
        for path in [batch.with_file_name(format!("{stem}.host.toml")), batch.with_file_name("host.toml")] {
            match std::fs::read_to_string(&path) {
                Ok(text) => {
                    let refused = |f: Fault| Fault { what: format!("{}: {}", path.display(), f.what), ..f };
                    return Beside::parse(&text)
                        .map_err(refused)
                        .map(|b| Beside { path: Some(path.clone()), ..b });
                }
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(Fault::io(format!("cannot read {}", path.display()), &e)),
            }
        }
        Ok(Beside::default())
    }

    /// Reads its text.
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

    /// Does it name this VM?
    pub(super) fn names(&self, gid: u64, name: &str) -> bool {
        self.vm(gid, name).is_some()
    }

    /// Does it name any?
    pub(super) fn has_vms(&self) -> bool {
        !self.vm.is_empty()
    }

    /// What it says of this VM: by number before by name.
    pub(super) fn vm(&self, gid: u64, name: &str) -> Option<&Vm> {
        let by_name = |vm: &&Vm| vm.gid.is_none() && vm.name.as_deref() == Some(name);
        self.vm.iter().find(|vm| vm.gid == Some(gid)).or_else(|| self.vm.iter().find(by_name))
    }

    /// The host that it describes; `None` where it says too little.
    ///
    /// # Errors
    /// `BadInput` where that is not as many pCPUs as the batch file has.
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

    /// What its guest is shown, where that fits its vCPUs.
    pub(super) fn guest_topology(&self, vcpus: u32) -> Option<GuestTopology> {
        let cores = self.cores_per_socket?;
        (vcpus > 0 && vcpus.is_multiple_of(cores)).then(|| GuestTopology {
            sockets: vcpus / cores,
            cores,
            threads: 1,
        })
    }
}
