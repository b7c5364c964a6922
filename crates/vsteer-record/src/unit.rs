//! In which unit does a program count times?
//!
//! A histogram's name ends in its unit (`_seconds`, `_ms`), or its exposition states the unit. If neither is so, the
//! user names the unit. Sources: "Metric and label naming" (prometheus.io), OpenMetrics 1.0 (`# UNIT`).
//!
//! Left out: units above a minute, because no response time is counted in them.

use std::fmt;
use std::str::FromStr;

/// A unit of time. Text form: `ns`, `us`, `ms`, `s`, `min`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
    /// Minutes.
    Min,
}

/// Every unit, with its text form and its length, ns.
const ALL: [(Unit, &str, u64); 5] = [
    (Unit::Ns, "ns", 1),
    (Unit::Us, "us", 1_000),
    (Unit::Ms, "ms", 1_000_000),
    (Unit::S, "s", 1_000_000_000),
    (Unit::Min, "min", 60_000_000_000),
];

/// Words for units in names of metrics and in `# UNIT`.
const WORDS: [(&str, Unit); 9] = [
    ("nanoseconds", Unit::Ns),
    ("ns", Unit::Ns),
    ("microseconds", Unit::Us),
    ("us", Unit::Us),
    ("milliseconds", Unit::Ms),
    ("ms", Unit::Ms),
    ("seconds", Unit::S),
    ("s", Unit::S),
    ("minutes", Unit::Min),
];

impl Unit {
    fn row(self) -> (&'static str, u64) {
        let (_, text, ns) = ALL[self as usize];
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
        let known = || ALL.map(|(_, text, _)| text).join(", ");
        let found = ALL.iter().find(|(_, known, _)| *known == text).map(|(unit, ..)| *unit);
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
        for (unit, text, ns) in ALL {
            assert_eq!((text.parse(), unit.to_string().as_str(), unit.ns()), (Ok(unit), text, ns));
        }
        let said = "hours".parse::<Unit>().unwrap_err();
        assert_eq!(said, "\"hours\" is not a unit of time: write one of ns, us, ms, s, min");
        assert_eq!((Unit::Ms.seconds(50.0), Unit::Min.seconds(2.0)), (0.05, 120.0));
    }

    #[test]
    fn names_end_in_units() {
        for (name, unit) in [
            ("a_seconds", Some(Unit::S)),
            ("a_milliseconds", Some(Unit::Ms)),
            ("a_ms", Some(Unit::Ms)),
            ("a_microseconds", Some(Unit::Us)),
            ("a_us", Some(Unit::Us)),
            ("a_nanoseconds", Some(Unit::Ns)),
            ("a_ns", Some(Unit::Ns)),
            ("a_minutes", Some(Unit::Min)),
            ("a.b.seconds", Some(Unit::S)),
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
