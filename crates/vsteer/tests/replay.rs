//! What is not there, too short or too little is said, and is no empty answer that looks like "nothing wrong".

#[path = "common/program.rs"]
mod program;

use std::process::Output;

fn vsteer(words: &[&str]) -> Output {
    program::vsteer().args(words).output().expect("vsteer starts")
}

fn refused(words: &[&str], code: i32, told: &str) {
    let done = vsteer(words);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(code), "{words:?}: {said}");
    assert!(said.contains(told), "{words:?}: {said}");
}

#[test]
fn what_is_not_a_recording_has_no_marks() {
    let dir = tempfile::tempdir().unwrap();
    let (nowhere, empty) = (dir.path().join("nowhere"), dir.path().to_string_lossy().into_owned());
    refused(&["replay", &nowhere.to_string_lossy(), "--marks"], 3, "does not exist");
    refused(&["replay", &empty, "--marks", "--json"], 3, "manifest.json");
}

#[test]
fn one_that_is_shorter_than_an_interval_is_said_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/noisy-neighbour.toml");
    let recording = dir.path().join("a.vsteer").to_string_lossy().into_owned();
    let made = vsteer(&["simulate", scenario, "-o", &recording]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let shown = vsteer(&["replay", &recording, "--interval", "1s"]);
    assert!(shown.status.success() && shown.stdout.split(|b| *b == b'\n').count() > 3);
    refused(&["replay", &recording, "--interval", "10h"], 6, "shorter than one interval");
    refused(&["top", &recording, "-b", "-n", "0"], 2, "0");
    // A recording without marks has none.
    let marks = vsteer(&["replay", &recording, "--marks", "--json"]);
    assert_eq!((marks.status.code(), String::from_utf8_lossy(&marks.stdout).trim()), (Some(0), "[]"));
}

#[test]
fn steering_for_less_than_a_period_is_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let sla = dir.path().join("sla.toml");
    let text =
        "period = \"60s\"\n[[vm]]\nname = \"web\"\nlog = \"/l/web\"\nformat = \"nginx\"\nmean = \"9ms\"\n";
    std::fs::write(&sla, text).unwrap();
    refused(&["steer", "--sla", &sla.to_string_lossy(), "--for", "30s"], 2, "shorter than one period");
}
