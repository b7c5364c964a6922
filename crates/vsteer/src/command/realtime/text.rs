//! Formats the report of the realtime service.

use crate::text::one_line;
use serde_json::Value;
use std::fmt::Write;

/// Widest bar of a histogram, characters.
const BAR: f64 = 40.0;

/// One line per VM.
pub fn status(told: &Value) -> String {
    let mut out = head(told);
    let by_policy = told["by"] == "policy";
    let rows: Vec<Vec<String>> =
        vms(told).map(|vm| if by_policy { asked(vm, told) } else { kept(vm, told) }).collect();
    let head: &[&str] = if by_policy {
        &["VM", "TIMERS", "FIRST", "RAN ANYWAY", "IN DEBT", "TOO SOON", "QUOTA UP", "p99 us", "CPU %"]
    } else {
        &["VM", "FIRST", "% OF TIME", "CREDIT UP", "BUDGET UP", "DUE pCPUs", "WAKE p99 us", "CPU %"]
    };
    table(&mut out, head, &rows);
    for (name, why) in told["refused"].as_object().into_iter().flatten() {
        let _ = writeln!(out, "{}: {}", one_line(name), why.as_str().unwrap_or_default());
    }
    out
}

/// The same, and how late each VM was, as histograms.
pub fn report(told: &Value) -> String {
    let mut out = status(told);
    let what = if told["by"] == "policy" { "expiry_to_running_us" } else { "wake_to_running_us" };
    for vm in vms(told) {
        let late = &vm[what];
        let Some(buckets) = late["histogram"].as_array().filter(|b| !b.is_empty()) else { continue };
        let title = if told["by"] == "policy" { "from timer to running" } else { "from wake-up to running" };
        let _ = writeln!(out, "\n{}, {title}:", name(vm));
        let octaves = by_octave(buckets);
        let most = octaves.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
        for (below_us, count) in octaves {
            let bar = "#".repeat((BAR * count as f64 / most as f64).ceil() as usize);
            let _ = writeln!(out, "  < {below_us:>9.0} us {count:>8}  {bar}");
        }
    }
    if let Some(why) = told["wake_to_running_missing"].as_str() {
        let _ = writeln!(out, "\nvsteer did not measure how late the VMs ran: {why}");
    }
    for c in told["callbacks"].as_array().into_iter().flatten() {
        let each = c["ns_per_run"].as_f64().map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0} ns each"));
        let _ = writeln!(
            out,
            "{:<16} {:>6} instructions checked, {:>9} runs, {each}",
            c["name"].as_str().unwrap_or_default(),
            c["verified_instructions"],
            c["runs"]
        );
    }
    out
}

fn head(told: &Value) -> String {
    let by = match told["by"].as_str() {
        Some("policy") => "a sched_ext policy",
        _ => "a real-time class (SCHED_RR)",
    };
    let begun = if told["honoured"] == false { "Measured only, no VM ran first; by" } else { "Run first by" };
    format!("{begun} {by}, process {}, {:.0} s\n", told["pid"], told["seconds"].as_f64().unwrap_or(0.0))
}

fn vms(told: &Value) -> impl Iterator<Item = &Value> {
    told["vms"].as_array().into_iter().flatten()
}

fn name(vm: &Value) -> String {
    one_line(vm["name"].as_str().unwrap_or_default())
}

fn number(value: &Value, digits: usize) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |n| format!("{n:.digits$}"))
}

fn share(part: &Value, whole: &Value) -> String {
    let share = part.as_f64().zip(whole.as_f64()).filter(|(_, whole)| *whole > 0.0);
    share.map_or_else(|| "-".to_owned(), |(part, whole)| format!("{:.1}", 100.0 * part / whole))
}

fn asked(vm: &Value, told: &Value) -> Vec<String> {
    let count = |what: &str| number(&vm[what], 0);
    let late = number(&vm["expiry_to_running_us"]["p99"], 0);
    vec![
        name(vm),
        count("expired"),
        count("honoured"),
        count("running"),
        count("in_debt"),
        count("too_soon"),
        count("over_quota"),
        late,
        share(&vm["cpu_s"], &told["seconds"]),
    ]
}

fn kept(vm: &Value, told: &Value) -> Vec<String> {
    let first = match (vm["first"].as_bool(), vm["refused"].as_str()) {
        (_, Some(_)) => "refused",
        (Some(true), None) => "yes",
        _ => "no",
    };
    vec![
        name(vm),
        first.to_owned(),
        share(&vm["first_s"], &told["seconds"]),
        number(&vm["used_up"], 0),
        number(&vm["budget_used_up"], 0),
        number(&vm["due_pcpus"], 2),
        number(&vm["wake_to_running_us"]["p99"], 0),
        share(&vm["cpu_s"], &told["seconds"]),
    ]
}

fn table(out: &mut String, head: &[&str], rows: &[Vec<String>]) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut line = |cells: Vec<&str>| {
        let cell = |(i, cell): (usize, &&str)| match i {
            0 => format!("{cell:<w$}", w = widths[0]),
            _ => format!("{cell:>w$}", w = widths[i]),
        };
        let text: Vec<String> = cells.iter().enumerate().map(cell).collect();
        let _ = writeln!(out, "{}", text.join("  ").trim_end());
    };
    line(head.to_vec());
    rows.iter().for_each(|row| line(row.iter().map(String::as_str).collect()));
}

/// Buckets of an eighth of an octave as octaves: (upper bound in us, count).
fn by_octave(buckets: &[Value]) -> Vec<(f64, u64)> {
    let mut octaves: Vec<(f64, u64)> = Vec::new();
    for (edge, count) in buckets.iter().filter_map(|b| Some((b[0].as_f64()?, b[1].as_u64()?))) {
        let below = 2f64.powi(edge.max(1.0).log2().ceil() as i32);
        match octaves.last_mut().filter(|(last, _)| *last == below) {
            Some((_, sum)) => *sum += count,
            None => octaves.push((below, count)),
        }
    }
    octaves
}
