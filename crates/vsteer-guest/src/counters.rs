//! How are samples counted so that none is lost and any window can be had afterwards?
//!
//! Every counter only ever grows and each has one writer (the thread of one vCPU), so the reporter reads
//! without a lock and a window is the difference of two readings: there is nothing to reset, hence no reset
//! race. Durations go into a log-linear histogram after HdrHistogram (G. Tene): fixed memory, 6.25 % wide
//! buckets. The VMs of the emulated host, which have no operating system, count by this very file, so it needs
//! `core` alone. Left out: exact extremes (the highest bucket bounds the maximum).

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets of a histogram; the last is open (from 266 s up).
pub const BUCKETS: usize = 400;

/// The bucket of a duration. Resolution 1.024 us below 16.384 us, then 16 buckets per octave.
pub fn bucket_of(duration_ns: u64) -> usize {
    let u = duration_ns >> 10;
    if u < 16 {
        return u as usize;
    }
    let exponent = u.ilog2() as usize;
    let index = 16 * (exponent - 3) + ((u >> (exponent - 4)) & 15) as usize;
    index.min(BUCKETS - 1)
}

/// Adds without a locked instruction: each counter has one writer.
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Relaxed) + amount, Relaxed);
}

/// A growing histogram of durations, one writer, any readers.
pub struct Durations {
    sum_ns: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Durations {
    /// No sample yet.
    pub const fn new() -> Self {
        Durations { sum_ns: AtomicU64::new(0), buckets: [const { AtomicU64::new(0) }; BUCKETS] }
    }

    /// Sum of all samples, ns.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns.load(Relaxed)
    }

    /// Samples in one bucket.
    pub fn bucket(&self, index: usize) -> u64 {
        self.buckets[index].load(Relaxed)
    }

    /// Counts one duration.
    pub fn record(&self, duration_ns: u64) {
        add(&self.buckets[bucket_of(duration_ns)], 1);
        add(&self.sum_ns, duration_ns);
    }
}

/// The counters of one vCPU, on cache lines of their own.
#[repr(align(128))]
pub struct Counters {
    units: AtomicU64,
    /// Lateness of timers, ns.
    pub late: Durations,
    /// Response times of requests, ns.
    pub resp: Durations,
}

impl Counters {
    pub const fn new() -> Self {
        Counters { units: AtomicU64::new(0), late: Durations::new(), resp: Durations::new() }
    }

    /// Work units done.
    pub fn units(&self) -> u64 {
        self.units.load(Relaxed)
    }

    /// Counts one work unit done.
    pub fn unit_done(&self) {
        add(&self.units, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that the reader of the reports (vsteer-lab) tests against as well.
    #[test]
    fn buckets_are_those_of_the_documented_format() {
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
    fn no_bucket_is_skipped_and_none_runs_backwards() {
        let mut last = 0;
        for u in 0..2_000_000_u64 {
            let bucket = bucket_of(u << 10);
            assert!(bucket == last || bucket == last + 1, "from bucket {last} to {bucket} at unit {u}");
            last = bucket;
        }
    }
}
