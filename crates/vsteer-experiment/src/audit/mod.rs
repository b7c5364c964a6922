//! Is this host, or this guest, set up for VMs?
//!
//! A check is one file and one line in [`CHECKS`]: a pure function of
//! a captured [`Tree`] of a machine's files. For each setting it reports one of three states: good, bad, or not
//! applicable with the reason. A bad setting comes with its value, why it matters, the risk, the change and the
//! undo. The audit changes nothing; `vsteer experiment` measures a change.
//!
//! A setting is good if it makes VMs fast. If it trades speed for power or security, the finding says so. The audit
//! never trades security: enabled mitigations are good. Running VMs are read from their QEMU process, others from
//! libvirt's definition ([`vms`]). The lab checks the audit on 63 captured machines (`lab run audit`).
//!
//! Left out: settings that no file shows (firmware), and thresholds per workload, which are a question for an
//! experiment.

mod balloon;
mod boost;
mod clocksource;
mod command_line;
mod definition;
mod energy;
mod halt_polling;
mod huge_pages;
mod idle;
mod iommu;
mod mitigations;
mod nested;
mod numa_balancing;
mod pinning;
mod power_caps;
mod pstate;
mod queues;
mod scaling;
mod smt;
mod tuned;
mod vms;

pub use mitigations::{about_mitigations, switched_off_in, switches_off};
use serde::{Deserialize, Serialize};
pub use tuned::{Instead, instead};
use vsteer_core::tree::{Tree, Wanted};

/// Files that the audit reads on a machine.
pub const WANTED: Wanted = Wanted { patterns: PATTERNS, besides: tuned::sysctls, kept };

/// libvirt's definitions contain passwords, so the capture keeps only what the checks read.
fn kept(path: &str, text: String) -> String {
    if path.starts_with("/etc/libvirt/qemu/") { definition::reduced(&text) } else { text }
}

const PATTERNS: &[&str] = &[
    "/etc/libvirt/qemu/*.xml",
    "/etc/tuned/*/tuned.conf",
    "/etc/tuned/active_profile",
    "/etc/tuned/profiles/*/tuned.conf",
    "/proc/cmdline",
    "/proc/cpuinfo",
    "/proc/device-tree/compatible",
    "/proc/device-tree/hypervisor/compatible",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sysinfo",
    "/proc/xen/capabilities",
    "/sys/block/vd*/mq/*/cpu_list",
    "/sys/bus/virtio/drivers/virtio_balloon/virtio*/device",
    "/sys/class/dmi/id/product_name",
    "/sys/class/dmi/id/sys_vendor",
    "/sys/class/iommu/*/uevent",
    "/sys/class/net/*/device/modalias",
    "/sys/class/net/*/queues/tx-*/xps_cpus",
    "/sys/class/powercap/*/constraint_0_max_power_uw",
    "/sys/class/powercap/*/constraint_0_power_limit_uw",
    "/sys/class/powercap/*/enabled",
    "/sys/class/powercap/*/name",
    "/sys/devices/system/clocksource/clocksource0/*",
    "/sys/devices/system/cpu/amd_pstate/status",
    "/sys/devices/system/cpu/cpu*/cpufreq/energy_performance_preference",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_driver",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    "/sys/devices/system/cpu/cpu*/topology/thread_siblings_list",
    "/sys/devices/system/cpu/cpu0/cpuidle/state*/disable",
    "/sys/devices/system/cpu/cpu0/cpuidle/state*/latency",
    "/sys/devices/system/cpu/cpu0/cpuidle/state*/name",
    "/sys/devices/system/cpu/cpufreq/boost",
    "/sys/devices/system/cpu/cpuidle/current_*",
    "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "/sys/devices/system/cpu/intel_pstate/status",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/smt/active",
    "/sys/devices/system/cpu/smt/control",
    "/sys/devices/system/cpu/vulnerabilities/*",
    "/sys/devices/system/node/online",
    "/sys/hypervisor/type",
    "/sys/kernel/mm/hugepages/*/free_hugepages",
    "/sys/kernel/mm/hugepages/*/nr_hugepages",
    "/sys/kernel/mm/transparent_hugepage/defrag",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/module/kvm/parameters/halt_poll_ns",
    "/sys/module/kvm_amd/parameters/nested",
    "/sys/module/kvm_intel/parameters/nested",
    "/usr/lib/tuned/*/tuned.conf",
    "/usr/lib/tuned/profiles/*/tuned.conf",
];

