//! Decodes SPICE's GLZ images. They are like LZ's, but a copy may refer to an earlier image. So the last
//! images are kept, and each image says from which one on they are needed.
//!
//! Source: the format as in spice-gtk's decode-glz.c and decode-glz-tmpl.c (0.42). Left out: palettes, 16
//! bits, alpha; a window that several displays share.

use super::bad;
use super::bytes::Bytes;
use super::lz::{self, COPIES, MAGIC, RGB24, RGB32, VERSION};
use crate::picture::canvas::PIXEL;
use crate::spice::pixels::Pixels;
use std::collections::BTreeMap;
use vsteer_core::Fault;

/// The client allows the server to refer to this many pixels.
pub const WINDOW_PIXELS: i32 = 8 << 20;
/// The most pixels to keep, whatever the server says: twice as many, for an image that has just arrived.
const KEPT_MOST: usize = 2 * WINDOW_PIXELS as usize;
/// The pixel format within its byte; the bit above means that rows start at the top.
const KIND: u8 = 15;
const TOP_DOWN: u8 = 16;

/// The images that later ones may refer to, by number.
#[derive(Default)]
pub struct Window {
    images: BTreeMap<u64, Vec<[u8; PIXEL]>>,
    kept: usize,
}

impl Window {
    /// Decodes an image that should have this size, and keeps it.
    ///
    /// # Errors
    /// It is broken, has another size or an unsupported pixel format, or refers to an image that is not kept.
    pub fn decode(&mut self, bytes: &[u8], [width, height]: [usize; 2]) -> Result<Pixels, Fault> {
        let mut from = Bytes::of(bytes, "an image of GLZ");
        if (from.u32_be()?, from.u32_be()?) != (MAGIC, VERSION) {
            return Err(bad("an image of GLZ without its mark"));
        }
        let kind = from.u8()?;
        if ![RGB24, RGB32].contains(&u32::from(kind & KIND)) {
            return Err(lz::other_kind((kind & KIND).into(), "GLZ"));
        }
        let size = [from.u32_be()?, from.u32_be()?];
        let _stride = from.u32_be()?;
        if size.map(|v| v as usize) != [width, height] {
            return Err(bad(format!("an image of GLZ of {size:?} pixels, not {:?}", [width, height])));
        }
        let number = from.u64_be()?;
        let oldest = number.saturating_sub(from.u32_be()?.into());
        let pixels = self.pixels(&mut from, number, width * height)?;
        self.keep(number, oldest, pixels.clone())?;
        Ok(Pixels { pixels, top_down: kind & TOP_DOWN != 0 })
    }

    fn keep(&mut self, number: u64, oldest: u64, pixels: Vec<[u8; PIXEL]>) -> Result<(), Fault> {
        while let Some(first) = self.images.first_entry().filter(|e| *e.key() < oldest) {
            self.kept -= first.remove().len();
        }
        self.kept += pixels.len();
        if let Some(before) = self.images.insert(number, pixels) {
            self.kept -= before.len();
        }
        if self.kept > KEPT_MOST {
            return Err(bad(format!("images of GLZ of {} pixels to be kept", self.kept)));
        }
        Ok(())
    }

    fn pixels(&self, from: &mut Bytes, number: u64, n: usize) -> Result<Vec<[u8; PIXEL]>, Fault> {
        let mut pixels = Vec::with_capacity(n);
        while pixels.len() < n {
            let control = from.u8()?;
            if control < COPIES {
                for _ in 0..=control {
                    pixels.push(lz::literal(from)?);
                }
            } else {
                let copied = Copied::read(from, control)?;
                if copied.length > n - pixels.len() {
                    return Err(bad("an image of GLZ that goes on beyond its end"));
                }
                if copied.images == 0 {
                    lz::copy(&mut pixels, copied.pixels + 1, copied.length)?;
                } else {
                    let other = number.checked_sub(copied.images).and_then(|of| self.images.get(&of));
                    let until = copied.pixels.saturating_add(copied.length);
                    let part = other.and_then(|image| image.get(copied.pixels..until));
                    let missing = || bad(format!("a copy from the {}th image before", copied.images));
                    pixels.extend_from_slice(part.ok_or_else(missing)?);
                }
            }
            if pixels.len() > n {
                return Err(bad("an image of GLZ that goes on beyond its end"));
            }
        }
        Ok(pixels)
    }
}

/// A copy of earlier pixels.
#[derive(Debug, PartialEq, Eq)]
struct Copied {
    length: usize,
    /// The source is this many images before; 0 means this one.
    images: u64,
    /// In another image: the first pixel. In this image: the distance back, minus one.
    pixels: usize,
}

impl Copied {
    /// The first byte has 3 bits of the length, a bit for long pixel offsets, and 4 bits of the offset. Then
    /// follow the length's further bytes, 8 bits of the offset, and a byte with the number of further bytes
    /// of the image's distance. The rest of that byte is the lowest 6 bits of the distance, or 5 bits of a
    /// long offset and whether it has 8 more bits.
    fn read(from: &mut Bytes, control: u8) -> Result<Copied, Fault> {
        let mut length = usize::from(control >> 5);
        if length == 7 {
            length = lz::longer(from, length)?;
        }
        let mut pixels = usize::from(control & 15) | usize::from(from.u8()?) << 4;
        let byte = from.u8()?;
        let more = byte >> 6;
        let (mut images, mut shift) = (0, 0);
        if control & 16 == 0 {
            images = u64::from(byte & 63);
            shift = 6;
        } else {
            pixels |= usize::from(byte & 31) << 12;
        }
        for i in 0..more {
            images |= u64::from(from.u8()?) << (shift + 8 * i);
        }
        if control & 16 != 0 && byte & 32 != 0 {
            pixels |= usize::from(from.u8()?) << 17;
        }
        Ok(Copied { length, images, pixels })
    }
}
