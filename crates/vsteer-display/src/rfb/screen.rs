//! The framebuffer of a viewer in the canvas's pixel format.
//!
//! Callers must check that a rectangle is inside. Left out: a pointer.

use crate::picture::canvas::{PIXEL, Size};

/// A rectangle, pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rect {
    /// Position of the left edge.
    pub x: usize,
    /// Position of the upper edge.
    pub y: usize,
    /// Pixels of a row.
    pub width: usize,
    pub height: usize,
}

impl Rect {
    pub fn pixels(self) -> usize {
        self.width * self.height
    }
}

pub struct Screen {
    size: Size,
    pixels: Vec<u8>,
}

impl Screen {
    /// A black screen.
    pub fn new(size: Size) -> Screen {
        Screen { size, pixels: vec![0; size.bytes()] }
    }

    pub fn size(&self) -> Size {
        self.size
    }

    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// Is the rectangle inside the screen?
    pub fn has(&self, rect: Rect) -> bool {
        rect.x + rect.width <= self.size.width && rect.y + rect.height <= self.size.height
    }

    /// A row of a rectangle.
    pub fn row(&mut self, rect: Rect, y: usize) -> &mut [u8] {
        let at = ((rect.y + y) * self.size.width + rect.x) * PIXEL;
        &mut self.pixels[at..at + rect.width * PIXEL]
    }

    /// Writes pixels, row after row.
    pub fn put(&mut self, rect: Rect, pixels: &[u8]) {
        if rect.width > 0 {
            for (y, row) in pixels.chunks_exact(rect.width * PIXEL).enumerate() {
                self.row(rect, y).copy_from_slice(row);
            }
        }
    }

    /// Fills a rectangle with one pixel.
    pub fn fill(&mut self, rect: Rect, pixel: [u8; PIXEL]) {
        for y in 0..rect.height {
            self.row(rect, y).chunks_exact_mut(PIXEL).for_each(|p| p.copy_from_slice(&pixel));
        }
    }

    /// Copies a rectangle to another of the same size; they may overlap.
    pub fn copy(&mut self, from: Rect, to: Rect) {
        let rows: Vec<u8> = (0..from.height).flat_map(|y| self.row(from, y).to_vec()).collect();
        self.put(to, &rows);
    }

    /// A part of the screen; `None` if it is not inside.
    pub fn part(&self, at: [usize; 2], size: Size) -> Option<Vec<u8>> {
        let rect = Rect { x: at[0], y: at[1], width: size.width, height: size.height };
        self.has(rect).then(|| {
            (0..size.height)
                .flat_map(|y| {
                    let at = ((rect.y + y) * self.size.width + rect.x) * PIXEL;
                    &self.pixels[at..at + rect.width * PIXEL]
                })
                .copied()
                .collect()
        })
    }
}
