//! Records samples of a host to disk, until the user asks to stop.
//!
//! One loop takes samples at even intervals, reads the configuration every ten seconds, and marks the moments at which
//! a trigger fires. On request it records a second collector at the same moments. A [`SwitchRecorder`] records context
//! switches in its own thread. A host that keeps its own statistics (vSphere) gives all of them at once.
//!
//! The loop stands here and not in `vsteer-record`, because it asks a host. `vsteer-record` only writes.
//!
//! Left out: signals and printing. The caller brings a [`Pace`] and a closure for these.

mod rotation;

use crate::backend::Host;
use crate::pace::{Look, Pace, due};
use crate::privilege::{Kept, confine};
use crate::switches::{SwitchRecorder, Urgent};
use rotation::Rotation;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use vsteer_core::nouns::{Batch, Collector, HostConfig, QuotaClocks, Tid};
use vsteer_core::trigger::{Mark, Trigger, Watch};
use vsteer_core::{Fault, FaultKind};
use vsteer_record::{EventSummary, FORMAT, Manifest, Writer, shown_as};

/// Write a batch at least this often: a crash loses no more.
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// How long to wait after eBPF programs were attached. For some tenths of a second the kernel still patches code on
/// every pCPU and frees the verifier's memory, which would show in the samples.
const SETTLE: Duration = Duration::from_secs(1);
/// How often to read the configuration, at most: [`Look`] makes it less often where that takes long. A manager takes much
/// longer to answer than a sample takes.
const CONFIG_EVERY: Duration = Duration::from_secs(10);
/// The part of a ring that samples may take if switches are recorded too, which are many times as large.
const SAMPLES_OF_RING: u64 = 8;

/// What to record.
pub struct Asked<'a> {
    /// The folder to make.
    pub output: &'a Path,
    /// Where the recording that is at `output` goes once the new one has its first batch; `None`: refuse a folder that is
    /// there.
    pub former: Option<&'a Path>,
    /// The folder for the second collector.
    pub second: Option<&'a Path>,
    /// The time between two samples.
    pub interval: Duration,
    /// How long to record; `None`: until the user asks to stop.
    pub length: Option<Duration>,
    /// Keep about this many bytes, the newest.
    pub ring: Option<u64>,
    /// Record context switches too.
    pub events: bool,
    /// The conditions that mark a moment.
    pub triggers: &'a [Trigger],
    /// The window over which a condition is judged.
    pub trigger_window: Duration,
    /// How long a condition that fired stays silent.
    pub trigger_quiet: Duration,
}

/// What the loop reports while it records.
pub enum Heard<'a> {
    /// The time recorded so far, and in all.
    Progress(Duration, Duration),
    /// The first sample is recorded.
    Begun,
    /// A trigger fired.
    Mark(&'a Mark),
    /// A trigger can never fire on this host, for this reason. Recording goes on without it.
    Deaf(&'a Fault),
    /// The configuration cannot be read now, for this reason. Recording continues with the last one. Reported once.
    OldConfig(&'a Fault),
}

/// What was recorded.
#[derive(Debug)]
pub enum Recorded {
    /// Samples that the host itself had kept.
    Past {
        /// The number of samples.
        batches: usize,
        /// The time from the first to the last, seconds.
        seconds: f64,
        /// How the samples were taken.
        collector: Collector,
    },
    /// Samples taken while recording.
    Live {
        /// The number of samples.
        batches: u64,
        /// The time from the first to the last, seconds.
        seconds: f64,
        /// How the samples were taken.
        collector: Collector,
        /// Switches that the kernel did not report; `None` without eBPF.
        unseen: Option<u64>,
        /// The recorded switches.
        events: Option<EventSummary>,
        /// Moments that were marked.
        marks: u64,
    },
}

/// Does this host have the second collector, if one is wanted?
///
/// # Errors
/// `Usage` if it has none.
pub fn check(host: &dyn Host, asked: &Asked<'_>) -> Result<(), Fault> {
    if asked.second.is_some() && !host.has_second() {
        return Err(Fault::new(FaultKind::Usage, "cannot use --second: this host has only one collector")
            .help("leave out --second"));
    }
    Ok(())
}

/// Records `host`, whose configuration is `config`.
///
/// # Errors
/// As [`Host::sample_both`] and [`Writer::append`]. What was written before a full disk stays readable.
pub fn record(
    host: Box<dyn Host>,
    config: HostConfig,
    asked: &Asked<'_>,
    pace: &dyn Pace,
    hear: &mut dyn FnMut(Heard<'_>),
) -> Result<Recorded, Fault> {
    // The writers know the folder by its descriptor; people know it by its name.
    record_into(host, config, asked, pace, hear).map_err(|fault| shown_as(fault, asked.output))
}

fn record_into(
    host: Box<dyn Host>,
    config: HostConfig,
    asked: &Asked<'_>,
    pace: &dyn Pace,
    hear: &mut dyn FnMut(Heard<'_>),
) -> Result<Recorded, Fault> {
    let mut recorder = Recorder::begin(host, config, asked)?;
    for trigger in asked.triggers {
        trigger.measurable(&recorder.manifest.collector).unwrap_or_else(|why| hear(Heard::Deaf(&why)));
    }
    if recorder.host.settles() {
        pace.sleep_until(Instant::now() + SETTLE);
    }
    if let Some(kept) = recorder.of_past.and_then(|length| recorder.host.past(length)).transpose()? {
        hear(Heard::Begun);
        return recorder.past(&kept);
    }
    recorder.first()?;
    hear(Heard::Begun);
    let begin = Instant::now();
    let recorded = recorder.until_stopped(begin, pace, hear);
    recorder.end(recorded, begin)
}

/// The folders in which a recording writes. Replacing an old recording renames folders beside it.
fn written<'a>(asked: &Asked<'a>, replaces: bool) -> Vec<&'a Path> {
    let beside =
        |path: &'a Path| path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let output = match asked.former.filter(|_| replaces) {
        Some(former) => vec![beside(asked.output), beside(former)],
        None => vec![asked.output],
    };
    output.into_iter().chain(asked.second).collect()
}

/// A recording in progress.
struct Recorder<'a> {
    asked: &'a Asked<'a>,
    host: Box<dyn Host>,
    config: HostConfig,
    /// Read once, because they never change.
    quota_clocks: BTreeMap<Tid, QuotaClocks>,
    manifest: Manifest,
    /// How much of the past to take, if the host keeps statistics itself.
    of_past: Option<Duration>,
    watch: Watch,
    writer: Writer,
    second: Option<Writer>,
    /// The old recording that this one will replace. It also keeps the folder open that the writers use.
    rotation: Option<Rotation>,
    switches: Option<SwitchRecorder>,
    newest_ns: u64,
    batches: u64,
    marks: u64,
    /// Is the configuration an old one, because the present one cannot be read?
    is_old: bool,
}

