//! The KVM/QEMU host on which vsteer runs: its VMs, and the collector that counts them.
//!
//! The collector is either eBPF (`vsteer-bpf`: every state, blame, latencies) or polled schedstat (run and wait times
//! only). A note says which one is in use, and why not the better one.
//!
//! A sample reads counters, and looks for processes that are new. vsteer reads the list of threads every two seconds, or
//! sooner if a thread ended. It asks libvirt again only if a new QEMU appears or a caller wants the configuration. It
//! reads the place of memory every ten seconds. Each of these looks takes at most an eightieth of the time.

use super::config;
use super::containers::Containers;
use super::inventory::{Inventory, Thread, no_such_vm};
use super::pressure;
use super::slow::{self, SlowCounters};
use crate::backend::Timers;
use crate::linux::schedstat::{Polled, Schedstat};
use crate::linux::{files, pcpu, psi, task, topology};
use crate::observe::{CollectorChoice, Observe};
use crate::pace::Look;
use crate::privilege::{CapabilitySet, EBPF, Kept, confine, lacking, missing, name, proc_is_hidden, without};
use crate::root::Root;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use vsteer_bpf::{Observer, Watched};
use vsteer_core::nouns::{Batch, Collector, HostConfig, Tid, VmId, VmSample};
use vsteer_core::{CpuSet, Fault, FaultKind};

/// What to observe, and how.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Only the VMs of the libvirt at this connection URI; `None`: all VMs of this machine.
    pub connect: Option<String>,
    /// Which collector to use.
    pub collector: CollectorChoice,
    /// Only VMs with these names, ids, or patterns with `*`; empty means all.
    pub vms: Vec<String>,
    /// The sizes of eBPF's tables, and whether it records every switch.
    pub ebpf: vsteer_bpf::Options,
    /// Adds the timers that VMs asked for and got to the samples.
    pub timers: Option<Timers>,
    /// The tool `qm` of Proxmox VE, where it is not at its place.
    pub qm: Option<PathBuf>,
}

/// How often to read the list of threads again.
const RESCAN: Duration = Duration::from_secs(2);
/// After a thread ended, the list is read again once it is this old. The delay matters for a VM whose workers
/// come and go, which otherwise would cause a new list at every sample.
const RESCAN_VANISHED: Duration = Duration::from_millis(250);

/// The KVM/QEMU host that this program runs on.
pub struct KvmHost {
    pub(crate) inventory: Inventory,
    pub(super) options: Options,
    ebpf: Option<Observer>,
    schedstat: Option<Schedstat>,
    watched: Vec<Watched>,
    pids: Vec<u32>,
    scanned: Option<Look>,
    looked_for_new: Option<Look>,
    vanished: bool,
    /// Was the lack of room for threads already reported?
    crowded: bool,
    slow: SlowCounters,
    containers: Containers,
}

impl KvmHost {
    /// Finds the VMs and starts counting.
    ///
    /// # Errors
    /// `NothingThere` if the named libvirt is unreachable or no VM has a given name; `NoPrivilege` or
    /// `Unsupported` if the caller demands eBPF but it is not available. A host without VMs is not a fault.
    pub fn open(options: Options) -> Result<KvmHost, Fault> {
        let root = Root::live()?;
        need_processes(&root)?;
        files::allow_most_open();
        let inventory = Inventory::new(root, options.connect.clone(), options.vms.clone());
        let mut host = KvmHost {
            inventory,
            options,
            ebpf: None,
            schedstat: None,
            watched: Vec::new(),
            pids: Vec::new(),
            scanned: None,
            looked_for_new: None,
            vanished: false,
            crowded: false,
            slow: SlowCounters::default(),
            containers: Containers::default(),
        };
        host.inventory.look()?;
        if host.inventory.vms.is_empty() && !host.options.vms.is_empty() {
            let mut all = Inventory::new(Root::live()?, host.options.connect.clone(), Vec::new());
            all.look()?;
            let there: Vec<String> = all.vms.iter().map(|vm| format!("{:?}", vm.name)).collect();
            return Err(no_such_vm(&host.options.vms, &there));
        }
        host.start_counting()?;
        let (look, done) = Look::alone(|| host.watch());
        done?;
        host.scanned = Some(look);
        host.see_quotas_if_due();
        Ok(host)
    }

    /// Notes for the user: VMs that vsteer leaves out, and why it uses a lesser collector.
    pub fn notes(&self) -> &[String] {
        &self.inventory.notes
    }

