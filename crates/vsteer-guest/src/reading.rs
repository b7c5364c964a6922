//! What have all vCPUs counted up to now? Their counters, read without a lock and summed.
//!
//! Left out: a snapshot of one instant; a sum may be ahead of its buckets by the one sample that each vCPU is writing.

use crate::counters::{BUCKETS, Counters, Durations};

/// A reading of one kind of duration, summed over vCPUs.
#[derive(Debug, PartialEq, Eq)]
pub struct DurationsRead {
    /// Sum of all samples, ns.
    pub sum_ns: u64,
    /// Samples per bucket.
    pub buckets: Vec<u64>,
}

/// A reading of all counters, summed over vCPUs.
#[derive(Debug, PartialEq, Eq)]
pub struct Reading {
    pub units: u64,
    /// Lateness of timers.
    pub late: DurationsRead,
    pub resp: DurationsRead,
}

/// Reads and sums the counters of every vCPU.
pub fn read(all: &[Counters]) -> Reading {
    let durations = |of: fn(&Counters) -> &Durations| DurationsRead {
        sum_ns: all.iter().map(|c| of(c).sum_ns()).sum(),
        buckets: (0..BUCKETS).map(|b| all.iter().map(|c| of(c).bucket(b)).sum()).collect(),
    };
    Reading {
        units: all.iter().map(|c| c.units()).sum(),
        late: durations(|c| &c.late),
        resp: durations(|c| &c.resp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_sum_over_vcpus() {
        let all = [Counters::new(), Counters::new()];
        all[0].unit_done();
        all[1].unit_done();
        all[0].late.record(5_000);
        all[1].late.record(5_001);
        all[1].resp.record(40_000);
        let reading = read(&all);
        assert_eq!(reading.units, 2);
        assert_eq!((reading.late.sum_ns, reading.late.buckets[4]), (10_001, 2));
        assert_eq!(reading.resp.buckets.iter().sum::<u64>(), 1);
    }
}
