//! Which threads ran, which waited, and for how long? Shares and rates over a time window, derived from raw samples.
//!
//! A [`HostModel`] is never stored. Live view, replay and simulation derive it from samples with the same code, so
//! a corrected formula also applies to old recordings. Shares are fractions of the time in which the thread was
//! seen (1.0 is one pCPU). Shares of a group are sums over threads, like esxtop's, and can exceed 1. A quantity
//! that was not measured is `None`, and [`HostModel::missing`] has the reason.
//!
//! Counters are differenced batch by batch: a thread that appears or vanishes inside the window, or whose counters
//! restart, contributes the intervals in which it was seen at both ends.

mod sums;

pub use crate::nouns::Shares;
use crate::nouns::rise;
use crate::nouns::{
    Batch, Collector, Culprit, Histogram, HostConfig, Pressure, PressureShares, Role, ThreadCounters, Tid,
    VmId, VmSample,
};
use crate::nouns::{GroupQuota, VmConfig};
use crate::plural::counted;
use crate::{Fault, FaultKind};
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::collections::BTreeMap;
use sums::{Interval, Sum, ThreadKey, intervals};

impl Shares {
    /// Used time: as the hypervisor counts it (scaled by frequency), otherwise `run` plus `system` less `overlap`,
    /// not scaled.
    pub fn used(&self) -> Option<f64> {
        self.used.or_else(|| Some(self.run? + self.system.unwrap_or(0.0) - self.overlap.unwrap_or(0.0)))
    }

    /// Remainder that the measured states leave; 0 if every instant is accounted for.
    pub fn residual(&self) -> Option<f64> {
        Some(1.0 - self.run? - self.ready? - self.limited? - self.costop.unwrap_or(0.0) - self.blocked?)
    }

    /// Demand of the thread: run plus all waiting.
    pub fn demand(&self) -> Option<f64> {
        Some(self.run? + self.wait? + self.costop.unwrap_or(0.0))
    }
}

/// Quantiles of a distribution of times, ns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Number of values.
    pub count: u64,
    /// Median.
    pub p50_ns: f64,
    /// 95th percentile, ns.
    pub p95_ns: f64,
    /// 99th percentile, ns.
    pub p99_ns: f64,
    /// Upper edge of the last bucket in use.
    pub max_ns: f64,
}

impl Quantiles {
    /// Of all durations in the histogram; `None` if it is empty.
    pub fn of(h: &Histogram) -> Option<Quantiles> {
        Some(Quantiles {
            count: h.total(),
            p50_ns: h.quantile_ns(0.50)?,
            p95_ns: h.quantile_ns(0.95)?,
            p99_ns: h.quantile_ns(0.99)?,
            max_ns: h.quantile_ns(1.0)?,
        })
    }
}

/// One thread over the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadModel {
    /// Role of the thread in its VM.
    pub role: Role,
    /// Host thread id.
    pub tid: Tid,
    /// Part of the window in which the thread was seen, 0..=1.
    pub seen: f64,
    /// Shares of the thread's states.
    pub shares: Shares,
    /// Switches to the thread, per second.
    pub switches_per_s: Option<f64>,
    /// Preemptions, per second: the thread lost its pCPU while it could run.
    pub preemptions_per_s: Option<f64>,
    /// Wake-ups per second.
    pub wakeups_per_s: Option<f64>,
    /// Moves between pCPUs per second.
    pub migrations_per_s: Option<f64>,
    /// Time from wake-up to running; `None` if not measured or without wake-ups.
    pub wake_latency: Option<Quantiles>,
    /// Uninterrupted waits after wake-up or preemption.
    pub ready_spell: Option<Quantiles>,
    /// pCPU that the thread last ran on.
    pub last_cpu: Option<u32>,
    /// The pCPUs on which samples found the thread, in the order in which they did. Empty where samples do not tell pCPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ran_on: Vec<RanOn>,
}

