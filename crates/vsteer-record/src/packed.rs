//! Files of others, decompressed as they are read: gzip, Zstandard and bzip2, recognised by their first bytes.
//!
//! Memory does not depend on the file's length. Whoever reads lines bounds each of them, and [`limits::ZSTD_WINDOW`] bounds the
//! window of a Zstandard frame.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use vsteer_core::limits;

/// The first bytes of gzip (RFC 1952), Zstandard (RFC 8878), a skippable frame of it, and bzip2.
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const BZIP2: &[u8] = b"BZh";
const BUFFER: usize = 1 << 16;

/// Opens a file and decompresses it if need be.
///
/// # Errors
/// As the system says; `InvalidData` if the compressed data is not valid.
pub fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    unpacked(BufReader::with_capacity(BUFFER, File::open(path)?))
}

/// The bytes of `from`, decompressed if need be.
///
/// # Errors
/// As [`open`].
pub fn unpacked(mut from: impl BufRead + 'static) -> io::Result<Box<dyn BufRead>> {
    let first = from.fill_buf()?;
    let buffered =
        |from: Box<dyn Read>| -> Box<dyn BufRead> { Box::new(BufReader::with_capacity(BUFFER, from)) };
    Ok(match first {
        f if f.starts_with(GZIP) => buffered(Box::new(flate2::bufread::MultiGzDecoder::new(from))),
        f if f.starts_with(BZIP2) => buffered(Box::new(bzip2::bufread::MultiBzDecoder::new(from))),
        f if f.starts_with(ZSTD) => buffered(Box::new(Zstd { from, frame: None })),
        _ => Box::new(from),
    })
}

/// All frames of a Zstandard file.
struct Zstd<R: BufRead> {
    from: R,
    frame: Option<Box<ruzstd::decoding::FrameDecoder>>,
}

fn invalid(e: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("its Zstandard data is not valid: {e}"))
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(frame) = &mut self.frame else {
                if self.from.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                let mut frame = Box::new(ruzstd::decoding::FrameDecoder::new());
                frame.set_max_window_size(limits::ZSTD_WINDOW);
                match frame.init(&mut self.from) {
                    Ok(()) => self.frame = Some(frame),
                    Err(ruzstd::decoding::errors::FrameDecoderError::ReadFrameHeaderError(
                        ruzstd::decoding::errors::ReadFrameHeaderError::SkipFrame { length, .. },
                    )) => {
                        io::copy(&mut self.from.by_ref().take(u64::from(length)), &mut io::sink())?;
                    }
                    Err(e) => return Err(invalid(e)),
                }
                continue;
            };
            if frame.can_collect() == 0 && !frame.is_finished() {
                let some = ruzstd::decoding::BlockDecodingStrategy::UptoBytes(BUFFER);
                frame.decode_blocks(&mut self.from, some).map_err(invalid)?;
            }
            let n = frame.read(into)?;
            if n > 0 || into.is_empty() {
                return Ok(n);
            }
            if frame.is_finished() && frame.can_collect() == 0 {
                self.frame = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, Write};

    fn text(bytes: Vec<u8>) -> io::Result<String> {
        let mut text = String::new();
        unpacked(Cursor::new(bytes))?.read_to_string(&mut text)?;
        Ok(text)
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(text.as_bytes()).unwrap();
        out.finish().unwrap()
    }

    fn bzip2(text: &str) -> Vec<u8> {
        let mut out = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        out.write_all(text.as_bytes()).unwrap();
        out.finish().unwrap()
    }

    fn zstd(text: &str) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn every_compression_is_read_also_in_several_parts() {
        let long = "a line of a log\n".repeat(20_000);
        assert_eq!(text(long.clone().into_bytes()).unwrap(), long);
        for pack in [gzip, bzip2, zstd] {
            assert_eq!(text(pack(&long)).unwrap(), long);
            // As logrotate and `cat a.gz b.gz` make them.
            assert_eq!(text([pack("a\n"), pack("b\n")].concat()).unwrap(), "a\nb\n");
            assert_eq!(text(pack("")).unwrap(), "");
            let mut cut = pack(&long);
            cut.truncate(cut.len() / 2);
            assert!(text(cut).is_err(), "cut off");
        }
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        assert_eq!(text([zstd("a\n"), skippable, zstd("b\n")].concat()).unwrap(), "a\nb\n");
        assert_eq!(text(Vec::new()).unwrap(), "");
    }

    #[test]
    fn a_frame_that_wants_a_gigabyte_of_memory_is_refused() {
        // RFC 8878: no single segment; a window of 2^(10 + 20) bytes; one empty raw block that is the last.
        let frame = [ZSTD, &[0x00, 20 << 3, 0x01, 0, 0]].concat();
        assert!(text(frame).unwrap_err().to_string().contains("not valid"));
        let small = [ZSTD, &[0x00, 10 << 3, 0x01, 0, 0]].concat();
        assert_eq!(text(small).unwrap(), "");
    }
}
