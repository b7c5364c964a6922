//! Which periods belong together, and when is nothing done? The loop around [`super::control`], period after period.
//!
//! **Pool.** At 88 % of a pCPU the mean response of a minute is a fifth off by chance. So periods are looked at together for as long as
//! the same is asked and the same weights hold; a shift of load (a rate that differs by more than chance and than [`SHIFT`]) or of
//! weights, by whomever, begins anew.
//!
//! **A shift** is answered from what is known well: what the load before it came to, taken to the new rates by the estimator. The minute in which
//! the load rose shows a queue that is still growing.
//!
//! **Rest.** After weights were set, they are not set again before [`REST`] periods under them have been seen, nor more than [`SETS_MOST`]
//! times for one shift, unless what is wrong has lasted for [`LASTING`] periods. A violation is one only beyond what chance explains
//! (batch means: A. Law, "Simulation Modeling and Analysis", 5th ed., 9.5.3). Requests that a histogram counted are drawn in any order
//! between two scrapes: a batch is two such lots or longer, and where that leaves fewer than three batches nothing is known of chance.
//!
//! **Back.** Where the worst VM is worse off under what was set than it was before, beyond chance and at the same load, the estimator is wrong about
//! this host: the weights before return, and that is the last change for this load until it has lasted.
//!
//! **Dead knobs.** A VM whose weight does nothing ([`super::facts::dead`]) is left out: what it uses is taken as used, and what it lacks is
//! told, not turned at.
//!
//! A value in, a value out: no clock, no host. What came of an outcome is told by the next period's weights.

use super::control::{ANSWERED, Candidate, Decision, Level, Situation, Step, Violation};
use super::estimate::simulated::Simulated;
use super::estimate::{Case, Driver, Estimator, Sharing};
use super::facts::Dead;
use super::histogram::Lots;
use super::spread::{self, ReadOff};
use super::window::{Interval, Next, Seen, Vm, interval};
use serde::Serialize;
use vsteer_core::requests::Answered;

/// A rate that differs by less than this part is the same.
pub const SHIFT: f64 = 0.15;
/// Standard deviations of chance beyond which two rates differ.
const SIGMAS: f64 = 4.0;
/// Periods under weights before they are set again.
pub const REST: usize = 2;
/// Times that weights are set for one shift of load.
pub const SETS_MOST: u32 = 2;
/// Periods that a violation lasts before they are set beyond that.
pub const LASTING: usize = 10;
/// What was set has made the worst VM worse if that takes so many times as much of its level as before.
const WORSE: f64 = 1.2;
/// A weight that differs by less than this part is the one that was set: hypervisors have whole numbers.
const SAME_WEIGHT: f64 = 0.05;
/// Pools are not longer than this: an hour of minutes.
const POOL_MOST: usize = 60;
/// Batches for the error of a mean.
const BATCHES: usize = 20;
/// Requests in each, at least.
const BATCH_LEAST: usize = 10;
/// Lots ([`Lots`]) in each, at least: wherever in a lot it begins, most of what it is the mean of was measured.
const LOTS: usize = 2;
/// The end of a period that tells what is asked now: this part of it.
const TAIL: u64 = 3;
/// How CPU times spread is read off by this part of the requests that an estimate draws.
const SPREAD: usize = 20;
/// Of so many times fewer requests than the fluid is asked for, since a simulated host takes so much longer for each.
const BY_HOST: usize = 6;
/// What is told of a load that was not seen yet is so far off, as a part of itself, beside chance (`lab run estimators`: 5 to 17 %).
const FORETOLD_OFF: f64 = 0.1;
/// Fewer requests than this in a pool say nothing.
const REQUESTS_LEAST: usize = 20;

/// A VM with what it must deliver.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Promise {
    /// Its name.
    pub vm: String,
    /// What.
    pub level: Level,
}

/// One VM in one period.
#[derive(Debug, Clone, PartialEq)]
pub struct VmPeriod {
    /// Requests that ended in it.
    pub requests: Vec<Answered>,
    /// [`Interval::lots`].
    pub lots: Option<Lots>,
    /// What its host says of it.
    pub vm: Vm,
    /// Why its weight does nothing.
    pub dead: Option<Dead>,
}

