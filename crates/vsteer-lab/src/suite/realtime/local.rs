//! Without sched_ext: do priorities bring the timers of a real VM in time, at no cost to others?
//!
//! On this machine's own kernel and two pCPUs, beside two burners: the mean lateness of a guest's 10 ms
//! timers and the burners' work, with the service and without in turn. Then, on one pCPU, the share of a VM
//! that wakes all the time and wants as much as it can get. Then the service is killed, and the case checks
//! what remains of it. Times are those of a real machine with all its noise, so turns alternate. At full size
//! the means of all turns are judged. In the short case each pair of turns is a round that is judged with its
//! surroundings ([`crate::suite::judge`]).
//!
//! Burners may not report for seconds: when the load of the host changed, the fair class of Linux 6.18 left a
//! vCPU waiting for up to 6 s, with the service and without. So their work is interpolated at a turn's edges.
//! A turn that cannot be measured is repeated, and finally gives the reason.

use crate::command;
use crate::contention::Lab;
use crate::drive::{Vsteer, wait};
use crate::interrupt;
use crate::libvirtd;
use crate::process::{cpu_ns, stolen_ns};
use crate::report::clock::now_ns;
use crate::suite::judge::{Bound, Round, Rule, Verdict};
use crate::suite::surroundings::{Surroundings, Watch};
use crate::suite::{Bench, Findings, worst};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use vsteer_core::stats::mean;
use vsteer_core::{Fault, FaultKind};

const LIMIT: Duration = Duration::from_secs(120);
/// Turns at full size. In the short case the rules determine the number.
const ROUNDS: u32 = 5;
/// The length of a turn, at full size and in the short case, s.
const TURN_S: (u64, u64) = (10, 6);
/// The timers' VM must report over this part of a turn. Otherwise the lateness of half a turn would count for
/// all of it.
const COVERED_LEAST: f64 = 0.7;
/// How often to try one turn.
const TURN_TRIES: u32 = 3;
/// Settling time after a change.
const SETTLE: Duration = Duration::from_secs(2);
/// The largest mean lateness with the service, and the part of their work that the burners must keep.
const LATE_MOST_MS: f64 = 1.0;
const KEPT_LEAST: f64 = 0.95;
/// For the short case. A band is the difference between rounds that was seen on a calm machine.
const LATE: Rule =
    Rule { bound: Bound::AtMost(LATE_MOST_MS), band: 0.2, least: 3, most: 6, load_only_hurts: true };
const KEPT: Rule =
    Rule { bound: Bound::AtLeast(KEPT_LEAST), band: 0.03, least: 3, most: 6, load_only_hurts: false };
/// Other work on the pCPU only increases the error of the share.
const SHARE: Rule =
    Rule { bound: Bound::AtMost(FAIR), band: 0.002, least: 1, most: 4, load_only_hurts: true };
/// The allowed error of the share of a VM that floods, over this time.
const FAIR: f64 = 0.01;
const FAIR_OVER: Duration = Duration::from_secs(10);
/// The time until nothing of a killed service may remain.
const GONE_WITHIN: Duration = Duration::from_secs(1);

fn failed(what: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Failed, what)
}

/// The claims.
///
/// # Errors
/// The lab's.
pub fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    let beside = bench.on_lab("burn=2x2,periodic=1x2", bench.seed, |lab, v| {
        let kept = lateness(bench, lab, v, &mut findings);
        let killed = killed(lab, v, &mut findings);
        Ok(json!({ "turns": kept?, "killed": killed? }))
    })?;
    let flood = bench.on_lab("burn=2x1,waker(every_us=1000;sleep_us=1)=1x1", bench.seed, |lab, v| {
        shares(bench, lab, v, &mut findings)
    })?;
    findings.figures = json!({ "beside_burners": beside, "flood": flood });
    Ok(findings)
}

