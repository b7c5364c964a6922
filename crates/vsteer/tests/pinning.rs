//! Does `vsteer plan --only pin` propose pins where the simulator says that they pay, and refuse them where it says that they leave pCPUs idle?

#[path = "common/program.rs"]
mod program;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;

/// What the published scenario says that a move costs.
const COST_US: &str = "17000";

fn vsteer(words: &[&str]) -> Output {
    program::vsteer().args(words).output().expect("vsteer starts")
}

fn json(words: &[&str]) -> Value {
    let out = vsteer(words);
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("--json prints JSON")
}

fn recorded(scenario: &Path, folder: &Path, set: &[&str]) -> Value {
    let mut words = vec!["simulate", scenario.to_str().unwrap(), "-o", folder.to_str().unwrap(), "--json"];
    words.extend(set.iter().flat_map(|s| ["--set", s]));
    json(&words)["points"][0]["vms"].clone()
}

/// The mean of a figure over the VMs whose names begin so.
fn mean(vms: &Value, begin: &str, figure: &str) -> f64 {
    let of = |vm: &Value| {
        let named = vm["vm"].as_str()?.starts_with(begin);
        named.then(|| vm["figures"][figure]["mean"].as_f64()).flatten()
    };
    let all: Vec<f64> = vms.as_array().unwrap().iter().filter_map(of).collect();
    assert!(!all.is_empty(), "no {figure} of {begin}: {vms}");
    all.iter().sum::<f64>() / all.len() as f64
}

fn matrix() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/published/openmp-pinning/matrix.toml")
}

#[test]
fn the_published_loops_are_pinned_and_gain_what_the_simulator_says_at_most() {
    let dir = tempfile::tempdir().unwrap();
    let (scenario, folder) = (matrix(), dir.path().join("m.vsteer"));
    let floating = recorded(&scenario, &folder, &[]);
    let plan =
        json(&["plan", folder.to_str().unwrap(), "--only", "pin", "--move-cost-us", COST_US, "--json"]);
    let steps = plan["steps"].as_array().unwrap();
    let place = |vm: &str| -> Vec<String> {
        let own = steps.iter().filter(|s| s["vm_name"] == vm);
        own.map(|s| s["change"]["to"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let (a, b) = (place("A"), place("B"));
    let mut all = [a.clone(), b.clone()].concat();
    all.sort();
    all.dedup();
    assert_eq!((a.len(), b.len(), all.len()), (2, 2, 4), "a pCPU each: {steps:?}");
    // "up to 6.07 % where they wait for each other"
    let most = |s: &Value| -> f64 {
        let reason = s["reason"].as_str().unwrap();
        let number = reason.rsplit("up to ").next().unwrap().split(' ').next().unwrap();
        number.parse().unwrap_or_else(|_| panic!("{reason}"))
    };
    let bound = steps.iter().filter(|s| s["vm_name"] != "dom0").map(most).fold(0.0, f64::max);
    let pins = |vm: &str, at: &[String]| format!("vm.{vm}.pins=[\"{}\", \"{}\"]", at[0], at[1]);
    let set = [pins("A", &a), pins("B", &b)];
    let pinned = json(&[
        "simulate",
        scenario.to_str().unwrap(),
        "--json",
        "--set",
        &set[0],
        "--set",
        &set[1],
    ])["points"][0]["vms"]
        .clone();
    let took = |vms: &Value| (mean(vms, "A", "response_mean") + mean(vms, "B", "response_mean")) / 2.0;
    let gain = 100.0 * (1.0 - took(&pinned) / took(&floating));
    assert!(gain > 1.0 && gain < bound && bound < 10.0, "simulated {gain} %, promised up to {bound} %");
}

#[test]
fn what_moves_do_not_cost_is_nothing_to_gain() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("m.vsteer");
    recorded(&matrix(), &folder, &["for=5s"]);
    let folder = folder.to_str().unwrap();
    let why = |words: &[&str]| {
        let plan = json(&[&["plan", folder, "--only", "pin", "--json"], words].concat());
        assert_eq!(plan["steps"].as_array().map(Vec::len), Some(0), "{plan}");
        plan["alternatives"][0]["why_not"].as_str().unwrap().to_owned()
    };
    assert!(why(&["--move-cost-us", "5"]).contains("moves between pCPUs cost each VM at most"));
    // A simulated machine has no caches of its own to tell.
    assert!(why(&[]).contains("--move-cost-us"));
    let out = vsteer(&["plan", folder, "--only", "pin", "--move-cost-us=-1"]);
    assert!(!out.status.success() && String::from_utf8_lossy(&out.stderr).contains("microseconds"));
}

#[test]
fn pins_that_leave_pcpus_idle_are_refused_and_would_have() {
    // Six VMs that want a pCPU 45 % of the time each, on four: moved often, but pinned some would wait beside an idle pCPU.
    let dir = tempfile::tempdir().unwrap();
    let scenario = dir.path().join("bursts.toml");
    let text = r#"title = "Bursts"
for = "30s"
warm_up = "2s"
scheduler = { policy = "credit" }
machine = { cores_per_node = 4 }
costs = { cold_core_ns = 50000 }
"#;
    let vm = |n: usize| {
        format!(
            "[[vm]]\nname = \"b{n}\"\ndemand = {{ sleep_compute = {{ sleep = {{ exponential = \"11ms\" }}, compute = {{ exponential = \"9ms\" }} }} }}\n"
        )
    };
    std::fs::write(&scenario, text.to_owned() + &(0..6).map(vm).collect::<String>()).unwrap();
    let folder = dir.path().join("b.vsteer");
    let floating = recorded(&scenario, &folder, &[]);
    let words = ["plan", folder.to_str().unwrap(), "--only", "pin", "--move-cost-us", "50", "--json"];
    let plan = json(&words);
    assert_eq!(plan["steps"].as_array().map(Vec::len), Some(0), "{plan}");
    let why = plan["alternatives"][0]["why_not"].as_str().unwrap();
    assert!(why.contains("pins would cost"), "{why}");
    let set: Vec<String> = (0..6).map(|n| format!("vm.b{n}.pins=[\"{}\"]", n % 4)).collect();
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    let pinned = recorded(&scenario, &dir.path().join("p.vsteer"), &set);
    let (before, after) = (mean(&floating, "b", "run"), mean(&pinned, "b", "run"));
    assert!(after < before, "pinned {after}, floating {before}");
    assert!(mean(&pinned, "b", "ready") > 1.2 * mean(&floating, "b", "ready"));
}
