//! Which VMs wait too long, and which of them wait for others? Tests of each condition at its limit.

mod common;

use common::{Host, thread_model, vm_model};
use vsteer_core::delay::{
    is_delayed, is_delayed_by_others, is_sleeper, runs_briefly, waits_per_vcpu, wakes_late,
};
use vsteer_core::model::{Blame, Quantiles, VmModel, Worlds};
use vsteer_core::nouns::{Culprit, Role, Shares, Tid, VmId};
use vsteer_core::thresholds::Thresholds;

/// A VM with this many vCPUs and these shares, and an emulator thread that is always busy.
fn vm(vcpus: u32, run: f64, ready: f64) -> VmModel {
    let vcpu = |i| thread_model(Role::Vcpu(i), Tid(i), run, ready, 100.0);
    let mut all: Vec<_> = (0..vcpus).map(vcpu).collect();
    all.push(thread_model(Role::Emulator, Tid(99), 1.0, 0.0, 0.0));
    let mut vm = vm_model("a", all);
    vm.wake_latency = None;
    vm
}

/// A VM of which the group alone is counted.
fn group(ready: f64) -> VmModel {
    let mut vm = vm(1, 0.1, 0.0);
    vm.threads.clear();
    (vm.worlds, vm.vcpus) = (Some(Worlds { count: None }), Shares::default());
    (vm.group.ready, vm.group.costop) = (Some(ready), Some(0.0));
    vm
}

fn late(mut vm: VmModel, p99_ms: f64, count: u64) -> VmModel {
    let p99_ns = 1e6 * p99_ms;
    vm.wake_latency = Some(Quantiles { count, p50_ns: 0.0, p95_ns: 0.0, p99_ns, max_ns: p99_ns });
    vm
}

const T: fn() -> Thresholds = Thresholds::default;

#[test]
fn a_sleeper_runs_little_and_sleeps_much_on_every_vcpu() {
    let of = |run: Option<f64>, wait: f64, blocked: Option<f64>| {
        let mut vm = vm(2, 0.1, 0.0);
        let shares = &mut vm.threads[1].shares;
        (shares.run, shares.wait, shares.blocked) = (run, Some(wait), blocked);
        is_sleeper(&vm, &T())
    };
    assert!(of(Some(0.35), 0.0, Some(0.40)));
    assert!(!of(Some(0.36), 0.0, Some(0.64)), "it runs too much");
    assert!(!of(Some(0.35), 0.0, Some(0.39)), "it sleeps too little");
    // Where the collector does not count sleep, sleep is the time that run and wait leave.
    assert!(of(Some(0.25), 0.25, None));
    assert!(!of(Some(0.25), 0.5, None));
    assert!(!of(None, 0.0, None), "nobody knows what it runs");
    assert!(is_sleeper(&group(0.0), &T()), "of a group nobody knows");
    let mut none = group(0.0);
    none.worlds = None;
    assert!(!is_sleeper(&none, &T()));
}

#[test]
fn wake_ups_count_the_more_the_more_a_vm_sleeps() {
    let threshold = |run: f64| T().wake_p99_of(&vm(1, run, 0.0));
    assert_eq!((threshold(0.3), threshold(0.49), threshold(0.5)), (2e6, 5e6, f64::INFINITY));
    let wakes = |run: f64, p99_ms: f64, count: u64| wakes_late(&late(vm(1, run, 0.0), p99_ms, count), &T());
    assert!(!wakes(0.3, 2.0, 20) && wakes(0.3, 2.1, 20) && !wakes(0.3, 2.1, 19));
    assert!(!wakes(0.4, 5.0, 20) && wakes(0.4, 5.1, 20) && !wakes(0.6, 900.0, 20));
}