    /// The eBPF observer, if it is in use, for its recorded switches.
    pub fn observer(&self) -> Option<&Observer> {
        self.ebpf.as_ref()
    }

    /// Stops counting and returns the observer, for the rest of its recorded switches.
    pub fn into_observer(self) -> Option<Observer> {
        self.ebpf
    }

    /// One sample from each collector, one directly after the other, to compare them. The second one is
    /// schedstat's.
    ///
    /// # Errors
    /// `Usage` if eBPF is not in use; as [`Observe::sample`].
    pub fn sample_both(&mut self) -> Result<(Batch, Batch), Fault> {
        if self.ebpf.is_none() {
            return Err(Fault::new(FaultKind::Usage, "cannot use both collectors: eBPF is not in use")
                .because(self.notes().join("; "))
                .help("run as root with --collector ebpf"));
        }
        if self.schedstat.is_none() {
            self.schedstat = Some(Schedstat::new());
            self.watch()?;
        }
        let first = self.sample()?;
        let second = self.schedstat.as_mut().map(polled).unwrap_or_default();
        let pressure = first.pressure;
        Ok((first, Batch { pcpus: pcpu::read(&self.inventory.root), pressure, ..second }))
    }

    /// The description of the schedstat collector, for the second sample of [`KvmHost::sample_both`].
    pub fn second_collector(&self) -> Option<Collector> {
        self.ebpf.as_ref().and(self.schedstat.as_ref()).map(Schedstat::collector)
    }

    /// Does it need to look into other processes, to see where memory is or to find VMs of programs other than QEMU?
    /// Without any VM nobody knows which programs will run VMs.
    pub(super) fn looks_into_processes(&self) -> bool {
        let (root, vms) = (&self.inventory.root, &self.inventory.vms);
        let nodes = topology::read(root).map_or(1, |t| t.nodes().len());
        let foreign = vms.is_empty() || vms.iter().any(|vm| vm.process.line.program.is_some());
        foreign || nodes > 1 || proc_is_hidden(root)
    }

    /// Could a query to libvirt start its daemon, which would then inherit what confines this process? A client starts the daemon of a user's
    /// own session.
    pub(super) fn may_start_libvirt(&self) -> bool {
        self.inventory.uris().iter().any(|uri| uri.contains("/session"))
    }

    /// What it needs to count threads that start later. Since Linux 5.19 an open table is enough; before, the kernel
    /// asks for the capability at each call.
    pub(super) fn updates_tables(&self) -> CapabilitySet {
        let Some(observer) = &self.ebpf else { return CapabilitySet::empty() };
        let needed =
            [CapabilitySet::empty(), CapabilitySet::BPF, CapabilitySet::BPF | CapabilitySet::PERFMON];
        let enough = |keep: &CapabilitySet| without(!*keep, || observer.can_watch()).is_ok();
        needed.into_iter().find(enough).unwrap_or(CapabilitySet::all())
    }

    fn start_counting(&mut self) -> Result<(), Fault> {
        if self.options.collector == CollectorChoice::Schedstat {
            self.schedstat = Some(Schedstat::new());
            return Ok(());
        }
        let threads: usize = self.inventory.threads().iter().map(|(_, t)| t.len()).sum();
        let mut room = self.options.ebpf.clone();
        // Makes room for twice as many threads, because workers appear and VMs start.
        room.threads = room.threads.max(threads as u32 * 2);
        room.confine = Some(needs_nothing);
        self.containers = Containers::begin(&self.inventory.root);
        match Observer::start(room).map_err(named) {
            Ok(observer) => self.ebpf = Some(observer),
            Err(fault) => self.without_ebpf(fault)?,
        }
        Ok(())
    }

    fn without_ebpf(&mut self, fault: Fault) -> Result<(), Fault> {
        if self.options.collector == CollectorChoice::Ebpf {
            return Err(fault);
        }
        let cause = fault.cause.map_or_else(String::new, |c| format!(": {c}"));
        let lacks = missing(EBPF).iter().map(name).collect::<Vec<_>>().join(" and ");
        let lacks = if lacks.is_empty() { lacks } else { format!("; vsteer lacks {lacks}") };
        self.inventory
            .note(format!("vsteer counts with schedstat instead of eBPF ({}{cause}{lacks})", fault.what));
        self.ebpf = None;
        self.schedstat = Some(Schedstat::new());
        Ok(())
    }

