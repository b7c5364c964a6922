//! Are pinned vCPUs pinned sensibly?
//!
//! vCPUs that share fewer pCPUs than they are wait for each other. If only some vCPUs of a VM are pinned, the VM
//! has the drawbacks of both. Unpinned vCPUs are good unless a VM needs even run times. Pins are read from running
//! VMs, otherwise from libvirt's definitions ([`super::vms`]). If both exist and differ, the check reports it,
//! because the next start loses the running pins. `vsteer diagnose` measures the waits that pins cause. Source:
//! libvirt's formatdomain (cputune).
//!
//! Left out: QEMU processes without named threads, and emulator and I/O threads.

use super::vms::{Manager, Pin, Vm, Vms, online};
use super::{Check, Finding, Tree};
use std::collections::BTreeMap;
use vsteer_core::CpuSet;

pub const CHECK: Check =
    Check { name: "pinning", doc: "pins of vCPUs", rests_on: &["etc/libvirt/qemu/", "/task/"], look };

fn look(t: &Tree) -> Vec<Finding> {
    let vms = Vms::of(t);
    let all = online(t);
    let mut found: Vec<Finding> = vms.in_force().map(|vm| one(vm, all.as_ref())).collect();
    found.extend(vms.running_and_defined().filter_map(|(r, d)| differ(r, d, all.as_ref())));
    if found.is_empty() {
        let none = || "no running QEMU and no VM definition of libvirt found".to_owned();
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
        ("if the pins are intended, the VM loses its even run times", change, undo)
    };
    if !short.is_empty() {
        Finding::bad(setting, value, format!("{}: the vCPUs wait for each other", short.join(", ")), unpin())
    } else if (1..pins.len()).contains(&pinned) {
        Finding::bad(setting, value, "only some vCPUs are pinned", unpin())
    } else if pinned == 0 {
        let value = format!("none, {}", vm.told_by());
        Finding::good(setting, value, "the scheduler may use every idle pCPU")
    } else {
        Finding::good(
            setting,
            value,
            "no set of pCPUs has more pinned vCPUs than pCPUs; `vsteer diagnose` \
            shows whether the pins cause waits",
        )
    }
}

/// Commands that remove a VM's pins, and commands that restore them.
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
            format!(
                "remove <vcpupin> from the definition of {name:?}, or run `vsteer plan` while the VM runs"
            ),
            "restore the former <vcpupin>".into(),
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

/// A finding if the pins of a running VM differ from its definition.
fn differ(running: &Vm, defined: &Vm, online: Option<&CpuSet>) -> Option<Finding> {
    let (Ok(runs), Ok(says)) = (&running.pins, &defined.pins) else { return None };
    let text = |cpus: Option<&CpuSet>| cpus.or(online).map_or_else(|| "any".to_owned(), ToString::to_string);
    let mut differing = Vec::new();
    for (vcpu, pin) in runs {
        let Some(said) = says.get(vcpu) else { continue };
        // A vCPU without a pin inherits the process's set: a cgroup's cpuset is not a pin.
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
        format!("pins of VM {name:?} compared with its definition"),
        format!("{} of {} vCPUs differ", differing.len(), runs.len()),
        format!("vCPU {} may run on {} now and on {} after the next start", first.0, first.1, first.2),
        (
            "only the owner knows which pins are intended; `vsteer steer`, `vsteer apply` and --live \
                change only the running VM",
            pins(&|d| d.1.clone()),
            pins(&|d| d.2.clone()),
        ),
    ))
}
