//! What would a change do? Forecasts that simulate, without touching the host.
//!
//! - [`demand`]: what recorded switches and wake-ups say that each thread wanted; [`replay`] simulates the host under these demands.
//! - [`recorded`]: the [`vsteer_core::forecast::Forecaster`] that replays a recording with a plan's steps, and says how far it was off.
//! - [`compared`]: how far a simulated host is off the measured one.
//! - [`headroom`]: adds VMs to a recorded host until a level breaks.
//! - [`cosched`]: ESXi's co-scheduling, with demands fitted to the shares that esxtop reports.
//! - [`weights`]: what weights come to on the recorded host.
//!
//! Where only samples exist, `vsteer_core::forecast::fluid` forecasts without simulation.

pub mod compared;
pub mod cosched;
pub mod demand;
pub mod headroom;
mod queue;
pub mod recorded;
pub mod replay;
pub mod weights;
