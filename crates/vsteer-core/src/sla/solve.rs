//! Which weights make the delays smallest, and can any hold the levels?
//!
//! **The problem.** VM p gets requests at the rate λ_p, each of which takes x_p of CPU. Equation (2) of the paper, with the
//! part of a driver domain (3), says that its requests take
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
//! which are three equations in µ, θ and s, smooth but where somebody reaches a bound. Newton's method solves them in some ten
//! passes over the VMs; where it does not, three bisections, one within the other, do: each of the three is monotone. Without
//! bounds θ is 0 and w_i ~ 1 / sqrt(λ_i (λ_i x_i + c)). Levels alone hold iff Σ A_p / (λ_p S_p) = Σ (x_p + c / λ_p) / S_p <= 1.
//!
//! Left out: levels at a percentile (they belong to an estimator, not to this sum of means).
//!
//! Sources: E. Yang, H. Choi, S. Han, S. Park, "A Priority Allocation Scheme Considering Virtual Machine Scheduling Delays in Xen
//! Environments", J. KIISE 37(4), 2010, equations (1) to (4); the substitution is our own (docs/service-levels.md).

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
    /// They.
    pub guests: Vec<Guest>,
    /// c = IO * D_0: part of the pCPU that the driver domain's work for them takes, 0 where there is none.
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
    /// No weights hold the levels: they need so many times what there is.
    Levels {
        /// Σ A v at its least, which may be 1 at most.
        need: f64,
    },
    /// Floors above 1 together, caps below 1 together, or a floor above its cap.
    Bounds,
    /// A rate that is not above 0, or a figure that is no number.
    Figures {
        /// Whose, by its place.
        guest: usize,
    },
}

/// Agreement of the three equations, as parts of what they add up.
const EXACT: f64 = 1e-13;
/// Newton's steps; it takes 5 to 15.
const STEPS: u32 = 40;
/// Halvings of an interval: a double has no more.
const HALVINGS: u32 = 60;

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
}

/// The multipliers, and s.
#[derive(Debug, Clone, Copy)]
struct At {
    mu: f64,
    theta: f64,
    s: f64,
}

/// Where a VM's v is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Free,
    Level,
    Floor,
    Cap,
}

impl One {
    fn v(&self, at: At) -> (f64, Place) {
        let price = at.mu * self.load + at.theta;
        let (floor, cap) = (self.floor * at.s, self.cap * at.s);
        let free = if price > 0.0 { libm::sqrt(self.gap / price) } else { f64::INFINITY };
        if free > cap {
            // A level above the cap is a point that the search passes, not one that it ends at.
            if self.least > cap { (self.least, Place::Level) } else { (cap, Place::Cap) }
        } else if free >= floor.max(self.least) {
            (free, Place::Free)
        } else if self.least >= floor {
            (self.least, Place::Level)
        } else {
            (floor, Place::Floor)
        }
    }
}

/// The three equations at a point: what is missing of each, and how each changes with µ, θ and s.
#[derive(Debug, Clone, Copy, Default)]
struct Missing {
    of: [f64; 3],
    by: [[f64; 3]; 3],
    /// The sums that the first two are differences of, and the third.
    scale: [f64; 3],
}

fn missing(all: &[One], at: At) -> Missing {
    let mut m = Missing { of: [-1.0, -at.s, at.theta], scale: [1.0, at.s, at.theta.abs()], ..Missing::default() };
    (m.by[1][2], m.by[2][1]) = (-1.0, 1.0);
    for one in all {
        let (v, place) = one.v(at);
        m.of[0] += one.load * v;
        m.of[1] += v;
        match place {
            Place::Level => {}
            Place::Free => {
                let slope = -0.5 * v / (at.mu * one.load + at.theta);
                m.by[0][0] += one.load * one.load * slope;
                m.by[0][1] += one.load * slope;
                m.by[1][0] += one.load * slope;
                m.by[1][1] += slope;
            }
            Place::Floor | Place::Cap => {
                // Signed: what a floor costs counts for, what a cap costs against.
                let part = if place == Place::Floor { one.floor } else { one.cap };
                let marginal = one.gap / (v * v);
                let cost = at.mu * one.load + at.theta - marginal;
                m.of[2] -= part * cost;
                m.scale[2] += part * (cost.abs() + marginal);
                m.by[0][2] += one.load * part;
                m.by[1][2] += part;
                m.by[2][0] -= part * one.load;
                m.by[2][1] -= part;
                m.by[2][2] -= 2.0 * part * marginal / at.s;
            }
        }
    }
    m
}

