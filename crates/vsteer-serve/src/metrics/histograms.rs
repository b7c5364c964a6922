//! Distributions of times. In text they have classic buckets, and in protobuf native ones too.
//!
//! vsteer counts in eight buckets per octave, of equal width within it. Native buckets of schema 3 are eight per octave as well,
//! but grow by the same factor. Each of vsteer's buckets counts into the native bucket that holds its middle, always the same
//! one, so counts never fall. A time is at most one bucket (9 %) off. Sums are of the buckets' middles.

use super::{Histogram, Metric, Series, View};
use prometheus_client::metrics::MetricType;
use std::collections::BTreeMap;
use vsteer_core::nouns::DISTRIBUTIONS;

pub const METRICS: &[Metric] = &[
    Metric {
        name: "vsteer_vm_wake_latency",
        help: "From a vCPU's wake-up to its running, over all vCPUs of a VM",
        unit: "seconds",
        kind: MetricType::Histogram,
        of: |seen, series| of(seen, series, "wake_latency"),
    },
    Metric {
        name: "vsteer_vm_ready_spell",
        help: "Every uninterrupted wait of a vCPU for a pCPU, over all vCPUs of a VM",
        unit: "seconds",
        kind: MetricType::Histogram,
        of: |seen, series| of(seen, series, "ready_spell"),
    },
];

fn of(seen: &View<'_>, series: &mut Series<'_>, name: &str) {
    let row = DISTRIBUTIONS.iter().find(|row| row.name == name).expect("it is a distribution");
    for of_vm in seen.roles.chunk_by(|a, b| a.vm == b.vm) {
        let vcpus = || of_vm.iter().filter(|of| of.role.vcpu().is_some());
        // A sum over some of the vCPUs would not be the VM's.
        let all: Option<Vec<&Histogram>> = vcpus().map(|of| (row.get)(&of.counters).as_ref()).collect();
        if let Some(all) = all.filter(|all| !all.is_empty()) {
            (series.histogram)(&[("vm", of_vm[0].name)], &Histogram::sum(all));
        }
    }
}

/// Schema of the native histograms: buckets grow by 2^(1/8).
pub(super) const SCHEMA: i32 = 3;
const NS: f64 = 1e9;

/// Upper edges of classic buckets, as powers of 4: from 2^14 ns (16 µs) to 2^34 ns (17 s).
const CLASSIC: std::ops::RangeInclusive<u32> = 7..=17;

fn middle_s(bucket: u16) -> f64 {
    let edges = [Histogram::lower_edge_ns(bucket), Histogram::lower_edge_ns(bucket + 1)];
    (edges[0] as f64 + edges[1] as f64) / 2.0 / NS
}

/// Sum of all times, s.
pub(super) fn sum_s(h: &Histogram) -> f64 {
    h.counts.iter().map(|(bucket, count)| *count as f64 * middle_s(*bucket)).sum()
}

/// Classic buckets: upper edge in s, and how many times are below it and above the one before.
pub(super) fn classic(h: &Histogram) -> Vec<(f64, u64)> {
    let edges_ns = || CLASSIC.map(|power| 1_u64 << (2 * power));
    let mut all: Vec<(f64, u64)> = edges_ns().map(|ns| (ns as f64 / NS, 0)).collect();
    all.push((f64::INFINITY, 0));
    for (bucket, count) in &h.counts {
        let from_ns = Histogram::lower_edge_ns(*bucket);
        let below = edges_ns().filter(|ns| *ns <= from_ns).count();
        all[below].1 += count;
    }
    all
}

/// Native buckets: `(offset, length)` of each stretch of buckets, and differences of counts.
pub(super) fn native(h: &Histogram) -> (Vec<(i32, u32)>, Vec<i64>) {
    // Bucket i holds times above 2^((i-1)/8) s and up to 2^(i/8) s.
    let index = |bucket: u16| (8.0 * middle_s(bucket).log2()).ceil() as i32;
    let mut counts: BTreeMap<i32, u64> = BTreeMap::new();
    h.counts.iter().for_each(|(bucket, count)| *counts.entry(index(*bucket)).or_default() += count);
    let (mut spans, mut deltas): (Vec<(i32, u32)>, Vec<i64>) = (Vec::new(), Vec::new());
    let (mut next, mut before) = (0, 0_i64);
    for (index, count) in counts {
        match spans.last_mut() {
            Some((_, length)) if index == next => *length += 1,
            Some(_) => spans.push((index - next, 1)),
            None => spans.push((index, 1)),
        }
        next = index + 1;
        deltas.push(count as i64 - before);
        before = count as i64;
    }
    (spans, deltas)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn histogram(times_ns: &[u64]) -> Histogram {
        times_ns.iter().fold(Histogram::default(), |all, ns| {
            all.merged(&Histogram { counts: vec![(Histogram::bucket_of(*ns), 1)] })
        })
    }

    proptest! {
        /// Both forms hold every time once, each in a bucket that it belongs to or beside it.
        #[test]
        fn every_time_is_in_one_bucket(times in prop::collection::vec(1_024_u64..17_000_000_000, 1..40)) {
            let h = histogram(&times);
            let classic = classic(&h);
            prop_assert_eq!(classic.iter().map(|(_, n)| n).sum::<u64>(), times.len() as u64);
            for (edge, _) in &classic {
                let below = times.iter().filter(|ns| (**ns as f64) < edge * NS).count() as u64;
                let told: u64 = classic.iter().take_while(|(e, _)| e <= edge).map(|(_, n)| n).sum();
                prop_assert_eq!(told, below, "up to {}", edge);
            }
            let (spans, deltas) = native(&h);
            prop_assert_eq!(spans.iter().map(|(_, n)| *n as usize).sum::<usize>(), deltas.len());
            let (mut at, mut count, mut all) = (0, 0, Vec::new());
            let mut deltas = deltas.into_iter();
            for (offset, length) in spans {
                at += offset;
                for _ in 0..length {
                    count += deltas.next().unwrap();
                    prop_assert!(count > 0);
                    all.extend(std::iter::repeat_n(at, count as usize));
                    at += 1;
                }
            }
            let mut exact: Vec<i32> = times.iter().map(|ns| (8.0 * (*ns as f64 / NS).log2()).ceil() as i32).collect();
            exact.sort_unstable();
            prop_assert_eq!(all.len(), exact.len());
            prop_assert!(all.iter().zip(&exact).all(|(is, right)| (is - right).abs() <= 1), "{:?} {:?}", all, exact);
        }
    }
}
