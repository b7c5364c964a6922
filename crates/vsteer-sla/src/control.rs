//! One step of the control loop that holds service levels: computes new weights, or names a VM to move.
//!
//! **Detection.** Throughput is violated if a VM answered less than both its demand and its level. (The paper's
//! rule (5) compares with a percentile of processed requests, so it fires for every idle VM.) Response is violated
//! if the measured time exceeds the level, and foreseen to be violated if the estimate at the present rates exceeds
//! it.
//!
//! **Decision.** The best weights minimise the worst response time relative to its level. Each iteration multiplies
//! a VM's weight by how much worse than the others it is. More weight means shorter responses, so the iteration
//! converges. The sum of delays is not minimised, because that favours the least loaded VM.
//!
//! **No oscillation.** Weights change only for a seen or foreseen violation, only if the gain exceeds [`WORTH`],
//! and at most by a factor of [`STEP_MOST`]. New weights leave [`ROOM`] below each level, so a small change of load
//! needs no new ones.
//!
//! Left out: several pCPUs, and VMs whose weight has no effect; the caller leaves them out and reports them.

use super::estimate::{ByWeights, Case, Estimator};
use super::window::Response;
use serde::Serialize;
use std::cell::OnceCell;
use std::fmt;

/// Part of each level that new weights leave free.
pub const ROOM: f64 = 0.1;
/// Least improvement of the worst VM, as a part of its level, that justifies new weights.
pub const WORTH: f64 = 0.05;
/// Largest factor by which one step changes a weight.
pub const STEP_MOST: f64 = 4.0;
/// Largest ratio between two weights. Every hypervisor's scale allows it.
const SPAN: f64 = 1000.0;
const ROUNDS: usize = 10;
/// Part of the simulated requests that is used to choose the VM to move.
const COARSER: usize = 4;
/// Worst response times, relative to the level, that differ by less count as equal.
const ALIKE: f64 = 0.02;

/// A VM that answered this part of the due requests answered enough, because late arrivals finish after the interval.
pub const ANSWERED: f64 = 0.97;

/// Service level of one VM.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Level {
    /// Longest allowed mean response time, seconds; `None`: any.
    pub mean_s: Option<f64>,
    /// Longest allowed 95th percentile of the response time, seconds; `None`: any.
    pub p95_s: Option<f64>,
    /// Requests per second that the VM must answer if they arrive; `None`: any number.
    pub rate_hz: Option<f64>,
}

impl Level {
    /// Does a request need more CPU time than a response may take? Then neither weights nor an equal host help.
    pub fn is_out_of_reach(&self, service_s: f64) -> bool {
        self.mean_s.is_some_and(|s| service_s > s) || self.p95_s.is_some_and(|s| service_s > s)
    }

    /// Response time as a multiple of the level; the larger of mean and percentile.
    pub fn part(&self, response: Response) -> f64 {
        let of = |level: Option<f64>, is: f64| level.map_or(0.0, |s| is / s);
        of(self.mean_s, response.mean_s).max(of(self.p95_s, response.p95_s))
    }
}

/// How one VM violates its level.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Violation {
    /// The VM answered too few requests per second.
    Throughput {
        /// Answered requests per second.
        served_hz: f64,
        /// Requests due per second: the smaller of demand and level.
        due_hz: f64,
    },
    /// The measured response time exceeds the level.
    Response {
        /// Response time as a multiple of the level, above 1.
        part: f64,
    },
    /// The response time will exceed the level at the present rates, according to the estimator.
    Foreseen {
        /// Response time as a multiple of the level, above 1.
        part: f64,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Throughput { served_hz, due_hz } => {
                write!(f, "answers only {served_hz:.1} of {due_hz:.1} requests per second")
            }
            Violation::Response { part } => write!(f, "takes {part:.2} times its level"),
            Violation::Foreseen { part } => write!(f, "will take {part:.2} times its level"),
        }
    }
}

