//! How does a plan choose among its actions, and what keeps a proposal from being chosen?

mod common;

use common::{Host, contended};
use vsteer_core::forecast::{Forecast, VmForecast};
use vsteer_core::nouns::*;
use vsteer_core::plan::Plan;
use vsteer_core::plan::advise::{plan_by, plan_of};
use vsteer_core::plan::limits::Limits;
use vsteer_core::setting::{self, Change, Scope, Step};
use vsteer_core::{CpuSet, Interval, topology};

fn busy(h: &mut Host, busy: &[f64]) {
    h.model.pcpus.iter_mut().zip(busy).for_each(|(p, busy)| p.busy = *busy);
}

fn at(likely: f64) -> Interval {
    Interval { low: likely, likely, high: likely }
}

/// A forecast of VMs by name: run before and after, ready before and after.
fn forecast(vms: &[(&str, [f64; 4])]) -> Forecast {
    let one = |(name, [run_before, run_after, ready_before, ready_after]): &(&str, [f64; 4])| VmForecast {
        run_after: at(*run_after),
        ready_after: at(*ready_after),
        ..VmForecast::unchanged(VmId((*name).into()), *name, *run_before, *ready_before)
    };
    Forecast { method: "made up".into(), vms: vms.iter().map(one).collect() }
}

fn planned(h: &Host, limits: Limits, told: impl Fn(&[Step]) -> Forecast) -> Plan {
    plan_by(&h.config, &h.model, limits, Scope::Live, None, &mut |steps: &[Step]| Ok(told(steps))).unwrap()
}

/// Why the weights were not raised.
fn why_no_weights(plan: &Plan) -> Option<&str> {
    let of = plan.alternatives.iter().find(|a| a.title.contains("raise the CPU weight"));
    of.map(|a| a.why_not.as_str())
}

#[test]
fn a_plan_keeps_to_what_others_may_lose() {
    let limits = Limits { work_loss: 0.5, ready_growth: 0.25, ..Limits::default() };
    let with = |burn: [f64; 4]| {
        let told = forecast(&[("tick-a", [0.1, 0.1, 1.6, 0.1]), ("burn-a", burn)]);
        let plan = planned(&contended(), limits, |_| told.clone());
        let why = why_no_weights(&plan).map(str::to_owned);
        assert_eq!(why.is_some(), plan.steps.is_empty());
        why
    };
    assert_eq!(with([1.0, 0.5, 0.25, 0.5]), None, "just as much as they may");
    let lost = with([1.0, 0.4, 0.25, 0.25]);
    assert_eq!(lost.unwrap(), "VM \"burn-a\" would lose 60 % of its work");
    assert_eq!(with([0.02, 0.0, 0.25, 0.25]), None, "so little work does not count");
    assert!(with([0.03, 0.0, 0.25, 0.25]).is_some());
    let grown = with([1.0, 1.0, 0.25, 0.6]);
    assert_eq!(grown.unwrap(), "VM \"burn-a\" would wait 35 percentage points longer");
}

#[test]
fn a_vm_that_is_ready_instead_of_limited_waits_no_longer() {
    let limits = Limits { ready_growth: 0.05, ..Limits::default() };
    let with = |limited_after: f64| {
        let mut told = forecast(&[("tick-a", [0.1, 0.1, 1.6, 0.1]), ("burn-a", [1.0, 1.0, 0.25, 0.6])]);
        told.vms[1].limited_before = Some(0.4);
        told.vms[1].limited_after = Some(at(limited_after));
        why_no_weights(&planned(&contended(), limits, |_| told.clone())).map(str::to_owned)
    };
    assert_eq!(with(0.05), None);
    assert_eq!(with(0.4).unwrap(), "VM \"burn-a\" would wait 35 percentage points longer");
}

#[test]
fn of_proposals_that_help_alike_the_gentler_is_chosen() {
    // The delayed VMs wait 1.25 now, so proposals within 0.125 are alike. The wait of other VMs does not count.
    let with = |weights: f64| {
        planned(&contended(), Limits::default(), |steps| {
            let is_weight = |s: &Step| matches!(s.change, Change::Weight(_));
            let is_class = |s: &Step| matches!(s.change, Change::Class(_));
            let wait = match steps {
                _ if steps.iter().any(is_weight) => weights,
                _ if steps.iter().any(is_class) => 0.25,
                _ => 1.25,
            };
            forecast(&[("tick-a", [0.1, 0.1, 1.25, wait]), ("burn-a", [1.0, 1.0, 9.0, 9.0])])
        })
    };
    let plan = with(0.375);
    assert!(plan.title.contains("weight"), "{}", plan.title);
    let realtime = plan.alternatives.iter().find(|a| a.title.contains("real-time")).unwrap();
    assert_eq!(
        realtime.why_not,
        "the delayed VMs would still wait 25.0 % of a pCPU, compared with \
        37.5 % for this plan"
    );
    let plan = with(0.4);
    assert!(plan.title.contains("real-time"), "{}", plan.title);
    let why = why_no_weights(&plan).unwrap();
    assert_eq!(
        why,
        "the delayed VMs would still wait 40.0 % of a pCPU, compared with 25.0 % for this \
        plan"
    );
}

