//! The parameters that both fair classes have.

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
/// What a pCPU takes of a quota at a time.
pub const BANDWIDTH_SLICE: Parameter = Parameter {
    name: "cfs_bandwidth_slice_us",
    doc: "how much of a quota a pCPU takes from the group at a time",
    unit: "us",
    default: 5000,
    min: 100,
    max: 1_000_000,
};
/// How the periods of quotas lie to each other.
pub const QUOTA_PHASES: Parameter = Parameter {
    name: "quota_phases",
    doc: "the kernel sets each group's periods off at random: by this seed; 0: all begin together",
    unit: "seed",
    default: 0,
    min: 0,
    max: 1_000_000,
};
/// Between passes of balancing.
pub const BALANCE: Parameter = Parameter {
    name: "balance_ms",
    doc: "between passes of balancing; idle pCPUs look at every pass, busy ones at every 16th",
    unit: "ms",
    default: 4,
    min: 1,
    max: 1000,
};
/// A turn of `SCHED_RR`.
pub const RR_TIMESLICE: Parameter = Parameter {
    name: "rr_timeslice_ms",
    doc: "a turn of SCHED_RR among its equals, in whole ticks",
    unit: "ms",
    default: 100,
    min: 1,
    max: 10_000,
};
