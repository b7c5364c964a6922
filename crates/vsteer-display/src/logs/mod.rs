//! Reads the performance counters that servers of VMware's (now Omnissa's) Horizon and of Citrix counted
//! during a run. Windows logs them (pdh.rs). Known counters (counters.rs) are reported for each run within
//! the log's time, if both clocks are known. Otherwise the whole log is reported.
//!
//! **Untried** with a real Horizon or Citrix: the tests use files made by hand in the documented format. A
//! localised Windows may use other counter names, which then count as unknown; the fault says which language was
//! found (language.rs). Left out: the text logs of both products, because no format is published.

mod counters;
mod language;
mod pdh;

use crate::quality::row::Row;
use counters::Known;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use vsteer_core::{Fault, FaultKind, stats};

/// One counter of one instance over some time.
#[derive(Debug, PartialEq, Serialize)]
pub struct Told {
    /// The machine's name in its log.
    pub host: String,
    /// The session's name in its counter set.
    pub instance: String,
    /// The counter's name, with its unit.
    pub counter: &'static str,
    /// The number of samples.
    pub samples: usize,
    /// Mean, smallest, median and largest value.
    pub mean: f64,
    pub least: f64,
    pub median: f64,
    pub most: f64,
}

/// The counters of one run, or of the whole log.
#[derive(Debug, PartialEq, Serialize)]
pub struct Beside {
    /// The run's number among the rows, from 0; `None`: no run, but the whole log.
    pub row: Option<usize>,
    /// The run's codec.
    pub codec: Option<String>,
    /// The number of targets, if its picture has targets.
    pub targets: Option<u32>,
    /// The counters.
    pub counters: Vec<Told>,
}

/// The content of a log.
#[derive(Debug, PartialEq, Serialize)]
pub struct Log {
    pub file: String,
    /// The products whose counters are in it.
    pub products: Vec<&'static str>,
    /// No real log of these products was available for tests.
    pub untried: bool,
    pub samples: usize,
    /// The first and the last time, s since 1970; `None` if the log does not contain its time zone.
    pub between_unix_s: Option<[f64; 2]>,
    /// The number of ignored columns with unknown counters.
    pub unknown_columns: usize,
    /// Rows and cells that were left out, and why.
    pub notes: Vec<String>,
    /// What the log says beside each run, if their times overlap; otherwise one entry for the whole log.
    pub beside: Vec<Beside>,
}

/// Reads a log, to compare with these runs.
///
/// # Errors
/// It cannot be read, is not such a log, or has no known counter.
pub fn read(file: &Path, rows: &[Row]) -> Result<Log, Fault> {
    let told = |e| Fault::io(format!("reading {}", file.display()), &e);
    let length = std::fs::metadata(file).map_err(told)?.len();
    if length > pdh::BYTES_MOST {
        return Err(Fault::new(FaultKind::BadInput, format!("{}: {length} bytes", file.display()))
            .help("relog FILE -c COUNTERS -f CSV keeps the counters that are wanted"));
    }
    let bytes = std::fs::read(file).map_err(told)?;
    // User names may be in the machine's own code page.
    let text = text_of(&bytes);
    of(&file.display().to_string(), &text, rows).map_err(|mut why| {
        why.what = format!("{}: {}", file.display(), why.what);
        why
    })
}

/// PowerShell's redirection writes UTF-16, with a mark in front.
fn text_of(bytes: &[u8]) -> String {
    let is_big = bytes.starts_with(&[0xfe, 0xff]);
    if !is_big && !bytes.starts_with(&[0xff, 0xfe]) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let word = |w: &[u8]| {
        let pair = [w[0], w[1]];
        if is_big { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) }
    };
    String::from_utf16_lossy(&bytes[2..].chunks_exact(2).map(word).collect::<Vec<u16>>())
}

/// The fault for a log without a counter that vsteer knows.
fn none_known(table: &pdh::Table) -> Fault {
    let (columns, lines) = (table.counters.len(), table.lines.len());
    let what = format!("no counter of Horizon's or Citrix's among {columns} columns, {lines} lines");
    let fault = Fault::new(FaultKind::BadInput, what);
    if lines == 0 {
        return fault.because("the log has no line of values").help(LOG_AGAIN);
    }
    match language::of(table) {
        language::Names::English => {
            fault.because("its names are English, but of other counters").help(LOG_AGAIN)
        }
        language::Names::Other(language, name) => fault
            .because(format!(
                "its names are not English, but {language} ({name:?}); vsteer knows the English names"
            ))
            .help(IN_ENGLISH),
        language::Names::Unknown => fault
            .because(
                "vsteer knows none of its names; a localised Windows may have names that are not English",
            )
            .help(IN_ENGLISH),
    }
}

