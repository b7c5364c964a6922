//! Where samples come from: the live host or a recording, handed to commands as one thing.

use crate::cli::{Source, Window};
use crate::clock;
use crate::interrupt::Interrupt;
use crate::login;
use crate::realtime_socket::timer_counts;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use vsteer_core::model::{self, HostModel};
use vsteer_core::nouns::{Batch, Collector, HostConfig};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::backend::{Host, Request};
use vsteer_host::backends;
use vsteer_host::pace::{Pace, due};
use vsteer_host::xen::saved::{self, Saved};
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

/// What the command line asks a backend for.
pub fn request(source: &Source) -> Request {
    Request {
        collector: source.collector.into(),
        vms: source.vms.clone(),
        statistics: source.statistics,
        login: source.login.to_backend(),
        prompt: login::prompt,
        ..Request::of(source.connect.as_deref())
    }
}

/// Opens the live host and prints its notes on standard error. Samples of VMs that the service of `vsteer realtime`
/// prefers carry what their timers asked for and got.
///
/// # Errors
/// As [`backends::open`].
pub fn open_host(source: &Source) -> Result<Box<dyn Host>, Fault> {
    open_host_with(source, None)
}

/// As [`open_host`]; with `event_buffer`, the host records every context switch into a kernel buffer of that many bytes.
///
/// # Errors
/// As [`open_host`]; `Usage` when the buffer's size is not a power of two, or the collector sees no switches.
pub fn open_host_with(source: &Source, event_buffer: Option<u64>) -> Result<Box<dyn Host>, Fault> {
    opened(&Request { event_buffer, timers: Some(timer_counts), ..request(source) })
}

/// Opens what is asked for and prints its notes on standard error.
///
/// # Errors
/// As [`backends::open`].
pub fn opened(request: &Request) -> Result<Box<dyn Host>, Fault> {
    let mut host = backends::open(request)?;
    tell(host.take_notes());
    Ok(host)
}

/// Prints notes on standard error.
pub fn tell(notes: Vec<String>) {
    notes.iter().for_each(|n| eprintln!("vsteer: {n}"));
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
    if let Some(batches) = host.past(length) {
        let batches = batches?;
        tell(host.take_notes());
        return Ok(Stretch { config: host.config()?, collector: host.collector(), batches });
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
