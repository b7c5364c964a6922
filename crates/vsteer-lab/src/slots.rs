//! Limits how many emulated hosts run at once: one for each of this machine's pCPUs, because one pCPU
//! emulates one host.
//!
//! Their time is virtual, so cases that boot them can run in parallel. Without this limit they would use up
//! the machine's memory and wait for each other's pCPUs.

use crate::interrupt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use vsteer_core::Fault;

static TAKEN: Mutex<usize> = Mutex::new(0);
static FREED: Condvar = Condvar::new();
/// How often a wait checks whether the person asked to stop.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The right to run one emulated host, until it is dropped.
#[derive(Debug)]
pub struct Slot(());

fn taken() -> MutexGuard<'static, usize> {
    // A number cannot be half written, so a poisoned lock is harmless.
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of slots of this machine. Two boots of one case must be able to run at once.
pub fn slots() -> usize {
    std::thread::available_parallelism().map_or(2, |n| n.get().max(2))
}

/// Waits for a slot.
///
/// # Errors
/// `Interrupted`.
pub fn take() -> Result<Slot, Fault> {
    let mut n = taken();
    while *n >= slots() {
        interrupt::check()?;
        n = FREED.wait_timeout(n, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
    }
    *n += 1;
    Ok(Slot(()))
}

impl Drop for Slot {
    fn drop(&mut self) {
        *taken() -= 1;
        FREED.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn no_more_run_at_once_than_there_are_slots() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 * slots() {
                scope.spawn(|| {
                    let _slot = take().unwrap();
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(20));
                    now.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), slots());
    }
}