/// The VM with this workload.
fn named(lab: &Lab, workload: &str) -> Result<String, Fault> {
    let vm = lab.state().vms.iter().find(|vm| vm.workload.starts_with(workload));
    vm.map(|vm| vm.name.clone()).ok_or_else(|| failed(format!("no VM of workload {workload}")))
}

fn enable(v: &Vsteer, vm: &str) -> Result<Value, Fault> {
    let words = ["realtime", "enable", "--yes", "--by", "priority", "--vm", vm, "--connect", &v.uri];
    v.json(&words, LIMIT)
}

/// Ends the service if it runs, so that no case leaves it behind.
struct Service<'a>(&'a Vsteer);

impl Service<'_> {
    fn end(self) -> Result<Value, Fault> {
        let told = self.0.json(&["realtime", "disable"], LIMIT);
        std::mem::forget(self);
        told
    }
}

impl Drop for Service<'_> {
    fn drop(&mut self) {
        let _ = self.0.json(&["realtime", "disable"], LIMIT);
    }
}

/// The results of one turn.
struct Turn {
    measured: Measured,
    /// Why nothing was measured, in the last try.
    unmeasured: Option<String>,
    /// The use of the pCPUs in the turn.
    used: Used,
    around: Surroundings,
    told: Value,
}

/// The guests' measurements of a turn; NaN if they report nothing.
#[derive(Debug, Clone, Copy)]
struct Measured {
    late_ms: f64,
    /// The burners' units per second.
    work: f64,
}

/// The pCPUs that each used in a turn; if work is lost, this shows who gained it.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Used {
    guest: f64,
    burners: f64,
    service: f64,
    /// pCPUs that this machine's own hypervisor took, over all its pCPUs.
    stolen: f64,
}

impl Used {
    /// The use so far, ns.
    fn so_far(lab: &Lab, guest: &str, service: Option<i32>) -> Result<Used, Fault> {
        let mut used =
            Used { service: service.map_or(Ok(0.0), cpu_ns)?, stolen: stolen_ns()?, ..Used::default() };
        for vm in &lab.state().vms {
            let ns = cpu_ns(pid_of(lab, &vm.name)?)?;
            *(if vm.name == guest { &mut used.guest } else { &mut used.burners }) += ns;
        }
        Ok(used)
    }

    fn since(self, before: Used, ns: f64) -> Used {
        let of = |now: f64, before: f64| (now - before) / ns;
        Used {
            guest: of(self.guest, before.guest),
            burners: of(self.burners, before.burners),
            service: of(self.service, before.service),
            stolen: of(self.stolen, before.stolen),
        }
    }
}

/// Repeats a turn that could not be measured.
fn turn(lab: &Lab, v: &Vsteer, vm: &str, with: bool, length: Duration) -> Result<Turn, Fault> {
    let mut turn = turn_once(lab, v, vm, with, length)?;
    for _ in 1..TURN_TRIES {
        let Some(why) = &turn.unmeasured else { break };
        eprintln!("vsteer-lab: {why}; the turn is made again");
        turn = turn_once(lab, v, vm, with, length)?;
    }
    Ok(turn)
}

fn turn_once(lab: &Lab, v: &Vsteer, vm: &str, with: bool, length: Duration) -> Result<Turn, Fault> {
    let begun = if with { Some(enable(v, vm)?) } else { None };
    let service = begun.as_ref().map(|_| Service(v));
    let pid = begun.and_then(|begun| i32::try_from(begun["pid"].as_i64()?).ok());
    wait("settling", SETTLE)?;
    let since = now_ns();
    let watch = Watch::start(&pids_of(lab)?.into_iter().chain(pid).collect::<Vec<_>>())?;
    let (before, begin) = (Used::so_far(lab, vm, pid)?, Instant::now());
    wait(if with { "with the service" } else { "without" }, length)?;
    let until = now_ns();
    let used = Used::so_far(lab, vm, pid)?.since(before, begin.elapsed().as_nanos() as f64);
    let around = watch.end()?;
    let measured = measured(lab, vm, since, until);
    let told = service.map(Service::end).transpose()?.unwrap_or_default();
    let (measured, unmeasured) = match measured {
        Ok(measured) => (measured, None),
        Err(fault) if fault.kind == FaultKind::NothingThere => {
            let why = fault.cause.unwrap_or_default();
            (Measured { late_ms: f64::NAN, work: f64::NAN }, Some(format!("{}: {why}", fault.what)))
        }
        Err(fault) => return Err(fault),
    };
    Ok(Turn { measured, unmeasured, used, around, told })
}

