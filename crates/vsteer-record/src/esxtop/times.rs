//! Parses the time in the first cell of a row.
//!
//! esxtop writes `MM/DD/YYYY HH:MM:SS`. Spreadsheets write other forms when they save a file again. vsteer reads a
//! form only if its meaning is certain:
//!
//! | form | read as |
//! |---|---|
//! | `11/24/2026 08:00:05`, some versions in two lines | the month first, as esxtop writes it |
//! | `24/11/2026 08:00:05` | the day first, if the first row proves it; then so in every row |
//! | `24.11.2026 8:00` | the day first, as in every country that writes dots |
//! | `2026-11-24 08:00:05`, `2026/11/24 8:00`, with `T`, `Z` or `+01:00` | the year first |
//! | `... 08:00:05 AM` | twelve hours |
//! | `... 8:00` | a minute; the seconds are unknown ([`super::minutes`]) |
//!
//! Left out: months by name, years of two digits, spreadsheets' numbers of days.

use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::Offset;

/// A time of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    /// ns since 1970 UTC.
    pub(super) unix_ns: u64,
    /// The row states its seconds.
    pub(super) has_seconds: bool,
}

/// Reads the times of one file, whose rows all have the same order of day and month.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// How many minutes local time is behind UTC.
    bias_min: i64,
    /// Slashes separate day, month and year in this order; `None` before the first such row.
    day_first: Option<bool>,
    /// A date with dots could also mean the other order: spreadsheets swap esxtop's day and month up to the 12th.
    pub(super) may_be_swapped: bool,
}

impl Times {
    pub(super) fn new(bias_min: i64) -> Times {
        Times { bias_min, ..Times::default() }
    }

    /// Parses a time.
    pub(super) fn read(&mut self, text: &[u8]) -> Option<Moment> {
        let text = std::str::from_utf8(text).ok()?.trim();
        let (date, time) = text.split_once([' ', '\n', '\r', 'T'])?;
        let [y, m, d] = self.date(date)?;
        let (time, offset_min) = offset(time.trim())?;
        let (of_day_ms, has_seconds) = time_of_day(time)?;
        if !(1970..=2500).contains(&y) {
            return None;
        }
        let date = Date::new(i16::try_from(y).ok()?, i8::try_from(m).ok()?, i8::try_from(d).ok()?).ok()?;
        let day_s = Offset::UTC.to_timestamp(date.to_datetime(Time::midnight())).ok()?.as_second();
        let behind_min = offset_min.map_or(self.bias_min, |ahead| -ahead);
        let ms = day_s.checked_add(behind_min.checked_mul(60)?)?.checked_mul(1000)?.checked_add(of_day_ms)?;
        Some(Moment { unix_ns: u64::try_from(ms).ok()?.checked_mul(1_000_000)?, has_seconds })
    }

    /// Year, month, day.
    fn date(&mut self, text: &str) -> Option<[u64; 3]> {
        let separator = text.chars().find(|c| !c.is_ascii_digit())?;
        let [a, b, c] = numbers(text, separator)?[..] else { return None };
        match separator {
            '/' | '-' if a >= 1000 => Some([a, b, c]),
            '/' => {
                let day_first = *self.day_first.get_or_insert(a > 12);
                Some(if day_first { [c, b, a] } else { [c, a, b] })
            }
            '.' => {
                self.may_be_swapped |= a <= 12;
                Some([c, b, a])
            }
            _ => None,
        }
    }
}

/// Numbers between separators.
fn numbers(text: &str, separator: char) -> Option<Vec<u64>> {
    text.split(separator).map(|p| p.bytes().all(|b| b.is_ascii_digit()).then(|| p.parse().ok())?).collect()
}

/// A time without its offset from UTC, and the offset, minutes ahead of UTC.
fn offset(time: &str) -> Option<(&str, Option<i64>)> {
    if let Some(time) = time.strip_suffix('Z') {
        return Some((time, Some(0)));
    }
    let Some(at) = time.rfind(['+', '-']) else { return Some((time, None)) };
    let [hours, minutes] = numbers(&time[at + 1..], ':')?[..] else { return None };
    if hours >= 24 || minutes >= 60 {
        return None;
    }
    let ahead = i64::try_from(hours * 60 + minutes).ok()?;
    Some((&time[..at], Some(if time[at..].starts_with('-') { -ahead } else { ahead })))
}

