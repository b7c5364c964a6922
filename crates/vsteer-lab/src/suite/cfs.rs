//! Does the simulated CFS behave like the kernel's? Set-ups of hogs, timers and servers are recorded and
//! replayed unchanged. They run on the emulated host with the distribution's own kernel, one pCPU, exact
//! virtual time.
//!
//! Compared per vCPU: its run share, how often it got the pCPU, and the 99th percentile of its wake-up
//! latency if it woke often enough. Ready shares are not compared, because this kernel does not report
//! limited time, so the two cannot be separated.

use super::{Bench, Case, Findings, Minutes};
use crate::drive::Vsteer;
use crate::emulated::job::Job;
use crate::emulated::{self, Options};
use crate::fetch::cache_folder;
use crate::fetch::kernels::{self, Which};
use crate::interrupt;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use vsteer_core::Fault;
use vsteer_core::stats::mean;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "cfs",
    doc: "replays of recordings of CFS on a host in exact virtual time: shares within 2 points, dispatches and wake-up p99 within 20 %",
    in_test: false,
    minutes: Minutes::new(2.0, 20.0),
    beside: false,
    run,
};

const LIMIT: Duration = Duration::from_secs(1800);
/// The promise: percentage points of a vCPU's run share; relative errors of dispatches per second and of the
/// 99th percentile.
const SHARE_POINTS: f64 = 2.0;
const PART: f64 = 0.2;
/// As in `prediction`: a percentile of fewer wake-ups is too uncertain.
const WAKE_UPS_FROM: u64 = 1000;

