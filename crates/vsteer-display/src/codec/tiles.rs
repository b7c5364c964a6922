//! A codec for the regions of a desktop, named `tiles`. It is this project's own stand-in for codecs whose
//! source is not available (VMware's Blast among them). Results always name it as `tiles`.
//!
//! The frame is divided into tiles of 16x16 pixels. Unchanged tiles are not sent. Scrolled content is sent as
//! a move of rows (found by the rows' hashes). A changed tile with few colours is text or a drawing. It is
//! sent without loss: a palette, and a palette index per pixel. A tile with many colours is a picture. The
//! first time it is also sent without loss. If it keeps changing, it is sent as an 8x8 transform with halved
//! colours, as in JPEG. When a tile has not changed for [`STILL`] frames, the lost detail is sent (*build to
//! lossless*). All of this is compressed with LZ4.
//!
//! Sources: G. Wallace, "The JPEG still picture standard", CACM 34(4), 1991 (transform, its quantization
//! table for brightness at quality 50, halved here); H. Malvar, G. Sullivan, "YCoCg-R", JVT-I014r3, 2003
//! (colours; here with loss). Left out: horizontal moves, entropy coding, more than one thread.

use super::{Decoder, Encoder};
use crate::picture::canvas::{PIXEL, Size};
use std::collections::HashMap;
use vsteer_core::{Fault, FaultKind};

const TILE: usize = 16;
const BLOCK: usize = 8;
/// The most colours of a palette: letters with soft edges on a plain background have some thirty.
const PALETTE: usize = 64;
/// Unchanged frames after which the lost detail is sent.
const STILL: u8 = 15;
/// A tile with this many recent changes counts as moving.
const MOVES: u8 = 3;
/// A scroll needs at least one in this many rows to have moved equally far.
const SCROLLED: usize = 8;

/// Codes for the content of a tile.
const SAME: u8 = 0;
const COLOURS: u8 = 1;
const RAW: u8 = 2;
const LOSSY: u8 = 3;

/// The quantization table for brightness at JPEG's quality 75, by rows; colours have twice these values.
const QUANTITIES: [u8; 64] = [
    8, 6, 5, 8, 12, 20, 26, 31, 6, 6, 7, 10, 13, 29, 30, 28, 7, 7, 8, 12, 20, 29, 35, 28, 7, 9, 11, 15, 26,
    44, 40, 31, 9, 11, 19, 28, 34, 55, 52, 39, 12, 18, 28, 32, 41, 52, 57, 46, 25, 32, 39, 44, 52, 61, 60,
    51, 36, 46, 48, 49, 56, 50, 52, 50,
];
const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7,
    14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39,
    46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// The sender's state of a tile.
#[derive(Clone, Copy, Default)]
struct Tile {
    /// The receiver has it with loss.
    lossy: bool,
    /// Rises with each change, falls without one.
    changes: u8,
    /// Frames since the last change.
    still: u8,
}

pub struct Sender {
    size: Size,
    /// The last sent frame; empty before the first.
    before: Vec<u8>,
    now: Vec<u8>,
    tiles: Vec<Tile>,
    body: Vec<u8>,
    transform: Transform,
}

impl Sender {
    /// A sender for frames of this size.
    pub fn new(size: Size) -> Sender {
        let n = size.width.div_ceil(TILE) * size.height.div_ceil(TILE);
        Sender {
            size,
            before: Vec::new(),
            now: vec![0; size.bytes()],
            tiles: vec![Tile::default(); n],
            body: Vec::new(),
            transform: Transform::new(),
        }
    }

