//! Hosts drawn at random: what people run, and what they have set.

use vsteer_core::CpuSet;
use vsteer_core::nouns::Quota;
use vsteer_core::random::Random;
use vsteer_core::topology::{NodeId, Topology, hybrid, machine};
use vsteer_sim::guest::{Demand, Times};
use vsteer_sim::setup::{Costs, GroupSetup, Setup, VcpuSetup, VmSetup};

const MS: u64 = 1_000_000;
/// VMs are added until they want a part, drawn at random, of this many times the host's pCPUs; and at most this many VMs.
const WANT_MOST: f64 = 1.6;
const VMS_MOST: u64 = 60;
/// Speeds beside a busy sibling thread and on a remote node, in 1/1,000: [`Costs`] has the sources of the first; the second is
/// 1 / (1 + 0.5 m), where a remote access takes half as long again and a local one takes the part m of the time: a tenth, two
/// fifths, all.
const SPEEDS: [(u32, u32); 3] = [(600, 667), (650, 833), (750, 950)];

/// A host, its VMs, and what sharing costs there.
pub fn host(seed: u64) -> Setup {
    let mut r = Random::new(seed, 1);
    let nodes = [1, 1, 2, 4][r.within(0, 3) as usize];
    let cores = r.within(2, 6) as u32;
    let threads = r.within(1, 2) as u32;
    let is_hybrid = nodes == 1 && r.unit() < 0.2;
    let topology =
        if is_hybrid { hybrid(cores, r.within(2, 6) as u32) } else { machine(1, nodes, cores, threads) };
    filled(r, topology.expect("it is valid"), seed)
}

/// VMs on a machine that is given, and what sharing costs there.
pub fn host_on(topology: Topology, seed: u64) -> Setup {
    filled(Random::new(seed, 1), topology, seed)
}

fn filled(mut r: Random, topology: Topology, seed: u64) -> Setup {
    let (smt_speed, remote_speed) = SPEEDS[r.within(0, 2) as usize];
    let costs = Costs {
        switch_ns: 2_000,
        cold_core_ns: 5_000,
        cold_llc_ns: 20_000,
        smt_speed,
        remote_speed,
        capacity: true,
        ..Costs::default()
    };
    let pcpus = topology.usable().len() as u32;
    let want_most = WANT_MOST * r.unit() * f64::from(pcpus);
    let (mut vms, mut want) = (Vec::new(), 0.0);
    let groups = slices(&mut r, pcpus);
    while vms.is_empty() || (want < want_most && (vms.len() as u64) < VMS_MOST) {
        let (vm, more) = vm(&mut r, vms.len(), &topology, groups.len());
        want += more;
        vms.push(vm);
    }
    Setup { groups, costs, ..Setup::new(topology, vms, seed) }
}

/// The same under Xen's Credit: no groups, caps instead of quotas, and weights that count from 256.
pub fn xen_host(seed: u64) -> Setup {
    let mut setup = host(seed);
    setup.groups.clear();
    for vm in &mut setup.vms {
        vm.group = None;
        vm.weight = vm.weight.map(|weight| weight / 4);
        vm.cap_pct = vm.quota.take().map(|q| (100 * q.quota_us / q.period_us).max(1) as u32);
    }
    setup
}

/// A slice for all machines and one in it, or none; each may have a quota.
fn slices(r: &mut Random, pcpus: u32) -> Vec<GroupSetup> {
    let levels = [0, 0, 1, 2][r.within(0, 3) as usize];
    let of = |r: &mut Random, level: usize| GroupSetup {
        name: format!("slice{level}"),
        parent: level.checked_sub(1),
        weight: None,
        quota: (r.unit() < 0.3).then(|| quota(f64::from(pcpus) * (0.3 + 0.7 * r.unit()))),
    };
    (0..levels).map(|level| of(r, level)).collect()
}

fn quota(pcpus: f64) -> Quota {
    Quota { quota_us: ((pcpus * 100_000.0) as u64).max(5_000), period_us: 100_000 }
}

