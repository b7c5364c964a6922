//! Which weights make the delays smallest, and can any hold the levels?
//!
//! **The problem.** VM p gets requests at the rate λ_p, each of which takes x_p of CPU. Equation (2) of the paper,
//! with the part of a driver domain (3), says that its requests take
//!
//! ```text
//! R_p = (Σ_i a_i w_i + c) / (λ_p w_p)      a_i = λ_i x_i,  c = IO * D_0,  Σ w = 1
//! ```
//!
//! With v = w / (Σ_i A_i w_i), A_i = a_i + c, that is R_p = 1 / (λ_p v_p), and everything is convex:
//!
//! ```text
//! minimise   Σ b_p / v_p                     b_p = 1 / λ_p
//! such that  Σ A_i v_i = 1,   v_p >= 1 / (λ_p S_p),   φ_i s <= v_i <= κ_i s,   s = Σ v
//! ```
//!
//! for levels S_p (the longest R_p allowed) and weights between floors φ and caps κ; w = v / s.
//!
//! **The solution.** With multipliers µ of the first condition and θ of s = Σ v,
//!
//! ```text
//! v_i = sqrt(b_i / (µ A_i + θ)),  within its bounds
//! θ   = Σ α_i φ_i - Σ β_i κ_i       α_i, β_i: what the floor, the cap of i costs: |µ A_i + θ - b_i / v_i²|
//! ```
//!
//! which are three equations in µ, θ and s, smooth but where somebody reaches a bound. Newton's method (`newton`)
//! solves them in some ten passes over the VMs, and what it ends at is checked. Where it does not get there (nobody
//! is between their bounds, or the levels leave no room), three searches, one within the other, each for where a
//! monotone function is zero (`nested`), find the same slowly. Without bounds θ is 0 and w_i ~ 1 / sqrt(λ_i (λ_i
//! x_i + c)). Levels alone hold iff Σ A_p / (λ_p S_p) = Σ (x_p + c / λ_p) / S_p <= 1.
//!
//! Left out: levels at a percentile (they belong to an estimator, not to this sum of means).
//!
//! Sources: E. Yang, H. Choi, S. Han, S. Park, "A Priority Allocation Scheme Considering Virtual Machine Scheduling
//! Delays in Xen Environments", J. KIISE 37(4), 2010, equations (1) to (4); the substitution is our own
//! (docs/service-levels.md).

mod nested;
mod newton;
#[cfg(test)]
mod tests;

use serde::Serialize;

/// One VM of the problem.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guest {
    /// λ: requests per second, above 0.
    pub rate_hz: f64,
    /// x: CPU time of one, seconds.
    pub service_s: f64,
    /// S: the longest mean response time allowed, seconds.
    pub level_s: Option<f64>,
    /// φ and κ: the least and the most of all weights together that it may have, 0..=1.
    pub bounds: (f64, f64),
}

/// The VMs that share a pCPU, and what their driver domain costs.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The VMs.
    pub guests: Vec<Guest>,
    /// c = IO * D_0: part of the time in which the driver domain waits for a pCPU, 0 where there is none.
    pub driver: f64,
}

/// The best weights.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Solution {
    /// w: parts of 1, by VM.
    pub weights: Vec<f64>,
    /// R: the mean response times that equation (2) gives them, seconds.
    pub response_s: Vec<f64>,
    /// Of these, the sum.
    pub total_s: f64,
    /// Passes over the VMs that it took.
    pub passes: u32,
}

/// Why there are none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Unsolved {
    /// No weights hold the levels.
    Levels {
        /// Least possible Σ A v, which must be at most 1.
        need: f64,
    },
    /// Floors above 1 together, caps below 1 together, or a floor above its cap.
    Bounds,
    /// A rate is not greater than 0, or a value is not a number (the driver domain counts as the first VM).
    Figures {
        /// Index of the VM.
        guest: usize,
    },
    /// No method is exact enough: a condition is violated by this part. No such problem is known.
    Inexact {
        /// The largest part.
        by: f64,
    },
}

/// What is found breaks no condition by a larger part.
const HELD: f64 = 1e-9;
/// Σ A v of levels that fill the plane exactly may come out so much above 1.
const ROUNDING: f64 = 1e-12;

/// What the equations need of a VM.
#[derive(Debug, Clone, Copy)]
struct One {
    /// A.
    load: f64,
    /// b.
    gap: f64,
    /// 1 / (λ S), 0 without a level.
    least: f64,
    floor: f64,
    cap: f64,
    /// b / φ² and b / κ²; 0 without a floor.
    at_floor: f64,
    at_cap: f64,
}

/// The multipliers, and s.
#[derive(Debug, Clone, Copy)]
struct At {
    mu: f64,
    theta: f64,
    s: f64,
}

