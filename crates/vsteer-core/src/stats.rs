//! How sure can one be of a difference between two stretches of autocorrelated samples?
//!
//! Method of batch means: consecutive samples are averaged in blocks long enough that block means are nearly
//! independent, and the blocks of the two stretches are compared by a t test for unequal variances. Its degrees of freedom
//! are the fewest that Welch's can be, those of the stretch with fewer blocks: Welch's own are estimated from variances
//! that a handful of blocks do not tell. Sources: Law, "Simulation Modeling and Analysis", ch. 9 (batch means); Welch,
//! Biometrika 34 (1947); Student quantiles by Hill's algorithm 396, CACM 13(10), 1970. Intervals of a part and of a deviation are here, too ([`wilson`],
//! [`deviation_factors`]). Left out: non-stationary series,
//! which no block length mends.

use serde::{Deserialize, Serialize};

/// Mean of a slice; `None` when empty.
pub fn mean(x: &[f64]) -> Option<f64> {
    (!x.is_empty()).then(|| x.iter().sum::<f64>() / x.len() as f64)
}

/// Sample variance (n - 1); `None` with fewer than two values.
pub fn variance(x: &[f64]) -> Option<f64> {
    let m = mean(x)?;
    (x.len() > 1).then(|| x.iter().map(|v| (v - m) * (v - m)).sum::<f64>() / (x.len() - 1) as f64)
}

/// Half the width of the mean's 95 % interval, by Student's t; `None` with fewer than two values.
pub fn half_width(x: &[f64]) -> Option<f64> {
    let n = x.len() as f64;
    variance(x).map(|v| student_two_sided(0.05, n - 1.0) * libm::sqrt(v / n))
}

/// Quantile of a sample by linear interpolation between order statistics; `None` when empty.
pub fn quantile(x: &[f64], q: f64) -> Option<f64> {
    let at = q.clamp(0.0, 1.0) * x.len().checked_sub(1)? as f64;
    let (low, part) = (libm::floor(at) as usize, at - libm::floor(at));
    // Two of them are wanted, not their order (C. Hoare, "Algorithm 65: Find", CACM 4(7), 1961).
    let mut s = x.to_vec();
    let (_, lower, above) = s.select_nth_unstable_by(low, f64::total_cmp);
    let lower = *lower;
    let upper = above.iter().copied().min_by(f64::total_cmp).unwrap_or(lower);
    Some(lower + part * (upper - lower))
}

/// Autocorrelation at `lag`; 0 for a constant or too short series.
pub fn autocorrelation(x: &[f64], lag: usize) -> f64 {
    let Some(m) = mean(x) else { return 0.0 };
    let whole: f64 = x.iter().map(|v| (v - m) * (v - m)).sum();
    if lag >= x.len() || whole <= 0.0 {
        return 0.0;
    }
    x.iter().zip(&x[lag..]).map(|(a, b)| (a - m) * (b - m)).sum::<f64>() / whole
}

/// Fewest blocks that a comparison is made on: below, Student's t is so wide that nothing is seen.
pub const BLOCKS_MIN: usize = 5;

/// A comparison's blocks are at least this part of the shorter stretch…
const BLOCKS_LIKELY: usize = 6;
/// … or this many samples. The correlation of a host's load has a tail that the lags of a short window do not show: on
/// 14 minutes of unchanged VMs (8 busy vCPUs on 2 pCPUs, 5 samples a second) neighbouring windows of 20 s, compared by
/// blocks as long as their own autocorrelation asks for (0.8 s mostly), differed in 16 % of the cases where 5 % were
/// claimed. With blocks of a sixth and the fewest degrees of freedom it is 2 to 3 % (two such recordings, every offset).
const BLOCK_FLOOR_MAX: usize = 100;

/// Block length for batch means: twice the integrated autocorrelation time (summed up to the first lag whose
/// correlation is below its own noise), but never so long that fewer than [`BLOCKS_MIN`] blocks remain.
pub fn block_length(x: &[f64]) -> usize {
    let noise = 2.0 / libm::sqrt(x.len().max(1) as f64);
    let sum: f64 = (1..x.len() / 2).map(|lag| autocorrelation(x, lag)).take_while(|r| *r > noise).sum();
    let time = 1.0 + 2.0 * sum;
    (libm::ceil(2.0 * time) as usize).clamp(1, (x.len() / BLOCKS_MIN).max(1))
}

