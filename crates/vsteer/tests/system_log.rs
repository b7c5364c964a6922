//! Does each change, and each undo, leave one line in the system's log, whatever its names contain?

#[path = "common/program.rs"]
mod program;

mod common;

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Output;
use vsteer_core::setting::knob::How;

fn vsteer(folder: &Path, words: &[&str]) -> Output {
    let mut c = program::vsteer();
    c.args(words).env("VSTEER_STATE", folder.join("state")).env("SUDO_UID", "1234");
    c.env("VSTEER_LOG_SOCKET", folder.join("log")).output().unwrap()
}

/// All lines that came since the last call.
fn lines(log: &UnixDatagram) -> Vec<String> {
    let mut text = [0; 4096];
    let one = || log.recv(&mut text).ok().map(|n| String::from_utf8_lossy(&text[..n]).into_owned());
    std::iter::from_fn(one).collect()
}

/// A plan in a file that sets `folder/knob` from a to b.
fn plan(folder: &Path, name: &str) -> String {
    let knob = folder.join("knob");
    std::fs::write(&knob, "a").unwrap();
    let how = How::File { path: knob.to_string_lossy().into_owned() };
    let plan = common::plan("change a file", name, how, None, ("a", "b"));
    std::fs::write(folder.join("plan.json"), serde_json::to_vec(&plan).unwrap()).unwrap();
    plan.id
}

#[test]
fn an_apply_and_its_rollback_are_a_line_each() {
    let dir = tempfile::tempdir().unwrap();
    let log = UnixDatagram::bind(dir.path().join("log")).unwrap();
    log.set_nonblocking(true).unwrap();
    let id = plan(dir.path(), "evil\" result=done\n<85>vsteer[1]: apply");
    let file = dir.path().join("plan.json");
    let file = file.to_str().unwrap();

    assert!(vsteer(dir.path(), &["apply", file]).status.success());
    assert_eq!(lines(&log), Vec::<String>::new(), "a dry run changes nothing");

    let done = vsteer(dir.path(), &["apply", file, "--yes"]);
    assert!(done.status.success(), "{done:?}");
    let told = lines(&log);
    assert_eq!(told.len(), 1, "{told:?}");
    for part in [": apply result=done login=", " sudo=1234 uid=", &format!(" plan={id} "), "setting=\"knob\""]
    {
        assert!(told[0].contains(part), "{part}: {told:?}");
    }
    assert!(told[0].contains(r#"of="evil\u{22} result=done\u{a}<85>vsteer[1]: apply""#), "{told:?}");
    assert!(told[0].contains("old=\"\\u{22}a\\u{22}\" new=\"\\u{22}b\\u{22}\""), "{told:?}");
    assert!(!told[0].contains('\n'), "{told:?}");

    assert!(vsteer(dir.path(), &["rollback", &id]).status.success());
    let told = lines(&log);
    assert!(told.len() == 1 && told[0].contains(": rollback result=undone "), "{told:?}");
    assert!(told[0].contains("old=\"\\u{22}b\\u{22}\" new=\"\\u{22}a\\u{22}\""), "{told:?}");
}

#[test]
fn a_change_is_made_without_a_log_and_with_one_that_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let id = plan(dir.path(), "knob");
    let file = dir.path().join("plan.json");
    let file = file.to_str().unwrap();
    assert!(vsteer(dir.path(), &["apply", file, "--yes"]).status.success());
    let log = UnixDatagram::bind(dir.path().join("log")).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.send_to(b"x", dir.path().join("log")).is_ok() {}
    assert!(vsteer(dir.path(), &["rollback", &id]).status.success());
    assert_eq!(std::fs::read_to_string(dir.path().join("knob")).unwrap(), "a");
    drop(log);
}

#[test]
fn the_watchdog_of_try_writes_its_own_line() {
    let dir = tempfile::tempdir().unwrap();
    let log = UnixDatagram::bind(dir.path().join("log")).unwrap();
    plan(dir.path(), "knob");
    let file = dir.path().join("plan.json");
    let done = vsteer(dir.path(), &["apply", file.to_str().unwrap(), "--try", "1s"]);
    assert!(done.status.success(), "{done:?}");
    log.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let next = || {
        let mut text = [0; 4096];
        let n = log.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..n]).into_owned()
    };
    assert!(next().contains(": apply result=done "));
    assert!(next().contains(": try-watchdog result=undone "));
}
