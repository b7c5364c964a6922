//! Parallel loops in two VMs with two vCPUs each, pinned and floating: the common parts of Xen's case and the
//! local VMs' case.
//!
//! Each VM multiplies matrices without a pause with four threads of OpenMP (loops.c). While the first one is
//! alone, the length of its regions gives the cost of a row. With that cost, the simulator runs the same VMs
//! pinned and floating, under the scheduler that they had.

use crate::suite::steered::failed;
use serde::Serialize;
use vsteer_core::stats::{half_width, mean, quantile};
use vsteer_core::topology::machine;
use vsteer_core::{CpuSet, Fault};
use vsteer_sim::engine::Stop;
use vsteer_sim::guest::poke::Waiting;
use vsteer_sim::guest::team::{LoopSpec, Schedule};
use vsteer_sim::guest::{Demand, Jobs, Times};
use vsteer_sim::policy::Values;
use vsteer_sim::sched;
use vsteer_sim::setup::{Setup, Vcpu, VcpuSetup, VmSetup};

/// Schedules with their names, and the rows per chunk.
pub const SCHEDULES: [(&str, Schedule, Option<u64>); 3] = [
    ("static", Schedule::Static, None),
    ("dynamic", Schedule::Dynamic, Some(10)),
    ("task", Schedule::Task, None),
];
pub const NAMES: [&str; 2] = ["A", "B"];
/// Rows of a matrix.
pub const ROWS: u64 = 200;
/// OpenMP threads in each VM.
pub const THREADS: u32 = 4;
/// vCPUs of each VM; the machine has the same number of pCPUs.
pub const VCPUS: u32 = 2;
/// How far the simulator's effect may be outside the measured interval, points.
pub const POINTS: f64 = 5.0;
/// libgomp's threads above the number of vCPUs spin briefly, then sleep: as in
/// scenarios/published/openmp-pinning.
const SPIN_NS: u64 = 10_000;
const SIMULATED_NS: u64 = 60_000_000_000;
const WARM_UP_NS: u64 = 10_000_000_000;
const SEEDS: u64 = 10;

/// How much shorter a time is pinned than floating, percent of the latter, with half the width of its 95 %
/// interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    pub pct: f64,
    /// Half the interval's width.
    pub half_pct: f64,
    /// The number of rounds, or of seeds.
    pub n: usize,
}

impl Gain {
    /// From pairs of times, pinned and floating.
    fn of(pairs: impl Iterator<Item = (f64, f64)>) -> Option<Gain> {
        let each: Vec<f64> = pairs.map(|(pinned, floating)| 100.0 * (1.0 - pinned / floating)).collect();
        Some(Gain { pct: mean(&each)?, half_pct: half_width(&each)?, n: each.len() })
    }

    /// -1, or 0 if the interval includes 0, or 1.
    pub fn sign(&self) -> f64 {
        if self.pct.abs() > self.half_pct { self.pct.signum() } else { 0.0 }
    }

    pub fn told(&self) -> String {
        format!("{:+.1} ±{:.1} %", self.pct, self.half_pct)
    }
}

/// A region: its start and end, CLOCK_REALTIME, s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Region {
    pub begin_s: f64,
    pub end_s: f64,
}

impl Region {
    /// How long it took, s.
    pub fn took_s(&self) -> f64 {
        self.end_s - self.begin_s
    }
}

/// Mean times of the loops in one or more VMs, s.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Took {
    /// Length of a region, as a program that times its loops would report.
    pub region_s: f64,
    /// From a region's end to the next one's. This includes what the program does with one thread between
    /// regions, so it is what a user sees who waits for results.
    pub product_s: f64,
    /// The number of regions; parts of regions count as fractions.
    pub regions: f64,
}

/// The times pinned and floating.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Pair {
    /// vCPU n on pCPU n.
    pub pinned: Took,
    /// All vCPUs on all pCPUs.
    pub floating: Took,
}

impl Pair {
    /// How much shorter regions are.
    pub fn regions(pairs: &[Pair]) -> Option<Gain> {
        Gain::of(pairs.iter().map(|p| (p.pinned.region_s, p.floating.region_s)))
    }

    /// How much shorter the time between products is.
    pub fn products(pairs: &[Pair]) -> Option<Gain> {
        Gain::of(pairs.iter().map(|p| (p.pinned.product_s, p.floating.product_s)))
    }
}

