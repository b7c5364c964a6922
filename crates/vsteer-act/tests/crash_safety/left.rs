//! Does a process that steers first undo what one before it has left, when that ended together with its watchdog?

use crate::world::{World, applied, apply, begin, config, folder, journal_path, plan};
use vsteer_act::{By, Entry, Journal, Setting, State, Steering};
use vsteer_core::nouns::CpuWeight;
use vsteer_core::plan::Plan;
use vsteer_core::setting::{Change, Scope, Step, Weight};
use vsteer_host::actuate::Actuate;

/// Makes the changes of this plan as steering does, and ends without its watchdog.
fn leave(world: &mut World, plan: &Plan) {
    let mut journal = Journal::begin(world.folder(), plan, None, 7).unwrap();
    for (i, step) in plan.steps.iter().enumerate() {
        world.current(step).unwrap();
        let former = world.former(step, Scope::Live).unwrap();
        journal.write(Entry::Intent { step: i, former: Box::new(former) }).unwrap();
        world.act(step, Scope::Live).unwrap();
    }
}

/// Begins to steer as `title`. No watchdog can be started here, so it stops before its first change.
fn steer(world: &mut World, title: &str, to: u64) {
    let at = world.folder().to_owned();
    let mut steering = Steering::new(By::Steer, title, &["no-test-has-this-name"]);
    let weight = Weight { from: CpuWeight::Weight(200), to: CpuWeight::Weight(to) };
    let step = Step { change: Change::Weight(weight), ..plan().steps[1].clone() };
    let setting = Setting { folder: &at, connect: None, unix_ns: 9 };
    let fault = steering.set(&config(), world, setting, &[step], "test").unwrap_err();
    assert!(fault.to_string().contains("watchdog"), "{fault}");
}

#[test]
fn what_the_former_one_left_is_undone_first() {
    let dir = folder();
    let mut w = World::at(dir.path());
    leave(&mut w, &plan());
    assert_eq!(w.settings(), applied());
    steer(&mut w, &plan().title, 400);
    assert_eq!(w.settings(), begin());
    assert_eq!(Journal::open(&journal_path(dir.path())).unwrap().state(), State::RolledBack);
}

#[test]
fn what_others_applied_or_still_hold_stays() {
    let dir = folder();
    let mut w = World::at(dir.path());
    leave(&mut w, &plan());
    steer(&mut w, "another title", 500);
    let held = Journal::open(&journal_path(dir.path())).unwrap();
    steer(&mut w, &plan().title, 400);
    assert_eq!(held.state(), State::Unfinished);
    assert_eq!(w.settings(), applied());
}

#[test]
fn a_plan_that_a_person_applied_stays() {
    let dir = folder();
    let mut w = World::at(dir.path());
    apply(&mut w, dir.path()).unwrap();
    steer(&mut w, &plan().title, 400);
    assert_eq!(w.settings(), applied());
}

#[test]
fn what_a_newer_plan_has_set_since_stays() {
    let dir = folder();
    let mut w = World::at(dir.path());
    leave(&mut w, &plan());
    let newer =
        Plan::new(config(), "newer".to_owned(), vec![plan().steps[0].clone()], Scope::Live, plan().forecast);
    leave(&mut w, &newer);
    let now = w.settings();
    steer(&mut w, &plan().title, 400);
    assert_eq!(w.settings(), now);
}
