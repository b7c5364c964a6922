//! A table of numbers in which a few cells change each frame, like a sheet with live market prices.

use super::canvas::{Band, Size};
use super::{Glyphs, Marks, Scene, drawn, letters_of, write};

const CELL: (usize, usize) = (80, 20);
/// A cell changes once in this many frames; different cells change in different frames.
const EVERY: u64 = 120;
const INK: [u8; 3] = [20, 20, 20];
const PAPER: [u8; 3] = [255, 255, 255];
const LINE: [u8; 3] = [208, 208, 208];
const HEAD: [u8; 3] = [236, 228, 220];

/// The scene; see the head of this file.
pub struct Sheet {
    size: Size,
    seed: u64,
}

impl Sheet {
    pub fn new(size: Size, seed: u64) -> Sheet {
        Sheet { size, seed }
    }

    /// The content of a cell: a number that differs after each change.
    fn cell(&self, frame: u32, n: u64) -> String {
        let lot = drawn(self.seed, n);
        let changes = (u64::from(frame) + lot % EVERY) / EVERY;
        format!("{:>6}-{}", drawn(lot, changes) % 1_000_000, n % 10)
    }

    /// The cells of these rows: left, top, text.
    fn cells(
        &self,
        frame: u32,
        rows: std::ops::Range<usize>,
    ) -> impl Iterator<Item = (usize, usize, String)> + '_ {
        let columns = self.size.width / CELL.0;
        let (first, last) = (rows.start / CELL.1, rows.end.div_ceil(CELL.1));
        (first..last).flat_map(move |row| {
            (0..columns).map(move |column| {
                (column * CELL.0 + 8, row * CELL.1 + 5, self.cell(frame, (row * columns + column) as u64))
            })
        })
    }
}

impl Scene for Sheet {
    fn draw(&self, frame: u32, band: &mut Band, glyphs: &Glyphs) {
        let (rows, width) = (band.rows(), self.size.width);
        band.fill(0, rows.start, width, rows.len(), PAPER);
        band.fill(0, 0, width, CELL.1, HEAD);
        for y in (0..self.size.height).step_by(CELL.1) {
            band.fill(0, y, width, 1, LINE);
        }
        for x in (0..width).step_by(CELL.0) {
            band.fill(x, 0, 1, self.size.height, LINE);
        }
        for (x, y, text) in self.cells(frame, rows) {
            write(band, x, y, &text, INK, glyphs);
        }
    }

    fn marks(&self, frame: u32) -> Marks {
        let cells = self.cells(frame, 0..self.size.height);
        Marks {
            letters: cells.flat_map(|(x, y, text)| letters_of(x, y, &text).collect::<Vec<_>>()).collect(),
            ..Marks::default()
        }
    }
}
