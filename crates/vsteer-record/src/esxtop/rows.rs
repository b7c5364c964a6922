//! Splits a file that is larger than memory into rows, one at a time.
//!
//! The rows are in one buffer that moves over the file. vsteer parses each row in place.
//!
//! A line break inside quotes is part of a cell. Names in the header may contain one, and some versions break
//! the time into two lines.
//!
//! A small file must not take much memory or time. So a row, the number of columns, and the growth of compressed data
//! have limits far above what esxtop writes.

use super::cells::count;
use super::dialect::{Dialect, header_at};
use super::header::{self, MAGIC};
use super::input::Input;
use crate::sniff::{self, what_is};
use std::io::{self, Read};
use std::ops::Range;
use vsteer_core::limits;
use vsteer_core::plural::counted;
use vsteer_core::{Fault, FaultKind};

/// How many bytes to read at a time.
const CHUNK: usize = 1 << 20;
const ROOM: usize = 8 << 20;
/// The longest row. 60,000 columns need half a megabyte, their names four.
const ROW_MOST: usize = 32 << 20;
/// The most notes about unreadable rows.
const NOTED: usize = 8;

/// A row: its position in the buffer, and in the file.
#[derive(Debug, Clone)]
pub(super) struct Row {
    bytes: Range<usize>,
    /// The line in which it starts, from 1.
    line: u64,
    /// The byte at which it starts in the (decompressed) file.
    byte: u64,
    /// The row has no end, and nothing comes after it.
    pub(super) is_cut: bool,
}

/// Returns the rows, one after another.
pub(super) struct Rows {
    name: String,
    input: Input,
    pub(super) dialect: Dialect,
    buffer: Vec<u8>,
    /// The start of the next row in the buffer, and the end of the filled part.
    start: usize,
    filled: usize,
    line: u64,
    byte: u64,
    ended: bool,
    notes: Vec<String>,
    damage: Option<String>,
    /// The number of left-out rows without a note.
    more: u64,
}

impl Rows {
    pub(super) fn new(input: Input, name: String) -> Rows {
        Rows {
            name,
            input,
            dialect: Dialect::OWN,
            buffer: Vec::new(),
            start: 0,
            filled: 0,
            line: 1,
            byte: 0,
            ended: false,
            notes: Vec::new(),
            damage: None,
            more: 0,
        }
    }

