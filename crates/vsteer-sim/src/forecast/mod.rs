//! What would a change do? Forecasts of run and ready shares, without touching the host.
//!
//! Two methods. [`fluid`]: weighted fair sharing of pCPUs as if time were infinitely divisible, with delays scaled from what
//! was measured; samples are enough for it. [`replay`]: the simulator under the demands that recorded switches and wake-ups
//! tell ([`demand`]); [`headroom`] adds VMs to such a host, and [`foretell`] ranks plans by it where it gives back what was
//! measured. Where neither is to be had, [`cosched`]: ESXi's co-scheduling simulated with demands fitted to the shares that
//! esxtop tells.

pub mod cosched;
pub mod demand;
pub mod headroom;
mod queue;
pub mod recorded;
pub mod replay;
pub mod weights;
