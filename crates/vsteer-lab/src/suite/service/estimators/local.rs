//! How large are the errors of the estimators of response times on local VMs, in wall-clock time, on a
//! machine with other users?
//!
//! The published first scenario with Poisson arrivals: three servers with one vCPU each, whose whole VMs
//! (vCPUs and emulator threads) share one pCPU. Each interval is recorded separately and forecast from the
//! previous one, as on the emulated host (estimators.rs). What clients saw is in the guests' own request
//! logs.
//!
//! **How much work is a request?** The time of a work unit depends on this machine's emulation, and every
//! request takes more than its work: timers, wake-ups, the emulator's thread, the reports. So three servers
//! are started first whose requests differ only in work, at the rate that all have together under load. Their
//! CPU times give both costs. From these follow the units with which the published rates make a load of
//! [`TARGET`].
//!
//! **The claims** are weaker than on the emulated host. A run of minutes depends on chance arrivals and on
//! the machine's steal and neighbours, and three seeds give a floor from only a few pairs. So errors and
//! floor are only printed. The only claim is that `own` forecasts means better than three estimators that
//! ignore the queue of the others (`paper`, `sandpiper`) or the change (`last`). There are three seeds,
//! because with one seed an interval that is long by chance would decide. More would make the case longer
//! than the emulated ones.
//!
//! Left out: several pCPUs (the claim for one is not settled yet), and other mixes.

use super::{LOADED, estimate, in_words, own_is_nearest, summary_of};
use crate::contention::Lab;
use crate::drive::{Vsteer, wait};
use crate::interrupt;
use crate::report::clock::now_ns;
use crate::report::requests::requests_file;
use crate::suite::service::keep_on;
use crate::suite::{Bench, Case, Findings, Minutes};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "estimators-local",
    doc: "the part of `estimators` on local VMs: own tells means better than paper, sandpiper and last",
    in_test: false,
    minutes: Minutes::new(40.0, 40.0),
    beside: false,
    run,
};

const NAMES: [&str; 3] = ["vm1", "vm2", "vm3"];
/// CPU time of a request, ms, as published.
const REQUEST_MS: [f64; 3] = [6.6, 6.6, 1.7];
/// The pCPU that the servers share, and the pCPU of everything else in the lab.
const SHARED_PCPU: usize = 1;
const ASIDE_PCPU: usize = 0;
/// The intended load, which is that of the published rates and CPU times. And the accepted range: below it,
/// nothing waits; above it, the length of waits depends mostly on chance.
const TARGET: f64 = 0.88;
const LOAD: std::ops::RangeInclusive<f64> = 0.75..=0.95;
/// The estimators that `own` must beat.
const BEATEN: [&str; 3] = ["paper", "sandpiper", "last"];
/// If others used more than this of the shared pCPU, requests waited for them, and the measurement is not
/// valid.
const OTHERS_MOST: f64 = 0.1;

/// From an interval's start to its recording, in which the rest of the previous load is served; and from its
/// recording to its end.
const SETTLE: Duration = Duration::from_secs(2);
const SPARE: Duration = Duration::from_secs(3);
/// From its start to its first sample an observer needs a second plus a part of this.
const OBSERVER_STARTS: Duration = Duration::from_secs(3);
/// The time until answered requests are in the logs.
const LOGGED: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(120);

/// Intervals and the servers' rates in them.
struct Scenario {
    intervals_s: &'static [u64],
    rates_hz: [&'static [u32]; 3],
    seeds: u64,
}

const FULL: Scenario = Scenario {
    intervals_s: &[100, 80, 60, 80],
    rates_hz: [&[15, 45, 10, 45], &[15, 45, 10, 45], &[70, 170, 50, 170]],
    seeds: 3,
};
/// Enough to test all parts.
const SHORT: Scenario =
    Scenario { intervals_s: &[40, 30], rates_hz: [&[15, 45], &[15, 45], &[70, 170]], seeds: 1 };

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    let figures = part(bench, &mut findings)?;
    findings.figures = json!({ "local": figures });
    Ok(findings)
}