/// One period.
#[derive(Debug, Clone, PartialEq)]
pub struct Period {
    /// From when to when, ns of the requests' clock.
    pub span_ns: (u64, u64),
    /// VMs in the promises' order; `None` for one that is not there (now).
    pub vms: Vec<Option<VmPeriod>>,
    /// pCPUs that they may use together.
    pub pcpus: f64,
}

/// What is known and what is to be done after a period.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// By VM; `None` where too little was asked.
    pub seen: Vec<Option<Seen>>,
    /// What is wrong, by VM.
    pub violations: Vec<Option<Violation>>,
    /// Periods that were looked at together.
    pub pooled: usize,
    /// Did the load shift in this period?
    pub shifted: bool,
    /// What to do: weights on the scale of [`Vm::weight`], by VM, those of VMs that are left out as they are.
    pub decision: Decision,
    /// Why, or why not, in a line.
    pub why: String,
}

/// Said where nothing is wrong.
const HOLDS: &str = "every level holds";

/// What is known of a period.
struct Ground {
    /// Of every VM, over the pool; `None` where too little was asked.
    intervals: Vec<Option<Interval>>,
    /// Every VM's present weight; 0 for one that is not there.
    weights: Vec<f64>,
    /// VMs that were asked enough and whose weights work; what follows is of these, in this order.
    turned: Vec<usize>,
    /// What is to be taken to the present rates: of the pool, or of the load before.
    seen: Vec<Seen>,
    gaps_s: Vec<Vec<f64>>,
    /// The present rates and weights.
    next: Vec<Next>,
    /// By how much of itself each response may be off by chance.
    chance: Vec<f64>,
    /// What they may use.
    pcpus: f64,
    driver: Driver,
    /// [`Around::host`], where something may be wrong.
    host: Option<Simulated>,
    /// Is `seen` of the load before?
    foretold: bool,
    /// May something be wrong? Where all is well and stays as it is nothing needs to be foretold.
    suspect: bool,
}

impl Ground {
    fn case<'a>(&'a self, effort: usize, between: &'a dyn Fn()) -> Case<'a> {
        Case {
            driver: self.driver,
            pcpus: self.pcpus,
            gaps_s: &self.gaps_s,
            host: self.host.as_ref().map(|host| host as &dyn Sharing),
            effort: if self.host.is_some() { effort / BY_HOST } else { effort },
            to_the_letter: !self.foretold,
            between,
            ..Case::new(&self.seen, &self.next)
        }
    }
}

/// Weights that were set for a load that was seen, and what was before.
#[derive(Debug, Clone)]
struct Tried {
    set: Vec<f64>,
    before: Vec<f64>,
    /// What the worst VM took of its level then.
    worst: f64,
}

/// What the loop may ask of who calls it.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// [`Case::between`].
    pub between: &'a dyn Fn(),
    /// The host as it is now, to be simulated with the requests of these VMs (their places among the promises), where the fluid is no
    /// model of it.
    pub host: &'a dyn Fn(&[usize]) -> Option<Simulated>,
    /// [`Case::driver`].
    pub driver: Driver,
}

impl Default for Around<'_> {
    fn default() -> Self {
        Around { between: &|| {}, host: &|_| None, driver: Driver::default() }
    }
}

/// The loop's memory.
#[derive(Debug, Clone)]
pub struct Holder {
    promises: Vec<Promise>,
    estimator: Estimator,
    effort: usize,
    pool: Vec<Period>,
    /// All requests of the pool, by VM, in the order of their periods: a long pool is not put together anew each time.
    gathered: Vec<Vec<Answered>>,
    /// What the pool before the last shift came to, by VM; empty where that was too short to say anything.
    before: Vec<Option<Interval>>,
    /// How the CPU times of each VM's requests spread, once that was read off: requests stay what they are when loads change.
    spreads: Vec<Option<ReadOff>>,
    /// Since the last shift.
    sets: u32,
    /// The last of them, if it can be told whether it was worse.
    tried: Option<Tried>,
    /// Does the pool hold nothing but the period in which a simulated host's weights were set? In that one host and estimate shared
    /// pCPUs, and half of it was under the weights before: it is looked at, and left out as soon as there is another.
    mixed: bool,
    /// Is the host simulated?
    by_host: bool,
    /// Who should go, once that was said for this pool: it is not worked out anew each period.
    going: Option<Vec<Candidate>>,
}

