//! Can what another host sends be true? An attacker on that host can send anything that parses.
//!
//! Code above the samples may add, index by and show what it gets. So texts have lengths, numbers of pCPUs, nodes and
//! vCPUs are what Linux allows, and counters are so small that sums of them fit. A counter that decreases is not
//! refused: the model takes it as a restart. The commands escape texts when they print them.
//!
//! Left out: whether the numbers are right. A host is believed about its own VMs.

use std::collections::BTreeMap;
use vsteer_core::cpuset::MAX_CPU;
use vsteer_core::limits;
use vsteer_core::nouns::{
    Batch, COUNTERS, Collector, DISTRIBUTIONS, GroupScheduling, HISTOGRAM_BUCKETS, HostConfig, Limits,
    PcpuSample, Pressure, Role, STALLS, ThreadCounters, UCLAMP_MOST, VmConfig, VmId, VmSample,
};

/// 36 years, ns; also a count.
const MOST: u64 = 1 << 60;
/// Memory of a machine or a VM, bytes.
const MEMORY: u64 = 1 << 48;
/// VMs of one host, as many as the observer counts.
const VMS: usize = 4096;
/// Threads of all VMs of one host. The model compares each with each VM.
const THREADS: usize = 100_000;
/// Times that VMs blame each other for, in one sample.
const BLAMED: usize = 200_000;
/// Cgroups with a quota that a VM is in.
const QUOTAS: usize = 4096;
/// What its users call a VM.
const LABELS: usize = 16;
/// vCPUs that a guest sees. QEMU allows 4,096.
const SEEN: u32 = 1 << 13;
/// The largest index of a vCPU.
const VCPU: u32 = 1 << 16;
/// A kernel's name, a cgroup's path: Linux allows paths of 4096 bytes.
const PATH: usize = 4096;

type Checked = Result<(), String>;

fn must(holds: bool, why: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(why()) }
}

/// A text of at most this many bytes.
fn short(what: &str, text: &str, most: usize) -> Checked {
    must(text.len() <= most, || format!("{what} has {} bytes", text.len()))
}

fn id(vm: &VmId) -> Checked {
    short("a VM's id", &vm.0, 4 * limits::VM_NAME)
}

/// Each of them once: the model gives all that a VM has to each VM of its id.
fn once<T: Ord + std::fmt::Debug>(what: &str, all: impl Iterator<Item = T>) -> Checked {
    let mut seen = std::collections::BTreeSet::new();
    for one in all {
        if seen.contains(&one) {
            return Err(format!("{what} {one:?} is there twice"));
        }
        seen.insert(one);
    }
    Ok(())
}

fn role(role: Role) -> Checked {
    match role {
        Role::Vcpu(n) | Role::IoThread(n) => must(n <= VCPU, || format!("a VM has thread {role}")),
        _ => Ok(()),
    }
}

fn number(what: &str, n: Option<u64>, most: u64) -> Checked {
    must(n.is_none_or(|n| n <= most), || format!("{what} is {}", n.unwrap_or_default()))
}

/// How a host is set up.
///
/// # Errors
/// Why it cannot be.
pub fn config(c: &HostConfig) -> Checked {
    short("the host's name", &c.hostname, limits::VM_NAME)?;
    short("the kernel's name", &c.kernel, PATH)?;
    short("the machine's id", c.machine_id.as_deref().unwrap_or_default(), PATH)?;
    must(c.vms.len() <= VMS, || format!("the host has {} VMs", c.vms.len()))?;
    let threads: usize = c.vms.iter().map(|vm| vm.threads.len()).sum();
    must(threads <= THREADS, || format!("the VMs have {threads} threads"))?;
    once("VM", c.vms.iter().map(|vm| &vm.id))?;
    let odd = c.topology.oddities();
    must(odd.len() <= PATH, || format!("{} things are odd", odd.len()))?;
    odd.iter().try_for_each(|o| {
        short("an odd place", &o.place, PATH).and_then(|()| short("what is odd", &o.what, limits::AGENT_TEXT))
    })?;
    number("the machine's memory", c.topology.memory_bytes(), MEMORY)?;
    for node in c.topology.nodes() {
        must(node.id.0 <= MAX_CPU, || format!("a memory node has number {}", node.id))?;
        number("a node's memory", node.memory_bytes, MEMORY)?;
    }
    c.vms.iter().try_for_each(vm)
}

