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

/// What becomes of a measured wait that simulation says goes from `was` to `will`. What grows is added to what was measured.
/// What falls, falls at most to the same part of it, because the simulation may begin higher. Without a change it is what was
/// measured.
fn moved(measured: f64, was: f64, will: f64) -> f64 {
    let by = will - was;
    let by = if by < 0.0 && was > 0.0 { by * (measured / was).min(1.0) } else { by };
    (measured + by).max(0.0)
}
