//! Small made-up hosts for the tests of rules and plans: a host, its VMs, and what was measured of them.
#![allow(dead_code, reason = "each file of tests uses a part of it")]

use std::collections::BTreeMap;
use vsteer_core::diagnose::{Evidence, Finding, diagnose, flat};
use vsteer_core::model::{HostModel, PcpuModel, Quantiles, Shares, ThreadModel, VmModel};
use vsteer_core::nouns::*;
use vsteer_core::plan::Plan;
use vsteer_core::plan::advise::plan;
use vsteer_core::plan::limits::Limits;
use vsteer_core::setting::{Scope, Step};
use vsteer_core::thresholds::Thresholds;
use vsteer_core::topology::{NodeId, NumaNode, Parts};
use vsteer_core::{CpuSet, Topology};

/// A host under construction.
#[derive(Clone)]
pub struct Host {
    pub config: HostConfig,
    pub model: HostModel,
}

pub fn topology(pcpus: u32, nodes: u32) -> Topology {
    let all = CpuSet::first(pcpus);
    let per = pcpus / nodes;
    let node = |n: u32| {
        let cpus: CpuSet = (n * per..(n + 1) * per).collect();
        NumaNode {
            id: NodeId(n),
            nearest_cpus: cpus.clone(),
            cpus,
            memory_bytes: Some(1 << 30),
            distances: BTreeMap::new(),
            initiators: Vec::new(),
            gpu: None,
            allowed: true,
            assumed: false,
        }
    };
    let nodes = (0..nodes).map(node).collect();
    Topology::new(Parts {
        present: all.clone(),
        online: all.clone(),
        allowed: all,
        nodes,
        ..Parts::default()
    })
    .unwrap()
}

/// One node with all pCPUs, and one of memory alone.
pub fn topology_with_far_memory(pcpus: u32) -> Topology {
    let all = CpuSet::first(pcpus);
    let node = |n: u32, cpus: CpuSet| NumaNode {
        id: NodeId(n),
        nearest_cpus: all.clone(),
        cpus,
        memory_bytes: Some(1 << 30),
        distances: BTreeMap::new(),
        initiators: Vec::new(),
        gpu: None,
        allowed: true,
        assumed: false,
    };
    Topology::new(Parts {
        present: all.clone(),
        online: all.clone(),
        allowed: all.clone(),
        nodes: vec![node(0, all.clone()), node(1, CpuSet::new())],
        ..Parts::default()
    })
    .unwrap()
}

pub fn thread_model(role: Role, tid: Tid, run: f64, ready: f64, wakes_per_s: f64) -> ThreadModel {
    let ns = if ready > 0.01 { 8e6 } else { 1e5 };
    let latency = Quantiles { count: 500, p50_ns: ns / 4.0, p95_ns: ns / 2.0, p99_ns: ns, max_ns: ns };
    ThreadModel {
        role,
        tid,
        seen: 1.0,
        shares: Shares {
            run: Some(run),
            ready: Some(ready),
            limited: Some(0.0),
            wait: Some(ready),
            blocked: Some(1.0 - run - ready),
            lag: Some(0.0),
            overlap: Some(0.0),
            ..Shares::default()
        },
        switches_per_s: Some(wakes_per_s.max(50.0)),
        preemptions_per_s: Some(0.0),
        wakeups_per_s: Some(wakes_per_s),
        migrations_per_s: Some(0.0),
        wake_latency: (wakes_per_s > 0.0).then_some(latency),
        ready_spell: Some(latency),
        last_cpu: Some(0),
        ran_on: Vec::new(),
    }
}

pub fn vm_model(name: &str, threads: Vec<ThreadModel>) -> VmModel {
    VmModel {
        id: VmId(name.into()),
        name: name.into(),
        group: Shares::sum(threads.iter().map(|t| &t.shares)),
        worlds: None,
        vcpus: Shares::sum(threads.iter().filter(|t| t.role.vcpu().is_some()).map(|t| &t.shares)),
        throttled_per_s: Some(0.0),
        throttled_above_per_s: None,
        limited_estimate: None,
        io_per_s: None,
        pressure: PressureShares::default(),
        timers_per_s: None,
        timers_late: None,
        timers_refused: None,
        wake_latency: threads[0].wake_latency,
        ready_spell: threads[0].ready_spell,
        memory_by_node: None,
        memory_local: None,
        threads,
    }
}

impl Host {
    pub fn new(pcpus: u32, nodes: u32, busy: f64) -> Host {
        let steal = Some(0.0);
        let pcpu = |cpu| PcpuModel {
            cpu,
            busy,
            user: busy,
            system: 0.0,
            interrupts: 0.0,
            steal,
            frequency_khz: None,
        };
        let config = HostConfig {
            cgroups: CgroupLayout::Hybrid,
            ..HostConfig::new("h", "6.18", topology(pcpus, nodes))
        };
        let model = HostModel {
            from_unix_ns: 0,
            window_ns: 20_000_000_000,
            vms: Vec::new(),
            pcpus: (0..pcpus).map(pcpu).collect(),
            pressure: PressureShares::default(),
            blame: None,
            collector: "ebpf".into(),
            missing: BTreeMap::new(),
        };
        Host { config, model }
    }

