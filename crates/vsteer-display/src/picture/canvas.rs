//! The surface for drawing: rows of pixels (blue, green, red, unused). Each thread has a band of rows.
//!
//! Left out: colours with more than 8 bits, clipping to anything except the band.

use crate::quality::score::Template;

/// Bytes of a pixel.
pub const PIXEL: usize = 4;

/// Width and height, pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Size {
    /// Pixels of a row.
    pub width: usize,
    pub height: usize,
}

impl Size {
    /// Bytes of a frame.
    pub fn bytes(self) -> usize {
        self.width * self.height * PIXEL
    }
}

/// Blue, green, red.
pub type Colour = [u8; 3];

/// Some rows of a frame, to be drawn on.
pub struct Band<'a> {
    pixels: &'a mut [u8],
    width: usize,
    /// The frame's row that is the first row of the band.
    first: usize,
}

impl<'a> Band<'a> {
    /// A band of rows from `first` on.
    pub fn new(pixels: &'a mut [u8], width: usize, first: usize) -> Band<'a> {
        Band { pixels, width, first }
    }

    /// The rows of the frame that it contains.
    pub fn rows(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.pixels.len() / PIXEL / self.width
    }

    /// The bytes of one of its rows.
    pub fn row(&mut self, y: usize) -> &mut [u8] {
        let at = (y - self.first) * self.width * PIXEL;
        &mut self.pixels[at..at + self.width * PIXEL]
    }

    /// Fills a rectangle.
    pub fn fill(&mut self, x: usize, y: usize, width: usize, height: usize, colour: Colour) {
        let (rows, right) = (self.rows(), (x + width).min(self.width));
        for y in y.max(rows.start)..(y + height).min(rows.end) {
            for pixel in self.row(y)[x.min(right) * PIXEL..right * PIXEL].chunks_exact_mut(PIXEL) {
                pixel[..3].copy_from_slice(&colour);
            }
        }
    }

    /// Draws the covered pixels of a template with its upper left corner at this position. Parts outside are
    /// cut off.
    pub fn stamp(&mut self, x: i64, y: i64, template: &Template, colour: Colour) {
        let rows = self.rows();
        for (dy, line) in template.coverage.chunks_exact(template.width).enumerate() {
            let y = y + dy as i64;
            if y < rows.start as i64 || y >= rows.end as i64 {
                continue;
            }
            let width = self.width as i64;
            let row = self.row(y as usize);
            for (dx, coverage) in line.iter().enumerate() {
                let x = x + dx as i64;
                if *coverage > 0 && (0..width).contains(&x) {
                    blend(&mut row[x as usize * PIXEL..], colour, *coverage);
                }
            }
        }
    }

    /// A thin line, anti-aliased (X. Wu, "An efficient antialiasing technique", SIGGRAPH 1991).
    pub fn line(&mut self, from: [f32; 2], to: [f32; 2], colour: Colour) {
        let steep = (to[1] - from[1]).abs() > (to[0] - from[0]).abs();
        let turned = |p: [f32; 2]| if steep { [p[1], p[0]] } else { p };
        let (mut a, mut b) = (turned(from), turned(to));
        if a[0] > b[0] {
            (a, b) = (b, a);
        }
        let slope = if b[0] > a[0] { (b[1] - a[1]) / (b[0] - a[0]) } else { 0.0 };
        for along in a[0].round() as i64..=b[0].round() as i64 {
            let across = a[1] + slope * (along as f32 - a[0]);
            let (low, part) = (across.floor(), across - across.floor());
            for (at, share) in [(low as i64, 1.0 - part), (low as i64 + 1, part)] {
                let (x, y) = if steep { (at, along) } else { (along, at) };
                self.dot(x, y, colour, (share * 255.0) as u8);
            }
        }
    }

    fn dot(&mut self, x: i64, y: i64, colour: Colour, coverage: u8) {
        let rows = self.rows();
        if (rows.start as i64..rows.end as i64).contains(&y) && (0..self.width as i64).contains(&x) {
            blend(&mut self.row(y as usize)[x as usize * PIXEL..], colour, coverage);
        }
    }
}

fn blend(pixel: &mut [u8], colour: Colour, coverage: u8) {
    let coverage = u16::from(coverage);
    for (p, c) in pixel[..3].iter_mut().zip(colour) {
        *p = ((u16::from(*p) * (255 - coverage) + u16::from(c) * coverage + 127) / 255) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_together_are_the_whole() {
        let size = Size { width: 40, height: 30 };
        let template = Template { width: 5, coverage: (0..35).map(|i| (i * 7) as u8).collect() };
        let draw = |band: &mut Band| {
            band.fill(3, 2, 60, 20, [9, 8, 7]);
            band.stamp(-2, 8, &template, [255, 0, 100]);
            band.stamp(37, 27, &template, [255, 0, 100]);
            band.line([1.0, 1.0], [38.5, 26.0], [0, 255, 0]);
            band.line([30.0, 29.0], [28.0, -4.0], [0, 255, 255]);
        };
        let mut whole = vec![1; size.bytes()];
        draw(&mut Band::new(&mut whole, size.width, 0));
        let mut parts = vec![1; size.bytes()];
        for (i, part) in parts.chunks_mut(7 * size.width * PIXEL).enumerate() {
            draw(&mut Band::new(part, size.width, 7 * i));
        }
        assert!(whole == parts && whole.contains(&255));
    }
}
