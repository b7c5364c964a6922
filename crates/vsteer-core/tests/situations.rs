//! Situations that administrators report, and the cause that must come first. Each is a small made-up host: what the
//! reporter of an issue saw, a rule's own case, or a file on which `diagnose` was once silent or wrong.

mod common;

use common::{Host, contended};
use std::collections::BTreeSet;
use vsteer_core::CpuSet;
use vsteer_core::diagnose::{Finding, flat};
use vsteer_core::model::{Blame, Quantiles, Shares, Worlds};
use vsteer_core::nouns::*;
use vsteer_core::plan::advise::plan;
use vsteer_core::plan::limits::Limits;
use vsteer_core::plan::set::Setting;
use vsteer_core::setting::Scope;
use vsteer_core::topology;

/// A host, the rule of the first finding, and words of its title.
struct Situation {
    name: &'static str,
    host: Host,
    rule: &'static str,
    says: &'static str,
}

fn host(pcpus: u32, busy: f64, vms: &[(&str, u32, f64, f64, f64)]) -> Host {
    let mut h = Host::new(pcpus, 1, busy);
    for (name, vcpus, run, ready, wakes) in vms {
        h.vm(name, *vcpus, *run, *ready, *wakes);
    }
    h
}

fn blame(h: &mut Host, all: &[(&str, Culprit, f64)]) {
    let one = |(victim, culprit, share): &(&str, Culprit, f64)| Blame {
        victim: VmId((*victim).into()),
        culprit: culprit.clone(),
        share: *share,
    };
    h.model.blame = Some(all.iter().map(one).collect());
}

fn of_vm(name: &str) -> Culprit {
    Culprit::Vm(VmId(name.into()))
}

fn in_container(comm: &str, container: &str) -> Culprit {
    Culprit::Process { comm: comm.into(), pid: 7, container: Some(container.into()) }
}

fn busy(h: &mut Host, cpus: std::ops::Range<usize>, share: f64) {
    h.model.pcpus[cpus].iter_mut().for_each(|p| (p.busy, p.user) = (share, share));
}

fn weights(h: &mut Host, all: &[u64]) {
    h.config.vms.iter_mut().zip(all).for_each(|(vm, w)| vm.weight = Some(CpuWeight::Shares(*w)));
}

/// A quota of the VM's own (`above`: of a cgroup above it) holds each of its vCPUs for this share.
fn held(h: &mut Host, vm: usize, share: f64, above: Option<&str>) {
    let quota = Quota { quota_us: 60_000, period_us: 100_000 };
    let (config, model) = (&mut h.config.vms[vm], &mut h.model.vms[vm]);
    let vcpus = config.vcpu_count() as f64;
    for t in model.threads.iter_mut().filter(|t| t.role.vcpu().is_some()) {
        t.shares.limited = Some(share);
    }
    (model.vcpus.limited, model.group.limited) = (Some(share * vcpus), Some(share * vcpus));
    match above {
        None => (config.limits.whole_vm, model.throttled_per_s) = (Some(quota), Some(9.0)),
        Some(cgroup) => {
            config.quotas = vec![GroupQuota { cgroup: cgroup.into(), quota, shared: true }];
            (model.throttled_per_s, model.throttled_above_per_s) = (Some(0.0), Some(9.0));
        }
    }
}

/// Waits and co-stop of a VM of ESXi, per vCPU.
fn esxi(h: &mut Host, costop: f64) {
    (h.model.collector, h.model.blame) = ("esxtop".into(), None);
    for (config, vm) in h.config.vms.iter_mut().zip(&mut h.model.vms) {
        config.manager = Manager::Vsphere("vm-1".into());
        let vcpus = config.vcpu_count() as f64;
        for t in &mut vm.threads {
            (t.wake_latency, t.ready_spell, t.wakeups_per_s) = (None, None, None);
            t.shares.costop = Some(costop);
        }
        (vm.wake_latency, vm.ready_spell, vm.vcpus.costop) = (None, None, Some(costop * vcpus));
        vm.vcpus.lag = None;
    }
}

