//! Rules and plans on small made-up hosts: each rule speaks where it should and is silent beside it.

use std::collections::{BTreeMap, BTreeSet};
use vsteer_core::diagnose::{Finding, Thresholds, diagnose};
use vsteer_core::model::{Blame, HostModel, PcpuModel, Quantiles, Shares, ThreadModel, VmModel};

use vsteer_core::nouns::*;
use vsteer_core::plan::advise::{Limits, plan};
use vsteer_core::plan::{Change, Plan, QuotaScope, Scope, Step};
use vsteer_core::predict::fluid;
use vsteer_core::topology::{NodeId, NumaNode, Parts};
use vsteer_core::{CpuSet, Topology};

/// A host under construction.
struct Host {
    config: HostConfig,
    model: HostModel,
}

fn topology(pcpus: u32, nodes: u32) -> Topology {
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

impl Host {
    fn new(pcpus: u32, nodes: u32, busy: f64) -> Host {
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
            hostname: "h".into(),
            machine_id: None,
            kernel: "6.18".into(),
            topology: topology(pcpus, nodes),
            cgroups: CgroupLayout::Hybrid,
            scheduler: None,
            vms: Vec::new(),
        };
        let model = HostModel {
            from_unix_ns: 0,
            window_ns: 20_000_000_000,
            vms: Vec::new(),
            pcpus: (0..pcpus).map(pcpu).collect(),
            blame: None,
            collector: "ebpf".into(),
            missing: BTreeMap::new(),
        };
        Host { config, model }
    }

    /// A VM whose every vCPU has these shares, and an emulator thread that never waits.
    fn vm(&mut self, name: &str, vcpus: u32, run: f64, ready: f64, wakes_per_s: f64) -> &mut Host {
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
        let model = |(role, i): (&Role, u32)| {
            let (run, ready) = if *role == Role::Emulator { (0.01, 0.0) } else { (run, ready) };
            let ns = if ready > 0.01 { 8e6 } else { 1e5 };
            let latency =
                Quantiles { count: 500, p50_ns: ns / 4.0, p95_ns: ns / 2.0, p99_ns: ns, max_ns: ns };
            ThreadModel {
                role: *role,
                tid: Tid(base + i),
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
            }
        };
        let threads: Vec<ThreadModel> = roles.iter().zip(0..).map(model).collect();
        let vcpus = Shares::sum(threads.iter().filter(|t| t.role.vcpu().is_some()).map(|t| &t.shares));
        self.model.vms.push(VmModel {
            id: VmId(name.into()),
            name: name.into(),
            group: Shares::sum(threads.iter().map(|t| &t.shares)),
            worlds: None,
            vcpus,
            throttled_per_s: Some(0.0),
            io_per_s: None,
            timers_per_s: None,
            timers_late: None,
            timers_refused: None,
            wake_latency: threads[0].wake_latency,
            ready_spell: threads[0].ready_spell,
            memory_by_node: None,
            memory_local: None,
            threads,
        });
        self
    }

    fn pin(&mut self, name: &str, cpus: &str) -> &mut Host {
        let set: CpuSet = cpus.parse().unwrap();
        let vm = self.config.vms.iter_mut().find(|v| v.name == name).unwrap();
        vm.threads.iter_mut().for_each(|t| t.affinity = set.clone());
        self
    }

    fn findings(&self) -> Vec<Finding> {
        diagnose(&self.config, &self.model, Thresholds::default())
    }

    fn rules(&self) -> Vec<String> {
        self.findings().into_iter().map(|f| f.rule).collect()
    }

    fn finds(&self, rule: &str) -> bool {
        self.rules().iter().any(|r| r == rule)
    }

    fn plan(&self) -> Plan {
        plan(&self.config, &self.model, Limits::default(), Scope::Live, None).unwrap()
    }
}

/// Two burners and two VMs with periodic timers on two pCPUs: the lab's default, as measured.
fn contended() -> Host {
    let mut h = Host::new(2, 1, 1.0);
    h.vm("burn-a", 2, 0.42, 0.58, 0.0).vm("burn-b", 2, 0.42, 0.58, 0.0);
    h.vm("tick-a", 2, 0.04, 0.20, 100.0).vm("tick-b", 2, 0.04, 0.20, 100.0);
    h
}

#[test]
fn a_full_host_is_said_to_be_full_and_findings_are_sorted() {
    let h = contended();
    let f = h.findings();
    assert_eq!(f[0].rule, "pcpus_overloaded");
    assert!(f.windows(2).all(|w| w[0].loss_pcpus >= w[1].loss_pcpus));
    assert!(h.finds("overcommitted") && !h.finds("nothing_wrong"));
    for finding in &f {
        assert!(!finding.disproved_by.is_empty() && !finding.next.is_empty(), "{finding:?}");
    }
}

