//! `vsteer simulate`: simulates a scenario, a recording or published experiments.

use crate::cli::Setting;
use crate::cli::Simulate;
use crate::interrupt::Interrupt;
use crate::scenario::file::File;
use crate::scenario::replay::{self, Change};
use crate::scenario::table::{self, Point};
use crate::scenario::{record, runs};
use serde_json::json;
use vsteer_core::{Fault, FaultKind};
use vsteer_sim::scenario::Case;
use vsteer_sim::scenario::outcome::{Ended, MEASURES, Run};
use vsteer_sim::sched::POLICIES;

/// More points than this are a typing error.
const POINTS_MAX: usize = 10_000;

/// Simulates.
///
/// # Errors
/// As [`File::read`], [`File::case`] and the runs; `Interrupted` where it was stopped before anything was measured.
pub fn run(a: &Simulate, json: bool) -> Result<(), Fault> {
    if let Some(recording) = &a.from {
        let change = Change { plan: a.plan.as_deref(), under: a.under.as_deref(), set: &a.set };
        return replay::run(recording, &a.was, &change, a.output.as_deref(), json);
    }
    if let Some(paper) = &a.published {
        return crate::scenario::published::run(paper, a.seeds, a.markdown, json);
    }
    let Some(path) = a.scenario.as_ref().filter(|_| !a.list) else {
        return list(json);
    };
    let interrupt = Interrupt::listen();
    let file = File::read(path)?;
    let combinations = combinations(a)?;
    let mut made = Vec::new();
    for set in &combinations {
        let all: Vec<Setting> = a.set.iter().cloned().chain(set.iter().cloned()).collect();
        made.push(file.case(&all)?);
    }
    let (scenarios, cases): (Vec<_>, Vec<_>) = made.into_iter().unzip();
    let first = scenarios[0].seed;
    let seeds: Vec<u64> = (0..u64::from(a.seeds)).map(|n| first.wrapping_add(n)).collect();
    let (all_runs, recorded) = simulated(a, &cases, &seeds, &interrupt)?;
    if all_runs.iter().all(Vec::is_empty) {
        return Err(Fault::new(FaultKind::Interrupted, "interrupted before the first run"));
    }
    let points: Vec<Point> = scenarios
        .into_iter()
        .zip(all_runs)
        .zip(&combinations)
        .map(|((scenario, runs), set)| Point { label: label(set), scenario, runs })
        .collect();
    if json {
        let told = points.iter().zip(&combinations).map(|(point, set)| {
            let all = a.set.iter().chain(set).map(|s| (s.key.clone(), s.text.clone()));
            table::value(point, &all.collect::<Vec<_>>())
        });
        crate::text::print_json(&json!({
            "scenario": path, "title": file.scenario.title, "seeds": seeds, "measures": MEASURES,
            "points": told.collect::<Vec<_>>(), "recording": a.output,
        }));
    } else {
        println!("{} ({})", crate::text::one_line(&file.scenario.title), points[0].scenario.scheduler.policy);
        for point in points.iter().filter(|p| !p.runs.is_empty()) {
            if !point.label.is_empty() {
                println!("\n{}", point.label);
            }
            print!("{}", table::text(point, a.each, a.wide));
            table::notes(point).iter().for_each(|n| println!("{n}"));
        }
    }
    if let (Some(folder), Some(n)) = (&a.output, recorded) {
        record::told(folder, n);
    }
    whole(&points, seeds.len())
}

/// The runs of each case, and how many switches of the first were recorded.
fn simulated(
    a: &Simulate,
    cases: &[Case],
    seeds: &[u64],
    interrupt: &Interrupt,
) -> Result<(Vec<Vec<Run>>, Option<u64>), Fault> {
    let Some(folder) = &a.output else { return Ok((runs::all(cases, seeds, interrupt)?, None)) };
    // The recorded run is the first seed's: it need not be run twice.
    let (ran, events) = record::recorded(&cases[0], seeds[0], folder, interrupt)?;
    let mut of_case = vec![ran];
    of_case.extend(runs::all(&cases[..1], &seeds[1..], interrupt)?.remove(0));
    Ok((vec![of_case], Some(events.recorded)))
}

/// Every point was run to its end with every seed.
fn whole(points: &[Point], seeds: usize) -> Result<(), Fault> {
    let stopped =
        points.iter().any(|p| p.runs.len() < seeds || p.runs.iter().any(|r| r.ended == Ended::Stopped));
    if stopped {
        return Err(Fault::new(
            FaultKind::Interrupted,
            "interrupted: the figures are of the finished runs only",
        ));
    }
    if points.iter().any(|p| p.runs.iter().any(|r| r.ended == Ended::Runaway)) {
        return Err(Fault::new(FaultKind::BadInput, "a simulated run made no progress; see the notes"));
    }
    Ok(())
}

/// Every combination of the sweeps' values; the last key varies fastest. Without a sweep: one empty combination.
fn combinations(a: &Simulate) -> Result<Vec<Vec<Setting>>, Fault> {
    let points: usize = a.sweep.iter().fold(1, |n, s| n.saturating_mul(s.values.len()));
    if points > POINTS_MAX {
        return Err(Fault::new(FaultKind::Usage, format!("{points} combinations"))
            .help(format!("use fewer values: at most {POINTS_MAX} points")));
    }
    Ok(a.sweep.iter().fold(vec![Vec::new()], |before, sweep| {
        let with = |set: &Vec<Setting>, text: &String| {
            let mut set = set.clone();
            set.push(Setting { key: sweep.key.clone(), text: text.clone() });
            set
        };
        before.iter().flat_map(|set| sweep.values.iter().map(|v| with(set, v)).collect::<Vec<_>>()).collect()
    }))
}

fn label(set: &[Setting]) -> String {
    set.iter().map(|s| format!("{}={}", s.key, s.text)).collect::<Vec<_>>().join("  ")
}

/// The schedulers there are.
fn list(json: bool) -> Result<(), Fault> {
    if json {
        crate::text::print_json(&POLICIES.iter().map(|p| p.about).collect::<Vec<_>>());
        return Ok(());
    }
    for p in POLICIES {
        let a = p.about;
        println!("{}: {}", a.name, a.doc);
        println!("  source: {}", a.source);
        if a.default_weight > 0 {
            println!("  weights: {} to {}, default {}", a.weights.0, a.weights.1, a.default_weight);
        }
        for q in a.parameters {
            println!("  {} = {} {} ({} to {}): {}", q.name, q.default, q.unit, q.min, q.max, q.doc);
        }
    }
    Ok(())
}
