//! Do the commands work on a captured host? One written by hand: `busy` runs 75 % of pCPU 0, `sleeper` runs 20 % and waits 30 %.

#[path = "common/program.rs"]
mod program;

use serde_json::Value;
use std::path::Path;
use std::process::Output;

fn vsteer(arguments: &[&str]) -> Output {
    program::vsteer().args(arguments).output().unwrap()
}

fn uri() -> String {
    format!("tree:{}", Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captured").display())
}

fn json(arguments: &[&str]) -> Value {
    let output = vsteer(&[&["--json"], arguments].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn it_is_diagnosed_recorded_and_planned_for_and_never_changed() {
    let uri = uri();
    let found = json(&["diagnose", "--connect", &uri]);
    assert!(found.to_string().contains("sleeper"), "{found}");

    let rows = vsteer(&["top", "-b", "-n", "1", "-i", "100ms", "--connect", &uri]);
    let rows = String::from_utf8(rows.stdout).unwrap();
    let row = |vm: &str| {
        let row = rows.lines().find(|l| l.contains(&format!(",{vm},vcpu0")));
        row.unwrap_or_else(|| panic!("{vm} is not in {rows}"))
            .split(',')
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let of = |vm: &str, column: usize| row(vm)[column].parse::<f64>().unwrap();
    assert!((of("busy", 4) - 75.0).abs() < 0.1 && (of("sleeper", 4) - 20.0).abs() < 0.1, "{rows}");

    // A recording of it says the same.
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("r.vsteer").display().to_string();
    assert!(vsteer(&["record", "-o", &recording, "--connect", &uri]).status.success());
    assert_eq!(json(&["diagnose", &recording]), found);
    assert!(json(&["numa", "--connect", &uri])["vms"].as_array().is_some_and(|vms| vms.len() == 2));

    let plan = json(&["plan", "--connect", &uri]);
    assert!(plan["steps"].as_array().is_some_and(|s| !s.is_empty()), "{plan}");
    let file = dir.path().join("plan.json");
    std::fs::write(&file, plan.to_string()).unwrap();
    let refused = vsteer(&["apply", file.to_str().unwrap(), "--connect", &uri, "--yes"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("cannot change the captured host"), "{said}");
    let steered = vsteer(&["realtime", "run", "--vm", "sleeper", "--connect", &uri]);
    assert!(!steered.status.success(), "{}", String::from_utf8_lossy(&steered.stdout));
}