#[test]
fn an_idle_host_is_fine_whatever_its_ratio_of_vcpus() {
    let mut h = Host::new(2, 1, 0.1);
    h.vm("a", 8, 0.01, 0.0, 10.0).vm("b", 8, 0.01, 0.0, 10.0);
    assert_eq!(h.rules(), ["nothing_wrong"]);
    assert!(h.plan().steps.is_empty());
}

#[test]
fn a_pin_onto_busy_pcpus_is_named_and_taken_away_only_while_others_idle() {
    let mut h = Host::new(4, 1, 1.0);
    h.vm("a", 2, 0.5, 0.5, 0.0).pin("a", "0");
    assert!(!h.finds("pinned_busy") && h.plan().steps.is_empty());
    h.model.pcpus[1..].iter_mut().for_each(|p| p.busy = 0.05);
    assert!(h.finds("pinned_busy"));
    let steps = h.plan().steps;
    assert!(!steps.is_empty());
    assert!(
        steps.iter().all(|s| matches!(&s.change, Change::Affinity { to, .. } if to.len() == 4)),
        "{steps:?}"
    );
}

#[test]
fn nobody_is_let_onto_isolated_pcpus() {
    let isolated = |cpus: &str| {
        Some(FairTuning { isolated: cpus.parse::<CpuSet>().unwrap(), ..FairTuning::default() })
    };
    let mut h = Host::new(4, 1, 1.0);
    h.vm("a", 2, 0.5, 0.5, 0.0).pin("a", "0");
    h.model.pcpus[1..].iter_mut().for_each(|p| p.busy = 0.05);
    assert!(h.finds("pinned_busy"));
    h.config.scheduler = isolated("1-3");
    assert!(!h.finds("pinned_busy") && h.plan().steps.is_empty(), "they idle for a reason");
    h.config.scheduler = isolated("3");
    let steps = h.plan().steps;
    let others: CpuSet = "0-2".parse().unwrap();
    let to_others = |s: &Step| matches!(&s.change, Change::Affinity { to, .. } if *to == others);
    assert!(!steps.is_empty() && steps.iter().all(to_others), "{steps:?}");

    let mut h = Host::new(4, 1, 1.0);
    h.vm("burn", 3, 0.7, 0.3, 0.0).vm("tick", 2, 0.04, 0.2, 100.0).vm("apart", 1, 0.9, 0.0, 0.0);
    h.pin("burn", "0-2").pin("tick", "0-2").pin("apart", "3").config.scheduler = isolated("3");
    let p = plan(&h.config, &h.model, Limits::default(), Scope::Live, Some("separate")).unwrap();
    assert!(!p.steps.is_empty() && p.steps.iter().all(|s| s.vm_name != "apart"), "{:?}", p.steps);
    let onto_isolated = |s: &Step| matches!(&s.change, Change::Affinity { to, .. } if to.contains(3));
    assert!(!p.steps.iter().any(onto_isolated), "{:?}", p.steps);
}

#[test]
fn one_pcpu_that_idles_nearly_all_of_the_time_is_room_enough() {
    let mut h = Host::new(2, 1, 1.0);
    h.vm("a", 2, 0.5, 0.5, 0.0).pin("a", "0");
    h.model.pcpus[1].busy = 0.03;
    assert!(h.finds("pinned_busy") && !h.plan().steps.is_empty());
    h.model.pcpus[1].busy = 0.3;
    assert!(h.plan().steps.is_empty());
}

#[test]
fn a_quota_is_blamed_on_nobody_else() {
    let mut h = Host::new(2, 1, 0.3);
    h.vm("a", 2, 0.3, 0.0, 0.0);
    let vm = &mut h.model.vms[0];
    for shares in [&mut vm.vcpus, &mut vm.group] {
        (shares.limited, shares.wait) = (Some(1.4), Some(1.4));
    }
    assert_eq!(h.rules(), ["limited"]);
}

