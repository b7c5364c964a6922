//! Queues that share a pCPU by weight, each first come first served; and what the last interval says of that.
//!
//! **Idea.** A VM's requests wait for each other; what its vCPU gets of the pCPU meanwhile is its weight among those that have
//! something to do. That is generalised processor sharing with a queue per class, for which no formula is known, but which is cheap
//! to run: a few operations per request. Arrivals and services are renewal processes with the means of the next interval and the
//! variances of the last one (two moments, below).
//!
//! **Calibration.** The last interval is run the same way, and what was measured then, divided by that, is the factor for what comes:
//! of the part above the bare service time, for the host's slices and interrupts lengthen waits, not work. So what the model
//! has wrong at one load is taken along to the next.
//!
//! **Two moments.** For c² < 1 a mixture of Erlang distributions with k - 1 and k stages, 1/k <= c² <= 1/(k-1); for c² >= 1 two
//! exponential ones with balanced means (Tijms, "A First Course in Stochastic Models", 2003, appendix B).
//!
//! Left out: several vCPUs, servers with several workers, correlations (bursts beyond what c² says).

use super::super::window::{Response, Seen};
use super::Case;
use crate::sim::random::Random;
use crate::stats::{mean, quantile};

/// Requests of the VM that has the fewest, after as many tenths to fill the queues.
const REQUESTS: usize = 4000;
/// Of all VMs together at most: rates a thousand times apart are not waited for.
const MOST: usize = 400_000;
const SEED: u64 = 0x7273;
/// A factor beyond this is not the model's error: something else happened.
const FACTOR_MOST: f64 = 3.0;
const PERCENTILE: f64 = super::super::window::PERCENTILE;

/// Times with a mean and a squared coefficient of variation.
#[derive(Debug, Clone, Copy)]
enum Times {
    Fixed(f64),
    /// k stages (one less with this probability) of this mean each.
    Stages { k: u32, less: f64, each: f64 },
    /// With this probability of the first mean, else of the second.
    Either { p: f64, first: f64, second: f64 },
}

impl Times {
    fn new(mean: f64, cv2: f64) -> Times {
        if cv2 < 1e-3 {
            return Times::Fixed(mean);
        }
        if cv2 < 1.0 {
            let k = libm::ceil(1.0 / cv2).max(2.0);
            let root = libm::sqrt((k * (1.0 + cv2) - k * k * cv2).max(0.0));
            let less = ((k * cv2 - root) / (1.0 + cv2)).clamp(0.0, 1.0);
            return Times::Stages { k: k as u32, less, each: mean / (k - less) };
        }
        let p = 0.5 * (1.0 + libm::sqrt((cv2 - 1.0) / (cv2 + 1.0)));
        Times::Either { p, first: mean / (2.0 * p), second: mean / (2.0 * (1.0 - p)) }
    }

    fn draw(self, random: &mut Random) -> f64 {
        match self {
            Times::Fixed(t) => t,
            Times::Stages { k, less, each } => {
                let stages = if random.unit() <= less { k - 1 } else { k };
                (0..stages).map(|_| random.exponential(each)).sum()
            }
            Times::Either { p, first, second } => {
                let of = if random.unit() <= p { first } else { second };
                random.exponential(of)
            }
        }
    }
}

/// One VM's queue.
struct Queue {
    gaps: Times,
    services: Times,
    random: (Random, Random),
    weight: f64,
    /// When the next request comes.
    next_s: f64,
    /// Work of the first in line, and when those in line came.
    left_s: f64,
    came: std::collections::VecDeque<f64>,
    took: Vec<f64>,
}

impl Queue {
    fn new(i: usize, seen: &Seen, rate_hz: f64, weight: f64) -> Queue {
        let mut random = (Random::new(SEED, 2 * i as u64), Random::new(SEED, 2 * i as u64 + 1));
        let gaps = Times::new(1.0 / rate_hz, seen.gap_cv2);
        // Not all at once.
        let next_s = random.0.unit() * gaps.draw(&mut random.0);
        let services = Times::new(seen.service_s, seen.service_cv2);
        Queue { gaps, services, random, weight, next_s, left_s: 0.0, came: std::collections::VecDeque::new(), took: Vec::new() }
    }
}

