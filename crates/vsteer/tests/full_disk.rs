//! A full disk at every write: does the command say which file it could not write, keep what was there, and leave no half
//! file?
//!
//! Without privilege, a limit on the size of files replaces the full disk: the same system calls fail, with another error. As root, the test fills a small tmpfs.

#![cfg(feature = "host")]

#[path = "common/program.rs"]
mod program;

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use vsteer_core::setting::knob::How;

use program::VSTEER;
const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/noisy-neighbour.toml");

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// Where inputs lie, with a recording of five seconds.
fn inputs() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let mut c = program::vsteer();
    let done =
        c.args(["simulate", SCENARIO, "--set", "for=5s", "-o", "r.vsteer"]).current_dir(&place).output();
    assert!(done.unwrap().status.success());
    place
}

/// Runs `vsteer WORDS` in `folder`, where no file grows beyond `blocks` of 512 bytes.
fn limited(folder: &Path, blocks: u64, words: &str) -> Output {
    let line = format!("ulimit -f {blocks}; trap '' XFSZ; exec {VSTEER} {words}");
    let mut c = Command::new("sh");
    c.args(["-c", &line])
        .current_dir(folder)
        .env(program::NO_CONFIG.0, program::NO_CONFIG.1)
        .env("VSTEER_STATE", folder.join("state"))
        .output()
        .unwrap()
}

fn left(folder: &Path) -> Vec<String> {
    let all =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned());
    all.filter(|name| name != "state").collect()
}

/// The command failed for lack of room, and says at which file.
fn refused(done: &Output, words: &str, file: &str) {
    let shown = text(done);
    assert_eq!(done.status.code(), Some(9), "{words}: {shown}");
    let lower = shown.to_lowercase();
    let is_clear = lower.contains("no space left") || lower.contains("file too large");
    assert!(is_clear && shown.contains(file), "{words}: {shown}");
    assert_eq!(shown.matches("error:").count(), 1, "{words}: {shown}");
    assert!(!shown.contains("drop failed") && !shown.contains("panicked"), "{words}: {shown}");
}

/// Commands that write one output, called `out` here.
fn outputs(recording: &Path) -> Vec<String> {
    let r = recording.display();
    let mut all = vec![format!("plan {r} -o out"), format!("report {r} -o out")];
    all.extend(
        ["csv", "parquet", "perfetto", "zip", "esxtop"].map(|to| format!("export {r} --to {to} -o out")),
    );
    all.push(format!("simulate {SCENARIO} --set for=5s -o out"));
    all
}

#[test]
fn an_output_is_whole_or_not_there() {
    let inputs = inputs();
    for words in outputs(&inputs.path().join("r.vsteer")) {
        let mut failed = 0;
        for blocks in [0, 1, 2, 16] {
            let place = tempfile::tempdir().unwrap();
            let done = limited(place.path(), blocks, &words);
            if done.status.success() {
                continue;
            }
            failed += 1;
            refused(&done, &words, "out");
            let is_recording = words.starts_with("simulate") && left(place.path()) == ["out"];
            if is_recording {
                // What was recorded before the disk was full stays, and can be read.
                let read = program::vsteer().args(["replay", "out"]).current_dir(&place).output().unwrap();
                assert!([0, 3, 6].contains(&read.status.code().unwrap()), "{}", text(&read));
                assert!(place.path().join("out/manifest.json").metadata().unwrap().len() > 10);
            } else {
                assert_eq!(left(place.path()), [""; 0], "{words}, {blocks} blocks");
            }
        }
        assert!(failed > 0, "{words} never needed room");
    }
}

#[test]
fn no_setting_changes_if_the_journal_cannot_be_written() {
    let place = tempfile::tempdir().unwrap();
    let (victim, file) = (place.path().join("victim"), place.path().join("plan.json"));
    std::fs::write(&victim, "madvise").unwrap();
    let how = How::File { path: victim.to_str().unwrap().to_owned() };
    let plan = common::plan("huge pages", "huge pages", how, None, ("madvise", "never"));
    std::fs::write(&file, serde_json::to_vec(&plan).unwrap()).unwrap();
    for blocks in [0, 1] {
        let done = limited(place.path(), blocks, "apply plan.json --yes");
        refused(&done, "apply", "journal");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "madvise");
    }
    // Once there is room, the plan can be applied and undone.
    assert!(limited(place.path(), 10_000, "apply plan.json --yes").status.success());
    assert!(limited(place.path(), 10_000, "rollback").status.success());
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "madvise");
}

#[test]
fn an_experiment_stops_and_can_be_resumed() {
    let place = tempfile::tempdir().unwrap();
    let file = "name = \"e\"\ndesign = \"pair\"\n[workload]\ncommand = \"true {f}\"\n[[factor]]\nname = \"f\"\n\
                levels = [\"a\", \"b\"]\n";
    std::fs::write(place.path().join("e.toml"), file).unwrap();
    let done = limited(place.path(), 0, "experiment run e.toml --yes");
    refused(&done, "experiment", "e.experiment");
    let done = limited(place.path(), 4, "experiment run e.toml --yes");
    let again = if done.status.success() { "show" } else { "resume" };
    if again == "resume" {
        refused(&done, "experiment", "e.experiment");
        let done = limited(place.path(), 100_000, "experiment resume e.experiment --yes");
        assert!(done.status.success(), "{}", text(&done));
    }
}

struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
#[ignore = "needs root: it mounts a small tmpfs"]
fn a_small_disk_that_is_full_keeps_the_old_files() {
    let inputs = inputs();
    let place = tempfile::tempdir().unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=64k", "vsteer-test", place.path().to_str().unwrap()];
    assert!(Command::new("mount").args(mount).status().unwrap().success());
    let _mounted = Mounted(place.path().to_owned());
    for words in outputs(&inputs.path().join("r.vsteer")) {
        let replaces = words.starts_with("plan") || words.starts_with("report");
        if replaces {
            std::fs::write(place.path().join("out"), "precious").unwrap();
        }
        // One page stays free, so that a file can be begun.
        let free = rustix::fs::statvfs(place.path()).unwrap();
        let room = (free.f_bavail.saturating_sub(1) * free.f_frsize) as usize;
        std::fs::write(place.path().join("filler"), vec![0; room]).unwrap();
        let mut c = Command::new("sh");
        let done = c
            .args(["-c", &format!("exec {VSTEER} {words}")])
            .env(program::NO_CONFIG.0, program::NO_CONFIG.1)
            .current_dir(&place)
            .output()
            .unwrap();
        refused(&done, &words, "out");
        assert!(text(&done).to_lowercase().contains("no space left"), "{}", text(&done));
        if replaces {
            assert_eq!(std::fs::read_to_string(place.path().join("out")).unwrap(), "precious");
            std::fs::remove_file(place.path().join("out")).unwrap();
        }
        std::fs::remove_file(place.path().join("filler")).unwrap();
        let _ = std::fs::remove_dir_all(place.path().join("out"));
        assert_eq!(left(place.path()), [""; 0], "{words}");
    }
}
