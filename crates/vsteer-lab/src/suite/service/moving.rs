//! If no weights keep all levels, is the right VM moved to a host with room, and do the levels hold then?
//!
//! Two libvirtds with separate folders, sockets, names and numbers act as two hosts. The VMs of the first are
//! pinned to pCPU 0, those of the second to pCPU 1. Three servers on the first ask for more than its pCPU.
//! `vsteer steer`, which knows the second host only through its libvirt, must report this and write a plan.
//! `vsteer apply` moves the VM while it serves. The response times before and after come from the guests' own
//! logs. `vsteer rollback` brings it back.
//!
//! The time of a request is measured first, from the work that a VM does in a second when it only works. The
//! speed of emulated VMs depends on the machine.
//!
//! Left out: hosts that do not share their files; a network between them.

use super::keep_on;
use crate::contention::{Lab, Options};
use crate::drive::{Vsteer, wait};
use crate::interrupt;
use crate::libvirtd;
use crate::report::clock::now_ns;
use crate::report::requests::requests_file;
use crate::suite::{Bench, Case, Findings, Minutes};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use vsteer_core::stats::mean;
use vsteer_core::{Fault, FaultKind};

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "move",
    doc: "where no weights hold all levels, a VM goes to another libvirt by vsteer's plan, serving all the while, and comes back",
    in_test: false,
    minutes: Minutes::new(10.0, 10.0),
    beside: false,
    run,
};

const SERVICE_S: f64 = 0.012;
/// Requests per second of each server, in turn: together 0.43 and 1.01 of a pCPU by their work alone, and a
/// tenth more with the overhead.
const RATES_HZ: (f64, f64) = (12.0, 28.0);
const QUIET_S: u64 = 40;
/// A VM that is already on the second host: a quarter of a pCPU.
const RESIDENT_HZ: f64 = 20.0;
const PERIOD_S: u64 = 10;
/// The allowed mean response time: ten times the bare work.
const LEVEL_S: f64 = 10.0 * SERVICE_S;
const WITHIN: Duration = Duration::from_secs(150);
/// The time in which the requests that piled up before the move are served.
const DRAINS: Duration = Duration::from_secs(60);
const LOOKED_AT: Duration = Duration::from_secs(40);
const LIMIT: Duration = Duration::from_secs(300);

fn failed(what: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Failed, what)
}

/// Work units that a vCPU does in a second when it is alone.
fn units_per_s(bench: &Bench) -> Result<f64, Fault> {
    bench.on_lab("burn=1x1", bench.seed, |lab, _| {
        let since = now_ns();
        wait("how fast is a vCPU here", Duration::from_secs(8))?;
        let of = lab.window(since, now_ns()).into_iter().find_map(|vm| vm.window);
        of.map(|w| w.work_units_per_s).ok_or_else(|| failed("the VM that works did not report"))
    })
}

fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// Mean response times of requests that arrived between two times, by VM, ms.
fn means_ms(logs: &[(String, PathBuf)], from_s: f64, to_s: f64) -> Result<Vec<f64>, Fault> {
    let of = |(_, file): &(String, PathBuf)| {
        let text = std::fs::read_to_string(file)
            .map_err(|e| Fault::io(format!("reading {}", file.display()), &e))?;
        let one = |line: &str| {
            let v: Value = serde_json::from_str(line).ok()?;
            let took = v["duration_us"].as_f64()? / 1e6;
            (from_s..to_s).contains(&(v["ts"].as_f64()? - took)).then_some(1e3 * took)
        };
        let took: Vec<f64> = text.lines().filter_map(one).collect();
        mean(&took).ok_or_else(|| failed(format!("no request in {} in that time", file.display())))
    };
    logs.iter().map(of).collect()
}

/// A running `vsteer steer`, which ends when this is dropped.
struct Steer {
    child: Child,
    out: PathBuf,
}

impl Steer {
    fn start(v: &Vsteer, folder: &Path, sla: &str, other: &str) -> Result<Steer, Fault> {
        std::fs::create_dir_all(folder).map_err(|e| Fault::io(format!("making {}", folder.display()), &e))?;
        let told = |e: std::io::Error| Fault::io(format!("writing in {}", folder.display()), &e);
        let (file, out) = (folder.join("sla.toml"), folder.join("said.jsonl"));
        std::fs::write(&file, sla).map_err(told)?;
        let file = file.to_string_lossy();
        let mut command = v.command(&["steer", "--sla", &file, "--yes", "--json", "--connect", &v.uri]);
        command.args(["--trust-uri", other]);
        let errors = std::fs::File::create(folder.join("said.txt")).map_err(told)?;
        command.stdin(Stdio::null()).stdout(std::fs::File::create(&out).map_err(told)?).stderr(errors);
        let child = command.spawn().map_err(|e| Fault::io("starting vsteer steer", &e))?;
        Ok(Steer { child, out })
    }

