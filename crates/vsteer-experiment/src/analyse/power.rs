//! Which difference could the experiment have found? "No difference" means little without the smallest visible
//! difference.
//!
//! The power of a t test is a probability of the non-central t; for Welch's its degrees of freedom are taken as
//! they are for the true deviations, which is within 0.5 points for five runs and more. Source: J. Cohen,
//! "Statistical Power Analysis for the Behavioral Sciences", 2nd ed., 1988, ch. 2. Left out: power of rank tests
//! (at least 0.864 of t's runs, at most 5 % more for normal values).

use super::distribution::{noncentral_cdf, student_cdf, student_quantile};

/// With which probability does a two-sided t test at `alpha` find a true difference of `difference`?
pub fn of_t(difference: f64, standard_error: f64, df: f64, alpha: f64) -> f64 {
    let (t, delta) = (student_quantile(alpha, df), difference / standard_error);
    1.0 - noncentral_cdf(t, df, delta) + noncentral_cdf(-t, df, delta)
}

/// The smallest true difference that the test finds with probability `power`, in the standard error's unit.
pub fn smallest_visible(standard_error: f64, df: f64, alpha: f64, power: f64) -> f64 {
    let (mut low, mut high) = (0.0, 4.0 + 4.0 * student_quantile(alpha, df));
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if of_t(middle, 1.0, df, alpha) < power { low = middle } else { high = middle }
    }
    0.5 * (low + high) * standard_error
}

/// With which probability is a true difference found by a test whose number of runs was chosen, after a first stage
/// with `df` degrees of freedom, so that its interval is no wider than `margin` to either side? At least this: with
/// more runs than asked for it is more.
///
/// The statistic is then t of `df` around t_alpha * difference / margin, whatever the deviation (C. Stein, Ann.
/// Math. Stat. 16, 1945).
pub fn of_two_stages(difference: f64, margin: f64, df: f64, alpha: f64) -> f64 {
    let t = student_quantile(alpha, df);
    let shift = t * difference.abs() / margin;
    1.0 - student_cdf(t - shift, df) + student_cdf(-t - shift, df)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_go_where_they_must() {
        assert!((of_t(0.0, 1.0, 12.0, 0.05) - 0.05).abs() < 1e-5);
        // R: power.t.test(n = 20, delta = 1, sd = 1): power = 0.8689528.
        let se = libm::sqrt(2.0 / 20.0);
        assert!((of_t(1.0, se, 38.0, 0.05) - 0.868_952_8).abs() < 1e-4);
        // R: power.t.test(power = .80, n = 16, sd = 1): delta = 1.024.
        let d = smallest_visible(libm::sqrt(2.0 / 16.0), 30.0, 0.05, 0.80);
        assert!((d - 1.024).abs() < 2e-3, "{d}");
        assert!((of_two_stages(0.0, 1.0, 7.0, 0.05) - 0.05).abs() < 1e-9);
        // Seen with probability one half where it is as large as the margin (and rarely with the wrong sign).
        assert!((of_two_stages(1.0, 1.0, 7.0, 0.05) - 0.5).abs() < 3e-3);
    }
}
