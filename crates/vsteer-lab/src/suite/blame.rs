//! Does blame name the process that made a VM wait?
//!
//! The rows of the blame matrix sum to the waiting VM's ready time within 1 %. A planted process that
//! occupies the only pCPU of a VM gets at least 90 % of its ready time. A VM alone on the host waits because
//! of placement, not because of another thread.
//!
//! All three use one boot; for the last two the other VMs are stopped. This machine's other work also gets
//! blame, so those windows are rounds that are judged with their surroundings.

use super::judge::{Bound, Round, Rule, Verdict};
use super::stopped::Stopped;
use super::surroundings::{Surroundings, Watch};
use super::{Bench, Case, Findings, Minutes};
use crate::contention::Lab;
use crate::drive::{self, Vsteer, wait};
use crate::libvirtd;
use crate::process::busy_on_ns;
use crate::suite::steered::failed;
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use vsteer_core::Fault;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "blame",
    doc: "blame rows sum to ready time, a planted culprit is named, idle pCPUs are charged to placement",
    in_test: true,
    minutes: Minutes::new(1.2, 2.0),
    beside: false,
    run,
};

/// Name (comm) of the planted thread.
pub const HOG: &str = "planted-hog";
const LIMIT: Duration = Duration::from_secs(90);
const VMS: &str = "burn=1x2,burn=1x1,periodic=1x2,periodic=1x1";
const VMS_ALL: usize = 4;
/// Rows with a smaller ready share are not compared: of so little time, the error is too large a part.
const READY_LEAST: f64 = 0.001;
/// The smallest ready share that a planted hog must cause, and its part of that.
const PLANTED_READY: f64 = 0.05;
/// The hog must get nine tenths. Others may use a third of the remaining tenth, pCPUs.
const PLANTED_OTHERS: f64 = 0.03;
const PLANTED: Rule =
    Rule { bound: Bound::AtLeast(0.9), band: 0.02, least: 1, most: 4, load_only_hurts: true };
/// The part of the ready time with an idle pCPU that is blamed on placement.
const PLACED: Rule =
    Rule { bound: Bound::AtLeast(0.5), band: 0.1, least: 1, most: 4, load_only_hurts: false };

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    findings.figures = bench.on_lab(VMS, bench.seed, |lab, v| {
        let looks = Looks { bench, lab, v, length: if bench.full { "20s" } else { "8s" } };
        let contended = looks.diagnosed("blame.vsteer")?;
        rows_sum_up(&contended, &mut findings);
        let idle = looks.alone(&mut findings)?;
        let planted = looks.planted(&mut findings)?;
        let blame = |diagnosed: &Value| diagnosed["model"]["blame"].clone();
        Ok(json!({ "contended": blame(&contended), "alone": blame(&idle), "planted": blame(&planted) }))
    })?;
    Ok(findings)
}

fn rows_sum_up(diagnosed: &Value, findings: &mut Findings) {
    let vms = diagnosed["model"]["vms"].as_array().into_iter().flatten();
    let of = |vm: &Value| {
        let ready = vm["group"]["ready"].as_f64().unwrap_or(f64::NAN);
        (vm["name"].to_string(), ready, charged(diagnosed, vm, |_| true))
    };
    let all: Vec<(String, f64, f64)> = vms.map(of).collect();
    let told = |(name, ready, sum): &(String, f64, f64)| {
        format!("{name} {:.2} % against {:.2} % ready", 100.0 * sum, 100.0 * ready)
    };
    findings.claim_each(
        "the blame rows of each VM sum to its ready time, which is not 0, within 1 %",
        all.iter().map(|(_, ready, sum)| *ready >= READY_LEAST && (sum - ready).abs() <= 0.01 * ready),
        VMS_ALL,
        "VMs",
        all.iter().map(told).collect::<Vec<_>>().join(", "),
    );
}

