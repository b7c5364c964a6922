//! How long? Times as people write them in scenario files: `250us`, `1.5ms`, `10s`.
//!
//! A [`Span`] is read without a float, so that the same text is the same number of nanoseconds everywhere. A number
//! without a unit is an error, because the unit is the most frequent mistake in a file.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The longest time that vsteer reads or simulates: ten years. Sums of a few of them stay far from overflow.
pub const LONGEST_NS: u64 = 10 * 365 * 86_400 * 1_000_000_000;

/// Units, largest first: name, ns.
const UNITS: [(&str, u64); 7] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("ns", 1),
];

/// A length of time, 1 ns to [`LONGEST_NS`]. Text form: a decimal number and its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(u64);

impl Span {
    /// This number of ns.
    pub const fn of_ns(ns: u64) -> Span {
        Span(ns)
    }

    /// In ns.
    pub fn ns(self) -> u64 {
        self.0
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let text = text.trim();
        let split = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
        let (number, unit) = (text[..split].trim(), text[split..].trim());
        let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!(
                "{text:?} is not a time: write a number with ns, us, ms, s, m or h, such as 1.5ms"
            ));
        };
        if number.starts_with('-') {
            return Err(format!("{text:?} is negative: times are 1ns or more"));
        }
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || (!part.is_empty() && !digits(part)) || number.ends_with('.') {
            return Err(format!("{number:?} is not a number (a time is written such as 250us or 1.5ms)"));
        }
        let too_long = || format!("{text:?} is longer than ten years");
        let mut ns = whole.parse::<u64>().ok().and_then(|w| w.checked_mul(*scale)).ok_or_else(too_long)?;
        let mut place = *scale;
        for b in part.bytes() {
            if place % 10 != 0 && b != b'0' {
                return Err(format!("{text:?} is not a whole number of nanoseconds"));
            }
            place /= 10;
            ns = ns.checked_add(u64::from(b - b'0') * place).ok_or_else(too_long)?;
        }
        match ns {
            0 => Err(format!("{text:?} is not a time of 1ns or more")),
            1..=LONGEST_NS => Ok(Span(ns)),
            _ => Err(too_long()),
        }
    }
}

impl fmt::Display for Span {
    /// In the largest unit up to seconds that makes it at least 1, without trailing zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, scale) =
            UNITS[2..].iter().find(|(_, scale)| self.0 >= *scale).copied().unwrap_or(("ns", 1));
        let (whole, mut part, mut width) = (self.0 / scale, self.0 % scale, 0);
        let mut places = scale;
        while places > 1 {
            places /= 10;
            width += 1;
        }
        while part > 0 && part % 10 == 0 {
            part /= 10;
            width -= 1;
        }
        if part == 0 { write!(f, "{whole}{name}") } else { write!(f, "{whole}.{part:0width$}{name}") }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Span, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A time as a person types it: `200ms`, `20s`, `5m`, `2h`, `7d`; a bare number is seconds.
///
/// # Errors
/// What is wrong with the text, for the person who typed it.
pub fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(format!("unknown unit {unit:?}: use ms, s, m, h or d")),
    };
    let n: f64 = number.parse().map_err(|_| format!("{number:?} is not a number (such as 20s or 200ms)"))?;
    let seconds = n * scale;
    if !(0.001..=86_400.0 * 365.0).contains(&seconds) {
        return Err("must be between 1ms and a year".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_people_write() {
        for (text, ns) in [
            ("250us", 250_000),
            ("1.5ms", 1_500_000),
            (" 10 s ", 10_000_000_000),
            ("2h", 7_200_000_000_000),
            ("1ns", 1),
        ] {
            assert_eq!(text.parse::<Span>().unwrap().ns(), ns, "{text}");
        }
        for bad in
            ["10", "", "ms", "-3ms", "0s", "1.5ns", "1.ms", "1e3ms", "3 parsecs", "99999999999h", "1.2.3ms"]
        {
            assert!(bad.parse::<Span>().is_err(), "{bad:?}");
        }
        assert!("-3ms".parse::<Span>().unwrap_err().contains("negative"));
        assert_eq!(Span(1_500_000).to_string(), "1.5ms");
        assert_eq!(Span(90_000_000_000).to_string(), "90s");
    }

    proptest! {
        #[test]
        fn text_and_back(ns in 1..=LONGEST_NS) {
            prop_assert_eq!(Span(ns).to_string().parse::<Span>(), Ok(Span(ns)));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,20}") {
            let _ = text.parse::<Span>();
        }
    }

    #[test]
    fn typed_times() {
        assert_eq!(duration("200ms").unwrap().as_millis(), 200);
        assert_eq!(duration("1.5m").unwrap().as_secs(), 90);
        assert!(duration("-3s").is_err() && duration("3 parsecs").is_err() && duration("").is_err());
    }
}