    /// The threads as collectors take them, with their processes. Those that have ended have this affinity, or are left out.
    fn watchable(&self, all: &[(usize, Vec<Thread>)], of_ended: Option<&CpuSet>) -> Vec<(Watched, u32)> {
        let inventory = &self.inventory;
        let threads = all.iter().flat_map(|(i, threads)| threads.iter().map(|t| (&inventory.vms[*i].id, t)));
        let of = |(vm, t): (&VmId, &Thread)| {
            let affinity = task::affinity(&inventory.root, t.pid, t.tid);
            let affinity = affinity.or_else(|| of_ended.cloned())?;
            Some((Watched { vm: vm.clone(), role: t.role, tid: t.tid, affinity }, t.pid))
        };
        threads.filter_map(of).collect()
    }

    /// Gives the present list of threads to the collectors.
    fn watch(&mut self) -> Result<(), Fault> {
        let all = self.inventory.threads();
        (self.watched, self.pids) = self.watchable(&all, None).into_iter().unzip();
        let begins = self.scanned.is_none();
        self.vanished = false;
        let watched = self.ebpf.as_mut().map_or(Ok(()), |observer| observer.watch(&self.watched));
        match watched {
            Err(fault) if begins => self.without_ebpf(fault)?,
            told => self.say_if_crowded(told),
        }
        self.poll();
        Ok(())
    }

    /// Adds the VMs of threads that took a vCPU's name since the last sample, also of those that have ended since. Their
    /// counts begin with the name.
    fn watch_born(&mut self) {
        let Some(observer) = &mut self.ebpf else { return };
        match observer.births() {
            Ok(births) => self.inventory.add_born(births),
            Err(fault) => self.inventory.note(format!("cannot hear of new VMs at once: {fault}")),
        }
        let born = self.inventory.born_threads();
        // Of a thread that has ended since, the counts are there, but not where it might run.
        self.watch_also(&born, Some(&CpuSet::default()));
    }

    /// Adds VMs that have just started to what the collectors count. Returns whether there were any.
    fn watch_new(&mut self) -> bool {
        self.inventory.add_new();
        let new = self.inventory.new_threads();
        self.watch_also(&new, None)
    }

    /// Adds these threads to what the collectors count, those that have ended with this affinity. Returns whether one of
    /// them was new.
    fn watch_also(&mut self, all: &[(usize, Vec<Thread>)], of_ended: Option<&CpuSet>) -> bool {
        if all.is_empty() {
            return false;
        }
        let known: BTreeSet<Tid> = self.watched.iter().map(|w| w.tid).collect();
        let new: Vec<(Watched, u32)> =
            self.watchable(all, of_ended).into_iter().filter(|(w, _)| !known.contains(&w.tid)).collect();
        if new.is_empty() {
            return false;
        }
        let (new, pids): (Vec<Watched>, Vec<u32>) = new.into_iter().unzip();
        let told = self.ebpf.as_mut().map_or(Ok(()), |observer| observer.watch_more(&new));
        self.say_if_crowded(told);
        self.watched.extend(new);
        self.pids.extend(pids);
        self.poll();
        true
    }

    /// Never switches collectors during a recording: their counters are not comparable. Threads without room are left out.
    fn say_if_crowded(&mut self, watched: Result<(), Fault>) {
        let Err(fault) = watched else { return };
        if !self.crowded {
            eprintln!("vsteer: no longer measures some threads: {fault}");
            self.inventory.note(format!("vsteer does not measure some threads: {fault}"));
            self.crowded = true;
        }
    }

    /// Gives the threads to the collector that polls them.
    fn poll(&mut self) {
        let Some(schedstat) = &mut self.schedstat else { return };
        let polled = self.watched.iter().zip(&self.pids).map(|(w, pid)| Polled {
            vm: w.vm.clone(),
            role: w.role,
            pid: *pid,
            tid: w.tid,
        });
        schedstat.watch(&polled.collect::<Vec<_>>());
    }

    fn see_quotas_if_due(&mut self) {
        if self.slow.is_due() {
            let vms = config::vms(&mut self.inventory, None);
            self.slow.see(&self.inventory, &vms);
        }
    }

    fn look_for_new_if_due(&mut self) {
        if self.looked_for_new.is_none_or(|look| look.is_older(Duration::ZERO)) {
            let (look, any) = Look::alone(|| self.watch_new());
            // Where VMs start all the time, the work that they make does not put off the next look.
            self.looked_for_new = (!any).then_some(look);
        }
    }

