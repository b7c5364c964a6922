//! Checks a setup and stores it in arrays with dense numbers, which the engine and policies read.

use super::{Costs, Group, Pcpu, Pool, Reservation, Setup, Vcpu, VcpuSetup, Vm, VmSetup, Warp};
use crate::bits::Bits;
use vsteer_core::nouns::{Quota, SchedClass};
use vsteer_core::{CpuSet, Fault, FaultKind, Topology};

/// Core, cache, node, socket and pool of a pCPU, as indexes of this host's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Number of the pCPU in the kernel.
    pub cpu: u32,
    /// Index of the core.
    pub core: u32,
    /// Index of its last-level cache.
    pub llc: u32,
    /// Its memory node, by position in the topology.
    pub node: u32,
    /// Index of the socket.
    pub socket: u32,
    /// Its CPU pool.
    pub pool: Pool,
    /// Its speed while no sibling thread is busy, in 1/1,000.
    pub speed: u32,
}

/// Properties of a vCPU that a policy may read.
#[derive(Debug, Clone)]
pub struct VcpuFacts {
    /// VM of the vCPU.
    pub vm: Vm,
    /// Its number inside the VM.
    pub index: u32,
    /// CPU pool of the vCPU.
    pub pool: Pool,
    /// Group of the vCPU's thread.
    pub group: Group,
    /// pCPUs where the vCPU may run.
    pub affinity: Bits,
    /// Preferred pCPUs within `affinity`; `None`: no preference.
    pub soft_affinity: Option<Bits>,
    /// Reservation for real-time policies.
    pub reservation: Option<Reservation>,
    /// For policies with several classes; `None` is the policy's default class.
    pub class: Option<SchedClass>,
}

/// Properties of a VM that a policy may read.
#[derive(Debug, Clone)]
pub struct VmFacts {
    /// Name of the VM.
    pub name: String,
    /// Its weight on the policy's scale.
    pub weight: Option<u32>,
    /// Its cap, in hundredths of a pCPU.
    pub cap_pct: Option<u32>,
    /// CPU pool of the VM.
    pub pool: Pool,
    /// Group of the VM.
    pub group: Group,
    /// Its first vCPU; the others follow.
    pub first: Vcpu,
    /// The number of its vCPUs.
    pub vcpus: u32,
    /// The node of its memory, by position in the topology.
    pub memory_node: Option<u32>,
    /// Its warp, for borrowed virtual time.
    pub warp: Option<Warp>,
    /// Whether the guest reports when its timers expire (VIT).
    pub vit: bool,
}

/// A group of the tree.
#[derive(Debug, Clone)]
pub struct GroupFacts {
    /// The group above; `None` for the root.
    pub parent: Option<Group>,
    /// Its weight among its siblings.
    pub weight: Option<u32>,
    /// Limit of the group.
    pub quota: Option<Quota>,
    /// A start of one of its quota periods; `None`: the policy's choice.
    pub quota_begins_ns: Option<u64>,
    /// Levels below the root.
    pub depth: u32,
}

const ROOT: GroupFacts =
    GroupFacts { parent: None, weight: None, quota: None, quota_begins_ns: None, depth: 0 };

/// A checked setup with dense numbers.
#[derive(Debug, Clone)]
pub struct Host {
    /// Places of the pCPUs.
    pub pcpus: Vec<Place>,
    /// The vCPUs.
    pub vcpus: Vec<VcpuFacts>,
    /// VMs of the host.
    pub vms: Vec<VmFacts>,
    /// The groups, parents first: the root, those of the setup, one per VM, one per vCPU with its own quota.
    pub groups: Vec<GroupFacts>,
    /// The pCPUs of each pool.
    pub pools: Vec<Bits>,
    /// The pCPUs of each socket.
    pub sockets: Vec<Bits>,
    /// The pCPUs of each node.
    pub nodes: Vec<Bits>,
    /// The pCPUs of each core.
    pub cores: Vec<Bits>,
    /// The pCPUs of each last-level cache.
    pub llcs: Vec<Bits>,
    /// Costs of switches and moves.
    pub costs: Costs,
}

fn bad(what: impl Into<String>, help: impl Into<String>) -> Fault {
    Fault::new(FaultKind::BadInput, what).help(help)
}

