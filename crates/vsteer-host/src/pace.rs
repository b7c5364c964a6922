//! When is the next look due, and who ends the wait for it?
//!
//! Loops that look at a host again and again (recording, steering) do not know of signals: who runs them brings a [`Pace`].

use std::time::{Duration, Instant};

/// Waits between looks, and is told when a person asks to stop.
pub trait Pace {
    /// Sleeps until `then`, or until asked to stop; true when asked to stop.
    fn sleep_until(&self, then: Instant) -> bool;
}

/// When the next of something that is done so often is due. Who was held up (stopped, a disk that did not answer) does not make up for what he missed: that would be nothing but
/// load, of windows too short to say anything.
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
        // Held up for ten minutes: the next is now, not three hundred of them.
        if let Some(long_ago) = now.checked_sub(Duration::from_secs(600)) {
            assert!(due(long_ago, every) >= now);
        }
    }
}
