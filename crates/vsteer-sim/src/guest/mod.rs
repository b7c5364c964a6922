//! What does a vCPU want? Demand models: when it wakes, and how much CPU it then needs.
//!
//! Idea: to a hypervisor a guest is a sequence of bursts. The engine asks once per burst, when the last one is done:
//! when does the next begin, and how long is it? A beginning that is past by then (a backlogged server, a late timer)
//! means that the vCPU does not block at all. So arrivals that fall into busy time cost no event, and a wait in the
//! guest's own queue follows from the two times without being simulated.
//!
//! - `alone`: vCPUs that depend on nobody (jobs, timers, servers, recorded bursts), and [`display`] pipelines.
//! - `linked`: vCPUs whose bursts depend on others' ([`team`]: OpenMP loops; [`lock`]: a lock of a VM; [`driver`]:
//!   Xen's Domain-0 between a client and a server). Beside the answer for itself such a burst ends others' waiting: the
//!   pokes, which the engine carries out.
//! - `polling`: a guest whose idle loop does not give its pCPU up.
//!
//! [`demand`] is what may be asked for, [`times`] the distributions, [`jobs`] what was measured.
//!
//! Source: closed forms for the servers are Kleinrock, Queueing Systems I (M/M/1, M/D/1; FCFS).
//! Left out: threads inside a vCPU. A guest that runs more threads than it has vCPUs does so here without switching
//! between them.

pub(super) mod alone;
pub mod demand;
pub mod display;
pub mod driver;
pub mod jobs;
pub(super) mod linked;
pub mod lock;
pub mod poke;
mod release;
pub mod team;
pub mod times;

pub(super) use alone::Guest;
pub use demand::{Burst, Demand};
pub use jobs::{Jobs, Sleeps};
pub use release::Release;
pub use times::Times;

/// The next burst: when it begins and how much CPU it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// When, ns; the past for work that already waits, [`super::event::NEVER`] for none.
    pub at_ns: u64,
    /// CPU time at full speed, ns; `u64::MAX` never ends.
    pub work_ns: u64,
}

/// Nothing more.
const NO_MORE: Next = Next { at_ns: super::event::NEVER, work_ns: u64::MAX };
