//! Reads the settings of one VM from the API, and makes the specifications that change them.
//!
//! vsteer keeps a setting as the API reported it, not as vsteer interprets it. So a rollback restores exactly
//! the former value, even one that vsteer would not write itself (a shares level, an affinity without pCPUs).
//! The core's [`VsphereVm`] and its related types hold the interpretation.
//!
//! An affinity to pCPUs is visible in two places: `config.cpuAffinity`, and the extra option
//! `sched.cpu.affinity`. On ESXi both show one setting. vsteer writes `config.cpuAffinity`, and also the
//! option if the option had a value.
//!
//! A change is one `VirtualMachineConfigSpec`. It contains the version of the configuration that vsteer read
//! (`changeVersion`): if somebody else changed the VM since, the service refuses. It contains all parts of
//! the CPU allocation, so that none is lost.
//!
//! Source: VMware, vSphere Web Services API reference (7.0): VirtualMachineConfigInfo,
//! VirtualMachineConfigSpec (whose elements come in the order of its WSDL), ResourceAllocationInfo,
//! SharesInfo, LatencySensitivity, VirtualMachineAffinityInfo, OptionValue.

use super::soap::escaped;
use crate::actuate::Settings;
use crate::vsphere::object::Object;
use std::fmt::Write as _;
use vsteer_core::CpuSet;
use vsteer_core::nouns::{CpuWeight, GuestTopology, LatencySensitivity, VsphereVm};
use vsteer_core::setting;
use vsteer_core::setting::Change;

/// The extra options that vsteer uses.
pub(super) const NODE_AFFINITY: &str = "numa.nodeAffinity";
pub(super) const CPU_AFFINITY: &str = "sched.cpu.affinity";

/// The properties that [`Settings`] are read from.
pub(super) const PROPERTIES: [&str; 20] = [
    "name",
    "runtime.host",
    "runtime.powerState",
    "config.instanceUuid",
    "config.changeVersion",
    "config.hardware.numCPU",
    "config.hardware.numCoresPerSocket",
    "config.hardware.memoryMB",
    "config.cpuHotAddEnabled",
    "config.cpuAllocation.shares.level",
    "config.cpuAllocation.shares.shares",
    "config.cpuAllocation.reservation",
    "config.cpuAllocation.expandableReservation",
    "config.cpuAllocation.limit",
    "config.memoryAllocation.reservation",
    "config.memoryReservationLockedToMax",
    "config.latencySensitivity.level",
    // The whole object, because govmomi's simulator answers the path of its list with an empty list.
    "config.cpuAffinity",
    "config.extraConfig[\"numa.nodeAffinity\"]",
    "config.extraConfig[\"sched.cpu.affinity\"]",
];

/// The numbers of an option's value; `None` if it has none.
fn numbers(text: &str) -> Option<Result<CpuSet, ()>> {
    match text.trim() {
        "" | "all" | "*" => None,
        list => Some(
            list.parse::<CpuSet>().map_err(drop).and_then(|s| if s.is_empty() { Err(()) } else { Ok(s) }),
        ),
    }
}

impl Settings {
    pub(super) fn of(vm: &Object) -> Settings {
        let text = |name: &str| vm.texts.get(name).map(String::as_str).filter(|t| !t.is_empty());
        let number = |name: &str| text(name).and_then(|t| t.parse::<u64>().ok());
        let signed = |name: &str| text(name).and_then(|t| t.parse::<i64>().ok());
        let small = |name: &str| number(name).and_then(|n| u32::try_from(n).ok());
        let flag = |name: &str| text(name).map(|t| t == "true" || t == "1");
        Settings {
            id: vm.id.clone(),
            uuid: text("config.instanceUuid").map(str::to_owned),
            name: text("name").map(str::to_owned),
            host: text("runtime.host").map(str::to_owned),
            powered_on: text("runtime.powerState").map(|s| s != "poweredOff"),
            version: text("config.changeVersion").map(str::to_owned),
            vcpus: small("config.hardware.numCPU").filter(|n| (1..=4096).contains(n)),
            cores_per_socket: small("config.hardware.numCoresPerSocket").filter(|n| *n > 0),
            memory_mib: number("config.hardware.memoryMB"),
            memory_reserved_mib: number("config.memoryAllocation.reservation"),
            memory_locked: flag("config.memoryReservationLockedToMax"),
            cpu_hot_add: flag("config.cpuHotAddEnabled"),
            shares_level: text("config.cpuAllocation.shares.level").map(str::to_owned),
            shares: number("config.cpuAllocation.shares.shares"),
            reservation_mhz: signed("config.cpuAllocation.reservation"),
            expandable: flag("config.cpuAllocation.expandableReservation"),
            limit_mhz: signed("config.cpuAllocation.limit"),
            latency: text("config.latencySensitivity.level").map(str::to_owned),
            cpu_affinity: vm.affinity.clone(),
            cpu_affinity_option: text(CPU_AFFINITY).map(str::to_owned),
            node_affinity: text(NODE_AFFINITY).map(str::to_owned),
        }
    }

