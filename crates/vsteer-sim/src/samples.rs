//! Converts a simulation to the configuration and samples that an observer of a real host would record.
//!
//! So `top`, `diagnose`, `report` and `verify` read a simulation like a machine, with the same formulas. Left
//! out, and listed in [`collector`]: interrupts, exits and halt polling, which the simulator does not have.

use super::account::Account;
use super::ids::vm_id;
use super::sched::Simulation;
use super::setup::{Pcpu, Setup, Vcpu, VcpuFacts};
use crate::state::State;
use vsteer_core::nouns::{
    Batch, BlameSample, Collector, CpuWeight, GroupQuota, HostConfig, Limits, Manager, PcpuSample, Quota,
    Role, ThreadCounters, ThreadSample, Tid, VmConfig, VmSample, VmThread,
};

use vsteer_core::CpuSet;
pub use vsteer_core::nouns::SIMULATED;

/// The process number of a simulated VM; the numbers of its threads follow.
fn pid(setup: &Setup, vm: usize) -> u32 {
    let before: usize = setup.vms[..vm].iter().map(|vm| vm.vcpus.len() + 1).sum();
    1000 + before as u32
}

/// The thread number of a vCPU.
pub fn tid(setup: &Setup, vcpu: &VcpuFacts) -> Tid {
    Tid(pid(setup, vcpu.vm.i()) + 1 + vcpu.index)
}

/// The host's configuration, as a plan or a report needs it. `default_weight` is the policy's: weights are
/// relative to it.
pub fn config(setup: &Setup, policy: &str, default_weight: u32) -> HostConfig {
    let usable = setup.topology.usable();
    // Memory that is equally far from all nodes lies on all of them.
    let every_node: CpuSet = setup.topology.nodes().iter().map(|n| n.id.0).collect();
    let vms = setup.vms.iter().enumerate().map(|(i, vm)| {
        let pid = pid(setup, i);
        let pool = setup.pools.get(vm.pool).unwrap_or(&usable);
        let threads = vm.vcpus.iter().enumerate().map(|(k, v)| VmThread {
            tid: Tid(pid + 1 + k as u32),
            role: Role::Vcpu(k as u32),
            affinity: v.affinity.as_ref().unwrap_or(&usable).intersection(pool),
            class: v.class,
            cgroup: None,
            prefers: None,
            reserved: None,
        });
        let cap = vm.cap_pct.map(|pct| Quota { quota_us: u64::from(pct) * 1000, period_us: 100_000 });
        let relative = |w: u32| f64::from(w) / f64::from(default_weight.max(1));
        VmConfig {
            id: vm_id(i),
            name: vm.name.clone(),
            labels: Default::default(),
            manager: Manager::Bare,
            accel: None,
            pid,
            threads: threads.collect(),
            // Every simulated VM has a weight, so that plans can change it.
            weight: Some(CpuWeight::Weight(100).with_relative(vm.weight.map_or(1.0, relative))),
            limits: Limits {
                per_vcpu: vm.vcpus.first().and_then(|v| v.quota),
                emulator: None,
                whole_vm: vm.quota.or(cap),
            },
            quotas: quotas_above(setup, vm.group),
            scheduling: Vec::new(),
            core_cookies: None,
            cgroup: vm.group.map(|g| format!("{}/{}", path(setup, g), vm.name)),
            rt_budgets: Vec::new(),
            guest_topology: None,
            memory_bytes: None,
            memory_nodes: (setup.topology.nodes().len() > 1)
                .then(|| vm.memory_node.map_or_else(|| every_node.clone(), |n| CpuSet::single(n.0))),
            guest_nodes: Vec::new(),
            fixed: Vec::new(),
            pool: None,
            vsphere: None,
        }
    });
    HostConfig {
        vms: vms.collect(),
        ..HostConfig::new("simulated", format!("{}{policy}", SIMULATED), setup.topology.clone())
    }
}

/// The path of a group, as the kernel has it.
fn path(setup: &Setup, group: usize) -> String {
    let above = setup.groups[group].parent.map_or_else(String::new, |parent| path(setup, parent));
    format!("{above}/{}", setup.groups[group].name)
}

/// The quotas of a group and of those above it, parents first.
fn quotas_above(setup: &Setup, group: Option<usize>) -> Vec<GroupQuota> {
    let mut all = Vec::new();
    let mut next = group;
    while let Some(g) = next {
        let of = &setup.groups[g];
        all.extend(of.quota.map(|quota| GroupQuota { cgroup: path(setup, g), quota, shared: true }));
        next = of.parent;
    }
    all.reverse();
    all
}

/// Describes what the simulator measures, and what it does not model. `blamed`: was there a
/// [`Blame`](super::blame::Blame) watch?
pub fn collector(blamed: bool) -> Collector {
    let measured = counters(Account::default());
    let collector = Collector::new("simulator", |c| measured.holds(c), "the simulator does not model it")
        .without(&["overlap_ns"], "interrupts take no time in the simulator")
        .without(&["exit_ns"], "the simulator does not model VM exits")
        .without(&["halt_poll_ns"], "the simulator does not model halt polling");
    if blamed {
        return collector;
    }
    collector.without(&["blame"], "this simulation did not record which vCPU ran while another waited")
}

/// The counters of a vCPU.
fn counters(a: Account) -> ThreadCounters {
    let in_state = |s: State| Some(a.ns[s as usize]);
    let (ready_ns, limited_ns) = (a.ns[State::Ready as usize], a.ns[State::Limited as usize]);
    ThreadCounters {
        run_ns: in_state(State::Running),
        ready_ns: Some(ready_ns),
        limited_ns: Some(limited_ns),
        wait_ns: Some(ready_ns + limited_ns),
        costop_ns: in_state(State::CoStopped),
        blocked_ns: in_state(State::Blocked),
        lag_ns: Some(a.lag_ns.unwrap_or(0)),
        switches: Some(a.switches),
        preemptions: Some(a.preemptions),
        wakeups: Some(a.wakeups),
        migrations: Some(a.migrations),
        wake_latency: Some(a.wake_latency),
        ready_spell: Some(a.ready_spell),
        ..ThreadCounters::default()
    }
}

/// All counters at the simulation's present time, and the blame since the last batch.
pub fn batch(setup: &Setup, simulation: &dyn Simulation, blame: Vec<BlameSample>) -> Batch {
    let host = simulation.host();
    let now_ns = simulation.now_ns();
    let threads = host.vcpus.iter().enumerate().map(|(i, facts)| {
        let a = simulation.account(Vcpu(i as u32));
        ThreadSample {
            vm: vm_id(facts.vm.i()),
            role: Role::Vcpu(facts.index),
            tid: tid(setup, facts),
            last_cpu: a.last_pcpu.map(|p| host.pcpus[p.i()].cpu),
            waiting_ns: None,
            counters: counters(a),
        }
    });
    let pcpus = host.pcpus.iter().enumerate().map(|(i, place)| {
        let busy_ns = simulation.busy_ns(Pcpu(i as u32));
        PcpuSample {
            cpu: place.cpu,
            user_ns: busy_ns,
            idle_ns: now_ns - busy_ns,
            guest_ns: Some(busy_ns),
            ..PcpuSample::default()
        }
    });
    let vms = (0..host.vms.len()).map(|i| VmSample::new(vm_id(i)));
    Batch {
        mono_ns: now_ns,
        unix_ns: now_ns,
        threads: threads.collect(),
        pcpus: pcpus.collect(),
        vms: vms.collect(),
        blame,
        pressure: None,
    }
}
