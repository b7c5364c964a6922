//! Reads counters of a VM that belong to no thread: how often and for how long quotas ran out, how long the VM stalled, and
//! on which nodes the memory is.
//!
//! Every cgroup with a quota counts `nr_throttled` and the throttled time, from the root's child down to those of the VM's threads: a slice or
//! a pod may hold many VMs. vsteer finds the groups with a quota whenever it reads the configuration, and every ten
//! seconds. At every sample it reads the `cpu.stat` of each group once, through an open descriptor. A group that appears
//! later counts from then on, so that a VM's sum never jumps by its earlier count.
//!
//! [`super::pressure`] reads stalls.
//!
//! Memory placement is slow to read (see `linux::numa_maps`): at most every ten seconds per VM, less often if
//! it takes long, and one VM per sample.
//!
//! Left out: throttling of a group between the start of its quota and the next look.

use super::inventory::{Inventory, Vm};
use super::pressure::VmPressures;
use crate::linux::cgroups::{self, Cgroups, Throttled};
use crate::linux::{numa_maps, topology};
use rustix::fs::{Mode, OFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use vsteer_core::nouns::{GroupQuota, Pressure, VmConfig, VmId, VmSample};

const QUOTAS_EVERY: Duration = Duration::from_secs(10);
const MEMORY_EVERY: Duration = Duration::from_secs(10);
/// Reading memory placement may take at most this part (one in N) of the time.
const MEMORY_SHARE: u32 = 100;

struct Group {
    stat: OwnedFd,
    /// Its count at the present sample.
    count: Throttled,
}

/// A group of a VM.
struct Of {
    shared: bool,
    /// The group's count when vsteer first saw it as this VM's; 0 if that was at the VM's first look.
    base: Throttled,
}

/// What is counted for one run of a VM.
#[derive(Default)]
struct Counted {
    pid: u32,
    groups: BTreeMap<String, Of>,
    /// What groups that are gone had counted: its own, and shared ones.
    gone: [Throttled; 2],
}

fn since(count: Throttled, base: Throttled) -> Throttled {
    let (times, ns) = (count.times.saturating_sub(base.times), count.ns.saturating_sub(base.ns));
    Throttled { times, ns }
}

fn plus(a: Throttled, b: Throttled) -> Throttled {
    Throttled { times: a.times.saturating_add(b.times), ns: a.ns.saturating_add(b.ns) }
}

/// The open descriptors and the times of the last looks.
#[derive(Default)]
pub struct SlowCounters {
    /// By path.
    groups: BTreeMap<String, Group>,
    vms: BTreeMap<VmId, Counted>,
    memory: BTreeMap<VmId, Instant>,
    pressures: VmPressures,
    only_node: Option<Option<u32>>,
    seen: Option<Instant>,
}

impl SlowCounters {
    /// Is it time to look for groups with quotas again?
    pub fn is_due(&self) -> bool {
        self.seen.is_none_or(|at| at.elapsed() > QUOTAS_EVERY)
    }

    /// Takes the groups that have quotas, and those of single VMs, from the configuration.
    pub fn see(&mut self, inventory: &Inventory, vms: &[VmConfig]) {
        self.seen = Some(Instant::now());
        let there = |id: &VmId| vms.iter().any(|vm| vm.id == *id);
        self.vms.retain(|id, _| there(id));
        self.memory.retain(|id, _| there(id));
        for vm in vms {
            self.see_vm(&inventory.cgroups, vm);
        }
        let used: BTreeSet<&String> = self.vms.values().flat_map(|vm| vm.groups.keys()).collect();
        self.groups.retain(|path, _| used.contains(path));
        self.pressures.see(inventory, vms);
    }

    fn see_vm(&mut self, all: &Cgroups, vm: &VmConfig) {
        if !is_placed(vm) {
            return;
        }
        // A VM keeps its id over a restart, but its groups are made again.
        let again = self.vms.get(&vm.id).is_none_or(|known| known.pid != vm.pid);
        if again {
            self.vms.insert(vm.id.clone(), Counted { pid: vm.pid, ..Counted::default() });
        }
        let known = self.vms.get_mut(&vm.id).expect("it is there or was inserted");
        for GroupQuota { cgroup, shared, .. } in &vm.quotas {
            if known.groups.contains_key(cgroup) {
                continue;
            }
            if !self.groups.contains_key(cgroup) {
                let file = all.file(cgroup, "cpu.stat");
                let open = file
                    .and_then(|f| rustix::fs::open(f, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok());
                let Some((stat, count)) = open.and_then(|stat| read(&stat).map(|count| (stat, count))) else {
                    continue;
                };
                self.groups.insert(cgroup.clone(), Group { stat, count });
            }
            let base = if again { Throttled::default() } else { self.groups[cgroup].count };
            known.groups.insert(cgroup.clone(), Of { shared: *shared, base });
        }
    }

    /// Reads how often all quotas ran out, and how long VMs stalled. Forgets a group that is gone. If somebody makes it again,
    /// the next look finds it.
    pub fn begin_sample(&mut self) {
        self.pressures.begin_sample();
        let mut gone: BTreeMap<String, Throttled> = BTreeMap::new();
        self.groups.retain(|path, group| match read(&group.stat) {
            Some(count) => {
                group.count = count;
                true
            }
            None => {
                gone.insert(path.clone(), group.count);
                false
            }
        });
        for vm in self.vms.values_mut().filter(|_| !gone.is_empty()) {
            for (path, count) in &gone {
                if let Some(of) = vm.groups.remove(path) {
                    let sum = &mut vm.gone[usize::from(of.shared)];
                    *sum = plus(*sum, since(*count, of.base));
                }
            }
        }
    }

    /// How often, and for how long, the VM's own quotas, or those that it shares, had run out when the sample began; `None`
    /// if its cgroups are not known, 0 without such a quota.
    pub fn throttled(&self, vm: &VmId, shared: bool) -> Option<Throttled> {
        let vm = self.vms.get(vm)?;
        let these = vm.groups.iter().filter(|(_, of)| of.shared == shared);
        let rose = these.filter_map(|(path, of)| Some(since(self.groups.get(path)?.count, of.base)));
        Some(rose.fold(vm.gone[usize::from(shared)], plus))
    }

    /// How long the VM had stalled when the sample began; `None` without a figure, and for many VMs in most samples.
    pub fn pressure(&self, vm: &VmId) -> Option<Pressure> {
        self.pressures.of(vm)
    }

    /// Why some VMs have no such figure.
    pub fn without_pressure(&self) -> Option<&str> {
        self.pressures.missing()
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

/// How often, and for how long, these quotas of a VM ran out in the life of the cgroups, read once. As
/// [`SlowCounters::throttled`], without open descriptors.
pub fn throttled_once(inventory: &Inventory, vm: &VmConfig, shared: bool) -> Option<Throttled> {
    let these = vm.quotas.iter().filter(|q| q.shared == shared);
    let of = |q: &GroupQuota| inventory.cgroups.throttled(&inventory.root, &q.cgroup);
    is_placed(vm).then(|| these.filter_map(of).fold(Throttled::default(), plus))
}

/// A VM's sample with what its quotas did: its own, and those that it shares.
pub fn sample(vm: VmId, [own, shared]: [Option<Throttled>; 2]) -> VmSample {
    VmSample {
        throttled_periods: own.map(|t| t.times),
        throttled_above: shared.map(|t| t.times),
        throttled_ns: own.map(|t| t.ns),
        throttled_above_ns: shared.map(|t| t.ns),
        ..VmSample::new(vm)
    }
}

/// Is the cgroup of each thread known?
fn is_placed(vm: &VmConfig) -> bool {
    vm.threads.iter().all(|thread| thread.cgroup.is_some())
}

fn read(stat: &OwnedFd) -> Option<Throttled> {
    // `cpu.stat` has some ten short lines.
    let mut buffer = [0u8; 1024];
    let n = rustix::io::pread(stat, &mut buffer, 0).ok()?;
    cgroups::throttled(std::str::from_utf8(&buffer[..n]).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::nouns::Quota;

    /// A slice that two VMs share, and a group that is removed and made again, as over a restart.
    #[test]
    fn counts_of_groups_that_come_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
        let write = |path: &str, text: &str| {
            std::fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            std::fs::write(at(path), text).unwrap();
        };
        let stat = |group: &str, n: u64| {
            write(&format!("/cg{group}/cpu.stat"), &format!("nr_throttled {n}\nthrottled_usec {n}\n"))
        };
        let all = Cgroups::unified(&at("/cg").to_string_lossy());
        let quota = |cgroup: &str, shared| GroupQuota {
            cgroup: cgroup.into(),
            quota: Quota { quota_us: 1, period_us: 1 },
            shared,
        };
        let mut vm = VmConfig::new(VmId("proxmox:1".into()), "a", 10);
        vm.quotas = vec![quota("/s", true), quota("/s/1", false)];
        let mut slow = SlowCounters::default();
        let counts = |slow: &SlowCounters| {
            [false, true].map(|shared| {
                let Throttled { times, ns } = slow.throttled(&vm.id, shared)?;
                assert_eq!(ns, 1000 * times);
                Some(times)
            })
        };
        assert_eq!(counts(&slow), [None, None]);
        stat("/s", 7);
        stat("/s/1", 3);
        slow.see_vm(&all, &vm);
        slow.begin_sample();
        assert_eq!(counts(&slow), [Some(3), Some(7)]);
        // Its own group goes: the sum does not fall.
        std::fs::write(at("/cg/s/1/cpu.stat"), "").unwrap();
        slow.begin_sample();
        assert_eq!(counts(&slow), [Some(3), Some(7)]);
        // It is made again for the same run: it counts from then on.
        std::fs::remove_file(at("/cg/s/1/cpu.stat")).unwrap();
        stat("/s/1", 2);
        slow.see_vm(&all, &vm);
        stat("/s/1", 4);
        slow.begin_sample();
        assert_eq!(counts(&slow), [Some(5), Some(7)]);
        // The VM starts again, with the same id and the same paths.
        let restarted = VmConfig { pid: 11, ..vm.clone() };
        slow.see_vm(&all, &restarted);
        assert_eq!(counts(&slow), [Some(4), Some(7)]);
    }
}