    /// Rows that moved equally far: the first row, one past the last, and how far below they were in the
    /// previous frame (negative: above).
    fn scrolled(&self) -> Option<(usize, usize, isize)> {
        let line = self.size.width * PIXEL;
        let hash = |row: &[u8]| -> u64 {
            row.chunks_exact(8).fold(0xcbf2_9ce4_8422_2325, |h, c| {
                let v = u64::from_le_bytes(c.try_into().expect("eight bytes"));
                (h ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
            })
        };
        let now: Vec<u64> = self.now.chunks_exact(line).map(hash).collect();
        let before: Vec<u64> = self.before.chunks_exact(line).map(hash).collect();
        if now.iter().zip(&before).filter(|(a, b)| a == b).count() * 2 > now.len() {
            return None;
        }
        // Only rows that exist once count, because blank rows give no evidence.
        let mut at: HashMap<u64, Option<usize>> = HashMap::new();
        for (y, h) in before.iter().enumerate() {
            at.entry(*h).and_modify(|place| *place = None).or_insert(Some(y));
        }
        let mut votes: HashMap<isize, usize> = HashMap::new();
        for (y, h) in now.iter().enumerate() {
            if let Some(Some(from)) = at.get(h) {
                *votes.entry(*from as isize - y as isize).or_default() += 1;
            }
        }
        let (dy, n) =
            votes.into_iter().filter(|(dy, _)| *dy != 0).max_by_key(|(dy, n)| (*n, -dy.abs(), *dy))?;
        if n * SCROLLED < now.len() {
            return None;
        }
        // The longest run of rows with that move.
        let fits = |y: usize| y.checked_add_signed(dy).and_then(|from| before.get(from)) == Some(&now[y]);
        let (mut best, mut begun) = ((0, 0), 0);
        for y in 0..=now.len() {
            if y == now.len() || !fits(y) {
                if y - begun > best.1 - best.0 {
                    best = (begun, y);
                }
                begun = y + 1;
            }
        }
        (best.1 > best.0).then_some((best.0, best.1, dy))
    }

    fn tile(&mut self, n: usize) -> u8 {
        let columns = self.size.width.div_ceil(TILE);
        let area = Area::of(self.size, n % columns, n / columns);
        let mut changed = true;
        if !self.before.is_empty() {
            changed = area.rows(self.size).any(|row| self.now[row.clone()] != self.before[row]);
        }
        let tile = &mut self.tiles[n];
        if !changed {
            tile.changes = tile.changes.saturating_sub(1);
            tile.still = tile.still.saturating_add(1);
            if !(tile.lossy && tile.still >= STILL) {
                return SAME;
            }
            tile.lossy = false;
        } else {
            tile.changes = (tile.changes + 2).min(2 * MOVES);
            tile.still = 0;
        }
        let moves = changed && tile.changes > MOVES;
        let begun = self.body.len();
        if area.colours(self.size, &self.now, &mut self.body) {
            self.tiles[n].lossy = false;
            return COLOURS;
        }
        self.body.truncate(begun);
        self.tiles[n].lossy = moves;
        if moves {
            self.transform.send(&area, self.size, &self.now, &mut self.body);
            LOSSY
        } else {
            area.raw(self.size, &self.now, &mut self.body);
            RAW
        }
    }
}

impl Encoder for Sender {
    fn convert(&mut self, pixels: &[u8]) -> Result<(), Fault> {
        // The fourth byte has no meaning and must not count as a difference.
        self.now.copy_from_slice(pixels);
        Ok(())
    }

    fn encode(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.body.clear();
        let any_lossy = self.tiles.iter().any(|t| t.lossy);
        let moved = if self.before.is_empty() || any_lossy { None } else { self.scrolled() };
        let (from, until, dy) = moved.unwrap_or_default();
        for n in [from, until, dy as usize] {
            self.body.extend((n as u32).to_le_bytes());
        }
        if moved.is_some() {
            move_rows(&mut self.before, self.size, from, until, dy);
        }
        let says_at = self.body.len();
        self.body.resize(says_at + self.tiles.len(), SAME);
        for n in 0..self.tiles.len() {
            let says = self.tile(n);
            self.body[says_at + n] = says;
        }
        self.before.clear();
        self.before.extend_from_slice(&self.now);
        out.extend(lz4_flex::compress_prepend_size(&self.body));
        Ok(())
    }
}

/// Rows `from` to `until` become the rows that were `dy` below them.
fn move_rows(pixels: &mut [u8], size: Size, from: usize, until: usize, dy: isize) {
    let line = size.width * PIXEL;
    let source = from.checked_add_signed(dy).expect("looked up");
    pixels.copy_within(source * line..(source + until - from) * line, from * line);
}

/// A tile's pixels; fewer at the right and lower edges.
struct Area {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

impl Area {
    fn of(size: Size, column: usize, row: usize) -> Area {
        let (x, y) = (column * TILE, row * TILE);
        Area { x, y, width: TILE.min(size.width - x), height: TILE.min(size.height - y) }
    }

