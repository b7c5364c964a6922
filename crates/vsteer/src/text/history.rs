//! Formats the history: a table of VMs or of times, trends as rows of blocks, and the timeline.

use super::{folded, one_line, percent};
use crate::clock;
use std::fmt::Write;
use vsteer_core::plural::counted;
use vsteer_record::history::{
    Cost, Event, EventKind, HostRow, Over, Step, Summary, VmRow, by_vm, parts, summary, trend,
};

/// Blocks of a trend.
const BLOCKS: usize = 24;
/// Rows of one VM that are printed: more are put together.
const ROWS: usize = 30;
/// Lines of the timeline that are printed, the newest.
const EVENTS: usize = 20;
/// Characters of a name.
const NAME: usize = 28;

/// What is shown.
pub struct Shown {
    pub from_ms: u64,
    pub to_ms: u64,
    pub step: Step,
    pub vms: Vec<VmRow>,
    pub hosts: Vec<HostRow>,
    pub events: Vec<Event>,
}

fn at(unix_ms: u64) -> String {
    clock::text(unix_ms.saturating_mul(1_000_000))
}

fn name(text: &str) -> String {
    let mut shown: String = one_line(text).chars().take(NAME).collect();
    if one_line(text).chars().count() > NAME {
        shown.pop();
        shown.push('…');
    }
    shown
}

/// The smallest ready share that is drawn as the tallest block, so that little waiting looks little.
const TALLEST: f64 = 0.10;

/// Values as blocks: the tallest is the largest value, a space is a time without a value.
pub fn blocks(values: &[Option<f64>]) -> String {
    const TALL: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().flatten().copied().fold(TALLEST, f64::max);
    let block = |value: &Option<f64>| match value {
        None => ' ',
        Some(value) => TALL[((value / most * 8.0) as usize).min(7)],
    };
    values.iter().map(block).collect()
}

fn milliseconds(us: Option<u64>) -> String {
    us.map_or_else(|| "-".to_owned(), |us| format!("{:.2}", us as f64 / 1000.0))
}

