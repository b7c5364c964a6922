//! Which periods are pooled, and when does the loop change nothing? The loop around [`super::control`], period
//! after period.
//!
//! **Pool.** At 88 % load of a pCPU, the mean response of a minute is off by a fifth through chance. So the loop
//! pools periods with the same load and weights. A new pool begins if a rate differs by more than chance and
//! [`SHIFT`], or if a weight changed.
//!
//! **Shift.** For a new load, the loop uses the pool before it and lets the estimator apply the new rates, because
//! the minute of the rise shows a queue that still grows.
//!
//! **Rest.** New weights stay for at least [`REST`] periods. They change at most [`SETS_MOST`] times per shift,
//! unless a violation lasts for [`LASTING`] periods. A violation must exceed chance (batch means: A. Law,
//! "Simulation Modeling and Analysis", 5th ed.,
//! 9.5.3). A batch of histogram requests has at least two lots; with fewer than three batches, chance is unknown.
//!
//! **Revert.** If new weights made the worst VM worse at the same load, beyond chance, the estimator is wrong for
//! this host. The loop restores the former weights, as the last change for this load until it has lasted.
//!
//! **No effect.** The loop does not steer VMs whose weight has no effect ([`super::facts::dead`]), but reports
//! their violations. It has no clock and no host: the next period's weights show what the caller did.

use super::control::{ANSWERED, Candidate, Decision, Level, Situation, Step, Violation};
use super::estimate::simulated::Simulated;
use super::estimate::{Case, Driver, Estimator, Sharing};
use super::facts::Dead;
use super::histogram::Lots;
use super::rule::Published;
use super::spread::{self, ReadOff};
use super::window::{Interval, Next, Seen, Vm, interval};
use serde::Serialize;
use vsteer_core::requests::Answered;

/// Rates that differ by less than this part count as equal.
pub const SHIFT: f64 = 0.15;
/// Number of standard deviations beyond which two rates differ.
const SIGMAS: f64 = 4.0;
/// Least number of periods between two changes of weights.
pub const REST: usize = 2;
/// Most changes of weights per shift of load.
pub const SETS_MOST: u32 = 2;
/// Number of periods of a violation after which more changes are allowed.
pub const LASTING: usize = 10;
/// New weights made the worst VM worse if its response time relative to the level grew by more than this factor.
const WORSE: f64 = 1.2;
/// Weights that differ by less than this part count as equal, because hypervisors round to whole numbers.
const SAME_WEIGHT: f64 = 0.05;
/// Most periods in a pool: an hour of minutes.
const POOL_MOST: usize = 60;
/// Number of batches for the error of a mean.
const BATCHES: usize = 20;
/// Least number of requests in a batch.
const BATCH_LEAST: usize = 10;
/// Least number of lots ([`Lots`]) in a batch, so that most of the batch's mean was measured wherever it begins.
const LOTS: usize = 2;
/// The last 1/N of a period shows the present rate.
const TAIL: u64 = 3;
/// Part of an estimate's requests that is used to find the spread of CPU times.
const SPREAD: usize = 20;
/// A simulated host runs this many times fewer requests than the fluid, because each takes much longer.
const BY_HOST: usize = 6;
/// Relative error of estimates for an unseen load, in addition to chance (`lab run estimators`: 5 to 17 %).
const FORETOLD_OFF: f64 = 0.1;
/// Least number of requests in a pool that allows a statement.
const REQUESTS_LEAST: usize = 20;

/// A VM and its service level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Promise {
    /// Name of the VM.
    pub vm: String,
    /// Service level of the VM.
    pub level: Level,
}

/// One VM in one period.
#[derive(Debug, Clone, PartialEq)]
pub struct VmPeriod {
    /// Requests that ended in the period.
    pub requests: Vec<Answered>,
    /// [`Interval::lots`].
    pub lots: Option<Lots>,
    /// CPU time, weight and vCPUs from the host.
    pub vm: Vm,
    /// Why the VM's weight has no effect; `None` if it has.
    pub dead: Option<Dead>,
}

/// One period.
#[derive(Debug, Clone, PartialEq)]
pub struct Period {
    /// Begin and end, ns of the requests' clock.
    pub span_ns: (u64, u64),
    /// VMs in the order of the promises; `None` for a VM that does not run.
    pub vms: Vec<Option<VmPeriod>>,
    /// pCPUs that these VMs may use together.
    pub pcpus: f64,
}