    /// The byte ranges of its rows.
    fn rows(&self, size: Size) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
        (self.y..self.y + self.height).map(move |y| {
            let at = (y * size.width + self.x) * PIXEL;
            at..at + self.width * PIXEL
        })
    }

    /// Writes few colours: their number, the palette, and an index per pixel. Returns false if there are
    /// more.
    fn colours(&self, size: Size, pixels: &[u8], out: &mut Vec<u8>) -> bool {
        let mut palette = [0u32; PALETTE];
        let (mut n, mut last) = (0, 0);
        let mut places = [0u8; TILE * TILE];
        let mut i = 0;
        for row in self.rows(size) {
            for p in pixels[row].chunks_exact(PIXEL) {
                let colour = u32::from_le_bytes([p[0], p[1], p[2], 0]);
                if i == 0 || palette[last] != colour {
                    last = match palette[..n].iter().position(|c| *c == colour) {
                        Some(place) => place,
                        None if n == PALETTE => return false,
                        None => {
                            palette[n] = colour;
                            n += 1;
                            n - 1
                        }
                    };
                }
                places[i] = last as u8;
                i += 1;
            }
        }
        out.push(n as u8);
        palette[..n].iter().for_each(|c| out.extend(&c.to_le_bytes()[..3]));
        if n <= PALETTE_OF_FOUR_BITS {
            out.extend(places[..i].chunks(2).map(|p| p[0] | p.get(1).unwrap_or(&0) << 4));
        } else {
            out.extend(&places[..i]);
        }
        true
    }

    /// Writes each pixel as the difference from its left neighbour.
    fn raw(&self, size: Size, pixels: &[u8], out: &mut Vec<u8>) {
        for row in self.rows(size) {
            let mut left = [0u8; 3];
            for p in pixels[row].chunks_exact(PIXEL) {
                for (l, c) in left.iter_mut().zip(p) {
                    out.push(c.wrapping_sub(*l));
                    *l = *c;
                }
            }
        }
    }
}

/// Up to this palette size, an index needs four bits.
const PALETTE_OF_FOUR_BITS: usize = 16;

/// The received bytes, read one after the other.
struct Taken<'a>(&'a [u8]);

impl<'a> Taken<'a> {
    fn some(&mut self, n: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or_else(broken)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        Ok(self.some(1)?[0])
    }
}

/// The most bytes that one tile takes in a frame: 256 pixels, in the form that needs most.
const TILE_MOST: usize = 4096;

fn broken() -> Fault {
    Fault::new(FaultKind::BadInput, "a frame of tiles is broken")
}

/// Builds frames from the received changes.
pub struct Receiver {
    size: Size,
    pixels: Vec<u8>,
    transform: Transform,
}

impl Receiver {
    /// A receiver for frames of this size.
    pub fn new(size: Size) -> Receiver {
        Receiver { size, pixels: vec![0; size.bytes()], transform: Transform::new() }
    }

    fn take_colours(&mut self, area: &Area, taken: &mut Taken) -> Result<(), Fault> {
        let n = usize::from(taken.byte()?);
        if n == 0 || n > PALETTE {
            return Err(broken());
        }
        let palette = taken.some(3 * n)?;
        let pixels = area.width * area.height;
        let narrow = n <= PALETTE_OF_FOUR_BITS;
        let places = taken.some(if narrow { pixels.div_ceil(2) } else { pixels })?;
        let place =
            |i: usize| usize::from(if narrow { places[i / 2] >> (4 * (i % 2)) & 15 } else { places[i] });
        let mut i = 0;
        for row in area.rows(self.size) {
            for p in self.pixels[row].chunks_exact_mut(PIXEL) {
                p[..3].copy_from_slice(palette.get(3 * place(i)..3 * place(i) + 3).ok_or_else(broken)?);
                i += 1;
            }
        }
        Ok(())
    }
}

