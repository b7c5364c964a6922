//! `vsteer estimate`: how long will requests take in the next interval, by each estimator, beside what clients then saw?

use crate::cli::Estimate;
use crate::logs::{self, Log};
use crate::scrapes::{self, Saved};
use crate::source::{self, progress_done, progress_of};
use crate::text;
use serde_json::json;
use std::path::Path;
use vsteer_core::model::{self, HostModel};
use vsteer_core::nouns::HostConfig;
use vsteer_core::requests::Answered;
use vsteer_core::{Fault, FaultKind};
use vsteer_sim::forecast::demand::{Demands, Round};
use vsteer_sla::driven;
use vsteer_sla::estimate::simulated::Simulated;
use vsteer_sla::estimate::{ALL, Case, EFFORT, Sharing};
use vsteer_sla::facts::{self, Facts, facts};
use vsteer_sla::score::{Foretold, LOADED, Told, error};
use vsteer_sla::spread;
use vsteer_sla::window::{Interval, Next, Response, Seen, Vm, interval};

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
            return Saved::read(log, scrapes::of_vm(&a.histograms, &log.vm)?).map(Asked::Saved);
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

/// One interval of a recording.
struct Part {
    config: HostConfig,
    model: HostModel,
    facts: Facts,
    /// By VM; `None` where too little came.
    intervals: Vec<Option<Interval>>,
    from_unix_ns: u64,
    to_unix_ns: u64,
}

impl Part {
    /// What is asked for, as a part of the pCPUs.
    fn load(&self) -> f64 {
        let asked: f64 = self.intervals.iter().flatten().map(|i| i.seen.load_at(i.seen.rate_hz)).sum();
        asked / self.facts.pcpus
    }

    /// Requests of all VMs, per second.
    fn requests_hz(&self) -> f64 {
        self.intervals.iter().flatten().map(|i| i.seen.rate_hz).sum()
    }

    fn next(&self) -> Vec<Next> {
        let of = |(interval, vm): (&Option<Interval>, &vsteer_sla::window::Vm)| Next {
            rate_hz: interval.as_ref().map_or(0.0, |i| i.seen.rate_hz),
            weight: vm.weight,
        };
        self.intervals.iter().zip(&self.facts.vms).map(of).collect()
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
    by_buckets(&parts, &names);
    let work = parts.len();
    for (i, part) in parts.iter_mut().enumerate() {
        progress_of("reading off how CPU times spread", i as f64 / work as f64, "");
        read_off(part);
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
            None => asked(a, part, &names)?,
        };
        foretold.push(one(part, &next, then, &names)?);
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
        return Err(Fault::new(FaultKind::NothingThere, format!("{} holds no samples", folder.display())));
    };
    let (begin, end) = (first.unix_ns, last.unix_ns);
    if recording.clock_went_back() || end < begin {
        return Err(Fault::new(
            FaultKind::BadInput,
            format!("{}: its clock was set back meanwhile", folder.display()),
        )
        .because("no moment of a log is one of the recording then")
        .way_out("record anew; `vsteer diagnose --at` finds parts of this one"));
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
        let what = format!("{} is shorter than one interval", folder.display());
        return Err(Fault::new(FaultKind::BadInput, what)
            .because(format!("it is {:.0} s long", (end - begin) as f64 / 1e9))
            .way_out("give a shorter --interval"));
    }
    Ok(parts)
}

/// Tells whose response times are known by buckets.
fn by_buckets(parts: &[Part], names: &[&str]) {
    for (i, name) in names.iter().enumerate() {
        let last = parts.iter().rev().find_map(|p| p.intervals[i].as_ref());
        let Some((last, lots)) = last.and_then(|l| Some((l, l.lots.as_ref()?))) else { continue };
        let (low_s, high_s) = lots.bucket_at(last.seen.response.p95_s);
        let upto =
            if high_s.is_infinite() { "without end".to_owned() } else { format!("to {:.1}", 1e3 * high_s) };
        eprintln!(
            "vsteer: {name}: a histogram tells a 95th percentile by its bucket alone (the last one is somewhere from {:.1} {upto} ms), and not \
             how requests came: as by a Poisson process, it is taken",
            1e3 * low_s
        );
    }
}