/// Lateness of the timers and work of the burners.
fn measured(lab: &Lab, timers: &str, since: u64, until: u64) -> Result<Measured, Fault> {
    let vms = lab.window(since, until);
    let of_timers = vms.iter().find(|m| m.vm == timers).ok_or_else(|| failed("the timers' VM is gone"))?;
    let covered = of_timers.window.as_ref().map_or(0.0, |w| w.window_s);
    if covered * 1e9 < COVERED_LEAST * (until - since) as f64 {
        let what = format!("VM \"{timers}\" did not report throughout");
        let why = format!("its reports cover {covered:.1} s");
        return Err(Fault::new(FaultKind::NothingThere, what).because(why));
    }
    let late = of_timers.window.as_ref().and_then(|w| w.lateness.as_ref());
    let late = late.ok_or_else(|| failed("the timers' VM tells no lateness"))?;
    let burners = vms.iter().filter(|m| m.workload.starts_with("burn"));
    let work = burners.map(|m| lab.work_per_s(&m.vm, since, until)).sum::<Result<f64, Fault>>()?;
    Ok(Measured { late_ms: late.mean_ms, work })
}

fn lateness(bench: &Bench, lab: &Lab, v: &Vsteer, findings: &mut Findings) -> Result<Value, Fault> {
    let vm = named(lab, "periodic")?;
    let length = Duration::from_secs(if bench.full { TURN_S.0 } else { TURN_S.1 });
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let (mut lates, mut kepts) = (Vec::new(), Vec::new());
    loop {
        let (before, after) = (turn(lab, v, &vm, false, length)?, turn(lab, v, &vm, true, length)?);
        let silent = || after.unmeasured.clone().or_else(|| before.unmeasured.clone());
        let disturbed = after.unmeasured.clone().or_else(|| after.around.disturbed());
        lates.push(Round { value: after.measured.late_ms, disturbed });
        let disturbed = silent().or_else(|| after.around.moved(&before.around));
        kepts.push(Round { value: after.measured.work / before.measured.work, disturbed });
        without.push(before);
        with.push(after);
        let again = [LATE.judge(&lates), KEPT.judge(&kepts)].contains(&Verdict::Again);
        if if bench.full { with.len() == ROUNDS as usize } else { !again } {
            break;
        }
    }
    let late = |turns: &[Turn]| turns.iter().map(|t| t.measured.late_ms).collect::<Vec<_>>();
    let work = |turns: &[Turn]| turns.iter().map(|t| t.measured.work).collect::<Vec<_>>();
    let of = |all: &[f64]| mean(all).unwrap_or(f64::NAN);
    let pcpus =
        |turns: &[Turn], part: fn(&Used) -> f64| of(&turns.iter().map(|t| part(&t.used)).collect::<Vec<_>>());
    let used = |turns: &[Turn]| turns.iter().map(|t| t.used).collect::<Vec<_>>();
    let (before, after) = (late(&without), late(&with));
    let claim = "beside two burners a guest's 10 ms timers are late by 1 ms on average, at most";
    let told =
        format!("{:.2} ms, without {:.2}; in turn {before:.2?} and {after:.2?}", of(&after), of(&before));
    if bench.full {
        findings.claim(claim, of(&after) <= LATE_MOST_MS, told);
    } else {
        LATE.claim(findings, claim, &lates, told);
    }
    let kept = of(&work(&with)) / of(&work(&without));
    let claim = "the burners keep 95 % of their work, at least";
    let told = format!(
        "{:.1} %; pCPUs: burners {:.3}, without {:.3}; guest {:.3}, without {:.3}; the service itself {:.3}; stolen from this machine {:.3}, \
             without {:.3}; other work {:.2?}, without {:.2?}",
        100.0 * kept,
        pcpus(&with, |u| u.burners),
        pcpus(&without, |u| u.burners),
        pcpus(&with, |u| u.guest),
        pcpus(&without, |u| u.guest),
        pcpus(&with, |u| u.service),
        pcpus(&with, |u| u.stolen),
        pcpus(&without, |u| u.stolen),
        with.iter().map(|t| t.around.others).collect::<Vec<_>>(),
        without.iter().map(|t| t.around.others).collect::<Vec<_>>(),
    );
    if bench.full {
        findings.claim(claim, kept >= KEPT_LEAST, told);
    } else {
        KEPT.claim(findings, claim, &kepts, told);
    }
    let told = &with[0].told["ended"]["vms"][0];
    findings.claim(
        "the service tells how long from waking to running, and that the VM was first",
        told["wake_to_running_us"]["count"].as_u64().is_some_and(|n| n > 100)
            && told["first_s"].as_f64().is_some_and(|s| s > 0.9 * length.as_secs_f64()),
        format!(
            "{} times, half of them within {:.0} us, 99 % within {:.0}; first for {:.1} s",
            told["wake_to_running_us"]["count"],
            told["wake_to_running_us"]["p50"].as_f64().unwrap_or(f64::NAN),
            told["wake_to_running_us"]["p99"].as_f64().unwrap_or(f64::NAN),
            told["first_s"].as_f64().unwrap_or(f64::NAN)
        ),
    );
    Ok(json!({ "late_ms_without": before, "late_ms_with": after, "work_without": work(&without),
        "work_with": work(&with), "pcpus_without": used(&without), "pcpus_with": used(&with),
        "around_without": without.iter().map(|t| &t.around).collect::<Vec<_>>(),
        "around_with": with.iter().map(|t| &t.around).collect::<Vec<_>>(), "told": told }))
}

