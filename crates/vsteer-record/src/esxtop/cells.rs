//! Finds the relevant cells of a row and parses their numbers.
//!
//! A row has hundreds of kilobytes, and only a fraction matters. So vsteer does not split the row into cells.
//! It counts commas, eight or more bytes at a time, up to the next wanted column ([`skip`]). It parses
//! numbers in place, first in esxtop's own form ([`plain_number`]).

/// Counts a byte's occurrences. Compilers turn this into code for eight or sixteen bytes at a time.
pub(super) fn count(bytes: &[u8], of: u8) -> usize {
    // The count for 64 bytes fits into one byte, so the compiler can use narrow vector lanes.
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

/// The start of the cell that is `n` cells after the one that starts at `at`; `None` if there are fewer
/// cells.
#[inline]
pub(super) fn skip(row: &[u8], mut at: usize, mut n: usize) -> Option<usize> {
    if n == 0 {
        return Some(at);
    }
    // A cell has about seven bytes, so 64 bytes usually contain at most nine cells.
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
        // One bit per byte; the multiplication adds them up in the top byte.
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

/// The value of the cell that starts at `at`, in esxtop's own form `"12.34"`; `None` for any other form.
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

/// The cell that starts at `at`, without its quotes.
pub(super) fn cell(row: &[u8], at: usize) -> &[u8] {
    let rest = &row[at..];
    let cell = &rest[..memchr::memchr(b',', rest).unwrap_or(rest.len())];
    match cell {
        [b'"', inside @ .., b'"'] => inside,
        [b'"', inside @ ..] => inside,
        other => other,
    }
}

/// The number of cells from `at` on.
pub(super) fn cells_from(row: &[u8], at: usize) -> usize {
    1 + count(&row[at..], b',')
}

/// A share in percent, `12.34`; `NaN` for an empty cell, `None` for text that is not a number of 0 or more.
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

/// Numbers in other forms (with blanks around, with exponents).
fn slow_number(cell: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(cell).ok()?.trim();
    if text.is_empty() {
        return Some(f64::NAN);
    }
    text.parse().ok().filter(|v: &f64| v.is_finite() && *v >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    proptest! {
        /// Skipping cells finds the same position as splitting the row.
        #[test]
        fn skipping_is_splitting(cells in proptest::collection::vec("[0-9.\"]{0,9}", 1..200), n in 0usize..220) {
            let row = cells.join(",").into_bytes();
            let split: Vec<usize> = std::iter::once(0)
                .chain(row.iter().enumerate().filter(|(_, b)| **b == b',').map(|(i, _)| i + 1)).collect();
            prop_assert_eq!(skip(&row, 0, n), split.get(n).copied());
            prop_assert_eq!(cells_from(&row, 0), cells.len());
        }

        /// A number has the value that the standard library parses.
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
    }
}
