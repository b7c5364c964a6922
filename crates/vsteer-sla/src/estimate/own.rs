//! vsteer's own estimator: a run of the sharing model, corrected by the last interval.
//!
//! **Idea.** Requests are drawn as the last interval's were ([`super::traffic`]) and run twice through who shares
//! how (the recorded host simulated, where there is one, else the fluid): at the last interval's rates and weights,
//! and at the next one's. What was measured in the last interval, divided by what the first run says, is the factor
//! for the second: of the part above the bare service time, since what a model leaves out lengthens waits, not
//! work. Both runs have the same draws.
//!
//! **Trust.** Such a factor is the model's error times chance: of the last interval, and of how periodic arrivals
//! lay to each other in it. How much chance there is shows in how far rounds of the first run are apart; only the
//! part of the factor (of its logarithm) that is not likely to be chance is taken along, as for any two variances.
//!
//! Left out: a drift of service times, and what makes the last interval's own mean differ from its expectation (at
//! a load of 88 % that of a minute is off by a fifth).

use super::super::window::{Response, Seen};
use super::fluid::Fluid;
use super::traffic::{Traffic, rounds};
use super::{Case, Ran, Sharing};
use std::cell::OnceCell;

/// A factor beyond this is not the model's error: something else happened.
const FACTOR_MOST: f64 = 3.0;
/// Where a model says that so little is waited (part of the service time), a factor would be made of noise.
const WAITS_LEAST: f64 = 0.05;
/// How far the model is off by itself, as a standard deviation of the factor's logarithm: fluid against EEVDF, Credit.
const MODEL_OFF: f64 = 0.2;
/// Of what was taken off a service time as no request's (`Seen::beside`), this part may be a request's after all,
/// or more of it not.
const BESIDE_OFF: f64 = 0.15;
/// Arrivals that vary less than this are periodic: what differs between rounds is how they lie to each other, and
/// that lasts.
const PERIODIC_CV2: f64 = 0.1;
/// Of a 95th percentile chance is so much more than of a mean, as variances.
const PERCENTILE_MORE: f64 = 2.0;

/// How much of a factor is the model's error, and not chance in what was measured: 0 to 1.
fn trusted(s: &Seen, requests: usize, before: &Ran, in_a_round: f64) -> f64 {
    let waits_s = before.response.mean_s - s.service_s;
    if waits_s <= WAITS_LEAST * s.service_s || requests == 0 {
        return 0.0;
    }
    let round = before.rounds_apart_s / waits_s;
    let shorter = if s.gap_cv2 < PERIODIC_CV2 { 1.0 } else { in_a_round / requests as f64 };
    let unsure = BESIDE_OFF * s.beside / (s.rate_hz * waits_s);
    let variance = round * round * shorter + unsure * unsure;
    MODEL_OFF * MODEL_OFF / (MODEL_OFF * MODEL_OFF + variance)
}

/// What `measured` says of `modelled`, taken along to `then` as far as it is trusted.
fn corrected(service_s: f64, measured: f64, modelled: f64, then: f64, trusted: f64) -> f64 {
    let above = modelled - service_s;
    let waits = (then - service_s).max(0.0);
    if above <= WAITS_LEAST * service_s {
        return service_s + waits;
    }
    let factor = ((measured - service_s) / above).clamp(1.0 / FACTOR_MOST, FACTOR_MOST);
    service_s + libm::exp(trusted * libm::log(factor)) * waits
}

/// What the next interval brings, corrected by the last one.
pub(super) fn tell(case: &Case<'_>) -> Vec<Option<Response>> {
    let fluid = case.fluid();
    let sharing: &dyn Sharing = case.host.unwrap_or(&fluid);
    let run = |rates: &[f64], weights: Vec<f64>| {
        if !settles(case, rates) || weights.iter().any(|w| *w <= 0.0) {
            return (vec![None; rates.len()], 1);
        }
        let rounds = rounds(case.seen, case.gaps_s, rates, case.effort);
        let told = sharing.run(&rounds, &weights, case.between);
        (case.between)();
        (told, rounds.len())
    };
    let next_hz: Vec<f64> = case.next.iter().map(|n| n.rate_hz).collect();
    let last_hz: Vec<f64> = case.seen.iter().map(|s| s.rate_hz).collect();
    let (then, _) = run(&next_hz, case.next.iter().map(|n| n.weight).collect());
    let (before, rounds) = run(&last_hz, case.seen.iter().map(|s| s.weight).collect());
    let together: f64 = last_hz.iter().sum();
    let of = |i: usize| {
        let (s, then) = (&case.seen[i], then[i]?.response);
        let Some(before) = &before[i] else { return Some(then) };
        let requests = case.gaps_s.get(i).map_or(0, |g| g.len() + 1);
        let in_a_round = case.effort as f64 / rounds as f64 * s.rate_hz / together;
        let mean = if case.to_the_letter { 1.0 } else { trusted(s, requests, before, in_a_round) };
        let p95 = mean / (mean + PERCENTILE_MORE * (1.0 - mean));
        let (was, model) = (s.response, before.response);
        Some(Response {
            mean_s: corrected(s.service_s, was.mean_s, model.mean_s, then.mean_s, mean),
            p95_s: corrected(s.service_s, was.p95_s, model.p95_s, then.p95_s, p95),
        })
    };
    (0..case.seen.len()).map(of).collect()
}

