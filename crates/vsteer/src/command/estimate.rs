//! `vsteer estimate`: how long will requests take in the next interval? Each estimator beside what clients then measured.

use crate::cli::Estimate;
use crate::logs::{self, Log};
use crate::scrapes::{self, Saved};
use crate::source::{self, progress_done, progress_of};
use crate::text;
use serde_json::json;
use std::path::Path;
use vsteer_core::model::{self, HostModel};
use vsteer_core::requests::Answered;
use vsteer_core::{Fault, FaultKind};
use vsteer_sla::estimate::ALL;
use vsteer_sla::facts::facts;
use vsteer_sla::part::{Part, by_buckets};
use vsteer_sla::score::{LOADED, error};
use vsteer_sla::window::{Interval, Vm, interval};

/// What a VM was asked.
enum Asked {
    /// By its log.
    Log(Vec<Answered>),
    /// By scrapes of its histogram.
    Saved(Saved),
}

impl Asked {
    fn read(a: &Estimate, log: &Log) -> Result<Asked, Fault> {
        if log.file.is_dir() {
            let of = scrapes::of_vm(&a.histograms, &log.vm)?;
            return Saved::read(log, of, None, &mut |told| text::note(told)).map(Asked::Saved);
        }
        logs::read(log, a.format.as_deref()).map(Asked::Log)
    }

    fn interval(&self, window: (u64, u64), vm: Vm) -> Result<Option<Interval>, Fault> {
        match self {
            Asked::Log(requests) => Ok(interval(requests, window, vm)),
            Asked::Saved(scrapes) => scrapes.interval(window, vm),
        }
    }
}

/// Estimates.
///
/// # Errors
/// As reading logs, scrapes and recordings; `NothingThere` where logs and recordings have no time in common; `Usage` for a rate or
/// weight of a VM without a log.
pub fn run(a: &Estimate, json: bool) -> Result<(), Fault> {
    let names: Vec<&str> = a.logs.iter().map(|l| l.vm.as_str()).collect();
    scrapes::all_used(&a.histograms, &a.logs)?;
    let asked_of = a.logs.iter().map(|log| Asked::read(a, log)).collect::<Result<Vec<_>, _>>()?;
    let mut parts = Vec::new();
    for folder in &a.from {
        parts.extend(cut(folder, a.interval, &a.logs, &asked_of, &names)?);
    }
    by_buckets(&parts, &names).iter().for_each(crate::text::note);
    let work = parts.len();
    for (i, part) in parts.iter_mut().enumerate() {
        progress_of("fitting the spread of CPU times", i as f64 / work as f64, "");
        part.read_off();
    }
    progress_done();
    let changed = !(a.rates.is_empty() && a.weights.is_empty());
    let mut foretold = Vec::new();
    let last = parts.len() - 1;
    for (i, part) in parts.iter().enumerate() {
        let then = parts.get(i + 1);
        if i == last && !(changed || last == 0) {
            break;
        }
        progress_of("estimating", i as f64 / work as f64, "");
        let next = match then {
            Some(then) => then.next(),
            None => part.asked(&names, &a.rates, &a.weights)?,
        };
        foretold.push(part.foretell(&next, then, &names, &mut |why| {
            eprintln!("vsteer: cannot simulate the host: {why}");
        })?);
    }
    progress_done();
    if json {
        let at = |p: &Part| {
            json!({"from_unix_ns": p.from_unix_ns, "to_unix_ns": p.to_unix_ns, "load": p.load(),
            "pcpus": p.facts.pcpus, "others_pcpus": p.facts.others,
            "vms": p.intervals.iter().map(|i| i.as_ref().map(|i| i.seen)).collect::<Vec<_>>()})
        };
        let summary: serde_json::Map<String, serde_json::Value> =
            ALL.iter().map(|e| (e.name.to_owned(), json!(error(&foretold, e.name, LOADED)))).collect();
        crate::text::print_json(&json!({"vms": names, "intervals": parts.iter().map(at).collect::<Vec<_>>(),
            "foretold": foretold, "summary": summary, "load_above": LOADED}));
    } else {
        print!("{}", text::estimate::all(&names, &foretold));
    }
    Ok(())
}

/// A recording's intervals.
fn cut(
    folder: &Path,
    every: Option<std::time::Duration>,
    logs: &[Log],
    asked: &[Asked],
    names: &[&str],
) -> Result<Vec<Part>, Fault> {
    let recording = source::read(folder)?;
    let (Some(first), Some(last)) = (recording.batches.first(), recording.batches.last()) else {
        return Err(Fault::new(
            FaultKind::NothingThere,
            format!("recording {} has no samples", folder.display()),
        ));
    };
    let (begin, end) = (first.unix_ns, last.unix_ns);
    if recording.clock_went_back() || end < begin {
        return Err(Fault::new(
            FaultKind::BadInput,
            format!("the clock was set back during the recording {}", folder.display()),
        )
        .because("times in a log are then ambiguous")
        .help("make a new recording; `vsteer diagnose --at` reads parts of this one"));
    }
    let step = every.map_or(end - begin, |d| d.as_nanos() as u64).max(1);
    for (log, asked) in logs.iter().zip(asked) {
        if let Asked::Log(requests) = asked {
            logs::of_the_time(log, requests, (begin, end))?;
        }
    }
    let mut parts = Vec::new();
    let mut from = begin;
    // What is left at the end is no interval, unless it is nearly one.
    while from + step <= end + step / 10 {
        let batches = recording.between(from, from + step);
        from += step;
        let (Some(a), Some(b)) = (batches.first(), batches.last()) else { continue };
        if batches.len() < 2 {
            continue;
        }
        let config = recording.config_at(b.mono_ns).clone();
        let model: HostModel = model::derive(&config, &recording.manifest.collector, batches)?;
        let facts = facts(&config, &model, names)?;
        let window = (a.unix_ns, b.unix_ns);
        let intervals =
            asked.iter().zip(&facts.vms).map(|(a, vm)| a.interval(window, *vm)).collect::<Result<_, _>>()?;
        parts.push(Part { config, model, facts, intervals, from_unix_ns: window.0, to_unix_ns: window.1 });
    }
    if parts.is_empty() {
        let what = format!("recording {} is shorter than one interval", folder.display());
        return Err(Fault::new(FaultKind::BadInput, what)
            .because(format!("it is {:.0} s long", (end - begin) as f64 / 1e9))
            .help("use a shorter --interval"));
    }
    Ok(parts)
}
