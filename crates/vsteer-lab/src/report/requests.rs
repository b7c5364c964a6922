//! Writes a log of when a guest answered each request, in the host's clocks, and how long that took.
//!
//! Once a second, a guest reports how long ago it answered each request, by its own CLOCK_MONOTONIC
//! (vsteer-guest's README). There is an offset between that clock and the host's. The line with the least
//! delay shows it (for the reasoning see [`super::window`]). Here only the last lines count, because readers
//! follow the log and it cannot wait for later lines. The conversion from the host's CLOCK_MONOTONIC to
//! CLOCK_REALTIME uses both at the time of writing.
//!
//! A log is JSON lines as `vsteer estimate` and `vsteer steer` read them:
//! `{"ts":1767225600.123456789,"duration_us":6600}`, with the time of the answer (CLOCK_REALTIME, s) and the
//! time since the request's arrival (us). The requests of one second come in order of `ts`. Between seconds
//! the order may be wrong by the correction of the offset, some ms in a guest's first minute.
//!
//! Left out: a guest that stood still (paused, or at the end of a migration). Its clock stood still too, so
//! the offset grew by the same time. For half a minute the log's times are too early by it.

use serde::Deserialize;
use std::collections::VecDeque;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use vsteer_core::Fault;

/// The start of a line of answered requests.
pub const REQUESTS_START: &str = "{\"vsteer_requests\":1,";
/// The number of lines that share the offset between the clocks; a report and a line of requests come every
/// second.
const NEAR: usize = 60;

/// The request log of a VM. It exists as soon as the VM's console is followed, and stays empty if the VM
/// serves no schedule.
pub fn requests_file(dir: &Path, vm: &str) -> PathBuf {
    dir.join("requests").join(format!("{vm}.log"))
}

/// A line of answered requests.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Requests {
    /// The time of writing, guest's CLOCK_MONOTONIC, ns.
    pub t_ns: u64,
    /// For each request: how long before that it was answered, and how long that took since its arrival, us.
    pub ended: Vec<(u64, u64)>,
}

/// The offset between a guest's CLOCK_MONOTONIC and the host's.
#[derive(Debug, Default)]
pub struct Offset {
    /// Host's arrival time minus guest's time of the last lines, ns.
    near: VecDeque<i128>,
    last_t_ns: u64,
}

impl Offset {
    /// A line with the guest's time `t_ns` arrived at `host_ns`. If time went back, the guest was started
    /// again, and the former offset no longer counts.
    pub fn heard(&mut self, t_ns: u64, host_ns: u64) {
        if t_ns < self.last_t_ns {
            self.near.clear();
        }
        self.last_t_ns = t_ns;
        self.near.push_back(i128::from(host_ns) - i128::from(t_ns));
        if self.near.len() > NEAR {
            self.near.pop_front();
        }
    }

    /// What to add to the guest's time to get the host's, ns. `None` before the first line.
    pub fn ns(&self) -> Option<i128> {
        self.near.iter().min().copied()
    }
}

/// The present CLOCK_REALTIME minus CLOCK_MONOTONIC, ns.
pub fn wall_less_monotonic_ns() -> i128 {
    let wall = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    i128::from(wall.tv_sec) * 1_000_000_000 + i128::from(wall.tv_nsec)
        - i128::from(crate::report::clock::now_ns())
}

/// A line of a log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answered {
    /// The time of the answer, CLOCK_REALTIME, s.
    pub ts_s: f64,
    /// The time since the request's arrival, s.
    pub took_s: f64,
}

/// A log's lines; the last one may be incomplete.
///
/// # Errors
/// It cannot be read.
pub fn answered(log: &Path) -> Result<Vec<Answered>, Fault> {
    let text = std::fs::read_to_string(log);
    let text = text.map_err(|e| Fault::io(format!("reading {}", log.display()), &e))?;
    let one = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(Answered { ts_s: line["ts"].as_f64()?, took_s: line["duration_us"].as_f64()? / 1e6 })
    };
    Ok(text.lines().filter_map(one).collect())
}

