//! When is the next look at a host due, and what ends the wait for it?
//!
//! The loops that record and steer do not handle signals. Their caller brings a [`Pace`], which does.

use std::time::{Duration, Instant};

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
}
