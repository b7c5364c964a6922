//! The frame's number as black and white blocks along the upper left edge. They survive any codec that leaves
//! anything legible.
//!
//! There are four blocks to find it (white, black, white, black), 32 for the number, and 8 for a check. If a
//! window is a little off (a frame around it, a scrolled client), the reader searches the area around.
//!
//! Source: the check is CRC-8 of the polynomial 0x07 (as in ITU-T I.432.1, without its final addition). Left
//! out: scaled pictures.

use super::canvas::{Band, PIXEL, Size};

/// The edge of a block, pixels.
const BLOCK: usize = 8;
const FIND: [bool; 4] = [true, false, true, false];
const BITS: usize = 32;
const CHECK: usize = 8;
/// Width of all blocks together, pixels.
pub const WIDTH: usize = (FIND.len() + BITS + CHECK) * BLOCK;
/// Height of all blocks, pixels.
pub const HEIGHT: usize = BLOCK;
/// The size of the searched area, pixels.
const AROUND: usize = 40;

pub fn draw(frame: u32, band: &mut Band) {
    for (i, white) in blocks(frame).enumerate() {
        band.fill(i * BLOCK, 0, BLOCK, BLOCK, if white { [255; 3] } else { [0; 3] });
    }
}

fn blocks(frame: u32) -> impl Iterator<Item = bool> {
    let bits = |value: u32, n: usize| (0..n).rev().map(move |i| value >> i & 1 == 1);
    FIND.into_iter().chain(bits(frame, BITS)).chain(bits(u32::from(check(frame)), CHECK))
}

fn check(frame: u32) -> u8 {
    frame.to_be_bytes().iter().fold(0xff, |crc, byte| {
        (0..8).fold(crc ^ byte, |crc, _| if crc & 0x80 != 0 { crc << 1 ^ 0x07 } else { crc << 1 })
    })
}

/// A frame's number, and the position of its upper left corner, usually the origin.
pub fn read(pixels: &[u8], size: Size) -> Option<(u32, [usize; 2])> {
    let around = |size: usize, whole: usize| Some(0..AROUND.min(size.checked_sub(whole)? + 1));
    let (across, down) = (around(size.width, WIDTH)?, around(size.height, HEIGHT)?);
    let strip = |at| Some((Strip { pixels, width: size.width, at }.read()?, at));
    let sharp = |(frame, at): &(u32, [usize; 2])| Strip { pixels, width: size.width, at: *at }.agrees(*frame);
    // If the picture is a little off, the middle of each block still belongs to the same block.
    let origin = strip([0, 0]).filter(|found| sharp(found) * 20 >= WIDTH * HEIGHT * 19);
    origin.or_else(|| {
        down.flat_map(|y| across.clone().map(move |x| [x, y])).filter_map(strip).max_by_key(sharp)
    })
}

/// A possible position of the number.
struct Strip<'a> {
    pixels: &'a [u8],
    width: usize,
    at: [usize; 2],
}

impl Strip<'_> {
    /// A pixel's brightness, from its green value.
    fn pixel(&self, x: usize, y: usize) -> u8 {
        self.pixels[((self.at[1] + y) * self.width + self.at[0] + x) * PIXEL + 1]
    }

    /// Uses the middle of the block, because codecs blur edges.
    fn is_white(&self, block: usize) -> bool {
        let middle = [(3, 3), (4, 3), (3, 4), (4, 4)];
        middle.iter().map(|(x, y)| u32::from(self.pixel(block * BLOCK + x, *y))).sum::<u32>() > 4 * 127
    }

    fn read(&self) -> Option<u32> {
        if FIND.iter().enumerate().any(|(i, f)| self.is_white(i) != *f) {
            return None;
        }
        let bits = |from: usize, n: usize| {
            (from..from + n).fold(0u32, |value, i| value << 1 | u32::from(self.is_white(i)))
        };
        let frame = bits(FIND.len(), BITS);
        (bits(FIND.len() + BITS, CHECK) == u32::from(check(frame))).then_some(frame)
    }

    /// How many of its pixels have the value that drawing this number would give.
    fn agrees(&self, frame: u32) -> usize {
        let of_block = |(i, white): (usize, bool)| {
            let pixels = (0..HEIGHT).flat_map(|y| (0..BLOCK).map(move |x| (x, y)));
            pixels.filter(|(x, y)| (self.pixel(i * BLOCK + x, *y) > 127) == white).count()
        };
        blocks(frame).enumerate().map(of_block).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_where_the_window_is_off_and_not_where_it_is_broken() {
        let size = Size { width: 480, height: 64 };
        for frame in [0, 1, 77, u32::MAX] {
            let mut pixels = vec![90; size.bytes()];
            draw(frame, &mut Band::new(&mut pixels, size.width, 0));
            assert_eq!(read(&pixels, size), Some((frame, [0, 0])));
            // The window has a border of 7 pixels on the left and 3 rows.
            let mut off = vec![200; size.bytes()];
            for y in 0..BLOCK {
                let from = y * size.width * PIXEL;
                let to = ((y + 3) * size.width + 7) * PIXEL;
                off[to..to + WIDTH * PIXEL].copy_from_slice(&pixels[from..from + WIDTH * PIXEL]);
            }
            assert_eq!(read(&off, size), Some((frame, [7, 3])));
            // One block is inverted.
            Band::new(&mut pixels, size.width, 0).fill(
                10 * BLOCK,
                0,
                BLOCK,
                BLOCK,
                if frame == 0 { [255; 3] } else { [0; 3] },
            );
            if frame == 0 || frame == u32::MAX {
                assert_eq!(read(&pixels, size), None);
            }
        }
    }
}
