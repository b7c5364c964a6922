//! Where samples come from: the live host or a recording, handed to commands as one thing.

use crate::cli::{CollectorChoice, Source, Window};
use crate::clock;
use crate::interrupt::{Interrupt, due};
use crate::login;
use crate::realtime_socket::timer_counts;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use vsteer_core::model::{self, HostModel};
use vsteer_core::nouns::{Batch, Collector, HostConfig, VmId};
use vsteer_core::setting::{Change, Scope, Step};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::actuate::{Actuate, Capabilities, Former, Restored};
use vsteer_host::kvm::host::{KvmHost, Options};
use vsteer_host::observe::Observe;
use vsteer_host::vsphere::{Esxi, Statistics};
use vsteer_host::xen::XenHost;
use vsteer_host::xen::sampled::SampledHost;
use vsteer_host::xen::saved::{self, Saved};
use vsteer_host::xen::tools::Place;
use vsteer_record::{Recording, esxtop};

/// A stretch of samples with what is needed to understand them.
pub struct Stretch {
    /// The configuration at its end.
    pub config: HostConfig,
    /// How it was sampled.
    pub collector: Collector,
    /// The samples.
    pub batches: Vec<Batch>,
}

impl Stretch {
    /// The model of the whole stretch.
    ///
    /// # Errors
    /// `BadInput` when it holds too few samples.
    pub fn model(&self) -> Result<HostModel, Fault> {
        model::derive(&self.config, &self.collector, &self.batches)
    }

    /// Its length, seconds.
    pub fn seconds(&self) -> f64 {
        match (self.batches.first(), self.batches.last()) {
            (Some(a), Some(b)) => b.mono_ns.saturating_sub(a.mono_ns) as f64 / 1e9,
            _ => 0.0,
        }
    }
}

/// A live host, of whichever kind it is.
pub enum Host {
    /// KVM/QEMU, on this machine.
    Kvm(Box<KvmHost>),
    /// Xen, from its Domain-0 or over SSH.
    Xen(Box<XenHost>),
    /// Xen, from its Domain-0 and without a trace.
    XenSampled(Box<SampledHost>),
    /// An ESXi, over vSphere's API.
    Vsphere(Box<Esxi>),
}

impl Host {
    /// What the person should know.
    pub fn notes(&self) -> &[String] {
        match self {
            Host::Kvm(host) => host.notes(),
            Host::Xen(_) | Host::XenSampled(_) | Host::Vsphere(_) => &[],
        }
    }

    fn actuator(&mut self) -> &mut dyn Actuate {
        match self {
            Host::Kvm(host) => host.as_mut(),
            Host::Xen(host) => host.as_mut(),
            Host::XenSampled(host) => host.tools(),
            Host::Vsphere(host) => host.as_mut(),
        }
    }

    /// Where it is one of KVM.
    pub fn kvm(&self) -> Option<&KvmHost> {
        match self {
            Host::Kvm(host) => Some(host),
            Host::Xen(_) | Host::XenSampled(_) | Host::Vsphere(_) => None,
        }
    }

    /// Where it is one of KVM.
    pub fn into_kvm(self) -> Option<KvmHost> {
        match self {
            Host::Kvm(host) => Some(*host),
            Host::Xen(_) | Host::XenSampled(_) | Host::Vsphere(_) => None,
        }
    }

    /// A sample, and where `both` and there is another way of counting that one's beside it.
    ///
    /// # Errors
    /// As [`Observe::sample`].
    pub fn sample_both(&mut self, both: bool) -> Result<(Batch, Option<Batch>), Fault> {
        match self {
            Host::Kvm(host) if both => host.sample_both().map(|(a, b)| (with_timers(a), Some(b))),
            other => Ok((other.sample()?, None)),
        }
    }
}

