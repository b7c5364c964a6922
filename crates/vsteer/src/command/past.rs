//! `vsteer diagnose --at TIME` without a recording: what was wrong at a moment of the history?

use super::history::now_ns;
use crate::text::history::Past;
use crate::{clock, text};
use serde_json::json;
use std::path::Path;
use vsteer_core::thresholds::Thresholds;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::history::{EventKind, HOUR_MS, History, MINUTE_MS, Query, Step, over};

/// Diagnoses a moment of the past.
///
/// # Errors
/// As [`History::open`]; `NothingThere` if nothing was stored of the moment.
pub fn run(moment: &str, folder: &Path, thresholds: Thresholds, json: bool) -> Result<(), Fault> {
    let unix_ms = clock::past("--at", moment, now_ns())? / 1_000_000;
    let stored = History::open(folder)?;
    let past = read(&stored, unix_ms, &thresholds)?;
    if json {
        text::print_json(&json!({
            "at": unix_ms / 1000,
            "step": past.step.name(),
            "findings": past.findings,
            "over": past.over.iter().map(|(vm, over)| json!({ "vm": vm, "over": over })).collect::<Vec<_>>(),
            "host": past.host,
            "changes": past.changes,
        }));
    } else {
        print!("{}", past.text());
    }
    Ok(())
}

fn read(stored: &History, unix_ms: u64, thresholds: &Thresholds) -> Result<Past, Fault> {
    let of = |length: u64| Query {
        from_ms: unix_ms / length * length,
        to_ms: unix_ms / length * length + length,
        vm: None,
        most: usize::MAX,
    };
    let mut step = Step::Minute;
    let mut found = stored.vms(&of(MINUTE_MS), step)?;
    if found.rows.is_empty() {
        // Rows of minutes are kept for 90 days.
        step = Step::Hour;
        found = stored.vms(&of(HOUR_MS), step)?;
    }
    found.notes.iter().for_each(text::note);
    let host = stored.host(&of(step.ms()), step)?.rows.pop();
    if found.rows.is_empty() && host.is_none() {
        let at = |ms: u64| clock::text(ms.saturating_mul(1_000_000));
        let fault =
            Fault::new(FaultKind::NothingThere, format!("the history has nothing of {}", at(unix_ms)));
        return Err(match stored.span_ms() {
            Some((first, last)) => {
                fault.because(format!("the history lasts from {} to {}", at(first), at(last))).help(
                    "the service did not observe at that time; to see when it did: vsteer history --for 30d",
                )
            }
            None => fault.because("the history is empty").help("the service stores a row each minute: wait"),
        });
    }
    let end = unix_ms / step.ms() * step.ms() + step.ms();
    let mut changes = stored.timeline(&Query {
        from_ms: unix_ms.saturating_sub(HOUR_MS),
        to_ms: unix_ms + 1,
        vm: None,
        most: usize::MAX,
    })?;
    changes.rows.retain(|e| !matches!(e.kind, EventKind::FindingBegan | EventKind::FindingEnded));
    let vms = found.rows.len();
    let exceeded = found.rows.into_iter().map(|row| {
        let over = over(&row, thresholds);
        (row, over)
    });
    let mut over: Vec<_> = exceeded.filter(|(_, over)| !over.is_empty()).collect();
    over.sort_by(|a, b| b.0.ready().unwrap_or(0.0).total_cmp(&a.0.ready().unwrap_or(0.0)));
    let findings = stored.open_findings(end)?.rows;
    Ok(Past { unix_ms, step, vms, findings, over, host, changes: changes.rows })
}
