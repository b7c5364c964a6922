//! Is the one who made a VM wait named?
//!
//! The rows of the blame matrix sum to the victim's ready time within 1 %; a planted process that hogs the only pCPU a
//! VM may use gets at least 90 % of its ready time; a VM alone on the host waits for placement, not for a runner.

use super::{Bench, Case, Findings, Minutes};
use crate::libvirtd;
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// See the file's head.
pub const CASE: Case = Case {
    name: "blame",
    doc: "blame rows sum to ready time, a planted culprit is named, idle pCPUs are charged to placement",
    in_test: true,
    minutes: Minutes::new(1.5, 2.0),
    beside: false,
    run,
};

/// Name (comm) of the planted thread.
pub const HOG: &str = "planted-hog";

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    let length = if bench.full { "20s" } else { "8s" };
    let contended = bench.on_lab("burn:2,periodic:2", bench.seed, |_, v| {
        let r = bench.fresh("blame.vsteer")?;
        v.run(&["record", "-o", &r, "--for", length, "--connect", &v.uri], false, Duration::from_secs(90))?;
        v.json(&["diagnose", &r], Duration::from_secs(60))
    })?;
    for vm in contended["model"]["vms"].as_array().into_iter().flatten() {
        let (ready, sum) =
            (vm["group"]["ready"].as_f64().unwrap_or(f64::NAN), charged(&contended, vm, |_| true));
        findings.claim(
            format!("the blame rows of {} sum to its ready time within 1 %", vm["name"]),
            (sum - ready).abs() <= 0.01 * ready,
            format!("{:.2} % against {:.2} %", 100.0 * sum, 100.0 * ready),
        );
    }
    // Timers alone: both pCPUs idle nearly all the time. (A burner alone would not do: its vCPU keeps one pCPU busy, and
    // its emulator thread, woken onto the other, waits there for whoever runs, with no pCPU idle.)
    let idle = bench.on_lab("periodic=1x1", bench.seed, |_, v| {
        let r = bench.fresh("idle.vsteer")?;
        v.run(&["record", "-o", &r, "--for", length, "--connect", &v.uri], false, Duration::from_secs(90))?;
        v.json(&["diagnose", &r], Duration::from_secs(60))
    })?;
    // The burner on pCPU 0 alone, with the hog: whatever it waits, it waits for the hog.
    let planted = bench.on_lab("burn=1x1", bench.seed, |lab, v| {
        let name = &lab.state().vms[0].name;
        libvirtd::virsh(lab.dir(), &["vcpupin", name, "0", "0", "--live"])?;
        libvirtd::virsh(lab.dir(), &["emulatorpin", name, "0", "--live"])?;
        let mut hog = Command::new(&bench.lab.program)
            .args(["hog", "--cpu", "0", "--seconds", "60"])
            .stdin(Stdio::null())
            .spawn()
            .map_err(|e| Fault::io("planting the hog", &e))?;
        let r = bench.fresh("planted.vsteer")?;
        let recorded = v.run(
            &["record", "-o", &r, "--for", length, "--connect", &v.uri],
            false,
            Duration::from_secs(90),
        );
        // Ours, by its handle, whatever became of the recording.
        let _ = hog.kill();
        let _ = hog.wait();
        recorded?;
        v.json(&["diagnose", &r], Duration::from_secs(60))
    })?;
    let first = |d: &Value| d["model"]["vms"][0].clone();
    let vm = first(&planted);
    let (ready, hog) =
        (charged(&planted, &vm, |_| true), charged(&planted, &vm, |c| c["process"]["comm"] == HOG));
    findings.claim(
        "a planted culprit gets at least 90 % of the ready time",
        ready > 0.05 && hog >= 0.9 * ready,
        format!("{:.1} % of {:.1} % ready", 100.0 * hog / ready, 100.0 * ready),
    );
    let named = planted["findings"].as_array().into_iter().flatten().any(|f| f["rule"] == "host_process");
    findings.claim("the finding host_process names it", named, planted["findings"][0]["title"].to_string());
    let vm = first(&idle);
    let (all, others) =
        (charged(&idle, &vm, |_| true), charged(&idle, &vm, |c| c["vm"].is_string() && c["vm"] != vm["id"]));
    let placement = charged(&idle, &vm, |c| c == "placement");
    // What else runs on this machine is no runner's fault either, but it leaves less to placement.
    let pcpus = idle["model"]["pcpus"].as_array().map_or(&[][..], Vec::as_slice);
    let run = vm["group"]["run"].as_f64().unwrap_or(0.0);
    let busy = pcpus.iter().filter_map(|p| p["busy"].as_f64()).sum::<f64>() - run;
    let free = 1.0 - (busy / pcpus.len().max(1) as f64).clamp(0.0, 1.0);
    findings.claim(
        "alone on the host, half of the ready time or more is placement, less what else keeps pCPUs busy",
        placement >= 0.5 * free * all && others == 0.0,
        format!(
            "{:.3} % ready, of which {:.0} % placement; other work kept the pCPUs {:.0} % busy",
            100.0 * all,
            100.0 * placement / all,
            100.0 * (1.0 - free)
        ),
    );
    findings.figures =
        json!({ "contended": contended["model"]["blame"], "planted": planted["model"]["blame"] });
    if ready.is_nan() {
        return Err(Fault::new(FaultKind::Failed, "nothing was measured"));
    }
    Ok(findings)
}

/// What a VM was made to wait by the culprits that `of` picks, as a share of the window.
fn charged(diagnosis: &Value, vm: &Value, of: impl Fn(&Value) -> bool) -> f64 {
    let rows = diagnosis["model"]["blame"].as_array().into_iter().flatten();
    rows.filter(|b| b["victim"] == vm["id"] && of(&b["culprit"])).filter_map(|b| b["share"].as_f64()).sum()
}
