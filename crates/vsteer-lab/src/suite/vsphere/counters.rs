//! Are counters read as they were planted, for groups and for vCPUs, at every interval that vSphere has?
//!
//! The simulator's values are in its `counters.go`: thousandths of each interval, so that shares are either
//! exact or wrong. A group has more than the sum of its vCPUs, so the test finds a group that was computed
//! from its vCPUs.

use super::driven::Driven;
use crate::suite::{Bench, Findings};
use crate::vsphere::simulator::Program;
use serde_json::Value;
use vsteer_core::Fault;

const VCPUS: u64 = 4;
const VMS: u32 = 3;
/// The planted values are whole ms; smaller differences come from arithmetic.
const EXACT: f64 = 1e-9;
/// Statistics, the time range of each, and what is kept in them: run of groups, vCPUs.
const KEPT: [(&str, &str, bool, bool); 4] = [
    ("5m", "2h", false, false),
    ("30m", "12h", true, false),
    ("2h", "3d", true, true),
    ("24h", "30d", true, true),
];

pub(super) fn run(
    bench: &Bench,
    program: &Program,
    password: &str,
    findings: &mut Findings,
) -> Result<(), Fault> {
    let driven = Driven::new(bench, program, password, 2, VMS)?;
    let uri = driven.uri();
    let plan = driven.json(&["plan", "--connect", &uri, "--for", "10m"])?;
    let numbers: Vec<(String, u64)> = numbers(&plan);
    let (mut off, mut seen) = (0.0f64, 0);
    for f in plan["forecast"]["vms"].as_array().into_iter().flatten() {
        let Some((_, v)) = numbers.iter().find(|(id, _)| f["vm"] == id.as_str()) else { continue };
        let sum = |of: &dyn Fn(u64) -> u64| (0..VCPUS).map(of).sum::<u64>() as f64 / 1000.0;
        let (run, ready) = (sum(&|k| 200 + 10 * k + v % 7), sum(&|k| 50 + 5 * k - 10));
        let told = |key: &str| f[key].as_f64().unwrap_or(f64::NAN);
        off = off.max((told("run_before") - run).abs()).max((told("ready_before") - ready).abs());
        seen += 1;
    }
    findings.claim(
        "plan reads the last ten minutes in real time, of the one host named, at once: run and ready summed over vCPUs as planted",
        seen == VMS && off < EXACT,
        format!("{seen} VMs, off by {off:e}"),
    );
    let folder = bench.fresh("vsphere-live")?;
    driven.json(&["record", "-o", &folder, "--connect", &uri, "--for", "50s"])?;
    let models = rows(&driven, &folder)?;
    check(&models, &numbers, true, true, "record, real time", findings);
    let model = models.last().cloned().unwrap_or_default();
    let missing = |model: &Value, what: &str| model["missing"][what].as_str().unwrap_or_default().to_owned();
    findings.claim(
        "a counter that is not kept is missing with the reason",
        missing(&model, "overlap_ns").contains("not kept in real time")
            && model["vms"][0]["group"]["overlap"].is_null(),
        missing(&model, "overlap_ns"),
    );
    for (statistics, length, run, vcpus) in KEPT {
        let folder = bench.fresh("vsphere-kept")?;
        driven.json(&[
            "record",
            "-o",
            &folder,
            "--connect",
            &uri,
            "--statistics",
            statistics,
            "--for",
            length,
        ])?;
        let models = rows(&driven, &folder)?;
        check(&models, &numbers, run, vcpus, &format!("record, statistics of every {statistics}"), findings);
        let model = models.last().cloned().unwrap_or_default();
        if !vcpus {
            let why = missing(&model, "vcpus");
            findings.claim(
                format!("statistics of every {statistics}: vsteer says that vCPUs are not counted apart"),
                why.contains("no single vCPUs"),
                why,
            );
        }
    }
    let top = driven.run(&["top", "-b", "-n", "1", "--connect", &uri])?;
    let rows = top.stdout.lines().filter(|l| l.contains("DC0_H0_VM")).count();
    findings.claim(
        "top shows a row of each group and vCPU",
        rows >= VMS as usize * (1 + VCPUS as usize),
        format!("{rows} rows"),
    );
    Ok(())
}

/// VMs with the numbers of their objects.
pub(super) fn numbers(plan: &Value) -> Vec<(String, u64)> {
    let of = |vm: &Value| {
        let object = vm["manager"]["vsphere"].as_str()?;
        Some((vm["id"].as_str()?.to_owned(), object.rsplit('-').next()?.parse().ok()?))
    };
    plan["parent"]["vms"].as_array().into_iter().flatten().filter_map(of).collect()
}

/// Each interval of a recording, as `replay` derives it.
fn rows(driven: &Driven, folder: &str) -> Result<Vec<Value>, Fault> {
    let said = driven.run(&["replay", folder, "-i", "1s", "--json"])?;
    Ok(said.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

fn check(
    models: &[Value],
    numbers: &[(String, u64)],
    run: bool,
    vcpus: bool,
    what: &str,
    findings: &mut Findings,
) {
    let (mut off, mut values, mut wrong) = (0.0f64, 0, Vec::new());
    let mut held = |name: String, value: &Value, planted: Option<u64>| match (value.as_f64(), planted) {
        (Some(is), Some(planted)) => {
            off = off.max((is - planted as f64 / 1000.0).abs());
            values += 1;
        }
        (None, None) => values += 1,
        (is, planted) => wrong.push(format!("{name} is {is:?} where {planted:?} was planted")),
    };
    let mut counts = Vec::new();
    for vm in models.iter().flat_map(|m| m["vms"].as_array().into_iter().flatten()) {
        let Some((id, v)) = numbers.iter().find(|(id, _)| vm["id"] == id.as_str()) else { continue };
        // Its other worlds have the value 9 for everything.
        let group = |of: &dyn Fn(u64) -> u64| Some((0..VCPUS).map(of).sum::<u64>() + 9);
        let g = &vm["group"];
        held(format!("{id} run"), &g["run"], group(&|k| 200 + 10 * k + v % 7).filter(|_| run));
        held(format!("{id} wait"), &g["wait"], group(&|k| 50 + 5 * k));
        held(format!("{id} limited"), &g["limited"], group(&|_| 10).filter(|_| run));
        held(format!("{id} co-stop"), &g["costop"], group(&|_| 4).filter(|_| run));
        let threads = vm["threads"].as_array().cloned().unwrap_or_default();
        counts.push(threads.len() as u64);
        for (t, k) in threads.iter().zip(0u64..) {
            let s = &t["shares"];
            held(format!("{id} vCPU {k} run"), &s["run"], Some(200 + 10 * k + v % 7));
            held(format!("{id} vCPU {k} wait"), &s["wait"], Some(50 + 5 * k));
            held(format!("{id} vCPU {k} ready"), &s["ready"], Some(50 + 5 * k - 10));
        }
    }
    findings.claim(
        format!("{what}: groups and vCPUs each as planted, what is not kept missing"),
        !models.is_empty()
            && counts == vec![if vcpus { VCPUS } else { 0 }; VMS as usize * models.len()]
            && wrong.is_empty()
            && off < EXACT,
        format!(
            "{} intervals, {} VMs in all, {values} values, off by {off:e}; {}",
            models.len(),
            counts.len(),
            wrong.join("; ")
        ),
    );
}
