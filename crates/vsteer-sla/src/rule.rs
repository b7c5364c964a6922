//! By which rule does `steer` decide? vsteer's own is [`super::control`]; two published ones are here, to be compared with it.
//!
//! Both look at one period alone, and neither rests, pools periods or takes back what made things worse.
//!
//! ```text
//! paper      rules (5) to (7): [`super::paper`]
//! sandpiper  a VM needs λ_peak / λ_cap of a pCPU. If a level was missed and all needs fit, each VM's weight is its need;
//!            if they do not fit, the VM with the greatest volume 1 / (1 - load) goes
//! ```
//!
//! λ_cap is the rate at which a pCPU of its own keeps the VM's level, by the G/G/1 bound
//! `[s + (σ_a² + σ_b²) / 2(d - s)]^-1`. λ_peak is the 95th percentile of answers in a second.
//!
//! **What the sources leave open.** A level of the mean is compared with the mean, one of the percentile with the
//! percentile. The paper does not say which VM goes: here the one with the most load. The paper's grid has too many points
//! for more than six VMs, which get the exact optimum. Sandpiper's hotspot is k of the last n periods: here 1 of 1.
//!
//! Sources: E. Yang, H. Choi, S. Han, S. Park, J. KIISE 37(4), 2010; T. Wood, P. Shenoy, A. Venkataramani, M. Yousif,
//! "Black-box and Gray-box Strategies for Virtual Machine Migration", NSDI 2007, sections 4 and 5.
//!
//! Left out: Sandpiper's network and memory, and its swaps of VMs.

use super::control::{Candidate, Decision, Level};
use super::estimate::{self, Case, Driver};
use super::paper::{self, Says};
use super::solve::{Guest, Problem, best};
use super::window::{Next, Response, Seen};
use std::collections::BTreeMap;
use vsteer_core::requests::Answered;
use vsteer_core::stats::quantile;

/// The percentile that both sources take as the peak.
const PEAK: f64 = 0.95;
/// Parts of all weights that differ by less count as equal: the paper's step.
const STEP: f64 = 0.05;

/// A published rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// E. Yang et al., rules (5) to (7).
    Paper,
    /// T. Wood et al.
    Sandpiper,
}

/// A VM in the period that a rule decides by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Profile {
    /// What was measured.
    pub seen: Seen,
    /// What is promised.
    pub level: Level,
    /// 95th percentile of the answers in a second.
    pub rate_peak_hz: f64,
}

/// What a rule says before it is turned into a decision.
enum Verdict {
    Nothing,
    /// Parts of all weights.
    Weights(Vec<f64>),
    Go,
}

/// 95th percentile of the number of answers in each whole second of a period, which is given in ns.
pub fn rate_peak_hz(requests: &[Answered], (from_ns, to_ns): (u64, u64)) -> f64 {
    const SECOND_NS: u64 = 1_000_000_000;
    let seconds = to_ns.saturating_sub(from_ns) / SECOND_NS;
    let mut answers: BTreeMap<u64, f64> = (0..seconds).map(|second| (second, 0.0)).collect();
    for request in requests {
        let second = (request.began_ns + request.took_ns).checked_sub(from_ns).map(|ns| ns / SECOND_NS);
        if let Some(count) = second.and_then(|second| answers.get_mut(&second)) {
            *count += 1.0;
        }
    }
    let counts: Vec<f64> = answers.into_values().collect();
    quantile(&counts, PEAK).unwrap_or(0.0)
}

impl Profile {
    /// The promised response time and its peak, s.
    fn response(&self) -> Option<(f64, f64)> {
        let Response { mean_s, p95_s } = self.seen.response;
        self.level.p95_s.map(|level| (level, p95_s)).or(self.level.mean_s.map(|level| (level, mean_s)))
    }

    /// pCPUs that the VM needs, by Sandpiper. Without a level, or with one below the CPU time of a request: its load.
    fn need(&self) -> f64 {
        let Seen { rate_hz, gap_cv2, service_s, service_cv2, .. } = self.seen;
        let load = self.rate_peak_hz * service_s;
        let Some((level_s, _)) = self.response().filter(|(level_s, _)| *level_s > service_s) else {
            return load;
        };
        let variances = gap_cv2 / (rate_hz * rate_hz) + service_cv2 * service_s * service_s;
        let most_hz = 1.0 / (service_s + variances / (2.0 * (level_s - service_s)));
        self.rate_peak_hz / most_hz
    }
}