fn late(h: &mut Host, vm: usize, p99_ms: f64) {
    let ns = p99_ms * 1e6;
    let q = Some(Quantiles { count: 500, p50_ns: ns / 4.0, p95_ns: ns / 2.0, p99_ns: ns, max_ns: ns });
    h.model.vms[vm].wake_latency = q;
}

fn emulator_waits(h: &mut Host, vm: usize, ready: f64) {
    let emulator = h.model.vms[vm].threads.iter_mut().find(|t| t.role == Role::Emulator).unwrap();
    (emulator.shares.ready, emulator.shares.wait) = (Some(ready), Some(ready));
}

/// Quotas: own, of slices, pods and launchers.
fn quotas() -> Vec<Situation> {
    let of = |name, above: Option<&str>, share: f64, says| {
        let mut h = host(8, 0.3, &[("a", 2, 0.6, 0.0, 0.0), ("b", 2, 0.2, 0.0, 0.0)]);
        held(&mut h, 0, share, above);
        Situation { name, host: h, rule: "limited", says }
    };
    let pod = "/kubepods.slice/kubepods-pod5d.slice";
    let mut also_ready = host(2, 1.0, &[("a", 2, 0.4, 0.06, 0.0), ("b", 2, 0.5, 0.3, 0.0)]);
    held(&mut also_ready, 0, 0.5, None);
    blame(&mut also_ready, &[("a", of_vm("b"), 0.12), ("b", of_vm("a"), 0.3)]);
    let mut polled = host(4, 0.4, &[("a", 1, 0.5, 0.0, 0.0)]);
    held(&mut polled, 0, 0.4, None);
    let vm = &mut polled.model.vms[0];
    (vm.vcpus.ready, vm.vcpus.limited, vm.group.limited) = (None, None, None);
    (vm.vcpus.wait, vm.throttled_per_s) = (Some(0.4), Some(9.0));
    polled.model.collector = "schedstat".into();
    vec![
        of("a quota of the VM's own", None, 0.4, "quota of VM \"a\""),
        of("a small excess over a quota", None, 0.08, "quota of VM \"a\""),
        of("k0s#4954: a guaranteed pod is throttled", Some(pod), 0.3, "kubepods-pod5d.slice"),
        of("a quota of the slice of all machines", Some("/machine.slice"), 0.2, "/machine.slice"),
        of(
            "kata#1430: the sandbox's cgroup holds the VMM too",
            Some("/kata_overhead/1"),
            0.25,
            "/kata_overhead/1",
        ),
        Situation { name: "throttled more than it waits", host: also_ready, rule: "limited", says: "\"a\"" },
        Situation { name: "throttled, by polling alone", host: polled, rule: "limited", says: "\"a\"" },
    ]
}

/// Pins.
fn pins() -> Vec<Situation> {
    let mut one_pcpu = host(8, 0.1, &[("a", 2, 0.5, 0.5, 0.0), ("b", 2, 0.2, 0.0, 0.0)]);
    one_pcpu.pin("a", "3");
    busy(&mut one_pcpu, 3..4, 1.0);
    let mut lxd = host(8, 0.1, &[("a", 1, 0.5, 0.5, 0.0), ("b", 1, 0.5, 0.5, 0.0)]);
    lxd.pin("a", "2").pin("b", "2");
    busy(&mut lxd, 2..3, 1.0);
    let mut same =
        host(16, 0.05, &[("a", 4, 0.5, 0.5, 0.0), ("b", 4, 0.5, 0.5, 0.0), ("c", 2, 0.1, 0.0, 0.0)]);
    same.pin("a", "0-3").pin("b", "0-3");
    busy(&mut same, 0..4, 1.0);
    blame(&mut same, &[("a", of_vm("b"), 2.0), ("b", of_vm("a"), 2.0)]);
    let mut full = host(4, 1.0, &[("a", 2, 0.5, 0.5, 0.0), ("b", 4, 0.5, 0.5, 0.0)]);
    full.pin("a", "0-1");
    vec![
        Situation { name: "two vCPUs on one pCPU", host: one_pcpu, rule: "pinned_busy", says: "pCPU 3" },
        Situation {
            name: "lxd#14133: two instances on one pCPU",
            host: lxd,
            rule: "pinned_busy",
            says: "pCPU 2",
        },
        Situation { name: "two VMs on the same four pCPUs", host: same, rule: "pinned_busy", says: "0-3" },
        Situation {
            name: "a pin on a host that is full anyway",
            host: full,
            rule: "pcpus_overloaded",
            says: "",
        },
    ]
}

