//! Is the other machine there again?
//!
//! If a link is lost, vsteer waits for the machine and repeats the run that was cut off. A link that broke for a
//! moment is back at once, a machine that boots takes a minute: so vsteer asks soon at first, then every few seconds.
//!
//! Left out: whether the machine was booted or only the link was broken. After either, vsteer sets and reads back
//! everything again.

use std::time::{Duration, Instant};

/// The first pause between two tries. Each pause is twice the last one.
const FIRST: Duration = Duration::from_millis(250);
/// The longest pause between two tries.
pub const EVERY: Duration = Duration::from_secs(5);
/// How often to report how long the wait has been.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// How often to check for Ctrl-C.
const LOOK: Duration = Duration::from_millis(200);

/// How the wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// The machine answers again.
    There,
    /// The person asked to stop.
    Stopped,
    /// The machine did not answer in time.
    Gone,
}

/// Waits for the machine, with pauses of at most `every` between tries. Reports the duration of the wait to `told`.
pub fn wait(
    mut is_there: impl FnMut() -> bool,
    stopped: &dyn Fn() -> bool,
    mut told: impl FnMut(Duration),
    within: Duration,
    every: Duration,
) -> Waited {
    let begun = Instant::now();
    let mut tell_at = TELL_EVERY;
    let mut pause = FIRST.min(every);
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
        let next = Instant::now() + pause.min(within.saturating_sub(begun.elapsed()));
        pause = (2 * pause).min(every);
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
        // Ctrl-C ends the wait also between two tries.
        let counted = &looks;
        assert_eq!(wait(there_at(0), &|| counted.get() == 2, |_| {}, hour, short), Waited::Stopped);
        let begun = Instant::now();
        assert_eq!(wait(there_at(0), &|| counted.get() == 1, |_| {}, hour, hour), Waited::Stopped);
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}
