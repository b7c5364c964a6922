//! The minutes that are in no Parquet file yet: `journal.jsonl`, a line for each.
//!
//! A line is the checksum of a JSON text, a space, and that text. vsteer writes a line with one call and syncs it, so a power
//! cut damages at most the last line. The reader skips a damaged line and goes on after it. The rows of a minute have the
//! distributions of wake-ups here, because the hour needs them.

use super::column::histogram;
use super::row::{MINUTE_MS, Minute};
use crate::{files, system};
use std::io::{self, BufReader};
use std::path::Path;
use vsteer_core::limits;
use vsteer_core::nouns::Histogram;
use vsteer_core::{Fault, FaultKind};

/// Name of the file.
pub const NAME: &str = "journal.jsonl";

fn checksum(text: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(text);
    crc.sum()
}

/// The line of a minute, with its end.
pub fn line(minute: &Minute) -> Vec<u8> {
    let text = serde_json::to_vec(minute).expect("a minute is plain data");
    let mut line = format!("{:08x} ", checksum(&text)).into_bytes();
    line.extend(text);
    line.push(b'\n');
    line
}

/// The minute of a line without its end; `None` if the line is damaged.
pub fn minute(line: &[u8]) -> Option<Minute> {
    let (sum, text) = (line.get(..8)?, line.strip_prefix(line.get(..8)?)?.strip_prefix(b" ")?);
    let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    if sum != checksum(text) {
        return None;
    }
    let mut minute: Minute = serde_json::from_slice(text).ok()?;
    // An attacker who can write the file can also write its checksums.
    minute.unix_ms = minute.unix_ms.min(limits::HISTORY_LAST_MS) / MINUTE_MS * MINUTE_MS;
    minute.host.iter_mut().for_each(|row| row.unix_ms = minute.unix_ms);
    for row in &mut minute.vms {
        row.unix_ms = minute.unix_ms;
        row.wake = row.wake.as_ref().map(clean);
        row.costs.truncate(super::row::COSTS);
    }
    minute.events.iter_mut().for_each(|e| e.unix_ms = e.unix_ms.min(limits::HISTORY_LAST_MS));
    Some(minute)
}

fn clean(wake: &Histogram) -> Histogram {
    let (buckets, counts): (Vec<u16>, Vec<i64>) =
        wake.counts.iter().map(|(b, c)| (*b, i64::try_from(*c).unwrap_or(i64::MAX))).unzip();
    histogram(&buckets, &counts)
}

/// Passes each whole line on, with its minute. Returns the number of damaged lines.
///
/// # Errors
/// If the file cannot be read. No file is an empty one.
pub fn each(path: &Path, mut give: impl FnMut(&[u8], Minute)) -> Result<usize, Fault> {
    let failed = |e: &io::Error| Fault::io(format!("cannot read {}", path.display()), e);
    let file = match system::open_ordinary(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        other => other.map_err(|e| failed(&e))?,
    };
    let length = file.metadata().map_err(|e| failed(&e))?.len();
    if length > limits::HISTORY_JOURNAL {
        let what = format!("cannot read {}", path.display());
        return Err(Fault::new(FaultKind::BadInput, what)
            .because(format!("the file has more than {} MiB", limits::HISTORY_JOURNAL >> 20)));
    }
    let mut damaged = 0;
    for line in files::lines(BufReader::new(file), limits::HISTORY_LINE) {
        let line = line.map_err(|e| failed(&e))?;
        match minute(&line) {
            Some(minute) => give(&line, minute),
            None if line.is_empty() => {}
            None => damaged += 1,
        }
    }
    Ok(damaged)
}