impl Missing {
    /// The largest, as a part of what is added up.
    fn worst(&self, at: At, loads: f64) -> f64 {
        let third = self.of[2].abs() / self.scale[2].max(at.mu * loads);
        (self.of[0].abs()).max(self.of[1].abs() / at.s).max(third)
    }

    /// Newton's step; `None` where the equations say the same.
    fn step(&self) -> Option<[f64; 3]> {
        let mut rows = [[0.0; 4]; 3];
        for (row, (by, of)) in rows.iter_mut().zip(self.by.iter().zip(self.of)) {
            row[..3].copy_from_slice(by);
            row[3] = -of;
        }
        for i in 0..3 {
            let best = (i..3).max_by(|a, b| rows[*a][i].abs().total_cmp(&rows[*b][i].abs()))?;
            rows.swap(i, best);
            let pivot = rows[i];
            if pivot[i] == 0.0 || !pivot[i].is_finite() {
                return None;
            }
            for row in rows.iter_mut().skip(i + 1) {
                let factor = row[i] / pivot[i];
                row.iter_mut().zip(pivot).for_each(|(x, p)| *x -= factor * p);
            }
        }
        let mut x = [0.0; 3];
        for i in (0..3).rev() {
            let known: f64 = (i + 1..3).map(|k| rows[i][k] * x[k]).sum();
            x[i] = (rows[i][3] - known) / rows[i][i];
        }
        x.iter().all(|x| x.is_finite()).then_some(x)
    }
}

/// The weights that make the sum of all response times smallest, within levels and bounds.
///
/// # Errors
/// [`Unsolved`].
pub fn best(problem: &Problem) -> Result<Solution, Unsolved> {
    let all = checked(problem)?;
    let need = least_need(&all);
    if need > 1.0 {
        return Err(Unsolved::Levels { need });
    }
    let mut passes = 0;
    let at = newton(&all, &mut passes).unwrap_or_else(|| by_halves(&all, &mut passes));
    let v: Vec<f64> = all.iter().map(|one| one.v(at).0).collect();
    let s: f64 = v.iter().sum();
    let weights: Vec<f64> = v.iter().map(|v| v / s).collect();
    Ok(told(problem, weights, passes))
}

/// What equation (2) says of `weights`.
pub fn told(problem: &Problem, weights: Vec<f64>, passes: u32) -> Solution {
    let served: f64 = problem.guests.iter().zip(&weights).map(|(g, w)| g.rate_hz * g.service_s * w).sum();
    let all: f64 = served + problem.driver * weights.iter().sum::<f64>();
    let response_s: Vec<f64> = problem.guests.iter().zip(&weights).map(|(g, w)| all / (g.rate_hz * w)).collect();
    Solution { total_s: response_s.iter().sum(), weights, response_s, passes }
}

fn checked(problem: &Problem) -> Result<Vec<One>, Unsolved> {
    let ok = |g: &Guest| {
        let level = g.level_s.is_none_or(|s| s.is_finite() && s > 0.0);
        g.rate_hz.is_finite() && g.rate_hz > 0.0 && g.service_s.is_finite() && g.service_s > 0.0 && level
    };
    if let Some(guest) = problem.guests.iter().position(|g| !ok(g)) {
        return Err(Unsolved::Figures { guest });
    }
    let sums = problem.guests.iter().fold((0.0, 0.0), |(f, c), g| (f + g.bounds.0, c + g.bounds.1));
    let orderly = |g: &Guest| (0.0..=1.0).contains(&g.bounds.0) && g.bounds.0 <= g.bounds.1 && g.bounds.1 <= 1.0;
    if problem.guests.is_empty() || !problem.guests.iter().all(orderly) || sums.0 > 1.0 || sums.1 < 1.0 {
        return Err(Unsolved::Bounds);
    }
    let one = |g: &Guest| One {
        load: g.rate_hz * g.service_s + problem.driver,
        gap: 1.0 / g.rate_hz,
        least: g.level_s.map_or(0.0, |s| 1.0 / (g.rate_hz * s)),
        floor: g.bounds.0,
        cap: g.bounds.1,
    };
    Ok(problem.guests.iter().map(one).collect())
}

