//! Which timers has the program armed that end even if it does not wait for them? Timers of file descriptors, and
//! timers that send signals.
//!
//! There is one table of atomics per kind. If two threads change one timer at once, either time may remain, as in the
//! kernel.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Number of file descriptors that the table follows.
const FDS: usize = 1_024;
/// Number of signal timers: the kernel numbers them from 0.
const TIMERS: usize = 64;
const INTERVAL_TIMER: usize = FDS + TIMERS;

/// When the timer ends (ns of CLOCK_MONOTONIC; 0: not armed), and its period.
struct Armed {
    end_ns: AtomicU64,
    every_ns: AtomicU64,
}

static ALL: [Armed; FDS + TIMERS + 1] =
    [const { Armed { end_ns: AtomicU64::new(0), every_ns: AtomicU64::new(0) } }; FDS + TIMERS + 1];
/// Entries from here on were never armed.
static USED: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Fd(libc::c_int),
    Signal(usize),
    Interval,
}

impl Which {
    fn at(self) -> Option<usize> {
        match self {
            Which::Fd(fd) => usize::try_from(fd).ok().filter(|fd| *fd < FDS),
            Which::Signal(id) => Some(FDS + id).filter(|_| id < TIMERS),
            Which::Interval => Some(INTERVAL_TIMER),
        }
    }
}

/// The timer ends in `in_ns` (0: never) and then every `every_ns` (0: not again).
pub fn set(which: Which, now_ns: u64, in_ns: u64, every_ns: u64) {
    let Some(at) = which.at() else { return };
    if in_ns > 0 {
        USED.fetch_max(at + 1, Relaxed);
    }
    ALL[at].every_ns.store(every_ns, Relaxed);
    ALL[at].end_ns.store(if in_ns > 0 { now_ns.saturating_add(in_ns) } else { 0 }, Relaxed);
}

/// The timer is gone. Costs one load if the entry was never armed.
pub fn forget(which: Which) {
    if let Some(at) = which.at().filter(|at| *at < USED.load(Relaxed)) {
        ALL[at].end_ns.store(0, Relaxed);
    }
}

/// When this timer ends next; `None` if it is not armed.
pub fn end_ns(which: Which, now_ns: u64) -> Option<u64> {
    let at = which.at().filter(|at| *at < USED.load(Relaxed))?;
    next(&ALL[at], now_ns)
}

/// When the first of all timers ends.
pub fn first_ns(now_ns: u64) -> Option<u64> {
    ALL[..USED.load(Relaxed)].iter().filter_map(|armed| next(armed, now_ns)).min()
}

/// The next end in the future.
fn next(armed: &Armed, now_ns: u64) -> Option<u64> {
    let end_ns = armed.end_ns.load(Relaxed);
    if end_ns == 0 || end_ns > now_ns {
        return Some(end_ns).filter(|end| *end > 0);
    }
    let every_ns = armed.every_ns.load(Relaxed);
    let passed = (now_ns - end_ns).checked_div(every_ns)?;
    let next_ns = end_ns + (passed + 1) * every_ns;
    armed.end_ns.store(next_ns, Relaxed);
    Some(next_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because the tables belong to the process.
    #[test]
    fn the_first_that_lies_ahead() {
        assert_eq!(first_ns(5), None);
        set(Which::Fd(7), 1_000, 500, 0);
        set(Which::Signal(0), 1_000, 900, 300);
        assert_eq!((first_ns(1_000), end_ns(Which::Fd(7), 1_000)), (Some(1_500), Some(1_500)));
        // After its end, a one-shot timer is over, and a periodic one continues.
        assert_eq!((first_ns(1_600), end_ns(Which::Fd(7), 1_600)), (Some(1_900), None));
        assert_eq!(first_ns(1_900), Some(2_200));
        assert_eq!(first_ns(9_999), Some(10_000));
        set(Which::Interval, 10_000, 50, 0);
        assert_eq!(first_ns(10_000), Some(10_050));
        forget(Which::Interval);
        set(Which::Signal(0), 10_000, 0, 300);
        assert_eq!(first_ns(10_001), None);
        // Descriptors beyond the table have no effect.
        set(Which::Fd(5_000), 1, 1, 1);
        set(Which::Fd(-1), 1, 1, 1);
        assert_eq!((first_ns(10_001), end_ns(Which::Fd(5_000), 1)), (None, None));
    }
}
