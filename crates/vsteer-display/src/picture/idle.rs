//! A desktop on which only the clock changes, the most common state of desktops.

use super::canvas::{Band, Size};
use super::{Glyphs, Marks, Scene, glyphs, letters_of, word, write};

const ICONS: usize = 24;
const ICON: (usize, usize) = (96, 80);
const INK: [u8; 3] = [255, 255, 255];
/// The frame rate that the clock assumes for its seconds.
const FRAMES_PER_S: u32 = 60;

/// The scene; see the head of this file.
pub struct Idle {
    size: Size,
    seed: u64,
}

impl Idle {
    pub fn new(size: Size, seed: u64) -> Idle {
        Idle { size, seed }
    }

    /// All texts: left, top, text.
    fn words(&self, frame: u32) -> Vec<(usize, usize, String)> {
        let rows = (self.size.height.saturating_sub(60) / ICON.1).max(1);
        let icon =
            |i: usize| (16 + i / rows * ICON.0, 24 + i % rows * ICON.1 + 40, word(self.seed, i as u64, 7));
        let second = frame / FRAMES_PER_S;
        let clock = format!("{:02}-{:02}-{:02}", second / 3600 % 24, second / 60 % 60, second % 60);
        let right = self.size.width - glyphs::LETTER.0 * (clock.len() + 2);
        (0..ICONS).map(icon).chain([(right, self.size.height - 16, clock)]).collect()
    }
}

impl Scene for Idle {
    fn draw(&self, frame: u32, band: &mut Band, glyphs: &Glyphs) {
        let (rows, height) = (band.rows(), self.size.height);
        for y in rows {
            let shade = (y * 60 / height) as u8;
            band.fill(0, y, self.size.width, 1, [120 - shade / 2, 80 - shade / 2, 40 + shade / 4]);
        }
        band.fill(0, height - 20, self.size.width, 20, [40, 36, 32]);
        for (x, y, text) in self.words(frame) {
            if y + 20 < height {
                band.fill(x + 6, y - 38, 36, 34, [200, 180, 150]);
            }
            write(band, x, y, &text, INK, glyphs);
        }
    }

    fn marks(&self, frame: u32) -> Marks {
        let words = self.words(frame);
        Marks {
            letters: words.iter().flat_map(|(x, y, text)| letters_of(*x, *y, text)).collect(),
            ..Marks::default()
        }
    }
}
