//! Co-scheduling as in ESXi in the table of schedulers: parameters, known deviations.

use super::SHARES;
use crate::policy::{About, Conserving, Parameter};

/// The entry in the table.
pub(super) const ABOUT: About = About {
    name: "esxi",
    doc: "proportional share with strict or relaxed co-scheduling, as published of ESX and ESXi",
    source: "VMware, The CPU Scheduler in VMware vSphere 5.1, 2013",
    parameters: &[
        Parameter {
            name: "coscheduling",
            doc: "co-scheduling of sibling vCPUs: none (0), strict (1), relaxed (2)",
            unit: "kind",
            default: 2,
            min: 0,
            max: 2,
        },
        Parameter {
            name: "quantum_ms",
            doc: "how long a vCPU runs while others wait",
            unit: "ms",
            default: 50,
            min: 1,
            max: 1000,
        },
        Parameter {
            name: "costop_us",
            doc: "skew beyond which a vCPU (relaxed) or a VM (strict) is co-stopped",
            unit: "us",
            default: 3000,
            min: 100,
            max: 1_000_000,
        },
        Parameter {
            name: "costart_us",
            doc: "relaxed: skew at which the vCPU may continue; at least 50 us less than costop_us",
            unit: "us",
            default: 2000,
            min: 0,
            max: 1_000_000,
        },
        Parameter {
            name: "idle_catches_up",
            doc: "relaxed: a vCPU that goes idle is level with the one furthest ahead (1), or keeps its \
                lag (0)",
            unit: "flag",
            default: 0,
            min: 0,
            max: 1,
        },
    ],
    default_weight: SHARES as u32,
    weights: (1, 1_000_000),
    proportional: true,
    conserving: Conserving::No("co-stopped vCPUs leave pCPUs idle; a preempted one looks for no other pCPU"),
    caps: false,
    quotas: false,
    classes: false,
    reservations: false,
    warps: false,
    soft_affinities: false,
    gaps: &[
        "esxi-closed: the source is not public; what papers leave open is as simple as can be",
        "esxi-placement: one queue, no NUMA clients, no cost of migration, no hyper-threading policy",
        "esxi-limits: no reservations, limits, or resource pools",
    ],
};
