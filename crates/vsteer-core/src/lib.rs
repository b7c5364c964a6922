//! The pure part of vsteer: what is true of VMs that wait for a CPU, what follows, and what to do.
//!
//! Nothing here reads a file, a clock, the network or a source of randomness: every function's result
//! depends on its arguments alone, so that live, replay and simulation share it and tests need no machine.

pub mod audit;
pub mod cpuset;
pub mod diagnose;
pub mod display;
pub mod experiment;
pub mod fault;
pub mod model;
pub mod nouns;
pub mod numa;
pub mod plan;
pub mod predict;
pub mod quantity;
pub mod realtime;
pub mod scenario;
pub mod sim;
pub mod sla;
pub mod stats;
pub mod timeline;
pub mod topology;
pub mod trigger;
pub mod verify;

pub use cpuset::CpuSet;
pub use fault::{Fault, FaultKind};
pub use topology::Topology;
