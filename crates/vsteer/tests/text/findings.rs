//! One finding of every rule, on small hosts made for it. How a finding is laid out: see the snapshot `diagnose`.

#[path = "../../../vsteer-core/tests/common/mod.rs"]
mod common;

use common::{Host, words};
use std::collections::BTreeMap;
use std::fmt::Write;
use vsteer_core::diagnose::RULES;
use vsteer_core::model::{Blame, Quantiles, RanOn};
use vsteer_core::nouns::*;
use vsteer_core::{CpuSet, topology};

/// Hosts of two pCPUs whose VMs wait for each other, for host threads, for a quota, or for nothing.
fn linux_hosts() -> Vec<Host> {
    let late = Some(Quantiles { count: 500, p50_ns: 2e6, p95_ns: 4e6, p99_ns: 8e6, max_ns: 9e6 });
    let blame = |culprit, share| Blame { victim: VmId("web".into()), culprit, share };
    let one = |run: f64, ready: f64| {
        let mut h = Host::new(2, 1, 1.0);
        h.vm("web", 1, run, ready, 100.0);
        h
    };

    let mut full = one(0.4, 0.3);
    full.vm("batch", 2, 0.8, 0.02, 0.0);
    full.config.vms[0].weight = Some(CpuWeight::Shares(512));
    full.model.blame = Some(vec![
        blame(Culprit::Vm(VmId("batch".into())), 0.15),
        blame(Culprit::process("backup", 7), 0.15),
    ]);
    full.model.missing = [("lag_ns", "not measured by polling")].map(|(k, v)| (k.into(), v.into())).into();

    let mut held = one(0.5, 0.0);
    held.model.vms[0].group.limited = Some(0.07);
    held.model.vms[0].vcpus.limited = Some(0.06);
    held.model.vms[0].throttled_per_s = Some(3.0);
    held.config.vms[0].limits.whole_vm = Some(Quota { quota_us: 50_000, period_us: 100_000 });

    let mut pinned = Host::new(4, 1, 1.0);
    pinned.vm("web", 2, 0.4, 0.3, 0.0).pin("web", "0-1");
    pinned.model.pcpus[2].busy = 0.2;
    pinned.model.pcpus[3].busy = 0.2;

    let mut device = one(0.1, 0.0);
    device.model.vms[0].threads[1].shares.ready = Some(0.06);
    device.model.vms[0].threads[1].wake_latency = late;

    let mut idle = one(0.1, 0.2);
    let group = GroupScheduling { cgroup: "/m".into(), shared: true, idle: true, ..Default::default() };
    idle.config.vms[0].scheduling = vec![group];

    let mut budget = one(0.2, 0.0);
    budget.model.vms[0].threads[0].shares.limited = Some(0.7);
    budget.config.vms[0].threads[0].class = Some(SchedClass::Fifo(1));

    let mut stolen = one(0.5, 0.0);
    stolen.model.pcpus[0].steal = Some(0.06);
    let mut interrupted = one(0.5, 0.0);
    interrupted.model.vms[0].vcpus.overlap = Some(0.06);

    let mut stalled = one(0.2, 0.0);
    let pressure = &mut stalled.model.vms[0].pressure;
    (pressure.io_full, pressure.memory_full) = (Some(0.3), Some(0.1));

    let mut timers = one(0.3, 0.2);
    let vm = &mut timers.model.vms[0];
    (vm.timers_per_s, vm.timers_late, vm.timers_refused) = (Some(200.0), Some(0.05), Some(0.03));

    let mut wide = Host::new(4, 1, 0.5);
    wide.vm("web", 4, 0.1, 0.0, 0.0);
    wide.model.vms[0].vcpus.lag = Some(0.05);

    let mut well = Host::new(2, 1, 0.25);
    well.vm("web", 1, 0.6, 0.01, 0.0);
    let mut unknown = Host::new(4, 1, 0.3);
    unknown.vm("web", 2, 0.3, 0.2, 0.0);

    let mut locked_up = Host::new(4, 1, 0.3);
    locked_up.vm("web", 2, 0.3, 0.0, 0.0);
    locked_up.model.vms[0].threads[0].ready_spell =
        Some(Quantiles { count: 9, p50_ns: 1e5, p95_ns: 1e5, p99_ns: 2.5e10, max_ns: 2.5e10 });

    let mut siblings = Host::new(4, 1, 0.1);
    siblings.config.topology = topology::machine(1, 1, 2, 2).unwrap();
    siblings.vm("web", 1, 0.8, 0.0, 0.0).vm("db", 1, 0.8, 0.0, 0.0).pin("web", "0").pin("db", "1");
    siblings.model.pcpus[..2].iter_mut().for_each(|p| p.busy = 0.8);

    let mut isolated = Host::new(4, 1, 0.1);
    isolated.vm("web", 2, 0.5, 0.5, 0.0).pin("web", "2-3");
    isolated.model.pcpus[2].busy = 1.0;
    isolated.config.scheduler =
        Some(FairTuning { isolated: "2-3".parse().unwrap(), ..FairTuning::default() });

    vec![
        full,
        held,
        pinned,
        device,
        idle,
        budget,
        stolen,
        interrupted,
        stalled,
        timers,
        wide,
        unknown,
        locked_up,
        siblings,
        isolated,
        well,
    ]
}

