//! Decodes ZRLE's rectangles: tiles of 64x64, each with raw pixels, one colour, a palette, runs, or runs of a
//! palette.
//!
//! Source: RFC 6143, 7.7.6. Pixels are three bytes, blue first, because the fourth is unused.

use super::bad;
use super::inflate::Inflate;
use super::screen::{Rect, Screen};
use crate::picture::canvas::PIXEL;
use vsteer_core::Fault;

const TILE: usize = 64;
/// Bytes of a compressed pixel.
const SHORT: usize = 3;

/// The most bytes of a rectangle: runs of one pixel each, a palette for each tile.
pub fn most(rect: Rect) -> usize {
    let tiles = rect.width.div_ceil(TILE) * rect.height.div_ceil(TILE);
    rect.pixels() * (SHORT + 1) + tiles * (1 + 127 * SHORT) + 64
}

/// Decodes a rectangle.
///
/// # Errors
/// It is broken.
pub fn decode(stream: &mut Inflate, bytes: &[u8], rect: Rect, screen: &mut Screen) -> Result<(), Fault> {
    let bytes = stream.part(bytes, most(rect))?;
    let mut rest = Rest(&bytes);
    let mut tile = Vec::with_capacity(TILE * TILE);
    for y in (0..rect.height).step_by(TILE) {
        for x in (0..rect.width).step_by(TILE) {
            let at = Rect {
                x: rect.x + x,
                y: rect.y + y,
                width: TILE.min(rect.width - x),
                height: TILE.min(rect.height - y),
            };
            tile.clear();
            rest.tile(at, &mut tile)?;
            for (y, line) in tile.chunks_exact(at.width).enumerate() {
                for (to, pixel) in screen.row(at, y).chunks_exact_mut(PIXEL).zip(line) {
                    to.copy_from_slice(pixel);
                }
            }
        }
    }
    Ok(())
}

type Pixel = [u8; PIXEL];

/// The unread bytes.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take(&mut self, n: usize) -> Result<&[u8], Fault> {
        let (now, later) = self.0.split_at_checked(n).ok_or_else(|| bad("a tile that ends too early"))?;
        self.0 = later;
        Ok(now)
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        self.take(1).map(|b| b[0])
    }

    fn pixel(&mut self) -> Result<Pixel, Fault> {
        self.take(SHORT).map(|b| [b[0], b[1], b[2], 0])
    }

    fn palette(&mut self, n: usize) -> Result<Vec<Pixel>, Fault> {
        (0..n).map(|_| self.pixel()).collect()
    }

    /// A length: 1, plus 255 for each byte of 255, plus the last byte.
    fn run(&mut self) -> Result<usize, Fault> {
        let mut length = 1;
        loop {
            let byte = self.byte()?;
            length += usize::from(byte);
            if byte < 255 {
                return Ok(length);
            }
        }
    }

    fn tile(&mut self, at: Rect, out: &mut Vec<Pixel>) -> Result<(), Fault> {
        let n = at.pixels();
        let outside = || bad("a colour outside of a tile's palette");
        match self.byte()? {
            0 => {
                for _ in 0..n {
                    out.push(self.pixel()?);
                }
            }
            1 => {
                let pixel = self.pixel()?;
                out.resize(n, pixel);
            }
            kind @ 2..=16 => {
                let palette = self.palette(usize::from(kind))?;
                let bits = match kind {
                    2 => 1,
                    3..=4 => 2,
                    _ => 4,
                };
                for _ in 0..at.height {
                    let row = self.take((at.width * bits).div_ceil(8))?;
                    for x in 0..at.width {
                        let shift = 8 - bits - x * bits % 8;
                        let which = row[x * bits / 8] >> shift & ((1 << bits) - 1) as u8;
                        out.push(*palette.get(usize::from(which)).ok_or_else(outside)?);
                    }
                }
            }
            128 => {
                while out.len() < n {
                    let (pixel, run) = (self.pixel()?, self.run()?);
                    extend(out, pixel, run, n)?;
                }
            }
            kind @ 130..=255 => {
                let palette = self.palette(usize::from(kind) - 128)?;
                while out.len() < n {
                    let which = self.byte()?;
                    let run = if which & 128 == 0 { 1 } else { self.run()? };
                    extend(out, *palette.get(usize::from(which & 127)).ok_or_else(outside)?, run, n)?;
                }
            }
            other => return Err(bad(format!("a tile of kind {other}, which there is not"))),
        }
        Ok(())
    }
}

fn extend(out: &mut Vec<Pixel>, pixel: Pixel, run: usize, most: usize) -> Result<(), Fault> {
    if out.len() + run > most {
        return Err(bad("a run that is longer than its tile"));
    }
    out.resize(out.len() + run, pixel);
    Ok(())
}
