//! Xen's Credit2 in the table of schedulers: parameters with the source's defaults, known deviations.

use crate::policy::{About, Conserving, Parameter};

/// The entry in the table.
pub(super) const ABOUT: About = About {
    name: "credit2",
    doc: "Xen Credit2: CPU by weight in credits that are reset together, shared queues, caps by budget",
    source: "xen/common/sched/credit2.c, Xen 4.23-unstable (c447b730)",
    parameters: &[
        Parameter {
            name: "ratelimit_us",
            doc: "a vCPU that got a pCPU keeps it at least this long; 0 switches it off",
            unit: "us",
            default: 1000,
            min: 0,
            max: 500_000,
        },
        Parameter {
            name: "runqueue",
            doc: "which pCPUs share a queue: those of a core (1), a socket (2), a node (3), all (4), none \
                (0)",
            unit: "kind",
            default: 2,
            min: 0,
            max: 4,
        },
        Parameter {
            name: "max_cpus_runqueue",
            doc: "most pCPUs of a queue",
            unit: "pCPUs",
            default: 16,
            min: 1,
            max: 4096,
        },
        Parameter {
            name: "migrate_resist_us",
            doc: "how far a vCPU of another pCPU must be ahead in credit to migrate here",
            unit: "us",
            default: 500,
            min: 0,
            max: 10_000,
        },
        Parameter {
            name: "inflight",
            doc: "whether a slice counts the vCPU that just left the pCPU as waiting (1, Xen 4.23) or not \
                (0, Xen 4.17)",
            unit: "flag",
            default: 1,
            min: 0,
            max: 1,
        },
        Parameter {
            name: "cap_period_ms",
            doc: "how often capped VMs get their budget",
            unit: "ms",
            default: 10,
            min: 1,
            max: 30,
        },
    ],
    default_weight: 256,
    weights: (1, 65_535),
    proportional: true,
    conserving: Conserving::No("other queues are looked at only when credits are reset"),
    caps: true,
    quotas: false,
    classes: false,
    reservations: false,
    warps: false,
    soft_affinities: true,
    gaps: &[
        "credit2-races: interrupts, locks and switches take no time",
        "credit2-phase: budgets of all capped VMs are replenished at the same instants",
        "credit2-units: no core scheduling (one vCPU per sched_unit), no tasklets, no sched_smt_power_savings",
    ],
};
