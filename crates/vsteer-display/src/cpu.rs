//! Measures which stage used how much CPU time, with the clocks of threads, read between two stages.
//!
//! Source: `man 2 clock_gettime`. The time of codecs' own threads is the process's time minus the time of
//! this program's threads.

use rustix::time::{ClockId, clock_gettime};

/// This thread's CPU time, ns.
pub fn thread_ns() -> u64 {
    ns(ClockId::ThreadCPUTime)
}

/// The process's CPU time, ns.
pub fn process_ns() -> u64 {
    ns(ClockId::ProcessCPUTime)
}

/// Monotonic time, which no clock step changes, ns.
pub fn now_ns() -> u64 {
    ns(ClockId::Monotonic)
}

/// How far the wall clock was ahead of [`now_ns`] at some time, because somebody may set it later.
#[derive(Debug, Clone, Copy)]
pub struct Calendar {
    ahead_ns: i64,
}

impl Calendar {
    /// The present difference.
    pub fn now() -> Calendar {
        Calendar { ahead_ns: ns(ClockId::Realtime) as i64 - now_ns() as i64 }
    }

    /// Converts a time of [`now_ns`] to s since 1970.
    pub fn unix_s(self, at_ns: u64) -> f64 {
        (at_ns as i64 + self.ahead_ns) as f64 / 1e9
    }

    /// How much the wall clock was set since then, s.
    pub fn moved_s(self) -> f64 {
        (Calendar::now().ahead_ns - self.ahead_ns) as f64 / 1e9
    }
}

fn ns(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// CPU time since the last call.
pub struct Lap(u64);

impl Lap {
    /// Starts now.
    pub fn new() -> Lap {
        Lap(thread_ns())
    }

    /// CPU time since the start or the last call, ns.
    pub fn take(&mut self) -> u64 {
        let now = thread_ns();
        now - std::mem::replace(&mut self.0, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_is_seen_and_moments_are_told_by_the_clock_before() {
        let before = Calendar::now();
        assert!(before.moved_s().abs() < 0.05, "{}", before.moved_s());
        // As if the clock had been set back by an hour since then.
        let ahead = Calendar { ahead_ns: before.ahead_ns + 3_600_000_000_000 };
        assert!((ahead.moved_s() + 3600.0).abs() < 0.05, "{}", ahead.moved_s());
        assert!((ahead.unix_s(now_ns()) - before.unix_s(now_ns()) - 3600.0).abs() < 0.05);
    }
}
