//! Does the observer tell the truth where every instant is known? On the emulated host, in exact virtual time.
//!
//! A job of a few cases on one pCPU, on the oldest and the newest kernel that qualify, each booted twice: the second time
//! while every pCPU of this machine is kept busy. What is claimed: the observer runs there; a vCPU's four states leave no
//! residual; two VMs that want all of a pCPU get all of it; a quota shows as limited time; what a guest measures as
//! lateness is what the observer recorded as wake-up latency, plus the way into the guest; both boots give the same
//! bytes. Times are counts of instructions (see [`crate::emulated`]).

use super::{Bench, Case, Findings};
use crate::drive::Vsteer;
use crate::emulated::job::Job;
use crate::emulated::results::CaseResult;
use crate::emulated::{self, Options, Ran};
use crate::fetch::cache_folder;
use crate::fetch::kernels::Which;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use vsteer_core::Fault;

/// See the file's head.
pub const CASE: Case = Case {
    name: "emulated",
    doc: "on a host in exact virtual time: states, quotas and lateness as the guests know them, twice the same bytes",
    in_test: true,
    run,
};

/// One boot's limit, on a machine that is kept busy besides.
const LIMIT: Duration = Duration::from_secs(900);
/// What a wake-up takes beyond the wait for a pCPU: the timer's interrupt, the way out of KVM's sleep and into the guest.
const WAY_IN_MOST_MS: f64 = 0.25;
/// Both sides' histograms have buckets, of an eighth and a sixteenth.
const BUCKETS: f64 = 0.15;
const RESIDUAL_MOST: f64 = 0.005;
/// The burner's quota: 30 ms in 100 ms.
const QUOTA: f64 = 0.3;

fn job(full: bool) -> Result<Job, Fault> {
    let pair = "[[case.vm]]\nname = \"timer\"\nworkload = \"periodic,period_us=10000,work_units=20\"\ncpus = \"1\"\n\
                [[case.vm]]\nname = \"burner\"\nworkload = \"burn\"\ncpus = \"1\"\n";
    let mut text = format!("[[case]]\nname = \"pair\"\nrecord_s = {}\n{pair}", if full { 20 } else { 5 });
    if full {
        text += &format!("[[case]]\nname = \"quota\"\nrecord_s = 20\n{pair}quota_us = 30000\n");
        text += "[[case]]\nname = \"server\"\nrecord_s = 20\n\
                 [[case.vm]]\nname = \"server\"\nvcpus = 2\nworkload = \"server,rate_hz=50,mean_units=100\"\ncpus = \"1\"\n\
                 [[case.process]]\nname = \"hog\"\nworkload = \"burn\"\ncpus = \"1\"\n";
    }
    Job::parse(&text)
}

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    let vsteer = Vsteer { state: bench.output.join("state"), ..Vsteer::beside(&bench.lab.program)? };
    let kernels: &[Which] = if bench.full { &[Which::Oldest, Which::Newest] } else { &[Which::Newest] };
    let mut figures = Vec::new();
    for which in kernels {
        let once = |name: &str| -> Result<Ran, Fault> {
            let options = Options {
                cache: cache_folder()?,
                kernel: *which,
                guest: bench.lab.guest.clone(),
                vsteer: vsteer.program.clone(),
                output: PathBuf::from(bench.fresh(name)?),
                limit: LIMIT,
                seed: bench.seed,
            };
            emulated::run(&job(bench.full)?, &options)
        };
        let first = once("emulated-1")?;
        let kernel = format!("Linux {}", first.kernel.release);
        for case in &first.cases {
            figures.push(look(&kernel, case, &vsteer, &mut findings)?);
        }
        let loaded = Load::start(&bench.lab.program)?;
        let second = once("emulated-2");
        drop(loaded);
        let second = second?;
        findings.claim(
            format!("{kernel}: booted again while every pCPU here is busy, all results are the same bytes"),
            first.sha256 == second.sha256,
            format!(
                "{} and {}, in {:.0} s and {:.0} s",
                first.sha256, second.sha256, first.took_s, second.took_s
            ),
        );
        figures.push(
            json!({ "kernel": first.kernel, "qemu": first.qemu, "sha256": [first.sha256, second.sha256],
            "took_s": [first.took_s, second.took_s], "ns_per_instruction": first.ns_per_instruction }),
        );
    }
    findings.figures = json!(figures);
    Ok(findings)
}