/// Response times of VMs with these rates and weights, after a warm-up.
fn run(seen: &[Seen], then: &[(f64, f64)]) -> Option<Vec<Response>> {
    let load: f64 = seen.iter().zip(then).map(|(s, t)| s.service_s * t.0).sum();
    let fine = then.iter().all(|(rate, weight)| *rate > 0.0 && *weight > 0.0) && seen.iter().all(|s| s.service_s > 0.0);
    if !fine || load >= 1.0 {
        return None;
    }
    let mut queues: Vec<Queue> =
        seen.iter().zip(then).enumerate().map(|(i, (s, (rate, weight)))| Queue::new(i, s, *rate, *weight)).collect();
    // The heavier the load, the longer queues remember: by 1 / (1 - ρ)².
    let longer = (0.25 / ((1.0 - load) * (1.0 - load))).clamp(1.0, 25.0);
    let enough = (REQUESTS as f64 * longer) as usize;
    let (mut now_s, mut all) = (0.0, 0);
    while all < MOST && queues.iter().any(|q| q.took.len() < enough) {
        let active: f64 = queues.iter().filter(|q| !q.came.is_empty()).map(|q| q.weight).sum();
        // Who is next: an arrival, or the end of the first in some line at its present share.
        let mut best = (f64::INFINITY, 0, false);
        for (i, q) in queues.iter().enumerate() {
            if q.next_s < best.0 {
                best = (q.next_s, i, false);
            }
            let end_s = now_s + q.left_s * active / q.weight;
            if !q.came.is_empty() && end_s < best.0 {
                best = (end_s, i, true);
            }
        }
        let (at_s, i, ends) = best;
        for q in queues.iter_mut().filter(|q| !q.came.is_empty()) {
            q.left_s = (q.left_s - (at_s - now_s) * q.weight / active).max(0.0);
        }
        now_s = at_s;
        let q = &mut queues[i];
        if ends {
            all += 1;
            let came_s = q.came.pop_front()?;
            q.took.push(now_s - came_s);
        } else {
            q.came.push_back(now_s);
            q.next_s = now_s + q.gaps.draw(&mut q.random.0);
        }
        // Somebody is first in line who was not.
        if (ends && !q.came.is_empty()) || (!ends && q.came.len() == 1) {
            q.left_s = q.services.draw(&mut q.random.1);
        }
    }
    let of = |q: &Queue| {
        let kept = q.took.get(q.took.len() / 10..)?;
        Some(Response { mean_s: mean(kept)?, p95_s: quantile(kept, PERCENTILE)? })
    };
    queues.iter().map(of).collect()
}

/// See the file's head.
pub(super) fn tell(case: &Case<'_>) -> Vec<Option<Response>> {
    let next: Vec<(f64, f64)> = case.next.iter().map(|n| (n.rate_hz, n.weight)).collect();
    let Some(told) = run(case.seen, &next) else {
        return vec![None; case.seen.len()];
    };
    let last: Vec<(f64, f64)> = case.seen.iter().map(|s| (s.rate_hz, s.weight)).collect();
    let before = run(case.seen, &last);
    let of = |(i, (s, t)): (usize, (&Seen, Response))| {
        let before = before.as_ref().map(|b| b[i]);
        // What is above the bare service time, times what that was off by.
        let more = |measured: f64, modelled: Option<f64>, then: f64| {
            let above = modelled.map_or(0.0, |m| m - s.service_s);
            let factor = if above > 0.05 * s.service_s { ((measured - s.service_s) / above).clamp(1.0 / FACTOR_MOST, FACTOR_MOST) } else { 1.0 };
            s.service_s + factor * (then - s.service_s).max(0.0)
        };
        Some(Response {
            mean_s: more(s.response.mean_s, before.map(|b| b.mean_s), t.mean_s),
            p95_s: more(s.response.p95_s, before.map(|b| b.p95_s), t.p95_s),
        })
    };
    case.seen.iter().zip(told).enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(rate_hz: f64, service_s: f64, gap_cv2: f64, service_cv2: f64) -> Seen {
        let response = Response { mean_s: 1.0, p95_s: 1.0 };
        Seen { rate_hz, gap_cv2, service_s, service_cv2, response, weight: 1.0 }
    }

    #[test]
    fn times_have_their_moments() {
        let mut random = Random::new(1, 0);
        for cv2 in [0.0, 0.2, 0.4, 0.9, 1.0, 2.5, 8.0] {
            let times = Times::new(3.0, cv2);
            let all: Vec<f64> = (0..200_000).map(|_| times.draw(&mut random)).collect();
            let m = mean(&all).unwrap();
            let c = crate::stats::variance(&all).unwrap() / (m * m);
            assert!((m - 3.0).abs() < 0.06 && (c - cv2).abs() < 0.03 + 0.06 * cv2, "{cv2}: {m} {c}");
        }
    }

    /// M/M/1 at 0.5 and 0.8, M/D/1 at 0.5: x / (1 - ρ), and x + ρ x / (2 (1 - ρ)).
    #[test]
    fn alone_it_is_the_textbooks_queue() {
        let mean_of = |rate, cv2| run(&[seen(rate, 0.01, 1.0, cv2)], &[(rate, 1.0)]).unwrap()[0];
        for (rate, cv2, expected) in [(50.0, 1.0, 0.02), (80.0, 1.0, 0.05), (50.0, 0.0, 0.015)] {
            let got = mean_of(rate, cv2);
            assert!((got.mean_s / expected - 1.0).abs() < 0.06, "{rate} {cv2}: {got:?}");
        }
        // Exponential with the mean: the 95th is ln 20 of it.
        assert!((mean_of(50.0, 1.0).p95_s / (0.02 * 20.0_f64.ln()) - 1.0).abs() < 0.08);
    }

    /// Work is conserved: with equal exponential services the mean over all is M/M/1's whatever the weights are.
    #[test]
    fn weights_move_waits_about() {
        let all = [seen(40.0, 0.01, 1.0, 1.0), seen(40.0, 0.01, 1.0, 1.0)];
        let of = |weight: f64| run(&all, &[(40.0, weight), (40.0, 1.0)]).unwrap();
        for weight in [1.0, 4.0, 50.0] {
            let got = of(weight);
            let both = (got[0].mean_s + got[1].mean_s) / 2.0;
            assert!((both / 0.05 - 1.0).abs() < 0.08, "{weight}: {got:?}");
        }
        assert!(of(50.0)[0].mean_s < 0.55 * of(50.0)[1].mean_s);
        // Nearly all of the pCPU whenever it wants: alone at a load of 0.4.
        assert!((of(1e4)[0].mean_s / (0.01 / 0.6) - 1.0).abs() < 0.06);
    }
}
