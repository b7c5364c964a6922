//! The six states of a vCPU; each vCPU is always in exactly one.

use serde::Serialize;

/// The state of a vCPU: at any time exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum State {
    /// On a pCPU.
    Running,
    /// Could run, but has no pCPU.
    Ready,
    /// Held back so that siblings catch up.
    CoStopped,
    /// Held because of a cap or quota.
    Limited,
    /// Idle or waiting for input.
    Blocked,
    /// Does not exist yet.
    Absent,
}

/// The number of states.
pub const STATES: usize = 6;
