//! Do forecasts from counters hold what then happens?
//!
//! Hosts are drawn by a seed ([`crate::drawn`]), observed for ten seconds, changed at random (weights, pCPUs), and simulated
//! again with another seed. A forecast is one value of one VM: run, ready, or the 99th percentile of its wake-ups. Only VMs
//! count that wait, before, after or by the forecast. Intervals are meant to hold nine values in ten. How wide they are was
//! fitted on other hosts, of other seeds.
//!
//! `GAP(null-error)`: how far the simulation is off for the unchanged host has no claim. The goal is 2 points, and 20 % of the
//! 99th percentile of wake-ups. Measured: 4 points in the median host, 11 in one of twenty; the percentile by 32 % in the median
//! VM. From recorded switches it is 1.5 and 15 points: on hosts as busy as these, two simulations of one host with two seeds
//! differ by 1 and 10.

use super::{Bench, Case, Evidence, Findings, Minutes};
use crate::drawn::{self, change, compared, on_each};
use crate::interrupt;
use serde_json::json;
use vsteer_core::Fault;
use vsteer_core::Interval;
use vsteer_core::random::Random;
use vsteer_core::stats::quantile;
use vsteer_sim::forecast::counted::CountedForecaster;
use vsteer_sim::sched::{Entry, find};
use vsteer_sim::steps;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "forecasts",
    doc: "forecasts from counters for changed random hosts: 90 % of their intervals hold what then happens",
    in_test: true,
    minutes: Minutes::new(0.4, 1.8),
    beside: false,
    run,
};

const HOSTS: u64 = 240;
const HOSTS_SHORT: u64 = 40;
/// Forecasts that must be judged on [`HOSTS`] hosts.
const FORECASTS: usize = 2_000;
/// The part of intervals that must hold the value.
const HELD: std::ops::RangeInclusive<f64> = 0.86..=0.94;
/// The part of the VMs that wait of which the forecast may be withheld.
const WITHHELD: f64 = 0.1;
/// The first host. Intervals were fitted on hosts below it.
const FIRST: u64 = 500_000;
const LENGTH_NS: u64 = 10_000_000_000;
/// A VM waits if its vCPUs do for this part of the time.
const WAITS: f64 = 0.01;

/// A value that was forecast.
struct Told {
    measure: &'static str,
    holds: bool,
}

/// What was found on one host.
#[derive(Default)]
struct Found {
    told: Vec<Told>,
    /// By VM that waits, per vCPU: how far the simulation of the unchanged host is off.
    null_errors: Vec<f64>,
    /// By VM that waits and wakes often: the same of the 99th percentile of its wake-ups, as a part of it.
    p99_errors: Vec<f64>,
    /// How many VMs that wait, and the names of those whose forecast is withheld.
    waiting: usize,
    withheld: Vec<String>,
}

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let hosts = if bench.full { HOSTS } else { HOSTS_SHORT };
    let entry = find("eevdf").expect("it is one of the policies");
    let found = on_each("hosts", hosts, &|i| on_host(entry, bench.seed * 1_000_000 + FIRST + i))?;
    let mut findings = Findings::default();
    let told: Vec<&Told> = found.iter().flat_map(|f| &f.told).collect();
    let held = |all: &[&Told]| all.iter().filter(|t| t.holds).count() as f64 / all.len().max(1) as f64;
    let by_measure = ["run", "ready", "wake p99"].map(|measure| {
        let own: Vec<&Told> = told.iter().copied().filter(|t| t.measure == measure).collect();
        (measure, own.len(), held(&own))
    });
    findings.claim_on(
        "90 % intervals of forecasts hold what then happens in 86 to 94 of 100",
        Evidence::count(
            told.len(),
            FORECASTS * hosts as usize / HOSTS as usize,
            "forecasts of VMs that wait",
        ),
        HELD.contains(&held(&told)),
        format!("{:.1} % of {}; {by_measure:.3?}", 100.0 * held(&told), told.len()),
    );
    let waiting: usize = found.iter().map(|f| f.waiting).sum();
    let withheld: Vec<&String> = found.iter().flat_map(|f| &f.withheld).collect();
    findings.claim_on(
        format!("of at most {:.0} % of the VMs that wait the forecast is withheld", 100.0 * WITHHELD),
        Evidence::count(waiting, hosts as usize, "VMs that wait"),
        withheld.len() as f64 <= WITHHELD * waiting as f64,
        format!("of {} of {waiting}: the simulation is far off for the unchanged host", withheld.len()),
    );
    let means: Vec<f64> = found
        .iter()
        .filter(|f| !f.null_errors.is_empty())
        .map(|f| f.null_errors.iter().sum::<f64>() / f.null_errors.len() as f64)
        .collect();
    let at = |part| quantile(&means, part);
    let p99s: Vec<f64> = found.iter().flat_map(|f| f.p99_errors.iter().copied()).collect();
    let p99_at = |part| quantile(&p99s, part);
    let p99_within = p99s.iter().filter(|off| **off <= 0.2).count() as f64 / p99s.len().max(1) as f64;
    findings.figures = json!({
        "hosts": hosts, "forecasts": told.len(), "held": held(&told), "by_measure": by_measure,
        "wake_p99_null_error_quantiles": { "vms": p99s.len(), "within_20_percent": p99_within,
            "0.5": p99_at(0.5), "0.75": p99_at(0.75), "0.95": p99_at(0.95) },
        "waiting": waiting, "withheld": withheld,
        "null_error_quantiles": { "0.5": at(0.5), "0.75": at(0.75), "0.9": at(0.9), "0.95": at(0.95) },
    });
    Ok(findings)
}

