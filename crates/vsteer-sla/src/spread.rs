//! How much do CPU times differ between requests, and how much CPU time does a VM use without requests? Both from
//! response times.
//!
//! **Spread.** A log has response times, but only the mean CPU time per request is known. The spread of response
//! times depends on the spread of CPU times. So the last interval is simulated ([`super::estimate::fluid`]) with
//! several spreads, VM after VM. The spread with the response times nearest to the measured ones wins (mean
//! distance of quantiles, as logarithms: Wasserstein).
//!
//! **CPU time without requests.** A VM uses CPU time for kernel ticks and its emulator ([`Seen::beside`]). Divided
//! among few requests, this makes each look too long. No response is shorter than its own CPU time. If VMs rarely
//! compete, the shortest responses met no other VM. If they are shorter than in the simulation, the rest of the CPU
//! time belongs to no request. This is not estimated if VMs compete often, or if requests that differ explain the
//! response times better.
//!
//! If a histogram counted the requests, measured and simulated times are both reduced to its buckets and sum.
//!
//! Left out: shapes beyond the variance, dependent service times, and CPU time without requests if requests differ
//! (GAP(sla-idle)).

use super::estimate::fluid::Fluid;
use super::estimate::traffic::rounds;
use super::histogram::{self, Lots};
use super::window::{Interval, Seen};
use vsteer_core::requests::Counted;

/// Squared coefficients of variation that are tried.
const SPREADS: [f64; 6] = [ALIKE, 0.2, 0.5, 1.0, 2.0, 4.0];
/// Squared coefficient of variation of equal requests.
const ALIKE: f64 = 0.0;
/// Simulated requests per trial if a person waits.
pub const EFFORT: usize = 40_000;
/// Quantiles at which distributions are compared.
const QUANTILES: u32 = 200;
/// VMs that meet seldom: by what part of the pCPUs they need. Then the shortest responses, from and to these
/// quantiles of [`QUANTILES`], met nobody.
const SELDOM: f64 = 0.5;
const SHORTEST: std::ops::Range<u32> = 10..60;
/// Where more of the CPU time than this seems to be the requests', all of it is: it is not known better than that.
const ALL: f64 = 0.95;
/// Passes over all VMs. One is not enough, because each VM's waits depend on the others' work.
const TURNS: usize = 2;

/// Estimate for one VM.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadOff {
    service_cv2: f64,
    beside: f64,
}

impl ReadOff {
    /// As these moments have it.
    pub fn of(seen: &Seen) -> ReadOff {
        ReadOff { service_cv2: seen.service_cv2, beside: seen.beside }
    }

    /// Sets it in moments of another time of the same VM, of which nothing was read off. What it uses beside stays
    /// below what it used.
    pub fn on(&self, seen: &mut Seen) {
        let used = seen.rate_hz * seen.service_s;
        *seen = Seen { service_cv2: self.service_cv2, ..*seen };
        if seen.rate_hz > 0.0 {
            seen.beside = self.beside.min(0.5 * used);
            seen.service_s = (used - seen.beside) / seen.rate_hz;
        }
    }
}

/// Sets each interval's spread of CPU times and its CPU time without requests. `between` is called after each
/// simulation. Nothing is set if there is more work than pCPUs, because queues then grow without limit.
pub fn read_off(intervals: &mut [Interval], pcpus: f64, effort: usize, between: &dyn Fn()) {
    let load: f64 = intervals.iter().map(|i| i.seen.load_at(i.seen.rate_hz)).sum();
    if load >= pcpus {
        return;
    }
    let fluid = |seen: &[Seen]| Fluid {
        pcpus: pcpus - seen.iter().map(|s| s.beside).sum::<f64>(),
        vcpus: seen.iter().map(|s| s.vcpus).collect(),
    };
    let measured: Vec<Vec<f64>> = intervals.iter().map(|i| as_seen(&i.took_s, i.lots.as_ref())).collect();
    let gaps: Vec<Vec<f64>> = intervals.iter().map(|i| i.gaps_s.clone()).collect();
    let mut seen: Vec<Seen> = intervals.iter().map(|i| i.seen).collect();
    let run = |seen: &[Seen], i: usize| {
        let run = responses(&fluid(seen), seen, &gaps, i, effort);
        between();
        as_seen(&run, intervals[i].lots.as_ref())
    };
    for _ in 0..TURNS {
        for i in 0..seen.len() {
            let mut best = (f64::INFINITY, seen[i].service_cv2);
            seen[i] = Seen { service_cv2: best.1, ..intervals[i].seen };
            for cv2 in SPREADS {
                seen[i].service_cv2 = cv2;
                let apart = apart(&measured[i], &run(&seen, i));
                if apart < best.0 {
                    best = (apart, cv2);
                }
            }
            seen[i].service_cv2 = best.1;
            if load < SELDOM * pcpus {
                let differing = seen[i];
                let as_differing = far_apart(&measured[i], &run(&seen, i));
                seen[i] = Seen { service_cv2: ALIKE, ..intervals[i].seen };
                let (whole_s, mut part) = (seen[i].service_s, 1.0);
                // Some of the shortest waited in the run; fewer do where requests are shorter.
                for _ in 0..TURNS {
                    part *= longer(&measured[i], &run(&seen, i));
                    seen[i].service_s = part * whole_s;
                    seen[i].beside = (1.0 - part) * whole_s * seen[i].rate_hz;
                }
                if part >= ALL || far_apart(&measured[i], &run(&seen, i)) >= as_differing {
                    seen[i] = differing;
                }
            }
        }
    }
    intervals.iter_mut().zip(seen).for_each(|(i, s)| i.seen = s);
}

