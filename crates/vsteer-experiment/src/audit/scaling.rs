//! Which driver and which governor set the processors' frequencies?
//!
//! Sources: Red Hat Developer, "A VM tuning case study", 26 August 2025 (its 45 % came from another profile of
//! tuned under acpi-cpufreq, not from another driver: see `tuned`); Documentation/admin-guide/pm/cpufreq.rst.

use super::{Check, Finding, Tree};

pub const CHECK: Check = Check {
    name: "scaling",
    doc: "frequency driver and governor",
    rests_on: &["/scaling_driver", "/scaling_governor"],
    look,
};

fn look(t: &Tree) -> Vec<Finding> {
    let base = "/sys/devices/system/cpu/cpu";
    let drivers = Tree::counted(t.matching(base, "/cpufreq/scaling_driver").map(|(_, d)| d));
    let Some((driver, _)) = drivers.first() else {
        let why = if t.is_guest() {
            "a guest runs at its host's frequencies"
        } else {
            "the kernel does not scale frequencies"
        };
        return vec![Finding::none("scaling driver", why)];
    };
    let governors = Tree::counted(t.matching(base, "/cpufreq/scaling_governor").map(|(_, g)| g));
    vec![of_driver(t, driver), of_governors(driver, &governors)]
}

fn of_driver(t: &Tree, driver: &str) -> Finding {
    // Processors before Zen 2 have no performance levels (CPPC) for amd-pstate:
    // Documentation/admin-guide/pm/amd-pstate.rst.
    let knows_levels = t.amd().is_some_and(|of| match of {
        (Some(family), Some(model)) => family > 23 || (family == 23 && model >= 48),
        _ => true,
    });
    match driver {
        "acpi-cpufreq" if knows_levels => Finding::bad(
            "scaling driver",
            driver,
            "amd-pstate has finer steps on newer AMD processors; in the study its modes active and guided gave speed at less idle power",
            (
                "needs a reboot; idle power changes (measure it)",
                "add amd_pstate=active to the kernel's command line and reboot (grubby --update-kernel=ALL \
                    --args=amd_pstate=active)",
                "grubby --update-kernel=ALL --remove-args=amd_pstate, then reboot",
            ),
        ),
        d => Finding::good("scaling driver", d, "the name indicates the processor's own driver"),
    }
}

/// `governors`: each governor with its number of CPUs, the most frequent first.
fn of_governors(driver: &str, governors: &[(&str, usize)]) -> Finding {
    let told: Vec<String> = governors.iter().map(|(g, n)| format!("{g} on {n} CPUs")).collect();
    // With an autonomous driver, "powersave" means that the hardware chooses.
    let autonomous = ["amd-pstate-epp", "intel_pstate"].contains(&driver);
    let slow = governors.iter().any(|(g, _)| *g == "powersave") && !autonomous;
    if governors.len() > 1 {
        Finding::bad(
            "governor",
            told.join(", "),
            "the CPUs differ, so a VM's speed depends on where it runs",
            (
                "none",
                format!("cpupower frequency-set -g {}", governors[0].0),
                "set the former governor of each CPU",
            ),
        )
    } else if let Some(("userspace", _)) = governors.first() {
        Finding::bad(
            "governor",
            told.join(", "),
            "the frequency stays as a program last set it, whatever the load",
            (
                "the program that sets the frequency loses control of it",
                "cpupower frequency-set -g schedutil",
                "cpupower frequency-set -g userspace",
            ),
        )
    } else if governors.is_empty() {
        Finding::none("governor", "the kernel reports a driver but no governor")
    } else if slow {
        Finding::bad(
            "governor",
            told.join(", "),
            "the governor keeps the lowest frequency",
            (
                "uses more power",
                "cpupower frequency-set -g schedutil (or tuned-adm profile throughput-performance)",
                "cpupower frequency-set -g powersave",
            ),
        )
    } else {
        Finding::good(
            "governor",
            told.join(", "),
            match governors.first() {
                _ if autonomous => "the hardware chooses the frequency by the energy preference",
                Some(("performance", _)) => {
                    "the governor keeps the highest frequency: fast, but saves no energy"
                }
                _ => "the governor follows the load",
            },
        )
    }
}
