//! The bytes of a batch file, decompressed as they are read.
//!
//! Deflate makes up to 1,032 bytes of one, so 1 MB of compressed zeros keeps a reader busy with 1 GB. esxtop's rows
//! shrink to a tenth or a fiftieth. vsteer refuses a file that grows much more than that.

use std::io::{self, BufRead, Read};
use vsteer_core::{Fault, FaultKind};

/// The largest growth that vsteer reads: bytes of text for each compressed byte.
const GROWTH_MOST: u64 = 500;
/// The growth is checked only beyond this many bytes of text: a short file whose values never change compresses
/// better than the limit.
const GROWTH_FREE: u64 = 64 << 20;

/// Counts the bytes that pass.
pub struct Counted<R> {
    from: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(into)?;
        self.bytes += n as u64;
        Ok(n)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.from.fill_buf()
    }

    fn consume(&mut self, n: usize) {
        self.bytes += n as u64;
        self.from.consume(n);
    }
}

type Inflated = flate2::bufread::MultiGzDecoder<Counted<Box<dyn BufRead>>>;

/// A file's bytes, decompressed if necessary.
pub enum Input {
    /// Not compressed.
    Plain(Box<dyn BufRead>),
    /// Compressed by gzip, in one member or several.
    Gzip(Box<Counted<Inflated>>),
}

impl Input {
    /// Recognises the compression from the first bytes.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn of(from: impl BufRead + 'static) -> io::Result<Input> {
        let mut from: Box<dyn BufRead> = Box::new(from);
        let is_gzip = from.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        Ok(if is_gzip {
            let from = Inflated::new(Counted { from, bytes: 0 });
            Input::Gzip(Box::new(Counted { from, bytes: 0 }))
        } else {
            Input::Plain(from)
        })
    }

    pub(super) fn is_compressed(&self) -> bool {
        matches!(self, Input::Gzip(_))
    }

    /// Refuses compressed data that grows more than any batch file does.
    pub(super) fn check_growth(&self, name: &str) -> Result<(), Fault> {
        let Input::Gzip(text) = self else { return Ok(()) };
        let packed = text.from.get_ref().bytes;
        if text.bytes <= GROWTH_FREE || text.bytes / GROWTH_MOST <= packed {
            return Ok(());
        }
        let why = format!("its first {packed} bytes grow to more than {GROWTH_MOST} times their size");
        Err(Fault::new(FaultKind::BadInput, format!("cannot decompress {name}"))
            .because(why)
            .help("if you trust the file, decompress it with `gunzip -k FILE`, and give vsteer the decompressed file"))
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
