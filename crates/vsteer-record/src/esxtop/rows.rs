//! Where does a row end, and which of its cells matter? A file that is larger than memory, a row at a time.
//!
//! Rows lie in one buffer that moves over the file; a row is looked at where it lies. A row is hundreds of kilobytes of
//! which a fraction matters, so cells are not split one by one: commas are counted, eight bytes at a time or more, up to the
//! next column that somebody wants ([`skip`]).
//!
//! A line's end inside quotes is a part of a cell: names in the header may hold it, and some versions break the time in two
//! lines.

use super::header::{self, MAGIC};
use std::io::{self, BufRead, Read};
use std::ops::Range;
use vsteer_core::{Fault, FaultKind};

/// What is read at a time.
const CHUNK: usize = 1 << 20;
/// Held at least.
const ROOM: usize = 8 << 20;
/// A row longer than this is none: 60,000 columns make half a megabyte, their names four.
const ROW_MOST: usize = 256 << 20;
/// Rows that cannot be read are named one by one up to so many.
const NOTED: usize = 8;

/// A file's bytes, decompressed where they were compressed.
pub enum Input {
    /// As they lie.
    Plain(Box<dyn BufRead>),
    /// By gzip, in one member or several.
    Gzip(Box<flate2::bufread::MultiGzDecoder<Box<dyn BufRead>>>),
}

impl Input {
    /// Looks at the first bytes.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn of(from: impl BufRead + 'static) -> io::Result<Input> {
        let mut from: Box<dyn BufRead> = Box::new(from);
        let is_gzip = from.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        Ok(if is_gzip {
            Input::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(from)))
        } else {
            Input::Plain(from)
        })
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Input::Plain(from) => from.read(into),
            Input::Gzip(from) => from.read(into),
        }
    }
}

/// A row: where it lies in the buffer, and in the file.
#[derive(Debug, Clone)]
pub(super) struct Row {
    bytes: Range<usize>,
    /// The line that it begins in, from 1.
    line: u64,
    /// Where it begins in the (decompressed) file.
    byte: u64,
    /// It does not end as a row does, and nothing comes after it.
    pub(super) is_cut: bool,
}

/// Rows, one after another.
pub(super) struct Rows {
    name: String,
    input: Input,
    buffer: Vec<u8>,
    /// Where the next row begins in the buffer, and what is filled.
    start: usize,
    filled: usize,
    line: u64,
    byte: u64,
    ended: bool,
    notes: Vec<String>,
    /// Rows that were left out and are not named.
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

    /// Reads on; `false` at the end. A compressed file that is cut short ends there.
    fn fill(&mut self) -> Result<bool, Fault> {
        if self.ended {
            return Ok(false);
        }
        // Room for some rows: what is left of one is moved to the front now and then, not for each chunk.
        if self.buffer.is_empty() {
            self.buffer = vec![0; ROOM];
        }
        if self.start > 0 && self.buffer.len() - self.filled < CHUNK {
            self.buffer.copy_within(self.start..self.filled, 0);
            (self.filled, self.start) = (self.filled - self.start, 0);
        }
        if self.filled - self.start > ROW_MOST {
            return Err(self.refused(&format!("a row of more than {} MiB is none", ROW_MOST >> 20)));
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
            Err(e) => match &self.input {
                Input::Plain(_) => return Err(Fault::io(format!("reading {}", self.name), &e)),
                Input::Gzip(_) => {
                    self.notes
                        .push(format!("{}: its compressed data break off or are garbled: {e}", self.name));
                    self.ended = true;
                }
            },
        }
        Ok(!self.ended)
    }

    fn refused(&self, why: &str) -> Fault {
        Fault::new(FaultKind::BadInput, format!("{} is no batch file of esxtop's", self.name))
            .because(format!("line {}, byte {}: {why}", self.line, self.byte))
            .way_out("esxtop -b -a > FILE writes one")
    }