/// A planted hog. It is a child of this process, so that it ends whatever happens to the recording.
struct Hog(Child);

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Looks<'a> {
    bench: &'a Bench,
    lab: &'a Lab,
    v: &'a Vsteer,
    length: &'a str,
}

impl Looks<'_> {
    /// The VM with this workload and one vCPU, and its process.
    fn single(&self, workload: &str) -> Result<(String, i32), Fault> {
        let is = |vm: &&crate::state::Vm| vm.vcpus == 1 && vm.workload.starts_with(workload);
        let vm = self.lab.state().vms.iter().find(is).ok_or_else(|| failed("no VM of one vCPU"))?;
        let process = libvirtd::pid_of(self.lab.dir(), &vm.name).ok_or_else(|| failed("a VM is gone"))?;
        Ok((vm.name.clone(), process.pid))
    }

    fn diagnosed(&self, name: &str) -> Result<Value, Fault> {
        let r = self.bench.fresh(name)?;
        let words = ["record", "-o", &r, "--for", self.length, "--connect", &self.v.uri];
        self.v.run(&words, false, LIMIT)?;
        self.v.json(&["diagnose", &r], LIMIT)
    }

    /// A recording, with the other work of the machine or the pCPU.
    fn watched(&self, name: &str, watch: Watch) -> Result<(Value, Surroundings), Fault> {
        let diagnosed = self.diagnosed(name)?;
        Ok((diagnosed, watch.end()?))
    }

    /// VMs with only timers: both pCPUs are idle nearly all the time. A burner would not work here. Its vCPU
    /// keeps one pCPU busy. Its emulator thread wakes on the other pCPU and waits there for the running
    /// thread, and no pCPU is idle.
    fn alone(&self, findings: &mut Findings) -> Result<Value, Fault> {
        let (name, pid) = self.single("periodic")?;
        let _others = Stopped::all_but(self.lab, &name)?;
        let (mut rounds, mut told, mut by_others) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let (diagnosed, around) = self.watched("idle.vsteer", Watch::start(&[pid])?)?;
            let vm = of_name(&diagnosed, &name);
            let all = charged(&diagnosed, &vm, |_| true);
            let placement = charged(&diagnosed, &vm, |c| c == "placement");
            by_others.push(charged(&diagnosed, &vm, |c| c["vm"].is_string() && c["vm"] != vm["id"]));
            let pcpus = diagnosed["model"]["pcpus"].as_array().map_or(0, Vec::len).max(1) as f64;
            let free = 1.0 - (around.others / pcpus).clamp(0.0, 1.0);
            rounds.push(Round { value: placement / (free * all), disturbed: around.disturbed() });
            told.push(format!(
                "{:.3} % ready, of which {:.0} % placement; {around}",
                100.0 * all,
                100.0 * placement / all
            ));
            if PLACED.judge(&rounds) == Verdict::Again {
                continue;
            }
            PLACED.claim(
                findings,
                "alone on the host, half of the ready time or more is placement, less what else keeps pCPUs busy",
                &rounds,
                told.join(" | "),
            );
            findings.claim_at_most(
                "alone on the host, a VM does not wait for another VM",
                &by_others,
                0.0,
                1,
                "windows",
                format!("{by_others:?} of the time"),
            );
            return Ok(diagnosed);
        }
    }

    /// The pCPU with least other work, now that nearly all VMs are stopped.
    fn calmest() -> Result<usize, Fault> {
        let pcpus = std::thread::available_parallelism().map_or(1, usize::from);
        let busy = || (0..pcpus).map(busy_on_ns).collect::<Result<Vec<f64>, Fault>>();
        let before = busy()?;
        wait("which pCPU is calm", Duration::from_secs(1))?;
        let used: Vec<f64> = busy()?.iter().zip(before).map(|(now, before)| now - before).collect();
        Ok((0..pcpus).min_by(|a, b| used[*a].total_cmp(&used[*b])).unwrap_or(0))
    }

    /// The burner on one pCPU, alone with the hog: all its waits are because of the hog.
    fn planted(&self, findings: &mut Findings) -> Result<Value, Fault> {
        let (name, pid) = self.single("burn")?;
        let _others = Stopped::all_but(self.lab, &name)?;
        let pcpu = Looks::calmest()?;
        let on = pcpu.to_string();
        libvirtd::virsh(self.lab.dir(), &["vcpupin", &name, "0", &on, "--live"])?;
        libvirtd::virsh(self.lab.dir(), &["emulatorpin", &name, &on, "--live"])?;
        let hog = Command::new(&self.bench.lab.program)
            .args(["hog", "--cpu", &on, "--seconds", "180"])
            .stdin(Stdio::null())
            .spawn();
        let hog = Hog(hog.map_err(|e| Fault::io("planting the hog", &e))?);
        let (mut rounds, mut told) = (Vec::new(), Vec::new());
        loop {
            let (diagnosed, around) =
                self.watched("planted.vsteer", Watch::on(pcpu, &[pid, hog.0.id() as i32])?)?;
            let vm = of_name(&diagnosed, &name);
            let ready = charged(&diagnosed, &vm, |_| true);
            let by_hog = charged(&diagnosed, &vm, |c| c["process"]["comm"] == HOG);
            let value = if ready > PLANTED_READY { by_hog / ready } else { f64::NAN };
            rounds.push(Round { value, disturbed: around.disturbed_above(PLANTED_OTHERS) });
            told.push(format!("{:.1} % of {:.1} % ready; {around}", 100.0 * by_hog / ready, 100.0 * ready));
            if PLANTED.judge(&rounds) == Verdict::Again {
                continue;
            }
            PLANTED.claim(
                findings,
                "a planted culprit gets at least 90 % of the ready time",
                &rounds,
                told.join(" | "),
            );
            let all = drive::findings(&diagnosed).into_iter();
            let named: Vec<&Value> =
                all.filter(|f| f["rule"] == "host_process").map(|f| &f["title"]).collect();
            findings.claim(
                "the finding host_process names it",
                named.iter().any(|title| title.to_string().contains(HOG)),
                format!("{named:?}"),
            );
            return Ok(diagnosed);
        }
    }
}