/// What remains of a service that was killed.
fn killed(lab: &Lab, v: &Vsteer, findings: &mut Findings) -> Result<Value, Fault> {
    let vm = named(lab, "periodic")?;
    let before = v.settings()?;
    let begun = enable(v, &vm)?;
    wait("being first", SETTLE)?;
    let during = v.settings()?;
    let raised = real_time(&during);
    let pid = begun["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    let pid =
        pid.and_then(rustix::process::Pid::from_raw).ok_or_else(|| failed("the service has no number"))?;
    let killed_at = Instant::now();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)
        .map_err(|e| failed("killing the service").because(e))?;
    std::thread::sleep(GONE_WITHIN);
    let late = killed_at.elapsed();
    let after = v.settings()?;
    findings.claim(
        "1 s after SIGKILL of the service no thread is in a real-time class, and budgets are as found",
        raised > 0 && real_time(&after) == 0 && after == before,
        format!(
            "{raised} threads before, {} after {:.2} s; settings {}",
            real_time(&after),
            late.as_secs_f64(),
            if after == before { "equal" } else { "differ" }
        ),
    );
    let status = command::run(&mut v.command(&["realtime", "status"]), LIMIT)?;
    let again = enable(v, &vm).map(|_| Service(v).end());
    findings.claim(
        "then the service is said not to run, and can be begun again",
        status.stderr.contains("is not running") && again.is_ok_and(|ended| ended.is_ok()),
        status.stderr.trim().to_owned(),
    );
    Ok(json!({ "raised": raised }))
}

/// The number of threads in a real-time class.
fn real_time(vms: &Value) -> usize {
    let threads =
        vms.as_array().into_iter().flatten().flat_map(|vm| vm["threads"].as_array().into_iter().flatten());
    threads.filter(|t| t["class"].get("round_robin").is_some() || t["class"].get("fifo").is_some()).count()
}

