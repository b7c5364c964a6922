//! Does a process that steers first undo what one before it has left, when that ended together with its watchdog?

use crate::world::{World, applied, apply, begin, config, folder, journal_path, plan};
use vsteer_act::{By, Journal, Setting, State, Steering};
use vsteer_core::nouns::CpuWeight;
use vsteer_core::setting::{Change, Step, Weight};

/// Begins to steer as `title`. There is no watchdog to be had here, so it stops before its first change.
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
    apply(&mut w, dir.path()).unwrap();
    assert_eq!(w.settings(), applied());
    steer(&mut w, &plan().title, 400);
    assert_eq!(w.settings(), begin());
    assert_eq!(Journal::open(&journal_path(dir.path())).unwrap().state(), State::RolledBack);
}

#[test]
fn what_others_applied_or_still_hold_stays() {
    let dir = folder();
    let mut w = World::at(dir.path());
    apply(&mut w, dir.path()).unwrap();
    steer(&mut w, "another title", 500);
    let held = Journal::open(&journal_path(dir.path())).unwrap();
    steer(&mut w, &plan().title, 400);
    assert_eq!(held.state(), State::Applied);
    assert_eq!(w.settings(), applied());
}
