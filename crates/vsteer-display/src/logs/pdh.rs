//! Parses a log of Windows' performance counters: CSV, as `typeperf -f CSV`, `relog -f CSV`, data collector
//! sets and `Export-Counter -FileFormat CSV` write it.
//!
//! ```text
//! "(PDH-CSV 4.0) (Pacific Standard Time)(480)","\\HOST\Set(instance)\Counter",…
//! "11/25/2026 02:00:01.000","24.5",…
//! ```
//! The first column is the local time at the end of an interval. The bias in brackets is the number of
//! minutes to add to get UTC. `typeperf` may leave it out; then the absolute time is not known. An empty or
//! blank cell means that the counter did not exist. Source: Microsoft's documentation of `typeperf`, `relog`
//! and the PDH library (learn.microsoft.com, "PDH Log Files"). Left out: TSV, binary logs (`relog -f CSV`
//! converts them to CSV); a change to or from daylight-saving time within a log.

use jiff::civil::DateTime;
use jiff::tz::Offset;
use vsteer_core::{Fault, FaultKind};

/// The mark of the format, in any language.
const MARK: &str = "(PDH-CSV 4.0)";
/// The most bytes of a log, and columns of a line.
pub const BYTES_MOST: u64 = 256 << 20;
const COLUMNS_MOST: usize = 100_000;

/// The parts of a counter's path `\\HOST\Set(instance)\Counter`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    pub host: String,
    pub set: String,
    /// The instance; empty if the set has none.
    pub instance: String,
    pub name: String,
}

#[derive(Debug, PartialEq)]
pub struct Table {
    /// By column; `None` if the name is not a counter's path.
    pub counters: Vec<Option<Counter>>,
    /// Per line: the time, s since 1970 (UTC, or local time if the zone is not known), and a cell per column.
    pub lines: Vec<(f64, Vec<Option<f64>>)>,
    /// Does the log say how to convert local times to UTC?
    pub knows_zone: bool,
}

/// Parses a log.
///
/// # Errors
/// `BadInput` with the line: it is not such a log, a line has another number of columns than the first, or a
/// time or number is not valid.
pub fn read(text: &str) -> Result<Table, Fault> {
    let bad = |line: usize, what: String| Fault::new(FaultKind::BadInput, format!("line {line}: {what}"));
    let mut lines = text.trim_start_matches('\u{feff}').lines().enumerate().map(|(i, line)| (i + 1, line));
    // `typeperf` begins its output with an empty line.
    let (first, head) = lines
        .by_ref()
        .find(|(_, line)| !line.trim().is_empty())
        .ok_or_else(|| bad(1, "nothing is there".to_owned()))?;
    let head = cells(head).ok_or_else(|| bad(first, "a quotation that does not end".to_owned()))?;
    let Some(zone) = head[0].strip_prefix(MARK) else {
        return Err(bad(first, format!("it does not begin with {MARK:?}"))
            .because("it is not a log of Windows' performance counters as CSV")
            .help("typeperf -f CSV, or relog -f CSV of a binary one"));
    };
    if head.len() > COLUMNS_MOST {
        return Err(bad(first, format!("{} columns", head.len())));
    }
    let bias_s = bias(zone).map(|minutes| minutes * 60.0);
    let counters = head[1..].iter().map(|path| counter(path)).collect();
    let mut all = Vec::new();
    for (number, line) in lines {
        // A message of `typeperf` at its end is not a line of its log.
        if !line.starts_with('"') {
            if line.trim().is_empty() || !all.is_empty() {
                continue;
            }
            return Err(bad(number, format!("{line:?} is not a line of quoted cells")));
        }
        let cells = cells(line).ok_or_else(|| bad(number, "a quotation that does not end".to_owned()))?;
        if cells.len() != head.len() {
            return Err(bad(
                number,
                format!("{} columns, where the first line has {}", cells.len(), head.len()),
            )
            .help("leave out a last line that was cut off"));
        }
        let time = time(&cells[0]).ok_or_else(|| {
            bad(number, format!("{:?} is not a time MONTH/DAY/YEAR HOUR:MINUTE:SECOND", cells[0]))
        })?;
        let numbers = cells[1..].iter().enumerate().map(|(i, cell)| {
            let cell = cell.trim();
            if cell.is_empty() {
                return Ok(None);
            }
            let number_of = || bad(number, format!("column {}: {cell:?} is not a number", i + 2));
            cell.parse::<f64>().ok().filter(|v| v.is_finite()).map(Some).ok_or_else(number_of)
        });
        all.push((time + bias_s.unwrap_or(0.0), numbers.collect::<Result<_, _>>()?));
    }
    Ok(Table { counters, lines: all, knows_zone: bias_s.is_some() })
}

/// Quoted cells between commas; a quotation mark inside is doubled.
fn cells(line: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    let mut cell = String::new();
    let mut chars = line.trim_end_matches('\r').chars().peekable();
    let mut quoted = false;
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => all.push(std::mem::take(&mut cell)),
            other => cell.push(other),
        }
    }
    all.push(cell);
    (!quoted).then_some(all)
}

