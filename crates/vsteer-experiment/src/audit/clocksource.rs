//! By which clock does the kernel tell time?
//!
//! tsc and kvm-clock are read without leaving the processor or the guest; hpet and acpi_pm cost a device access, in a guest an exit, for each look. Source:
//! Documentation/virt/kvm/x86/timekeeping.rst.

use super::{Check, Finding, Tree};

/// See the file's head.
pub const CHECK: Check = Check { name: "clocksource", doc: "the kernel's clock", look };

const FILE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

fn look(t: &Tree) -> Vec<Finding> {
    let Some(now) = t.text(FILE) else { return vec![Finding::none("clocksource", "this kernel tells none")] };
    if ["tsc", "kvm-clock", "arch_sys_counter", "xen", "hyperv_clocksource_tsc_page"].contains(&now) {
        return vec![Finding::good("clocksource", now, "read without leaving the processor")];
    }
    let offered =
        t.text("/sys/devices/system/clocksource/clocksource0/available_clocksource").unwrap_or_default();
    let quick = offered.split_whitespace().find(|c| ["tsc", "kvm-clock"].contains(c));
    match quick {
        Some(quick) => vec![Finding::bad(
            "clocksource",
            now,
            "each look at the time is a device access",
            (
                "a TSC that the kernel found unstable drifts: read the kernel's log first",
                format!("echo {quick} > {FILE}"),
                format!("echo {now} > {FILE}"),
            ),
        )],
        None => vec![Finding::good(
            "clocksource",
            now,
            "slow, and the only one that is offered: the kernel's log says why",
        )],
    }
}