    fn said(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.out).unwrap_or_default();
        text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect()
    }

    /// The plan that it writes.
    fn plan(&mut self) -> Result<PathBuf, Fault> {
        let begun = Instant::now();
        loop {
            interrupt::check()?;
            if let Some(file) = self.said().iter().find_map(|l| l["plan"].as_str().map(PathBuf::from)) {
                return Ok(file);
            }
            let ended = self.child.try_wait().ok().flatten().is_some();
            if ended || begun.elapsed() > WITHIN {
                let words = std::fs::read_to_string(self.out.with_file_name("said.txt")).unwrap_or_default();
                let last =
                    self.said().last().map_or(String::new(), |l| format!("{} {}", l["why"], l["notes"]));
                return Err(failed("vsteer steer wrote no plan").because(format!("{words} {last}")));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Steer {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        let _ = self.child.wait();
    }
}

/// The hosts on which a VM with this name runs, according to the two libvirts' lists.
fn at(labs: [&Lab; 2], vm: &str) -> Result<Vec<usize>, Fault> {
    let mut all = Vec::new();
    for (i, lab) in labs.iter().enumerate() {
        if libvirtd::virsh(lab.dir(), &["list", "--name"])?.lines().any(|l| l.trim() == vm) {
            all.push(i);
        }
    }
    Ok(all)
}

fn run(bench: &Bench) -> Result<Findings, Fault> {
    interrupt::watch()?;
    let units = (SERVICE_S * units_per_s(bench)?).round();
    let server = |first_hz: f64, then_hz: f64, seed: u64| {
        format!(
            "server(rates={first_hz}@{QUIET_S}/{then_hz}@3600;mean_units={units};service=fixed;seed={seed})=1x1"
        )
    };
    let seeds = (0..3).map(|i| 10 * bench.seed + i);
    let crowded: Vec<String> = seeds.map(|seed| server(RATES_HZ.0, RATES_HZ.1, seed)).collect();
    let mut other = bench.clone();
    let dir = bench.lab.dir.with_file_name(format!(
        "{}-2",
        bench.lab.dir.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned())
    ));
    other.lab = Options { dir, ..bench.lab.clone() };
    let mut findings = Findings::default();
    // The second host first, because the first one's load begins as soon as it is up.
    let figures = other.on_lab(
        &server(RESIDENT_HZ, RESIDENT_HZ, 10 * bench.seed + 9),
        bench.seed + 1,
        |there, _| {
            keep_on(there, "1")?;
            bench.on_lab(&crowded.join(","), bench.seed, |here, v| {
                keep_on(here, "0")?;
                moved(bench, v, [here, there], &mut findings)
            })
        },
    )?;
    findings.figures = json!({"units_per_request": units, "moved": figures});
    Ok(findings)
}

fn moved(bench: &Bench, v: &Vsteer, labs: [&Lab; 2], findings: &mut Findings) -> Result<Value, Fault> {
    let [here, there] = labs;
    let logs: Vec<(String, PathBuf)> =
        here.state().vms.iter().map(|vm| (vm.name.clone(), requests_file(here.dir(), &vm.name))).collect();
    let mut sla = format!("period = \"{PERIOD_S}s\"\n");
    for (name, log) in &logs {
        let _ = write!(
            sla,
            "[[vm]]\nname = \"{name}\"\nlog = \"{}\"\nformat = \"json\"\nmean = \"{:.0}ms\"\n",
            log.display(),
            1e3 * LEVEL_S
        );
    }
    let _ = write!(sla, "[[host]]\nconnect = \"{}\"\ncpus = \"1\"\n", there.uri());
    let mut steer = Steer::start(v, &PathBuf::from(bench.fresh("move")?), &sla, there.uri())?;
    let plan_file = steer.plan()?;
    let plan: Value = std::fs::read_to_string(&plan_file)
        .ok()
        .and_then(|t| serde_json::from_str(&t).ok())
        .ok_or_else(|| failed(format!("{} is not a plan", plan_file.display())))?;
    let (step, id) = (&plan["steps"][0], plan["id"].as_str().unwrap_or_default().to_owned());
    let vm = step["vm_name"].as_str().unwrap_or_default().to_owned();
    wait("before the move", Duration::from_secs(PERIOD_S))?;
    let pins = || libvirtd::virsh(here.dir(), &["vcpupin", &vm]);
    let pins_before = pins()?;
    let begun_s = unix_s();
    let file = plan_file.to_string_lossy();
    let receipt =
        v.json(&["apply", &file, "--yes", "--connect", &v.uri, "--trust-uri", there.uri()], LIMIT)?;
    let done_s = unix_s();
    let (runs_at, before) = (at(labs, &vm)?, means_ms(&logs, begun_s - 2.0 * PERIOD_S as f64, begun_s)?);
    findings.claim(
        "the VM is moved by the plan, and serves on the other host",
        runs_at == [1] && receipt["state"] == "applied",
        format!("{} in {:.1} s: {}", plan["title"], done_s - begun_s, step["reason"]),
    );
    wait("what has piled up is served", DRAINS)?;
    let from_s = unix_s();
    wait("after the move", LOOKED_AT)?;
    let after = means_ms(&logs, from_s, unix_s() - 2.0)?;
    let level_ms = 1e3 * LEVEL_S;
    let told = |means: &[f64]| means.iter().map(|m| format!("{m:.0}")).collect::<Vec<_>>().join("/");
    findings.claim(
        "levels that no weights held hold after the move, on both hosts",
        before.iter().any(|m| *m > level_ms) && after.iter().all(|m| *m <= level_ms),
        format!("level {level_ms:.0} ms: {} -> {} ms", told(&before), told(&after)),
    );
    // Requests that arrived while the VM was moving.
    let on_the_way = means_ms(&logs, begun_s, done_s + 1.0)?;
    let lines = steer.said();
    drop(steer);
    v.run(&["rollback", &id, "--connect", &v.uri], false, LIMIT)?;
    let back = at(labs, &vm)?;
    findings.claim(
        "vsteer rollback brings it back, to the pCPUs where it was",
        back == [0] && pins()? == pins_before,
        format!("runs at {back:?}, {}", pins()?.split_whitespace().collect::<Vec<_>>().join(" ")),
    );
    Ok(
        json!({"plan": plan["title"], "reason": step["reason"], "took_s": done_s - begun_s, "level_ms": level_ms, "before_ms": before,
        "on_the_way_ms": on_the_way, "after_ms": after, "said": lines}),
    )
}
