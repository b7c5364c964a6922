//! A film in a window on a desktop: waves of colour with grain, which move as a film does, and text beside it.

use super::canvas::{Band, PIXEL, Size};
use super::{Glyphs, Marks, Scene, idle::Idle, mix};

/// See the file's head.
pub struct Video {
    size: Size,
    seed: u64,
    beside: Idle,
}

impl Video {
    pub fn new(size: Size, seed: u64) -> Video {
        Video { size, seed, beside: Idle::new(size, seed) }
    }

    /// The window: left, top, right, bottom; the right half or so.
    fn window(&self) -> [usize; 4] {
        let Size { width, height } = self.size;
        [width * 2 / 5, height / 8, width - 8, height - 32]
    }
}

impl Scene for Video {
    fn draw(&self, frame: u32, band: &mut Band, glyphs: &Glyphs) {
        self.beside.draw(frame, band, glyphs);
        let [left, top, right, bottom] = self.window();
        let (rows, t) = (band.rows(), frame as f32 / 30.0);
        for y in top.max(rows.start)..bottom.min(rows.end) {
            let v = y as f32 / 60.0;
            let mut grain = mix(self.seed ^ u64::from(frame) << 32 ^ y as u64);
            for (x, pixel) in band.row(y)[left * PIXEL..right * PIXEL].chunks_exact_mut(PIXEL).enumerate() {
                let u = x as f32 / 60.0;
                // A wave by its parabola: a sine's cost is not what is to be shown.
                let wave = |p: f32| {
                    let p = p.rem_euclid(2.0) - 1.0;
                    4.0 * p * (1.0 - p.abs())
                };
                grain ^= grain << 13;
                grain ^= grain >> 7;
                grain ^= grain << 17;
                let noise = (grain & 15) as f32;
                let colour = [u + v + t, u - 0.7 * v - 1.3 * t, 0.5 * u + v + 2.0 * t]
                    .map(|p| 112.0 + 100.0 * wave(p) + noise);
                for (p, c) in pixel[..3].iter_mut().zip(colour) {
                    *p = c as u8;
                }
            }
        }
    }

    fn marks(&self, frame: u32) -> Marks {
        let [left, top, right, bottom] = self.window();
        let mut marks = self.beside.marks(frame);
        marks.letters.retain(|m| {
            let clear = m.x + super::glyphs::LETTER.0 <= left || m.x >= right || m.y >= bottom;
            clear || m.y + super::glyphs::LETTER.1 <= top
        });
        marks
    }
}