/// Gives every pCPU the number of the part that contains it. A pCPU in no part gets its own.
fn parts<'a>(cpus: &[u32], sets: impl Iterator<Item = &'a CpuSet>) -> (Vec<u32>, Vec<Bits>) {
    let sets: Vec<&CpuSet> = sets.collect();
    let mut bits: Vec<Bits> = Vec::new();
    let mut number = vec![u32::MAX; sets.len()];
    let of = cpus.iter().enumerate().map(|(i, cpu)| {
        // The last set that contains it, because caches are sorted by level.
        let set = sets.iter().rposition(|s| s.contains(*cpu));
        let fresh = bits.len() as u32;
        let part = match set {
            Some(s) if number[s] != u32::MAX => number[s],
            Some(s) => {
                number[s] = fresh;
                fresh
            }
            None => fresh,
        };
        if part == fresh {
            bits.push(Bits::new(cpus.len()));
        }
        bits[part as usize].insert(i);
        part
    });
    let of = of.collect();
    (of, bits)
}

/// Each pCPU's pool, and the pCPUs of each pool.
fn pools(setup: &Setup, cpus: &[u32]) -> Result<(Vec<Pool>, Vec<Bits>), Fault> {
    let usable = setup.topology.usable();
    let n = cpus.len();
    let whole = [usable.clone()];
    let sets: &[CpuSet] = if setup.pools.is_empty() { &whole } else { &setup.pools };
    let mut pool = vec![Pool(u32::MAX); n];
    for (k, set) in sets.iter().enumerate() {
        if set.is_empty() || !set.is_subset(&usable) {
            return Err(bad(
                format!(
                    "pools[{k}] has pCPUs {{{set}}}, which the host cannot all \
                use"
                ),
                format!("use pCPUs from {usable}"),
            ));
        }
        for (i, _) in cpus.iter().enumerate().filter(|(_, c)| set.contains(**c)) {
            if pool[i] != Pool(u32::MAX) {
                return Err(bad(
                    format!("pools[{k}]: pCPU {} is in two pools", cpus[i]),
                    "put each pCPU in one pool only",
                ));
            }
            pool[i] = Pool(k as u32);
        }
    }
    let pools = (0..sets.len()).map(|k| Bits::of(n, (0..n).filter(|i| pool[*i] == Pool(k as u32)))).collect();
    Ok((pool, pools))
}

impl Host {
    /// Checks `setup` and converts it.
    ///
    /// # Errors
    /// `BadInput` with the VM, the key and the allowed range.
    pub fn new(setup: &Setup) -> Result<Host, Fault> {
        let cpus: Vec<u32> = setup.topology.usable().iter().collect();
        if cpus.is_empty() {
            return Err(bad(
                "the host has no usable pCPU",
                "give it at least one pCPU that is online and allowed",
            ));
        }
        let n = cpus.len();
        let t = &setup.topology;
        let (core, cores) = parts(&cpus, t.cores().iter().map(|c| &c.cpus));
        let (socket, sockets) = parts(&cpus, t.packages().iter().map(|p| &p.cpus));
        let (node, nodes) = parts(&cpus, t.nodes().iter().map(|p| &p.cpus));
        let caches = t.caches().iter().filter(|c| c.kind != vsteer_core::topology::CacheKind::Instruction);
        let (llc, llcs) = parts(&cpus, caches.map(|c| &c.cpus));

        let (pool, pools) = pools(setup, &cpus)?;
        let pcpus: Vec<Place> = (0..n)
            .map(|i| Place {
                cpu: cpus[i],
                core: core[i],
                llc: llc[i],
                node: node[i],
                socket: socket[i],
                pool: pool[i],
                speed: {
                    let full = if setup.costs.capacity { speed_of(t, cpus[i]) } else { 1000 };
                    (full * setup.costs.speed / 1000).max(1)
                },
            })
            .collect();
        check_costs(&setup.costs)?;
        let mut host = Host {
            pcpus,
            vcpus: Vec::new(),
            vms: Vec::new(),
            groups: vec![ROOT],
            pools,
            sockets,
            nodes,
            cores,
            llcs,
            costs: setup.costs,
        };
        host.add_groups(setup)?;
        for vm in &setup.vms {
            host.add_vm(setup, vm)?;
        }
        Ok(host)
    }

