//! What vCPUs that depend on each other exchange: the next burst of a waiting vCPU, and how a vCPU waits.

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
    /// Its start, ns; later than now only for a blocked vCPU.
    pub at_ns: u64,
    /// CPU time at full speed, ns.
    pub work_ns: u64,
}

/// Which vCPUs are on a pCPU.
#[derive(Clone, Copy)]
pub(super) struct Runs<'a>(&'a [Hot]);

impl Runs<'_> {
    /// The present states of these vCPUs.
    pub(super) fn of(hot: &[Hot]) -> Runs<'_> {
        Runs(hot)
    }

    /// Is `v` on a pCPU now?
    pub(super) fn now(self, v: u32) -> bool {
        self.0[v as usize].state() == State::Running
    }

    /// Has `v` certainly been on no pCPU since `ns`?
    pub(super) fn not_since(self, v: u32, ns: u64) -> bool {
        let hot = &self.0[v as usize];
        hot.state() != State::Running && hot.since_ns() <= ns
    }
}

/// How a thread waits for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Waiting {
    /// It spins until they arrive.
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

    /// What a vCPU does that starts to wait now.
    pub(super) fn next(self, now_ns: u64) -> Next {
        match self {
            Waiting::Spin => Next { at_ns: now_ns, work_ns: u64::MAX },
            Waiting::Sleep => NO_MORE,
            Waiting::SpinThenSleep(ns) => Next { at_ns: now_ns, work_ns: ns },
        }
    }
}