/// More work than pCPUs, and who does it.
fn overload() -> Vec<Situation> {
    let many: Vec<(String, u32)> = (0..12).map(|i| (format!("vm{i}"), 2)).collect();
    let mut crowd = Host::new(8, 1, 0.99);
    many.iter().for_each(|(name, vcpus)| _ = crowd.vm(name, *vcpus, 0.33, 0.3, 50.0));
    let mut ratio = Host::new(2, 1, 1.0);
    (0..16).for_each(|i| _ = ratio.vm(&format!("small{i}"), 2, 0.06, 0.25, 50.0));
    let mut noisy = host(4, 0.6, &[("web", 2, 0.2, 0.1, 200.0), ("hog", 4, 0.5, 0.01, 0.0)]);
    blame(&mut noisy, &[("web", of_vm("hog"), 0.2)]);
    let mut two =
        host(8, 0.6, &[("web", 2, 0.2, 0.1, 200.0), ("db", 2, 0.2, 0.1, 200.0), ("hog", 4, 0.5, 0.01, 0.0)]);
    blame(&mut two, &[("web", of_vm("hog"), 0.2), ("db", of_vm("hog"), 0.2)]);
    let mut backup = host(4, 0.7, &[("web", 2, 0.2, 0.1, 200.0)]);
    blame(&mut backup, &[("web", Culprit::process("backup", 9), 0.18), ("web", Culprit::Placement, 0.02)]);
    let mut swap = host(4, 0.7, &[("web", 2, 0.2, 0.1, 200.0)]);
    blame(&mut swap, &[("web", Culprit::Kernel { comm: "kswapd0".into() }, 0.2)]);
    let mut build = host(4, 0.7, &[("web", 2, 0.2, 0.1, 200.0), ("db", 2, 0.2, 0.1, 200.0)]);
    let cc1 = || in_container("cc1", "docker 0123456789ab");
    blame(&mut build, &[("web", cc1(), 0.2), ("db", cc1(), 0.2)]);
    let mut devices = host(2, 1.0, &[("web", 2, 0.3, 0.3, 200.0), ("db", 2, 0.3, 0.3, 200.0)]);
    emulator_waits(&mut devices, 0, 0.2);
    emulator_waits(&mut devices, 1, 0.2);
    let mut vhost = host(8, 0.2, &[("web", 2, 0.3, 0.0, 200.0)]);
    emulator_waits(&mut vhost, 0, 0.2);
    let mut four = host(8, 0.2, &[("a", 1, 0.1, 0.0, 9.0), ("b", 1, 0.1, 0.0, 9.0), ("c", 1, 0.1, 0.0, 9.0)]);
    (0..3).for_each(|i| emulator_waits(&mut four, i, 0.2));
    vec![
        Situation { name: "a full host", host: contended(), rule: "pcpus_overloaded", says: "overloaded" },
        Situation {
            name: "kubevirt#10075: a node at 150 %",
            host: crowd,
            rule: "pcpus_overloaded",
            says: "12 VMs",
        },
        Situation {
            name: "harvester#10087: 16 vCPUs for a thread",
            host: ratio,
            rule: "pcpus_overloaded",
            says: "16 VMs",
        },
        Situation { name: "a noisy neighbour", host: noisy, rule: "noisy_neighbour", says: "VM \"hog\"" },
        Situation {
            name: "a neighbour that two VMs wait for",
            host: two,
            rule: "noisy_neighbour",
            says: "2 VMs",
        },
        Situation { name: "a backup on the host", host: backup, rule: "host_process", says: "backup" },
        Situation { name: "kswapd on the VMs' pCPUs", host: swap, rule: "host_process", says: "kswapd0" },
        Situation { name: "a container that compiles", host: build, rule: "host_process", says: "docker" },
        Situation {
            name: "emulators wait on a full host",
            host: devices,
            rule: "pcpus_overloaded",
            says: "",
        },
        Situation {
            name: "an emulator waits alone",
            host: vhost,
            rule: "emulator_starved",
            says: "emulator",
        },
        Situation { name: "three emulators wait", host: four, rule: "emulator_starved", says: "3 VMs" },
    ]
}