/// The log's lines. `offset_ns` is the difference between the guest's clock and CLOCK_REALTIME.
pub fn lines(requests: &Requests, offset_ns: i128) -> String {
    let mut text = String::with_capacity(60 * requests.ended.len());
    let mut ended = requests.ended.clone();
    // The oldest first.
    ended.sort_by_key(|(ago_us, _)| std::cmp::Reverse(*ago_us));
    for (ago_us, took_us) in ended {
        let ts = i128::from(requests.t_ns) + offset_ns - 1_000 * i128::from(ago_us);
        let (s, ns) = (ts.div_euclid(1_000_000_000), ts.rem_euclid(1_000_000_000));
        // Writing to a string does not fail.
        let _ = writeln!(text, "{{\"ts\":{s}.{ns:09},\"duration_us\":{took_us}}}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same line that vsteer-guest's own test requires: change both or neither.
    const LINE: &str =
        "{\"vsteer_requests\":1,\"t_ns\":9000123456,\"ended\":[[993522,6600],[898423,1700],[123,100000]]}";

    #[test]
    fn the_guests_line_is_read() {
        assert!(LINE.starts_with(REQUESTS_START));
        let read: Requests = serde_json::from_str(LINE).unwrap();
        assert_eq!(read.t_ns, 9_000_123_456);
        assert_eq!(read.ended, [(993_522, 6_600), (898_423, 1_700), (123, 100_000)]);
        for torn in [&LINE[..40], "{\"vsteer_requests\":1,\"t_ns\":5,\"ended\":[[5]]}"] {
            assert!(serde_json::from_str::<Requests>(torn).is_err(), "{torn}");
        }
    }

    #[test]
    fn requests_lie_where_they_were_answered() {
        let read: Requests = serde_json::from_str(LINE).unwrap();
        // A guest that was booted 9 s before 2026.
        let offset = 1_767_225_600_000_000_000 - 9_000_000_000;
        assert_eq!(
            lines(&read, offset),
            "{\"ts\":1767225599.006601456,\"duration_us\":6600}\n\
             {\"ts\":1767225599.101700456,\"duration_us\":1700}\n\
             {\"ts\":1767225600.000000456,\"duration_us\":100000}\n"
        );
        let others = Requests { ended: vec![(1, 10), (3, 30), (2, 20)], ..read };
        let took: Vec<String> = lines(&others, offset).lines().map(str::to_owned).collect();
        assert!(
            took[0].ends_with(":30}") && took[1].ends_with(":20}") && took[2].ends_with(":10}"),
            "{took:?}"
        );
    }

    #[test]
    fn the_line_that_lagged_least_tells_the_offset() {
        let mut offset = Offset::default();
        assert_eq!(offset.ns(), None);
        for (t_ns, lag_ns) in [(1_000, 40), (2_000, 7), (3_000, 2_000), (4_000, 20)] {
            offset.heard(t_ns, 500_000 + t_ns + lag_ns);
        }
        assert_eq!(offset.ns(), Some(500_007));
        // Old lines are forgotten, because clocks drift.
        (5..5 + NEAR as u64).for_each(|i| offset.heard(1_000 * i, 500_000 + 1_000 * i + 9));
        assert_eq!(offset.ns(), Some(500_009));
    }

    #[test]
    fn a_guest_that_was_started_anew_has_an_offset_of_its_own() {
        let mut offset = Offset::default();
        (1..20).for_each(|i| offset.heard(1_000_000 * i, 5_000_000 + 1_000_000 * i));
        offset.heard(300, 40_000_000);
        assert_eq!(offset.ns(), Some(39_999_700));
        offset.heard(300, 40_000_001);
        assert_eq!(offset.ns(), Some(39_999_700), "two lines of the same moment are of the same guest");
    }
}
