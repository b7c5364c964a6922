//! What have answers of HTTP/1 in common, whoever asks? Lines, bytes of a length, and chunks; each bounded.
//!
//! Source: RFC 9112, sections 2.2 and 7.1. Left out: heads, which each asker reads for what it wants of them.

use std::io::{BufRead, Error, ErrorKind, Read, Result};

/// A line without its end. One that breaks off is an unexpected end; one of `longest` bytes or more is no line.
pub(crate) fn line(from: &mut impl BufRead, longest: u64) -> Result<String> {
    let mut bytes = Vec::new();
    from.take(longest).read_until(b'\n', &mut bytes)?;
    match bytes.pop() {
        Some(b'\n') => {
            let line = bytes.strip_suffix(b"\r").unwrap_or(&bytes);
            Ok(String::from_utf8_lossy(line).into_owned())
        }
        Some(_) if bytes.len() as u64 + 1 == longest => {
            Err(Error::new(ErrorKind::InvalidData, "a line of the answer's head is too long"))
        }
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// So many bytes, and no fewer.
pub(crate) fn exactly(from: &mut impl BufRead, bytes: u64, body: &mut Vec<u8>) -> Result<()> {
    let got = from.take(bytes).read_to_end(body)?;
    if (got as u64) < bytes { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

/// Pieces, each after its length, up to the last of none; what is longer than `longest` is not read to its end, which the body's length tells.
pub(crate) fn chunks(
    from: &mut impl BufRead,
    longest: u64,
    longest_line: u64,
    body: &mut Vec<u8>,
) -> Result<()> {
    while body.len() as u64 <= longest {
        let size = line(from, longest_line)?;
        let size = size.split(';').next().unwrap_or_default().trim();
        let odd = || Error::new(ErrorKind::InvalidData, format!("{size:?} is no length of a chunk"));
        // A sign is none of RFC 9112's digits, though Rust takes it.
        let bytes = u64::from_str_radix(size, 16).ok().filter(|_| !size.starts_with('+')).ok_or_else(odd)?;
        if bytes == 0 {
            return Ok(());
        }
        exactly(from, bytes.min(longest + 1), body)?;
        line(from, longest_line)?;
    }
    Ok(())
}
