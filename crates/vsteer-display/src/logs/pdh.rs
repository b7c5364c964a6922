//! Parses a log of Windows' performance counters: CSV, as `typeperf -f CSV`, `relog -f CSV`, data collector
//! sets and `Export-Counter -FileFormat CSV` write it.
//!
//! ```text
//! "(PDH-CSV 4.0) (Pacific Standard Time)(480)","\\HOST\Set(instance)\Counter",…
//! "11/25/2026 02:00:01.000","24.5",…
//! ```
//! The first column is the local time at the end of an interval. The bias in brackets is the number of
//! minutes to add to get UTC. `typeperf` may leave it out; then the absolute time is not known. An empty or
//! blank cell, or `-1`, means that the counter did not exist: Windows writes `-1` for missing data, and no
//! counter that vsteer knows is negative. A cell that is not a number is missing, with a note. A row that does
//! not fit the header is left out, with a note.
//!
//! A spreadsheet may have saved the log again, with semicolons, decimal commas, no quotes, and dates of another
//! country. vsteer reads what is certain. Source: Microsoft's documentation of `typeperf`, `relog`
//! and the PDH library (learn.microsoft.com, "PDH Log Files"). Left out: binary logs (`relog -f CSV`
//! converts them to CSV); a change to or from daylight-saving time within a log.

mod cells;

use cells::{cells, is_negative_one, number, time};
use vsteer_core::{Fault, FaultKind};

/// The marks of the format, in any language: with commas, and with tabs.
const MARKS: [&str; 2] = ["(PDH-CSV 4.0)", "(PDH-TSV 4.0)"];
/// The most bytes of a log, and columns of a line.
pub const BYTES_MOST: u64 = 256 << 20;
const COLUMNS_MOST: usize = 100_000;
/// The most lines in front of the header.
const BEFORE_MOST: usize = 100;
/// The most notes about rows and cells.
const NOTES_MOST: usize = 8;

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
    /// The name of the time zone; empty if the log does not name it.
    pub zone: String,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

/// Parses a log.
///
/// # Errors
/// `BadInput` with the line: it is not such a log, or no line of it can be read.
pub fn read(text: &str) -> Result<Table, Fault> {
    let lines = || text.trim_start_matches('\u{feff}').lines().enumerate().map(|(i, line)| (i + 1, line));
    let begins = |line: &str| MARKS.iter().any(|mark| line.trim_start_matches('"').starts_with(mark));
    let Some((first, line)) = lines().take(BEFORE_MOST).find(|(_, line)| begins(line)) else {
        return Err(no_log(text));
    };
    let separator = separator(line);
    let head = cells(line, separator).ok_or_else(|| bad(first, "a quotation that does not end"))?;
    if head.len() > COLUMNS_MOST {
        return Err(bad(first, &format!("{} columns", head.len())));
    }
    let zone = head[0][MARKS[0].len()..].trim();
    let bias_s = bias(zone).map(|minutes| minutes * 60.0);
    // `typeperf` may write its last message behind the last counter.
    let paths = head.iter().rposition(|cell| cell.starts_with(r"\\")).unwrap_or(head.len() - 1);
    // Where points separate decimals, a comma separates thousands.
    let has_point = |line: &str| {
        let of_row = cells(line, separator).unwrap_or_default();
        of_row.iter().skip(1).any(|cell| cell.contains('.') && number(cell, false).is_some())
    };
    let commas = separator != ',' || !lines().skip(first).any(|(_, line)| has_point(line));
    let mut rows = Rows {
        columns: paths + 1,
        head: head.len(),
        separator,
        commas,
        day_first: None,
        notes: Vec::new(),
        more: 0,
    };
    let mut all = Vec::new();
    for (number, line) in lines().skip(first) {
        match rows.row(line) {
            Ok(Some((time, values))) => {
                if let Some(cell) = values.garbled {
                    rows.note(number, &cell);
                }
                all.push((time + bias_s.unwrap_or(0.0), values.values));
            }
            Ok(None) => {}
            Err(why) => rows.note(number, &why),
        }
    }
    if let (true, Some(why)) = (all.is_empty(), rows.notes.first()) {
        return Err(Fault::new(FaultKind::BadInput, why.clone())
            .help("log again: typeperf -f CSV -si 1 -o FILE COUNTERS"));
    }
    Ok(Table {
        counters: head[1..=paths].iter().map(|path| counter(path)).collect(),
        lines: all,
        knows_zone: bias_s.is_some(),
        zone: zone_name(zone).to_owned(),
        notes: rows.notes(),
    })
}

fn bad(line: usize, what: &str) -> Fault {
    Fault::new(FaultKind::BadInput, format!("line {line}: {what}"))
}

