//! The text of a batch file, decompressed and decoded as it is read.
//!
//! Deflate makes up to 1,032 bytes of one, so 1 MB of compressed zeros keeps a reader busy with 1 GB. esxtop's rows
//! shrink to a tenth or a fiftieth. vsteer refuses a file that grows much more than that.

use super::utf16::Utf16;
use std::io::{self, BufRead, Read};
use vsteer_core::{Fault, FaultKind};

/// The largest growth that vsteer reads: bytes of text for each compressed byte.
const GROWTH_MOST: u64 = 500;
/// The growth is checked only beyond this many bytes of text: a short file whose values never change compresses
/// better than the limit.
const GROWTH_FREE: u64 = 64 << 20;
/// How many bytes of UTF-16 to decode at a time.
const DECODED_AT_ONCE: usize = 64 << 10;

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
enum Source {
    Plain(Box<dyn BufRead>),
    /// Compressed by gzip, in one member or several.
    Gzip(Box<Counted<Inflated>>),
}

impl Read for Source {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::Plain(from) => from.read(into),
            Source::Gzip(from) => from.read(into),
        }
    }
}

/// A file's text: decompressed, and in UTF-8, if the file says what it is.
pub struct Input {
    from: Source,
    /// Text that was read ahead or decoded, and how much of it is used.
    ready: Vec<u8>,
    used: usize,
    /// What happened after the bytes that were read ahead.
    failed: Option<io::Error>,
    utf16: Option<Utf16>,
}

impl Input {
    /// Recognises the compression and the encoding from the first bytes.
    ///
    /// # Errors
    /// If the first byte cannot be read.
    pub fn of(from: impl BufRead + 'static) -> io::Result<Input> {
        let mut from: Box<dyn BufRead> = Box::new(from);
        let is_gzip = from.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let mut from = if is_gzip {
            let from = Inflated::new(Counted { from, bytes: 0 });
            Source::Gzip(Box::new(Counted { from, bytes: 0 }))
        } else {
            Source::Plain(from)
        };
        let (mut first, mut failed) = (Vec::new(), None);
        while first.len() < 4 && failed.is_none() {
            let mut more = [0; 4];
            let room = 4 - first.len();
            match from.read(&mut more[..room]) {
                Ok(0) => break,
                Ok(n) => first.extend_from_slice(&more[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => failed = Some(e),
            }
        }
        let mut input = Input { from, ready: Vec::new(), used: 0, failed, utf16: Utf16::of(&first) };
        match &mut input.utf16 {
            Some(utf16) => utf16.decode(&first[2..], &mut input.ready),
            None => input.ready = first,
        }
        Ok(input)
    }

    pub(super) fn is_compressed(&self) -> bool {
        matches!(self.from, Source::Gzip(_))
    }

    /// Is the text decoded, so that places in it are not places in the file?
    pub(super) fn is_decoded(&self) -> bool {
        self.utf16.is_some()
    }

    /// Refuses compressed data that grows more than any batch file does.
    pub(super) fn check_growth(&self, name: &str) -> Result<(), Fault> {
        let Source::Gzip(text) = &self.from else { return Ok(()) };
        let packed = text.from.get_ref().bytes;
        if text.bytes <= GROWTH_FREE || text.bytes / GROWTH_MOST <= packed {
            return Ok(());
        }
        let why = format!("its first {packed} bytes grow to more than {GROWTH_MOST} times their size");
        Err(Fault::new(FaultKind::BadInput, format!("cannot decompress {name}"))
            .because(why)
            .help("if you trust the file, decompress it with `gunzip -k FILE`, and give vsteer the decompressed file"))
    }

    /// Decodes the next bytes into `ready`; leaves it empty at the end.
    fn decode(&mut self) -> io::Result<()> {
        let Some(utf16) = &mut self.utf16 else { return Ok(()) };
        let mut bytes = vec![0; DECODED_AT_ONCE];
        (self.used, self.ready) = (0, Vec::new());
        // A piece may end within a character, and then gives no text.
        while self.ready.is_empty() {
            match self.from.read(&mut bytes)? {
                0 => break,
                n => utf16.decode(&bytes[..n], &mut self.ready),
            }
        }
        Ok(())
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.used == self.ready.len() {
            if let Some(failed) = self.failed.take() {
                return Err(failed);
            }
            if self.utf16.is_none() {
                return self.from.read(into);
            }
            self.decode()?;
        }
        let n = into.len().min(self.ready.len() - self.used);
        into[..n].copy_from_slice(&self.ready[self.used..self.used + n]);
        self.used += n;
        Ok(n)
    }
}
