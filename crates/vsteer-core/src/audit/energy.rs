//! What do the processors prefer, speed or saving?
//!
//! Source: Documentation/admin-guide/pm/amd-pstate.rst (energy_performance_preference); the study's balanced-performance profile sets `performance`.

use super::{Check, Finding, Tree};

/// See the file's head.
pub const CHECK: Check = Check { name: "energy", doc: "energy preference of the processors", look };

fn look(t: &Tree) -> Vec<Finding> {
    let base = "/sys/devices/system/cpu/cpu";
    let all = Tree::counted(t.matching(base, "/cpufreq/energy_performance_preference").map(|(_, p)| p));
    let told: Vec<String> = all.iter().map(|(p, n)| format!("{p} on {n} CPUs")).collect();
    match all.as_slice() {
        [] => vec![Finding::none("energy preference", "only autonomous drivers have one")],
        [("power" | "balance_power", _), ..] => vec![Finding::bad(
            "energy preference",
            told.join(", "),
            "the processor is told to save",
            (
                "more watts",
                "echo balance_performance > .../cpu*/cpufreq/energy_performance_preference (by tuned: energy_performance_preference=)",
                format!("echo {} > the same", all[0].0),
            ),
        )],
        _ => vec![Finding::good("energy preference", told.join(", "), "the processor may be quick")],
    }
}
