//! Killed around every write of the journal, or with no room left at any byte of it: is it taken back?
//!
//! The test binary runs itself: the child applies or takes back, the parent looks at what it left.

use crate::world::{World, applied, apply, apply_with, begin, folder, journal_path, plan};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use vsteer_act::{Applying, By, Entry, Journal, State, rollback, watch};
use vsteer_core::plan::Plan;
use vsteer_host::actuate::Actuate;

const FOLDER: &str = "VSTEER_TEST_FOLDER";
const TASK: &str = "VSTEER_TEST_TASK";
/// Size that no file may exceed, bytes.
const ROOM: &str = "VSTEER_TEST_ROOM";
/// When the watchdog's time is over, ns since 1970.
const DEADLINE: &str = "VSTEER_TEST_DEADLINE";
/// Exit code of a child whose task failed as it should.
const REFUSED: i32 = 42;

/// What the child does.
#[test]
#[ignore = "helper: other tests run it as a process of its own"]
fn child() {
    let name = std::env::var_os(FOLDER).expect("the parent names a folder");
    let folder = Path::new(&name);
    let mut w = World::at(folder);
    if let Some(room) = std::env::var(ROOM).ok().and_then(|r| r.parse().ok()) {
        let limit = rustix::process::Rlimit { current: Some(room), maximum: Some(room) };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
    }
    let result = match std::env::var(TASK).as_deref() {
        Ok("hang") => hang(folder),
        Ok("watch") => {
            let open =
                |_: Option<&Plan>, _: Option<&str>| Ok(Box::new(World::at(folder)) as Box<dyn Actuate>);
            let deadline = std::env::var(DEADLINE).unwrap().parse().unwrap();
            let applying = rustix::process::getppid().unwrap().as_raw_nonzero().get().cast_unsigned();
            watch(&journal_path(folder), deadline, &Applying::new(applying), || false, open).unwrap();
            return;
        }
        Ok("apply") => apply(&mut w, folder),
        _ => rollback(&mut Journal::open(&journal_path(folder)).unwrap(), &mut w, By::Rollback),
    };
    if result.is_err() {
        std::process::exit(REFUSED);
    }
}

/// An apply that hangs in its second step, with a watchdog whose time is over meanwhile.
#[expect(clippy::zombie_processes, reason = "the process that would wait is killed")]
fn hang(folder: &Path) -> ! {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    // Time enough for the first step.
    let deadline_unix_ns = now.as_nanos() as u64 + 2_000_000_000;
    let arm = |j: &mut Journal| {
        let mut c = Command::new(std::env::current_exe().unwrap());
        c.args(["--ignored", "--exact", "kill::child"]).env(FOLDER, folder).env(TASK, "watch");
        let watchdog = c.env(DEADLINE, deadline_unix_ns.to_string()).spawn().unwrap();
        j.write(Entry::Armed { pid: watchdog.id(), deadline_unix_ns })
    };
    let asked = std::cell::Cell::new(0);
    let interrupted = || {
        if asked.replace(asked.get() + 1) == 1 {
            std::thread::sleep(std::time::Duration::from_secs(120));
        }
        false
    };
    let _ = apply_with(&mut World::at(folder), folder, arm, interrupted);
    unreachable!("it is killed");
}

#[test]
#[ignore = "takes 20 s, the time that a hung apply is given"]
fn an_apply_that_hangs_is_killed_and_taken_back_by_its_watchdog() {
    let dir = folder();
    let status = run(dir.path(), "hang", ("VSTEER_FAULT_KILL", String::new()));
    assert_eq!(status.signal(), Some(9), "{status}");
    let journal = Journal::open(&journal_path(dir.path())).unwrap();
    let w = World::at(dir.path());
    // The watchdog outlives what it killed by the time of one rollback.
    drop(journal);
    for _ in 0..50 {
        if Journal::open(&journal_path(dir.path())).unwrap().state() == State::RolledBack {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(w.settings(), begin());
    assert_eq!(
        Journal::open(&journal_path(dir.path())).unwrap().entries()[0],
        Entry::Begin { plan: Box::new(plan()), connect: None, unix_ns: 7, sequence: 1 }
    );
}

fn run(folder: &Path, task: &str, variable: (&str, String)) -> ExitStatus {
    // A shell that ignores SIGXFSZ, so that a file too large is an error and not a death.
    let script = "trap '' XFSZ; exec \"$0\" --ignored --exact kill::child --test-threads 1";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(std::env::current_exe().unwrap());
    command.env(FOLDER, folder).env(TASK, task).env(variable.0, variable.1);
    command.output().unwrap().status
}

#[test]
fn killed_around_every_write_of_apply() {
    let mut killed = 0;
    for n in 1.. {
        let mut any = false;
        for when in ["before", "after"] {
            let dir = folder();
            let status = run(dir.path(), "apply", ("VSTEER_FAULT_KILL", format!("{when}:{n}")));
            let mut w = World::at(dir.path());
            if status.signal() != Some(9) {
                assert!(status.success(), "{status}");
                assert_eq!(w.settings(), applied());
                continue;
            }
            (any, killed) = (true, killed + 1);
            rollback(&mut Journal::open(&journal_path(dir.path())).unwrap(), &mut w, By::Rollback).unwrap();
            assert_eq!(w.settings(), begin(), "killed {when} write {n}");
        }
        if !any {
            break;
        }
    }
    // begin, four times intent and done, applied; before and after each.
    assert_eq!(killed, 20);
}

#[test]
fn killed_around_every_write_of_the_rollback() {
    let mut killed = 0;
    for n in 1..=5 {
        for when in ["before", "after"] {
            let dir = folder();
            let mut w = World::at(dir.path());
            apply(&mut w, dir.path()).unwrap();
            let status = run(dir.path(), "rollback", ("VSTEER_FAULT_KILL", format!("{when}:{n}")));
            killed += usize::from(status.signal() == Some(9));
            rollback(&mut Journal::open(&journal_path(dir.path())).unwrap(), &mut w, By::Rollback).unwrap();
            assert_eq!(w.settings(), begin(), "killed {when} write {n}");
        }
    }
    // Four steps and the end.
    assert_eq!(killed, 10);
}

#[test]
fn a_disk_that_is_full_at_any_line_leaves_the_former_world_and_a_whole_journal() {
    let dir = folder();
    let mut w = World::at(dir.path());
    apply(&mut w, dir.path()).unwrap();
    let whole = std::fs::read(journal_path(dir.path())).unwrap();
    let line_ends = whole.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1);
    // In the middle of each line, at its last byte, and right before the next.
    let mut room: Vec<usize> = line_ends.flat_map(|end| [end - 20, end - 1, end]).collect();
    room.pop();
    for room in room {
        let dir = folder();
        let status = run(dir.path(), "apply", (ROOM, room.to_string()));
        assert_eq!(status.code(), Some(REFUSED), "room for {room} of {} bytes", whole.len());
        let mut w = World::at(dir.path());
        assert_eq!(
            w.settings(),
            begin(),
            "room for {room} bytes: taken back though the journal cannot say so"
        );
        // With room again the journal is whole, and a rollback ends it.
        let mut journal = Journal::open(&journal_path(dir.path())).unwrap();
        rollback(&mut journal, &mut w, By::Rollback).unwrap();
        assert_eq!(w.settings(), begin());
    }
}
