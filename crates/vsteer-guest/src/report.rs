//! What does the guest say, once a second?
//!
//! One line of JSON with cumulative counters (the format is in this crate's README.md), built in memory and
//! written with one system call, so that reporting costs a fraction of a millisecond per second. Only
//! non-empty runs of the histogram are written: the line grows with the spread of the samples, not with
//! their number. Left out: floating point, and per-vCPU figures.

use crate::reading::{DurationsRead, Reading};
use crate::runs;
use std::fmt::Write;

/// Jiffies of all vCPUs together, 1/100 s (USER_HZ is 100 on every Linux architecture here).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Jiffies {
    /// In user mode, nice included.
    pub user: u64,
    /// In the kernel.
    pub system: u64,
    /// Idle, waiting for I/O included.
    pub idle: u64,
    /// Stolen by the hypervisor.
    pub steal: u64,
}

/// Reads the summary line of `/proc/stat` (`man 5 proc`). `None` where it is not such a line.
pub fn parse_jiffies(stat: &str) -> Option<Jiffies> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let v: Vec<u64> = line.split_whitespace().map_while(|w| w.parse().ok()).collect();
    if v.len() < 8 {
        return None;
    }
    Some(Jiffies { user: v[0] + v[1], system: v[2], idle: v[3] + v[4], steal: v[7] })
}

/// The report's line, with its line end.
pub fn line(
    seq: u64,
    t_ns: u64,
    workload: &str,
    vcpus: usize,
    reading: &Reading,
    jiffies: Option<&Jiffies>,
) -> String {
    let mut s = String::with_capacity(2048);
    let _ = write!(
        s,
        "{{\"vsteer_guest\":1,\"seq\":{seq},\"t_ns\":{t_ns},\"workload\":\"{workload}\",\"vcpus\":{vcpus},\"units\":{},",
        reading.units
    );
    durations(&mut s, "late", &reading.late);
    durations(&mut s, "resp", &reading.resp);
    match jiffies {
        Some(j) => {
            let _ = write!(
                s,
                "\"jiffies\":{{\"user\":{},\"system\":{},\"idle\":{},\"steal\":{}}}}}",
                j.user, j.system, j.idle, j.steal
            );
        }
        None => s.push_str("\"jiffies\":null}"),
    }
    s.push('\n');
    s
}

fn durations(s: &mut String, name: &str, read: &DurationsRead) {
    // Writing to a string does not fail.
    let _ = runs::write(s, name, read.sum_ns, |bucket| read.buckets[bucket]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::BUCKETS;

    fn read(counts: &[(usize, u64)], sum_ns: u64) -> DurationsRead {
        let mut buckets = vec![0; BUCKETS];
        for &(bucket, count) in counts {
            buckets[bucket] = count;
        }
        DurationsRead { sum_ns, buckets }
    }

    /// The very line that vsteer-lab's parser is tested with: change both or neither.
    #[test]
    fn the_line_is_the_documented_one() {
        let reading = Reading {
            units: 42,
            late: read(&[(4, 7), (5, 90), (64, 1)], 163_000_000),
            resp: read(&[(399, 2)], 9),
        };
        let jiffies = Jiffies { user: 12, system: 40, idle: 1500, steal: 3 };
        assert_eq!(
            line(7, 8_000_123_456, "periodic", 2, &reading, Some(&jiffies)),
            "{\"vsteer_guest\":1,\"seq\":7,\"t_ns\":8000123456,\"workload\":\"periodic\",\"vcpus\":2,\"units\":42,\
             \"late\":{\"n\":98,\"sum_ns\":163000000,\"runs\":[[4,7,90],[64,1]]},\
             \"resp\":{\"n\":2,\"sum_ns\":9,\"runs\":[[399,2]]},\
             \"jiffies\":{\"user\":12,\"system\":40,\"idle\":1500,\"steal\":3}}\n"
        );
    }

    #[test]
    fn nothing_counted_and_nothing_known() {
        let reading = Reading { units: 0, late: read(&[], 0), resp: read(&[], 0) };
        let line = line(0, 5, "idle", 1, &reading, None);
        assert!(line.ends_with("\"resp\":{\"n\":0,\"sum_ns\":0,\"runs\":[]},\"jiffies\":null}\n"), "{line}");
    }

    #[test]
    fn proc_stat() {
        let stat = "cpu  10 2 5 800 7 0 1 33 0 0\ncpu0 10 2 5 800 7 0 1 33 0 0\n";
        assert_eq!(parse_jiffies(stat), Some(Jiffies { user: 12, system: 5, idle: 807, steal: 33 }));
        assert_eq!(parse_jiffies("intr 5\n"), None);
        assert_eq!(parse_jiffies("cpu  10 2 5\n"), None);
    }
}