impl Observe for Host {
    fn config(&mut self) -> Result<HostConfig, Fault> {
        match self {
            Host::Kvm(host) => host.config(),
            Host::Xen(host) => host.config(),
            Host::XenSampled(host) => host.config(),
            Host::Vsphere(host) => host.config(),
        }
    }

    fn collector(&self) -> Collector {
        match self {
            Host::Kvm(host) => host.collector(),
            Host::Xen(host) => host.collector(),
            Host::XenSampled(host) => host.collector(),
            Host::Vsphere(host) => host.collector(),
        }
    }

    fn sample(&mut self) -> Result<Batch, Fault> {
        match self {
            Host::Kvm(host) => host.sample().map(with_timers),
            Host::Xen(host) => host.sample(),
            Host::XenSampled(host) => host.sample(),
            Host::Vsphere(host) => host.sample(),
        }
    }
}

/// With what VMs' timers asked for and got, where a service puts them first on this host.
fn with_timers(mut batch: Batch) -> Batch {
    let counts = timer_counts();
    for sample in &mut batch.vms {
        sample.timers = counts.get(&sample.vm).copied();
    }
    batch
}

impl Actuate for Host {
    fn refusal(&mut self, step: &Step, scope: Scope) -> Result<(), Fault> {
        self.actuator().refusal(step, scope)
    }

    fn capabilities(&mut self, vm: &VmId) -> Result<Capabilities, Fault> {
        self.actuator().capabilities(vm)
    }

    fn current(&mut self, step: &Step) -> Result<Change, Fault> {
        self.actuator().current(step)
    }

    fn former(&mut self, step: &Step, scope: Scope) -> Result<Former, Fault> {
        self.actuator().former(step, scope)
    }

    fn act(&mut self, step: &Step, scope: Scope) -> Result<(), Fault> {
        self.actuator().act(step, scope)
    }

    fn restore(&mut self, step: &Step, former: &Former) -> Result<Restored, Fault> {
        self.actuator().restore(step, former)
    }
}

/// The Xen host that is meant: the one named, or this very machine where it is a Domain-0.
///
/// # Errors
/// `Usage` for a Xen URI that names no host.
pub fn xen_meant(connect: Option<&str>) -> Result<Option<Place>, Fault> {
    match connect {
        Some(uri) => Place::of(uri).transpose(),
        None => Ok(Place::is_here().then_some(Place::Here)),
    }
}

/// Opens the live host and says on standard error what the person should know.
///
/// # Errors
/// As [`KvmHost::open`] and [`XenHost::open`]; `NothingThere` when there is no VM at all.
pub fn open_host(source: &Source) -> Result<Host, Fault> {
    open_host_with(source, None)
}