/// Means of consecutive blocks of `length`; a rest shorter than a block is left out.
pub fn block_means(x: &[f64], length: usize) -> Vec<f64> {
    x.chunks_exact(length.max(1)).filter_map(mean).collect()
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

/// The two-sided quantile of Student's t: |t| exceeds it with probability `alpha` at `df` degrees of freedom.
pub fn student_two_sided(alpha: f64, df: f64) -> f64 {
    use std::f64::consts::FRAC_PI_2;
    if df <= 1.0 {
        let a = alpha * FRAC_PI_2;
        return libm::cos(a) / libm::sin(a);
    }
    if df <= 2.0 {
        return libm::sqrt(2.0 / (alpha * (2.0 - alpha)) - 2.0);
    }
    let a = 1.0 / (df - 0.5);
    let b = 48.0 / (a * a);
    let mut c = ((20700.0 * a / b - 98.0) * a - 16.0) * a + 96.36;
    let d = ((94.5 / (b + c) - 3.0) / b + 1.0) * libm::sqrt(a * FRAC_PI_2) * df;
    let mut x = d * alpha;
    let mut y = libm::pow(x, 2.0 / df);
    if y > 0.05 + a {
        x = normal_quantile(alpha * 0.5);
        y = x * x;
        if df < 5.0 {
            c += 0.3 * (df - 4.5) * (x + 0.6);
        }
        c += (((0.05 * d * x - 5.0) * x - 7.0) * x - 2.0) * x + b;
        y = (((((0.4 * y + 6.3) * y + 36.0) * y + 94.5) / c - y - 3.0) / b + 1.0) * x;
        y = libm::expm1(a * y * y);
    } else {
        y = ((1.0 / (((df + 6.0) / (df * y) - 0.089 * d - 0.822) * (df + 2.0) * 3.0) + 0.5 / (df + 4.0)) * y
            - 1.0)
            * (df + 1.0)
            / (df + 2.0)
            + 1.0 / y;
    }
    libm::sqrt(df * y)
}

/// The 95 % interval of a part that was seen in `of` of `n` trials: Wilson's, which keeps its promise where few were tried and where all or none was seen (Brown, Cai, DasGupta,
/// Statistical Science 16(2), 2001).
///
/// # Panics
/// Nothing was tried, or more seen than tried.
pub fn wilson(of: usize, n: usize) -> [f64; 2] {
    assert!(n > 0 && of <= n, "{of} of {n}");
    let (n, part) = (n as f64, of as f64 / n as f64);
    let z2 = libm::pow(normal_quantile(0.975), 2.0);
    let middle = (part + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = libm::sqrt(z2 * (part * (1.0 - part) / n + z2 / (4.0 * n * n))) / (1.0 + z2 / n);
    [(middle - half).max(0.0), (middle + half).min(1.0)]
}

/// What a sample's standard deviation is to be multiplied by for its 95 % interval, where values are normal: by the chi-square distribution of `n` - 1 degrees of freedom. `None` with
/// fewer than two values.
pub fn deviation_factors(n: usize) -> Option<[f64; 2]> {
    let df = n.checked_sub(2)? as f64 + 1.0;
    Some([0.975, 0.025].map(|p| libm::sqrt(df / chi_square_quantile(p, df))))
}

/// The quantile of the chi-square distribution, by halving where its distribution function is `p`.
fn chi_square_quantile(p: f64, df: f64) -> f64 {
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

/// A comparison of two means.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Mean before.
    pub before: f64,
    /// Mean after.
    pub after: f64,
    /// Standard error of their difference.
    pub standard_error: f64,
    /// Degrees of freedom: one less than the fewer blocks.
    pub df: f64,
    /// Samples per block.
    pub block: usize,
    /// Blocks before and after.
    pub blocks: (usize, usize),
}

impl Comparison {
    /// after - before.
    pub fn difference(&self) -> f64 {
        self.after - self.before
    }

    /// Half the width of the two-sided confidence interval at level 1 - `alpha`.
    pub fn half_width(&self, alpha: f64) -> f64 {
        student_two_sided(alpha, self.df) * self.standard_error
    }

    /// The smallest difference that a test at `alpha` finds with probability `power`.
    pub fn smallest_visible(&self, alpha: f64, power: f64) -> f64 {
        let t_power = student_two_sided(2.0 * (1.0 - power), self.df);
        (student_two_sided(alpha, self.df) + t_power) * self.standard_error
    }
}

/// Compares two autocorrelated series; `None` when either has fewer than [`BLOCKS_MIN`] samples.
pub fn compare(before: &[f64], after: &[f64]) -> Option<Comparison> {
    let floor = (before.len().min(after.len()) / BLOCKS_LIKELY).min(BLOCK_FLOOR_MAX);
    let block = block_length(before).max(block_length(after)).max(floor);
    let block = block.min(before.len() / BLOCKS_MIN).min(after.len() / BLOCKS_MIN);
    if block == 0 {
        return None;
    }
    let (a, b) = (block_means(before, block), block_means(after, block));
    let (va, vb) = (variance(&a)? / a.len() as f64, variance(&b)? / b.len() as f64);
    Some(Comparison {
        before: mean(before)?,
        after: mean(after)?,
        standard_error: libm::sqrt(va + vb),
        df: (a.len().min(b.len()) - 1) as f64,
        block,
        blocks: (a.len(), b.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student_quantiles_are_the_tables() {
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
            let got = student_two_sided(alpha, df);
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
    fn chi_square_quantiles_are_the_tables_and_a_deviations_interval_is_by_them() {
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
        let [low, high] = deviation_factors(10).unwrap();
        assert!((low - 0.6878).abs() < 1e-3 && (high - 1.8256).abs() < 1e-3, "{low} {high}");
        assert_eq!((deviation_factors(1), deviation_factors(0)), (None, None));
        assert!(deviation_factors(3600).is_some_and(|[low, high]| low > 0.97 && high < 1.03));
    }

    #[test]
    fn a_part_of_few_is_not_known_well_even_where_it_is_all_or_nothing() {
        let near = |[a, b]: [f64; 2], [c, d]: [f64; 2]| (a - c).abs() < 5e-4 && (b - d).abs() < 5e-4;
        // Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
        assert!(near(wilson(81, 263), [0.2553, 0.3662]));
        assert!(near(wilson(15, 148), [0.0624, 0.1605]));
        assert!(near(wilson(0, 20), [0.0, 0.1611]));
        assert!(near(wilson(29, 29), [0.8830, 1.0]));
    }

    /// A seeded autoregressive series, x' = r x + e.
    fn ar(seed: u64, n: usize, r: f64, mean: f64) -> Vec<f64> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut x = 0.0;
        (0..n)
            .map(|_| {
                let mut noise = 0.0;
                for _ in 0..12 {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    noise += (state >> 11) as f64 / (1u64 << 53) as f64;
                }
                x = r * x + noise - 6.0;
                mean + x
            })
            .collect()
    }

    #[test]
    fn blocks_grow_with_correlation() {
        assert!(block_length(&ar(1, 400, 0.0, 0.0)) <= 6);
        assert!(block_length(&ar(1, 400, 0.9, 0.0)) > 12);
    }

    #[test]
    fn false_alarms_stay_near_the_level_and_true_differences_are_found() {
        let (mut alarms, mut found) = (0, 0);
        for seed in 1..=200u64 {
            let (a, b) = (ar(seed, 200, 0.5, 0.0), ar(seed + 10_000, 200, 0.5, 0.0));
            let c = compare(&a, &b).unwrap();
            alarms += usize::from(c.difference().abs() > c.half_width(0.05));
            let planted = 2.0 * c.smallest_visible(0.05, 0.8);
            let moved: Vec<f64> = b.iter().map(|v| v + planted).collect();
            let c = compare(&a, &moved).unwrap();
            found += usize::from(c.difference().abs() > c.half_width(0.05));
        }
        assert!(alarms <= 22, "{alarms} false alarms of 200 at level 0.05");
        assert!(found >= 198, "{found} of 200 found");
    }
}