/// Newton's method from the weights that would be best without bounds; `None` where it does not get there.
fn newton(all: &[One], passes: &mut u32) -> Option<At> {
    let (mut filled, mut sum, mut loads) = (0.0, 0.0, 0.0);
    for one in all {
        let v = libm::sqrt(one.gap / one.load);
        (filled, sum, loads) = (filled + one.load * v, sum + v, loads + one.load);
    }
    *passes += 1;
    let mut at = At { mu: filled * filled, theta: 0.0, s: sum / filled };
    let mut now = missing(all, at);
    for _ in 0..STEPS {
        *passes += 1;
        let worst = now.worst(at, loads);
        if worst <= EXACT {
            return Some(at);
        }
        let [mu, theta, s] = now.step()?;
        let mut part = 1.0;
        let (next, then) = loop {
            let next = At {
                mu: (at.mu + part * mu).max(at.mu * 0.1),
                theta: at.theta + part * theta,
                s: (at.s + part * s).max(at.s * 0.1),
            };
            let then = missing(all, next);
            // Across a corner of the equations a step may lead away for once.
            if then.worst(next, loads) < 2.0 * worst || part < 0.05 {
                break (next, then);
            }
            *passes += 1;
            part *= 0.5;
        };
        (at, now) = (next, then);
    }
    // As exact as doubles are, though not as exact as asked.
    (now.worst(at, loads) <= 100.0 * EXACT).then_some(at)
}

/// Three bisections. For each s and θ there is one µ with Σ A v = 1; for each s one θ with Σ v = s; and the cost of s falls, then
/// grows.
fn by_halves(all: &[One], passes: &mut u32) -> At {
    let filled = |at: At| all.iter().map(|one| one.load * one.v(at).0).sum::<f64>();
    let mut mu_of = |theta: f64, s: f64| {
        *passes += HALVINGS;
        // Where µ A + θ is 0 for somebody, or less, v is its cap.
        let from = all.iter().map(|one| -theta / one.load).fold(0.0, f64::max).max(1e-12);
        let (mut low, mut high) = (1e-3 * from, 2.0 * from + 1.0);
        while filled(At { mu: high, theta, s }) > 1.0 && high < 1e18 {
            high *= 4.0;
        }
        for _ in 0..HALVINGS {
            let mu = 0.5 * (low + high);
            if filled(At { mu, theta, s }) > 1.0 { low = mu } else { high = mu }
        }
        high
    };
    let mut theta_of = |s: f64| {
        let over = |theta: f64, mu: f64| all.iter().map(|one| one.v(At { mu, theta, s }).0).sum::<f64>() > s;
        let (mut low, mut high) = (-1.0, 1.0);
        while { let mu = mu_of(high, s); over(high, mu) } && high < 1e15 {
            high *= 4.0;
        }
        while { let mu = mu_of(low, s); !over(low, mu) } && low > -1e15 {
            low *= 4.0;
        }
        for _ in 0..HALVINGS {
            let theta = 0.5 * (low + high);
            let mu = mu_of(theta, s);
            if over(theta, mu) { low = theta } else { high = theta }
        }
        At { mu: mu_of(high, s), theta: high, s }
    };
    let (mut low, mut high) = span(all);
    for _ in 0..HALVINGS {
        let s = 0.5 * (low + high);
        if missing(all, theta_of(s)).of[2] > 0.0 { low = s } else { high = s }
    }
    theta_of(0.5 * (low + high))
}

/// Between what s may be: Σ v, with Σ A v = 1.
fn span(all: &[One]) -> (f64, f64) {
    let (least, most) = all.iter().fold((f64::INFINITY, 0.0_f64), |(l, m), one| (l.min(one.load), m.max(one.load)));
    (1.0 / most, 1.0 / least)
}

