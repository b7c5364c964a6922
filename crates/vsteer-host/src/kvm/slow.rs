//! Reads counters of a VM that belong to no thread: how often quotas ran out, and on which nodes the memory
//! is.
//!
//! Every cgroup with a quota counts `nr_throttled`, from the root's child down to those of the VM's threads: a slice or
//! a pod may hold many VMs. vsteer finds the groups with a quota whenever it reads the configuration, and every ten
//! seconds. At every sample it reads the `cpu.stat` of each group once, through an open descriptor. A group that appears
//! later counts from then on, so that a VM's sum never jumps by its earlier count.
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
use vsteer_core::nouns::{GroupQuota, VmConfig, VmId};

const QUOTAS_EVERY: Duration = Duration::from_secs(10);
const MEMORY_EVERY: Duration = Duration::from_secs(10);
/// Reading memory placement may take at most this part (one in N) of the time.
const MEMORY_SHARE: u32 = 100;

struct Group {
    stat: OwnedFd,
    /// Its count at the present sample.
    count: Option<u64>,
}

/// The open descriptors and the times of the last looks.
#[derive(Default)]
pub struct SlowCounters {
    /// By path.
    groups: BTreeMap<String, Group>,
    /// Of each VM, its groups, each with its count when vsteer first saw it there; 0 if that was at the VM's first look.
    bases: BTreeMap<VmId, BTreeMap<String, u64>>,
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
        self.bases.retain(|id, _| there(id));
        self.memory.retain(|id, _| there(id));
        for vm in vms {
            self.see_vm(inventory, vm);
        }
        let used: BTreeSet<&String> = self.bases.values().flat_map(BTreeMap::keys).collect();
        self.groups.retain(|path, _| used.contains(path));
    }

    fn see_vm(&mut self, inventory: &Inventory, vm: &VmConfig) {
        if !is_placed(vm) {
            return;
        }
        let first = !self.bases.contains_key(&vm.id);
        let bases = self.bases.entry(vm.id.clone()).or_default();
        for GroupQuota { cgroup, .. } in &vm.quotas {
            if bases.contains_key(cgroup) {
                continue;
            }
            if !self.groups.contains_key(cgroup) {
                let file = inventory.cgroups.file(cgroup, "cpu.stat");
                let open = file
                    .and_then(|f| rustix::fs::open(f, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok());
                let Some(stat) = open else { continue };
                self.groups.insert(cgroup.clone(), Group { count: read(&stat), stat });
            }
            let now = self.groups.get(cgroup).and_then(|group| group.count).unwrap_or(0);
            bases.insert(cgroup.clone(), if first { 0 } else { now });
        }
    }

    /// Reads how often all quotas ran out.
    pub fn begin_sample(&mut self) {
        self.groups.values_mut().for_each(|group| group.count = read(&group.stat));
    }

    /// How often the VM's quotas had run out when the sample began; `None` if its cgroups are not known, 0 if it has no
    /// quota.
    pub fn throttled_periods(&self, vm: &VmId) -> Option<u64> {
        let rose = |(path, base): (&String, &u64)| Some(self.groups.get(path)?.count?.saturating_sub(*base));
        Some(self.bases.get(vm)?.iter().filter_map(rose).sum())
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
    let of = |q: &GroupQuota| inventory.cgroups.throttled_periods(&inventory.root, &q.cgroup);
    is_placed(vm).then(|| vm.quotas.iter().filter_map(of).sum())
}

/// Is the cgroup of each thread known?
fn is_placed(vm: &VmConfig) -> bool {
    vm.threads.iter().all(|thread| thread.cgroup.is_some())
}

fn read(stat: &OwnedFd) -> Option<u64> {
    // `cpu.stat` has some ten short lines.
    let mut buffer = [0u8; 1024];
    let n = rustix::io::pread(stat, &mut buffer, 0).ok()?;
    cgroups::nr_throttled(std::str::from_utf8(&buffer[..n]).ok()?)
}