/// A set-up: its name and its VMs, each with vCPUs, weight and workload.
type SetUp = (&'static str, &'static [(u32, u32, &'static str)]);

const SET_UPS: &[SetUp] = &[
    ("weights", &[(1, 100, "burn"), (1, 200, "burn")]),
    ("three", &[(2, 100, "burn"), (1, 200, "burn"), (1, 400, "burn")]),
    ("timer", &[(1, 100, "burn"), (2, 100, "periodic,period_us=5000,work_units=10")]),
    ("light", &[(2, 100, "burn"), (1, 25, "periodic,period_us=3000,work_units=10")]),
    ("server", &[(1, 100, "burn"), (1, 100, "burn"), (1, 100, "server,rate_hz=120,mean_units=20,seed=5")]),
    (
        "mix",
        &[
            (1, 200, "burn"),
            (2, 100, "server,rate_hz=150,mean_units=10,seed=6"),
            (2, 100, "periodic,period_us=4000,work_units=5"),
        ],
    ),
];

fn job(full: bool) -> Result<Job, Fault> {
    let mut text = String::new();
    for (name, vms) in if full { SET_UPS } else { &SET_UPS[..1] } {
        text += &format!(
            "[[case]]\nname = \"{name}\"\nrecord_s = 12\ninterval_ms = 12000\nevents = true\nask = false\n"
        );
        for (i, (vcpus, weight, workload)) in vms.iter().enumerate() {
            text += &format!(
                "[[case.vm]]\nname = \"vm{i}\"\nvcpus = {vcpus}\nweight = {weight}\nworkload = \"{workload}\"\ncpus = \"1\"\n"
            );
        }
    }
    Job::parse(&text)
}

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    let cache = cache_folder()?;
    let kernel = kernels::resolve(&cache, Which::Own, emulated::needed(Which::Own), false)?;
    let vsteer = Vsteer { state: bench.output.join("state"), ..Vsteer::beside(&bench.lab.program)? };
    interrupt::watch()?;
    let options = Options {
        cache,
        kernel: Which::Own,
        guest: bench.lab.guest.clone(),
        vsteer: vsteer.program.clone(),
        output: PathBuf::from(bench.fresh("cfs")?),
        limit: LIMIT,
        seed: bench.seed,
    };
    let ran = emulated::run_on(kernel, &job(bench.full)?, &options)?;
    let mut cases = Vec::new();
    let mut errors = Errors::default();
    for case in &ran.cases {
        let recording = case.recording.as_ref().expect("the job records").to_string_lossy().into_owned();
        let told = vsteer.json(&["simulate", "--from", &recording], Duration::from_secs(300))?;
        let of_case = Errors::of(&told);
        eprintln!("vsteer-lab: Linux {}, {}: {}", ran.kernel.release, case.name, of_case.told());
        cases.push(json!({ "name": case.name, "told": told }));
        errors.add(of_case);
    }
    let kernel = format!("Linux {}", ran.kernel.release);
    findings.claim(
        format!("{kernel}: each vCPU's simulated share differs from the measured one by at most {SHARE_POINTS} points"),
        errors.share.iter().all(|e| *e <= SHARE_POINTS) && !errors.share.is_empty(),
        told(&errors.share, SHARE_POINTS, 1.0, " points"),
    );
    for (what, off) in [("dispatches per second", &errors.dispatches), ("wake-up p99", &errors.wake)] {
        findings.claim(
            format!("{kernel}: each vCPU's {what} as simulated are within {:.0} %", 100.0 * PART),
            off.iter().all(|e| *e <= PART) && !off.is_empty(),
            told(off, PART, 100.0, " %"),
        );
    }
    findings.figures = json!({ "kernel": ran.kernel, "cases": cases });
    Ok(findings)
}

/// Errors per vCPU.
#[derive(Debug, Clone, Default)]
struct Errors {
    /// Error of the run share, points.
    share: Vec<f64>,
    /// Relative errors.
    dispatches: Vec<f64>,
    wake: Vec<f64>,
}

impl Errors {
    fn of(told: &Value) -> Errors {
        let mut e = Errors::default();
        for v in told["vcpus"].as_array().into_iter().flatten() {
            let both = |name: &str| v["measured"][name].as_f64().zip(v["simulated"][name].as_f64());
            let part = |name: &str| both(name).map(|(was, is)| (is - was).abs() / was);
            e.share.extend(both("run").map(|(was, is)| 100.0 * (is - was).abs()));
            e.dispatches.extend(part("switches_per_s"));
            let often = v["measured"]["wake_ups"].as_u64().is_some_and(|n| n >= WAKE_UPS_FROM);
            e.wake.extend(part("wake_p99_ns").filter(|_| often));
        }
        e
    }

    fn add(&mut self, other: Errors) {
        self.share.extend(other.share);
        self.dispatches.extend(other.dispatches);
        self.wake.extend(other.wake);
    }

    fn told(&self) -> String {
        format!(
            "shares {}; dispatches {}; p99 {}",
            told(&self.share, SHARE_POINTS, 1.0, " points"),
            told(&self.dispatches, PART, 100.0, " %"),
            told(&self.wake, PART, 100.0, " %")
        )
    }
}

fn told(off: &[f64], promised: f64, scale: f64, unit: &str) -> String {
    let within = off.iter().filter(|e| **e <= promised).count();
    let worst = off.iter().copied().fold(0.0, f64::max);
    let mean = mean(off).unwrap_or(0.0);
    format!(
        "{within} of {} within, mean {:.2}{unit}, worst {:.2}{unit}",
        off.len(),
        scale * mean,
        scale * worst
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_parts_of_what_was_measured() {
        let of = |run: f64, switches: f64, p99: f64, wakes: u64| json!({ "run": run, "switches_per_s": switches, "wake_p99_ns": p99, "wake_ups": wakes });
        let told = json!({ "vcpus": [
            { "measured": of(0.5, 100.0, 2e6, 2000), "simulated": of(0.51, 90.0, 3e6, 2000) },
            { "measured": of(0.2, 10.0, 2e6, 200), "simulated": of(0.2, 10.0, 9e6, 200) },
        ] });
        let e = Errors::of(&told);
        let near =
            |x: &[f64], y: &[f64]| x.len() == y.len() && x.iter().zip(y).all(|(x, y)| (x - y).abs() < 1e-9);
        assert!(
            near(&e.share, &[1.0, 0.0]) && near(&e.dispatches, &[0.1, 0.0]) && near(&e.wake, &[0.5]),
            "{e:?}"
        );
        assert!(job(true).is_ok() && job(false).is_ok());
    }
}
