//! What if? A discrete-event simulator of hypervisor CPU scheduling.
//!
//! [`setup`] is what is simulated, [`policy`] the contract of a scheduler, [`sched`] the schedulers, [`guest`] what
//! vCPUs want, [`engine`] what happens, [`account`] what is counted of it, [`samples`] what an observer would have seen
//! of it, [`trace`] who ran where, [`blame`] who made whom wait, [`check`] what must hold at every event whatever the scheduler is. Time is integer nanoseconds from 0; one seed decides everything.

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
pub mod trace;