/// The process that runs a VM.
fn pid_of(lab: &Lab, name: &str) -> Result<i32, Fault> {
    let process = libvirtd::pid_of(lab.dir(), name);
    process.map(|p| p.pid).ok_or_else(|| failed(format!("{name} does not run")))
}

/// The processes of all VMs.
fn pids_of(lab: &Lab) -> Result<Vec<i32>, Fault> {
    lab.state().vms.iter().map(|vm| pid_of(lab, &vm.name)).collect()
}

/// Each VM's part of what all VMs got over a while.
fn parts(lab: &Lab, names: &[String]) -> Result<Vec<f64>, Fault> {
    let pids = names.iter().map(|name| pid_of(lab, name)).collect::<Result<Vec<_>, _>>()?;
    let all = || pids.iter().map(|pid| cpu_ns(*pid)).collect::<Result<Vec<_>, _>>();
    let before = all()?;
    let begun = Instant::now();
    while begun.elapsed() < FAIR_OVER {
        interrupt::check()?;
        std::thread::sleep(Duration::from_millis(100));
    }
    let got: Vec<f64> = all()?.iter().zip(before).map(|(now, before)| now - before).collect();
    let sum: f64 = got.iter().sum();
    Ok(got.iter().map(|ns| ns / sum).collect())
}

/// A VM that wakes every ms and wants as much as it can get, beside two burners, all on one pCPU.
fn shares(bench: &Bench, lab: &Lab, v: &Vsteer, findings: &mut Findings) -> Result<Value, Fault> {
    let flood = named(lab, "waker")?;
    let names: Vec<String> = lab.state().vms.iter().map(|vm| vm.name.clone()).collect();
    for name in &names {
        libvirtd::virsh(lab.dir(), &["vcpupin", name, "0", "1", "--live"])?;
        libvirtd::virsh(lab.dir(), &["emulatorpin", name, "1", "--live"])?;
    }
    wait("settling on one pCPU", SETTLE)?;
    let at = names.iter().position(|name| *name == flood).unwrap_or(0);
    let due = 1.0 / names.len() as f64;
    let (mut without, mut with, mut rounds) = (Vec::new(), Vec::new(), Vec::new());
    let told = loop {
        if bench.full {
            without.push(parts(lab, &names)?[at]);
        }
        let begun = enable(v, &flood)?;
        let service = Service(v);
        let pid = begun["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        let watch = Watch::start(&pids_of(lab)?.into_iter().chain(pid).collect::<Vec<_>>())?;
        // From the start of the service, because its first time of priority counts.
        let share = parts(lab, &names)?[at];
        rounds.push(Round { value: (share / due - 1.0).abs(), disturbed: watch.end()?.disturbed() });
        with.push(share);
        let told = service.end()?;
        let again = SHARE.judge(&rounds) == Verdict::Again;
        if if bench.full { with.len() == ROUNDS as usize } else { !again } {
            break told;
        }
    };
    let first_s = told["ended"]["vms"][0]["first_s"].as_f64().unwrap_or(f64::NAN);
    findings.claim(
        "it ran first until its credit was used up",
        first_s > 0.0 && told["ended"]["vms"][0]["first"] == false,
        format!("first for {:.0} ms of 10 s", 1e3 * first_s),
    );
    let claim = "a VM that wakes all the time and wants all it can get has its share over 10 s, within 1 %";
    let shown = format!("{with:.4?} of {due:.4}; without the service {without:.4?}");
    if bench.full {
        findings.claim(claim, worst(rounds.iter().map(|r| r.value)) <= FAIR, shown);
    } else {
        SHARE.claim(findings, claim, &rounds, shown);
    }
    Ok(json!({ "share_without": without, "share_with": with, "due": due, "told": told["ended"]["vms"] }))
}