    /// The VM's identity: the UUID of its instance, otherwise the id of its object.
    pub(super) fn identity(&self) -> &str {
        self.uuid.as_deref().unwrap_or(&self.id)
    }

    /// The nodes of the VM's NUMA affinity.
    ///
    /// # Errors
    /// The option's text, if it is not a list of nodes.
    pub(super) fn nodes(&self) -> Result<Option<CpuSet>, String> {
        let text = self.node_affinity.as_deref().unwrap_or_default();
        numbers(text).transpose().map_err(|()| format!("{NODE_AFFINITY} is {text:?}"))
    }

    /// The pCPUs of the VM's CPU affinity.
    ///
    /// # Errors
    /// The option's text, if only the option is set and it is not a list.
    pub(super) fn pcpus(&self) -> Result<Option<CpuSet>, String> {
        if !self.cpu_affinity.is_empty() {
            return Ok(Some(self.cpu_affinity.iter().copied().collect()));
        }
        let text = self.cpu_affinity_option.as_deref().unwrap_or_default();
        numbers(text).transpose().map_err(|()| format!("{CPU_AFFINITY} is {text:?}"))
    }

    /// The topology that the guest sees.
    pub(super) fn topology(&self) -> Option<GuestTopology> {
        let (vcpus, cores) = (self.vcpus?, self.cores_per_socket?);
        vcpus.is_multiple_of(cores).then(|| GuestTopology { sockets: vcpus / cores, cores, threads: 1 })
    }

    pub(super) fn weight(&self) -> Option<CpuWeight> {
        self.shares.map(CpuWeight::Esxi)
    }

    /// The CPU limit; the inner `None` means unlimited.
    pub(super) fn limit(&self) -> Option<Option<u64>> {
        self.limit_mhz.map(|mhz| u64::try_from(mhz).ok())
    }

    pub(super) fn reservation(&self) -> Option<u64> {
        self.reservation_mhz.map(|mhz| u64::try_from(mhz).unwrap_or(0))
    }

    /// Does the VM reserve all its memory?
    pub(super) fn memory_reserved(&self) -> Option<bool> {
        match (self.memory_locked, self.memory_reserved_mib, self.memory_mib) {
            (Some(true), ..) => Some(true),
            (_, Some(reserved), Some(all)) => Some(reserved >= all),
            _ => None,
        }
    }

    /// The settings in the core's form.
    pub(super) fn as_nouns(&self) -> VsphereVm {
        VsphereVm {
            vcpus: self.vcpus,
            home_nodes: None,
            node_affinity: self.nodes().ok().flatten(),
            cpu_affinity: self.pcpus().ok().flatten(),
            cpu_hot_add: self.cpu_hot_add,
            reservation_mhz: self.reservation(),
            limit_mhz: self.limit(),
            latency: self.latency.as_deref().and_then(LatencySensitivity::of),
            memory_reserved: self.memory_reserved(),
            powered_on: self.powered_on,
        }
    }