/// Weights.
fn weighed() -> Vec<Situation> {
    let pair = |a: (u32, f64, f64), b: (u32, f64, f64)| {
        host(2, 1.0, &[("a", a.0, a.1, a.2, 0.0), ("b", b.0, b.1, b.2, 0.0)])
    };
    let mut low = pair((2, 0.2, 0.8), (2, 0.8, 0.2));
    weights(&mut low, &[256, 1024]);
    let mut shares = pair((1, 0.1, 0.9), (1, 0.9, 0.1));
    weights(&mut shares, &[1, 500]);
    let mut wide = host(8, 1.0, &[("wide", 8, 0.4, 0.6, 0.0)]);
    (0..8).for_each(|i| _ = wide.vm(&format!("one{i}"), 1, 0.6, 0.05, 0.0));
    let mut idle = pair((1, 0.1, 0.3), (2, 0.9, 0.0));
    idle.config.vms[0].scheduling =
        vec![GroupScheduling { cgroup: "/m/a".into(), idle: true, ..Default::default() }];
    vec![
        Situation {
            name: "a quarter of the weight",
            host: low,
            rule: "weight_starved",
            says: "larger CPU weight",
        },
        Situation {
            name: "cloudstack#3923: shares from MHz",
            host: shares,
            rule: "weight_starved",
            says: "\"b\"",
        },
        Situation {
            name: "a VM of 8 vCPUs with the weight of one",
            host: wide,
            rule: "weight_starved",
            says: "8 vCPUs",
        },
        Situation { name: "an idle cgroup", host: idle, rule: "idle_group", says: "/m/a is idle" },
    ]
}

