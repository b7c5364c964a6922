//! What tuned's profiles are known to cost.
//!
//! Source: Red Hat Developer, "A VM tuning case study", 26 August 2025, measured on one EPYC 9354P.

use super::super::{Finding, Tree};
use super::profile::Settings;

/// A profile that keeps the processors out of deep idle states, such as `virtual-host`.
pub fn idle_power(active: &str, wanted: &Settings) -> Option<Finding> {
    let latency = wanted.get(&("cpu".to_owned(), "force_latency".to_owned()))?;
    Some(Finding::bad(
        "idle power of the profile",
        active,
        format!(
            "force_latency={latency} keeps the processors out of deep idle states: in the study the idle host drew 89 W more than with \
             balanced and 75 W more than with throughput-performance"
        ),
        (
            "what wakes from a deep idle state starts later; idle power falls only after a reboot",
            "tuned-adm profile throughput-performance, then reboot",
            format!("tuned-adm profile {active}"),
        ),
    ))
}

/// `balanced` where the kernel sets the frequencies of an AMD processor.
pub fn speed(t: &Tree, active: &str) -> Option<Finding> {
    let driver = t.matching("/sys/devices/system/cpu/cpu", "/cpufreq/scaling_driver").next()?.1;
    let is_slow = driver == "acpi-cpufreq" && t.amd().is_some() && active == "balanced";
    is_slow.then(|| {
        Finding::bad(
            "speed of the profile",
            active,
            "on the study's host with acpi-cpufreq a VM became 45 % faster with another profile; on a second host balanced was as fast",
            (
                "uses more power; measure both: vsteer experiment",
                "tuned-adm profile throughput-performance",
                format!("tuned-adm profile {active}"),
            ),
        )
    })
}