fn of_name(diagnosed: &Value, name: &str) -> Value {
    let vms = diagnosed["model"]["vms"].as_array();
    vms.and_then(|all| all.iter().find(|vm| vm["name"] == name)).cloned().unwrap_or_default()
}

/// How long a VM waited because of the culprits that `of` selects, as a share of the window.
fn charged(diagnosis: &Value, vm: &Value, of: impl Fn(&Value) -> bool) -> f64 {
    let rows = diagnosis["model"]["blame"].as_array().into_iter().flatten();
    rows.filter(|b| b["victim"] == vm["id"] && of(&b["culprit"])).filter_map(|b| b["share"].as_f64()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Outcome;

    fn diagnosed(ready: f64, share: f64) -> Value {
        let vms: Vec<Value> = (0..VMS_ALL)
            .map(|n| json!({ "id": n, "name": format!("vm{n}"), "group": { "ready": ready } }))
            .collect();
        let rows: Vec<Value> =
            (0..VMS_ALL).map(|n| json!({ "victim": n, "culprit": "placement", "share": share })).collect();
        json!({ "model": { "vms": vms, "blame": rows } })
    }

    #[test]
    fn rows_of_no_ready_time_are_no_evidence() {
        let outcome = |d: &Value| {
            let mut findings = Findings::default();
            rows_sum_up(d, &mut findings);
            findings.checks[0].outcome()
        };
        assert_eq!(outcome(&diagnosed(0.2, 0.2)), Outcome::Held);
        assert_eq!(outcome(&diagnosed(0.2, 0.21)), Outcome::Failed);
        assert_eq!(outcome(&diagnosed(0.0, 0.0)), Outcome::Failed);
        assert_eq!(outcome(&json!({ "model": { "vms": [], "blame": [] } })), Outcome::Failed);
    }
}
