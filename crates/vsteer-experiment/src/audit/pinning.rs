//! Are pinned vCPUs pinned sensibly?
//!
//! vCPUs that share fewer pCPUs than they are wait for each other, whether they are of one VM or of several; the latter
//! is reported while other pCPUs have no pinned vCPU. If only some vCPUs of a VM are pinned, the VM has the drawbacks of
//! both. Unpinned vCPUs are good unless a VM needs even run times. If two vCPUs are pinned to the threads of one core and
//! the guest is shown two cores, its scheduler takes each for a whole core.
//!
//! Pins are read from running VMs, otherwise from libvirt's definitions ([`super::vms`]). If both exist and differ, the
//! check reports it, because the next start loses the running pins. `vsteer diagnose` measures the waits that pins cause.
//! Source: libvirt's formatdomain (cputune); the condition is Hall's marriage theorem.
//!
//! Left out: QEMU processes without named threads, and emulator and I/O threads.

use super::vms::{Manager, Pin, Vm, Vms, online};
use super::{Check, Finding, Tree};
use std::collections::{BTreeMap, BTreeSet};
use vsteer_core::CpuSet;
use vsteer_core::plural::counted;
use vsteer_core::setting::argv::virsh_word;

pub const CHECK: Check =
    Check { name: "pinning", doc: "pins of vCPUs", rests_on: &["etc/libvirt/qemu/", "/task/"], look };