/// NUMA, steal, interrupts, stalls.
fn elsewhere() -> Vec<Situation> {
    let mut remote = Host::new(8, 2, 0.4);
    remote.vm("db", 4, 0.6, 0.0, 100.0);
    remote.model.vms[0].memory_by_node = Some(vec![(0, 0), (1, 100)]);
    let mut half = Host::new(8, 2, 0.4);
    half.vm("db", 4, 0.6, 0.0, 100.0);
    half.model.vms[0].memory_by_node = Some(vec![(0, 50), (1, 50)]);
    let mut three = Host::new(8, 2, 0.4);
    for i in 0..3 {
        three.vm(&format!("db{i}"), 2, 0.6, 0.0, 100.0);
        three.model.vms[i].memory_by_node = Some(vec![(0, 10), (1, 90)]);
    }
    let mut stolen = host(4, 0.4, &[("a", 2, 0.5, 0.0, 0.0)]);
    stolen.model.pcpus.iter_mut().for_each(|p| p.steal = Some(0.2));
    let mut interrupts = host(4, 0.4, &[("router", 2, 0.5, 0.0, 0.0)]);
    interrupts.model.vms[0].vcpus.overlap = Some(0.3);
    let mut disk = host(4, 0.2, &[("db", 2, 0.2, 0.0, 50.0)]);
    disk.model.vms[0].pressure = PressureShares { io_full: Some(0.4), ..PressureShares::default() };
    let mut memory = host(4, 0.2, &[("db", 2, 0.2, 0.0, 50.0)]);
    memory.model.vms[0].pressure = PressureShares { memory_full: Some(0.4), ..PressureShares::default() };
    let mut lockup = host(8, 0.2, &[("a", 2, 0.2, 0.0, 50.0)]);
    lockup.model.vms[0].threads[0].ready_spell =
        Some(Quantiles { count: 9, p50_ns: 1e5, p95_ns: 1e5, p99_ns: 2.5e10, max_ns: 2.5e10 });
    let mut lags = host(4, 0.6, &[("wide", 8, 0.1, 0.04, 50.0)]);
    lags.model.vms[0].vcpus.lag = Some(0.3);
    let idle = host(4, 0.1, &[("a", 2, 0.1, 0.0, 50.0)]);
    let mut siblings = host(8, 0.1, &[("a", 1, 0.8, 0.0, 0.0), ("b", 1, 0.8, 0.0, 0.0)]);
    siblings.config.topology = topology::machine(1, 1, 4, 2).unwrap();
    let core: Vec<u32> = siblings.config.topology.cores()[1].cpus.iter().collect();
    siblings.pin("a", &core[0].to_string()).pin("b", &core[1].to_string());
    for cpu in core {
        siblings.model.pcpus.iter_mut().find(|p| p.cpu == cpu).unwrap().busy = 0.8;
    }
    vec![
        Situation {
            name: "two VMs on one core's threads",
            host: siblings,
            rule: "shared_core",
            says: "\"a\", \"b\"",
        },
        Situation {
            name: "Red Hat's guide: memory on the other node",
            host: remote,
            rule: "memory_remote",
            says: "100 %",
        },
        Situation {
            name: "Red Hat's guide: memory interleaved",
            host: half,
            rule: "memory_remote",
            says: "50 %",
        },
        Situation { name: "three VMs with remote memory", host: three, rule: "memory_remote", says: "3 VMs" },
        Situation {
            name: "a host that is a VM itself",
            host: stolen,
            rule: "runs_slowly",
            says: "takes CPU time",
        },
        Situation {
            name: "interrupts on a router's vCPUs",
            host: interrupts,
            rule: "runs_slowly",
            says: "interrupts",
        },
        Situation { name: "a slow disk", host: disk, rule: "stalled", says: "I/O" },
        Situation { name: "a swapping VM", host: memory, rule: "stalled", says: "memory" },
        Situation {
            name: "cloud-hypervisor#8262: lockups in the guest",
            host: lockup,
            rule: "long_wait",
            says: "25 s",
        },
        Situation {
            name: "more vCPUs than the VM uses",
            host: lags,
            rule: "too_many_vcpus",
            says: "8 vCPUs",
        },
        Situation { name: "a host that is idle", host: idle, rule: "nothing_wrong", says: "no VM waits" },
    ]
}

/// Files of esxtop: half of the host idles, and no cause can be seen.
fn unknown() -> Vec<Situation> {
    let of = |ready: f64, costop: f64| {
        let mut h = host(4, 0.5, &[("a", 2, 0.3, ready, 0.0)]);
        esxi(&mut h, costop);
        h
    };
    let mut local = of(0.0, 0.0);
    local.model.vms[0].memory_local = Some(0.3);
    local.config.topology = topology::machine(2, 1, 2, 1).unwrap();
    local.model.pcpus.iter_mut().for_each(|p| p.busy = 0.2);
    let mut group = of(0.0, 0.0);
    let vm = &mut group.model.vms[0];
    vm.threads.clear();
    (vm.worlds, vm.vcpus) = (Some(Worlds { count: None }), Shares::default());
    (vm.group.ready, vm.group.costop) = (Some(0.4), Some(0.0));
    let mut limited = of(0.0, 0.0);
    held(&mut limited, 0, 0.3, None);
    limited.config.vms[0].limits = Default::default();
    let mut full = of(0.2, 0.0);
    full.model.pcpus.iter_mut().for_each(|p| p.busy = 0.97);
    let mut full_costop = of(0.0, 0.2);
    full_costop.model.pcpus.iter_mut().for_each(|p| p.busy = 0.97);
    let mut late_only = host(8, 0.3, &[("a", 2, 0.1, 0.0, 100.0)]);
    late(&mut late_only, 0, 9.0);
    let mut polled = host(8, 0.3, &[("a", 2, 0.3, 0.2, 100.0)]);
    polled.model.collector = "schedstat".into();
    vec![
        Situation {
            name: "20 % ready, half of the pCPUs idle",
            host: of(0.2, 0.0),
            rule: "over_threshold",
            says: "waits for a pCPU",
        },
        Situation {
            name: "20 % co-stop, half of the pCPUs idle",
            host: of(0.0, 0.2),
            rule: "over_threshold",
            says: "co-stopped",
        },
        Situation {
            name: "ready and co-stop",
            host: of(0.2, 0.2),
            rule: "over_threshold",
            says: "and is co-stopped",
        },
        Situation { name: "30 % local memory", host: local, rule: "memory_remote", says: "70 %" },
        Situation { name: "groups alone", host: group, rule: "over_threshold", says: "waits for a pCPU" },
        Situation {
            name: "a limit that the file does not name",
            host: limited,
            rule: "limited",
            says: "\"a\"",
        },
        Situation { name: "ready on full pCPUs", host: full, rule: "pcpus_overloaded", says: "overloaded" },
        Situation {
            name: "co-stop on full pCPUs",
            host: full_costop,
            rule: "pcpus_overloaded",
            says: "overloaded",
        },
        Situation {
            name: "late after wake-ups alone",
            host: late_only,
            rule: "over_threshold",
            says: "late",
        },
        Situation { name: "ready by polling", host: polled, rule: "over_threshold", says: "waits" },
    ]
}