    /// The header's cells. It ends where a row begins, for names may hold lines' ends.
    pub(super) fn header(&mut self) -> Result<Vec<String>, Fault> {
        while self.filled < 64 && self.fill()? {}
        if self.buffer[..self.filled].starts_with(b"\xef\xbb\xbf") {
            (self.start, self.byte) = (3, 3);
        }
        if !header::begins(&self.buffer[self.start..self.filled]) {
            let first = shown(&self.buffer[self.start..self.filled.min(self.start + 40)]);
            return Err(self.refused(&format!("it begins with {first:?} in place of \"{MAGIC} ...\"")));
        }
        // By quotes, as CSV has it; if no row begins where they say, some name holds a single one.
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
        // No row at all: the file is its header.
        let end = end.unwrap_or(self.filled - self.start);
        let bytes = &self.buffer[self.start..self.start + end];
        let cells = header::cells(without_end(bytes));
        self.line += count(bytes, b'\n') as u64;
        self.byte += end as u64;
        self.start += end;
        Ok(cells)
    }

    /// The next row; empty lines are passed over.
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

    /// A row's bytes, without its end. Holds until the next is read.
    pub(super) fn bytes(&self, row: &Row) -> &[u8] {
        without_end(&self.buffer[row.bytes.clone()])
    }

    /// Notes why a row, or a cell at `offset` of it, was left out.
    pub(super) fn note(&mut self, row: &Row, offset: usize, why: &str) {
        if self.notes.len() >= NOTED {
            self.more += 1;
            return;
        }
        let (line, byte) = (row.line, row.byte + offset as u64);
        self.notes.push(format!("{}, line {line}, byte {byte}: {why}", self.name));
    }

    /// What was left out.
    pub(super) fn notes(&self) -> Vec<String> {
        let more = (self.more > 0).then(|| format!("{}: and {} more such places", self.name, self.more));
        self.notes.iter().cloned().chain(more).collect()
    }
}

fn without_end(row: &[u8]) -> &[u8] {
    let row = row.strip_suffix(b"\n").unwrap_or(row);
    row.strip_suffix(b"\r").unwrap_or(row)
}

/// How long a quoted time is.
const TIME: usize = 21;

/// Does a row begin here? With a time: `"11/24/2026 08:00:00"`.
fn is_row(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\"").unwrap_or(bytes);
    let date = bytes.iter().take_while(|b| b.is_ascii_digit() || **b == b'/').count();
    (8..=10).contains(&date) && count(&bytes[..date], b'/') == 2
}

/// How many of a byte there are. Compilers make this eight or sixteen bytes at a time.
fn count(bytes: &[u8], of: u8) -> usize {
    // Counts of 64 bytes fit one byte, which is what keeps it narrow.
    let chunks = bytes.chunks_exact(64);
    let rest = chunks.remainder().iter().filter(|b| **b == of).count();
    rest + chunks.map(|c| usize::from(c.iter().map(|b| u8::from(*b == of)).sum::<u8>())).sum::<usize>()
}

/// A comma in each byte of a word.
const COMMAS: u64 = 0x2c2c_2c2c_2c2c_2c2c;
const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// The top bit of each byte of a word that is a comma (Mycroft's test for zero bytes, the exact form).
#[inline]
fn commas(word: u64) -> u64 {
    let x = word ^ COMMAS;
    !(((x & LOW) + LOW) | x | LOW)
}

/// Where the cell begins that is `n` cells after the one that begins at `at`; `None` where there are fewer.
#[inline]
pub(super) fn skip(row: &[u8], mut at: usize, mut n: usize) -> Option<usize> {
    if n == 0 {
        return Some(at);
    }
    // A cell is seven bytes or so: 64 bytes hold no more than nine of them, as a rule.
    while n > 64
        && let Some(chunk) = row.get(at..at + 64)
    {
        let here = count(chunk, b',');
        if here >= n {
            break;
        }
        (n, at) = (n - here, at + 64);
    }
    while let Some(word) = row.get(at..at + 8).and_then(|w| w.try_into().ok()) {
        let mut found = commas(u64::from_le_bytes(word));
        // One bit of each byte, added up in the top byte.
        let here = ((found >> 7).wrapping_mul(0x0101_0101_0101_0101) >> 56) as usize;
        if here >= n {
            for _ in 1..n {
                found &= found - 1;
            }
            return Some(at + found.trailing_zeros() as usize / 8 + 1);
        }
        (n, at) = (n - here, at + 8);
    }
    let rest = row.get(at..)?.iter().enumerate().filter(|(_, b)| **b == b',').nth(n - 1)?;
    Some(at + rest.0 + 1)
}