/// Response times of VM `i` in the fluid simulation.
fn responses(fluid: &Fluid, seen: &[Seen], gaps: &[Vec<f64>], i: usize, effort: usize) -> Vec<f64> {
    let rates: Vec<f64> = seen.iter().map(|s| s.rate_hz).collect();
    let weights: Vec<f64> = seen.iter().map(|s| s.weight).collect();
    let rounds = rounds(seen, gaps, &rates, effort);
    rounds.iter().flat_map(|t| fluid.responses(t, &weights).swap_remove(i)).collect()
}

/// Sorted response times, as a log or a histogram would report them.
fn as_seen(took_s: &[f64], lots: Option<&Lots>) -> Vec<f64> {
    let mut x =
        lots.map_or_else(|| took_s.to_vec(), |lots| histogram::took_s(&Counted::of(&lots.bounds_s, took_s)));
    x.sort_by(f64::total_cmp);
    x
}

/// The logarithm of the k-th quantile of those that are in order.
fn log_at(of: &[f64], k: u32) -> f64 {
    let q = (f64::from(k) + 0.5) / f64::from(QUANTILES);
    libm::log(of[(q * of.len() as f64) as usize].max(1e-9))
}

/// The mean distance of the quantiles of two distributions, each given in order, as logarithms.
fn apart(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 0.0;
    }
    (0..QUANTILES).map(|k| (log_at(a, k) - log_at(b, k)).abs()).sum::<f64>() / f64::from(QUANTILES)
}

/// The mean square of the same distance: a few that are far off count more than many that are a little off.
fn far_apart(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 0.0;
    }
    let square = |k| (log_at(a, k) - log_at(b, k)) * (log_at(a, k) - log_at(b, k));
    (0..QUANTILES).map(square).sum::<f64>() / f64::from(QUANTILES)
}

/// How many times as long as the shortest of `b` are the shortest of `a`, each given in order.
fn longer(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    libm::exp(SHORTEST.map(|k| log_at(a, k) - log_at(b, k)).sum::<f64>() / SHORTEST.len() as f64)
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

    /// Three VMs whose requests are alike, exponential, and very unlike: each is recognised, at a light load and a
    /// heavy one.
    #[test]
    fn spreads_are_recognised() {
        for rate in [25.0, 55.0] {
            let one = |rate_hz: f64, service_s: f64, service_cv2: f64| Seen {
                rate_hz,
                gap_cv2: 1.0,
                service_s,
                beside: 0.0,
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

    /// A third of what the first VM uses is no request's, nothing of the third's: told within a twentieth. Of the
    /// second, whose requests differ, nothing is said.
    #[test]
    fn what_is_no_requests_is_recognised() {
        let one = |rate_hz: f64, service_cv2: f64, beside: f64| Seen {
            rate_hz,
            gap_cv2: 1.0,
            service_s: 0.005,
            beside,
            service_cv2,
            response: Response { mean_s: 0.0, p95_s: 0.0 },
            weight: 1.0,
            vcpus: 1,
        };
        let truth = [one(20.0, 0.0, 0.05), one(30.0, 1.0, 0.0), one(20.0, 0.0, 0.0)];
        let fluid = Fluid { pcpus: 1.0 - 0.05, vcpus: vec![1; 3] };
        let took = fluid.responses(&rounds(&truth, &[], &truth.map(|s| s.rate_hz), 90_000)[5], &[1.0; 3]);
        let as_divided = |(s, took_s): (&Seen, Vec<f64>)| Interval {
            seen: Seen { service_s: s.load_at(s.rate_hz) / s.rate_hz, beside: 0.0, service_cv2: 1.0, ..*s },
            gaps_s: Vec::new(),
            took_s,
            lots: None,
        };
        let mut all: Vec<Interval> = truth.iter().zip(took).map(as_divided).collect();
        read_off(&mut all, 1.0, EFFORT, &|| {});
        for (got, truth) in all.iter().zip(&truth) {
            let got = &got.seen;
            assert!((got.service_s / truth.service_s - 1.0).abs() < 0.05, "{got:?} for {truth:?}");
            assert!(
                (got.load_at(got.rate_hz) - truth.load_at(truth.rate_hz)).abs() < 1e-9,
                "nothing is lost"
            );
        }
        // At another rate it is the same.
        let mut then =
            Seen { rate_hz: 60.0, service_s: truth[0].load_at(60.0) / 60.0, beside: 0.0, ..truth[0] };
        ReadOff::of(&all[0].seen).on(&mut then);
        assert!((then.service_s / 0.005 - 1.0).abs() < 0.03 && then.beside == all[0].seen.beside, "{then:?}");
    }
}
