//! Forecasts the effect of steps from counters alone: simulates threads that sleep and compute at random, as often and as
//! long as was counted.
//!
//! Idea: who wakes how often, and runs for how long each time, decides most of what a change of weights or pCPUs does; the exact
//! moments matter little, because other moments are drawn for each of several seeds. The same seeds serve before and after the
//! steps, so that what a model like this gets wrong cancels in the difference. What grows is added to what was measured, and
//! what falls, falls to the same part of it. Without steps the forecast is therefore what was measured.
//!
//! Left out: threads that wait for each other, and timers' regularity. What sibling threads and remote memory cost is not known
//! of a real host: the middle of published values is taken ([`Costs`]).

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
/// A host with more threads, or more wake-ups per second, is simulated for as much less time, and one with so much more that
/// the time would tell nothing is not simulated.
const MANY_THREADS: f64 = 100.0;
const MANY_WAKES: f64 = 200_000.0;
const LESS_MOST: f64 = 40.0;
/// A thread that sleeps for less of the time never sleeps; one that runs less hardly exists.
const SLEEPS: f64 = 0.02;
const RUNS: f64 = 1e-4;
/// Wake-ups per second of a thread whose wake-ups were not counted, and the most that a thread can make.
const WAKES: f64 = 100.0;
const WAKES_MOST: f64 = 500_000.0;
/// Two-sided 90 % of Student's t with [`SEEDS`] - 1 degrees of freedom.
const SPREADS: f64 = 1.895;
/// A simulation that shows less than this part of a measured wait tells nothing of how far it falls: fair shares do.
const SHOWN: f64 = 0.5;
/// The smallest half-width of an interval, as a share per vCPU and as a part of the change.
const LEAST: f64 = 0.01;
const PART: f64 = 0.3;
/// Intervals are so much wider, and half as wide at least as this part of the null error; a 99th percentile may be this many
/// times as long, or as short. With these, 90 % of the intervals hold what then happens to random hosts (`lab run forecasts`).
const WIDER: f64 = 2.0;
const OFF: f64 = 0.75;
const TIMES: f64 = 2.5;

/// A host whose threads do at random what was counted.
pub struct CountedForecaster<'a> {
    config: &'a HostConfig,
    model: &'a HostModel,
    demands: Demands,
    /// The part of the usual time that is simulated: 1 / this.
    less: u64,
    /// By fair shares, without steps.
    unchanged: Forecast,
    /// The host as it is, in full and in short.
    before: Runs,
    before_short: Runs,
}

/// What all threads got, by seed.
type Runs = Vec<Vec<Got>>;

/// How long, and how often.
#[derive(Clone, Copy)]
struct Size {
    is_full: bool,
    /// Rough forecasts have seeds of their own, so that the luckiest of many candidates is found out by the full one.
    first_seed: u64,
    seeds: u64,
    /// Simulated before counting begins, and counted, ns.
    warm_up_ns: u64,
    counted_ns: u64,
}

const FULL: Size =
    Size { is_full: true, first_seed: 1, seeds: SEEDS, warm_up_ns: 1_000_000_000, counted_ns: 4_000_000_000 };
const SHORT: Size = Size {
    is_full: false,
    first_seed: 100,
    seeds: SEEDS,
    warm_up_ns: 300_000_000,
    counted_ns: 1_000_000_000,
};

