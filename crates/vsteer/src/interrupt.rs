//! Ctrl-C and SIGTERM: ends loops in an orderly way.

#[cfg(feature = "host")]
mod wait;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(feature = "host")]
pub use wait::Woken;

const SIGNALS: [i32; 2] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];

/// Becomes true at SIGINT or SIGTERM; a second one ends the program at once.
#[derive(Clone)]
pub struct Interrupt {
    set: Arc<AtomicBool>,
    #[cfg(feature = "host")]
    signal: wait::Signal,
}

impl Interrupt {
    /// Begins to listen.
    pub fn listen() -> Interrupt {
        let set = Arc::new(AtomicBool::new(false));
        for signal in SIGNALS {
            // Registered in this order: the first signal finds the flag unset and sets it, the second ends.
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&set));
            let _ = signal_hook::flag::register(signal, Arc::clone(&set));
        }
        Interrupt {
            set,
            #[cfg(feature = "host")]
            signal: wait::Signal::listen(&SIGNALS),
        }
    }

    /// Has it come?
    pub fn is_set(&self) -> bool {
        self.set.load(Ordering::Relaxed)
    }
}
