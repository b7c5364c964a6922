//! `vsteer replay`: a recording as `top -b` would have shown it.

use super::top::print_rows;
use crate::cli::Replay;
use crate::source;
use vsteer_core::{Fault, model};

/// Replays.
///
/// # Errors
/// As [`source::read`].
pub fn run(a: &Replay, json: bool) -> Result<(), Fault> {
    if a.marks {
        let marks = vsteer_record::read_marks(&a.recording)?;
        if json {
            super::print_json(&marks);
        } else {
            marks.iter().for_each(|m| println!("{}", crate::text::mark(m)));
        }
        return Ok(());
    }
    let recording = source::read(&a.recording)?;
    let interval = a.interval.as_nanos() as u64;
    let batches = &recording.batches;
    let mut from = 0;
    if !json {
        println!("{}", crate::text::csv_header());
    }
    for to in 1..batches.len() {
        if batches[to].mono_ns - batches[from].mono_ns < interval {
            continue;
        }
        let config = recording.config_at(batches[to].mono_ns);
        let model = model::derive(config, &recording.manifest.collector, &batches[from..=to])?;
        print_rows(batches[to].unix_ns, &model, json);
        from = to;
    }
    Ok(())
}
