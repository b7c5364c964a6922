//! How likely is a value this large, and which value is exceeded this rarely? The normal, Student's t and chi-square distributions.
//!
//! Student's distribution is an incomplete beta function, computed as a continued fraction by Lentz's method (Press et al.,
//! "Numerical Recipes", 3rd ed., section 6.4; relative error about 1e-14). Newton's method finds its quantile. The non-central t
//! is the mean of the normal distribution over the chi distribution, integrated by Simpson's rule. The non-central t serves
//! powers and effect sizes, where four digits are enough.
//!
//! Left out: F, because every question here is a contrast of one degree of freedom.

use libm::{erfc, exp, fabs, lgamma, log, sqrt};
use std::f64::consts::FRAC_1_SQRT_2;

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

/// The density of Student's t with `df` degrees of freedom.
fn student_density(t: f64, df: f64) -> f64 {
    let constant = lgamma(0.5 * (df + 1.0)) - lgamma(0.5 * df) - 0.5 * log(df * std::f64::consts::PI);
    exp(constant - 0.5 * (df + 1.0) * libm::log1p(t * t / df))
}

/// The t that |T| exceeds with probability `alpha` at `df` degrees of freedom.
///
/// # Panics
/// `alpha` is not in 0 < `alpha` <= 1.
pub fn student_quantile(alpha: f64, df: f64) -> f64 {
    assert!(alpha > 0.0 && alpha <= 1.0, "{alpha} is not a probability above 0");
    /// A dozen steps are usual; `df` = 1 and `alpha` = 1e-300 need a thousand.
    const STEPS_MOST: usize = 2_000;
    // Student's tails are heavier than the normal distribution's, so Student's quantile lies above the normal one. For t > 0
    // `student_p` falls and is convex, so Newton's steps from below do not pass the quantile.
    let mut t = -normal_quantile(0.5 * alpha);
    for _ in 0..STEPS_MOST {
        let step = (student_p(t, df) - alpha) / (2.0 * student_density(t, df));
        t += step;
        // The error of `student_p` itself: smaller steps are noise.
        if fabs(step) <= 1e-13 * fabs(t) {
            break;
        }
    }
    t
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

/// The quantile of the standard normal distribution (Acklam's rational approximation, relative error < 1.2e-9).
pub fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969683028665376e1,
        2.209460984245205e2,
        -2.759285104469687e2,
        1.38357751867269e2,
        -3.066479806614716e1,
        2.506628277459239,
    ];
    const B: [f64; 5] = [
        -5.447609879822406e1,
        1.615858368580409e2,
        -1.556989798598866e2,
        6.680131188771972e1,
        -1.328068155288572e1,
    ];
    const C: [f64; 6] = [
        -7.784894002430293e-3,
        -3.223964580411365e-1,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const D: [f64; 4] = [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416];
    let tail = |q: f64| {
        (((((C[0] * q + C[1]) * q + C[2]) * q + C[3]) * q + C[4]) * q + C[5])
            / ((((D[0] * q + D[1]) * q + D[2]) * q + D[3]) * q + 1.0)
    };
    if p <= 0.0 {
        f64::NEG_INFINITY
    } else if p >= 1.0 {
        f64::INFINITY
    } else if p < 0.02425 {
        tail(libm::sqrt(-2.0 * libm::log(p)))
    } else if p > 1.0 - 0.02425 {
        -tail(libm::sqrt(-2.0 * libm::log(1.0 - p)))
    } else {
        let q = p - 0.5;
        let r = q * q;
        (((((A[0] * r + A[1]) * r + A[2]) * r + A[3]) * r + A[4]) * r + A[5]) * q
            / (((((B[0] * r + B[1]) * r + B[2]) * r + B[3]) * r + B[4]) * r + 1.0)
    }
}

/// The quantile of the chi-square distribution, by halving where its distribution function is `p`.
pub(super) fn chi_square_quantile(p: f64, df: f64) -> f64 {
    let (mut low, mut high) = (0.0, df + 20.0 * libm::sqrt(2.0 * df));
    // As narrow as doubles are.
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        *(if lower_gamma(0.5 * df, 0.5 * middle) < p { &mut low } else { &mut high }) = middle;
    }
    0.5 * (low + high)
}

/// The regularised lower incomplete gamma function, by its series (Abramowitz and Stegun, 6.5.29).
fn lower_gamma(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
    while term > sum * 1e-16 {
        n += 1.0;
        term *= x / n;
        sum += term;
    }
    sum * libm::exp(a * libm::log(x) - x - libm::lgamma(a))
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
                assert!((a / b - 1.0).abs() < 1e-9, "df {df} alpha {alpha}: {a} against {b}");
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

    #[test]
    fn student_quantiles_match_the_tables() {
        // Two-sided, from Abramowitz & Stegun table 26.10.
        for (alpha, df, t) in [
            (0.05, 1.0, 12.706),
            (0.05, 2.0, 4.303),
            (0.05, 4.0, 2.776),
            (0.05, 10.0, 2.228),
            (0.01, 8.0, 3.355),
            (0.002, 20.0, 3.552),
            (0.1, 30.0, 1.697),
            (0.05, 1000.0, 1.962),
        ] {
            let got = student_quantile(alpha, df);
            assert!((got - t).abs() < 0.002 * t, "alpha {alpha} df {df}: {got} against {t}");
        }
    }

    #[test]
    fn normal_quantiles_are_the_tables() {
        for (p, z) in [(0.975, 1.959964), (0.5, 0.0), (0.001, -3.090232), (0.999, 3.090232)] {
            assert!((normal_quantile(p) - z).abs() < 1e-5);
        }
    }

    #[test]
    fn chi_square_quantiles_match_the_tables() {
        // Abramowitz & Stegun table 26.8.
        for (p, df, x) in [
            (0.025, 1.0, 0.000_982_1),
            (0.975, 1.0, 5.0239),
            (0.025, 4.0, 0.484_419),
            (0.975, 4.0, 11.1433),
            (0.025, 9.0, 2.70039),
            (0.975, 9.0, 19.0228),
            (0.975, 100.0, 129.561),
        ] {
            let got = chi_square_quantile(p, df);
            assert!((got / x - 1.0).abs() < 1e-4, "{p} {df}: {got} against {x}");
        }
    }
}
