//! The service that keeps VMs first, as far as it can be had without one: what is said when none runs, and its unit.

#[path = "common/program.rs"]
mod program;

use std::process::Output;

/// `vsteer realtime WORDS`, with a state folder of its own.
fn realtime(state: &std::path::Path, words: &[&str]) -> Output {
    let mut command = program::vsteer();
    command.arg("realtime").args(words).env("VSTEER_STATE", state);
    command.output().expect("vsteer runs")
}

#[test]
fn without_a_service_it_is_said_how_to_begin() {
    let state = tempfile::tempdir().unwrap();
    for words in [["status"], ["report"], ["disable"]] {
        let done = realtime(state.path(), &words);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success(), "{words:?}");
        assert!(said.contains("is not running") && said.contains("realtime enable"), "{words:?}: {said}");
    }
    // Nobody listens on what a killed one has left behind.
    let socket = state.path().join("realtime.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    assert!(String::from_utf8_lossy(&realtime(state.path(), &["status"]).stderr).contains("is not running"));
}

#[test]
fn a_unit_for_systemd_runs_what_was_asked() {
    let state = tempfile::tempdir().unwrap();
    let done = realtime(
        state.path(),
        &["unit", "--vm", "web 1", "--vm", "audio", "--by", "priority", "--limit", "15ms"],
    );
    let unit = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success());
    let start = unit.lines().find_map(|l| l.strip_prefix("ExecStart=")).unwrap();
    let rest = start.split_once(" realtime run ").unwrap().1;
    assert_eq!(
        rest, "--yes --vm \"web 1\" --vm audio --by priority --source both --warp 100ms --limit 15ms",
        "{unit}"
    );
    assert!(unit.contains("KillMode=process") && unit.contains("Type=notify") && unit.contains("[Install]"));
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_happens() {
    let state = tempfile::tempdir().unwrap();
    let refused = |words: &[&str], why: &str| {
        let done = realtime(state.path(), words);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success() && said.contains(why), "{words:?}: {said}");
    };
    refused(&["enable", "--yes", "--vm", "x", "--for", "1s"], "only with `realtime run`");
    refused(&["run", "--vm", "x", "--by", "priority", "--costs"], "--costs");
    refused(&["run"], "--vm");
    assert!(std::fs::read_dir(state.path()).unwrap().next().is_none(), "nothing was left");
}
