//! How often did quotas run out, and where does the memory lie? Counters of a VM that are no thread's.
//!
//! The idea: `nr_throttled` is kept by every cgroup that has a quota. Which groups have one is looked up with the
//! configuration and every ten seconds; their `cpu.stat` is then read at every sample through kept descriptors. A group
//! that is noticed later counts from then on, so that the sum never jumps by what was before.
//!
//! Memory placement is slow to read (see `linux::numa_maps`): at most every ten seconds per VM, less often where it
//! takes long, and one VM per sample.
//!
//! Left out: throttling of a group between its quota's appearance and the next look.

use super::inventory::{Inventory, Vm};
use crate::linux::{cgroups, numa_maps, topology};
use rustix::fs::{Mode, OFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use vsteer_core::nouns::{VmConfig, VmId};

const QUOTAS_EVERY: Duration = Duration::from_secs(10);
const MEMORY_EVERY: Duration = Duration::from_secs(10);
/// Reading where memory lies may take this part of the time at most.
const MEMORY_SHARE: u32 = 100;

struct Group {
    stat: OwnedFd,
    /// What it had counted when it was first seen, unless that was at the VM's first look.
    base: u64,
}

/// The kept descriptors and times.
#[derive(Default)]
pub struct SlowCounters {
    groups: BTreeMap<VmId, BTreeMap<String, Group>>,
    memory: BTreeMap<VmId, Instant>,
    only_node: Option<Option<u32>>,
    seen: Option<Instant>,
}

impl SlowCounters {
    /// Is it time to look again which groups have quotas?
    pub fn is_due(&self) -> bool {
        self.seen.is_none_or(|at| at.elapsed() > QUOTAS_EVERY)
    }

    /// Takes over which groups have quotas.
    pub fn see(&mut self, inventory: &Inventory, vms: &[VmConfig]) {
        self.seen = Some(Instant::now());
        let there = |id: &VmId| vms.iter().any(|vm| vm.id == *id);
        self.groups.retain(|id, _| there(id));
        self.memory.retain(|id, _| there(id));
        for vm in vms {
            self.see_vm(inventory, vm);
        }
    }

    fn see_vm(&mut self, inventory: &Inventory, vm: &VmConfig) {
        let (root, all) = (&inventory.root, &inventory.cgroups);
        let Some(own) = &vm.cgroup else { return };
        let first = !self.groups.contains_key(&vm.id);
        let known = self.groups.entry(vm.id.clone()).or_default();
        // Every group from the VM's own down to its threads'.
        let mut paths: Vec<String> =
            vm.threads.iter().filter_map(|t| t.cgroup.as_deref()).flat_map(cgroups::lineage).collect();
        paths.sort();
        paths.dedup();
        for path in paths.into_iter().filter(|path| is_beneath(path, own)) {
            if known.contains_key(&path) || all.quota(root, &path).is_none() {
                continue;
            }
            let file = all.file(&path, "cpu.stat");
            let open =
                file.and_then(|f| rustix::fs::open(f, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok());
            if let Some(stat) = open {
                let base = if first { 0 } else { read(&stat).unwrap_or(0) };
                known.insert(path, Group { stat, base });
            }
        }
    }

    /// How often the VM's quotas ran out; `None` where it has no cgroup of its own, 0 where it has no quota.
    pub fn throttled_periods(&self, vm: &VmId) -> Option<u64> {
        let groups = self.groups.get(vm)?.values();
        Some(groups.filter_map(|g| Some(read(&g.stat)?.saturating_sub(g.base))).sum())
    }

    /// Where its memory lies, when it is time to look again.
    pub fn memory_by_node(&mut self, inventory: &Inventory, vm: &Vm) -> Option<Vec<(u32, u64)>> {
        let now = Instant::now();
        if self.memory.get(&vm.id).is_some_and(|due| now < *due) {
            return None;
        }
        let only_node = *self.only_node.get_or_insert_with(|| {
            let nodes = topology::read(&inventory.root).map(|t| t.nodes().to_vec()).unwrap_or_default();
            if nodes.len() < 2 { Some(nodes.first().map_or(0, |n| n.id.0)) } else { None }
        });
        let memory = numa_maps::read(&inventory.root, vm.process.pid, only_node);
        let took = now.elapsed();
        self.memory.insert(vm.id.clone(), now + MEMORY_EVERY.max(took * MEMORY_SHARE));
        if only_node.is_none() {
            // The others wait for the next samples.
            for other in inventory.vms.iter().filter(|o| o.id != vm.id) {
                let due = self.memory.entry(other.id.clone()).or_insert(now);
                *due = (*due).max(now + took);
            }
        }
        memory
    }
}

/// How often the quotas of a VM ran out over their lives, read at once. As [`SlowCounters::throttled_periods`], without
/// kept descriptors.
pub fn throttled_periods(inventory: &Inventory, vm: &VmConfig) -> Option<u64> {
    let (root, all, own) = (&inventory.root, &inventory.cgroups, vm.cgroup.as_ref()?);
    let paths = vm.threads.iter().filter_map(|t| t.cgroup.as_deref()).flat_map(cgroups::lineage);
    let paths: BTreeSet<String> = paths.filter(|p| is_beneath(p, own)).collect();
    let limited = paths.iter().filter(|path| all.quota(root, path).is_some());
    Some(limited.filter_map(|path| all.throttled_periods(root, path)).sum())
}

fn is_beneath(path: &str, own: &str) -> bool {
    path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn read(stat: &OwnedFd) -> Option<u64> {
    // `cpu.stat` has some ten short lines.
    let mut buffer = [0u8; 1024];
    let n = rustix::io::pread(stat, &mut buffer, 0).ok()?;
    cgroups::nr_throttled(std::str::from_utf8(&buffer[..n]).ok()?)
}