impl Decoder for Receiver {
    fn decode(&mut self, bytes: &[u8]) -> Result<bool, Fault> {
        // The sender names the size of the content, and the decoder makes room for it. No frame needs more than its tiles.
        let tiles = self.size.width.div_ceil(TILE) * self.size.height.div_ceil(TILE);
        let size = bytes.first_chunk::<4>().map_or(0, |n| u32::from_le_bytes(*n)) as usize;
        let most = 12 + tiles * (1 + TILE_MOST);
        if size > most {
            return Err(
                broken().because(format!("it names {size} bytes of content, and {most} are the most"))
            );
        }
        let body = lz4_flex::decompress_size_prepended(bytes).map_err(|e| broken().because(e))?;
        let mut taken = Taken(&body);
        let mut number =
            || Ok::<u32, Fault>(u32::from_le_bytes(taken.some(4)?.try_into().expect("four bytes")));
        let (from, until, dy) = (number()? as usize, number()? as usize, number()? as i32 as isize);
        if until > from {
            let source = from.checked_add_signed(dy).filter(|s| s + until - from <= self.size.height);
            if source.is_none() || until > self.size.height {
                return Err(broken());
            }
            move_rows(&mut self.pixels, self.size, from, until, dy);
        }
        let columns = self.size.width.div_ceil(TILE);
        let says = taken.some(columns * self.size.height.div_ceil(TILE))?;
        for (n, says) in says.iter().enumerate().filter(|(_, says)| **says != SAME) {
            let area = Area::of(self.size, n % columns, n / columns);
            match *says {
                COLOURS => self.take_colours(&area, &mut taken)?,
                RAW => {
                    for row in area.rows(self.size) {
                        let mut left = [0u8; 3];
                        for p in self.pixels[row].chunks_exact_mut(PIXEL) {
                            for ((l, c), d) in left.iter_mut().zip(p).zip(taken.some(3)?) {
                                *l = l.wrapping_add(*d);
                                *c = *l;
                            }
                        }
                    }
                }
                LOSSY => self.transform.take(&area, self.size, &mut taken, &mut self.pixels)?,
                _ => return Err(broken()),
            }
        }
        Ok(true)
    }

    fn present(&mut self, pixels: &mut [u8]) -> Result<(), Fault> {
        pixels.copy_from_slice(&self.pixels);
        Ok(())
    }
}

/// The transform of 8x8 blocks.
struct Transform {
    cosines: [[f32; BLOCK]; BLOCK],
}

impl Transform {
    fn new() -> Transform {
        let cosine = |k: usize, n: usize| {
            let scale = if k == 0 { (1.0f64 / 8.0).sqrt() } else { 0.5 };
            (scale * (std::f64::consts::PI * (2 * n + 1) as f64 * k as f64 / 16.0).cos()) as f32
        };
        Transform { cosines: std::array::from_fn(|k| std::array::from_fn(|n| cosine(k, n))) }
    }

    /// Four blocks of brightness, then one block of each halved colour. Pixels outside an edge repeat the
    /// edge.
    fn send(&self, area: &Area, size: Size, pixels: &[u8], out: &mut Vec<u8>) {
        let mut planes = [[0f32; TILE * TILE]; 3];
        for y in 0..TILE {
            for x in 0..TILE {
                let at =
                    ((area.y + y.min(area.height - 1)) * size.width + area.x + x.min(area.width - 1)) * PIXEL;
                let [b, g, r] = [0, 1, 2].map(|i| f32::from(pixels[at + i]));
                let i = y * TILE + x;
                planes[0][i] = 0.25 * r + 0.5 * g + 0.25 * b - 128.0;
                planes[1][i] = 0.5 * r - 0.5 * b;
                planes[2][i] = -0.25 * r + 0.5 * g - 0.25 * b;
            }
        }
        for (dx, dy) in [(0, 0), (8, 0), (0, 8), (8, 8)] {
            let block = std::array::from_fn(|i| planes[0][(dy + i / 8) * TILE + dx + i % 8]);
            self.send_block(&block, 1.0, out);
        }
        for plane in &planes[1..] {
            let halved = |i: usize| {
                let at = 2 * (i / 8) * TILE + 2 * (i % 8);
                0.25 * (plane[at] + plane[at + 1] + plane[at + TILE] + plane[at + TILE + 1])
            };
            self.send_block(&std::array::from_fn(halved), 2.0, out);
        }
    }

