//! What may each command do on this host, and how does vsteer give up what it no longer needs?
//!
//! [`NEEDS`] says which capabilities each command needs beyond those of an ordinary user, for each way of measuring.
//! The documentation prints that table. A test runs commands with exactly these capabilities, and with one less.
//! [`confine`] is for commands that run for long: after counting has started, they drop all other capabilities and can
//! write only beneath their output folder.
//!
//! Source: `man 7 capabilities`, `man 7 landlock`. Left out: a filter of system calls. The systemd unit in `packaging/`
//! has one. GAP(drop-elsewhere): Xen keeps all privileges.

mod capability;
mod drop;
mod writes;

pub use capability::{lacking, missing, name, names};
pub use drop::{Kept, confine, without};
pub use rustix::thread::CapabilitySet;

use crate::root::Root;

/// What one way of running a command needs.
#[derive(Debug)]
pub struct Need {
    /// The commands.
    pub commands: &'static [&'static str],
    /// The way: a collector, a setting, a hypervisor.
    pub way: &'static str,
    /// The capabilities, for a user other than root.
    pub capabilities: CapabilitySet,
    /// Files, groups and services that the user must reach.
    pub reach: &'static str,
    /// What happens without them.
    pub without: &'static str,
}

const NONE: CapabilitySet = CapabilitySet::empty();
/// Loading and attaching eBPF programs that read kernel memory.
pub(crate) const EBPF: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);
/// Commands that observe a host.
const OBSERVING: &[&str] = &["top", "record", "diagnose", "plan", "headroom", "numa"];
/// Commands that change VMs.
const CHANGING: &[&str] = &["apply", "rollback"];

