//! Do the two collectors agree, and does eBPF account for every instant?
//!
//! The same 20 s by both, per vCPU: ready and limited together (polling cannot split them), of the waits that ended in
//! them (polling is told of a wait when it ends: one of 200 ms that is open at the window's end, and such there are, would
//! be ten times what is allowed), within 1 % of each other or 0.1 % of the window, and the residual of eBPF's four states within 0.5 %. Without a quota, with one per vCPU, and
//! with one for a whole VM of four vCPUs.

use super::{Bench, Case, Findings};
use crate::contention::Lab;
use crate::drive::Vsteer;
use crate::libvirtd;
use serde_json::{Value, json};
use std::time::Duration;
use vsteer_core::Fault;

/// Of each window. Up to half of what is allowed goes to a bias: a thread that is preempted by one waking up ran, by
/// the kernel's own clock, only until the wake-up (`rq_clock_skip_update()`), 2 to 7 us before the switch that eBPF sees.
const SECONDS: u64 = 20;

/// See the file's head.
pub const CASE: Case = Case {
    name: "collectors",
    doc: "eBPF and schedstat agree per vCPU, and eBPF's states leave no residual; with and without quotas",
    in_test: true,
    run,
};

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    let figures = bench.on_lab("burn=1x2,burn=1x4,periodic:2", bench.seed, |lab, v| {
        let plain = window(bench, v, "no quota", &mut findings)?;
        let (two, four) = (name_of(lab, 2), name_of(lab, 4));
        libvirtd::virsh(lab.dir(), &["schedinfo", &two, "--live", "--set", "vcpu_quota=30000"])?;
        libvirtd::virsh(lab.dir(), &["schedinfo", &four, "--live", "--set", "global_quota=60000"])?;
        let limited = window(bench, v, "quotas", &mut findings)?;
        for (vm, what) in
            [(&two, "per-vCPU quota of 0.3 pCPUs"), (&four, "whole-VM quota of 0.6 pCPUs on 4 vCPUs")]
        {
            let share =
                limited["vms"].as_array().and_then(|all| all.iter().find(|x| x["name"] == vm.as_str()));
            let share = share.and_then(|x| x["vcpus"]["limited"].as_f64()).unwrap_or(0.0);
            findings.claim(
                format!("{what}: limited is measured"),
                share > 0.2,
                format!("{:.1} % summed over vCPUs", 100.0 * share),
            );
        }
        Ok(json!({ "plain": plain, "quotas": limited }))
    })?;
    findings.figures = figures;
    Ok(findings)
}

/// A burner's name, by how many vCPUs it has.
fn name_of(lab: &Lab, vcpus: u32) -> String {
    let vm = lab.state().vms.iter().find(|v| v.vcpus == vcpus && v.workload.starts_with("burn"));
    vm.map(|v| v.name.clone()).unwrap_or_default()
}

fn window(bench: &Bench, v: &Vsteer, what: &str, findings: &mut Findings) -> Result<Value, Fault> {
    let (a, b) = (bench.fresh("ebpf.vsteer")?, bench.fresh("schedstat.vsteer")?);
    let words = [
        "record",
        "-o",
        &a,
        "--second",
        &b,
        "--collector",
        "ebpf",
        "--for",
        &format!("{SECONDS}s"),
        "--connect",
        &v.uri,
    ];
    v.run(&words, false, Duration::from_secs(SECONDS + 60))?;
    let mut ebpf = v.json(&["diagnose", &a], Duration::from_secs(60))?["model"].take();
    let polled = v.json(&["diagnose", &b], Duration::from_secs(60))?["model"].take();
    let (mut worst_wait, mut worst_residual, mut vcpus) = (0.0f64, 0.0f64, 0);
    let (mut worst_is, mut worst_with_open) = (String::new(), 0.0f64);
    let mut lines = Vec::new();
    for vm in ebpf["vms"].as_array().into_iter().flatten() {
        for t in vm["threads"].as_array().into_iter().flatten().filter(|t| t["role"]["vcpu"].is_u64()) {
            let of = |term: &str| t["shares"][term].as_f64().unwrap_or(f64::NAN);
            let other = polled["vms"]
                .as_array()
                .and_then(|all| all.iter().find(|x| x["id"] == vm["id"]))
                .and_then(|x| x["threads"].as_array()?.iter().find(|x| x["tid"] == t["tid"]));
            let other = other.and_then(|x| x["shares"]["wait"].as_f64()).unwrap_or(f64::NAN);
            let all = of("ready") + of("limited");
            // schedstat tells a wait when it ends: of both, the waits that ended in the window.
            let wait = t["waits_ended"].as_f64().unwrap_or(f64::NAN);
            let apart = |wait: f64| (wait - other).abs() / (0.01 * wait.max(other)).max(0.001);
            let off = apart(wait);
            worst_with_open = worst_with_open.max(apart(all));
            let residual = (1.0 - of("run") - all - of("blocked")).abs();
            if off.is_nan() || off > worst_wait {
                // NaN (not measured) must not pass for agreement.
                worst_wait = if off.is_nan() { f64::INFINITY } else { off };
                let (vm, vcpu) = (vm["name"].as_str().unwrap_or("?"), &t["role"]["vcpu"]);
                worst_is = format!(
                    "{vm} vCPU {vcpu}: {:.3} % by eBPF, {:.3} % by schedstat",
                    100.0 * wait,
                    100.0 * other
                );
            }
            worst_residual = if residual.is_nan() { f64::INFINITY } else { worst_residual.max(residual) };
            vcpus += 1;
            lines.push(json!({ "vm": vm["name"], "vcpu": t["role"]["vcpu"], "ebpf_wait": all, "ebpf_waits_ended": wait, "schedstat_wait": other,
                "ready": of("ready"), "limited": of("limited"), "residual": residual }));
        }
    }
    findings.claim(
        format!("{what}: ready and limited agree within 1 % or 0.1 % of the window, on every vCPU"),
        vcpus > 0 && worst_wait <= 1.0,
        format!(
            "{vcpus} vCPUs, worst at {worst_wait:.2} of what is allowed: {worst_is}; at {worst_with_open:.2} with the waits \
             that were open at the window's ends, of which schedstat tells nothing"
        ),
    );
    findings.claim(
        format!("{what}: running, ready, limited and blocked leave at most 0.5 %, on every vCPU"),
        vcpus > 0 && worst_residual <= 0.005,
        format!("worst {:.4} %", 100.0 * worst_residual),
    );
    let says = polled["missing"]["blocked_ns"].is_string() && polled["missing"]["ready_ns"].is_string();
    findings.claim(
        format!("{what}: polling says why it has no blocked and no ready"),
        says,
        polled["missing"].to_string(),
    );
    ebpf["vcpu_lines"] = json!(lines);
    Ok(ebpf)
}
