//! What does the viewer see? A framebuffer in the canvas's own pixels, on which rectangles are put.
//!
//! Who puts one has checked that it lies within. Left out: a pointer.

use crate::picture::canvas::{PIXEL, Size};

/// A rectangle, pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rect {
    /// Of its left edge.
    pub x: usize,
    /// Of its upper edge.
    pub y: usize,
    /// Of a row.
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
    /// A black one.
    pub fn new(size: Size) -> Screen {
        Screen { size, pixels: vec![0; size.bytes()] }
    }

    pub fn size(&self) -> Size {
        self.size
    }

    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// Lies the rectangle within?
    pub fn has(&self, rect: Rect) -> bool {
        rect.x + rect.width <= self.size.width && rect.y + rect.height <= self.size.height
    }

    /// A row of a rectangle.
    pub fn row(&mut self, rect: Rect, y: usize) -> &mut [u8] {
        let at = ((rect.y + y) * self.size.width + rect.x) * PIXEL;
        &mut self.pixels[at..at + rect.width * PIXEL]
    }

    /// Puts pixels, row after row.
    pub fn put(&mut self, rect: Rect, pixels: &[u8]) {
        if rect.width > 0 {
            for (y, row) in pixels.chunks_exact(rect.width * PIXEL).enumerate() {
                self.row(rect, y).copy_from_slice(row);
            }
        }
    }

    /// Fills with one pixel.
    pub fn fill(&mut self, rect: Rect, pixel: [u8; PIXEL]) {
        for y in 0..rect.height {
            self.row(rect, y).chunks_exact_mut(PIXEL).for_each(|p| p.copy_from_slice(&pixel));
        }
    }

    /// Copies one rectangle to another of its size; they may overlap.
    pub fn copy(&mut self, from: Rect, to: Rect) {
        let rows: Vec<u8> = (0..from.height).flat_map(|y| self.row(from, y).to_vec()).collect();
        self.put(to, &rows);
    }

    /// A part of it, where it has that.
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
