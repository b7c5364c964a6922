//! Is the other machine there again?
//!
//! A link that is lost is nobody's run: it is waited for, and what was cut off is made again. It is looked every few seconds; who waits is told now and then.
//!
//! Left out: telling a machine that was booted from a link that was broken: after either everything is set and read back anew.

use std::time::{Duration, Instant};

/// It is looked so often.
pub const EVERY: Duration = Duration::from_secs(5);
/// And told so often.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Ctrl-C is seen after so long.
const LOOK: Duration = Duration::from_millis(200);

/// How waiting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// It is there.
    There,
    /// Since the person wants to stop.
    Stopped,
    /// It did not come back in time.
    Gone,
}

/// Waits until it is there; `told` hears how long it has been waited for.
pub fn wait(
    mut is_there: impl FnMut() -> bool,
    stopped: &dyn Fn() -> bool,
    mut told: impl FnMut(Duration),
    within: Duration,
    every: Duration,
) -> Waited {
    let begun = Instant::now();
    let mut tell_at = TELL_EVERY;
    loop {
        if stopped() {
            return Waited::Stopped;
        }
        if is_there() {
            return Waited::There;
        }
        if begun.elapsed() >= within {
            return Waited::Gone;
        }
        if begun.elapsed() >= tell_at {
            told(begun.elapsed());
            tell_at += TELL_EVERY;
        }
        let next = Instant::now() + every.min(within.saturating_sub(begun.elapsed()));
        while !stopped() && Instant::now() < next {
            std::thread::sleep(LOOK.min(next.saturating_duration_since(Instant::now())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn it_is_waited_for_until_it_is_there_or_the_time_is_over_or_nobody_waits() {
        let short = Duration::from_millis(1);
        let looks = Cell::new(0);
        let there_at = |n: usize| {
            looks.set(0);
            let looks = &looks;
            move || {
                looks.set(looks.get() + 1);
                looks.get() == n
            }
        };
        let hour = Duration::from_secs(3600);
        assert_eq!(wait(there_at(3), &|| false, |_| {}, hour, short), Waited::There);
        assert_eq!(looks.get(), 3);
        assert_eq!(wait(there_at(0), &|| false, |_| {}, short * 20, short), Waited::Gone);
        assert!(looks.get() > 1);
        // Ctrl-C ends it also between two looks.
        let counted = &looks;
        assert_eq!(wait(there_at(0), &|| counted.get() == 2, |_| {}, hour, short), Waited::Stopped);
        let begun = Instant::now();
        assert_eq!(wait(there_at(0), &|| counted.get() == 1, |_| {}, hour, hour), Waited::Stopped);
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}
