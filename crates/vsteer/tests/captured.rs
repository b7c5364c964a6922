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

/// The same captured host under two names, and one that is missing.
#[test]
fn several_hosts_are_one_view_and_one_that_fails_stops_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let captured = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captured");
    for name in ["a", "b"] {
        std::os::unix::fs::symlink(&captured, dir.path().join(name)).unwrap();
    }
    let run = |line: &str, hosts: &[&str]| {
        let connect = hosts.iter().flat_map(|host| ["--connect".to_owned(), format!("tree:{host}")]);
        let words = line.split(' ').map(str::to_owned).chain(connect);
        let mut c = program::vsteer();
        let done = c.args(words).current_dir(dir.path()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    };
    let (code, rows, said) = run("top -b -n 1 -i 100ms", &["a", "b"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(rows.starts_with("host,unix_ns,vm,thread,"), "{rows}");
    let of = |host: &str| {
        let prefix = format!("{host},");
        rows.lines().filter_map(|l| l.strip_prefix(&prefix).map(str::to_owned)).collect::<Vec<_>>()
    };
    assert!(of("a").len() > 4 && of("a") == of("b"), "{rows}");

    let (code, lines, said) = run("top --json -n 1 -i 100ms", &["a", "missing", "b"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("error: missing: "), "{said}");
    let mut names = Vec::new();
    for line in lines.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        assert_eq!(value["fault"].is_object(), value["host"] == "missing", "{line}");
        names.push(value["host"].as_str().unwrap().to_owned());
    }
    names.sort();
    assert_eq!(names, ["a", "b", "missing"]);

    let (code, found, said) = run("diagnose --json", &["a", "missing", "b"]);
    let found: Value = serde_json::from_str(&found).unwrap_or_else(|e| panic!("{e}: {found} {said}"));
    assert_eq!((code, found.as_array().unwrap().len()), (Some(3), 3));
    assert_eq!((&found[0]["host"], &found[2]["host"]), (&Value::from("a"), &Value::from("missing")));
    assert!(found[0]["findings"].is_array() && found[0]["window_s"].is_number(), "{found}");
    let (_, text, _) = run("diagnose", &["a", "b"]);
    assert!(text.starts_with("host a\n") && text.contains("\n\nhost b\n"), "{text}");

    let (code, made, said) = run("record --json -o fleet", &["a", "missing", "b"]);
    let made: Value = serde_json::from_str(&made).unwrap_or_else(|e| panic!("{e}: {made} {said}"));
    assert_eq!((code, made[0]["recording"].as_str()), (Some(3), Some("fleet/a")));
    for host in ["a", "b"] {
        let recording = dir.path().join("fleet").join(host).display().to_string();
        assert!(json(&["diagnose", &recording]).to_string().contains("sleeper"));
    }
    assert!(!dir.path().join("fleet/missing").exists());
    // A second time, the recordings are there.
    let (code, _, said) = run("record -o fleet", &["a", "b"]);
    assert!(code == Some(2) && said.contains("error: a: fleet/a already exists"), "{said}");
}
