//! Times and durations as logs write them.
//!
//! Dates are computed here and not by a library, because a log has millions of them. A test compares both.
//!
//! Left out: leap seconds, month names in languages other than English, years before 1970.

use super::{MS, SECOND, US};
use jiff::tz::TimeZone;
use std::borrow::Cow;

/// A moment of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    /// ns since 1970; of a time without a zone as if it were UTC.
    pub ns: u64,
    /// Did the log name the zone?
    pub has_zone: bool,
}

impl Moment {
    /// ns since 1970, with `zone` for times without one.
    pub fn in_zone(self, zone: Option<&TimeZone>) -> Option<u64> {
        let Some(zone) = zone.filter(|_| !self.has_zone) else { return Some(self.ns) };
        let civil = TimeZone::UTC.to_datetime(jiff::Timestamp::from_nanosecond(i128::from(self.ns)).ok()?);
        u64::try_from(zone.to_timestamp(civil).ok()?.as_nanosecond()).ok()
    }
}

/// Converts a decimal number of `unit` ns exactly, within the range of u64.
pub(super) fn number(field: &[u8], unit: u64) -> Option<u64> {
    let mut at = 0;
    let mut whole: u64 = 0;
    while let Some(digit) = field.get(at).filter(|b| b.is_ascii_digit()) {
        whole = whole.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
        at += 1;
    }
    if at == 0 {
        return None;
    }
    let mut ns = whole.checked_mul(unit)?;
    if at == field.len() {
        return Some(ns);
    }
    let part = field[at..].strip_prefix(b".")?;
    let mut place = unit;
    for digit in part {
        if !digit.is_ascii_digit() {
            return None;
        }
        place /= 10;
        ns = ns.checked_add(u64::from(digit - b'0') * place)?;
    }
    Some(ns)
}

/// A duration with its unit, as Go writes it: `40ms`, `1m2.5s`, `0.04s`. `None` without a unit.
pub(super) fn with_unit(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 7] = [
        ("ns", 1),
        ("us", US),
        ("µs", US),
        ("ms", MS),
        ("s", SECOND),
        ("m", 60 * SECOND),
        ("h", 3600 * SECOND),
    ];
    let (mut rest, mut ns) = (text.trim(), 0_u64);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (value, after) = rest.split_at(end);
        let after = after.trim_start();
        let (name, unit) = UNITS
            .into_iter()
            .filter(|(name, _)| after.starts_with(name))
            .max_by_key(|(name, _)| name.len())?;
        ns = ns.checked_add(number(value.as_bytes(), unit)?)?;
        rest = &after[name.len()..];
    }
    Some(ns)
}

/// A number since 1970. Its number of digits gives the unit: until the year 5138 seconds have at most eleven
/// digits.
pub(super) fn since_1970(text: &str) -> Option<Moment> {
    let unit = match text.split('.').next()?.len() {
        0..=11 => SECOND,
        12..=14 => MS,
        15..=17 => US,
        _ => 1,
    };
    Some(Moment { ns: number(text.as_bytes(), unit)?, has_zone: true })
}

/// Writes a number that has an exponent in plain decimals. JSON writers use exponents for small and large numbers.
pub(super) fn plain(number: &str) -> Option<Cow<'_, str>> {
    if !number.contains(['e', 'E']) {
        return Some(Cow::Borrowed(number));
    }
    Some(Cow::Owned(format!("{:.12}", number.parse::<f64>().ok()?)))
}

