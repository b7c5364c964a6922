//! Does a journal tell what to take back, however it breaks off, and does it keep two at once apart?

use crate::world::{self, World, applied, apply, begin, folder, journal_path, plan};
use std::fs;
use vsteer_act::{By, Entry, Journal, State, rollback};
use vsteer_core::FaultKind;

/// The newest step that whole lines announce, if it is not said to be done: it may have been made or not.
fn in_doubt(entries: &[Entry]) -> Option<usize> {
    match entries.last() {
        Some(Entry::Intent { step, .. }) => Some(*step),
        _ => None,
    }
}

#[test]
fn broken_off_at_every_byte_the_former_world_comes_back() {
    let dir = folder();
    let mut w = World::at(dir.path());
    let receipt = apply(&mut w, dir.path()).unwrap();
    let whole = fs::read(&receipt.journal).unwrap();
    let (mut points, mut empty) = (0, 0);
    for cut in 0..=whole.len() {
        fs::write(&receipt.journal, &whole[..cut]).unwrap();
        let journal = Journal::open(&receipt.journal).unwrap();
        let entries = journal.entries().to_vec();
        drop(journal);
        // The world as it can be at this point: every announced step made, the last one made, half made or not made.
        let announced = entries.iter().filter(|e| matches!(e, Entry::Intent { .. })).count();
        let variants: &[(usize, bool)] = match in_doubt(&entries) {
            None => &[(0, false)],
            Some(_) => &[(0, false), (1, false), (0, true)],
        };
        for (less, half) in variants {
            w.save(&begin());
            replay(&w, announced - less, *half);
            let mut journal = Journal::open(&receipt.journal).unwrap();
            rollback(&mut journal, &mut w, By::Rollback).unwrap();
            assert_eq!(
                w.settings(),
                begin(),
                "cut at byte {cut} of {}, less {less}, half {half}",
                whole.len()
            );
            assert_eq!(journal.state(), State::RolledBack);
            drop(journal);
            fs::write(&receipt.journal, &whole[..cut]).unwrap();
        }
        points += 1;
        empty += usize::from(announced == 0);
    }
    assert!(points > whole.len() && empty < points, "{points} points, {empty} of them before the first step");
}

#[test]
fn opening_cuts_off_half_a_line_so_that_the_next_entry_is_a_line_of_its_own() {
    let dir = folder();
    let mut w = World::at(dir.path());
    let path = apply(&mut w, dir.path()).unwrap().journal;
    let whole = fs::read(&path).unwrap();
    let entries = Journal::open(&path).unwrap().entries().to_vec();
    // The last line without its end: half of it was written when the machine stopped.
    fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    let mut journal = Journal::open(&path).unwrap();
    assert_eq!(journal.entries(), &entries[..entries.len() - 1]);
    journal.write(Entry::Confirmed).unwrap();
    drop(journal);
    let expected = [&entries[..entries.len() - 1], &[Entry::Confirmed]].concat();
    assert_eq!(Journal::open(&path).unwrap().entries(), expected);
}

/// Makes the first `n` steps in the world without a journal; with `half`, the last of them only in part.
fn replay(w: &World, n: usize, half: bool) {
    use vsteer_host::actuate::Actuate;
    let mut fresh = World::at(w.folder());
    for (i, step) in plan().steps.iter().take(n).enumerate() {
        fresh.mishap = (half && i + 1 == n).then_some(world::Mishap::Half(i));
        let _ = fresh.act(step, plan().scope);
    }
}

#[test]
fn a_rollback_broken_off_at_every_byte_is_finished() {
    let dir = folder();
    let mut w = World::at(dir.path());
    let receipt = apply(&mut w, dir.path()).unwrap();
    let before = fs::read(&receipt.journal).unwrap().len();
    rollback(&mut Journal::open(&receipt.journal).unwrap(), &mut w, By::Rollback).unwrap();
    let whole = fs::read(&receipt.journal).unwrap();
    for cut in before..=whole.len() {
        fs::write(&receipt.journal, &whole[..cut]).unwrap();
        let undone = Journal::open(&receipt.journal).unwrap();
        let n = undone.entries().iter().filter(|e| matches!(e, Entry::Undone { .. })).count();
        drop(undone);
        // Restored but not yet noted, or noted: n or n + 1 of them.
        for restored in [n, (n + 1).min(4)] {
            w.save(&applied());
            w.mishap = None;
            take_back_newest(&mut w, &whole, restored);
            rollback(&mut Journal::open(&receipt.journal).unwrap(), &mut w, By::Rollback).unwrap();
            assert_eq!(w.settings(), begin(), "cut at {cut}, {restored} restored");
            fs::write(&receipt.journal, &whole[..cut]).unwrap();
        }
    }
}

