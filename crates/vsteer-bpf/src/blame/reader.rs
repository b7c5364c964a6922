//! Reads the kernel side's traces before they are overwritten: at each reading, and between them.

use super::{Blame, Cause, Open};
use crate::layout::{Pcpu, RUNNERS, WAITS};
use crate::shared::Shared;
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// Between two looks: as long as the fullest ring of a pCPU needs to fill by [`FILL`].
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// A quarter, so that one late look loses nothing.
const FILL: usize = RUNNERS / 4;

const NICE: i32 = -20;
const NONE: CapabilitySets = CapabilitySets {
    effective: CapabilitySet::empty(),
    permitted: CapabilitySet::empty(),
    inheritable: CapabilitySet::empty(),
};

/// The traces, and how far they have been read.
pub(crate) struct Reader {
    ran: Arc<Shared<Pcpu>>,
    runners_read: Vec<u32>,
    waits_read: Vec<u32>,
    looked_ns: u64,
    /// Entries of the ring that had the most since the look before, and the time between both, ns.
    most: (usize, u64),
    pub(crate) blame: Blame,
}

impl Reader {
    pub(crate) fn of(ran: Arc<Shared<Pcpu>>, pcpus: u32) -> Reader {
        let none = vec![0; pcpus as usize];
        Reader {
            ran,
            runners_read: none.clone(),
            waits_read: none,
            looked_ns: now_ns(),
            most: (0, 1),
            blame: Blame::of(pcpus),
        }
    }

    /// Takes all traces up to now.
    fn look(&mut self, counted: Option<&BTreeMap<u32, u64>>) {
        // Everything before this moment is in the rings, which are read after it.
        let now = now_ns();
        let mut most = 0;
        for cpu in 0..self.runners_read.len() {
            let runners = self.ran.runners(cpu as u32, &mut self.runners_read[cpu]);
            // Waits that are lost show in the sums of their threads.
            let (waits, _) = self.ran.waits(cpu as u32, &mut self.waits_read[cpu]);
            most = most.max(runners.0.len() + runners.1 as usize).max(waits.len() * RUNNERS / WAITS);
            self.blame.take(cpu as u32, runners, waits);
        }
        self.most = (most, now.saturating_sub(self.looked_ns).max(1));
        self.looked_ns = now;
        self.blame.settle(now, counted);
    }

    /// What was charged since the last reading. `counted`: the sum of waits in each copied slot (1-based); `open`: waits
    /// that had not ended in these copies, at `until`.
    pub(crate) fn read(
        &mut self,
        counted: &BTreeMap<u32, u64>,
        open: &[Open],
        until: u64,
    ) -> Vec<(u32, Cause, i64)> {
        self.look(Some(counted));
        self.blame.settle_open(open, counted);
        self.blame.hand_out(until)
    }

    /// When to look again.
    fn pause(&self) -> Duration {
        let (entries, ns) = self.most;
        let fills = ns as f64 * FILL as f64 / entries.max(1) as f64;
        Duration::from_nanos(fills as u64).clamp(PAUSES.0, PAUSES.1)
    }
}

/// A thread that looks between the readings. It ends when this value is dropped. All that it needs is memory, so it gives
/// up every capability first, and it is as urgent as a thread can be without a real-time class: where thousands of
/// processes keep others from their pCPUs, it must not come late.
pub(crate) struct Keeper {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(reader: &Arc<Mutex<Reader>>) -> Result<Keeper, Fault> {
        let over = Arc::new(AtomicBool::new(false));
        let (ends, reader) = (Arc::clone(&over), Arc::clone(reader));
        let look = move || {
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
            let _ = rustix::thread::set_capabilities(None, NONE);
            while !ends.load(Ordering::Relaxed) {
                let pause = {
                    let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
                    // A reading may have looked meanwhile.
                    let since = Duration::from_nanos(now_ns().saturating_sub(reader.looked_ns));
                    let pause = reader.pause();
                    if since >= pause {
                        reader.look(None);
                        reader.blame.bound();
                        reader.pause()
                    } else {
                        pause - since
                    }
                };
                std::thread::park_timeout(pause.max(PAUSES.0));
            }
        };
        let started = std::thread::Builder::new().name("vsteer-traces".to_owned()).spawn(look);
        let thread =
            started.map_err(|e| Fault::new(FaultKind::Failed, "cannot start a thread").because(e))?;
        Ok(Keeper { over, thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