const LOG_AGAIN: &str = r#"typeperf -f CSV -si 1 -o FILE "\VMware Blast Session Counters(*)\*" "\VMware Blast Imaging Counters(*)\*" "\ICA Session(*)\*""#;
const IN_ENGLISH: &str = r"log again on a Windows whose display language is English (typeperf -f CSV -si 1 -o FILE COUNTERS), or write the English names into the first line: the registry has both by number, HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion\Perflib\009 (English) and Perflib\CurrentLanguage";

fn of(file: &str, text: &str, rows: &[Row]) -> Result<Log, Fault> {
    let table = pdh::read(text)?;
    let columns: Vec<(usize, &pdh::Counter, &Known)> = table
        .counters
        .iter()
        .enumerate()
        .filter_map(|(i, c)| c.as_ref().and_then(|c| Some((i, c, counters::known(c)?))))
        .collect();
    if columns.is_empty() || table.lines.is_empty() {
        return Err(none_known(&table));
    }
    let over = |from: f64, until: f64| -> Vec<Told> {
        columns.iter().filter_map(|(i, c, k)| of_column(&table, *i, c, k, from, until)).collect()
    };
    let mut beside = Vec::new();
    for (i, row) in rows.iter().enumerate().filter(|_| table.knows_zone) {
        let Some(from) = row.from_unix_s else { continue };
        let counters = over(from, from + row.window_s);
        if !counters.is_empty() {
            let (codec, targets) = (Some(row.codec.clone()), row.targets);
            beside.push(Beside { row: Some(i), codec, targets, counters });
        }
    }
    if beside.is_empty() {
        let counters = over(f64::NEG_INFINITY, f64::INFINITY);
        beside.push(Beside { row: None, codec: None, targets: None, counters });
    }
    let mut products: Vec<&str> = columns.iter().map(|(_, _, k)| k.product).collect();
    products.sort_unstable();
    products.dedup();
    let times = [table.lines[0].0, table.lines[table.lines.len() - 1].0];
    Ok(Log {
        file: file.to_owned(),
        products,
        untried: true,
        samples: table.lines.len(),
        between_unix_s: table.knows_zone.then_some(times),
        unknown_columns: table.counters.len() - columns.len(),
        notes: table.notes.clone(),
        beside,
    })
}

/// A column over some time; `None` if it has no values in that time.
fn of_column(
    table: &pdh::Table,
    column: usize,
    counter: &pdh::Counter,
    known: &Known,
    from: f64,
    until: f64,
) -> Option<Told> {
    let mut values = Vec::new();
    let mut before: Option<(f64, f64)> = None;
    for (time, cells) in &table.lines {
        let Some(value) = cells[column] else { continue };
        let value = if known.is_total {
            let last = before.replace((*time, value));
            // A value that fell means a new start, because the session was connected again.
            match last.filter(|(at, was)| *at < *time && *was <= value) {
                Some((at, was)) => (value - was) / (time - at),
                None => continue,
            }
        } else {
            value
        };
        if (from..=until).contains(time) {
            values.push(value * known.scale);
        }
    }
    let fold = |f: fn(f64, f64) -> f64| values.iter().copied().reduce(f);
    Some(Told {
        host: counter.host.clone(),
        instance: counter.instance.clone(),
        counter: known.name,
        samples: values.len(),
        mean: stats::mean(&values)?,
        least: fold(f64::min)?,
        median: stats::quantile(&values, 0.5)?,
        most: fold(f64::max)?,
    })
}

pub fn table(logs: &[Log]) -> String {
    let mut text = String::new();
    for log in logs {
        let clock = if log.between_unix_s.is_some() { "" } else { ", which does not say its time zone" };
        let _ = writeln!(
            text,
            "{} ({}; untried on a real one): {} samples{clock}; {} columns unknown, ignored",
            log.file,
            log.products.join(", "),
            log.samples,
            log.unknown_columns
        );
        for note in &log.notes {
            let _ = writeln!(text, "  {note}");
        }
        for beside in &log.beside {
            let _ = match &beside.codec {
                Some(codec) => {
                    let of = beside.targets.map_or(String::new(), |n| format!(" of {n} targets"));
                    writeln!(text, "  beside {codec}{of}, at the same time:")
                }
                None => writeln!(text, "  the whole log, for no run's time is known to lie within it:"),
            };
            let mut by_session: BTreeMap<(&str, &str), Vec<&Told>> = BTreeMap::new();
            for told in &beside.counters {
                by_session.entry((&told.host, &told.instance)).or_default().push(told);
            }
            for ((host, instance), all) in by_session {
                let _ = writeln!(text, "    {host} {instance}");
                for t in all {
                    let _ = writeln!(
                        text,
                        "      {:<22} mean {:>9.2}  least {:>9.2}  median {:>9.2}  most {:>9.2}",
                        t.counter, t.mean, t.least, t.median, t.most
                    );
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests;
