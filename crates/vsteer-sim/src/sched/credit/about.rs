//! Xen's Credit in the table of schedulers: parameters with the source's defaults, promises, known
//! deviations.

use super::MS;
use crate::policy::{About, Conserving, Parameter};

/// The entry in the table.
pub(super) const ABOUT: About = About {
    name: "credit",
    doc: "Xen Credit: CPU by weight in credits, BOOST for vCPUs that wake, work stealing",
    source: "xen/common/sched/credit.c, Xen 4.23-unstable (c447b730)",
    parameters: &[
        Parameter {
            name: "tslice_ms",
            doc: "how long a vCPU runs while others of its priority wait; also the accounting period",
            unit: "ms",
            default: 30,
            min: 1,
            max: 1000,
        },
        Parameter {
            name: "ratelimit_us",
            doc: "a vCPU that got a pCPU keeps it at least this long; 0 switches it off",
            unit: "us",
            default: 1000,
            min: 0,
            max: 500_000,
        },
        Parameter {
            name: "vcpu_migration_delay_us",
            doc: "a vCPU that ran less than this ago is not stolen",
            unit: "us",
            default: 0,
            min: 0,
            max: 100_000,
        },
        Parameter {
            name: "load_balance_ratelimit_us",
            doc: "a pCPU looks for work at its peers at most once in this time",
            unit: "us",
            default: 1000,
            min: 0,
            max: 1_000_000,
        },
        Parameter {
            name: "tickle_one_idle_cpu",
            doc: "a wake-up that finds several idle pCPUs interrupts one of them (1) or all (0)",
            unit: "flag",
            default: 1,
            min: 0,
            max: 1,
        },
        Parameter {
            name: "xen3_accounts",
            doc: "1: a tick charges the running vCPU for the whole tick, and a vCPU that stops earning \
                loses its credits, as in Xen 3; 0: by time",
            unit: "flag",
            default: 0,
            min: 0,
            max: 1,
        },
    ],
    default_weight: 256,
    weights: (1, 65535),
    proportional: true,
    // If a pCPU searched for work too early, it searches again when it is tickled, or its peers give away
    // work at a tick or at the end of a slice.
    conserving: Conserving::Within(60 * MS),
    caps: true,
    quotas: false,
    classes: false,
    reservations: false,
    warps: false,
    soft_affinities: true,
    gaps: &[
        "credit-phase: ticks of all pCPUs coincide, accounting follows them at once",
        "credit-races: interrupts and locks take no time",
        "credit-width: sums of credits do not overflow",
        "credit-units: no core scheduling (one vCPU per sched_unit), no tasklets, no smt_power_savings",
        "credit-remote-wake: wake-ups come from the pCPU that the vCPU ran on last",
    ],
};