/// What a step says.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Change nothing: every level holds, or no change is worth it.
    Keep,
    /// Set these weights, on the given scale.
    Set {
        /// New weights, by VM.
        weights: Vec<f64>,
        /// Worst response time as a multiple of the level, by the estimator.
        worst: f64,
    },
    /// Move a VM, because no weights hold all levels. The candidate that helps the others most for its own load
    /// comes first.
    Move {
        /// Worst response time as a multiple of the level, above 1; `None`: more work than pCPUs.
        worst: Option<f64>,
        /// Candidates, best first.
        candidates: Vec<Candidate>,
    },
}

/// A VM that may move.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Candidate {
    /// VM, as index.
    pub vm: usize,
    /// Worst response time of the other VMs without this one, as a multiple of the level; `None`: still more work
    /// than pCPUs.
    pub rest: Option<f64>,
}

/// Input of a step.
#[derive(Clone, Copy)]
pub struct Situation<'a> {
    /// The last interval, and the present rates and weights (`next`).
    pub case: Case<'a>,
    /// Answered requests per second in the last interval, by VM.
    pub served_hz: &'a [f64],
    /// What is promised.
    pub levels: &'a [Level],
    /// Relative error by chance of each measured response. Smaller violations are ignored.
    pub chance: &'a [f64],
    /// Estimator of response times.
    pub estimator: Estimator,
}

/// A situation with its estimator, which is prepared once, on first use.
pub struct Step<'a> {
    of: Situation<'a>,
    by_weights: OnceCell<ByWeights<'a>>,
}

