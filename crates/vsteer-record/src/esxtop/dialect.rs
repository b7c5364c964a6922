//! How does this file differ from what esxtop writes, and what is the same row in esxtop's own form?
//!
//! esxtop writes quoted cells, commas between them, and decimal points. A spreadsheet that saves the file again may
//! write semicolons or tabs, decimal commas and no quotes; other programs double backslashes or put lines in front.
//! The header shows which: its first cell names the format, and every further cell begins with two backslashes.
//!
//! Rows in esxtop's own form are read where they lie. A row in another form is first rewritten ([`Dialect::own`]).

use super::header::{MAGIC, begins};
use vsteer_core::limits;

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dialect {
    /// The byte between cells.
    pub(super) separator: u8,
}

/// Where the header begins within the first bytes of a file; `None` if there is none.
pub(super) fn header_at(bytes: &[u8]) -> Option<usize> {
    let bytes = &bytes[..bytes.len().min(limits::ESXTOP_PREAMBLE)];
    let starts = std::iter::once(0).chain(memchr::memchr_iter(b'\n', bytes).map(|i| i + 1));
    let behind_blanks = |at: usize| at + bytes[at..].iter().take_while(|b| **b == b' ').count();
    starts.map(behind_blanks).find(|at| begins(&bytes[*at..]))
}

impl Dialect {
    /// As esxtop writes.
    pub(super) const OWN: Dialect = Dialect { separator: b',' };

    /// Recognises it from the first bytes of the header.
    pub(super) fn of(header: &[u8]) -> Dialect {
        let rest = header.strip_prefix(b"\"").unwrap_or(header);
        // Zones contain brackets, blanks and letters: the first separator stands before the first path.
        let Some(path) = memchr::memmem::find(rest, br"\") else { return Dialect::OWN };
        let before = rest[..path].strip_suffix(b"\"").unwrap_or(&rest[..path]);
        match before.last() {
            Some(separator @ (b';' | b'\t')) if before.len() > MAGIC.len() => {
                Dialect { separator: *separator }
            }
            _ => Dialect::OWN,
        }
    }

    /// Does it have esxtop's own separator?
    pub(super) fn is_own(self) -> bool {
        self == Dialect::OWN
    }

    /// Rewrites a row to esxtop's own form: quoted cells, commas between them, decimal points.
    pub(super) fn own(self, row: &[u8], into: &mut Vec<u8>) {
        into.clear();
        // Where points separate decimals, a comma separates thousands.
        let may_be_decimal = !self.cells(row).skip(1).any(has_decimal_point);
        for (i, cell) in self.cells(row).enumerate() {
            if i > 0 {
                into.push(b',');
            }
            into.push(b'"');
            match decimal_comma(cell).filter(|at| may_be_decimal && self.is_certain(cell.len() - at - 1)) {
                Some(at) => {
                    into.extend_from_slice(&cell[..at]);
                    into.push(b'.');
                    into.extend_from_slice(&cell[at + 1..]);
                }
                // No counter's value contains a comma or a quote. Without them, the cell stays one cell.
                None => into.extend(cell.iter().map(|b| if matches!(b, b',' | b'"') { b'?' } else { *b })),
            }
            into.push(b'"');
        }
    }

    /// Does a comma before so many digits separate decimals? Where commas separate cells, esxtop's two decimals have
    /// become `12,34`, but `1,234` may also be a thousand.
    fn is_certain(self, digits: usize) -> bool {
        !self.is_own() || digits != 3
    }

    fn cells(self, row: &[u8]) -> impl Iterator<Item = &[u8]> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let (cell, next) = (at <= row.len()).then(|| cell(row, at, self.separator))?;
            at = next;
            Some(cell)
        })
    }
}