    /// The specification that makes `change` on a VM with these settings; `None` if vSphere has no setting
    /// for it.
    pub(super) fn spec(&self, change: &Change) -> Option<String> {
        let mut next = self.clone();
        let body = match change {
            Change::Topology(setting::Topology { to, .. }) => cores(to.cores * to.threads),
            Change::NodeAffinity(setting::NodeAffinity { to, .. }) => {
                option(NODE_AFFINITY, &list(to.as_ref()))
            }
            Change::VmAffinity(setting::VmAffinity { to, .. }) => {
                next.cpu_affinity = to.iter().flat_map(CpuSet::iter).collect();
                // If the option has no value, it stays unset.
                let said = self.cpu_affinity_option.is_some();
                let other = if said { option(CPU_AFFINITY, &list(to.as_ref())) } else { String::new() };
                format!("{}{other}", next.affinity())
            }
            Change::Weight(setting::Weight { to: CpuWeight::Esxi(n), .. }) => {
                (next.shares_level, next.shares) = (Some("custom".to_owned()), Some(*n));
                next.allocation()
            }
            Change::ReservationMhz(setting::ReservationMhz { to, .. }) => {
                next.reservation_mhz = i64::try_from(*to).ok();
                next.allocation()
            }
            Change::LimitMhz(setting::LimitMhz { to, .. }) => {
                next.limit_mhz = Some(to.map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX)));
                next.allocation()
            }
            Change::Latency(setting::Latency { to, .. }) => latency(&to.to_string()),
            _ => return None,
        };
        let version = self.version.as_ref();
        let version =
            version.map_or_else(String::new, |v| format!("<changeVersion>{}</changeVersion>", escaped(v)));
        Some(format!("{version}{body}"))
    }

    /// The specification that undoes `change` on a VM that now has the settings `now`; `None` if the former
    /// value is already in force.
    pub(super) fn undo(&self, change: &Change, now: &Settings) -> Option<String> {
        match change {
            Change::Topology(_) => {
                let former = self.cores_per_socket?;
                (now.cores_per_socket != Some(former)).then(|| cores(former))
            }
            Change::NodeAffinity(_) => undone(NODE_AFFINITY, &self.node_affinity, &now.node_affinity),
            Change::VmAffinity(_) => {
                let own = (self.cpu_affinity != now.cpu_affinity).then(|| self.affinity());
                let other = undone(CPU_AFFINITY, &self.cpu_affinity_option, &now.cpu_affinity_option);
                (own.is_some() || other.is_some())
                    .then(|| format!("{}{}", own.unwrap_or_default(), other.unwrap_or_default()))
            }
            Change::Weight(_) => {
                let former =
                    Settings { shares: self.shares, shares_level: self.shares_level.clone(), ..now.clone() };
                (former != *now).then(|| former.allocation())
            }
            Change::ReservationMhz(_) => {
                let former = Settings { reservation_mhz: self.reservation_mhz, ..now.clone() };
                (former != *now).then(|| former.allocation())
            }
            Change::LimitMhz(_) => {
                let former = Settings { limit_mhz: self.limit_mhz, ..now.clone() };
                (former != *now).then(|| former.allocation())
            }
            Change::Latency(_) => {
                let former = self.latency.as_deref()?;
                (now.latency.as_deref() != Some(former)).then(|| latency(former))
            }
            _ => None,
        }
    }

    fn affinity(&self) -> String {
        let set: String =
            self.cpu_affinity.iter().map(|n| format!("<affinitySet>{n}</affinitySet>")).collect();
        format!("<cpuAffinity>{set}</cpuAffinity>")
    }

    fn allocation(&self) -> String {
        let mut out = String::from("<cpuAllocation>");
        if let Some(mhz) = self.reservation_mhz {
            let _ = write!(out, "<reservation>{mhz}</reservation>");
        }
        if let Some(is) = self.expandable {
            let _ = write!(out, "<expandableReservation>{is}</expandableReservation>");
        }
        if let Some(mhz) = self.limit_mhz {
            let _ = write!(out, "<limit>{mhz}</limit>");
        }
        if let (Some(n), Some(level)) = (self.shares, &self.shares_level) {
            let _ = write!(out, "<shares><shares>{n}</shares><level>{}</level></shares>", escaped(level));
        }
        out.push_str("</cpuAllocation>");
        out
    }
}

/// Restores an option to its former value, if it differs now.
fn undone(name: &str, former: &Option<String>, now: &Option<String>) -> Option<String> {
    (former != now).then(|| option(name, former.as_deref().unwrap_or_default()))
}

fn cores(n: u32) -> String {
    format!("<numCoresPerSocket>{n}</numCoresPerSocket>")
}

fn latency(level: &str) -> String {
    format!("<latencySensitivity><level>{}</level></latencySensitivity>", escaped(level))
}

/// An extra option; an empty value removes it.
fn option(name: &str, value: &str) -> String {
    format!(
        "<extraConfig xsi:type=\"OptionValue\"><key>{name}</key><value xsi:type=\"xsd:string\">{}</value></extraConfig>",
        escaped(value)
    )
}

