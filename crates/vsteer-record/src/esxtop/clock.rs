//! Determines when each row was written, and how long its interval is.
//!
//! A row has a time of day to the second; its values cover the time since the last row. If a clock is set
//! back or jumps by an hour, or a file joins two runs, the difference of two times is not the interval. So if
//! a row's time does not fit, vsteer uses the usual interval and makes a note. The sum of the intervals
//! (`mono_ns`) is continuous. The wall clock is the file's.

use std::collections::VecDeque;

/// An interval is an outlier if it exceeds this multiple of the usual one...
const GAP_TIMES: f64 = 5.0;
/// ... plus this, ns, because the file rounds short intervals to whole seconds.
const GAP_MORE_NS: f64 = 2e9;
/// No interval is longer, ns: a day. A hostile file could have intervals of centuries, and 64 bits hold five centuries.
const LONGEST_NS: u64 = 86_400_000_000_000;
/// The number of recent intervals that determine the usual one.
const USUAL_OF: usize = 31;
/// The interval if the file has no plausible one: esxtop's default, ns.
pub(super) const ESXTOPS_OWN_NS: u64 = 5_000_000_000;

/// Measures the intervals of rows.
#[derive(Debug, Default)]
pub(super) struct Clock {
    last_unix_ns: Option<u64>,
    plausible_ns: VecDeque<u64>,
    /// Sum of the intervals so far, ns.
    pub(super) mono_ns: u64,
    /// How often the time went back or stood still.
    pub(super) back: u64,
    /// How often an interval was too long.
    pub(super) gaps: u64,
    /// The longest such interval, ns.
    pub(super) longest_gap_ns: u64,
}

impl Clock {
    /// Learns the usual interval from the times of the first rows.
    pub(super) fn learn(&mut self, times_ns: &[u64]) {
        let mut rises: Vec<u64> =
            times_ns.windows(2).filter_map(|w| w[1].checked_sub(w[0])).filter(is_plausible).collect();
        rises.sort_unstable();
        if let Some(middle) = rises.get(rises.len() / 2) {
            self.plausible_ns.push_back(*middle);
        }
    }

    /// Was there a row yet?
    pub(super) fn has_begun(&self) -> bool {
        self.last_unix_ns.is_some()
    }

    pub(super) fn usual_ns(&self) -> u64 {
        let mut all: Vec<u64> = self.plausible_ns.iter().copied().collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or(ESXTOPS_OWN_NS)
    }

    /// Adds a row of this time; returns the length of its interval, ns. 0 for the first row, whose length is unknown.
    pub(super) fn step(&mut self, unix_ns: u64) -> u64 {
        let Some(last) = self.last_unix_ns.replace(unix_ns) else { return 0 };
        let usual = self.usual_ns();
        let ns = match unix_ns.checked_sub(last).filter(|d| *d > 0) {
            None => {
                self.back += 1;
                usual
            }
            Some(d) if !is_plausible(&d) || d as f64 > GAP_TIMES * usual as f64 + GAP_MORE_NS => {
                self.gaps += 1;
                self.longest_gap_ns = self.longest_gap_ns.max(d);
                usual
            }
            Some(d) => {
                self.plausible_ns.push_back(d);
                if self.plausible_ns.len() > USUAL_OF {
                    self.plausible_ns.pop_front();
                }
                d
            }
        };
        self.mono_ns = self.mono_ns.saturating_add(ns);
        ns
    }
}

fn is_plausible(interval_ns: &u64) -> bool {
    (1..=LONGEST_NS).contains(interval_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// A fuzz target found this: the clock stood still at the end of 64 bits of ns.
    #[test]
    fn centuries_between_rows_are_gaps() {
        let mut clock = Clock::default();
        let far = 6_000_000_000_000_000_000;
        clock.learn(&[0, far, 2 * far]);
        for time in [1, far, 2 * far, 3 * far, 1, 1 + S, 1 + 2 * S] {
            let before = clock.mono_ns;
            assert!(clock.step(time) > 0 || before == 0);
        }
        assert_eq!((clock.mono_ns, clock.gaps, clock.back), (4 * 5 * S + 2 * S, 3, 1));
    }

    #[test]
    fn a_clock_that_jumps_does_not_stretch_a_row() {
        let mut clock = Clock::default();
        let times: Vec<u64> = [100, 105, 110, 3710, 3715, 115, 120, 120].iter().map(|t| t * S).collect();
        clock.learn(&times);
        let steps: Vec<u64> = times.iter().map(|t| clock.step(*t) / S).collect();
        assert_eq!(steps, [0, 5, 5, 5, 5, 5, 5, 5]);
        assert_eq!((clock.gaps, clock.back, clock.longest_gap_ns), (1, 2, 3600 * S));
        assert_eq!(clock.mono_ns, 35 * S);
    }

    #[test]
    fn an_interval_that_changes_is_followed() {
        let mut clock = Clock::default();
        clock.learn(&[S, 3 * S, 5 * S]);
        let mut at = S;
        clock.step(at);
        for d in [2, 2, 3, 8, 8, 8, 8] {
            at += d * S;
            assert_eq!(clock.step(at), d * S);
        }
        assert_eq!(clock.gaps, 0);
    }
}
