//! Does the whole loop help those who waited, at nobody's cost? Five seeds, and hosts on which nothing should be done.

use super::{Bench, Case, Findings, Minutes};
use crate::case::Check;
use crate::demo::{Show, demo};
use serde_json::json;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// See the file's head.
pub const CASE: Case = Case {
    name: "loop",
    doc: "the loop on real VMs: lateness to a third, ready to half, burners keep 90 % of their work",
    in_test: true,
    minutes: Minutes::new(4.0, 30.0),
    beside: false,
    run,
};

/// Seed and VMs. In the second the burner has been given eight times the shares: with equal ones nobody waits long for a
/// single burner (0.7 to 0.9 ms, where these guests' timers are 0.3 to 0.6 ms late on a host of their own). The third last
/// is an idle host, for which no plan may be made; in the last two a pin would hurt: what mostly sleeps bursts onto every
/// pCPU at once, or there are more burners than pCPUs left to them.
const HOSTS: [(u64, &str); 7] = [
    (1, "burn:2,periodic:2"),
    (2, "burn(shares=8192):1,periodic:3"),
    (3, "burn:3,periodic:1"),
    (4, "waker:1,burn:1,periodic:2"),
    (5, "idle:2,periodic:1"),
    (6, "burn=1x2,burst(on_ms=20;off_ms=80)=1x2,periodic:1"),
    (7, "burn=2x2,waker=1x2,periodic=1x1"),
];

/// Length of each observation. Which vCPUs of the burners share a pCPU changes every few seconds: with nothing changed
/// their ready shares differ by 1 to 3 points over 45 s, and by 5 at times. In full the figures are judged as they are; in
/// short, where one host speaks for all, what lies beyond the verdict's own interval.
const WINDOW: Duration = Duration::from_secs(45);

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    let mut figures = Vec::new();
    let hosts = if bench.full { &HOSTS[..] } else { &HOSTS[..1] };
    for (seed, spec) in hosts {
        let show = Show {
            lab: bench.with(spec, *seed)?,
            window: WINDOW,
            output: bench.output.join(format!("loop-{seed}")),
            strict: bench.full,
        };
        let shown = match demo(&show) {
            Ok(shown) => shown,
            Err(fault) if fault.kind == FaultKind::Interrupted => return Err(fault),
            // One host's failure must not hide what the others show.
            Err(fault) => {
                findings.claim(format!("seed {seed} ({spec}): it runs to its end"), false, fault.to_string());
                continue;
            }
        };
        for c in &shown.checks {
            let claim = format!("seed {seed} ({spec}): {}", c.claim);
            findings.checks.push(Check { claim, ..c.clone() });
        }
        let pins = shown.plan["steps"]
            .as_array()
            .map_or(0, |steps| steps.iter().filter(|s| s["change"]["setting"] == "affinity").count());
        if *seed >= 6 {
            findings.claim(
                format!("seed {seed} ({spec}): no pin is proposed where pins hurt"),
                shown.plan["steps"].is_array() && pins == 0,
                format!("{pins} affinity steps: {}", shown.plan_title),
            );
        }
        figures.push(json!({ "seed": seed, "spec": spec, "plan": shown.plan_title, "before": shown.before, "after": shown.after }));
    }
    findings.figures = json!(figures);
    Ok(findings)
}
