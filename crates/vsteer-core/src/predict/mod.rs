//! What would a change do? Forecasts of run and ready shares, without touching the host.
//!
//! For now one method, [`fluid`]: weighted fair sharing of pCPUs as if time were infinitely divisible, with delays
//! scaled from what was measured. GAP(simulator): the discrete-event simulator replaces it where a scheduler's
//! quanta matter.

pub mod fluid;