/// A pCPU on which samples found a thread. A sample tells only the pCPU on which the thread ran last, so all run time since the
/// sample before counts to that pCPU. Moves within an interval are not seen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RanOn {
    /// Number of the logical CPU.
    pub cpu: u32,
    /// Intervals that ended there in which the thread ran.
    pub samples: u32,
    /// Run time in these intervals, as a share of a pCPU.
    pub run: f64,
}

/// One VM over the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmModel {
    /// Id of the VM.
    pub id: VmId,
    /// Name of the VM.
    pub name: String,
    /// All threads, vCPUs first.
    pub threads: Vec<ThreadModel>,
    /// Sum over all threads, as the hypervisor counts it (esxtop's group row) or as vsteer adds it up.
    pub group: Shares,
    /// Number of worlds, if the hypervisor counts the group. `None`: vsteer added up the threads.
    #[serde(default)]
    pub worlds: Option<Worlds>,
    /// Sum over the vCPUs; all `None` if only the group is counted.
    pub vcpus: Shares,
    /// How often its own quotas were used up, per second.
    pub throttled_per_s: Option<f64>,
    /// How often quotas that it shares with others were used up, per second.
    #[serde(default)]
    pub throttled_above_per_s: Option<f64>,
    /// Limited time of the vCPUs, a sum over them, estimated from how long quotas held run queues of the VM's cgroups. `None`
    /// where limited time is measured, and where the kernel does not tell. See [`VmModel::limited`].
    #[serde(default)]
    pub limited_estimate: Option<f64>,
    /// Disk requests and network packets, per second; `None` if not counted.
    #[serde(default)]
    pub io_per_s: Option<f64>,
    /// Stalls of the VM's own cgroup.
    #[serde(default)]
    pub pressure: PressureShares,
    /// Timers that ended, per second; `None` if `vsteer realtime` does not serve the VM.
    #[serde(default)]
    pub timers_per_s: Option<f64>,
    /// Share of timers served more than [`crate::nouns::TimerCounts::LATE_NS`] late; `None` if no timer ended.
    #[serde(default)]
    pub timers_late: Option<f64>,
    /// Share of timers for which the VM was refused priority.
    #[serde(default)]
    pub timers_refused: Option<f64>,
    /// Time from wake-up to running, over all vCPUs.
    pub wake_latency: Option<Quantiles>,
    /// Uninterrupted waits, over all vCPUs.
    pub ready_spell: Option<Quantiles>,
    /// Memory per NUMA node, bytes, as last read.
    pub memory_by_node: Option<Vec<(u32, u64)>>,
    /// Part of the memory on the home nodes, as last read, if the hypervisor reports only this.
    #[serde(default)]
    pub memory_local: Option<f64>,
}

/// A group that the hypervisor counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worlds {
    /// Number of worlds in the sums; `None`: unknown.
    pub count: Option<u32>,
}

impl std::fmt::Display for Worlds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.count {
            Some(n) => write!(f, "of the group, a sum over {n} worlds"),
            None => f.write_str("of the group, a sum over its worlds"),
        }
    }
}

impl VmModel {
    /// Shares summed over the vCPUs, or of the group if vCPUs were not counted; and a text that says which.
    pub fn vcpus_or_group(&self) -> (&Shares, String) {
        match (self.vcpu_threads().next(), self.worlds) {
            (None, Some(worlds)) => (&self.group, worlds.to_string()),
            _ => (&self.vcpus, "summed over vCPUs".to_owned()),
        }
    }

    /// Limited share, summed over the vCPUs, and whether it is an estimate.
    pub fn limited(&self) -> Option<(f64, bool)> {
        let exact = self.vcpus.limited.map(|limited| (limited, false));
        exact.or_else(|| Some((self.limited_estimate?, true)))
    }

    /// The same, averaged over the vCPUs.
    pub fn limited_per_vcpu(&self) -> Option<f64> {
        let n = self.vcpu_threads().count();
        self.limited().filter(|_| n > 0).map(|(limited, _)| limited / n as f64)
    }

