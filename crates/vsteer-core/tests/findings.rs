//! Tests of each rule of the diagnosis at its limits.
//!
//! For each rule: one host on which the rule reports a finding, with the exact figures, and for each of its
//! conditions one host on which the rule just does not report one.

mod common;

use common::{Host, contended, words};
use std::collections::BTreeMap;
use vsteer_core::diagnose::{Context, Finding};
use vsteer_core::model::{Blame, Quantiles, Worlds};
use vsteer_core::nouns::*;
use vsteer_core::thresholds::Thresholds;
use vsteer_core::{CpuSet, topology};

fn blame(victim: &str, culprit: Culprit, share: f64) -> Blame {
    Blame { victim: VmId(victim.into()), culprit, share }
}

fn vm(name: &str) -> Culprit {
    Culprit::Vm(VmId(name.into()))
}

fn latency(p99_ms: f64, count: u64) -> Option<Quantiles> {
    let p99_ns = p99_ms * 1e6;
    Some(Quantiles { count, p50_ns: 0.0, p95_ns: 0.0, p99_ns, max_ns: p99_ns })
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

/// One VM with one vCPU on two pCPUs.
fn single(run: f64, ready: f64) -> Host {
    let mut h = Host::new(2, 1, 0.5);
    h.vm("a", 1, run, ready, 100.0);
    h
}

/// What the first VM exceeds, in words.
fn exceeded(h: &Host) -> Vec<String> {
    let context = Context { config: &h.config, model: &h.model, thresholds: Thresholds::default() };
    let vm = &h.model.vms[0];
    let exceeded = context.exceeded(vm);
    assert_eq!(context.waits(vm), !exceeded.is_empty());
    words(&exceeded)
}

/// Does the rule report a finding on `base` after `tweak` changed it?
fn speaks(rule: &str, base: impl Fn() -> Host, tweak: impl Fn(&mut Host)) -> bool {
    let mut h = base();
    tweak(&mut h);
    h.finds(rule)
}

#[test]
fn a_vm_waits_above_a_threshold_and_not_at_it() {
    let busy = |ready: f64| single(0.6, ready);
    assert_eq!(exceeded(&busy(0.05)), [""; 0]);
    let per_vcpu = "ready per vCPU (published threshold, warning): 6.00 % against 5.00";
    assert_eq!(exceeded(&busy(0.06)), [per_vcpu]);
    // Where the collector cannot split ready from limited, the rule takes both together.
    let mut h = busy(0.06);
    (h.model.vms[0].vcpus.ready, h.model.vms[0].vcpus.wait) = (None, Some(0.07));
    assert_eq!(exceeded(&h), ["ready per vCPU (published threshold, warning): 7.00 % against 5.00"]);

    let mut h = Host::new(4, 1, 0.5);
    h.vm("a", 4, 0.6, 0.0, 0.0);
    for (ready, costop, told) in [
        (0.10, 0.0, vec![]),
        (0.12, 0.0, vec!["ready per VM group (J. Park 2022): 12.00 % against 10.00"]),
        (0.0, 0.04, vec![]),
        (0.0, 0.044, vec!["co-stop per vCPU (published threshold, warning): 1.10 % against 1.00"]),
        (
            0.0,
            0.06,
            vec![
                "co-stop per vCPU (published threshold, warning): 1.50 % against 1.00",
                "co-stop per VM group (J. Park 2022): 6.00 % against 5.00",
            ],
        ),
    ] {
        (h.model.vms[0].vcpus.ready, h.model.vms[0].vcpus.costop) = (Some(ready), Some(costop));
        assert_eq!(exceeded(&h), told, "{ready} {costop}");
    }
}

#[test]
fn a_vm_that_mostly_sleeps_has_stricter_thresholds() {
    let sleeper = |ready: f64, p99_ms: f64, count: u64| {
        let mut h = single(0.1, 0.0);
        h.model.vms[0].vcpus.ready = Some(ready);
        h.model.vms[0].wake_latency = latency(p99_ms, count);
        exceeded(&h)
    };
    assert_eq!(sleeper(0.01, 2.0, 500), [""; 0]);
    assert_eq!(
        sleeper(0.02, 2.0, 500),
        ["ready and co-stop per vCPU of a VM that mostly sleeps: 2.00 % against 1.00"]
    );
    assert_eq!(sleeper(0.01, 2.1, 20), ["wake-up to running, 99th percentile: 2.10 ms against 2.00"]);
    assert_eq!(sleeper(0.01, 2.1, 19), [""; 0], "so few wake-ups tell no percentile");
}

#[test]
fn of_a_vm_whose_group_alone_is_counted_only_the_groups_thresholds_count() {
    let group = |ready: f64, costop: f64| {
        let mut h = single(0.1, 0.0);
        let vm = &mut h.model.vms[0];
        vm.threads.clear();
        (vm.worlds, vm.vcpus) = (Some(Worlds { count: Some(9) }), Shares::default());
        (vm.group.ready, vm.group.costop) = (Some(ready), Some(costop));
        exceeded(&h)
    };
    assert_eq!(group(0.10, 0.05), [""; 0]);
    assert_eq!(group(0.11, 0.05), ["ready per VM group (J. Park 2022): 11.00 % against 10.00"]);
    assert_eq!(group(0.10, 0.06), ["co-stop per VM group (J. Park 2022): 6.00 % against 5.00"]);
}

fn in_container(comm: &str, container: &str) -> Culprit {
    Culprit::Process { comm: comm.into(), pid: 7, container: Some(container.into()) }
}

#[test]
fn every_culprit_has_a_name() {
    let h = single(0.5, 0.0);
    let context = Context { config: &h.config, model: &h.model, thresholds: Thresholds::default() };
    let process = |pid| Culprit::process("backup", pid);
    for (culprit, name) in [
        (vm("a"), "VM \"a\""),
        (vm("gone"), "VM \"gone\""),
        (process(7), "process backup (pid 7)"),
        (process(0), "process backup"),
        (in_container("cc1", "lxc web"), "process cc1 (pid 7) in lxc web"),
        (Culprit::Kernel { comm: "kswapd0".into() }, "kernel thread kswapd0"),
        (Culprit::Placement, "placement (an allowed pCPU was idle)"),
        (Culprit::Unattributed, "unknown"),
    ] {
        assert_eq!(context.culprit(&culprit), name);
    }
}

fn xen_pool(name: &str, scheduler: &str, pcpus: u32) -> CpuPool {
    CpuPool {
        name: name.into(),
        scheduler: scheduler.into(),
        cpus: CpuSet::first(pcpus),
        parameters: BTreeMap::new(),
    }
}

/// A domain that computes, and one that wakes 250 times a second for 1.6 ms, in a pool of Credit.
fn boosted() -> Host {
    let mut h = Host::new(1, 1, 1.0);
    h.vm("computes", 1, 0.6, 0.4, 0.0).vm("wakes", 1, 0.4, 0.01, 250.0);
    for vm in &mut h.config.vms {
        (vm.manager, vm.pool) = (Manager::Xen, Some(xen_pool("Pool-0", "credit", 1)));
    }
    h.model.vms[0].threads[0].preemptions_per_s = Some(250.0);
    h.model.blame = Some(vec![blame("computes", vm("wakes"), 0.4)]);
    h
}

#[test]
fn an_interruption_takes_one_that_computes_and_one_that_wakes_often_and_runs_briefly() {
    let found = &boosted().found("boost_starved")[0];
    assert_eq!(
        words(&found.evidence),
        [
            "preemptions of this VM: 250.00 /s against 20.00",
            "ready share of this VM that these VMs cause: 40.00 % against 5.00",
            "wake-ups of VM \"wakes\": 250.00 /s",
            "mean run time per wake-up of VM \"wakes\": 1.60 ms against 10.00",
        ]
    );
    assert!(found.next.contains("-p Pool-0") && near(found.loss_pcpus, 0.4), "{found:?}");

    type Tweak = fn(&mut Host);
    let cases: [(bool, &str, Tweak); 20] = [
        (true, "it wants 80 %", |h| h.model.vms[0].vcpus.ready = Some(0.2)),
        (false, "it wants less", |h| h.model.vms[0].vcpus.ready = Some(0.19)),
        (true, "20 preemptions a second", |h| h.model.vms[0].threads[0].preemptions_per_s = Some(20.0)),
        (false, "fewer", |h| h.model.vms[0].threads[0].preemptions_per_s = Some(19.0)),
        (false, "it does not wait", |h| {
            (h.model.vms[0].vcpus.run, h.model.vms[0].vcpus.ready) = (Some(0.9), Some(0.04));
        }),
        (false, "another waits for it", |h| h.model.blame = Some(vec![blame("wakes", vm("wakes"), 0.4)])),
        (false, "without a blame matrix", |h| h.model.blame = None),
        (false, "for itself, who wakes as often", |h| {
            h.model.vms[0].threads[0].wakeups_per_s = Some(250.0);
            h.model.vms[0].threads[0].switches_per_s = Some(250.0);
            h.model.blame = Some(vec![blame("computes", vm("computes"), 0.4)]);
        }),
        (false, "for a process", |h| {
            h.model.blame = Some(vec![blame("computes", Culprit::process("x", 1), 0.4)]);
        }),
        (false, "one of another pool", |h| h.config.vms[1].pool = Some(xen_pool("Pool-1", "credit", 1))),
        (true, "20 wake-ups a second", |h| {
            h.model.vms[1].threads[0].wakeups_per_s = Some(20.0);
        }),
        (false, "fewer", |h| h.model.vms[1].threads[0].wakeups_per_s = Some(19.0)),
        (true, "it runs for less than 10 ms", |h| h.model.vms[1].threads[0].switches_per_s = Some(41.0)),
        (false, "10 ms", |h| h.model.vms[1].threads[0].switches_per_s = Some(40.0)),
        (false, "nobody knows for how long", |h| h.model.vms[1].threads[0].switches_per_s = None),
        (true, "half of what it waits is theirs", |h| h.model.blame.as_mut().unwrap()[0].share = 0.2),
        (false, "less than half", |h| h.model.blame.as_mut().unwrap()[0].share = 0.19),
        (false, "less than a VM may wait", |h| {
            (h.model.vms[0].vcpus.run, h.model.vms[0].vcpus.ready) = (Some(0.9), Some(0.06));
            h.model.blame.as_mut().unwrap()[0].share = 0.04;
        }),
        (true, "as much as a VM may wait", |h| {
            (h.model.vms[0].vcpus.run, h.model.vms[0].vcpus.ready) = (Some(0.9), Some(0.06));
            h.model.blame.as_mut().unwrap()[0].share = 0.05;
        }),
        (false, "not Xen", |h| h.config.vms[0].manager = Manager::Bare),
    ];
    for (expected, why, tweak) in cases {
        assert_eq!(speaks("boost_starved", boosted, tweak), expected, "{why}");
    }
}

#[test]
fn a_dead_weight_is_told_from_3_points_on_with_what_the_weights_would_give() {
    let h = |light: f64, heavy: f64| {
        let mut h = Host::new(2, 1, 0.5);
        h.vm("light", 1, light, 0.2, 0.0).pin("light", "1").vm("heavy", 1, heavy, 0.2, 0.0).pin("heavy", "1");
        for (vm, weight) in h.config.vms.iter_mut().zip([256, 768]) {
            (vm.manager, vm.weight) = (Manager::Xen, Some(CpuWeight::Credit(weight)));
            vm.pool = Some(xen_pool("Pool-0", "credit", 2));
        }
        h.found("dead_weight")
    };
    let [found] = &h(0.3, 0.5)[..] else { panic!() };
    // The weights give three quarters of the 80 % that both run.
    assert!(near(found.loss_pcpus, 0.1));
    assert_eq!(
        words(&found.evidence),
        [
            "weight of this VM, multiple of the default: 3.00 x",
            "run share of this VM, compared with the share by weight: 50.00 % against 60.00",
            "ready share of this VM, summed over vCPUs: 20.00 %",
        ]
    );
    assert_eq!(h(0.04, 0.0).len(), 1, "3 points of 4 are its due");
    assert_eq!(h(0.039, 0.0).len(), 0);
    assert_eq!(h(0.25, 0.75).len(), 0, "as the weights say");
}

#[test]
fn domain_0_waits_at_the_public_level_or_wakes_late() {
    let of = |ready: f64, p99_ms: f64, count: u64| -> Vec<Finding> {
        let mut h = Host::new(2, 1, 0.5);
        h.vm("Domain-0", 1, 0.1, 0.0, 200.0);
        let vm = &mut h.config.vms[0];
        (vm.manager, vm.pid, vm.weight) = (Manager::Xen, 0, Some(CpuWeight::Credit(512)));
        h.model.vms[0].vcpus.ready = Some(ready);
        h.model.vms[0].wake_latency = latency(p99_ms, count);
        h.found("driver_starved")
    };
    let [found] = &of(0.05, 1.0, 500)[..] else { panic!() };
    assert_eq!(
        words(&found.evidence),
        [
            "ready share per vCPU of Domain-0: 5.00 % against 5.00",
            "weight of Domain-0, multiple of the default: 2.00 x",
        ]
    );
    assert!(near(found.loss_pcpus, 0.05));
    for (ready, p99_ms, count, expected) in [
        (0.049, 5.0, 500, 0),
        (0.049, 5.1, 500, 1),
        (0.049, 5.1, 20, 1),
        (0.049, 5.1, 19, 0),
        (0.021, 5.1, 500, 1),
        (0.02, 5.1, 500, 0),
    ] {
        assert_eq!(of(ready, p99_ms, count).len(), expected, "{ready} {p99_ms} {count}");
    }
}

#[test]
fn threads_that_serve_devices_wait_at_the_public_level_or_wake_late() {
    let of = |role: Role, ready: f64, p99_ms: f64, count: u64| -> Vec<Finding> {
        let mut h = single(0.1, 0.0);
        let thread = &mut h.model.vms[0].threads[1];
        (thread.role, thread.shares.ready, thread.shares.wait) = (role, Some(ready), Some(0.9));
        thread.wake_latency = latency(p99_ms, count);
        h.found("emulator_starved")
    };
    let [found] = &of(Role::Emulator, 0.05, 1.0, 500)[..] else { panic!() };
    assert_eq!(found.title, "the emulator thread of VM \"a\" waits for a pCPU");
    assert_eq!(words(&found.evidence), ["ready share of this thread: 5.00 % against 5.00"]);
    assert!(near(found.loss_pcpus, 0.05));
    for (role, ready, p99_ms, count, expected) in [
        (Role::Emulator, 0.049, 5.0, 500, 0),
        (Role::Emulator, 0.006, 5.1, 20, 1),
        (Role::Emulator, 0.006, 5.1, 19, 0),
        (Role::Emulator, 0.005, 5.1, 500, 0),
        (Role::IoThread(1), 0.05, 1.0, 500, 1),
        (Role::Vhost, 0.05, 1.0, 500, 1),
        (Role::Worker, 0.3, 9.0, 500, 0),
        (Role::Vcpu(1), 0.3, 9.0, 500, 0),
    ] {
        assert_eq!(of(role, ready, p99_ms, count).len(), expected, "{role} {ready} {p99_ms} {count}");
    }
}

/// None of its processes causes a quarter, but all of them together do.
#[test]
fn the_processes_of_a_container_count_together() {
    let of = |share: f64| {
        let mut h = Host::new(2, 1, 1.0);
        h.vm("a", 1, 0.5, 0.5, 0.0);
        h.model.blame = Some(vec![
            blame("a", in_container("make", "lxc web"), share / 4.0),
            blame("a", in_container("cc1", "lxc web"), share / 2.0),
            blame("a", in_container("cc1", "pod 5d2a"), 0.1),
            blame("a", Culprit::process("cc1", 9), 0.1),
            blame("a", in_container("make", "lxc web"), share / 4.0),
            blame("a", Culprit::Placement, 0.3 - share),
        ]);
        h.found("host_process")
    };
    let [found] = &of(0.16)[..] else { panic!("{:?}", of(0.16)) };
    assert_eq!(found.title, "VM \"a\" waits for processes of lxc web: cc1, make");
    assert!(near(found.loss_pcpus, 0.16));
    assert_eq!(
        words(&found.evidence),
        [
            "ready share that this container caused, all threads together: 16.00 %",
            "part of this VM's ready time: 32.00 % against 25.00"
        ]
    );
    assert!(of(0.12).is_empty());
}

#[test]
fn a_culprit_is_named_for_more_than_a_quarter_of_what_a_vm_waits() {
    let process = Culprit::process("backup", 7);
    let kernel = Culprit::Kernel { comm: "kswapd0".into() };
    for (rule, culprit, title) in [
        ("noisy_neighbour", vm("b"), "VM \"a\" waits for VM \"b\""),
        ("host_process", process.clone(), "VM \"a\" waits for the host's process backup (pid 7)"),
        ("host_process", kernel, "VM \"a\" waits for the host's kernel thread kswapd0"),
    ] {
        let of = |ready: f64, share: f64| {
            let mut h = Host::new(2, 1, 1.0);
            h.vm("a", 1, 0.5, ready, 0.0).vm("b", 1, 0.5, 0.5, 0.0);
            h.model.blame = Some(vec![
                blame("a", culprit.clone(), share),
                blame("a", Culprit::Placement, 0.5 - share),
                blame("a", vm("a"), 0.0),
                blame("b", Culprit::Unattributed, 0.4),
            ]);
            h.found(rule)
        };
        let [found] = &of(0.5, 0.2)[..] else { panic!("{rule}") };
        assert_eq!(found.title, title);
        assert!(near(found.loss_pcpus, 0.2));
        let by = if rule == "noisy_neighbour" { "the other VM" } else { "this thread" };
        assert_eq!(
            words(&found.evidence),
            [
                &format!("ready share that {by} caused, all threads together: 20.00 %"),
                "part of this VM's ready time: 40.00 % against 25.00"
            ]
        );
        assert_eq!(of(0.5, 0.125).len(), 0, "{rule}: a quarter");
        assert_eq!(of(0.05, 0.2).len(), 0, "{rule}: it does not wait too long");
    }
    let mut h = Host::new(2, 1, 1.0);
    h.vm("a", 1, 0.5, 0.5, 0.0);
    h.model.blame = Some(vec![blame("a", vm("a"), 0.5)]);
    assert!(!h.finds("noisy_neighbour"), "a VM is not its own neighbour");
}

/// Two tenants call their VMs "web".
#[test]
fn vms_of_one_name_are_told_apart() {
    let mut h = contended();
    let others = h.config.vms.len() - 2;
    h.config.vms[0].name = "web".into();
    (h.config.vms[1].name, h.config.vms[1].manager) = ("web".into(), Manager::Proxmox(101));
    let (first, second) = (h.config.vms[0].id.clone(), h.config.vms[1].id.clone());
    // The first is a process that anybody can have started: it does not rename Proxmox's.
    assert_eq!(h.config.name_of(&first), format!("web ({first})"));
    assert_eq!(h.config.name_of(&second), "web");
    h.config.vms[0].manager = Manager::Proxmox(102);
    assert_eq!(h.config.name_of(&first), "web (102)");
    assert_eq!(h.config.name_of(&second), "web (101)");
    let mut forged = h.config.clone();
    forged.vms[0].name = "web (101)".into();
    forged.vms[1].manager = Manager::Proxmox(101);
    let names: std::collections::BTreeSet<String> = forged.called().into_values().collect();
    assert_eq!(names.len(), forged.vms.len(), "{names:?}");
    let called = h.config.called();
    assert_eq!(called.values().filter(|name| !name.contains('(')).count(), others);
    assert_eq!(h.config.name_of(&VmId("gone".into())), "gone");
}

/// A slice's quota: the finding names the slice, and does not invent a count that nobody read.
#[test]
fn a_quota_of_a_slice_speaks_by_the_slice() {
    let mut h = single(0.5, 0.0);
    let vm = &mut h.model.vms[0];
    (vm.group.limited, vm.vcpus.limited, vm.throttled_per_s) = (Some(0.4), Some(0.4), None);
    vm.throttled_above_per_s = None;
    h.config.vms[0].quotas = vec![GroupQuota {
        cgroup: "/machine.slice".into(),
        quota: Quota { quota_us: 60_000, period_us: 100_000 },
        shared: true,
    }];
    let found = &h.found("limited")[0];
    assert!(found.title.contains("the CPU quota of cgroup /machine.slice throttles VM"), "{}", found.title);
    assert_eq!(
        words(&found.evidence),
        [
            "limited share, summed over all threads: 40.00 %",
            "quota of cgroup /machine.slice: 0.60 pCPUs",
            "run share, summed over vCPUs: 50.00 %"
        ]
    );
    assert!(found.next.contains("/machine.slice") && !found.next.contains("--only quota"), "{}", found.next);
    // Its own quota is larger, but it is the one that ran out; and the other way round.
    h.config.vms[0].limits.whole_vm = Some(Quota { quota_us: 400_000, period_us: 100_000 });
    for (own, above, expected) in
        [(5.0, 0.0, "the CPU quota of VM"), (0.0, 5.0, "/machine.slice throttles VM")]
    {
        (h.model.vms[0].throttled_per_s, h.model.vms[0].throttled_above_per_s) = (Some(own), Some(above));
        let found = &h.found("limited")[0];
        assert!(found.title.contains(expected), "{}", found.title);
        assert_eq!(words(&found.evidence)[0], "quota used up: 5.00 times/s");
    }
    // Polling cannot tell limited time. A VM that does not wait has nothing to do with its slice's quota.
    let vm = &mut h.model.vms[0];
    (vm.group.limited, vm.vcpus.limited) = (None, None);
    for (wait, found) in [(0.0, 0), (0.4, 1)] {
        h.model.vms[0].vcpus.wait = Some(wait);
        assert_eq!(h.found("limited").len(), found, "{wait}");
    }
}

/// A VM in an idle cgroup: the finding names the topmost one, and weights are not proposed.
#[test]
fn an_idle_cgroup_is_named_where_its_vm_waits() {
    let mut h = Host::new(2, 1, 1.0);
    h.vm("tick", 1, 0.1, 0.09, 250.0).vm("batch", 2, 0.9, 0.02, 0.0);
    assert!(!h.finds("idle_group") && h.proposed("weights").is_ok());
    let idle = |cgroup: &str| GroupScheduling { cgroup: cgroup.into(), idle: true, ..Default::default() };
    h.config.vms[0].scheduling = vec![idle("/m/tick/emulator")];
    assert!(!h.finds("idle_group"), "no vCPU is in it");
    h.config.vms[0].scheduling = vec![idle("/m"), idle("/m/tick")];
    let found = &h.found("idle_group")[0];
    assert_eq!(found.title, "VM \"tick\" waits for all others: its cgroup /m is idle");
    assert!(found.next.contains("run: echo 0 > /sys/fs/cgroup/cpu/m/cpu.idle "), "{}", found.next);
    assert!(near(found.loss_pcpus, 0.09));
    let why = h.proposed("weights").unwrap_err();
    assert!(why.contains("no delayed VM has a weight that vsteer can raise"), "{why}");
    h.config.vms[0].scheduling[0].idle = false;
    assert_eq!(
        h.found("idle_group")[0].title,
        "VM \"tick\" waits for all others: its cgroup /m/tick is idle"
    );
    let m = &mut h.model.vms[0];
    (m.wake_latency, m.threads[0].shares.ready, m.vcpus.ready, m.vcpus.wait, m.group.ready) =
        (None, Some(0.0), Some(0.0), Some(0.0), Some(0.0));
    m.threads[0].shares.wait = Some(0.0);
    assert!(!h.finds("idle_group"), "it does not wait");
}

/// Limited time of real-time threads is a budget's, not a quota's.
#[test]
fn a_budget_of_real_time_threads_has_a_rule_of_its_own() {
    let mut h = single(0.2, 0.0);
    let vm = &mut h.model.vms[0];
    vm.threads[0].shares.limited = Some(0.7);
    (vm.group.limited, vm.vcpus.limited) = (Some(0.7), Some(0.7));
    assert!(h.finds("limited") && !h.finds("realtime_limited"), "an ordinary thread obeys quotas");
    h.config.vms[0].threads[0].class = Some(SchedClass::Fifo(1));
    let name = h.config.vms[0].name.clone();
    for (budget, runtime_us) in h.config.vms[0].rt_budgets.iter_mut().zip([-1, 300_000, 200_000, 0]) {
        budget.runtime_us = runtime_us;
    }
    assert!(!h.finds("limited"));
    let found = &h.found("realtime_limited")[0];
    let vcpu = h.config.vms[0].threads[0].cgroup.clone().unwrap();
    assert_eq!(found.title, format!("the real-time budget of cgroup {vcpu} throttles VM {name:?}"));
    assert_eq!(
        words(&found.evidence),
        [
            "limited share of the VM's real-time threads, summed: 70.00 %",
            "real-time budget on each pCPU: 0.20 pCPUs"
        ]
    );
    assert!(near(found.loss_pcpus, 0.7));
    h.config.vms[0].rt_budgets.clear();
    assert!(h.found("realtime_limited")[0].title.starts_with("the kernel's budget for real-time threads"));
    h.model.vms[0].threads[0].shares.limited = Some(0.05);
    assert!(!h.finds("realtime_limited"));
}

/// Settings that explain part of a wait stand beside it.
#[test]
fn clamps_and_bursts_are_evidence() {
    let mut h = single(0.5, 0.2);
    let group = GroupScheduling {
        cgroup: "/m".into(),
        burst_us: Some(20_000),
        uclamp_max: Some(4_000),
        ..Default::default()
    };
    h.config.vms[0].scheduling = vec![group];
    h.vm("b", 1, 0.5, 0.0, 0.0);
    let (victim, culprit) = (h.config.vms[0].id.clone(), Culprit::Vm(VmId("b".into())));
    h.model.blame = Some(vec![Blame { victim, culprit, share: 0.2 }]);
    let told = words(&h.found("noisy_neighbour")[0].evidence);
    assert!(told.contains(&"cpu.uclamp.max of /m: 40.00 %".to_owned()), "{told:?}");
    let vm = &mut h.model.vms[0];
    (vm.group.limited, vm.vcpus.limited) = (Some(0.1), Some(0.1));
    let told = words(&h.found("limited")[0].evidence);
    assert!(told.contains(&"burst of cgroup /m: 20.00 ms".to_owned()), "{told:?}");
}

#[test]
fn a_quota_speaks_by_limited_time_or_where_that_is_not_told_by_throttling() {
    let of = |held: Option<f64>, per_vcpu: f64, throttled_per_s: f64| -> Vec<Finding> {
        let mut h = single(0.5, 0.0);
        let vm = &mut h.model.vms[0];
        (vm.group.limited, vm.vcpus.limited) = (held, Some(per_vcpu));
        vm.throttled_per_s = Some(throttled_per_s);
        h.config.vms[0].limits.whole_vm = Some(Quota { quota_us: 50_000, period_us: 100_000 });
        h.found("limited")
    };
    let [found] = &of(Some(0.07), 0.06, 3.0)[..] else { panic!() };
    assert_eq!(
        words(&found.evidence),
        [
            "quota used up: 3.00 times/s",
            "limited share, summed over all threads: 7.00 %",
            "quota: 0.50 pCPUs",
            "run share, summed over vCPUs: 50.00 %"
        ]
    );
    assert!(near(found.loss_pcpus, 0.07));
    for (held, per_vcpu, throttled, expected) in [
        (Some(0.05), 0.05, 9.0, 0),
        (Some(0.05), 0.06, 0.0, 1),
        (None, 0.06, 1.0, 0),
        (None, 0.06, 1.1, 1),
        (None, 0.0, 1.1, 1),
    ] {
        assert_eq!(of(held, per_vcpu, throttled).len(), expected, "{held:?} {per_vcpu} {throttled}");
    }
}

#[test]
fn memory_is_remote_by_what_each_vcpu_reaches() {
    // vCPU 0 on node 0 runs 20 %, vCPU 1 on node 1 40 %.
    let host = || {
        let mut h = Host::new(4, 2, 0.5);
        h.vm("a", 2, 0.2, 0.0, 10.0);
        h.model.vms[0].threads[1].shares.run = Some(0.4);
        h.model.vms[0].threads[1].last_cpu = Some(2);
        h.model.vms[0].vcpus.run = Some(0.6);
        h
    };
    let mut h = host();
    h.model.vms[0].memory_by_node = Some(vec![(0, 300), (1, 100)]);
    let [found] = &h.found("memory_remote")[..] else { panic!() };
    // (0.2 x 3/4 + 0.4 x 1/4) / 0.6
    assert_eq!(found.title, "VM \"a\" has 58 % of its memory on remote NUMA nodes");
    assert_eq!(words(&found.evidence), ["local share of this VM's memory: 41.67 % against 80.00"]);
    assert!(near(found.loss_pcpus, 0.1 * 0.6 * (1.0 - 5.0 / 12.0)), "{}", found.loss_pcpus);
    h.model.vms[0].memory_by_node = Some(vec![(0, 0), (1, 0)]);
    assert!(!h.finds("memory_remote"), "no memory, no part of it");

    let told = |tweak: fn(&mut Host)| speaks("memory_remote", host, tweak);
    assert!(!told(|h| h.model.vms[0].memory_local = Some(0.8)));
    assert!(told(|h| h.model.vms[0].memory_local = Some(0.79)));
    assert!(told(|h| (h.model.vms[0].memory_local, h.model.vms[0].vcpus.run) = (Some(0.5), Some(0.05))));
    assert!(!told(|h| (h.model.vms[0].memory_local, h.model.vms[0].vcpus.run) = (Some(0.5), Some(0.049))));
    assert!(!told(|h| {
        h.model.vms[0].memory_local = Some(0.5);
        h.config.topology = topology::machine(1, 1, 4, 1).unwrap();
    }));
    // A node without pCPUs does not count: no vCPU can run there.
    let mut h = host();
    h.model.vms[0].memory_local = Some(0.5);
    h.config.topology = common::topology_with_far_memory(4);
    assert!(h.config.topology.nodes().len() == 2 && !h.finds("memory_remote"));
}

#[test]
fn a_domain_that_fits_a_node_and_runs_misses_a_home() {
    let host = || {
        let mut h = Host::new(6, 3, 0.5);
        h.vm("a", 2, 0.3, 0.0, 0.0);
        (h.config.vms[0].manager, h.config.topology) = (Manager::Xen, topology::machine(3, 1, 2, 1).unwrap());
        h
    };
    let [found] = &host().found("no_home_node")[..] else { panic!() };
    assert_eq!(found.title, "VM \"a\" may run on 3 NUMA nodes and prefers none");
    assert_eq!(
        words(&found.evidence),
        [
            "nodes that this domain may run on: 3.00 nodes against 1.00",
            "distance of the farthest node, multiple of local access: 2.10 x",
            "run share of this domain, summed over vCPUs: 60.00 %"
        ]
    );
    // The rule assumes that two thirds of the memory lie on the other two nodes.
    assert!(near(found.loss_pcpus, 0.1 * 0.6 * 2.0 / 3.0), "{}", found.loss_pcpus);
    let told = |tweak: fn(&mut Host)| speaks("no_home_node", host, tweak);
    assert!(told(|h| h.model.vms[0].vcpus.run = Some(0.05)));
    assert!(!told(|h| h.model.vms[0].vcpus.run = Some(0.049)));
    assert!(told(|h| _ = h.pin("a", "0-3")), "two nodes of three");
    assert!(!told(|h| _ = h.pin("a", "0-1")));
    assert!(!told(|h| h.config.topology = topology::machine(1, 1, 6, 1).unwrap()), "one node");
    assert!(!told(|h| {
        h.config.topology = topology::machine(6, 1, 1, 1).unwrap();
    }));
    let prefers = |h: &mut Host, cpus: u32| {
        h.config.vms[0].threads.iter_mut().for_each(|t| t.prefers = Some(CpuSet::first(cpus)));
    };
    assert!(!speaks("no_home_node", host, |h| prefers(h, 2)));
    assert!(speaks("no_home_node", host, |h| prefers(h, 6)), "all nodes are no preference");
}

#[test]
fn all_is_well_up_to_the_thresholds_with_the_largest_ready_share() {
    let mut h = Host::new(2, 1, 0.25);
    assert!(h.rules().is_empty(), "no VM, nothing to say");
    h.vm("a", 1, 0.6, 0.04, 0.0).vm("b", 1, 0.6, 0.02, 0.0);
    h.model.vms[0].vcpus.limited = Some(0.05);
    let [found] = &h.found("nothing_wrong")[..] else { panic!("{:?}", h.rules()) };
    assert_eq!(
        words(&found.evidence),
        ["largest ready share per vCPU: 4.00 % against 5.00", "busy share of the pCPUs, mean: 25.00 %"]
    );
    h.model.vms[0].vcpus.limited = Some(0.06);
    assert!(!h.finds("nothing_wrong"), "a quota holds it");
}

#[test]
fn polling_as_root_is_a_way_out_only_where_polling_was_done_without() {
    let mut h = single(0.1, 0.0);
    assert!(!h.finds("not_measured"));
    h.model.missing = [("blame", "it takes eBPF"), ("lag_ns", "polling")]
        .map(|(what, why)| (what.into(), why.into()))
        .into();
    let found = h.found("not_measured").remove(0);
    assert_eq!(found.title, "not measured: blame, lag_ns");
    assert_eq!(found.explanation, "blame: it takes eBPF\nlag_ns: polling");
    assert!(found.next.starts_with("no vsteer option adds these"), "{}", found.next);
    h.model.collector = "schedstat".into();
    assert!(h.found("not_measured")[0].next.starts_with("run vsteer as root with --collector ebpf"));
}

#[test]
fn more_vcpus_than_pcpus_are_told_where_vms_wait() {
    let of = |vcpus: u32, ready: f64, tweak: fn(&mut Host)| {
        let mut h = Host::new(2, 1, 1.0);
        h.vm("a", vcpus, 0.1, ready, 100.0);
        tweak(&mut h);
        h.found("overcommitted")
    };
    let [found] = &of(3, 0.2, |_| ())[..] else { panic!() };
    assert_eq!(found.title, "3 vCPUs share 2 pCPUs, and VMs wait");
    assert_eq!(
        words(&found.evidence),
        ["vCPUs per pCPU: 1.50 x against 1.00", "ready share of the waiting VMs, summed over vCPUs: 60.00 %"]
    );
    // Half of the ready time: the finding ranks below the findings that it causes.
    assert!(near(found.loss_pcpus, 0.3));
    assert!(of(2, 0.2, |_| ()).is_empty(), "as many");
    assert!(of(3, 0.0, |_| ()).is_empty(), "nobody waits");
    assert!(of(3, 0.2, |h| h.model.pcpus.clear()).is_empty(), "nobody counted pCPUs");
}

#[test]
fn full_pcpus_are_told_with_all_that_is_asked_of_them() {
    let host = |waiting: u32, busy: f64| {
        let mut h = Host::new(2, 1, busy);
        for i in 0..waiting {
            h.vm(&format!("w{i}"), 1, 0.5, 0.1, 0.0);
        }
        h.vm("content", 1, 0.6, 0.0, 0.0);
        h.found("pcpus_overloaded")
    };
    let [found] = &host(2, 0.9)[..] else { panic!() };
    assert_eq!(found.title, "pCPUs 0-1 are overloaded: 2 VMs (\"w0\", \"w1\") wait there");
    assert!(
        found.explanation.contains("VMs on pCPUs 0-1 ask for 1.8 pCPUs of work"),
        "{}",
        found.explanation
    );
    assert_eq!(
        words(&found.evidence),
        [
            "busy share of these pCPUs: 90.00 % against 90.00",
            "demand of the VMs: 1.80 pCPUs against 2.00",
            "ready share of the waiting VMs, summed over vCPUs: 20.00 %"
        ]
    );
    assert!(near(found.loss_pcpus, 0.2));
    assert!(host(2, 0.89).is_empty() && host(0, 1.0).is_empty());
    assert!(host(4, 1.0)[0].title.ends_with("4 VMs (\"w0\", \"w1\", \"w2\", \"w3\") wait there"));
    assert!(host(6, 1.0)[0].title.ends_with("6 VMs (\"w0\", \"w1\", \"w2\", \"w3\" and 2 more) wait there"));
}

#[test]
fn a_pin_is_named_where_all_here_are_full_and_half_a_pcpu_idles_elsewhere() {
    let of = |busy: [f64; 4]| {
        let mut h = Host::new(4, 1, 1.0);
        h.vm("a", 2, 0.4, 0.3, 0.0).pin("a", "0-1");
        h.model.pcpus.iter_mut().zip(busy).for_each(|(p, busy)| p.busy = busy);
        h
    };
    let [found] = &of([1.0, 0.9, 0.75, 0.75]).found("pinned_busy")[..] else { panic!() };
    assert_eq!(found.title, "VM \"a\" is pinned to busy pCPUs 0-1 while pCPUs 2-3 are partly idle");
    assert_eq!(
        words(&found.evidence),
        [
            "ready share of this VM, summed over vCPUs: 60.00 %",
            "busy share of the VM's least busy pCPU: 90.00 % against 90.00",
            "idle time on pCPUs that the VM may not use: 0.50 pCPUs"
        ]
    );
    assert!(near(found.loss_pcpus, 0.6));
    assert!(!of([1.0, 0.89, 0.5, 0.5]).finds("pinned_busy"), "one of its own has time");
    assert!(!of([1.0, 1.0, 0.75, 0.76]).finds("pinned_busy"), "too little elsewhere");
    let mut h = of([1.0, 1.0, 0.0, 0.0]);
    h.model.pcpus.drain(..2);
    assert!(!h.finds("pinned_busy"), "nobody counted its own pCPUs");
    let mut h = of([1.0, 1.0, 0.0, 0.0]);
    h.pin("a", "0-3");
    assert!(!h.finds("pinned_busy"), "nowhere else to go");
}

#[test]
fn stolen_time_and_interrupts_are_told_above_their_limits() {
    let stolen = |steal: [Option<f64>; 2]| {
        let mut h = single(0.5, 0.0);
        h.model.pcpus.iter_mut().zip(steal).for_each(|(p, steal)| p.steal = steal);
        h.found("runs_slowly")
    };
    let [found] = &stolen([Some(0.06), Some(0.0)])[..] else { panic!() };
    assert_eq!(words(&found.evidence), ["stolen share of the pCPUs (steal), mean: 3.00 % against 2.00"]);
    assert!(near(found.loss_pcpus, 0.06));
    assert!(stolen([Some(0.04), Some(0.0)]).is_empty());
    assert_eq!(stolen([Some(0.04), None]).len(), 1, "the mean is over those that tell it");

    let overlap = |run: f64, overlap: f64| {
        let mut h = single(run, 0.0);
        h.model.vms[0].vcpus.overlap = Some(overlap);
        h.found("runs_slowly")
    };
    let [found] = &overlap(0.5, 0.06)[..] else { panic!() };
    assert_eq!(found.title, "interrupts take 12 % of the run time of VM \"a\"");
    assert_eq!(words(&found.evidence), ["overlap, part of the run time: 12.00 % against 10.00"]);
    assert!(near(found.loss_pcpus, 0.06));
    assert!(overlap(0.5, 0.05).is_empty(), "a tenth");
    assert!(overlap(0.05, 0.05).is_empty(), "it hardly runs");
}

/// A VM whose cgroup stalls this much on I/O and on memory.
fn stalling(ready: f64, io: Option<f64>, memory: Option<f64>) -> Host {
    let mut h = single(0.6, ready);
    h.model.vms[0].pressure =
        PressureShares { io_full: io, memory_full: memory, ..PressureShares::default() };
    h
}

#[test]
fn a_vm_that_stalls_on_other_things_is_named_where_it_hardly_waits_for_a_cpu() {
    let found = stalling(0.02, Some(0.30), Some(0.06)).found("stalled");
    let titles: Vec<&str> = found.iter().map(|f| f.title.as_str()).collect();
    assert_eq!(
        titles,
        ["VM \"a\" waits for I/O, hardly for a CPU", "VM \"a\" waits for memory, hardly for a CPU"]
    );
    assert_eq!(
        words(&found[0].evidence),
        [
            "I/O pressure of the VM's cgroup, full: 30.00 % against 5.00",
            "ready and limited per vCPU: 2.00 % against 5.00",
        ]
    );
    assert!(near(found[0].loss_pcpus, 0.30) && found[0].next.contains("iostat"), "{found:?}");
    assert!(found[1].next.contains("memory.max") && found[1].disproved_by.contains("memory.pressure"));
    // The figure of the threshold itself is not above it. Stalls of some threads do not stop the VM.
    assert!(!stalling(0.0, Some(0.05), Some(0.05)).finds("stalled"));
    let mut some = stalling(0.0, None, None);
    some.model.vms[0].pressure.io_some = Some(0.9);
    some.model.vms[0].pressure.cpu_some = Some(0.9);
    assert!(!some.finds("stalled"));
    // Nor is it said without a measured pressure, and the host's is not the VM's.
    let mut unmeasured = stalling(0.0, None, None);
    unmeasured.model.pressure.io_full = Some(0.9);
    assert!(!unmeasured.finds("stalled"));
}

#[test]
fn a_vm_that_waits_for_a_cpu_does_not_wait_for_something_else() {
    let io = || stalling(0.0, Some(0.30), None);
    let tweaked = |tweak: fn(&mut Host)| speaks("stalled", io, tweak);
    assert!(tweaked(|_| {}));
    // A VM that mostly sleeps waits too long for a CPU from 1 % on. It still waits far more for the disk.
    let mut sleeper = single(0.1, 0.02);
    sleeper.model.vms[0].pressure.io_full = Some(0.30);
    let context =
        Context { config: &sleeper.config, model: &sleeper.model, thresholds: Thresholds::default() };
    assert!(context.waits(&sleeper.model.vms[0]) && sleeper.finds("stalled"));
    assert!(!stalling(0.06, Some(0.30), None).finds("stalled"), "ready");
    assert!(!tweaked(|h| h.model.vms[0].vcpus.wait = Some(0.06)), "ready and limited together");
    assert!(
        !tweaked(|h| (h.model.vms[0].vcpus.wait, h.model.vms[0].vcpus.limited) = (None, Some(0.06))),
        "limited"
    );
    let uncounted = |h: &mut Host| h.model.vms[0].vcpus = Shares::default();
    assert!(!tweaked(uncounted), "whether it waits for a CPU is not known");
}

#[test]
fn stalls_stand_beside_ready_time() {
    let mut idle = single(0.6, 0.0);
    let figures = |h: &Host, rule: &str| words(&h.found(rule)[0].evidence);
    assert!(!figures(&idle, "nothing_wrong").iter().any(|e| e.contains("pressure")));
    idle.model.pressure = PressureShares { io_full: Some(0.07), ..PressureShares::default() };
    let beside = "I/O pressure of the host, full: 7.00 %".to_owned();
    assert!(figures(&idle, "nothing_wrong").contains(&beside), "{:?}", figures(&idle, "nothing_wrong"));

    let mut waits = contended();
    waits.model.blame = Some(vec![blame(&waits.config.vms[0].id.0, vm(&waits.config.vms[1].id.0), 0.5)]);
    assert!(!figures(&waits, "noisy_neighbour").iter().any(|e| e.contains("pressure")));
    waits.model.vms[0].pressure =
        PressureShares { io_full: Some(0.05), memory_full: Some(0.2), ..Default::default() };
    let beside: Vec<String> =
        figures(&waits, "noisy_neighbour").into_iter().filter(|e| e.contains("pressure")).collect();
    assert_eq!(beside, ["memory pressure of the VM's cgroup, full: 20.00 % against 5.00"]);
}

#[test]
fn timers_are_told_above_2_in_100_and_from_one_a_second_on() {
    let of = |per_s: f64, late: f64, refused: f64| {
        let mut h = single(0.3, 0.2);
        let vm = &mut h.model.vms[0];
        (vm.timers_per_s, vm.timers_late, vm.timers_refused) = (Some(per_s), Some(late), Some(refused));
        h.found("timers_refused").pop()
    };
    let found = of(1.0, 0.05, 0.03).unwrap();
    assert_eq!(found.title, "VM \"a\" is refused priority for 3 % of its timers");
    assert_eq!(
        words(&found.evidence),
        [
            "timers of this VM: 1.00 /s",
            "timers refused: 3.00 % against 2.00",
            "timers served at least 1.0 ms late: 5.00 % against 2.00"
        ]
    );
    assert!(near(found.loss_pcpus, 0.2));
    assert_eq!(of(1.0, 0.05, 0.02).unwrap().title, "VM \"a\" runs late for 5 % of its timers");
    assert!(of(1.0, 0.02, 0.02).is_none() && of(0.9, 0.5, 0.5).is_none());
}

#[test]
fn a_vm_has_too_many_vcpus_if_fewer_would_be_in_use_for_less_than_70_in_100() {
    let of = |vcpus: u32, run: f64, lag: f64| {
        let mut h = Host::new(4, 1, 0.5);
        h.vm("a", vcpus, 0.0, 0.0, 0.0);
        (h.model.vms[0].vcpus.run, h.model.vms[0].vcpus.lag) = (Some(run), Some(lag));
        h.found("too_many_vcpus").pop()
    };
    let found = of(2, 0.7, 0.05).unwrap();
    assert_eq!(found.title, "VM \"a\" has 2 vCPUs and needs 1: it asks for 0.7 pCPUs on average");
    assert_eq!(
        words(&found.evidence),
        [
            "vCPUs: 2.00 vCPUs against 1.00",
            "demand: run and ready together: 0.70 pCPUs",
            "lag share (ready while a sibling ran), summed over vCPUs: 5.00 % against 5.00"
        ]
    );
    assert!(near(found.loss_pcpus, 0.05));
    assert!(of(4, 1.5, 0.1).unwrap().title.contains("needs 3:"));
    assert!(of(2, 0.0, 0.1).unwrap().title.contains("needs 1:"));
    assert!(of(2, 0.71, 0.1).is_none(), "it needs both");
    assert!(of(2, 0.7, 0.049).is_none(), "nobody is held up");
    assert!(of(1, 0.1, 0.1).is_none(), "it has one");
}

#[test]
fn a_weight_starves_by_one_of_twice_as_much_that_runs_more_on_the_same_pcpus() {
    let host = || {
        let mut h = Host::new(2, 1, 1.0);
        h.vm("weak", 1, 0.4, 0.3, 0.0).vm("strong", 1, 0.5, 0.02, 0.0);
        h.config.vms[0].weight = Some(CpuWeight::Shares(512));
        h
    };
    let [found] = &host().found("weight_starved")[..] else { panic!() };
    assert_eq!(found.title, "VM \"weak\" waits because VM \"strong\" has a larger CPU weight");
    assert_eq!(
        words(&found.evidence),
        [
            "weight of this VM, multiple of the default: 0.50 x",
            "weight of the other VM, multiple of the default: 1.00 x",
            "run share of this VM, summed over vCPUs: 40.00 %",
            "run share of the other VM, summed over vCPUs: 50.00 %",
            "ready share of this VM, summed over vCPUs: 30.00 %"
        ]
    );
    assert!(near(found.loss_pcpus, 0.3));
    let told = |tweak: fn(&mut Host)| speaks("weight_starved", host, tweak);
    assert!(!told(|h| h.config.vms[1].weight = Some(CpuWeight::Shares(1023))), "less than twice as much");
    assert!(!told(|h| h.config.vms[1].weight = None));
    assert!(!told(|h| h.config.vms[0].weight = None));
    assert!(!told(|h| h.model.vms[1].vcpus.run = Some(0.4)), "it runs no more");
    assert!(!told(|h| _ = h.pin("weak", "0").pin("strong", "1")), "elsewhere");
    assert!(!told(|h| h.model.vms[0].vcpus.ready = Some(0.05)), "it does not wait too long");
}

/// Two VMs of 4 vCPUs on a host with two nodes of 4 cores. `homes`: the home node of both.
fn crowded_esxi(homes: Option<u32>) -> Host {
    let mut h = Host::new(8, 2, 0.0);
    h.config.topology = topology::machine(2, 1, 4, 1).unwrap();
    h.vm("a", 4, 0.4, 0.2, 0.0).vm("b", 4, 0.35, 0.2, 0.0);
    for vm in &mut h.config.vms {
        vm.manager = Manager::Vsphere("vm-1".into());
        vm.vsphere = Some(VsphereVm { home_nodes: homes.map(CpuSet::single), ..VsphereVm::default() });
    }
    h.model.pcpus.iter_mut().take(4).for_each(|p| p.busy = 0.8);
    h
}

#[test]
fn a_node_overloaded_beside_an_idle_one_is_told_with_esxis_trap_and_the_figures() {
    let h = crowded_esxi(Some(0));
    let [found] = &h.found("node_overloaded")[..] else { panic!("{:?}", h.rules()) };
    assert_eq!(found.title, "NUMA node 0 carries 8 vCPUs on 4 cores, and 2 of its VMs wait: \"a\", \"b\"");
    assert!(found.explanation.contains("KB 2097369"), "{}", found.explanation);
    assert!(
        found.explanation.contains("\"a\": migrate to node 1 and set its node affinity"),
        "{}",
        found.explanation
    );
    let told = words(&found.evidence);
    let is_there = |line: &str| assert!(told.iter().any(|t| t == line), "{line}: {told:?}");
    is_there("VM \"a\": ready per vCPU (published threshold, warning): 20.00 % against 5.00");
    is_there("vCPUs on the node: 8.00 vCPUs against 4.00");
    is_there("idle cores of the least busy other node: 4.00 cores against 2.41");
    assert!(near(found.loss_pcpus, 1.6), "{}", found.loss_pcpus);
    // KVM does not pull VMs together. ESXi does not either where no node idles.
    let mut kvm = crowded_esxi(Some(0));
    for vm in &mut kvm.config.vms {
        (vm.manager, vm.vsphere) = (Manager::Bare, None);
    }
    kvm.pin("a", "0-3").pin("b", "0-3");
    assert!(!kvm.found("node_overloaded")[0].explanation.contains("KB 2097369"));
    // The title names only VMs that wait and that are on this node.
    kvm.vm("content", 1, 0.1, 0.0, 0.0).vm("elsewhere", 1, 0.5, 0.3, 0.0);
    kvm.pin("content", "0-3").pin("elsewhere", "4-7");
    let title = &kvm.found("node_overloaded")[0].title;
    assert_eq!(title, "NUMA node 0 carries 9 vCPUs on 4 cores, and 2 of its VMs wait: \"a\", \"b\"");
    let mut full = crowded_esxi(Some(0));
    full.model.pcpus.iter_mut().for_each(|p| p.busy = 0.8);
    assert!(!full.found("node_overloaded")[0].explanation.contains("KB 2097369"));
}

#[test]
fn vms_of_vspheres_that_wait_and_have_no_known_home_are_told_together() {
    let mut h = crowded_esxi(None);
    h.model.vms[1].vcpus.ready = Some(0.9);
    let [found] = &h.found("node_overloaded")[..] else { panic!("{:?}", h.rules()) };
    assert_eq!(found.title, "2 VMs wait, and vsteer does not know their home NUMA nodes");
    assert_eq!((found.vm.clone(), found.loss_pcpus), (Some(VmId("b".into())), 0.0));
    for vm in &mut h.config.vms {
        (vm.manager, vm.vsphere) = (Manager::Bare, None);
    }
    assert!(!h.finds("node_overloaded"), "elsewhere VMs float");
    let mut one = crowded_esxi(None);
    one.config.topology = topology::machine(1, 1, 8, 1).unwrap();
    assert!(!one.finds("node_overloaded"), "the machine has one NUMA node");
}

#[test]
fn moves_that_only_relieve_are_told_as_such() {
    // Three VMs want at least 2.2 cores each, so neither node has room for two of them.
    let mut h = crowded_esxi(Some(0));
    h.vm("c", 4, 0.4, 0.2, 0.0);
    let vm = h.config.vms.last_mut().unwrap();
    vm.manager = Manager::Vsphere("vm-1".into());
    vm.vsphere = Some(VsphereVm { home_nodes: Some(CpuSet::single(0)), ..VsphereVm::default() });
    h.model.pcpus.iter_mut().take(4).for_each(|p| p.busy = 1.0);
    let found = h.found("node_overloaded");
    assert!(found.iter().any(|f| f.next.contains("reduce the overload but do not remove it")), "{found:?}");
}

#[test]
fn findings_of_a_full_host_name_the_same_loss_once_summed() {
    let h = contended();
    let full = &h.found("pcpus_overloaded")[0];
    // Two VMs have two vCPUs that are ready for 58 % each; the other two VMs, for 20 %.
    assert!(near(full.loss_pcpus, 4.0 * 0.58 + 4.0 * 0.20));
    assert!(near(h.found("overcommitted")[0].loss_pcpus, full.loss_pcpus / 2.0));
}