fn vm(vm: &VmConfig) -> Checked {
    id(&vm.id)?;
    short("a VM's name", &vm.name, 4 * limits::VM_NAME)?;
    must(vm.labels.len() <= LABELS, || format!("a VM has {} labels", vm.labels.len()))?;
    vm.labels
        .iter()
        .flat_map(|(key, value)| [key, value])
        .try_for_each(|t| short("a label", t, 4 * limits::VM_NAME))?;
    number("a VM's memory", vm.memory_bytes, MEMORY)?;
    let Limits { per_vcpu, emulator, whole_vm } = vm.limits;
    let of_groups = vm.quotas.iter().map(|q| q.quota);
    for quota in [per_vcpu, emulator, whole_vm].into_iter().flatten().chain(of_groups) {
        must(quota.period_us > 0 && quota.period_us <= MOST && quota.quota_us <= MOST, || {
            format!("a VM has the quota {} in {} µs", quota.quota_us, quota.period_us)
        })?;
    }
    if let Some(seen) = vm.guest_topology {
        let parts = [seen.sockets, seen.cores, seen.threads];
        let all = parts.iter().try_fold(1_u32, |all, n| all.checked_mul(*n));
        must(all.is_some_and(|all| (1..=SEEN).contains(&all)), || format!("a guest sees {parts:?}"))?;
    }
    short("a cgroup", vm.cgroup.as_deref().unwrap_or_default(), PATH)?;
    must(vm.quotas.len() <= QUOTAS, || format!("a VM has {} cgroups with a quota", vm.quotas.len()))?;
    vm.quotas.iter().try_for_each(|q| short("a cgroup", &q.cgroup, PATH))?;
    must(vm.scheduling.len() <= QUOTAS, || format!("a VM has settings of {} cgroups", vm.scheduling.len()))?;
    vm.scheduling.iter().try_for_each(scheduling)?;
    let cookies = vm.core_cookies.as_ref().map_or(0, BTreeMap::len);
    must(cookies <= THREADS, || format!("a VM has {cookies} cookies"))?;
    vm.rt_budgets.iter().try_for_each(|b| short("a cgroup", &b.cgroup, PATH))?;
    for thread in &vm.threads {
        role(thread.role)?;
        short("a cgroup", thread.cgroup.as_deref().unwrap_or_default(), PATH)?;
    }
    Ok(())
}

fn scheduling(g: &GroupScheduling) -> Checked {
    short("a cgroup", &g.cgroup, PATH)?;
    short("the kind of a partition", g.partition.as_deref().unwrap_or_default(), PATH)?;
    number("a quota's burst", g.burst_us, MOST)?;
    let clamps = [g.uclamp_min, g.uclamp_max];
    clamps.into_iter().try_for_each(|n| number("a clamp", n.map(u64::from), UCLAMP_MOST.into()))
}

/// How samples are taken.
///
/// # Errors
/// Why it cannot be.
pub fn collector(c: &Collector) -> Checked {
    short("the collector's name", &c.name, limits::VM_NAME)?;
    must(c.missing.len() <= 1000, || format!("the collector lacks {} counters", c.missing.len()))?;
    c.missing.iter().try_for_each(|(name, why)| {
        short("a counter's name", name, limits::VM_NAME)?;
        short("a reason", why, limits::AGENT_TEXT)
    })
}

