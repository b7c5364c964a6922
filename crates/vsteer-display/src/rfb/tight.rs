//! Decodes Tight's rectangles: one colour, JPEG, or data from one of four zlib streams (copied, with a
//! palette, or predicted from neighbours).
//!
//! Source: "The RFB Protocol" of the rfbproto project (2022), Tight Encoding. Pixels are three bytes, red
//! first. FFmpeg decodes JPEG. Left out: PNG within Tight, which has its own number and is not requested.

use super::inflate::Inflate;
use super::screen::{Rect, Screen};
use super::{Source, bad};
use crate::codec::Jpeg;
use crate::picture::canvas::PIXEL;
use std::io::Read;
use vsteer_core::Fault;

/// Bytes of a pixel.
const SHORT: usize = 3;
/// Data with fewer bytes is not compressed.
const COMPRESSED_LEAST: usize = 12;
/// The name of the kind with loss.
pub const JPEG: &str = "Tight JPEG";

/// State that lasts from rectangle to rectangle.
#[derive(Default)]
pub struct Tight {
    streams: [Inflate; 4],
    jpeg: Jpeg,
}

impl Tight {
    /// Decodes a rectangle; returns its kind.
    ///
    /// # Errors
    /// It is broken, or the server is gone.
    pub fn decode<R: Read>(
        &mut self,
        from: &mut Source<R>,
        rect: Rect,
        screen: &mut Screen,
    ) -> Result<&'static str, Fault> {
        let control = from.exactly::<1>("a rectangle of Tight's")?[0];
        for (i, stream) in self.streams.iter_mut().enumerate() {
            if control >> i & 1 == 1 {
                stream.reset();
            }
        }
        match control >> 4 {
            8 => {
                let [r, g, b] = from.exactly("a colour")?;
                screen.fill(rect, [b, g, r, 0]);
                Ok("Tight fill")
            }
            9 => {
                let length = compact(from)?;
                let bytes = from.some(length, "a JPEG")?;
                let pixels = self.jpeg.decode(&bytes, [rect.width, rect.height])?;
                screen.put(rect, pixels);
                Ok(JPEG)
            }
            kind @ 0..8 => {
                let filter = if kind & 4 != 0 { from.exactly::<1>("a filter")?[0] } else { 0 };
                let stream = usize::from(kind & 3);
                match filter {
                    0 => {
                        let bytes = self.bytes(from, stream, rect.pixels() * SHORT)?;
                        lines(rect, screen, &bytes, |_, _, came| came);
                        Ok("Tight copy")
                    }
                    1 => {
                        self.palette(from, stream, rect, screen)?;
                        Ok("Tight palette")
                    }
                    2 => {
                        let bytes = self.bytes(from, stream, rect.pixels() * SHORT)?;
                        lines(rect, screen, &bytes, predicted);
                        Ok("Tight gradient")
                    }
                    other => Err(bad(format!("filter {other} of Tight's, which there is not"))),
                }
            }
            other => Err(bad(format!("compression {other} of Tight's, which was not asked for"))),
        }
    }

    /// Reads `n` bytes, compressed if there are enough.
    fn bytes<R: Read>(&mut self, from: &mut Source<R>, stream: usize, n: usize) -> Result<Vec<u8>, Fault> {
        if n < COMPRESSED_LEAST {
            return from.some(n, "pixels");
        }
        let length = compact(from)?;
        let bytes = from.some(length, "compressed pixels")?;
        let came = self.streams[stream].part(&bytes, n)?;
        if came.len() < n {
            return Err(bad(format!("compressed pixels of {} bytes, not {n}", came.len())));
        }
        Ok(came)
    }

    fn palette<R: Read>(
        &mut self,
        from: &mut Source<R>,
        stream: usize,
        rect: Rect,
        screen: &mut Screen,
    ) -> Result<(), Fault> {
        let colours = usize::from(from.exactly::<1>("a palette")?[0]) + 1;
        let palette = from.some(colours * SHORT, "a palette")?;
        let two = colours <= 2;
        let line = if two { rect.width.div_ceil(8) } else { rect.width };
        let bytes = self.bytes(from, stream, line * rect.height)?;
        for (y, line) in bytes.chunks_exact(line.max(1)).enumerate() {
            for (x, to) in screen.row(rect, y).chunks_exact_mut(PIXEL).enumerate() {
                let which = if two { line[x / 8] >> (7 - x % 8) & 1 } else { line[x] };
                let at = usize::from(which) * SHORT;
                let rgb = palette.get(at..at + SHORT).ok_or_else(|| bad("a colour outside of a palette"))?;
                to.copy_from_slice(&[rgb[2], rgb[1], rgb[0], 0]);
            }
        }
        Ok(())
    }
}

/// Writes red, green, blue. `make` computes each byte from those above (and above left), the one to the left,
/// and the received byte.
fn lines(rect: Rect, screen: &mut Screen, bytes: &[u8], make: fn([u8; 2], u8, u8) -> u8) {
    if rect.width == 0 {
        return;
    }
    let mut above = vec![0; rect.width * PIXEL];
    for (y, line) in bytes.chunks_exact(rect.width * SHORT).enumerate() {
        let row = screen.row(rect, y);
        for (x, rgb) in line.chunks_exact(SHORT).enumerate() {
            for (i, came) in rgb.iter().enumerate() {
                // On the screen, blue is first.
                let at = x * PIXEL + 2 - i;
                let (left, corner) = if x > 0 { (row[at - PIXEL], above[at - PIXEL]) } else { (0, 0) };
                row[at] = make([above[at], corner], left, *came);
            }
            row[x * PIXEL + 3] = 0;
        }
        above.copy_from_slice(row);
    }
}

fn predicted([above, corner]: [u8; 2], left: u8, came: u8) -> u8 {
    let guess = i16::from(above) + i16::from(left) - i16::from(corner);
    came.wrapping_add(guess.clamp(0, 255) as u8)
}

/// A length of one to three bytes, seven bits in each, the lowest first.
fn compact<R: Read>(from: &mut Source<R>) -> Result<usize, Fault> {
    let mut length = 0;
    for i in 0..3 {
        let byte = usize::from(from.exactly::<1>("a length")?[0]);
        // The third byte has eight bits.
        let bits = if i < 2 { byte & 127 } else { byte };
        length |= bits << (7 * i);
        if byte & 128 == 0 {
            break;
        }
    }
    Ok(length)
}