/// Files to read of each QEMU process that runs a VM. A capture keeps only the command line options about vCPUs and
/// queues ([`vms`]), because the others contain passwords and paths. It keeps the line `Cpus_allowed_list` of
/// `status`, and of the threads only the vCPUs. `PID` and `TID` are numbers.
pub const WANTED_OF_QEMU: [&str; 4] =
    ["/proc/PID/cmdline", "/proc/PID/status", "/proc/PID/task/TID/comm", "/proc/PID/task/TID/status"];

/// State of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The setting is bad for VMs.
    Not,
    /// The setting is good for VMs.
    AsItShould,
    /// The setting does not apply to this machine.
    DoesNotApply,
}

/// Result of a check for one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the check ([`Check::name`]).
    pub check: String,
    /// Name of the setting.
    pub setting: String,
    /// Whether the setting is good, bad or not applicable.
    pub state: State,
    /// Value of the setting; `not there` if it does not exist.
    pub value: String,
    /// Why the value is good, bad or not applicable.
    pub reason: String,
    /// Risk of the change; `None` without a change.
    pub risk: Option<String>,
    /// Command or instruction that changes the setting.
    pub change: Option<String>,
    /// Command or instruction that restores the former value.
    pub undo: Option<String>,
}

impl Finding {
    fn new(
        setting: impl Into<String>,
        state: State,
        value: impl Into<String>,
        reason: impl Into<String>,
    ) -> Finding {
        Finding {
            check: String::new(),
            setting: setting.into(),
            state,
            value: value.into(),
            reason: reason.into(),
            risk: None,
            change: None,
            undo: None,
        }
    }

    fn good(setting: impl Into<String>, value: impl Into<String>, reason: impl Into<String>) -> Finding {
        Finding::new(setting, State::AsItShould, value, reason)
    }

    fn none(setting: impl Into<String>, reason: impl Into<String>) -> Finding {
        Finding::new(setting, State::DoesNotApply, "not there", reason)
    }

    fn bad(
        setting: impl Into<String>,
        value: impl Into<String>,
        reason: impl Into<String>,
        (risk, change, undo): (&str, impl Into<String>, impl Into<String>),
    ) -> Finding {
        Finding {
            risk: Some(risk.to_owned()),
            change: Some(change.into()),
            undo: Some(undo.into()),
            ..Finding::new(setting, State::Not, value, reason)
        }
    }
}

/// A check of one kind of setting.
pub struct Check {
    /// Name in reports and options.
    pub name: &'static str,
    /// One line that says what the check reads.
    pub doc: &'static str,
    /// Parts of the paths of its files. If a machine has none of them, the check does not apply.
    pub rests_on: &'static [&'static str],
    /// Returns a finding for each setting.
    pub look: fn(&Tree) -> Vec<Finding>,
}

/// Every check.
pub const CHECKS: &[Check] = &[
    tuned::CHECK,
    scaling::CHECK,
    pstate::CHECK,
    energy::CHECK,
    idle::CHECK,
    boost::CHECK,
    smt::CHECK,
    mitigations::CHECK,
    halt_polling::CHECK,
    numa_balancing::CHECK,
    huge_pages::CHECK,
    iommu::CHECK,
    queues::CHECK,
    pinning::CHECK,
    power_caps::CHECK,
    clocksource::CHECK,
    command_line::CHECK,
    balloon::CHECK,
    nested::CHECK,
];

/// All findings, bad settings first, then in the order of the checks.
pub fn audit(tree: &Tree) -> Vec<Finding> {
    let of = |c: &Check| {
        let mut found = (c.look)(tree);
        found.iter_mut().for_each(|f| f.check = c.name.to_owned());
        found
    };
    let mut all: Vec<Finding> = CHECKS.iter().flat_map(of).collect();
    all.sort_by_key(|f| f.state);
    all
}

#[cfg(test)]
mod tests;
