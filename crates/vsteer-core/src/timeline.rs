//! Which thread ran where, and when? Stretches of time per pCPU, from recorded context switches.
//!
//! A switch names the
//! thread that lost a pCPU and the one that got it, which ran until the next switch. If two switches disagree
//! (because switches were lost), no thread counts as running between them.
//!
//! Beside the switches stand the wake-ups of VMs' threads, in the same stream: from a wake-up to the switch that
//! follows it a thread was ready, before it asleep.

use crate::nouns::Tid;
use std::collections::BTreeMap;

/// A context switch of one pCPU; or, marked by its state, a wake-up or a loss of switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    /// `CLOCK_MONOTONIC`, ns.
    pub ns: u64,
    /// Number of the logical CPU.
    pub cpu: u32,
    /// Who lost it; 0 is the idle thread.
    pub prev: Tid,
    /// The kernel's state of that thread, its low 10 bits; 0: it could still run.
    pub prev_state: u16,
    /// Who got it; 0 is the idle thread.
    pub next: Tid,
}

impl Switch {
    /// The state that marks lost switches: no thread is in all states at once.
    pub const LOST: u16 = (1 << 10) - 1;

    /// The state that marks a wake-up: likewise.
    pub const WOKEN: u16 = (1 << 10) - 2;

    /// `tid` was asleep and is ready from `ns` on; `cpu` is where that was done.
    pub fn wake_up(cpu: u32, ns: u64, tid: Tid) -> Switch {
        Switch { ns, cpu, prev: tid, prev_state: Switch::WOKEN, next: Tid(0) }
    }

    /// The woken thread, if this record is a wake-up.
    pub fn woken(&self) -> Option<Tid> {
        (self.prev_state == Switch::WOKEN).then_some(self.prev)
    }

    /// Is it a context switch, and neither a wake-up nor a loss?
    pub fn is_switch(&self) -> bool {
        self.prev_state < Switch::WOKEN
    }

    /// Record for `count` switches (at most 2^22 - 1) that were lost right after `ns`.
    pub fn loss(cpu: u32, ns: u64, count: u64) -> Switch {
        let count = count.min((1 << 22) - 1) as u32;
        Switch { ns, cpu, prev: Tid(count), prev_state: Switch::LOST, next: Tid(0) }
    }

    /// Number of lost switches, if this record stands for a loss.
    pub fn lost(&self) -> Option<u32> {
        (self.prev_state == Switch::LOST).then_some(self.prev.0)
    }
}

/// One thread on one pCPU without a break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Number of the logical CPU.
    pub cpu: u32,
    /// From then, `CLOCK_MONOTONIC`, ns.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
    /// Who; 0 is the idle thread.
    pub tid: Tid,
}

/// What is known of a pCPU after its last switch so far.
#[derive(Debug, Clone, Copy)]
struct Current {
    since_ns: u64,
    tid: Option<Tid>,
}

/// Who ran between two moments, per pCPU in order of time; `switches` are in order of time. Who is on a pCPU before
/// its first switch follows from that switch; what follows its last one is taken to last until `to_ns`.
pub fn who_ran(switches: &[Switch], from_ns: u64, to_ns: u64) -> Vec<Slice> {
    let mut current: BTreeMap<u32, Current> = BTreeMap::new();
    let mut slices: Vec<Slice> = Vec::new();
    let mut note = |cpu: u32, begin: u64, end: u64, tid: Tid| {
        let (begin, end) = (begin.max(from_ns), end.min(to_ns));
        if begin < end {
            slices.push(Slice { cpu, from_ns: begin, to_ns: end, tid });
        }
    };
    for s in switches.iter().take_while(|s| s.ns <= to_ns).filter(|s| s.woken().is_none()) {
        let lost = s.lost().is_some();
        match current.get(&s.cpu) {
            // Before the first switch nothing was lost unless the first record says so.
            None if !lost => note(s.cpu, from_ns, s.ns, s.prev),
            Some(Current { since_ns, tid: Some(tid) }) if !lost && *tid == s.prev => {
                note(s.cpu, *since_ns, s.ns, *tid)
            }
            _ => {}
        }
        current.insert(s.cpu, Current { since_ns: s.ns, tid: (!lost).then_some(s.next) });
    }
    for (cpu, c) in &current {
        if let Some(tid) = c.tid {
            note(*cpu, c.since_ns, to_ns, tid);
        }
    }
    slices.sort_by_key(|s| (s.cpu, s.from_ns));
    slices
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn switch(ns: u64, cpu: u32, prev: u32, next: u32) -> Switch {
        Switch { ns, cpu, prev: Tid(prev), prev_state: 0, next: Tid(next) }
    }

    #[test]
    fn slices_lie_between_switches() {
        let s = [switch(10, 0, 7, 8), switch(15, 1, 1, 0), switch(20, 0, 8, 7)];
        let got: Vec<_> = who_ran(&s, 5, 30).iter().map(|s| (s.cpu, s.from_ns, s.to_ns, s.tid.0)).collect();
        assert_eq!(got, [(0, 5, 10, 7), (0, 10, 20, 8), (0, 20, 30, 7), (1, 5, 15, 1), (1, 15, 30, 0)]);
        // The window cuts what reaches out of it.
        let got: Vec<_> = who_ran(&s, 12, 18).iter().map(|s| (s.cpu, s.from_ns, s.to_ns, s.tid.0)).collect();
        assert_eq!(got, [(0, 12, 18, 8), (1, 12, 15, 1), (1, 15, 18, 0)]);
    }

    #[test]
    fn nobody_is_named_where_switches_are_lost() {
        // 8 got the pCPU, 9 leaves it: what was between is not known. Neither is what follows a loss.
        let s = [switch(10, 0, 7, 8), switch(20, 0, 9, 7), Switch::loss(0, 20, 256), switch(40, 0, 7, 9)];
        let got: Vec<_> = who_ran(&s, 0, 50).iter().map(|s| (s.from_ns, s.to_ns, s.tid.0)).collect();
        assert_eq!(got, [(0, 10, 7), (40, 50, 9)]);
        assert_eq!((s[2].lost(), s[1].lost()), (Some(256), None));
    }

    proptest! {
        /// Whatever the switches say: slices of a pCPU do not overlap, are not empty and stay inside the window.
        #[test]
        fn slices_are_disjoint(mut raw in proptest::collection::vec((0u64..1000, 0u32..3, 0u32..4, 0u32..4, 0u16..1024), 0..200),
                               from in 0u64..1000, length in 0u64..1000) {
            raw.sort_by_key(|r| r.0);
            let switches: Vec<Switch> = raw.iter()
                .map(|r| Switch { ns: r.0, cpu: r.1, prev: Tid(r.2), prev_state: r.4, next: Tid(r.3) }).collect();
            let slices = who_ran(&switches, from, from + length);
            for s in &slices {
                prop_assert!(from <= s.from_ns && s.from_ns < s.to_ns && s.to_ns <= from + length);
            }
            for w in slices.windows(2) {
                prop_assert!(w[0].cpu < w[1].cpu || w[0].to_ns <= w[1].from_ns);
            }
        }
    }
}
