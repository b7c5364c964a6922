//! What did the guests measure? From the lines on their consoles to figures over a window.
//!
//! [`stamp`] notes when each line arrived, [`window`] picks the lines of a window and subtracts,
//! [`histogram`] does the arithmetic of durations. [`requests`] makes logs of what servers answered.

pub mod clock;
pub mod histogram;
pub mod requests;
pub mod stamp;
pub mod window;
