//! What does the simulator make of the domains of an emulated Xen?
//!
//! Each domain's demand follows from its workload's text; how long its work takes is measured: the time it ran, per wake-up
//! or per unit of work. So what is compared is the scheduler, not the speed of an emulated pCPU.

use crate::xen::job::{Case, PCPUS, Scheduler};
use crate::xen::results::{CaseResult, DomainResult, Shares};
use serde::Serialize;
use std::collections::BTreeMap;
use vsteer_core::sim::engine::{State, Stop};
use vsteer_core::sim::guest::{Demand, Times};
use vsteer_core::sim::policy::Values;
use vsteer_core::sim::sched;
use vsteer_core::sim::setup::{Setup, Vcpu, VcpuSetup, VmSetup, machine};
use vsteer_core::{CpuSet, Fault, FaultKind};

const WARM_UP_NS: u64 = 20_000_000_000;
const MEASURED_NS: u64 = 120_000_000_000;

/// One domain, simulated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Told {
    /// Parts of the time.
    pub shares: Shares,
    /// Per second.
    pub dispatches_per_s: f64,
    /// From wake-up to pCPU, ms.
    pub wake_p99_ms: Option<f64>,
}

/// Simulates a case; the domains in order.
///
/// # Errors
/// A workload that has no demand here, or as the simulator.
pub fn simulate(scheduler: Scheduler, case: &Case, result: &CaseResult) -> Result<Vec<Told>, Fault> {
    let vms = case.domains.iter().zip(&result.domains).map(|(d, seen)| {
        let mut vcpu = VcpuSetup::new(demand(&d.workload, seen)?);
        if !case.pool {
            vcpu = vcpu.pinned(CpuSet::single(PCPUS - 1));
        }
        let vm = VmSetup::new(d.name.clone(), vec![vcpu]).weight(d.weight);
        Ok(if d.cap > 0 { vm.cap_pct(d.cap) } else { vm })
    });
    let vms = vms.collect::<Result<Vec<_>, Fault>>()?;
    let pcpus = if case.pool { 1 } else { PCPUS };
    let setup = Setup::new(machine(1, 1, pcpus, 1)?, vms, 1);
    let entry = sched::find(scheduler.word())?;
    let mut values = Values::defaults(entry.about.parameters);
    let set = [("tslice_ms", case.tslice_ms), ("ratelimit_us", case.ratelimit_us)];
    for (name, value) in set {
        if let Some(value) = value {
            values.set(name, value.into())?;
        }
    }
    let mut simulation = (entry.build)(&setup, &values)?;
    let all = 0..case.domains.len() as u32;
    let reached = |stop: Stop| match stop {
        Stop::Reached => Ok(()),
        stop => Err(Fault::new(FaultKind::Failed, format!("case {}: the simulation ended: {stop:?}", case.name))),
    };
    reached(simulation.run(WARM_UP_NS, u64::MAX))?;
    let before: Vec<_> = all.clone().map(|v| simulation.account(Vcpu(v))).collect();
    reached(simulation.run(WARM_UP_NS + MEASURED_NS, u64::MAX))?;
    let told = all.zip(before).map(|(v, before)| {
        let after = simulation.account(Vcpu(v));
        let share = |s: State| (after.ns[s as usize] - before.ns[s as usize]) as f64 / MEASURED_NS as f64;
        Told {
            shares: Shares {
                run: share(State::Running),
                ready: share(State::Ready),
                blocked: share(State::Blocked),
                offline: share(State::Limited),
            },
            dispatches_per_s: (after.switches - before.switches) as f64 / (MEASURED_NS as f64 / 1e9),
            wake_p99_ms: after.wake_latency.since(&before.wake_latency).quantile_ns(0.99).map(|ns| ns / 1e6),
        }
    });
    Ok(told.collect())
}

/// What a domain wants.
fn demand(workload: &str, seen: &DomainResult) -> Result<Demand, Fault> {
    let mut words = workload.split(',');
    let kind = words.next().unwrap_or_default();
    let given: BTreeMap<&str, f64> =
        words.filter_map(|w| w.split_once('=')).filter_map(|(k, v)| Some((k, v.parse().ok()?))).collect();
    let us = |key: &str, default: f64| (1e3 * given.get(key).copied().unwrap_or(default)) as u64;
    let ran_s = seen.traced.run;
    // Per wake-up, of the traced seconds; per unit, of those between reports.
    let wakes_per_s = seen.wake_ups as f64 / seen.traced_s;
    let per_wake = Times::Fixed((1e9 * ran_s / wakes_per_s.max(1e-9)) as u64);
    Ok(match kind {
        "burn" => Demand::Hog,
        "periodic" => Demand::Periodic { period_ns: us("period_us", 10_000.0), offset_ns: None, work: per_wake },
        "waker" => Demand::SleepCompute { sleep: Times::Fixed(us("sleep_us", 70.0)), compute: per_wake },
        "server" => {
            let rate_hz = given.get("rate_hz").copied().unwrap_or(50.0);
            let mean_units = given.get("mean_units").copied().unwrap_or(200.0);
            let unit_ns = 1e9 * seen.own.run / seen.window.work_units_per_s;
            Demand::Server {
                between: Times::Exponential((1e9 / rate_hz) as u64),
                service: Times::Exponential((mean_units * unit_ns) as u64),
            }
        }
        _ => {
            return Err(Fault::new(FaultKind::Unsupported, format!("simulating the workload {workload:?}")));
        }
    })
}