impl Holder {
    /// A loop that has seen nothing. `effort`: [`Case::effort`].
    pub fn new(promises: Vec<Promise>, estimator: Estimator, effort: usize) -> Holder {
        let spreads = vec![None; promises.len()];
        let gathered = vec![Vec::new(); promises.len()];
        Holder {
            promises,
            estimator,
            effort,
            pool: Vec::new(),
            gathered,
            before: Vec::new(),
            spreads,
            sets: 0,
            tried: None,
            mixed: false,
            by_host: false,
            going: None,
        }
    }

    /// The promises.
    pub fn promises(&self) -> &[Promise] {
        &self.promises
    }

    /// What to do after this period.
    ///
    /// # Panics
    /// If the period's VMs are not those of the promises: a bug.
    pub fn step(&mut self, period: Period, around: Around<'_>) -> Outcome {
        assert_eq!(period.vms.len(), self.promises.len(), "one for each promise");
        let (together_s, now_s): (f64, f64) = (self.pool.iter().map(length_s).sum(), length_s(&period));
        let shifted = self.differs(&period, |i, _, now| {
            shifted_rate((self.gathered[i].len(), together_s), (now.requests.len(), now_s))
        });
        let reweighted = self.differs(&period, |_, a, b| a.vm.weight != b.vm.weight);
        if shifted {
            if self.pool.len() >= REST {
                self.before = (0..self.promises.len()).map(|i| self.interval(i)).collect();
            }
            self.sets = 0;
            self.tried = None;
        }
        if shifted || reweighted || self.mixed {
            self.pool.clear();
            self.gathered.iter_mut().for_each(Vec::clear);
            self.going = None;
        }
        self.mixed = reweighted && self.by_host;
        self.pool_with(period);
        let outcome = self.look(shifted, around);
        if matches!(outcome.decision, Decision::Set { .. }) {
            self.sets += 1;
        }
        outcome
    }

    /// One period more, and not too many.
    fn pool_with(&mut self, period: Period) {
        let of = |vm: &Option<VmPeriod>| vm.as_ref().map_or(0, |v| v.requests.len());
        if self.pool.len() >= POOL_MOST {
            let oldest = self.pool.remove(0);
            self.gathered.iter_mut().zip(&oldest.vms).for_each(|(all, vm)| drop(all.drain(..of(vm))));
        }
        for (all, vm) in self.gathered.iter_mut().zip(&period.vms) {
            all.extend(vm.iter().flat_map(|v| v.requests.iter().copied()));
        }
        self.pool.push(period);
    }

    /// Does some VM differ from what the pool has of it? One that came or went does.
    fn differs(&self, period: &Period, of: impl Fn(usize, &VmPeriod, &VmPeriod) -> bool) -> bool {
        let Some(last) = self.pool.last() else { return false };
        (0..period.vms.len()).any(|i| match (&last.vms[i], &period.vms[i]) {
            (Some(last), Some(now)) => of(i, last, now),
            (a, b) => a.is_some() != b.is_some(),
        })
    }

    /// The pool's interval of one VM.
    fn interval(&self, i: usize) -> Option<Interval> {
        let last = self.pool.last()?.vms[i].as_ref()?;
        let cpu_ns = self.pool.iter().filter_map(|p| p.vms[i].as_ref()).map(|v| v.vm.cpu_ns).sum();
        let requests = &self.gathered[i];
        // Those that ended in the pool: the earliest may have come before it.
        let begun = requests.iter().map(|r| r.began_ns).min()?;
        let span = (begun.min(self.pool[0].span_ns.0), self.pool.last()?.span_ns.1);
        let whole = interval(requests, span, Vm { cpu_ns, ..last.vm })?;
        let lots =
            self.pool.iter().filter_map(|p| p.vms[i].as_ref()).fold(None, |all, v| Lots::both(all, &v.lots));
        (requests.len() >= REQUESTS_LEAST).then_some(Interval { lots, ..whole })
    }

