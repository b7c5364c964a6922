//! Writes a published testbed as the file that esxtop would have written there.
//!
//! The paper prints one table of group values before its change and one after. The program's own writer makes
//! a batch file from such a table: rows of that table every five seconds, with the VMs' groups and their
//! vCPUs' worlds. Each world gets an equal part, because the paper does not separate them; the other worlds
//! of a group are assumed to be idle. `host.toml` beside it has what esxtop does not report, for example the
//! assumed home nodes.

pub mod simulator;

use serde::Deserialize;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use vsteer_core::nouns::{
    Batch, GroupSample, HostConfig, Manager, PcpuSample, Role, ThreadCounters, ThreadSample, Tid, VmConfig,
    VmId, VmSample,
};
use vsteer_core::topology::machine;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::esxtop::write;

/// The time between rows, ns.
const EVERY_NS: u64 = 5_000_000_000;
const ROWS: u64 = 13;
/// 2022-10-31 00:00:00 UTC, the month of the paper's issue.
const BEGUN_UNIX_NS: u64 = 1_667_174_400_000_000_000;

/// Published tables of a testbed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tables {
    /// Where they were published.
    pub citation: String,
    esxi: String,
    sockets: u32,
    cores_per_socket: u32,
    vcpus: u32,
    worlds: u32,
    assumed_home_nodes: Vec<u32>,
    /// The table before the change.
    pub before: Vec<Row>,
    pub after: Vec<Row>,
}

/// A VM's group values, percent of one CPU.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub vm: String,
    /// `%USED`.
    pub used: f64,
    /// `%RUN`.
    pub run: f64,
    /// `%RDY`.
    pub ready: f64,
    /// `%OVRLP`.
    pub overlap: f64,
    /// `%CSTP`.
    pub costop: f64,
}

impl Tables {
    /// Reads the tables.
    ///
    /// # Errors
    /// `NothingThere` if the file does not exist, `BadInput` if it is not valid.
    pub fn read(path: &Path) -> Result<Tables, Fault> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Fault::io(format!("reading {}", path.display()), &e))?;
        toml::from_str(&text).map_err(|e| {
            Fault::new(FaultKind::BadInput, format!("{} holds no tables", path.display())).because(e)
        })
    }

    /// Writes `esxtop.csv` and `host.toml` into a folder, from the table before the change.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write_before(&self, folder: &Path) -> Result<PathBuf, Fault> {
        let file = folder.join("esxtop.csv");
        let failed = |what: &Path| {
            let what = format!("writing {}", what.display());
            move |e: std::io::Error| Fault::io(what, &e)
        };
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        let mut to = BufWriter::new(File::create(&file).map_err(failed(&file))?);
        let config = self.config()?;
        let batches: Vec<Batch> = (0..ROWS).map(|i| self.batch(i)).collect();
        write::samples(&[&config], &batches, &mut to).and_then(|()| to.flush()).map_err(failed(&file))?;
        let beside = folder.join("host.toml");
        std::fs::write(&beside, self.beside()).map_err(failed(&beside))?;
        Ok(file)
    }

    fn beside(&self) -> String {
        let mut text = format!(
            "# {}\nesxi = {:?}\nsockets = {}\ncores_per_socket = {}\n",
            self.citation, self.esxi, self.sockets, self.cores_per_socket
        );
        for (row, node) in self.before.iter().zip(&self.assumed_home_nodes) {
            let _ = write!(
                text,
                "\n[[vm]]\nname = {:?}\nvcpus = {}\nhome_nodes = [{node}] # assumed\n",
                row.vm, self.vcpus
            );
        }
        text
    }

    fn config(&self) -> Result<HostConfig, Fault> {
        let vm = |(i, row): (usize, &Row)| VmConfig {
            manager: Manager::Vsphere(String::new()),
            ..VmConfig::new(VmId(row.vm.as_str().into()), row.vm.clone(), 1000 + i as u32)
        };
        Ok(HostConfig {
            vms: self.before.iter().enumerate().map(vm).collect(),
            ..HostConfig::new(
                "published",
                format!("VMware ESXi {}", self.esxi),
                machine(self.sockets, 1, self.cores_per_socket, 1)?,
            )
        })
    }

    /// The counters after this many rows.
    fn batch(&self, row: u64) -> Batch {
        let ns = row * EVERY_NS;
        let of = |percent: f64, part: f64| Some((percent / 100.0 / part * ns as f64) as u64);
        let counters = |r: &Row, part: f64| ThreadCounters {
            used_ns: of(r.used, part),
            run_ns: of(r.run, part),
            wait_ns: of(r.ready, part),
            overlap_ns: of(r.overlap, part),
            costop_ns: of(r.costop, part),
            ..ThreadCounters::default()
        };
        let threads = self.before.iter().enumerate().flat_map(|(i, r)| {
            (0..self.vcpus).map(move |v| ThreadSample {
                vm: VmId(r.vm.as_str().into()),
                role: Role::Vcpu(v),
                tid: Tid(2_000_000 + 100 * i as u32 + v),
                last_cpu: None,
                waiting_ns: None,
                counters: counters(r, f64::from(self.vcpus)),
            })
        });
        let vms = self.before.iter().map(|r| VmSample {
            group: Some(GroupSample { worlds: Some(self.worlds), counters: counters(r, 1.0) }),
            ..VmSample::new(VmId(r.vm.as_str().into()))
        });
        let pcpus = (0..self.sockets * self.cores_per_socket).map(|cpu| {
            let here = self.before.iter().zip(&self.assumed_home_nodes);
            let run: f64 =
                here.filter(|(_, node)| **node == cpu / self.cores_per_socket).map(|(r, _)| r.run).sum();
            let busy_ns = (run / 100.0 / f64::from(self.cores_per_socket) * ns as f64) as u64;
            PcpuSample { cpu, user_ns: busy_ns, idle_ns: ns - busy_ns, ..PcpuSample::default() }
        });
        Batch {
            mono_ns: ns,
            unix_ns: BEGUN_UNIX_NS + ns,
            threads: threads.collect(),
            pcpus: pcpus.collect(),
            vms: vms.collect(),
            blame: Vec::new(),
            pressure: None,
        }
    }
}
