//! The engine's hot data, which every event uses: two adjacent cache lines per vCPU, one per pCPU.
//!
//! Guests and policies read it; only the engine writes it.

use super::ids::Vcpu;
use super::state::{STATES, State};

/// No vCPU, pCPU or pool.
pub(super) const NONE: u32 = u32::MAX;

/// The data that every event of a vCPU uses.
#[derive(Debug, Clone)]
#[repr(align(128))]
pub struct Hot {
    pub(super) since_ns: u64,
    /// The rest of the burst's CPU time at full speed (of the next burst while blocked).
    pub(super) work_ns: u64,
    /// The time of its wake-up, until it runs; otherwise [`NEVER`](super::event::NEVER).
    pub(super) woken_ns: u64,
    /// The sum of all times from wake-up to running.
    pub(super) wake_wait_ns: u64,
    /// While ready, and with siblings: its VM's `any_ns` when that began.
    pub(super) lag_mark_ns: u64,
    /// The pCPU of its last run.
    pub(super) pcpu: u32,
    pub(super) vm: u32,
    pub(super) pool: u32,
    /// Wake-ups that ran at once, which is the lowest bucket of those rows. Kept here because it is the most
    /// common.
    pub(super) prompt: u32,
    pub(super) state: State,
    /// The state that replaces ready while the policy holds it.
    pub(super) held: State,
    /// Does its affinity exclude a pCPU of the host?
    pub(super) bound: bool,
    pub(super) siblings: bool,
    /// Does its guest depend on others, or poll?
    pub(super) special: bool,
    /// Does its guest poll now, so that its burst ends at a time, whatever CPU time it gets?
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

/// The data that every event of a pCPU uses.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub struct Running {
    pub(super) vcpu: u32,
    /// The vCPU that ran last. Returning to it costs no switch.
    pub(super) last: u32,
    /// The speed of the current vCPU here and now, in 1/1,000.
    pub(super) speed: u32,
    /// The time up to which the current vCPU's work is accounted.
    pub(super) from_ns: u64,
    /// The end of the burst if nothing changes.
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
    // 2^32 switches of one vCPU are hours of simulated time at any realistic rate. Above that, overflow
    // checks stop the run.
    pub(super) switches: u32,
    pub(super) preemptions: u32,
    pub(super) wakeups: u32,
    pub(super) migrations: u32,
}
