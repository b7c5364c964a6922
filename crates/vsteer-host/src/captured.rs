//! A captured host: the files of a machine that the KVM backend and the audit read, kept in a folder.
//!
//! `vsteer capture` samples a machine at least twice ([`capture`]). Each sample is a tree of files in a numbered
//! folder. The manifest holds the time of each sample, so the counters of two samples give rates. The same code reads
//! the live machine during the capture and the captured host afterwards ([`look`]), so the capture keeps exactly the
//! files that are needed.
//!
//! Left out: eBPF, libvirt's own answers, monitors and system calls. They are not files.

pub mod capture;
mod kept;
mod manifest;
mod redact;

use crate::actuate::Actuate;
use crate::backend::{Backend, Changing, Host, Request};
use crate::kvm::inventory::{Inventory, no_such_vm};
use crate::kvm::{config, pressure, slow};
use crate::linux::schedstat::{self, Reading};
use crate::linux::{numa_maps, pcpu, psi, task};
use crate::observe::{CollectorChoice, Observe};
use crate::root::Root;
pub use manifest::Manifest;
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::time::Duration;
use vsteer_core::nouns::{Batch, Collector, HostConfig, Pressure, ThreadCounters, ThreadSample, VmSample};
use vsteer_core::plan::Plan;
use vsteer_core::{Fault, FaultKind};

/// How such a URI begins.
const SCHEME: &str = "tree:";

/// A captured host.
pub const BACKEND: Backend = Backend {
    name: "captured host",
    schemes: &[SCHEME],
    examples: &["tree:FOLDER"],
    about: "a folder that `vsteer capture` made",
    sees: "run and wait times between the samples of the capture",
    sets: "nothing",
    leaves_out: "everything that needs eBPF, libvirt or a QEMU monitor",
    recognise: |_| false,
    only_observes: false,
    steers: false,
    manages: |_| false,
    open,
    change,
    settings: None,
};

/// One look at a host.
pub struct Look {
    /// How the host is set up.
    pub config: HostConfig,
    /// What was counted; the times are those of this machine's clocks.
    pub batch: Batch,
    /// Does the kernel count run delay?
    counts: bool,
    /// Why VMs have no pressure.
    without_pressure: Option<String>,
}

/// Why the pressure of a captured host is not known.
const NO_PRESSURE: &str =
    "the capture has no pressure files: the kernel did not count, or an older vsteer captured";

/// Samples the machine under the inventory's root, only through its files. The counters are read before the
/// configuration, all at one moment as far as that can be.
///
/// # Errors
/// When the machine's topology cannot be read.
pub fn look(inventory: &mut Inventory) -> Result<Look, Fault> {
    inventory.look()?;
    let threads = inventory.threads();
    let begun = now_ns(ClockId::Monotonic);
    let mut samples = Vec::new();
    let mut counts = threads.is_empty();
    for (i, threads) in &threads {
        for t in threads {
            let path = format!("/proc/{}/task/{}/schedstat", t.pid, t.tid.0);
            let Some(reading) =
                task::text(&inventory.root, &path).and_then(|text| schedstat::parse(text.as_bytes()))
            else {
                continue;
            };
            counts |= reading.switches > 0;
            let vm = inventory.vms[*i].id.clone();
            let counters = schedstat::counters(reading);
            samples.push(ThreadSample {
                vm,
                role: t.role,
                tid: t.tid,
                last_cpu: None,
                waiting_ns: None,
                counters,
            });
        }
    }
    let (pcpus, pressure) = (pcpu::read(&inventory.root), psi::of_host(&inventory.root));
    let (ended, unix_ns) = (now_ns(ClockId::Monotonic), now_ns(ClockId::Realtime));
    let half = (ended - begun) / 2;
    if !counts {
        samples.iter_mut().for_each(|t| t.counters = ThreadCounters::default());
    }
    let config = config::host(inventory)?;
    let (vms, without_pressure) = vm_samples(inventory, &config);
    let batch = Batch {
        mono_ns: begun + half,
        unix_ns: unix_ns - half,
        threads: samples,
        pcpus,
        vms,
        pressure,
        ..Batch::default()
    };
    Ok(Look { config, batch, counts, without_pressure })
}

/// The VMs' samples, and why some have no pressure.
fn vm_samples(inventory: &Inventory, config: &HostConfig) -> (Vec<VmSample>, Option<String>) {
    let nodes = config.topology.nodes();
    let only_node = (nodes.len() < 2).then(|| nodes.first().map_or(0, |n| n.id.0));
    let pressures: Vec<_> = config.vms.iter().map(|vm| pressure::read_once(inventory, vm)).collect();
    let why: Vec<_> = config.vms.iter().zip(&pressures).map(|(vm, p)| (vm, p.err())).collect();
    let sample = |(vm, pressure): (&vsteer_core::nouns::VmConfig, &Result<Pressure, _>)| VmSample {
        pressure: pressure.ok(),
        memory_by_node: numa_maps::read(&inventory.root, vm.pid, only_node),
        ..slow::sample(vm.id.clone(), [false, true].map(|shared| slow::throttled_once(inventory, vm, shared)))
    };
    (config.vms.iter().zip(&pressures).map(sample).collect(), pressure::lacking(&why))
}

