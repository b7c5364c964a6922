//! Computes the mean, the median and the 99th percentile of the durations in a window.
//!
//! The histogram's layout is vsteer-guest's (its README): resolution 1.024 us below 16.384 us, then 16
//! buckets per octave. A quantile is interpolated within its bucket, so its error is at most the bucket's
//! width, 6.25 %. The maximum is the upper edge of the highest bucket that is not empty. The true maximum is
//! between the two edges of that bucket. Left out: other layouts; the version in the report guards that.

use serde::{Deserialize, Serialize};

/// The number of buckets; the last one is open.
pub const BUCKETS: usize = 400;

/// The lower edge of a bucket, ns.
pub fn lower_edge_ns(bucket: usize) -> u64 {
    let units = if bucket < 16 { bucket as u64 } else { (16 + (bucket % 16) as u64) << (bucket / 16 - 1) };
    units << 10
}

/// Durations in the guest's format: runs of `[first bucket, count, count, ...]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Runs {
    pub n: u64,
    /// Their sum, ns.
    pub sum_ns: u64,
    pub runs: Vec<Vec<u64>>,
}

/// Counted durations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    sum_ns: u64,
    counts: Vec<u64>,
}

/// Summary values of durations, ms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// The number of samples.
    pub n: u64,
    /// The exact mean.
    pub mean_ms: f64,
    /// The median, within 6.25 %.
    pub p50_ms: f64,
    /// The 99th percentile, within 6.25 %.
    pub p99_ms: f64,
    /// The upper edge of the highest bucket: at most 6.25 % above the true maximum.
    pub max_ms: f64,
}

impl Histogram {
    /// Converts the guest's runs. `None` if they name a bucket that does not exist, or their sum is not `n`.
    pub fn from_runs(runs: &Runs) -> Option<Histogram> {
        let mut counts = vec![0_u64; BUCKETS];
        for run in &runs.runs {
            let (first, values) = run.split_first()?;
            for (i, value) in values.iter().enumerate() {
                *counts.get_mut(usize::try_from(*first).ok()?.checked_add(i)?)? += value;
            }
        }
        (counts.iter().sum::<u64>() == runs.n).then_some(Histogram { sum_ns: runs.sum_ns, counts })
    }

    /// The increase since `earlier`. `None` if a count fell, because then the two are not from one run of one
    /// guest.
    pub fn since(&self, earlier: &Histogram) -> Option<Histogram> {
        let minus = self.counts.iter().zip(&earlier.counts).map(|(now, then)| now.checked_sub(*then));
        Some(Histogram {
            sum_ns: self.sum_ns.checked_sub(earlier.sum_ns)?,
            counts: minus.collect::<Option<Vec<_>>>()?,
        })
    }

    /// The number of samples.
    pub fn n(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The value below which the share `q` of the samples lies, ns. `None` without samples.
    pub fn quantile_ns(&self, q: f64) -> Option<f64> {
        let n = self.n();
        if n == 0 {
            return None;
        }
        let rank = q.clamp(0.0, 1.0) * n as f64;
        let mut below = 0.0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            if count > 0 && below + count as f64 >= rank {
                let (low, high) = (lower_edge_ns(bucket) as f64, lower_edge_ns(bucket + 1) as f64);
                return Some(low + (high - low) * ((rank - below) / count as f64));
            }
            below += count as f64;
        }
        unreachable!("the rank is at most the number of samples")
    }

    /// The summary. `None` without samples, because then there is no mean, and 0 would be wrong.
    pub fn summary(&self) -> Option<Summary> {
        let n = self.n();
        let highest = self.counts.iter().rposition(|&c| c > 0)?;
        Some(Summary {
            n,
            mean_ms: self.sum_ns as f64 / n as f64 / 1e6,
            p50_ms: self.quantile_ns(0.50)? / 1e6,
            p99_ms: self.quantile_ns(0.99)? / 1e6,
            max_ms: lower_edge_ns(highest + 1) as f64 / 1e6,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(counts: &[(u64, u64)], sum_ns: u64) -> Histogram {
        let runs = counts.iter().map(|&(bucket, count)| vec![bucket, count]).collect();
        let n = counts.iter().map(|c| c.1).sum();
        Histogram::from_runs(&Runs { n, sum_ns, runs }).unwrap()
    }

    /// Finds the bucket of a duration by searching the edges, independently of the guest's arithmetic.
    fn bucket_of(ns: u64) -> usize {
        (0..BUCKETS).rev().find(|&b| lower_edge_ns(b) <= ns).unwrap()
    }

    /// The values with which vsteer-guest tests its buckets.
    #[test]
    fn the_edges_are_those_of_the_guest() {
        for (ns, bucket) in [
            (0, 0),
            (1_023, 0),
            (1_024, 1),
            (16_383, 15),
            (16_384, 16),
            (17_408, 17),
            (32_767, 31),
            (32_768, 32),
            (34_815, 32),
            (34_816, 33),
            (1_000_000, 110),
            (10_000_000, 163),
            (1_000_000_000, 269),
            (u64::MAX, 399),
        ] {
            assert_eq!(bucket_of(ns), bucket, "{ns} ns");
        }
    }

    #[test]
    fn quantiles_of_known_samples() {
        // 1..=1000 times 50 us, counted like the guest does.
        let mut counts = std::collections::BTreeMap::new();
        let samples: Vec<u64> = (1..=1_000).map(|i| i * 50_000).collect();
        samples.iter().for_each(|&s| *counts.entry(bucket_of(s) as u64).or_insert(0) += 1);
        let histogram = from(&counts.into_iter().collect::<Vec<_>>(), samples.iter().sum());
        let summary = histogram.summary().unwrap();
        assert_eq!(summary.n, 1_000);
        assert!((summary.mean_ms - 25.025).abs() < 1e-9, "{summary:?}");
        for (got, truth) in [(summary.p50_ms, 25.0), (summary.p99_ms, 49.5), (summary.max_ms, 50.0)] {
            assert!((got / truth - 1.0).abs() < 0.0625, "{got} instead of {truth}");
        }
        assert!(summary.max_ms >= 50.0);
    }

    #[test]
    fn the_difference_is_the_window() {
        let earlier = from(&[(4, 7), (5, 90)], 1_000);
        let later = from(&[(4, 8), (5, 90), (64, 2)], 3_000);
        assert_eq!(later.since(&earlier), Some(from(&[(4, 1), (64, 2)], 2_000)));
        assert_eq!(earlier.since(&later), None, "a guest that started anew is not a window");
        assert_eq!(later.since(&later).unwrap().summary(), None);
    }

    #[test]
    fn malformed_runs_are_refused() {
        let runs = |n, runs: Vec<Vec<u64>>| Histogram::from_runs(&Runs { n, sum_ns: 0, runs });
        assert!(runs(2, vec![vec![399, 2]]).is_some());
        assert!(runs(2, vec![vec![399, 1, 1]]).is_none(), "beyond the last bucket");
        assert!(runs(3, vec![vec![4, 1, 1]]).is_none(), "n is not the sum");
        assert!(runs(0, vec![vec![]]).is_none());
    }
}
