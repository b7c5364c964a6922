//! `vsteer record`: samples to disk until told to stop.

use crate::cli::Record;
use crate::interrupt::Interrupt;
use crate::source::{need_vms, open_host, progress, progress_done};
use std::time::{Duration, Instant};
use vsteer_core::Fault;
use vsteer_core::nouns::{Batch, Collector};
use vsteer_host::observe::{KvmHost, Observe};
use vsteer_record::{FORMAT, Manifest, Writer};

/// A batch is written at least this often.
const INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Records.
///
/// # Errors
/// As [`open_host`] and [`Writer::append`]; what was written before a full disk stays readable.
pub fn run(a: &Record, json: bool) -> Result<(), Fault> {
    let interrupt = Interrupt::listen();
    let mut host = open_host(&a.source)?;
    let config = host.config()?;
    if a.ring.is_none() {
        need_vms(&config, &a.source)?;
    }
    let interval = a.interval.min(INTERVAL_MAX);
    let (first, first_polled) = sample(&mut host, a.second.is_some())?;
    let manifest = |collector: Collector| Manifest {
        format: FORMAT,
        vsteer: env!("CARGO_PKG_VERSION").to_owned(),
        hostname: config.hostname.clone(),
        fingerprint: config.fingerprint(),
        mono_ns: first.mono_ns,
        unix_ns: first.unix_ns,
        collector,
    };
    let collector = host.collector();
    let mut writer = Writer::create(&a.output, &manifest(collector.clone()), &config, a.ring)?;
    writer.append(&first, &config)?;
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
    while a.length.is_none_or(|l| begin.elapsed() < l) {
        next += interval;
        progress("recording", begin.elapsed(), a.length.unwrap_or(begin.elapsed() + interval));
        let end = a.length.map_or(next, |l| next.min(begin + l));
        if interrupt.sleep_until(end) {
            break;
        }
        let (batch, polled) = sample(&mut host, second.is_some())?;
        // The configuration is asked of the manager, which is slow beside a sample.
        if looked.elapsed() > Duration::from_secs(10) {
            config = host.config()?;
            looked = Instant::now();
        }
        writer.append(&batch, &config)?;
        if let (Some(w), Some(batch)) = (&mut second, &polled) {
            w.append(batch, &config)?;
        }
        batches += 1;
    }
    progress_done();
    writer.finish()?;
    second.map_or(Ok(()), Writer::finish)?;
    let seconds = begin.elapsed().as_secs_f64();
    if json {
        super::print_json(&serde_json::json!({
            "recording": a.output, "batches": batches, "seconds": seconds, "collector": collector,
        }));
    } else {
        eprintln!("vsteer: {batches} samples over {seconds:.1} s in {}", a.output.display());
    }
    Ok(())
}

/// A sample, with the polling collector's beside it where asked for.
fn sample(host: &mut KvmHost, both: bool) -> Result<(Batch, Option<Batch>), Fault> {
    if both { host.sample_both().map(|(a, b)| (a, Some(b))) } else { Ok((host.sample()?, None)) }
}
