//! How can times be counted in a small table for any time window? As cumulative counts in log-linear buckets.
//!
//! Idea from HdrHistogram (G. Tene). Left out: exact extremes.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Buckets of a [`Histogram`]: 8 per octave from 2^10 ns to 2^34 ns (1 µs to 17 s), ends open.
/// The kernel probe fills the same buckets; `vsteer-bpf` asserts that the two agree.
pub const HISTOGRAM_BUCKETS: usize = 192;

/// A log-linear histogram of times, as cumulative counts: differences of two are histograms again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// `(bucket, count)`, ascending, zero counts left out.
    pub counts: Vec<(u16, u64)>,
}

impl Histogram {
    /// The bucket that a time falls into.
    #[inline]
    pub fn bucket_of(ns: u64) -> u16 {
        let log = 63 - (ns | 1).leading_zeros() as u64;
        if log < 10 {
            return 0;
        }
        let index = (log - 10) * 8 + ((ns >> (log - 3)) & 7);
        index.min(HISTOGRAM_BUCKETS as u64 - 1) as u16
    }

    /// The lower edge of a bucket, ns (0 for the first, which is open below).
    pub fn lower_edge_ns(bucket: u16) -> u64 {
        if bucket == 0 {
            return 0;
        }
        let (octave, eighth) = (u64::from(bucket) / 8, u64::from(bucket) % 8);
        (8 + eighth) << (octave + 7)
    }

    /// Number of times that are at least this long. The value must be an edge of buckets.
    pub fn from_edge(&self, ns: u64) -> u64 {
        self.counts
            .iter()
            .filter(|(bucket, _)| Histogram::lower_edge_ns(*bucket) >= ns)
            .map(|(_, count)| count)
            .sum()
    }

    /// From a full row of counts, one per bucket.
    pub fn from_row<C: Copy + Into<u64>>(row: &[C]) -> Self {
        // A reader makes thousands of these each second: one allocation of the right size each.
        let used = row.iter().filter(|count| (**count).into() > 0).count();
        let mut counts = Vec::with_capacity(used);
        let all = row.iter().enumerate().map(|(bucket, count)| (bucket as u16, (*count).into()));
        counts.extend(all.filter(|(_, count)| *count > 0));
        Histogram { counts }
    }

    /// The same in ascending order: a file may have another one. The last count of a bucket stands, as in any map.
    fn in_order(&self) -> Histogram {
        let all: BTreeMap<u16, u64> = self.counts.iter().copied().collect();
        Histogram { counts: all.into_iter().collect() }
    }

    /// How many times are in it.
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, (_, c)| sum.saturating_add(*c))
    }

    /// What was added since `earlier` (saturating: a counter that restarted counts from 0).
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        // Mostly little was added.
        Histogram { counts: joined(self, earlier, 0, |now, before| now.saturating_sub(before)) }
    }

    /// Both together.
    pub fn merged(&self, other: &Histogram) -> Histogram {
        Histogram { counts: joined(self, other, self.counts.len(), u64::saturating_add) }
    }

    /// All together.
    pub fn sum<'a>(all: impl IntoIterator<Item = &'a Histogram>) -> Histogram {
        let mut row = [0_u64; HISTOGRAM_BUCKETS];
        // A file may have buckets that vsteer does not know.
        let mut unknown = Histogram::default();
        for (bucket, count) in all.into_iter().flat_map(|h| &h.counts) {
            match row.get_mut(usize::from(*bucket)) {
                Some(sum) => *sum = sum.saturating_add(*count),
                None => unknown = unknown.merged(&Histogram { counts: vec![(*bucket, *count)] }),
            }
        }
        let mut sum = Histogram::from_row(&row);
        // They lie behind all others.
        sum.counts.extend(unknown.counts);
        sum
    }

    /// The histogram with every time longer by this much. Assumes that each time is in the middle of its bucket.
    #[must_use]
    pub fn later(&self, by_ns: u64) -> Histogram {
        let mut moved: BTreeMap<u16, u64> = BTreeMap::new();
        for (bucket, count) in &self.counts {
            let middle_ns = (Histogram::lower_edge_ns(*bucket) + Histogram::lower_edge_ns(bucket + 1)) / 2;
            *moved.entry(Histogram::bucket_of(middle_ns + by_ns)).or_default() += count;
        }
        Histogram { counts: moved.into_iter().collect() }
    }

    /// The time below which the fraction `q` (0..=1) of the entries lies, ns, interpolated inside its bucket
    /// (so within an eighth of an octave, 9 %); `None` when empty.
    pub fn quantile_ns(&self, q: f64) -> Option<f64> {
        let total = self.total();
        if total == 0 {
            return None;
        }
        // A hair less, so that a fraction such as 3/7 of 7 entries does not round into the bucket after the third.
        let rank = q.clamp(0.0, 1.0) * total as f64 * (1.0 - 1e-12);
        let mut below = 0.0;
        for (i, (bucket, count)) in self.counts.iter().enumerate() {
            let c = *count as f64;
            if below + c >= rank || i + 1 == self.counts.len() {
                let low = Histogram::lower_edge_ns(*bucket) as f64;
                let high = Histogram::lower_edge_ns(bucket + 1) as f64;
                return Some(low + (high - low) * ((rank - below) / c).clamp(0.0, 1.0));
            }
            below += c;
        }
        None
    }
}