    /// What is known of this period, for those whose weights can be turned at.
    fn ground(&mut self, Around { between, host, driver }: Around<'_>) -> Ground {
        let n = self.promises.len();
        let now = self.pool.last().expect("a period was just added").clone();
        let one = |i: usize| {
            let interval = self.interval(i);
            between();
            interval
        };
        let intervals: Vec<Option<Interval>> = (0..n).map(one).collect();
        let alive = |i: &usize| now.vms[*i].as_ref().is_some_and(|v| v.dead.is_none());
        let turned: Vec<usize> = (0..n).filter(|i| intervals[*i].is_some() && alive(i)).collect();
        let pcpus = left(&now, &intervals, &turned);
        let now_hz: Vec<(f64, bool)> =
            turned.iter().map(|i| self.now_hz(*i, intervals[*i].as_ref())).collect();
        let young = self.pool.len() < REST;
        let before: Option<Vec<Interval>> =
            turned.iter().map(|i| self.before.get(*i).cloned().flatten().filter(|_| young)).collect();
        let foretold = before.is_some() && !turned.is_empty();
        let stirred = foretold || now_hz.iter().any(|(_, other)| *other);
        let suspect = stirred || turned.iter().any(|i| self.falls_short(*i, intervals[*i].as_ref()));
        let host = Some(&turned).filter(|_| suspect).and_then(|turned| host(turned));
        self.by_host |= host.is_some();
        // A long pool costs time; where all is well nothing is foretold from it.
        let of_pool = || turned.iter().filter(|_| suspect).filter_map(|i| intervals[*i].clone()).collect();
        let mut known: Vec<Interval> = before.unwrap_or_else(of_pool);
        let spreads = &self.spreads;
        if suspect && turned.iter().any(|i| spreads[*i].is_none()) {
            let part = SPREAD * host.as_ref().map_or(1, |_| BY_HOST);
            spread::read_off(&mut known, pcpus, self.effort / part, between);
            let read_off = turned.iter().zip(&known);
            read_off.for_each(|(i, k)| self.spreads[*i] = Some(ReadOff::of(&k.seen)));
        } else {
            let of_vm = |(i, k): (&usize, &mut Interval)| spreads[*i].iter().for_each(|s| s.on(&mut k.seen));
            turned.iter().zip(&mut known).for_each(of_vm);
        }
        let seen: Vec<Seen> = known.iter().map(|i| i.seen).collect();
        let unsure = rates_unsure(&seen, &now_hz, pcpus, length_s(&now));
        let model = if foretold { FORETOLD_OFF } else { 0.0 };
        let chance = |i: &Interval| {
            let c = chance_of(&i.took_s, i.lots.as_ref());
            libm::sqrt(c * c + unsure * unsure + model * model)
        };
        let weight = |i: &usize| now.vms[*i].as_ref().map_or(1.0, |v| v.vm.weight);
        let next = |(i, (rate_hz, _)): (&usize, &(f64, bool))| Next { rate_hz: *rate_hz, weight: weight(i) };
        Ground {
            chance: known.iter().map(chance).collect(),
            next: turned.iter().zip(&now_hz).map(next).collect(),
            gaps_s: known.into_iter().map(|i| i.gaps_s).collect(),
            weights: now.vms.iter().map(|v| v.as_ref().map_or(0.0, |v| v.vm.weight)).collect(),
            intervals,
            driver,
            host,
            turned,
            seen,
            pcpus,
            foretold,
            suspect,
        }
    }

    /// Is the VM late, or does it answer fewer requests than promised?
    fn falls_short(&self, i: usize, interval: Option<&Interval>) -> bool {
        let (level, seen) = (self.promises[i].level, interval.map(|x| x.seen));
        let late = seen.is_some_and(|s| level.part(s.response) > 1.0);
        let due_hz = level.rate_hz.zip(seen).map(|(rate, seen)| rate.min(seen.rate_hz));
        late || due_hz.is_some_and(|due_hz| self.served_hz(i) < ANSWERED * due_hz)
    }

