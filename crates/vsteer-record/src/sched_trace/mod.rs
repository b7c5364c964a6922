//! Reads text traces of Linux' scheduler events: a recording that somebody made without vsteer.
//!
//! `perf script`, `trace-cmd report` and ftrace's file `trace` print one event per line ([`mod@line`]). vsteer reads the
//! file twice. The first pass finds the threads, the pCPUs and the length ([`survey`]). The second one accounts each
//! vCPU's time to running, ready or blocked ([`account`]), in the accounts that traces of Xen use too.
//!
//! A thread is *ready* from its wake-up, or from a switch that left it runnable, to the switch that gives it a pCPU.
//! Blame goes to what runs on the pCPU in whose queue the thread is.
//!
//! Before its first event, the state of a thread is unknown, and no counter contains that time. There are two
//! exceptions: the first switch of a pCPU tells what ran there before, and a wake-up tells that its thread was asleep.
//!
//! GAP(trace-throttled): a trace does not tell quotas, so the time of a throttled thread counts as ready.
//!
//! GAP(trace-vms): without process ids in the trace, VMs that started at the same moment may be mixed up.
//!
//! Left out: what the text does not tell: weights, affinities, caches and nodes, and the wall clock, in whose place the
//! file's last change stands. The file `trace` in the latency format.

mod account;
pub mod line;
mod names;
mod survey;
mod vms;

use crate::event::EventSummary;
use crate::folder::Recording;
use crate::{files, packed};
use std::io::Read as _;
use std::path::Path;
use std::time::UNIX_EPOCH;
use survey::Survey;
use vsteer_core::limits;
use vsteer_core::{Fault, FaultKind};

/// The events that vsteer needs, for help.
const EVENTS: &str = "sched:sched_switch,sched:sched_wakeup,sched:sched_wakeup_new";

/// Is this the start of such a trace?
pub(crate) fn begins(first: &str) -> bool {
    if first.starts_with("# tracer:") {
        return true;
    }
    let mut lines = first.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).take(20);
    lines.any(|line| matches!(line::read(line), Some(line::Line::Event(_))))
}

/// Is this such a trace, plain or compressed?
pub fn is_one(file: &Path) -> bool {
    let mut first = Vec::new();
    let Ok(from) = packed::open(file) else { return false };
    let read = from.take(limits::SNIFFED as u64).read_to_end(&mut first);
    // A compressed file that is cut short is read as far as it goes.
    (read.is_ok() || !first.is_empty()) && begins(&String::from_utf8_lossy(&first))
}

/// Passes on every line; returns the damage at which the file breaks off.
fn each_line(file: &Path, take: &mut dyn FnMut(&str)) -> Result<Option<String>, Fault> {
    let failed = |e: &std::io::Error| Fault::io(format!("cannot read {}", file.display()), e);
    let mut lines = 0u64;
    let from = packed::open(file).map_err(|e| failed(&e))?;
    let read = files::each_line(from, limits::TRACE_LINE, &mut |bytes| {
        lines += 1;
        take(&String::from_utf8_lossy(bytes));
    });
    match read {
        Ok(()) => Ok(None),
        Err(e) if lines == 0 => Err(failed(&e)),
        Err(e) => Ok(Some(format!("it breaks off after {lines} lines: {e}"))),
    }
}

/// Reads a trace.
///
/// # Errors
/// `BadInput` for a trace without usable switches, with times that go back, or with a clock that does not count
/// seconds; `NothingThere` for one without a thread of a vCPU; as the system says if the file cannot be read.
pub fn read(file: &Path) -> Result<Recording, Fault> {
    let changed = std::fs::metadata(file).and_then(|m| m.modified());
    let changed = changed.map_err(|e| Fault::io(format!("cannot read {}", file.display()), &e))?;
    let changed_ns = changed.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    recording(file, changed_ns, |take| each_line(file, take))
}

/// Reads a trace in memory; faults and notes call it `name`.
///
/// # Errors
/// As [`read`].
pub fn of_bytes(name: &Path, bytes: &[u8]) -> Result<Recording, Fault> {
    recording(name, 0, |take| {
        bytes.split(|b| *b == b'\n').for_each(|line| take(&String::from_utf8_lossy(line)));
        Ok(None)
    })
}

/// Takes each line.
type Lines<'a> = &'a mut dyn FnMut(&str);

fn recording(
    file: &Path,
    changed_ns: u64,
    lines: impl Fn(Lines<'_>) -> Result<Option<String>, Fault>,
) -> Result<Recording, Fault> {
    let mut survey = Survey::default();
    let damage = lines(&mut |text| survey.see(text))?;
    let name = file.display().to_string();
    survey.check(&name)?;
    let vms = vms::find(&survey);
    if vms.vms.is_empty() {
        return Err(without_vcpus(&name, &survey));
    }
    if vms.vms.len() > limits::TRACE_VMS {
        let what = format!("{name} shows {} VMs", vms.vms.len());
        return Err(Fault::new(FaultKind::BadInput, what)
            .because(format!("vsteer reads {} at most", limits::TRACE_VMS))
            .help("record a shorter time, or fewer pCPUs"));
    }
    let mut account = account::Account::new(&survey, &vms, changed_ns);
    // The file may have grown or shrunk since the first pass.
    lines(&mut |text| account.see(text))?;
    let done = account.finish();
    let config = vms.config(&survey)?;
    let mut notes = survey.notes(&name, damage);
    notes.extend(vms.note(&name));
    notes.extend(done.notes(&name));
    let summary = EventSummary {
        recorded: done.switches,
        wake_ups: done.wakes,
        lost: survey.lost,
        closed: true,
        ..EventSummary::default()
    };
    let mut parts = std::collections::BTreeMap::from([
        ("events.json".to_owned(), serde_json::to_vec(&summary).expect("a summary is plain data")),
        ("task.jsonl".to_owned(), vms.tasks(&survey)),
    ]);
    parts.extend(done.events.finish());
    let collector = account::collector(&survey);
    Ok(Recording::foreign(file, config, collector, done.batches, notes).with_parts(parts))
}

fn without_vcpus(name: &str, survey: &Survey) -> Fault {
    let fault = Fault::new(FaultKind::NothingThere, format!("{name} shows no thread of a vCPU"));
    if survey.threads.values().any(|t| names::is_vmm(&t.comm)) {
        return fault
            .because("a VMM ran, but none of its threads is named `CPU N/KVM`, `CPU N/TCG`, `vcpuN` or `fc_vcpu N`")
            .help("start QEMU with `-name NAME,debug-threads=on`, as libvirt does, and record again");
    }
    fault
        .because("no thread is named `CPU N/KVM`, `CPU N/TCG`, `vcpuN` or `fc_vcpu N`")
        .help(format!("record all pCPUs while VMs run: perf record -a -e {EVENTS} -- sleep 10"))
}
