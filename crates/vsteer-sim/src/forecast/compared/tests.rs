use super::super::replay::Thread;
use super::*;
use vsteer_core::model::{Quantiles, Shares, VmModel};
use vsteer_core::nouns::{Histogram, PressureShares, Role, VmConfig};
use vsteer_core::topology::machine;

fn got(tid: u32, ready: f64) -> Got {
    Got {
        thread: Thread { vm: VmId("a".into()), role: Role::Vcpu(tid), tid: Tid(tid) },
        run: 0.5,
        ready,
        limited: 0.0,
        lag: 0.0,
        switches_per_s: 1.0,
        wake: Histogram::default(),
        wake_wait_ns: 0,
        runs: 1,
    }
}

fn model(ready: &[Option<f64>]) -> HostModel {
    let thread = |(i, ready): (usize, &Option<f64>)| ThreadModel {
        role: Role::Vcpu(i as u32),
        tid: Tid(i as u32),
        seen: 1.0,
        shares: Shares { run: Some(0.5), ready: *ready, ..Shares::default() },
        switches_per_s: None,
        preemptions_per_s: None,
        wakeups_per_s: None,
        migrations_per_s: None,
        wake_latency: None,
        ready_spell: None,
        last_cpu: None,
        ran_on: Vec::new(),
    };
    let vm = VmModel {
        id: VmId("a".into()),
        name: "a".into(),
        threads: ready.iter().enumerate().map(thread).collect(),
        group: Shares { run: Some(1.0), ..Shares::default() },
        worlds: None,
        vcpus: Shares::default(),
        throttled_per_s: None,
        throttled_above_per_s: None,
        limited_estimate: None,
        io_per_s: None,
        pressure: PressureShares::default(),
        timers_per_s: None,
        timers_late: None,
        timers_refused: None,
        wake_latency: None,
        ready_spell: None,
        memory_by_node: None,
        memory_local: None,
    };
    HostModel {
        from_unix_ns: 0,
        window_ns: 1_000_000_000,
        vms: vec![vm],
        pcpus: Vec::new(),
        pressure: PressureShares::default(),
        blame: None,
        collector: "ebpf".into(),
        missing: BTreeMap::new(),
    }
}

fn near(is: Option<f64>, expected: f64) -> bool {
    is.is_some_and(|is| (is - expected).abs() < 1e-12)
}

#[test]
fn errors_are_of_those_that_wait_before_or_after() {
    let (before, after) =
        (model(&[Some(0.20), Some(0.01), Some(0.02)]), model(&[Some(0.10), Some(0.02), Some(0.06)]));
    let as_it_was = [got(0, 0.25), got(1, 0.9), got(2, 0.02)];
    let predicted = [got(2, 0.05), got(0, 0.13)];
    let fluid = BTreeMap::from([(Tid(0), 0.18)]);
    let sides = Sides {
        model: &before,
        as_it_was: &as_it_was,
        predicted: Some(&predicted),
        fluid: &fluid,
        then: Some(&after),
    };
    let compared = Compared::of(&sides);
    // The second one waits neither before nor after, so its 89 points do not count.
    assert_eq!(compared.rows.iter().map(Row::waits).collect::<Vec<_>>(), [true, false, true]);
    assert!(near(compared.calibration.ready, 0.025) && compared.calibration.vcpus == 2);
    assert!(near(compared.prediction.ready, 0.02), "{:?}", compared.prediction);
    assert!(near(compared.no_change, 0.07) && near(compared.fluid, 0.08));
    // Found by thread, not by position.
    assert_eq!(compared.rows[2].predicted, Some(&predicted[0]));
}

#[test]
fn percentiles_of_few_wake_ups_do_not_count() {
    let mut model = model(&[Some(0.2)]);
    let quantiles = |count| Quantiles { count, p50_ns: 1e6, p95_ns: 1e6, p99_ns: 1e6, max_ns: 1e6 };
    let mut got = [got(0, 0.2)];
    got[0].wake = Histogram::from_row(&[0, 0, 0, 0, 0, 0, 0, 0, 2000_u64]);
    model.vms[0].threads[0].wake_latency = Some(quantiles(999));
    assert_eq!(calibration(&got, &model).wake_p99, None);
    model.vms[0].threads[0].wake_latency = Some(quantiles(1000));
    assert!(calibration(&got, &model).wake_p99.is_some());
}

#[test]
fn what_nobody_waited_for_has_no_error() {
    let model = model(&[Some(0.0), None]);
    let as_it_was = [got(0, 0.3), got(1, 0.3)];
    let sides =
        Sides { model: &model, as_it_was: &as_it_was, predicted: None, fluid: &BTreeMap::new(), then: None };
    let compared = Compared::of(&sides);
    assert_eq!(compared.calibration.told(), "no vCPU waited at least 5 % of the time");
    assert_eq!((compared.prediction.vcpus, compared.no_change, compared.fluid), (0, None, None));
}

#[test]
fn a_later_recording_is_of_the_same_threads() {
    use vsteer_core::CpuSet;
    let host = |tids: &[u32]| {
        let thread = |(i, tid): (usize, &u32)| VmThread {
            tid: Tid(*tid),
            role: Role::Vcpu(i as u32),
            affinity: CpuSet::first(1),
            class: None,
            cgroup: None,
            prefers: None,
            reserved: None,
        };
        let threads = tids.iter().enumerate().map(thread).collect();
        HostConfig {
            vms: vec![VmConfig { threads, ..VmConfig::new(VmId("a".into()), "a", 1) }],
            ..HostConfig::new("h", "6.12", machine(1, 1, 1, 1).unwrap())
        }
    };
    assert!(same_threads(&host(&[7, 8]), &host(&[7, 8])).is_ok());
    let fault = same_threads(&host(&[7, 8]), &host(&[7, 9])).unwrap_err();
    assert!(fault.kind == FaultKind::BadInput && fault.what.contains("thread 8"), "{fault}");
}

#[test]
fn what_is_outside_of_vms_is_told() {
    assert_eq!(others_pcpus(&model(&[])), 0.0, "pCPUs that were not counted are not others'");
}