impl<'a> Recorder<'a> {
    /// Makes the folder and starts to record switches, if they are wanted.
    fn begin(
        mut host: Box<dyn Host>,
        config: HostConfig,
        asked: &'a Asked<'a>,
    ) -> Result<Recorder<'a>, Fault> {
        let quota_clocks = host.observer().filter(|_| asked.events);
        let quota_clocks = quota_clocks.map(|o| o.quota_clocks()).transpose()?.unwrap_or_default();
        let config = with_clocks(config, &quota_clocks);
        // This sample is not kept. It gives the host's clocks and warms up what is slow the first time.
        let (begun, _) = host.sample_both(asked.second.is_some())?;
        let manifest = Manifest {
            format: FORMAT,
            vsteer: env!("CARGO_PKG_VERSION").to_owned(),
            hostname: config.hostname.clone(),
            fingerprint: config.fingerprint(),
            mono_ns: begun.mono_ns,
            unix_ns: begun.unix_ns,
            collector: host.collector(),
        };
        let of_past = host.length_of_past(asked.length)?;
        let ns = |d: Duration| d.as_nanos() as u64;
        let can_fire = |t: &&Trigger| t.measurable(&manifest.collector).is_ok();
        let triggers = asked.triggers.iter().filter(can_fire).cloned().collect();
        let watch = Watch::new(triggers, ns(asked.trigger_window), ns(asked.trigger_quiet));
        let ring = asked.ring.map(|r| samples_part(r, asked.events));
        let rotation =
            asked.former.map(|former| Rotation::begin(asked.output, former)).transpose()?.flatten();
        let writer = match &rotation {
            Some(rotation) => Writer::create_in(&rotation.folder(), &manifest, &config, ring)?,
            None => Writer::create(asked.output, &manifest, &config, ring)?,
        };
        let second = match (asked.second, host.second_collector()) {
            (Some(folder), Some(collector)) => {
                let manifest = Manifest { collector, ..manifest.clone() };
                Some(Writer::create(folder, &manifest, &config, asked.ring)?)
            }
            _ => None,
        };
        // All folders are there, and the thread that records switches is not: it inherits the limits.
        let urgent = asked.events.then(Urgent::begin);
        if let Some(kept) = host.still_needs() {
            // Before Linux 5.19 a process with limits cannot rename from one folder to another.
            let apart = asked.former.is_some_and(|former| former.parent() != asked.output.parent());
            let kept = Kept { writes_elsewhere: kept.writes_elsewhere || apart, ..kept };
            confine(kept, &written(asked, rotation.is_some()))?;
        }
        let switches = match host.observer().filter(|_| asked.events) {
            Some(observer) => {
                let ring = asked.ring.map(|r| r - samples_part(r, true));
                Some(SwitchRecorder::start(observer, writer.folder(), ring, &config)?)
            }
            None => None,
        };
        drop(urgent);
        Ok(Recorder {
            asked,
            host,
            config,
            quota_clocks,
            manifest,
            of_past,
            watch,
            writer,
            second,
            rotation,
            switches,
            newest_ns: 0,
            batches: 0,
            marks: 0,
            is_old: false,
        })
    }

    /// Records what the host kept, and nothing more.
    fn past(mut self, kept: &[Batch]) -> Result<Recorded, Fault> {
        kept.iter().try_for_each(|batch| self.writer.append(batch, &self.config))?;
        self.writer.finish()?;
        self.rotation.iter_mut().filter(|_| !kept.is_empty()).try_for_each(Rotation::replace)?;
        Ok(Recorded::Past {
            batches: kept.len(),
            seconds: seconds_of(kept),
            collector: self.host.collector(),
        })
    }

    /// Takes the first sample.
    fn first(&mut self) -> Result<(), Fault> {
        let (first, polled) = self.host.sample_both(self.asked.second.is_some())?;
        self.writer.append(&first, &self.config)?;
        (self.newest_ns, self.batches) = (first.mono_ns, 1);
        self.rotation.iter_mut().try_for_each(Rotation::replace)?;
        self.append_second(polled.as_ref())
    }

    fn append_second(&mut self, polled: Option<&Batch>) -> Result<(), Fault> {
        match (&mut self.second, polled) {
            (Some(writer), Some(batch)) => writer.append(batch, &self.config),
            _ => Ok(()),
        }
    }

    fn until_stopped(
        &mut self,
        begin: Instant,
        pace: &dyn Pace,
        hear: &mut dyn FnMut(Heard<'_>),
    ) -> Result<(), Fault> {
        let interval = self.asked.interval.min(INTERVAL_MAX);
        let length = self.asked.length;
        let (mut next, mut looked) = (begin, Look::since(Instant::now()));
        while length.is_none_or(|l| begin.elapsed() < l) {
            next = due(next, interval);
            hear(Heard::Progress(begin.elapsed(), length.unwrap_or(begin.elapsed() + interval)));
            let end = length.map_or(next, |l| next.min(begin + l));
            if pace.sleep_until(end) || self.switches.as_ref().is_some_and(SwitchRecorder::has_failed) {
                break;
            }
            let (batch, polled) = self.host.sample_both(self.second.is_some())?;
            // A host that counts at its own intervals (vSphere) does not have a new sample each time.
            if batch.mono_ns <= self.newest_ns {
                continue;
            }
            self.newest_ns = batch.mono_ns;
            if looked.is_older(CONFIG_EVERY) {
                let begun = Instant::now();
                self.refresh(hear);
                looked = Look::since(begun);
            }
            self.keep(&batch, polled.as_ref(), hear)?;
        }
        Ok(())
    }

    /// Reads the configuration. If a manager restarts (libvirtd, a link), recording continues with the last one: the
    /// samples do not depend on it.
    fn refresh(&mut self, hear: &mut dyn FnMut(Heard<'_>)) {
        match self.host.config() {
            Ok(now) => {
                self.config = with_clocks(now, &self.quota_clocks);
                self.switches.iter().for_each(|s| s.set_config(&self.config));
                self.is_old = false;
            }
            Err(why) => {
                if !self.is_old {
                    hear(Heard::OldConfig(&why));
                }
                self.is_old = true;
            }
        }
    }

    /// Writes a sample, and the marks of triggers that fire with it.
    fn keep(
        &mut self,
        batch: &Batch,
        polled: Option<&Batch>,
        hear: &mut dyn FnMut(Heard<'_>),
    ) -> Result<(), Fault> {
        self.writer.append(batch, &self.config)?;
        for mark in self.watch.see(batch, &self.config, &self.manifest.collector) {
            self.writer.mark(&mark)?;
            self.marks += 1;
            hear(Heard::Mark(&mark));
        }
        self.append_second(polled)?;
        self.batches += 1;
        Ok(())
    }

    /// Closes the files, whatever ended the recording.
    fn end(mut self, recorded: Result<(), Fault>, begin: Instant) -> Result<Recorded, Fault> {
        let closed = self.writer.finish().and(self.second.as_mut().map_or(Ok(()), Writer::finish));
        let unseen = self.host.observer().map(|o| o.unseen());
        let events = match (self.switches, self.host.into_observer()) {
            (Some(s), Some(observer)) => s.finish(observer).map(Some),
            _ => Ok(None),
        };
        let events = recorded.and(closed).and(events)?;
        Ok(Recorded::Live {
            batches: self.batches,
            seconds: begin.elapsed().as_secs_f64(),
            collector: self.manifest.collector,
            unseen,
            events,
            marks: self.marks,
        })
    }
}

fn with_clocks(mut config: HostConfig, clocks: &BTreeMap<Tid, QuotaClocks>) -> HostConfig {
    config.scheduler.iter_mut().for_each(|s| s.quota_clocks.clone_from(clocks));
    config
}

fn seconds_of(batches: &[Batch]) -> f64 {
    match (batches.first(), batches.last()) {
        (Some(a), Some(b)) => b.mono_ns.saturating_sub(a.mono_ns) as f64 / 1e9,
        _ => 0.0,
    }
}

/// The bytes of a ring that samples may take; switches have the rest.
fn samples_part(ring: u64, events: bool) -> u64 {
    if events { ring / SAMPLES_OF_RING } else { ring }
}

#[cfg(test)]
mod tests;