/// NUMA nodes and Xen.
fn nodes_and_xen() -> Vec<Situation> {
    let crowded = |manager: Manager| {
        let mut h = Host::new(8, 2, 0.0);
        h.config.topology = topology::machine(2, 1, 4, 1).unwrap();
        h.vm("a", 4, 0.4, 0.2, 0.0).vm("b", 4, 0.35, 0.2, 0.0);
        for vm in &mut h.config.vms {
            vm.manager = manager.clone();
            vm.vsphere = Some(VsphereVm { home_nodes: Some(CpuSet::single(0)), ..VsphereVm::default() });
        }
        busy(&mut h, 0..4, 0.8);
        h
    };
    let mut pinned = crowded(Manager::Bare);
    pinned.config.vms.iter_mut().for_each(|vm| vm.vsphere = None);
    pinned.pin("a", "0-3").pin("b", "0-3");
    let pool = |pcpus: u32| CpuPool {
        name: "Pool-0".into(),
        scheduler: "credit".into(),
        cpus: CpuSet::first(pcpus),
        parameters: Default::default(),
    };
    let mut boost = host(1, 1.0, &[("computes", 1, 0.6, 0.4, 0.0), ("wakes", 1, 0.4, 0.01, 250.0)]);
    boost.config.vms.iter_mut().for_each(|vm| (vm.manager, vm.pool) = (Manager::Xen, Some(pool(1))));
    boost.model.vms[0].threads[0].preemptions_per_s = Some(250.0);
    blame(&mut boost, &[("computes", of_vm("wakes"), 0.4)]);
    let mut homeless = Host::new(8, 2, 0.3);
    homeless.vm("a", 2, 0.5, 0.0, 0.0);
    homeless.config.vms[0].manager = Manager::Xen;
    homeless.config.topology = topology::machine(2, 1, 4, 1).unwrap();
    vec![
        Situation {
            name: "ESXi put VMs that talk onto one node",
            host: crowded(Manager::Vsphere("vm-1".into())),
            rule: "node_overloaded",
            says: "node 0",
        },
        Situation {
            name: "pins to one node beside an idle one",
            host: pinned,
            rule: "node_overloaded",
            says: "node 0",
        },
        Situation {
            name: "Credit runs whoever wakes first",
            host: boost,
            rule: "boost_starved",
            says: "computes",
        },
        Situation {
            name: "Qubes: a domain without a home node",
            host: homeless,
            rule: "no_home_node",
            says: "prefers none",
        },
    ]
}

