//! How is what one of zlib's streams holds had, part by part?
//!
//! A server compresses each rectangle as the next part of a stream that lasts as long as the session, and flushes it. Left out: streams that end.

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
    /// It begins anew.
    pub fn reset(&mut self) {
        self.0.reset(true);
    }

    /// What the next part holds, at most so much.
    ///
    /// # Errors
    /// It is broken, or holds more.
    pub fn part(&mut self, mut bytes: &[u8], most: usize) -> Result<Vec<u8>, Fault> {
        let mut out = Vec::new();
        loop {
            // One more than there may be, so that too much is seen.
            out.reserve((most + 1 - out.len()).min(1 << 20));
            let (read, written) = (self.0.total_in(), out.len());
            self.0
                .decompress_vec(bytes, &mut out, FlushDecompress::Sync)
                .map_err(|e| bad(format!("compressed pixels that are broken: {e}")))?;
            bytes = &bytes[(self.0.total_in() - read) as usize..];
            if out.len() > most {
                return Err(bad(format!("compressed pixels that hold more than {most} bytes")));
            }
            // All was read and there was room for more; or nothing goes on.
            if bytes.is_empty() && out.len() < out.capacity()
                || self.0.total_in() == read && out.len() == written
            {
                return Ok(out);
            }
        }
    }
}