/// The cell at `at`, and where the next one begins. A quote inside a quoted cell is doubled, or no separator follows.
fn cell(row: &[u8], at: usize, separator: u8) -> (&[u8], usize) {
    let rest = &row[at..];
    if rest.first() == Some(&b'"') {
        let closes = |i: &usize| rest.get(i + 1).is_none_or(|b| *b == separator);
        if let Some(end) = memchr::memchr_iter(b'"', &rest[1..]).map(|i| i + 1).find(closes) {
            return (&rest[1..end], at + end + 2);
        }
    }
    let end = memchr::memchr(separator, rest).unwrap_or(rest.len());
    (&rest[..end], at + end + 1)
}

/// Is it a number like `-12.5`?
fn has_decimal_point(cell: &[u8]) -> bool {
    let digits = cell.strip_prefix(b"-").unwrap_or(cell);
    let point = memchr::memchr(b'.', digits).filter(|at| *at > 0 && at + 1 < digits.len());
    point.is_some_and(|at| digits.iter().enumerate().all(|(i, b)| i == at || b.is_ascii_digit()))
}

/// The place of the comma in a number like `-12,5`.
fn decimal_comma(cell: &[u8]) -> Option<usize> {
    let digits = cell.strip_prefix(b"-").unwrap_or(cell);
    let at = memchr::memchr(b',', digits)?;
    let are_digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    (are_digits(&digits[..at]) && are_digits(&digits[at + 1..])).then(|| at + cell.len() - digits.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(separator: u8, row: &str) -> String {
        let mut into = Vec::new();
        Dialect { separator }.own(row.as_bytes(), &mut into);
        String::from_utf8(into).unwrap()
    }

    #[test]
    fn the_header_shows_the_separator() {
        let of = |header: &[u8]| Dialect::of(header).separator;
        assert_eq!(of(br#""(PDH-CSV 4.0) (UTC)(0)","\\h\Group Cpu(1:a;b)\% Run""#), b',');
        assert_eq!(of(br"(PDH-CSV 4.0) (UTC)(0);\\h\Group Cpu(1:a,b)\% Run"), b';');
        assert_eq!(of(b"\"(PDH-CSV 4.0) (UTC)(0)\"\t\"\\\\h\\Group Cpu(1:a,b)\\% Run\""), b'\t');
        assert_eq!(of(b"(PDH-CSV 4.0)"), b',');
        assert_eq!(of(b""), b',');
    }

    #[test]
    fn the_header_is_found_behind_other_lines() {
        assert_eq!(header_at(b"\"(PDH-CSV 4.0) (UTC)(0)\""), Some(0));
        assert_eq!(header_at(b"sep=,\r\n\"(PDH-CSV 4.0) (UTC)(0)\""), Some(7));
        assert_eq!(header_at(b"\n  (PDH-CSV 4.0)"), Some(3));
        assert_eq!(header_at(b"a \"(PDH-CSV 4.0)\"\n"), None, "not at the start of a line");
        assert_eq!(
            header_at(&[&b"x\n".repeat(limits::ESXTOP_PREAMBLE)[..], b"(PDH-CSV 4.0)"].concat()),
            None
        );
    }

    #[test]
    fn rows_in_other_forms() {
        assert_eq!(
            own(b';', "24.11.2026 08:00;12,34;5;;-1,5"),
            r#""24.11.2026 08:00","12.34","5","","-1.5""#
        );
        assert_eq!(own(b';', r#""x";"1,00";"2""#), r#""x","1.00","2""#);
        assert_eq!(own(b',', r#""x","1,00","1.234,5","a"b","","#), r#""x","1.00","1.234?5","a?b","","""#);
        // Thousands are not decimals.
        assert_eq!(own(b',', r#""x","1,00","2.50""#), r#""x","1?00","2.50""#);
        assert_eq!(own(b',', r#""x","1,234","2,5""#), r#""x","1?234","2.5""#);
        assert_eq!(own(b';', r#""1.1.2026 8:00";1,234"#), r#""1.1.2026 8:00","1.234""#);
        assert_eq!(own(b'\t', "x\t1.5\t"), r#""x","1.5","""#);
        assert_eq!(own(b';', ""), r#""""#);
    }
}
