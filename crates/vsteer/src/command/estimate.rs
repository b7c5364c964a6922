//! `vsteer estimate`: how long will requests take in the next interval? Each estimator beside what clients then measured.

use crate::cli::Estimate;
use crate::logs::{self, Log, OfVm};
use crate::scrapes::{self, Saved};
use crate::source::{self, progress_done, progress_of};
use crate::text;
use serde_json::json;
use std::path::Path;
use vsteer_core::model::{self, HostModel};
use vsteer_core::{Fault, FaultKind};
use vsteer_record::Recording;
use vsteer_record::access_log::{self, Said, plausible::Seen};
use vsteer_sla::estimate::ALL;
use vsteer_sla::facts::facts;
use vsteer_sla::part::{Part, by_buckets};
use vsteer_sla::score::{LOADED, error};
use vsteer_sla::window::{Interval, Vm, interval};

/// What a VM was asked.
enum Asked {
    /// By its logs.
    Log(access_log::Log),
    /// By scrapes of its histogram.
    Saved(Saved),
}

impl Asked {
    fn read(a: &Estimate, of: &OfVm, times: &[(u64, u64)]) -> Result<Asked, Fault> {
        if let [url] = &of.files[..]
            && logs::is_server(url)
        {
            return stored(a, of, times);
        }
        if let [folder] = &of.files[..]
            && folder.is_dir()
        {
            let log = Log { vm: of.vm.clone(), file: folder.clone() };
            let histogram = scrapes::of_vm(&a.histograms, &of.vm)?;
            return Saved::read(&log, histogram, a.unit, &mut |told| text::note(told)).map(Asked::Saved);
        }
        let said = Said { format: a.format.clone(), unit: a.unit, zone: a.zone.clone() };
        logs::read(of, &said, times, a.allow_skipped).map(Asked::Log)
    }

    fn interval(&self, window: (u64, u64), vm: Vm) -> Result<Option<Interval>, Fault> {
        match self {
            Asked::Log(log) => Ok(interval(&log.requests, window, vm)),
            Asked::Saved(scrapes) => scrapes.interval(window, vm),
        }
    }
}

/// The scrapes that a Prometheus server stored.
#[cfg(feature = "host")]
fn stored(a: &Estimate, of: &OfVm, times: &[(u64, u64)]) -> Result<Asked, Fault> {
    let log = Log { vm: of.vm.clone(), file: of.files[0].clone() };
    let asked = scrapes::Asked {
        of: scrapes::of_vm(&a.histograms, &of.vm)?,
        unit: a.unit,
        token: a.token_file.as_deref(),
        times,
        interval: a.interval,
    };
    Saved::ask(&log, &asked, &mut |told| text::note(told)).map(Asked::Saved)
}

#[cfg(not(feature = "host"))]
fn stored(_: &Estimate, of: &OfVm, _: &[(u64, u64)]) -> Result<Asked, Fault> {
    Err(Fault::new(FaultKind::Unsupported, format!("cannot ask {}", of.files[0].display()))
        .because("this build of vsteer reads only files")
        .help("use a build with the feature `host`, or save scrapes in a folder"))
}

/// A recording, and the times that it covers, ns since 1970.
struct Recorded {
    name: String,
    recording: Recording,
    span: (u64, u64),
}

