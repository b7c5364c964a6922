//! How much of a wait is limited time, where the kernel tells only for how long quotas held run queues?

use vsteer_core::model::{HostModel, derive};
use vsteer_core::nouns::*;
use vsteer_core::topology::machine;

const S: u64 = 1_000_000_000;

/// Of a VM over 10 s: how long its vCPU waited, and how long its own quota, and the shared one, held run queues; in s.
struct Seen {
    name: &'static str,
    wait: f64,
    own: Option<f64>,
    above: Option<f64>,
    /// The cgroup whose quota it shares.
    slice: Option<&'static str>,
}

fn model(vms: &[Seen], limited: Option<u64>) -> HostModel {
    let config = |(seen, pid): (&Seen, u32)| {
        let mut vm = VmConfig::new(VmId(seen.name.into()), seen.name, pid);
        let quota = Quota { quota_us: 50_000, period_us: 100_000 };
        vm.quotas =
            seen.slice.iter().map(|s| GroupQuota { cgroup: (*s).to_owned(), quota, shared: true }).collect();
        vm
    };
    let host = HostConfig {
        cgroups: CgroupLayout::V2,
        vms: vms.iter().zip(100..).map(config).collect(),
        ..HostConfig::new("h", "6.1", machine(1, 2, 1, 1).unwrap())
    };
    let batch = |at: u64| {
        let ns = |s: f64| (at as f64 / 10.0 * s * 1e9) as u64;
        let thread = |seen: &Seen| ThreadSample {
            vm: VmId(seen.name.into()),
            role: Role::Vcpu(0),
            tid: Tid(1),
            last_cpu: None,
            waiting_ns: None,
            counters: ThreadCounters {
                run_ns: Some(ns(1.0)),
                wait_ns: Some(ns(seen.wait)),
                limited_ns: limited.map(|l| l * at / 10),
                ..ThreadCounters::default()
            },
        };
        let of_vm = |seen: &Seen| VmSample {
            throttled_ns: seen.own.map(ns),
            throttled_above_ns: seen.above.map(ns),
            ..VmSample::new(VmId(seen.name.into()))
        };
        Batch {
            mono_ns: S + at * S,
            threads: vms.iter().map(thread).collect(),
            vms: vms.iter().map(of_vm).collect(),
            ..Batch::default()
        }
    };
    let collector = Collector { name: "ebpf".into(), missing: Default::default() };
    derive(&host, &collector, &[batch(0), batch(10)]).unwrap()
}

fn vm(
    name: &'static str,
    wait: f64,
    own: Option<f64>,
    above: Option<f64>,
    slice: Option<&'static str>,
) -> Seen {
    Seen { name, wait, own, above, slice }
}

fn near(is: Option<f64>, wanted: f64) -> bool {
    is.is_some_and(|is| (is - wanted).abs() < 1e-6)
}

#[test]
fn a_vms_own_quota() {
    // Held for 3 of 5 s of waiting; longer than it waited, as with a second thread on the queue; never; not told.
    for (own, wanted) in
        [(Some(3.0), Some(0.3)), (Some(7.0), Some(0.5)), (Some(0.0), Some(0.0)), (None, None)]
    {
        let m = model(&[vm("a", 5.0, own, Some(0.0), None)], None);
        let estimate = m.vms[0].limited_estimate;
        assert!(match wanted {
            Some(wanted) => near(estimate, wanted),
            None => estimate.is_none(),
        });
        assert_eq!(m.vms[0].limited(), estimate.map(|e| (e, true)));
        assert_eq!(m.vms[0].limited_per_vcpu(), estimate);
        assert_eq!(m.vms[0].vcpus.limited, None, "an estimate never stands where counts do");
    }
}

#[test]
fn what_is_counted_needs_no_estimate() {
    let m = model(&[vm("a", 5.0, Some(3.0), Some(0.0), None)], Some(2 * S));
    assert_eq!(m.vms[0].limited_estimate, None);
    assert_eq!(m.vms[0].limited(), Some((0.2, false)));
}

/// The slice's time is the sum over its VMs: each has a part of it as its part of the waiting is.
#[test]
fn a_quota_that_vms_share() {
    let slice = Some("/machine.slice");
    let m = model(
        &[
            vm("a", 6.0, Some(0.0), Some(8.0), slice),
            vm("b", 2.0, Some(0.5), Some(8.0), slice),
            vm("c", 4.0, Some(0.0), Some(0.0), None),
        ],
        None,
    );
    assert!(near(m.vms[0].limited_estimate, 0.6), "{:?}", m.vms[0].limited_estimate);
    // 2 s of the slice's and half a second of its own, but it waited for 2 s.
    assert!(near(m.vms[1].limited_estimate, 0.2), "{:?}", m.vms[1].limited_estimate);
    assert!(near(m.vms[2].limited_estimate, 0.0), "{:?}", m.vms[2].limited_estimate);
    let half =
        model(&[vm("a", 6.0, Some(0.0), Some(4.0), slice), vm("b", 2.0, Some(0.0), Some(4.0), slice)], None);
    assert!(near(half.vms[0].limited_estimate, 0.3) && near(half.vms[1].limited_estimate, 0.1));
}
