//! How much of a CPU did what take? By the clocks of threads, read where one stage ends and the next begins.
//!
//! Source: `man 2 clock_gettime`. What codecs do in threads of their own is what the process used and none of this program's threads did.

use rustix::time::{ClockId, clock_gettime};

/// This thread's CPU time, ns.
pub fn thread_ns() -> u64 {
    ns(ClockId::ThreadCPUTime)
}

/// The process's, ns.
pub fn process_ns() -> u64 {
    ns(ClockId::ProcessCPUTime)
}

/// Time that passes, and no clock step moves, ns.
pub fn now_ns() -> u64 {
    ns(ClockId::Monotonic)
}

/// When that was, s since 1970, of a moment of [`now_ns`]; as the clocks stand now, if one was set meanwhile.
pub fn unix_s(at_ns: u64) -> f64 {
    (ns(ClockId::Realtime) as f64 - (now_ns() as f64 - at_ns as f64)) / 1e9
}

fn ns(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// CPU time since it was asked last.
pub struct Lap(u64);

impl Lap {
    /// From now on.
    pub fn new() -> Lap {
        Lap(thread_ns())
    }

    /// Since it began or was asked last, ns.
    pub fn take(&mut self) -> u64 {
        let now = thread_ns();
        now - std::mem::replace(&mut self.0, now)
    }
}