/// The value of a cell in esxtop's own form, `"12.34"`, that begins at `at`; `None` for any other form.
#[inline]
pub(super) fn plain_number(row: &[u8], at: usize) -> Option<f64> {
    let rest = row.get(at..)?.strip_prefix(b"\"")?;
    let mut value = 0u32;
    let mut i = 0;
    loop {
        match rest.get(i)? {
            b @ b'0'..=b'9' if i < 7 => value = value * 10 + u32::from(b - b'0'),
            b'.' if i > 0 => break,
            _ => return None,
        }
        i += 1;
    }
    let [tenths, hundredths, b'"'] = *rest.get(i + 1..i + 4)? else { return None };
    let (tenths, hundredths) = (tenths.wrapping_sub(b'0'), hundredths.wrapping_sub(b'0'));
    if tenths > 9 || hundredths > 9 || !matches!(rest.get(i + 4), None | Some(b',')) {
        return None;
    }
    Some((f64::from(value) * 100.0 + f64::from(tenths * 10 + hundredths)) / 100.0)
}

/// The cell that begins at `at`, without its quotes.
pub(super) fn cell(row: &[u8], at: usize) -> &[u8] {
    let rest = &row[at..];
    let cell = &rest[..memchr::memchr(b',', rest).unwrap_or(rest.len())];
    match cell {
        [b'"', inside @ .., b'"'] => inside,
        [b'"', inside @ ..] => inside,
        other => other,
    }
}

/// How many cells there are from `at` on.
pub(super) fn cells_from(row: &[u8], at: usize) -> usize {
    1 + count(&row[at..], b',')
}

/// A share in percent, `12.34`; `NaN` for an empty cell, `None` for what is no number of 0 or more.
pub(super) fn number(cell: &[u8]) -> Option<f64> {
    let (mut digits, mut places, mut value) = (0u32, None::<u32>, 0u64);
    for b in cell {
        match b {
            b'0'..=b'9' if digits < 18 => {
                value = value * 10 + u64::from(b - b'0');
                digits += 1;
                places = places.map(|p| p + 1);
            }
            b'.' if places.is_none() => places = Some(0),
            _ => return slow_number(cell),
        }
    }
    match digits {
        0 => slow_number(cell),
        _ => Some(value as f64 / POWERS[places.unwrap_or(0) as usize]),
    }
}

const POWERS: [f64; 19] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18];

/// Numbers in other forms (blanks around it, exponents).
fn slow_number(cell: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(cell).ok()?.trim();
    if text.is_empty() {
        return Some(f64::NAN);
    }
    text.parse().ok().filter(|v: &f64| v.is_finite() && *v >= 0.0)
}

/// Bytes for a person.
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
    fn numbers() {
        assert_eq!(number(b"12.34"), Some(12.34));
        assert_eq!(number(b"0.00"), Some(0.0));
        assert_eq!(number(b" 7 "), Some(7.0));
        assert_eq!(number(b"1e3"), Some(1000.0));
        assert_eq!(number(b"123456789012345678901.5"), Some(123456789012345678901.5));
        assert!(number(b"").unwrap().is_nan() && number(b" ").unwrap().is_nan());
        for wrong in ["-1.00", "1.2.3", "abc", "nan", "inf", ".", "12.3x"] {
            assert_eq!(number(wrong.as_bytes()), None, "{wrong:?}");
        }
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
        /// Skipping cells lands where splitting does.
        #[test]
        fn skipping_is_splitting(cells in proptest::collection::vec("[0-9.\"]{0,9}", 1..200), n in 0usize..220) {
            let row = cells.join(",").into_bytes();
            let split: Vec<usize> = std::iter::once(0)
                .chain(row.iter().enumerate().filter(|(_, b)| **b == b',').map(|(i, _)| i + 1)).collect();
            prop_assert_eq!(skip(&row, 0, n), split.get(n).copied());
            prop_assert_eq!(cells_from(&row, 0), cells.len());
        }

        /// A number is what the standard library says it is.
        #[test]
        fn numbers_as_printed(v in 0.0f64..1e9, digits in 0usize..6) {
            let text = format!("{v:.digits$}");
            prop_assert_eq!(number(text.as_bytes()), text.parse().ok());
            let cell = format!("\"{text}\",\"1.00\"");
            if let Some(plain) = plain_number(cell.as_bytes(), 0) {
                prop_assert_eq!(Some(plain), text.parse().ok());
            }
            prop_assert!(digits != 2 || v >= 1e7 || plain_number(cell.as_bytes(), 0).is_some());
        }

        /// However small the pieces that a file comes in.
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