impl Published {
    /// Its name, which is that of its estimator too.
    pub fn name(self) -> &'static str {
        match self {
            Published::Paper => "paper",
            Published::Sandpiper => "sandpiper",
        }
    }

    /// Who published it.
    pub fn named(self) -> &'static str {
        match self {
            Published::Paper => "Yang et al.",
            Published::Sandpiper => "Sandpiper",
        }
    }

    /// What to do after this period. Weights are parts of those that these VMs have together.
    pub fn decide(self, vms: &[Profile], driver: Driver, pcpus: f64) -> Decision {
        let all: f64 = vms.iter().map(|vm| vm.seen.weight).sum();
        let now: Vec<f64> = vms.iter().map(|vm| vm.seen.weight / all).collect();
        let verdict = match self {
            Published::Paper => by_paper(vms, driver),
            Published::Sandpiper => by_sandpiper(vms, pcpus),
        };
        let worst = |weights: &[f64], gone| self.worst(vms, weights, gone, driver, pcpus);
        match verdict {
            Verdict::Weights(weights) if now.iter().zip(&weights).any(|(a, b)| (a - b).abs() >= STEP) => {
                let worst = worst(&weights, None).unwrap_or(f64::INFINITY);
                Decision::Set { weights, worst }
            }
            Verdict::Nothing | Verdict::Weights(_) => Decision::Keep,
            Verdict::Go => {
                let mut order: Vec<usize> = (0..vms.len()).collect();
                let load = |i: &usize| vms[*i].seen.load_at(vms[*i].seen.rate_hz);
                order.sort_by(|a, b| load(b).total_cmp(&load(a)));
                let candidate = |vm| Candidate { vm, rest: worst(&now, Some(vm)) };
                Decision::Move {
                    worst: worst(&now, None),
                    candidates: order.into_iter().map(candidate).collect(),
                }
            }
        }
    }

    /// The worst response time as a multiple of its level, by the rule's own estimate and without the VM that is `gone`; `None`
    /// if a VM has more work than pCPUs.
    fn worst(
        self,
        vms: &[Profile],
        weights: &[f64],
        gone: Option<usize>,
        driver: Driver,
        pcpus: f64,
    ) -> Option<f64> {
        let estimator = estimate::find(self.name()).ok()?;
        let seen: Vec<Seen> = vms.iter().map(|vm| vm.seen).collect();
        let rate_hz = |i: usize| if gone == Some(i) { 0.0 } else { seen[i].rate_hz };
        let next: Vec<Next> =
            weights.iter().enumerate().map(|(i, w)| Next { rate_hz: rate_hz(i), weight: *w }).collect();
        let told = (estimator.tell)(&Case { driver, pcpus, ..Case::new(&seen, &next) });
        let others = vms.iter().zip(told).enumerate().filter(|(i, _)| gone != Some(*i));
        others
            .map(|(_, (vm, told))| Some(vm.level.part(told?)))
            .try_fold(0.0, |most, part| Some(part?.max(most)))
    }
}

/// Rules (5) to (7).
fn by_paper(vms: &[Profile], driver: Driver) -> Verdict {
    let of = |vm: &Profile| paper::Vm {
        rate_hz: vm.level.rate_hz.map(|level| (level, vm.rate_peak_hz)),
        response_s: vm.response(),
    };
    match paper::says(&vms.iter().map(of).collect::<Vec<_>>()) {
        Says::Nothing => Verdict::Nothing,
        Says::Migrate => Verdict::Go,
        Says::Reallocate => {
            let guest = |vm: &Profile| Guest {
                rate_hz: vm.seen.rate_hz,
                service_s: vm.seen.service_s,
                level_s: None,
                bounds: (0.0, 1.0),
            };
            let problem = Problem { guests: vms.iter().map(guest).collect(), driver: driver.delay };
            let weights = paper::grid(&problem).or_else(|| best(&problem).ok().map(|found| found.weights));
            weights.map_or(Verdict::Nothing, Verdict::Weights)
        }
    }
}