/// As [`open_host`], recording every context switch into a kernel buffer of `event_buffer` bytes where it is given.
///
/// # Errors
/// As [`open_host`]; `Usage` when the buffer is no power of two, or switches are asked of a collector without them.
pub fn open_host_with(source: &Source, event_buffer: Option<u64>) -> Result<Host, Fault> {
    if let Some(access) = login::access(source.connect.as_deref(), &source.login)? {
        if event_buffer.is_some() || source.collector != CollectorChoice::Auto {
            return Err(Fault::new(FaultKind::Usage, "a vSphere counts by itself, and keeps no switches")
                .way_out("leave out --collector and --events"));
        }
        let password = login::password(&access)?;
        let mut host = Esxi::observe(&access, &password, source.vms.clone(), source.statistics)?;
        host.take_notes().iter().for_each(|n| eprintln!("vsteer: {n}"));
        return Ok(Host::Vsphere(Box::new(host)));
    }
    if source.statistics != Statistics::RealTime {
        return Err(Fault::new(FaultKind::Usage, "--statistics: a vSphere alone keeps them")
            .way_out("leave it out, or --connect vsphere://USER@HOST"));
    }
    if let Some(place) = xen_meant(source.connect.as_deref())? {
        if event_buffer.is_some() {
            return Err(Fault::new(FaultKind::Usage, "--events: Xen's switches are in its own trace")
                .way_out("leave out --events; `xentrace -e 0x00021000 FILE` keeps them"));
        }
        let vms = source.vms.clone();
        return match source.collector {
            CollectorChoice::Auto => Ok(Host::Xen(Box::new(XenHost::open(place, vms)?))),
            CollectorChoice::Sampled => Ok(Host::XenSampled(Box::new(SampledHost::open(place, vms)?))),
            CollectorChoice::Ebpf | CollectorChoice::Schedstat => {
                Err(Fault::new(FaultKind::Usage, "--collector: a Xen host is counted by its own trace")
                    .way_out("leave out --collector, or --collector sampled where no trace is wanted"))
            }
        };
    }
    let mut source = source.clone();
    let mut options = Options::default();
    if let Some(bytes) = event_buffer {
        let fits = u32::try_from(bytes).ok().filter(|b| b.is_power_of_two());
        options.ebpf.event_buffer_bytes = Some(fits.ok_or_else(|| {
            Fault::new(FaultKind::Usage, format!("--event-buffer {bytes} is not a power of two below 4G"))
        })?);
        if source.collector == CollectorChoice::Schedstat {
            return Err(Fault::new(FaultKind::Usage, "the collector schedstat sees no switches")
                .way_out("leave out --collector, or --events"));
        }
        // Better none than a recording that lacks what was asked for.
        source.collector = CollectorChoice::Ebpf;
    }
    let host = KvmHost::open(Options {
        connect: source.connect.clone(),
        collector: match source.collector {
            CollectorChoice::Auto => vsteer_host::observe::CollectorChoice::Auto,
            CollectorChoice::Ebpf => vsteer_host::observe::CollectorChoice::Ebpf,
            CollectorChoice::Schedstat => vsteer_host::observe::CollectorChoice::Schedstat,
            CollectorChoice::Sampled => {
                return Err(Fault::new(FaultKind::Usage, "--collector sampled is for a Xen host")
                    .way_out("leave out --collector, or --collector schedstat"));
            }
        },
        vms: source.vms.clone(),
        ..options
    })?;
    for note in host.notes() {
        eprintln!("vsteer: {note}");
    }
    Ok(Host::Kvm(Box::new(host)))
}

/// Refuses a host without VMs, with the way out.
pub fn need_vms(config: &HostConfig, source: &Source) -> Result<(), Fault> {
    if !config.vms.is_empty() {
        return Ok(());
    }
    let of = source.connect.as_ref().map_or("this host".to_owned(), |uri| format!("{uri:?}"));
    Err(Fault::new(FaultKind::NothingThere, format!("no VM is running on {of}"))
        .way_out("start one, name another libvirt with --connect URI, or try `vsteer lab up contention`"))
}

/// Observes the live host for `length`, sampling every `interval`; shows progress on a terminal.
///
/// # Errors
/// As [`open_host`]; `Interrupted` when nothing useful had been seen at Ctrl-C.
pub fn observe(source: &Source, length: Duration, interval: Duration) -> Result<Stretch, Fault> {
    let interrupt = Interrupt::listen();
    let mut host = open_host(source)?;
    need_vms(&host.config()?, source)?;
    if let Host::Vsphere(esxi) = &mut host {
        let batches = esxi.past(length)?;
        esxi.take_notes().iter().for_each(|n| eprintln!("vsteer: {n}"));
        return Ok(Stretch { config: esxi.config()?, collector: esxi.collector(), batches });
    }
    let mut batches = vec![host.sample()?];
    // On a busy host the first sample alone may take longer than `length`.
    let begin = Instant::now();
    let mut next = begin;
    while begin.elapsed() < length {
        next = due(next, interval);
        progress("observing", begin.elapsed(), length);
        if interrupt.sleep_until(next.min(begin + length)) {
            break;
        }
        batches.push(host.sample()?);
    }
    progress_done();
    if batches.len() < 2 {
        return Err(Fault::new(FaultKind::Interrupted, "interrupted before anything could be seen"));
    }
    Ok(Stretch { config: host.config()?, collector: host.collector(), batches })
}

