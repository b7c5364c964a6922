//! Opens the host that the command line names, and observes it for a while.

use super::{Stretch, progress_done, progress_of};
use crate::cli::Source;
use crate::interrupt::Interrupt;
use crate::login;
use crate::realtime_socket::timer_counts;
use std::time::{Duration, Instant};
use vsteer_core::nouns::HostConfig;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::backend::{Host, Request};
use vsteer_host::hypervisors;
use vsteer_host::pace::{Pace, due};
use vsteer_host::privilege::confine;
use vsteer_host::several;

/// What the command line asks a backend for.
pub fn request(source: &Source) -> Request {
    Request {
        collector: source.collector.into(),
        vms: source.vms.clone(),
        statistics: source.statistics,
        login: source.login.to_backend(),
        prompt: login::prompt,
        copies_itself: source.copy_vsteer,
        ..Request::of(source.uri())
    }
}

/// Refuses several hosts, for a command that observes one.
///
/// # Errors
/// `Usage` for more than one `--connect`.
pub fn need_one(source: &Source) -> Result<(), Fault> {
    if !source.is_several() {
        return Ok(());
    }
    let what = format!("this command observes one host, but --connect names {}", source.connect.len());
    Err(Fault::new(FaultKind::Usage, what)
        .help("run it for each host; only top, diagnose and record take several --connect"))
}

/// Opens the live host and prints its notes on standard error. Samples of VMs that the service of `vsteer realtime`
/// prefers carry what their timers asked for and got.
///
/// # Errors
/// As [`hypervisors::open`].
pub fn open_host(source: &Source) -> Result<Box<dyn Host>, Fault> {
    open_host_with(source, None)
}

/// As [`open_host`]; with `event_buffer`, the host records every context switch into a kernel buffer of that many bytes.
///
/// # Errors
/// As [`open_host`]; `Usage` when the buffer's size is not a power of two, or the collector sees no switches.
pub fn open_host_with(source: &Source, event_buffer: Option<u64>) -> Result<Box<dyn Host>, Fault> {
    need_one(source)?;
    opened(&Request { event_buffer, timers: Some(timer_counts), ..request(source) })
}

/// Opens one of several hosts. Its notes name it.
///
/// # Errors
/// As [`open_host_with`].
pub fn open_one_of(source: &Source, name: &str, event_buffer: Option<u64>) -> Result<Box<dyn Host>, Fault> {
    let mut host =
        hypervisors::open(&Request { event_buffer, timers: Some(timer_counts), ..request(source) })?;
    tell(host.take_notes().into_iter().map(|note| format!("{name}: {note}")).collect());
    Ok(host)
}

/// Opens what is asked for and prints its notes on standard error.
///
/// # Errors
/// As [`hypervisors::open`].
pub fn opened(request: &Request) -> Result<Box<dyn Host>, Fault> {
    let mut host = hypervisors::open(request)?;
    tell(host.take_notes());
    Ok(host)
}

/// Prints notes on standard error.
pub fn tell(notes: Vec<String>) {
    notes.iter().for_each(crate::text::note);
}

/// Refuses a host without VMs, with the way out.
pub fn need_vms(config: &HostConfig, source: &Source) -> Result<(), Fault> {
    if !config.vms.is_empty() {
        return Ok(());
    }
    let of = source.uri().map_or("this host".to_owned(), |uri| format!("{uri:?}"));
    Err(Fault::new(FaultKind::NothingThere, format!("no VM is running on {of}"))
        .help("start one, name another libvirt with --connect URI, or try `vsteer lab up contention`"))
}

/// From here on the command only watches: it drops the privileges that it no longer needs, and can write nowhere.
///
/// # Errors
/// As [`confine`].
pub fn only_watch(host: &mut dyn Host) -> Result<(), Fault> {
    host.still_needs().map_or(Ok(()), |kept| confine(kept, &[]).map(drop))
}

/// Time between two samples.
const INTERVAL: Duration = Duration::from_millis(200);

/// Observes the live host for `length`; shows progress on a terminal.
///
/// # Errors
/// As [`open_host`]; `Interrupted` when nothing useful had been seen at Ctrl-C.
pub fn observe(source: &Source, length: Duration) -> Result<Stretch, Fault> {
    let interrupt = Interrupt::listen();
    let host = open_host(source)?;
    observe_opened(host, source, length, &interrupt)
}

/// A host's name, and what was observed there.
pub type OfHost = (String, Result<Stretch, Fault>);

/// Observes several hosts for `length` at the same time. The result has them in the order of the command line.
///
/// # Errors
/// `Usage` for a host that is named twice. A host that fails does not stop the others.
pub fn observe_each(source: &Source, length: Duration) -> Result<Vec<OfHost>, Fault> {
    let (names, each) = (several::names(&source.connect)?, source.each());
    let interrupt = Interrupt::listen();
    let results = several::side_by_side(each.len(), &interrupt, &|i| {
        let host = open_one_of(&each[i], &names[i], None)?;
        observe_opened(host, &each[i], length, &interrupt)
    });
    Ok(names.into_iter().zip(results).collect())
}

fn observe_opened(
    mut host: Box<dyn Host>,
    source: &Source,
    length: Duration,
    interrupt: &Interrupt,
) -> Result<Stretch, Fault> {
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
        next = due(next, INTERVAL);
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

/// A progress bar of time on standard error, where that is a terminal.
pub fn progress(what: &str, done: Duration, of: Duration) {
    let (done, of) = (done.as_secs_f64(), of.as_secs_f64());
    progress_of(what, done / of, &format!("{done:>4.0}/{of:.0} s"));
}