/// Estimates.
///
/// # Errors
/// As reading logs, scrapes and recordings; `NothingThere` where logs and recordings have no time in common; `Usage` for a rate or
/// weight of a VM without a log.
pub fn run(a: &Estimate, json: bool) -> Result<(), Fault> {
    let vms = logs::by_vm(&a.logs)?;
    let names: Vec<&str> = vms.iter().map(|of| of.vm.as_str()).collect();
    scrapes::all_used(&a.histograms, &a.logs)?;
    if a.token_file.is_some() && !a.logs.iter().any(Log::is_server) {
        return Err(Fault::new(FaultKind::Usage, "--token-file: no VM has a Prometheus server")
            .help("give VM=URL, for example web=http://prometheus:9090"));
    }
    // Only requests of these times are kept, so memory does not depend on the length of logs.
    let recorded = a.from.iter().map(|folder| recorded(folder)).collect::<Result<Vec<_>, _>>()?;
    let times: Vec<(u64, u64)> = recorded.iter().map(|of| of.span).collect();
    let asked_of = vms.iter().map(|of| Asked::read(a, of, &times)).collect::<Result<Vec<_>, _>>()?;
    let mut parts = Vec::new();
    for of in &recorded {
        parts.extend(cut(of, a.interval, &vms, &asked_of, &names)?);
    }
    plausible(&vms, &asked_of, &parts)?;
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
        let read: Vec<_> =
            asked_of.iter().map(|a| if let Asked::Log(log) = a { Some(&log.files) } else { None }).collect();
        crate::text::print_json(
            &json!({"vms": names, "logs": read, "intervals": parts.iter().map(at).collect::<Vec<_>>(),
            "foretold": foretold, "summary": summary, "load_above": LOADED}),
        );
    } else {
        print!("{}", text::estimate::all(&names, &foretold));
    }
    Ok(())
}

/// Reads a recording.
fn recorded(folder: &Path) -> Result<Recorded, Fault> {
    let recording = source::read(folder)?;
    let name = folder.display().to_string();
    let (Some(first), Some(last)) = (recording.batches.first(), recording.batches.last()) else {
        return Err(Fault::new(FaultKind::NothingThere, format!("recording {name} has no samples")));
    };
    let span = (first.unix_ns, last.unix_ns);
    if recording.clock_went_back() || span.1 < span.0 {
        return Err(Fault::new(
            FaultKind::BadInput,
            format!("the clock was set back during the recording {name}"),
        )
        .because("times in a log are then ambiguous")
        .help("make a new recording; `vsteer diagnose --at` reads parts of this one"));
    }
    Ok(Recorded { name, recording, span })
}

/// Compares the durations of the logs with what the VMs did in all intervals.
fn plausible(vms: &[OfVm], asked: &[Asked], parts: &[Part]) -> Result<(), Fault> {
    for (k, (of, asked)) in vms.iter().zip(asked).enumerate() {
        let Asked::Log(log) = asked else { continue };
        let length_s = |p: &Part| (p.to_unix_ns - p.from_unix_ns) as f64 / 1e9;
        let waits = |p: &Part| {
            let vm = p.model.vms.iter().find(|vm| vm.name == of.vm);
            vm.and_then(|vm| vm.vcpus.ready.or(vm.vcpus.wait)).unwrap_or(0.0) * length_s(p)
        };
        let (requests, took_s) = log.wanted;
        let seen = Seen {
            requests,
            mean_s: took_s / requests.max(1) as f64,
            cpu_s: parts.iter().map(|p| p.facts.vms[k].cpu_ns as f64 / 1e9).sum(),
            ready_s: parts.iter().map(waits).sum(),
            length_s: parts.iter().map(length_s).sum(),
        };
        logs::plausible(of, log, &seen)?;
    }
    Ok(())
}

/// A recording's intervals.
fn cut(
    of: &Recorded,
    every: Option<std::time::Duration>,
    vms: &[OfVm],
    asked: &[Asked],
    names: &[&str],
) -> Result<Vec<Part>, Fault> {
    let Recorded { name, recording, span: (begin, end) } = of;
    let step = every.map_or(end - begin, |d| d.as_nanos() as u64).max(1);
    for (vm, asked) in vms.iter().zip(asked) {
        if let Asked::Log(log) = asked {
            logs::of_the_time(vm, log, (*begin, *end))?;
        }
    }
    let mut parts = Vec::new();
    let mut from = *begin;
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
        let what = format!("recording {name} is shorter than one interval");
        return Err(Fault::new(FaultKind::BadInput, what)
            .because(format!("it is {:.0} s long", (end - begin) as f64 / 1e9))
            .help("use a shorter --interval"));
    }
    Ok(parts)
}
