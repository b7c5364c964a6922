//! Forecasts how long VMs on ESXi will wait with another placement. Simulates relaxed co-scheduling on a host
//! of which only shares are known.
//!
//! esxtop reports how much each VM ran, was ready and was co-stopped, but not when. So the simulation gives
//! its vCPUs demands with the measured run time and two unknowns: how many vCPUs of a VM wake **together** (a
//! team), and how **long** they then run (a burst). Both are fitted only to samples from before the change.
//! For each burst length, the fit finds the team size with which the simulator reproduces the measured ready
//! time. Then it chooses the burst length that reproduces co-stop best. Work arrives at fixed times, even if
//! the last work is late. So VMs that wait less do not run more.
//!
//! The ready share does not depend on the burst length as long as bursts are short compared with the quantum.
//! Co-stop depends on it, because siblings must drift apart by milliseconds. If there was little co-stop,
//! bursts were short.
//!
//! Left out: `GAP(cosched-ht)`: of a core's hyper-threads only one is simulated. `GAP(cosched-floor)`: ready
//! time with other causes than the other vCPUs (the hypervisor's own work, moves between cores) is not
//! simulated. If that is most of a VM's ready time, the forecast is too small. `GAP(cosched-alike)`: all VMs
//! have the same team size and burst length; shares, reservations and limits are not simulated.

use crate::engine::Stop;
use crate::guest::poke::Waiting;
use crate::guest::team::{LoopSpec, Pause, Schedule};
use crate::guest::{Demand, Times};
use crate::policy::Values;
use crate::sched::{self, Entry};
use crate::setup::{Setup, Vcpu, VcpuSetup, VmSetup};
use crate::state::State;
use serde::{Deserialize, Serialize};
use vsteer_core::Interval;
use vsteer_core::forecast::fluid;
use vsteer_core::forecast::{Forecast, VmForecast};
use vsteer_core::model::{HostModel, VmModel};
use vsteer_core::nouns::{HostConfig, VmConfig};
use vsteer_core::numa::load::home;
use vsteer_core::setting::Step;
use vsteer_core::{CpuSet, Fault, FaultKind};

/// Burst lengths to try, us, longest first.
const BURSTS_US: [u64; 4] = [8_000, 2_000, 500, 125];
/// Simulated time of a fit, s, for [`VCPUS_OF_IT`] vCPUs; more vCPUs get less time.
const FIT_S: f64 = 2.0;
/// Simulated time of a forecast, s, for each seed.
const FORECAST_S: f64 = 4.0;
const VCPUS_OF_IT: f64 = 48.0;
/// Warm-up that is not measured, s.
const WARM_UP_S: f64 = 0.25;
/// Seeds of a forecast, which show the effect of chance.
const SEEDS: u64 = 3;
/// Number of seeds for the comparison of burst lengths.
const JUDGED_BY: u64 = 2;
/// How often the fit halves the interval of team sizes.
const HALVINGS: usize = 6;
/// Events between two checks whether to continue.
const EVENTS_AT_A_TIME: u64 = 200_000;
/// A vCPU that runs less than this part of a pCPU counts as idle.
const IDLE: f64 = 1e-4;

/// The demands fitted to the host before the change.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// How many vCPUs of a VM wake together, on average.
    pub team: f64,
    /// How long each of them then runs on average, us.
    pub burst_us: u64,
    /// Measured ready time of all VMs together, in pCPUs.
    pub ready_measured: f64,
    /// Simulated ready time, in pCPUs.
    pub ready_simulated: f64,
    /// Measured co-stop, in pCPUs; `None` if it was not measured.
    pub costop_measured: Option<f64>,
    /// Simulated co-stop, in pCPUs.
    pub costop_simulated: f64,
}

/// Sums over a VM's vCPUs, in pCPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Got {
    run: f64,
    ready: f64,
    costop: f64,
}

/// A host with known shares only, and its fitted demands.
pub struct Cosched<'a> {
    config: &'a HostConfig,
    model: &'a HostModel,
    policy: &'static Entry,
    values: Values,
    fit: Fit,
    as_it_was: Vec<Got>,
}