/// Milliseconds since midnight, and whether the text has seconds.
fn time_of_day(time: &str) -> Option<(i64, bool)> {
    let (time, half) = match time.split_once(' ') {
        Some((time, "AM" | "am" | "a.m.")) => (time, Some(0)),
        Some((time, "PM" | "pm" | "p.m.")) => (time, Some(12)),
        Some(_) => return None,
        None => (time, None),
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let (hours, minutes, seconds, has_seconds) = match numbers(time, ':')?[..] {
        [h, m, s] => (h, m, s, true),
        [h, m] if fraction.is_empty() => (h, m, 0, false),
        _ => return None,
    };
    let hours = match half {
        Some(half) if (1..=12).contains(&hours) => hours % 12 + half,
        Some(_) => return None,
        None => hours,
    };
    let millis: u64 = match fraction {
        "" => 0,
        text if text.bytes().all(|b| b.is_ascii_digit()) => format!("{text:0<3}").get(..3)?.parse().ok()?,
        _ => return None,
    };
    if hours > 24 || minutes > 59 || seconds > 60 {
        return None;
    }
    Some((i64::try_from((hours * 3600 + minutes * 60 + seconds) * 1000 + millis).ok()?, has_seconds))
}

/// Why a cell is not a time, for a note.
pub(super) fn why_not(cell: &[u8], shown: &str) -> String {
    if !cell.is_empty() && cell.iter().all(|b| *b == b'#') {
        return "a spreadsheet wrote # signs in place of the time, because its column was too narrow"
            .to_owned();
    }
    format!("{shown:?} is not a time (MM/DD/YYYY HH:MM:SS)")
}

/// A time in the form of a row, UTC.
pub(super) fn text(unix_ns: u64) -> String {
    // 64 bits of nanoseconds end in the year 2554, which jiff supports.
    let at = Timestamp::from_nanosecond(i128::from(unix_ns)).expect("a year below 9999");
    Offset::UTC.to_datetime(at).strftime("%m/%d/%Y %H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn at(text: &str, bias_min: i64) -> Option<u64> {
        Times::new(bias_min).read(text.as_bytes()).map(|m| m.unix_ns)
    }

    #[test]
    fn every_form_is_the_same_moment() {
        let noon = 1_795_521_605 * S;
        assert_eq!(text(noon), "11/24/2026 12:00:05");
        for same in [
            "11/24/2026 12:00:05",
            "11/24/2026\n12:00:05",
            "11/24/2026 12:00:05 PM",
            "24/11/2026 12:00:05",
            "24.11.2026 12:00:05",
            "2026-11-24 12:00:05",
            "2026-11-24T12:00:05Z",
            "2026-11-24T13:00:05+01:00",
            "2026/11/24 12:00:05",
        ] {
            assert_eq!(at(same, 0), Some(noon), "{same}");
        }
        assert_eq!(at("11/24/2026 12:00:05.25", 0), Some(noon + S / 4));
        // India is 330 minutes ahead of UTC, so 17:30 there is noon in UTC.
        assert_eq!(at("11/24/2026 17:30:05", -330), Some(noon));
        assert_eq!(at("2026-11-24T12:00:05Z", -330), Some(noon), "the cell says UTC");
        assert_eq!(at("11/24/2026 12:00:05 AM", 0), Some(noon - 12 * 3600 * S));
        let minute = Times::new(0).read(b"11/24/2026 12:00").unwrap();
        assert_eq!((minute.unix_ns, minute.has_seconds), (noon - 5 * S, false));
    }

    #[test]
    fn what_is_not_certain_is_not_a_time() {
        for wrong in [
            "",
            "11/24/2026",
            "11-24-2026 12:00:05",
            "13/13/2026 12:00:05",
            "24.11.26 12:00:05",
            "1/1/1 +1:1:1",
            "11/24/2026 13:00:05 PM",
            "11/24/2026 12:00:05 UTC",
            "11/24/2026 12:00.5",
            "46350.5",
        ] {
            assert_eq!(at(wrong, 0), None, "{wrong:?}");
        }
        let mut times = Times::new(0);
        assert!(times.read(b"11/12/2026 23:59:58").is_some());
        assert_eq!(times.read(b"13/12/2026 00:00:03"), None, "the rows above have the month first");
    }
}
