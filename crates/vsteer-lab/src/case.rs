//! Cases that test the lab itself: each starts a lab, checks it, and takes it down.
//!
//! The checks of a case are claims with the value that was found. Left out: claims about vsteer, which belong
//! to its own lab cases.

use crate::contention::{Lab, Options, down};
use crate::report::window::VmMeasured;
use crate::{interrupt, libvirtd};
use serde::Serialize;
use std::time::{Duration, Instant};
use vsteer_core::Fault;

/// A claim and its result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    pub claim: String,
    /// Did it hold?
    pub held: bool,
    /// Why the claim could not be judged. `None`: it was judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_judged: Option<String>,
    /// What was found.
    pub found: String,
}

/// The result of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The evidence supports the claim.
    Held,
    /// The evidence contradicts the claim, or nothing was measured.
    Failed,
    /// Something other than vsteer made the evidence useless.
    NotJudged,
}

impl Check {
    /// A claim that held or failed.
    pub fn new(claim: impl Into<String>, held: bool, found: impl Into<String>) -> Check {
        Check { claim: claim.into(), held, not_judged: None, found: found.into() }
    }

    /// A claim that could not be judged.
    pub fn not_judged(claim: impl Into<String>, why: impl Into<String>, found: impl Into<String>) -> Check {
        Check { claim: claim.into(), held: false, not_judged: Some(why.into()), found: found.into() }
    }

    /// The result of the claim.
    pub fn outcome(&self) -> Outcome {
        match (self.held, &self.not_judged) {
            (_, Some(_)) => Outcome::NotJudged,
            (true, None) => Outcome::Held,
            (false, None) => Outcome::Failed,
        }
    }
}

impl Check {
    /// `ok`, `FAIL` or `skip`, four letters wide.
    pub fn word(&self) -> &'static str {
        match self.outcome() {
            Outcome::Held => "ok  ",
            Outcome::Failed => "FAIL",
            Outcome::NotJudged => "skip",
        }
    }

    /// The claim and the found value as text.
    pub fn told(&self) -> String {
        match &self.not_judged {
            Some(why) => format!("{} (not judged: {why}; {})", self.claim, self.found),
            None => format!("{} ({})", self.claim, self.found),
        }
    }
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.word(), self.told())
    }
}

/// The results of the case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Contention {
    pub case: &'static str,
    /// Did every claim hold?
    pub passed: bool,
    pub seed: u64,
    /// KVM or emulation, and why.
    pub accel: String,
    /// From the start to the last first report of a guest, s.
    pub up_s: f64,
    /// Time to take everything down, s.
    pub down_s: f64,
    pub checks: Vec<Check>,
    /// What the guests measured.
    pub vms: Vec<VmMeasured>,
}

/// Starts the contention lab, lets it run for `duration`, checks it and takes it down.
///
/// # Errors
/// It does not start or does not go away. A claim that does not hold is in the result.
pub fn contention(options: &Options, duration: Duration) -> Result<Contention, Fault> {
    let begun = Instant::now();
    let lab = Lab::up(options)?;
    let up_s = begun.elapsed().as_secs_f64();
    let looked = look(&lab, duration);
    let begun = Instant::now();
    let downed = down::down(lab.dir());
    let down_s = begun.elapsed().as_secs_f64();
    let (vms, mut checks) = looked?;
    let downed = downed?;
    checks.push(Check::new(
        "no process, mount, cgroup or folder is left",
        downed.leftovers.is_empty(),
        format!("{:?}, {} processes were ended", downed.leftovers, downed.processes_ended),
    ));
    let again = down::down(lab.dir())?;
    checks.push(Check::new(
        "taking down twice does nothing the second time",
        !again.was_there && again.processes_ended == 0,
        format!("{again:?}"),
    ));
    Ok(Contention {
        case: "contention",
        passed: checks.iter().all(|c| c.held),
        seed: lab.state().seed,
        accel: format!("{}: {}", lab.state().accel.accel, lab.state().accel.reason),
        up_s,
        down_s,
        checks,
        vms,
    })
}

fn look(lab: &Lab, duration: Duration) -> Result<(Vec<VmMeasured>, Vec<Check>), Fault> {
    let since_ns = crate::report::clock::now_ns();
    eprintln!("vsteer-lab: measuring for {} s", duration.as_secs());
    let begun = Instant::now();
    while begun.elapsed() < duration {
        interrupt::check()?;
        std::thread::sleep(Duration::from_millis(100));
    }
    let vms = lab.window(since_ns, crate::report::clock::now_ns());
    let mut checks: Vec<Check> = vms.iter().flat_map(check_workload).collect();
    checks.extend(check_controls(lab)?);
    Ok((vms, checks))
}

