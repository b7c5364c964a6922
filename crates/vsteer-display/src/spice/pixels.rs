//! What does an image come to, of whatever kind it was?

use crate::picture::canvas::PIXEL;

pub struct Pixels {
    /// In the screen's order.
    pub pixels: Vec<[u8; PIXEL]>,
    /// The first row is the uppermost.
    pub top_down: bool,
}
