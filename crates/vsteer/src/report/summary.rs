//! The summary: one sentence and four numbers, for a reader who reads nothing else.

use super::markup::{bar, esc, millis, percent};
use super::{Document, Side};
use vsteer_core::diagnose::NOT_MEASURED;
use vsteer_core::model::VmModel;
use vsteer_core::verify::Outcome;

/// Ready (with limited where the collector cannot split them) of all VMs' vCPUs together.
fn ready(s: &Side) -> Option<f64> {
    let of = |v: &VmModel| {
        let (shares, _) = v.vcpus_or_group();
        shares.ready.or(shares.wait)
    };
    s.model.vms.iter().map(of).sum()
}

/// The VM with the longest 99th percentile from wake-up to running.
fn latest(s: &Side) -> Option<&VmModel> {
    let late = |v: &&VmModel| v.wake_latency.map(|l| l.p99_ns);
    s.model
        .vms
        .iter()
        .filter(|v| late(v).is_some())
        .max_by(|a, b| late(a).unwrap_or(0.0).total_cmp(&late(b).unwrap_or(0.0)))
}

fn run(s: &Side) -> Option<f64> {
    s.model.vms.iter().map(|v| v.vcpus_or_group().0.run).sum()
}

/// One number before and after, each with a bar.
fn tile(
    d: &Document,
    what: &str,
    unit: &str,
    of: impl Fn(&Side) -> Option<f64>,
    shown: fn(Option<f64>) -> String,
) -> String {
    let values: Vec<(&Side, Option<f64>)> = d.sides().map(|s| (s, of(s))).collect();
    let most = values.iter().filter_map(|(_, v)| *v).fold(0.0, f64::max);
    let rows: String = values
        .iter()
        .enumerate()
        .map(|(i, (s, v))| {
            let label = if d.after.is_some() {
                format!("<span class=\"when\">{}</span>", s.label)
            } else {
                String::new()
            };
            let part = v.map_or(0.0, |v| if most > 0.0 { v / most } else { 0.0 });
            let class = if i == 0 { "before" } else { "after" };
            format!(
                "<div class=\"value\">{label}<b>{}</b> <small>{}</small>{}</div>",
                shown(*v),
                esc(unit),
                bar(part, class)
            )
        })
        .collect();
    format!("<div class=\"tile\"><h3>{}</h3>{rows}</div>", esc(what))
}

pub fn body(d: &Document) -> String {
    let mut out = String::new();
    if let Some(v) = &d.verdict {
        let (class, words) = match v.overall() {
            Some(Outcome::Better) => ("better", "Better: at least one VM improved, and none got worse."),
            Some(Outcome::Worse) => ("worse", "Worse: at least one VM got worse, and none improved."),
            Some(Outcome::NoDifference) => ("same", "No difference was found."),
            None if v.findings.is_empty() => ("mixed", "Nothing could be compared; the verdict says why."),
            None => ("mixed", "Better for some VMs, worse for others."),
        };
        out.push_str(&format!("<p class=\"verdict {class}\">{words}</p>\n"));
    }
    if let Some(worst) = d.findings.first() {
        let count = d.findings.iter().filter(|f| f.rule != NOT_MEASURED).count();
        let before = if d.after.is_some() { " before" } else { "" };
        out.push_str(&format!(
            "<p class=\"lead\">Found{before}: {} <a href=\"#findings\">({count} finding{})</a></p>\n",
            esc(&worst.title),
            if count == 1 { "" } else { "s" }
        ));
    }
    let late = latest(&d.before);
    let slowest = format!("Wake-up to running, p99 of VM {}", late.map_or("-", |vm| vm.name.as_str()));
    let tiles = [
        tile(d, "Ready, all VMs", "% of one pCPU", ready, percent),
        // One VM in both recordings.
        tile(d, &slowest, "ms", |s| Some(s.model.vm(&late?.id)?.wake_latency?.p99_ns), millis),
        tile(d, "CPU time of all VMs", "% of one pCPU", run, percent),
        tile(d, "pCPUs busy, mean", "%", |s| s.model.busy_mean(), percent),
    ];
    out.push_str(&format!("<div class=\"tiles\">{}</div>\n", tiles.concat()));
    out
}