fn look(t: &Tree) -> Vec<Finding> {
    let vms = Vms::of(t);
    let all = online(t);
    let mut found: Vec<Finding> = vms.in_force().map(|vm| one(vm, all.as_ref())).collect();
    found.extend(together(t, &vms, all.as_ref()));
    found.extend(vms.in_force().filter_map(|vm| siblings(t, vm)));
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
    let sets: Vec<&CpuSet> = pins.values().filter_map(|p| p.cpus.as_ref()).collect();
    let short = crowded(&sets);
    let pinned = sets.len();
    let value = format!("{pinned} of {} vCPUs, {}", pins.len(), vm.told_by());
    let unpin = || {
        let (change, undo) = unpinned(vm, pins, online);
        ("if the pins are intended, the VM loses its even run times", change, undo)
    };
    if let Some((vcpus, cpus)) = short {
        let reason =
            format!("{} on {}: the vCPUs wait for each other", counted(vcpus.len(), "vCPU"), on(&cpus));
        Finding::bad(setting, value, reason, unpin())
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

fn on(cpus: &CpuSet) -> String {
    match cpus.len() {
        0 => "no online pCPU".to_owned(),
        1 => format!("pCPU {cpus}"),
        _ => format!("pCPUs {cpus}"),
    }
}

/// vCPUs, by position, that may use fewer pCPUs than they are, and these pCPUs; `None` if each can have a pCPU of its own.
///
/// Gives one pCPU to as many vCPUs as possible. If a vCPU has none, the vCPUs that could make room for it are too many.
pub(super) fn crowded(sets: &[&CpuSet]) -> Option<(Vec<usize>, CpuSet)> {
    let mut given: BTreeMap<u32, usize> = BTreeMap::new();
    for vcpu in 0..sets.len() {
        // Breadth first: the vCPUs that may have to move, and from where each pCPU was reached.
        let (mut from, mut waiting, mut next) = (BTreeMap::<u32, usize>::new(), vec![vcpu], 0);
        let mut free = None;
        while let (None, Some(moves)) = (free, waiting.get(next).copied()) {
            next += 1;
            for cpu in sets[moves].iter() {
                if from.contains_key(&cpu) {
                    continue;
                }
                from.insert(cpu, moves);
                match given.get(&cpu) {
                    Some(holder) => waiting.push(*holder),
                    None => free = Some(cpu),
                }
            }
        }
        let Some(mut cpu) = free else { return Some((waiting, from.into_keys().collect())) };
        // Each vCPU on the way takes the pCPU that it reached, and gives its own to the one before.
        loop {
            let taker = from[&cpu];
            let before = given.iter().find(|(_, v)| **v == taker).map(|(cpu, _)| *cpu);
            given.insert(cpu, taker);
            match before {
                Some(own) if taker != vcpu => cpu = own,
                _ => break,
            }
        }
    }
    None
}

/// vCPUs of several VMs that are each pinned to one pCPU, on fewer pCPUs than they are, while other pCPUs have none. Wider
/// sets may be shared on purpose: a node's, or those that a host leaves to its VMs.
fn together(t: &Tree, vms: &Vms, online: Option<&CpuSet>) -> Option<Finding> {
    let running: Vec<&Vm> = vms.in_force().filter(|vm| vm.told_by() == "running").collect();
    // What holds the whole process is a cgroup's cpuset, not a pin.
    let pins = |vm: &&Vm| -> Vec<CpuSet> {
        let all = vm.pins.iter().flat_map(BTreeMap::values).filter(|p| p.cpus != vm.confined);
        all.filter_map(|p| p.cpus.clone()).collect()
    };
    let each: Vec<Vec<CpuSet>> = running.iter().map(pins).collect();
    let used = each.iter().flatten().fold(CpuSet::new(), |used, set| used.union(set));
    let mut all: Vec<(usize, &CpuSet)> = Vec::new();
    for (i, sets) in each.iter().enumerate() {
        // A VM that is crowded by itself has its own finding.
        if crowded(&sets.iter().collect::<Vec<_>>()).is_none() {
            all.extend(sets.iter().filter(|set| set.len() == 1).map(|set| (i, set)));
        }
    }
    let (vcpus, cpus) = crowded(&all.iter().map(|(_, set)| *set).collect::<Vec<_>>())?;
    // Where pCPUs are isolated for VMs, the others are the host's.
    let isolated = t.words().find_map(|word| word.strip_prefix("isolcpus=")).and_then(isolated);
    let meant = isolated.map_or_else(|| online.cloned(), Some)?;
    let unused = meant.difference(&used);
    if unused.is_empty() {
        return None;
    }
    let of: BTreeSet<usize> = vcpus.iter().map(|vcpu| all[*vcpu].0).collect();
    let names: Vec<String> = of.iter().map(|i| format!("{:?}", running[*i].name)).collect();
    let changes =
        of.iter().filter_map(|i| Some(unpinned(running[*i], running[*i].pins.as_ref().ok()?, online)));
    let (change, undo): (Vec<String>, Vec<String>) = changes.unzip();
    Some(Finding::bad(
        "pins of several VMs",
        format!("{} vCPUs of VMs {} on {}", vcpus.len(), names.join(", "), on(&cpus)),
        format!("the VMs wait for each other, while no vCPU is pinned to {}", on(&unused)),
        ("if the pins are intended, the VMs lose their even run times", change.join("; "), undo.join("; ")),
    ))
}

/// The pCPUs of `isolcpus=domain,2-7`.
fn isolated(value: &str) -> Option<CpuSet> {
    let from = value.find(|c: char| c.is_ascii_digit())?;
    value[from..].parse().ok()
}

/// A finding if vCPUs are pinned to the threads of one core and the guest is not shown that they share it.
fn siblings(t: &Tree, vm: &Vm) -> Option<Finding> {
    let pins = vm.pins.as_ref().ok()?;
    let cores: Vec<CpuSet> = t
        .matching("/sys/devices/system/cpu/cpu", "/topology/thread_siblings_list")
        .filter_map(|(_, text)| text.trim().parse().ok())
        .collect();
    let alone =
        pins.iter().filter_map(|(n, p)| Some((*n, p.cpus.as_ref().filter(|c| c.len() == 1)?.iter().next()?)));
    let mut by_core: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
    for (vcpu, cpu) in alone {
        let core = cores.iter().find(|core| core.contains(cpu))?;
        by_core.entry(core.iter().next()?).or_default().push((vcpu, cpu));
    }
    let cpus = |shared: &[(u32, u32)]| shared.iter().map(|(_, cpu)| *cpu).collect::<BTreeSet<_>>();
    let shared = by_core.into_values().find(|shared| cpus(shared).len() > 1)?;
    let vcpus: Vec<String> = shared.iter().map(|(vcpu, _)| vcpu.to_string()).collect();
    if vm.threads? > 1 {
        return None;
    }
    let on: CpuSet = cpus(&shared).into_iter().collect();
    Some(Finding::bad(
        format!("threads per core of VM {:?}", vm.name),
        format!("1, but vCPUs {} are pinned to the threads {on} of one core", vcpus.join(" and ")),
        "the guest takes each of these vCPUs for a whole core, so it gives one core the work of two",
        (
            "a guest that is licensed by cores then has fewer of them; Windows may have to be activated again",
            "set threads='2' in <topology> and half as many cores, and pin each pair of vCPUs to the threads of one core \
             (`vsteer numa` prints it); or pin the vCPUs to threads of different cores"
                .to_owned(),
            "restore the former <topology> and pins".to_owned(),
        ),
    ))
}

/// Commands that remove a VM's pins, and commands that restore them.
fn unpinned(vm: &Vm, pins: &BTreeMap<u32, Pin>, online: Option<&CpuSet>) -> (String, String) {
    let pinned = || pins.iter().filter_map(|(n, p)| Some((n, p.cpus.as_ref()?, p.tid)));
    let each = |text: &dyn Fn(u32, &CpuSet, Option<u32>) -> String| {
        let all: Vec<String> = pinned().map(|(n, c, tid)| text(*n, c, tid)).collect();
        all.join("; ")
    };
    let name = virsh_word(&vm.name, vm.uuid.as_deref());
    let everywhere = online.map_or_else(|| "every pCPU".to_owned(), ToString::to_string);
    match (vm.manager, vm.told_by()) {
        (Manager::Libvirt, "defined") => (
            format!(
                "remove <vcpupin> from the definition of {:?}, or run `vsteer plan` while the VM runs",
                vm.name
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
    let word = virsh_word(name, running.uuid.as_deref());
    let pins = |to: &dyn Fn(&(&u32, String, String)) -> String| {
        let all: Vec<String> =
            differing.iter().map(|d| format!("virsh vcpupin {word} {} {} --config", d.0, to(d))).collect();
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
