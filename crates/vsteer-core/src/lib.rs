//! The pure part of vsteer: what is true of VMs that wait for a CPU, what follows, and what to do.
//!
//! Nothing here reads a file, a clock, the network or a source of randomness: every function's result
//! depends on its arguments alone, so that live, replay and simulation share it and tests need no machine.

pub mod canonical;
pub mod counted;
pub mod cpuset;
pub mod delay;
pub mod diagnose;
pub mod exit_code;
pub mod fault;
pub mod forecast;
mod interval;
pub mod limits;
pub mod machine_type;
pub mod model;
pub mod nouns;
pub mod numa;
pub mod plan;
pub mod plural;
pub mod printed;
pub mod random;
pub mod realtime;
pub mod requests;
pub mod setting;
pub mod size;
pub mod smp;
pub mod span;
pub mod stats;
pub mod thresholds;
pub mod thumbprint;
pub mod timeline;
pub mod top_columns;
pub mod topology;
pub mod tree;
pub mod trigger;
pub mod verify;
pub mod visible;

pub use cpuset::CpuSet;
pub use exit_code::FaultKind;
pub use fault::Fault;
pub use interval::Interval;
pub use topology::Topology;