/// A date in one of the forms that servers write: `10/Oct/2000:13:55:36.123 -0700`, in brackets or without, `2000-10-10T13:55:36.123Z`,
/// `2000/10/10 13:55:36`, with a comma or point before the fraction, and any form of zone or none.
pub(super) fn date(field: &[u8]) -> Option<Moment> {
    let field = field.strip_prefix(b"[").map_or(field, |f| f.strip_suffix(b"]").unwrap_or(f)).trim_ascii();
    let text = Cursor { rest: field };
    if field.get(2) == Some(&b'/') { text.common() } else { text.iso() }
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    /// `10/Oct/2000:13:55:36 -0700`
    fn common(mut self) -> Option<Moment> {
        let day = self.digits(2)?;
        self.one_of(b"/")?;
        let (name, rest) = self.rest.split_at_checked(3)?;
        self.rest = rest;
        const MONTHS: &[u8; 36] = b"janfebmaraprmayjunjulaugsepoctnovdec";
        let month = MONTHS.chunks(3).position(|month| month.eq_ignore_ascii_case(name))? as u64 + 1;
        self.one_of(b"/")?;
        let year = self.digits(4)?;
        self.one_of(b": ")?;
        self.time_of(day_number(year, month, day)?)
    }

    /// `2000-10-10T13:55:36Z`
    fn iso(mut self) -> Option<Moment> {
        let year = self.digits(4)?;
        let between = self.one_of(b"-/")?;
        let month = self.digits(2)?;
        self.one_of(&[between])?;
        let day = self.digits(2)?;
        self.one_of(b"T t")?;
        self.time_of(day_number(year, month, day)?)
    }

    fn time_of(mut self, days: u64) -> Option<Moment> {
        let hour = self.digits(2)?;
        self.one_of(b":")?;
        let minute = self.digits(2)?;
        self.one_of(b":")?;
        let second = self.digits(2)?;
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let mut ns = (days * 86_400 + hour * 3600 + minute * 60 + second) * SECOND;
        if self.one_of(b".,").is_some() {
            let mut place = SECOND;
            let begun = self.rest.len();
            while let Some(digit) = self.rest.first().filter(|b| b.is_ascii_digit()) {
                place /= 10;
                ns += u64::from(digit - b'0') * place;
                self.rest = &self.rest[1..];
            }
            if self.rest.len() == begun {
                return None;
            }
        }
        let Some(east_s) = self.zone()? else { return Some(Moment { ns, has_zone: false }) };
        let ns = i128::from(ns) - i128::from(east_s) * i128::from(SECOND);
        Some(Moment { ns: u64::try_from(ns).ok()?, has_zone: true })
    }

    /// Seconds east of UTC: `Z`, `+09`, `-0700`, `+05:30`, after a space or without; `None` inside if nothing follows.
    fn zone(mut self) -> Option<Option<i64>> {
        self.rest = self.rest.trim_ascii();
        if self.rest.is_empty() {
            return Some(None);
        }
        if [&b"Z"[..], b"z", b"UTC", b"GMT"].contains(&self.rest) {
            return Some(Some(0));
        }
        let sign = if self.one_of(b"+-")? == b'-' { -1 } else { 1 };
        let hours = self.digits(2)?;
        self.one_of(b":");
        let minutes = if self.rest.is_empty() { 0 } else { self.digits(2)? };
        // An ISO 8601 zone name in brackets may follow, as Java writes it.
        let ends = self.rest.is_empty() || self.rest.starts_with(b"[");
        (ends && hours < 24 && minutes < 60).then(|| Some(sign * (hours * 3600 + minutes * 60) as i64))
    }

    fn digits(&mut self, n: usize) -> Option<u64> {
        let (digits, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        digits.iter().try_fold(0, |sum, b| b.is_ascii_digit().then(|| sum * 10 + u64::from(b - b'0')))
    }

    fn one_of(&mut self, bytes: &[u8]) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        bytes.contains(first).then(|| {
            self.rest = rest;
            *first
        })
    }
}