    /// Each nonzero value as the number of zeros before it and two bytes; then 255.
    fn send_block(&self, block: &[f32; 64], coarser: f32, out: &mut Vec<u8>) {
        let mut rows = [[0f32; BLOCK]; BLOCK];
        for (row, values) in rows.iter_mut().zip(block.chunks_exact(BLOCK)) {
            for (sum, cosines) in row.iter_mut().zip(&self.cosines) {
                *sum = values.iter().zip(cosines).map(|(v, c)| v * c).sum();
            }
        }
        let quantities: [i16; 64] = std::array::from_fn(|i| {
            let (v, u) = (i / BLOCK, i % BLOCK);
            let sum: f32 = rows.iter().zip(&self.cosines[v]).map(|(row, cosine)| row[u] * cosine).sum();
            (sum / (coarser * f32::from(QUANTITIES[i]))).round() as i16
        });
        let mut zeros = 0u8;
        for at in ZIGZAG {
            let q = quantities[usize::from(at)];
            if q == 0 {
                zeros += 1;
                continue;
            }
            out.push(zeros);
            zeros = 0;
            // Most values fit into one byte.
            match i8::try_from(q) {
                Ok(q) if q != i8::MIN => out.push(q as u8),
                _ => {
                    out.push(i8::MIN as u8);
                    out.extend(q.to_le_bytes());
                }
            }
        }
        out.push(u8::MAX);
    }

    fn take(&self, area: &Area, size: Size, taken: &mut Taken, pixels: &mut [u8]) -> Result<(), Fault> {
        let mut brightness = [0f32; TILE * TILE];
        for (dx, dy) in [(0, 0), (8, 0), (0, 8), (8, 8)] {
            let block = self.take_block(1.0, taken)?;
            for (i, v) in block.iter().enumerate() {
                brightness[(dy + i / 8) * TILE + dx + i % 8] = *v;
            }
        }
        let (orange, green) = (self.take_block(2.0, taken)?, self.take_block(2.0, taken)?);
        for y in 0..area.height {
            for x in 0..area.width {
                let half = y / 2 * BLOCK + x / 2;
                let (luma, co, cg) = (brightness[y * TILE + x] + 128.0, orange[half], green[half]);
                let at = ((area.y + y) * size.width + area.x + x) * PIXEL;
                for (p, c) in pixels[at..at + 3].iter_mut().zip([luma - cg - co, luma + cg, luma - cg + co]) {
                    *p = c.round().clamp(0.0, 255.0) as u8;
                }
            }
        }
        Ok(())
    }

