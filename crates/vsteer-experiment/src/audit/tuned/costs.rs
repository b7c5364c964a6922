//! What tuned's profiles are known to cost.
//!
//! Source: Red Hat Developer, "A VM tuning case study", 26 August 2025, measured on one EPYC 9354P.

use super::super::{Finding, Tree};
use super::profile::Settings;

/// The idle power of `virtual-host`. Other profiles that set `force_latency`, such as `realtime-virtual-host`, are for VMs that
/// must wake quickly: the study did not measure them, and their latency is what the administrator asked for.
pub fn idle_power(active: &str, wanted: &Settings) -> Option<Finding> {
    let latency = wanted.get(&("cpu".to_owned(), "force_latency".to_owned()))?;
    active.split_whitespace().any(|profile| profile == "virtual-host").then(|| {
        Finding::bad(
            "idle power of the profile",
            active,
            format!(
                "force_latency={latency} keeps the processors out of deep idle states. In the study, the idle host drew 89 W more than \
                 with balanced and 75 W more than with throughput-performance"
            ),
            (
                "VMs that sleep wake later; idle power falls only after a reboot",
                "tuned-adm profile throughput-performance, then reboot",
                format!("tuned-adm profile {active}"),
            ),
        )
    })
}

/// The speed of `balanced` if the kernel sets the frequencies of an AMD processor.
pub fn speed(t: &Tree, active: &str) -> Option<Finding> {
    let driver = t.matching("/sys/devices/system/cpu/cpu", "/cpufreq/scaling_driver").next()?.1;
    let is_slow = driver == "acpi-cpufreq" && t.amd().is_some() && active == "balanced";
    is_slow.then(|| {
        Finding::bad(
            "speed of the profile",
            active,
            "In the study, a VM became 45 % faster with another profile on one host with acpi-cpufreq. On a second host, balanced was \
             slightly faster",
            (
                "uses more power; measure both profiles with vsteer experiment",
                "tuned-adm profile throughput-performance",
                format!("tuned-adm profile {active}"),
            ),
        )
    })
}