/// Which VMs' CPU times spread how far.
fn read_off(part: &mut Part) {
    let mut known: Vec<Interval> = part.intervals.iter().flatten().cloned().collect();
    spread::read_off(&mut known, part.facts.pcpus, spread::EFFORT, &|| {});
    part.intervals.iter_mut().flatten().zip(known).for_each(|(i, k)| *i = k);
}

/// The next interval as the person says it.
fn asked(a: &Estimate, part: &Part, names: &[&str]) -> Result<Vec<Next>, Fault> {
    let mut next = part.next();
    let place = |vm: &str, what: &str| {
        names.iter().position(|n| *n == vm).ok_or_else(|| {
            Fault::new(FaultKind::Usage, format!("{what} {vm}=…: no log of a VM {vm:?} is given"))
                .way_out(format!("there are: {}", names.join(", ")))
        })
    };
    for (vm, rate_hz) in &a.rates {
        next[place(vm, "--rate")?].rate_hz = *rate_hz;
    }
    for (vm, weight) in &a.weights {
        let i = place(vm, "--weight")?;
        // As the hypervisor's own scale has it.
        let now = facts::find(&part.config, vm)?.weight;
        next[i].weight = now.map_or(*weight / 100.0, |now| now.on_same_scale(*weight).relative());
    }
    Ok(next)
}

/// What all estimators tell of the interval after `part`.
fn one(part: &Part, next: &[Next], then: Option<&Part>, names: &[&str]) -> Result<Foretold, Fault> {
    // VMs that nobody asked in either are no part of it.
    let here: Vec<usize> = (0..names.len()).filter(|i| part.intervals[*i].is_some()).collect();
    if let Some(i) = (0..names.len()).find(|i| !here.contains(i) && next[*i].rate_hz > 0.0) {
        return Err(Fault::new(
            FaultKind::NothingThere,
            format!("VM {:?}: nobody asked it anything", names[i]),
        )
        .because("in the interval before, so its CPU time per request is not known")
        .way_out("begin with an interval in which all of them are asked"));
    }
    let pick = |of: &dyn Fn(&Interval) -> Seen| -> Vec<Seen> {
        here.iter().filter_map(|i| part.intervals[*i].as_ref().map(of)).collect()
    };
    let seen = pick(&|i| i.seen);
    let gaps: Vec<Vec<f64>> =
        here.iter().filter_map(|i| part.intervals[*i].as_ref().map(|x| x.gaps_s.clone())).collect();
    let next: Vec<Next> = here.iter().map(|i| next[*i]).collect();
    let asked: Vec<&str> = here.iter().map(|i| names[*i]).collect();
    let host = host(part, &asked);
    let sharing = host.as_ref().map(|h| h as &dyn Sharing);
    let case = Case {
        seen: &seen,
        next: &next,
        driver: driven::passing(&part.config, &part.model, &asked, part.requests_hz()),
        pcpus: part.facts.pcpus,
        gaps_s: &gaps,
        host: sharing,
        effort: EFFORT,
        to_the_letter: false,
        between: &|| {},
    };
    let spread_out = |told: Vec<Option<Response>>| {
        let mut all = vec![None; names.len()];
        here.iter().zip(told).for_each(|(i, t)| all[*i] = t);
        all
    };
    let told = ALL.iter().map(|e| Told { estimator: e.name, told: spread_out((e.tell)(&case)) }).collect();
    let load = next.iter().zip(&seen).map(|(n, s)| s.load_at(n.rate_hz)).sum::<f64>() / part.facts.pcpus;
    let seen = match then {
        Some(then) => then.intervals.iter().map(|i| i.as_ref().map(|i| i.seen.response)).collect(),
        None => vec![None; names.len()],
    };
    Ok(Foretold { load, seen, told })
}

/// The host, to be simulated.
fn host(part: &Part, names: &[&str]) -> Option<Simulated> {
    let none = Demands {
        by_thread: std::collections::BTreeMap::new(),
        round: Round { begins_ns: 0, length_ns: 1 },
        hand_over_ns: 0,
    };
    let host = match driven::driver(&part.config) {
        Some(_) => driven::simulated(&part.config, &part.model, names, part.requests_hz()),
        None => facts::simulated(&part.config, &none, &part.facts, names),
    };
    match host {
        Ok(host) => Some(host),
        Err(why) => {
            eprintln!("vsteer: the host is not simulated: {why}");
            None
        }
    }
}
