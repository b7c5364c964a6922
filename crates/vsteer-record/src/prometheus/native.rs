//! Turns a native histogram into buckets of fixed bounds.
//!
//! Schema n has 2^n buckets per octave: bucket i holds the values above 2^((i-1)/2^n) and up to 2^(i/2^n). A span is a
//! stretch of buckets. The values up to the zero threshold have a bucket of their own. So each bound of a populated
//! bucket is an exact bound of a cumulative bucket, and between two spans the count stays the same.
//!
//! Sources: metrics.proto of github.com/prometheus/client_model, "Native Histograms" (prometheus.io/docs/specs).
//!
//! A server's answers have the bounds themselves ([`from_bounds`]).
//!
//! Left out: schemas with bounds of their own (-53) in expositions, which cannot have them; values below 0, which are not times.

use super::series::Raw;
use vsteer_core::limits;

/// Schemas of expositions.
const SCHEMAS: std::ops::RangeInclusive<i64> = -4..=8;

/// Counts that differ by a smaller part are the same, rounded.
const ROUNDED: f64 = 1e-9;

/// The buckets on one side of 0.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// Distance from the end of the span before, and length.
    pub spans: Vec<(i64, u64)>,
    /// Differences of counts from bucket to bucket.
    pub deltas: Vec<i64>,
    /// Counts, in place of differences.
    pub counts: Vec<f64>,
}

/// A native histogram, as an exposition has it.
#[derive(Debug, Default)]
pub(super) struct Native {
    pub schema: i64,
    pub zero_threshold: f64,
    pub zero_count: f64,
    pub positive: Side,
    pub negative: Side,
}

impl Side {
    fn counts(&self) -> Vec<f64> {
        if !self.counts.is_empty() {
            return self.counts.clone();
        }
        let mut count = 0_i64;
        let of = |delta: &i64| {
            count = count.saturating_add(*delta);
            count as f64
        };
        self.deltas.iter().map(of).collect()
    }

    /// Numbers of the buckets, with their counts, in order.
    fn buckets(&self) -> Result<Vec<(i64, f64)>, String> {
        let counts = self.counts();
        let buckets = self.spans.iter().fold(0_u64, |all, (_, length)| all.saturating_add(*length));
        if buckets != counts.len() as u64 {
            return Err(format!("its spans have {buckets} buckets, but it has {} counts", counts.len()));
        }
        if let Some(odd) = counts.iter().find(|n| !(n.is_finite() && **n >= 0.0)) {
            return Err(format!("one of its native buckets has the count {odd}"));
        }
        let (mut all, mut counts, mut next) = (Vec::with_capacity(counts.len()), counts.into_iter(), 0_i64);
        for (i, (offset, length)) in self.spans.iter().enumerate() {
            if i > 0 && *offset < 0 {
                return Err(format!(
                    "one of its spans begins {} buckets before the end of the last",
                    -offset
                ));
            }
            next = next.saturating_add(*offset);
            for count in counts.by_ref().take(*length as usize) {
                all.push((next, count));
                next = next.saturating_add(1);
            }
        }
        Ok(all)
    }
}

impl Native {
    /// Has it anything that a histogram with fixed buckets alone does not have?
    pub(super) fn is_there(&self) -> bool {
        let has = |side: &Side| !side.spans.is_empty();
        self.zero_threshold > 0.0 || self.zero_count > 0.0 || has(&self.positive) || has(&self.negative)
    }

    /// Upper bound of bucket `i`.
    fn bound(&self, i: i64) -> f64 {
        if self.schema <= 0 {
            return (i as f64 * f64::from(1_u32 << -self.schema)).exp2();
        }
        // A power of 2 is exact, and the rest is the same in every octave.
        let per_octave = 1_i64 << self.schema;
        let part = i.rem_euclid(per_octave) as f64 / per_octave as f64;
        part.exp2() * (i.div_euclid(per_octave) as f64).exp2()
    }

    /// Buckets of fixed bounds with cumulative counts, for this count of all values.
    ///
    /// # Errors
    /// The reason, if its parts contradict each other.
    pub(super) fn classic(&self, count: f64) -> Result<Vec<(f64, f64)>, String> {
        if !SCHEMAS.contains(&self.schema) {
            return Err(format!("its schema is {}, but vsteer knows -4 to 8", self.schema));
        }
        if !(self.zero_threshold.is_finite() && self.zero_threshold >= 0.0) {
            return Err(format!("its zero threshold is {}", self.zero_threshold));
        }
        let sides = [&self.positive, &self.negative];
        let most = sides.iter().flat_map(|s| [s.spans.len(), s.deltas.len(), s.counts.len()]).max();
        if most > Some(limits::METRICS_BUCKETS) {
            return Err(format!("it has more than {} buckets", limits::METRICS_BUCKETS));
        }
        let below: f64 = self.negative.buckets()?.iter().map(|(_, n)| n).sum();
        if below > 0.0 {
            return Err(format!("{below} of its values are below 0, so they are not times"));
        }
        let mut all = vec![(self.zero_threshold, self.zero_count)];
        let (mut sum, mut last) = (self.zero_count, None);
        for (i, n) in self.positive.buckets()? {
            let (low, high) = (self.bound(i.saturating_sub(1)), self.bound(i));
            // The zero bucket takes what lies below its threshold, and the last bucket all above the largest number.
            if last != Some(i.saturating_sub(1)) && low > self.zero_threshold && low.is_finite() {
                all.push((low, sum));
            }
            sum += n;
            if high > self.zero_threshold && high.is_finite() {
                all.push((high, sum));
            }
            last = Some(i);
        }
        // Floating-point counts are rounded when they are added up.
        let rounded = sum > count && sum - count <= ROUNDED * sum;
        all.push((f64::INFINITY, if rounded { sum } else { count }));
        Ok(all)
    }