fn list(set: Option<&CpuSet>) -> String {
    set.map_or_else(String::new, |s| s.iter().map(|n| n.to_string()).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            id: "vm-1".into(),
            version: Some("v&1".into()),
            vcpus: Some(8),
            cores_per_socket: Some(2),
            shares_level: Some("normal".into()),
            shares: Some(8000),
            reservation_mhz: Some(0),
            limit_mhz: Some(-1),
            latency: Some("normal".into()),
            ..Settings::default()
        }
    }

    fn cpus(text: &str) -> Option<CpuSet> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn one_part_of_the_allocation_is_said_with_all_others() {
        let s = settings();
        assert_eq!(
            s.spec(&Change::LimitMhz(setting::LimitMhz { from: None, to: Some(2400) })).unwrap(),
            "<changeVersion>v&amp;1</changeVersion><cpuAllocation><reservation>0</reservation><limit>2400</limit>\
             <shares><shares>8000</shares><level>normal</level></shares></cpuAllocation>"
        );
        let weight =
            Change::Weight(setting::Weight { from: CpuWeight::Esxi(8000), to: CpuWeight::Esxi(500) });
        assert!(s.spec(&weight).unwrap().contains("<shares>500</shares><level>custom</level>"));
        // Somebody else set a limit in the meantime, which the rollback must not remove.
        let now = Settings {
            shares: Some(500),
            shares_level: Some("custom".into()),
            limit_mhz: Some(99),
            ..s.clone()
        };
        let undo = s.undo(&weight, &now).unwrap();
        assert!(
            undo.contains("<limit>99</limit>") && undo.contains("<shares>8000</shares><level>normal"),
            "{undo}"
        );
        assert_eq!(s.undo(&weight, &s), None, "it is as it was");
        assert_eq!(
            s.spec(&Change::RtBudget(setting::RtBudget { cgroup: "/".into(), from_us: 0, to_us: 1 })),
            None
        );
    }

    #[test]
    fn an_affinity_is_read_in_two_places_and_written_where_it_was() {
        let mut s = settings();
        let to = Change::VmAffinity(setting::VmAffinity { from: None, to: cpus("0-2") });
        assert_eq!(s.pcpus(), Ok(None));
        let spec = s.spec(&to).unwrap();
        assert!(
            spec.contains("<affinitySet>2</affinitySet></cpuAffinity>") && !spec.contains("extraConfig"),
            "{spec}"
        );
        s.cpu_affinity_option = Some("all".into());
        assert_eq!(s.pcpus(), Ok(None));
        assert!(s.spec(&to).unwrap().contains("<value xsi:type=\"xsd:string\">0,1,2</value>"));
        s.cpu_affinity_option = Some("1,3".into());
        assert_eq!(s.pcpus(), Ok(cpus("1,3")));
        let now =
            Settings { cpu_affinity: vec![0, 1, 2], cpu_affinity_option: Some("0,1,2".into()), ..s.clone() };
        let undo = s.undo(&to, &now).unwrap();
        assert!(undo.contains("<cpuAffinity></cpuAffinity>") && undo.contains(">1,3</value>"), "{undo}");
        s.cpu_affinity_option = Some("some".into());
        assert!(s.pcpus().is_err());
    }

    #[test]
    fn an_option_that_was_not_there_is_taken_away() {
        let s = settings();
        let to = Change::NodeAffinity(setting::NodeAffinity { from: None, to: cpus("1") });
        let now = Settings { node_affinity: Some("1".into()), ..s.clone() };
        assert!(s.undo(&to, &now).unwrap().contains("<value xsi:type=\"xsd:string\"></value>"));
        assert_eq!(s.undo(&to, &s), None, "an empty option would be one more than there was");
    }

    #[test]
    fn what_is_reserved() {
        let of = |locked, reserved, all| {
            Settings {
                memory_locked: locked,
                memory_reserved_mib: reserved,
                memory_mib: all,
                ..Settings::default()
            }
            .memory_reserved()
        };
        assert_eq!(of(Some(true), None, None), Some(true));
        assert_eq!(of(Some(false), Some(10), Some(20)), Some(false));
        assert_eq!(of(None, Some(20), Some(20)), Some(true));
        assert_eq!(of(None, None, Some(20)), None);
    }
}
