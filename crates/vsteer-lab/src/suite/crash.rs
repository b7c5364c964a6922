//! If `apply` is killed at any point, does `vsteer rollback` restore exactly the former settings?
//!
//! On real VMs and a real libvirt, `apply` is killed (SIGKILL) before and after each of its journal writes.
//! Then `rollback` runs, and the settings are compared with those before. There is one plan for each kind of
//! change, because each kind has its own rollback.

use super::{Bench, Case, Findings, Minutes};
use crate::command;
use crate::drive::Vsteer;
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "crash",
    doc: "killed before and after every journal write of an apply, rollback restores the former state",
    in_test: true,
    minutes: Minutes::new(1.2, 4.0),
    beside: false,
    run,
};

/// Beside only one computing VM, a VM that mostly sleeps may get its pCPU at once, and then there is nothing
/// to change.
const VMS: &str = "burn:2,periodic:1";
const LIMIT: Duration = Duration::from_secs(60);
const KILLED: i32 = 9;

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    let actions: &[&str] = if bench.full { &["weights", "realtime", "separate"] } else { &["weights"] };
    let figures = bench.on_lab(VMS, bench.seed, |_, v| {
        let r = bench.fresh("crash.vsteer")?;
        v.run(&["record", "-o", &r, "--for", "8s", "--connect", &v.uri], false, Duration::from_secs(90))?;
        let mut figures = Vec::new();
        for action in actions {
            let file = bench.fresh(&format!("{action}.json"))?;
            let plan = v.json(&["plan", &r, "--only", action, "-o", &file], LIMIT)?;
            let steps = plan["steps"].as_array().map_or(0, Vec::len);
            findings.claim(
                format!("{action}: there is a plan to be killed in"),
                steps > 0,
                format!("{steps} steps"),
            );
            if steps > 0 {
                let points = walk(v, &file, action, steps, &mut findings)?;
                figures.push(json!({ "action": action, "steps": steps, "points": points }));
            }
        }
        Ok(figures)
    })?;
    findings.figures = json!(figures);
    Ok(findings)
}

/// Kills at every point; returns the number of points.
fn walk(v: &Vsteer, file: &str, action: &str, steps: usize, findings: &mut Findings) -> Result<usize, Fault> {
    let before = v.settings()?;
    let mut wrong = Vec::new();
    let (mut points, mut survived) = (0, false);
    // The start, two entries per step, the end: 2 + 2 * steps writes.
    for write in 1..=2 * steps + 2 {
        for when in ["before", "after"] {
            let mut apply = v.command(&["apply", file, "--yes", "--connect", &v.uri]);
            apply.env("VSTEER_FAULT_KILL", format!("{when}:{write}"));
            let done = command::run(&mut apply, LIMIT)?;
            if done.status.and_then(|s| s.signal()) != Some(KILLED) {
                survived = true;
                wrong.push(format!("{when}:{write} was not killed: {}", done.stderr.trim()));
            }
            points += 1;
            let mut rollback = v.command(&["rollback", "--connect", &v.uri]);
            let done = command::run(&mut rollback, LIMIT)?;
            let code = done.status.and_then(|s| s.code());
            // If it was killed before the journal's first line, there is nothing to roll back, and rollback
            // reports this.
            if code != Some(0) && code != Some(i32::from(FaultKind::NothingThere.exit_code())) {
                wrong.push(format!("{when}:{write}: rollback ended with {code:?}: {}", done.stderr.trim()));
            }
            let now = v.settings()?;
            if now != before {
                wrong.push(format!("{when}:{write}: {}", first_difference(&before, &now)));
            }
        }
    }
    findings.claim(
        format!("{action}: rollback restores the former state from each of {points} points"),
        wrong.is_empty() && !survived,
        if wrong.is_empty() { "equal at every point".to_owned() } else { wrong.join("; ") },
    );
    Ok(points)
}

fn first_difference(a: &Value, b: &Value) -> String {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => x.iter().find(|(k, v)| y.get(*k) != Some(v)).map_or_else(
            || "keys differ".to_owned(),
            |(k, v)| format!("{k}: {}", first_difference(v, &y[k])),
        ),
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => x
            .iter()
            .zip(y)
            .find(|(v, w)| v != w)
            .map_or_else(|| "equal".to_owned(), |(v, w)| first_difference(v, w)),
        _ => format!("was {a}, is {b}"),
    }
}