impl One {
    /// The best v within bounds. A level above the cap is a point that a search passes, not one that it ends at.
    fn v(&self, at: At) -> f64 {
        let price = at.mu * self.load + at.theta;
        let free = if price > 0.0 { libm::sqrt(self.gap / price) } else { f64::INFINITY };
        larger(smaller(free, self.cap * at.s), larger(self.floor * at.s, self.least))
    }
}

/// `f64::max` asks about NaN, which costs a third of a pass.
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

fn smaller(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

/// The weights that make the sum of all response times smallest, within levels and bounds.
///
/// # Errors
/// [`Unsolved`].
pub fn best(problem: &Problem) -> Result<Solution, Unsolved> {
    let all = checked(problem)?;
    let mut passes = 0;
    let levels: f64 = all.iter().map(|one| one.load * one.least).sum();
    let arrived = if levels <= 1.0 { newton::from_the_free(&all, &mut passes) } else { None };
    if let Some(at) = arrived {
        let weights = weights(all.iter().map(|one| one.v(at)).collect());
        if broken(&all, &weights) <= HELD {
            return Ok(told(problem, weights, passes));
        }
    }
    let need = nested::least_need(&all);
    if need > 1.0 + ROUNDING {
        return Err(Unsolved::Levels { need });
    }
    let weights = weights(nested::v(&all, &mut passes));
    let by = broken(&all, &weights);
    // Not a number is not held either.
    if by <= HELD { Ok(told(problem, weights, passes)) } else { Err(Unsolved::Inexact { by }) }
}

fn weights(mut v: Vec<f64>) -> Vec<f64> {
    let s: f64 = v.iter().sum();
    v.iter_mut().for_each(|v| *v /= s);
    v
}

/// The part by which the condition that is broken most is.
fn broken(all: &[One], weights: &[f64]) -> f64 {
    let served: f64 = all.iter().zip(weights).map(|(one, w)| one.load * w).sum();
    let part = |one: &One, w: f64| larger(one.least * served - w, larger(one.floor - w, w - one.cap)) / w;
    let worst = all.iter().zip(weights).map(|(one, w)| part(one, *w));
    worst.fold(0.0, |worst, part| if part <= worst { worst } else { part })
}

/// What equation (2) says of `weights`.
pub fn told(problem: &Problem, weights: Vec<f64>, passes: u32) -> Solution {
    let served: f64 = problem.guests.iter().zip(&weights).map(|(g, w)| g.rate_hz * g.service_s * w).sum();
    let all: f64 = served + problem.driver * weights.iter().sum::<f64>();
    let response_s: Vec<f64> =
        problem.guests.iter().zip(&weights).map(|(g, w)| all / (g.rate_hz * w)).collect();
    Solution { total_s: response_s.iter().sum(), weights, response_s, passes }
}

fn checked(problem: &Problem) -> Result<Vec<One>, Unsolved> {
    let ok = |g: &Guest| {
        let level = g.level_s.is_none_or(|s| s.is_finite() && s > 0.0);
        let bounds = !g.bounds.0.is_nan() && !g.bounds.1.is_nan();
        g.rate_hz.is_finite()
            && g.rate_hz > 0.0
            && g.service_s.is_finite()
            && g.service_s > 0.0
            && level
            && bounds
    };
    let nobody = problem.guests.iter().position(|g| !ok(g));
    if let Some(guest) = nobody.or((!(problem.driver.is_finite() && problem.driver >= 0.0)).then_some(0)) {
        return Err(Unsolved::Figures { guest });
    }
    let sums = problem.guests.iter().fold((0.0, 0.0), |(f, c), g| (f + g.bounds.0, c + g.bounds.1));
    let orderly =
        |g: &Guest| g.bounds.0 >= 0.0 && g.bounds.0 <= g.bounds.1 && g.bounds.1 > 0.0 && g.bounds.1 <= 1.0;
    // Ten floors of 0.1 are 1, though doubles may say a little more.
    let room = sums.0 <= 1.0 + ROUNDING && sums.1 >= 1.0 - ROUNDING;
    if problem.guests.is_empty() || !problem.guests.iter().all(orderly) || !room {
        return Err(Unsolved::Bounds);
    }
    let one = |g: &Guest| {
        let ((floor, cap), gap) = (g.bounds, 1.0 / g.rate_hz);
        One {
            load: g.rate_hz * g.service_s + problem.driver,
            gap,
            least: g.level_s.map_or(0.0, |s| 1.0 / (g.rate_hz * s)),
            floor,
            cap,
            at_floor: if floor > 0.0 { gap / (floor * floor) } else { 0.0 },
            at_cap: gap / (cap * cap),
        }
    };
    Ok(problem.guests.iter().map(one).collect())
}
