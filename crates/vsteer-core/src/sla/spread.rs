//! How much do CPU times differ from request to request? Read off how long requests took.
//!
//! **Idea.** A log tells response times, and the observer CPU time per request as a mean: nothing tells one request's. But waiting and
//! service show together in how response times spread, and how they spread depends on whether requests are alike. So the last interval is
//! run ([`super::estimate::fluid`]) with several spreads, and that is kept under which response times lie nearest to the measured ones: by
//! the mean distance of the two distributions' quantiles, as ratios (Wasserstein's, of logarithms), VM after VM. It asks how far values are
//! apart and not how many are on which side, so requests that all take a little more than their CPU time are still alike.
//!
//! Where a histogram counted them, response times are known by its buckets and their sum: what is measured and what is run are
//! both looked at through these, so that what is not known is the same on both sides.
//!
//! Left out: shapes beyond the variance; service times that hang together.

use super::estimate::fluid::Fluid;
use super::estimate::traffic::rounds;
use super::histogram::{Counted, Lots};
use super::window::{Interval, Seen};

/// Squared coefficients of variation that are told apart.
const SPREADS: [f64; 6] = [0.0, 0.2, 0.5, 1.0, 2.0, 4.0];
/// Where a person waits: requests drawn for each.
pub const EFFORT: usize = 40_000;
/// At which distributions are compared.
const QUANTILES: u32 = 200;
/// Once over all VMs is not enough, since each one's waits are made by the others' work.
const TURNS: usize = 2;

/// Sets each interval's spread of CPU times, by so many requests drawn for each that is tried; `between` is called after each. Nothing is set where there is more work than pCPUs, for then nothing settles.
pub fn read_off(intervals: &mut [Interval], pcpus: f64, effort: usize, between: &dyn Fn()) {
    let load: f64 = intervals.iter().map(|i| i.seen.service_s * i.seen.rate_hz).sum();
    if load >= pcpus {
        return;
    }
    let fluid = Fluid { pcpus, vcpus: intervals.iter().map(|i| i.seen.vcpus).collect() };
    let measured: Vec<Vec<f64>> = intervals.iter().map(|i| as_seen(&i.took_s, i.lots.as_ref())).collect();
    let gaps: Vec<Vec<f64>> = intervals.iter().map(|i| i.gaps_s.clone()).collect();
    let mut seen: Vec<Seen> = intervals.iter().map(|i| i.seen).collect();
    for _ in 0..TURNS {
        for i in 0..seen.len() {
            let mut best = (f64::INFINITY, seen[i].service_cv2);
            for cv2 in SPREADS {
                seen[i].service_cv2 = cv2;
                let run = responses(&fluid, &seen, &gaps, i, effort);
                let apart = apart(&measured[i], &as_seen(&run, intervals[i].lots.as_ref()));
                between();
                if apart < best.0 {
                    best = (apart, cv2);
                }
            }
            seen[i].service_cv2 = best.1;
        }
    }
    intervals.iter_mut().zip(seen).for_each(|(i, s)| i.seen.service_cv2 = s.service_cv2);
}

/// What VM `i`'s requests take by the fluid.
fn responses(fluid: &Fluid, seen: &[Seen], gaps: &[Vec<f64>], i: usize, effort: usize) -> Vec<f64> {
    let rates: Vec<f64> = seen.iter().map(|s| s.rate_hz).collect();
    let weights: Vec<f64> = seen.iter().map(|s| s.weight).collect();
    let rounds = rounds(seen, gaps, &rates, effort);
    rounds.iter().flat_map(|t| fluid.responses(t, &weights).swap_remove(i)).collect()
}

/// Response times in order of length, as a log would tell them or a histogram.
fn as_seen(took_s: &[f64], lots: Option<&Lots>) -> Vec<f64> {
    let mut x = lots.map_or_else(|| took_s.to_vec(), |lots| Counted::of(&lots.bounds_s, took_s).took_s());
    x.sort_by(f64::total_cmp);
    x
}

/// The mean distance of the quantiles of two distributions, each given in order, as logarithms.
fn apart(a: &[f64], b: &[f64]) -> f64 {
    let at = |x: &[f64], q: f64| x[(q * x.len() as f64) as usize];
    if a.is_empty() || b.is_empty() {
        return 0.0;
    }
    let log = |x: f64| libm::log(x.max(1e-9));
    let quantiles = (0..QUANTILES).map(|k| (f64::from(k) + 0.5) / f64::from(QUANTILES));
    quantiles.map(|q| (log(at(a, q)) - log(at(b, q))).abs()).sum::<f64>() / f64::from(QUANTILES)
}

#[cfg(test)]
mod tests {
    use super::super::window::Response;
    use super::*;

    #[test]
    fn distributions_lie_apart_by_their_quantiles() {
        let e = std::f64::consts::E;
        assert_eq!(apart(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
        assert!((apart(&[1.0, 2.0], &[e, 2.0 * e]) - 1.0).abs() < 1e-9);
        assert!((apart(&[1.0, 1.0], &[1.0, e]) - 0.5).abs() < 1e-9);
    }

    /// Three VMs whose requests are alike, exponential, and very unlike: each is recognised, at a light load and a heavy one.
    #[test]
    fn spreads_are_recognised() {
        for rate in [25.0, 55.0] {
            let one = |rate_hz: f64, service_s: f64, service_cv2: f64| Seen {
                rate_hz,
                gap_cv2: 1.0,
                service_s,
                service_cv2,
                response: Response { mean_s: 0.0, p95_s: 0.0 },
                weight: 1.0,
                vcpus: 1,
            };
            let truth = [one(rate, 0.005, 0.0), one(rate, 0.005, 1.0), one(rate, 0.005, 4.0)];
            let fluid = Fluid { pcpus: 1.0, vcpus: vec![1; 3] };
            // Other draws than those it is compared with: more of them.
            let drawn = rounds(&truth, &[], &[rate; 3], 90_000);
            let took = fluid.responses(&drawn[5], &[1.0; 3]);
            let interval = |(seen, took_s): (&Seen, Vec<f64>)| Interval {
                seen: Seen { service_cv2: 1.0, ..*seen },
                gaps_s: Vec::new(),
                took_s,
                lots: None,
            };
            let mut all: Vec<Interval> = truth.iter().zip(took).map(interval).collect();
            // By logs, and by histograms with a client library's usual buckets.
            let bounds_s = vec![0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, f64::INFINITY];
            for lots in [None, Some(Lots { most: 100, bounds_s })] {
                all.iter_mut().for_each(|i| {
                    i.seen.service_cv2 = 1.0;
                    i.lots = lots.clone();
                });
                read_off(&mut all, 1.0, EFFORT, &|| {});
                let got: Vec<f64> = all.iter().map(|i| i.seen.service_cv2).collect();
                let right = got[0] <= 0.1 && (0.5..=2.0).contains(&got[1]) && got[2] >= 2.0;
                assert!(right, "{rate}, {lots:?}: {got:?}");
            }
        }
    }
}