#[test]
fn an_overloaded_node_follows_the_flowchart() {
    let mut h = Host::new(8, 2, 1.0);
    h.vm("a", 4, 0.5, 0.4, 0.0).vm("b", 4, 0.5, 0.4, 0.0).pin("a", "0-3").pin("b", "0-3");
    let next = |h: &Host| h.findings().into_iter().find(|f| f.rule == "node_overloaded").map(|f| f.next);
    assert!(next(&h).unwrap().contains("reduce the number of vCPUs, or upgrade"), "no idle node");
    h.model.pcpus[4..].iter_mut().for_each(|p| p.busy = 0.0);
    assert!(next(&h).unwrap().contains("to node 1 (pCPUs 4-7)"), "{:?}", next(&h));
    h.pin("b", "4-7");
    assert_eq!(next(&h), None, "4 vCPUs on 4 cores are not too many");
}

#[test]
fn neighbours_and_processes_are_told_apart() {
    let mut h = contended();
    let blame = |culprit, share| Blame { victim: VmId("tick-a".into()), culprit, share };
    h.model.blame = Some(vec![
        blame(Culprit::Vm(VmId("burn-a".into())), 0.20),
        blame(Culprit::Process { comm: "backup".into(), pid: 7 }, 0.15),
        blame(Culprit::Placement, 0.05),
    ]);
    let f = h.findings();
    let title = |rule: &str| f.iter().find(|f| f.rule == rule).map(|f| f.title.clone()).unwrap_or_default();
    assert!(title("noisy_neighbour").contains("burn-a"), "{}", title("noisy_neighbour"));
    assert!(title("host_process").contains("backup (pid 7)"), "{}", title("host_process"));
}

#[test]
fn an_emulator_thread_that_waits_is_named() {
    let mut h = Host::new(2, 1, 0.5);
    h.vm("a", 2, 0.1, 0.0, 50.0);
    assert!(!h.finds("emulator_starved"));
    assert!(h.finds("nothing_wrong"));
    h.model.vms[0].threads[2].shares.ready = Some(0.3);
    assert!(h.finds("emulator_starved") && !h.finds("nothing_wrong"));
}

#[test]
fn nothing_is_said_to_be_well_that_was_not_counted() {
    let mut h = Host::new(2, 1, 0.1);
    h.vm("a", 2, 0.01, 0.0, 10.0).vm("b", 2, 0.01, 0.0, 10.0);
    assert!(h.finds("nothing_wrong"));
    let vm = &mut h.model.vms[1];
    let uncounted = |s: &mut Shares| (s.ready, s.wait) = (None, None);
    vm.threads.iter_mut().for_each(|t| uncounted(&mut t.shares));
    uncounted(&mut vm.vcpus);
    uncounted(&mut vm.group);
    assert!(!h.finds("nothing_wrong"), "of one VM nobody knows whether it waits");
}

#[test]
fn unused_vcpus_that_lag_are_too_many() {
    let mut h = Host::new(4, 1, 0.8);
    h.vm("a", 8, 0.1, 0.02, 50.0);
    assert!(!h.finds("too_many_vcpus"), "unused, but nobody is held up");
    h.model.vms[0].vcpus.lag = Some(0.12);
    assert!(
        h.findings().iter().any(|f| f.rule == "too_many_vcpus" && f.title.contains("2 would do")),
        "{:?}",
        h.findings()
    );
}

#[test]
fn a_low_weight_beside_a_high_one_is_named() {
    let mut h = contended();
    assert!(!h.finds("weight_starved"));
    h.config.vms[0].weight = Some(CpuWeight::Shares(8192));
    h.model.vms[0].vcpus.run = Some(1.6);
    assert!(h.finds("weight_starved"));
}

#[test]
fn remote_memory_is_named_where_the_vcpus_run_elsewhere() {
    let mut h = Host::new(4, 2, 0.5);
    h.vm("a", 2, 0.5, 0.0, 10.0);
    h.model.vms[0].memory_by_node = Some(vec![(0, 1 << 20)]);
    assert!(!h.finds("memory_remote"));
    h.model.vms[0].memory_by_node = Some(vec![(1, 1 << 20)]);
    assert!(h.finds("memory_remote"));
}

#[test]
fn stolen_time_is_named() {
    let mut h = Host::new(2, 1, 0.5);
    h.vm("a", 2, 0.2, 0.0, 10.0);
    assert!(!h.finds("runs_slowly"));
    h.model.pcpus[0].steal = Some(0.2);
    assert!(h.finds("runs_slowly"));
}

#[test]
fn what_was_not_measured_is_said_with_its_reason() {
    let mut h = Host::new(2, 1, 0.1);
    h.vm("a", 1, 0.01, 0.0, 1.0);
    h.model.missing.insert("blame".into(), "it takes eBPF".into());
    assert!(h.findings().iter().any(|f| f.rule == "not_measured" && f.explanation.contains("it takes eBPF")));
}