/// State of the levels after a period, and what to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// Measured requests by VM; `None`: too few requests.
    pub seen: Vec<Option<Seen>>,
    /// Violations by VM.
    pub violations: Vec<Option<Violation>>,
    /// Number of pooled periods.
    pub pooled: usize,
    /// Whether the load shifted in this period.
    pub shifted: bool,
    /// What to do. Weights are on the scale of [`Vm::weight`], by VM; those of VMs that are not steered do not change.
    pub decision: Decision,
    /// Reason for the decision, in one line.
    pub why: String,
}

/// Reason if there is no violation.
const HOLDS: &str = "every level holds";

/// Input of the decision after a period.
struct Ground {
    /// Interval of every VM over the pool; `None`: too few requests.
    intervals: Vec<Option<Interval>>,
    /// Present weight of every VM; 0 for a VM that does not run.
    weights: Vec<f64>,
    /// VMs with enough requests and effective weights. The next fields are for these, in this order.
    turned: Vec<usize>,
    /// Measured intervals: of the pool, or of the load before the shift.
    seen: Vec<Seen>,
    gaps_s: Vec<Vec<f64>>,
    /// Present rates and weights.
    next: Vec<Next>,
    /// Relative error by chance of each response.
    chance: Vec<f64>,
    /// What they may use.
    pcpus: f64,
    driver: Driver,
    /// [`Around::host`], where something may be wrong.
    host: Option<Simulated>,
    /// Whether `seen` is of the load before the shift.
    foretold: bool,
    /// Whether a violation is possible. If not, no estimate is needed.
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

/// Weights that were set for a measured load, and the weights before.
#[derive(Debug, Clone)]
struct Tried {
    set: Vec<f64>,
    before: Vec<f64>,
    /// Worst response time then, as a multiple of the level.
    worst: f64,
}

/// Services of the caller for the loop.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// [`Case::between`].
    pub between: &'a dyn Fn(),
    /// The present host as a simulation with the requests of these VMs (indexes of the promises), if the fluid does
    /// not fit.
    pub host: &'a dyn Fn(&[usize]) -> Option<Simulated>,
    /// [`Case::driver`].
    pub driver: Driver,
}

impl Default for Around<'_> {
    fn default() -> Self {
        Around { between: &|| {}, host: &|_| None, driver: Driver::default() }
    }
}

/// State of the loop.
#[derive(Debug, Clone)]
pub struct Holder {
    promises: Vec<Promise>,
    estimator: Estimator,
    /// A published rule that decides instead of ours.
    rule: Option<Published>,
    effort: usize,
    pool: Vec<Period>,
    /// All requests of the pool, by VM and in order of periods, so that a long pool is not built again each time.
    gathered: Vec<Vec<Answered>>,
    /// Intervals of the pool before the last shift, by VM; empty if that pool was too short.
    before: Vec<Option<Interval>>,
    /// Spread of the CPU times of each VM's requests, once found. It stays the same when loads change.
    spreads: Vec<Option<ReadOff>>,
    /// Changes of weights since the last shift.
    sets: u32,
    /// The last change, if the loop can find out whether it made things worse.
    tried: Option<Tried>,
    /// Whether the pool holds only the period in which a simulated host's weights were set. Half of that period had
    /// the former weights, so the next period replaces it.
    mixed: bool,
    /// Whether the host is simulated.
    by_host: bool,
    /// Candidates to move, once computed for this pool.
    going: Option<Vec<Candidate>>,
}