    /// Reads more; `false` at the end. A compressed file that is cut short ends there.
    fn fill(&mut self) -> Result<bool, Fault> {
        if self.ended {
            return Ok(false);
        }
        // The buffer has room for some rows, so that moving the rest of a row to the front is rare.
        if self.buffer.is_empty() {
            self.buffer = vec![0; ROOM];
        }
        if self.start > 0 && self.buffer.len() - self.filled < CHUNK {
            self.buffer.copy_within(self.start..self.filled, 0);
            (self.filled, self.start) = (self.filled - self.start, 0);
        }
        if self.filled - self.start > ROW_MOST {
            return Err(self.refused(&format!("a row exceeds {} MiB", ROW_MOST >> 20)));
        }
        if self.buffer.len() - self.filled < CHUNK {
            self.buffer.resize(self.filled + CHUNK, 0);
        }
        let read = loop {
            match self.input.read(&mut self.buffer[self.filled..]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        match read {
            Ok(0) => self.ended = true,
            Ok(n) => self.filled += n,
            Err(e) if self.input.is_compressed() => {
                let damage = format!("{}: cannot read the rest of its compressed data: {e}", self.name);
                self.notes.push(damage.clone());
                self.damage = Some(damage);
                self.ended = true;
            }
            Err(e) => return Err(Fault::io(format!("cannot read {}", self.name), &e)),
        }
        self.input.check_growth(&self.name)?;
        Ok(!self.ended)
    }

    fn refused(&self, why: &str) -> Fault {
        Fault::new(FaultKind::BadInput, format!("{} is not a batch file of esxtop", self.name))
            .because(format!("{}: {why}", self.place(self.line, self.byte)))
            .help("make one: esxtop -b -a > FILE")
    }

    /// A place in the file, for people. Bytes of decoded text are not those of the file.
    fn place(&self, line: u64, byte: u64) -> String {
        if self.input.is_decoded() { format!("line {line}") } else { format!("line {line}, byte {byte}") }
    }

    /// The cells of the header. The header ends where a row begins, because names may contain line breaks.
    pub(super) fn header(&mut self) -> Result<Vec<String>, Fault> {
        self.begin()?;
        self.dialect = Dialect::of(&self.buffer[self.start..self.filled]);
        // First the end according to CSV's quotes. If no row begins there, some name contains a single quote.
        let found = match self.header_end(true) {
            Ok(None) => self.header_end(false),
            found => found,
        };
        let rest = &self.buffer[self.start..self.filled];
        let end = match (found, self.unproven_end(rest)) {
            (Ok(Some(end)), _) | (_, Some(end)) => end,
            (Ok(None), None) => rest.len(),
            (Err(fault), None) => return Err(fault),
        };
        let bytes = &rest[..end];
        let cells = header::cells(without_end(bytes), self.dialect.separator).ok_or_else(|| {
            self.refused(&format!("the header names over {} columns", header::COLUMNS_MOST))
        })?;
        if std::str::from_utf8(bytes).is_err() {
            self.notes.push(format!(
                "{}: names are not in UTF-8: vsteer shows \u{fffd} for what it cannot read",
                self.name
            ));
        }
        self.line += count(bytes, b'\n') as u64;
        self.byte += end as u64;
        self.start += end;
        Ok(cells)
    }

    /// Goes to the start of the header, behind lines that other programs wrote.
    fn begin(&mut self) -> Result<(), Fault> {
        while self.filled < FIRST && self.fill()? {}
        while header_at(&self.buffer[..self.filled]).is_none()
            && self.filled < limits::ESXTOP_PREAMBLE
            && self.fill()?
        {}
        let first = &self.buffer[..self.filled];
        let Some(at) = header_at(first) else {
            let Some(known) = what_is(first).filter(|k| k.reader != Some(sniff::Reader::Esxtop)) else {
                let first = shown(&first[..first.len().min(40)]);
                return Err(self.refused(&format!("it begins with {first:?}, not with \"{MAGIC} ...\"")));
            };
            let it = if self.input.is_compressed() { "the decompressed data" } else { "it" };
            return Err(Fault::new(
                FaultKind::BadInput,
                format!("{} is not a batch file of esxtop", self.name),
            )
            .because(format!("{it} is {}", known.name))
            .help(known.help));
        };
        let before = &first[..at];
        let before = before.strip_prefix(b"\xef\xbb\xbf").unwrap_or(before);
        let lines = count(before, b'\n') as u64;
        // A spreadsheet's own line, and empty ones, say nothing.
        let is_silent = |line: &[u8]| line.trim_ascii().is_empty() || line.starts_with(b"sep=");
        if before.split(|b| *b == b'\n').any(|line| !is_silent(line)) {
            let lines = counted(lines, "line");
            self.notes.push(format!("{}: vsteer leaves out {lines} before the header", self.name));
        }
        (self.line, self.byte, self.start) = (1 + lines, at as u64, at);
        if self.buffer[at..self.filled].starts_with(b"\xef\xbb\xbf") {
            (self.start, self.byte) = (at + 3, at as u64 + 3);
        }
        Ok(())
    }

    /// The length of the header: it ends with a line behind which a row begins, and outside of quotes if `by_quotes`.
    fn header_end(&mut self, by_quotes: bool) -> Result<Option<usize>, Fault> {
        let (mut quotes, mut at) = (0usize, self.start);
        loop {
            let found = memchr::memchr(b'\n', &self.buffer[at..self.filled]).map(|i| at + i);
            let Some(newline) = found else {
                let scanned = self.filled - self.start;
                quotes += if by_quotes { count(&self.buffer[at..self.filled], b'"') } else { 0 };
                if !self.fill()? {
                    return Ok(None);
                }
                at = self.start + scanned;
                continue;
            };
            quotes += if by_quotes { count(&self.buffer[at..newline], b'"') } else { 0 };
            let next = newline + 1 - self.start;
            while self.filled - self.start < next + TIME && self.fill()? {}
            let after = &self.buffer[self.start + next..self.filled];
            if (!by_quotes || quotes % 2 == 0) && is_row(after) {
                return Ok(Some(next));
            }
            at = self.start + next;
        }
    }

    /// The length of the header if no row begins with a date: the next line has as many cells. So a file whose times
    /// are not valid is refused for its times.
    fn unproven_end(&self, rest: &[u8]) -> Option<usize> {
        let end = memchr::memchr(b'\n', rest)? + 1;
        let next = rest[end..].split(|b| *b == b'\n').next()?;
        let cells = count(&rest[..end], self.dialect.separator);
        (cells > 0 && count(next, self.dialect.separator) == cells).then_some(end)
    }

    /// Why the rest of compressed data could not be read.
    pub(super) fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// The next row; skips empty lines.
    pub(super) fn next(&mut self) -> Result<Option<Row>, Fault> {
        loop {
            let Some(row) = self.line()? else { return Ok(None) };
            if !self.bytes(&row).iter().all(u8::is_ascii_whitespace) {
                return Ok(Some(row));
            }
            if row.is_cut {
                return Ok(None);
            }
        }
    }

    fn line(&mut self) -> Result<Option<Row>, Fault> {
        let (mut seen, mut lines) = (0, 0);
        loop {
            let rest = &self.buffer[self.start..self.filled];
            let Some(i) = memchr::memchr(b'\n', &rest[seen..]).map(|i| seen + i) else {
                seen = rest.len();
                if self.fill()? {
                    continue;
                }
                let bytes = self.start..self.filled;
                return Ok((!bytes.is_empty()).then(|| self.take(bytes, seen, lines, true)));
            };
            let quoted = rest.first() == Some(&b'"');
            let before = rest[..i].strip_suffix(b"\r").unwrap_or(&rest[..i]).last();
            if quoted && before.is_some_and(|b| *b != b'"' && *b != self.dialect.separator) {
                (seen, lines) = (i + 1, lines + 1);
                continue;
            }
            return Ok(Some(self.take(self.start..self.start + i, i + 1, lines + 1, false)));
        }
    }

    fn take(&mut self, bytes: Range<usize>, length: usize, lines: u64, is_cut: bool) -> Row {
        let row = Row { line: self.line, byte: self.byte, is_cut, bytes };
        self.line += lines;
        self.byte += length as u64;
        self.start += length;
        row
    }

    /// A row's bytes without its line end. Valid until the next row is read.
    pub(super) fn bytes(&self, row: &Row) -> &[u8] {
        without_end(&self.buffer[row.bytes.clone()])
    }

    /// Notes why a row, or its cell at `offset`, was left out.
    pub(super) fn note(&mut self, row: &Row, offset: usize, why: &str) {
        if self.notes.len() >= NOTED {
            self.more += 1;
            return;
        }
        let place = self.place(row.line, row.byte + offset as u64);
        self.notes.push(format!("{}, {place}: {why}", self.name));
    }

    /// The notes about rows and cells that were left out.
    pub(super) fn notes(&self) -> Vec<String> {
        let more = (self.more > 0).then(|| format!("{}: {} more such lines", self.name, self.more));
        self.notes.iter().cloned().chain(more).collect()
    }
}

fn without_end(row: &[u8]) -> &[u8] {
    let row = row.strip_suffix(b"\n").unwrap_or(row);
    row.strip_suffix(b"\r").unwrap_or(row)
}

/// How many bytes show whether the header is at the start.
const FIRST: usize = 64;
/// The length of a quoted time.
const TIME: usize = 21;

/// Does a row begin here? A row begins with a time: `"11/24/2026 08:00:00"`.
fn is_row(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\"").unwrap_or(bytes);
    let Some(separator) = bytes.iter().find(|b| !b.is_ascii_digit()).filter(|b| b"/.-".contains(b)) else {
        return false;
    };
    let date = bytes.iter().take_while(|b| b.is_ascii_digit() || *b == separator).count();
    (8..=10).contains(&date) && count(&bytes[..date], *separator) == 2
}

/// Bytes as text for people.
pub(super) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows_of(text: &[u8]) -> Rows {
        Rows::new(Input::of(io::Cursor::new(text.to_vec())).unwrap(), "file".to_owned())
    }

