//! Text that scrolls: a page of words, dark on white, like a log or a document.
//!
//! It moves up by [`STEP`] pixels per frame without end. Each line is pseudorandom, from its number.

use super::canvas::{Band, Size};
use super::{Glyphs, Marks, Scene, glyphs, letters_of, word, write};

/// Pixels per frame.
const STEP: usize = 4;
const LINE: usize = 14;
const MARGIN: usize = 16;
const INK: [u8; 3] = [40, 30, 30];
const PAPER: [u8; 3] = [252, 252, 252];

/// The scene; see the head of this file.
pub struct Text {
    size: Size,
    seed: u64,
}

impl Text {
    pub fn new(size: Size, seed: u64) -> Text {
        Text { size, seed }
    }

    /// A line of the endless text: words of three to nine letters, and some lines that end early.
    fn line(&self, n: usize) -> String {
        let letters = (self.size.width - 2 * MARGIN) / glyphs::LETTER.0;
        let seed = self.seed ^ (n as u64) << 20;
        let end = if super::drawn(seed, 0).is_multiple_of(4) { letters / 2 } else { letters };
        let mut line = String::new();
        for i in 1.. {
            let length = 3 + super::drawn(seed, i) as usize % 7;
            if line.len() + length + 1 > end {
                break;
            }
            line += &word(seed, 1000 + i, length);
            line.push(' ');
        }
        line
    }

    /// The lines at least partly visible in these rows, with their upper edges; without a line that begins
    /// above the screen.
    fn seen(&self, frame: u32, rows: std::ops::Range<usize>) -> impl Iterator<Item = (usize, String)> + '_ {
        let scrolled = frame as usize * STEP;
        let first = (scrolled + rows.start).saturating_sub(LINE) / LINE;
        let last = (scrolled + rows.end) / LINE;
        (first..=last).filter_map(move |n| Some(((n * LINE).checked_sub(scrolled)?, self.line(n))))
    }
}

impl Scene for Text {
    fn draw(&self, frame: u32, band: &mut Band, glyphs: &Glyphs) {
        let rows = band.rows();
        band.fill(0, rows.start, self.size.width, rows.len(), PAPER);
        for (y, line) in self.seen(frame, rows) {
            write(band, MARGIN, y, &line, INK, glyphs);
        }
    }

    fn marks(&self, frame: u32) -> Marks {
        let lines = self.seen(frame, 0..self.size.height);
        Marks {
            letters: lines.flat_map(|(y, line)| letters_of(MARGIN, y, &line).collect::<Vec<_>>()).collect(),
            ..Marks::default()
        }
    }
}
