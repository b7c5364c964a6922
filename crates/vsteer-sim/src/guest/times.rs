//! Distributions of times (sleeps, jobs, gaps between arrivals), and drawing from them.

use serde::{Deserialize, Serialize};
use vsteer_core::random::Random;
use vsteer_core::span::LONGEST_NS;
use vsteer_core::{Fault, FaultKind};

/// A distribution of times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Times {
    /// Always this, ns.
    Fixed(u64),
    /// Exponential with this mean, ns.
    Exponential(u64),
    /// Uniform between the two, ns, both included.
    Uniform(u64, u64),
}

impl Times {
    /// The mean, ns.
    pub fn mean_ns(self) -> f64 {
        match self {
            Times::Fixed(ns) | Times::Exponential(ns) => ns as f64,
            Times::Uniform(low_ns, high_ns) => (low_ns as f64 + high_ns as f64) / 2.0,
        }
    }

    pub(super) fn check(self, key: &str) -> Result<(), Fault> {
        let (low, high) = match self {
            Times::Fixed(ns) | Times::Exponential(ns) => (ns, ns),
            Times::Uniform(low_ns, high_ns) => (low_ns, high_ns),
        };
        if low > high {
            return Err(Fault::new(
                FaultKind::BadInput,
                format!("{key}: the range {low}..={high} ns is empty"),
            )
            .help("give the smaller bound first"));
        }
        positive(key, low)?;
        positive(key, high)
    }
}

pub(super) fn positive(key: &str, ns: u64) -> Result<(), Fault> {
    if (1..=LONGEST_NS).contains(&ns) {
        return Ok(());
    }
    Err(Fault::new(FaultKind::BadInput, format!("{key} is {ns} ns"))
        .help(format!("give a time from 1 to {LONGEST_NS} ns")))
}

/// [`Times`] in 16 bytes, so that two of them and a generator fit into a cache line.
#[derive(Debug, Clone)]
pub(super) enum Draw {
    Fixed(u64),
    Exponential(f64),
    Uniform(Box<(u64, u64)>),
}

impl From<Times> for Draw {
    fn from(times: Times) -> Draw {
        match times {
            Times::Fixed(ns) => Draw::Fixed(ns.max(1)),
            Times::Exponential(mean_ns) => Draw::Exponential(mean_ns as f64),
            Times::Uniform(low_ns, high_ns) => Draw::Uniform(Box::new((low_ns.max(1), high_ns.max(1)))),
        }
    }
}

impl Draw {
    /// A time, ns; at least 1, so that time passes.
    #[inline(always)]
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Draw::Fixed(ns) => *ns,
            Draw::Exponential(mean_ns) => (random.exponential(*mean_ns) as u64).max(1),
            Draw::Uniform(bounds) => random.within(bounds.0, bounds.1),
        }
    }

    /// The sum of `n` drawn times, ns.
    pub(super) fn sum(&self, n: u64, random: &mut Random) -> u64 {
        match self {
            Draw::Fixed(ns) => ns.saturating_mul(n),
            _ => (0..n).fold(0u64, |sum, _| sum.saturating_add(self.draw(random))),
        }
    }
}
