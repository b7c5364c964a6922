//! Ctrl-C: asked to stop, finish what is begun.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Becomes true at SIGINT or SIGTERM; a second one ends the program at once.
#[derive(Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Begins to listen.
    pub fn listen() -> Interrupt {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // Registered in this order: the first signal finds the flag unset and sets it, the second ends.
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag));
            let _ = signal_hook::flag::register(signal, Arc::clone(&flag));
        }
        Interrupt(flag)
    }

    /// Has it come?
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps until `then`, or until interrupted; tells which: true when interrupted.
    pub fn sleep_until(&self, then: Instant) -> bool {
        while !self.is_set() {
            let left = then.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            // Looking often costs who shares the host; a long wait need not end at once.
            let slice = (left / 20).clamp(Duration::from_millis(50), Duration::from_millis(500));
            std::thread::sleep(left.min(slice));
        }
        true
    }
}
