//! The action `search`, with made-up forecasts: what it compares, what it refuses, and what it leaves out.

mod common;

use common::Host;
use std::cell::Cell;
use vsteer_core::forecast::{Forecast, Forecaster, VmForecast};
use vsteer_core::nouns::VmId;
use vsteer_core::plan::Plan;
use vsteer_core::plan::advise::plan_by;
use vsteer_core::plan::limits::Limits;
use vsteer_core::setting::{Change, Scope, Step};
use vsteer_core::{Fault, Interval};

/// The waits of `db`, `web` and `burn` after steps, in pCPUs; now they are 0.6, 0.4 and 0.5.
type Waits = fn(&[Step]) -> [f64; 3];

struct MadeUp {
    waits: Waits,
    is_quick: bool,
    null_error: f64,
    asked: Cell<(usize, usize)>,
}

impl MadeUp {
    fn told(&self, steps: &[Step]) -> Forecast {
        let now = [0.6, 0.4, 0.5];
        let after = if steps.is_empty() { now } else { (self.waits)(steps) };
        let one = |i: usize| {
            let at = |likely: f64| Interval { low: likely, likely, high: likely };
            let name = ["db", "web", "burn"][i];
            let null_error = Some(if i == 1 { self.null_error } else { 0.0 });
            VmForecast {
                ready_after: at(after[i]),
                null_error,
                ..VmForecast::unchanged(VmId(name.into()), name, 0.2, now[i])
            }
        };
        Forecast { method: "made up".into(), vms: (0..3).map(one).collect() }
    }
}

impl Forecaster for MadeUp {
    fn forecast(&mut self, steps: &[Step]) -> Result<Forecast, Fault> {
        let (full, rough) = self.asked.get();
        self.asked.set((full + 1, rough));
        Ok(self.told(steps))
    }

    fn rough(&mut self, steps: &[Step], _effort: u64) -> Result<Option<Forecast>, Fault> {
        let (full, rough) = self.asked.get();
        self.asked.set((full, rough + 1));
        Ok(self.is_quick.then(|| self.told(steps)))
    }
}

/// Four pCPUs; `web` is pinned to one of them.
fn host() -> Host {
    let mut h = Host::new(4, 1, 0.9);
    h.vm("db", 2, 0.1, 0.3, 200.0).vm("web", 1, 0.2, 0.4, 200.0).vm("burn", 1, 0.5, 0.5, 0.0).pin("web", "0");
    h
}

fn searched(h: &Host, waits: Waits, change: impl Fn(&mut MadeUp)) -> (Plan, MadeUp) {
    let mut told = MadeUp { waits, is_quick: true, null_error: 0.0, asked: Cell::default() };
    change(&mut told);
    let plan =
        plan_by(&h.config, &h.model, Limits::default(), Scope::Live, Some("search"), &mut told).unwrap();
    (plan, told)
}

fn raises(steps: &[Step], vm: &str) -> bool {
    let by = |s: &Step| matches!(&s.change, Change::Weight(w) if w.to.relative() > w.from.relative());
    steps.iter().any(|s| s.vm_name == vm && by(s))
}

fn lowers(steps: &[Step], vm: &str) -> bool {
    let by = |s: &Step| matches!(&s.change, Change::Weight(w) if w.to.relative() < w.from.relative());
    steps.iter().any(|s| s.vm_name == vm && by(s))
}

fn why_not(plan: &Plan) -> &str {
    assert!(plan.steps.is_empty());
    &plan.alternatives[0].why_not
}

#[test]
fn changes_that_help_together_are_found_and_those_that_add_nothing_are_left_out() {
    // Each of two helps; a third does nothing.
    let waits: Waits = |steps| {
        let less = |helps: bool, by: f64| if helps { by } else { 0.0 };
        [0.6 - less(raises(steps, "db"), 0.3), 0.4, 0.5 - less(lowers(steps, "burn"), 0.2)]
    };
    let (plan, told) = searched(&host(), waits, |_| ());
    assert!(raises(&plan.steps, "db") && lowers(&plan.steps, "burn"), "{:?}", plan.steps);
    assert_eq!(plan.steps.len(), 2);
    let (full, rough) = told.asked.get();
    assert!(full < 30 && rough > full, "{full} in full, {rough} rough");
}