/// Reports of single settings.
fn others() -> Vec<Situation> {
    let mut dedicated = host(8, 0.3, &[("a", 2, 0.7, 0.0, 0.0)]);
    dedicated.pin("a", "2-3");
    held(&mut dedicated, 0, 0.25, Some("/kubepods/pod5d"));
    let mut scaled =
        host(4, 1.0, &[("scaled", 4, 0.5, 0.5, 0.0), ("b", 1, 0.9, 0.05, 0.0), ("c", 1, 0.9, 0.05, 0.0)]);
    weights(&mut scaled, &[2350, 2350, 2350]);
    let mut crowd = host(8, 0.1, &[("game", 4, 0.25, 0.75, 0.0)]);
    crowd.pin("game", "4-7");
    busy(&mut crowd, 4..5, 1.0);
    crowd.config.scheduler = Some(FairTuning { isolated: "4-7".parse().unwrap(), ..FairTuning::default() });
    let mut budget = host(4, 0.4, &[("audio", 1, 0.2, 0.0, 100.0)]);
    budget.model.vms[0].threads[0].shares.limited = Some(0.5);
    (budget.model.vms[0].vcpus.limited, budget.model.vms[0].group.limited) = (Some(0.5), Some(0.5));
    budget.config.vms[0].threads[0].class = Some(SchedClass::Fifo(1));
    let mut timers = host(4, 0.9, &[("voice", 1, 0.3, 0.2, 200.0)]);
    let vm = &mut timers.model.vms[0];
    (vm.timers_per_s, vm.timers_late, vm.timers_refused) = (Some(200.0), Some(0.05), Some(0.3));
    let pool = |pcpus: u32| CpuPool {
        name: "Pool-0".into(),
        scheduler: "credit".into(),
        cpus: CpuSet::first(pcpus),
        parameters: Default::default(),
    };
    let mut dead = host(2, 0.5, &[("light", 1, 0.3, 0.2, 0.0), ("heavy", 1, 0.3, 0.2, 0.0)]);
    dead.pin("light", "1").pin("heavy", "1");
    for (vm, weight) in dead.config.vms.iter_mut().zip([256, 2048]) {
        (vm.manager, vm.weight, vm.pool) = (Manager::Xen, Some(CpuWeight::Credit(weight)), Some(pool(2)));
    }
    let mut both = host(4, 0.6, &[("db", 2, 0.2, 0.2, 200.0), ("hog", 4, 0.5, 0.01, 0.0)]);
    both.model.vms[0].pressure = PressureShares { io_full: Some(0.3), ..PressureShares::default() };
    blame(&mut both, &[("db", of_vm("hog"), 0.4)]);
    let mut slice =
        host(8, 0.4, &[("a", 1, 0.5, 0.0, 0.0), ("b", 1, 0.5, 0.0, 0.0), ("c", 1, 0.5, 0.0, 0.0)]);
    (0..3).for_each(|vm| held(&mut slice, vm, 0.3, Some("/machine.slice")));
    let mut pods = host(4, 0.7, &[("web", 2, 0.2, 0.1, 200.0)]);
    let pod = "pod 5d2a-77";
    blame(&mut pods, &[("web", in_container("java", pod), 0.1), ("web", in_container("gc", pod), 0.08)]);
    vec![
        Situation {
            name: "kubevirt#12970: dedicated pCPUs, and throttled",
            host: dedicated,
            rule: "limited",
            says: "pod5d",
        },
        Situation {
            name: "cloudstack#6031: scaled live to 4 vCPUs",
            host: scaled,
            rule: "weight_starved",
            says: "4 vCPUs",
        },
        Situation {
            name: "pve-helpers#7: all vCPUs on one isolated pCPU",
            host: crowd,
            rule: "isolated",
            says: "pCPU 4",
        },
        Situation { name: "a real-time budget", host: budget, rule: "realtime_limited", says: "audio" },
        Situation {
            name: "timers that exceed their credit",
            host: timers,
            rule: "timers_refused",
            says: "voice",
        },
        Situation { name: "a weight without effect on Xen", host: dead, rule: "dead_weight", says: "heavy" },
        Situation {
            name: "a VM that waits for a CPU and a disk",
            host: both,
            rule: "noisy_neighbour",
            says: "hog",
        },
        Situation { name: "three VMs in a slice with a quota", host: slice, rule: "limited", says: "3 VMs" },
        Situation {
            name: "a pod of several processes",
            host: pods,
            rule: "host_process",
            says: "pod 5d2a-77",
        },
    ]
}

