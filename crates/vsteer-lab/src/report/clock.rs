//! The time of the host's monotonic clock.

/// The present CLOCK_MONOTONIC of the host, ns.
pub fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
