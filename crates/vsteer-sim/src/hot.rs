//! What does every event touch? The engine's hot data: two adjacent cache lines per vCPU, one per pCPU.
//!
//! Guests and policies read it; the engine alone writes it.

use super::ids::Vcpu;
use super::state::{STATES, State};

/// No vCPU, pCPU or pool.
pub(super) const NONE: u32 = u32::MAX;

/// What every event of a vCPU touches.
#[derive(Debug, Clone)]
#[repr(align(128))]
pub struct Hot {
    pub(super) since_ns: u64,
    /// CPU time at full speed that is left of the burst (of the next one while blocked).
    pub(super) work_ns: u64,
    /// When it was woken, until it runs; else [`NEVER`](super::event::NEVER).
    pub(super) woken_ns: u64,
    /// From wake-ups to running, all of them together.
    pub(super) wake_wait_ns: u64,
    /// While ready, and with siblings: what its VM's `any_ns` was when that began.
    pub(super) lag_mark_ns: u64,
    /// Where it ran last.
    pub(super) pcpu: u32,
    pub(super) vm: u32,
    pub(super) pool: u32,
    /// Wake-ups that ran at once: the lowest bucket of those rows, here because it is the commonest.
    pub(super) prompt: u32,
    pub(super) state: State,
    /// What it becomes instead of ready, while the policy holds it.
    pub(super) held: State,
    /// Does its affinity leave out a pCPU of the host?
    pub(super) bound: bool,
    pub(super) siblings: bool,
    /// Does its guest depend on others, or poll?
    pub(super) special: bool,
    /// Does its guest poll now: does its burst end at a moment, whatever CPU time it gets?
    pub(super) polls: bool,
    pub(super) tally: Tally,
}

impl Hot {
    #[inline]
    pub(super) fn state(&self) -> State {
        self.state
    }

    #[inline]
    pub(super) fn since_ns(&self) -> u64 {
        self.since_ns
    }
}

/// What every event of a pCPU touches.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub struct Running {
    pub(super) vcpu: u32,
    /// Who ran last: going back to it costs no switch.
    pub(super) last: u32,
    /// Of 1,000; what the current vCPU gets out of a nanosecond here and now.
    pub(super) speed: u32,
    /// Up to when the current vCPU's work is accounted for.
    pub(super) from_ns: u64,
    /// When the burst ends if nothing changes.
    pub(super) work_end_ns: u64,
    pub(super) slice_end_ns: u64,
    pub(super) busy_since_ns: u64,
    pub(super) busy_ns: u64,
}

impl Running {
    #[inline]
    pub(super) fn vcpu(&self) -> Option<Vcpu> {
        (self.vcpu != NONE).then_some(Vcpu(self.vcpu))
    }
}

/// A vCPU's account, on one cache line.
#[derive(Debug, Clone, Default)]
#[repr(align(64))]
pub(super) struct Tally {
    pub(super) ns: [u64; STATES],
    // 2^32 switches of one vCPU are hours of simulated time at any real rate; beyond that the checks stop the run.
    pub(super) switches: u32,
    pub(super) preemptions: u32,
    pub(super) wakeups: u32,
    pub(super) migrations: u32,
}