fn by_sandpiper(vms: &[Profile], pcpus: f64) -> Verdict {
    let is_hot = vms.iter().any(|vm| vm.level.part(vm.seen.response) > 1.0);
    let needs: Vec<f64> = vms.iter().map(Profile::need).collect();
    let all: f64 = needs.iter().sum();
    match is_hot {
        false => Verdict::Nothing,
        true if all > pcpus => Verdict::Go,
        true => Verdict::Weights(needs.iter().map(|need| need / all).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE_S: [f64; 3] = [0.0066, 0.0066, 0.0017];

    /// VMs of the published scenarios.
    fn vms(rates: [f64; 3], responses_ms: [f64; 3], levels_ms: [f64; 3]) -> Vec<Profile> {
        let of = |i: usize| {
            let mean_s = responses_ms[i] / 1e3;
            let seen = Seen {
                rate_hz: rates[i],
                gap_cv2: 1.0,
                service_s: SERVICE_S[i],
                beside: 0.0,
                service_cv2: 0.0,
                response: Response { mean_s, p95_s: 3.0 * mean_s },
                weight: 256.0,
                vcpus: 1,
            };
            let level = Level { mean_s: Some(levels_ms[i] / 1e3), p95_s: None, rate_hz: None };
            Profile { seen, level, rate_peak_hz: rates[i] }
        };
        (0..3).map(of).collect()
    }

    #[test]
    fn the_peak_is_that_of_whole_seconds() {
        let of = |at_ms: u64| Answered { began_ns: at_ms * 1_000_000, took_ns: 0 };
        // One answer in each of 19 seconds, ten in the last one, and some outside.
        let each = (0..19).map(|s| of(10_000 + 1000 * s + 3));
        let all: Vec<Answered> =
            each.chain((0..10).map(|i| of(29_000 + i))).chain([of(9_999), of(30_000)]).collect();
        assert!((rate_peak_hz(&all, (10_000_000_000, 30_000_000_000)) - 1.45).abs() < 1e-9);
        assert_eq!(rate_peak_hz(&all, (0, 0)), 0.0);
    }

    #[test]
    fn without_a_missed_level_nothing_changes() {
        let calm = vms([45.0, 45.0, 170.0], [20.0, 20.0, 10.0], [30.0, 30.0, 15.0]);
        for rule in [Published::Paper, Published::Sandpiper] {
            assert_eq!(rule.decide(&calm, Driver::default(), 1.0), Decision::Keep, "{rule:?}");
        }
    }

    /// By symmetry its optimum treats VM1 and VM2 alike, though VM1 alone is late.
    #[test]
    fn the_paper_gives_alike_vms_alike_weights() {
        let late = vms([45.0, 45.0, 170.0], [25.0, 25.0, 8.0], [22.0, 40.0, 40.0]);
        let Decision::Set { weights, .. } = Published::Paper.decide(&late, Driver::default(), 1.0) else {
            panic!("{:?}", Published::Paper.decide(&late, Driver::default(), 1.0))
        };
        assert!((weights[0] - weights[1]).abs() < 0.051 && weights[0] > 1.0 / 3.0, "{weights:?}");
        // The sum of the times is above that of the levels: somebody has to go, the one with the most load first.
        let worse = vms([45.0, 45.0, 170.0], [45.0, 50.0, 18.0], [22.0, 40.0, 40.0]);
        let Decision::Move { candidates, .. } = Published::Paper.decide(&worse, Driver::default(), 1.0)
        else {
            panic!()
        };
        assert_eq!(candidates.len(), 3);
        assert!(candidates[0].rest.unwrap() < candidates[2].rest.unwrap(), "{candidates:?}");
    }

    /// By hand: 170 requests a second of 1.7 ms, Poisson, in at most 2.7 ms.
    #[test]
    fn sandpiper_needs_what_its_bound_says() {
        let vm = vms([10.0, 10.0, 170.0], [9.0, 9.0, 3.0], [100.0, 100.0, 2.7])[2];
        assert!(
            (vm.need() - 170.0 * (0.0017 + 1.0 / (170.0 * 170.0) / 0.002)).abs() < 1e-12,
            "{}",
            vm.need()
        );
        // Evenly spaced requests of one length need no more than their load.
        let even = |vm: Profile| Profile { seen: Seen { gap_cv2: 0.0, ..vm.seen }, ..vm };
        let late = vms([10.0, 10.0, 100.0], [80.0, 8.0, 4.0], [40.0, 40.0, 40.0]);
        let late: Vec<Profile> = late.into_iter().map(even).collect();
        let Decision::Set { weights, .. } = Published::Sandpiper.decide(&late, Driver::default(), 1.0) else {
            panic!("{:?}", Published::Sandpiper.decide(&late, Driver::default(), 1.0))
        };
        assert!((weights[0] - 66.0 / 302.0).abs() < 1e-12 && weights[0] == weights[1], "{weights:?}");
        let full = vms([70.0, 70.0, 170.0], [80.0, 8.0, 4.0], [10.0, 40.0, 40.0]);
        let decision = Published::Sandpiper.decide(&full, Driver::default(), 1.0);
        assert!(matches!(decision, Decision::Move { .. }), "{decision:?}");
    }
}
