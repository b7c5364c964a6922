//! How likely is a value this large? Student's t, central and not, and the normal distribution.
//!
//! Student's distribution is an incomplete beta function, which is a continued fraction (Lentz's method, as in Press et al., "Numerical Recipes",
//! 3rd ed., section 6.4; relative error about 1e-14); its quantile is found on it by bisection from where Hill's approximation
//! ([`stats::student_two_sided`]) puts it. The non-central one is the mean of the normal distribution's over the deviation's (chi) distribution,
//! integrated by Simpson's rule; it serves powers and effect sizes, where four digits are plenty.
//!
//! Left out: F, chi-squared: every question here is a contrast of one degree of freedom.

use libm::{erfc, exp, fabs, lgamma, log, sqrt};
use std::f64::consts::FRAC_1_SQRT_2;
use vsteer_core::stats;

/// P(Z <= z).
pub fn normal_cdf(z: f64) -> f64 {
    0.5 * erfc(-z * FRAC_1_SQRT_2)
}

/// The continued fraction of the incomplete beta function; converges fast where x is below (a + 1) / (a + b + 2).
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const SMALLEST: f64 = 1e-300;
    let floor = |v: f64| if fabs(v) < SMALLEST { SMALLEST } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / floor(1.0 - (a + b) * x / (a + 1.0));
    let mut h = d;
    // A few dozen for the degrees of freedom of experiments; sqrt(max(a, b)) for very many.
    for m in 1..10_000 {
        let m = f64::from(m);
        for numerator in [
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        ] {
            d = 1.0 / floor(1.0 + numerator * d);
            c = floor(1.0 + numerator / c);
            h *= d * c;
        }
        if fabs(d * c - 1.0) < 1e-15 {
            break;
        }
    }
    h
}

/// The regularised incomplete beta function I_x(a, b).
fn beta_regularised(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * libm::log1p(-x));
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(a, b, x) / a
    } else {
        1.0 - front * beta_fraction(b, a, 1.0 - x) / b
    }
}

/// P(|T| >= |t|) for Student's t with `df` degrees of freedom, whole or not.
pub fn student_p(t: f64, df: f64) -> f64 {
    if t.is_infinite() { 0.0 } else { beta_regularised(df / 2.0, 0.5, df / (df + t * t)) }
}

/// P(T <= t).
pub fn student_cdf(t: f64, df: f64) -> f64 {
    let tail = student_p(t, df) / 2.0;
    if t > 0.0 { 1.0 - tail } else { tail }
}

/// The t that |T| exceeds with probability `alpha`.
pub fn student_quantile(alpha: f64, df: f64) -> f64 {
    let guess = stats::student_two_sided(alpha, df);
    let (mut low, mut high) = (0.5 * guess, 2.0 * guess);
    // Each step halves what is left: 60 are all the digits there are.
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if student_p(middle, df) > alpha { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// P(T <= t) for the non-central t with `df` degrees of freedom and non-centrality `delta`: T = (Z + delta) / sqrt(chi2 / df).
pub fn noncentral_cdf(t: f64, df: f64, delta: f64) -> f64 {
    // u = sqrt(chi2 / df) has the density 2 (df/2)^(df/2) / Gamma(df/2) u^(df-1) exp(-df u^2 / 2), around 1 with a deviation of 1/sqrt(2 df).
    let constant = libm::log(2.0) + 0.5 * df * log(0.5 * df) - lgamma(0.5 * df);
    let spread = 1.0 / sqrt(2.0 * df);
    let (from, to) = ((1.0 - 10.0 * spread).max(0.0), 1.0 + 10.0 * spread);
    const PARTS: usize = 400;
    let step = (to - from) / PARTS as f64;
    let at = |i: usize| {
        let u = from + step * i as f64;
        // Below two degrees of freedom the density does not vanish at 0; it is finite from one upwards.
        let density = if u > 0.0 {
            exp(constant + (df - 1.0) * log(u) - 0.5 * df * u * u)
        } else if df > 1.0 {
            0.0
        } else {
            exp(constant)
        };
        density * normal_cdf(t * u - delta)
    };
    let inner: f64 = (1..PARTS).map(|i| if i % 2 == 1 { 4.0 * at(i) } else { 2.0 * at(i) }).sum();
    ((at(0) + inner + at(PARTS)) * step / 3.0).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

    #[test]
    fn student_is_the_librarys() {
        for df in [1.0, 2.0, 3.0, 4.0, 7.3, 15.0, 29.61, 120.0, 5000.0] {
            let theirs = StudentsT::new(0.0, 1.0, df).unwrap();
            for t in [-8.0, -2.5, -0.3, 0.0, 0.7, 1.96, 3.0, 12.0] {
                let (a, b) = (student_cdf(t, df), theirs.cdf(t));
                assert!((a - b).abs() < 1e-11, "df {df} t {t}: {a} against {b}");
            }
            for alpha in [0.05, 0.01, 0.5] {
                let (a, b) = (student_quantile(alpha, df), theirs.inverse_cdf(1.0 - alpha / 2.0));
                assert!((a / b - 1.0).abs() < 1e-6, "df {df} alpha {alpha}: {a} against {b}");
            }
        }
        let normal = Normal::new(0.0, 1.0).unwrap();
        for z in [-5.0, -1.0, 0.0, 2.3] {
            assert!((normal_cdf(z) - normal.cdf(z)).abs() < 1e-10);
        }
    }

    #[test]
    fn noncentral_is_the_tables() {
        // Central: Student's own. Not central: powers of t tests as Cohen (1988, section 2.3) tells them, two-sided, n runs of each.
        for (t, df) in [(1.5, 4.0), (-0.4, 15.0), (2.2, 30.0)] {
            assert!((noncentral_cdf(t, df, 0.0) - student_cdf(t, df)).abs() < 1e-6);
        }
        for (d, n, power) in [(0.5_f64, 64.0_f64, 0.80), (0.8, 26.0, 0.81), (0.5, 20.0, 0.33)] {
            let (df, delta) = (2.0 * n - 2.0, d * sqrt(n / 2.0));
            let t = student_quantile(0.05, df);
            let got = 1.0 - noncentral_cdf(t, df, delta) + noncentral_cdf(-t, df, delta);
            assert!((got - power).abs() < 0.008, "d {d} n {n}: {got} against {power}");
        }
    }
}