/// Hosts with several NUMA nodes.
fn numa_hosts() -> Vec<Host> {
    let mut remote = Host::new(4, 2, 0.5);
    remote.vm("web", 2, 0.3, 0.0, 10.0);
    remote.model.vms[0].memory_local = Some(0.4);

    let mut homeless = Host::new(6, 3, 0.5);
    homeless.vm("web", 2, 0.3, 0.0, 0.0);
    homeless.config.vms[0].manager = Manager::Xen;
    homeless.config.topology = topology::machine(3, 1, 2, 1).unwrap();

    let esxi = |homes: Option<u32>| {
        let mut h = Host::new(8, 2, 0.0);
        h.config.topology = topology::machine(2, 1, 4, 1).unwrap();
        h.vm("web", 4, 0.4, 0.2, 0.0).vm("db", 4, 0.35, 0.2, 0.0);
        for vm in &mut h.config.vms {
            vm.manager = Manager::Vsphere("vm-1".into());
            vm.vsphere = Some(VsphereVm { home_nodes: homes.map(CpuSet::single), ..VsphereVm::default() });
        }
        h.model.pcpus.iter_mut().take(4).for_each(|p| p.busy = 0.8);
        h
    };
    let mut contested = Host::new(4, 2, 0.5);
    contested.vm("web", 2, 0.3, 0.0, 0.0).pin("web", "0,2");
    contested.config.contenders = vec![Contender::Numad];
    vec![remote, homeless, esxi(Some(0)), esxi(None), contested]
}

/// Xen hosts with the Credit scheduler.
fn xen_hosts() -> Vec<Host> {
    let credit = |mut h: Host, weights: [u64; 2]| {
        let cpus = CpuSet::first(h.model.pcpus.len() as u32);
        for (vm, weight) in h.config.vms.iter_mut().zip(weights) {
            (vm.manager, vm.weight) = (Manager::Xen, Some(CpuWeight::Credit(weight)));
            let (name, scheduler) = ("Pool-0".into(), "credit".into());
            vm.pool = Some(CpuPool { name, scheduler, cpus: cpus.clone(), parameters: BTreeMap::new() });
        }
        h
    };
    let mut boosted = Host::new(1, 1, 1.0);
    boosted.vm("batch", 1, 0.6, 0.4, 0.0).vm("web", 1, 0.4, 0.01, 250.0);
    boosted.model.vms[0].threads[0].preemptions_per_s = Some(250.0);
    let (victim, culprit) = (VmId("batch".into()), Culprit::Vm(VmId("web".into())));
    boosted.model.blame = Some(vec![Blame { victim, culprit, share: 0.4 }]);

    let mut dead = Host::new(2, 1, 0.5);
    dead.vm("batch", 1, 0.3, 0.2, 0.0).pin("batch", "1").vm("web", 1, 0.5, 0.2, 0.0).pin("web", "1");

    let mut driver = Host::new(2, 1, 0.5);
    driver.vm("Domain-0", 1, 0.1, 0.06, 200.0);
    driver.config.vms[0].pid = 0;
    let hosts = vec![credit(boosted, [256, 256]), credit(dead, [256, 768]), credit(driver, [256, 256])];
    let mut hosts: Vec<Host> =
        hosts.into_iter().chain(preferring_hosts().map(|h| credit(h, [256, 256]))).collect();
    let last = hosts.last_mut().and_then(|h| h.config.vms[0].pool.as_mut()).unwrap();
    last.scheduler = "rtds".into();
    hosts
}

/// Xen hosts whose domain prefers node 0: its pCPUs are full, or have room, or it may not run there, or the scheduler does not
/// look.
fn preferring_hosts() -> [Host; 4] {
    let host = |busy: f64| {
        let mut h = Host::new(4, 2, busy);
        h.config.topology = topology::machine(2, 1, 2, 1).unwrap();
        h.vm("web", 2, 0.4, 0.0, 0.0);
        h.config.vms[0].threads.iter_mut().for_each(|t| t.prefers = Some(CpuSet::first(2)));
        for t in &mut h.model.vms[0].threads {
            t.ran_on = vec![RanOn { cpu: 1, samples: 5, run: 0.24 }, RanOn { cpu: 2, samples: 3, run: 0.16 }];
        }
        h
    };
    let mut void = host(0.5);
    void.pin("web", "2-3");
    let mut near = host(0.95);
    near.model.vms[0].memory_by_node = Some(vec![(0, 1 << 30), (1, 0)]);
    [near, host(0.5), void, host(0.5)]
}

#[test]
fn one_of_every_rule() {
    let hosts = [linux_hosts(), numa_hosts(), xen_hosts()].concat();
    let all: Vec<_> = hosts.iter().flat_map(Host::findings).collect();
    let mut out = String::new();
    for rule in RULES {
        let mut found: Vec<_> = all.iter().filter(|f| f.rule == rule.name).collect();
        assert!(!found.is_empty(), "no host here has a finding of {}", rule.name);
        // Two texts of one rule that differ only in their numbers or VMs need one reading.
        found.dedup_by(|a, b| a.disproved_by == b.disproved_by && a.next == b.next);
        writeln!(out, "== {}\n", rule.name).unwrap();
        for f in found {
            writeln!(out, "{}\n\n{}", f.title, f.explanation).unwrap();
            for e in words(&f.evidence) {
                let (quantity, value) = e.rsplit_once(": ").unwrap();
                writeln!(out, "  {quantity:<70}  {value}").unwrap();
            }
            writeln!(out, "next: {}\ndisproved if: {}\n", f.next, f.disproved_by).unwrap();
        }
    }
    insta::assert_snapshot!("every_finding", out);
}
