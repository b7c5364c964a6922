//! Reads the configuration of a Xen host: pools and schedulers, domains with weights, caps and affinities,
//! processors.
//!
//! A domain is a VM. Domain-0 is one too, because it serves the I/O of the other domains and competes with
//! them. A vCPU has no thread, so vsteer makes a number for it in place of a thread id ([`tid`]).
//!
//! Source: as [`super::listing`].
//!
//! Left out: caches, which Xen's tools do not report. vsteer assumes that the pCPUs of a node share their
//! last-level cache.

use super::listing::{self, Domain, Info, Node, PoolShares, Seat, Share, Vcpu};
use super::tools::Place;
use std::collections::BTreeMap;
use vsteer_core::cpuset::MAX_CPU;
use vsteer_core::nouns::{
    CpuPool, CpuWeight, HostConfig, Limits, Manager, Quota, Reserved, Role, Tid, VmConfig, VmId, VmThread,
};
use vsteer_core::topology::{Cache, CacheKind, Core, NodeId, NumaNode, Package, Parts};
use vsteer_core::{CpuSet, Fault, FaultKind, Topology};

/// Prefix of the version, as in `Xen 4.17.7`. A Linux host has its kernel version there.
pub const XEN: &str = "Xen ";
/// A cap is a percentage of a pCPU. vsteer expresses it as a quota with this period, us.
pub(super) const CAP_PERIOD_US: u64 = 100_000;

/// What the tools print; a text is empty if it was not saved.
#[derive(Debug, Clone, Default)]
pub struct Texts {
    /// `xl info -n`.
    pub info: String,
    /// `xl list -v`.
    pub domains: String,
    /// `xl vcpu-list`.
    pub vcpus: String,
    /// `xl cpupool-list`.
    pub pools: String,
    /// `xl cpupool-list -c`.
    pub pools_with_cpus: String,
    /// `xl sched-credit` and `xl sched-credit2`, if there are pools with these schedulers.
    pub shares: String,
    /// `xl sched-rtds -v all`, if there is a pool with this scheduler (untried).
    pub reservations: String,
}

/// The host's settings, as Xen's tools print them.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The values of `xl info`.
    pub info: Info,
    /// The domains.
    pub domains: Vec<Domain>,
    /// Their vCPUs.
    pub vcpus: Vec<Vcpu>,
    /// The pools.
    pub pools: Vec<CpuPool>,
    /// Weights, caps and parameters, by pool.
    pub shares: BTreeMap<String, PoolShares>,
    reservations: BTreeMap<(u16, u32), Reserved>,
    seats: Vec<Seat>,
    nodes: Vec<Node>,
}

impl Listed {
    /// Asks the tools for everything.
    ///
    /// # Errors
    /// As [`Place::run`].
    pub fn ask(place: &Place) -> Result<Listed, Fault> {
        let xl = |words: &[&str]| place.run(&[&["xl"], words].concat());
        let (pools, with_cpus) = (xl(&["cpupool-list"])?, xl(&["cpupool-list", "-c"])?);
        let all = listing::pools(&pools, &with_cpus);
        let shares = shares(place, &all)?;
        let reserves = all.iter().any(|pool| pool.scheduler == "rtds");
        let reservations = if reserves { xl(&["sched-rtds", "-v", "all"])? } else { String::new() };
        Ok(Listed::of(&Texts {
            info: xl(&["info", "-n"])?,
            domains: xl(&["list", "-v"])?,
            vcpus: xl(&["vcpu-list"])?,
            pools,
            pools_with_cpus: with_cpus,
            shares,
            reservations,
        }))
    }

    /// Asks only for weights, caps and parameters, which is a sixth of the work. Returns `false` and changes
    /// nothing if domains came, went or changed their pool.
    ///
    /// # Errors
    /// As [`Place::run`].
    pub fn ask_shares(&mut self, place: &Place) -> Result<bool, Fault> {
        let now = listing::shares(&shares(place, &self.pools)?);
        let who = |all: &BTreeMap<String, PoolShares>| {
            let of = |(pool, s): (&String, &PoolShares)| (pool.clone(), s.shares.keys().copied().collect());
            all.iter().map(of).collect::<Vec<(String, Vec<u16>)>>()
        };
        let same = !now.is_empty() && who(&now) == who(&self.shares);
        if same {
            self.shares = now;
            self.tell_pools();
        }
        Ok(same)
    }

