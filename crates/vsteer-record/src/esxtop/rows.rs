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
use super::header::{self, MAGIC};
use super::input::Input;
use std::io::{self, Read};
use std::ops::Range;
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
    buffer: Vec<u8>,
    /// The start of the next row in the buffer, and the end of the filled part.
    start: usize,
    filled: usize,
    line: u64,
    byte: u64,
    ended: bool,
    notes: Vec<String>,
    /// The number of left-out rows without a note.
    more: u64,
}

impl Rows {
    pub(super) fn new(input: Input, name: String) -> Rows {
        Rows {
            name,
            input,
            buffer: Vec::new(),
            start: 0,
            filled: 0,
            line: 1,
            byte: 0,
            ended: false,
            notes: Vec::new(),
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
                self.notes.push(format!("{}: cannot read the rest of its compressed data: {e}", self.name));
                self.ended = true;
            }
            Err(e) => return Err(Fault::io(format!("cannot read {}", self.name), &e)),
        }
        self.input.check_growth(&self.name)?;
        Ok(!self.ended)
    }

    fn refused(&self, why: &str) -> Fault {
        Fault::new(FaultKind::BadInput, format!("{} is not a batch file of esxtop", self.name))
            .because(format!("line {}, byte {}: {why}", self.line, self.byte))
            .help("make one: esxtop -b -a > FILE")
    }

    /// The cells of the header. The header ends where a row begins, because names may contain line breaks.
    pub(super) fn header(&mut self) -> Result<Vec<String>, Fault> {
        while self.filled < 64 && self.fill()? {}
        if self.buffer[..self.filled].starts_with(b"\xef\xbb\xbf") {
            (self.start, self.byte) = (3, 3);
        }
        if !header::begins(&self.buffer[self.start..self.filled]) {
            let first = shown(&self.buffer[self.start..self.filled.min(self.start + 40)]);
            return Err(self.refused(&format!("it begins with {first:?}, not with \"{MAGIC} ...\"")));
        }
        // First the end according to CSV's quotes. If no row begins there, some name contains a single quote.
        let mut end = None;
        for by_quotes in [true, false] {
            let (mut quotes, mut at) = (0usize, self.start);
            while end.is_none() {
                let found = memchr::memchr(b'\n', &self.buffer[at..self.filled]).map(|i| at + i);
                let Some(newline) = found else {
                    let scanned = self.filled - self.start;
                    quotes += if by_quotes { count(&self.buffer[at..self.filled], b'"') } else { 0 };
                    if !self.fill()? {
                        break;
                    }
                    at = self.start + scanned;
                    continue;
                };
                quotes += if by_quotes { count(&self.buffer[at..newline], b'"') } else { 0 };
                let next = newline + 1 - self.start;
                while self.filled - self.start < next + TIME && self.fill()? {}
                let after = &self.buffer[self.start + next..self.filled];
                if (!by_quotes || quotes % 2 == 0) && (after.is_empty() || is_row(after)) {
                    end = Some(next);
                }
                at = self.start + next;
            }
        }
        // There is no row, so the whole file is the header.
        let end = end.unwrap_or(self.filled - self.start);
        let bytes = &self.buffer[self.start..self.start + end];
        let cells = header::cells(without_end(bytes)).ok_or_else(|| {
            self.refused(&format!("the header names over {} columns", header::COLUMNS_MOST))
        })?;
        let bytes = &self.buffer[self.start..self.start + end];
        self.line += count(bytes, b'\n') as u64;
        self.byte += end as u64;
        self.start += end;
        Ok(cells)
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
            if quoted && !matches!(before, Some(b'"' | b',') | None) {
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
        let (line, byte) = (row.line, row.byte + offset as u64);
        self.notes.push(format!("{}, line {line}, byte {byte}: {why}", self.name));
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

/// The length of a quoted time.
const TIME: usize = 21;

/// Does a row begin here? A row begins with a time: `"11/24/2026 08:00:00"`.
fn is_row(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\"").unwrap_or(bytes);
    let date = bytes.iter().take_while(|b| b.is_ascii_digit() || **b == b'/').count();
    (8..=10).contains(&date) && count(&bytes[..date], b'/') == 2
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