#[test]
fn what_is_set_again_after_it_was_taken_back_is_taken_back_again() {
    let dir = folder();
    let mut w = World::at(dir.path());
    let receipt = apply(&mut w, dir.path()).unwrap();
    let steps = |journal: &Journal| journal.to_undo().iter().map(|(step, _)| *step).collect::<Vec<_>>();
    let mut journal = Journal::open(&receipt.journal).unwrap();
    journal.write(Entry::Undone { step: 3, note: None }).unwrap();
    assert_eq!(steps(&journal), [2, 1, 0]);
    journal.write(Entry::Again { what: "all, once more".into() }).unwrap();
    assert_eq!(steps(&journal), [3, 2, 1, 0]);
    drop(journal);
    // As after a crash: from the file.
    let mut journal = Journal::open(&receipt.journal).unwrap();
    rollback(&mut journal, &mut w, By::Rollback).unwrap();
    assert_eq!((w.settings(), steps(&journal)), (begin(), Vec::new()));
}

#[test]
fn a_plan_knows_which_later_ones_set_the_same() {
    let dir = folder();
    let later = vsteer_core::plan::Plan { id: "later".to_owned(), ..plan() };
    let mut first = Journal::begin(dir.path(), &plan(), None, 1).unwrap();
    let mut second = Journal::begin(dir.path(), &later, None, 2).unwrap();
    let intent = |step| Entry::Intent { step, former: Default::default() };
    let none: [&str; 0] = [];
    // Of both, VM a's weight is steps 0 and 2, VM b's place step 1.
    first.write(intent(0)).unwrap();
    second.write(intent(1)).unwrap();
    assert_eq!(first.set_later_by().unwrap(), none);
    second.write(intent(2)).unwrap();
    assert_eq!(first.set_later_by().unwrap(), ["later"]);
    assert_eq!(second.set_later_by().unwrap(), none, "the first is older");
    second.write(Entry::Undone { step: 2, note: None }).unwrap();
    assert_eq!(first.set_later_by().unwrap(), none, "a plan that was rolled back holds nothing");
    second.write(intent(2)).unwrap();
    assert_eq!(first.set_later_by().unwrap(), ["later"]);
    second.write(Entry::RolledBack).unwrap();
    assert_eq!(first.set_later_by().unwrap(), none);
}

fn take_back_newest(w: &mut World, journal: &[u8], n: usize) {
    use vsteer_host::actuate::Actuate;
    let lines = journal.split(|b| *b == b'\n').filter_map(|l| serde_json::from_slice::<Entry>(l).ok());
    let mut formers: Vec<_> = lines
        .filter_map(|e| match e {
            Entry::Intent { step, former } => Some((step, former)),
            _ => None,
        })
        .collect();
    formers.reverse();
    for (step, former) in formers.iter().take(n) {
        w.restore(&plan().steps[*step], former).unwrap();
    }
}

#[test]
fn the_same_plan_twice_is_refused() {
    let dir = folder();
    let mut w = World::at(dir.path());
    apply(&mut w, dir.path()).unwrap();
    let fault = apply(&mut w, dir.path()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Changed);
    assert!(fault.to_string().contains("is already applied"), "{fault}");
    assert_eq!(w.settings(), applied(), "the refusal changes nothing");
}

#[test]
fn a_plan_that_is_being_applied_is_refused_at_once_and_listed_without_waiting() {
    let dir = folder();
    let held = Journal::begin(dir.path(), &plan(), None, 1).unwrap();
    assert_eq!(Journal::pending(dir.path()).unwrap(), [journal_path(dir.path())]);
    let fault = Journal::begin(dir.path(), &plan(), None, 2).unwrap_err();
    assert!(fault.to_string().contains("another process is applying"), "{fault}");
    assert!(Journal::try_open(held.path()).unwrap().is_none());
    drop(held);
    assert!(Journal::try_open(&journal_path(dir.path())).unwrap().is_some());
}

