//! Decompresses one zlib stream part by part.
//!
//! A server compresses each rectangle as the next part of a stream that lasts as long as the session, and
//! flushes it. Left out: streams that end.

use super::bad;
use flate2::{Decompress, FlushDecompress};
use vsteer_core::Fault;

pub struct Inflate(Decompress);

impl Default for Inflate {
    fn default() -> Inflate {
        Inflate(Decompress::new(true))
    }
}

impl Inflate {
    /// Starts the stream again.
    pub fn reset(&mut self) {
        self.0.reset(true);
    }

    /// The content of the next part, at most `most` bytes.
    ///
    /// # Errors
    /// The part is broken, or has more content.
    pub fn part(&mut self, mut bytes: &[u8], most: usize) -> Result<Vec<u8>, Fault> {
        let mut out = Vec::new();
        loop {
            // One byte more than allowed, to detect content that is too long.
            out.reserve((most + 1 - out.len()).min(1 << 20));
            let (read, written) = (self.0.total_in(), out.len());
            self.0
                .decompress_vec(bytes, &mut out, FlushDecompress::Sync)
                .map_err(|e| bad(format!("compressed pixels that are broken: {e}")))?;
            bytes = &bytes[(self.0.total_in() - read) as usize..];
            if out.len() > most {
                return Err(bad(format!("compressed pixels that hold more than {most} bytes")));
            }
            // Everything was read and there was room for more; or there is no progress.
            if bytes.is_empty() && out.len() < out.capacity()
                || self.0.total_in() == read && out.len() == written
            {
                return Ok(out);
            }
        }
    }
}
