//! The results of each VM of a scenario: of one run, or of several seeds with an interval.
//!
//! [`MEASURES`] is the table of measures, which tables, JSON and sweeps use. A share is per vCPU (the mean
//! over a VM's vCPUs), so that VMs of different sizes can be compared. Rates are of the whole VM.
//!
//! Intervals are Student's over the seeds' means, two-sided at 95 %, because seeds are independent, while the
//! samples of one run may not be. One seed gives no interval.

use super::Case;
use crate::account::Account;
use crate::engine::Stop;
use crate::guest::{Jobs, Sleeps};
use crate::sched::Simulation;
use crate::setup::{Pcpu, Setup, Vcpu};
use crate::state::{STATES, State};
use serde::Serialize;
use vsteer_core::nouns::Histogram;
use vsteer_core::stats::{half_width, mean};
use vsteer_core::{Fault, FaultKind};

/// Events between two checks whether to continue, about 50 ms of real time.
const EVENTS_AT_A_TIME: u64 = 200_000;

/// How to print a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A fraction of a pCPU per vCPU; printed in percent.
    Share,
    /// A time, ns.
    Time,
    /// Per second.
    Rate,
    /// A fraction of what was counted; printed in percent.
    Part,
}

/// A measure of a VM.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Measure {
    /// Its name in tables and JSON.
    pub name: &'static str,
    /// Unit, which decides how to print the value.
    pub unit: Unit,
    /// One line about it.
    pub doc: &'static str,
    #[serde(skip)]
    of: fn(&Window) -> Option<f64>,
}

const fn measure(
    name: &'static str,
    unit: Unit,
    doc: &'static str,
    of: fn(&Window) -> Option<f64>,
) -> Measure {
    Measure { name, unit, doc, of }
}

/// The measures of every VM; a value is `None` if the measure does not apply.
pub const MEASURES: &[Measure] = &[
    measure("run", Unit::Share, "running on a pCPU", |w| w.share(State::Running)),
    measure("ready", Unit::Share, "ready to run, but without a pCPU", |w| w.share(State::Ready)),
    measure("co_stopped", Unit::Share, "held back so that siblings catch up", |w| w.share(State::CoStopped)),
    measure("limited", Unit::Share, "throttled by a cap or quota", |w| w.share(State::Limited)),
    measure("lag", Unit::Share, "ready while a sibling ran", |w| w.lag_ns.map(|ns| w.part_of_window(ns))),
    measure("wake_mean", Unit::Time, "wake-up to running, mean", |w| w.per_wake_up(w.wake_wait_ns)),
    measure("wake_p50", Unit::Time, "wake-up to running, median", |w| w.wake.quantile_ns(0.5)),
    measure("wake_p99", Unit::Time, "wake-up to running, 99th percentile", |w| w.wake.quantile_ns(0.99)),
    measure(
        "sleep_asked",
        Unit::Time,
        "requested length of sleeps, mean, if the guest has requested \
        lengths",
        |w| {
            let s = w.sleeps.as_ref().filter(|s| s.asked > 0 && s.asked_ns > 0)?;
            Some(s.asked_ns as f64 / s.asked as f64)
        },
    ),
    measure("sleep_mean", Unit::Time, "from falling asleep to continuing, mean", |w| match w.seen() {
        Some(s) => Some(s.took_ns as f64 / s.seen as f64),
        None => w.per_wake_up(w.in_state[State::Blocked as usize] + w.wake_wait_ns),
    }),
    measure(
        "sleep_p80",
        Unit::Time,
        "from falling asleep to continuing, 80th percentile, for guests that \
        poll",
        |w| w.seen()?.took.quantile_ns(0.8),
    ),
    measure(
        "cycle_mean",
        Unit::Time,
        "mean time from the begin of one sleep to the begin of the next",
        |w| match w.seen() {
            Some(s) => Some(s.cycle_ns as f64 / s.seen as f64),
            None => w.per_wake_up(w.ns * w.vcpus),
        },
    ),
    measure(
        "ready_p99",
        Unit::Time,
        "uninterrupted wait for a pCPU, 99th \
        percentile",
        |w| w.spell.quantile_ns(0.99),
    ),
    measure("switches", Unit::Rate, "times that the VM got a pCPU", |w| w.rate(w.switches)),
    measure("preemptions", Unit::Rate, "times that the VM lost a pCPU while it could run", |w| {
        w.rate(w.preemptions)
    }),
    measure(
        "migrations",
        Unit::Rate,
        "times that the VM ran on another pCPU than \
        before",
        |w| w.rate(w.migrations),
    ),
    measure("jobs", Unit::Rate, "jobs or requests done", |w| w.rate(w.jobs.as_ref()?.done)),
    measure("frames", Unit::Rate, "frames shown", |w| w.rate(w.frames?)),
    measure("response_mean", Unit::Time, "release or arrival to the end, mean", |w| {
        let jobs = w.jobs.as_ref().filter(|j| j.done > 0)?;
        Some(jobs.response_ns as f64 / jobs.done as f64)
    }),
    measure("response_p99", Unit::Time, "release or arrival to the end, 99th percentile", |w| {
        w.jobs.as_ref()?.response.quantile_ns(0.99)
    }),
    measure("dropped", Unit::Part, "requests refused, frames dropped", |w| {
        let jobs = w.jobs.as_ref().filter(|j| j.done + j.dropped > 0)?;
        Some(jobs.dropped as f64 / (jobs.done + jobs.dropped) as f64)
    }),
    measure("late", Unit::Part, "jobs done after their deadline", |w| {
        let jobs = w.jobs.as_ref().filter(|j| j.done > 0)?;
        Some(jobs.late as f64 / jobs.done as f64)
    }),
];

