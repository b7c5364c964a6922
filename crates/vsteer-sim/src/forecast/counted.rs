//! Forecasts the effect of steps from counters alone: simulates threads that sleep and compute at random, as often and as
//! long as was counted.
//!
//! Idea: who wakes how often, and runs for how long each time, decides most of what a change of weights or pCPUs does; the exact
//! moments matter little, because other moments are drawn for each of several seeds. The same seeds serve before and after the
//! steps, so that what a model like this gets wrong cancels in the difference. What grows is added to what was measured, and
//! what falls, falls to the same part of it. Without steps the forecast is therefore what was measured.
//!
//! Left out: threads that wait for each other, quotas of groups that several VMs share, and timers' regularity. What sibling
//! threads and remote memory cost is not known of a real host: the middle of published values is taken ([`Costs`]).

use super::demand::{Demands, Round, Wanted};
use super::replay::{Got, Replay, replay};
use crate::guest::{Demand, Times};
use crate::setup::Costs;
use std::collections::BTreeMap;
use vsteer_core::forecast::{Forecast, Forecaster, VmForecast, fluid};
use vsteer_core::model::{HostModel, ThreadModel, VmModel};
use vsteer_core::nouns::{Histogram, HostConfig};
use vsteer_core::setting::Step;
use vsteer_core::stats::{mean, variance};
use vsteer_core::topology::NodeId;
use vsteer_core::{Fault, FaultKind, Interval};

/// Simulations per set of steps.
const SEEDS: u64 = 8;
/// Simulated before counting begins, and counted, ns. Large hosts are simulated for less.
const WARM_UP_NS: u64 = 1_000_000_000;
const COUNTED_NS: u64 = 4_000_000_000;
/// More threads than this are simulated for as much less time.
const MANY_THREADS: u64 = 100;
/// Hosts with more threads are not simulated.
pub const THREADS_MOST: usize = 4_000;
/// A thread that sleeps for less of the time never sleeps; one that runs less hardly exists.
const SLEEPS: f64 = 0.02;
const RUNS: f64 = 1e-4;
/// Wake-ups per second of a thread whose wake-ups were not counted.
const WAKES: f64 = 100.0;
/// Two-sided 90 % of Student's t with [`SEEDS`] - 1 degrees of freedom.
const SPREADS: f64 = 1.895;
/// A simulation that shows less than this part of a measured wait tells nothing of how far it falls: fair shares do.
const SHOWN: f64 = 0.5;
/// The smallest half-width of an interval, as a share per vCPU and as a part of the change.
const LEAST: f64 = 0.01;
const PART: f64 = 0.3;

/// A host whose threads do at random what was counted.
pub struct CountedForecaster<'a> {
    config: &'a HostConfig,
    model: &'a HostModel,
    demands: Demands,
    /// By seed.
    before: Vec<Vec<Got>>,
}

