//! Several plans are applied: does `vsteer rollback` take back what can be, in an order that leaves what was there first?

#[path = "common/program.rs"]
mod program;

mod common;

use std::path::Path;
use std::process::Output;
use vsteer_act::{Entry, Journal};
use vsteer_core::setting::argv::Argv;
use vsteer_core::setting::knob::How;
use vsteer_host::actuate::Former;

/// Leaves what an apply of one step leaves: its journal. The plan's id.
fn applied(folder: &Path, name: &str, how: How, (from, to): (&str, &str), unix_ns: u64) -> String {
    let plan = common::plan(name, name, how, None, (from, to));
    let change = plan.steps[0].change.clone();
    let mut journal = Journal::begin(&folder.join("state/journal"), &plan, None, unix_ns).unwrap();
    let former = Former { live: Some(change), ..Former::default() };
    for entry in
        [Entry::Intent { step: 0, former: Box::new(former) }, Entry::Done { step: 0 }, Entry::Applied]
    {
        journal.write(entry).unwrap();
    }
    plan.id
}

fn rollback(folder: &Path, words: &[&str]) -> Output {
    let mut c = program::vsteer();
    c.arg("rollback").args(words).env("VSTEER_STATE", folder.join("state")).output().unwrap()
}

fn file(folder: &Path) -> How {
    How::File { path: folder.join("knob").to_string_lossy().into_owned() }
}

#[test]
fn one_that_cannot_be_taken_back_keeps_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let knob = dir.path().join("knob");
    std::fs::write(&knob, "b").unwrap();
    let stuck = How::Commands { set: Argv::parse("false").unwrap(), read: Argv::parse("echo b").unwrap() };
    let older = applied(dir.path(), "free", file(dir.path()), ("a", "b"), 1);
    applied(dir.path(), "stuck", stuck, ("a", "b"), 2);
    let done = rollback(dir.path(), &[]);
    assert!(!done.status.success(), "{done:?}");
    assert_eq!(std::fs::read_to_string(&knob).unwrap(), "a", "{done:?}");
    assert!(String::from_utf8_lossy(&done.stdout).contains(&older), "{done:?}");
}

#[test]
fn an_older_plan_waits_for_a_newer_one_of_the_same_setting() {
    let dir = tempfile::tempdir().unwrap();
    let knob = dir.path().join("knob");
    let now = || std::fs::read_to_string(&knob).unwrap();
    std::fs::write(&knob, "b").unwrap();
    let older = applied(dir.path(), "k", file(dir.path()), ("found", "a"), 1);
    let newer = applied(dir.path(), "k", file(dir.path()), ("a", "b"), 2);
    let refused = rollback(dir.path(), &[&older]);
    let words = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(7), "{refused:?}");
    assert!(words.contains(&format!("vsteer rollback {newer}")), "{words}");
    assert_eq!(now(), "b");
    assert!(rollback(dir.path(), &[&newer, "--yes"]).status.success());
    assert_eq!(now(), "a");
    assert!(rollback(dir.path(), &[&older]).status.success());
    assert_eq!(now(), "found");
}