/// The counts that a guest must have reached, by its workload.
fn check_workload(vm: &VmMeasured) -> Vec<Check> {
    let check =
        |claim: &str, held: bool, found: String| Check::new(format!("{}: {claim}", vm.vm), held, found);
    let Some(w) = &vm.window else {
        return vec![check("it reports", false, vm.absent.clone().unwrap_or_default())];
    };
    let kind = vm.workload.split(',').next().unwrap_or_default();
    let mut checks = vec![check("it reports", w.reports > 1, format!("{} reports", w.reports))];
    if let Some(ratio) = w.guest_clock_ratio {
        checks.push(check(
            "its clock runs with the host's within 2 %",
            (ratio - 1.0).abs() < 0.02,
            format!("{ratio:.4}"),
        ));
    }
    if matches!(kind, "burn" | "burst" | "waker" | "server") {
        let rate = w.work_units_per_s;
        checks.push(check(&format!("{kind} does work"), rate > 0.0, format!("{rate:.0} units/s")));
    }
    if kind == "periodic" {
        let period_us =
            vm.workload.split_once("period_us=").and_then(|(_, v)| v.parse().ok()).unwrap_or(10_000.0);
        // Every expiry counts, however late. So the number follows from the period alone, except for expiries
        // that a stall delays across an edge of the window.
        let expected = w.window_s * f64::from(vm.vcpus) * 1e6 / period_us;
        let counted = w.lateness.map_or(0, |l| l.n) as f64;
        let found = format!("{counted} of {expected:.0}");
        checks.push(check(
            "periodic counts its expiries within 30 %",
            (counted / expected - 1.0).abs() < 0.3,
            found,
        ));
    }
    if kind == "server" {
        let answered = w.response.map_or(0, |r| r.n);
        checks.push(check("server answers", answered > 0, format!("{answered} requests")));
    }
    checks
}

/// Checks that settings which vsteer would make on these VMs really take effect.
fn check_controls(lab: &Lab) -> Result<Vec<Check>, Fault> {
    let Some(vm) = lab.state().vms.first() else { return Ok(Vec::new()) };
    let name = vm.name.as_str();
    let virsh = |arguments: &[&str]| libvirtd::virsh(lab.dir(), arguments);
    let mut checks = Vec::new();

    virsh(&["vcpupin", name, "0", "0", "--live"])?;
    virsh(&["emulatorpin", name, "0", "--live"])?;
    let pins = virsh(&["vcpuinfo", name, "--pretty"])?;
    let pinned = pins.lines().find(|l| l.starts_with("CPU Affinity")).unwrap_or_default();
    let held = pinned.split(':').nth(1).is_some_and(|v| v.trim().starts_with("0 "));
    checks.push(Check::new("a vCPU's pin is set and read back", held, pinned));

    virsh(&["schedinfo", name, "--live", "--set", "cpu_shares=2048", "--set", "vcpu_quota=50000"])?;
    let partition = lab.state().partition();
    let knobs = cgroup_knobs(&partition);
    for (knobs_of, value) in
        [(&["cpu.shares", "cpu.weight"][..], "2048"), (&["cpu.cfs_quota_us", "cpu.max"], "50000")]
    {
        let found: Vec<String> = knobs
            .iter()
            .filter(|(k, v)| knobs_of.contains(&k.as_str()) && v.starts_with(value))
            .map(|(k, v)| format!("{k}={v}"))
            .collect();
        checks.push(Check::new(
            format!("{} of {value} lands in a cgroup", knobs_of.join(" or ")),
            !found.is_empty(),
            found.join(" "),
        ));
    }
    Ok(checks)
}

/// Every CPU setting below the partition, as name and value.
fn cgroup_knobs(partition: &str) -> Vec<(String, String)> {
    let mut folders = crate::partition::folders(partition);
    let mut knobs = Vec::new();
    while let Some(folder) = folders.pop() {
        for knob in ["cpu.shares", "cpu.weight", "cpu.cfs_quota_us", "cpu.max"] {
            if let Ok(value) = std::fs::read_to_string(folder.join(knob)) {
                knobs.push((knob.to_owned(), value.trim().to_owned()));
            }
        }
        folders.extend(crate::process::subfolders(&folder));
    }
    knobs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::histogram::Summary;
    use crate::report::window::VmWindow;

    fn measured(workload: &str, n: u64, rate: f64) -> VmMeasured {
        let window = VmWindow {
            since_ns: 0,
            until_ns: 10_000_000_000,
            window_s: 10.0,
            reports: 11,
            work_units_per_s: rate,
            lateness: (n > 0).then_some(Summary { n, mean_ms: 1.0, p50_ms: 1.0, p99_ms: 1.0, max_ms: 1.0 }),
            response: None,
            user_percent: None,
            system_percent: None,
            idle_percent: None,
            steal_percent: None,
            guest_clock_ratio: Some(1.0),
        };
        VmMeasured {
            vm: "amber-elm".into(),
            workload: workload.into(),
            vcpus: 2,
            absent: None,
            window: Some(window),
        }
    }

    #[test]
    fn claims_can_fail() {
        let hold = |vm: &VmMeasured| check_workload(vm).iter().all(|c| c.held);
        let held = |workload: &str, n, rate| hold(&measured(workload, n, rate));
        assert!(held("burn", 0, 5.0) && !held("burn", 0, 0.0));
        assert!(held("periodic", 2_000, 0.0) && !held("periodic", 1_000, 0.0) && !held("periodic", 0, 0.0));
        assert!(held("periodic,period_us=5000", 4_000, 0.0) && !held("periodic,period_us=5000", 2_000, 0.0));
        assert!(!held("server", 0, 5.0));
        let mut drifting = measured("burn", 0, 5.0);
        drifting.window.as_mut().unwrap().guest_clock_ratio = Some(1.03);
        assert!(!hold(&drifting));
        let starved = VmMeasured { window: None, absent: Some("why".into()), ..measured("burn", 0, 5.0) };
        assert!(!hold(&starved));
    }
}
