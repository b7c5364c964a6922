//! How certain is a difference between two stretches of autocorrelated samples?
//!
//! Method of batch means: consecutive samples are averaged in blocks long enough that block means are nearly
//! independent, and the blocks of the two stretches are compared by a t test for unequal variances. Its degrees of
//! freedom are the fewest that Welch's can be, those of the stretch with fewer blocks: Welch's own are estimated
//! from variances that a handful of blocks do not tell. Sources: Law, "Simulation Modeling and Analysis", ch. 9
//! (batch means); Welch, Biometrika 34 (1947). Intervals of a part and of a deviation are here, too ([`wilson`],
//! [`deviation_factors`]). Quantiles are in [`distribution`]. Left out: non-stationary series, for which no block
//! length is right.

pub mod distribution;

use self::distribution::chi_square_quantile;
pub use self::distribution::{normal_quantile, student_quantile};
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
    variance(x).map(|v| student_quantile(0.05, n - 1.0) * libm::sqrt(v / n))
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
/// … or this many samples. The correlation of a host's load has a tail that the lags of a short window do not show:
/// on 14 minutes of unchanged VMs (8 busy vCPUs on 2 pCPUs, 5 samples a second) neighbouring windows of 20 s,
/// compared by blocks as long as their own autocorrelation asks for (0.8 s mostly), differed in 16 % of the cases
/// where 5 % were claimed. With blocks of a sixth and the fewest degrees of freedom it is 2 to 3 % (two such
/// recordings, every offset).
const BLOCK_FLOOR_MAX: usize = 100;

/// Block length for batch means: twice the integrated autocorrelation time (summed up to the first lag whose
/// correlation is below its own noise), but at least [`BLOCKS_MIN`] blocks remain.
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

/// The 95 % interval of a part that was seen in `of` of `n` trials: Wilson's, which keeps its promise where few
/// were tried and where all or none was seen (Brown, Cai, DasGupta, Statistical Science 16(2), 2001).
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

/// What a sample's standard deviation is to be multiplied by for its 95 % interval, where values are normal: by the
/// chi-square distribution of `n` - 1 degrees of freedom. `None` with fewer than two values.
pub fn deviation_factors(n: usize) -> Option<[f64; 2]> {
    let df = n.checked_sub(2)? as f64 + 1.0;
    Some([0.975, 0.025].map(|p| libm::sqrt(df / chi_square_quantile(p, df))))
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
        student_quantile(alpha, self.df) * self.standard_error
    }

    /// The smallest difference that a test at `alpha` finds with probability `power`, if a difference up to `least` does not
    /// count.
    pub fn smallest_visible(&self, alpha: f64, power: f64, least: f64) -> f64 {
        let t_power = student_quantile(2.0 * (1.0 - power), self.df);
        self.half_width(alpha).max(least) + t_power * self.standard_error
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
    fn a_deviation_has_its_interval() {
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
            let planted = 2.0 * c.smallest_visible(0.05, 0.8, 0.0);
            let moved: Vec<f64> = b.iter().map(|v| v + planted).collect();
            let c = compare(&a, &moved).unwrap();
            found += usize::from(c.difference().abs() > c.half_width(0.05));
        }
        assert!(alarms <= 22, "{alarms} false alarms of 200 at level 0.05");
        assert!(found >= 198, "{found} of 200 found");
    }
}
