//! The rows of a minute: sums of times, from the model of the minute.
//!
//! A model has shares. A thread's share is of the time in which the thread was seen, so share and time give the sum again.

use std::collections::BTreeMap;
use std::sync::Arc;
use vsteer_core::diagnose::{Context, Finding, NOT_MEASURED, flat};
use vsteer_core::model::{Blame, HostModel, VmModel};
use vsteer_core::nouns::{Batch, Histogram, HostConfig, Shares, Stalls, VmId};
use vsteer_core::thresholds::Thresholds;
use vsteer_record::history::{Cost, HostRow, VmRow, largest};

/// Microseconds of a share of some time.
fn us(share: f64, of_ns: f64) -> u64 {
    (share * of_ns / 1000.0).round().max(0.0) as u64
}

/// A time summed over the vCPUs, or of the group if only that was counted.
fn time(vm: &VmModel, window_ns: f64, of: fn(&Shares) -> Option<f64>) -> Option<u64> {
    if vm.vcpu_threads().next().is_none() {
        return of(&vm.group).filter(|_| vm.worlds.is_some()).map(|share| us(share, window_ns));
    }
    vm.vcpu_threads().map(|t| Some(us(of(&t.shares)?, t.seen * window_ns))).sum()
}

/// Times from wake-up to running of each VM's vCPUs, over neighbouring samples.
fn wakes(batches: &[Arc<Batch>]) -> BTreeMap<&VmId, Histogram> {
    let mut all: BTreeMap<&VmId, Histogram> = BTreeMap::new();
    for pair in batches.windows(2) {
        let before: BTreeMap<_, _> =
            pair[0].threads.iter().map(|t| ((&t.vm, t.role, t.tid), &t.counters)).collect();
        for t in pair[1].threads.iter().filter(|t| t.role.vcpu().is_some()) {
            let earlier = before.get(&(&t.vm, t.role, t.tid)).and_then(|c| c.wake_latency.as_ref());
            if let Some((now, earlier)) = t.counters.wake_latency.as_ref().zip(earlier) {
                let sum = all.entry(&t.vm).or_default();
                *sum = sum.merged(&now.since(earlier));
            }
        }
    }
    all
}

fn costs(model: &HostModel, config: &HostConfig) -> BTreeMap<VmId, Vec<Cost>> {
    let context = Context { config, model, thresholds: Thresholds::default() };
    let mut all: BTreeMap<VmId, Vec<Cost>> = BTreeMap::new();
    for Blame { victim, culprit, share } in model.blame.iter().flatten() {
        let cost =
            Cost { culprit: context.culprit(&culprit.without_pid()), us: us(*share, model.window_ns as f64) };
        all.entry(victim.clone()).or_default().push(cost);
    }
    all.into_iter().map(|(vm, costs)| (vm, largest(costs))).collect()
}

/// A row for each VM.
pub fn of_vms(
    model: &HostModel,
    config: &HostConfig,
    batches: &[Arc<Batch>],
    samples: u64,
    unix_ms: u64,
) -> Vec<VmRow> {
    let window_ns = model.window_ns as f64;
    let (mut costs, mut wakes) = (costs(model, config), wakes(batches));
    let row = |vm: &VmModel| {
        let seen = vm.vcpu_threads().map(|t| t.seen).fold(0.0, f64::max);
        let of_group = vm.vcpu_threads().next().is_none();
        let limited = vm.limited().filter(|_| !of_group);
        let mut row = VmRow {
            unix_ms,
            vm: vm.id.to_string(),
            name: vm.name.clone(),
            vcpus: config.vm(&vm.id).map(|c| c.vcpu_count() as u64).filter(|n| *n > 0),
            samples,
            covered_us: us(if of_group { 1.0 } else { seen }, window_ns),
            of_group,
            run_us: time(vm, window_ns, |s| s.run),
            ready_us: time(vm, window_ns, |s| s.ready),
            wait_us: time(vm, window_ns, |s| s.wait),
            limited_us: time(vm, window_ns, |s| s.limited),
            limited_is_estimate: limited.is_some_and(|(_, is_estimate)| is_estimate),
            costop_us: time(vm, window_ns, |s| s.costop),
            lag_us: time(vm, window_ns, |s| s.lag),
            costs: costs.remove(&vm.id).unwrap_or_default(),
            ..VmRow::default()
        };
        if let Some((share, true)) = limited {
            row.limited_us = Some(us(share, window_ns));
        }
        row.set_wake(wakes.remove(&vm.id));
        row
    };
    model.vms.iter().map(row).collect()
}

