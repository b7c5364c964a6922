//! Determines when each row was written, and how long its interval is.
//!
//! A row has a time of day to the second; its values cover the time since the last row. If a clock is set
//! back or jumps by an hour, or a file joins two runs, the difference of two times is not the interval. So if
//! a row's time does not fit, vsteer uses the usual interval and makes a note. The sum of the intervals
//! (`mono_ns`) is continuous. The wall clock is the file's.

use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::Offset;
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
const ESXTOPS_OWN_NS: u64 = 5_000_000_000;

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

    fn usual_ns(&self) -> u64 {
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

/// Parses `MM/DD/YYYY HH:MM:SS`, with or without a fraction, in two lines or one, in local time that is
/// `bias_min` minutes behind UTC. Returns ns since 1970 UTC.
pub(super) fn moment(text: &[u8], bias_min: i64) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let (date, time) = text.split_once([' ', '\n', '\r', 'T'])?;
    let numbers = |text: &str, separator: char| -> Option<Vec<u64>> {
        text.split(separator)
            .map(|p| p.bytes().all(|b| b.is_ascii_digit()).then(|| p.parse().ok())?)
            .collect()
    };
    let [m, d, y] = numbers(date, '/')?[..] else { return None };
    let time = time.trim_start();
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let [hours, minutes, seconds] = numbers(time, ':')?[..] else { return None };
    let millis: u64 = match fraction {
        "" => 0,
        text => format!("{text:0<3}").get(..3)?.parse().ok()?,
    };
    if !(1970..=2500).contains(&y) || hours > 24 || minutes > 59 || seconds > 60 {
        return None;
    }
    let date = Date::new(i16::try_from(y).ok()?, i8::try_from(m).ok()?, i8::try_from(d).ok()?).ok()?;
    let day_s = Offset::UTC.to_timestamp(date.to_datetime(Time::midnight())).ok()?.as_second();
    let of_day = i64::try_from(hours * 3600 + minutes * 60 + seconds).ok()?;
    let s = day_s.checked_add(of_day)?.checked_add(bias_min.checked_mul(60)?)?;
    u64::try_from(s).ok()?.checked_mul(1_000_000_000)?.checked_add(millis * 1_000_000)
}

/// A time in the form of a row, UTC.
pub(super) fn text(unix_ns: u64) -> String {
    // 64 bits of nanoseconds end in the year 2554, which jiff supports.
    let at = Timestamp::from_nanosecond(i128::from(unix_ns)).expect("a year below 9999");
    Offset::UTC.to_datetime(at).strftime("%m/%d/%Y %H:%M:%S").to_string()
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
    fn times_in_every_form() {
        let noon = moment(b"11/24/2026 12:00:05", 0).unwrap();
        assert_eq!(text(noon), "11/24/2026 12:00:05");
        assert_eq!(moment(b"11/24/2026\n12:00:05", 0), Some(noon), "some versions break it in two lines");
        assert_eq!(moment(b"11/24/2026 12:00:05.25", 0), Some(noon + S / 4));
        // India is 330 minutes ahead of UTC, so 17:30 there is noon in UTC.
        assert_eq!(moment(b"11/24/2026 17:30:05", -330), Some(noon));
        for wrong in [
            "",
            "11/24/2026",
            "24/11/2026 12:00:05",
            "11/24/2026 12:00",
            "11-24-2026 12:00:05",
            "1/1/1 +1:1:1",
        ] {
            assert_eq!(moment(wrong.as_bytes(), 0), None, "{wrong:?}");
        }
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