/// Means over the part of the VMs' regions (each VM's in order) inside `from_s`..`to_s`: the time divided by
/// the number of regions, where parts of regions count as fractions; and the same from end to end. Counting
/// only whole regions would be wrong: fewer long ones fit, so the mean would be too short if lengths differ.
/// `None` without regions.
pub fn in_window<'a>(vms: impl IntoIterator<Item = &'a [Region]>, from_s: f64, to_s: f64) -> Option<Took> {
    // Sums of time and of fractions.
    let lies = |sum: (f64, f64), begin_s: f64, end_s: f64| {
        let lies_s = (end_s.min(to_s) - begin_s.max(from_s)).max(0.0);
        (sum.0 + lies_s, sum.1 + lies_s / (end_s - begin_s).max(f64::MIN_POSITIVE))
    };
    let (mut regions, mut products) = ((0.0, 0.0), (0.0, 0.0));
    for vm in vms {
        regions = vm.iter().fold(regions, |sum, r| lies(sum, r.begin_s, r.end_s));
        products = vm.windows(2).fold(products, |sum, two| lies(sum, two[0].end_s, two[1].end_s));
    }
    let found = regions.1 > 0.0 && products.1 > 0.0;
    found.then(|| Took {
        region_s: regions.0 / regions.1,
        product_s: products.0 / products.1,
        regions: regions.1,
    })
}

/// The first VM's regions that ended before the other VM began, in order: the median of their lengths, and of
/// the times between two, s.
pub fn alone(first: &[Region], together_s: f64) -> Option<(f64, f64)> {
    // The first region still has to load everything.
    let alone: Vec<Region> = first.iter().skip(1).copied().filter(|r| r.end_s < together_s).collect();
    let took: Vec<f64> = alone.iter().map(Region::took_s).collect();
    let between: Vec<f64> = alone.windows(2).map(|w| w[1].begin_s - w[0].end_s).collect();
    quantile(&took, 0.5).zip(quantile(&between, 0.5))
}

/// The simulator's input.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    pub scheduler: &'a str,
    /// The schedule, and the rows per chunk.
    pub schedule: (Schedule, Option<u64>),
    /// Median length of a region of the first VM while it was alone, s.
    pub alone_s: f64,
    /// Median time between two of its regions, s.
    pub between_s: f64,
    /// For each pCPU, the share that others use.
    pub others: &'a [f64],
    /// The cost of a switch, ns; `None`: the simulator's own value, because it was not measured.
    pub switch_ns: Option<u64>,
}

/// The simulated times of the loops, one pair per seed.
///
/// # Errors
/// An unknown scheduler, or the simulation ends early, which is a bug.
pub fn simulated(told: &Told<'_>) -> Result<Vec<Pair>, Fault> {
    let ns = |s: f64| ((1e9 * s) as u64).max(1);
    let run = |pinned: bool, seed: u64| {
        let spec = |team: u32| LoopSpec {
            team,
            iterations: ROWS,
            work: Times::Fixed(ns(told.alone_s * f64::from(VCPUS) / ROWS as f64)),
            schedule: told.schedule.0,
            chunk: told.schedule.1,
            threads: Some(THREADS),
            overhead_ns: 0,
            wait: Waiting::SpinThenSleep(SPIN_NS),
            serial: Some(Times::Fixed(ns(told.between_s))),
            pause: None,
        };
        let vm = |(team, name): (usize, &&str)| {
            let vcpu = VcpuSetup::new(Demand::Loop(Box::new(spec(team as u32))));
            let placed = (0..VCPUS)
                .map(|v| if pinned { vcpu.clone().pinned(CpuSet::single(v)) } else { vcpu.clone() });
            VmSetup::new(*name, placed.collect())
        };
        // The measured share of others, in bursts of 100 us.
        let other = |(cpu, share): (usize, &f64)| {
            let sleep = Times::Exponential((1e5 * (1.0 - share) / share.max(1e-4)) as u64);
            let demand = Demand::SleepCompute { sleep, compute: Times::Exponential(100_000) };
            VcpuSetup::new(demand).pinned(CpuSet::single(cpu as u32))
        };
        let others = told.others.iter().enumerate().map(other).collect();
        let vms = NAMES.iter().enumerate().map(vm).chain([VmSetup::new("others", others)]);
        let mut setup = Setup::new(machine(1, 1, VCPUS, 1)?, vms.collect(), seed);
        setup.costs.switch_ns = told.switch_ns.unwrap_or(setup.costs.switch_ns);
        let entry = sched::find(told.scheduler)?;
        let mut simulation = (entry.build)(&setup, &Values::defaults(entry.about.parameters))?;
        let mut until = |ns: u64| match simulation.run(ns, u64::MAX) {
            Stop::Reached => Ok((0..2)
                .map(|vm| simulation.account(Vcpu(vm * VCPUS)).jobs.unwrap_or_default())
                .collect::<Vec<_>>()),
            stop => Err(failed(&format!("the simulation ended: {stop:?}"))),
        };
        let (before, after) = (until(WARM_UP_NS)?, until(WARM_UP_NS + SIMULATED_NS)?);
        let sum =
            |of: fn(&Jobs) -> u64| after.iter().map(of).sum::<u64>() - before.iter().map(of).sum::<u64>();
        let done = sum(|j| j.done).max(1) as f64;
        Ok::<Took, Fault>(Took {
            region_s: sum(|j| j.response_ns) as f64 / 1e9 / done,
            product_s: after.len() as f64 * SIMULATED_NS as f64 / 1e9 / done,
            regions: done,
        })
    };
    (0..SEEDS).map(|seed| Ok(Pair { pinned: run(true, seed)?, floating: run(false, seed)? })).collect()
}

