//! Has the person asked to stop?
//!
//! SIGINT and SIGTERM only set a flag; whatever waits looks at it and returns a fault, so that the one path
//! that takes things down is the ordinary one. Process-wide, as signals are.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use vsteer_core::{Fault, FaultKind};

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on SIGINT, SIGTERM and SIGHUP are asked about, not died of. Calling it again does nothing.
///
/// # Errors
/// When the system refuses the handlers.
pub fn watch() -> Result<(), Fault> {
    if ASKED.get().is_some() {
        return Ok(());
    }
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&flag))
            .map_err(|e| Fault::io("asking to be told of interrupts", &e))?;
    }
    let _ = ASKED.set(flag);
    Ok(())
}

/// A fault of class `Interrupted` once the person has asked to stop.
///
/// # Errors
/// That fault.
pub fn check() -> Result<(), Fault> {
    match ASKED.get() {
        Some(flag) if flag.load(Ordering::Relaxed) => {
            Err(Fault::new(FaultKind::Interrupted, "interrupted by the person or the system"))
        }
        _ => Ok(()),
    }
}

/// Forgets the request: what takes things down must not be stopped by it.
pub fn clear() {
    if let Some(flag) = ASKED.get() {
        flag.store(false, Ordering::Relaxed);
    }
}