/// A VM, and how many pCPUs it wants.
fn vm(r: &mut Random, number: usize, topology: &Topology, groups: usize) -> (VmSetup, f64) {
    let pcpus = topology.usable().len() as u64;
    let vcpus = [1, 1, 2, 2, 4, 8, 16][r.within(0, 6) as usize].min(pcpus) as usize;
    let (name, demand, each) = demand(r);
    let mut all = vec![VcpuSetup::new(demand); vcpus];
    let usable = topology.usable();
    let nodes: Vec<_> = topology.nodes().iter().filter(|n| n.cpus.intersects(&usable)).collect();
    let node = r.within(0, nodes.len() as u64 - 1) as usize;
    let pin = match r.unit() {
        u if u < 0.12 => Some(nodes[node].cpus.intersection(&usable)),
        u if u < 0.2 => Some(some(r, topology, vcpus)),
        _ => None,
    };
    if let Some(cpus) = &pin {
        all.iter_mut().for_each(|v| v.affinity = Some(cpus.clone()));
    }
    let mut vm = VmSetup::new(format!("{name}{number}"), all);
    vm.memory_node = (nodes.len() > 1 && r.unit() < 0.6).then_some(NodeId(nodes[node].id.0));
    vm.weight = (r.unit() < 0.3).then(|| [256, 512, 2048, 8192][r.within(0, 3) as usize]);
    vm.quota = (r.unit() < 0.12).then(|| quota(each * vcpus as f64 * (0.5 + r.unit())));
    vm.group = groups.checked_sub(1).filter(|_| r.unit() < 0.7);
    (vm, each * vcpus as f64)
}

/// Some pCPUs, at times fewer than vCPUs.
fn some(r: &mut Random, topology: &Topology, vcpus: usize) -> CpuSet {
    let all: Vec<u32> = topology.usable().iter().collect();
    let n = r.within(1, (vcpus as u64 * 2).min(all.len() as u64)) as usize;
    let first = r.within(0, (all.len() - n) as u64) as usize;
    all[first..first + n].iter().copied().collect()
}

/// What every vCPU of a VM does, in a word, and how many pCPUs it wants.
fn demand(r: &mut Random) -> (&'static str, Demand, f64) {
    let share = |r: &mut Random, most: f64| 0.02 + (most - 0.02) * r.unit();
    match r.within(0, 4) {
        0 => ("hog", Demand::Hog, 1.0),
        1 => {
            let (period, part) = (r.within(1, 20) * MS, share(r, 0.3));
            let work = Times::Fixed((period as f64 * part) as u64);
            ("timer", Demand::Periodic { period_ns: period, offset_ns: None, work }, part)
        }
        2 => {
            let (service, part) = (r.within(50_000, 4 * MS), share(r, 0.5));
            let between = Times::Exponential((service as f64 / part) as u64);
            ("server", Demand::Server { between, service: Times::Exponential(service) }, part)
        }
        3 => {
            let (compute, part) = (r.within(100_000, 8 * MS), share(r, 0.6));
            let sleep = Times::Exponential((compute as f64 * (1.0 - part) / part) as u64);
            ("desk", Demand::SleepCompute { sleep, compute: Times::Exponential(compute) }, part)
        }
        _ => {
            // All vCPUs of such a VM want a pCPU at the same moments.
            let (period, part) = (r.within(10, 50) * MS, share(r, 0.6));
            let work = Times::Fixed((period as f64 * part) as u64);
            ("team", Demand::Periodic { period_ns: period, offset_ns: Some(0), work }, part)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::topology::CoreKind;

    #[test]
    fn hosts_are_valid_and_of_many_kinds() {
        let hosts: Vec<Setup> = (0..200).map(host).collect();
        for setup in &hosts {
            vsteer_sim::setup::Host::new(setup).unwrap();
        }
        let count = |is: fn(&Setup) -> bool| hosts.iter().filter(|s| is(s)).count();
        assert!(count(|s| s.topology.nodes().len() > 1) > 50);
        assert!(count(|s| s.topology.cores().iter().any(|c| c.cpus.len() > 1)) > 50);
        assert!(count(|s| s.topology.cores().iter().any(|c| c.kind == Some(CoreKind::Efficiency))) > 10);
        assert!(count(|s| s.vms.iter().any(|vm| vm.quota.is_some())) > 30);
        assert!(count(|s| s.groups.iter().any(|g| g.quota.is_some())) > 20);
        assert!(count(|s| s.vms.iter().any(|vm| vm.vcpus[0].affinity.is_some())) > 50);
    }
}