/// Σ A v at its least, with every level and bound held; infinite where they cannot all be held whatever there is.
fn least_need(all: &[One]) -> f64 {
    let levels: f64 = all.iter().map(|one| one.load * one.least).sum();
    if levels == 0.0 {
        return 0.0;
    }
    if all.iter().all(|one| one.floor == 0.0 && one.cap >= 1.0) {
        return levels;
    }
    let mut cheapest: Vec<usize> = (0..all.len()).collect();
    cheapest.sort_by(|a, b| all[*a].load.total_cmp(&all[*b].load));
    // For each s what is cheapest is taken first, up to its cap; that costs the less the nearer s is to its best.
    let need = |s: f64| {
        let low = |one: &One| one.least.max(one.floor * s);
        if all.iter().any(|one| low(one) > one.cap * s * (1.0 + 1e-12)) {
            return f64::INFINITY;
        }
        let (mut left, mut sum) = (s - all.iter().map(low).sum::<f64>(), all.iter().map(|one| one.load * low(one)).sum());
        if left < -1e-12 * s {
            return f64::INFINITY;
        }
        for one in cheapest.iter().map(|i| &all[*i]) {
            let more = (one.cap * s - low(one)).min(left).max(0.0);
            (left, sum) = (left - more, sum + one.load * more);
        }
        sum
    };
    // The least s at which every level is below its cap, and the floors leave room.
    let mut from = all.iter().map(|one| one.least / one.cap).fold(all.iter().map(|one| one.least).sum(), f64::max);
    while need(from).is_infinite() && from < 1e18 {
        from *= 1.0 + 1e-3;
    }
    let (mut low, mut high) = (from, from * 1e6);
    for _ in 0..4 * HALVINGS {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if need(a) <= need(b) { high = b } else { low = a }
    }
    need(from).min(need(0.5 * (low + high)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;

    fn free(rate_hz: f64, service_ms: f64) -> Guest {
        Guest { rate_hz, service_s: service_ms / 1e3, level_s: None, bounds: (0.0, 1.0) }
    }

    fn problem(guests: Vec<Guest>) -> Problem {
        Problem { guests, driver: 0.0 }
    }

    /// Scenario 1's second interval: w_i ~ 1 / (λ_i sqrt(x_i)), and no other weights do better.
    #[test]
    fn without_bounds_it_is_the_closed_form() {
        let p = problem(vec![free(45.0, 6.6), free(45.0, 6.6), free(170.0, 1.7)]);
        let best = best(&p).unwrap();
        let form: Vec<f64> = p.guests.iter().map(|g| 1.0 / (g.rate_hz * libm::sqrt(g.service_s))).collect();
        let sum: f64 = form.iter().sum();
        for (w, f) in best.weights.iter().zip(&form) {
            assert!((w - f / sum).abs() < 1e-12, "{best:?}");
        }
        for (i, j) in [(0, 1), (0, 2), (1, 2), (2, 0)] {
            let mut other = best.weights.clone();
            (other[i], other[j]) = (other[i] + 1e-3, other[j] - 1e-3);
            assert!(told(&p, other, 0).total_s > best.total_s);
        }
    }

    /// With a driver domain: w_i ~ 1 / sqrt(λ_i (λ_i x_i + c)).
    #[test]
    fn the_driver_domain_counts() {
        let p = Problem { driver: 0.1, ..problem(vec![free(30.0, 6.6), free(120.0, 1.7), free(5.0, 20.0)]) };
        let best = best(&p).unwrap();
        let form = |g: &Guest| 1.0 / libm::sqrt(g.rate_hz * (g.rate_hz * g.service_s + 0.1));
        let sum: f64 = p.guests.iter().map(form).sum();
        for (w, g) in best.weights.iter().zip(&p.guests) {
            assert!((w - form(g) / sum).abs() < 1e-12);
        }
    }

    /// Levels that need exactly all there is, a little less and a little more.
    #[test]
    fn levels_hold_or_are_said_not_to() {
        let with = |level_ms: f64| {
            let mut guests = vec![free(45.0, 6.6), free(45.0, 6.6), free(170.0, 1.7)];
            for g in &mut guests {
                g.level_s = Some(level_ms / 1e3);
            }
            best(&problem(guests))
        };
        // Σ x / S = 1.
        let tight = 6.6 + 6.6 + 1.7;
        let held = with(tight * 1.001).unwrap();
        assert!(held.response_s.iter().all(|r| *r <= tight * 1.0011e-3), "{held:?}");
        let Err(Unsolved::Levels { need }) = with(tight * 0.9) else { panic!() };
        assert!((need - 1.0 / 0.9).abs() < 1e-9);
    }

    #[test]
    fn nonsense_is_told() {
        let of = |g: Guest| best(&problem(vec![free(1.0, 1.0), g]));
        assert_eq!(of(free(0.0, 1.0)), Err(Unsolved::Figures { guest: 1 }));
        assert_eq!(of(free(f64::NAN, 1.0)), Err(Unsolved::Figures { guest: 1 }));
        assert_eq!(of(Guest { bounds: (0.6, 0.5), ..free(1.0, 1.0) }), Err(Unsolved::Bounds));
        assert_eq!(best(&problem(Vec::new())), Err(Unsolved::Bounds));
        assert_eq!(best(&problem(vec![free(3.0, 1.0)])).unwrap().weights, [1.0]);
    }

    /// A log barrier with dense Newton steps: nothing in common with what it checks but the problem.
    fn by_barrier(p: &Problem) -> f64 {
        let n = p.guests.len();
        let a: Vec<f64> = p.guests.iter().map(|g| g.rate_hz * g.service_s + p.driver).collect();
        let b: Vec<f64> = p.guests.iter().map(|g| 1.0 / g.rate_hz).collect();
        let low: Vec<f64> = p.guests.iter().map(|g| g.level_s.map_or(0.0, |s| 1.0 / (g.rate_hz * s))).collect();
        // Slacks of v_i - low_i, v_i - φ_i s, κ_i s - v_i as linear functions of v.
        let mut rows: Vec<(Vec<f64>, f64)> = Vec::new();
        for (i, g) in p.guests.iter().enumerate() {
            let unit = |k: usize| f64::from(u8::from(k == i));
            if low[i] > 0.0 {
                rows.push(((0..n).map(unit).collect(), -low[i]));
            }
            if g.bounds.0 > 0.0 {
                rows.push(((0..n).map(|k| unit(k) - g.bounds.0).collect(), 0.0));
            }
            if g.bounds.1 < 1.0 {
                rows.push(((0..n).map(|k| g.bounds.1 - unit(k)).collect(), 0.0));
            }
        }
        let slack = |v: &[f64]| -> Vec<f64> {
            rows.iter().map(|(r, c)| r.iter().zip(v).map(|(r, v)| r * v).sum::<f64>() + c).collect()
        };
        // A point inside: equal shares of w, which the generated problems allow with room.
        let total: f64 = a.iter().sum();
        let mut v = vec![1.0 / total; n];
        assert!(slack(&v).iter().all(|s| *s > 0.0), "no room at equal weights");
        let mut t = 1.0;
        while t < 1e15 {
            for _ in 0..60 {
                let s = slack(&v);
                let mut m = vec![vec![0.0; n + 2]; n + 1];
                for i in 0..n {
                    m[i][i] += t * 2.0 * b[i] / (v[i] * v[i] * v[i]) + 1.0 / (v[i] * v[i]);
                    m[i][n + 1] += t * b[i] / (v[i] * v[i]) + 1.0 / v[i];
                    (m[i][n], m[n][i]) = (a[i], a[i]);
                }
                for ((r, _), s) in rows.iter().zip(&s) {
                    for i in 0..n {
                        m[i][n + 1] += r[i] / s;
                        for k in 0..n {
                            m[i][k] += r[i] * r[k] / (s * s);
                        }
                    }
                }
                let step = dense(m);
                let mut part = 1.0;
                let moved = |part: f64| -> Vec<f64> { v.iter().zip(&step).map(|(v, d)| v + part * d).collect() };
                while moved(part).iter().any(|v| *v <= 0.0) || slack(&moved(part)).iter().any(|s| *s <= 0.0) {
                    part *= 0.5;
                }
                let next = moved(0.99 * part.min(1.0) + if part >= 1.0 { 0.01 } else { 0.0 });
                let far = v.iter().zip(&next).map(|(a, b)| ((a - b) / a).abs()).fold(0.0, f64::max);
                v = next;
                if far < 1e-13 {
                    break;
                }
            }
            t *= 8.0;
        }
        b.iter().zip(&v).map(|(b, v)| b / v).sum()
    }

    /// Solves the augmented rows.
    fn dense(mut m: Vec<Vec<f64>>) -> Vec<f64> {
        let n = m.len();
        for i in 0..n {
            let best = (i..n).max_by(|x, y| m[*x][i].abs().total_cmp(&m[*y][i].abs())).unwrap();
            m.swap(i, best);
            let pivot = m[i].clone();
            for row in m.iter_mut().skip(i + 1) {
                let f = row[i] / pivot[i];
                if f != 0.0 {
                    row.iter_mut().zip(&pivot).skip(i).for_each(|(x, p)| *x -= f * p);
                }
            }
        }
        let mut x = vec![0.0; n];
        for i in (0..n).rev() {
            let known: f64 = (i + 1..n).map(|k| m[i][k] * x[k]).sum();
            x[i] = (m[i][n] - known) / m[i][i];
        }
        x
    }

    /// Guests whose levels and bounds leave room at equal weights.
    fn guests(n: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Guest>> {
        let one = (1.0..200.0f64, 0.2..20.0f64, 0.0..0.9f64, 1.2..4.0f64, prop::option::of(1.1..3.0f64));
        prop::collection::vec(one, n).prop_map(|all| {
            let n = all.len() as f64;
            let total: f64 = all.iter().map(|(rate, service, ..)| rate * service / 1e3).sum();
            all.into_iter()
                .map(|(rate_hz, service_ms, floor, cap, level)| Guest {
                    // At equal weights R = total / λ.
                    level_s: level.map(|l| l * total / rate_hz),
                    bounds: (floor / n, (cap / n).min(1.0)),
                    ..free(rate_hz, service_ms)
                })
                .collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_is_what_a_barrier_method_finds(all in guests(3..24)) {
            let p = problem(all);
            let best = best(&p).unwrap();
            let other = by_barrier(&p);
            prop_assert!((best.total_s / other - 1.0).abs() < 1e-9, "{} against {other}, {best:?}", best.total_s);
            for ((w, r), g) in best.weights.iter().zip(&best.response_s).zip(&p.guests) {
                prop_assert!(*w >= g.bounds.0 * (1.0 - 1e-9) && *w <= g.bounds.1 * (1.0 + 1e-9));
                prop_assert!(g.level_s.is_none_or(|s| *r <= s * (1.0 + 1e-9)));
            }
        }

        /// Bisections find what Newton's method finds.
        #[test]
        fn the_slow_way_is_as_good(all in guests(3..12)) {
            let p = problem(all);
            let ones = checked(&p).unwrap();
            let at = by_halves(&ones, &mut 0);
            let v: Vec<f64> = ones.iter().map(|one| one.v(at).0).collect();
            let s: f64 = v.iter().sum();
            let slow = told(&p, v.iter().map(|v| v / s).collect(), 0);
            let best = best(&p).unwrap();
            prop_assert!((slow.total_s / best.total_s - 1.0).abs() < 1e-6, "{} {}", slow.total_s, best.total_s);
        }
    }

    #[test]
    fn large_ones_are_as_exact() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        for n in [32, 100, 256] {
            let all = guests(n..n + 1).new_tree(&mut runner).unwrap().current();
            let p = problem(all);
            let best = best(&p).unwrap();
            let other = by_barrier(&p);
            assert!((best.total_s / other - 1.0).abs() < 1e-9, "{n}: {} against {other}, {} passes", best.total_s, best.passes);
            assert!(best.passes < 40, "{n}: {}", best.passes);
        }
    }
}
