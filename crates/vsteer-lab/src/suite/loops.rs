//! Does the whole loop help the VMs that waited, at no cost to others? Five seeds, and hosts on which nothing
//! should be changed.

use super::{Bench, Case, Findings, Minutes};
use crate::case::Check;
use crate::demo::{Show, demo};
use serde_json::json;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "loop",
    doc: "the loop on real VMs: lateness to a third, ready to half, burners keep 90 % of their work",
    in_test: true,
    minutes: Minutes::new(2.8, 30.0),
    beside: false,
    run,
};

/// Seed and VMs. In the second host the burner has eight times the shares, because with equal shares no VM
/// waits long for a single burner (0.7 to 0.9 ms; alone on a host these guests' timers are 0.3 to 0.6 ms
/// late). The third last is an idle host, for which no plan may be made. In the last two a pin would do harm:
/// a VM that mostly sleeps wakes on every pCPU at once, or there are more burners than pCPUs left for them.
const HOSTS: [(u64, &str); 7] = [
    (1, "burn:2,periodic:2"),
    (2, "burn(shares=8192):1,periodic:3"),
    (3, "burn:3,periodic:1"),
    (4, "waker:1,burn:1,periodic:2"),
    (5, "idle:2,periodic:1"),
    (6, "burn=1x2,burst(on_ms=20;off_ms=80)=1x2,periodic:1"),
    (7, "burn=2x2,waker=1x2,periodic=1x1"),
];

/// Length of each observation. The burners' vCPUs that share a pCPU change every few seconds. Without any
/// change, their ready shares differ by 1 to 3 points over 45 s, and sometimes by 5. At full size the values
/// themselves are judged. In the short case, which has only one host, only differences beyond the verdict's
/// own interval count.
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
            // The failure of one host must not hide the results of the others.
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