/// A measured VM and its run time.
struct Seen<'a> {
    vm: &'a VmConfig,
    model: &'a VmModel,
    vcpus: u32,
}

fn seen<'a>(config: &'a HostConfig, model: &'a HostModel) -> Result<Vec<Seen<'a>>, Fault> {
    let of = |m: &'a VmModel| {
        let vm = config.vm(&m.id)?;
        Some(Seen { vm, model: m, vcpus: vm.vcpu_count() as u32 })
    };
    let all: Vec<Seen<'a>> = model.vms.iter().filter_map(of).collect();
    match all.iter().find(|s| s.vcpus == 0) {
        None if all.is_empty() => Err(Fault::new(FaultKind::NothingThere, "no VM was measured")),
        None => Ok(all),
        Some(s) => {
            let what = format!("cannot simulate VM {:?}: its number of vCPUs is unknown", s.model.name);
            Err(Fault::new(FaultKind::Unsupported, what).help(format!(
                "write it into host.toml beside the file: [[vm]] name = {:?}, vcpus = N",
                s.model.name
            )))
        }
    }
}

/// One pCPU of each core.
fn a_thread_each(config: &HostConfig) -> CpuSet {
    let usable = config.topology.usable();
    config.topology.cores().iter().filter_map(|k| k.cpus.intersection(&usable).iter().next()).collect()
}

