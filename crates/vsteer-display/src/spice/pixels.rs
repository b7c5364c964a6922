//! The decoded pixels of an image of any kind.

use crate::picture::canvas::PIXEL;

pub struct Pixels {
    /// In the screen's byte order.
    pub pixels: Vec<[u8; PIXEL]>,
    /// Is the first row the top one?
    pub top_down: bool,
}
