//! Something goes wrong at each step in each way: is all of it taken back, and said?

use crate::world::{
    self, Mishap, Settings, Vm, World, applied, apply, apply_with, begin, folder, journal_path,
};
use std::cell::Cell;
use vsteer_act::{By, Journal, State, preview, rollback};
use vsteer_core::FaultKind;
use vsteer_core::plan::Plan;
use vsteer_core::setting::Scope;

const STEPS: usize = 4;

#[test]
fn without_a_mishap_all_is_made_and_all_is_taken_back() {
    let dir = folder();
    let mut w = World::at(dir.path());
    let receipt = apply(&mut w, dir.path()).unwrap();
    assert_eq!((receipt.state.as_str(), receipt.steps.len()), ("applied", STEPS));
    assert_eq!(w.settings(), applied());
    let mut journal = Journal::open(&receipt.journal).unwrap();
    assert_eq!(rollback(&mut journal, &mut w, By::Rollback).unwrap().steps.len(), STEPS);
    assert_eq!(w.settings(), begin());
    assert_eq!(
        rollback(&mut journal, &mut w, By::Rollback).unwrap().steps.len(),
        0,
        "a second time there is nothing left"
    );
}

#[test]
fn a_dry_run_changes_nothing_and_tells_what_it_finds() {
    let dir = folder();
    let mut w = World::at(dir.path());
    let steps = preview(&world::plan(), &world::config(), &mut w).unwrap();
    // The third step's precondition is made by the first.
    assert_eq!(steps.iter().map(|s| s.ready).collect::<Vec<_>>(), [true, true, false, true]);
    assert_eq!(steps[2].found.as_deref(), Some("weight 100"));
    assert!(steps.iter().all(|s| s.refused.is_none()), "apply can make all of them");
    assert_eq!(w.settings(), begin());
    assert!(!journal_path(dir.path()).exists());
}

#[test]
fn a_dry_run_tells_what_would_refuse_a_step() {
    let dir = folder();
    let mut w = World::at(dir.path());
    let mut other = w.settings();
    other.get_mut("b").unwrap().vcpu = "2".parse().unwrap();
    w.save(&other);
    let steps = preview(&world::plan(), &world::config(), &mut w).unwrap();
    let refused: Vec<_> = steps.iter().map(|s| s.refused).collect();
    assert_eq!(refused, [None, Some(FaultKind::Changed), None, None], "no step before it is of VM b");
    other.remove("b");
    w.save(&other);
    let steps = preview(&world::plan(), &world::config(), &mut w).unwrap();
    assert_eq!(steps[1].refused, Some(FaultKind::NothingThere));
}

#[test]
fn every_mishap_at_every_step_leaves_the_former_world() {
    for n in 0..STEPS {
        for mishap in [
            Mishap::Refused(n),
            Mishap::Half(n),
            Mishap::MadeButFailed(n),
            Mishap::Ignored(n),
            Mishap::Meddled(n),
        ] {
            let dir = folder();
            let mut w = World::at(dir.path());
            w.mishap = Some(mishap);
            let fault = apply(&mut w, dir.path()).expect_err(&format!("{mishap:?} goes unnoticed"));
            assert_eq!(fault.kind, FaultKind::NotApplied, "{mishap:?}: {fault}");
            assert!(fault.what.contains("no change of it remains"), "{mishap:?}: {fault}");
            assert_eq!(w.settings(), begin(), "{mishap:?}");
            assert_eq!(
                Journal::open(&journal_path(dir.path())).unwrap().state(),
                State::RolledBack,
                "{mishap:?}"
            );
            // And the same plan can be applied when the trouble is over.
            w.mishap = None;
            apply(&mut w, dir.path()).unwrap();
            assert_eq!(w.settings(), applied(), "{mishap:?}");
        }
    }
}

#[test]
fn a_vm_that_vanishes_takes_its_settings_along_and_the_rest_is_taken_back() {
    for n in 0..STEPS {
        let dir = folder();
        let mut w = World::at(dir.path());
        w.mishap = Some(Mishap::Vanishes(n));
        apply(&mut w, dir.path()).unwrap_err();
        let gone = world::plan().steps[n].vm.0.clone();
        let expected: Settings = begin().into_iter().filter(|(name, _)| **name != *gone).collect();
        assert_eq!(w.settings(), expected, "VM {gone} vanishes before step {n}");
        assert_eq!(Journal::open(&journal_path(dir.path())).unwrap().state(), State::RolledBack);
    }
}

