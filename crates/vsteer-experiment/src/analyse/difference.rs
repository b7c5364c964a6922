//! Do two settings differ, by how much in units, in per cent and in deviations, when each was run by itself?
//!
//! Welch's test: neither equal deviations nor equal numbers are assumed. Per cent is a ratio of means, whose interval is Fieller's; Hedges' g is the
//! difference in pooled deviations, corrected for few runs, with the interval that turns the non-central t around.
//!
//! Sources: B. Welch, Biometrika 34, 1947; E. Fieller, "Some problems in interval estimation", J. R. Stat. Soc. B 16, 1954; L. Hedges,
//! "Distribution theory for Glass's estimator of effect size", J. Educ. Stat. 6, 1981. Left out: runs in pairs or blocks ([`super::blocks`]).

use super::distribution::{noncentral_cdf, student_p, student_quantile};
use super::mean::Summary;
use libm::{exp, lgamma, sqrt};
use serde::{Deserialize, Serialize};
use vsteer_core::Interval;

/// b against a.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// What it is measured against.
    pub a: Summary,
    /// The other.
    pub b: Summary,
    /// Standard error of the difference.
    pub standard_error: f64,
    /// Welch's and Satterthwaite's degrees of freedom.
    pub df: f64,
}

/// Compares; `None` with fewer than two runs of either, or where neither varies at all.
pub fn welch(a: Summary, b: Summary) -> Option<Difference> {
    if a.n < 2 || b.n < 2 {
        return None;
    }
    let (va, vb) = (a.sd * a.sd / a.n as f64, b.sd * b.sd / b.n as f64);
    let both = va + vb;
    let df = both * both / (va * va / (a.n as f64 - 1.0) + vb * vb / (b.n as f64 - 1.0));
    (both > 0.0).then(|| Difference { a, b, standard_error: sqrt(both), df })
}

impl Difference {
    /// b - a.
    pub fn value(&self) -> f64 {
        self.b.mean - self.a.mean
    }

    /// How likely so large a difference is where there is none.
    pub fn p(&self) -> f64 {
        student_p(self.value() / self.standard_error, self.df)
    }

    /// The difference with its interval at level 1 - `alpha`.
    pub fn interval(&self, alpha: f64) -> Interval {
        let half = student_quantile(alpha, self.df) * self.standard_error;
        Interval { low: self.value() - half, likely: self.value(), high: self.value() + half }
    }

    /// (b - a) in per cent of a, by Fieller; `None` where a's mean may as well be 0.
    pub fn percent(&self, alpha: f64) -> Option<Interval> {
        let square = |x: f64| x * x;
        let (va, vb) = (square(self.a.standard_error()), square(self.b.standard_error()));
        fieller(self.a.mean, self.b.mean, [va, 0.0, vb], student_quantile(alpha, self.df))
    }

    /// Hedges' g with its interval.
    pub fn hedges_g(&self, alpha: f64) -> Interval {
        let (na, nb) = (self.a.n as f64, self.b.n as f64);
        let df = na + nb - 2.0;
        let pooled = sqrt(((na - 1.0) * self.a.sd * self.a.sd + (nb - 1.0) * self.b.sd * self.b.sd) / df);
        let scale = sqrt(1.0 / na + 1.0 / nb);
        let t = self.value() / (pooled * scale);
        let corrected = exp(lgamma(df / 2.0) - lgamma((df - 1.0) / 2.0)) / sqrt(df / 2.0) * scale;
        let find = |p: f64| {
            let (mut low, mut high) = (t - 12.0 - t.abs(), t + 12.0 + t.abs());
            for _ in 0..50 {
                let middle = 0.5 * (low + high);
                // The larger the true effect, the less likely so small a t.
                if noncentral_cdf(t, df, middle) > p { low = middle } else { high = middle }
            }
            0.5 * (low + high)
        };
        Interval {
            low: corrected * find(1.0 - alpha / 2.0),
            likely: corrected * t,
            high: corrected * find(alpha / 2.0),
        }
    }
}

/// (b / a - 1) in per cent with its interval; `v` are the variances of the means and their covariance: of a, of both, of b.
pub fn fieller(a: f64, b: f64, v: [f64; 3], t: f64) -> Option<Interval> {
    let [va, vab, vb] = v;
    let ratio = b / a;
    let g = t * t * va / (a * a);
    // Written so that a variance of 0 divides nothing.
    let inside = (vb - 2.0 * ratio * vab + ratio * ratio * va) - t * t / (a * a) * (va * vb - vab * vab);
    if !(ratio.is_finite() && g < 1.0 && inside >= 0.0) {
        return None;
    }
    let middle = ratio - t * t * vab / (a * a);
    let half = t / a.abs() * sqrt(inside);
    let percent = |r: f64| 100.0 * (r - 1.0);
    Some(Interval {
        low: percent((middle - half) / (1.0 - g)),
        likely: percent(ratio),
        high: percent((middle + half) / (1.0 - g)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP_1: [f64; 10] = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
    const GROUP_2: [f64; 10] = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];

    #[test]
    fn welch_is_rs() {
        // R: t.test(extra ~ group, data = sleep): t = -1.8608, df = 17.776, p-value = 0.07939, -3.3654832 to 0.2054832.
        let d = welch(Summary::of(&GROUP_1).unwrap(), Summary::of(&GROUP_2).unwrap()).unwrap();
        assert!((d.df - 17.776).abs() < 5e-4 && (d.p() - 0.07939).abs() < 5e-6, "{d:?} {}", d.p());
        let i = d.interval(0.05);
        assert!((i.low + 0.205_483_2).abs() < 1e-6 && (i.high - 3.365_483_2).abs() < 1e-6, "{i:?}");
        // Cohen's d of them is 0.832, and the correction for 18 degrees of freedom 0.958.
        let g = d.hedges_g(0.05);
        assert!((g.likely - 0.797).abs() < 1e-3 && g.low < 0.0 && g.high > 1.5, "{g:?}");
    }

    #[test]
    fn per_cent_is_of_the_first() {
        let a = Summary { n: 16, mean: 68.0, sd: 0.342 };
        let d = welch(a, Summary { n: 16, mean: 78.6, sd: 0.183 }).unwrap();
        let p = d.percent(0.05).unwrap();
        assert!((p.likely - 15.588).abs() < 1e-3 && p.low > 15.2 && p.high < 16.0, "{p:?}");
        assert!(welch(Summary { n: 5, mean: 0.1, sd: 5.0 }, a).unwrap().percent(0.05).is_none());
        assert!(welch(Summary { n: 5, mean: 1.0, sd: 0.0 }, Summary { n: 5, mean: 1.0, sd: 0.0 }).is_none());
    }
}
