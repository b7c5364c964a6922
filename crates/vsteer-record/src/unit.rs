//! In which unit does a program write times? Files of others seldom say it.
//!
//! A histogram's name ends in its unit (`_seconds`, `_ms`), or its exposition states the unit. If neither is so, the
//! user names the unit. Sources: "Metric and label naming" (prometheus.io), OpenMetrics 1.0 (`# UNIT`).
//!
//! Left out: units above a minute, because no response time is written in them.

use std::fmt;
use std::str::FromStr;

/// A unit of time. Text form: `ns`, `us`, `ms`, `s`, `min`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
}

/// Every unit, with its text form and its length, ns.
const ROWS: [(Unit, &str, u64); 5] = [
    (Unit::Nanoseconds, "ns", 1),
    (Unit::Microseconds, "us", 1_000),
    (Unit::Milliseconds, "ms", 1_000_000),
    (Unit::Seconds, "s", 1_000_000_000),
    (Unit::Minutes, "min", 60_000_000_000),
];

/// Words for units in names of metrics and in `# UNIT`.
const WORDS: [(&str, Unit); 9] = [
    ("nanoseconds", Unit::Nanoseconds),
    ("ns", Unit::Nanoseconds),
    ("microseconds", Unit::Microseconds),
    ("us", Unit::Microseconds),
    ("milliseconds", Unit::Milliseconds),
    ("ms", Unit::Milliseconds),
    ("seconds", Unit::Seconds),
    ("s", Unit::Seconds),
    ("minutes", Unit::Minutes),
];

impl Unit {
    /// All, the shortest first.
    pub const ALL: [Unit; 5] =
        [Unit::Nanoseconds, Unit::Microseconds, Unit::Milliseconds, Unit::Seconds, Unit::Minutes];

    fn row(self) -> (&'static str, u64) {
        let (_, text, ns) = ROWS[self as usize];
        (text, ns)
    }

    /// Its length, ns.
    pub fn ns(self) -> u64 {
        self.row().1
    }

    /// A value in this unit, in seconds.
    pub fn seconds(self, value: f64) -> f64 {
        value * self.ns() as f64 / 1e9
    }

    /// The unit that a word means, as `# UNIT` has it: `seconds`, `milliseconds`, `ms`. `None` if it is not a unit of
    /// time.
    pub fn of_word(word: &str) -> Option<Unit> {
        WORDS.iter().find(|(known, _)| *known == word).map(|(_, unit)| *unit)
    }

    /// The unit at the end of a metric's name, after `_` or `.`: `latency_ms`, `http.duration.seconds`. A name that
    /// ends in `_s` does not tell a unit, because names end in that for other reasons. `None` if the name tells none.
    pub fn of_name(name: &str) -> Option<Unit> {
        let (_, word) = name.rsplit_once(['_', '.'])?;
        Unit::of_word(word).filter(|_| word != "s")
    }
}

impl FromStr for Unit {
    type Err = String;

    fn from_str(text: &str) -> Result<Unit, String> {
        let text = if text == "µs" { "us" } else { text };
        let known = || ROWS.map(|(_, text, _)| text).join(", ");
        let found = ROWS.iter().find(|(_, known, _)| *known == text).map(|(unit, ..)| *unit);
        found.ok_or_else(|| format!("{text:?} is not a unit of time: write one of {}", known()))
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_text_and_back() {
        for (unit, text, ns) in ROWS {
            assert_eq!((text.parse(), unit.to_string().as_str(), unit.ns()), (Ok(unit), text, ns));
        }
        let said = "hours".parse::<Unit>().unwrap_err();
        assert_eq!(said, "\"hours\" is not a unit of time: write one of ns, us, ms, s, min");
        assert_eq!((Unit::Milliseconds.seconds(50.0), Unit::Minutes.seconds(2.0)), (0.05, 120.0));
    }

    #[test]
    fn names_end_in_units() {
        for (name, unit) in [
            ("a_seconds", Some(Unit::Seconds)),
            ("a_milliseconds", Some(Unit::Milliseconds)),
            ("a_ms", Some(Unit::Milliseconds)),
            ("a_microseconds", Some(Unit::Microseconds)),
            ("a_us", Some(Unit::Microseconds)),
            ("a_nanoseconds", Some(Unit::Nanoseconds)),
            ("a_ns", Some(Unit::Nanoseconds)),
            ("a_minutes", Some(Unit::Minutes)),
            ("a.b.seconds", Some(Unit::Seconds)),
            ("a_ms_histogram", None),
            ("dns", None),
            ("seconds", None),
            ("a_s", None),
            ("a_bytes", None),
        ] {
            assert_eq!(Unit::of_name(name), unit, "{name}");
        }
    }
}
