//! Which settings do the files of a machine contain? A captured machine: paths and texts, without the machine.
//!
//! The audit checks such a tree. `vsteer-host` reads one from this machine or from a folder. A file that is not in
//! the tree did not exist.

use crate::CpuSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Files of a machine, by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// Text of each file, by path.
    pub files: BTreeMap<String, String>,
    /// Paths that exist but cannot be read, with the reason.
    pub unread: BTreeMap<String, String>,
}

/// Which files to read on a machine, and which part of each text to keep.
pub struct Wanted {
    /// Paths to read; `*` matches a folder or file name, or a part of one.
    pub patterns: &'static [&'static str],
    /// Returns more paths to read, which the files read so far name.
    pub besides: fn(&Tree) -> Vec<String>,
    /// Returns the part of a path's text to keep, because texts may contain secrets.
    pub kept: fn(&str, String) -> String,
}

/// Beginnings of the firmware names of VMs.
const FIRMWARE_OF_VMS: &[&str] = &[
    "KVM",
    "QEMU",
    "OpenStack",
    "KubeVirt",
    "Google Compute Engine",
    "VMware",
    "VMW",
    "VirtualBox",
    "innotek GmbH",
    "Xen",
    "Parallels",
    "BHYVE",
    "Apple Virtualization",
];

impl Tree {
    /// Text of a file without surrounding white space.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(|t| t.trim())
    }

    /// Files whose paths have this beginning and end, with the part in between.
    pub fn matching<'a>(
        &'a self,
        begin: &'a str,
        end: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> + 'a {
        self.files
            .range::<str, _>((Bound::Included(begin), Bound::Unbounded))
            .map_while(move |(path, text)| Some((path.strip_prefix(begin)?, text)))
            .filter_map(move |(rest, text)| Some((rest.strip_suffix(end)?, text.trim())))
    }

    /// Words of the running kernel's command line.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.text("/proc/cmdline").unwrap_or_default().split_whitespace()
    }

    /// Number of online CPUs.
    pub fn cpus(&self) -> Option<usize> {
        let cpus: CpuSet = self.text("/sys/devices/system/cpu/online")?.parse().ok()?;
        Some(cpus.len())
    }

    /// Is the machine a guest?
    pub fn is_guest(&self) -> bool {
        let mut flags =
            self.text("/proc/cpuinfo").unwrap_or_default().lines().filter(|l| l.starts_with("flags"));
        // Every x86 guest has the flag `hypervisor`. Arm has no such flag, so the firmware's name decides.
        let flagged = match flags.next() {
            Some(of_one) => of_one.split_whitespace().any(|f| f == "hypervisor"),
            None => self.is_named_a_guest(),
        };
        // On s390 the firmware is a hypervisor below every Linux. A software hypervisor is listed as control program.
        let control = self.text("/proc/sysinfo").is_some_and(|t| t.contains("Control Program:"));
        let tree = self.files.contains_key("/proc/device-tree/hypervisor/compatible");
        // A Dom0 runs on Xen but is the host.
        let dom0 = self.text("/proc/xen/capabilities").is_some_and(|t| t.contains("control_d"));
        (flagged || control || tree || self.files.contains_key("/sys/hypervisor/type")) && !dom0
    }

    /// Does the firmware have a VM's name? Source: systemd's src/basic/virt.c (detect_vm_dmi,
    /// detect_vm_device_tree); Device trees of QEMU, kvmtool and Firecracker are `linux,dummy-virt`. Left out:
    /// Google's bare-metal Arm machines, which count as guests; other firmware names.
    fn is_named_a_guest(&self) -> bool {
        let of = |file: &str| self.text(&format!("/sys/class/dmi/id/{file}")).unwrap_or_default();
        let (product, vendor) = (of("product_name"), of("sys_vendor"));
        let begins = |with: &str| product.starts_with(with) || vendor.starts_with(with);
        if begins("Amazon EC2") {
            // c6g.metal, m8g.metal-24xl: bare metal, not a guest.
            let metal =
                product.split_once(".metal").is_some_and(|(_, end)| end.is_empty() || end.starts_with('-'));
            return !metal;
        }
        let board = self.text("/proc/device-tree/compatible").unwrap_or_default();
        FIRMWARE_OF_VMS.iter().any(|name| begins(name))
            || (vendor.starts_with("Microsoft") && product == "Virtual Machine")
            || board.split('\0').any(|name| ["linux,dummy-virt", "qemu,pseries"].contains(&name))
    }

    /// Why libvirt's definitions are unknown, if they cannot be read.
    pub fn definitions_unread(&self) -> Option<String> {
        let (_, why) = self.unread.iter().find(|(path, _)| path.starts_with("/etc/libvirt/qemu"))?;
        Some(format!("cannot read libvirt's VM definitions ({why}); run the audit as root"))
    }

    /// Is KVM loaded, so that the machine can run VMs?
    pub fn has_kvm(&self) -> bool {
        self.files.keys().any(|p| p.starts_with("/sys/module/kvm"))
    }

    /// Family and model of an AMD processor, as far as known; `None` for other processors.
    pub fn amd(&self) -> Option<(Option<u32>, Option<u32>)> {
        let text = self.text("/proc/cpuinfo").filter(|t| t.contains("AuthenticAMD"))?;
        let number = |name: &str| {
            let mut lines = text.lines().filter_map(|l| l.split_once(':'));
            lines.find(|(key, _)| key.trim() == name)?.1.trim().parse().ok()
        };
        Some((number("cpu family"), number("model")))
    }

    /// The distinct values with their counts, most frequent first.
    pub fn counted<'a>(values: impl Iterator<Item = &'a str>) -> Vec<(&'a str, usize)> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        values.for_each(|v| *counts.entry(v).or_default() += 1);
        let mut all: Vec<(&str, usize)> = counts.into_iter().collect();
        all.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        all
    }
}
