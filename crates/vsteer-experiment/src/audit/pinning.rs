//! Are vCPUs pinned sensibly, where they are pinned?
//!
//! vCPUs of one VM that have fewer pCPUs than they are wait for each other; a VM of which some vCPUs are pinned and others roam has the worst of both.
//! Unpinned is as it should be unless somebody needs even times. Read of VMs as they run, else of libvirt's definitions ([`super::vms`]); where both are
//! there and differ, that is told: the next start takes back what runs. Source: libvirt's formatdomain (cputune); what pins cost in waiting
//! `vsteer diagnose` measures. Left out: pins of QEMUs without named threads, of VMs that neither QEMU runs nor libvirt defines, and of emulator and I/O
//! threads.

use super::vms::{Manager, Pin, Vm, Vms, online};
use super::{Check, Finding, Tree};
use std::collections::BTreeMap;
use vsteer_core::CpuSet;

/// See the file's head.
pub const CHECK: Check = Check { name: "pinning", doc: "pins of vCPUs", look };

fn look(t: &Tree) -> Vec<Finding> {
    let vms = Vms::of(t);
    let all = online(t);
    let mut found: Vec<Finding> = vms.in_force().map(|vm| one(vm, all.as_ref())).collect();
    found.extend(vms.running_and_defined().filter_map(|(r, d)| differ(r, d, all.as_ref())));
    if found.is_empty() {
        let none = || "no QEMU runs, and no definition of a VM of libvirt's is here".to_owned();
        vec![Finding::none("pins of vCPUs", t.definitions_unread().unwrap_or_else(none))]
    } else {
        found
    }
}

fn one(vm: &Vm, online: Option<&CpuSet>) -> Finding {
    let setting = format!("pins of VM {:?}", vm.name);
    let pins = match &vm.pins {
        Ok(pins) => pins,
        Err(why) => return Finding::none(setting, why.as_str()),
    };
    let mut same: BTreeMap<&CpuSet, usize> = BTreeMap::new();
    pins.values().filter_map(|p| p.cpus.as_ref()).for_each(|c| *same.entry(c).or_default() += 1);
    let short: Vec<String> =
        same.iter().filter(|(c, n)| **n > c.len()).map(|(c, n)| format!("{n} vCPUs on pCPU {c}")).collect();
    let pinned: usize = same.values().sum();
    let value = format!("{pinned} of {} vCPUs, {}", pins.len(), vm.told_by());
    let unpin = || {
        let (change, undo) = unpinned(vm, pins, online);
        ("a VM whose pins were meant so loses its even times", change, undo)
    };
    if !short.is_empty() {
        Finding::bad(setting, value, format!("{}: they wait for each other", short.join(", ")), unpin())
    } else if (1..pins.len()).contains(&pinned) {
        Finding::bad(setting, value, "some are pinned and others roam", unpin())
    } else if pinned == 0 {
        let value = format!("none, {}", vm.told_by());
        Finding::good(setting, value, "the scheduler may use every idle pCPU")
    } else {
        Finding::good(setting, value, "each has a pCPU; `vsteer diagnose` tells whether that costs waiting")
    }
}

/// What takes a VM's pins away, and what sets them again.
fn unpinned(vm: &Vm, pins: &BTreeMap<u32, Pin>, online: Option<&CpuSet>) -> (String, String) {
    let pinned = || pins.iter().filter_map(|(n, p)| Some((n, p.cpus.as_ref()?, p.tid)));
    let each = |text: &dyn Fn(u32, &CpuSet, Option<u32>) -> String| {
        let all: Vec<String> = pinned().map(|(n, c, tid)| text(*n, c, tid)).collect();
        all.join("; ")
    };
    let name = &vm.name;
    let everywhere = online.map_or_else(|| "every pCPU".to_owned(), ToString::to_string);
    match (vm.manager, vm.told_by()) {
        (Manager::Libvirt, "defined") => (
            format!("remove <vcpupin> of {name:?}, or `vsteer plan` while it runs"),
            "the former <vcpupin>".into(),
        ),
        (Manager::Libvirt, _) => (
            each(&|n, _, _| format!("virsh vcpupin {name} {n} {everywhere} --live")),
            each(&|n, c, _| format!("virsh vcpupin {name} {n} {c} --live")),
        ),
        (Manager::Proxmox(_) | Manager::Nobody, _) => {
            let thread = |tid: Option<u32>| tid.map_or_else(|| "TID".to_owned(), |t| t.to_string());
            (
                each(&|_, _, tid| format!("taskset -pc {everywhere} {}", thread(tid))),
                each(&|_, c, tid| format!("taskset -pc {c} {}", thread(tid))),
            )
        }
    }
}

/// Where a VM's vCPUs run otherwise than its definition says.
fn differ(running: &Vm, defined: &Vm, online: Option<&CpuSet>) -> Option<Finding> {
    let (Ok(runs), Ok(says)) = (&running.pins, &defined.pins) else { return None };
    let text = |cpus: Option<&CpuSet>| cpus.or(online).map_or_else(|| "any".to_owned(), ToString::to_string);
    let mut differing = Vec::new();
    for (vcpu, pin) in runs {
        let Some(said) = says.get(vcpu) else { continue };
        // A vCPU without a pin has what the whole process has: a cgroup's set is no pin of it.
        let confined = said.cpus.is_none() && pin.cpus == running.confined;
        if pin.cpus != said.cpus && !confined {
            differing.push((vcpu, text(pin.cpus.as_ref()), text(said.cpus.as_ref())));
        }
    }
    let first = differing.first()?;
    let name = &running.name;
    let pins = |to: &dyn Fn(&(&u32, String, String)) -> String| {
        let all: Vec<String> =
            differing.iter().map(|d| format!("virsh vcpupin {name} {} {} --config", d.0, to(d))).collect();
        all.join("; ")
    };
    Some(Finding::bad(
        format!("pins of VM {name:?} against its definition"),
        format!("{} of {} vCPUs differ", differing.len(), runs.len()),
        format!("vCPU {} may run on {} now and on {} after the next start", first.0, first.1, first.2),
        (
            "which of both was meant only its owner knows: `vsteer steer`, `vsteer apply` and --live change what runs alone",
            pins(&|d| d.1.clone()),
            pins(&|d| d.2.clone()),
        ),
    ))
}
