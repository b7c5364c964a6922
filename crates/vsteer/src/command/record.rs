//! `vsteer record`: samples to disk until told to stop.

use crate::cli::Record;
use crate::interrupt::{Interrupt, due};
use crate::source::{need_vms, open_host_with, progress, progress_done};
use std::time::{Duration, Instant};
use vsteer_core::nouns::{Batch, Collector, HostConfig};
use vsteer_core::trigger::Watch;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::backend::Host;
use vsteer_host::switches::SwitchRecorder;
use vsteer_record::{FORMAT, Manifest, Writer};

/// A batch is written at least this often: so much is lost by a crash.
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// What the kernel does for programs that were just attached (code patched on every pCPU, memory of the verifier freed late)
/// shows in what is measured for some tenths of a second: nothing is, so long.
const SETTLE: Duration = Duration::from_secs(1);

/// Records.
///
/// # Errors
/// As [`open_host_with`] and [`Writer::append`]; what was written before a full disk stays readable.
pub fn run(a: &Record, json: bool) -> Result<(), Fault> {
    let interrupt = Interrupt::listen();
    let mut host = open_host_with(&a.source, a.events.then_some(a.event_buffer))?;
    if a.second.is_some() && !host.has_second() {
        return Err(Fault::new(FaultKind::Usage, "this host has no second way of counting")
            .way_out("leave out --second"));
    }
    let config = host.config()?;
    if a.ring.is_none() {
        need_vms(&config, &a.source)?;
    }
    // Asked once: they stay as they are.
    let quota_clocks = host.observer().filter(|_| a.events);
    let quota_clocks = quota_clocks.map(|o| o.quota_clocks()).transpose()?.unwrap_or_default();
    let with_clocks = |mut config: HostConfig| {
        config.scheduler.iter_mut().for_each(|s| s.quota_clocks.clone_from(&quota_clocks));
        config
    };
    let config = with_clocks(config);
    let interval = a.interval.min(INTERVAL_MAX);
    // Not kept: it tells the host's clocks, and whatever is slow the first time is done.
    let (begun, _) = host.sample_both(a.second.is_some())?;
    let manifest = |collector: Collector| Manifest {
        format: FORMAT,
        vsteer: env!("CARGO_PKG_VERSION").to_owned(),
        hostname: config.hostname.clone(),
        fingerprint: config.fingerprint(),
        mono_ns: begun.mono_ns,
        unix_ns: begun.unix_ns,
        collector,
    };
    let collector = host.collector();
    a.trigger.iter().try_for_each(|t| t.measurable(&collector))?;
    let of_past = host.length_of_past(a.length)?;
    let ns = |d: Duration| d.as_nanos() as u64;
    let mut watch = Watch::new(a.trigger.clone(), ns(a.trigger_window), ns(a.trigger_quiet));
    let mut marks = 0u64;
    let ring = a.ring.map(|r| samples_part(r, a.events));
    let mut writer = Writer::create(&a.output, &manifest(collector.clone()), &config, ring)?;
    let switches = start_switches(a, host.as_ref(), &config)?;
    if host.observer().is_some() {
        interrupt.sleep_until(Instant::now() + SETTLE);
    }
    if let Some(kept) = of_past.and_then(|length| host.past(length)).transpose()? {
        kept.iter().try_for_each(|batch| writer.append(batch, &config))?;
        writer.finish()?;
        let seconds = seconds_of(&kept);
        if json {
            crate::text::print_json(&serde_json::json!({
                "recording": a.output, "batches": kept.len(), "seconds": seconds, "collector": host.collector(),
            }));
        } else {
            eprintln!("vsteer: {} samples of {seconds:.0} s in {}", kept.len(), a.output.display());
        }
        return Ok(());
    }
    let (first, first_polled) = host.sample_both(a.second.is_some())?;
    writer.append(&first, &config)?;
    let mut newest_ns = first.mono_ns;
    let mut second = match (&a.second, host.second_collector()) {
        (Some(folder), Some(collector)) => {
            Some(Writer::create(folder, &manifest(collector), &config, a.ring)?)
        }
        _ => None,
    };
    if let (Some(w), Some(batch)) = (&mut second, &first_polled) {
        w.append(batch, &config)?;
    }
    let begin = Instant::now();
    let (mut next, mut batches, mut config, mut looked) = (begin, 1u64, config.clone(), begin);
    let mut alone = false;
    let mut go_on = || -> Result<(), Fault> {
        while a.length.is_none_or(|l| begin.elapsed() < l) {
            next = due(next, interval);
            progress("recording", begin.elapsed(), a.length.unwrap_or(begin.elapsed() + interval));
            let end = a.length.map_or(next, |l| next.min(begin + l));
            if interrupt.sleep_until(end) || switches.as_ref().is_some_and(SwitchRecorder::has_failed) {
                break;
            }
            let (batch, polled) = host.sample_both(second.is_some())?;
            // Who counts by itself (a vSphere) has nothing new each time.
            if batch.mono_ns <= newest_ns {
                continue;
            }
            newest_ns = batch.mono_ns;
            // The configuration is asked of the manager, which is slow beside a sample.
            if looked.elapsed() > Duration::from_secs(10) {
                looked = Instant::now();
                // One that is started anew (libvirtd, a link) tells it later: what is measured does not depend on it.
                match host.config() {
                    Ok(now) => {
                        config = with_clocks(now);
                        switches.iter().for_each(|s| s.set_config(&config));
                        alone = false;
                    }
                    Err(why) if !alone => {
                        eprintln!("vsteer: recorded on, with the configuration as it was: {why}");
                        alone = true;
                    }
                    Err(_) => {}
                }
            }
            writer.append(&batch, &config)?;
            for mark in watch.see(&batch, &config, &collector) {
                writer.mark(&mark)?;
                marks += 1;
                eprintln!("vsteer: {}", crate::text::mark(&mark));
            }
            if let (Some(w), Some(batch)) = (&mut second, &polled) {
                w.append(batch, &config)?;
            }
            batches += 1;
        }
        Ok(())
    };
    let recorded = go_on();
    progress_done();
    // Whatever ended it, what there is is closed.
    let closed = writer.finish().and(second.map_or(Ok(()), Writer::finish));
    let unseen = host.observer().and_then(|o| o.unseen().ok());
    let events = match (switches, host.into_observer()) {
        (Some(s), Some(observer)) => s.finish(observer).map(Some),
        _ => Ok(None),
    };
    let events = recorded.and(closed).and(events)?;
    let seconds = begin.elapsed().as_secs_f64();
    if json {
        crate::text::print_json(&serde_json::json!({
            "recording": a.output, "batches": batches, "seconds": seconds, "collector": collector,
            "switches_unseen": unseen, "events": events, "marks": marks,
        }));
    } else {
        eprintln!("vsteer: {batches} samples over {seconds:.1} s in {}", a.output.display());
        events.iter().for_each(|e| eprintln!("vsteer: {}", crate::text::switches_recorded(e)));
    }
    Ok(())
}

fn seconds_of(batches: &[Batch]) -> f64 {
    match (batches.first(), batches.last()) {
        (Some(a), Some(b)) => b.mono_ns.saturating_sub(a.mono_ns) as f64 / 1e9,
        _ => 0.0,
    }
}

/// Of a ring, what the samples may take; the rest is for switches, which are many times as large.
fn samples_part(ring: u64, events: bool) -> u64 {
    if events { ring / 8 } else { ring }
}

fn start_switches(a: &Record, host: &dyn Host, config: &HostConfig) -> Result<Option<SwitchRecorder>, Fault> {
    let Some(observer) = host.observer().filter(|_| a.events) else { return Ok(None) };
    let ring = a.ring.map(|r| r - samples_part(r, true));
    SwitchRecorder::start(observer, &a.output, ring, config).map(Some)
}