/// The host under `config` with home nodes and settings, and the demands of each VM.
fn setup(config: &HostConfig, seen: &[Seen<'_>], team: f64, burst_us: u64, seed: u64) -> Setup {
    let one_each = a_thread_each(config);
    let vms = seen.iter().map(|s| {
        let now = config.vm(&s.vm.id).unwrap_or(s.vm);
        let at = home(&config.topology, now);
        let cpus = at.map_or_else(|| one_each.clone(), |node| node.cpus.intersection(&one_each));
        let (shares, _) = s.model.vcpus_or_group();
        let each = (shares.run.unwrap_or(0.0) / f64::from(s.vcpus)).clamp(0.0, 0.98);
        let sizes = teams(s.vcpus, team);
        let vcpus = sizes.iter().zip(1u32..).flat_map(|(size, number)| {
            let demand = demand(number, *size, each, burst_us);
            let cpus = cpus.clone();
            (0..*size).map(move |_| VcpuSetup::new(demand.clone()).pinned(cpus.clone()))
        });
        VmSetup::new(s.vm.name.clone(), vcpus.collect())
    });
    Setup::new(config.topology.clone(), vms.collect(), seed)
}

/// The sizes of a VM's teams, with this average.
fn teams(vcpus: u32, team: f64) -> Vec<u32> {
    let mut sizes = Vec::new();
    let (mut left, mut owed) = (vcpus, 0.0);
    while left > 0 {
        // What rounding takes from one team goes to the next.
        owed += team.max(1.0);
        let size = (libm::round(owed).max(1.0) as u32).min(left);
        owed -= f64::from(size);
        sizes.push(size);
        left -= size;
    }
    sizes
}

fn demand(team: u32, size: u32, each: f64, burst_us: u64) -> Demand {
    if each < IDLE {
        return Demand::Idle;
    }
    let every_ns = burst_us as f64 * 1000.0 / each;
    let pause = Times::Uniform((0.5 * every_ns) as u64, (1.5 * every_ns) as u64);
    Demand::Loop(Box::new(LoopSpec {
        team,
        iterations: u64::from(size),
        work: Times::Exponential(burst_us * 1000),
        schedule: Schedule::Static,
        chunk: None,
        threads: None,
        overhead_ns: 0,
        wait: Waiting::Sleep,
        serial: None,
        pause: Some(Pause::Every(pause)),
    }))
}

impl<'a> Cosched<'a> {
    /// Fits demands to the host before the change. Calls `go_on` from time to time.
    ///
    /// # Errors
    /// `Unsupported` if the number of a VM's vCPUs is unknown; `NothingThere` without VMs; `Interrupted`.
    pub fn new(
        config: &'a HostConfig,
        model: &'a HostModel,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Cosched<'a>, Fault> {
        let policy = sched::find("esxi")?;
        let mut values = Values::defaults(policy.about.parameters);
        // Without this, siblings with unequal ready times would drift apart without end (docs/published.md,
        // vdi).
        values.set("idle_catches_up", 1)?;
        let all = seen(config, model)?;
        let sum = |of: &dyn Fn(&vsteer_core::model::Shares) -> Option<f64>| -> Option<f64> {
            all.iter().map(|s| of(s.model.vcpus_or_group().0)).sum()
        };
        let ready_measured = sum(&|s| s.ready.or(s.wait)).unwrap_or(0.0);
        let costop_measured = sum(&|s| s.costop);
        let mut this = Cosched {
            config,
            model,
            policy,
            values,
            fit: Fit {
                team: 1.0,
                burst_us: 0,
                ready_measured,
                ready_simulated: 0.0,
                costop_measured,
                costop_simulated: 0.0,
            },
            as_it_was: Vec::new(),
        };
        let widest = all.iter().map(|s| s.vcpus).max().unwrap_or(1);
        let mut best: Option<(f64, Fit)> = None;
        for burst_us in BURSTS_US {
            let fit = this.fitted(&all, burst_us, f64::from(widest), go_on)?;
            // Compares ready time per VM, not just the sum, because it also depends on which vCPUs wake together.
            let got = this.over_seeds(config, &all, (fit.team, burst_us), JUDGED_BY, FIT_S, go_on)?;
            let off: f64 = all
                .iter()
                .zip(&got)
                .map(|(s, got)| {
                    let (shares, _) = s.model.vcpus_or_group();
                    let ready = shares.ready.or(shares.wait).unwrap_or(0.0);
                    (got.ready - ready).abs() + shares.costop.map_or(0.0, |c| (got.costop - c).abs())
                })
                .sum();
            if best.is_none_or(|(least, _)| off < least) {
                best = Some((off, fit));
            }
        }
        this.fit = best.expect("there are lengths to try").1;
        let demands = (this.fit.team, this.fit.burst_us);
        this.as_it_was = this.over_seeds(config, &all, demands, SEEDS, FORECAST_S, go_on)?;
        let total = |of: fn(&Got) -> f64| this.as_it_was.iter().map(of).sum();
        (this.fit.ready_simulated, this.fit.costop_simulated) = (total(|g| g.ready), total(|g| g.costop));
        Ok(this)
    }

    fn fitted(
        &self,
        all: &[Seen<'_>],
        burst_us: u64,
        widest: f64,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Fit, Fault> {
        let mut told = |team: f64| -> Result<Fit, Fault> {
            let got = self.run(self.config, all, (team, burst_us), 1, FIT_S, go_on)?;
            let total = |of: fn(&Got) -> f64| got.iter().map(of).sum();
            let (ready, costop) = (total(|g| g.ready), total(|g| g.costop));
            Ok(Fit { team, burst_us, ready_simulated: ready, costop_simulated: costop, ..self.fit })
        };
        let wanted = self.fit.ready_measured;
        let (mut low, mut high) = (told(1.0)?, told(widest)?);
        if low.ready_simulated >= wanted || high.ready_simulated <= wanted {
            return Ok(if low.ready_simulated >= wanted { low } else { high });
        }
        for _ in 0..HALVINGS {
            let middle = told(0.5 * (low.team + high.team))?;
            if middle.ready_simulated < wanted { low = middle } else { high = middle }
        }
        let off = |f: &Fit| (f.ready_simulated - wanted).abs();
        Ok(if off(&low) < off(&high) { low } else { high })
    }

    /// What each VM gets with demands of these teams and bursts.
    fn run(
        &self,
        config: &HostConfig,
        all: &[Seen<'_>],
        (team, burst_us): (f64, u64),
        seed: u64,
        seconds: f64,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Got>, Fault> {
        let setup = setup(config, all, team, burst_us, seed);
        let mut simulation = (self.policy.build)(&setup, &self.values)?;
        let vcpus: usize = setup.vms.iter().map(|vm| vm.vcpus.len()).sum();
        let seconds = (seconds * VCPUS_OF_IT / (vcpus as f64).max(VCPUS_OF_IT)).max(0.1);
        let mut until = |s: f64| -> Result<Vec<[u64; 3]>, Fault> {
            let end_ns = (s * 1e9) as u64;
            loop {
                match simulation.run(end_ns, EVENTS_AT_A_TIME) {
                    Stop::Reached => break,
                    Stop::Steps if go_on() => {}
                    Stop::Steps => {
                        return Err(Fault::new(FaultKind::Interrupted, "the simulation was interrupted"));
                    }
                    Stop::Runaway => {
                        return Err(Fault::new(
                            FaultKind::Failed,
                            "simulated time stands still, which is a bug in vsteer",
                        ));
                    }
                }
            }
            let states = [State::Running, State::Ready, State::CoStopped].map(|s| s as usize);
            Ok((0..vcpus).map(|v| states.map(|s| simulation.account(Vcpu(v as u32)).ns[s])).collect())
        };
        let (before, after) = (until(WARM_UP_S)?, until(WARM_UP_S + seconds)?);
        let mut next = 0;
        Ok(all
            .iter()
            .map(|s| {
                let mine = next..next + s.vcpus as usize;
                next = mine.end;
                let part = |k: usize| {
                    let ns: u64 = mine.clone().map(|v| after[v][k] - before[v][k]).sum();
                    ns as f64 / (seconds * 1e9)
                };
                Got { run: part(0), ready: part(1), costop: part(2) }
            })
            .collect())
    }

    /// What each VM gets, averaged over this many seeds.
    fn over_seeds(
        &self,
        config: &HostConfig,
        all: &[Seen<'_>],
        demands: (f64, u64),
        seeds: u64,
        seconds: f64,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Got>, Fault> {
        let mut sum = vec![Got::default(); all.len()];
        for seed in 1..=seeds {
            for (sum, got) in sum.iter_mut().zip(self.run(config, all, demands, seed, seconds, go_on)?) {
                sum.run += got.run / seeds as f64;
                sum.ready += got.ready / seeds as f64;
                sum.costop += got.costop / seeds as f64;
            }
        }
        Ok(sum)
    }

    /// The fitted demands, and how well they fit.
    pub fn fit(&self) -> &Fit {
        &self.fit
    }

    /// Forecasts the effect of `steps`.
    ///
    /// # Errors
    /// `Interrupted`.
    pub fn forecast(&self, steps: &[Step], go_on: &mut dyn FnMut() -> bool) -> Result<Forecast, Fault> {
        let all = seen(self.config, self.model)?;
        let next = fluid::after(self.config, steps);
        let demands = (self.fit.team, self.fit.burst_us);
        let got = match steps {
            [] => self.as_it_was.clone(),
            _ => self.over_seeds(&next, &all, demands, SEEDS, FORECAST_S, go_on)?,
        };
        let vms = all.iter().zip(&self.as_it_was).zip(got).map(|((s, was), will)| {
            let (shares, _) = s.model.vcpus_or_group();
            let (run, ready) = (shares.run.unwrap_or(0.0), shares.ready.or(shares.wait).unwrap_or(0.0));
            // The forecast's error is at least the simulator's error before the change.
            let interval = |likely: f64, off: f64, least: f64| {
                let half = off.abs().max(least);
                Interval { low: (likely - half).max(0.0), likely, high: likely + half }
            };
            let costop = shares.costop.unwrap_or(was.costop);
            let ready_after = carried_over(ready, was.ready, will.ready);
            let costop_after = carried_over(costop, was.costop, will.costop);
            let told = VmForecast {
                run_after: interval(run + will.run - was.run, was.run - run, 0.05 * run + 0.003),
                with_limited: shares.ready.is_none(),
                ready_after: interval(ready_after, was.ready - ready, 0.25 * ready_after + 0.003),
                costop_before: shares.costop,
                costop_after: Some(interval(costop_after, was.costop - costop, 0.25 * costop_after + 0.001)),
                null_error: Some(was.ready + was.costop - ready - costop),
                ..VmForecast::unchanged(s.vm.id.clone(), &s.vm.name, run, ready)
            };
            told.checked(s.vm.vcpu_count())
        });
        Ok(Forecast { method: self.method(), vms: vms.collect() })
    }

    fn method(&self) -> String {
        let Fit { team, burst_us, ready_measured, ready_simulated, .. } = self.fit;
        format!(
            "simulated, relaxed co-scheduling; teams of {team:.1} vCPUs with bursts of {:.3} ms, fitted to \
                ready {:.1} % \
             (simulated {:.1} %) of all VMs before",
            burst_us as f64 / 1000.0,
            100.0 * ready_measured,
            100.0 * ready_simulated
        )
    }
}

/// What becomes of a measured wait that simulation says goes from `was` to `will`. What falls, falls to the same part of it: the
/// demands are fitted to all VMs together, so one VM may begin too high and another too low. What grows is added to it. Without
/// a change it is what was measured.
fn carried_over(measured: f64, was: f64, will: f64) -> f64 {
    if will < was { measured * will / was } else { measured + (will - was) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use vsteer_core::model::derive;
    use vsteer_core::nouns::VsphereVm;
    use vsteer_core::setting::{Change, NodeAffinity};
    use vsteer_core::topology::machine;

    /// Two nodes of two pCPUs. Both VMs are at home on node 0.
    fn testbed() -> (HostConfig, HostModel) {
        let demand = Demand::SleepCompute {
            sleep: Times::Exponential(8_000_000),
            compute: Times::Exponential(4_000_000),
        };
        let topology = machine(1, 2, 2, 1).unwrap();
        let vcpu = VcpuSetup::new(demand).pinned(CpuSet::first(2));
        let vms = ["a", "b"].map(|name| VmSetup::new(name, vec![vcpu.clone(); 4]));
        let setup = Setup::new(topology, vms.to_vec(), 1);
        let entry = sched::find("esxi").unwrap();
        let mut s = (entry.build)(&setup, &Values::defaults(entry.about.parameters)).unwrap();
        let batch = |second: u64| {
            s.run(second * 1_000_000_000, u64::MAX);
            samples::batch(&setup, &*s, Vec::new())
        };
        let batches: Vec<_> = (0..=5).map(batch).collect();
        let mut config = samples::config(&setup, "esxi", entry.about.default_weight);
        for vm in &mut config.vms {
            vm.vsphere = Some(VsphereVm { home_nodes: Some(CpuSet::single(0)), ..VsphereVm::default() });
        }
        let model = derive(&config, &samples::collector(false), &batches).unwrap();
        (config, model)
    }

    #[test]
    fn a_step_without_effect_forecasts_what_was_measured() {
        let (config, model) = testbed();
        let told = Cosched::new(&config, &model, &mut || true).unwrap();
        let to = |node| {
            let change = Change::NodeAffinity(NodeAffinity { from: None, to: Some(CpuSet::single(node)) });
            let vm = &config.vms[1];
            Step { vm: vm.id.clone(), vm_name: vm.name.clone(), change, reason: String::new() }
        };
        let after = |node| {
            let vms = told.forecast(&[to(node)], &mut || true).unwrap().vms;
            [vms[0].ready_after.likely, vms[1].ready_after.likely]
        };
        let measured = [&model.vms[0], &model.vms[1]].map(|vm| vm.vcpus.ready.unwrap());
        assert_eq!(after(0), measured);
        assert!(measured[0] > 0.3 && after(1)[0] < 0.5 * measured[0], "{measured:?}, {:?}", after(1));
    }

    #[test]
    fn teams_are_as_large_as_asked_on_average() {
        assert_eq!(teams(12, 1.0), [1; 12]);
        assert_eq!(teams(12, 4.0), [4, 4, 4]);
        assert_eq!(teams(12, 12.0), [12]);
        assert_eq!(teams(12, 2.5), [3, 2, 3, 2, 2]);
        assert_eq!(teams(3, 12.0), [3]);
    }
}