#[test]
fn a_vm_that_waits_on_its_pin_may_get_more_pcpus_and_no_other_vm_is_moved() {
    let moved = |steps: &[Step], vm: &str| {
        steps.iter().any(|s| s.vm_name == vm && matches!(s.change, Change::Affinity(_)))
    };
    let waits: Waits = |steps| {
        let is = steps.iter().any(|s| s.vm_name == "web" && matches!(s.change, Change::Affinity(_)));
        [0.6, if is { 0.1 } else { 0.4 }, 0.5]
    };
    let (plan, _) = searched(&host(), waits, |_| ());
    assert!(moved(&plan.steps, "web") && !moved(&plan.steps, "db"), "{:?}", plan.steps);
    let wider = |s: &Step| match &s.change {
        Change::Affinity(a) => a.from.is_subset(&a.to),
        _ => false,
    };
    assert!(plan.steps.iter().all(wider));
}

#[test]
fn what_makes_another_vm_wait_is_not_proposed() {
    let waits: Waits = |steps| if raises(steps, "db") { [0.1, 0.4, 0.58] } else { [0.6, 0.4, 0.5] };
    let (plan, _) = searched(&host(), waits, |_| ());
    assert!(why_not(&plan).contains("without making another VM wait"), "{}", why_not(&plan));
}

#[test]
fn a_small_gain_is_none() {
    let waits: Waits = |steps| if raises(steps, "db") { [0.56, 0.4, 0.5] } else { [0.6, 0.4, 0.5] };
    assert!(searched(&host(), waits, |_| ()).0.steps.is_empty());
}

#[test]
fn a_vm_that_the_simulation_does_not_understand_is_not_changed_and_its_gain_does_not_count() {
    let waits: Waits =
        |steps| if raises(steps, "db") || raises(steps, "web") { [0.6, 0.1, 0.5] } else { [0.6, 0.4, 0.5] };
    let (plan, _) = searched(&host(), waits, |_| ());
    assert!(!plan.steps.is_empty());
    let (plan, _) = searched(&host(), waits, |told| told.null_error = -0.3);
    assert!(why_not(&plan).ends_with("does not show why VM \"web\" waits"), "{}", why_not(&plan));
    let waits: Waits = |steps| if raises(steps, "db") { [0.1, 0.4, 0.5] } else { [0.6, 0.4, 0.5] };
    let (plan, _) = searched(&host(), waits, |told| told.null_error = -0.3);
    assert!(raises(&plan.steps, "db"), "the others are understood");
}

#[test]
fn a_slow_forecast_is_not_searched() {
    let waits: Waits = |steps| if raises(steps, "db") { [0.1, 0.4, 0.5] } else { [0.6, 0.4, 0.5] };
    let (plan, told) = searched(&host(), waits, |told| told.is_quick = false);
    let why = "this way to forecast is too slow to compare many candidates";
    assert_eq!((why_not(&plan), told.asked.get().1), (why, 1));
}

#[test]
fn no_weight_falls_below_a_quarter() {
    let waits: Waits = |steps| if lowers(steps, "burn") { [0.1, 0.4, 0.5] } else { [0.6, 0.4, 0.5] };
    let (plan, _) = searched(&host(), waits, |_| ());
    let Change::Weight(w) = &plan.steps[0].change else { panic!("{:?}", plan.steps) };
    assert!(lowers(&plan.steps, "burn") && w.to.relative() >= 0.25 * w.from.relative(), "{w:?}");
}

#[test]
fn where_nobody_waits_too_long_nothing_is_searched() {
    let mut h = Host::new(4, 1, 0.1);
    h.vm("db", 2, 0.1, 0.001, 0.0).vm("web", 1, 0.2, 0.001, 0.0).vm("burn", 1, 0.5, 0.001, 0.0);
    let (plan, _) = searched(&h, |_| [0.0; 3], |_| ());
    assert_eq!(why_not(&plan), "no VM waits too long");
}
