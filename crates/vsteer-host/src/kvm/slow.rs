//! Reads counters of a VM that belong to no thread: how often quotas ran out, and on which nodes the memory
//! is.
//!
//! Every cgroup with a quota counts `nr_throttled`. vsteer finds the groups with a quota whenever it reads
//! the configuration, and every ten seconds. At every sample it reads their `cpu.stat` through open
//! descriptors. A group that appears later counts from then on, so that the sum never jumps by its earlier
//! count.
//!
//! Memory placement is slow to read (see `linux::numa_maps`): at most every ten seconds per VM, less often if
//! it takes long, and one VM per sample.
//!
//! Left out: throttling of a group between the start of its quota and the next look.

use super::inventory::{Inventory, Vm};
use crate::linux::{cgroups, numa_maps, topology};
use rustix::fs::{Mode, OFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use vsteer_core::nouns::{VmConfig, VmId};

const QUOTAS_EVERY: Duration = Duration::from_secs(10);
const MEMORY_EVERY: Duration = Duration::from_secs(10);
/// Reading memory placement may take at most this part (one in N) of the time.
const MEMORY_SHARE: u32 = 100;

struct Group {
    stat: OwnedFd,
    /// The group's count when vsteer first saw it; 0 if that was at the VM's first look.
    base: u64,
}

/// The open descriptors and the times of the last looks.
#[derive(Default)]
pub struct SlowCounters {
    groups: BTreeMap<VmId, BTreeMap<String, Group>>,
    memory: BTreeMap<VmId, Instant>,
    only_node: Option<Option<u32>>,
    seen: Option<Instant>,
}

impl SlowCounters {
    /// Is it time to look for groups with quotas again?
    pub fn is_due(&self) -> bool {
        self.seen.is_none_or(|at| at.elapsed() > QUOTAS_EVERY)
    }

    /// Takes the groups that have quotas from the configuration.
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
        // Every group from the VM's own down to those of its threads.
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

    /// How often the VM's quotas ran out; `None` if it has no cgroup of its own, 0 if it has no quota.
    pub fn throttled_periods(&self, vm: &VmId) -> Option<u64> {
        let groups = self.groups.get(vm)?.values();
        Some(groups.filter_map(|g| Some(read(&g.stat)?.saturating_sub(g.base))).sum())
    }

    /// The memory of the VM by node, if it is time to read it again.
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
            // The other VMs wait for the next samples.
            for other in inventory.vms.iter().filter(|o| o.id != vm.id) {
                let due = self.memory.entry(other.id.clone()).or_insert(now);
                *due = (*due).max(now + took);
            }
        }
        memory
    }
}

/// How often the quotas of a VM ran out in the life of its cgroups, read once. As
/// [`SlowCounters::throttled_periods`], without open descriptors.
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
