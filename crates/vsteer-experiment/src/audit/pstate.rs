//! In which mode is amd_pstate or intel_pstate?
//!
//! Source: Documentation/admin-guide/pm/{amd-pstate,intel_pstate}.rst; the study: active and guided were quick, passive not always; active idles lower.

use super::{Check, Finding, Tree};

/// See the file's head.
pub const CHECK: Check = Check { name: "pstate", doc: "mode of amd_pstate or intel_pstate", look };

fn look(t: &Tree) -> Vec<Finding> {
    if let Some(mode) = t.text("/sys/devices/system/cpu/amd_pstate/status") {
        return vec![match mode {
            "active" | "guided" => {
                Finding::good("amd_pstate", mode, "quick in the study; of the two active idles lower")
            }
            "disable" => {
                Finding::none("amd_pstate", "the processor is driven by another driver (see scaling)")
            }
            _ => Finding::bad(
                "amd_pstate",
                mode,
                "in passive mode the kernel asks for each step; the study's VM was not always quicker than without the driver",
                (
                    "idle watts change; under `active` the governors are two (see scaling)",
                    "echo active > /sys/devices/system/cpu/amd_pstate/status (for good: amd_pstate=active on the command line)",
                    format!("echo {mode} > /sys/devices/system/cpu/amd_pstate/status"),
                ),
            ),
        }];
    }
    match t.text("/sys/devices/system/cpu/intel_pstate/status") {
        Some("active") => vec![Finding::good("intel_pstate", "active", "the hardware's own steps")],
        Some("off") => vec![Finding::none("intel_pstate", "another driver is in use")],
        Some(mode) => vec![Finding::bad(
            "intel_pstate",
            mode,
            "steps are asked for by the kernel where the hardware could choose them (HWP)",
            (
                "more or fewer watts",
                "echo active > /sys/devices/system/cpu/intel_pstate/status",
                format!("echo {mode} > /sys/devices/system/cpu/intel_pstate/status"),
            ),
        )],
        None => vec![Finding::none("amd_pstate, intel_pstate", "neither driver is in this kernel's use")],
    }
}
