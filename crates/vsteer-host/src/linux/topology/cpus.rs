//! Finds the existing and online CPUs, and how they form cores, packages and the levels between.
//!
//! Source: `Documentation/admin-guide/cputopology.rst` and
//! `Documentation/ABI/stable/sysfs-devices-system-cpu` (Linux 6.12); `arch/s390/kernel/topology.c` for books
//! and drawers; hwloc 2.9.0 for AMD's compute units.
//!
//! Left out: isolated and `nohz_full` CPUs, which are tuning and not topology.

use super::cpuinfo::{CpuInfo, Processor};
use super::{CPU, led_sets};
use crate::linux::files::{Files, cpu_list, number, numbered};
use vsteer_core::CpuSet;
use vsteer_core::cpuset::MAX_CPU;
use vsteer_core::topology::{Core, CoreKind, Group, GroupKind, Package};

/// The CPUs that exist, and those that are online.
pub(super) struct Found {
    pub present: CpuSet,
    pub online: CpuSet,
}

/// Finds the CPUs in sysfs, otherwise in `/proc/cpuinfo`.
pub(super) fn present_and_online(files: &mut Files, info: &CpuInfo) -> Found {
    let mut present = CpuSet::new();
    for cpu in files.names(CPU).iter().filter_map(|name| numbered(name, "cpu")) {
        if cpu <= MAX_CPU {
            present.insert(cpu);
        } else {
            files.odd(
                CPU,
                format!("CPU {cpu} exceeds the largest number that vsteer accepts, {MAX_CPU}: left out"),
            );
        }
    }
    if present.is_empty() {
        // /proc/cpuinfo lists only the online CPUs, and no file lists the others.
        return Found { present: info.cpus(), online: info.cpus() };
    }
    let listed = files.parsed(&format!("{CPU}/online"), cpu_list);
    let mut online = match &listed {
        Some(list) => list.intersection(&present),
        // Kernels before 2.6.26 have no list; CPU 0 often has no file of its own, because it cannot go offline.
        None => present
            .iter()
            .filter(|cpu| files.parsed(&format!("{CPU}/cpu{cpu}/online"), number).unwrap_or(1) != 0)
            .collect(),
    };
    // Kernels remove the folder `topology` from an offline CPU. So if other CPUs have one, its absence means
    // offline.
    let described: CpuSet =
        online.iter().filter(|cpu| files.has_folder(&format!("{CPU}/cpu{cpu}/topology"))).collect();
    if !described.is_empty() && described != online {
        if listed.is_some() {
            let silent = online.difference(&described);
            files.odd(
                CPU,
                format!(
                    "CPUs {silent} are listed as online but have no topology: vsteer treats them as offline"
                ),
            );
        }
        online = described;
    }
    Found { present, online }
}

/// The sets of CPUs as the CPUs report them.
pub(super) struct Sets {
    /// Per CPU, the threads of its core as reported.
    pub threads: Vec<(u32, CpuSet)>,
    pub packages: Vec<Package>,
    pub groups: Vec<Group>,
    pub cores: Vec<Core>,
}

impl Sets {
    /// Reads them for the `online` CPUs.
    pub fn read(files: &mut Files, online: &CpuSet, info: &CpuInfo) -> Sets {
        let threads: Vec<(u32, CpuSet)> = online
            .iter()
            .filter_map(|cpu| shared(files, cpu, &["core_cpus", "thread_siblings"]).map(|set| (cpu, set)))
            .collect();
        let mut packages: Vec<Package> = led_sets(files, "package", online, |files, cpu| {
            shared(files, cpu, &["package_cpus", "core_siblings"])
        })
        .into_iter()
        .map(|(cpu, cpus)| Package { id: id(files, cpu, "physical_package_id"), cpus, assumed: false })
        .collect();
        packages.extend(supposed_packages(files, online, info));
        let mut groups = Vec::new();
        for (kind, set_name, id_name) in [
            (GroupKind::Drawer, "drawer_siblings", "drawer_id"),
            (GroupKind::Book, "book_siblings", "book_id"),
            (GroupKind::Die, "die_cpus", "die_id"),
            (GroupKind::Cluster, "cluster_cpus", "cluster_id"),
        ] {
            for (cpu, cpus) in led_sets(files, set_name, online, |files, cpu| shared(files, cpu, &[set_name]))
            {
                groups.push(Group { kind, id: id(files, cpu, id_name), cpus });
            }
        }
        let cores = cores(files, online, &threads, info.amd_compute_units);
        Sets { threads, packages, groups, cores }
    }
}

fn topology(cpu: u32, name: &str) -> String {
    format!("{CPU}/cpu{cpu}/topology/{name}")
}

fn id(files: &mut Files, cpu: u32, name: &str) -> Option<u32> {
    files.id(&topology(cpu, name))
}

