//! A film in a window on a desktop, with text beside it. The film is waves of colour with grain, which move
//! as in a film.

use super::canvas::{Band, PIXEL, Size};
use super::{Glyphs, Marks, Scene, idle::Idle, mix};

/// The scene; see the head of this file.
pub struct Video {
    size: Size,
    seed: u64,
    beside: Idle,
}

impl Video {
    pub fn new(size: Size, seed: u64) -> Video {
        Video { size, seed, beside: Idle::new(size, seed) }
    }

    /// The window: left, top, right, bottom; about the right half.
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
                // A parabola instead of a sine wave, because drawing should be cheap.
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
