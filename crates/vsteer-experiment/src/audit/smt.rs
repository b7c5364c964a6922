//! Do cores run two threads (SMT), and is that safe between VMs?
//!
//! Threads of a core share caches and buffers. If the kernel reports a vulnerability as open because of SMT, VMs of
//! different owners can read each other's data. Source: Documentation/admin-guide/hw-vuln/{mds,l1tf}.rst.

use super::{Check, Finding, State, Tree, mitigations};

pub const CHECK: Check =
    Check { name: "smt", doc: "threads per core (SMT)", rests_on: &["cpu/smt/control"], look };

fn look(t: &Tree) -> Vec<Finding> {
    let Some(control) = t.text("/sys/devices/system/cpu/smt/control") else {
        return vec![Finding::none("SMT", "this kernel does not report SMT")];
    };
    // If L1TF is open whatever the state of SMT, the kernel does not mention SMT (bugs.c, l1tf_show_state).
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
                "this kernel does not report vulnerabilities, so vsteer does not know whether SMT is safe \
                    between VMs",
            )]
        }
        "notsupported" | "notimplemented" => {
            vec![Finding::none(
                "SMT",
                "cores have one thread each, or the host hides the threads from this guest",
            )]
        }
        "on" if open.is_empty() => {
            vec![Finding::good(
                "SMT",
                "on",
                "more threads run at once, and no vulnerability is open because of SMT",
            )]
        }
        "on" => vec![Finding::bad(
            "SMT",
            "on",
            format!("vulnerabilities that are open while SMT is on: {}", open.join(", ")),
            (
                "loses half of the logical CPUs; not needed if all VMs have one owner",
                "echo off > /sys/devices/system/cpu/smt/control, or core scheduling",
                "echo on > /sys/devices/system/cpu/smt/control",
            ),
        )],
        off => vec![Finding::new(
            "SMT",
            State::AsItShould,
            off,
            "one thread per core: safe, but less throughput",
        )],
    }
}