/// A VM that runs for 2.75 ms at a time, beside a VM that never sleeps.
fn hungry(ready: f64) -> Host {
    let mut h = Host::new(2, 1, 1.0);
    h.vm("burn", 2, 0.8, 0.2, 0.0).vm("burst", 2, 0.11, 0.15, 40.0);
    h.model.vms[1].vcpus.ready = Some(ready);
    h
}

#[test]
fn who_may_use_what_it_waits_for_must_not_take_others_work() {
    let limits = Limits { work_loss: 0.25, ..Limits::default() };
    let calm = forecast(&[("burst", [0.22, 0.22, 0.3, 0.0]), ("burn", [1.6, 1.6, 0.4, 0.4])]);
    let with = |ready: f64| planned(&hungry(ready), limits, |_| calm.clone());
    assert_eq!(why_no_weights(&with(0.4)), None, "a quarter of 1.6 pCPUs");
    let why = with(0.48);
    let told = "VM \"burst\" runs for long at a time and might take 30 % of the other VMs' work";
    assert_eq!(why_no_weights(&why).unwrap(), told);
}

#[test]
fn a_plan_without_steps_says_why() {
    let mut calm = Host::new(2, 1, 0.1);
    calm.vm("a", 1, 0.1, 0.0, 10.0);
    assert_eq!(calm.plan().title, "nothing to change: no VM that mostly sleeps waits too long");
    let plan = planned(&hungry(0.9), Limits::default(), |_| forecast(&[("burn", [1.0, 0.0, 0.0, 0.0])]));
    let more = "vsteer plan --only search simulates many more changes";
    assert_eq!(plan.title, format!("no change within the limits helps the delayed VMs; {more}"));
    assert!(plan.steps.is_empty() && plan.on_the_way.is_empty());
}

#[test]
fn a_vm_that_moves_to_a_node_with_room_takes_nobodys_work() {
    let mut h = Host::new(8, 2, 0.0);
    h.config.topology = topology::machine(2, 1, 4, 1).unwrap();
    h.vm("a", 4, 0.3, 0.25, 0.0).vm("b", 4, 0.3, 0.25, 0.0);
    for vm in &mut h.config.vms {
        vm.manager = Manager::Vsphere("vm-1".into());
        vm.vsphere = Some(VsphereVm { home_nodes: Some(CpuSet::single(0)), ..VsphereVm::default() });
    }
    busy(&mut h, &[1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    let plan = planned(&h, Limits::default(), |_| forecast(&[]));
    assert_eq!(plan.steps.len(), 1, "{:?}", plan.alternatives);
    assert!(matches!(plan.steps[0].change, Change::NodeAffinity(_)));
}

#[test]
fn what_is_expected_on_the_way_is_told_step_by_step_up_to_eight_then_vm_by_vm() {
    let h = contended();
    let step = |vm: &str| Step {
        vm: VmId(vm.into()),
        vm_name: vm.into(),
        change: Change::Weight(setting::Weight {
            from: CpuWeight::Shares(1024),
            to: CpuWeight::Shares(2048),
        }),
        reason: String::new(),
    };
    let stages = |first: usize, second: usize| -> Vec<usize> {
        let steps = [vec![step("a"); first], vec![step("b"); second]].concat();
        // The made-up forecast holds the number of steps.
        let mut told = |steps: &[Step]| Ok(forecast(&[("a", [steps.len() as f64, 0.0, 0.0, 0.0])]));
        let plan = plan_of(&h.config, "mine", steps, Scope::Live, &mut told).unwrap();
        assert_eq!(plan.forecast.vms[0].run_before, (first + second) as f64);
        let matches = |s: &vsteer_core::plan::Stage| s.forecast.vms[0].run_before == s.steps as f64;
        assert!(plan.on_the_way.iter().all(matches));
        plan.on_the_way.iter().map(|s| s.steps).collect()
    };
    assert_eq!(stages(0, 0), [0; 0]);
    assert_eq!(stages(8, 0), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(stages(9, 0), [0]);
    assert_eq!(stages(5, 4), [0, 5]);
}