#[test]
fn of_many_that_begin_one_plan_at_once_one_does() {
    for _ in 0..20 {
        let dir = folder();
        // What a killed apply may leave: a file without a whole line, which each of them would set aside.
        fs::write(journal_path(dir.path()), "{\"beg").unwrap();
        let gate = std::sync::Barrier::new(4);
        let won: usize = std::thread::scope(|s| {
            let contender = || {
                gate.wait();
                let journal = Journal::begin(dir.path(), &plan(), None, 1);
                let won = usize::from(journal.is_ok());
                // Held until all have tried.
                gate.wait();
                won
            };
            (0..4)
                .map(|_| s.spawn(contender))
                .collect::<Vec<_>>()
                .into_iter()
                .map(|h| h.join().unwrap())
                .sum()
        });
        assert_eq!(won, 1);
        let entries = Journal::open(&journal_path(dir.path())).unwrap().entries().len();
        assert_eq!(entries, 1, "the winner's journal is the one of that name");
    }
}

#[test]
fn half_a_first_line_blocks_nothing() {
    let dir = folder();
    let mut w = World::at(dir.path());
    for left in ["", "{\"begin\":{\"plan\":{\"ver", "\0\0\0\0"] {
        fs::write(journal_path(dir.path()), left).unwrap();
        assert!(Journal::pending(dir.path()).unwrap().is_empty(), "{left:?} is listed");
        let receipt =
            rollback(&mut Journal::open(&journal_path(dir.path())).unwrap(), &mut w, By::Rollback).unwrap();
        assert_eq!((receipt.plan, receipt.steps.len()), (plan().id, 0));
        fs::write(journal_path(dir.path()), left).unwrap();
        apply(&mut w, dir.path()).unwrap();
        rollback(&mut Journal::open(&journal_path(dir.path())).unwrap(), &mut w, By::Rollback).unwrap();
        assert_eq!(w.settings(), begin());
    }
    // What was set aside is kept beside it.
    assert!(
        fs::read_dir(dir.path())
            .unwrap()
            .filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|x| x == "old"))
            .count()
            >= 3
    );
}

#[test]
fn a_garbled_journal_is_named_and_keeps_no_other_from_being_listed() {
    let dir = folder();
    let mut w = World::at(dir.path());
    let receipt = apply(&mut w, dir.path()).unwrap();
    let whole = fs::read_to_string(&receipt.journal).unwrap();
    let bad = dir.path().join("bad.journal");
    let begin_line = whole.lines().next().unwrap();
    let last_line = whole.lines().last().unwrap();
    let cases = [
        ("not json\n".to_owned(), "expected"),
        (whole.replacen("intent", "intend", 1), "intend"),
        (whole.replacen("\"step\":3", "\"step\":4", 1), "it names step 4, but its plan has 4 steps"),
        (whole.lines().skip(1).map(|l| format!("{l}\n")).collect(), "its begin entry is missing"),
        // An entry without a step's number, too.
        (format!("{last_line}\n"), "its begin entry is missing"),
        (format!("{begin_line}\n{begin_line}\n"), "it has two begin entries"),
    ];
    for (text, why) in cases {
        fs::write(&bad, &text).unwrap();
        let fault = Journal::open(&bad).unwrap_err();
        assert_eq!(fault.kind, FaultKind::BadInput, "{fault}");
        assert!(
            fault.what.contains("cannot read the journal") && fault.what.contains("bad.journal"),
            "{fault}"
        );
        assert!(fault.cause.as_ref().is_some_and(|cause| cause.contains(why)), "{fault}: {why}");
        assert_eq!(fs::read_to_string(&bad).unwrap(), text, "it is evidence and stays as it is");
        assert_eq!(Journal::pending(dir.path()).unwrap(), [receipt.journal.clone(), bad.clone()]);
    }
}

#[test]
fn a_plan_named_like_a_path_is_refused() {
    let dir = folder();
    for id in ["../x", "", "a/b", "a.b"] {
        let bad = vsteer_core::plan::Plan { id: id.to_owned(), ..plan() };
        assert_eq!(Journal::begin(dir.path(), &bad, None, 0).unwrap_err().kind, FaultKind::BadInput);
    }
}

#[test]
fn a_folder_that_is_not_there_holds_no_journal_and_one_that_cannot_be_read_is_a_fault() {
    let dir = folder();
    assert!(Journal::pending(&dir.path().join("none")).unwrap().is_empty());
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let fault = Journal::pending(&file).unwrap_err();
    assert!(fault.to_string().contains(&file.display().to_string()), "{fault}");
}
