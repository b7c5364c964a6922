//! VMs whose waits are known, and VMs that come and go.

use super::*;
use vsteer_core::CpuSet;
use vsteer_core::model::derive;
use vsteer_core::nouns::{Batch, Collector, Role, ThreadCounters, ThreadSample, Tid, VmId, VmThread};
use vsteer_core::topology::{Parts, Topology};

const S: u64 = 1_000_000_000;

/// A host with these VMs: name, first thread, vCPUs.
fn host(vms: &[(&str, u32, u32)]) -> HostConfig {
    let one = || CpuSet::single(0);
    let parts = Parts { present: one(), online: one(), allowed: one(), ..Parts::default() };
    let vm = |(name, tid, n): &(&str, u32, u32)| {
        let mut vm = VmConfig::new(VmId((*name).into()), (*name).to_owned(), 1);
        vm.threads = (0..*n)
            .map(|v| VmThread {
                tid: Tid(tid + v),
                role: Role::Vcpu(v),
                affinity: one(),
                class: None,
                cgroup: None,
                prefers: None,
                reserved: None,
            })
            .collect();
        vm
    };
    HostConfig {
        vms: vms.iter().map(vm).collect(),
        ..HostConfig::new("host", "", Topology::new(parts).unwrap())
    }
}

/// Its counters at a second, each vCPU ready for this many ms of each second.
fn batch(host: &HostConfig, at_s: u64, ready_ms: impl Fn(&str) -> u64) -> Batch {
    let of = |vm: &VmConfig| -> Vec<ThreadSample> {
        let ready_ns = Some(at_s * ready_ms(&vm.name) * 1_000_000);
        let id = vm.id.clone();
        let sample = |t: &VmThread| ThreadSample {
            vm: id.clone(),
            role: t.role,
            tid: t.tid,
            last_cpu: None,
            waiting_ns: None,
            counters: ThreadCounters { ready_ns, ..ThreadCounters::default() },
        };
        vm.threads.iter().map(sample).collect()
    };
    Batch {
        mono_ns: at_s * S,
        unix_ns: at_s * S,
        threads: host.vms.iter().flat_map(of).collect(),
        ..Batch::default()
    }
}

fn ready(before: &HostConfig, after: &HostConfig, pattern: &str) -> Result<f64, String> {
    let collector = Collector { name: "test".into(), missing: BTreeMap::new() };
    let by_name = |name: &str| if name == "small" { 100 } else { 400 };
    let batches = [batch(before, 1, by_name), batch(after, 5, by_name)];
    let model = derive(after, &collector, &batches).unwrap();
    let is_meant = |vm: &VmConfig| vm.name == pattern || pattern == "*";
    let found = value(Quantity::named("ready").unwrap(), &is_meant, (before, after), &model);
    // To the fourth digit: shares are sums of fractions.
    found.map(|v| (v * 1e4).round() / 1e4)
}

#[test]
fn shares_are_means_over_vcpus() {
    let h = host(&[("small", 10, 1), ("big", 20, 3)]);
    assert_eq!(ready(&h, &h, "small"), Ok(10.0));
    assert_eq!(ready(&h, &h, "big"), Ok(40.0));
    assert_eq!(ready(&h, &h, "*"), Ok(32.5));
}

#[test]
fn who_comes_and_goes_has_no_value() {
    let (both, one) = (host(&[("small", 10, 1), ("big", 20, 3)]), host(&[("big", 20, 3)]));
    for (before, after, pattern, why) in [
        (&both, &one, "small", "stopped"),
        (&one, &both, "small", "started"),
        (&both, &one, "*", "stopped"),
        (&one, &one, "small", "no VM has this name"),
        (&host(&[("big", 20, 2)]), &one, "big", "vCPUs"),
        // The same VM has other threads after a restart.
        (&host(&[("big", 30, 3)]), &one, "big", "during the whole run"),
    ] {
        let found = ready(before, after, pattern);
        assert!(found.as_ref().is_err_and(|e| e.contains(why)), "{pattern}: {found:?}, not {why}");
    }
    assert_eq!(ready(&both, &one, "big"), Ok(40.0));
}

#[test]
fn what_nobody_counts_has_the_collectors_reason() {
    let h = host(&[("small", 10, 1)]);
    let missing = BTreeMap::from([("lag_ns".to_owned(), "polled".to_owned())]);
    let collector = Collector { name: "test".into(), missing };
    let model = derive(&h, &collector, &[batch(&h, 1, |_| 1), batch(&h, 2, |_| 1)]).unwrap();
    let of = |name: &str| value(Quantity::named(name).unwrap(), &|_| true, (&h, &h), &model).unwrap_err();
    assert!(of("lag").contains("polled"), "{}", of("lag"));
    assert!(of("wake_p99").contains("no vCPU"), "{}", of("wake_p99"));
}
