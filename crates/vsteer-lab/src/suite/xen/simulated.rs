//! Simulates the domains of an emulated Xen.
//!
//! Each domain's demand follows from its workload's text. The time of its work is measured: its run time
//! divided by the number of jobs. So is the cost of a switch. So the comparison is about the scheduler, not
//! about the speed of an emulated pCPU.

use crate::xen::job::{Case, PCPUS, Scheduler};
use crate::xen::results::{CaseResult, DomainResult, Shares};
use serde::Serialize;
use std::collections::BTreeMap;
use vsteer_core::nouns::Histogram;
use vsteer_core::random::Random;
use vsteer_core::topology::machine;
use vsteer_core::{CpuSet, Fault, FaultKind};
use vsteer_sim::engine::Stop;
use vsteer_sim::guest::{Demand, Times};
use vsteer_sim::policy::Values;
use vsteer_sim::sched;
use vsteer_sim::setup::{Setup, Vcpu, VcpuSetup, VmSetup};
use vsteer_sim::state::{STATES, State};

const WARM_UP_NS: u64 = 20_000_000_000;
const MEASURED_NS: u64 = 60_000_000_000;
const PHASES: u64 = 8;
/// How often Credit distributes credits.
const ACCOUNTING_NS: u64 = 30_000_000;

/// The result for one domain.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Told {
    /// Shares of the time.
    pub shares: Shares,
    pub dispatches_per_s: f64,
    /// From wake-up to pCPU, ms.
    pub wake_p99_ms: Option<f64>,
}

/// Simulates a case at several phases; the domains are in order.
///
/// The start of the domains decides where slices end relative to ticks and accountings, and this stays so for
/// minutes. Which domain has credit at the end of a slice depends on it. A real host has one unknown phase;
/// here domains start at [`PHASES`] times.
///
/// # Errors
/// A workload without a demand here, or as the simulator.
pub fn simulate(scheduler: Scheduler, case: &Case, result: &CaseResult) -> Result<Vec<Told>, Fault> {
    let mut sums = vec![Sum::default(); case.domains.len()];
    for phase in 0..PHASES {
        let begin_ns = Random::new(phase, 0).within(1, ACCOUNTING_NS);
        at_phase(scheduler, case, result, begin_ns, phase, &mut sums)?;
    }
    // The time from the timer's interrupt to the pCPU does not depend on the scheduler and is not simulated.
    // This adds the shortest one that was seen.
    let way_ms = result.domains.iter().filter_map(|d| d.wake_least_ms).fold(f64::INFINITY, f64::min);
    let all_ns = (PHASES * MEASURED_NS) as f64;
    let told = sums.into_iter().map(|sum| {
        let share = |s: State| sum.ns[s as usize] as f64 / all_ns;
        Told {
            shares: Shares {
                run: share(State::Running),
                ready: share(State::Ready),
                blocked: share(State::Blocked),
                offline: share(State::Limited),
            },
            dispatches_per_s: sum.switches as f64 / (all_ns / 1e9),
            wake_p99_ms: sum.wake.quantile_ns(0.99).map(|ns| ns / 1e6 + way_ms),
        }
    });
    Ok(told.collect())
}

/// What a domain got over all phases.
#[derive(Debug, Clone, Default)]
struct Sum {
    ns: [u64; STATES],
    switches: u64,
    wake: Histogram,
}

fn at_phase(
    scheduler: Scheduler,
    case: &Case,
    result: &CaseResult,
    begin_ns: u64,
    seed: u64,
    sums: &mut [Sum],
) -> Result<(), Fault> {
    let vms = case.domains.iter().zip(&result.domains).map(|(d, seen)| {
        let mut vcpu = VcpuSetup::new(demand(&d.workload, seen)?);
        vcpu.from_ns = begin_ns;
        if !case.pool {
            vcpu = vcpu.pinned(CpuSet::single(PCPUS - 1));
        }
        let vm = VmSetup::new(d.name.clone(), vec![vcpu]).weight(d.weight);
        Ok(if d.cap > 0 { vm.cap_pct(d.cap) } else { vm })
    });
    let vms = vms.collect::<Result<Vec<_>, Fault>>()?;
    let pcpus = if case.pool { 1 } else { PCPUS };
    let mut setup = Setup::new(machine(1, 1, pcpus, 1)?, vms, seed);
    setup.costs.switch_ns = result.switch_ns;
    let entry = sched::find(scheduler.word())?;
    let mut values = Values::defaults(entry.about.parameters);
    if scheduler == Scheduler::Credit2 {
        values.set("inflight", 0)?;
    }
    let set = [("tslice_ms", case.tslice_ms), ("ratelimit_us", case.ratelimit_us)];
    for (name, value) in set {
        if let Some(value) = value {
            values.set(name, value.into())?;
        }
    }
    let mut simulation = (entry.build)(&setup, &values)?;
    let reached = |stop: Stop| match stop {
        Stop::Reached => Ok(()),
        stop => {
            Err(Fault::new(FaultKind::Failed, format!("case {}: the simulation ended: {stop:?}", case.name)))
        }
    };
    reached(simulation.run(WARM_UP_NS, u64::MAX))?;
    let before: Vec<_> = (0..sums.len() as u32).map(|v| simulation.account(Vcpu(v))).collect();
    reached(simulation.run(WARM_UP_NS + MEASURED_NS, u64::MAX))?;
    for ((v, sum), before) in sums.iter_mut().enumerate().zip(before) {
        let after = simulation.account(Vcpu(v as u32));
        (0..STATES).for_each(|s| sum.ns[s] += after.ns[s] - before.ns[s]);
        sum.switches += after.switches - before.switches;
        sum.wake = sum.wake.merged(&after.wake_latency.since(&before.wake_latency));
    }
    Ok(())
}

/// The demand of a domain.
fn demand(workload: &str, seen: &DomainResult) -> Result<Demand, Fault> {
    let mut words = workload.split(',');
    let kind = words.next().unwrap_or_default();
    let given: BTreeMap<&str, f64> =
        words.filter_map(|w| w.split_once('=')).filter_map(|(k, v)| Some((k, v.parse().ok()?))).collect();
    let us = |key: &str, default: f64| (1e3 * given.get(key).copied().unwrap_or(default)) as u64;
    // The share of a second, divided by the jobs that arrive even if the last one is not done.
    let per_job = |jobs_per_s: f64| (1e9 * seen.traced.run / jobs_per_s) as u64;
    Ok(match kind {
        "burn" => Demand::Hog,
        "periodic" => {
            let period_ns = us("period_us", 10_000.0);
            let work = Times::Fixed(per_job(1e9 / period_ns as f64));
            Demand::Periodic { period_ns, offset_ns: None, work }
        }
        "server" => {
            let rate_hz = given.get("rate_hz").copied().unwrap_or(50.0);
            Demand::Server {
                between: Times::Exponential((1e9 / rate_hz) as u64),
                service: Times::Exponential(per_job(rate_hz)),
            }
        }
        _ => {
            return Err(Fault::new(FaultKind::Unsupported, format!("simulating the workload {workload:?}")));
        }
    })
}
