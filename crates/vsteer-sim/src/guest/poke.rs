//! What passes between vCPUs that depend on each other: the next burst of one that waited, and how one waits.

use super::times::positive;
use super::{NO_MORE, Next};
use crate::hot::Hot;
use crate::state::State;
use serde::{Deserialize, Serialize};
use vsteer_core::Fault;

/// The next burst of a vCPU that waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Poke {
    /// vCPU that gets the burst.
    pub vcpu: u32,
    /// When it begins, ns; later than now only for one that is blocked.
    pub at_ns: u64,
    /// CPU time at full speed, ns.
    pub work_ns: u64,
}

/// Who is on a pCPU.
#[derive(Clone, Copy)]
pub(super) struct Runs<'a>(&'a [Hot]);

impl Runs<'_> {
    /// As these vCPUs are now.
    pub(super) fn of(hot: &[Hot]) -> Runs<'_> {
        Runs(hot)
    }

    /// Is `v` on one now?
    pub(super) fn now(self, v: u32) -> bool {
        self.0[v as usize].state() == State::Running
    }

    /// Has `v` been on none since `ns`, for certain?
    pub(super) fn not_since(self, v: u32, ns: u64) -> bool {
        let hot = &self.0[v as usize];
        hot.state() != State::Running && hot.since_ns() <= ns
    }
}

/// How a thread waits for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Waiting {
    /// It spins until they are there.
    Spin,
    /// It sleeps.
    Sleep,
    /// It spins for this CPU time, ns, and then sleeps.
    SpinThenSleep(u64),
}

impl Waiting {
    pub(super) fn check(self, key: &str) -> Result<(), Fault> {
        match self {
            Waiting::SpinThenSleep(ns) => positive(key, ns),
            _ => Ok(()),
        }
    }

    /// What a vCPU does that begins to wait now.
    pub(super) fn next(self, now_ns: u64) -> Next {
        match self {
            Waiting::Spin => Next { at_ns: now_ns, work_ns: u64::MAX },
            Waiting::Sleep => NO_MORE,
            Waiting::SpinThenSleep(ns) => Next { at_ns: now_ns, work_ns: ns },
        }
    }
}