impl<'a> CountedForecaster<'a> {
    /// Simulates the host as it is.
    ///
    /// # Errors
    /// `Unsupported` for a scheduler that is not simulated, and for hosts of more than [`THREADS_MOST`] threads; as
    /// [`Replay::run`].
    pub fn new(
        config: &'a HostConfig,
        model: &'a HostModel,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<CountedForecaster<'a>, Fault> {
        let threads: usize = config.vms.iter().map(|vm| vm.threads.len()).sum();
        if threads > THREADS_MOST {
            let what = format!("a host of {threads} threads takes too long to simulate");
            return Err(Fault::new(FaultKind::Unsupported, what));
        }
        let by_thread: BTreeMap<_, _> =
            model.vms.iter().flat_map(|vm| &vm.threads).map(|t| (t.tid, wanted(t))).collect();
        let round = Round { begins_ns: 0, length_ns: COUNTED_NS };
        let demands = Demands { by_thread, round, hand_over_ns: 0 };
        let mut forecaster = CountedForecaster { config, model, demands, before: Vec::new() };
        forecaster.before = forecaster.simulate(config, go_on)?;
        Ok(forecaster)
    }

    fn simulate(&self, config: &HostConfig, go_on: &mut dyn FnMut() -> bool) -> Result<Vec<Vec<Got>>, Fault> {
        let one = |seed: u64| {
            let mut host: Replay = replay(config, &self.demands, seed)?;
            host.setup.costs =
                Costs { smt_speed: 650, remote_speed: 833, capacity: true, ..Costs::default() };
            let homes = config.vms.iter().filter(|vm| !vm.threads.is_empty()).map(|vm| &vm.memory_nodes);
            for (vm, nodes) in host.setup.vms.iter_mut().zip(homes) {
                let one = nodes.as_ref().filter(|nodes| nodes.len() == 1);
                vm.memory_node = one.and_then(|nodes| nodes.iter().next()).map(NodeId);
            }
            let less = (host.threads.len() as u64).div_ceil(MANY_THREADS).max(1);
            host.run(WARM_UP_NS / less, COUNTED_NS / less, go_on)
        };
        (1..=SEEDS).map(one).collect()
    }

    /// Forecasts the effect of `steps`.
    ///
    /// # Errors
    /// As [`Replay::run`].
    pub fn forecast(&self, steps: &[Step], go_on: &mut dyn FnMut() -> bool) -> Result<Forecast, Fault> {
        let mut forecast = fluid::forecast(self.config, self.model, steps);
        "simulation of the counted load".clone_into(&mut forecast.method);
        let after = if steps.is_empty() {
            None
        } else {
            Some(self.simulate(&fluid::after(self.config, steps), go_on)?)
        };
        for (f, vm) in forecast.vms.iter_mut().zip(&self.model.vms) {
            self.tell(f, vm, after.as_deref().unwrap_or(&self.before));
        }
        Ok(forecast)
    }

    /// The same as a [`Forecaster`], which calls `go_on` to ask whether to continue.
    pub fn asking<'b>(&'b self, go_on: &'b mut dyn FnMut() -> bool) -> impl Forecaster + 'b {
        move |steps: &[Step]| self.forecast(steps, go_on)
    }

    fn tell(&self, f: &mut VmForecast, vm: &VmModel, after: &[Vec<Got>]) {
        let vcpus = vm.vcpu_threads().count().max(1) as f64;
        let with_limited = f.with_limited;
        let moved = |measured: f64, of: &dyn Fn(&Got) -> f64| {
            let each: Vec<f64> =
                self.before.iter().zip(after).map(|(a, b)| sum(b, vm, of) - sum(a, vm, of)).collect();
            let simulated: f64 = self.before.iter().map(|a| sum(a, vm, of)).sum::<f64>() / SEEDS as f64;
            let moves = mean(&each).unwrap_or(0.0);
            // What falls, falls to a part of what was measured: the simulation may begin higher.
            let by =
                if moves < 0.0 && simulated > 0.0 { moves * (measured / simulated).min(1.0) } else { moves };
            let spread = SPREADS * libm::sqrt(variance(&each).unwrap_or(0.0));
            let half = spread.max(PART * by.abs()).max(LEAST * vcpus);
            let likely = (measured + by).clamp(0.0, vcpus);
            Interval { low: (likely - half).max(0.0), likely, high: likely + half }
        };
        f.run_after = moved(f.run_before, &|g| g.run);
        let by_shares = f.ready_after;
        f.ready_after = moved(f.ready_before, &|g| if with_limited { g.ready + g.limited } else { g.ready });
        // A VM whose timers other threads serve gains more than its own threads' simulation shows: what fair shares say bounds
        // it from below.
        if by_shares.likely < 0.9 * f.ready_before {
            f.ready_after.low = f.ready_after.low.min(by_shares.low);
            let simulated: f64 =
                self.before.iter().map(|a| sum(a, vm, &|g| g.ready)).sum::<f64>() / SEEDS as f64;
            if simulated < SHOWN * f.ready_before {
                f.ready_after = by_shares;
            }
        }
        let lag =
            mean(&vm.vcpu_threads().filter_map(|t| t.shares.lag).collect::<Vec<_>>()).map(|lag| lag * vcpus);
        (f.lag_before, f.lag_after) = (lag, lag.map(|lag| moved(lag, &|g| g.lag)));
        let p99 = |all: &[Vec<Got>]| woken(all, vm).quantile_ns(0.99);
        if let (Some(seen), Some(was), Some(will)) = (vm.wake_latency, p99(&self.before), p99(after)) {
            // What the simulation and the host differ by stays.
            let likely = seen.p99_ns * will / was.max(1.0);
            f.wake_p99_ns_before = Some(seen.p99_ns);
            f.wake_p99_ns_after = Some(Interval { low: likely / 2.0, likely, high: 2.0 * likely });
        }
        let waits = |all: &[Vec<Got>]| {
            let of: Vec<&Got> = all.iter().flatten().filter(|g| is_vcpu_of(g, vm)).collect();
            let wakes: u64 = of.iter().map(|g| g.wake.total()).sum();
            (wakes > 0).then(|| of.iter().map(|g| g.wake_wait_ns as f64).sum::<f64>() / wakes as f64)
        };
        if let (Some(seen), Some(was), Some(will)) =
            (f.wake_wait_ns_before, waits(&self.before), waits(after))
        {
            let likely = seen * will / was.max(1.0);
            f.wake_wait_ns_after = Some(Interval { low: likely / 2.0, likely, high: 2.0 * likely });
        }
    }
}

fn is_vcpu_of(g: &Got, vm: &VmModel) -> bool {
    g.thread.vm == vm.id && g.thread.role.vcpu().is_some()
}

fn sum(got: &[Got], vm: &VmModel, of: &dyn Fn(&Got) -> f64) -> f64 {
    got.iter().filter(|g| is_vcpu_of(g, vm)).map(of).sum()
}

fn woken(all: &[Vec<Got>], vm: &VmModel) -> Histogram {
    let own = all.iter().flatten().filter(|g| is_vcpu_of(g, vm));
    own.fold(Histogram::default(), |sum, g| sum.merged(&g.wake))
}

/// What a thread wants, by its counters.
fn wanted(t: &ThreadModel) -> Wanted {
    let run = t.shares.run.unwrap_or(0.0);
    let wait = t.shares.wait.unwrap_or(0.0) + t.shares.costop.unwrap_or(0.0);
    let asleep = t.shares.blocked.unwrap_or(1.0 - run - wait).clamp(0.0, 1.0);
    let demand = if run < RUNS {
        Demand::Idle
    } else if asleep < SLEEPS {
        Demand::Hog
    } else {
        let wakes = t.wakeups_per_s.or(t.switches_per_s).filter(|per_s| *per_s > 0.0).unwrap_or(WAKES);
        let ns = |share: f64| Times::Exponential(((share * 1e9 / wakes) as u64).max(1_000));
        Demand::SleepCompute { sleep: ns(asleep), compute: ns(run) }
    };
    Wanted { demand, bursts: 0, broken: 0, ran_ns: 0 }
}
