//! Do cores run two threads, and is that safe between VMs?
//!
//! Threads of a core share caches and buffers; where the kernel calls a vulnerability open while SMT is on, VMs of different owners can learn from
//! each other. Source: Documentation/admin-guide/hw-vuln/{mds,l1tf}.rst.

use super::{Check, Finding, State, Tree, mitigations};

/// See the file's head.
pub const CHECK: Check = Check { name: "smt", doc: "threads of cores", look };

fn look(t: &Tree) -> Vec<Finding> {
    let Some(control) = t.text("/sys/devices/system/cpu/smt/control") else {
        return vec![Finding::none("SMT", "this kernel tells nothing of it")];
    };
    // Where SMT is on and L1TF is open whatever SMT is, the kernel names SMT no more (bugs.c, l1tf_show_state).
    let is_open = |(name, said): &(&str, &str)| {
        said.contains("SMT vulnerable")
            || (*name == "l1tf" && !said.contains("SMT ") && !mitigations::open(said).is_empty())
    };
    let open: Vec<&str> =
        t.matching("/sys/devices/system/cpu/vulnerabilities/", "").filter(is_open).map(|(n, _)| n).collect();
    let told = t.matching("/sys/devices/system/cpu/vulnerabilities/", "").next().is_some();
    match control {
        "on" if !told => {
            vec![Finding::new(
                "SMT",
                State::DoesNotApply,
                "on",
                "this kernel tells nothing of vulnerabilities, so nobody knows whether that is safe between VMs",
            )]
        }
        "notsupported" | "notimplemented" => {
            vec![Finding::none("SMT", "cores have one thread each, or a guest is not shown them")]
        }
        "on" if open.is_empty() => {
            vec![Finding::good("SMT", "on", "more runs at once; no vulnerability is open because of it")]
        }
        "on" => vec![Finding::bad(
            "SMT",
            "on",
            format!("open while it is on: {}", open.join(", ")),
            (
                "half of the logical CPUs; VMs of one owner alone need no change",
                "echo off > /sys/devices/system/cpu/smt/control, or core scheduling",
                "echo on > /sys/devices/system/cpu/smt/control",
            ),
        )],
        off => vec![Finding::new(
            "SMT",
            State::AsItShould,
            off,
            "one thread per core: safe, at the price of throughput",
        )],
    }
}
