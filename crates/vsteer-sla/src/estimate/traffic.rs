//! Which requests might come? Arrivals and CPU times drawn as those of the last interval were, at the rates of the
//! next.
//!
//! **Idea.** Gaps between arrivals are drawn from those that were measured, in blocks, so that what hangs together
//! (a burst, a period) stays together; scaled in time to the rate that is asked for. Where none were measured, and
//! for CPU times, which no log tells one by one, a distribution of two moments stands in. The same draws serve
//! every rate and weight (common random numbers), so that two answers differ by what differs between the questions.
//!
//! Several rounds, each begun with nobody in line and every VM somewhere within a gap, so that what depends on how
//! periodic arrivals happen to lie to each other is averaged.
//!
//! **Two moments.** For c² < 1 a mixture of Erlang distributions with k - 1 and k stages, 1/k <= c² <= 1/(k-1); for
//! c² >= 1 two exponential ones with balanced means (Tijms, "A First Course in Stochastic Models", 2003, appendix
//! B).
//!
//! Left out: bursts whose length does not shrink when more come (they are scaled with the rest), correlations
//! between VMs.

use crate::window::Seen;
use vsteer_core::random::Random;
use vsteer_core::stats::mean;

const SEED: u64 = 0x7273;
/// Number of measured gaps drawn in a row.
const BLOCK: usize = 50;
/// Fewer measured gaps than this are no sample to draw from.
const GAPS_LEAST: usize = 4 * BLOCK;
/// Bounds on the number of rounds, and requests per round.
const REQUESTS_A_ROUND: usize = 6_000;
const ROUNDS: (usize, usize) = (8, 64);
/// Until queues are as they usually are: this part of a round is not counted.
const WARM_UP: f64 = 0.1;

/// One VM's requests in one round.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Traffic {
    /// When each comes, in order, and the CPU time that it takes, seconds.
    pub requests: Vec<(f64, f64)>,
    /// Those that come before this are not counted.
    pub count_from_s: f64,
}

/// Times with a mean and a squared coefficient of variation.
#[derive(Debug, Clone, Copy)]
enum Times {
    Fixed(f64),
    /// k stages (one less with this probability) of this mean each.
    Stages {
        k: u32,
        less: f64,
        each: f64,
    },
    /// With this probability of the first mean, else of the second.
    Either {
        p: f64,
        first: f64,
        second: f64,
    },
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

/// Gaps of mean 1.
enum Gaps<'a> {
    Measured { gaps: &'a [f64], mean: f64, at: usize, left: usize },
    Drawn(Times),
}

impl Gaps<'_> {
    fn of<'a>(seen: &Seen, measured_s: &'a [f64]) -> Gaps<'a> {
        match mean(measured_s) {
            Some(mean) if measured_s.len() >= GAPS_LEAST && mean > 0.0 => {
                Gaps::Measured { gaps: measured_s, mean, at: 0, left: 0 }
            }
            _ => Gaps::Drawn(Times::new(1.0, seen.gap_cv2)),
        }
    }

    fn draw(&mut self, random: &mut Random) -> f64 {
        match self {
            Gaps::Drawn(times) => times.draw(random),
            Gaps::Measured { gaps, mean, at, left } => {
                if *left == 0 {
                    (*at, *left) = (random.within(0, (gaps.len() - BLOCK) as u64) as usize, BLOCK);
                }
                (*at, *left) = (*at + 1, *left - 1);
                gaps[*at - 1] / *mean
            }
        }
    }
}