    /// The levels of the VMs in `turned`, without bounds that no weight can hold.
    fn levels(&self, ground: &Ground) -> Vec<Level> {
        let level = |(i, seen): (&usize, &Seen)| {
            let level = self.promises[*i].level;
            if level.is_out_of_reach(seen.service_s) {
                Level { mean_s: None, p95_s: None, ..level }
            } else {
                level
            }
        };
        ground.turned.iter().zip(&ground.seen).map(level).collect()
    }

    /// The violations of the VMs in `turned`, and the VMs that no weight helps, in words.
    fn wrong(&self, ground: &Ground, found: &[Option<Violation>], helpless: Vec<String>) -> String {
        let told = |(i, v): (&usize, &Option<Violation>)| v.map(|v| format!("{} {v}", self.promises[*i].vm));
        let wrong: Vec<String> = ground.turned.iter().zip(found).filter_map(told).chain(helpless).collect();
        if wrong.is_empty() { HOLDS.to_owned() } else { wrong.join("; ") }
    }

    /// Extends a decision on the VMs in `turned` to all VMs, and remembers what later periods need of it.
    fn on_all(&mut self, decision: Decision, ground: &Ground) -> Decision {
        match decision {
            Decision::Set { weights, worst } => {
                // Together as heavy as before, so that who is left out, or is nobody's here, gets what it got.
                let before: f64 = ground.turned.iter().map(|i| ground.weights[*i]).sum();
                let scale = before / weights.iter().sum::<f64>();
                let mut all = ground.weights.clone();
                ground.turned.iter().zip(weights).for_each(|(i, w)| all[*i] = scale * w);
                let seen = self.worst(ground, |_| 0.0).filter(|_| !ground.foretold);
                self.tried =
                    seen.map(|worst| Tried { set: all.clone(), before: ground.weights.clone(), worst });
                Decision::Set { weights: all, worst }
            }
            Decision::Move { worst, candidates } => {
                let of_all = |c: Candidate| Candidate { vm: ground.turned[c.vm], ..c };
                let candidates: Vec<Candidate> = candidates.into_iter().map(of_all).collect();
                self.going = Some(candidates.clone());
                Decision::Move { worst, candidates }
            }
            Decision::Keep => Decision::Keep,
        }
    }

    fn look(&mut self, shifted: bool, around: Around<'_>) -> Outcome {
        let ground = self.ground(around);
        let pooled = self.pool.len();
        let outcome = |violations, decision, why| Outcome {
            seen: ground.intervals.iter().map(|i| i.as_ref().map(|i| i.seen)).collect(),
            violations,
            pooled,
            shifted,
            decision,
            why,
        };
        let nothing = vec![None; self.promises.len()];
        let helpless = self.helpless(&ground.intervals);
        if !ground.suspect {
            let why = match (helpless.is_empty(), ground.turned.is_empty()) {
                (false, _) => helpless.join("; "),
                (true, true) => "nothing is asked of anybody".to_owned(),
                (true, false) => HOLDS.to_owned(),
            };
            return outcome(nothing, Decision::Keep, why);
        }
        let levels = self.levels(&ground);
        let served_hz: Vec<f64> = ground.turned.iter().map(|i| self.served_hz(*i)).collect();
        let step = Step::new(Situation {
            case: ground.case(self.effort, around.between),
            served_hz: &served_hz,
            levels: &levels,
            chance: &ground.chance,
            estimator: self.estimator,
        });
        // What is about to be wrong is not asked of a simulated host where nothing may be done about it yet.
        let found = step.violations(ground.host.is_none() || self.rests().is_none());
        let mut violations: Vec<Option<Violation>> = nothing;
        ground.turned.iter().zip(&found).for_each(|(i, v)| violations[*i] = *v);
        let wrong = self.wrong(&ground, &found, helpless);
        if found.iter().all(Option::is_none) {
            return outcome(violations, Decision::Keep, wrong);
        }
        if let Some(Tried { before, worst, .. }) = self.worse(&ground) {
            (self.sets, self.tried) = (SETS_MOST, None);
            let why =
                format!("{wrong}; what was set made the worst worse than {worst:.2} of its level: back");
            return outcome(violations, Decision::Set { weights: before, worst }, why);
        }
        if let Some(why) = self.rests() {
            return outcome(violations, Decision::Keep, format!("{wrong}; {why}"));
        }
        let place =
            |c: &Candidate| Some(Candidate { vm: ground.turned.iter().position(|t| *t == c.vm)?, ..*c });
        let going = self.going.as_ref().map(|g| g.iter().filter_map(place).collect());
        let decision = step.decide(going);
        let decision = self.on_all(decision, &ground);
        let then = self.reason(&decision);
        outcome(violations, decision, format!("{wrong}; {then}"))
    }