/// The first set that `cpu` has under one of `names`, as a mask or as a list.
fn shared(files: &mut Files, cpu: u32, names: &[&str]) -> Option<CpuSet> {
    names
        .iter()
        .find_map(|name| files.mask_or_list(&topology(cpu, name), &topology(cpu, &format!("{name}_list"))))
}

/// Packages by `physical_package_id`, otherwise by `/proc/cpuinfo`, for CPUs whose sets are missing or
/// broken.
fn supposed_packages(files: &mut Files, online: &CpuSet, info: &CpuInfo) -> Vec<Package> {
    let mut packages: Vec<Package> = Vec::new();
    for cpu in online.iter() {
        let named = id(files, cpu, "physical_package_id");
        let Some(id) = named.or_else(|| info.processors.get(&cpu)?.package) else { continue };
        match packages.iter_mut().find(|p| p.id == Some(id)) {
            Some(package) => package.cpus.insert(cpu),
            None => packages.push(Package { id: Some(id), cpus: CpuSet::single(cpu), assumed: true }),
        }
    }
    packages
}

fn cores(files: &mut Files, online: &CpuSet, threads: &[(u32, CpuSet)], compute_units: bool) -> Vec<Core> {
    let of = |_: &mut Files, cpu: u32| {
        threads.binary_search_by_key(&cpu, |(c, _)| *c).ok().map(|i| threads[i].1.clone())
    };
    let mut cores = Vec::new();
    for (cpu, cpus) in led_sets(files, "core", online, of) {
        let core_id = id(files, cpu, "core_id");
        if compute_units && cpus.len() > 1 {
            let ids: Vec<Option<u32>> = cpus.iter().map(|c| id(files, c, "core_id")).collect();
            if ids.iter().enumerate().all(|(i, id)| id.is_some() && !ids[..i].contains(id)) {
                let one = |(c, id)| Core { id, cpus: CpuSet::single(c), ..Core::default() };
                cores.extend(cpus.iter().zip(ids).map(one));
                continue;
            }
        }
        cores.push(Core { id: core_id, cpus, ..Core::default() });
    }
    cores
}

/// Cores for CPUs that have no core in sysfs: from the device tree, otherwise from `/proc/cpuinfo`.
pub(super) fn supposed_cores(from_tree: Vec<CpuSet>, info: &CpuInfo, online: &CpuSet) -> Vec<Core> {
    if !from_tree.is_empty() {
        let core = |cpus| Core { cpus, assumed: true, ..Core::default() };
        return from_tree.into_iter().map(core).collect();
    }
    let alike = |a: &Processor, b: &Processor| a.core.is_some() && a.core == b.core && a.package == b.package;
    let id = |cpu| info.processors.get(&cpu).and_then(|p| p.core);
    let mut cores: Vec<Core> = Vec::new();
    for cpu in online.iter().filter(|cpu| id(*cpu).is_some()) {
        if !cores.iter().any(|c| c.cpus.contains(cpu)) {
            let cpus = info.same(cpu, alike).unwrap_or_default();
            cores.push(Core { id: id(cpu), cpus, assumed: true, ..Core::default() });
        }
    }
    cores
}

/// Gives an own core to every CPU without one, so that it can be described like the others.
pub(super) fn add_lone_cores(cores: &mut Vec<Core>, online: &CpuSet) {
    let covered = cores.iter().fold(CpuSet::new(), |set, core| set.union(&core.cpus));
    let lone = |cpu| Core { cpus: CpuSet::single(cpu), assumed: true, ..Core::default() };
    cores.extend(online.difference(&covered).iter().map(lone));
}

/// Adds what the machine reports about the performance of its cores: kinds, capacity, frequencies. The first
/// thread describes the core, because threads of one core are alike.
pub(super) fn describe_cores(files: &mut Files, cores: &mut [Core]) {
    // Intel's hybrid processors have one performance counter device per kind of core.
    let kinds: Vec<(CoreKind, CpuSet)> = [
        (CoreKind::Performance, "cpu_core"),
        (CoreKind::Efficiency, "cpu_atom"),
        (CoreKind::LowPower, "cpu_lowpower"),
    ]
    .into_iter()
    .filter_map(|(kind, name)| Some((kind, files.parsed(&format!("/sys/devices/{name}/cpus"), cpu_list)?)))
    .collect();
    for core in cores {
        let Some(cpu) = core.cpus.iter().next() else { continue };
        core.kind = kinds.iter().find(|(_, cpus)| cpus.contains(cpu)).map(|(kind, _)| *kind);
        core.capacity = files.id(&format!("{CPU}/cpu{cpu}/cpu_capacity"));
        // The driver writes 0 for an unknown value.
        let mut khz = |name: &str| files.count(&format!("{CPU}/cpu{cpu}/cpufreq/{name}")).filter(|f| *f > 0);
        core.frequency_max_khz = khz("cpuinfo_max_freq");
        core.frequency_base_khz = khz("base_frequency");
    }
}