/// The row of the host.
pub fn of_host(
    model: &HostModel,
    vms: &[VmRow],
    findings: &[Finding],
    samples: u64,
    unix_ms: u64,
) -> HostRow {
    let window_ns = model.window_ns as f64;
    let sum = |of: fn(&VmRow) -> Option<u64>| vms.iter().map(of).sum::<Option<u64>>();
    let stalled = |share: Option<f64>| share.map(|share| us(share, window_ns));
    let p = model.pressure;
    let busy: f64 = model.pcpus.iter().map(|p| p.busy).sum();
    let is_read = !model.pcpus.is_empty();
    HostRow {
        unix_ms,
        samples,
        covered_us: us(1.0, window_ns),
        pcpus: is_read.then_some(model.pcpus.len() as u64),
        busy_us: is_read.then(|| us(busy, window_ns)),
        run_us: sum(|r| r.run_us),
        ready_us: sum(|r| r.ready_us),
        wait_us: sum(|r| r.wait_us),
        limited_us: sum(|r| r.limited_us),
        costop_us: sum(|r| r.costop_us),
        stalled_us: Stalls {
            cpu_some: stalled(p.cpu_some),
            io_some: stalled(p.io_some),
            io_full: stalled(p.io_full),
            memory_some: stalled(p.memory_some),
            memory_full: stalled(p.memory_full),
        },
        vms: vms.len() as u64,
        findings: flat(findings).filter(|f| is_problem(f)).count() as u64,
    }
}

/// Is it a problem of the host, not a remark on what was measured?
pub fn is_problem(finding: &Finding) -> bool {
    finding.rule != NOT_MEASURED && finding.rule != "nothing_wrong"
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::model::derive;
    use vsteer_core::nouns::Culprit;
    use vsteer_core::nouns::{BlameSample, Collector, Role, ThreadCounters, ThreadSample, Tid, VmConfig};
    use vsteer_core::topology::machine;

    fn batch(s: u64, counts: u64) -> Batch {
        let vm = || VmId("a".into());
        let counters = ThreadCounters {
            run_ns: Some(s * 500_000_000),
            wait_ns: Some(s * 100_000_000),
            wake_latency: Some(Histogram { counts: vec![(40, counts)] }),
            ..ThreadCounters::default()
        };
        let thread = |n: u32| ThreadSample {
            vm: vm(),
            role: Role::Vcpu(n),
            tid: Tid(n + 1),
            last_cpu: None,
            waiting_ns: None,
            counters: counters.clone(),
        };
        let blame = |pid, ns| BlameSample {
            victim: vm(),
            role: Role::Vcpu(0),
            culprit: Culprit::process("backup", pid),
            ns,
        };
        Batch {
            mono_ns: s * 1_000_000_000,
            unix_ns: s * 1_000_000_000,
            threads: vec![thread(0), thread(1)],
            blame: vec![blame(7, 40_000_000), blame(8, 20_000_000)],
            ..Batch::default()
        }
    }

    #[test]
    fn a_minute_has_the_times_that_its_samples_have() {
        let config = HostConfig {
            vms: vec![VmConfig::new(VmId("a".into()), "web", 1)],
            ..HostConfig::new("h", "6", machine(1, 1, 2, 1).unwrap())
        };
        let collector =
            Collector::new("schedstat", |name| ["run_ns", "wait_ns", "wake_latency"].contains(&name), "no")
                .without(&["ready_ns"], "no");
        let collector = Collector {
            missing: collector.missing.into_iter().filter(|(k, _)| k != "blame").collect(),
            ..collector
        };
        let batches = [batch(0, 5), batch(30, 7), batch(60, 25)];
        let model = derive(&config, &collector, &batches).unwrap();
        let rows = of_vms(&model, &config, &batches.map(Arc::new), 60, 0);
        let row = &rows[0];
        assert_eq!(
            (row.covered_us, row.run_us, row.wait_us),
            (60_000_000, Some(60_000_000), Some(12_000_000))
        );
        assert_eq!((row.ready_us, row.limited_us, row.costop_us), (None, None, None));
        assert_eq!(row.wakeups, Some(40), "both vCPUs");
        assert_eq!(row.costs, [Cost { culprit: "process backup".into(), us: 120_000 }], "of two processes");
        let host = of_host(&model, &rows, &[], 60, 0);
        assert_eq!((host.run_us, host.ready_us, host.pcpus, host.vms), (Some(60_000_000), None, None, 1));
    }
}
