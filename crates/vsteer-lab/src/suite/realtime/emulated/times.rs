//! Times: from a timer's end to running, the policy's callbacks, a switch.

use super::jobs;
use super::{Boot, sum, vms, worst};
use crate::suite::Findings;
use serde_json::{Map, Value, json};
use vsteer_core::Fault;

/// From a timer's end to running, us.
const P99_MOST_US: f64 = 50.0;
const MAX_MOST_US: f64 = 200.0;
/// How many more instructions of 2 ns a switch between threads with a wake-up may take than under the
/// kernel's scheduler.
const SWITCH_MOST_MORE: f64 = 4_700.0;
/// The allowed cost of a callback: instructions that the kernel checks, and virtual ns of a run.
const COSTS: &[(&str, f64, f64)] = &[
    ("rt_enqueue", 5_100.0, 1250.0),
    ("rt_dispatch", 14_650.0, 2900.0),
    ("rt_running", 6200.0, 1650.0),
    ("rt_stopping", 2450.0, 850.0),
    ("rt_runnable", 3600.0, 980.0),
    ("rt_quiescent", 2650.0, 760.0),
    ("rt_timer_ends", 1550.0, 1200.0),
    ("rt_timer_starts", 1200.0, 1250.0),
];

impl Boot {
    pub(super) fn expiries(
        &self,
        kernel: &str,
        full: bool,
        findings: &mut Findings,
        figures: &mut Map<String, Value>,
    ) -> Result<(), Fault> {
        let counts = jobs::many(full).iter().map(|n| (*n, format!("expiry-{n}"), format!("{n} VMs")));
        let tick = full.then(|| {
            (jobs::ON_TICK_VMS, "expiry-tick".to_owned(), "10 VMs, each end with the host's tick".to_owned())
        });
        for (n, case, what) in counts.chain(tick) {
            let said = self.said(&case)?;
            let late = |what: &'static str| {
                vms(&said).map(move |vm| vm["expiry_to_running_us"][what].as_f64().unwrap_or(f64::NAN))
            };
            let (p99, max) = (worst(late("p99")), worst(late("max")));
            let mean = late("mean").sum::<f64>() / n as f64;
            findings.claim(
                format!("{kernel}, {what}: from a timer's end to running at most 50 us (99th percentile) and 200 us"),
                p99 <= P99_MOST_US && max <= MAX_MOST_US && vms(&said).count() == n,
                format!("mean {mean:.1}, p99 {p99:.1}, max {max:.1} us, of {} timers", sum(&said, "expired")),
            );
            figures.insert(
                case.replace("expiry-", "expiry_to_running_us_"),
                json!({ "mean": mean, "p99": p99, "max": max, "expired": sum(&said, "expired") }),
            );
        }
        Ok(())
    }

    /// While a thread of a higher class runs, nothing else can run. But it must not delay longer than that,
    /// and the thread that it interrupted must not continue first.
    pub(super) fn above(
        &self,
        kernel: &str,
        findings: &mut Findings,
        figures: &mut Map<String, Value>,
    ) -> Result<(), Fault> {
        let said = self.said("expiry-above")?;
        let late = |what: &'static str| {
            worst(vms(&said).map(|vm| vm["expiry_to_running_us"][what].as_f64().unwrap_or(f64::NAN)))
        };
        let rest_us = f64::from(jobs::ABOVE_UNITS) * jobs::UNIT_US - jobs::ABOVE_FIRST_US as f64;
        let (mean, max) = (late("mean"), late("max"));
        findings.claim(
            format!("{kernel}: a timer that ends while a thread of a class above runs waits for the rest of its work, and no longer (200 us)"),
            max <= rest_us + MAX_MOST_US && mean >= rest_us / 2.0,
            format!("mean {mean:.1}, max {max:.1} us, of {} timers; {rest_us:.0} us are left of its work", sum(&said, "expired")),
        );
        figures.insert("expiry_to_running_us_above".to_owned(), json!({ "mean": mean, "max": max }));
        Ok(())
    }

    pub(super) fn together(&self, kernel: &str, findings: &mut Findings, figures: &mut Map<String, Value>) {
        let late = |i: usize| {
            self.window("together", &format!("rt{i}"))
                .and_then(|w| w.lateness)
                .map_or(f64::NAN, |l| l.mean_ms)
        };
        let all: Vec<f64> = (0..8).map(late).collect();
        // Each VM before it works 20 units, 0.4 ms; in addition there is the time from one to the next.
        let work_ms = 20.0 * 1000.0 / self.units("job-alone", "job");
        let bound = |i: usize| i as f64 * (work_ms + 0.1) + 0.2;
        findings.claim(
            format!("{kernel}: timers that end together are served in the order of their ends, each after the work before it"),
            all.windows(2).all(|w| w[0] < w[1]) && all.iter().enumerate().all(|(i, late)| *late <= bound(i)),
            format!("late by {all:.3?} ms, {work_ms:.3} ms of work each"),
        );
        figures.insert("together_late_ms".to_owned(), json!(all));
    }

    /// The cost of the policy's callbacks, in instructions of 2 ns each. The limits are the first measured
    /// values plus a quarter; for the checked instructions of `rt_enqueue` and `rt_dispatch` they were set
    /// after quotas were added.
    pub(super) fn costs(
        &self,
        kernel: &str,
        findings: &mut Findings,
        figures: &mut Map<String, Value>,
    ) -> Result<(), Fault> {
        let said = self.said("costs")?;
        let of = |name: &str, what: &str| {
            let all = said["callbacks"].as_array().into_iter().flatten();
            all.filter(|c| c["name"] == name).find_map(|c| c[what].as_f64()).unwrap_or(f64::NAN)
        };
        let told: Vec<String> = COSTS
            .iter()
            .map(|(name, _, _)| {
                format!("{name} {:.0}/{:.0}", of(name, "verified_instructions"), of(name, "ns_per_run"))
            })
            .collect();
        findings.claim(
            format!("{kernel}: each callback is checked and run in no more instructions than it was held to"),
            COSTS.iter().all(|(name, checked, ns)| {
                of(name, "verified_instructions") <= *checked && of(name, "ns_per_run") <= *ns
            }),
            format!("instructions checked / ns a run: {}", told.join(", ")),
        );
        figures.insert("callbacks".to_owned(), said["callbacks"].clone());
        Ok(())
    }

    /// From one thread to another, with a wake-up.
    pub(super) fn switches(&self, kernel: &str, findings: &mut Findings, figures: &mut Map<String, Value>) {
        const NS_PER_INSTRUCTION: f64 = 2.0;
        let each = |case: &str| 1e9 / (2.0 * self.units(case, "switch")) / NS_PER_INSTRUCTION;
        let (before, with) = (each("switch-kernel"), each("switch-policy"));
        findings.claim(
            format!("{kernel}: a switch takes at most {SWITCH_MOST_MORE} instructions more than under the kernel's scheduler"),
            with - before <= SWITCH_MOST_MORE,
            format!("{with:.0} instructions, {before:.0} by the kernel's: {:.2} times", with / before),
        );
        figures.insert("instructions_per_switch".to_owned(), json!({ "kernel": before, "policy": with }));
    }
}