/// The claims about one case.
fn look(kernel: &str, case: &CaseResult, vsteer: &Vsteer, findings: &mut Findings) -> Result<Value, Fault> {
    let recording = case.recording.as_ref().expect("the case's jobs record").to_string_lossy().into_owned();
    let model = vsteer.json(&["diagnose", &recording], Duration::from_secs(60))?["model"].take();
    let what = format!("{kernel}, {}", case.name);
    let vcpus: Vec<&Value> = model["vms"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|vm| vm["threads"].as_array().into_iter().flatten())
        .filter(|t| t["role"]["vcpu"].is_u64())
        .collect();
    let share = |t: &Value, term: &str| t["shares"][term].as_f64();
    let states = ["run", "ready", "limited", "blocked"];
    let residuals: Vec<f64> = vcpus
        .iter()
        .map(|t| states.iter().map(|s| share(t, s)).sum::<Option<f64>>().map_or(1.0, |sum| (1.0 - sum).abs()))
        .collect();
    let worst = residuals.iter().copied().fold(0.0, f64::max);
    findings.claim(
        format!("{what}: running, ready, limited and blocked are measured and sum to the window"),
        !residuals.is_empty() && worst <= RESIDUAL_MOST,
        format!("{} vCPUs, worst residual {:.4} %", residuals.len(), 100.0 * worst),
    );
    let outside = |t: &Value| Some((share(t, "exit")?, share(t, "halt_poll")?, share(t, "run")?));
    let seen: Vec<Option<(f64, f64, f64)>> = vcpus.iter().map(|t| outside(t)).collect();
    let sound =
        |o: &Option<(f64, f64, f64)>| o.is_some_and(|(exit, poll, run)| exit > 0.0 && exit + poll < run);
    findings.claim(
        format!("{what}: time outside the guest and in halt polling is measured, and is a part of run"),
        !seen.is_empty() && seen.iter().all(sound),
        if seen.iter().any(Option::is_none) { model["missing"].to_string() } else { format!("{seen:?}") },
    );
    let vm = |name: &str| model["vms"].as_array().and_then(|all| all.iter().find(|vm| vm["name"] == name));
    let of = |name: &str, term: &str| vm(name).and_then(|v| v["vcpus"][term].as_f64()).unwrap_or(f64::NAN);
    let measured = |name: &str| case.measured.iter().flatten().find(|m| m.name == name);
    if case.name == "pair" {
        let both = of("timer", "run") + of("burner", "run");
        findings.claim(
            format!("{what}: the two VMs have all of their pCPU"),
            (0.97..=1.001).contains(&both),
            format!("{:.2} %", 100.0 * both),
        );
    }
    if case.name == "quota" {
        let (run, limited) = (of("burner", "run"), of("burner", "limited"));
        findings.claim(
            format!("{what}: a quota of {QUOTA} pCPUs shows as limited time"),
            (run - QUOTA).abs() <= 0.02 && limited > 0.3,
            format!("running {:.1} %, limited {:.1} %", 100.0 * run, 100.0 * limited),
        );
    }
    if let (Some(lateness), Some(vm)) = (measured("timer").and_then(|m| m.window.lateness), vm("timer")) {
        let recorded = |q: &str| vm["wake_latency"][q].as_f64().unwrap_or(f64::NAN) / 1e6;
        let pairs = [(lateness.p50_ms, recorded("p50_ns")), (lateness.p99_ms, recorded("p99_ns"))];
        let fits = |(late, wake): &(f64, f64)| {
            *late >= wake * (1.0 - BUCKETS) && *late <= wake * (1.0 + BUCKETS) + WAY_IN_MOST_MS
        };
        findings.claim(
            format!(
                "{what}: the guest's lateness is the recorded wake-up latency and the way into the guest"
            ),
            pairs.iter().all(fits),
            format!(
                "median {:.3} ms against {:.3} ms, p99 {:.3} ms against {:.3} ms, of {} timers",
                pairs[0].0, pairs[0].1, pairs[1].0, pairs[1].1, lateness.n
            ),
        );
    }
    Ok(json!({ "case": what, "vms": model["vms"], "measured": case.measured, "missing": model["missing"] }))
}

/// Keeps every pCPU of this machine busy until it is dropped.
struct Load(Vec<Child>);

impl Load {
    fn start(program: &std::path::Path) -> Result<Load, Fault> {
        let pcpus = std::thread::available_parallelism().map_or(1, usize::from);
        let mut load = Load(Vec::new());
        for cpu in 0..pcpus {
            let mut command = Command::new(program);
            command.args(["hog", "--seconds", &LIMIT.as_secs().to_string(), "--cpu", &cpu.to_string()]);
            let child = command.stdin(Stdio::null()).spawn();
            load.0.push(child.map_err(|e| Fault::io("starting what keeps this machine busy", &e))?);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended by itself needs no ending.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