    /// Copies the parameters of each pool from the tables of its scheduler.
    fn tell_pools(&mut self) {
        for pool in &mut self.pools {
            let own = self.shares.get(&pool.name);
            pool.parameters = own.map(|s| s.parameters.clone()).unwrap_or_default();
        }
    }

    /// Parses the texts of the tools.
    pub fn of(texts: &Texts) -> Listed {
        let (seats, nodes) = listing::topology(&texts.info);
        let mut listed = Listed {
            info: listing::info(&texts.info),
            domains: listing::domains(&texts.domains),
            vcpus: listing::vcpus(&texts.vcpus),
            pools: listing::pools(&texts.pools, &texts.pools_with_cpus),
            shares: listing::shares(&texts.shares),
            reservations: listing::reservations(&texts.reservations),
            seats,
            nodes,
        };
        listed.tell_pools();
        listed
    }

    /// The frequency of the time stamp counters.
    ///
    /// # Errors
    /// `BadInput` if Xen does not report it.
    pub fn khz(&self) -> Result<u64, Fault> {
        let mhz = self.info.get("cpu_mhz").and_then(|mhz| mhz.parse::<f64>().ok());
        mhz.map(|mhz| (1000.0 * mhz).round() as u64).filter(|khz| *khz > 0).ok_or_else(|| {
            Fault::new(FaultKind::BadInput, "`xl info` does not report cpu_mhz")
                .help("check the output of `xl info`: vsteer converts the times of a trace with cpu_mhz")
        })
    }

    /// The domain's weight and cap, and its pool.
    pub(super) fn share(&self, domain: u16) -> (Option<Share>, Option<&CpuPool>) {
        let found = self.shares.iter().find_map(|(pool, s)| Some((pool, *s.shares.get(&domain)?)));
        let pool = found.and_then(|(name, _)| self.pools.iter().find(|p| p.name == *name));
        // With one pool, every domain is in it.
        let only = if self.pools.len() == 1 { self.pools.first() } else { None };
        (found.map(|(_, share)| share), pool.or(only))
    }

    /// The configuration.
    ///
    /// # Errors
    /// As [`Topology::new`].
    pub fn config(&self) -> Result<HostConfig, Fault> {
        let topology = topology(&self.seats, &self.nodes, &self.info)?;
        let mut vms: Vec<VmConfig> = self.domains.iter().map(|d| self.vm(d, &topology)).collect();
        vms.sort_by(|a, b| a.id.cmp(&b.id));
        let version = self.info.get("xen_version").map_or("?", String::as_str);
        Ok(HostConfig {
            vms,
            ..HostConfig::new(
                self.info.get("host").cloned().unwrap_or_default(),
                format!("{XEN}{version}"),
                topology,
            )
        })
    }

    fn vm(&self, d: &Domain, topology: &Topology) -> VmConfig {
        let (share, pool) = self.share(d.id);
        let cpus = pool.map_or_else(|| topology.usable(), |p| p.cpus.clone());
        let own = self.vcpus.iter().filter(|v| v.domain == d.id);
        let threads = own.map(|v| VmThread {
            tid: tid(d.id, v.index),
            role: Role::Vcpu(v.index),
            affinity: v.hard.as_ref().map_or_else(|| cpus.clone(), |hard| hard.intersection(&cpus)),
            class: None,
            cgroup: None,
            prefers: v.soft.clone(),
            reserved: self.reservations.get(&(d.id, v.index)).copied(),
        });
        let cap = share.map_or(0, |s| s.cap);
        VmConfig {
            manager: Manager::Xen,
            threads: threads.collect(),
            weight: share.map(|s| CpuWeight::Credit(s.weight.into())),
            limits: Limits {
                whole_vm: (cap > 0).then(|| Quota {
                    quota_us: u64::from(cap) * CAP_PERIOD_US / 100,
                    period_us: CAP_PERIOD_US,
                }),
                ..Limits::default()
            },
            memory_bytes: Some(d.memory_mib << 20),
            pool: pool.cloned(),
            vsphere: None,
            ..VmConfig::new(vm_id(d), d.name.clone(), d.id.into())
        }
    }
}