#[test]
fn delayed_sleepers_are_raised_with_budgets_and_burners_are_not() {
    let p = contended().plan();
    assert!(p.title.contains("real-time"), "{}", p.title);
    let raised = p.steps.iter().filter(|s| matches!(s.change, Change::Class { .. }));
    let raised: Vec<&str> = raised.map(|s| s.vm_name.as_str()).collect();
    assert_eq!(raised, ["tick-a", "tick-a", "tick-a", "tick-b", "tick-b", "tick-b"]);
    let budgets: Vec<(String, i64)> = p
        .steps
        .iter()
        .filter_map(|s| match &s.change {
            Change::RtBudget { cgroup, to_us, .. } => Some((cgroup.clone(), *to_us)),
            _ => None,
        })
        .collect();
    assert_eq!(budgets.len(), 9, "the partition, two VMs, three groups each");
    for (i, (group, granted)) in budgets.iter().enumerate() {
        let below = format!("{group}/");
        assert!(
            budgets[..i].iter().all(|(earlier, _)| !earlier.starts_with(&below)),
            "{group} comes after its child"
        );
        let is_child = |g: &str| g.strip_prefix(&below).is_some_and(|rest| !rest.contains('/'));
        let children: i64 = budgets.iter().filter(|(g, _)| is_child(g)).map(|(_, c)| c).sum();
        assert!(children < *granted, "{group} grants {granted}, its children need {children}");
    }
    assert!(budgets[0].1 < 950_000, "the root must keep something for others");
    assert!(p.alternatives.iter().any(|a| a.why_not.contains("would lose")), "separating costs too much");
}

#[test]
fn an_unknown_action_is_refused_with_the_known_ones() {
    let h = contended();
    let e = plan(&h.config, &h.model, Limits::default(), Scope::Live, Some("pray")).unwrap_err();
    let e = format!("{e:?}");
    assert!(e.contains("realtime") && e.contains("weights"), "{e}");
}

#[test]
fn equal_plans_have_equal_ids_and_a_changed_host_is_described() {
    let h = contended();
    assert_eq!(h.plan().id, h.plan().id);
    let mut other = contended();
    other.pin("burn-a", "1").config.vms[1].weight = Some(CpuWeight::Shares(2048));
    let lines = h.config.differences(&other.config);
    assert!(lines.iter().any(|l| l.contains("burn-b") && l.contains("2048")), "{lines:?}");
    assert!(lines.iter().any(|l| l.contains("burn-a") && l.contains("vcpu0")), "{lines:?}");
    assert_eq!(h.config.differences(&h.config), Vec::<String>::new());
    let json = serde_json::to_string(&h.plan()).unwrap();
    let read: Plan = serde_json::from_str(&json).unwrap();
    assert!(
        read.steps == h.plan().steps && read.parent == h.config,
        "what apply rests on survives being written"
    );
}

#[test]
fn a_vm_on_an_overloaded_node_moves_with_its_memory_to_one_that_has_room() {
    let mut h = Host::new(8, 2, 1.0);
    h.vm("a", 4, 0.4, 0.4, 0.0).vm("b", 4, 0.5, 0.4, 0.0).pin("a", "0-3").pin("b", "0-3");
    h.config.vms[0].memory_nodes = Some(CpuSet::single(0));
    h.config.vms[1].memory_nodes = Some(CpuSet::single(0));
    h.model.pcpus[4..].iter_mut().for_each(|p| p.busy = 0.0);
    let p = plan(&h.config, &h.model, Limits::default(), Scope::Live, Some("node")).unwrap();
    let moved: std::collections::BTreeSet<&str> = p.steps.iter().map(|s| s.vm_name.as_str()).collect();
    assert_eq!(moved.len(), 1, "one move mends it: {:?}", p.steps);
    assert!(
        p.steps.iter().any(|s| matches!(&s.change, Change::MemoryNodes { to: Some(n), .. } if n.contains(1)))
    );
    assert_eq!(p.irreversible.len(), 1, "where pages lie cannot be taken back");
    h.vm("c", 4, 0.9, 0.0, 0.0).pin("c", "4-7");
    let p = plan(&h.config, &h.model, Limits::default(), Scope::Live, Some("node")).unwrap();
    assert!(p.steps.is_empty(), "the other node is full as well");
}