impl<'a> Step<'a> {
    /// Of this.
    pub fn new(of: Situation<'a>) -> Step<'a> {
        Step { of, by_weights: OnceCell::new() }
    }

    /// Response time of each VM as a multiple of its level; `None` if there is more work than pCPUs.
    fn parts(&self, weights: &[f64]) -> Option<Vec<f64>> {
        let told = self.by_weights.get_or_init(|| self.of.estimator.by_weights(self.of.case))(weights);
        // A VM without requests does not wait.
        let asks = |i: usize| self.of.case.next[i].rate_hz > 0.0;
        let part = |(i, (level, told)): (usize, (&Level, &Option<Response>))| match told {
            Some(told) => Some(level.part(*told)),
            None => (!asks(i)).then_some(0.0),
        };
        self.of.levels.iter().zip(&told).enumerate().map(part).collect()
    }

    fn now(&self) -> Vec<f64> {
        self.of.case.next.iter().map(|n| n.weight).collect()
    }

    /// Violations by VM; with `foresee` also the foreseen ones.
    pub fn violations(&self, foresee: bool) -> Vec<Option<Violation>> {
        let foreseen = if foresee { self.parts(&self.now()) } else { Some(vec![0.0; self.of.levels.len()]) };
        let of = |i: usize| {
            let (seen, level) = (&self.of.case.seen[i], &self.of.levels[i]);
            let due_hz = level.rate_hz.map_or(0.0, |rate| rate.min(seen.rate_hz));
            let (served_hz, beyond) = (self.of.served_hz[i], 1.0 + self.of.chance[i]);
            if served_hz < ANSWERED * due_hz {
                return Some(Violation::Throughput { served_hz, due_hz });
            }
            let part = level.part(seen.response);
            if part > beyond {
                return Some(Violation::Response { part });
            }
            let then = foreseen.as_ref().map_or(f64::INFINITY, |p| p[i]);
            (then > beyond).then_some(Violation::Foreseen { part: then })
        };
        (0..self.of.levels.len()).map(of).collect()
    }

    /// The weights with the smallest worst response time relative to its level, and that value. Each weight changes
    /// by a factor of at most `most`. `None` if there is more work than pCPUs.
    pub fn best(&self, most: f64) -> Option<(Vec<f64>, f64)> {
        let now = self.now();
        let mut weights = now.clone();
        let mut best: Option<(Vec<f64>, f64)> = None;
        for _ in 0..ROUNDS {
            let parts = self.parts(&weights)?;
            let worst = parts.iter().copied().fold(0.0, f64::max);
            if best.as_ref().is_none_or(|(_, so_far)| worst < *so_far) {
                best = Some((weights.clone(), worst));
            }
            // Simulating a host costs CPU time, so the search stops when the result is good enough.
            let enough = self.of.case.host.is_some() && worst <= 1.0 - ROOM;
            if enough || parts.iter().all(|p| worst - p < ALIKE * worst) {
                break;
            }
            // VMs worse than the median get more weight, better ones less. VMs without a level give as much as they
            // can.
            let middle =
                libm::exp(parts.iter().map(|p| libm::log(p.max(1e-3))).sum::<f64>() / parts.len() as f64);
            for ((w, p), was) in weights.iter_mut().zip(&parts).zip(&now) {
                *w = (*w * libm::sqrt(p.max(1e-3) / middle)).clamp(was / most, was * most);
            }
            let heaviest = weights.iter().copied().fold(0.0, f64::max);
            weights.iter_mut().for_each(|w| *w = w.max(heaviest / SPAN));
        }
        best
    }

    /// Decides what to do. `going`: the candidates to move, if already known.
    pub fn decide(&self, going: Option<Vec<Candidate>>) -> Decision {
        let violations = self.violations(true);
        if violations.iter().all(Option::is_none) {
            return Decision::Keep;
        }
        // Do any weights hold the levels, however far from the present ones?
        let any = self.best(SPAN);
        let within = |w: &f64, was: &f64| (was / STEP_MOST..=was * STEP_MOST).contains(w);
        let beyond = 1.0 + self.of.chance.iter().copied().fold(0.0, f64::max);
        let worst = any.as_ref().map(|(_, worst)| *worst);
        if worst.is_none_or(|worst| worst > beyond) {
            return Decision::Move { worst, candidates: going.unwrap_or_else(|| self.candidates()) };
        }
        let before = self.parts(&self.now()).map_or(f64::INFINITY, |p| p.into_iter().fold(0.0, f64::max));
        let near_enough = any.filter(|(w, _)| w.iter().zip(&self.now()).all(|(w, was)| within(w, was)));
        let Some((weights, near)) = near_enough.or_else(|| self.best(STEP_MOST)) else {
            return Decision::Keep;
        };
        if before - near < WORTH {
            return Decision::Keep;
        }
        Decision::Set { weights, worst: near }
    }

    /// Candidates to move, by how much the others improve without them. Equal ones are sorted by load, smallest first.
    fn candidates(&self) -> Vec<Candidate> {
        let case = self.of.case;
        let without = |gone: usize| {
            let mut next = case.next.to_vec();
            next[gone].rate_hz = 0.0;
            let rest =
                Situation { case: Case { next: &next, effort: case.effort / COARSER, ..case }, ..self.of };
            Step::new(rest).best(SPAN).map(|(_, worst)| worst)
        };
        let load = |i: usize| case.seen[i].load_at(case.next[i].rate_hz);
        let mut order: Vec<Candidate> =
            (0..case.seen.len()).map(|vm| Candidate { vm, rest: without(vm) }).collect();
        // First the candidates that solve the problem, smallest load first. Then the others, most helpful first.
        let key = |c: &Candidate| match c.rest {
            Some(worst) if worst <= 1.0 => (false, load(c.vm)),
            other => (true, other.unwrap_or(f64::INFINITY)),
        };
        order.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
        order
    }
}

#[cfg(test)]
mod tests {
    use super::super::estimate::find;
    use super::super::window::{Next, Seen};
    use super::*;

    const SERVICE_S: [f64; 3] = [0.0066, 0.0066, 0.0017];

    fn estimator() -> Estimator {
        find("own").unwrap()
    }

    /// The paper's third scenario under its own model: what three VMs see at these rates and weights.
    fn lived(rates: [f64; 3], weights: [f64; 3]) -> Vec<Seen> {
        let blank = Response { mean_s: 0.0, p95_s: 0.0 };
        let seen: Vec<Seen> = (0..3)
            .map(|i| Seen {
                rate_hz: rates[i],
                gap_cv2: 1.0,
                service_s: SERVICE_S[i],
                beside: 0.0,
                service_cv2: 0.0,
                response: blank,
                weight: weights[i],
                vcpus: 1,
            })
            .collect();
        let next: Vec<Next> = (0..3).map(|i| Next { rate_hz: rates[i], weight: weights[i] }).collect();
        let told = (estimator().tell)(&case(&seen, &next));
        seen.iter().zip(told).map(|(s, t)| Seen { response: t.unwrap(), ..*s }).collect()
    }