/// Runs it, makes the claims, and returns the numbers.
///
/// # Errors
/// The machine has only one pCPU; the lab's; vsteer's.
pub(super) fn part(bench: &Bench, findings: &mut Findings) -> Result<Value, Fault> {
    interrupt::watch()?;
    let scenario = if bench.full { FULL } else { SHORT };
    let before = Stat::now()?;
    let mut told = Vec::new();
    for seed in bench.seed..bench.seed + scenario.seeds {
        // The machine's speed changes with its neighbours' work, so each seed has its own calibration.
        let cost = calibrated(bench, seed)?;
        eprintln!(
            "vsteer-lab: a work unit takes {:.2} us, a request {:.0} us beside",
            cost.unit_us, cost.request_us
        );
        told.push(one(bench, &scenario, &cost, seed)?);
    }
    let steal = Stat::now()?.steal_since(&before);
    let summary = summary_of(&told, scenario.seeds as usize);
    let loads: Vec<f64> = told.iter().flat_map(loads).collect();
    let steal_words = steal.map_or("steal is unknown".to_owned(), |s| format!("{:.1} % stolen", 100.0 * s));
    let shown: Vec<String> = loads.iter().map(|l| format!("{:.0} %", 100.0 * l)).collect();
    findings.claim(
        "local VMs: the loaded intervals are as loaded as they were meant to be (75 to 95 %)",
        !loads.is_empty() && loads.iter().all(|l| LOAD.contains(l)),
        format!("{}; {steal_words}", shown.join(", ")),
    );
    if bench.full {
        findings.claim(
            "local VMs: own tells means of loaded intervals better than paper, sandpiper and last",
            summary["own"]["mean"].is_f64() && own_is_nearest(&summary, "mean", &BEATEN),
            format!(
                "means: {}; 95th percentiles: {}; {steal_words}",
                in_words(&summary, "mean"),
                in_words(&summary, "p95")
            ),
        );
    } else {
        // A loaded half minute is too short for more claims.
        findings.claim(
            "local VMs: own tells of every VM in the loaded interval",
            summary["own"]["of"] == 3 && summary["own"]["unanswered"] == 0,
            in_words(&summary, "mean"),
        );
    }
    Ok(json!({"summary": summary, "runs": told, "steal": steal, "load_above": LOADED}))
}

/// The measured loads of the intervals that should be loaded: every second one.
fn loads(run: &Value) -> impl Iterator<Item = f64> {
    let all = run["estimate"]["intervals"].as_array().into_iter().flatten();
    all.skip(1).step_by(2).filter_map(|i| i["load"].as_f64())
}

/// The CPU time of requests on this machine, including emulator threads.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cost {
    /// CPU time of a work unit.
    unit_us: f64,
    /// CPU time of a request without its work.
    request_us: f64,
}

/// Work units of the calibration's requests.
const FEW_UNITS: u32 = 20;
const MANY_UNITS: u32 = 320;
/// Three times this is the rate of all servers together under load.
const CALIBRATION_HZ: u32 = 87;
const CALIBRATION: Duration = Duration::from_secs(12);

impl Cost {
    /// From the CPU times of requests with few and with many units, s.
    fn of(few_s: f64, many_s: f64) -> Option<Cost> {
        let unit_us = 1e6 * (many_s - few_s) / f64::from(MANY_UNITS - FEW_UNITS);
        let request_us = 1e6 * few_s - f64::from(FEW_UNITS) * unit_us;
        (unit_us > 0.0 && request_us >= 0.0).then_some(Cost { unit_us, request_us })
    }

    /// Work units of each server's requests, so that the loaded interval's load is [`TARGET`].
    fn units(&self, scenario: &Scenario) -> [u32; 3] {
        let loaded = |i: usize| f64::from(scenario.rates_hz[i].iter().copied().max().unwrap_or(0));
        let published: f64 = (0..3).map(|i| loaded(i) * REQUEST_MS[i] / 1e3).sum();
        REQUEST_MS.map(|ms| {
            let work_us = 1e3 * ms * TARGET / published - self.request_us;
            (work_us / self.unit_us).round().max(1.0) as u32
        })
    }
}