/// The recorded host simulated, as it is.
pub(super) fn simulator(case: &Case<'_>) -> Vec<Option<Response>> {
    let none = || vec![None; case.seen.len()];
    let Some(host) = case.host else { return none() };
    let rates: Vec<f64> = case.next.iter().map(|n| n.rate_hz).collect();
    let weights: Vec<f64> = case.next.iter().map(|n| n.weight).collect();
    if !settles(case, &rates) {
        return none();
    }
    let told = host.run(&rounds(case.seen, case.gaps_s, &rates, case.effort), &weights, case.between);
    told.into_iter().map(|r| r.map(|r| r.response)).collect()
}

/// Is there less work than pCPUs? Else queues grow for as long as one looks.
fn settles(case: &Case<'_>, rates: &[f64]) -> bool {
    let load: f64 = case.seen.iter().zip(rates).map(|(s, rate)| s.load_at(*rate)).sum();
    case.seen.iter().all(|s| s.service_s > 0.0) && load < case.pcpus
}

/// A search for weights uses this part of the requests. With the same draws for all weights, few requests show the
/// differences.
const SEARCHED: usize = 10;
/// But not fewer than this.
const SEARCHED_LEAST: usize = 5_000;

/// All that does not depend on the next interval's weights.
pub(super) struct Prepared<'a> {
    case: Case<'a>,
    fluid: Fluid,
    weights: Vec<f64>,
    /// The answer at the present weights, by all requests.
    now: Vec<Option<Response>>,
    /// Few of the next interval's requests; `None` where there is more work than pCPUs.
    few: Option<Vec<Vec<Traffic>>>,
    /// What they say of the present weights, once that was asked for.
    few_now: OnceCell<Vec<Option<Response>>>,
}

impl<'a> Prepared<'a> {
    pub(super) fn new(case: Case<'a>) -> Prepared<'a> {
        let rates: Vec<f64> = case.next.iter().map(|n| n.rate_hz).collect();
        let weights: Vec<f64> = case.next.iter().map(|n| n.weight).collect();
        let searched = (case.effort / SEARCHED).max(SEARCHED_LEAST);
        let few = settles(&case, &rates).then(|| rounds(case.seen, case.gaps_s, &rates, searched));
        let same =
            case.seen.iter().zip(case.next).all(|(s, n)| s.rate_hz == n.rate_hz && s.weight == n.weight);
        let now = if same && case.to_the_letter {
            case.seen.iter().map(|s| Some(s.response)).collect()
        } else {
            tell(&case)
        };
        Prepared { case, fluid: case.fluid(), weights, now, few, few_now: OnceCell::new() }
    }

    fn run(&self, rounds: &[Vec<Traffic>], weights: &[f64]) -> Vec<Option<Response>> {
        let told = self.case.host.unwrap_or(&self.fluid).run(rounds, weights, self.case.between);
        (self.case.between)();
        told.into_iter().map(|r| r.map(|r| r.response)).collect()
    }

    fn at(&self, weights: &[f64]) -> Vec<Option<Response>> {
        let Some(few) = self.few.as_ref().filter(|_| weights.iter().all(|w| *w > 0.0)) else {
            return vec![None; self.now.len()];
        };
        if weights == self.weights {
            return self.now.clone();
        }
        let few_now = self.few_now.get_or_init(|| self.run(few, &self.weights));
        let told = self.run(few, weights);
        let of = |((then, before), now): ((Option<Response>, &Option<Response>), &Option<Response>)| {
            let (then, before, now) = (then?, (*before)?, (*now)?);
            let (mean, p95) = (then.mean_s / before.mean_s, then.p95_s / before.p95_s);
            Some(Response { mean_s: now.mean_s * mean, p95_s: now.p95_s * p95 })
        };
        told.into_iter().zip(few_now).zip(&self.now).map(of).collect()
    }

    pub(super) fn by_weights(self) -> impl Fn(&[f64]) -> Vec<Option<Response>> + 'a {
        move |weights| self.at(weights)
    }
}
