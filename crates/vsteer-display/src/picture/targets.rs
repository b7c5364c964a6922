//! Moving targets, as on the screen of a radar operator, in traffic control or in a war game.
//!
//! Each target has a symbol, a vector to its position in two seconds, and a label of five letters. It moves
//! straight and re-enters at the opposite edge. Below is a fixed map: sea and land from smooth noise, with
//! contour lines and a grid. Later targets cover earlier ones.
//!
//! Source: J. Park, J. Korea Inst. Inf. Commun. Eng. 26(10), 2022: 1,000 to 10,000 targets. The paper does
//! not show its symbols. Left out: curves, targets that appear.

use super::canvas::{Band, Colour, PIXEL, Size};
use super::{Glyphs, Marks, Scene, drawn, glyphs, letters_of, mix, word, write};
use crate::quality::score::Mark;

const LABEL: usize = 5;
/// The most pixels per frame, in each direction: 3 is a screen's width in ten seconds at 60 frames per
/// second.
const SPEED_MOST: f32 = 3.0;
/// How many frames ahead a vector points.
const AHEAD: f32 = 12.0;
const COLOURS: [Colour; 4] = [[80, 255, 80], [60, 80, 255], [80, 230, 255], [255, 200, 80]];
/// The map's noise has cells of this many pixels.
const CELL: usize = 160;
const GRID: usize = 120;

struct Target {
    at: [f32; 2],
    speed: [f32; 2],
    symbol: usize,
    label: String,
    colour: Colour,
}

impl Target {
    /// The position of the upper left corner of its symbol.
    fn place(&self, frame: u32, size: Size) -> [usize; 2] {
        let along = |i: usize, size: usize| {
            (self.at[i] + self.speed[i] * frame as f32).rem_euclid((size - glyphs::SYMBOL.0) as f32) as usize
        };
        [along(0, size.width), along(1, size.height)]
    }
}

/// The scene; see the head of this file.
pub struct Targets {
    size: Size,
    all: Vec<Target>,
    map: Vec<u8>,
}

impl Targets {
    pub fn new(size: Size, n: u32, seed: u64) -> Targets {
        let part = |lot: u64, bits: u32| (lot >> bits & 0xffff) as f32 / 65_536.0;
        let target = |i: u64| {
            let (where_, how) = (drawn(seed, 2 * i), drawn(seed, 2 * i + 1));
            Target {
                at: [part(where_, 0) * size.width as f32, part(where_, 16) * size.height as f32],
                speed: [part(where_, 32), part(where_, 48)].map(|p| (2.0 * p - 1.0) * SPEED_MOST),
                symbol: (how % glyphs::symbol_count() as u64) as usize,
                label: word(seed ^ 0x1abe1, i, LABEL),
                colour: COLOURS[(how >> 32) as usize % COLOURS.len()],
            }
        };
        Targets { size, all: (0..u64::from(n)).map(target).collect(), map: map(size, seed) }
    }
}

impl Scene for Targets {
    fn draw(&self, frame: u32, band: &mut Band, glyphs: &Glyphs) {
        let rows = band.rows();
        let line = self.size.width * PIXEL;
        for y in rows.clone() {
            band.row(y).copy_from_slice(&self.map[y * line..(y + 1) * line]);
        }
        // How far a target may reach beyond its symbol.
        let reach = (AHEAD * SPEED_MOST) as usize + glyphs::SYMBOL.1;
        for target in &self.all {
            let [x, y] = target.place(frame, self.size);
            if y + 2 * reach < rows.start || y > rows.end + reach {
                continue;
            }
            let middle = [x as f32 + 5.0, y as f32 + 5.0];
            let tip = [middle[0] + AHEAD * target.speed[0], middle[1] + AHEAD * target.speed[1]];
            band.line(middle, tip, target.colour);
            band.stamp(x as i64, y as i64, &glyphs.symbols[target.symbol], target.colour);
            write(band, x + glyphs::SYMBOL.0 + 1, y, &target.label, target.colour, glyphs);
        }
    }

    fn marks(&self, frame: u32) -> Marks {
        let mut marks = Marks::default();
        for target in &self.all {
            let [x, y] = target.place(frame, self.size);
            marks.symbols.push(Mark { x, y, which: target.symbol });
            marks.letters.extend(letters_of(x + glyphs::SYMBOL.0 + 1, y, &target.label));
        }
        marks
    }
}

/// Sea, land, contour lines, a grid.
fn map(size: Size, seed: u64) -> Vec<u8> {
    let lot = |x: usize, y: usize| (mix(seed ^ (x as u64) << 32 ^ y as u64) >> 40) as f32 / (1 << 24) as f32;
    let smooth = |t: f32| t * t * (3.0 - 2.0 * t);
    let height = |x: usize, y: usize, cell: usize| {
        let (cx, cy) = (x / cell, y / cell);
        let (tx, ty) = (smooth((x % cell) as f32 / cell as f32), smooth((y % cell) as f32 / cell as f32));
        let between = |a: f32, b: f32, t: f32| a + (b - a) * t;
        let row = |cy: usize| between(lot(cx, cy), lot(cx + 1, cy), tx);
        between(row(cy), row(cy + 1), ty)
    };
    let mut pixels = vec![0; size.bytes()];
    for (i, pixel) in pixels.chunks_exact_mut(PIXEL).enumerate() {
        let (x, y) = (i % size.width, i / size.width);
        let h = 0.7 * height(x, y, CELL) + 0.3 * height(x + 7919, y, CELL / 4);
        let colour: Colour = if x % GRID == 0 || y % GRID == 0 {
            [70, 70, 62]
        } else if (h * 20.0).fract() < 0.06 {
            [44, 62, 62]
        } else if h < 0.5 {
            [58 + (h * 40.0) as u8, 34 + (h * 20.0) as u8, 18]
        } else {
            [22, 34 + (h * 24.0) as u8, 34 + (h * 12.0) as u8]
        };
        pixel[..3].copy_from_slice(&colour);
    }
    pixels
}