    /// Its vCPU threads, in index order.
    pub fn vcpu_threads(&self) -> impl Iterator<Item = &ThreadModel> {
        self.threads.iter().filter(|t| t.role.vcpu().is_some())
    }

    /// A share averaged over the vCPUs (0..=1), for thresholds per vCPU.
    pub fn per_vcpu(&self, term: impl Fn(&Shares) -> Option<f64>) -> Option<f64> {
        let n = self.vcpu_threads().count();
        if n == 0 { None } else { Some(term(&self.vcpus)? / n as f64) }
    }
}

/// One pCPU over the window; fractions of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PcpuModel {
    /// Number of the logical CPU.
    pub cpu: u32,
    /// Not idle.
    pub busy: f64,
    /// User mode, guests included.
    pub user: f64,
    /// Kernel mode.
    pub system: f64,
    /// Interrupts, hard and soft.
    pub interrupts: f64,
    /// Stolen by the hypervisor below.
    pub steal: Option<f64>,
    /// Clock at the end, kHz.
    pub frequency_khz: Option<u64>,
}

/// Time that a VM's threads were ready because of a culprit, as a share of the window (summed over threads).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Blame {
    /// VM whose threads waited.
    pub victim: VmId,
    /// Cause of the wait.
    pub culprit: Culprit,
    /// Sum over the victim's threads, fraction of the window.
    pub share: f64,
}

/// The host over a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostModel {
    /// Wall-clock start, ns since 1970 UTC.
    pub from_unix_ns: u64,
    /// Length of the window, ns.
    pub window_ns: u64,
    /// The VMs, in the configuration's order.
    pub vms: Vec<VmModel>,
    /// The pCPUs, ascending.
    pub pcpus: Vec<PcpuModel>,
    /// Stalls of all tasks of the host.
    #[serde(default)]
    pub pressure: PressureShares,
    /// Blame matrix, largest share first; `None` if not measured.
    pub blame: Option<Vec<Blame>>,
    /// Name of the collector.
    pub collector: String,
    /// Quantities that were not measured, with reasons.
    pub missing: BTreeMap<String, String>,
}

impl VmModel {
    /// The shared quota that throttles this VM; `None` if its own does, or none. Each quota counts how often it was used
    /// up: if a shared one was and none of the VM's own, it is that one. Without counts, the VM's own quota is meant if it
    /// has one.
    pub fn throttled_by_above<'a>(&self, config: &'a VmConfig) -> Option<&'a GroupQuota> {
        let ran_out = |times: Option<f64>| times.map(|times| times > 0.0);
        let has_own = config.limits.whole_vm.is_some() || config.limits.per_vcpu.is_some();
        let is_above = match (ran_out(self.throttled_per_s), ran_out(self.throttled_above_per_s)) {
            (Some(own), Some(above)) => above && !own,
            _ => !has_own,
        };
        config.quota_above().filter(|_| is_above)
    }
}

impl HostModel {
    /// The VM of this id.
    pub fn vm(&self, id: &VmId) -> Option<&VmModel> {
        self.vms.iter().find(|v| v.id == *id)
    }

    /// Mean busy fraction over all pCPUs; `None` if no pCPU was read.
    pub fn busy_mean(&self) -> Option<f64> {
        let n = self.pcpus.len();
        (n > 0).then(|| self.pcpus.iter().map(|p| p.busy).sum::<f64>() / n as f64)
    }
}

/// Derives the model of the window from the first to the last batch.
///
/// # Errors
/// `BadInput` with fewer than two batches, or batches out of order: a share needs two moments.
pub fn derive<B: Borrow<Batch>>(
    config: &HostConfig,
    collector: &Collector,
    batches: &[B],
) -> Result<HostModel, Fault> {
    // The blame of the first batch is from before the window.
    let blamed = batches.iter().skip(1).flat_map(|batch| &batch.borrow().blame);
    derive_blaming(config, collector, batches, blamed.map(|b| (&b.victim, &b.culprit, b.ns)))
}

