//! Evaluates three servers that `vsteer steer` steered: their logs by interval, and its own output.
//!
//! It serves both the emulated host and the emulated Xen. Both leave a folder per case with a log per VM, and
//! the output of the command.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vsteer_core::stats::mean;
use vsteer_core::{Fault, FaultKind};

pub(super) const NAMES: [&str; 3] = ["vm1", "vm2", "vm3"];

/// The rates of a scenario.
pub(super) struct Scenario {
    pub intervals_s: &'static [u32],
    pub rates_hz: [&'static [u32]; 3],
}

impl Scenario {
    pub fn length_s(&self) -> u32 {
        self.intervals_s.iter().sum()
    }

    /// The number of the interval that contains this second.
    pub fn interval_of(&self, second: f64) -> usize {
        let mut end = 0.0;
        self.intervals_s
            .iter()
            .position(|s| {
                end += f64::from(*s);
                second < end
            })
            .unwrap_or(self.intervals_s.len() - 1)
    }
}

/// The levels, means in ms, in the form of `vsteer steer --sla`. The case's logs are at the same paths on
/// both emulated hosts.
pub(super) fn levels_file(case: &str, levels_ms: [f64; 3], period_s: u32) -> String {
    let mut text = format!("period = \"{period_s}s\"\n");
    for (name, ms) in NAMES.iter().zip(levels_ms) {
        text += &format!(
            "[[vm]]\nname = \"{name}\"\nlog = \"/run/results/{case}/{name}.log\"\nformat = \"json\"\nmean = \"{ms:.3}ms\"\n"
        );
    }
    text
}

/// The VMs' logs by name.
pub(super) type Logs = BTreeMap<String, PathBuf>;

/// Every VM's mean response by interval, ms, from its log.
pub(super) fn means_ms(scenario: &Scenario, logs: &Logs) -> Result<Vec<[f64; 3]>, Fault> {
    let mut requests: Vec<Vec<(f64, f64)>> = Vec::new();
    for name in NAMES {
        let file = logs.get(name).ok_or_else(|| failed(&format!("no log of {name}")))?;
        let text = std::fs::read_to_string(file)
            .map_err(|e| Fault::io(format!("reading {}", file.display()), &e))?;
        let one = |line: &str| {
            let v: Value = serde_json::from_str(line).ok()?;
            let (ended, took) = (v["ts"].as_f64()?, v["duration_us"].as_f64()? / 1e6);
            Some((ended - took, took))
        };
        requests.push(text.lines().filter_map(one).collect());
    }
    let begin = requests.iter().flatten().map(|(at, _)| *at).fold(f64::INFINITY, f64::min);
    let mut from = 0.0;
    let mut all = Vec::new();
    for length in scenario.intervals_s {
        let to = from + f64::from(*length);
        let of = |r: &Vec<(f64, f64)>| {
            let within = r.iter().filter(|(at, _)| (from..to).contains(&(at - begin)));
            1e3 * mean(&within.map(|(_, took)| *took).collect::<Vec<_>>()).unwrap_or(f64::NAN)
        };
        all.push([of(&requests[0]), of(&requests[1]), of(&requests[2])]);
        from = to;
    }
    Ok(all)
}

pub(super) fn failed(what: &str) -> Fault {
    Fault::new(FaultKind::Failed, what.to_owned())
}

/// The output of `vsteer steer`, line by line. `command` is the path of its files, without their endings.
///
/// # Errors
/// It has no output.
pub(super) fn said(command: &Path) -> Result<Vec<Value>, Fault> {
    let file = command.with_extension("out");
    let text =
        std::fs::read_to_string(&file).map_err(|e| Fault::io(format!("reading {}", file.display()), &e))?;
    let words = std::fs::read_to_string(command.with_extension("txt")).unwrap_or_default();
    let lines: Vec<Value> = text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    if lines.is_empty() {
        return Err(failed("vsteer steer said nothing").because(words));
    }
    Ok(lines)
}

/// The host's clock starts with the year; the VMs start some seconds later.
pub(super) fn second_of(line: &Value, begin_unix_s: f64) -> Option<f64> {
    Some(line["unix_ns"].as_f64()? / 1e9 - begin_unix_s)
}

/// When the first request arrived.
pub(super) fn begin_of(logs: &Logs) -> f64 {
    let first = |file: &PathBuf| -> Option<f64> {
        let text = std::fs::read_to_string(file).ok()?;
        let v: Value = serde_json::from_str(text.lines().next()?).ok()?;
        Some(v["ts"].as_f64()? - v["duration_us"].as_f64()? / 1e6)
    };
    logs.values().filter_map(first).fold(f64::INFINITY, f64::min)
}

/// One steered run: means, changes by interval, and reports about moving.
pub(super) struct Steered {
    pub means: Vec<[f64; 3]>,
    pub changes: Vec<usize>,
    /// Intervals in which "move" was reported.
    pub moves: Vec<usize>,
    pub restored: bool,
    pub lines: Vec<Value>,
}

pub(super) fn steered(scenario: &Scenario, logs: &Logs, command: &Path) -> Result<Steered, Fault> {
    let lines = said(command)?;
    let begin = begin_of(logs);
    let mut changes = vec![0; scenario.intervals_s.len()];
    let mut moves = Vec::new();
    for line in &lines {
        // A line describes the period before it.
        let Some(second) = second_of(line, begin) else { continue };
        let interval = scenario.interval_of(second - 0.5);
        if line["set"] == true {
            changes[interval] += 1;
        }
        if line["decision"]["move"].is_object() {
            moves.push(interval);
        }
    }
    let touched = changes.iter().sum::<usize>() > 0;
    let ended = lines.last().and_then(|l| l["ended"].as_array()).cloned();
    let restored =
        ended.is_some_and(|e| e.iter().all(|r| r["state"] == "rolled_back") && e.is_empty() != touched);
    Ok(Steered { means: means_ms(scenario, logs)?, changes, moves, restored, lines })
}

pub(super) fn holds(means: &[f64; 3], levels: &[f64; 3]) -> bool {
    means.iter().zip(levels).all(|(is, level)| is <= level)
}

/// Was a level missed in one of these intervals? If a VM answered nothing (its mean is NaN), it stood still,
/// and the result is false.
pub(super) fn missed(means: &[[f64; 3]], levels: &[f64; 3]) -> bool {
    means.iter().flatten().all(|m| m.is_finite()) && means.iter().any(|m| !holds(m, levels))
}

pub(super) fn told(means: &[f64; 3]) -> String {
    means.iter().map(|m| format!("{m:.1}")).collect::<Vec<_>>().join("/")
}