/// A sample, after one whose clock showed `since_ns`.
///
/// # Errors
/// Why it cannot be.
pub fn batch(b: &Batch, since_ns: u64) -> Checked {
    must(b.mono_ns >= since_ns && b.mono_ns <= MOST, || {
        format!("a sample's clock shows {} ns after {since_ns} ns", b.mono_ns)
    })?;
    // Wall-clock times are of this century and the next.
    number("a sample's time", Some(b.unix_ns), 1 << 62)?;
    let lists = [
        ("threads", b.threads.len(), THREADS),
        ("pCPUs", b.pcpus.len(), MAX_CPU as usize + 1),
        ("VMs", b.vms.len(), VMS),
        ("blamed times", b.blame.len(), BLAMED),
    ];
    for (what, count, most) in lists {
        must(count <= most, || format!("a sample has {count} {what}"))?;
    }
    once("pCPU", b.pcpus.iter().map(|p| p.cpu))?;
    once("VM", b.vms.iter().map(|v| &v.vm))?;
    for t in &b.threads {
        id(&t.vm)?;
        role(t.role)?;
        cpu(t.last_cpu)?;
        number("a wait", t.waiting_ns, MOST)?;
        counters(&t.counters)?;
    }
    b.pcpus.iter().try_for_each(pcpu)?;
    b.vms.iter().try_for_each(vm_sample)?;
    b.pressure.iter().try_for_each(pressure)?;
    b.blame.iter().try_for_each(|blame| {
        id(&blame.victim)?;
        role(blame.role)?;
        short("a container's name", blame.culprit.container().unwrap_or_default(), 4 * limits::VM_NAME)?;
        number("a blamed time", Some(blame.ns.unsigned_abs()), MOST)
    })
}

fn cpu(cpu: Option<u32>) -> Checked {
    must(cpu.is_none_or(|cpu| cpu <= MAX_CPU), || format!("a pCPU has number {}", cpu.unwrap_or_default()))
}

fn counters(c: &ThreadCounters) -> Checked {
    COUNTERS.iter().try_for_each(|row| number(row.name, (row.get)(c), MOST))?;
    for row in DISTRIBUTIONS {
        for (bucket, count) in (row.get)(c).iter().flat_map(|h| &h.counts) {
            must(usize::from(*bucket) < HISTOGRAM_BUCKETS, || format!("{} has bucket {bucket}", row.name))?;
            number(row.name, Some(*count), MOST)?;
        }
    }
    Ok(())
}

fn pcpu(p: &PcpuSample) -> Checked {
    cpu(Some(p.cpu))?;
    let columns = [p.user_ns, p.system_ns, p.irq_ns, p.softirq_ns, p.idle_ns];
    let others = [p.steal_ns, p.guest_ns, p.frequency_khz];
    columns.into_iter().map(Some).chain(others).try_for_each(|n| number("a pCPU's counter", n, MOST))
}

fn pressure(p: &Pressure) -> Checked {
    STALLS.iter().zip(p.each()).try_for_each(|(stall, ns)| number(stall.name, ns, MOST))
}