    /// Why this is done.
    fn reason(&self, decision: &Decision) -> String {
        match decision {
            Decision::Set { worst, .. } => {
                format!("by these weights the worst takes {worst:.2} of its level")
            }
            Decision::Keep => "no weights are better by enough to be worth a change".to_owned(),
            Decision::Move { worst, candidates } => {
                let most = worst.map_or("there is more work than pCPUs".to_owned(), |worst| {
                    format!(
                        "no weights hold every level: by the best ones the worst takes {worst:.2} of its own"
                    )
                });
                let who = candidates.first().map_or("", |c| self.promises[c.vm].vm.as_str());
                format!("{most}; move {who} first")
            }
        }
    }

    /// What is wrong where no weight helps.
    fn helpless(&self, intervals: &[Option<Interval>]) -> Vec<String> {
        let now = self.pool.last().expect("a period was just added");
        let of = |i: usize| {
            let Promise { vm, level } = &self.promises[i];
            let seen = intervals[i].as_ref()?.seen;
            if level.is_out_of_reach(seen.service_s) {
                let ms = 1e3 * seen.service_s;
                return Some(format!(
                    "{vm} takes {ms:.2} ms of CPU for a request, more than its level: nothing here can hold it"
                ));
            }
            let why = now.vms[i].as_ref()?.dead.as_ref()?;
            (level.part(seen.response) > 1.0)
                .then(|| format!("{vm} is beyond its level, but its weight does nothing: {why}"))
        };
        (0..self.promises.len()).filter_map(of).collect()
    }

    /// What is asked per second at the end of the last period; and is that another rate than the pool's?
    fn now_hz(&self, i: usize, pooled: Option<&Interval>) -> (f64, bool) {
        let rate_hz = pooled.map_or(0.0, |p| p.seen.rate_hz);
        let (Some(last), Some(first)) = (self.pool.last(), self.pool.first()) else {
            return (rate_hz, false);
        };
        let Some(now) = &last.vms[i] else { return (rate_hz, false) };
        let (from_ns, to_ns) = last.span_ns;
        let tail_ns = to_ns.saturating_sub(from_ns) / TAIL;
        let late = now.requests.iter().filter(|r| r.began_ns + r.took_ns > to_ns - tail_ns).count();
        let (all_s, tail_s) = (to_ns.saturating_sub(first.span_ns.0) as f64 / 1e9, tail_ns as f64 / 1e9);
        let other = shifted_rate((self.gathered[i].len(), all_s), (late, tail_s));
        (if other { late as f64 / tail_s } else { rate_hz }, other)
    }

    /// What the VM takes of its level that takes most, each response less the part of it that `chance` gives.
    fn worst(&self, ground: &Ground, chance: impl Fn(usize) -> f64) -> Option<f64> {
        let part = |(k, i): (usize, &usize)| {
            let seen = ground.intervals[*i].as_ref()?.seen;
            Some(self.promises[*i].level.part(seen.response) * (1.0 - chance(k)))
        };
        ground.turned.iter().enumerate().filter_map(part).reduce(f64::max)
    }

    /// What was set, if it has made the worst VM worse.
    fn worse(&self, ground: &Ground) -> Option<Tried> {
        let tried = self.tried.as_ref().filter(|_| self.pool.len() >= REST && !ground.foretold)?;
        let same = |(now, set): (&f64, &f64)| (now - set).abs() <= SAME_WEIGHT * set;
        let worst = self.worst(ground, |k| ground.chance[k].min(1.0))?;
        let worse = worst > WORSE * tried.worst.max(1.0) && ground.weights.iter().zip(&tried.set).all(same);
        worse.then(|| tried.clone())
    }