fn on_host(entry: &Entry, seed: u64) -> Result<Found, Fault> {
    let setup = drawn::host(seed);
    let (config, model) = drawn::observed(entry, &setup)?;
    let steps = change::change(&mut Random::new(seed, 3), &config);
    let mut go_on = || interrupt::check().is_ok();
    let forecaster = CountedForecaster::new(&config, &model, &mut go_on)?;
    let forecast = forecaster.forecast(&steps, &mut go_on)?;
    let changed = steps::after(&setup, &steps, entry.about.default_weight)?;
    let then = compared::runs(entry, &changed, seed + 1..seed + 2, LENGTH_NS)?;
    let mut found = Found::default();
    for (i, f) in forecast.vms.iter().enumerate() {
        let (is, vcpus) = (&then[0][i], setup.vms[i].vcpus.len() as f64);
        let waits = [f.ready_before, f.ready_after.likely, is.ready];
        if waits.iter().all(|wait| *wait < WAITS * vcpus) {
            continue;
        }
        found.null_errors.extend(f.null_error.map(|off| off.abs() / vcpus));
        found.waiting += 1;
        let seen = model.vm(&f.vm).filter(|vm| vm.wake_latency.is_some_and(|q| q.count >= compared::WAKES));
        found.p99_errors.extend(seen.and_then(|vm| {
            let (is, says) = (vm.wake_latency?.p99_ns, forecaster.simulated_wake_p99_ns(vm)?);
            Some((says - is).abs() / is)
        }));
        if f.withheld {
            let told = f.null_error_told().unwrap_or_default();
            found.withheld.push(format!("host {seed}: {} waits {told}", f.name));
            continue;
        }
        let mut tell = |measure, interval: Interval, is: f64| {
            found.told.push(Told { measure, holds: (interval.low..=interval.high).contains(&is) });
        };
        tell("run", f.run_after, is.run);
        tell("ready", f.ready_after, is.ready);
        let often =
            model.vm(&f.vm).and_then(|vm| vm.wake_latency).is_some_and(|q| q.count >= compared::WAKES);
        let (_, p99_ns) = compared::of_vm(&then, i);
        if let Some(late) = f.wake_p99_ns_after.filter(|_| often && p99_ns > 0.0) {
            tell("wake p99", late, p99_ns);
        }
    }
    Ok(found)
}