fn costs(costs: &[Cost]) -> String {
    let one = |c: &Cost| format!("{} {:.1} s", one_line(&c.culprit), c.us as f64 / 1e6);
    costs.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn head(found: &Shown, of: &str) -> String {
    let step = found.step.name();
    let busy: Vec<f64> = found.hosts.iter().filter_map(HostRow::busy).collect();
    let busy = match busy.len() {
        0 => String::new(),
        n => format!("; pCPUs busy {:.0} % on average", 100.0 * busy.iter().sum::<f64>() / n as f64),
    };
    format!("{of} from {} to {}, a row per {step}{busy}\n", at(found.from_ms), at(found.to_ms))
}

/// All VMs, the one with the worst ready time first, and the timeline.
pub fn of_all(found: &Shown) -> String {
    let mut all: Vec<(Summary, String)> = by_vm(&found.vms)
        .filter_map(|rows| {
            let line = blocks(&trend(rows, found.from_ms, found.to_ms, BLOCKS));
            Some((summary(rows.iter())?, line))
        })
        .collect();
    let worst = |s: &Summary| s.worst.map_or(-1.0, |(_, share)| share);
    all.sort_by(|a, b| worst(&b.0).total_cmp(&worst(&a.0)));
    let mut out = head(found, &counted(all.len(), "VM"));
    if !all.is_empty() {
        out.push_str("Percentages are of one pCPU, summed over the vCPUs of a VM.\n\n");
        let _ = writeln!(
            out,
            "{:<NAME$} {:>5} {:>8} {:>8} {:>8} {:>11}  {:<BLOCKS$}  WORST AT",
            "VM", "VCPUS", "READY %", "WORST %", "LIMIT %", "WAKE P99 ms", "READY OVER TIME"
        );
    }
    for (s, line) in &all {
        let vcpus = s.vcpus.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let _ = writeln!(
            out,
            "{:<NAME$} {vcpus:>5} {:>8} {:>8} {:>8} {:>11}  {line}  {}",
            name(&s.name),
            percent(s.ready),
            percent(s.worst.map(|(_, share)| share)),
            percent(s.limited),
            milliseconds(s.wake_p99_us),
            s.worst.map_or_else(|| "-".to_owned(), |(ms, _)| at(ms)),
        );
    }
    out + &timeline(&found.events)
}

/// One VM over time, and its timeline.
pub fn of_vm(found: &Shown) -> String {
    let mut out = String::new();
    for rows in by_vm(&found.vms) {
        let Some(whole) = summary(rows.iter()) else { continue };
        out.push_str(&head(found, &format!("VM {:?}", one_line(&whole.name))));
        let line = blocks(&trend(rows, found.from_ms, found.to_ms, 2 * BLOCKS));
        let _ =
            writeln!(out, "ready over time: {line}  (highest: {} %)", percent(whole.worst.map(|(_, s)| s)));
        if !whole.costs.is_empty() {
            out.push_str(&folded(&format!("waited for: {}", costs(&whole.costs)), "", 100));
        }
        let _ = writeln!(
            out,
            "\n{:<26} {:>8} {:>8} {:>8} {:>8} {:>11}  WAITED FOR",
            "TIME", "RUN %", "READY %", "WORST %", "LIMIT %", "WAKE P99 ms"
        );
        for part in parts(rows, found.from_ms, found.to_ms, ROWS).into_iter().filter(|p| !p.is_empty()) {
            let Some(s) = summary(part.iter().copied()) else { continue };
            let first = s.costs.first().map_or_else(String::new, |c| one_line(&c.culprit));
            let row = format!(
                "{:<26} {:>8} {:>8} {:>8} {:>8} {:>11}  {first}",
                at(part[0].unix_ms),
                percent(s.run),
                percent(s.ready),
                percent(s.worst.map(|(_, share)| share)),
                percent(s.limited),
                milliseconds(s.wake_p99_us),
            );
            let _ = writeln!(out, "{}", row.trim_end());
        }
        out.push('\n');
    }
    out.trim_end().to_owned() + "\n" + &timeline(&found.events)
}

fn event(e: &Event) -> String {
    let what = match e.kind {
        EventKind::FindingBegan => "found: ",
        EventKind::FindingEnded => "no longer found: ",
        _ => "",
    };
    format!("  {}  {what}{}\n", at(e.unix_ms), one_line(&e.text))
}

fn timeline(events: &[Event]) -> String {
    if events.is_empty() {
        return String::new();
    }
    let newest = &events[events.len().saturating_sub(EVENTS)..];
    let older = events.len() - newest.len();
    let more = if older > 0 { format!(" (and {older} older: --json lists all)") } else { String::new() };
    format!("\nWhat happened{more}:\n{}", newest.iter().map(event).collect::<String>())
}

/// A moment of the past.
pub struct Past {
    pub unix_ms: u64,
    pub step: Step,
    /// Number of VMs then.
    pub vms: usize,
    pub findings: Vec<Event>,
    /// VMs over a threshold, with what they exceed.
    pub over: Vec<(VmRow, Vec<Over>)>,
    pub host: Option<HostRow>,
    /// What changed within the hour before.
    pub changes: Vec<Event>,
}

impl Past {
    /// For people.
    pub fn text(&self) -> String {
        let busy = self.host.as_ref().and_then(HostRow::busy);
        let busy = busy.map_or_else(String::new, |b| format!(", pCPUs {:.0} % busy", 100.0 * b));
        let mut out = format!(
            "{} of {} ({} of that time{busy})\n",
            counted(self.findings.len(), "finding"),
            at(self.unix_ms),
            self.step.name()
        );
        for (i, f) in self.findings.iter().enumerate() {
            let loss = f.loss_pcpus.filter(|loss| *loss > 0.0);
            let loss = loss.map_or_else(String::new, |loss| format!(", {loss:.2} pCPUs lost"));
            let _ = writeln!(out, "\n{}. {}\n   since {}{loss}", i + 1, one_line(&f.text), at(f.unix_ms));
        }
        let of = counted(self.vms, "VM");
        let _ = match self.over.len() {
            0 => writeln!(out, "\nNone of {of} was over a threshold."),
            n => writeln!(out, "\n{n} of {of} over a threshold:"),
        };
        for (vm, over) in &self.over {
            let _ = writeln!(out, "  {}", one_line(&vm.name));
            for o in over {
                let _ = writeln!(
                    out,
                    "    {:<40} {:>9.2} {}  (threshold {:.2} {})",
                    o.quantity, o.value, o.unit, o.against, o.unit
                );
            }
            if !vm.costs.is_empty() {
                out.push_str(&folded(&format!("waited for: {}", costs(&vm.costs)), "    ", 100));
            }
        }
        if self.changes.is_empty() {
            out.push_str("\nNothing changed within the hour before.\n");
        } else {
            out.push_str("\nChanged within the hour before:\n");
            self.changes.iter().for_each(|e| out.push_str(&event(e)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_without_a_value_is_empty() {
        assert_eq!(blocks(&[Some(0.0), None, Some(0.5), Some(1.0)]), "▁ ▅█");
        assert_eq!(blocks(&[None, Some(0.0)]), " ▁");
    }
}
