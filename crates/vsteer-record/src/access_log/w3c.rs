//! Logs that name their own columns in a line `#Fields:`: IIS, Amazon CloudFront, and others that follow the W3C's Extended Log
//! File Format (working draft, 1996).
//!
//! The draft's `time-taken` is in seconds; IIS writes milliseconds. A `#Fields:` line in the middle of a file begins another
//! list of columns: IIS writes one at each restart.

use super::moment::{date, number};
use super::{Found, Raw};
use crate::unit::Unit;

/// How to read such a log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct W3c {
    columns: Option<Columns>,
    /// Which unit the durations have.
    pub unit: Option<Unit>,
    /// IIS wrote the log, by its own words.
    pub is_iis: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Columns {
    date: usize,
    time: usize,
    took: usize,
}

impl W3c {
    /// Of columns that nobody has named yet. `unit`: as a person says it.
    pub fn in_unit(unit: Option<Unit>) -> W3c {
        W3c { unit, ..W3c::default() }
    }

    /// Takes a line that begins with `#`.
    pub fn directive(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        if let Some(software) = line.strip_prefix("#Software:") {
            self.is_iis = software.contains("Internet Information Services");
        }
        if let Some(fields) = line.strip_prefix("#Fields:") {
            let names: Vec<String> = fields.split_whitespace().map(str::to_ascii_lowercase).collect();
            let of = |name: &str| names.iter().position(|n| n == name);
            self.columns = of("date")
                .zip(of("time"))
                .zip(of("time-taken"))
                .map(|((date, time), took)| Columns { date, time, took });
        }
    }

    /// Are there columns with what is needed?
    pub fn is_complete(&self) -> bool {
        self.columns.is_some()
    }

    /// What a line says.
    pub fn read(&mut self, line: &[u8]) -> Raw {
        if line.first() == Some(&b'#') {
            self.directive(line);
            return Raw::Nothing;
        }
        self.found(line).unwrap_or(Raw::Odd)
    }

    fn found(&self, line: &[u8]) -> Option<Raw> {
        let columns = self.columns.as_ref()?;
        let separator = if line.contains(&b'\t') { b'\t' } else { b' ' };
        let (mut day, mut time, mut took) = (None, None, None);
        for (i, field) in line.split(|b| *b == separator).enumerate() {
            if i == columns.date {
                day = Some(field);
            } else if i == columns.time {
                time = Some(field);
            } else if i == columns.took {
                took = Some(field);
            }
        }
        let (day, time, took) = (day?, time?, took?);
        let mut text = [0_u8; 40];
        let all = text.get_mut(..day.len() + 1 + time.len())?;
        all[..day.len()].copy_from_slice(day);
        all[day.len()] = b' ';
        all[day.len() + 1..].copy_from_slice(time);
        // The draft: times are in UTC.
        let moment = super::moment::Moment { has_zone: true, ..date(all)? };
        if took == b"-" {
            return Some(Raw::Other);
        }
        let took_ns = number(took, self.unit_of(took).ns())?;
        Some(Raw::Found(Found { moment, is_begin: false, took_ns }))
    }

    /// The unit of a duration: as a person said, else as its writer has it.
    fn unit_of(&self, took: &[u8]) -> Unit {
        let of_writer = if self.is_iis && !took.contains(&b'.') { Unit::Milliseconds } else { Unit::Seconds };
        self.unit.unwrap_or(of_writer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::MS;
    use super::*;

    fn took(log: &mut W3c, line: &str) -> Option<u64> {
        match log.read(line.as_bytes()) {
            Raw::Found(found) => Some(found.took_ns),
            _ => None,
        }
    }

    #[test]
    fn columns_are_those_that_the_log_names() {
        let mut iis = W3c::default();
        assert_eq!(took(&mut iis, "2019-10-15 19:41:46 GET / 17"), None);
        iis.directive(b"#Software: Microsoft Internet Information Services 10.0");
        iis.directive(b"#Fields: date time cs-method cs-uri-stem time-taken");
        assert_eq!(took(&mut iis, "2019-10-15 19:41:46 GET / 17"), Some(17 * MS));
        assert_eq!(took(&mut iis, "#Fields: time-taken time date"), None);
        assert_eq!(took(&mut iis, "17 19:41:46 2019-10-15"), Some(17 * MS));
        assert_eq!(took(&mut iis, "- 19:41:46 2019-10-15"), None);
        assert!(matches!(iis.read(b"- 19:41:46 2019-10-15"), Raw::Other));
        for odd in
            ["", "17", "x 19:41:46 2019-10-15", "17 19:41:46 2019-10-15-2019-10-15-2019-10-15-2019-10-15"]
        {
            assert!(matches!(iis.read(odd.as_bytes()), Raw::Odd), "{odd}");
        }
        let mut cloud = W3c::default();
        cloud.directive(b"#Fields: date time x-edge-location time-taken");
        assert_eq!(took(&mut cloud, "2019-12-04\t21:02:31\tLAX1\t0.017"), Some(17 * MS));
    }
}
