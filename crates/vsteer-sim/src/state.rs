//! What is a vCPU doing? The six states, of which each vCPU is in exactly one.

use serde::Serialize;

/// What a vCPU is doing: at any instant exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum State {
    /// On a pCPU.
    Running,
    /// Could run, has no pCPU.
    Ready,
    /// Held back so that siblings catch up.
    CoStopped,
    /// Held by a cap or quota.
    Limited,
    /// Idle or waiting for input.
    Blocked,
    /// Does not exist yet.
    Absent,
}

/// How many states there are.
pub const STATES: usize = 6;
