//! The slow way to the weights of `solve`, which needs no luck: three searches, one within the other.
//!
//! With the multiplier µ of Σ A v <= 1 alone (an equality at the best: v may always be scaled up), the dual
//!
//! ```text
//! D(µ) = -µ + min over s of  q(s),   q(s) = min over v of  Σ b / v + µ A v,   Σ v = s,  max(1 / (λ S), φ s) <= v <= κ s
//! ```
//!
//! is concave in µ, and q is convex in s, as the least of what is convex in v and s together. So
//!
//! - D' = Σ A v - 1 falls with µ, from µ = (Σ sqrt(b A))², which is the least that µ can be;
//! - q' = -θ + Σ α φ - Σ β κ grows with s, from the least s at which levels are below caps and floors leave room;
//! - Σ v falls with the multiplier θ of Σ v = s;
//!
//! and each is zero at one place, or between two doubles. θ and q' may be anything below 0; µ may not. (An earlier version searched for s
//! outermost: then not every s allows Σ A v = 1 at all, µ may have to be below 0, and where s is allowed no more its θ says nothing of which
//! side the best s is on.)
//!
//! Where nobody is between their bounds, θ is not one number, and v jumps from one double θ to the next: what is between is filled by a
//! mixture of the two, which is right as only VMs of the same load move.

use super::{At, One, larger, newton, weights};

/// Halvings of an interval: a double has no more, whatever its exponent.
const HALVINGS: u32 = 100;
/// Widenings by 4 of an interval, to 1e36 times.
const WIDENINGS: u32 = 60;
/// A double's last digits.
const LAST: f64 = 4.0 * f64::EPSILON;

/// So near Newton's method arrives, nearly always: the searches first stop there.
const NEAR: f64 = 1e-6;

/// Where a growing function becomes more than 0, above `low` (where it is not) and near `from`: two places around it, no further apart than
/// `exact`, as a part. `None` where it never does.
fn zero(low: f64, from: f64, exact: f64, mut above: impl FnMut(f64) -> bool) -> Option<(f64, f64)> {
    let (mut low, mut high) = (low, from);
    let mut widened = 0;
    while !above(high) {
        (low, high, widened) = (high, high * 4.0, widened + 1);
        if widened > WIDENINGS {
            return None;
        }
    }
    // Downwards too, for a start far above.
    while widened == 0 && high > 4.0 * low && high > from * 1e-36 {
        if above(high * 0.25) { high *= 0.25 } else { low = high * 0.25 }
    }
    for _ in 0..HALVINGS {
        if high - low <= exact * high {
            break;
        }
        let between = 0.5 * (low + high);
        if above(between) { high = between } else { low = between }
    }
    Some((low, high))
}

/// v for one µ and s, and its θ.
struct Filled {
    v: Vec<f64>,
    theta: f64,
}

/// Σ v = s, between the bounds that s gives. The sum at its lowest is s at most, at its largest s at least.
fn fill(all: &[One], mu: f64, s: f64, passes: &mut u32) -> Filled {
    let sum = |theta: f64| {
        let (mut sum, mut slope) = (0.0, 0.0);
        for one in all {
            let (v, price) = (one.v(At { mu, theta, s }), mu * one.load + theta);
            sum += v;
            if v > larger(one.floor * s, one.least) && v < one.cap * s {
                slope -= 0.5 * v / price;
            }
        }
        (sum, slope)
    };
    let most = all.iter().map(|one| mu * one.load).fold(0.0, f64::max);
    // Everybody at their cap; and nobody above s / n, but by their bounds.
    let (mut low, mut high) = (-most, all.iter().map(|one| one.gap).fold(0.0, f64::max));
    high *= (all.len() as f64 / s) * (all.len() as f64 / s);
    for _ in 0..WIDENINGS {
        if sum(high).0 <= s {
            break;
        }
        (low, high) = (high, 4.0 * high);
    }
    let mut theta = if low < 0.0 && high > 0.0 { 0.0 } else { 0.5 * (low + high) };
    for step in 0..4 * HALVINGS {
        *passes += 1;
        let (is, slope) = sum(theta);
        if (is - s).abs() <= f64::EPSILON * s {
            (low, high) = (theta, theta);
            break;
        }
        if is > s {
            low = theta
        } else {
            high = theta
        }
        if high - low <= LAST * larger(high.abs(), low.abs()) {
            break;
        }
        let newton = theta - (is - s) / slope;
        // Every third time the middle, for Newton's step may creep.
        theta = if newton > low && newton < high && step % 3 != 2 { newton } else { 0.5 * (low + high) };
    }
    let at = |theta: f64| all.iter().map(|one| one.v(At { mu, theta, s })).collect::<Vec<f64>>();
    let (mut v, less) = (at(low), at(high));
    let (more, fewer): (f64, f64) = (v.iter().sum(), less.iter().sum());
    if more > fewer {
        let part = ((s - fewer) / (more - fewer)).clamp(0.0, 1.0);
        v.iter_mut().zip(&less).for_each(|(v, less)| *v = less + part * (*v - less));
    }
    *passes += 2;
    Filled { v, theta: 0.5 * (low + high) }
}

