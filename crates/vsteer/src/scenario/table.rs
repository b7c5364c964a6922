//! Prints the figures of a simulation as text and as JSON.

use crate::text::one_line;
use serde_json::{Value, json};
use vsteer_core::plural::counted;
use vsteer_sim::scenario::Scenario;
use vsteer_sim::scenario::outcome::{Ended, Figure, MEASURES, Run, Unit, figure};

/// One combination of a sweep (or the only one).
pub struct Point {
    /// What was set, for people.
    pub label: String,
    pub scenario: Scenario,
    /// Its runs, one per seed.
    pub runs: Vec<Run>,
}

/// VMs that are told as one line.
struct Line {
    name: String,
    vms: std::ops::Range<usize>,
    vcpus: u32,
}

fn lines(scenario: &Scenario, each: bool) -> Vec<Line> {
    let (mut lines, mut next) = (Vec::new(), 0);
    for form in &scenario.vms {
        let n = form.count as usize;
        if n > 1 && !each {
            let name = format!("{} (mean of {n})", form.name);
            lines.push(Line { name, vms: next..next + n, vcpus: form.vcpus });
        } else {
            lines.extend((0..n).map(|i| Line {
                name: if n == 1 { form.name.clone() } else { format!("{}-{}", form.name, i + 1) },
                vms: next + i..next + i + 1,
                vcpus: form.vcpus,
            }));
        }
        next += n;
    }
    lines
}

/// The mean over the line's VMs of each seed, over the seeds.
fn told(runs: &[Run], line: &Line, measure: usize) -> Option<Figure> {
    let of_run = |r: &Run| {
        let values: Vec<f64> = r.vms[line.vms.clone()].iter().filter_map(|vm| vm[measure]).collect();
        vsteer_core::stats::mean(&values)
    };
    figure(&runs.iter().filter_map(of_run).collect::<Vec<f64>>())
}

fn scale(unit: Unit) -> (f64, &'static str) {
    match unit {
        Unit::Share | Unit::Part => (100.0, "%"),
        Unit::Time => (1e-6, "ms"),
        Unit::Rate => (1.0, "/s"),
    }
}

/// A number with as many digits as are worth reading.
pub fn number(x: f64) -> String {
    match x.abs() {
        0.0 => "0".to_owned(),
        a if a < 0.9995 => format!("{x:.3}"),
        a if a < 99.95 => format!("{x:.2}"),
        a if a < 9999.5 => format!("{x:.1}"),
        _ => format!("{x:.0}"),
    }
}

fn cell(f: Option<Figure>, unit: Unit) -> String {
    let Some(f) = f else { return "-".to_owned() };
    let (by, _) = scale(unit);
    match f.half_width {
        Some(h) => format!("{} ±{}", number(f.mean * by), number(h * by)),
        None => number(f.mean * by),
    }
}

/// Columns that are shown only when asked for: a table should fit a terminal.
const WIDE: [&str; 10] = [
    "lag",
    "wake_mean",
    "wake_p50",
    "sleep_asked",
    "sleep_mean",
    "sleep_p80",
    "cycle_mean",
    "switches",
    "preemptions",
    "migrations",
];

/// The table of one point: a line per VM, a column per figure that any VM has.
pub fn text(point: &Point, each: bool, wide: bool) -> String {
    let lines = lines(&point.scenario, each);
    let mut columns: Vec<Vec<String>> = vec![
        std::iter::once("VM".to_owned()).chain(lines.iter().map(|l| one_line(&l.name))).collect(),
        std::iter::once("vCPUs".to_owned()).chain(lines.iter().map(|l| l.vcpus.to_string())).collect(),
    ];
    for (m, measure) in MEASURES.iter().enumerate() {
        let figures: Vec<Option<Figure>> = lines.iter().map(|l| told(&point.runs, l, m)).collect();
        if !wide && WIDE.contains(&measure.name) {
            continue;
        }
        let always = measure.name == "run" || measure.name == "ready";
        if always || figures.iter().flatten().any(|f| f.mean != 0.0) {
            let head = format!("{} {}", measure.name, scale(measure.unit).1);
            columns
                .push(std::iter::once(head).chain(figures.iter().map(|f| cell(*f, measure.unit))).collect());
        }
    }
    let mut out = String::new();
    for row in 0..=lines.len() {
        for (i, column) in columns.iter().enumerate() {
            let width = column.iter().map(|c| c.chars().count()).max().unwrap_or(0);
            let pad = " ".repeat(width - column[row].chars().count());
            let gap = if i == 0 { "" } else { "  " };
            // Names to the left, numbers to the right.
            out +=
                &if i == 0 { format!("{}{pad}", column[row]) } else { format!("{gap}{pad}{}", column[row]) };
        }
        out = out.trim_end().to_owned() + "\n";
    }
    out
}

/// What is worth a line above or below the table.
pub fn notes(point: &Point) -> Vec<String> {
    let runs = &point.runs;
    let mut notes = Vec::new();
    let busy: Vec<f64> = runs.iter().map(|r| r.busy).collect();
    if let Some(b) = figure(&busy) {
        let events: u64 = runs.iter().map(|r| r.events).sum();
        let measured = runs.iter().map(|r| r.measured_ns).max().unwrap_or(0) as f64 / 1e9;
        notes.push(format!(
            "pCPUs busy {} %; {} s measured of {}, {events} events",
            cell(Some(b), Unit::Share),
            number(measured),
            counted(runs.len(), "seed")
        ));
    }
    for r in runs {
        let why = match r.ended {
            Ended::Whole => continue,
            Ended::Stopped => "was stopped",
            Ended::Runaway => "made no progress: the scheduler or a guest loops there",
        };
        notes.push(format!(
            "the run with seed {} {why}, {} s after the warm-up",
            r.seed,
            number(r.measured_ns as f64 / 1e9)
        ));
    }
    notes
}

/// The same for programs. Shares and parts are fractions, times ns.
pub fn value(point: &Point, set: &[(String, String)]) -> Value {
    let figures = |line: &Line| {
        let of = |(m, measure): (usize, &vsteer_sim::scenario::outcome::Measure)| {
            let f = told(&point.runs, line, m)?;
            Some((measure.name.to_owned(), json!({ "mean": f.mean, "half_width": f.half_width })))
        };
        MEASURES.iter().enumerate().filter_map(of).collect::<serde_json::Map<String, Value>>()
    };
    let vms = lines(&point.scenario, true);
    let vms = vms.iter().map(|l| json!({ "vm": l.name, "vcpus": l.vcpus, "figures": figures(l) }));
    let runs = point.runs.iter().map(|r| {
        json!({ "seed": r.seed, "ended": r.ended, "measured_ns": r.measured_ns, "events": r.events, "busy": r.busy })
    });
    json!({
        "set": set.iter().map(|(k, v)| (k.clone(), json!(v))).collect::<serde_json::Map<String, Value>>(),
        "scheduler": point.scenario.scheduler,
        "runs": runs.collect::<Vec<Value>>(),
        "vms": vms.collect::<Vec<Value>>(),
    })
}
