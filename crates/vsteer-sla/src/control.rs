//! One step of the loop that holds service levels: from what was seen to weights, or to what to move.
//!
//! **Detection.** A VM's throughput is violated where it answered less than the smaller of what was asked of it and its level
//! (the paper's (5) compares with a percentile of what was processed, and so fires on every idle VM). Its response is violated where the
//! measured one is above its level, and about to be where the estimate for what is asked now is.
//!
//! **Decision.** Weights suffice where the best ones keep every response below its level, by the estimator. The best ones are those under
//! which the worst response, as a part of its level, is smallest: a step multiplies each weight by how much worse than the others its
//! VM is, which is monotone (more weight, shorter response) and so goes to where all are alike or have all they can use. It is not the
//! sum of delays that is made small: that gives the least loaded VM the most.
//!
//! **No oscillation.** Weights are changed only for a violation, seen or foreseen, and only where that gains more than
//! [`WORTH`]; what is set leaves [`ROOM`] below each level, so that the next change of load does not ask for another at once; and
//! none is changed by more than [`STEP_MOST`] times at once.
//!
//! Left out: several pCPUs; VMs whose weight is dead (pinned inside a larger Xen pool, in other cgroup parents, quota-bound): the caller leaves
//! them out and says so.

use super::estimate::{ByWeights, Case, Estimator};
use super::window::Response;
use serde::Serialize;
use std::cell::OnceCell;
use std::fmt;

/// The part of a level that is left free where weights are chosen.
pub const ROOM: f64 = 0.1;
/// A change of weights has to bring the worst VM nearer to its level by this part of it.
pub const WORTH: f64 = 0.05;
/// A weight is multiplied or divided by this at most, in one step.
pub const STEP_MOST: f64 = 4.0;
/// Between the heaviest and the lightest: what every hypervisor's scale can express.
const SPAN: f64 = 1000.0;
const ROUNDS: usize = 10;
/// Who should go is told by this part of the requests that are drawn for weights.
const COARSER: usize = 4;
/// Worst parts of levels that differ by less are the same.
const ALIKE: f64 = 0.02;

/// A request that came at the end is answered after it: this part of what is due is all of it.
pub const ANSWERED: f64 = 0.97;

/// What one VM must deliver.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Level {
    /// The longest mean response time, seconds.
    pub mean_s: Option<f64>,
    /// The longest 95th percentile of it, seconds.
    pub p95_s: Option<f64>,
    /// So many requests per second are answered, if they come.
    pub rate_hz: Option<f64>,
}

impl Level {
    /// Does a request's own CPU time take longer than a response may? Then neither weights nor another host like this one hold it.
    pub fn is_out_of_reach(&self, service_s: f64) -> bool {
        self.mean_s.is_some_and(|s| service_s > s) || self.p95_s.is_some_and(|s| service_s > s)
    }

    /// How much of its level a response takes; the worse of the two.
    pub fn part(&self, response: Response) -> f64 {
        let of = |level: Option<f64>, is: f64| level.map_or(0.0, |s| is / s);
        of(self.mean_s, response.mean_s).max(of(self.p95_s, response.p95_s))
    }
}

/// What is wrong with one VM.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Violation {
    /// It answered so many per second, of so many asked or promised.
    Throughput {
        /// Answered.
        served_hz: f64,
        /// The smaller of what was asked and promised.
        due_hz: f64,
    },
    /// Its response time is so many times its level.
    Response {
        /// Above 1.
        part: f64,
    },
    /// It will be, at the rates that are asked now.
    Foreseen {
        /// Above 1.
        part: f64,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Throughput { served_hz, due_hz } => {
                write!(f, "answers {served_hz:.1} a second of {due_hz:.1} due")
            }
            Violation::Response { part } => write!(f, "takes {part:.2} of its level"),
            Violation::Foreseen { part } => write!(f, "is about to take {part:.2} of its level"),
        }
    }
}

/// What a step says.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Every level holds, or nothing that can be set is worth it.
    Keep,
    /// These weights, on the scale that was given; the worst VM then takes so much of its level.
    Set {
        /// By VM.
        weights: Vec<f64>,
        /// By the estimator.
        worst: f64,
    },
    /// No weights hold all levels: at the best ones the worst VM takes so many times its level (`None`: there is more work than
    /// pCPU). The VM whose going helps the others most for its own load comes first.
    Move {
        /// Above 1.
        worst: Option<f64>,
        /// In that order.
        candidates: Vec<Candidate>,
    },
}

/// A VM that may go.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Candidate {
    /// Which.
    pub vm: usize,
    /// How much of its level the worst of the others takes when it is gone; `None`: there is still more work than pCPUs.
    pub rest: Option<f64>,
}

/// What the step is made from.
#[derive(Clone, Copy)]
pub struct Situation<'a> {
    /// The last interval, and what is asked now (`next`: at the present weights).
    pub case: Case<'a>,
    /// What was answered in the last interval, per second.
    pub served_hz: &'a [f64],
    /// What is promised.
    pub levels: &'a [Level],
    /// By how much of itself each measured response may be off by chance alone: nothing is done for less.
    pub chance: &'a [f64],
    /// By whom response times are told.
    pub estimator: Estimator,
}

/// A situation, and what its estimator says of it: asked for several weights, prepared once, when it is asked first.
pub struct Step<'a> {
    of: Situation<'a>,
    by_weights: OnceCell<ByWeights<'a>>,
}

impl<'a> Step<'a> {
    /// Of this.
    pub fn new(of: Situation<'a>) -> Step<'a> {
        Step { of, by_weights: OnceCell::new() }
    }

    /// The part that each VM takes of its level; `None` where there is more work than pCPUs.
    fn parts(&self, weights: &[f64]) -> Option<Vec<f64>> {
        let told = self.by_weights.get_or_init(|| self.of.estimator.by_weights(self.of.case))(weights);
        // Who asks for nothing waits for nothing.
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

    /// What is wrong, by VM; and, if `foresee`, what is about to be.
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

    /// The weights under which the worst VM takes least of its level, each within `most` times what it is; and that part. `None`
    /// where there is more work than pCPU.
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
            // A simulated host costs what it is there to save: it is not asked for more than enough.
            let enough = self.of.case.host.is_some() && worst <= 1.0 - ROOM;
            if enough || parts.iter().all(|p| worst - p < ALIKE * worst) {
                break;
            }
            // Who is worse than the middle of all gets more, who is better less; who has no level gives what it can.
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

    /// What to do. `going`: who should go, where that was worked out before.
    pub fn decide(&self, going: Option<Vec<Candidate>>) -> Decision {
        let violations = self.violations(true);
        if violations.iter().all(Option::is_none) {
            return Decision::Keep;
        }
        // May any weights hold the levels, however far from now?
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

    /// VMs by how near the levels of the others come when nothing is asked of them any more, with the lightest load first where that is
    /// alike.
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
        // Of those that solve it, the one that costs least to move; of others, the one that helps most.
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