    fn push_group(
        &mut self,
        parent: Group,
        weight: Option<u32>,
        quota: Option<Quota>,
        quota_begins_ns: Option<u64>,
    ) -> Group {
        let depth = self.groups[parent.i()].depth + 1;
        self.groups.push(GroupFacts { parent: Some(parent), weight, quota, quota_begins_ns, depth });
        Group(self.groups.len() as u32 - 1)
    }

    fn add_groups(&mut self, setup: &Setup) -> Result<(), Fault> {
        for (i, g) in setup.groups.iter().enumerate() {
            check_quota(&format!("group {:?}", g.name), g.quota)?;
            let parent = match g.parent {
                Some(p) if p >= i => {
                    return Err(bad(
                        format!("group {:?}: its parent, group {p}, is not listed before it", g.name),
                        "list the parent first",
                    ));
                }
                Some(p) => Group(p as u32 + 1),
                None => Group(0),
            };
            self.push_group(parent, g.weight, g.quota, None);
        }
        Ok(())
    }

    /// The node of a VM's memory, by position in the topology.
    fn memory_node(&self, setup: &Setup, vm: &VmSetup) -> Result<Option<u32>, Fault> {
        let Some(id) = vm.memory_node else { return Ok(None) };
        let on = |p: &Place| setup.topology.node_of(p.cpu).is_some_and(|n| n.id == id);
        let Some(place) = self.pcpus.iter().find(|p| on(p)) else {
            let what = format!("VM {:?}: its memory is on node {id}, which has no usable pCPU", vm.name);
            return Err(bad(what, "choose a node with usable pCPUs"));
        };
        Ok(Some(place.node))
    }

    /// Hard and soft affinity of a vCPU within its pool. The soft one is `None` if it has no effect.
    fn affinities(
        &self,
        whose: &str,
        v: &VcpuSetup,
        usable: &CpuSet,
        pool: &Bits,
    ) -> Result<(Bits, Option<Bits>), Fault> {
        let set = |cpus: &CpuSet| -> Result<Bits, Fault> {
            if let Some(missing) = cpus.difference(usable).iter().next() {
                return Err(bad(
                    format!("{whose}: its affinity contains pCPU {missing}, which the host cannot use"),
                    format!("use pCPUs from {usable}"),
                ));
            }
            let inside = |(_, p): &(usize, &Place)| cpus.contains(p.cpu);
            let mut bits =
                Bits::of(self.pcpus.len(), self.pcpus.iter().enumerate().filter(inside).map(|(i, _)| i));
            bits.keep(pool);
            Ok(bits)
        };
        let affinity = v.affinity.as_ref().map_or(Ok(pool.clone()), set)?;
        if affinity.is_empty() {
            return Err(bad(
                format!("{whose}: its affinity contains no pCPU of its pool"),
                "widen the \
                affinity or the pool",
            ));
        }
        // Soft affinity matters only if it is a proper, non-empty part of the hard one.
        let soft = v.soft_affinity.as_ref().map(set).transpose()?.map(|mut s| {
            s.keep(&affinity);
            s
        });
        let soft_affinity = soft.filter(|s| !s.is_empty() && !affinity.is_subset(s));
        Ok((affinity, soft_affinity))
    }