fn now_ns(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// A captured host that is observed.
pub struct CapturedHost {
    config: HostConfig,
    collector: Collector,
    batches: Vec<Batch>,
    /// The look that the next sample gives.
    next: usize,
    notes: Vec<String>,
}

impl CapturedHost {
    /// Reads all looks.
    ///
    /// # Errors
    /// `BadInput` when the folder is not a capture; `NothingThere` when no VM has a name that was given.
    pub fn open(folder: &Path, names: &[String]) -> Result<CapturedHost, Fault> {
        let manifest = Manifest::read(&Root::open(folder)?, folder)?;
        let mut host = None;
        let (mut batches, mut counts) = (Vec::new(), true);
        for taken in &manifest.looks {
            let root = Root::open(folder.join(&taken.folder))?;
            let mut inventory = Inventory::new(root, None, names.to_vec());
            let Look { config, mut batch, counts: counted, without_pressure } = look(&mut inventory)?;
            (batch.mono_ns, batch.unix_ns) = (taken.mono_ns, taken.unix_ns);
            counts &= counted;
            let of_host = batch.pressure.map(|_| ()).ok_or(NO_PRESSURE);
            let described = pressure::described(collector(counts), of_host, without_pressure.as_deref());
            host = Some((config, inventory.notes, described));
            batches.push(batch);
        }
        let (config, mut notes, collector) = host.expect("a manifest has two looks at least");
        // No libvirt can be connected to a captured host.
        notes.retain(|n| !n.contains("--connect URI"));
        if config.vms.is_empty() && !names.is_empty() {
            let root = Root::open(folder.join(&manifest.looks[manifest.looks.len() - 1].folder))?;
            let mut all = Inventory::new(root, None, Vec::new());
            all.look()?;
            let there: Vec<String> = all.vms.iter().map(|vm| format!("{:?}", vm.name)).collect();
            return Err(no_such_vm(names, &there));
        }
        Ok(CapturedHost { config, collector, batches, next: 0, notes })
    }
}

/// The polling collector's, which cannot be replaced by eBPF here.
fn collector(counts: bool) -> Collector {
    let mut collector = schedstat::collector(counts, Reading::default());
    for why in collector.missing.values_mut() {
        *why = why.replace(
            "use --collector ebpf",
            "a captured host does not contain it: record on the host itself",
        );
    }
    collector
}

/// The folder that a URI names.
fn folder(request: &Request) -> Result<&Path, Fault> {
    let folder = request.connect.as_deref().and_then(|uri| uri.strip_prefix(SCHEME));
    folder.filter(|f| !f.is_empty()).map(Path::new).ok_or_else(|| {
        Fault::new(FaultKind::Usage, "--connect tree: does not name a folder")
            .help("write --connect tree:FOLDER")
    })
}

fn open(request: &Request) -> Result<Box<dyn Host>, Fault> {
    request.refuse_statistics()?;
    let can = matches!(request.collector, CollectorChoice::Auto | CollectorChoice::Schedstat);
    if !can || request.event_buffer.is_some() {
        return Err(Fault::new(
            FaultKind::Usage,
            "a captured host has schedstat counters only: it has no eBPF data and no events",
        )
        .help("leave out --collector and --events"));
    }
    Ok(Box::new(CapturedHost::open(folder(request)?, &request.vms)?))
}

fn unchangeable(folder: &Path) -> Fault {
    Fault::new(FaultKind::Unsupported, format!("cannot change the captured host {}", folder.display()))
        .because("the folder holds copies of the host's files")
        .help("make the plan and apply it on the host itself")
}

fn change(request: &Request, _plan: Option<Plan>) -> Result<Changing, Fault> {
    Err(unchangeable(folder(request)?))
}

impl Observe for CapturedHost {
    fn config(&mut self) -> Result<HostConfig, Fault> {
        Ok(self.config.clone())
    }

    fn collector(&self) -> Collector {
        self.collector.clone()
    }

    /// The looks in order; after the last one, the last one again.
    fn sample(&mut self) -> Result<Batch, Fault> {
        let batch = self.batches[self.next].clone();
        self.next = (self.next + 1).min(self.batches.len() - 1);
        Ok(batch)
    }
}

impl Host for CapturedHost {
    fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn past(&mut self, length: Duration) -> Option<Result<Vec<Batch>, Fault>> {
        let end = self.batches.last().map_or(0, |b| b.mono_ns);
        let from = end.saturating_sub(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX));
        let first = self.batches.iter().position(|b| b.mono_ns >= from).unwrap_or(0);
        // Two looks at least: one has no rates.
        let first = first.min(self.batches.len() - 2);
        Some(Ok(self.batches[first..].to_vec()))
    }

    fn length_of_past(&self, length: Option<Duration>) -> Result<Option<Duration>, Fault> {
        Ok(Some(length.unwrap_or(Duration::MAX)))
    }

    fn actuator(&mut self) -> Result<&mut dyn Actuate, Fault> {
        Err(Fault::new(FaultKind::Unsupported, "cannot change a captured host")
            .help("make the change on the host itself"))
    }
}
