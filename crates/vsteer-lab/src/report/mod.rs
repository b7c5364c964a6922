//! Turns the lines on the guests' consoles into measurements over a window.
//!
//! [`stamp`] records when each line arrived, [`window`] picks the lines of a window and subtracts,
//! [`histogram`] computes statistics of durations. [`requests`] makes logs of the requests that servers
//! answered.

pub mod clock;
pub mod histogram;
pub mod requests;
pub mod stamp;
pub mod window;
