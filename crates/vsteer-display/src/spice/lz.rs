//! Decodes SPICE's LZ images: literal pixels, and copies of earlier ones. The format is a variant of FastLZ
//! for pixels instead of bytes.
//!
//! Source: the format as in spice-common's lz.c and lz_decompress_tmpl.c (0.14). Left out: palettes, 16 bits,
//! alpha, because a 32-bit screen without alpha is never sent in these formats.

use super::bad;
use super::bytes::Bytes;
use crate::picture::canvas::PIXEL;
use crate::spice::pixels::Pixels;
use vsteer_core::{Fault, FaultKind};

pub const MAGIC: u32 = u32::from_be_bytes(*b"  ZL");
pub const VERSION: u32 = 1 << 16 | 1;
/// Pixel formats.
pub const RGB24: u32 = 7;
pub const RGB32: u32 = 8;
/// A control byte below this value means that many literals plus one.
pub const COPIES: u8 = 32;
/// A distance from this value on has two more bytes.
const FAR: usize = 8191;

/// Pixels of both formats are three bytes, blue first.
pub fn literal(from: &mut Bytes) -> Result<[u8; PIXEL], Fault> {
    from.take(3).map(|b| [b[0], b[1], b[2], 0])
}

/// Further bytes of a length: after each 255 follows another one.
pub fn longer(from: &mut Bytes, mut length: usize) -> Result<usize, Fault> {
    loop {
        let byte = from.u8()?;
        length += usize::from(byte);
        if byte < 255 {
            return Ok(length);
        }
    }
}

/// Appends a copy of `length` pixels from `distance` back. If some of these do not exist yet, the copy
/// repeats as a run.
pub fn copy(pixels: &mut Vec<[u8; PIXEL]>, distance: usize, length: usize) -> Result<(), Fault> {
    let from = pixels.len().checked_sub(distance).ok_or_else(|| bad("a copy from before an image"))?;
    if distance >= length {
        pixels.extend_from_within(from..from + length);
    } else {
        for i in from..from + length {
            pixels.push(pixels[i]);
        }
    }
    Ok(())
}

/// The fault for an unsupported pixel format.
pub fn other_kind(kind: u32, what: &str) -> Fault {
    Fault::new(FaultKind::Unsupported, format!("an image of {what} whose pixels are of kind {kind}"))
        .because("screens of 32 bits are read (24 or 32 bits a pixel, no alpha)")
        .help("a server with image-compression=off")
}

/// Decodes an image that should have this size.
///
/// # Errors
/// It is broken, has another size, or an unsupported pixel format.
pub fn decode(bytes: &[u8], [width, height]: [usize; 2]) -> Result<Pixels, Fault> {
    let mut from = Bytes::of(bytes, "an image of LZ");
    if (from.u32_be()?, from.u32_be()?) != (MAGIC, VERSION) {
        return Err(bad("an image of LZ without its mark"));
    }
    let kind = from.u32_be()?;
    if kind != RGB24 && kind != RGB32 {
        return Err(other_kind(kind, "LZ"));
    }
    let size = [from.u32_be()?, from.u32_be()?];
    let _stride = from.u32_be()?;
    let top_down = from.u32_be()? != 0;
    if size.map(|v| v as usize) != [width, height] {
        return Err(bad(format!("an image of LZ of {size:?} pixels, not {:?}", [width, height])));
    }
    let n = width * height;
    let mut pixels = Vec::with_capacity(n);
    while pixels.len() < n {
        let control = from.u8()?;
        if control < COPIES {
            for _ in 0..=control {
                pixels.push(literal(&mut from)?);
            }
        } else {
            let mut length = usize::from(control >> 5);
            if length == 7 {
                length = longer(&mut from, length)?;
            }
            let high = usize::from(control & 31) << 8;
            let low = from.u8()?;
            let mut distance = high + usize::from(low);
            if low == 255 && high == 31 << 8 {
                let far = from.take(2)?;
                distance = FAR + (usize::from(far[0]) << 8 | usize::from(far[1]));
            }
            if length > n - pixels.len() {
                return Err(bad("an image of LZ that goes on beyond its end"));
            }
            copy(&mut pixels, distance + 1, length)?;
        }
        if pixels.len() > n {
            return Err(bad("an image of LZ that goes on beyond its end"));
        }
    }
    Ok(Pixels { pixels, top_down })
}
