//! Several plans are applied: does `vsteer rollback` take back what can be, in an order that leaves what was there first?

use std::path::Path;
use std::process::{Command, Output};
use vsteer_act::{Entry, Journal};
use vsteer_core::forecast::Forecast;
use vsteer_core::nouns::{CgroupLayout, HostConfig, VmId};
use vsteer_core::plan::Plan;
use vsteer_core::setting;
use vsteer_core::setting::knob::{How, Knob};
use vsteer_core::setting::{Change, Scope, Step};
use vsteer_core::topology::{Parts, Topology};
use vsteer_host::actuate::Former;

fn config() -> HostConfig {
    let cpus = || "0-3".parse().unwrap();
    let parts = Parts { present: cpus(), online: cpus(), allowed: cpus(), ..Parts::default() };
    HostConfig {
        hostname: "host".to_owned(),
        machine_id: None,
        kernel: "6.1".to_owned(),
        topology: Topology::new(parts).unwrap(),
        cgroups: CgroupLayout::None,
        scheduler: None,
        vms: Vec::new(),
    }
}

/// Leaves what an apply of one step leaves: its journal. The plan's id.
fn applied(folder: &Path, name: &str, how: How, (from, to): (&str, &str), unix_ns: u64) -> String {
    let knob = Box::new(Knob { name: name.to_owned(), how, on: None });
    let change = Change::Knob(setting::HostKnob { knob, from: from.to_owned(), to: to.to_owned() });
    let vm = VmId(format!("knob:{name}"));
    let step = Step { vm, vm_name: "host".to_owned(), change: change.clone(), reason: String::new() };
    let forecast = Forecast { method: "none".to_owned(), vms: Vec::new() };
    let plan = Plan::new(config(), name.to_owned(), vec![step], Scope::Live, forecast);
    let mut journal = Journal::begin(&folder.join("state/journal"), &plan, None, unix_ns).unwrap();
    let former = Former { live: Some(change), ..Former::default() };
    for entry in [Entry::Intent { step: 0, former }, Entry::Done { step: 0 }, Entry::Applied] {
        journal.write(entry).unwrap();
    }
    plan.id
}

fn rollback(folder: &Path, words: &[&str]) -> Output {
    let mut c = Command::new(env!("CARGO_BIN_EXE_vsteer"));
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
    let stuck = How::Commands { set: "exit 1".to_owned(), read: "echo b".to_owned() };
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
    assert!(rollback(dir.path(), &[&newer]).status.success());
    assert_eq!(now(), "a");
    assert!(rollback(dir.path(), &[&older]).status.success());
    assert_eq!(now(), "found");
}
