//! A report of what the service stored: trends of the VMs, the worst hours, and the timeline.

use super::chart::{Line, NAMED, lines_over};
use super::markup::{column, esc, millis, name, percent, section, table};
use super::page::frame;
use crate::clock;
use crate::text::history::Shown;
use vsteer_core::plural::counted;
use vsteer_record::history::{
    DAY_MS, Event, EventKind, HOUR_MS, HostRow, Summary, VmRow, by_vm, summary, trend,
};

/// Points of a line: a chart has no more pixels.
const POINTS: usize = 300;
/// Rows of the table of worst times.
const WORST: usize = 20;
/// Lines of the timeline, the newest.
const EVENTS: usize = 200;

fn at(unix_ms: u64) -> String {
    esc(&clock::text(unix_ms.saturating_mul(1_000_000)))
}

/// The VMs, the one with the worst ready time first.
fn ranked(found: &Shown) -> Vec<(Summary, &[VmRow])> {
    let mut all: Vec<_> = by_vm(&found.vms).filter_map(|rows| Some((summary(rows.iter())?, rows))).collect();
    let worst = |s: &Summary| s.worst.map_or(-1.0, |(_, share)| share);
    all.sort_by(|a, b| worst(&b.0).total_cmp(&worst(&a.0)));
    all
}

/// The ready share of each VM over time.
fn ready(found: &Shown, all: &[(Summary, &[VmRow])]) -> String {
    let span = found.to_ms.saturating_sub(found.from_ms).max(1);
    let (unit, unit_ms) = if span > 2 * DAY_MS { ("days", DAY_MS) } else { ("hours", HOUR_MS) };
    let x_max = span as f64 / unit_ms as f64;
    let points = (span / found.step.ms()).clamp(1, POINTS as u64) as usize;
    let line = |(i, (s, rows)): (usize, &(Summary, &[VmRow]))| Line {
        name: s.name.clone(),
        colour: (i < NAMED).then_some(i),
        points: trend(rows, found.from_ms, found.to_ms, points)
            .iter()
            .enumerate()
            .filter_map(|(k, share)| Some(((k as f64 + 0.5) / points as f64 * x_max, 100.0 * (*share)?)))
            .collect(),
    };
    let lines: Vec<Line> = all.iter().enumerate().map(line).collect();
    let y_max = lines.iter().flat_map(|l| &l.points).map(|p| p.1).fold(0.0, f64::max);
    let x_unit = format!("{unit} since {}", clock::text(found.from_ms.saturating_mul(1_000_000)));
    let title = "Ready of each VM over time, summed over its vCPUs";
    let rest = all.len().saturating_sub(NAMED);
    let note = if rest > 0 {
        format!(
            "<p class=\"note\">The {NAMED} VMs with the worst ready time are named; {rest} more are drawn in grey.</p>\n"
        )
    } else {
        String::new()
    };
    format!(
        "<figure><figcaption>{title}</figcaption><div class=\"wide\" role=\"region\" aria-label=\"{title}\" tabindex=\"0\">{}</div></figure>{note}",
        lines_over(&x_unit, title, "ready, % of one pCPU", x_max, y_max, &lines)
    )
}

fn vms(all: &[(Summary, &[VmRow])]) -> String {
    let row = |(s, _): &(Summary, &[VmRow])| {
        let culprit = s.costs.first().map_or_else(String::new, |c| esc(&c.culprit));
        format!(
            "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{culprit}</td></tr>\n",
            name(&s.name),
            percent(s.run),
            percent(s.ready),
            percent(s.worst.map(|(_, share)| share)),
            percent(s.limited),
            millis(s.wake_p99_us.map(|us| us as f64 * 1000.0)),
        )
    };
    let head = format!(
        "<tr>{}{}{}{}{}{}{}</tr>",
        column("VM", "", ""),
        column("Run", "%", "n"),
        column("Ready", "%", "n"),
        column("Ready, worst", "%", "n"),
        column("Limited", "%", "n"),
        column("Wake-up p99, worst", "ms", "n"),
        column("Waited for", "", "")
    );
    table("Each VM over the whole time", "plain", &head, &all.iter().map(row).collect::<String>())
}

