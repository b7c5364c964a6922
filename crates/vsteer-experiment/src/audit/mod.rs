//! Is this host, or this guest, set up for VMs?
//!
//! A check is one file and one line in [`CHECKS`]: a pure function of a captured [`Tree`] of a machine's files. It says one of three things of each setting it
//! knows: as it should be, not, or does not apply (with the reason); and with a "not" the value, why it matters, the risk, the change and how to
//! take it back. Nothing is changed here; `vsteer experiment` measures what a change brings on this machine.
//!
//! What counts as it should be is for hosts of VMs (and guests) that shall be quick; where a setting trades speed for watts or security the finding
//! says so, and security is never traded: mitigations that are on are as they should be.
//!
//! VMs are read as they run where QEMU runs them, and as libvirt's definitions say where they do not ([`vms`]). Held to 63 captured machines by the lab
//! (`lab run audit`).
//! Left out: what no file tells (firmware settings); thresholds per workload: whether a setting helps is an experiment's question.

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
use vsteer_core::tree::{Tree, Wanted};

/// What the audit reads of a machine.
pub const WANTED: Wanted = Wanted { patterns: PATTERNS, besides: tuned::sysctls, kept };

/// libvirt's definitions hold passwords: of them only what the checks look at is kept.
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

/// What is to be read of a QEMU process that runs a VM, and of no other process: of its command line the options and keys that say how many vCPUs and
/// queues there are ([`vms`] reads them, whoever captures writes no others: passwords and paths stand among the rest), of `status` the line
/// `Cpus_allowed_list`, of its threads those that are vCPUs. `PID` and `TID` are numbers.
pub const WANTED_OF_QEMU: [&str; 4] =
    ["/proc/PID/cmdline", "/proc/PID/status", "/proc/PID/task/TID/comm", "/proc/PID/task/TID/status"];

/// What is said of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It should be otherwise.
    Not,
    /// It is as it should be.
    AsItShould,
    /// It does not apply here.
    DoesNotApply,
}

/// A setting, looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The check.
    pub check: String,
    /// Which setting.
    pub setting: String,
    /// What is said of it.
    pub state: State,
    /// Its value; of what does not apply, what is there instead.
    pub value: String,
    /// Why that is, or is not, as it should be.
    pub reason: String,
    /// What a change risks.
    pub risk: Option<String>,
    /// The change.
    pub change: Option<String>,
    /// What takes it back.
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

/// One check.
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// What it looks at, one line.
    pub doc: &'static str,
    /// Looks.
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

/// All findings: what should be otherwise first, then in the checks' order.
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