/// Does the effect of pinning have the simulator's sign (or no significant one), and its size within
/// [`POINTS`]?
pub fn agree(measured: Gain, simulated: Gain) -> bool {
    let outside = ((simulated.pct - measured.pct).abs() - measured.half_pct).max(0.0);
    measured.sign() * simulated.sign() >= 0.0 && outside <= POINTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_regions_count_as_short_ones_do() {
        // Nine of 0.1 s and one of 1.1 s, repeatedly: 0.2 s on average.
        let took = |n: usize| if n % 10 == 9 { 1.1 } else { 0.1 };
        let (mut all, mut at_s) = (Vec::new(), 0.0);
        for n in 0..2000 {
            all.push(Region { begin_s: at_s, end_s: at_s + took(n) });
            at_s += took(n);
        }
        let windows = (0..79).map(|w| (f64::from(w) * 5.0 + 0.35, f64::from(w) * 5.0 + 3.35));
        let (mut mine, mut whole) = ((0.0, 0.0), Vec::new());
        for (from_s, to_s) in windows {
            let part = in_window([&all[..]], from_s, to_s).unwrap();
            assert!((part.region_s * part.regions - 3.0).abs() < 1e-9, "{part:?}");
            // Regions follow each other at once.
            assert!((part.product_s - part.region_s).abs() < 1e-9, "{part:?}");
            mine = (mine.0 + 3.0, mine.1 + part.regions);
            whole.extend(all.iter().filter(|r| r.begin_s >= from_s && r.end_s <= to_s).map(Region::took_s));
        }
        let (mine_s, whole_s) = (mine.0 / mine.1, mean(&whole).unwrap());
        assert!((mine_s - 0.2).abs() < 0.02 && whole_s < 0.18, "{mine_s} {whole_s}");
    }

    #[test]
    fn what_lies_between_regions_is_in_products_alone() {
        // 0.2 s of every 0.25 s.
        let all: Vec<Region> = (0..40)
            .map(|n| f64::from(n) * 0.25)
            .map(|at_s| Region { begin_s: at_s, end_s: at_s + 0.2 })
            .collect();
        let took = in_window([&all[..], &all[..]], 1.3, 6.8).unwrap();
        assert!((took.region_s - 0.2).abs() < 1e-9 && (took.product_s - 0.25).abs() < 1e-9, "{took:?}");
        assert_eq!(in_window([&all[..]], 20.0, 21.0), None);
    }

    #[test]
    fn a_gain_has_an_interval() {
        let gain = Gain::of([(0.9, 1.0), (0.95, 1.0), (0.85, 1.0)].into_iter()).unwrap();
        assert!((gain.pct - 10.0).abs() < 1e-9 && (gain.half_pct - 12.42).abs() < 0.01, "{gain:?}");
        assert_eq!((gain.sign(), Gain { half_pct: 5.0, ..gain }.sign()), (0.0, 1.0));
    }
}