#[test]
fn a_vm_is_delayed_above_the_threshold_of_its_kind() {
    let delayed = |vm: &VmModel| is_delayed(vm, &T());
    for (below, above) in [
        (vm(1, 0.1, 0.01), vm(1, 0.1, 0.011)),
        (vm(1, 0.6, 0.05), vm(1, 0.6, 0.051)),
        (group(0.10), group(0.11)),
        (late(vm(1, 0.1, 0.0), 2.0, 500), late(vm(1, 0.1, 0.0), 2.1, 500)),
    ] {
        assert!(!delayed(&below) && delayed(&above), "{:?}", waits_per_vcpu(&above));
    }
    let mut held = vm(2, 0.6, 0.0);
    (held.vcpus.ready, held.vcpus.costop) = (Some(0.06), Some(0.06));
    assert!((waits_per_vcpu(&held).unwrap() - 0.06).abs() < 1e-12 && delayed(&held), "co-stop is a wait");
    (held.vcpus.ready, held.vcpus.wait, held.vcpus.costop) = (None, Some(0.3), None);
    assert!((waits_per_vcpu(&held).unwrap() - 0.15).abs() < 1e-12, "with limited where it is not told apart");
}

#[test]
fn only_what_others_cause_is_a_reason_to_change_them() {
    let mut h = Host::new(2, 1, 1.0);
    let by = |h: &mut Host, vm: &VmModel, blame: &[(&str, Culprit, f64)]| {
        let one = |(victim, culprit, share): &(&str, Culprit, f64)| Blame {
            victim: VmId((*victim).into()),
            culprit: culprit.clone(),
            share: *share,
        };
        h.model.blame = Some(blame.iter().map(one).collect());
        is_delayed_by_others(vm, &h.model, &T())
    };
    let other = |share| ("a", Culprit::Vm(VmId("b".into())), share);
    // A sleeper has two vCPUs that are ready for 20 % each. Others may cause 1 % of each, no more.
    let sleeper = vm(2, 0.1, 0.2);
    assert!(is_delayed_by_others(&sleeper, &h.model, &T()), "where nobody knows who ran, all of it");
    assert!(!by(&mut h, &sleeper, &[other(0.02)]));
    assert!(by(&mut h, &sleeper, &[other(0.03)]));
    assert!(by(&mut h, &sleeper, &[other(0.01), ("a", Culprit::Kernel { comm: "k".into() }, 0.02)]));
    for culprit in [Culprit::process("p", 1), Culprit::Kernel { comm: "k".into() }, Culprit::Unattributed] {
        assert!(by(&mut h, &sleeper, &[("a", culprit, 0.1)]));
    }
    assert!(!by(&mut h, &sleeper, &[("a", Culprit::Placement, 0.4)]), "a pCPU was idle");
    assert!(!by(&mut h, &sleeper, &[("a", Culprit::Vm(VmId("a".into())), 0.4)]), "its own vCPUs");
    assert!(!by(&mut h, &sleeper, &[("b", Culprit::Vm(VmId("c".into())), 0.4)]), "that is another's wait");
    // The wait for others is never longer than the ready time.
    assert!(!by(&mut h, &vm(2, 0.1, 0.01), &[other(0.4)]));
    // If the VM wakes late, others need to cause only a tenth of that.
    let late = late(sleeper, 2.1, 500);
    assert!(!by(&mut h, &late, &[other(0.002)]));
    assert!(by(&mut h, &late, &[other(0.004)]));
}

#[test]
fn a_vm_runs_briefly_if_each_wake_up_takes_a_millisecond_at_most() {
    let of = |run: Option<f64>, wakes: Option<f64>, switches: Option<f64>| {
        let mut vm = vm(2, 0.001, 0.0);
        let t = &mut vm.threads[1];
        (t.shares.run, t.wakeups_per_s, t.switches_per_s) = (run, wakes, switches);
        runs_briefly(&vm)
    };
    assert!(of(Some(0.25), Some(250.0), None));
    assert!(!of(Some(0.25), Some(249.0), Some(900.0)), "wake-ups are finer");
    assert!(of(Some(0.25), None, Some(250.0)));
    assert!(!of(Some(0.25), None, Some(249.0)));
    assert!(of(Some(0.0009), Some(0.1), None), "once in ten seconds is taken as once a second");
    assert!(!of(Some(0.25), None, None) && !of(None, Some(250.0), None), "not measured");
}
