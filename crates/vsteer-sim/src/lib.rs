//! A discrete-event simulator of hypervisor CPU scheduling: what would VMs get under another scheduler or
//! setting?
//!
//! [`setup`] is the simulated host, [`policy`] the interface of a scheduler, [`sched`] the schedulers,
//! [`guest`] the demands of vCPUs, [`engine`] the simulation itself, [`account`] its counters, [`samples`]
//! what an observer would record, [`trace`] which vCPU ran where, [`blame`] which vCPU caused which wait,
//! [`check`] the invariants of every scheduler. Time is integer nanoseconds from 0. One seed determines
//! everything.

pub mod account;
pub mod bits;
pub mod blame;
pub mod check;
pub mod engine;
pub mod event;
pub mod forecast;
pub mod guest;
mod hot;
pub mod ids;
pub mod policy;
pub mod samples;
pub mod scenario;
pub mod sched;
pub mod setup;
pub mod state;
pub mod steps;
pub mod trace;