/// A short lab of servers whose requests differ only in work.
fn calibrated(bench: &Bench, seed: u64) -> Result<Cost, Fault> {
    let server = |units: u32, seed: u64| {
        format!("server(rates={CALIBRATION_HZ}@600;mean_units={units};service=fixed;seed={seed})=1x1")
    };
    let spec = [server(FEW_UNITS, 1), server(FEW_UNITS, 2), server(MANY_UNITS, 3)].join(",");
    let _aside = Aside::on(ASIDE_PCPU)?;
    let seen = bench.on_lab(&spec, seed, |lab, v| {
        keep_on(lab, &SHARED_PCPU.to_string())?;
        wait("letting the pins settle", SETTLE)?;
        let recording = bench.fresh("estimators-local-calibration.vsteer")?;
        record(v, &recording, CALIBRATION)?;
        wait("letting logs be written", LOGGED)?;
        let logs: Vec<(String, PathBuf)> =
            lab.state().vms.iter().map(|vm| (vm.name.clone(), requests_file(lab.dir(), &vm.name))).collect();
        let names = logs.iter().map(|(vm, log)| (vm.as_str(), log.as_path()));
        let told = estimate(v, names, &[recording.into()])?;
        quiet(&told)?;
        let vms = told["intervals"][0]["vms"].as_array().cloned().unwrap_or_default();
        let of_units = |units: u32| {
            let has = |workload: &str| workload.contains(&format!("mean_units={units},"));
            let of = lab.state().vms.iter().zip(&vms).filter(|(vm, _)| has(&vm.workload));
            // All of its CPU time, including that not caused by requests.
            let whole = |seen: &Value| {
                Some(seen["service_s"].as_f64()? + seen["beside"].as_f64()? / seen["rate_hz"].as_f64()?)
            };
            let of: Vec<f64> = of.filter_map(|(_, seen)| whole(seen)).collect();
            vsteer_core::stats::mean(&of)
        };
        Ok(of_units(FEW_UNITS).zip(of_units(MANY_UNITS)))
    })?;
    seen.and_then(|(few_s, many_s)| Cost::of(few_s, many_s)).ok_or_else(|| {
        Fault::new(FaultKind::Failed, "what a work unit takes could not be measured")
            .because(format!("CPU time of requests with {FEW_UNITS} and {MANY_UNITS} units, s: {seen:?}"))
            .help("repeat it when the machine is less busy")
    })
}

/// Did the VMs have the shared pCPU for themselves in all intervals?
fn quiet(told: &Value) -> Result<(), Fault> {
    let of = |interval: &Value| interval["others_pcpus"].as_f64();
    let others = told["intervals"].as_array().into_iter().flatten().filter_map(of).fold(0.0, f64::max);
    if others <= OTHERS_MOST {
        return Ok(());
    }
    Err(Fault::new(FaultKind::Failed, format!("pCPU {SHARED_PCPU} was not the VMs' own"))
        .because(format!("others used {others:.2} of it"))
        .help("repeat it when nothing else runs on this machine"))
}

