//! What do the files of a machine say? A captured machine: paths and texts, without the machine.
//!
//! The audit checks such a tree, and `vsteer-host` reads one, of this machine or of a folder. What is not in it was not there.

use crate::CpuSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A machine's files, by path; those that are not there are not in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// Path and text.
    pub files: BTreeMap<String, String>,
    /// Paths that are there and may not be read, with the reason.
    pub unread: BTreeMap<String, String>,
}

/// What is to be read of a machine, and what of it is kept.
pub struct Wanted {
    /// Paths; `*` is one folder or file name, or part of one.
    pub patterns: &'static [&'static str],
    /// Files that other files name, once those were read.
    pub besides: fn(&Tree) -> Vec<String>,
    /// What is kept of the text of this path; texts may hold secrets.
    pub kept: fn(&str, String) -> String,
}

/// Names that the firmware of VMs begins with.
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
    /// A file's text without space around it.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(|t| t.trim())
    }

    /// Files whose paths begin and end so, with what stands in between.
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

    /// How many CPUs are online.
    pub fn cpus(&self) -> Option<usize> {
        let cpus: CpuSet = self.text("/sys/devices/system/cpu/online")?.parse().ok()?;
        Some(cpus.len())
    }

    /// Is it a guest itself?
    pub fn is_guest(&self) -> bool {
        let mut flags =
            self.text("/proc/cpuinfo").unwrap_or_default().lines().filter(|l| l.starts_with("flags"));
        // x86's processors say it themselves, every one of them; Arm's have no such flag, but firmware has a name.
        let flagged = match flags.next() {
            Some(of_one) => of_one.split_whitespace().any(|f| f == "hypervisor"),
            None => self.is_named_a_guest(),
        };
        // s390 has a hypervisor below every Linux, of the firmware's at least; one of software calls itself a control program.
        let control = self.text("/proc/sysinfo").is_some_and(|t| t.contains("Control Program:"));
        let tree = self.files.contains_key("/proc/device-tree/hypervisor/compatible");
        // A Dom0 runs on Xen and is the host nevertheless.
        let dom0 = self.text("/proc/xen/capabilities").is_some_and(|t| t.contains("control_d"));
        (flagged || control || tree || self.files.contains_key("/sys/hypervisor/type")) && !dom0
    }

    /// Does its firmware have the name of a VM's? Source: systemd's src/basic/virt.c (detect_vm_dmi, detect_vm_device_tree); boards of QEMU's, kvmtool's and
    /// Firecracker's device trees are `linux,dummy-virt`. Left out: a bare-metal Arm machine of Google's, which is taken for a guest; firmware of other names.
    fn is_named_a_guest(&self) -> bool {
        let of = |file: &str| self.text(&format!("/sys/class/dmi/id/{file}")).unwrap_or_default();
        let (product, vendor) = (of("product_name"), of("sys_vendor"));
        let begins = |with: &str| product.starts_with(with) || vendor.starts_with(with);
        if begins("Amazon EC2") {
            // c6g.metal, m8g.metal-24xl: the machine itself.
            let metal =
                product.split_once(".metal").is_some_and(|(_, end)| end.is_empty() || end.starts_with('-'));
            return !metal;
        }
        let board = self.text("/proc/device-tree/compatible").unwrap_or_default();
        FIRMWARE_OF_VMS.iter().any(|name| begins(name))
            || (vendor.starts_with("Microsoft") && product == "Virtual Machine")
            || board.split('\0').any(|name| ["linux,dummy-virt", "qemu,pseries"].contains(&name))
    }

    /// Why nothing is known of libvirt's definitions, where they may not be read.
    pub fn definitions_unread(&self) -> Option<String> {
        let (_, why) = self.unread.iter().find(|(path, _)| path.starts_with("/etc/libvirt/qemu"))?;
        Some(format!(
            "libvirt's definitions may not be read ({why}), so whether there are VMs is not told: ask as root"
        ))
    }

    /// Can it run VMs: is KVM loaded?
    pub fn has_kvm(&self) -> bool {
        self.files.keys().any(|p| p.starts_with("/sys/module/kvm"))
    }

    /// AMD's processor? Its family and model, where they are told.
    pub fn amd(&self) -> Option<(Option<u32>, Option<u32>)> {
        let text = self.text("/proc/cpuinfo").filter(|t| t.contains("AuthenticAMD"))?;
        let number = |name: &str| {
            let mut lines = text.lines().filter_map(|l| l.split_once(':'));
            lines.find(|(key, _)| key.trim() == name)?.1.trim().parse().ok()
        };
        Some((number("cpu family"), number("model")))
    }

    /// What all of these say, and how many say it; most first.
    pub fn counted<'a>(values: impl Iterator<Item = &'a str>) -> Vec<(&'a str, usize)> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        values.for_each(|v| *counts.entry(v).or_default() += 1);
        let mut all: Vec<(&str, usize)> = counts.into_iter().collect();
        all.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        all
    }
}