    fn case<'a>(seen: &'a [Seen], next: &'a [Next]) -> Case<'a> {
        Case { effort: 60_000, ..Case::new(seen, next) }
    }

    fn next(seen: &[Seen], asked: &[f64]) -> Vec<Next> {
        seen.iter().zip(asked).map(|(s, rate)| Next { rate_hz: *rate, weight: s.weight }).collect()
    }

    fn step<'a>(seen: &'a [Seen], next: &'a [Next], served_hz: &'a [f64], levels: &'a [Level]) -> Step<'a> {
        let (case, chance) = (case(seen, next), &[0.0; 3]);
        Step::new(Situation { case, served_hz, levels, chance, estimator: estimator() })
    }

    fn mean(s: f64) -> Level {
        Level { mean_s: Some(s), p95_s: None, rate_hz: None }
    }

    #[test]
    fn what_holds_is_kept() {
        let asked = [15.0, 15.0, 50.0];
        let seen = lived(asked, [1.0; 3]);
        let levels = seen.iter().map(|s| mean(2.0 * s.response.mean_s)).collect::<Vec<_>>();
        assert_eq!(step(&seen, &next(&seen, &asked), &asked, &levels).decide(None), Decision::Keep);
    }

    /// VM1 is to answer in 0.85 of what it takes at equal weights, the others may take 1.5 times as long.
    #[test]
    fn weight_goes_to_who_needs_it_and_then_rests() {
        let asked = [45.0, 45.0, 170.0];
        let seen = lived(asked, [1.0; 3]);
        let levels: Vec<Level> =
            seen.iter().zip([0.85, 1.5, 1.5]).map(|(s, f)| mean(f * s.response.mean_s)).collect();
        let asking = next(&seen, &asked);
        let now = step(&seen, &asking, &asked, &levels);
        assert!(
            matches!(now.violations(true)[..], [Some(Violation::Response { .. }), None, None]),
            "{:?}",
            now.violations(true)
        );
        let Decision::Set { weights, worst } = now.decide(None) else { panic!("{:?}", now.decide(None)) };
        assert!(worst < 1.0 && weights[0] > weights[1], "{weights:?} {worst}");
        let then = lived(asked, [weights[0], weights[1], weights[2]]);
        let asking = next(&then, &asked);
        let later = step(&then, &asking, &asked, &levels);
        assert_eq!(later.decide(None), Decision::Keep, "{:?}", later.violations(true));
    }

    #[test]
    fn where_no_weights_do_somebody_has_to_go() {
        let asked = [45.0, 45.0, 170.0];
        let seen = lived(asked, [1.0; 3]);
        let levels: Vec<Level> = seen.iter().map(|s| mean(0.5 * s.response.mean_s)).collect();
        let Decision::Move { worst, candidates } =
            step(&seen, &next(&seen, &asked), &asked, &levels).decide(None)
        else {
            panic!()
        };
        assert!(worst.unwrap() > 1.0 && candidates.len() == 3);
        // More work than pCPU.
        let asked = [90.0, 90.0, 170.0];
        let Decision::Move { worst: None, .. } =
            step(&seen, &next(&seen, &asked), &asked, &levels).decide(None)
        else {
            panic!()
        };
    }

    #[test]
    fn an_idle_vm_is_no_violation() {
        let asked = [0.5, 45.0, 100.0];
        let seen = lived(asked, [1.0; 3]);
        let levels = [Level { mean_s: None, p95_s: None, rate_hz: Some(40.0) }; 3];
        let asking = next(&seen, &asked);
        assert_eq!(step(&seen, &asking, &asked, &levels).violations(true), [None, None, None]);
        let short = step(&seen, &asking, &[0.5, 30.0, 100.0], &levels);
        assert_eq!(short.violations(true)[1], Some(Violation::Throughput { served_hz: 30.0, due_hz: 40.0 }));
    }
}