/// Days since 1970 of a date of the Gregorian calendar. The last allowed year is 2262, so that sums of such times fit into 64 bits.
fn day_number(year: u64, month: u64, day: u64) -> Option<u64> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    const LENGTHS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month).ok()?.checked_sub(1)?;
    let length = *LENGTHS.get(before)? + u64::from(is_leap && month == 2);
    if !(1970..=2262).contains(&year) || !(1..=length).contains(&day) {
        return None;
    }
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let years = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    let months: u64 = LENGTHS[..before].iter().sum::<u64>() + u64::from(is_leap && month > 2);
    Some(years + months + day - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> Option<(u64, bool)> {
        date(text.as_bytes()).map(|m| (m.ns, m.has_zone))
    }

    #[test]
    fn dates_are_read_in_every_form() {
        let ns = 971_211_336 * SECOND;
        for text in [
            "[10/Oct/2000:13:55:36 -0700]",
            "10/oct/2000:13:55:36 -07:00",
            "10/Oct/2000 13:55:36 -07",
            "2000-10-10T20:55:36Z",
            "2000-10-10 20:55:36+00:00",
            "2000-10-10T20:55:36.000 UTC",
            "2000-10-11T05:55:36,000+0900",
            "2000-10-11T05:55:36+09:00[Asia/Seoul]",
        ] {
            assert_eq!(at(text), Some((ns, true)), "{text}");
        }
        assert_eq!(at("2000/10/10 20:55:36.5"), Some((ns + 500_000_000, false)));
        assert_eq!(at("[10/Oct/2000:20:55:36.123]"), Some((ns + 123_000_000, false)));
        for text in [
            "",
            "10/Okt/2000:13:55:36 -0700",
            "2000-13-01T00:00:00Z",
            "2001-02-29T00:00:00Z",
            "2000-10-10T24:00:00Z",
            "2000-10-10T20:55:36.Z",
            "2000-10-10T20:55:36 CEST",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "2000-10-10",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
        let seoul = TimeZone::get("Asia/Seoul").ok();
        let local = date(b"2000-10-11 05:55:36").unwrap();
        assert_eq!(local.in_zone(seoul.as_ref()), Some(ns));
        assert_eq!(date(b"2000-10-10T20:55:36Z").unwrap().in_zone(seoul.as_ref()), Some(ns));
    }

    proptest! {
        #[test]
        fn dates_are_those_of_jiff(s in 0_i64..9_000_000_000, east in -14_i64 * 4..=14 * 4) {
            let offset = jiff::tz::Offset::from_seconds(900 * east as i32).unwrap();
            let zoned = jiff::Timestamp::from_second(s.max(900 * 56)).unwrap().to_zoned_datetime(offset.to_time_zone());
            for form in ["%d/%b/%Y:%H:%M:%S %z", "%Y-%m-%dT%H:%M:%S%:z"] {
                let text = zoned.strftime(form).to_string();
                prop_assert_eq!(at(&text), Some((zoned.timestamp().as_nanosecond() as u64, true)), "{}", text);
            }
        }

        #[test]
        fn no_date_is_too_odd(text in "\\PC{0,30}|[0-9/:. TZ+-]{0,30}") {
            let _ = (date(text.as_bytes()), with_unit(&text), number(text.as_bytes(), SECOND), since_1970(&text));
        }
    }

    #[test]
    fn durations_have_their_units() {
        for (text, ns) in [
            ("40ms", 40 * MS),
            ("1m2.5s", 62_500 * MS),
            ("0.04s", 40 * MS),
            ("17 ms", 17 * MS),
            ("250µs", 250 * US),
            ("250us", 250 * US),
            ("9ns", 9),
            ("1h", 3600 * SECOND),
        ] {
            assert_eq!(with_unit(text), Some(ns), "{text}");
        }
        for text in ["", "40", "ms", "4x", "-4ms", "4 4ms"] {
            assert_eq!(with_unit(text), None, "{text}");
        }
        assert_eq!(number(b"0.017", SECOND), Some(17 * MS));
        assert_eq!(
            [&b""[..], b".5", b"1e3", b"1.", b"99999999999999999999"].map(|t| number(t, 1)),
            [None, None, None, Some(1), None]
        );
    }
}
