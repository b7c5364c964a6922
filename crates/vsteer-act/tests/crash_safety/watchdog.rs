//! Does `--try` undo by itself: after its time, when apply is late, and when apply hangs?

use crate::world::{Mishap, World, applied, apply_with, begin, folder, journal_path, plan};
use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use vsteer_act::{Applying, By, Entry, Journal, State, confirm, rollback, watch};
use vsteer_core::plan::Plan;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::actuate::Actuate;

fn in_ms(ms: u64) -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64 + ms * 1_000_000
}

fn armed(deadline_unix_ns: u64) -> impl FnOnce(&mut Journal) -> Result<(), Fault> {
    move |j| j.write(Entry::Armed { pid: 1, deadline_unix_ns })
}

/// No process that applies.
fn nobody() -> Applying {
    Applying::new(u32::MAX)
}

fn watch_in(folder: &std::path::Path, deadline_unix_ns: u64) -> Result<(), Fault> {
    let open = |_: Option<&Plan>, _: Option<&str>| Ok(Box::new(World::at(folder)) as Box<dyn Actuate>);
    watch(&journal_path(folder), deadline_unix_ns, &nobody(), || false, open)
}

/// A plan that is in force for a second, its world and its time.
fn tried() -> (TempDir, World, u64) {
    let dir = folder();
    let mut w = World::at(dir.path());
    let deadline = in_ms(1_000);
    apply_with(&mut w, dir.path(), armed(deadline), || false).unwrap();
    (dir, w, deadline)
}

#[test]
fn unconfirmed_is_taken_back_and_cannot_be_kept_any_more() {
    let (dir, w, deadline) = tried();
    assert_eq!(w.settings(), applied());
    watch_in(dir.path(), deadline).unwrap();
    assert_eq!(w.settings(), begin());
    let mut journal = Journal::open(&journal_path(dir.path())).unwrap();
    assert_eq!(confirm(&mut journal).unwrap_err().kind, FaultKind::Changed);
}

#[test]
fn asked_to_end_it_takes_back_at_once() {
    let dir = folder();
    let mut w = World::at(dir.path());
    let deadline = in_ms(3_600_000);
    apply_with(&mut w, dir.path(), armed(deadline), || false).unwrap();
    let begun = Instant::now();
    let open = |_: Option<&Plan>, _: Option<&str>| Ok(Box::new(World::at(dir.path())) as Box<dyn Actuate>);
    watch(
        &journal_path(dir.path()),
        deadline,
        &nobody(),
        || begun.elapsed() > Duration::from_millis(700),
        open,
    )
    .unwrap();
    assert_eq!(w.settings(), begin());
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn confirmed_stays() {
    let (dir, w, deadline) = tried();
    confirm(&mut Journal::open(&journal_path(dir.path())).unwrap()).unwrap();
    watch_in(dir.path(), deadline).unwrap();
    assert_eq!(w.settings(), applied());
}

#[test]
fn a_later_application_of_the_same_plan_is_not_undone() {
    // Confirmed, or applied again with a time of its own.
    for again in [None, Some(in_ms(60_000))] {
        let (dir, mut w, deadline) = tried();
        rollback(&mut Journal::open(&journal_path(dir.path())).unwrap(), &mut w, By::Rollback).unwrap();
        assert_eq!(w.settings(), begin());
        let arm = |j: &mut Journal| again.map_or(Ok(()), |at| armed(at)(j));
        apply_with(&mut w, dir.path(), arm, || false).unwrap();
        watch_in(dir.path(), deadline).unwrap();
        assert_eq!(w.settings(), applied(), "armed again: {again:?}");
        assert_eq!(Journal::open(&journal_path(dir.path())).unwrap().state(), State::Applied);
    }
}

#[test]
fn what_cannot_be_taken_back_at_once_is_tried_again() {
    let (dir, w, deadline) = tried();
    let tries = Cell::new(0);
    // At first the VM's manager is gone, then it does not answer at once.
    let open = |_: Option<&Plan>, _: Option<&str>| {
        let mut w = World::at(dir.path());
        match tries.replace(tries.get() + 1) {
            // The look before it is ready.
            0 => {}
            1 => return Err(Fault::new(FaultKind::NothingThere, "no manager")),
            2 => w.mishap = Some(Mishap::Unrestorable(0)),
            _ => {}
        }
        Ok(Box::new(w) as Box<dyn Actuate>)
    };
    watch(&journal_path(dir.path()), deadline, &nobody(), || false, open).unwrap();
    assert_eq!((w.settings(), tries.get()), (begin(), 4));
    assert_eq!(Journal::open(&journal_path(dir.path())).unwrap().state(), State::RolledBack);
}

#[test]
fn who_cannot_undo_does_not_say_that_it_is_ready() {
    let (dir, w, deadline) = tried();
    let open =
        |_: Option<&Plan>, _: Option<&str>| Err(Fault::new(FaultKind::NoPrivilege, "not in group libvirt"));
    let refused = watch(&journal_path(dir.path()), deadline, &nobody(), || false, open).unwrap_err();
    assert_eq!(refused.kind, FaultKind::NoPrivilege);
    // Nobody waited, and nothing was undone.
    assert_eq!(w.settings(), applied());
}

#[test]
fn a_journal_that_is_gone_ends_the_watchdog() {
    let dir = folder();
    assert_eq!(watch_in(dir.path(), in_ms(0)).unwrap_err().kind, FaultKind::NothingThere);
}

#[test]
fn an_apply_that_is_late_takes_back_itself_and_says_so() {
    let dir = folder();
    let mut w = World::at(dir.path());
    // The time is over after the second step.
    let deadline = in_ms(300);
    let slow = || {
        std::thread::sleep(Duration::from_millis(110));
        false
    };
    let fault = apply_with(&mut w, dir.path(), armed(deadline), slow).unwrap_err();
    assert_eq!(fault.kind, FaultKind::NotApplied);
    assert!(fault.to_string().contains("--try ended"), "{fault}");
    assert_eq!(w.settings(), begin());
    watch_in(dir.path(), deadline).unwrap();
    assert_eq!(Journal::open(&journal_path(dir.path())).unwrap().state(), State::RolledBack);
}

#[test]
fn what_is_not_applied_to_its_end_cannot_be_kept() {
    let dir = folder();
    let mut journal = Journal::begin(dir.path(), &plan(), None, 1).unwrap();
    assert_eq!(confirm(&mut journal).unwrap_err().kind, FaultKind::Changed);
}

#[test]
fn somebody_else_who_holds_the_journal_is_waited_for_and_not_killed() {
    let (dir, w, deadline) = tried();
    let held = Journal::open(&journal_path(dir.path())).unwrap();
    let begun = Instant::now();
    std::thread::scope(|s| {
        let watchdog = s.spawn(|| watch_in(dir.path(), deadline));
        std::thread::sleep(Duration::from_millis(1_400));
        drop(held);
        watchdog.join().unwrap().unwrap();
    });
    assert!(begun.elapsed() >= Duration::from_millis(1_400));
    assert_eq!(w.settings(), begin());
}
