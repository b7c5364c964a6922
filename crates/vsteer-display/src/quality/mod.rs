//! The quality that a person sees at the other end of a remote display, and the advice about codecs.
//!
//! ```text
//! score    how much of a received frame is intact: legibility, PSNR, SSIM
//! row      the result of one run                  advise   which codec to take, and what would change that
//! frames   how evenly frames arrived: per second, gaps, stalls, jitter, steadiness
//! ```
//! Pixels are bytes in the order blue, green, red, unused, row after row without padding, as capture gives
//! them.

pub mod advise;
pub mod frames;
pub mod row;
pub mod score;
