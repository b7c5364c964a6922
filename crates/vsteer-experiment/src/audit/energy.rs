//! Do the processors prefer speed or energy saving?
//!
//! Source: Documentation/admin-guide/pm/amd-pstate.rst (energy_performance_preference). In the published study
//! (see `tuned`), `balanced`, which sets `balance_performance`, was clearly slower than all faster profiles under
//! amd_pstate=active, though not under guided; its balanced-performance profile sets `performance`.

use super::{Check, Finding, Tree};

pub const CHECK: Check = Check {
    name: "energy",
    doc: "energy preference of the processors",
    rests_on: &["/energy_performance_preference"],
    look,
};

fn look(t: &Tree) -> Vec<Finding> {
    let base = "/sys/devices/system/cpu/cpu";
    let all = Tree::counted(t.matching(base, "/cpufreq/energy_performance_preference").map(|(_, p)| p));
    let told: Vec<String> = all.iter().map(|(p, n)| format!("{p} on {n} CPUs")).collect();
    if all.is_empty() {
        return vec![Finding::none("energy preference", "only autonomous frequency drivers have one")];
    }
    // A VM is slow on every processor that saves energy.
    let is_amd = t.matching(base, "/cpufreq/scaling_driver").any(|(_, driver)| driver == "amd-pstate-epp");
    let saves = |p: &str| ["power", "balance_power"].contains(&p) || (is_amd && p == "balance_performance");
    let better = if is_amd { "performance" } else { "balance_performance" };
    let saving: usize = all.iter().filter(|(p, _)| saves(p)).map(|(_, n)| n).sum();
    if saving == 0 {
        return vec![Finding::good("energy preference", told.join(", "), "the processors may run fast")];
    }
    let cpus: usize = all.iter().map(|(_, n)| n).sum();
    let (why, undo) = match all.as_slice() {
        [(only, _)] => (
            if *only == "balance_performance" {
                "with amd_pstate=active and this preference the study's VM was clearly slower than with `performance`".to_owned()
            } else {
                "the processors prefer to save energy".to_owned()
            },
            format!("echo {only} > .../cpu*/cpufreq/energy_performance_preference"),
        ),
        _ => (
            format!(
                "{saving} of {cpus} CPUs prefer to save energy, so a VM's speed depends on where it runs"
            ),
            "write the former value of each CPU".to_owned(),
        ),
    };
    vec![Finding::bad(
        "energy preference",
        told.join(", "),
        why,
        (
            "uses more power",
            format!(
                "echo {better} > .../cpu*/cpufreq/energy_performance_preference (by tuned: energy_performance_preference=)"
            ),
            undo,
        ),
    )]
}
