//! How do requests get from Domain-0 into a domain, and answers back? Through one page of the domain's, which both map.
//!
//! Two queues of fixed length, each with one writer and one reader; numbers count on and on, and a slot's place is the number's
//! remainder. Each side tells the other by an event channel. Both sides are built from this very file.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Requests that are under way at most; others wait in Domain-0.
pub const SLOTS: usize = 128;

/// The page. All 0 is an empty one.
#[repr(C, align(4096))]
pub struct Ring {
    /// Requests put in, by Domain-0.
    put: AtomicU32,
    /// Requests taken out, by the domain.
    taken: AtomicU32,
    /// Answers put in, by the domain.
    answered: AtomicU32,
    /// Answers taken out, by Domain-0.
    heard: AtomicU32,
    requests: [Slot; SLOTS],
    answers: [AtomicU64; SLOTS],
}

const _: () = assert!(size_of::<Ring>() == 4096);

#[repr(C)]
struct Slot {
    arrived_ns: AtomicU64,
    units: AtomicU64,
}

/// A request on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// When it came, by Domain-0's clock: its answer says so again.
    pub arrived_ns: u64,
    /// What it takes, work units.
    pub units: u64,
}

/// Domain-0's side.
impl Ring {
    /// Puts a request in; `false` where there is no room.
    pub fn ask(&self, request: Asked) -> bool {
        let at = self.put.load(Relaxed);
        if at.wrapping_sub(self.taken.load(Acquire)) >= SLOTS as u32 {
            return false;
        }
        let slot = &self.requests[at as usize % SLOTS];
        slot.arrived_ns.store(request.arrived_ns, Relaxed);
        slot.units.store(request.units, Relaxed);
        self.put.store(at.wrapping_add(1), Release);
        true
    }

    /// When the request came whose answer is the next one.
    pub fn hear(&self) -> Option<u64> {
        let at = self.heard.load(Relaxed);
        if at == self.answered.load(Acquire) {
            return None;
        }
        let arrived_ns = self.answers[at as usize % SLOTS].load(Relaxed);
        self.heard.store(at.wrapping_add(1), Release);
        Some(arrived_ns)
    }

    /// Requests that were put in and whose answers were not heard: room for answers is kept by asking no more than there are slots.
    pub fn under_way(&self) -> u32 {
        self.put.load(Relaxed).wrapping_sub(self.heard.load(Relaxed))
    }
}

/// The domain's side: for Domain-0's program only its tests call it.
#[cfg_attr(not(test), allow(dead_code))]
impl Ring {
    /// Takes the next request out.
    pub fn take(&self) -> Option<Asked> {
        let at = self.taken.load(Relaxed);
        if at == self.put.load(Acquire) {
            return None;
        }
        let slot = &self.requests[at as usize % SLOTS];
        let request = Asked { arrived_ns: slot.arrived_ns.load(Relaxed), units: slot.units.load(Relaxed) };
        self.taken.store(at.wrapping_add(1), Release);
        Some(request)
    }

    /// Answers the request that came then. There is room: no more are under way than there are slots, unless Domain-0 has not
    /// listened for so long; then the oldest answer is lost.
    pub fn answer(&self, arrived_ns: u64) {
        let at = self.answered.load(Relaxed);
        self.answers[at as usize % SLOTS].store(arrived_ns, Relaxed);
        self.answered.store(at.wrapping_add(1), Release);
    }
}
