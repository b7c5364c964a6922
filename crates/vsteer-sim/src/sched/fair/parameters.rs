//! The parameters of both fair classes.

use super::super::super::policy::Parameter;

/// Ticks per second, of either fair class.
pub const HZ: Parameter = Parameter {
    name: "hz",
    doc: "ticks per second (CONFIG_HZ): slices end at ticks",
    unit: "1/s",
    default: 250,
    min: 24,
    max: 10_000,
};
/// How much a pCPU takes from a quota at a time.
pub const BANDWIDTH_SLICE: Parameter = Parameter {
    name: "cfs_bandwidth_slice_us",
    doc: "time that a pCPU takes from the group's quota at once",
    unit: "us",
    default: 5000,
    min: 100,
    max: 1_000_000,
};
/// How the starts of quota periods are offset from each other.
pub const QUOTA_PHASES: Parameter = Parameter {
    name: "quota_phases",
    doc: "seed of the random offset of each group's periods; 0: all periods begin together",
    unit: "seed",
    default: 0,
    min: 0,
    max: 1_000_000,
};
/// The time between passes of balancing.
pub const BALANCE: Parameter = Parameter {
    name: "balance_ms",
    doc: "time between load balancing passes; idle pCPUs balance at every pass, busy ones at every 16th",
    unit: "ms",
    default: 4,
    min: 1,
    max: 1000,
};
/// A turn of `SCHED_RR`.
pub const RR_TIMESLICE: Parameter = Parameter {
    name: "rr_timeslice_ms",
    doc: "slice of SCHED_RR among tasks of equal priority, in whole ticks",
    unit: "ms",
    default: 100,
    min: 1,
    max: 10_000,
};