/// The roles of the threads that a plan by this action places, of VMs that have a vhost thread each.
fn placed(h: &mut Host, manager: &Manager, action: &str) -> BTreeSet<Role> {
    for vm in &mut h.config.vms {
        vm.manager = manager.clone();
        let emulator = vm.threads.iter().find(|t| t.role == Role::Emulator).unwrap().clone();
        vm.threads.push(VmThread { tid: Tid(emulator.tid.0 + 50), role: Role::Vhost, ..emulator });
    }
    let p = plan(&h.config, &h.model, Limits::default(), Scope::Live, Some(action)).unwrap();
    let roles = p.steps.iter().filter_map(|s| match &s.change {
        Change::Affinity { role, .. } => Some(*role),
        _ => None,
    });
    roles.collect()
}

#[test]
fn a_vhost_thread_goes_with_the_emulator_and_gets_no_step_of_its_own() {
    for manager in [Manager::Libvirt("qemu:///system".into()), Manager::Bare] {
        let all = BTreeSet::from([Role::Vcpu(0), Role::Vcpu(1), Role::Emulator]);
        assert_eq!(placed(&mut contended(), &manager, "separate"), all);
        let mut h = Host::new(4, 1, 1.0);
        h.vm("a", 2, 0.5, 0.5, 0.0).pin("a", "0");
        h.model.pcpus[1..].iter_mut().for_each(|p| p.busy = 0.05);
        assert_eq!(placed(&mut h, &manager, "unpin"), all);
        let mut h = Host::new(8, 2, 1.0);
        h.vm("a", 2, 0.4, 0.4, 0.0).vm("b", 4, 0.5, 0.4, 0.0).pin("a", "0-3").pin("b", "0-3");
        h.model.pcpus[4..].iter_mut().for_each(|p| p.busy = 0.0);
        let moved = placed(&mut h, &manager, "node");
        assert!(moved.contains(&Role::Emulator) && !moved.contains(&Role::Vhost), "{moved:?}");
        // What is foretold is that it goes there.
        let emulator = &h.config.vms[0].threads[2];
        let (from, to) = (emulator.affinity.clone(), CpuSet::single(7));
        let change = Change::Affinity { role: Role::Emulator, tid: emulator.tid, from, to: to.clone() };
        let step = Step { vm: VmId("a".into()), vm_name: "a".into(), change, reason: String::new() };
        let next = fluid::after(&h.config, &[step]);
        let vhost = next.vms[0].threads.iter().find(|t| t.role == Role::Vhost).unwrap();
        assert_eq!(vhost.affinity, to);
    }
}

#[test]
fn separating_keeps_pins_as_far_as_they_are_out_of_the_way() {
    let mut h = Host::new(4, 1, 1.0);
    h.vm("burn", 3, 0.7, 0.3, 0.0).vm("tick", 2, 0.04, 0.2, 100.0);
    let places = ["0", "1", "2-3", "0-3"];
    for (t, cpus) in h.config.vms[0].threads.iter_mut().zip(places) {
        t.affinity = cpus.parse().unwrap();
    }
    let p = plan(&h.config, &h.model, Limits::default(), Scope::Live, Some("separate")).unwrap();
    let burns = p.steps.iter().filter(|s| s.vm_name == "burn").map(|s| s.change.to_string());
    assert_eq!(burns.collect::<Vec<String>>(), ["vcpu2: pCPUs 2-3 -> 2", "emulator: pCPUs 0-3 -> 0-2"]);
    assert!(p.steps.iter().any(|s| s.vm_name == "tick"), "{:?}", p.steps);
}

#[test]
fn quotas_and_guest_topologies_are_changed_only_when_asked_for() {
    let mut h = Host::new(4, 2, 0.3);
    h.vm("a", 4, 0.1, 0.0, 0.0);
    h.config.vms[0].limits.whole_vm = Some(Quota { quota_us: 40_000, period_us: 100_000 });
    h.model.vms[0].vcpus.limited = Some(0.8);
    assert!(h.plan().steps.is_empty());
    let of =
        |h: &Host, name| plan(&h.config, &h.model, Limits::default(), Scope::Both, Some(name)).unwrap().steps;
    let [step] = &of(&h, "quota")[..] else { panic!("{:?}", of(&h, "quota")) };
    assert!(matches!(step.change, Change::Quota { to: Some(q), .. } if q.cpus() > 1.4), "{step:?}");
    h.model.pcpus.iter_mut().for_each(|p| p.busy = 1.0);
    assert!(of(&h, "quota").is_empty(), "no room, no more");
    let [step] = &of(&h, "topology")[..] else { panic!("{:?}", of(&h, "topology")) };
    let Change::Topology { to, .. } = step.change else { panic!("{step:?}") };
    assert_eq!((to.sockets, to.cores, to.threads), (2, 2, 1), "4 vCPUs over nodes of 2 cores");
}