/// One seed: records every interval, and forecasts each from the previous one.
fn one(bench: &Bench, scenario: &Scenario, cost: &Cost, seed: u64) -> Result<Value, Fault> {
    let units = cost.units(scenario);
    let workload = |i: usize| {
        let rates: Vec<String> =
            scenario.rates_hz[i].iter().zip(scenario.intervals_s).map(|(r, s)| format!("{r}@{s}")).collect();
        let seed = 100 * seed + i as u64;
        [
            format!("rates={}", rates.join("/")),
            format!("mean_units={}", units[i]),
            "service=fixed".into(),
            format!("seed={seed}"),
        ]
    };
    let spec: Vec<String> = (0..3).map(|i| format!("server({})=1x1", workload(i).join(";"))).collect();
    let run = format!("estimators-local-{seed}");
    let folder = PathBuf::from(bench.fresh(&run)?);
    std::fs::create_dir_all(&folder).map_err(|e| Fault::io(format!("making {}", folder.display()), &e))?;
    let begun = Stat::now()?;
    let aside = Aside::on(ASIDE_PCPU)?;
    let (vsteer, logs, recordings) = bench.on_lab(&spec.join(","), seed, |lab, v| {
        keep_on(lab, &SHARED_PCPU.to_string())?;
        let recordings = record_intervals(lab, v, scenario, &folder)?;
        wait("letting logs be written", LOGGED)?;
        // The lab removes its own copies at its end.
        let kept = |i: usize| {
            let is = format!("server,{}", workload(i).join(","));
            let vm = lab.state().vms.iter().find(|vm| vm.workload == is);
            let vm = vm.ok_or_else(|| Fault::new(FaultKind::Failed, format!("no VM is {is}")))?;
            let to = folder.join(format!("{}.log", NAMES[i]));
            std::fs::copy(requests_file(lab.dir(), &vm.name), &to)
                .map_err(|e| Fault::io(format!("writing {}", to.display()), &e))?;
            Ok((vm.name.clone(), to))
        };
        let logs = (0..3).map(kept).collect::<Result<Vec<(String, PathBuf)>, Fault>>()?;
        Ok((v.clone(), logs, recordings))
    })?;
    drop(aside);
    let steal = Stat::now()?.steal_since(&begun);
    eprintln!("vsteer-lab: estimating {run}");
    let estimate = estimate(&vsteer, logs.iter().map(|(vm, log)| (vm.as_str(), log.as_path())), &recordings)?;
    quiet(&estimate)?;
    Ok(
        json!({"run": run, "units": units, "unit_us": cost.unit_us, "request_us": cost.request_us, "steal": steal,
        "estimate": estimate}),
    )
}

/// Records each interval separately, into this folder.
fn record_intervals(
    lab: &Lab,
    v: &Vsteer,
    scenario: &Scenario,
    folder: &std::path::Path,
) -> Result<Vec<PathBuf>, Fault> {
    let mut recordings = Vec::new();
    let mut begin_s = 0;
    for (i, length_s) in scenario.intervals_s.iter().enumerate() {
        // VMs that boot one after the other also begin one after the other. And the longer they run, the
        // better their clocks are known.
        let begins_ns = lab.workloads_begin_ns()?;
        let at = |second: u64, of: Option<&u64>| {
            Duration::from_nanos(of.copied().unwrap_or(0)) + Duration::from_secs(second)
        };
        let from = at(begin_s, begins_ns.iter().max()) + SETTLE;
        begin_s += length_s;
        let end = at(begin_s, begins_ns.iter().min()) - SPARE;
        let now = || Duration::from_nanos(now_ns());
        wait(&format!("interval {} begins", i + 1), from.saturating_sub(now()))?;
        let length = end.saturating_sub(now() + OBSERVER_STARTS);
        let recording = folder.join(format!("{}.vsteer", i + 1));
        record(v, &recording.to_string_lossy(), Duration::from_secs(length.as_secs()))?;
        if now() > end + SPARE {
            let what = format!("the recording of interval {} reaches into the next one", i + 1);
            return Err(Fault::new(FaultKind::Failed, what)
                .because(format!("it ended {:.1} s late", (now() - end).as_secs_f64()))
                .help("repeat it when the machine is less busy"));
        }
        recordings.push(recording);
    }
    Ok(recordings)
}

fn record(v: &Vsteer, to: &str, length: Duration) -> Result<(), Fault> {
    let length_s = format!("{}s", length.as_secs());
    let words = [
        "record",
        "-o",
        to,
        "--collector",
        "schedstat",
        "--interval",
        "1s",
        "--for",
        &length_s,
        "--connect",
        &v.uri,
    ];
    v.run(&words, false, length + LIMIT).map(drop)
}

/// While it exists, this thread and everything that it starts stay on one pCPU: the lab's libvirt, vsteer.
struct Aside {
    before: CpuSet,
}