/// What each command needs on the host. A command with several rows needs only those of the ways that it uses.
pub const NEEDS: &[Need] = &[
    Need {
        commands: &[
            "replay",
            "export",
            "verify",
            "estimate",
            "simulate",
            "report",
            "history",
            "config",
            "completions",
            "man",
            "exit-codes",
        ],
        way: "files",
        capabilities: NONE,
        reach: "the files named",
        without: "fails",
    },
    Need {
        commands: OBSERVING,
        way: "collector `ebpf`",
        capabilities: EBPF,
        reach: "`/sys/kernel/btf/vmlinux`",
        without: "uses `schedstat`, and a note says why",
    },
    Need {
        commands: OBSERVING,
        way: "collector `schedstat`",
        capabilities: NONE,
        reach: "`/proc` without `hidepid`",
        without: "finds no VM",
    },
    Need {
        commands: OBSERVING,
        way: "memory on several nodes",
        capabilities: CapabilitySet::SYS_PTRACE,
        reach: "`/proc/PID/numa_maps`",
        without: "these values are missing",
    },
    Need {
        commands: OBSERVING,
        way: "VMs of programs other than QEMU",
        capabilities: CapabilitySet::DAC_READ_SEARCH.union(CapabilitySet::SYS_PTRACE),
        reach: "`/proc/PID/fd`, `/sys/kernel/debug/kvm`",
        without: "these VMs are missing",
    },
    Need {
        commands: OBSERVING,
        way: "QEMU of another user that does not name its threads",
        capabilities: CapabilitySet::DAC_OVERRIDE,
        reach: "the VM's monitor socket",
        without: "a note; vCPU threads count as emulator threads",
    },
    Need {
        commands: &[
            "top", "record", "diagnose", "plan", "headroom", "numa", "apply", "rollback", "steer", "realtime",
        ],
        way: "VMs of libvirt",
        capabilities: NONE,
        reach: "group `libvirt`, or the socket's polkit rule",
        without: "vsteer sees the VMs only as processes",
    },
    Need {
        commands: CHANGING,
        way: "affinity and class of threads, without libvirt",
        capabilities: CapabilitySet::SYS_NICE,
        reach: "the VM's threads",
        without: "fails; nothing is changed",
    },
    Need {
        commands: CHANGING,
        way: "weight, limit, budget and memory nodes, without libvirt",
        capabilities: CapabilitySet::DAC_OVERRIDE,
        reach: "the files of the VM's cgroup",
        without: "fails; nothing is changed",
    },
    Need {
        commands: CHANGING,
        way: "definitions of Proxmox VE (untried)",
        capabilities: CapabilitySet::all(),
        reach: "`/usr/sbin/qm`",
        without: "fails; nothing is changed",
    },
    Need {
        commands: &["apply", "rollback", "experiment"],
        way: "settings of the host",
        capabilities: NONE,
        reach: "the files, commands and machines named",
        without: "fails; the settings before it are undone",
    },
    Need {
        commands: &["steer"],
        way: "weights, without libvirt (untried with less than root)",
        capabilities: CapabilitySet::DAC_OVERRIDE,
        reach: "logs, and the files of the VM's cgroup",
        without: "fails; the former weights return",
    },
    Need {
        commands: &["realtime"],
        way: "real-time classes (untried with less than root)",
        capabilities: CapabilitySet::SYS_NICE,
        reach: "`/run/vsteer`",
        without: "the VM is reported as refused",
    },
    Need {
        commands: &["realtime"],
        way: "sched_ext policy (untried with less than root)",
        capabilities: EBPF.union(CapabilitySet::SYSLOG),
        reach: "`/run/vsteer`, `/proc/kallsyms`",
        without: "fails",
    },
    Need {
        commands: &["audit", "capture"],
        way: "this host, read by `audit`",
        capabilities: NONE,
        reach: "`/proc`, `/sys`, `/boot`, `/etc`",
        without: "what cannot be read is reported as not read",
    },
    Need {
        commands: &["topology"],
        way: "this host, read by `topology`",
        capabilities: NONE,
        reach: "`/sys/devices/system`",
        without: "fails",
    },
    Need {
        commands: &["top", "record", "diagnose", "plan", "headroom", "apply", "rollback", "steer"],
        way: "Xen",
        capabilities: CapabilitySet::all(),
        reach: "root in Domain-0",
        without: "fails",
    },
    Need {
        commands: &["top", "record", "diagnose", "plan", "numa", "topology"],
        way: "another host over ssh",
        capabilities: NONE,
        reach: "`ssh` without a question; `vsteer` there, or `--copy-vsteer`; the rows above hold there",
        without: "fails",
    },
    Need {
        commands: &["top", "record", "diagnose", "plan", "headroom", "apply", "rollback"],
        way: "vSphere",
        capabilities: NONE,
        reach: "a user of the vCenter or ESXi host",
        without: "fails",
    },
];

/// Does `/proc` hide the processes of other users from this one, unless it may trace them?
pub(crate) fn proc_is_hidden(root: &Root) -> bool {
    let mounts = crate::linux::task::text(root, "/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(hides)
}

fn hides(line: &str) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    let [_, "/proc", "proc", options, ..] = words[..] else { return false };
    let shown = ["hidepid=0", "hidepid=off"];
    options.split(',').any(|o| o.starts_with("hidepid=") && !shown.contains(&o))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_that_hides_processes_is_seen() {
        assert!(hides("proc /proc proc rw,relatime,hidepid=2 0 0"));
        assert!(hides("proc /proc proc rw,hidepid=invisible,gid=5 0 0"));
        assert!(!hides("proc /proc proc rw,relatime 0 0"));
        assert!(!hides("proc /proc proc rw,hidepid=0 0 0"));
        assert!(!hides("proc /other proc rw,hidepid=2 0 0"));
    }

    #[test]
    fn each_row_says_something_of_its_own() {
        let mut seen = std::collections::BTreeSet::new();
        for need in NEEDS {
            assert!(!need.commands.is_empty() && !need.reach.is_empty() && !need.without.is_empty());
            need.commands.iter().for_each(|c| assert!(seen.insert((*c, need.way)), "{c}: {}", need.way));
        }
    }
}
