//! `vsteer replay`: prints a recording as `top -b` would have printed it.

use crate::cli::Replay;
use crate::source;
use crate::text::print_rows;
use std::path::Path;
use std::time::Duration;
use vsteer_core::nouns::Batch;
use vsteer_core::plural::counted;
use vsteer_core::{Fault, FaultKind, model};
use vsteer_record::esxtop;

/// Replays.
///
/// # Errors
/// As [`source::read`].
pub fn run(a: &Replay, json: bool) -> Result<(), Fault> {
    if a.marks {
        let is_one = a.recording.is_file() || a.recording.join("manifest.json").is_file();
        if !is_one {
            // As for reading it.
            source::read(&a.recording)?;
        }
        let marks = vsteer_record::read_marks(&a.recording)?;
        if json {
            crate::text::print_json(&marks);
        } else {
            marks.iter().for_each(|m| println!("{}", crate::text::mark(m)));
        }
        return Ok(());
    }
    rows(&a.recording, a.interval, None, json)
}

/// Rows of a recording, `updates` of them at most.
///
/// # Errors
/// As [`source::read`].
pub fn rows(recording: &Path, interval: Duration, updates: Option<u64>, json: bool) -> Result<(), Fault> {
    let interval_ns = interval.as_nanos() as u64;
    let mut left = updates.unwrap_or(u64::MAX);
    if recording.is_file() && esxtop::is_one(recording) {
        return rows_of(recording, interval_ns, left, json);
    }
    let recording = source::read(recording)?;
    let batches = &recording.batches;
    let mut from = 0;
    for to in 1..batches.len() {
        if batches[to].mono_ns - batches[from].mono_ns < interval_ns || left == 0 {
            continue;
        }
        if from == 0 && !json {
            println!("{}", crate::text::csv_header());
        }
        let config = recording.config_at(batches[to].mono_ns);
        let model = model::derive(config, &recording.manifest.collector, &batches[from..=to])?;
        print_rows(None, batches[to].unix_ns, &model, json);
        from = to;
        left -= 1;
    }
    // Nothing was shown, and not because nothing was asked for.
    if from == 0 && updates != Some(0) {
        let seconds = batches
            .first()
            .zip(batches.last())
            .map_or(0.0, |(a, b)| b.mono_ns.saturating_sub(a.mono_ns) as f64 / 1e9);
        return Err(Fault::new(FaultKind::BadInput, "the recording is shorter than one interval")
            .because(format!("{} over {seconds:.1} s", counted(batches.len(), "sample")))
            .help("use a shorter --interval"));
    }
    Ok(())
}

/// A batch file of esxtop's, as it is read: it may be larger than memory.
fn rows_of(file: &Path, interval_ns: u64, mut left: u64, json: bool) -> Result<(), Fault> {
    let mut reader = esxtop::Reader::open(file)?;
    if !json {
        println!("{}", crate::text::csv_header());
    }
    let mut samples = 0u64;
    let mut since: Vec<Batch> = Vec::new();
    while left > 0
        && let Some(batch) = reader.sample()?
    {
        samples += 1;
        since.push(batch);
        let (first, last) = (&since[0], &since[since.len() - 1]);
        if since.len() < 2 || last.mono_ns - first.mono_ns < interval_ns {
            continue;
        }
        let unix_ns = last.unix_ns;
        print_rows(None, unix_ns, &model::derive(&reader.config()?, &reader.collector(), &since)?, json);
        since.drain(..since.len() - 1);
        left -= 1;
    }
    reader.notes().iter().for_each(crate::text::note);
    if samples < 2 {
        return Err(esxtop::too_few(file, samples, &reader.notes()));
    }
    Ok(())
}