/// A step that limits this VM to so many pCPUs, or lets it go.
fn limit(vm: &str, from: Option<f64>, to: Option<f64>) -> Step {
    let quota = |cpus: f64| Quota { quota_us: (cpus * 100_000.0) as u64, period_us: 100_000 };
    let change = Change::Quota { scope: QuotaScope::WholeVm, from: from.map(quota), to: to.map(quota) };
    Step { vm: VmId(vm.into()), vm_name: vm.into(), change, reason: "asked for".into() }
}

#[test]
fn a_quota_that_is_set_is_foretold() {
    let mut h = Host::new(4, 1, 0.75);
    h.vm("web", 2, 0.99, 0.0, 0.0).vm("db", 1, 0.5, 0.0, 0.0);
    let told = fluid::forecast(&h.config, &h.model, &[limit("web", None, Some(0.5))]);
    let (web, db) = (&told.vms[0], &told.vms[1]);
    assert!((web.run_after.likely - 0.5).abs() < 0.02, "{web:?}");
    assert!(web.ready_after.likely < 0.01, "held is not ready: {web:?}");
    assert!((db.run_after.likely - 0.5).abs() < 0.01, "{db:?}");
    // Of each vCPU by itself, where it does not tell ready from limited.
    h.model.vms[0].threads.iter_mut().for_each(|t| (t.shares.ready, t.shares.limited) = (None, None));
    let mut each = limit("web", None, Some(0.25));
    if let Change::Quota { scope, .. } = &mut each.change {
        *scope = QuotaScope::PerVcpu;
    }
    let told = fluid::forecast(&h.config, &h.model, &[each]);
    let web = &told.vms[0];
    assert!((web.run_after.likely - 0.5).abs() < 0.02, "{web:?}");
    assert!(web.with_limited && web.ready_after.likely > 1.4, "{web:?}");
}

#[test]
fn a_quota_that_is_there_is_no_appetite_until_it_is_lifted() {
    let mut h = Host::new(2, 1, 1.0);
    h.vm("held", 2, 0.25, 0.0, 0.0).vm("burn", 2, 0.73, 0.27, 0.0);
    h.config.vms[0].limits.whole_vm = Some(Quota { quota_us: 50_000, period_us: 100_000 });
    for t in h.model.vms[0].threads.iter_mut().filter(|t| t.role.vcpu().is_some()) {
        (t.shares.limited, t.shares.wait) = (Some(0.75), Some(0.75));
    }
    let lifted = fluid::forecast(&h.config, &h.model, &[limit("held", Some(0.5), None)]);
    let (held, burn) = (&lifted.vms[0], &lifted.vms[1]);
    assert!((0.9..1.1).contains(&held.run_after.likely), "half of two pCPUs: {held:?}");
    assert!((0.9..1.1).contains(&burn.run_after.likely), "and the other half: {burn:?}");
    assert!((0.9..1.1).contains(&held.ready_after.likely), "it waits for the other now: {held:?}");
    // While the quota is there, more weight gives it nothing.
    let mut heavier = limit("held", None, None);
    let (from, to) = (CpuWeight::Shares(1024), CpuWeight::Shares(8192));
    heavier.change = Change::Weight { from, to };
    let told = fluid::forecast(&h.config, &h.model, &[heavier]);
    assert!((told.vms[0].run_after.likely - 0.5).abs() < 0.05, "{:?}", told.vms[0]);
    assert!((told.vms[1].run_after.likely - 1.46).abs() < 0.05, "{:?}", told.vms[1]);
}

#[test]
fn waiting_for_oneself_or_for_nobody_is_no_reason_to_change_others() {
    let mut h = Host::new(2, 1, 0.25);
    h.vm("tick", 2, 0.06, 0.02, 370.0).vm("idle", 2, 0.003, 0.0, 10.0);
    assert!(!h.plan().steps.is_empty(), "who ran meanwhile was not measured");
    let blame = |culprit, share| Blame { victim: VmId("tick".into()), culprit, share };
    let own = blame(Culprit::Vm(VmId("tick".into())), 0.014);
    h.model.blame = Some(vec![own.clone(), blame(Culprit::Placement, 0.048)]);
    assert!(h.plan().steps.is_empty(), "{:?}", h.plan().title);
    h.model.blame = Some(vec![own, blame(Culprit::Vm(VmId("idle".into())), 0.03)]);
    assert!(!h.plan().steps.is_empty());
}