/// As [`derive()`], where what was blamed is kept apart from the batches: victim, culprit, and ns.
///
/// # Errors
/// As [`derive()`].
pub fn derive_blaming<'a, B: Borrow<Batch>>(
    config: &HostConfig,
    collector: &Collector,
    batches: &[B],
    blamed: impl Iterator<Item = (&'a VmId, &'a Culprit, i64)>,
) -> Result<HostModel, Fault> {
    let (Some(first), Some(last)) = (batches.first(), batches.last()) else {
        return Err(too_few(0));
    };
    let (first, last): (&Batch, &Batch) = (first.borrow(), last.borrow());
    if batches.len() < 2 || last.mono_ns <= first.mono_ns {
        return Err(too_few(batches.len()));
    }
    let window_ns = last.mono_ns - first.mono_ns;
    let sums = sums::sums(batches);
    let names = config.called();
    let mut of_vm: BTreeMap<&VmId, Vec<&(ThreadKey<'_>, Sum)>> = BTreeMap::new();
    for of in sums.chunk_by(|a, b| a.0.0 == b.0.0) {
        of_vm.entry(of[0].0.0).or_default().extend(of);
    }
    of_vm.values_mut().for_each(|of| of.sort_by_key(|(key, _)| (key.1, key.2)));
    let samples = Samples::by_vm(batches);
    let none = Samples { moments: Vec::new() };
    let mut vms: Vec<VmModel> = config
        .vms
        .iter()
        .map(|vm| {
            let mine = of_vm.get(&vm.id).map_or(&[][..], Vec::as_slice);
            vm_model(&vm.id, &names[&vm.id], mine, samples.get(&vm.id).unwrap_or(&none), window_ns)
        })
        .collect();
    estimate_limited(config, &samples, &mut vms);
    vms.retain(|vm| !vm.threads.is_empty() || vm.worlds.is_some());

    Ok(HostModel {
        from_unix_ns: first.unix_ns,
        window_ns,
        vms,
        pcpus: pcpu_models(first, last),
        pressure: pressure(batches.iter().map(|b| b.borrow()).map(|b| (b.mono_ns, b.pressure))),
        blame: (!collector.missing.contains_key("blame")).then(|| blame(blamed, window_ns)),
        collector: collector.name.clone(),
        missing: collector.missing.clone(),
    })
}

fn too_few(n: usize) -> Fault {
    Fault::new(
        FaultKind::BadInput,
        format!(
            "cannot compute shares from {}: a time window needs \
        at least two, in order of time",
            counted(n, "sample")
        ),
    )
    .help("record for longer")
}

fn thread_model(role: Role, tid: Tid, s: &Sum, window_ns: u64) -> ThreadModel {
    let rate = |n: Option<u64>| n.filter(|_| s.seen_ns > 0).map(|n| n as f64 * 1e9 / s.seen_ns as f64);
    ThreadModel {
        role,
        tid,
        seen: s.seen_ns as f64 / window_ns as f64,
        shares: s.counters.shares(s.seen_ns),
        switches_per_s: rate(s.counters.switches),
        preemptions_per_s: rate(s.counters.preemptions),
        wakeups_per_s: rate(s.counters.wakeups),
        migrations_per_s: rate(s.counters.migrations),
        wake_latency: s.counters.wake_latency.as_ref().and_then(Quantiles::of),
        ready_spell: s.counters.ready_spell.as_ref().and_then(Quantiles::of),
        last_cpu: s.last_cpu,
        ran_on: s
            .ran_on
            .iter()
            .map(|&(cpu, ns, samples)| RanOn { cpu, samples, run: ns as f64 / s.seen_ns.max(1) as f64 })
            .collect(),
    }
}

/// A VM's own samples over a window: the time of each batch, and its sample there.
struct Samples<'a> {
    moments: Vec<(u64, Option<&'a VmSample>)>,
}

impl<'a> Samples<'a> {
    fn by_vm<B: Borrow<Batch>>(batches: &'a [B]) -> BTreeMap<&'a VmId, Samples<'a>> {
        let all_batches = || batches.iter().map(|b| -> &'a Batch { b.borrow() });
        let none: Vec<(u64, Option<&VmSample>)> = all_batches().map(|b| (b.mono_ns, None)).collect();
        let mut all: BTreeMap<&VmId, Samples<'_>> = BTreeMap::new();
        for (i, batch) in all_batches().enumerate() {
            for sample in &batch.vms {
                let of = all.entry(&sample.vm).or_insert_with(|| Samples { moments: none.clone() });
                of.moments[i].1 = Some(sample);
            }
        }
        all
    }

    /// The newest sample's value that is not `None`.
    fn last<T>(&self, of: fn(&VmSample) -> Option<T>) -> Option<T> {
        self.moments.iter().rev().find_map(|(_, sample)| sample.and_then(of))
    }

    /// The rise of a count per second.
    fn per_s(&self, count: fn(&VmSample) -> Option<u64>) -> Option<f64> {
        // The counter may start later or stop earlier than the window. Then the rate is of its own time.
        let of = |(at, sample): &(u64, Option<&VmSample>)| Some((*at, sample.and_then(count)?));
        let (from_ns, before) = self.moments.iter().find_map(of)?;
        let (to_ns, now) = self.moments.iter().rev().find_map(of)?;
        let n = rise(Some(before), Some(now))?;
        (to_ns > from_ns).then(|| n as f64 * 1e9 / (to_ns - from_ns) as f64)
    }
}

fn vm_model(
    id: &VmId,
    name: &str,
    mine: &[&(ThreadKey<'_>, Sum)],
    samples: &Samples<'_>,
    window_ns: u64,
) -> VmModel {
    let threads: Vec<ThreadModel> =
        mine.iter().map(|((_, role, tid), s)| thread_model(*role, *tid, s, window_ns)).collect();
    let vcpu_sums = || mine.iter().filter(|((_, role, _), _)| role.vcpu().is_some()).map(|(_, s)| s);
    let together = |of: fn(&ThreadCounters) -> &Option<Histogram>| {
        let all = vcpu_sums().filter_map(|s| of(&s.counters).as_ref());
        Quantiles::of(&Histogram::sum(all))
    };
    let is_vcpu = |t: &&ThreadModel| t.role.vcpu().is_some();
    // Only vCPUs have lag. Other threads have none, which differs from an unmeasured value.
    let lag = Shares::sum(threads.iter().filter(is_vcpu).map(|t| &t.shares)).lag;
    let told = group_of(samples);
    let group = match &told {
        Some((_, shares)) => *shares,
        None => Shares { lag, ..Shares::sum(threads.iter().map(|t| &t.shares)) },
    };
    // If the hypervisor counts only the group, the shares of the vCPUs are unknown, not 0.
    let vcpus = match (&told, threads.iter().any(|t| is_vcpu(&t))) {
        (Some(_), false) => Shares::default(),
        _ => Shares::sum(threads.iter().filter(is_vcpu).map(|t| &t.shares)),
    };
    let timers_per_s = samples.per_s(|v| Some(v.timers?.asked));
    let of_timers = |count: fn(&VmSample) -> Option<u64>| {
        timers_per_s.zip(samples.per_s(count)).filter(|(all, _)| *all > 0.0).map(|(all, some)| some / all)
    };
    VmModel {
        id: id.clone(),
        name: name.to_owned(),
        group,
        worlds: told.map(|(worlds, _)| worlds),
        vcpus,
        throttled_per_s: samples.per_s(|v| v.throttled_periods),
        throttled_above_per_s: samples.per_s(|v| v.throttled_above),
        limited_estimate: None,
        io_per_s: samples.per_s(|v| v.io),
        pressure: pressure(samples.moments.iter().map(|(at, sample)| (*at, sample.and_then(|s| s.pressure)))),
        timers_per_s,
        timers_late: of_timers(|v| Some(v.timers?.late)),
        timers_refused: of_timers(|v| Some(v.timers?.refused)),
        wake_latency: together(|c| &c.wake_latency),
        ready_spell: together(|c| &c.ready_spell),
        memory_by_node: samples.last(|v| v.memory_by_node.clone()),
        memory_local: samples.last(|v| v.memory_local_ppm).map(|ppm| f64::from(ppm) / 1e6),
        threads,
    }
}

/// Estimates the limited time of VMs of which it was not measured.
///
/// The kernel counts how long a quota held each run queue of a cgroup. While a queue is held, the vCPU on it waits: if the
/// cgroup has no two waiting threads on one pCPU, the sum over queues is that over vCPUs. VMs that share a quota also share
/// its time: each gets a part by how much of their waiting is its own. No VM was limited for longer than it waited.
/// GAP(limited-estimate).
fn estimate_limited(config: &HostConfig, samples: &BTreeMap<&VmId, Samples<'_>>, vms: &mut [VmModel]) {
    let shared = |id: &VmId| config.vm(id).and_then(|vm| vm.quota_above()).map(|q| q.cgroup.as_str());
    let mut waits: BTreeMap<&str, f64> = BTreeMap::new();
    for vm in vms.iter() {
        let Some(wait) = vm.vcpus.wait else { continue };
        // A VM whose smallest shared quota is another one may be in this cgroup too.
        let of_vm = config.vm(&vm.id).map_or(&[][..], |vm| vm.quotas.as_slice());
        of_vm.iter().filter(|q| q.shared).for_each(|q| *waits.entry(&q.cgroup).or_default() += wait);
    }
    for vm in vms.iter_mut().filter(|vm| vm.vcpus.limited.is_none()) {
        let (Some(wait), Some(samples)) = (vm.vcpus.wait, samples.get(&vm.id)) else { continue };
        let own = samples.per_s(|v| v.throttled_ns);
        let above = samples.per_s(|v| v.throttled_above_ns);
        let all_waits = shared(&vm.id).and_then(|cgroup| waits.get(cgroup)).filter(|all| **all > 0.0);
        let part = all_waits.map_or(0.0, |all| wait / all);
        let Some(own) = own else { continue };
        vm.limited_estimate = Some(((own + above.unwrap_or(0.0) * part) / 1e9).min(wait));
    }
}

/// Counters of the hypervisor for all worlds of a VM, over the intervals with values at both ends.
fn group_of(samples: &Samples<'_>) -> Option<(Worlds, Shares)> {
    let mut sum: Option<(u64, ThreadCounters)> = None;
    let mut worlds = Worlds { count: None };
    let mut before: Option<(u64, &crate::nouns::GroupSample)> = None;
    for (at_ns, sample) in &samples.moments {
        let now = sample.and_then(|sample| sample.group.as_ref());
        if let (Some((from_ns, a)), Some(now)) = (before, now) {
            let rose = now.counters.since(&a.counters);
            let ns = at_ns.saturating_sub(from_ns);
            sum = Some(match sum {
                Some((so_far, counters)) => (so_far + ns, counters.plus(&rose)),
                None => (ns, rose),
            });
            worlds.count = now.worlds.or(worlds.count);
        }
        before = now.map(|now| (*at_ns, now));
    }
    sum.map(|(ns, counters)| (worlds, counters.shares(ns)))
}

fn pressure(readings: impl Iterator<Item = (u64, Option<Pressure>)>) -> PressureShares {
    let known: Vec<(u64, Pressure)> = readings.filter_map(|(at, pressure)| Some((at, pressure?))).collect();
    PressureShares::over(&known)
}

/// If the tick columns differ from the elapsed time by more than this part, they are wrong and not just drifting.
const TICKS_APART: f64 = 0.01;

fn pcpu_models(first: &Batch, last: &Batch) -> Vec<PcpuModel> {
    last.pcpus
        .iter()
        .filter_map(|b| {
            let a = first.pcpus.iter().find(|p| p.cpu == b.cpu)?;
            let of = |f: fn(&crate::nouns::PcpuSample) -> u64| f(b).saturating_sub(f(a)) as f64;
            let steal = rise(a.steal_ns, b.steal_ns).map(|n| n as f64);
            let (user, system, idle) = (of(|p| p.user_ns), of(|p| p.system_ns), of(|p| p.idle_ns));
            let interrupts = of(|p| p.irq_ns) + of(|p| p.softirq_ns);
            // Relative to the columns' own sum, because ticks drift against the clock.
            let whole = user + system + idle + interrupts + steal.unwrap_or(0.0);
            let share = |ns: f64| if whole > 0.0 { ns / whole } else { 0.0 };
            // Tickless kernels count idle time exactly and the rest by ticks. A load in step with the ticks is
            // counted too often or too seldom. Then only the idle time is right.
            let passed = last.mono_ns.saturating_sub(first.mono_ns) as f64;
            let of = if (whole - passed).abs() > TICKS_APART * passed { passed } else { whole };
            Some(PcpuModel {
                cpu: b.cpu,
                busy: if of > 0.0 { (1.0 - idle / of).max(0.0) } else { 0.0 },
                user: share(user),
                system: share(system),
                interrupts: share(interrupts),
                steal: steal.map(share),
                frequency_khz: b.frequency_khz,
            })
        })
        .collect()
}

fn blame<'a>(blamed: impl Iterator<Item = (&'a VmId, &'a Culprit, i64)>, window_ns: u64) -> Vec<Blame> {
    let mut sums: BTreeMap<(&VmId, &Culprit), i64> = BTreeMap::new();
    for (victim, culprit, ns) in blamed {
        let sum = sums.entry((victim, culprit)).or_default();
        *sum = sum.saturating_add(ns);
    }
    let mut rows: Vec<Blame> = sums
        .into_iter()
        .filter(|(_, ns)| *ns > 0)
        .map(|((victim, culprit), ns)| Blame {
            victim: victim.clone(),
            culprit: culprit.clone(),
            share: ns as f64 / window_ns as f64,
        })
        .collect();
    rows.sort_by(|a, b| b.share.total_cmp(&a.share));
    rows
}

/// The share of one VM's vCPUs (summed) in every interval between batches: what [`crate::verify`] compares.
/// Intervals in which the VM was not seen are left out. If only the group is counted, it is the group's share.
pub fn series(batches: &[Batch], vm: &VmId, term: impl Fn(&Shares) -> Option<f64>) -> Vec<f64> {
    all_series(batches).get(vm).into_iter().flatten().filter_map(term).collect()
}

/// The shares of every VM per interval, summed over its vCPUs. Intervals in which a VM was not seen are left out.
pub fn all_series(batches: &[Batch]) -> BTreeMap<&VmId, Vec<Shares>> {
    let mut all: BTreeMap<&VmId, Vec<Shares>> = BTreeMap::new();
    for pair in batches.windows(2) {
        let mut here: BTreeMap<&VmId, Shares> = BTreeMap::new();
        for Interval { ns, earlier, later } in intervals(pair).filter(|of| of.later.role.vcpu().is_some()) {
            let shares = later.counters.shares_since(&earlier.counters, ns);
            here.entry(&later.vm).and_modify(|sum| *sum = sum.plus(&shares)).or_insert(shares);
        }
        // Where vCPUs are not counted one by one, it is the group's share.
        let ns = pair[1].mono_ns.saturating_sub(pair[0].mono_ns);
        for vm in pair[1].vms.iter().filter(|vm| !here.contains_key(&vm.vm)).collect::<Vec<_>>() {
            let earlier = pair[0].vms.iter().find(|v| v.vm == vm.vm).and_then(|v| v.group.as_ref());
            if let Some((a, b)) = earlier.zip(vm.group.as_ref()) {
                here.insert(&vm.vm, b.counters.since(&a.counters).shares(ns));
            }
        }
        here.into_iter().for_each(|(id, shares)| all.entry(id).or_default().push(shares));
    }
    all
}