    #[test]
    fn a_time_in_two_lines_and_names_with_ends_of_lines() {
        let text = b"\"(PDH-CSV 4.0) (UTC)(0)\",\"\\\\h\\Group Cpu(1:a\nb\r\n)\\% Run\"\r\n\"11/24/2026\n08:00:00\",\"1.00\"\r\n\r\n\"11/24/2026\n08:00:05\",\"2.00\"";
        let mut rows = rows_of(text);
        assert_eq!(rows.header().unwrap().len(), 2);
        let first = rows.next().unwrap().unwrap();
        assert_eq!(rows.bytes(&first), b"\"11/24/2026\n08:00:00\",\"1.00\"");
        assert_eq!(first.line, 4);
        let second = rows.next().unwrap().unwrap();
        assert!(second.is_cut && rows.bytes(&second).ends_with(b"\"2.00\""));
        assert!(rows.next().unwrap().is_none());
    }

    proptest! {
        /// For any size of the pieces in which a file arrives.
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut text = b"\"(PDH-CSV 4.0) (UTC)(0)\",".to_vec();
            text.extend(bytes);
            let mut rows = rows_of(&text);
            let _ = rows.header().unwrap();
            let mut n = 0;
            while rows.next().unwrap().is_some() {
                n += 1;
            }
            prop_assert!(n <= text.len());
        }
    }
}