/// The fault for a text without the header of a log.
fn no_log(text: &str) -> Fault {
    if text.trim().is_empty() {
        return bad(1, "nothing is there").help("log again, and check that the disk has room");
    }
    if text.starts_with("PK\u{3}\u{4}") {
        return bad(1, "it is a ZIP archive or an xlsx workbook").help("unpack it, or save the table as CSV");
    }
    if text.contains('\0') {
        return bad(1, "it is not text; Windows' binary logs end with .blg")
            .help("relog FILE -f CSV -o NEW.csv converts a binary log");
    }
    bad(1, &format!("it does not begin with {:?}", MARKS[0]))
        .because("it is not a log of Windows' performance counters as CSV")
        .help("typeperf -f CSV, or relog -f CSV of a binary one")
}

/// The character between cells, which stands in front of the first path.
fn separator(head: &str) -> char {
    let before = head.split_once(r"\\").map_or("", |(before, _)| before).trim_end_matches('"');
    before.chars().next_back().filter(|c| [';', '\t'].contains(c)).unwrap_or(',')
}

/// Reads rows, and keeps notes about what cannot be read.
struct Rows {
    /// The number of cells: of the time and the counters, and of the whole header.
    columns: usize,
    head: usize,
    separator: char,
    /// A comma may separate decimals.
    commas: bool,
    /// Slashes separate day, month, year in this order.
    day_first: Option<bool>,
    notes: Vec<String>,
    more: usize,
}

struct Values {
    values: Vec<Option<f64>>,
    /// A cell that is not a number.
    garbled: Option<String>,
}

impl Rows {
    /// The time and the values of a row; `None` for a line between rows or a message.
    fn row(&mut self, line: &str) -> Result<Option<(f64, Values)>, String> {
        // A message of `typeperf` is not a line of its log.
        if !line.starts_with(|c: char| c == '"' || c.is_ascii_digit()) {
            return if line.trim().is_empty() || line.starts_with("Exiting") || line.starts_with("The command")
            {
                Ok(None)
            } else {
                Err(format!("{:?} is not a line of cells", shown(line)))
            };
        }
        let cells = cells(line, self.separator).ok_or("a quotation that does not end")?;
        // A comma at the end of a line is not a column.
        let is_empty_end = cells.len() == self.columns + 1 && cells[self.columns].trim().is_empty();
        if cells.len() != self.columns && cells.len() != self.head && !is_empty_end {
            return Err(format!("{} columns, where the first line has {}", cells.len(), self.head));
        }
        let at = time(&cells[0], &mut self.day_first).ok_or_else(|| {
            format!("{:?} is not a time MONTH/DAY/YEAR HOUR:MINUTE:SECOND", shown(&cells[0]))
        })?;
        let mut garbled = None;
        let values = cells[1..self.columns].iter().enumerate().map(|(i, cell)| {
            let cell = cell.trim();
            if cell.is_empty() || is_negative_one(cell) {
                return None;
            }
            let value = number(cell, self.commas);
            if value.is_none() {
                let why = || {
                    format!(
                        "column {}: {:?} is not a number: vsteer treats it as missing",
                        i + 2,
                        shown(cell)
                    )
                };
                garbled.get_or_insert_with(why);
            }
            value
        });
        let values = values.collect();
        Ok(Some((at, Values { values, garbled })))
    }

    fn note(&mut self, line: usize, why: &str) {
        if self.notes.len() < NOTES_MOST {
            self.notes.push(format!("line {line}: {why}"));
        } else {
            self.more += 1;
        }
    }

    fn notes(self) -> Vec<String> {
        let more = (self.more > 0).then(|| format!("{} more such lines", self.more));
        self.notes.into_iter().chain(more).collect()
    }
}

/// The first characters of a text.
fn shown(text: &str) -> &str {
    &text[..text.floor_char_boundary(60)]
}

/// Parses ` (zone)(minutes)`; names of zones may contain brackets.
fn bias(zone: &str) -> Option<f64> {
    let (_, minutes) = zone.trim().strip_suffix(')')?.rsplit_once('(')?;
    minutes.parse::<f64>().ok().filter(|m| m.abs() <= 24.0 * 60.0)
}

/// The name in `(zone)(minutes)`.
fn zone_name(zone: &str) -> &str {
    let name = zone.strip_prefix('(').unwrap_or(zone);
    name.rsplit_once(")(").map_or(name, |(name, _)| name)
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
            ("\"(PDH-CSV 4.0)\",\"a\"\n\"yesterday\",\"1\"\n", "line 2", "not a time"),
            ("\"(PDH-CSV 4.0)\",\"a\"\nError: no data\n", "line 2", "not a line of cells"),
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
