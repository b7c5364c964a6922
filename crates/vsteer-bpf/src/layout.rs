//! How the kernel side lays out what it counts: the mirror of `bpf/layout.h`.
//!
//! The two are kept apart by hand and together by a check: [`crate::Observer::start`] compares every size here
//! with the value size of the map that holds it, and refuses to run on a difference.

use bytemuck::{Pod, Zeroable};
use vsteer_core::nouns::HISTOGRAM_BUCKETS;

/// Number of switches kept per pCPU until they are read.
pub const RUNNERS: usize = 4096;
/// Number of waits kept per pCPU until they are read.
pub const WAITS: usize = 2048;
/// Number of switches per event batch.
pub const EVENTS_PER_BATCH: usize = 256;

/// `enum state`, but for 0: not seen yet.
pub mod state {
    /// On a pCPU.
    pub const RUNNING: u32 = 1;
    /// Ready: could run, has no pCPU.
    pub const READY: u32 = 2;
    /// Limited: a quota holds it.
    pub const LIMITED: u32 = 3;
    /// Blocked: asleep.
    pub const BLOCKED: u32 = 4;
    /// Exited.
    pub const ABSENT: u32 = 5;
    /// Number of states.
    pub const COUNT: usize = 6;
}

/// `enum culprit_kind`.
pub mod culprit {
    /// The pCPU idled.
    pub const IDLE: u32 = 0;
    /// A VM's thread.
    pub const VM: u32 = 1;
    /// A process.
    pub const PROCESS: u32 = 2;
    /// A kernel thread.
    pub const KERNEL: u32 = 3;
}

/// `lag_mark` of a wait that began when its thread's VM was not known yet.
pub const NO_LAG_MARK: u64 = u64::MAX;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct Slot {
    pub seq_first: u64,
    pub tid: u32,
    pub vm: u32,
    pub is_vcpu: u32,
    pub state: u32,
    pub cpu: u32,
    pub counted_running: u32,
    pub woken: u32,
    pub clock: u32,
    pub realtime: u32,
    pub rt_level: u32,
    pub waking_cpu: u32,
    pub pad: u32,
    pub since: u64,
    pub waking_since: u64,
    pub waking_mark: u64,
    pub wait_since: u64,
    pub charge_since: u64,
    pub waits: u64,
    pub charged_ns: u64,
    pub charged_mark: u64,
    pub lag_mark: u64,
    pub rt_since: u64,
    pub held_mark: u64,
    pub held_ns: u64,
    pub in_state: [u64; state::COUNT],
    pub lag_ns: u64,
    pub waking_ns: u64,
    pub overlap_ns: u64,
    pub switches: u64,
    pub preemptions: u64,
    pub wakeups: u64,
    pub migrations: u64,
    pub surprises: u64,
    pub exit_mark: u64,
    pub halt_poll_limit: u64,
    pub first_blocked: u64,
    pub exit_ns: u64,
    pub halt_poll_ns: u64,
    pub wake_latency: [u32; HISTOGRAM_BUCKETS],
    pub ready_spell: [u32; HISTOGRAM_BUCKETS],
    pub seq_last: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CulpritKey {
    pub kind: u32,
    pub id: u32,
    pub comm: [u8; 16],
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct Runner {
    pub since: u64,
    pub who: CulpritKey,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct Pcpu {
    pub current_slot: u32,
    pub current_tid: u32,
    pub irq_depth: u32,
    pub unseen: u32,
    pub irq_since: u64,
    pub next_wait: u32,
    pub next: u32,
    pub most_tries: u32,
    pub pad: u32,
    pub runners: [Runner; RUNNERS],
    pub waits: [Wait; WAITS],
}

/// A wait, or the part of it on one pCPU, that is over.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct Wait {
    pub slot: u32,
    pub tid: u32,
    pub cpu: u32,
    pub pad: u32,
    pub number: u64,
    pub from: u64,
    pub to: u64,
    pub ready: u64,
    pub charged_ns: u64,
}

/// One context switch, or a wake-up, 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable, Debug, PartialEq, Eq)]
pub struct Event {
    /// `CLOCK_MONOTONIC`, ns.
    pub ns: u64,
    /// Thread that got the pCPU (0: idle).
    pub next_tid: u32,
    prev_tid_state: u32,
}

impl Event {
    /// Thread that lost the pCPU (0: idle).
    pub fn prev_tid(&self) -> u32 {
        self.prev_tid_state & ((1 << 22) - 1)
    }

    /// Is this a wake-up of [`Event::prev_tid`] instead of a switch?
    pub fn is_wake_up(&self) -> bool {
        self.prev_state() == EVENT_WOKEN
    }

    /// The kernel's state of that thread (0: runnable), its low 10 bits.
    pub fn prev_state(&self) -> u32 {
        self.prev_tid_state >> 22
    }
}

/// `EVENT_WOKEN`: marks a wake-up in the field of the state.
const EVENT_WOKEN: u32 = 1022;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct EventBatchRaw {
    pub cpu: u32,
    pub count: u32,
    pub lost: u64,
    pub wake_ups: u64,
    pub events: [Event; EVENTS_PER_BATCH],
}

/// Number of slots that are laid ready for threads not known yet.
pub const SPARES: usize = 1024;
/// First bytes of a command line that a birth tells.
pub const ARGUMENTS: usize = 2048;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct BirthRaw {
    pub slot: u32,
    pub tid: u32,
    pub tgid: u32,
    pub user: u32,
    pub started: u64,
    pub arguments_bytes: u32,
    pub pad: u32,
    pub comm: [u8; 16],
    pub arguments: [u8; ARGUMENTS],
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct QuotaClocksRaw {
    pub tid: u32,
    pub pad: u32,
    pub own: u64,
    pub above: u64,
}

const _: () = assert!(size_of::<Event>() == 16);