    /// The series of these buckets.
    ///
    /// # Errors
    /// As [`Native::classic`].
    pub(super) fn raw(&self, count: f64, sum: f64, created_s: Option<f64>) -> Result<Raw, String> {
        Ok(Raw { buckets: self.classic(count)?, sum: Some(sum), count: Some(count), created_s })
    }
}

/// Buckets of fixed bounds with cumulative counts, of populated buckets in order: lower bound, upper bound and count.
/// This form also has histograms with bounds of their own (schema -53). `count`: of all values.
///
/// # Errors
/// The reason, if the buckets contradict each other or have values below 0.
pub(super) fn from_bounds(buckets: &[(f64, f64, f64)], count: f64) -> Result<Vec<(f64, f64)>, String> {
    let (mut all, mut sum): (Vec<(f64, f64)>, f64) = (Vec::new(), 0.0);
    for (low, high, n) in buckets {
        if !(n.is_finite() && *n >= 0.0) {
            return Err(format!("one of its native buckets has the count {n}"));
        }
        if *high <= 0.0 && *n > 0.0 {
            return Err(format!("{n} of its values are {high} or less, so they are not times"));
        }
        if all.last().is_none_or(|(last, _)| last < low) && *low > 0.0 {
            all.push((*low, sum));
        }
        sum += n;
        if high.is_finite() && *high >= 0.0 {
            all.push((*high, sum));
        }
    }
    let rounded = sum > count && sum - count <= ROUNDED * sum;
    all.push((f64::INFINITY, if rounded { sum } else { count }));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(spans: &[(i64, u64)], deltas: &[i64]) -> Side {
        Side { spans: spans.to_vec(), deltas: deltas.to_vec(), counts: Vec::new() }
    }

    #[test]
    fn bounds_are_powers() {
        for schema in SCHEMAS {
            let of = Native { schema, ..Native::default() };
            for i in [-700, -3, -1, 0, 1, 2, 5, 250] {
                let exact = (i as f64 * 2_f64.powi(-schema as i32)).exp2();
                assert!((of.bound(i) / exact - 1.0).abs() < 1e-12 || of.bound(i) == exact, "{schema} {i}");
            }
        }
        // A coarser schema has the same bounds, bit by bit, so histograms of two schemas share them.
        let (fine, coarse) =
            (Native { schema: 5, ..Native::default() }, Native { schema: 2, ..Native::default() });
        assert!((-90..90).all(|i| fine.bound(8 * i) == coarse.bound(i)));
    }

    #[test]
    fn spans_are_cumulative_buckets() {
        // 3 in (1, 2], 5 in (2, 4], 2 in (16, 32], and 1 of 0.
        let of = Native {
            zero_threshold: 0.001,
            zero_count: 1.0,
            positive: side(&[(1, 2), (2, 1)], &[3, 2, -3]),
            ..Native::default()
        };
        let all = [(0.001, 1.0), (1.0, 1.0), (2.0, 4.0), (4.0, 9.0), (16.0, 9.0), (32.0, 11.0)];
        assert_eq!(of.classic(11.0).unwrap()[..6], all);
        let counts = Side { counts: vec![3.0, 5.0, 2.0], ..side(&[(1, 2), (2, 1)], &[]) };
        assert_eq!(Native { positive: counts, ..of }.classic(11.0).unwrap()[..6], all);
    }

    #[test]
    fn parts_that_contradict_each_other_are_refused() {
        let said = |of: Native| of.classic(1.0).unwrap_err();
        let positive = |spans: &[(i64, u64)], deltas: &[i64]| Native {
            positive: side(spans, deltas),
            ..Native::default()
        };
        assert!(said(positive(&[(0, u64::MAX), (0, 5)], &[1])).contains("but it has 1 counts"));
        assert!(said(positive(&[(0, 1), (-1, 1)], &[1, 1])).contains("before the end"));
        assert!(said(positive(&[(0, 1)], &[-1])).contains("count -1"));
        assert!(said(Native { schema: -53, ..Native::default() }).contains("schema is -53"));
        assert!(said(Native { zero_threshold: f64::NAN, ..Native::default() }).contains("zero threshold"));
        assert!(said(Native { negative: side(&[(0, 1)], &[4]), ..Native::default() }).contains("4 of its"));
        // Far beyond the largest number.
        let far = positive(&[(i64::MAX - 1, 3)], &[1, 0, 0]).classic(3.0).unwrap();
        assert_eq!(far, [(0.0, 0.0), (f64::INFINITY, 3.0)]);
    }
}