/// The counts of both, bucket by bucket, without those of which nothing is left. A bucket that one of them lacks counts 0.
fn joined(a: &Histogram, b: &Histogram, room: usize, of: impl Fn(u64, u64) -> u64) -> Vec<(u16, u64)> {
    let ascends = |h: &Histogram| h.counts.is_sorted_by(|x, y| x.0 < y.0);
    if !ascends(a) || !ascends(b) {
        return joined(&a.in_order(), &b.in_order(), room, of);
    }
    let mut all = Vec::with_capacity(room);
    let (mut left, mut right) = (&a.counts[..], &b.counts[..]);
    loop {
        let ((bucket, count), rest) = match (left, right) {
            // Mostly both have the same buckets.
            ([x, l @ ..], [y, r @ ..]) if x.0 == y.0 => ((x.0, of(x.1, y.1)), (l, r)),
            ([x, l @ ..], []) => ((x.0, of(x.1, 0)), (l, right)),
            ([x, l @ ..], [y, ..]) if x.0 < y.0 => ((x.0, of(x.1, 0)), (l, right)),
            (_, [y, r @ ..]) => ((y.0, of(0, y.1)), (left, r)),
            ([], []) => return all,
        };
        if count > 0 {
            all.push((bucket, count));
        }
        (left, right) = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn later_times_are_as_many() {
        let times = Histogram { counts: vec![(0, 3), (Histogram::bucket_of(1_500_000), 1)] };
        let later = times.later(8_000);
        assert_eq!(later.total(), 4);
        assert!((later.quantile_ns(0.5).unwrap() - 8_500.0).abs() < 1_000.0, "{later:?}");
        assert_eq!(
            later.quantile_ns(1.0),
            times.quantile_ns(1.0),
            "8 us are less than the bucket of 1.5 ms is wide"
        );
        assert_eq!(times.later(0), times);
    }

    #[test]
    fn histogram_edges_enclose_their_times() {
        assert_eq!(Histogram::bucket_of(0), 0);
        assert_eq!(Histogram::bucket_of(1024), 0);
        assert_eq!(Histogram::lower_edge_ns(8), 2048);
        assert_eq!(Histogram::bucket_of(u64::MAX), HISTOGRAM_BUCKETS as u16 - 1);
    }

    proptest! {
        #[test]
        fn bucket_and_edge_agree(ns in 1152u64..(1 << 34)) {
            let b = Histogram::bucket_of(ns);
            prop_assert!(Histogram::lower_edge_ns(b) <= ns && ns < Histogram::lower_edge_ns(b + 1));
        }

        #[test]
        fn quantile_is_within_an_eighth_octave(mut times in proptest::collection::vec(2000u64..1_000_000_000, 1..200)) {
            let mut row = vec![0u64; HISTOGRAM_BUCKETS];
            times.iter().for_each(|t| row[usize::from(Histogram::bucket_of(*t))] += 1);
            times.sort_unstable();
            let h = Histogram::from_row(&row);
            let exact = times[(times.len() - 1) / 2] as f64;
            let got = h.quantile_ns(((times.len() - 1) / 2 + 1) as f64 / times.len() as f64).unwrap();
            prop_assert!((got / exact - 1.0).abs() < 0.13, "{} {}", got, exact);
        }

        #[test]
        fn difference_undoes_merge(a in proptest::collection::btree_map(0u16..200, 1u64..50, 0..20),
                                   b in proptest::collection::btree_map(0u16..200, 1u64..50, 0..20)) {
            let h = |m: BTreeMap<u16, u64>| Histogram { counts: m.into_iter().collect() };
            let (a, b) = (h(a), h(b));
            prop_assert_eq!(Histogram::sum([&a, &b]), a.merged(&b));
            prop_assert_eq!(a.merged(&b).since(&a), b);
        }
    }
}