/// The increase of one VM's counters, all its vCPUs together, between two times.
#[derive(Debug, Clone)]
struct Window {
    ns: u64,
    vcpus: u64,
    in_state: [u64; STATES],
    lag_ns: Option<u64>,
    switches: u64,
    preemptions: u64,
    migrations: u64,
    wakeups: u64,
    wake_wait_ns: u64,
    wake: Histogram,
    spell: Histogram,
    jobs: Option<Jobs>,
    frames: Option<u64>,
    sleeps: Option<Sleeps>,
}

impl Window {
    fn between(first: &[Account], last: &[Account], ns: u64) -> Window {
        let mut w = Window {
            ns,
            vcpus: last.len().max(1) as u64,
            in_state: [0; STATES],
            lag_ns: None,
            switches: 0,
            preemptions: 0,
            migrations: 0,
            wakeups: 0,
            wake_wait_ns: 0,
            wake: Histogram::default(),
            spell: Histogram::default(),
            jobs: None,
            frames: None,
            sleeps: None,
        };
        for (a, b) in first.iter().zip(last) {
            (0..STATES).for_each(|s| w.in_state[s] += b.ns[s] - a.ns[s]);
            if let Some(lag_ns) = b.lag_ns {
                *w.lag_ns.get_or_insert(0) += lag_ns - a.lag_ns.unwrap_or(0);
            }
            w.switches += b.switches - a.switches;
            w.preemptions += b.preemptions - a.preemptions;
            w.migrations += b.migrations - a.migrations;
            w.wakeups += b.wakeups - a.wakeups;
            w.wake_wait_ns += b.wake_wait_ns - a.wake_wait_ns;
            w.wake = w.wake.merged(&b.wake_latency.since(&a.wake_latency));
            w.spell = w.spell.merged(&b.ready_spell.since(&a.ready_spell));
            if let Some(late) = &b.jobs {
                let sum = w.jobs.get_or_insert_default();
                let early = a.jobs.clone().unwrap_or_default();
                sum.done += late.done - early.done;
                sum.late += late.late - early.late;
                sum.dropped += late.dropped - early.dropped;
                sum.response_ns += late.response_ns - early.response_ns;
                sum.response = sum.response.merged(&late.response.since(&early.response));
            }
            if let Some(frames) = b.frames {
                *w.frames.get_or_insert(0) += frames - a.frames.unwrap_or(0);
            }
            if let Some(late) = &b.sleeps {
                let sum = w.sleeps.get_or_insert_default();
                let early = a.sleeps.clone().unwrap_or_default();
                sum.asked += late.asked - early.asked;
                sum.asked_ns += late.asked_ns - early.asked_ns;
                sum.seen += late.seen - early.seen;
                sum.took_ns += late.took_ns - early.took_ns;
                sum.cycle_ns += late.cycle_ns - early.cycle_ns;
                sum.took = sum.took.merged(&late.took.since(&early.took));
            }
        }
        w
    }

    /// Sleeps whose end the guests saw themselves.
    fn seen(&self) -> Option<&Sleeps> {
        self.sleeps.as_ref().filter(|s| s.seen > 0)
    }

    fn part_of_window(&self, ns: u64) -> f64 {
        ns as f64 / self.ns as f64 / self.vcpus as f64
    }

    fn share(&self, state: State) -> Option<f64> {
        Some(self.part_of_window(self.in_state[state as usize]))
    }

    fn per_wake_up(&self, ns: u64) -> Option<f64> {
        (self.wakeups > 0).then(|| ns as f64 / self.wakeups as f64)
    }

    fn rate(&self, count: u64) -> Option<f64> {
        Some(count as f64 / self.ns as f64 * 1e9)
    }
}

/// Why a run ended where it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It reached its end.
    Whole,
    /// Its caller asked it to stop.
    Stopped,
    /// Simulated time stood still, because the scheduler or a guest loops.
    Runaway,
}

/// The results of one seed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// Seed of the run.
    pub seed: u64,
    /// How the run ended.
    pub ended: Ended,
    /// Measured simulated time, ns.
    pub measured_ns: u64,
    /// Wake-ups, dispatches, preemptions and blocks, including those of the warm-up.
    pub events: u64,
    /// The share of the time that pCPUs were busy, as the mean over the pCPUs.
    pub busy: f64,
    /// Per VM, the values in the order of [`MEASURES`].
    pub vms: Vec<Vec<Option<f64>>>,
}