#[test]
fn a_list_names_what_a_rollback_would_undo_and_undoes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let none = rollback(dir.path(), &["--list"]);
    assert_eq!(none.status.code(), Some(3), "{none:?}");
    std::fs::write(dir.path().join("knob"), "b").unwrap();
    let older = applied(dir.path(), "older", file(dir.path()), ("a", "b"), 1_790_000_000_000_000_000);
    let newer = applied(dir.path(), "newer", file(dir.path()), ("a", "b"), 2);
    let listed = rollback(dir.path(), &["--list"]);
    assert!(listed.status.success(), "{listed:?}");
    let words = String::from_utf8_lossy(&listed.stdout).into_owned();
    let at = |id: &str| words.find(&format!("plan {id}: ")).unwrap_or_else(|| panic!("{id}: {words}"));
    assert!(at(&newer) < at(&older), "{words}");
    assert!(words.contains("applied, begun at 2026-"), "{words}");
    let json = rollback(dir.path(), &["--list", "--json"]);
    let all: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&all[0]["plan"], &all[1]["plan"]), (&newer.as_str().into(), &older.as_str().into()));
    assert_eq!((&all[0]["state"], all.as_array().unwrap().len()), (&"applied".into(), 2));
    // It undid nothing.
    assert_eq!(std::fs::read_to_string(dir.path().join("knob")).unwrap(), "b");
    // A journal that cannot be read may be of an applied plan: that is not "no plan is applied".
    assert!(rollback(dir.path(), &[]).status.success());
    assert_eq!(rollback(dir.path(), &["--list"]).status.code(), Some(3));
    let garbled = dir.path().join("state/journal/0123.journal");
    std::fs::write(&garbled, "garbled\n").unwrap();
    let refused = rollback(dir.path(), &["--list"]);
    assert_eq!(refused.status.code(), Some(6), "{refused:?}");
}

/// Sets the file `knob` by three plans, each begun at its own time, then takes all back.
fn three_plans_begun_at(times: [u64; 3]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let knob = dir.path().join("knob");
    for ((from, to), unix_ns) in [("1", "2"), ("2", "3"), ("3", "4")].into_iter().zip(times) {
        std::fs::write(&knob, to).unwrap();
        applied(dir.path(), "k", file(dir.path()), (from, to), unix_ns);
    }
    let done = rollback(dir.path(), &[]);
    assert!(done.status.success(), "{done:?}");
    std::fs::read_to_string(&knob).unwrap()
}

#[test]
fn clocks_that_jump_do_not_change_the_order_of_plans() {
    const DAY: u64 = 86_400_000_000_000;
    let now = 10 * DAY;
    // A day back, a day on, a leap second told twice, between any two of them.
    for jumps in [[0, -1], [-1, 0], [-1, -1], [1, -1], [-1, 1], [1, 0], [0, 1], [0, 0]] {
        for step in [DAY, 1_000_000_000] {
            let later = |at: u64, jump: i64| at.saturating_add_signed(jump * step as i64 + 1);
            let second = later(now, jumps[0]);
            let times = [now, second, later(second, jumps[1])];
            assert_eq!(three_plans_begun_at(times), "1", "{jumps:?} {step}");
        }
    }
    assert_eq!(three_plans_begun_at([now; 3]), "1");
}

#[test]
fn what_somebody_changed_since_is_not_overwritten_without_force() {
    let dir = tempfile::tempdir().unwrap();
    let knob = dir.path().join("knob");
    let id = applied(dir.path(), "k", file(dir.path()), ("a", "b"), 1);
    std::fs::write(&knob, "c").unwrap();
    let refused = rollback(dir.path(), &[&id]);
    let words = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(7), "{words}");
    for value in ["\"a\"", "\"b\"", "\"c\"", "--force"] {
        assert!(words.contains(value), "{value}: {words}");
    }
    assert_eq!(std::fs::read_to_string(&knob).unwrap(), "c");
    assert!(rollback(dir.path(), &[&id, "--force"]).status.success());
    assert_eq!(std::fs::read_to_string(&knob).unwrap(), "a");
}

#[test]
fn a_journal_that_others_could_have_written_is_not_obeyed() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let knob = dir.path().join("knob");
    std::fs::write(&knob, "b").unwrap();
    let id = applied(dir.path(), "k", file(dir.path()), ("a", "b"), 1);
    let folder = dir.path().join("state/journal");
    let journal = folder.join(format!("{id}.journal"));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&journal)), (0o700, 0o600));
    let set = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    set(&journal, 0o666);
    let refused = rollback(dir.path(), &[&id]);
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(4) && words.contains("others may write it"), "{words}");
    assert_eq!(std::fs::read_to_string(&knob).unwrap(), "b");
    set(&journal, 0o600);
    assert!(rollback(dir.path(), &[&id]).status.success());
    assert_eq!(std::fs::read_to_string(&knob).unwrap(), "a");
}
