//! What pixels has an image that a SPICE server sends? By its kind: as they are, LZ, GLZ, GLZ through zlib.
//!
//! Source: SPICE's spice.proto (Image) and enums.h (spice-protocol 0.14). Left out: QUIC (GAP(display-quic): its decoder learns by a table of 256 numbers that no document gives, but a program under another licence alone), JPEG, which comes beside it, LZ4, palettes, alpha, images out of a cache: this viewer says that it has no cache, and a kind that
//! comes all the same is told with the server's option that avoids it.

use super::bytes::Bytes;
use super::glz::Window;
use super::pixels::Pixels;
use super::{bad, lz};
use crate::codec::Jpeg;
use crate::picture::canvas::PIXEL;
use flate2::{Decompress, FlushDecompress};
use vsteer_core::{Fault, FaultKind};

/// Of an image as it is: pixels of 24 and of 32 bits; rows are from the top.
const FORMAT_24: u8 = 7;
const FORMAT_32: u8 = 8;
const PALETTE_CACHED: u8 = 2;
const TOP_DOWN: u8 = 4;
/// What is said of GLZ beside its pixels, bytes.
const GLZ_HEAD: usize = 33;

/// What lasts from image to image.
#[derive(Default)]
pub struct Images {
    glz: Window,
    pub jpeg: Jpeg,
}

/// One that was decoded.
pub struct Image {
    /// Its kind, as people call it.
    pub kind: &'static str,
    /// Pixels of a row, and rows.
    pub size: [usize; 2],
    /// Row after row from the top, in the screen's order.
    pub pixels: Vec<u8>,
}

impl Images {
    /// Decodes what stands at the beginning of the bytes; it has at most so many pixels.
    ///
    /// # Errors
    /// It is broken, larger, or of a kind that is not read.
    pub fn decode(&mut self, bytes: &[u8], most: usize) -> Result<Image, Fault> {
        let mut from = Bytes::of(bytes, "an image");
        from.take(8)?;
        let (kind, _flags) = (from.u8()?, from.u8()?);
        let size = [from.u32()? as usize, from.u32()? as usize];
        if size[0].checked_mul(size[1]).is_none_or(|n| n == 0 || n > most) {
            return Err(bad(format!("an image of {size:?} pixels for a screen of {most}")));
        }
        let data = |from: &mut Bytes<'_>| from.u32().map(|n| n as usize);
        let (kind, came) = match kind {
            0 => ("raw", raw(&mut from, size)?),
            101 => {
                let n = data(&mut from)?;
                ("LZ", lz::decode(from.take(n)?, size)?)
            }
            102 => {
                let n = data(&mut from)?;
                ("GLZ", self.glz.decode(from.take(n)?, size)?)
            }
            107 => {
                let (n, compressed) = (data(&mut from)?, data(&mut from)?);
                // Literals alone take three bytes a pixel and one for each 32 of them.
                if n > GLZ_HEAD + 4 * size[0] * size[1] {
                    return Err(bad(format!("an image of GLZ of {n} bytes for {size:?} pixels")));
                }
                let bytes = inflated(from.take(compressed)?, n)?;
                ("GLZ and zlib", self.glz.decode(&bytes, size)?)
            }
            other => return Err(unread(other)),
        };
        let mut pixels = came.pixels.into_flattened();
        if !came.top_down {
            turn(&mut pixels, size);
        }
        Ok(Image { kind, size, pixels })
    }
}

/// A kind of images that is not read, and how to have none.
fn unread(kind: u8) -> Fault {
    let (name, help) = match kind {
        1 => ("QUIC", "image-compression=lz, glz or off"),
        100 => ("LZ with a palette", "a guest's screen of 32 bits"),
        103 | 106 => ("FROM_CACHE", "a server that heeds that this viewer has no cache"),
        104 => ("SURFACE", "a screen without a QXL driver"),
        105 | 108 => ("JPEG", "jpeg-wan-compression=never"),
        109 => ("LZ4", "image-compression=lz, glz or off"),
        _ => ("an unknown kind", "image-compression=off"),
    };
    Fault::new(
        FaultKind::Unsupported,
        format!("a SPICE server sent an image of {name} ({kind}), which is not read"),
    )
    .help(help)
}

/// As they are.
fn raw(from: &mut Bytes, [width, height]: [usize; 2]) -> Result<Pixels, Fault> {
    let (format, flags) = (from.u8()?, from.u8()?);
    let size = [from.u32()? as usize, from.u32()? as usize];
    let stride = from.u32()? as usize;
    from.take(if flags & PALETTE_CACHED != 0 { 8 } else { 4 })?;
    let wide = match format {
        FORMAT_24 => 3,
        FORMAT_32 => 4,
        other => {
            return Err(Fault::new(
                FaultKind::Unsupported,
                format!("an image whose pixels are of format {other}"),
            )
            .help("a guest's screen of 24 or 32 bits"));
        }
    };
    if size != [width, height] || stride < width * wide {
        return Err(bad(format!("an image of {size:?} pixels in rows of {stride} bytes")));
    }
    let bytes = from.take(stride.checked_mul(height).ok_or_else(|| bad("an image beyond any use"))?)?;
    let mut pixels = Vec::with_capacity(width * height);
    for row in bytes.chunks_exact(stride) {
        pixels.extend(row[..width * wide].chunks_exact(wide).map(|p| [p[0], p[1], p[2], 0]));
    }
    Ok(Pixels { pixels, top_down: flags & TOP_DOWN != 0 })
}

/// What zlib made of so many bytes; each image is a stream of its own.
fn inflated(bytes: &[u8], n: usize) -> Result<Vec<u8>, Fault> {
    let broken = |e: &dyn std::fmt::Display| bad(format!("a compressed image that is broken: {e}"));
    let mut out = Vec::with_capacity(n);
    Decompress::new(true).decompress_vec(bytes, &mut out, FlushDecompress::Finish).map_err(|e| broken(&e))?;
    if out.len() == n { Ok(out) } else { Err(broken(&format!("{} bytes, not {n}", out.len()))) }
}

/// Turns rows from the bottom into rows from the top.
pub fn turn(pixels: &mut [u8], [width, height]: [usize; 2]) {
    let line = width * PIXEL;
    for y in 0..height / 2 {
        let (above, below) = pixels.split_at_mut((height - 1 - y) * line);
        above[y * line..][..line].swap_with_slice(&mut below[..line]);
    }
}