/// The hours of VMs with the largest ready time.
fn worst(all: &[(Summary, &[VmRow])]) -> String {
    let hours =
        all.iter().flat_map(|(_, rows)| rows.chunk_by(|a, b| a.unix_ms / HOUR_MS == b.unix_ms / HOUR_MS));
    let mut hours: Vec<(f64, Summary, u64)> = hours
        .filter_map(|rows| {
            let s = summary(rows.iter())?;
            Some((s.ready?, s, rows[0].unix_ms / HOUR_MS * HOUR_MS))
        })
        .collect();
    hours.sort_by(|a, b| b.0.total_cmp(&a.0));
    let row = |(ready, s, unix_ms): &(f64, Summary, u64)| {
        let culprit = s.costs.first().map_or_else(String::new, |c| esc(&c.culprit));
        format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"n\">{}</td><td>{culprit}</td></tr>\n",
            at(*unix_ms),
            name(&s.name),
            percent(Some(*ready))
        )
    };
    let head = format!(
        "<tr>{}{}{}{}</tr>",
        column("Hour", "", ""),
        column("VM", "", ""),
        column("Ready", "%", "n"),
        column("Waited for", "", "")
    );
    table(
        "Hours with the largest ready time",
        "plain",
        &head,
        &hours.iter().take(WORST).map(row).collect::<String>(),
    )
}

fn timeline(events: &[Event]) -> String {
    let newest = &events[events.len().saturating_sub(EVENTS)..];
    let row = |e: &Event| {
        let what = match e.kind {
            EventKind::FindingBegan => "found: ",
            EventKind::FindingEnded => "no longer found: ",
            _ => "",
        };
        format!("<tr><th scope=\"row\">{}</th><td>{what}{}</td></tr>\n", at(e.unix_ms), esc(&e.text))
    };
    if newest.is_empty() {
        return "<p>No VM came or went, no setting changed, and nothing was found.</p>\n".to_owned();
    }
    let head = format!("<tr>{}{}</tr>", column("Time", "", ""), column("Event", "", ""));
    table("Events, the newest last", "plain", &head, &newest.iter().map(row).collect::<String>())
}

/// The whole file.
pub fn html(found: &Shown, made_unix_ns: u64) -> String {
    let all = ranked(found);
    let sections = [
        ("ready", "Ready over time", ready(found, &all)),
        ("vms", "VMs", vms(&all)),
        ("worst", "Worst hours", worst(&all)),
        ("timeline", "What happened", timeline(&found.events)),
    ];
    let contents: Vec<(&str, &str)> = sections.iter().map(|(id, h, _)| (*id, *h)).collect();
    let body: String = sections.iter().map(|(id, h, body)| section(id, h, body)).collect();
    let busy: Vec<f64> = found.hosts.iter().filter_map(HostRow::busy).collect();
    let busy = if busy.is_empty() { None } else { Some(busy.iter().sum::<f64>() / busy.len() as f64) };
    let facts = format!(
        "<dl class=\"facts\"><dt>From</dt><dd>{}</dd><dt>To</dt><dd>{}</dd><dt>Machine</dt><dd>{}, pCPUs {} % busy on average</dd><dt>A row per</dt><dd>{}</dd><dt>Made by</dt><dd>vsteer {}, {}</dd></dl>",
        at(found.from_ms),
        at(found.to_ms),
        counted(all.len(), "VM"),
        percent(busy),
        found.step.name(),
        env!("CARGO_PKG_VERSION"),
        clock::text(made_unix_ns),
    );
    frame("vsteer report of the history", "How long VMs waited for a CPU", &facts, &contents, &body)
}
