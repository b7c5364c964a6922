//! Plans that would hurt, and what every default plan keeps: a pCPU per vCPU, the node of the memory, the fast cores, quotas.

mod common;

use common::{Host, topology};
use std::collections::BTreeMap;
use vsteer_core::CpuSet;
use vsteer_core::nouns::*;
use vsteer_core::plan::Plan;
use vsteer_core::random::Random;
use vsteer_core::setting::{self, Change};
use vsteer_core::topology::hybrid;

/// Where the plan leaves each VM's vCPUs.
fn placed(h: &Host, plan: &Plan) -> BTreeMap<String, CpuSet> {
    let mut all = BTreeMap::new();
    for vm in &h.config.vms {
        let of = |t: &VmThread| {
            let moved = plan.steps.iter().find_map(|s| match &s.change {
                Change::Affinity(setting::Affinity { tid, to, .. }) if *tid == t.tid => Some(to.clone()),
                _ => None,
            });
            moved.unwrap_or_else(|| t.affinity.clone())
        };
        all.insert(vm.name.clone(), vm.vcpus().fold(CpuSet::new(), |all, t| all.union(&of(t))));
    }
    all
}

#[test]
fn on_cores_of_different_speed_nobody_is_moved_to_slow_ones() {
    let mut h = Host::new(24, 1, 0.95);
    h.config.topology = hybrid(8, 8).unwrap();
    (0..12).for_each(|i| _ = h.vm(&format!("burn-{i}"), 2, 0.85, 0.15, 0.0));
    h.vm("db", 2, 0.20, 0.20, 1000.0);
    let why = h.proposed("separate").unwrap_err();
    assert!(why.contains("differ in speed"), "{why}");
}

#[test]
fn a_vm_keeps_to_the_node_of_its_memory() {
    let near: CpuSet = "0-7".parse().unwrap();
    for bound in [true, false] {
        let mut h = Host::new(16, 2, 0.95);
        (0..4).for_each(|i| _ = h.vm(&format!("burn-{i}"), 2, 0.85, 0.15, 0.0));
        h.vm("db", 2, 0.20, 0.20, 1000.0);
        if bound {
            h.config.vms.last_mut().unwrap().memory_nodes = Some(CpuSet::single(0));
        } else {
            h.model.vms.last_mut().unwrap().memory_by_node = Some(vec![(0, 4 << 30), (1, 0)]);
        }
        let steps = h.proposed("separate").unwrap();
        let to = |s: &setting::Step| match &s.change {
            Change::Affinity(setting::Affinity { to, .. }) if s.vm_name == "db" => Some(to.clone()),
            _ => None,
        };
        let own: Vec<CpuSet> = steps.iter().filter_map(to).collect();
        assert!(!own.is_empty() && own.iter().all(|cpus| cpus.is_subset(&near)), "{own:?}");
    }
    // A pin onto one node is not widened to the other, where the memory is not.
    let mut h = Host::new(16, 2, 0.10);
    h.model.pcpus[..8].iter_mut().for_each(|p| p.busy = 0.98);
    for i in 0..4 {
        h.vm(&format!("burn-{i}"), 2, 0.90, 0.10, 0.0).pin(&format!("burn-{i}"), "0-7");
    }
    assert!(h.proposed("unpin").is_err());
    h.config.vms.iter_mut().for_each(|vm| vm.memory_nodes = None);
    // The kernel moves pages after a VM only if kernel.numa_balancing is set.
    for (balances, refused) in [(None, true), (Some(false), true), (Some(true), false)] {
        h.config.scheduler = Some(FairTuning { numa_balancing: balances, ..FairTuning::default() });
        let stays = h.plan().alternatives.iter().any(|a| a.why_not.contains("kernel.numa_balancing"));
        assert_eq!(stays, refused, "{balances:?}");
    }
}

#[test]
fn a_real_time_class_does_not_free_a_vm_from_its_quota_and_needs_budgets_or_a_word() {
    let mut h = common::contended();
    h.config.cgroups = CgroupLayout::V2;
    for vm in &mut h.config.vms {
        vm.rt_budgets.clear();
        vm.weight = Some(CpuWeight::Weight(100));
    }
    let default = h.plan();
    assert!(!default.steps.iter().any(|s| matches!(s.change, Change::Class(_))), "{}", default.title);
    assert!(
        default.alternatives.iter().any(|a| a.why_not.contains("no real-time budgets")),
        "{:?}",
        default.alternatives
    );
    assert!(h.proposed("realtime").is_ok(), "asked for by name");
    h.config.vms.iter_mut().find(|vm| vm.name == "tick-a").unwrap().limits.whole_vm =
        Some(Quota { quota_us: 20_000, period_us: 100_000 });
    let why = h.proposed("realtime").unwrap_err();
    assert!(why.contains("\"tick-a\" has a CPU quota"), "{why}");
}

