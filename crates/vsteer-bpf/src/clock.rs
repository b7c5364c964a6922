//! The clocks of the kernel side and of this thread.

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`, ns.
pub(crate) fn now_ns() -> u64 {
    ns(ClockId::Monotonic)
}

/// How long this thread has run, ns.
pub(crate) fn thread_cpu_ns() -> u64 {
    ns(ClockId::ThreadCPUTime)
}

fn ns(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
