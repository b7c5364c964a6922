//! Decodes the images of a SPICE server by their kind: uncompressed, LZ, GLZ, GLZ through zlib.
//!
//! Source: SPICE's spice.proto (Image) and enums.h (spice-protocol 0.14). Left out: QUIC (GAP(display-quic):
//! its decoder needs a table of 256 numbers that no document contains, only a program under another licence),
//! JPEG, which is used together with it, LZ4, palettes, alpha, images from a cache. This viewer tells the
//! server that it has no cache. If an unsupported kind arrives anyway, the fault names the server's option
//! that avoids it.

use super::bytes::Bytes;
use super::glz::Window;
use super::pixels::Pixels;
use super::{bad, lz};
use crate::codec::Jpeg;
use crate::picture::canvas::PIXEL;
use flate2::{Decompress, FlushDecompress};
use vsteer_core::{Fault, FaultKind};

/// Pixel formats of an uncompressed image: 24 and 32 bits; and the flag for rows from the top.
const FORMAT_24: u8 = 7;
const FORMAT_32: u8 = 8;
const PALETTE_CACHED: u8 = 2;
const TOP_DOWN: u8 = 4;
/// The part of GLZ's data before its pixels, bytes.
const GLZ_HEAD: usize = 33;

/// State that lasts from image to image.
#[derive(Default)]
pub struct Images {
    glz: Window,
    pub jpeg: Jpeg,
}

/// A decoded image.
pub struct Image {
    /// The usual name of its kind.
    pub kind: &'static str,
    /// Pixels per row, and rows.
    pub size: [usize; 2],
    /// Row after row from the top, in the screen's byte order.
    pub pixels: Vec<u8>,
}

impl Images {
    /// Decodes the image at the start of the bytes; it may have at most `most` pixels.
    ///
    /// # Errors
    /// It is broken, larger, or of an unsupported kind.
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
                // An image without any repetition takes 3 bytes per pixel and 1 byte per 32 pixels. So 4 bytes per pixel are enough.
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

/// The fault for an unsupported kind, with the way to avoid it.
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

/// An uncompressed image.
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

/// Decompresses zlib data to `n` bytes; each image is a separate stream.
fn inflated(bytes: &[u8], n: usize) -> Result<Vec<u8>, Fault> {
    let broken = |e: &dyn std::fmt::Display| bad(format!("a compressed image that is broken: {e}"));
    let mut out = Vec::with_capacity(n);
    Decompress::new(true).decompress_vec(bytes, &mut out, FlushDecompress::Finish).map_err(|e| broken(&e))?;
    if out.len() == n { Ok(out) } else { Err(broken(&format!("{} bytes, not {n}", out.len()))) }
}

/// Reverses the order of rows.
pub fn turn(pixels: &mut [u8], [width, height]: [usize; 2]) {
    let line = width * PIXEL;
    for y in 0..height / 2 {
        let (above, below) = pixels.split_at_mut((height - 1 - y) * line);
        above[y * line..][..line].swap_with_slice(&mut below[..line]);
    }
}