    fn take_block(&self, coarser: f32, taken: &mut Taken) -> Result<[f32; 64], Fault> {
        let mut sums = [0f32; 64];
        let mut place = 0usize;
        loop {
            let zeros = taken.byte()?;
            if zeros == u8::MAX {
                break;
            }
            place += usize::from(zeros);
            let at = usize::from(*ZIGZAG.get(place).ok_or_else(broken)?);
            place += 1;
            let q = match taken.byte()? as i8 {
                i8::MIN => i16::from_le_bytes(taken.some(2)?.try_into().expect("two bytes")),
                q => i16::from(q),
            };
            sums[at] = f32::from(q) * coarser * f32::from(QUANTITIES[at]);
        }
        let mut rows = [0f32; 64];
        for v in 0..BLOCK {
            for x in 0..BLOCK {
                rows[v * BLOCK + x] = (0..BLOCK).map(|u| sums[v * BLOCK + u] * self.cosines[u][x]).sum();
            }
        }
        Ok(std::array::from_fn(|i| {
            (0..BLOCK).map(|v| rows[v * BLOCK + i % BLOCK] * self.cosines[v][i / BLOCK]).sum()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::{Kind, Picture};
    use crate::quality::score::psnr_rgb;
    use proptest::prelude::*;

    const SIZE: Size = Size { width: 456, height: 250 };

    fn send(sender: &mut Sender, pixels: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        sender.convert(pixels).unwrap();
        sender.encode(&mut out).unwrap();
        out
    }

    fn same(a: &[u8], b: &[u8]) -> bool {
        psnr_rgb(a, b).is_infinite()
    }

    #[test]
    fn text_that_scrolls_is_sent_without_loss_and_as_a_move() {
        let picture = Picture::new(Kind::Text, SIZE, 0, 3).unwrap();
        let (mut sender, mut receiver) = (Sender::new(SIZE), Receiver::new(SIZE));
        let [mut pixels, mut got] = [vec![0; SIZE.bytes()], vec![0; SIZE.bytes()]];
        let mut bytes = Vec::new();
        for frame in 10..16 {
            picture.draw(frame, &mut pixels, 1);
            let sent = send(&mut sender, &pixels);
            assert!(receiver.decode(&sent).unwrap());
            receiver.present(&mut got).unwrap();
            assert!(same(&pixels, &got), "frame {frame}");
            bytes.push(sent.len());
        }
        assert!(bytes[1..].iter().all(|n| n * 5 < bytes[0]), "{bytes:?}");
    }

    #[test]
    fn a_film_is_sent_with_loss_and_made_good_once_it_stands_still() {
        let picture = Picture::new(Kind::Video, SIZE, 0, 3).unwrap();
        let (mut sender, mut receiver) = (Sender::new(SIZE), Receiver::new(SIZE));
        let [mut pixels, mut got] = [vec![0; SIZE.bytes()], vec![0; SIZE.bytes()]];
        let mut show = |frame: u32| {
            picture.draw(frame, &mut pixels, 1);
            receiver.decode(&send(&mut sender, &pixels)).unwrap();
            receiver.present(&mut got).unwrap();
            psnr_rgb(&pixels, &got)
        };
        (0..9).for_each(|frame| {
            show(frame);
        });
        let moving = show(9);
        assert!((26.0..50.0).contains(&moving), "{moving} dB");
        let still: Vec<f64> = (0..=STILL).map(|_| show(9)).collect();
        assert!(still.last().unwrap().is_infinite(), "{still:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// For any content: once the picture stops changing, the receiver has it exactly.
        #[test]
        fn all_is_lossless_once_still(seed in 0u64..1000, width in 1usize..50, height in 1usize..50) {
            let size = Size { width, height };
            let (mut sender, mut receiver) = (Sender::new(size), Receiver::new(size));
            let mut pixels = vec![0u8; size.bytes()];
            let mut lot = seed;
            for _ in 0..6 {
                pixels.iter_mut().for_each(|p| { lot = lot.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); *p = (lot >> 56) as u8; });
                receiver.decode(&send(&mut sender, &pixels)).unwrap();
            }
            for _ in 0..=STILL {
                receiver.decode(&send(&mut sender, &pixels)).unwrap();
            }
            let mut got = vec![0; size.bytes()];
            receiver.present(&mut got).unwrap();
            prop_assert!(same(&pixels, &got));
        }

        /// A frame names the size of its content. A size that no frame needs takes no memory.
        #[test]
        fn a_size_that_no_frame_needs_is_refused(more in 1u32..) {
            let mut receiver = Receiver::new(Size { width: 16, height: 16 });
            let most = 12 + 1 + TILE_MOST as u32;
            let refused = receiver.decode(&most.saturating_add(more).to_le_bytes()).unwrap_err();
            prop_assert!(refused.to_string().contains("bytes of content"), "{refused}");
        }

        /// Received bytes may have any value.
        #[test]
        fn nothing_that_is_received_ends_the_program(body in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut receiver = Receiver::new(Size { width: 40, height: 33 });
            let _ = receiver.decode(&body);
            let _ = receiver.decode(&lz4_flex::compress_prepend_size(&body));
        }
    }
}
