//! Which driver sets the processors' frequencies, and by which governor?
//!
//! The published study's quick check: acpi-cpufreq under a profile that picks the governor powersave made a VM's build 45 % longer. Source: Red Hat Developer,
//! "A VM tuning case study", 26 August 2025; Documentation/admin-guide/pm/cpufreq.rst.

use super::{Check, Finding, Tree};

/// See the file's head.
pub const CHECK: Check = Check { name: "scaling", doc: "frequency driver and governor", look };

fn look(t: &Tree) -> Vec<Finding> {
    let base = "/sys/devices/system/cpu/cpu";
    let drivers = Tree::counted(t.matching(base, "/cpufreq/scaling_driver").map(|(_, d)| d));
    let Some((driver, _)) = drivers.first() else {
        let why = if t.is_guest() {
            "a guest's frequencies are its host's"
        } else {
            "the kernel scales no frequencies here"
        };
        return vec![Finding::none("scaling driver", why)];
    };
    let governors = Tree::counted(t.matching(base, "/cpufreq/scaling_governor").map(|(_, g)| g));
    vec![of_driver(t, driver), of_governors(driver, &governors)]
}

fn of_driver(t: &Tree, driver: &str) -> Finding {
    // Before Zen 2 there is no table of performance levels (CPPC) that amd-pstate could use: Documentation/admin-guide/pm/amd-pstate.rst.
    let knows_levels = t.amd().is_some_and(|of| match of {
        (Some(family), Some(model)) => family > 23 || (family == 23 && model >= 48),
        _ => true,
    });
    match driver {
        "acpi-cpufreq" if knows_levels => Finding::bad(
            "scaling driver",
            driver,
            "on AMD's newer processors amd-pstate knows finer steps; under acpi-cpufreq the study's VM took up to 45 % longer",
            (
                "needs a boot; idle watts change (measure them)",
                "kernel command line: amd_pstate=active (grubby --update-kernel=ALL --args=amd_pstate=active)",
                "grubby --update-kernel=ALL --remove-args=amd_pstate, and boot",
            ),
        ),
        d => Finding::good("scaling driver", d, "the processor's own driver, as far as its name tells"),
    }
}

/// `governors`: each governor with its number of CPUs, the most frequent first.
fn of_governors(driver: &str, governors: &[(&str, usize)]) -> Finding {
    let told: Vec<String> = governors.iter().map(|(g, n)| format!("{g} on {n} CPUs")).collect();
    // Under an autonomous driver "powersave" is the ordinary name of "as the hardware sees fit".
    let autonomous = ["amd-pstate-epp", "intel_pstate"].contains(&driver);
    let slow = governors.iter().any(|(g, _)| *g == "powersave") && !autonomous;
    if governors.len() > 1 {
        Finding::bad(
            "governor",
            told.join(", "),
            "CPUs differ: a VM's speed depends on where it runs",
            (
                "none",
                format!("one governor on all: cpupower frequency-set -g {}", governors[0].0),
                "the former ones, CPU by CPU",
            ),
        )
    } else if let Some(("userspace", _)) = governors.first() {
        Finding::bad(
            "governor",
            told.join(", "),
            "the frequency is what somebody set last, whatever the load",
            (
                "a program that sets it would no longer do so",
                "cpupower frequency-set -g schedutil",
                "cpupower frequency-set -g userspace",
            ),
        )
    } else if governors.is_empty() {
        Finding::none("governor", "no governor is told, though there is a driver")
    } else if slow {
        Finding::bad(
            "governor",
            told.join(", "),
            "it keeps the lowest frequency",
            (
                "more watts",
                "cpupower frequency-set -g schedutil (or tuned-adm profile throughput-performance)",
                "cpupower frequency-set -g powersave",
            ),
        )
    } else {
        Finding::good(
            "governor",
            told.join(", "),
            match governors.first() {
                _ if autonomous => "the hardware chooses, by the energy preference",
                Some(("performance", _)) => "it keeps the highest frequency: quick, and no saving",
                _ => "it follows the load",
            },
        )
    }
}