fn vm_sample(v: &VmSample) -> Checked {
    id(&v.vm)?;
    number("a VM's throttled periods", v.throttled_periods, MOST)?;
    number("a VM's throttled periods", v.throttled_above, MOST)?;
    number("a VM's throttled time", v.throttled_ns, MOST)?;
    number("a VM's throttled time", v.throttled_above_ns, MOST)?;
    number("a VM's I/O", v.io, MOST)?;
    let nodes = v.memory_by_node.as_ref().map_or(0, Vec::len);
    must(nodes <= MAX_CPU as usize + 1, || format!("a VM has memory on {nodes} nodes"))?;
    let timers = v.timers.map(|t| [t.asked, t.honoured, t.late, t.refused]);
    timers.into_iter().flatten().try_for_each(|n| number("a VM's timers", Some(n), MOST))?;
    for (node, bytes) in v.memory_by_node.iter().flatten() {
        must(*node <= MAX_CPU, || format!("a memory node has number {node}"))?;
        number("a VM's memory on a node", Some(*bytes), MEMORY)?;
    }
    v.pressure.iter().try_for_each(pressure)?;
    v.group.iter().try_for_each(|g| counters(&g.counters))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::nouns::{BlameSample, Culprit, GuestTopology, Histogram, Quota, ThreadSample, Tid};

    fn thread(change: impl FnOnce(&mut ThreadSample)) -> Batch {
        let mut thread = ThreadSample {
            vm: VmId("a".into()),
            role: Role::Vcpu(0),
            tid: Tid(1),
            last_cpu: None,
            waiting_ns: None,
            counters: ThreadCounters::default(),
        };
        change(&mut thread);
        Batch { mono_ns: 5, threads: vec![thread], ..Batch::default() }
    }

    #[test]
    fn samples_that_cannot_be_are_refused() {
        assert_eq!(batch(&thread(|_| {}), 5), Ok(()));
        let endless = Pressure { memory_full: Some(u64::MAX), ..Pressure::default() };
        assert!(batch(&thread(|_| {}), 6).unwrap_err().contains("clock"), "a clock that goes back");
        for bad in [
            thread(|t| t.vm.0 = "x".repeat(5000).into()),
            thread(|t| t.role = Role::Vcpu(u32::MAX)),
            thread(|t| t.last_cpu = Some(u32::MAX)),
            thread(|t| t.counters.run_ns = Some(u64::MAX)),
            thread(|t| t.counters.wake_latency = Some(Histogram { counts: vec![(u16::MAX, 1)] })),
            Batch { mono_ns: u64::MAX, ..Batch::default() },
            Batch { pcpus: vec![PcpuSample::default(); 2], ..thread(|_| {}) },
            Batch { threads: vec![thread(|_| {}).threads.remove(0); THREADS + 1], ..thread(|_| {}) },
            Batch { unix_ns: u64::MAX, mono_ns: 5, ..Batch::default() },
            Batch { pressure: Some(endless), ..thread(|_| {}) },
            Batch {
                vms: vec![VmSample { pressure: Some(endless), ..VmSample::new(VmId("a".into())) }],
                ..thread(|_| {})
            },
            Batch {
                vms: vec![VmSample { throttled_above_ns: Some(MOST + 1), ..VmSample::new(VmId("a".into())) }],
                ..thread(|_| {})
            },
            Batch { pcpus: vec![PcpuSample { cpu: 1 << 20, ..PcpuSample::default() }], ..thread(|_| {}) },
            Batch {
                blame: vec![BlameSample {
                    victim: VmId("a".into()),
                    role: Role::Vhost,
                    culprit: Culprit::Placement,
                    ns: i64::MIN,
                }],
                ..thread(|_| {})
            },
        ] {
            assert!(batch(&bad, 5).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn vms_that_cannot_be_are_refused() {
        let with = |change: fn(&mut VmConfig)| {
            let mut c = VmConfig::new(VmId("a".into()), "a", 1);
            change(&mut c);
            vm(&c)
        };
        assert_eq!(with(|_| {}), Ok(()));
        let bad: [fn(&mut VmConfig); 6] = [
            |c| c.scheduling = vec![GroupScheduling { uclamp_max: Some(10_001), ..Default::default() }],
            |c| {
                let partition = Some("x".repeat(PATH + 1));
                c.scheduling = vec![GroupScheduling { partition, ..Default::default() }];
            },
            |c| c.name = "x".repeat(5000),
            |c| c.memory_bytes = Some(u64::MAX),
            |c| c.limits.whole_vm = Some(Quota { quota_us: 1, period_us: 0 }),
            |c| c.guest_topology = Some(GuestTopology { sockets: 1 << 20, cores: 1 << 20, threads: 1 }),
        ];
        bad.into_iter().for_each(|change| assert!(with(change).is_err()));
    }
}