impl<'a> CountedForecaster<'a> {
    /// Simulates the host as it is.
    ///
    /// # Errors
    /// `Unsupported` for a scheduler that is not simulated, and for a host that would take too long; as [`Replay::run`].
    pub fn new(
        config: &'a HostConfig,
        model: &'a HostModel,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<CountedForecaster<'a>, Fault> {
        let all = || model.vms.iter().flat_map(|vm| &vm.threads);
        let (threads, wakes) = (all().count() as f64, all().map(wakes).sum::<f64>());
        let less = (threads / MANY_THREADS).max(wakes / MANY_WAKES).max(1.0);
        if less > LESS_MOST {
            let what = format!(
                "a host of {threads:.0} threads that wake {wakes:.0} times per second takes too long to simulate"
            );
            return Err(Fault::new(FaultKind::Unsupported, what));
        }
        let by_thread: BTreeMap<_, _> = all().map(|t| (t.tid, wanted(t))).collect();
        let round = Round { begins_ns: 0, length_ns: FULL.counted_ns };
        let mut forecaster = CountedForecaster {
            config,
            model,
            demands: Demands { by_thread, round, hand_over_ns: 0 },
            less: less.ceil() as u64,
            unchanged: fluid::forecast(config, model, &[]),
            before: Vec::new(),
            before_short: Vec::new(),
        };
        forecaster.before = forecaster.simulate(config, FULL, go_on)?;
        forecaster.before_short = forecaster.simulate(config, SHORT, go_on)?;
        Ok(forecaster)
    }

    fn simulate(
        &self,
        config: &HostConfig,
        size: Size,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Runs, Fault> {
        let one = |seed: u64| {
            let mut host: Replay = replay(config, &self.demands, seed)?;
            host.setup.costs =
                Costs { smt_speed: 650, remote_speed: 833, capacity: true, ..Costs::default() };
            let homes = config.vms.iter().filter(|vm| !vm.threads.is_empty()).map(|vm| &vm.memory_nodes);
            for (vm, nodes) in host.setup.vms.iter_mut().zip(homes) {
                let one = nodes.as_ref().filter(|nodes| nodes.len() == 1);
                vm.memory_node = one.and_then(|nodes| nodes.iter().next()).map(NodeId);
            }
            host.run_with_phases(seed, size.warm_up_ns / self.less, size.counted_ns / self.less, go_on)
        };
        (size.first_seed..size.first_seed + size.seeds).map(one).collect()
    }

    /// Forecasts the effect of `steps`.
    ///
    /// # Errors
    /// As [`Replay::run`].
    pub fn forecast(&self, steps: &[Step], go_on: &mut dyn FnMut() -> bool) -> Result<Forecast, Fault> {
        self.forecast_in(steps, FULL, &self.before, go_on)
    }

    fn forecast_in(
        &self,
        steps: &[Step],
        size: Size,
        before: &[Vec<Got>],
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Forecast, Fault> {
        // Fair shares only bound a forecast, and take long on a large host.
        let mut forecast = match size.is_full {
            true => fluid::forecast(self.config, self.model, steps),
            false => self.unchanged.clone(),
        };
        "simulation of the counted load".clone_into(&mut forecast.method);
        let after = if steps.is_empty() {
            None
        } else {
            Some(self.simulate(&fluid::after(self.config, steps), size, go_on)?)
        };
        for (f, vm) in forecast.vms.iter_mut().zip(&self.model.vms) {
            tell(f, vm, before, after.as_deref().unwrap_or(before));
            *f = f.clone().checked(vm.vcpu_threads().count());
        }
        Ok(forecast)
    }

    /// What the simulation of the unchanged host says of the 99th percentile of a VM's wake-ups, ns, before any correction; `None`
    /// without wake-ups.
    pub fn simulated_wake_p99_ns(&self, vm: &VmModel) -> Option<f64> {
        woken(&self.before, vm).quantile_ns(0.99)
    }

    /// The same as a [`Forecaster`], which calls `go_on` to ask whether to continue.
    pub fn asking<'b>(&'b self, go_on: &'b mut dyn FnMut() -> bool) -> impl Forecaster + 'b {
        Asking { told: self, go_on }
    }
}

/// A [`CountedForecaster`] that asks whether to continue.
struct Asking<'b, 'a> {
    told: &'b CountedForecaster<'a>,
    go_on: &'b mut dyn FnMut() -> bool,
}

impl Forecaster for Asking<'_, '_> {
    fn forecast(&mut self, steps: &[Step]) -> Result<Forecast, Fault> {
        self.told.forecast(steps, self.go_on)
    }

    fn rough(&mut self, steps: &[Step], effort: u64) -> Result<Option<Forecast>, Fault> {
        let size = Size { seeds: effort.clamp(1, SEEDS), ..SHORT };
        let before = &self.told.before_short[..size.seeds as usize];
        self.told.forecast_in(steps, size, before, self.go_on).map(Some)
    }
}

/// Writes what the simulations before and after the steps say of a VM into its forecast.
fn tell(f: &mut VmForecast, vm: &VmModel, before: &[Vec<Got>], after: &[Vec<Got>]) {
    let vcpus = vm.vcpu_threads().count().max(1) as f64;
    let with_limited = f.with_limited;
    let simulated =
        |of: &dyn Fn(&Got) -> f64| before.iter().map(|a| sum(a, vm, of)).sum::<f64>() / before.len() as f64;
    let becomes = |measured: f64, of: &dyn Fn(&Got) -> f64| {
        let each: Vec<f64> = before.iter().zip(after).map(|(a, b)| sum(b, vm, of) - sum(a, vm, of)).collect();
        let was = simulated(of);
        let likely = moved(measured, was, was + mean(&each).unwrap_or(0.0)).min(vcpus);
        let by = likely - measured;
        let spread = SPREADS * libm::sqrt(variance(&each).unwrap_or(0.0));
        let half = spread.max(PART * by.abs()).max(LEAST * vcpus);
        Interval { low: (likely - half).max(0.0), likely, high: likely + half }
    };
    f.run_after = becomes(f.run_before, &|g| g.run);
    let by_shares = f.ready_after;
    f.ready_after = becomes(f.ready_before, &|g| if with_limited { g.ready + g.limited } else { g.ready });
    // A VM whose timers other threads serve gains more than its own threads' simulation shows: what fair shares say bounds
    // it from below.
    if by_shares.likely < 0.9 * f.ready_before {
        f.ready_after.low = f.ready_after.low.min(by_shares.low);
        if simulated(&|g| g.ready) < SHOWN * f.ready_before {
            f.ready_after = by_shares;
        }
    }
    if !with_limited {
        let all: Vec<f64> = vm.vcpu_threads().filter_map(|t| t.shares.limited).collect();
        let limited = (!all.is_empty()).then(|| all.iter().sum::<f64>());
        (f.limited_before, f.limited_after) = (limited, limited.map(|l| becomes(l, &|g| g.limited)));
    }
    let off = simulated(&|g| g.ready + g.limited) - f.ready_before - f.limited_before.unwrap_or(0.0);
    f.null_error = Some(off);
    f.run_after = wider(f.run_after, 0.0);
    f.ready_after = wider(f.ready_after, off);
    f.limited_after = f.limited_after.map(|limited| wider(limited, off));
    let lag =
        mean(&vm.vcpu_threads().filter_map(|t| t.shares.lag).collect::<Vec<_>>()).map(|lag| lag * vcpus);
    (f.lag_before, f.lag_after) = (lag, lag.map(|lag| becomes(lag, &|g| g.lag)));
    let p99 = |all: &[Vec<Got>]| woken(all, vm).quantile_ns(0.99);
    if let (Some(seen), Some(was), Some(will)) = (vm.wake_latency, p99(before), p99(after)) {
        // What the simulation and the host differ by stays.
        let likely = seen.p99_ns * (will.max(1.0) / was.max(1.0));
        f.wake_p99_ns_before = Some(seen.p99_ns);
        f.wake_p99_ns_after = Some(Interval { low: likely / TIMES, likely, high: TIMES * likely });
    }
    let waits = |all: &[Vec<Got>]| {
        let of: Vec<&Got> = all.iter().flatten().filter(|g| is_vcpu_of(g, vm)).collect();
        let wakes: u64 = of.iter().map(|g| g.wake.total()).sum();
        (wakes > 0).then(|| of.iter().map(|g| g.wake_wait_ns as f64).sum::<f64>() / wakes as f64)
    };
    if let (Some(seen), Some(was), Some(will)) = (f.wake_wait_ns_before, waits(before), waits(after)) {
        let likely = seen * (will.max(1.0) / was.max(1.0));
        f.wake_wait_ns_after = Some(Interval { low: likely / 2.0, likely, high: 2.0 * likely });
    }
}

/// What becomes of a measured wait that simulation says goes from `was` to `will`. What grows is added to what was measured.
/// What falls, falls at most to the same part of it, because the simulation may begin higher. Without a change it is what was
/// measured.
fn moved(measured: f64, was: f64, will: f64) -> f64 {
    let by = will - was;
    let by = if by < 0.0 && was > 0.0 { by * (measured / was).min(1.0) } else { by };
    (measured + by).max(0.0)
}

/// By [`WIDER`] and [`OFF`]; `off` is the null error.
fn wider(Interval { low, likely, high }: Interval, off: f64) -> Interval {
    let least = OFF * off.abs();
    let [below, above] = [likely - low, high - likely].map(|half| (WIDER * half).max(least));
    Interval { low: (likely - below).max(0.0), likely, high: likely + above }
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

/// How often a thread wakes, per second.
fn wakes(t: &ThreadModel) -> f64 {
    let counted = t.wakeups_per_s.or(t.switches_per_s).filter(|per_s| *per_s > 0.0);
    counted.unwrap_or(WAKES).min(WAKES_MOST)
}

/// What a thread wants, by its counters.
fn wanted(t: &ThreadModel) -> Wanted {
    let run = t.shares.run.unwrap_or(0.0).clamp(0.0, 1.0);
    let wait = t.shares.wait.unwrap_or(0.0) + t.shares.costop.unwrap_or(0.0);
    let asleep = t.shares.blocked.unwrap_or(1.0 - run - wait).clamp(0.0, 1.0);
    let demand = if run < RUNS {
        Demand::Idle
    } else if asleep < SLEEPS {
        Demand::Hog
    } else {
        let ns = |share: f64| Times::Exponential(((share * 1e9 / wakes(t)) as u64).max(1_000));
        Demand::SleepCompute { sleep: ns(asleep), compute: ns(run) }
    };
    Wanted { demand, bursts: 0, broken: 0, ran_ns: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use crate::sched::find;
    use crate::setup::{Setup, VcpuSetup, VmSetup};
    use vsteer_core::model::derive;
    use vsteer_core::topology::machine;

    /// A host as an observer sees it, with every thread's wake-ups counted `wakes` times as often.
    fn host(vms: usize, wakes: f64) -> (HostConfig, HostModel) {
        let sleeper = Demand::SleepCompute {
            sleep: Times::Exponential(8_000_000),
            compute: Times::Exponential(2_000_000),
        };
        let of = |i: usize| VmSetup::new(format!("vm{i}"), vec![VcpuSetup::new(sleeper.clone())]);
        let setup = Setup::new(machine(1, 1, 2, 1).unwrap(), (0..vms).map(of).collect(), 1);
        let entry = find("eevdf").unwrap();
        let mut s = (entry.build)(&setup, &crate::policy::Values::defaults(entry.about.parameters)).unwrap();
        let batches: Vec<_> = (0..=5)
            .map(|second| {
                s.run(second * 1_000_000_000, u64::MAX);
                samples::batch(&setup, &*s, Vec::new())
            })
            .collect();
        let config = samples::config(&setup, "eevdf", entry.about.default_weight);
        let mut model = derive(&config, &samples::collector(false), &batches).unwrap();
        for t in model.vms.iter_mut().flat_map(|vm| &mut vm.threads) {
            t.wakeups_per_s = t.wakeups_per_s.map(|per_s| per_s * wakes);
        }
        (config, model)
    }

    #[test]
    fn without_steps_the_forecast_is_what_was_measured() {
        let (config, model) = host(6, 1.0);
        let told = CountedForecaster::new(&config, &model, &mut || true).unwrap();
        for f in told.forecast(&[], &mut || true).unwrap().vms {
            assert_eq!(
                (f.run_after.likely, f.ready_after.likely),
                (f.run_before, f.ready_before),
                "{}",
                f.name
            );
            assert_eq!(f.wake_p99_ns_after.map(|p99| p99.likely), f.wake_p99_ns_before, "{}", f.name);
        }
    }

    /// A recording can hold any number. Simulating it must not take for ever.
    #[test]
    fn a_host_that_would_take_too_long_is_refused_by_its_wake_ups() {
        let (config, model) = host(40, 1e12);
        let refused = CountedForecaster::new(&config, &model, &mut || true).err().unwrap();
        assert_eq!(refused.kind, FaultKind::Unsupported);
        assert!(refused.what.contains("40 threads that wake 20000000 times per second"), "{refused}");
        let (config, model) = host(3, f64::NAN);
        assert!(CountedForecaster::new(&config, &model, &mut || true).is_ok());
    }
}
