//! `vsteer history`: how did the VMs do, as the service stored it?

use crate::cli::{History, Past};
use crate::text::history as shown;
use crate::{clock, text};
use serde_json::json;
use std::time::{SystemTime, UNIX_EPOCH};
use vsteer_core::{Fault, FaultKind};
use vsteer_record::history::{self, DAY_MS, Query, Step};

/// Rows of an answer, at most: two years of 1,000 VMs by the hour would be more.
const ROWS: usize = 5_000_000;

/// The time of now, ns since 1970.
pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

/// The stretch that the options name, ms since 1970: 24 hours up to now unless they say more.
///
/// # Errors
/// `Usage` for what is not a time, or ends before it begins.
pub fn stretch(past: &Past, now_ns: u64) -> Result<(u64, u64), Fault> {
    let ms = |option, text: &Option<String>| {
        let moment = text.as_deref().map(|text| clock::past(option, text, now_ns));
        moment.transpose().map(|ns| ns.map(|ns| ns / 1_000_000))
    };
    let to_ms = ms("--to", &past.to)?.unwrap_or(now_ns / 1_000_000);
    let length_ms = past.length.map_or(DAY_MS, |length| length.as_millis() as u64);
    let from_ms = ms("--from", &past.from)?.unwrap_or(to_ms.saturating_sub(length_ms));
    if from_ms >= to_ms {
        return Err(Fault::new(FaultKind::Usage, "--from is not before --to").help("exchange the two times"));
    }
    Ok((from_ms, to_ms))
}

/// All that is shown of a stretch.
///
/// # Errors
/// As [`history::History::open`]; `NothingThere` if nothing of the stretch is stored.
pub fn read(past: &Past, vm: Option<&str>, step: Option<Step>) -> Result<shown::Shown, Fault> {
    let (from_ms, to_ms) = stretch(past, now_ns())?;
    let step = step.unwrap_or_else(|| Step::of_span(to_ms - from_ms));
    let stored = history::History::open(&crate::settings::history(past.folder.as_deref()))?;
    let query = Query { from_ms, to_ms, vm: vm.map(str::to_owned), most: ROWS };
    let vms = stored.vms(&query, step)?;
    let hosts = stored.host(&query, step)?.rows;
    let events = stored.timeline(&query)?.rows;
    vms.notes.iter().for_each(text::note);
    if vms.rows.is_empty() && events.is_empty() {
        let of = vm.map_or_else(String::new, |vm| format!(" of VM {vm:?}"));
        let what = format!("the history has nothing{of} from {} to {}", at(from_ms), at(to_ms));
        let fault = Fault::new(FaultKind::NothingThere, what);
        return Err(match stored.span_ms() {
            Some((first, last)) => fault
                .because(format!("the history lasts from {} to {}", at(first), at(last)))
                .help("list all VMs: vsteer history --for 30d"),
            None => fault.because("the history is empty").help("the service stores a row each minute: wait"),
        });
    }
    Ok(shown::Shown { from_ms, to_ms, step, vms: vms.rows, hosts, events })
}

fn at(unix_ms: u64) -> String {
    clock::text(unix_ms.saturating_mul(1_000_000))
}

/// Shows the history.
///
/// # Errors
/// As [`read`].
pub fn run(a: &History, json: bool) -> Result<(), Fault> {
    let step = match a.step.as_str() {
        "minute" => Some(Step::Minute),
        "hour" => Some(Step::Hour),
        _ => None,
    };
    let found = read(&a.past, a.vm.as_deref(), step)?;
    if json {
        text::print_json(&json!({
            "from": found.from_ms / 1000,
            "to": found.to_ms / 1000,
            "step": found.step.name(),
            "vms": found.vms,
            "host": found.hosts,
            "events": found.events,
        }));
    } else if a.vm.is_some() {
        print!("{}", shown::of_vm(&found));
    } else {
        print!("{}", shown::of_all(&found));
    }
    Ok(())
}
