//! What do runs tell? One file per question: how sure a mean is ([`mean`]), whether two differ ([`difference`], [`ranks`]), what blocks say while
//! a stopping rule is in use ([`blocks`]), what could have been seen at all ([`power`]), how many questions were asked ([`many`]), and
//! which settings nobody beats in time and watts ([`front`]).
//!
//! Distributions are this crate's own ([`distribution`]). Tests compare them with a library's. The core depends on three crates
//! (decision 0014).

pub mod blocks;
pub mod difference;
pub mod front;
pub mod many;
pub mod mean;
pub mod power;
pub mod ranks;

pub use vsteer_core::stats::distribution;

/// Two-sided level of every test and interval: 5 %, intervals of 95 %.
pub const ALPHA: f64 = 0.05;
/// With this probability a difference of the smallest visible size is found.
pub const POWER: f64 = 0.80;
