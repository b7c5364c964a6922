use super::*;
use std::collections::BTreeMap;
use vsteer_core::model::{Shares, ThreadModel};
use vsteer_core::nouns::{PressureShares, Role, ThreadCounters, ThreadSample, Tid};

fn vcpu() -> ThreadModel {
    ThreadModel {
        role: Role::Vcpu(0),
        tid: Tid(1),
        seen: 1.0,
        shares: Shares::default(),
        switches_per_s: None,
        preemptions_per_s: None,
        wakeups_per_s: None,
        migrations_per_s: None,
        wake_latency: None,
        ready_spell: None,
        last_cpu: None,
        ran_on: Vec::new(),
    }
}

fn vm(name: &str, run: f64) -> VmModel {
    VmModel {
        id: VmId(name.into()),
        name: name.into(),
        threads: vec![vcpu()],
        group: Shares::default(),
        worlds: None,
        vcpus: Shares { run: Some(run), wait: Some(0.5), ..Shares::default() },
        throttled_per_s: None,
        throttled_above_per_s: None,
        limited_estimate: Some(0.2),
        io_per_s: None,
        pressure: PressureShares::default(),
        timers_per_s: None,
        timers_late: None,
        timers_refused: None,
        wake_latency: None,
        ready_spell: None,
        memory_by_node: None,
        memory_local: None,
    }
}

fn host(vms: Vec<VmModel>) -> HostModel {
    HostModel {
        from_unix_ns: 0,
        window_ns: 1_000_000_000,
        vms,
        pcpus: Vec::new(),
        pressure: PressureShares::default(),
        blame: None,
        collector: "test".into(),
        missing: BTreeMap::new(),
    }
}

#[test]
fn two_hundred_vms_stay_below_20_megabytes() {
    let mut ring = Ring::default();
    let model = host((0..200).map(|i| vm(&format!("vm-{i}"), 0.5)).collect());
    for second in 0..2_000 {
        ring.take(second * 1_000, &model);
    }
    let part = ring.part(Some(&VmId("vm-7".into()))).unwrap();
    assert_eq!((part.times.len(), part.times[0]), (901, 1_099_000), "15 minutes");
    let rows: usize = ring.vms.values().map(|rows| rows.rows.capacity()).sum();
    let bytes = rows * size_of::<Row>() + ring.host.rows.capacity() * size_of::<Row>();
    assert!(bytes < 20_000_000, "{bytes}");
}

#[test]
fn many_vms_reach_back_less_far() {
    let mut ring = Ring::default();
    let model = host((0..1_000).map(|i| vm(&format!("vm-{i}"), 0.5)).collect());
    (0..400).for_each(|second| ring.take(second * 1_000, &model));
    assert_eq!(ring.times.len(), MOST_ROWS / 1_000);
    assert_eq!(ring.part(None).unwrap().times.len(), MOST_ROWS / 1_000);
}

#[test]
fn a_vm_that_is_away_has_a_gap_and_then_is_forgotten() {
    let mut ring = Ring::default();
    let (a, b) = (VmId("a".into()), VmId("b".into()));
    ring.take(1_000, &host(vec![vm("a", 1.0), vm("b", 1.0)]));
    ring.take(2_000, &host(vec![vm("a", 2.0)]));
    ring.take(3_000, &host(vec![vm("a", 3.0), vm("b", 3.0)]));
    let part = ring.part(Some(&b)).unwrap();
    assert_eq!(part.times, [1_000, 2_000, 3_000]);
    assert!(part.columns[0][1].is_nan() && part.columns[0][2] == 3.0);
    // Where only the sum of ready and limited is measured, ready is the rest of the sum.
    assert!((part.columns[1][0] - 0.3).abs() < 1e-6 && part.columns[3][0].is_nan());
    ring.take(REACH_MS + 3_001, &host(vec![vm("a", 4.0)]));
    assert!(ring.part(Some(&b)).is_none());
    assert_eq!(ring.part(Some(&a)).unwrap().columns[0].last(), Some(&4.0));
}

/// A sum over no vCPU would be 0, and that was not measured.
#[test]
fn nothing_is_known_of_a_vm_whose_vcpus_are_not() {
    let without = VmModel { threads: Vec::new(), ..vm("a", 0.0) };
    assert!(vm_row(&without).iter().all(|number| number.is_nan()), "{:?}", vm_row(&without));
    assert_eq!(vm_row(&vm("a", 0.0))[0], 0.0);
}

#[test]
fn latencies_are_differences() {
    let batch = |count: u64| Batch {
        unix_ns: 61_000_000_000,
        threads: vec![ThreadSample {
            vm: VmId("a".into()),
            role: Role::Vcpu(0),
            tid: Tid(1),
            last_cpu: None,
            waiting_ns: None,
            counters: ThreadCounters {
                wake_latency: Some(Histogram { counts: vec![(9, count)] }),
                ..ThreadCounters::default()
            },
        }],
        ..Batch::default()
    };
    let mut ring = Ring::default();
    // Counts are kept modulo 2^32.
    ring.tallies.push_back((1_000, tallies(&batch((1 << 32) - 1))));
    let found = ring.wake_latencies(&VmId("a".into()), &batch((1 << 32) + 4));
    assert_eq!((found.len(), found[0].seconds), (1, 60.0));
    assert_eq!(found[0].counts.counts, [(9, 5)]);
    assert!(ring.wake_latencies(&VmId("b".into()), &batch(0)).is_empty());
}