#[test]
fn nobody_gets_fewer_pcpus_than_vcpus() {
    let mut h = Host::new(16, 1, 0.70);
    (0..12).for_each(|i| _ = h.vm(&format!("burn-{i}"), 1, 0.85, 0.10, 5.0));
    h.vm("db", 8, 0.06, 0.05, 10.0);
    let plan = h.plan();
    assert!(placed(&h, &plan)["db"].len() >= 8, "{}", plan.title);
    if let Ok(steps) = h.proposed("separate") {
        let asked = Plan { steps, ..plan };
        assert!(placed(&h, &asked)["db"].len() >= 8);
    }
}

#[test]
fn a_guests_threads_and_room_for_more_vcpus_are_kept() {
    let mut h = Host::new(8, 1, 0.2);
    h.config.topology = vsteer_core::topology::machine(1, 1, 8, 1).unwrap();
    h.vm("smt", 8, 0.2, 0.0, 0.0).vm("plugged", 4, 0.2, 0.0, 0.0).vm("wide", 16, 0.2, 0.0, 0.0);
    let of = |sockets, cores, threads| Some(GuestTopology { sockets, cores, threads });
    h.config.vms[0].guest_topology = of(1, 4, 2);
    h.config.vms[1].guest_topology = of(8, 1, 1);
    h.config.vms[2].guest_topology = of(16, 1, 1);
    assert_eq!(
        h.told("topology").unwrap().len(),
        1,
        "threads stay, and 16 vCPUs fit no node of 8 cores: {:?}",
        h.told("topology")
    );
    let Change::Topology(setting::Topology { to, .. }) = &h.proposed("topology").unwrap()[0].change else {
        panic!()
    };
    assert_eq!((to.sockets, to.cores), (1, 8), "four more can be plugged in");
}

/// A host drawn at random.
fn drawn(seed: u64) -> Host {
    let mut r = Random::new(seed, 7);
    let nodes = 1 << r.within(0, 3);
    let pcpus = nodes * r.within(2, 8) as u32;
    let mut h = Host::new(pcpus, nodes, 0.0);
    h.config.topology = topology(pcpus, nodes);
    for i in 0..r.within(1, 12) {
        let name = format!("vm{i}");
        let vcpus = r.within(1, 4.min(u64::from(pcpus))) as u32;
        let sleeps = r.unit() < 0.5;
        let (run, ready) = if sleeps { (0.3 * r.unit(), 0.3 * r.unit()) } else { (0.5, 0.45 * r.unit()) };
        h.vm(&name, vcpus, run, ready, if sleeps { 300.0 } else { 0.0 });
        let node = r.within(0, u64::from(nodes) - 1) as u32;
        if r.unit() < 0.3 {
            let cpus = h.config.topology.nodes()[node as usize].cpus.to_string();
            h.pin(&name, &cpus);
        }
        let vm = h.config.vms.last_mut().unwrap();
        if r.unit() < 0.3 {
            vm.memory_nodes = Some(CpuSet::single(node));
        }
        if r.unit() < 0.2 {
            vm.limits.whole_vm = Some(Quota { quota_us: 50_000, period_us: 100_000 });
        }
    }
    h.model.pcpus.iter_mut().for_each(|p| p.busy = r.unit());
    h
}

#[test]
fn default_plans_keep_a_pcpu_per_vcpu_and_the_memorys_node() {
    let mut changed = 0;
    for seed in 0..2_000 {
        let h = drawn(seed);
        let plan = h.plan();
        changed += u32::from(!plan.steps.is_empty());
        for (name, cpus) in placed(&h, &plan) {
            let vm = h.config.vms.iter().find(|vm| vm.name == name).unwrap();
            let before = vm.vcpus().fold(CpuSet::new(), |all, t| all.union(&t.affinity));
            let least = vm.vcpu_count().min(before.len());
            assert!(cpus.len() >= least, "seed {seed}: {} of {name} on pCPUs {cpus}", vm.vcpu_count());
            let moves =
                plan.steps.iter().any(|s| s.vm == vm.id && matches!(s.change, Change::MemoryNodes(_)));
            if let Some(homes) = vm.memory_nodes.as_ref().filter(|_| !moves) {
                let nodes = h.config.topology.nodes();
                let near = nodes
                    .iter()
                    .filter(|n| homes.contains(n.id.0))
                    .fold(CpuSet::new(), |all, n| all.union(&n.cpus));
                assert!(
                    !before.intersects(&near) || cpus.intersects(&near),
                    "seed {seed}: {name} on pCPUs {cpus}"
                );
            }
            let has_quota = vm.limits.whole_vm.is_some();
            let raised = plan.steps.iter().any(|s| s.vm == vm.id && matches!(s.change, Change::Class(_)));
            assert!(!(has_quota && raised), "seed {seed}: {name} leaves its quota");
        }
    }
    println!("{changed} of 2,000 plans change something");
    assert!(changed > 100, "{changed}");
}