impl Aside {
    fn on(cpu: usize) -> Result<Aside, Fault> {
        let fault = |e: rustix::io::Errno| Fault::io(format!("staying on pCPU {cpu}"), &e.into());
        let before = sched_getaffinity(None).map_err(fault)?;
        if !before.is_set(cpu) || !before.is_set(SHARED_PCPU) {
            return Err(Fault::new(
                FaultKind::NothingThere,
                format!("no pCPUs {cpu} and {SHARED_PCPU} to be used"),
            )
            .because("VMs share one, and who observes them needs another")
            .help("run it on a machine with two pCPUs or more"));
        }
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only).map_err(fault)?;
        Ok(Aside { before })
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // Restores the former affinity.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// The machine's CPU time so far, all pCPUs together, in the kernel's ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    all: u64,
    steal: u64,
}

impl Stat {
    fn now() -> Result<Stat, Fault> {
        let text = std::fs::read_to_string("/proc/stat").map_err(|e| Fault::io("reading /proc/stat", &e))?;
        Stat::parse(&text)
            .ok_or_else(|| Fault::new(FaultKind::BadInput, "/proc/stat begins with no line of all pCPUs"))
    }

    /// `man 5 proc`: user, nice, system, idle, iowait, irq, softirq, steal; the guest times that follow are
    /// part of user.
    fn parse(text: &str) -> Option<Stat> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let columns: Vec<u64> = line.split_whitespace().map_while(|w| w.parse().ok()).collect();
        Some(Stat { all: columns.get(..8)?.iter().sum(), steal: columns[7] })
    }

    /// The stolen part of the machine's time; `None` if no time passed.
    fn steal_since(&self, before: &Stat) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|ticks| *ticks > 0)?;
        Some(self.steal.checked_sub(before.steal)? as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_make_the_load_that_is_aimed_at() {
        // A unit of 10 us; a request takes another 300 us.
        let cost = Cost::of(300e-6 + 20.0 * 10e-6, 300e-6 + 320.0 * 10e-6).unwrap();
        assert!((cost.unit_us - 10.0).abs() < 1e-9 && (cost.request_us - 300.0).abs() < 1e-9, "{cost:?}");
        for scenario in [FULL, SHORT] {
            let took_s = cost.units(&scenario).map(|units| 1e-6 * (300.0 + 10.0 * f64::from(units)));
            let loaded = |i: usize| f64::from(*scenario.rates_hz[i].last().unwrap());
            let load: f64 = (0..3).map(|i| loaded(i) * took_s[i]).sum();
            assert!((load - TARGET).abs() < 0.005, "{load}");
            assert!((took_s[0] / took_s[2] - 6.6 / 1.7).abs() < 0.05, "{took_s:?}");
        }
        assert_eq!(Cost::of(2e-3, 1e-3), None, "more work in less time is no measurement");
        assert_eq!(Cost::of(0.0, 1e-3), None);
    }

    #[test]
    fn calibration_asks_as_much_as_the_load() {
        let loaded: u32 = FULL.rates_hz.iter().map(|r| r[1]).sum();
        assert!(loaded.abs_diff(3 * CALIBRATION_HZ) <= 1);
    }

    #[test]
    fn a_pcpu_that_others_use_is_refused() {
        let told = |others: f64| json!({"intervals": [{"others_pcpus": 0.01}, {"others_pcpus": others}]});
        assert!(quiet(&told(0.05)).is_ok());
        assert!(quiet(&told(0.4)).unwrap_err().to_string().contains("0.40"));
    }

    #[test]
    fn what_was_stolen() {
        let before = Stat::parse("cpu  10 2 5 800 7 0 1 33 4 0\ncpu0 1\n").unwrap();
        assert_eq!(before, Stat { all: 858, steal: 33 });
        let after = Stat { all: 1058, steal: 43 };
        assert_eq!(after.steal_since(&before), Some(0.05));
        assert_eq!(before.steal_since(&before), None);
        assert_eq!(Stat::parse("cpu  10 2 5\n"), None);
    }

    #[test]
    fn loaded_intervals_are_every_second_one() {
        let interval = |load: f64| json!({ "load": load });
        let run =
            json!({"estimate": {"intervals": [interval(0.3), interval(0.85), interval(0.2), interval(0.9)]}});
        assert_eq!(loads(&run).collect::<Vec<_>>(), [0.85, 0.9]);
    }
}