    fn rescan_if_due(&mut self) -> Result<(), Fault> {
        let least = if self.vanished { RESCAN_VANISHED } else { RESCAN };
        if self.scanned.is_none_or(|look| look.is_older(least)) {
            let (look, done) = Look::alone(|| {
                self.inventory.refresh();
                let done = self.watch();
                self.see_quotas_if_due();
                done
            });
            self.scanned = Some(look);
            done?;
        }
        Ok(())
    }
}

impl Observe for KvmHost {
    fn config(&mut self) -> Result<HostConfig, Fault> {
        self.inventory.look()?;
        let host = config::host(&mut self.inventory)?;
        self.slow.see(&self.inventory, &host.vms);
        self.watch()?;
        Ok(host)
    }

    fn collector(&self) -> Collector {
        let collector = match (&self.ebpf, &self.schedstat) {
            (Some(o), _) => o.collector().clone(),
            (None, Some(s)) => s.collector(),
            (None, None) => unreachable!("a host always has a collector"),
        };
        let of_host = psi::of_host(&self.inventory.root).map(|_| ()).ok_or(pressure::NOT_COUNTED);
        pressure::described(collector, of_host, self.slow.without_pressure())
    }

    fn sample(&mut self) -> Result<Batch, Fault> {
        self.watch_born();
        self.look_for_new_if_due();
        let mut batch = match (&self.ebpf, &mut self.schedstat) {
            (Some(observer), _) => {
                let unix_ns = now_ns(ClockId::Realtime);
                let reading = observer.read()?;
                self.vanished |= reading.ended > 0;
                Batch {
                    mono_ns: reading.mono_ns,
                    unix_ns,
                    threads: reading.threads,
                    blame: reading.blame,
                    ..Batch::default()
                }
            }
            (None, Some(schedstat)) => {
                let batch = polled(schedstat);
                self.vanished |= schedstat.vanished();
                batch
            }
            (None, None) => unreachable!("a host always has a collector"),
        };
        if self.ebpf.is_some() {
            self.containers.name(&self.inventory.root, &mut batch.blame);
        }
        batch.pcpus = pcpu::read(&self.inventory.root);
        batch.pressure = psi::of_host(&self.inventory.root);
        self.slow.begin_sample();
        batch.vms = self
            .inventory
            .vms
            .iter()
            .map(|vm| VmSample {
                pressure: self.slow.pressure(&vm.id),
                ..slow::sample(vm.id.clone(), [false, true].map(|shared| self.slow.throttled(&vm.id, shared)))
            })
            .collect();
        let timers = self.options.timers.map(|counts| counts()).unwrap_or_default();
        for (sample, vm) in batch.vms.iter_mut().zip(&self.inventory.vms) {
            sample.timers = timers.get(&vm.id).copied();
            sample.memory_by_node = self.slow.memory_by_node(&self.inventory, vm);
        }
        // After the reading, which has the last counts of threads that have ended.
        self.rescan_if_due()?;
        Ok(batch)
    }
}

/// For a thread that needs nothing but memory.
fn needs_nothing() -> Result<(), Fault> {
    confine(Kept { capabilities: CapabilitySet::empty(), writes_elsewhere: false }, &[]).map(drop)
}

/// The fault, with the capabilities that are missing.
fn named(fault: Fault) -> Fault {
    if fault.kind != FaultKind::NoPrivilege || missing(EBPF).is_empty() {
        return fault;
    }
    fault.help(format!("{}, or use the polling collector: --collector schedstat", lacking(EBPF)))
}

/// Refuses a `/proc` that does not even show this process: "no VM is running" would be wrong.
fn need_processes(root: &Root) -> Result<(), Fault> {
    if task::user(root, std::process::id()).is_some() {
        return Ok(());
    }
    Err(Fault::new(FaultKind::NothingThere, "cannot see the processes of this host")
        .because("/proc does not show this process")
        .help("mount it: mount -t proc proc /proc"))
}

fn now_ns(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn polled(schedstat: &mut Schedstat) -> Batch {
    let (before, unix_ns) = (now_ns(ClockId::Monotonic), now_ns(ClockId::Realtime));
    let threads = schedstat.read();
    // A poll of many threads takes a while, so the sample's time is the middle of the poll.
    let half = (now_ns(ClockId::Monotonic) - before) / 2;
    Batch { mono_ns: before + half, unix_ns: unix_ns + half, threads, ..Batch::default() }
}