    /// A VM whose every vCPU has these shares, and an emulator thread that never waits.
    pub fn vm(&mut self, name: &str, vcpus: u32, run: f64, ready: f64, wakes_per_s: f64) -> &mut Host {
        let base = 100 * (self.config.vms.len() as u32 + 1);
        let affinity = self.config.topology.usable();
        let roles: Vec<Role> = (0..vcpus).map(Role::Vcpu).chain([Role::Emulator]).collect();
        let thread = |(role, i): (&Role, u32)| VmThread {
            tid: Tid(base + i),
            role: *role,
            affinity: affinity.clone(),
            class: Some(SchedClass::Other(0)),
            cgroup: Some(format!("/m/{name}/{role}")),
            prefers: None,
            reserved: None,
        };
        let groups = ["/m".to_owned(), format!("/m/{name}")]
            .into_iter()
            .chain(roles.iter().map(|r| format!("/m/{name}/{r}")));
        self.config.vms.push(VmConfig {
            accel: Some(Accel::Tcg),
            threads: roles.iter().zip(0..).map(thread).collect(),
            weight: Some(CpuWeight::Shares(1024)),
            cgroup: Some(format!("/m/{name}")),
            rt_budgets: groups
                .map(|cgroup| RtBudget { cgroup, runtime_us: 0, period_us: 1_000_000 })
                .collect(),
            ..VmConfig::new(VmId(name.into()), name, base)
        });
        let model = |(role, i): (&Role, u32)| match role {
            Role::Emulator => thread_model(*role, Tid(base + i), 0.01, 0.0, wakes_per_s),
            _ => thread_model(*role, Tid(base + i), run, ready, wakes_per_s),
        };
        self.model.vms.push(vm_model(name, roles.iter().zip(0..).map(model).collect()));
        self
    }

    pub fn pin(&mut self, name: &str, cpus: &str) -> &mut Host {
        let set: CpuSet = cpus.parse().unwrap();
        let vm = self.config.vms.iter_mut().find(|v| v.name == name).unwrap();
        vm.threads.iter_mut().for_each(|t| t.affinity = set.clone());
        self
    }

    pub fn findings(&self) -> Vec<Finding> {
        flat(&self.causes()).cloned().collect()
    }

    /// Findings that no other one explains.
    pub fn causes(&self) -> Vec<Finding> {
        diagnose(&self.config, &self.model, Thresholds::default())
    }

    pub fn rules(&self) -> Vec<String> {
        self.findings().into_iter().map(|f| f.rule).collect()
    }

    pub fn finds(&self, rule: &str) -> bool {
        self.rules().iter().any(|r| r == rule)
    }

    pub fn plan(&self) -> Plan {
        plan(&self.config, &self.model, Limits::default(), Scope::Live, None).unwrap()
    }

    /// What one rule finds.
    pub fn found(&self, rule: &str) -> Vec<Finding> {
        self.findings().into_iter().filter(|f| f.rule == rule).collect()
    }

    /// The steps that the action of this name proposes, or why it proposes none.
    pub fn proposed(&self, action: &str) -> Result<Vec<Step>, String> {
        self.proposed_within(action, Limits::default())
    }

    pub fn proposed_within(&self, action: &str, limits: Limits) -> Result<Vec<Step>, String> {
        let plan = plan(&self.config, &self.model, limits, Scope::Live, Some(action)).unwrap();
        match plan.alternatives.into_iter().next() {
            Some(refused) if plan.steps.is_empty() => Err(refused.why_not),
            _ => Ok(plan.steps),
        }
    }

    /// The same in words: `VM: change`.
    pub fn told(&self, action: &str) -> Result<Vec<String>, String> {
        Ok(self.proposed(action)?.iter().map(|s| format!("{}: {}", s.vm_name, s.change)).collect())
    }
}

/// Evidence in words: what was measured, its value and unit, and what it is held against.
pub fn words(evidence: &[Evidence]) -> Vec<String> {
    let one = |e: &Evidence| {
        let against = e.against.map_or(String::new(), |a| format!(" against {a:.2}"));
        format!("{}: {:.2} {}{against}", e.quantity, e.value, e.unit)
    };
    evidence.iter().map(one).collect()
}

/// Two burners and two VMs with periodic timers on two pCPUs: the lab's default, as measured.
pub fn contended() -> Host {
    let mut h = Host::new(2, 1, 1.0);
    h.vm("burn-a", 2, 0.42, 0.58, 0.0).vm("burn-b", 2, 0.42, 0.58, 0.0);
    h.vm("tick-a", 2, 0.04, 0.20, 100.0).vm("tick-b", 2, 0.04, 0.20, 100.0);
    h
}
