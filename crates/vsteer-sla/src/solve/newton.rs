//! Newton's method for the three equations of `solve`: some ten passes, each a division and a root per VM.
//!
//! The equations are smooth but where a VM reaches a bound, where a step goes by the side that it is on (semismooth
//! Newton, L. Qi and J. Sun, Mathematical Programming 58, 1993). Steps are shortened where they lead away; there is
//! no proof that they always arrive, so the caller checks.

use super::{At, One, larger, smaller};

/// Agreement of the three equations, as parts of what they add up.
const EXACT: f64 = 1e-13;
/// Steps; it takes 5 to 15.
const STEPS: u32 = 60;
/// After this many steps the method cycles between corners. Then steps of several shorter lengths are tried.
const CAREFUL: u32 = 12;
const LENGTHS: [f64; 4] = [0.5, 1.0, 0.25, 0.7];

/// The three equations at a point: what is missing of each, and how each changes with µ, θ and s.
#[derive(Debug, Clone, Copy, Default)]
struct Missing {
    of: [f64; 3],
    by: [[f64; 3]; 3],
    /// What the third adds up.
    scale: f64,
}

/// Sums over VMs, in a row so that they stay in registers.
#[derive(Default)]
struct Sums {
    load: f64,
    v: f64,
    slopes: [f64; 3],
    bound_load: f64,
    bound: f64,
    cost: f64,
    marginal: f64,
}

/// Written without branches on where a VM is: those are guessed wrong for every third VM, which costs more than the
/// sums.
fn missing(all: &[One], at: At) -> Missing {
    let mut sum = Sums::default();
    let by_square = 1.0 / (at.s * at.s);
    for one in all {
        let price = at.mu * one.load + at.theta;
        let inverse = 1.0 / price;
        let root = (one.gap * inverse).sqrt();
        // Where the price is 0 or less as much as there is.
        let free = if price > 0.0 { root } else { f64::INFINITY };
        let (floor, cap) = (one.floor * at.s, one.cap * at.s);
        let low = larger(floor, one.least);
        let v = larger(smaller(free, cap), low);
        let is_free = v == free;
        let is_floor = !is_free & (v == floor);
        let is_cap = !is_free & !is_floor & (v == cap);
        let part = if is_floor {
            one.floor
        } else if is_cap {
            one.cap
        } else {
            0.0
        };
        let marginal = if is_floor {
            one.at_floor
        } else if is_cap {
            one.at_cap
        } else {
            0.0
        } * by_square;
        let slope = if is_free { -0.5 * v * inverse } else { 0.0 };
        let by_load = one.load * slope;
        sum.load += one.load * v;
        sum.v += v;
        sum.slopes[0] += one.load * by_load;
        sum.slopes[1] += by_load;
        sum.slopes[2] += slope;
        sum.bound_load += one.load * part;
        sum.bound += part;
        sum.cost += part * (price - marginal);
        sum.marginal += part * marginal;
    }
    let [by_mu, both, by_theta] = sum.slopes;
    Missing {
        of: [sum.load - 1.0, sum.v - at.s, at.theta - sum.cost],
        by: [
            [by_mu, both, sum.bound_load],
            [both, by_theta, sum.bound - 1.0],
            [-sum.bound_load, 1.0 - sum.bound, -2.0 * sum.marginal / at.s],
        ],
        scale: at.theta.abs() + sum.cost.abs() + sum.marginal,
    }
}

impl Missing {
    /// The largest, as a part of what is added up.
    fn worst(&self, at: At, loads: f64) -> f64 {
        let third = self.of[2].abs() / self.scale.max(at.mu * loads);
        (self.of[0].abs()).max(self.of[1].abs() / at.s).max(third)
    }

    /// With so much more of slope everywhere, in the direction that each has (the first two fall with µ and θ, the
    /// third with s): what is 0 stays where it is, steps are shorter, and equations that say the same do no more.
    fn damped(mut self, at: At, load: f64, by: f64) -> Missing {
        let price = at.mu * load;
        self.by[0][0] -= by / at.mu;
        self.by[1][1] -= by * at.s / price;
        self.by[2][2] -= by * price / at.s;
        self
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

/// From the weights that would be best without bounds; `None` where it does not get there.
pub fn from_the_free(all: &[One], passes: &mut u32) -> Option<At> {
    let (mut filled, mut sum) = (0.0, 0.0);
    for one in all {
        let v = libm::sqrt(one.gap / one.load);
        (filled, sum) = (filled + one.load * v, sum + v);
    }
    *passes += 1;
    solve(all, At { mu: filled * filled, theta: 0.0, s: sum / filled }, passes)
}

/// From `at`.
pub fn solve(all: &[One], mut at: At, passes: &mut u32) -> Option<At> {
    let loads: f64 = all.iter().map(|one| one.load).sum();
    let mut now = missing(all, at);
    *passes += 2;
    for step in 0..STEPS {
        let worst = now.worst(at, loads);
        if worst <= EXACT {
            return Some(at);
        }
        let careful = step >= CAREFUL;
        let damped = || now.damped(at, loads / all.len() as f64, (0.1 * worst).clamp(1e-12, 0.1)).step();
        let [mu, theta, s] = if careful { damped() } else { now.step().or_else(damped) }?;
        let mut part = if careful { LENGTHS[step as usize % LENGTHS.len()] } else { 1.0 };
        let (next, then) = loop {
            let next = At {
                mu: (at.mu + part * mu).max(at.mu * 0.1),
                theta: at.theta + part * theta,
                s: (at.s + part * s).max(at.s * 0.1),
            };
            let then = missing(all, next);
            *passes += 1;
            // Across a corner of the equations a step may lead away for once.
            if then.worst(next, loads) < 2.0 * worst || part < 0.05 {
                break (next, then);
            }
            part *= 0.5;
        };
        (at, now) = (next, then);
    }
    // As exact as doubles are, though not as exact as asked.
    (now.worst(at, loads) <= 100.0 * EXACT).then_some(at)
}