impl Holder {
    /// A loop before its first period. `effort`: [`Case::effort`].
    pub fn new(promises: Vec<Promise>, estimator: Estimator, effort: usize) -> Holder {
        let spreads = vec![None; promises.len()];
        let gathered = vec![Vec::new(); promises.len()];
        Holder {
            promises,
            estimator,
            rule: None,
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

    /// The same, but a published rule decides.
    #[must_use]
    pub fn by_rule(self, rule: Option<Published>) -> Holder {
        Holder { rule, ..self }
    }

    /// The VMs and their levels.
    pub fn promises(&self) -> &[Promise] {
        &self.promises
    }

    /// Adds a period and decides what to do.
    ///
    /// # Panics
    /// If the VMs of the measured period are not the VMs that have service levels, which is a bug.
    pub fn step(&mut self, period: Period, around: Around<'_>) -> Outcome {
        assert_eq!(period.vms.len(), self.promises.len(), "one for each promise");
        if let Some(rule) = self.rule {
            return self.step_by(rule, period, around.driver);
        }
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

    /// Adds a period to the pool and drops the oldest if there are too many.
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

    /// Did a VM's weight or vCPUs change, or did a VM start or stop?
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
        // Requests that ended in the pool. The earliest may have begun before it.
        let begun = requests.iter().map(|r| r.began_ns).min()?;
        let span = (begun.min(self.pool[0].span_ns.0), self.pool.last()?.span_ns.1);
        let whole = interval(requests, span, Vm { cpu_ns, ..last.vm })?;
        let lots =
            self.pool.iter().filter_map(|p| p.vms[i].as_ref()).fold(None, |all, v| Lots::both(all, &v.lots));
        (requests.len() >= REQUESTS_LEAST).then_some(Interval { lots, ..whole })
    }

    /// Input of the decision, for the VMs with effective weights.
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
        // A long pool costs time, so no estimate is made if there is no violation.
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

    /// Text of the violations of the VMs in `turned`, and of the VMs that no weight helps.
    fn wrong(&self, turned: &[usize], found: &[Option<Violation>], helpless: Vec<String>) -> String {
        let told = |(i, v): (&usize, &Option<Violation>)| v.map(|v| format!("{} {v}", self.promises[*i].vm));
        let wrong: Vec<String> = turned.iter().zip(found).filter_map(told).chain(helpless).collect();
        if wrong.is_empty() { HOLDS.to_owned() } else { wrong.join("; ") }
    }

    /// Extends a decision on the VMs in `turned` to all VMs, and remembers what later periods need of it.
    fn on_all(&mut self, decision: Decision, ground: &Ground) -> Decision {
        match decision {
            Decision::Set { weights, worst } => {
                let all = with_new(&ground.weights, &ground.turned, &weights);
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
                (true, true) => "no VM has enough requests".to_owned(),
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
        // While the loop rests, foreseen violations are not computed with a simulated host.
        let found = step.violations(ground.host.is_none() || self.rests().is_none());
        let mut violations: Vec<Option<Violation>> = nothing;
        ground.turned.iter().zip(&found).for_each(|(i, v)| violations[*i] = *v);
        let wrong = self.wrong(&ground.turned, &found, helpless);
        if found.iter().all(Option::is_none) {
            return outcome(violations, Decision::Keep, wrong);
        }
        if let Some(Tried { before, worst, .. }) = self.worse(&ground) {
            (self.sets, self.tried) = (SETS_MOST, None);
            let why = format!(
                "{wrong}; the worst VM is slower than with the former weights ({worst:.2} times its level), \
                    so the former weights return"
            );
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

    /// Reason for a decision.
    fn reason(&self, decision: &Decision) -> String {
        match decision {
            Decision::Set { worst, .. } => {
                format!("with these weights the worst VM takes {worst:.2} times its level")
            }
            Decision::Keep => "no other weights are clearly better".to_owned(),
            Decision::Move { worst, candidates } => {
                let most = worst.map_or("there is more work than pCPUs".to_owned(), |worst| {
                    format!(
                        "no weights hold every level: with the best ones the worst VM takes {worst:.2} \
                            times its level"
                    )
                });
                let who = candidates.first().map_or("", |c| self.promises[c.vm].vm.as_str());
                format!("{most}; move {who} first")
            }
        }
    }

    /// Text for the VMs that no weight helps.
    fn helpless(&self, intervals: &[Option<Interval>]) -> Vec<String> {
        let now = self.pool.last().expect("a period was just added");
        let of = |i: usize| {
            let Promise { vm, level } = &self.promises[i];
            let seen = intervals[i].as_ref()?.seen;
            if level.is_out_of_reach(seen.service_s) {
                let ms = 1e3 * seen.service_s;
                return Some(format!(
                    "{vm} needs {ms:.2} ms of CPU time per request, more than its level, so no weight can \
                        hold it"
                ));
            }
            let why = now.vms[i].as_ref()?.dead.as_ref()?;
            (level.part(seen.response) > 1.0)
                .then(|| format!("{vm} exceeds its level, but its weight has no effect: {why}"))
        };
        (0..self.promises.len()).filter_map(of).collect()
    }

    /// Request rate at the end of the last period, and whether it differs from the pool's rate.
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

    /// Worst response time as a multiple of the level, each reduced by its error by chance.
    fn worst(&self, ground: &Ground, chance: impl Fn(usize) -> f64) -> Option<f64> {
        let part = |(k, i): (usize, &usize)| {
            let seen = ground.intervals[*i].as_ref()?.seen;
            Some(self.promises[*i].level.part(seen.response) * (1.0 - chance(k)))
        };
        ground.turned.iter().enumerate().filter_map(part).reduce(f64::max)
    }

    /// The last change of weights, if it made the worst VM worse.
    fn worse(&self, ground: &Ground) -> Option<Tried> {
        let tried = self.tried.as_ref().filter(|_| self.pool.len() >= REST && !ground.foretold)?;
        let same = |(now, set): (&f64, &f64)| (now - set).abs() <= SAME_WEIGHT * set;
        let worst = self.worst(ground, |k| ground.chance[k].min(1.0))?;
        let worse = worst > WORSE * tried.worst.max(1.0) && ground.weights.iter().zip(&tried.set).all(same);
        worse.then(|| tried.clone())
    }

    /// Why weights do not change now; `None` if they may.
    fn rests(&self) -> Option<String> {
        let pooled = self.pool.len();
        if self.sets > 0 && pooled < REST {
            return Some(format!(
                "waiting {} more for the effect of the new weights",
                periods(REST - pooled)
            ));
        }
        if self.sets >= SETS_MOST && pooled < LASTING {
            return Some(format!(
                "weights changed {} times for this load already; waiting {} more",
                self.sets,
                periods(LASTING - pooled)
            ));
        }
        None
    }

    /// Answered requests per second.
    fn served_hz(&self, i: usize) -> f64 {
        let (Some(first), Some(last)) = (self.pool.first(), self.pool.last()) else { return 0.0 };
        let length_s = last.span_ns.1.saturating_sub(first.span_ns.0) as f64 / 1e9;
        if length_s > 0.0 { self.gathered[i].len() as f64 / length_s } else { 0.0 }
    }
}

/// How many pCPUs remain for the VMs in `turned` (those whose weights change) after the load of all other VMs.
fn left(now: &Period, intervals: &[Option<Interval>], turned: &[usize]) -> f64 {
    let load = |i: &Interval| i.seen.load_at(i.seen.rate_hz);
    let others = (0..intervals.len()).filter(|i| !turned.contains(i));
    // Includes VMs whose requests are not seen (a silent log).
    let used = |i: usize| {
        let by_host = |v: &VmPeriod| v.vm.cpu_ns as f64 / 1e9 / length_s(now).max(f64::MIN_POSITIVE);
        intervals[i].as_ref().map(load).or_else(|| now.vms[i].as_ref().map(by_host)).unwrap_or(0.0)
    };
    (now.pcpus - others.map(used).sum::<f64>()).max(0.01 * now.pcpus)
}

/// All weights, with new ones for the VMs in `turned`. These keep their sum, so that other VMs get the same share as before.
fn with_new(weights: &[f64], turned: &[usize], new: &[f64]) -> Vec<f64> {
    let before: f64 = turned.iter().map(|i| weights[*i]).sum();
    let scale = before / new.iter().sum::<f64>();
    let mut all = weights.to_vec();
    turned.iter().zip(new).for_each(|(i, w)| all[*i] = scale * w);
    all
}

fn periods(n: usize) -> String {
    if n == 1 { "period".to_owned() } else { format!("{n} periods") }
}

/// Two counts with their lengths in seconds: do the rates differ by more than chance and [`SHIFT`]?
fn shifted_rate((pooled, pooled_s): (usize, f64), (now, now_s): (usize, f64)) -> bool {
    if pooled_s <= 0.0 || now_s <= 0.0 {
        return false;
    }
    let (was, is) = (pooled as f64 / pooled_s, now as f64 / now_s);
    // The variance of a count is about the count, and more for bursts, so the larger rate stands for both.
    let chance = libm::sqrt(was.max(is) * (1.0 / pooled_s + 1.0 / now_s));
    (is - was).abs() > SIGMAS * chance && (is - was).abs() > SHIFT * was.max(is)
}

fn length_s(period: &Period) -> f64 {
    period.span_ns.1.saturating_sub(period.span_ns.0) as f64 / 1e9
}

/// Relative error of a response because the rates are counts from a period. Waits react strongly if few pCPUs are
/// left. 0 if the rates are those of the responses.
fn rates_unsure(seen: &[Seen], now_hz: &[(f64, bool)], pcpus: f64, length_s: f64) -> f64 {
    let all = || seen.iter().zip(now_hz);
    if all().all(|(s, (rate_hz, _))| s.rate_hz == *rate_hz) || length_s <= 0.0 {
        return 0.0;
    }
    let load: f64 = all().map(|(s, (rate_hz, _))| s.load_at(*rate_hz)).sum();
    let variance: f64 = all().map(|(s, (rate_hz, _))| s.service_s * s.service_s * rate_hz / length_s).sum();
    libm::sqrt(variance) / (pcpus - load).max(0.01 * pcpus)
}

/// Relative standard error of the mean of these values, in order, by batch means. 1 if there are too few values.
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

mod published;
#[cfg(test)]
mod tests;
