//! Demand models of vCPUs: when a vCPU wakes, and how much CPU it then needs.
//!
//! Idea: to a hypervisor a guest is a sequence of bursts. The engine asks once per burst, when the last one
//! has ended: when does the next one start, and how long is it? If that start is in the past (a backlogged
//! server, a late timer), the vCPU does not block at all. So arrivals during busy time cost no event. The
//! wait in the guest's own queue follows from the two times without simulation.
//!
//! - `alone`: vCPUs that do not depend on others (jobs, timers, servers, recorded bursts, [`sequence`]), and [`display`]
//!   pipelines.
//! - `linked`: vCPUs whose bursts depend on others' ([`team`]: OpenMP loops; [`lock`]: a lock of a VM;
//!   [`driver`]: Xen's Domain-0 between a client and a server). The end of such a burst also ends the waiting
//!   of others. The engine executes these pokes.
//! - `polling`: a guest whose idle loop keeps its pCPU.
//!
//! [`demand`] has the possible demands, [`times`] the distributions, [`jobs`] the measurements.
//!
//! Source: closed forms for the servers are Kleinrock, Queueing Systems I (M/M/1, M/D/1; FCFS). Left out:
//! threads inside a vCPU. If a guest runs more threads than vCPUs, the simulation does not switch between
//! them.

pub(super) mod alone;
pub mod demand;
pub mod display;
pub mod driver;
pub mod jobs;
pub(super) mod linked;
pub mod lock;
pub mod poke;
mod release;
pub mod sequence;
pub mod team;
pub mod times;

pub(super) use alone::Guest;
pub use demand::{Burst, Demand};
pub use jobs::{Jobs, Sleeps};
pub use release::Release;
pub use sequence::{SequenceSpec, Step};
pub use times::Times;

/// The next burst: its start, and its CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// The start, ns. A past time means that work already waits; [`super::event::NEVER`] means none.
    pub at_ns: u64,
    /// CPU time at full speed, ns; `u64::MAX` never ends.
    pub work_ns: u64,
}

/// Nothing more.
const NO_MORE: Next = Next { at_ns: super::event::NEVER, work_ns: u64::MAX };