#[test]
fn who_cannot_be_asked_has_not_said_that_a_vm_is_gone() {
    for kind in [FaultKind::NothingThere, FaultKind::Changed, FaultKind::Failed] {
        let dir = folder();
        let mut w = World::at(dir.path());
        let receipt = apply(&mut w, dir.path()).unwrap();
        let mut journal = Journal::open(&receipt.journal).unwrap();
        w.mishap = Some(Mishap::Unreachable(kind));
        assert_eq!(rollback(&mut journal, &mut w, By::Rollback).unwrap_err().kind, kind);
        assert_eq!((w.settings(), journal.state()), (applied(), State::Applied), "{kind:?}");
        assert_eq!(journal.to_undo().len(), STEPS, "{kind:?}: all of it is still to be taken back");
        w.mishap = None;
        rollback(&mut journal, &mut w, By::Rollback).unwrap();
        assert_eq!((w.settings(), journal.state()), (begin(), State::RolledBack), "{kind:?}");
    }
}

#[test]
fn the_definition_of_a_vm_that_is_off_or_runs_anew_is_taken_back_and_its_new_run_left_alone() {
    for run in [None, Some(2)] {
        let dir = folder();
        let mut w = World::at(dir.path());
        let plan = Plan { scope: Scope::Both, ..world::plan() };
        let setting = vsteer_act::Setting { folder: dir.path(), connect: None, unix_ns: 7 };
        let receipt =
            vsteer_act::apply(&plan, &world::config(), &mut w, setting, |_| Ok(()), || false).unwrap();
        let mut then = w.settings();
        let a = then.get_mut("a").unwrap();
        assert_eq!(a.defined, 50);
        (a.run, a.weight) = (run, 70);
        w.save(&then);
        let mut journal = Journal::open(&receipt.journal).unwrap();
        let steps = rollback(&mut journal, &mut w, By::Rollback).unwrap().steps;
        let a = then.remove("a").unwrap();
        let mut expected = begin();
        expected.insert("a".to_owned(), Vm { defined: 100, ..a });
        assert_eq!(w.settings(), expected, "run {run:?}");
        let said = |words: &str| steps.iter().filter(|line| line.contains(words)).count();
        // Two weights, which the definition has, and the emulator's place, which it has not in this world.
        assert_eq!((said("undone in the definition"), said("nothing to undo")), (2, 1), "{steps:?}");
    }
}

#[test]
fn an_interrupt_between_any_two_steps_takes_back() {
    for after in 0..STEPS {
        let dir = folder();
        let mut w = World::at(dir.path());
        let asked = Cell::new(0);
        let interrupted = || asked.replace(asked.get() + 1) == after;
        let fault = apply_with(&mut w, dir.path(), |_| Ok(()), interrupted).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Interrupted);
        assert_eq!(w.settings(), begin());
    }
}

#[test]
fn what_cannot_be_taken_back_keeps_neither_the_other_vm_nor_the_order() {
    for n in 0..STEPS {
        let dir = folder();
        let mut w = World::at(dir.path());
        let receipt = apply(&mut w, dir.path()).unwrap();
        w.mishap = Some(Mishap::Unrestorable(n));
        let fault =
            rollback(&mut Journal::open(&receipt.journal).unwrap(), &mut w, By::Rollback).unwrap_err();
        assert!(fault.what.contains("does not answer"), "{fault}");
        // Newest first: a's emulator, a's second weight, b's vCPU, a's first weight.
        let done: Vec<&str> = w.restored.iter().map(|s| &s[..1]).collect();
        assert_eq!(done, [vec!["b"], vec!["a", "b"], vec!["a", "a", "a"], vec!["a", "a", "b"]][n], "n = {n}");
        w.mishap = None;
        rollback(&mut Journal::open(&receipt.journal).unwrap(), &mut w, By::Rollback).unwrap();
        assert_eq!(w.settings(), begin(), "restoring {n} was refused once");
    }
}

#[test]
fn another_host_or_state_is_refused_before_anything_is_written() {
    let dir = folder();
    let mut w = World::at(dir.path());
    let mut other = world::config();
    other.vms[0].pid = 2;
    let setting = vsteer_act::Setting { folder: &dir.path().join("j"), connect: None, unix_ns: 0 };
    let fault = vsteer_act::apply(&world::plan(), &other, &mut w, setting, |_| panic!("not armed"), || false)
        .unwrap_err();
    assert_eq!(fault.kind, FaultKind::Changed);
    assert!(fault.to_string().contains("it was process 1, and is process 2"), "{fault}");
    assert!(!dir.path().join("j").exists());
}

#[test]
fn what_cannot_be_armed_is_not_begun() {
    let dir = folder();
    let mut w = World::at(dir.path());
    let refuse = |_: &mut Journal| Err(vsteer_core::Fault::new(FaultKind::Failed, "no watchdog"));
    let fault = apply_with(&mut w, dir.path(), refuse, || false).unwrap_err();
    assert!(fault.to_string().contains("no watchdog"));
    assert_eq!((w.settings(), w.restored.len()), (begin(), 0));
}
