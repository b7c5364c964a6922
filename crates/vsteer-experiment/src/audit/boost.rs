//! May processors run above their nominal frequency?
//!
//! Source: Documentation/admin-guide/pm/{cpufreq,intel_pstate}.rst.

use super::{Check, Finding, Tree};

pub const CHECK: Check = Check {
    name: "boost",
    doc: "boost frequencies",
    rests_on: &["cpufreq/boost", "intel_pstate/no_turbo"],
    look,
};

fn look(t: &Tree) -> Vec<Finding> {
    let (path, on) = match (
        t.text("/sys/devices/system/cpu/cpufreq/boost"),
        t.text("/sys/devices/system/cpu/intel_pstate/no_turbo"),
    ) {
        (Some(v), _) => ("/sys/devices/system/cpu/cpufreq/boost", v == "1"),
        (None, Some(v)) => ("/sys/devices/system/cpu/intel_pstate/no_turbo", v == "0"),
        (None, None) => return vec![Finding::none("boost", "no frequency driver reports it")],
    };
    if on {
        return vec![Finding::good("boost", "on", "busy processors may run above their nominal frequency")];
    }
    let (set, unset) = if path.ends_with("boost") { (1, 0) } else { (0, 1) };
    vec![Finding::bad(
        "boost",
        "off",
        "busy processors stay at their nominal frequency",
        (
            "uses more power and gets hotter; frequencies vary more",
            format!("echo {set} > {path}"),
            format!("echo {unset} > {path}"),
        ),
    )]
}
