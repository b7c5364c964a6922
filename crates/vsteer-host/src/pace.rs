//! When is the next look at a host due, and what ends the wait for it?
//!
//! Looks at counters come at even times, looks at configurations as often as they cost little.
//!
//! The loops that record and steer do not handle signals. Their caller brings a [`Pace`], which does.

use crate::observe::Observe;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};
use vsteer_core::Fault;
use vsteer_core::nouns::HostConfig;

/// Waits between two looks, and knows whether the user has asked to stop.
pub trait Pace {
    /// Sleeps until `then`, or until the user asks to stop. Returns true if the user asked.
    fn sleep_until(&self, then: Instant) -> bool;
}

/// When the next look is due, one every `every`. A process that was held up (stopped, or by a disk that did not
/// answer) does not catch up: that would only add load, and windows too short to measure anything.
pub fn due(last: Instant, every: Duration) -> Instant {
    (last + every).max(Instant::now())
}

/// A look that takes long on a large host comes again after this many times as long.
const PART: u32 = 80;

/// A look at all of a host: when it ended, and what it cost. However large the host is, looks cost at most an eightieth of
/// the time.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    ended: Instant,
    took: Duration,
}

impl Look {
    /// One that began then, has just ended, and made others work too (a manager): all the time counts.
    pub fn since(begun: Instant) -> Look {
        Look { ended: Instant::now(), took: begun.elapsed() }
    }

    /// One of this thread alone, which has just ended: how long the thread ran counts, however long others ran meanwhile.
    pub fn alone<T>(look: impl FnOnce() -> T) -> (Look, T) {
        let begun = clock_gettime(ClockId::ThreadCPUTime);
        let found = look();
        let ended = clock_gettime(ClockId::ThreadCPUTime);
        let ns = (ended.tv_sec - begun.tv_sec) * 1_000_000_000 + ended.tv_nsec - begun.tv_nsec;
        (Look { ended: Instant::now(), took: Duration::from_nanos(ns.unsigned_abs()) }, found)
    }

    /// Is it older than this, so that the next one is due?
    pub fn is_older(&self, than: Duration) -> bool {
        self.ended.elapsed() >= than.max(PART * self.took)
    }
}

/// The configuration for those who show it, read again as often as it costs little.
#[derive(Default)]
pub struct Described(Option<(Look, HostConfig)>);

impl Described {
    /// The configuration of the host, which may be somewhat old.
    ///
    /// # Errors
    /// As [`Observe::config`].
    pub fn of(&mut self, host: &mut dyn Observe) -> Result<&HostConfig, Fault> {
        if self.0.as_ref().is_none_or(|(look, _)| look.is_older(Duration::ZERO)) {
            let begun = Instant::now();
            let config = host.config()?;
            self.0 = Some((Look::since(begun), config));
        }
        Ok(&self.0.as_ref().expect("it was read").1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_held_up_does_not_catch_up() {
        let (now, every) = (Instant::now(), Duration::from_secs(2));
        assert_eq!(due(now + Duration::from_secs(5), every), now + Duration::from_secs(7));
        // Held up for ten minutes: one look is due now, not three hundred.
        if let Some(long_ago) = now.checked_sub(Duration::from_secs(600)) {
            assert!(due(long_ago, every) >= now);
        }
    }

    #[test]
    fn a_long_look_comes_again_late() {
        let now = Instant::now();
        let look = |ago_ms: u64, took_ms: u64| Look {
            ended: now.checked_sub(Duration::from_millis(ago_ms)).unwrap_or(now),
            took: Duration::from_millis(took_ms),
        };
        assert!(look(1_000, 10).is_older(Duration::ZERO) && !look(1_000, 1_000).is_older(Duration::ZERO));
        assert!(!look(1_000, 10).is_older(Duration::from_secs(60)));
    }
}