#[test]
fn a_vm_that_runs_for_long_at_a_time_gets_no_real_time() {
    let mut h = Host::new(2, 1, 1.0);
    h.vm("burn", 2, 0.8, 0.2, 0.0).vm("burst", 2, 0.11, 0.15, 40.0).vm("tick", 2, 0.04, 0.06, 260.0);
    let of = |h: &Host| {
        let p = plan(&h.config, &h.model, Limits::default(), Scope::Live, Some("realtime")).unwrap();
        p.steps.iter().map(|s| s.vm_name.clone()).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(of(&h), ["tick".to_owned()].into());
    // Nor a larger weight, which it would use to the full.
    let p = h.plan();
    assert!(p.title.contains("real-time"), "{}", p.title);
    assert!(
        p.alternatives.iter().any(|a| a.why_not.contains("runs for long at a time")),
        "{:?}",
        p.alternatives
    );
    // Without wake-ups nor switches nobody knows how long it runs at a time.
    h.model.vms[2].threads.iter_mut().for_each(|t| (t.wakeups_per_s, t.switches_per_s) = (None, None));
    assert!(of(&h).is_empty());
}

#[test]
fn a_vm_that_never_sleeps_is_no_sleeper_however_little_it_gets() {
    let mut h = Host::new(2, 1, 1.0);
    h.vm("burn-a", 2, 0.2, 0.8, 0.0).vm("burn-b", 2, 0.2, 0.8, 0.0).vm("burn-c", 2, 0.2, 0.75, 500.0);
    h.vm("tick", 2, 0.04, 0.25, 100.0);
    let steps = h.plan().steps;
    assert!(!steps.is_empty());
    assert!(steps.iter().all(|s| s.vm_name == "tick"), "{steps:?}");
}

/// The second domain has twice the first one's weight, both pinned to pCPU 1 of a pool of two.
fn pinned_domains(scheduler: &str) -> Host {
    let mut h = Host::new(2, 1, 0.5);
    h.vm("light", 1, 0.5, 0.5, 0.0).pin("light", "1").vm("heavy", 1, 0.49, 0.51, 0.0).pin("heavy", "1");
    let pool = CpuPool {
        name: "Pool-0".into(),
        scheduler: scheduler.into(),
        cpus: CpuSet::first(2),
        parameters: BTreeMap::new(),
    };
    for (vm, weight) in h.config.vms.iter_mut().zip([256, 512]) {
        vm.manager = Manager::Xen;
        vm.threads.retain(|t| t.role.vcpu().is_some());
        vm.weight = Some(CpuWeight::Credit(weight));
        vm.pool = Some(pool.clone());
    }
    h
}

#[test]
fn a_weight_that_does_nothing_is_named_and_a_pool_gives_it_back() {
    let h = pinned_domains("credit");
    let found: Vec<Finding> = h.findings().into_iter().filter(|f| f.rule == "dead_weight").collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].vm, Some(VmId("heavy".into())));
    assert!((found[0].loss_pcpus - (0.66 - 0.49)).abs() < 1e-9 && found[0].next.contains("--only pool"));
    assert!(!h.finds("weight_starved"), "the light one waits for no weight");
    let plan = plan(&h.config, &h.model, Limits::default(), Scope::Live, Some("pool")).unwrap();
    let made: Vec<String> = plan.steps.iter().map(|s| format!("{}: {}", s.vm_name, s.change)).collect();
    let (from, to) = ("\"Pool-0\" (pCPUs 0-1, credit)", "\"vsteer-1\" (pCPUs 1, credit)");
    assert_eq!(
        made,
        [
            "light: vcpu0: pCPUs 1 -> 0-1".to_owned(),
            "heavy: vcpu0: pCPUs 1 -> 0-1".to_owned(),
            format!("light: pool: {from} -> {to}"),
            format!("heavy: pool: {from} -> {to}"),
        ]
    );
    let after: Vec<f64> = plan.forecast.vms.iter().map(|vm| vm.run_after.likely).collect();
    assert!((after[0] - 0.33).abs() < 0.02 && (after[1] - 0.66).abs() < 0.02, "{after:?}");
    // Credit2 weighs pinned ones as well.
    let h = pinned_domains("credit2");
    assert!(!h.finds("dead_weight"));
    let Plan { steps, alternatives, .. } =
        vsteer_core::plan::advise::plan(&h.config, &h.model, Limits::default(), Scope::Live, Some("pool"))
            .unwrap();
    assert!(steps.is_empty() && alternatives[0].why_not.contains("pinned alike"), "{alternatives:?}");
}