    /// Why weights are left alone for now.
    fn rests(&self) -> Option<String> {
        let pooled = self.pool.len();
        if self.sets > 0 && pooled < REST {
            return Some(format!("what was set is looked at for {} more", periods(REST - pooled)));
        }
        if self.sets >= SETS_MOST && pooled < LASTING {
            return Some(format!(
                "set {} times for this load already: looked at for {} more",
                self.sets,
                periods(LASTING - pooled)
            ));
        }
        None
    }

    /// Answers per second.
    fn served_hz(&self, i: usize) -> f64 {
        let (Some(first), Some(last)) = (self.pool.first(), self.pool.last()) else { return 0.0 };
        let length_s = last.span_ns.1.saturating_sub(first.span_ns.0) as f64 / 1e9;
        if length_s > 0.0 { self.gathered[i].len() as f64 / length_s } else { 0.0 }
    }
}

/// The pCPUs that remain for the VMs in `turned`.
fn left(now: &Period, intervals: &[Option<Interval>], turned: &[usize]) -> f64 {
    let load = |i: &Interval| i.seen.load_at(i.seen.rate_hz);
    let others = (0..intervals.len()).filter(|i| !turned.contains(i));
    // Also of one whose requests are not seen (a log that is silent).
    let used = |i: usize| {
        let by_host = |v: &VmPeriod| v.vm.cpu_ns as f64 / 1e9 / length_s(now).max(f64::MIN_POSITIVE);
        intervals[i].as_ref().map(load).or_else(|| now.vms[i].as_ref().map(by_host)).unwrap_or(0.0)
    };
    (now.pcpus - others.map(used).sum::<f64>()).max(0.01 * now.pcpus)
}

fn periods(n: usize) -> String {
    if n == 1 { "period".to_owned() } else { format!("{n} periods") }
}

/// So many requests in so many seconds, and then so many in so many: do the rates differ by more than chance, and by enough to matter?
fn shifted_rate((pooled, pooled_s): (usize, f64), (now, now_s): (usize, f64)) -> bool {
    if pooled_s <= 0.0 || now_s <= 0.0 {
        return false;
    }
    let (was, is) = (pooled as f64 / pooled_s, now as f64 / now_s);
    // Counts vary as their number does, bursts more: the larger of the two rates stands for both.
    let chance = libm::sqrt(was.max(is) * (1.0 / pooled_s + 1.0 / now_s));
    (is - was).abs() > SIGMAS * chance && (is - was).abs() > SHIFT * was.max(is)
}

fn length_s(period: &Period) -> f64 {
    period.span_ns.1.saturating_sub(period.span_ns.0) as f64 / 1e9
}

/// By how much of itself a response may be off since rates are counts: a period of so many requests is more or less than what is to
/// come, and waits go with one by what is left of the pCPUs. 0 where the rates are those that the responses are of.
fn rates_unsure(seen: &[Seen], now_hz: &[(f64, bool)], pcpus: f64, length_s: f64) -> f64 {
    let all = || seen.iter().zip(now_hz);
    if all().all(|(s, (rate_hz, _))| s.rate_hz == *rate_hz) || length_s <= 0.0 {
        return 0.0;
    }
    let load: f64 = all().map(|(s, (rate_hz, _))| s.load_at(*rate_hz)).sum();
    let variance: f64 = all().map(|(s, (rate_hz, _))| s.service_s * s.service_s * rate_hz / length_s).sum();
    libm::sqrt(variance) / (pcpus - load).max(0.01 * pcpus)
}

/// By how much of itself the mean of these, in order, may be off by chance: one standard error, by batch means. As much as it is, where
/// there are too few to tell.
fn chance_of(took_s: &[f64], lots: Option<&Lots>) -> f64 {
    let each = (took_s.len() / BATCHES).max(BATCH_LEAST).max(lots.map_or(0, |l| LOTS * l.most));
    let means: Vec<f64> = took_s.chunks_exact(each).filter_map(vsteer_core::stats::mean).collect();
    let (Some(mean), Some(variance)) =
        (vsteer_core::stats::mean(&means), vsteer_core::stats::variance(&means))
    else {
        return 1.0;
    };
    if means.len() < 3 || mean <= 0.0 {
        return 1.0;
    }
    libm::sqrt(variance / means.len() as f64) / mean
}

#[cfg(test)]
mod tests;
