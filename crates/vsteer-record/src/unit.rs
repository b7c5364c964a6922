//! In which unit is a time written? Files of others seldom say it.

use std::fmt;
use std::str::FromStr;

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// ns
    Nanoseconds,
    /// us
    Microseconds,
    /// ms
    Milliseconds,
    /// s
    Seconds,
}

impl Unit {
    /// All, the shortest first.
    pub const ALL: [Unit; 4] = [Unit::Nanoseconds, Unit::Microseconds, Unit::Milliseconds, Unit::Seconds];

    /// One of it, ns.
    pub const fn ns(self) -> u64 {
        match self {
            Unit::Nanoseconds => 1,
            Unit::Microseconds => 1_000,
            Unit::Milliseconds => 1_000_000,
            Unit::Seconds => 1_000_000_000,
        }
    }

    /// As `--unit` has it.
    pub const fn symbol(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::Microseconds => "us",
            Unit::Milliseconds => "ms",
            Unit::Seconds => "s",
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol())
    }
}

impl FromStr for Unit {
    type Err = String;

    fn from_str(text: &str) -> Result<Unit, String> {
        let text = if text == "µs" { "us" } else { text };
        let unit = Unit::ALL.into_iter().find(|unit| unit.symbol() == text);
        unit.ok_or_else(|| format!("{text:?} is not a unit; units: s, ms, us, ns"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_as_they_are_written() {
        for unit in Unit::ALL {
            assert_eq!(unit.to_string().parse(), Ok(unit));
        }
        assert_eq!("µs".parse(), Ok(Unit::Microseconds));
        assert!("sec".parse::<Unit>().unwrap_err().contains("units: s, ms"));
    }
}