fn accounts(simulation: &dyn Simulation) -> Vec<Account> {
    (0..simulation.host().vcpus.len() as u32).map(|v| simulation.account(Vcpu(v))).collect()
}

fn busy_ns(simulation: &dyn Simulation) -> u64 {
    (0..simulation.host().pcpus.len() as u32).map(|p| simulation.busy_ns(Pcpu(p))).sum()
}

/// A follower of a run.
pub trait Follow {
    /// Simulated time between two calls of [`Follow::sample`], ns.
    fn stride_ns(&self) -> u64 {
        u64::MAX
    }

    /// Called at the start of the measurement, at every stride after it, and at the end.
    ///
    /// # Errors
    /// Ends the run with this fault.
    fn sample(&mut self, _setup: &Setup, _simulation: &dyn Simulation) -> Result<(), Fault> {
        Ok(())
    }

    /// Called every few milliseconds with the simulated time; false ends the run there.
    fn go_on(&mut self, _now_ns: u64) -> bool {
        true
    }
}

/// No follower.
impl Follow for () {}

/// Runs `case` with `seed`. `build` makes the simulation ([`crate::sched::Entry::build`], or a traced one).
///
/// # Errors
/// As `build` and `follow`; `BadInput` if time stood still or the run was stopped before the measurement
/// began.
pub fn run(
    case: &Case,
    seed: u64,
    build: impl Fn(&Setup) -> Result<Box<dyn Simulation>, Fault>,
    follow: &mut dyn Follow,
) -> Result<Run, Fault> {
    let setup = Setup { seed, ..case.setup.clone() };
    let mut simulation = build(&setup)?;
    let mut ended = advance(&mut *simulation, case.begin_ns, follow);
    let first = accounts(&*simulation);
    let first_busy_ns = busy_ns(&*simulation);
    if ended == Ended::Whole {
        follow.sample(&setup, &*simulation)?;
    }
    let stride_ns = follow.stride_ns().max(1);
    let mut at_ns = case.begin_ns;
    while ended == Ended::Whole && at_ns < case.end_ns {
        at_ns = at_ns.saturating_add(stride_ns).min(case.end_ns);
        ended = advance(&mut *simulation, at_ns, follow);
        if simulation.now_ns() > case.begin_ns {
            follow.sample(&setup, &*simulation)?;
        }
    }
    let measured_ns = simulation.now_ns().saturating_sub(case.begin_ns);
    if measured_ns == 0 {
        let (kind, why) = match ended {
            Ended::Runaway => (
                FaultKind::BadInput,
                "simulated time stood still, because the scheduler or \
                a guest loops",
            ),
            _ => (FaultKind::Interrupted, "the run was stopped"),
        };
        let what = format!("the run ended during its warm-up, at {} ns", simulation.now_ns());
        return Err(Fault::new(kind, what).because(why));
    }
    let last = accounts(&*simulation);
    let host = simulation.host();
    let vms = host.vms.iter().zip(&setup.vms).map(|(vm, form)| {
        let told = |all: &[Account]| -> Vec<Account> {
            let own = all[vm.first.i()..].iter().zip(&form.vcpus);
            own.filter(|(_, v)| !v.helper).map(|(a, _)| a.clone()).collect()
        };
        let window = Window::between(&told(&first), &told(&last), measured_ns);
        MEASURES.iter().map(|m| (m.of)(&window)).collect()
    });
    let busy_ns = busy_ns(&*simulation) - first_busy_ns;
    Ok(Run {
        seed,
        ended,
        measured_ns,
        events: simulation.events(),
        busy: busy_ns as f64 / measured_ns as f64 / host.pcpus.len() as f64,
        vms: vms.collect(),
    })
}

fn advance(simulation: &mut dyn Simulation, end_ns: u64, follow: &mut dyn Follow) -> Ended {
    loop {
        match simulation.run(end_ns, EVENTS_AT_A_TIME) {
            Stop::Reached => return Ended::Whole,
            Stop::Runaway => return Ended::Runaway,
            Stop::Steps if follow.go_on(simulation.now_ns()) => {}
            Stop::Steps => return Ended::Stopped,
        }
    }
}

/// A value over the seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figure {
    /// Mean over the seeds that have the value.
    pub mean: f64,
    /// Half the width of its 95 % interval; `None` with fewer than two seeds.
    pub half_width: Option<f64>,
}

/// The value over these seeds; `None` if no seed has it.
pub fn figure(values: &[f64]) -> Option<Figure> {
    Some(Figure { mean: mean(values)?, half_width: half_width(values) })
}

/// Measure `m` of VM `vm` over `runs`.
pub fn over_seeds(runs: &[Run], vm: usize, m: usize) -> Option<Figure> {
    let values: Vec<f64> = runs.iter().filter_map(|r| r.vms[vm][m]).collect();
    figure(&values)
}
