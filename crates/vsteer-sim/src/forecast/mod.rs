//! Forecasts the effect of a change by simulation, without touching the host.
//!
//! - [`demand`]: derives each thread's demand from recorded switches and wake-ups; [`replay`] simulates the
//!   host with these demands.
//! - [`recorded`]: the [`vsteer_core::forecast::Forecaster`] that replays a recording with a plan's steps,
//!   and says how large its error was.
//! - [`compared`]: the difference between a simulated host and the measured one.
//! - [`headroom`]: adds VMs to a recorded host until a level breaks.
//! - [`counted`]: threads that do at random what was counted, for hosts of which there are samples only.
//! - [`cosched`]: ESXi's co-scheduling, with demands fitted to the shares that esxtop reports.
//! - [`weights`]: the effective weights on the recorded host.
//!
//! `vsteer_core::forecast::fluid` forecasts without simulation.

pub mod compared;
pub mod cosched;
pub mod counted;
pub mod demand;
pub mod headroom;
mod queue;
pub mod recorded;
pub mod replay;
mod scheduler;
pub mod weights;
