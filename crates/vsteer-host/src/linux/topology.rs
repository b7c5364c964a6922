//! Reads the topology of a Linux machine from sysfs and procfs under a root.
//!
//! vsteer asks each source in turn. The newest file name comes first (`core_cpus`, then `thread_siblings` of
//! kernels before 5.3; masks, then lists). Then come the replacements for sysfs: the device tree on POWER,
//! and `/proc/cpuinfo`. What none of them says stays unknown. The core makes the statements consistent
//! ([`vsteer_core::Topology::new`]).
//!
//! vsteer takes a shared set only from the lowest of its CPUs. So if one CPU has a broken file, it spoils
//! only the sets in which it is the lowest. hwloc has the same rule (2.9.0, `hwloc/topology-linux.c`,
//! `look_sysfscpu`). The tests compare with hwloc's answers on its own captured machines
//! (`tests/hwloc_trees.rs`).
//!
//! Left out: devices, huge pages, HMAT latencies, and hwloc's knowledge of machines that the kernel does not
//! describe (Knights Landing's memory-side caches, the Fujitsu K).

mod caches;
mod cpuinfo;
mod cpus;
mod devicetree;
mod nodes;

use super::cpuset::{self, Process};
use super::files::{Files, memory_total_bytes};
use crate::root::Root;
use vsteer_core::topology::{Parts, Topology};
use vsteer_core::{CpuSet, Fault};

/// The folder of the CPUs.
const CPU: &str = "/sys/devices/system/cpu";

/// Reads the machine under `root`. The allowed CPUs and nodes are those that this process may use.
///
/// # Errors
/// `BadInput` if no CPU can be found. Anything else that is missing or broken stays unknown, and the
/// topology's oddities list it.
pub fn read(root: &Root) -> Result<Topology, Fault> {
    read_for(root, Process::Current)
}

/// Reads the machine under `root`. The allowed CPUs and nodes are those that `process` may use.
///
/// # Errors
/// As [`read`].
pub fn read_for(root: &Root, process: Process) -> Result<Topology, Fault> {
    let mut files = Files::new(root);
    let info = cpuinfo::parse(&files.text("/proc/cpuinfo").unwrap_or_default());
    let found = cpus::present_and_online(&mut files, &info);
    let mut parts = Parts { present: found.present, online: found.online, ..Parts::default() };

    let sets = cpus::Sets::read(&mut files, &parts.online, &info);
    parts.packages = sets.packages;
    parts.groups = sets.groups;
    parts.cores = sets.cores;
    parts.caches = caches::read(&mut files, &parts.online, &sets.threads);
    if parts.caches.is_empty() || sets.threads.len() < parts.online.len() {
        let tree = devicetree::read(&mut files, &parts.online);
        parts.cores.extend(cpus::supposed_cores(tree.cores, &info, &parts.online));
        if parts.caches.is_empty() {
            parts.caches = tree.caches;
        }
    }
    cpus::add_lone_cores(&mut parts.cores, &parts.online);
    cpus::describe_cores(&mut files, &mut parts.cores);

    let bounds = cpuset::bounds(root, process);
    parts.allowed = bounds.cpus.unwrap_or_else(|| parts.present.clone());
    parts.memory_bytes = files.parsed("/proc/meminfo", memory_total_bytes);
    parts.nodes = nodes::read(&mut files, &bounds.nodes);
    parts.oddities = files.oddities;
    parts.oddities.extend(bounds.oddities);
    Topology::new(parts)
        .map_err(|fault| Fault { what: format!("{} under {}", fault.what, root.path().display()), ..fault })
}

/// The shared sets of `cpus`, each as its lowest CPU reports it (clipped to `cpus`). If another CPU reports
/// something else, this adds an oddity under `name`.
fn led_sets(
    files: &mut Files,
    name: &str,
    cpus: &CpuSet,
    mut report: impl FnMut(&mut Files, u32) -> Option<CpuSet>,
) -> Vec<(u32, CpuSet)> {
    let reports: Vec<(u32, CpuSet)> =
        cpus.iter().filter_map(|cpu| Some((cpu, report(files, cpu)?.intersection(cpus)))).collect();
    let led: Vec<(u32, CpuSet)> =
        reports.iter().filter(|(cpu, set)| set.iter().next() == Some(*cpu)).cloned().collect();
    for (cpu, set) in &reports {
        let leader = set.iter().next().and_then(|l| led.binary_search_by_key(&l, |(c, _)| *c).ok());
        if leader.is_none_or(|l| led[l].1 != *set) {
            files.odd(
                name,
                format!("CPU {cpu} reports that it shares with CPUs {set}, but the lowest of these reports otherwise"),
            );
        }
    }
    led
}
