//! Forecasts on this machine's own pCPUs with real VMs: shares, pins and emulator threads.
//!
//! Next to each error is the machine's steal time in that window, because the pCPUs' speed varies, and so do
//! the measured values.

use super::{Errors, claim_of};
use crate::contention::Lab;
use crate::drive::{Vsteer, wait};
use crate::libvirtd;
use crate::suite::{Bench, Findings};
use serde_json::{Value, json};
use std::time::Duration;
use vsteer_core::Fault;
use vsteer_core::stats::mean;

/// The promise for local VMs.
const READY_POINTS: f64 = 3.0;
const WAKE_PART: f64 = 0.30;
const REPEATS: usize = 5;
const WINDOW: &str = "20s";
const SETTLE: Duration = Duration::from_secs(4);

/// A change to every VM of a kind.
#[derive(Debug, Clone, Copy)]
enum Change {
    Shares(&'static str, u32),
    Pin(&'static str, &'static str),
    EmulatorPin(&'static str, &'static str),
}

/// VMs, and the change.
const HOSTS: [(&str, &[Change]); 8] = [
    ("burn:2,periodic:2", &[Change::Shares("periodic", 8192)]),
    ("burn:2,periodic:2", &[Change::Pin("burn", "0")]),
    ("burn(shares=8192):1,periodic:3", &[Change::Shares("burn", 1024)]),
    ("burn:3,periodic:1", &[Change::Pin("burn", "0"), Change::EmulatorPin("burn", "0")]),
    ("waker:1,burn:1,periodic:2", &[Change::Shares("burn", 256)]),
    ("burn=2x1,periodic=1x2", &[Change::Pin("burn", "1")]),
    ("burn=1x2,burst(on_ms=20;off_ms=80)=1x2,periodic:1", &[Change::Pin("burst", "1")]),
    ("burn:2,periodic:2", &[Change::EmulatorPin("periodic", "1"), Change::EmulatorPin("burn", "1")]),
];

/// Runs them; returns the cases and their summary.
pub fn run(bench: &Bench, findings: &mut Findings) -> Result<(Vec<Value>, Value), Fault> {
    let hosts = if bench.full { &HOSTS[..] } else { &HOSTS[..1] };
    let repeats = if bench.full { REPEATS } else { 1 };
    let mut cases = Vec::new();
    for (i, (spec, changes)) in hosts.iter().enumerate() {
        for repeat in 0..repeats {
            let seed = bench.seed + (100 * i + repeat) as u64;
            let told = bench.on_lab(spec, seed, |lab, v| one(bench, lab, v, changes))?;
            let what = format!("{spec}, {changes:?}");
            eprintln!("vsteer-lab: {what}: {}", Errors::of([&told]).told());
            cases.push(json!({ "host": what, "seed": seed, "repeat": repeat, "told": told }));
        }
    }
    let errors = Errors::of(cases.iter().map(|c| &c["told"]));
    claim_of(findings, "local VMs", &errors, READY_POINTS);
    findings.claim(
        format!("local VMs: the wake-up p99 is forecast within {:.0} %, mean over vCPUs", 100.0 * WAKE_PART),
        mean(&errors.wake).is_some_and(|e| e <= WAKE_PART),
        errors.told(),
    );
    let summary = errors.summary();
    Ok((cases, summary))
}

/// One configuration: the output of `simulate --from A --under B`, and the steal in that time.
fn one(bench: &Bench, lab: &Lab, v: &Vsteer, changes: &[Change]) -> Result<Value, Fault> {
    let (before, after) = (bench.fresh("prediction-a.vsteer")?, bench.fresh("prediction-b.vsteer")?);
    let record = |to: &str| {
        let words = ["record", "-o", to, "--events", "--for", WINDOW, "--connect", &v.uri];
        v.run(&words, false, Duration::from_secs(90))
    };
    record(&before)?;
    for change in changes {
        apply(lab, *change)?;
    }
    wait("letting the change settle", SETTLE)?;
    record(&after)?;
    let mut told = v.json(&["simulate", "--from", &before, "--under", &after], Duration::from_secs(300))?;
    let model = v.json(&["diagnose", &after], Duration::from_secs(60))?["model"].take();
    let steal: Vec<f64> =
        model["pcpus"].as_array().into_iter().flatten().filter_map(|p| p["steal"].as_f64()).collect();
    told["steal"] = json!(mean(&steal));
    Ok(told)
}

fn apply(lab: &Lab, change: Change) -> Result<(), Fault> {
    let (Change::Shares(kind, _) | Change::Pin(kind, _) | Change::EmulatorPin(kind, _)) = change;
    for vm in lab.state().vms.iter().filter(|vm| vm.workload.starts_with(kind)) {
        let name = vm.name.as_str();
        match change {
            Change::Shares(_, shares) => {
                let shares = format!("cpu_shares={shares}");
                libvirtd::virsh(lab.dir(), &["schedinfo", name, "--live", "--set", &shares])?;
            }
            Change::Pin(_, cpus) => {
                for vcpu in 0..vm.vcpus {
                    libvirtd::virsh(lab.dir(), &["vcpupin", name, &vcpu.to_string(), cpus, "--live"])?;
                }
            }
            Change::EmulatorPin(_, cpus) => {
                libvirtd::virsh(lab.dir(), &["emulatorpin", name, cpus, "--live"])?;
            }
        }
    }
    Ok(())
}