/// `xl sched-credit` and `xl sched-credit2`, if there are pools with these schedulers. Others have no
/// weights.
fn shares(place: &Place, pools: &[CpuPool]) -> Result<String, Fault> {
    let there = |scheduler: &&str| pools.iter().any(|p| p.scheduler == *scheduler);
    let tables =
        ["credit", "credit2"].iter().filter(|s| there(s)).map(|s| place.run(&["xl", &format!("sched-{s}")]));
    Ok(tables.collect::<Result<Vec<String>, Fault>>()?.concat())
}

/// The identity of a domain. Domain-0's UUID is zero on every host.
pub fn vm_id(d: &Domain) -> VmId {
    VmId(format!("xen:{}", d.uuid).into())
}

/// The number that replaces a thread id.
pub fn tid(domain: u16, vcpu: u32) -> Tid {
    Tid(u32::from(domain) << 16 | vcpu & 0xffff)
}

fn topology(seats: &[Seat], nodes: &[Node], info: &Info) -> Result<Topology, Fault> {
    let count = info.get("nr_cpus").and_then(|n| n.parse::<u32>().ok()).unwrap_or(0).min(MAX_CPU + 1);
    let all = if seats.is_empty() { CpuSet::first(count) } else { seats.iter().map(|s| s.cpu).collect() };
    let mut packages: BTreeMap<u32, CpuSet> = BTreeMap::new();
    let mut cores: BTreeMap<(u32, u32), CpuSet> = BTreeMap::new();
    let mut of_node: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for s in seats {
        packages.entry(s.socket).or_default().insert(s.cpu);
        cores.entry((s.socket, s.core)).or_default().insert(s.cpu);
        of_node.entry(s.node).or_default().insert(s.cpu);
    }
    let cache =
        |cpus: &CpuSet| Cache { level: 3, kind: CacheKind::Unified, size_bytes: None, cpus: cpus.clone() };
    let node = |n: &Node| NumaNode {
        id: NodeId(n.id),
        cpus: of_node.get(&n.id).cloned().unwrap_or_default(),
        nearest_cpus: CpuSet::new(),
        memory_bytes: Some(n.memory_mib << 20),
        distances: nodes.iter().zip(&n.distances).map(|(to, d)| (NodeId(to.id), *d)).collect(),
        initiators: Vec::new(),
        gpu: None,
        allowed: true,
        assumed: false,
    };
    Topology::new(Parts {
        present: all.clone(),
        online: all.clone(),
        allowed: all,
        memory_bytes: info.get("total_memory").and_then(|mib| mib.parse::<u64>().ok()).map(|mib| mib << 20),
        packages: packages
            .into_iter()
            .map(|(id, cpus)| Package { id: Some(id), cpus, assumed: false })
            .collect(),
        groups: Vec::new(),
        cores: cores
            .into_iter()
            .map(|((_, id), cpus)| Core { id: Some(id), cpus, ..Core::default() })
            .collect(),
        caches: of_node.values().map(cache).collect(),
        nodes: nodes.iter().map(node).collect(),
        oddities: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pcpu_beyond_all_bounds_is_left_out() {
        let info = "nr_cpus : 4294967295\ncpu: core socket node\n 9000: 0 0 0\n 1: 0 0 0\n";
        let config = Listed::of(&Texts { info: info.into(), ..Texts::default() }).config().unwrap();
        assert_eq!(config.topology.usable(), CpuSet::single(1));
        let info = "nr_cpus : 4294967295\n";
        let config = Listed::of(&Texts { info: info.into(), ..Texts::default() }).config().unwrap();
        assert_eq!(config.topology.usable().len(), MAX_CPU as usize + 1);
    }

    proptest! {
        #[test]
        fn no_table_makes_it_panic(rows in proptest::collection::vec((any::<u32>(), 0u64..9, 0u64..9, any::<u64>()), 0..9)) {
            let mut info = "cpu:    core    socket     node\n".to_owned();
            rows.iter().for_each(|(cpu, a, b, c)| info += &format!("  {cpu}: {a} {b} {c}\n"));
            info += "node:    memsize    memfree    distances\n   0:      1024        465      10,21\n";
            let _ = Listed::of(&Texts { info, ..Texts::default() }).config();
        }
    }
}
