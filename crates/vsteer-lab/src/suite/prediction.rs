//! Is what a change will do foretold? Record under one configuration, predict another, apply it, measure.
//!
//! On this machine's own pCPUs with real VMs: shares, pins and emulator threads. The prediction is made from the first
//! recording alone; the second gives the configuration and what was measured under it. Beside each error stand that of
//! the calibration (the simulator under the first configuration), that of foretelling no change, and what the machine
//! itself was robbed of meanwhile.
//!
//! Left out: the emulated host's configurations, where times are exact (GAP(prediction-emulated)).

use super::{Bench, Case, Findings};
use crate::contention::Lab;
use crate::drive::{Vsteer, wait};
use crate::libvirtd;
use serde_json::{Value, json};
use std::time::Duration;
use vsteer_core::Fault;
use vsteer_core::stats::{mean, quantile};

/// See the file's head.
pub const CASE: Case = Case {
    name: "prediction",
    doc: "record under A, predict B, apply B, measure: ready within 3 points, wake-up p99 within 30 %",
    // It does not hold yet: docs/accuracy.md.
    in_test: false,
    run,
};

/// What is promised for local VMs.
const READY_POINTS: f64 = 3.0;
const WAKE_PART: f64 = 0.30;
const REPEATS: usize = 5;
const WINDOW: &str = "20s";
const SETTLE: Duration = Duration::from_secs(4);

/// A change of every VM of a kind.
#[derive(Debug, Clone, Copy)]
enum Change {
    Shares(&'static str, u32),
    Pin(&'static str, &'static str),
    EmulatorPin(&'static str, &'static str),
}

/// VMs, and what is changed.
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

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    let hosts = if bench.full { &HOSTS[..] } else { &HOSTS[..1] };
    let repeats = if bench.full { REPEATS } else { 1 };
    let mut cases = Vec::new();
    for (i, (spec, changes)) in hosts.iter().enumerate() {
        for repeat in 0..repeats {
            let seed = bench.seed + (100 * i + repeat) as u64;
            let told = bench.on_lab(spec, seed, |lab, v| one(bench, lab, v, changes))?;
            let figure = |of: &str| told["prediction"][of].as_f64();
            eprintln!(
                "vsteer-lab: {spec} {changes:?}: ready {} points off, wake-up p99 {} %",
                figure("ready").map_or_else(|| "-".to_owned(), |x| format!("{:.2}", 100.0 * x)),
                figure("wake_p99").map_or_else(|| "-".to_owned(), |x| format!("{:.0}", 100.0 * x)),
            );
            cases.push(json!({
                "spec": spec, "changes": format!("{changes:?}"), "seed": seed, "repeat": repeat,
                "prediction": told["prediction"], "calibration": told["calibration"],
                "no_change_ready_error": told["no_change_ready_error"], "steal": told["steal"],
                "vcpus": told["vcpus"],
            }));
        }
    }
    let all =
        |of: &str, what: &str| -> Vec<f64> { cases.iter().filter_map(|c| c[of][what].as_f64()).collect() };
    let (ready, wake) = (all("prediction", "ready"), all("prediction", "wake_p99"));
    let no_change: Vec<f64> = cases.iter().filter_map(|c| c["no_change_ready_error"].as_f64()).collect();
    let points = |x: Option<f64>| x.map(|x| 100.0 * x);
    let local = json!({
        "cases": cases.len(),
        "ready_mae_points": points(mean(&ready)),
        "ready_median_points": points(quantile(&ready, 0.5)),
        "ready_worst_points": points(quantile(&ready, 1.0)),
        "wakeup_p99_error": mean(&wake),
        "wakeup_p99_worst": quantile(&wake, 1.0),
        "no_change_mae_points": points(mean(&no_change)),
        "calibration_mae_points": points(mean(&all("calibration", "ready"))),
        "calibration_p99_error": mean(&all("calibration", "wake_p99")),
    });
    let within = |x: Option<f64>, most: f64| x.is_some_and(|x| x <= most);
    let shown = |x: Option<f64>| x.map_or_else(|| "nothing waited".to_owned(), |x| format!("{x:.3}"));
    findings.claim(
        format!("local VMs: the ready share is foretold within {READY_POINTS} points, mean over vCPUs"),
        within(points(mean(&ready)), READY_POINTS),
        format!(
            "{} points; foretelling no change: {}",
            shown(points(mean(&ready))),
            shown(points(mean(&no_change)))
        ),
    );
    findings.claim(
        format!("local VMs: the wake-up p99 is foretold within {:.0} %", 100.0 * WAKE_PART),
        within(mean(&wake), WAKE_PART),
        shown(mean(&wake)),
    );
    findings.figures = json!({ "cases": cases, "summary": { "local": local } });
    Ok(findings)
}

/// One configuration: what `simulate --from A --under B` says, and the steal meanwhile.
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
