//! What became of each trigger's messages? Counters that the metrics read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of one trigger.
#[derive(Debug, Default)]
pub struct Counts {
    /// The trigger's name.
    pub trigger: String,
    /// Messages that the receiver took.
    pub sent: Count,
    /// Messages that it did not take, after all tries.
    pub failed: Count,
    /// Messages for which the queue had no room.
    pub dropped: Count,
    /// Tries that failed.
    pub failed_tries: Count,
}

/// Of all triggers.
pub type Deliveries = Vec<Arc<Counts>>;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// One more.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