/// q': what one more of s costs.
fn slope(all: &[One], mu: f64, s: f64, filled: &Filled) -> f64 {
    let mut sum = -filled.theta;
    for (one, v) in all.iter().zip(&filled.v) {
        let cost = mu * one.load + filled.theta - one.gap / (v * v);
        if *v <= one.floor * s && cost > 0.0 {
            sum += one.floor * cost;
        } else if *v >= one.cap * s && cost < 0.0 {
            sum += one.cap * cost;
        }
    }
    sum
}

/// v at the best weights, if there are any that hold the levels.
pub fn v(all: &[One], passes: &mut u32) -> Vec<f64> {
    let (at, v) = search(all, NEAR, passes);
    polished(all, at, &v, 1e-2, passes).unwrap_or_else(|| {
        let (at, v) = search(all, LAST, passes);
        polished(all, at, &v, 1e-6, passes).unwrap_or(v)
    })
}

/// The last digits by Newton's method; `None` where it goes elsewhere than `near`, or nowhere.
fn polished(all: &[One], at: At, near: &[f64], within: f64, passes: &mut u32) -> Option<Vec<f64>> {
    let at = newton::solve(all, at, passes)?;
    let v: Vec<f64> = all.iter().map(|one| one.v(at)).collect();
    let (ours, theirs) = (weights(v.clone()), weights(near.to_vec()));
    ours.iter().zip(&theirs).all(|(a, b)| (a - b).abs() <= within * b).then_some(v)
}

/// The three searches.
pub(super) fn search(all: &[One], exact: f64, passes: &mut u32) -> (At, Vec<f64>) {
    let (mut roots, mut sum) = (0.0, 0.0);
    for one in all {
        let v = libm::sqrt(one.gap / one.load);
        (roots, sum) = (roots + one.load * v, sum + v);
    }
    let least_s = least_s(all);
    let mut s = larger(sum / roots, least_s);
    let mut of = |mu: f64| {
        let grows = |s: f64| {
            let filled = fill(all, mu, s, passes);
            slope(all, mu, s, &filled) > 0.0
        };
        // Near the last one's.
        s = zero(least_s, s, exact, grows).map_or(s, |(_, high)| high);
        (fill(all, mu, s, passes), s)
    };
    let plane = |v: &[f64]| all.iter().zip(v).map(|(one, v)| one.load * v).sum::<f64>();
    let least = roots * roots * (1.0 - LAST);
    let found = zero(least, least * (1.0 + 2.0 * LAST), exact, |mu| plane(&of(mu).0.v) <= 1.0);
    // Never: levels fill the plane, and a larger µ changes nothing.
    let mu = found.map_or(least * 1e30, |(_, high)| high);
    let (filled, s) = of(mu);
    (At { mu, theta: filled.theta, s }, filled.v)
}

/// The smallest s at which every level is below its cap and the sum of the floors fits; infinite if no s is enough.
fn least_s(all: &[One]) -> f64 {
    let capped = all.iter().map(|one| one.least / one.cap).fold(0.0, f64::max);
    let room =
        |s: f64| all.iter().map(|one| larger(one.least, one.floor * s)).sum::<f64>() <= s * (1.0 + 1e-14);
    if capped == 0.0 || room(capped) {
        return capped;
    }
    zero(capped, capped * (1.0 + LAST), LAST, room).map_or(f64::INFINITY, |(_, high)| high)
}

/// Σ A v at its least, with every level and bound held; infinite where they cannot all be held whatever there is.
pub fn least_need(all: &[One]) -> f64 {
    let levels: f64 = all.iter().map(|one| one.load * one.least).sum();
    if levels == 0.0 {
        return 0.0;
    }
    let from = least_s(all);
    if from.is_infinite() {
        return from;
    }
    let mut cheapest: Vec<&One> = all.iter().collect();
    cheapest.sort_by(|a, b| a.load.total_cmp(&b.load));
    // What is cheapest is taken first, up to its cap: Σ A v for an s, and what one more of s costs.
    let need = |s: f64| {
        let low = |one: &One| larger(one.least, one.floor * s);
        let mut left = s - all.iter().map(low).sum::<f64>();
        let (mut sum, mut slope, mut parts, mut last) = (0.0, 0.0, 0.0, cheapest[0].load);
        for one in &cheapest {
            let more = (one.cap * s - low(one)).min(left).max(0.0);
            let full = left > 0.0 && more < left;
            let part = if full {
                one.cap
            } else if one.floor * s >= one.least {
                one.floor
            } else {
                0.0
            };
            if left > 0.0 {
                last = one.load;
            }
            left -= more;
            sum += one.load * (low(one) + more);
            (slope, parts) = (slope + one.load * part, parts + part);
        }
        // The last that was taken takes what is more.
        (sum, slope + last * (1.0 - parts))
    };
    let best = zero(from, from, LAST, |s| need(s).1 > 0.0);
    best.map_or(need(from).0, |(low, high)| need(low).0.min(need(high).0))
}
