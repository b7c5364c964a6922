//! In which mode is the driver amd_pstate or intel_pstate?
//!
//! Source: Documentation/admin-guide/pm/{amd-pstate,intel_pstate}.rst; in the study, active and guided were
//! fast, passive not always, and active used less power when idle.

use super::{Check, Finding, Tree};

pub const CHECK: Check = Check {
    name: "pstate",
    doc: "mode of amd_pstate or intel_pstate",
    rests_on: &["amd_pstate/status", "intel_pstate/status"],
    look,
};

fn look(t: &Tree) -> Vec<Finding> {
    if let Some(mode) = t.text("/sys/devices/system/cpu/amd_pstate/status") {
        return vec![match mode {
            "active" | "guided" => Finding::good(
                "amd_pstate",
                mode,
                "fast in the study; active uses less power than guided when idle",
            ),
            "disable" => Finding::none("amd_pstate", "another driver sets the frequencies (see scaling)"),
            _ => Finding::bad(
                "amd_pstate",
                mode,
                "in passive mode the kernel requests each frequency; the study's VM was not always faster than without the driver",
                (
                    "idle power changes; `active` has only two governors (see scaling)",
                    "echo active > /sys/devices/system/cpu/amd_pstate/status (permanently: \
                        amd_pstate=active on the kernel's command line)",
                    format!("echo {mode} > /sys/devices/system/cpu/amd_pstate/status"),
                ),
            ),
        }];
    }
    match t.text("/sys/devices/system/cpu/intel_pstate/status") {
        Some("active") => {
            vec![Finding::good("intel_pstate", "active", "the hardware chooses the frequencies")]
        }
        Some("off") => {
            vec![Finding::none("intel_pstate", "another driver sets the frequencies (see scaling)")]
        }
        Some(mode) => vec![Finding::bad(
            "intel_pstate",
            mode,
            "the kernel requests each frequency, although the hardware could choose (HWP)",
            (
                "power use changes",
                "echo active > /sys/devices/system/cpu/intel_pstate/status",
                format!("echo {mode} > /sys/devices/system/cpu/intel_pstate/status"),
            ),
        )],
        None => vec![Finding::none("amd_pstate, intel_pstate", "the kernel uses neither driver")],
    }
}