/// Rounds of requests at these rates, `all` of them together. `gaps_s` are the measured ones by VM (none: two moments).
///
/// Every rate must be 0 (nobody comes) or above.
pub fn rounds(seen: &[Seen], gaps_s: &[Vec<f64>], rates_hz: &[f64], all: usize) -> Vec<Vec<Traffic>> {
    let together: f64 = rates_hz.iter().sum();
    let rounds = (all / REQUESTS_A_ROUND).clamp(ROUNDS.0, ROUNDS.1) as u64;
    let length_s = if together > 0.0 { all as f64 / rounds as f64 / together } else { 0.0 };
    let one = |round: u64, i: usize| {
        let stream = 2 * (round * seen.len() as u64 + i as u64);
        let (mut of_gaps, mut of_work) = (Random::new(SEED, stream), Random::new(SEED, stream + 1));
        let mut gaps = Gaps::of(&seen[i], gaps_s.get(i).map_or(&[], Vec::as_slice));
        let services = Times::new(seen[i].service_s, seen[i].service_cv2);
        let mut traffic = Traffic { requests: Vec::new(), count_from_s: WARM_UP * length_s };
        if rates_hz[i] <= 0.0 {
            return traffic;
        }
        let mut at_s = of_gaps.unit() * gaps.draw(&mut of_gaps) / rates_hz[i];
        while at_s < length_s {
            traffic.requests.push((at_s, services.draw(&mut of_work)));
            at_s += gaps.draw(&mut of_gaps) / rates_hz[i];
        }
        traffic
    };
    (0..rounds).map(|round| (0..seen.len()).map(|i| one(round, i)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Response;
    use vsteer_core::stats::variance;

    #[test]
    fn times_have_their_moments() {
        let mut random = Random::new(1, 0);
        for cv2 in [0.0, 0.2, 0.4, 0.9, 1.0, 2.5, 8.0] {
            let times = Times::new(3.0, cv2);
            let all: Vec<f64> = (0..200_000).map(|_| times.draw(&mut random)).collect();
            let m = mean(&all).unwrap();
            let c = variance(&all).unwrap() / (m * m);
            assert!((m - 3.0).abs() < 0.06 && (c - cv2).abs() < 0.03 + 0.06 * cv2, "{cv2}: {m} {c}");
        }
    }

    fn seen(rate_hz: f64) -> Seen {
        let response = Response { mean_s: 1.0, p95_s: 1.0 };
        Seen {
            rate_hz,
            gap_cv2: 1.0,
            service_s: 0.01,
            beside: 0.0,
            service_cv2: 1.0,
            response,
            weight: 1.0,
            vcpus: 1,
        }
    }

    #[test]
    fn rates_are_kept_and_draws_are_the_same_at_each() {
        let all = [seen(10.0), seen(30.0)];
        let (slow, fast) =
            (rounds(&all, &[], &[10.0, 30.0], 80_000), rounds(&all, &[], &[20.0, 60.0], 80_000));
        let count =
            |r: &[Vec<Traffic>], i: usize| r.iter().map(|t| t[i].requests.len()).sum::<usize>() as f64;
        assert!(
            (count(&slow, 0) / 20_000.0 - 1.0).abs() < 0.03
                && (count(&slow, 1) / 60_000.0 - 1.0).abs() < 0.03
        );
        let (a, b) = (slow[3][1].requests[7], fast[3][1].requests[7]);
        assert!((a.0 / b.0 - 2.0).abs() < 1e-9 && a.1 == b.1, "{a:?} {b:?}");
        assert!(rounds(&all, &[], &[0.0, 0.0], 100).iter().flatten().all(|t| t.requests.is_empty()));
        assert_eq!(count(&rounds(&all, &[], &[0.0, 5.0], 1000), 0), 0.0);
    }

    /// A period stays a period, and bursts stay together.
    #[test]
    fn measured_gaps_are_drawn_in_their_order() {
        let all = [seen(10.0)];
        let periodic = rounds(&all, &[vec![0.1; 300]], &[40.0], 8000);
        let gaps = |t: &Traffic| t.requests.windows(2).map(|w| w[1].0 - w[0].0).collect::<Vec<f64>>();
        assert!(gaps(&periodic[0][0]).iter().all(|g| (g - 0.025).abs() < 1e-9));
        let begins: Vec<f64> = periodic.iter().map(|t| t[0].requests[0].0).collect();
        assert!(begins.windows(2).all(|w| w[0] != w[1]), "another phase in each round");
        let bursts: Vec<f64> = (0..1000).map(|i| if i % 5 == 0 { 0.46 } else { 0.01 }).collect();
        let drawn = rounds(&all, &[bursts], &[10.0], 8000);
        let of = gaps(&drawn[0][0]);
        let after_short = of.windows(5).filter(|w| w.iter().filter(|g| **g > 0.1).count() == 1).count();
        assert!(after_short as f64 > 0.9 * (of.len() - 4) as f64);
    }
}