/// Parses ` (zone)(minutes)`; names of zones may contain brackets.
fn bias(zone: &str) -> Option<f64> {
    let (_, minutes) = zone.trim().strip_suffix(')')?.rsplit_once('(')?;
    minutes.parse::<f64>().ok().filter(|m| m.abs() <= 24.0 * 60.0)
}

/// Parses `\\HOST\Set(instance)\Counter`. Instances may contain brackets but, for processes, no backslashes.
fn counter(path: &str) -> Option<Counter> {
    let (host, rest) = path.strip_prefix(r"\\")?.split_once('\\')?;
    let (set, name) = rest.rsplit_once('\\')?;
    let (set, instance) = match set.split_once('(') {
        Some((set, instance)) => (set, instance.strip_suffix(')')?),
        None => (set, ""),
    };
    Some(Counter { host: host.into(), set: set.trim().into(), instance: instance.into(), name: name.into() })
}

/// s since 1970, as if the time were UTC.
fn time(cell: &str) -> Option<f64> {
    let (date, clock) = cell.trim().split_once(' ')?;
    fn part<T: std::str::FromStr>(text: Option<&str>) -> Option<T> {
        text.and_then(|t| t.parse().ok())
    }
    let mut date = date.split('/');
    let (month, day, year) = (part(date.next())?, part(date.next())?, part(date.next())?);
    let mut clock = clock.split(':');
    let (hour, minute) = (part(clock.next())?, part(clock.next())?);
    let second: f64 = clock.next()?.parse().ok().filter(|s| (0.0..61.0).contains(s))?;
    let at = DateTime::new(year, month, day, hour, minute, 0, 0).ok().filter(|_| year >= 1970)?;
    Some(Offset::UTC.to_timestamp(at).ok()?.as_second() as f64 + second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOG: &str = "\r\n\"(PDH-CSV 4.0) (W. Europe Standard Time)(-60)\",\"\\\\VDI-7\\VMware Blast Imaging Counters(Session ID: 1; Channel: Imaging; (main))\\Frames per second\",\"\\\\VDI-7\\Memory\\Available MBytes\"\r\n\
        \"11/25/2026 03:00:01.500\",\"24.000000\",\" \"\r\n\"11/25/2026 03:00:02.500\",\"25\",\"812\"\r\nExiting, please wait...\r\nThe command completed successfully.\r\n";

    #[test]
    fn a_log_is_read_with_its_zone() {
        let table = read(LOG).unwrap();
        let at = "2026-11-25T02:00:01.5Z".parse::<jiff::Timestamp>().unwrap().as_millisecond() as f64 / 1e3;
        assert_eq!(table.lines, [(at, vec![Some(24.0), None]), (at + 1.0, vec![Some(25.0), Some(812.0)])]);
        assert!(table.knows_zone);
        let first = table.counters[0].clone().unwrap();
        assert_eq!((&*first.host, &*first.set), ("VDI-7", "VMware Blast Imaging Counters"));
        assert_eq!(first.instance, "Session ID: 1; Channel: Imaging; (main)");
        assert_eq!(first.name, "Frames per second");
        assert_eq!(table.counters[1].clone().unwrap().instance, "");
        // The output of typeperf may lack the zone.
        assert!(!read(&LOG.replace(" (W. Europe Standard Time)(-60)", "")).unwrap().knows_zone);
    }

    #[test]
    fn what_is_no_log_is_told_by_its_line() {
        for (text, line, word) in [
            ("", "line 1", "nothing"),
            ("codec,fps\n1,2", "line 1", "PDH-CSV"),
            ("\"(PDH-CSV 4.0)\",\"a\n", "line 1", "quotation"),
            ("\"(PDH-CSV 4.0)\",\"a\"\n\"11/25/2026 03:00:01\"\n", "line 2", "1 columns"),
            ("\"(PDH-CSV 4.0)\",\"a\"\n\"25.11.2026 03:00:01\",\"1\"\n", "line 2", "not a time"),
            ("\"(PDH-CSV 4.0)\",\"a\"\n\"11/25/2026 03:00:01\",\"1,5\"\n", "line 2", "not a number"),
            ("\"(PDH-CSV 4.0)\",\"a\"\nError: no data\n", "line 2", "quoted"),
        ] {
            let why = read(text).unwrap_err().to_string();
            assert!(why.contains(line) && why.contains(word), "{text:?}: {why}");
        }
    }

    proptest! {
        /// Any file content is parsed or refused.
        #[test]
        fn no_file_ends_the_program(text in "\\PC{0,200}", at in 0..LOG.len(), put in "\\PC{0,3}") {
            let _ = read(&text);
            let mut log = LOG.to_owned();
            if log.is_char_boundary(at) {
                log.insert_str(at, &put);
            }
            let _ = read(&log);
        }
    }
}
