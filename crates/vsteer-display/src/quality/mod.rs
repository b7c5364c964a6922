//! What has a person at the other end of a remote display seen, and which codec should it have been?
//!
//! ```text
//! score    how much of a frame that came is still there: legibility, PSNR, SSIM
//! row      what is said of one run               advise   which codec, and what would change that
//! frames   how evenly frames came: per second, gaps, stalls, jitter, steadiness
//! ```
//! Pixels are bytes in the order blue, green, red, unused, row after row without padding, as capture gives them.

pub mod advise;
pub mod frames;
pub mod row;
pub mod score;