/// The window asked for: a recording, part of one, or the live host.
///
/// # Errors
/// As [`observe`] and [`Recording::open`]; `BadInput` when the moment asked for is not in the recording.
pub fn window(w: &Window) -> Result<Stretch, Fault> {
    let Some(folder) = &w.recording else {
        return observe(&w.source, w.length, Duration::from_millis(200));
    };
    let recording = read(folder)?;
    let Some(at) = &w.at else { return whole(recording) };
    let last_ns = recording.batches.last().map_or(0, |b| b.unix_ns);
    let moment = clock::moment(at, last_ns)?;
    let half = w.around.as_nanos() as u64 / 2;
    let batches = recording.between(moment.saturating_sub(half), moment + half).to_vec();
    let (Some(first), Some(last)) = (recording.batches.first(), recording.batches.last()) else {
        return whole(recording);
    };
    if batches.len() < 2 {
        return Err(Fault::new(FaultKind::BadInput, format!("{at:?} is not in {}", folder.display()))
            .because(format!(
                "it runs from {} to {}",
                clock::text(first.unix_ns),
                clock::text(last.unix_ns)
            )));
    }
    let mono = batches[batches.len() - 1].mono_ns;
    Ok(Stretch {
        config: recording.config_at(mono).clone(),
        collector: recording.manifest.collector,
        batches,
    })
}

/// Reads a recording and says on standard error what of it was not whole.
///
/// # Errors
/// As [`Recording::open`]; for a file as [`esxtop::read`] where it begins as esxtop's do, and else, taken for a trace of
/// Xen's, as [`saved::read`].
pub fn read(folder: &std::path::Path) -> Result<Recording, Fault> {
    let recording = if folder.is_file() && esxtop::is_one(folder) {
        let esxtop::Saved { config, collector, batches, notes } = esxtop::read(folder)?;
        Recording::foreign(folder, config, collector, batches, notes)
    } else if folder.is_file() {
        let Saved { config, collector, batches, notes } = saved::read(folder)?;
        Recording::foreign(folder, config, collector, batches, notes)
    } else {
        Recording::open(folder)?
    };
    for note in &recording.notes {
        eprintln!("vsteer: {note}");
    }
    Ok(recording)
}

/// All of a recording.
///
/// # Errors
/// `BadInput` when it holds no sample.
pub fn whole(recording: Recording) -> Result<Stretch, Fault> {
    let Some(last) = recording.batches.last() else {
        return Err(Fault::new(FaultKind::BadInput, "the recording holds no whole sample"));
    };
    let config = recording.config_at(last.mono_ns).clone();
    Ok(Stretch { config, collector: recording.manifest.collector, batches: recording.batches })
}

/// A progress bar of time on standard error, where that is a terminal.
pub fn progress(what: &str, done: Duration, of: Duration) {
    let (done, of) = (done.as_secs_f64(), of.as_secs_f64());
    progress_of(what, done / of, &format!("{done:>4.0}/{of:.0} s"));
}

/// A progress bar of a part (0..=1) of the work.
pub fn progress_of(what: &str, part: f64, note: &str) {
    let mut err = std::io::stderr();
    if !err.is_terminal() {
        return;
    }
    let part = part.clamp(0.0, 1.0);
    let bar: String = (0..30).map(|i| if f64::from(i) < part * 30.0 { '#' } else { '.' }).collect();
    let _ = write!(err, "\r{what} [{bar}] {note} ");
    let _ = err.flush();
}

/// Clears the progress bar.
pub fn progress_done() {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        let _ = write!(err, "\r{:70}\r", "");
        let _ = err.flush();
    }
}
