//! Records whether the person asked to stop.
//!
//! SIGINT and SIGTERM only set a flag. Every wait checks it and returns a fault. So an interrupt takes things
//! down on the same path as any other fault. The flag is process-wide, as signals are.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use vsteer_core::{Fault, FaultKind};

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on, SIGINT, SIGTERM and SIGHUP set the flag instead of ending the process. Calling it again does
/// nothing.
///
/// # Errors
/// If the system refuses the handlers.
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

/// Returns a fault of class `Interrupted` if the person asked to stop.
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

/// Clears the request to stop, so that it does not interrupt the cleanup.
pub fn clear() {
    if let Some(flag) = ASKED.get() {
        flag.store(false, Ordering::Relaxed);
    }
}
