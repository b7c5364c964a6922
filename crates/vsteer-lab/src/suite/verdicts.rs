//! Does `verify` report nothing if nothing changed, and report a difference if something did?
//!
//! One long recording of unchanged VMs is cut into windows, and neighbours are compared. Of 40 such pairs at
//! least 36 must be "no difference". Then a change is planted in the ready time of one VM in the second
//! window of each pair. The change is twice the smallest difference that the verdict claims to see. At least
//! 36 of 40 must be found. The samples are real. The change is added to their counters, so that its size is
//! known.

use super::{Bench, Case, Findings, Minutes};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use vsteer_core::model;
use vsteer_core::nouns::{Batch, VmId};
use vsteer_core::verify::{Options, Outcome, Quantity, Verdict, verify};
use vsteer_core::{Fault, FaultKind};
use vsteer_record::Recording;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "verdicts",
    doc: "verify: 36 of 40 unchanged pairs say no difference, 36 of 40 planted changes are found",
    in_test: false,
    minutes: Minutes::new(3.0, 16.0),
    beside: false,
    run,
};

/// Length of each of the two observations of a pair, ns, as in the demonstration.
const WINDOW_NS: u64 = 20_000_000_000;

/// Longest time between two samples, ns: the default interval plus some delay.
const SAMPLE_NS: u64 = 300_000_000;

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let pairs: u64 = if bench.full { 40 } else { 4 };
    // A window ends with the first sample after its time.
    let seconds = (pairs + 1) * (WINDOW_NS + SAMPLE_NS) / 1_000_000_000 + 2;
    let recording = bench.on_lab("burn:2,periodic:2", bench.seed, |_, v| {
        let r = bench.fresh("unchanged.vsteer")?;
        let words = ["record", "-o", &r, "--for", &format!("{seconds}s"), "--connect", &v.uri];
        v.run(&words, false, Duration::from_secs(seconds + 90))?;
        Recording::open(Path::new(&r))
    })?;
    let windows = cut(&recording.batches);
    let (mut silent, mut found, mut compared) = (0, 0, 0);
    let mut lines = Vec::new();
    for pair in windows.windows(2).take(pairs as usize) {
        compared += 1;
        let plain = compare(&recording, pair[0], pair[1])?;
        silent += u64::from(plain.overall() == Some(Outcome::NoDifference));
        // Any VM with a finding about ready time can be used; this takes the first.
        let Some(f) = plain.findings.iter().find(|f| f.quantity == Quantity::Ready) else { continue };
        let changed = plant(pair[1], &f.vm, 2.0 * f.smallest_visible);
        let planted = compare(&recording, pair[0], &changed)?;
        let seen = planted
            .findings
            .iter()
            .any(|p| p.vm == f.vm && p.quantity == Quantity::Ready && p.outcome == Outcome::Worse);
        found += u64::from(seen);
        lines.push(json!({ "overall": plain.overall(), "smallest_visible": f.smallest_visible,
            "block": f.comparison.block, "difference": f.comparison.difference(), "planted_found": seen }));
    }
    let mut findings = Findings::default();
    let need = (pairs * 36).div_ceil(40);
    findings.claim(
        format!("{need} of {pairs} unchanged pairs say no difference"),
        silent >= need && compared == pairs,
        format!("{silent} of {compared}"),
    );
    findings.claim(
        format!("{need} of {pairs} planted changes are found"),
        found >= need,
        format!("{found} of {compared}"),
    );
    findings.figures = json!(lines);
    Ok(findings)
}

/// Consecutive windows of [`WINDOW_NS`], each with both its end samples.
fn cut(batches: &[Batch]) -> Vec<&[Batch]> {
    let mut windows = Vec::new();
    let mut from = 0;
    for (i, b) in batches.iter().enumerate() {
        if b.mono_ns - batches[from].mono_ns >= WINDOW_NS {
            windows.push(&batches[from..=i]);
            from = i;
        }
    }
    windows
}

fn compare(r: &Recording, a: &[Batch], b: &[Batch]) -> Result<Verdict, Fault> {
    let last = a.last().ok_or_else(|| Fault::new(FaultKind::BadInput, "an empty window"))?;
    let config = r.config_at(last.mono_ns);
    let of = |x: &[Batch]| model::derive(config, &r.manifest.collector, x);
    Ok(verify((&of(a)?, a), (&of(b)?, b), None, Options::default()))
}

/// The same batches, with `share` of a pCPU more ready time for the VM's first vCPU, from the start to the
/// end.
fn plant(batches: &[Batch], vm: &VmId, share: f64) -> Vec<Batch> {
    let begin = batches.first().map_or(0, |b| b.mono_ns);
    let mut changed = batches.to_vec();
    for b in &mut changed {
        let more = ((b.mono_ns - begin) as f64 * share) as u64;
        for t in b.threads.iter_mut().filter(|t| t.vm == *vm && t.role.vcpu() == Some(0)) {
            for counter in [&mut t.counters.ready_ns, &mut t.counters.wait_ns] {
                *counter = counter.map(|ns| ns + more);
            }
        }
    }
    changed
}