    fn add_vm(&mut self, setup: &Setup, vm: &VmSetup) -> Result<(), Fault> {
        let whose = format!("VM {:?}", vm.name);
        check_quota(&whose, vm.quota)?;
        if vm.vcpus.is_empty() {
            return Err(bad(format!("{whose} has no vCPU"), "give it at least one"));
        }
        let Some(pool) = self.pools.get(vm.pool).cloned() else {
            let last = self.pools.len() - 1;
            return Err(bad(
                format!("{whose}: pool {} does not exist", vm.pool),
                format!(
                    "choose a pool \
                from 0 to {last}"
                ),
            ));
        };
        if vm.group.is_some_and(|g| g >= setup.groups.len()) {
            return Err(bad(
                format!("{whose}: group {:?} does not exist", vm.group),
                "choose a group of the \
                setup",
            ));
        }
        let memory_node = self.memory_node(setup, vm)?;
        let above = Group(vm.group.map_or(0, |g| g as u32 + 1));
        let group = self.push_group(above, vm.weight, vm.quota, vm.quota_begins_ns);
        let (id, first) = (Vm(self.vms.len() as u32), Vcpu(self.vcpus.len() as u32));
        let mut subgroups: Vec<(u32, Group)> = Vec::new();
        let usable = setup.topology.usable();
        for (index, v) in vm.vcpus.iter().enumerate() {
            let whose = format!("{whose}, vCPU {index}");
            v.demand.check(&whose)?;
            check_quota(&whose, v.quota)?;
            if v.reservation.is_some_and(|r| r.budget_ns == 0 || r.budget_ns > r.period_ns) {
                return Err(bad(
                    format!("{whose}: the reserved budget is 0 or more than its period"),
                    "give \
                    a budget from 1 ns to the period",
                ));
            }
            let (affinity, soft_affinity) = self.affinities(&whose, v, &usable, &pool)?;
            let shared = subgroups.iter().find(|(n, _)| Some(*n) == v.subgroup).map(|(_, g)| *g);
            let own = match (shared, v.subgroup) {
                (Some(shared), _) => shared,
                (None, None) if v.quota.is_none() => group,
                (None, n) => {
                    let new = self.push_group(group, None, v.quota, v.quota_begins_ns);
                    subgroups.extend(n.map(|n| (n, new)));
                    new
                }
            };
            self.vcpus.push(VcpuFacts {
                vm: id,
                index: index as u32,
                pool: Pool(vm.pool as u32),
                group: own,
                affinity,
                soft_affinity,
                reservation: v.reservation,
                class: v.class,
            });
        }
        self.vms.push(VmFacts {
            name: vm.name.clone(),
            weight: vm.weight,
            cap_pct: vm.cap_pct,
            pool: Pool(vm.pool as u32),
            group,
            first,
            vcpus: vm.vcpus.len() as u32,
            memory_node,
            warp: vm.warp,
            vit: vm.vit,
        });
        Ok(())
    }

    /// The vCPUs of a pool.
    pub fn vcpus_of(&self, pool: Pool) -> impl Iterator<Item = Vcpu> + '_ {
        (0..self.vcpus.len() as u32).map(Vcpu).filter(move |v| self.vcpus[v.i()].pool == pool)
    }

    /// May `v` run on `p`?
    pub fn allows(&self, v: Vcpu, p: Pcpu) -> bool {
        self.vcpus[v.i()].affinity.contains(p.i())
    }
}

/// By the capacity of its core, as the kernel compares cores: 1,024 is the largest.
fn speed_of(topology: &Topology, cpu: u32) -> u32 {
    let core = topology.cores().iter().find(|core| core.cpus.contains(cpu));
    core.and_then(|core| core.capacity).map_or(1000, |capacity| (capacity * 1000 / 1024).clamp(1, 1000))
}

fn check_costs(costs: &Costs) -> Result<(), Fault> {
    const MOST_NS: u64 = 1_000_000_000;
    for (key, ns) in [
        ("switch_ns", costs.switch_ns),
        ("cold_core_ns", costs.cold_core_ns),
        ("cold_llc_ns", costs.cold_llc_ns),
    ] {
        if ns > MOST_NS {
            return Err(bad(format!("costs.{key} is {ns} ns"), format!("give at most {MOST_NS} ns")));
        }
    }
    for (key, speed) in [("remote_speed", costs.remote_speed), ("smt_speed", costs.smt_speed)] {
        if !(1..=1000).contains(&speed) {
            return Err(bad(format!("costs.{key} is {speed}"), "give 1 to 1000, where 1000 is full speed"));
        }
    }
    if !Costs::SPEEDS.contains(&costs.speed) {
        let (least, most) = Costs::SPEEDS.into_inner();
        let help = format!("give {least} to {most}, where 1000 is the speed for which CPU times are given");
        return Err(bad(format!("costs.speed is {}", costs.speed), help));
    }
    Ok(())
}

/// Bounds of the kernel: period from 1 ms to 1 s, quota from 1 ms (kernel/sched/core.c, tg_set_cfs_bandwidth, 6.12).
fn check_quota(whose: &str, quota: Option<Quota>) -> Result<(), Fault> {
    match quota {
        Some(q) if q.quota_us < 1000 => {
            Err(bad(format!("{whose}: the quota is {} us", q.quota_us), "give at least 1000 us"))
        }
        Some(q) if !(1000..=1_000_000).contains(&q.period_us) => {
            Err(bad(format!("{whose}: the quota period is {} us", q.period_us), "give 1000 to 1000000 us"))
        }
        _ => Ok(()),
    }
}
