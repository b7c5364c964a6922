//! Waits that end when the service is asked to stop.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;
use vsteer_host::pace::Pace;

/// Set once the service is to stop.
#[derive(Clone, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Asks to stop.
    pub fn set(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }
}

impl Pace for Stop {
    fn sleep_until(&self, then: Instant) -> bool {
        let mut set = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = then.saturating_duration_since(Instant::now());
            if *set || left.is_zero() {
                return *set;
            }
            set = self.0.1.wait_timeout(set, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
