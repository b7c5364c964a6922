//! Which clock does the kernel read for the time?
//!
//! The kernel reads tsc and kvm-clock without leaving the processor or the guest. Each read of hpet or acpi_pm is a
//! device access, and an exit in a guest. Source: Documentation/virt/kvm/x86/timekeeping.rst.

use super::{Check, Finding, Tree};

pub const CHECK: Check =
    Check { name: "clocksource", doc: "the kernel's clock", rests_on: &["current_clocksource"], look };

const FILE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

fn look(t: &Tree) -> Vec<Finding> {
    let Some(now) = t.text(FILE) else {
        return vec![Finding::none("clocksource", "the kernel does not report its clock source")];
    };
    if ["tsc", "kvm-clock", "arch_sys_counter", "xen", "hyperv_clocksource_tsc_page"].contains(&now) {
        return vec![Finding::good("clocksource", now, "the kernel reads it without leaving the processor")];
    }
    let offered =
        t.text("/sys/devices/system/clocksource/clocksource0/available_clocksource").unwrap_or_default();
    let quick = offered.split_whitespace().find(|c| ["tsc", "kvm-clock"].contains(c));
    match quick {
        Some(quick) => vec![Finding::bad(
            "clocksource",
            now,
            "each read of the time is a device access",
            (
                "a clock that the kernel found unstable drifts; read the kernel log first",
                format!("echo {quick} > {FILE}"),
                format!("echo {now} > {FILE}"),
            ),
        )],
        None => vec![Finding::good(
            "clocksource",
            now,
            "slow, but the kernel offers no faster clock; see the kernel log for the reason",
        )],
    }
}