#[test]
fn a_pool_is_refused_where_somebody_would_have_no_pcpu_left() {
    let mut h = pinned_domains("credit");
    h.vm("alone", 1, 0.1, 0.0, 10.0).pin("alone", "1");
    let pool = h.config.vms[0].pool.clone();
    let alone = h.config.vms.last_mut().unwrap();
    (alone.manager, alone.weight, alone.pool) = (Manager::Xen, None, pool);
    let plan = plan(&h.config, &h.model, Limits::default(), Scope::Live, Some("pool")).unwrap();
    assert!(
        plan.steps.is_empty() && plan.alternatives[0].why_not.contains("\"alone\""),
        "{:?}",
        plan.alternatives
    );
}

#[test]
fn a_domain_0_that_waits_is_named_and_nobody_else_as_it() {
    let mut h = pinned_domains("credit");
    assert!(!h.finds("driver_starved"));
    h.vm("Domain-0", 1, 0.1, 0.2, 200.0);
    let driver = h.config.vms.last_mut().unwrap();
    (driver.manager, driver.pid) = (Manager::Xen, 0);
    let found: Vec<Finding> = h.findings().into_iter().filter(|f| f.rule == "driver_starved").collect();
    assert_eq!(found.len(), 1);
    assert!(found[0].title.contains("Domain-0"));
}

#[test]
fn who_wakes_all_the_time_is_named_to_whom_credit_lets_it_interrupt() {
    let of = |scheduler: &str, wakes_per_s: f64, culprit: &str| {
        let mut h = Host::new(1, 1, 1.0);
        h.vm("computes", 1, 0.6, 0.4, 0.0).vm("wakes", 1, 0.4, 0.01, wakes_per_s);
        let pool = CpuPool {
            name: "Pool-0".into(),
            scheduler: scheduler.into(),
            cpus: CpuSet::first(1),
            parameters: BTreeMap::new(),
        };
        for vm in &mut h.config.vms {
            (vm.manager, vm.pool) = (Manager::Xen, Some(pool.clone()));
        }
        h.model.vms[0].threads[0].preemptions_per_s = Some(wakes_per_s);
        let blame =
            Blame { victim: VmId("computes".into()), culprit: Culprit::Vm(VmId(culprit.into())), share: 0.4 };
        h.model.blame = Some(vec![blame]);
        h.findings().into_iter().filter(|f| f.rule == "boost_starved").collect::<Vec<_>>()
    };
    let found = of("credit", 250.0, "wakes");
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].vm.clone(), found[0].loss_pcpus), (Some(VmId("computes".into())), 0.4));
    assert!(found[0].title.contains("250 times a second by \"wakes\""), "{}", found[0].title);
    assert!(of("credit2", 250.0, "wakes").is_empty(), "it has no BOOST");
    assert!(of("credit", 5.0, "wakes").is_empty(), "once in a while is no interruption");
    assert!(of("credit", 250.0, "computes").is_empty(), "that is itself");
}

#[test]
fn timers_that_are_refused_or_late_are_told_and_a_few_are_not() {
    let of = |per_s: f64, late: f64, refused: f64| {
        let mut h = Host::new(1, 1, 1.0);
        h.vm("audio", 1, 0.3, 0.2, 100.0);
        let vm = &mut h.model.vms[0];
        (vm.timers_per_s, vm.timers_late, vm.timers_refused) = (Some(per_s), Some(late), Some(refused));
        h.findings().into_iter().filter(|f| f.rule == "timers_refused").map(|f| f.title).collect::<Vec<_>>()
    };
    assert_eq!(of(50.0, 0.3, 0.3), ["VM \"audio\" is not put first for 30 % of its timers"]);
    assert_eq!(of(50.0, 0.1, 0.0), ["VM \"audio\" is served late for 10 % of its timers"]);
    assert!(of(50.0, 0.01, 0.01).is_empty());
    assert!(of(0.1, 0.5, 0.5).is_empty(), "three timers in half a minute say nothing");
}

#[test]
fn a_domain_without_a_home_node_is_named_unless_it_prefers_one_or_is_pinned() {
    let mut h = Host::new(4, 2, 0.5);
    h.vm("a", 2, 0.5, 0.0, 0.0);
    assert!(!h.finds("no_home_node"), "Linux places by itself");
    h.config.vms[0].manager = Manager::Xen;
    assert!(h.finds("no_home_node"));
    let mut preferring = Host { config: h.config.clone(), model: h.model.clone() };
    preferring.config.vms[0].threads.iter_mut().for_each(|t| t.prefers = Some(CpuSet::first(2)));
    assert!(!preferring.finds("no_home_node"));
    h.pin("a", "0-1");
    assert!(!h.finds("no_home_node"));
}