fn all() -> Vec<Situation> {
    [quotas(), pins(), overload(), weighed(), elsewhere(), unknown(), nodes_and_xen(), others()]
        .into_iter()
        .flatten()
        .collect()
}

#[test]
fn the_cause_comes_first() {
    let situations = all();
    let names: BTreeSet<&str> = situations.iter().map(|s| s.name).collect();
    assert_eq!(names.len(), situations.len(), "each name once");
    let wrong: Vec<String> = situations
        .iter()
        .filter_map(|s| {
            let causes = s.host.causes();
            let first = causes.first()?;
            let right = first.rule == s.rule && first.title.contains(s.says);
            (!right).then(|| format!("{}: {} ({}), not {}", s.name, first.title, first.rule, s.rule))
        })
        .collect();
    println!(
        "{} of {} situations have the right cause first",
        situations.len() - wrong.len(),
        situations.len()
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Whatever is over a threshold stands somewhere, and all is well only where nothing is.
#[test]
fn nothing_over_a_threshold_is_passed_over() {
    for s in all() {
        let causes = s.host.causes();
        let context = vsteer_core::diagnose::Context {
            config: &s.host.config,
            model: &s.host.model,
            thresholds: Default::default(),
        };
        for (_, vm) in context.vms() {
            let over = context.over(vm);
            let explains = |f: &&Finding| f.vms.contains(&vm.id);
            for (measure, evidence) in &over {
                let named = flat(&causes).filter(explains).any(|f| f.measures.contains(measure));
                assert!(named, "{}: {} {evidence:?}", s.name, vm.name);
            }
            assert!(over.is_empty() || !causes.iter().any(|f| f.rule == "nothing_wrong"), "{}", s.name);
        }
        for f in flat(&causes).filter(|f| f.rule != "over_threshold") {
            assert!(!f.next.is_empty() && !f.disproved_by.is_empty(), "{}: {f:?}", s.name);
        }
        assert!(causes.iter().all(|f| !f.next.is_empty()), "{}", s.name);
    }
}

/// A command that a finding proposes changes something, or says of one of its VMs why it does not.
#[test]
fn each_proposed_command_leads_somewhere() {
    let mut led = 0;
    for s in all() {
        for f in s.host.causes() {
            let Some((_, words)) = f.next.split_once("vsteer plan") else { continue };
            let words: Vec<&str> = words.split_whitespace().collect();
            let word = |option: &str| {
                let at = words.iter().position(|w| *w == option)?;
                Some(words.get(at + 1)?.trim_matches(|c: char| !c.is_alphanumeric() && !"=:-".contains(c)))
            };
            if let Some(setting) = word("--set") {
                assert!(setting.parse::<Setting>().is_ok(), "{}: {}", s.name, f.next);
                continue;
            }
            let only = word("--only");
            let plan = plan(&s.host.config, &s.host.model, Limits::default(), Scope::Live, only).unwrap();
            let names = s
                .host
                .config
                .vms
                .iter()
                .filter(|vm| f.vms.contains(&vm.id))
                .map(|vm| format!("{:?}", vm.name));
            let names: Vec<String> = names.collect();
            let named = plan.alternatives.iter().any(|a| names.iter().any(|name| a.why_not.contains(name)));
            // Without an action's name the plan lists what each action says.
            let told = only.is_none() && plan.alternatives.iter().all(|a| !a.why_not.is_empty());
            let why: Vec<&str> = plan.alternatives.iter().map(|a| a.why_not.as_str()).collect();
            assert!(!plan.steps.is_empty() || named || told, "{}: {:?}: {why:?}", s.name, f.next);
            led += 1;
        }
    }
    assert!(led > 20, "{led}");
}
