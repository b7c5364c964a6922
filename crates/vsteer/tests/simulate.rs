//! Does `vsteer simulate` answer what it is asked, the same each time, and can what it records be read as a host's?

#[path = "common/program.rs"]
mod program;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::LazyLock;

fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(name)
}

fn vsteer(words: &[&str]) -> Output {
    program::vsteer().args(words).output().expect("vsteer starts")
}

fn json(words: &[&str]) -> Value {
    let out = vsteer(words);
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("--json prints JSON")
}

fn figure(point: &Value, vm: &str, name: &str) -> f64 {
    let vms = point["vms"].as_array().unwrap();
    let vm = vms.iter().find(|v| v["vm"] == vm).unwrap_or_else(|| panic!("no VM {vm}"));
    vm["figures"][name]["mean"].as_f64().unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn weights_divide_a_contended_pcpu_and_a_sweep_changes_them() {
    let path = scenario("two-hogs.toml");
    let out =
        json(&["simulate", path.to_str().unwrap(), "--json", "--sweep", "vm.large.weight=256,512,1024"]);
    let points = out["points"].as_array().unwrap();
    for (point, (weight, share)) in points.iter().zip([("256", 0.5), ("512", 2.0 / 3.0), ("1024", 0.8)]) {
        assert_eq!(point["set"]["vm.large.weight"], weight);
        // Credit's own spread: labs on real Xen show the same to about a point.
        let (large, small) = (figure(point, "large", "run"), figure(point, "small", "run"));
        assert!(
            (large - share).abs() < 0.01 && (large + small - 1.0).abs() < 1e-6,
            "{weight}: {large} and {small}"
        );
        assert!((figure(point, "large", "ready") - (1.0 - large)).abs() < 1e-6);
    }
}

#[test]
fn the_same_bytes_each_time_and_others_with_another_seed() {
    let path = scenario("web-servers.toml");
    let run = |seed: &str| {
        vsteer(&["simulate", path.to_str().unwrap(), "--json", "--set", "for=2s", "--set", seed]).stdout
    };
    assert_eq!(run("seed=7"), run("seed=7"));
    assert_ne!(run("seed=7"), run("seed=8"));
}

#[test]
fn seeds_give_an_interval_and_one_seed_none() {
    let path = scenario("web-servers.toml");
    let with =
        |n: &str| json(&["simulate", path.to_str().unwrap(), "--json", "--set", "for=2s", "--seeds", n]);
    let half = |v: &Value| v["points"][0]["vms"][0]["figures"]["response_mean"]["half_width"].clone();
    assert!(half(&with("1")).is_null());
    assert!(half(&with("4")).as_f64().unwrap() > 0.0);
}

#[test]
fn a_recorded_simulation_is_read_as_a_host_is() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, path) = (dir.path().join("s.vsteer"), scenario("noisy-neighbour.toml"));
    let folder = folder.to_str().unwrap();
    let out = json(&["simulate", path.to_str().unwrap(), "--json", "--set", "for=5s", "-o", folder]);
    let ready = figure(&out["points"][0], "burner-1", "ready");
    let diagnosed = json(&["diagnose", folder, "--json"]);
    let vms = diagnosed["model"]["vms"].as_array().unwrap();
    let burner = vms.iter().find(|v| v["name"] == "burner-1").unwrap();
    let vcpus = burner["threads"].as_array().unwrap().len() as f64;
    let seen = burner["vcpus"]["ready"].as_f64().unwrap() / vcpus;
    assert!((seen - ready).abs() < 1e-9, "diagnose says {seen}, the simulator {ready}");
    // Who ran when, by the switches alone, adds up to what the samples say.
    let csv = dir.path().join("csv");
    assert!(vsteer(&["export", folder, "--to", "csv", "-o", csv.to_str().unwrap()]).status.success());
    let events = std::fs::read_to_string(csv.join("event.csv")).unwrap();
    let mut rows = events.lines();
    let head: Vec<&str> = rows.next().unwrap().split(',').collect();
    let column =
        |name: &str| head.iter().position(|h| *h == name).unwrap_or_else(|| panic!("{name} in {head:?}"));
    let (ns, cpu, next) = (column("ns"), column("cpu"), column("next_tid"));
    let mut current = std::collections::BTreeMap::<String, (u64, String)>::new();
    let mut ran = std::collections::BTreeMap::<String, u64>::new();
    // The rows of wake-ups are no switches.
    let mut rows: Vec<Vec<&str>> =
        rows.map(|r| r.split(',').collect()).filter(|r: &Vec<&str>| !r[next].is_empty()).collect();
    rows.sort_by_key(|r| r[ns].parse::<u64>().unwrap());
    for r in &rows {
        let at: u64 = r[ns].parse().unwrap();
        if let Some((since, who)) = current.insert(r[cpu].to_owned(), (at, r[next].to_owned())) {
            *ran.entry(who).or_default() += at - since;
        }
    }
    let tid = burner["threads"][0]["tid"].to_string();
    let run = burner["threads"][0]["shares"]["run"].as_f64().unwrap();
    let by_switches = ran[&tid] as f64 / 5e9;
    assert!((by_switches - run).abs() < 0.01, "switches say {by_switches}, samples {run}");
}

#[test]
fn what_cannot_be_simulated_is_refused_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bad.toml");
    let good = std::fs::read_to_string(scenario("two-hogs.toml")).unwrap();
    std::fs::write(&path, good.replace("weight = 512", "weight = 0")).unwrap();
    let out = vsteer(&["simulate", path.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(6), "{text}");
    assert!(text.contains("bad.toml:19") && text.contains("1 to 65535"), "{text}");
    let out = vsteer(&["simulate", "nowhere.toml"]);
    assert_eq!(out.status.code(), Some(3));
}

#[test]
fn a_setting_that_the_scheduler_ignores_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ignored.toml");
    // The setting, and the schedulers that obey it.
    for (setting, obeying) in [
        ("class = { fifo = 50 }", &["cfs", "eevdf"][..]),
        ("reservation = { budget = \"5ms\", period = \"10ms\", extra_time = false }", &["rtds", "sedf"]),
        ("soft_affinity = \"0\"", &["credit", "credit2"]),
        ("vit = true", &["bvt"]),
        ("warp = { value = \"5ms\" }", &["bvt"]),
        ("quota = { quota = \"5ms\", period = \"10ms\" }", &["cfs", "eevdf"]),
    ] {
        for policy in ["bvt", "cfs", "credit", "credit2", "eevdf", "esxi", "priority", "rtds", "sedf"] {
            let text = format!(
                "title = \"t\"\nfor = \"1s\"\n[scheduler]\npolicy = {policy:?}\n[machine]\ncores_per_node = 2\n\
                [[vm]]\nname = \"a\"\ndemand = {{ periodic = {{ period = \"10ms\", work = \"1ms\" }} }}\n{setting}\n"
            );
            std::fs::write(&path, text).unwrap();
            let out = vsteer(&["simulate", path.to_str().unwrap()]);
            let told = String::from_utf8_lossy(&out.stderr);
            if obeying.contains(&policy) {
                assert!(out.status.success(), "{policy}, {setting}: {told}");
            } else {
                let name = format!("scheduler {policy} has no");
                assert!(out.status.code() == Some(6) && told.contains(&name), "{policy}, {setting}: {told}");
                assert!(told.contains("ignored.toml:10"), "the place: {told}");
            }
        }
    }
}

#[test]
fn every_scenario_of_the_project_can_be_simulated() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "toml") {
            json(&[
                "simulate",
                path.to_str().unwrap(),
                "--json",
                "--set",
                "for=50ms",
                "--set",
                "warm_up=10ms",
            ]);
            seen += 1;
        }
    }
    assert!(seen >= 3);
}

/// Ctrl-C ends it soon, with the figures of what was done and the exit code that says so.
#[test]
fn an_interrupted_run_tells_what_was_done() {
    let path = scenario("web-servers.toml");
    let mut child = program::vsteer()
        .args(["simulate", path.to_str().unwrap(), "--json", "--set", "for=1000h", "--set", "warm_up=1ms"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let begin = std::time::Instant::now();
    let status = child.wait().unwrap();
    assert!(begin.elapsed().as_secs() < 20, "it took {:?} to stop", begin.elapsed());
    assert_eq!(status.code(), Some(130));
    let text = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
    let told: Value = serde_json::Deserializer::from_str(&text).into_iter().next().unwrap().unwrap();
    assert_eq!(told["points"][0]["runs"][0]["ended"], "stopped");
    assert!(figure(&told["points"][0], "web-1", "run") > 0.1);
}

/// Hogs beside one hog on four pCPUs: three more run alone, a fourth must share, so that somebody waits.
#[test]
fn headroom_of_a_case_that_can_be_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.toml");
    let text = r#"
title = "hogs"
for = "5s"
warm_up = "1s"
scheduler = { policy = "credit" }
machine = { sockets = 2, cores_per_node = 2, node_memory_mib = 4096 }
[[vm]]
name = "hog"
demand = "hog"
memory_mib = 1024
"#;
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let words = ["headroom", path, "--kind", "hog", "--level", "ready=1%", "--seeds", "2", "--json"];
    let out = json(&words);
    let places = out["headroom"].as_array().unwrap();
    assert_eq!(places.len(), 3, "the host and its two nodes");
    assert_eq!(places[0]["least"], 3);
    assert_eq!(places[0]["seeds"][0]["breaks"]["level"], "ready=1%");
    // Bound to one node, two hogs have a pCPU each, and the one that was there moves away.
    assert_eq!((&places[1]["least"], &places[2]["least"]), (&Value::from(2), &Value::from(2)));
    // This level never breaks, so memory limits the number.
    let words = ["headroom", path, "--kind", "hog", "--level", "ready=100%", "--seeds", "1", "--json"];
    let out = json(&words);
    assert_eq!(out["headroom"][0]["least"], 7);
    assert!(out["headroom"][0]["seeds"][0]["breaks"]["level"].as_str().unwrap().starts_with("memory"));
    // Hogs show no frames: this level could never break.
    let refused = vsteer(&["headroom", path, "--kind", "hog", "--level", "frames=25/s", "--seeds", "1"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no VM of the scenario has that figure"));
    let refused = vsteer(&["headroom", path, "--kind", "hgo", "--level", "ready=1%"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("use one of these VMs: hog"));
}

/// Five hogs on four pCPUs, recorded: each waits a fifth of the time. With one more a third, with two more three sevenths:
/// one more fits below 40 %, on the host or bound to either node, since the others make way.
#[test]
fn headroom_of_a_recording_that_can_be_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.toml");
    let text = r#"
title = "hogs"
for = "5s"
warm_up = "1s"
scheduler = { policy = "credit" }
machine = { sockets = 2, cores_per_node = 2 }
[[vm]]
name = "hog"
count = 5
demand = "hog"
[[vm]]
name = "sleeper"
demand = { periodic = { period = "100ms", work = "1ms" } }
"#;
    std::fs::write(&path, text).unwrap();
    let (path, folder) = (path.to_str().unwrap(), dir.path().join("r.vsteer"));
    let folder = folder.to_str().unwrap();
    json(&["simulate", path, "--json", "-o", folder]);
    let limits = ["--level", "ready=40%", "--seeds", "2", "--json"];
    for (kind, shape) in [("hog-1", None), ("hog", Some(path))] {
        let mut words = vec!["headroom", "--from", folder, "--kind", kind];
        words.extend(shape);
        words.extend(limits);
        let out = json(&words);
        let places: Vec<u64> =
            out["headroom"].as_array().unwrap().iter().map(|p| p["least"].as_u64().unwrap()).collect();
        assert_eq!(places, [1, 1, 1], "the host and its two nodes: {out}");
        assert!(out["calibration"]["ready"].as_f64().unwrap() < 0.02, "{out}");
        assert_eq!(out["recording"].as_str(), Some(folder));
    }
    let refused = |words: &[&str], why: &str| {
        let out = vsteer(words);
        let told = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && told.contains(why), "{told}");
    };
    let of = ["headroom", "--from", folder, "--kind"];
    refused(&[&of[..], &["hgo", "--level", "ready=1%"]].concat(), "VMs of the recording: hog-1, hog-2");
    refused(&[&of[..], &["hog-1", "--level", "late=1%"]].concat(), "no VM of the recording has that figure");
    refused(&["headroom", "--kind", "hog-1", "--level", "ready=1%"], "SCENARIO");
}

/// A recording of it tells the demands that it gives. 240 s, because the p99 of one minute's 2,000 wake-ups is uncertain by 7 %.
const MIXED: &str = r#"
title = "one pCPU, two that never sleep, one that thinks, one with a timer"
for = "240s"
warm_up = "2s"
scheduler = { policy = "eevdf" }
machine = { cores_per_node = 1 }
[[vm]]
name = "hog"
count = 2
demand = "hog"
[[vm]]
name = "thinker"
demand = { sleep_compute = { sleep = { exponential = "20ms" }, compute = { exponential = "3ms" } } }
[[vm]]
name = "timer"
demand = { periodic = { period = "10100us", work = { uniform = ["200us", "900us"] } } }
"#;

/// Simulates a scenario, and records it in `name`.vsteer.
fn recorded(dir: &Path, name: &str, scenario: &str) -> String {
    let (path, folder) = (dir.join(format!("{name}.toml")), dir.join(format!("{name}.vsteer")));
    std::fs::write(&path, scenario).unwrap();
    let folder = folder.to_str().unwrap().to_owned();
    json(&["simulate", path.to_str().unwrap(), "--json", "-o", &folder]);
    folder
}

/// [`MIXED`], recorded once for all tests.
static RECORDED: LazyLock<(tempfile::TempDir, String)> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let folder = recorded(dir.path(), "s", MIXED);
    (dir, folder)
});

#[test]
fn a_recording_replayed_gives_back_what_it_recorded() {
    let (_, folder) = &*RECORDED;
    let out = json(&["simulate", "--from", folder, "--json"]);
    let error = |of: &str, what: &str| out[of][what].as_f64().unwrap_or(f64::NAN);
    assert!(error("calibration", "ready") < 0.005 && error("calibration", "wake_p99") < 0.05, "{out}");
    let vcpus = out["vcpus"].as_array().unwrap();
    assert_eq!(vcpus.len(), 4);
    for vcpu in vcpus {
        let of = |what: &str, name: &str| vcpu[what][name].as_f64().unwrap_or(0.0);
        assert!((of("measured", "run") - of("simulated", "run")).abs() < 0.005, "{vcpu}");
        let (measured, simulated) = (of("measured", "wake_p99_ns"), of("simulated", "wake_p99_ns"));
        assert!((measured - simulated).abs() <= 0.05 * measured, "{vcpu}");
        let (measured, simulated) = (of("measured", "wake_ups"), of("simulated", "wake_ups"));
        assert!((measured - simulated).abs() <= 0.01 * measured, "{vcpu}");
    }
    let plain = vsteer(&["simulate", "--from", folder]);
    assert!(String::from_utf8_lossy(&plain.stdout).contains("simulated against measured: error of ready"));
}

#[test]
fn a_recording_tells_what_a_change_does_to_the_same_vms() {
    let dir = tempfile::tempdir().unwrap();
    let (_, folder) = &*RECORDED;
    // The same VMs with one VM's weight raised: forecast from the first recording, compared with the second.
    let heavier = MIXED.replace("name = \"timer\"", "name = \"timer\"\nweight = 400");
    let later = &recorded(dir.path(), "t", &heavier);
    let forecast = dir.path().join("u.vsteer");
    let forecast = forecast.to_str().unwrap();
    let out = json(&["simulate", "--from", folder, "--under", later, "--json", "-o", forecast]);
    let error = |of: &str, what: &str| out[of][what].as_f64().unwrap_or(f64::NAN);
    assert!(error("prediction", "ready") < 0.01 && error("prediction", "wake_p99") < 0.1, "{out}");
    assert!(error("prediction", "ready") < 0.5 * out["no_change_ready_error"].as_f64().unwrap(), "{out}");

    // The forecast is a recording too.
    let again = json(&["simulate", "--from", forecast, "--json"]);
    for (then, now) in vcpus_of(&out).iter().zip(vcpus_of(&again)) {
        let (then, now) = (&then["predicted"]["ready"], &now["measured"]["ready"]);
        assert!((then.as_f64().unwrap() - now.as_f64().unwrap()).abs() < 0.01, "{then} {now}");
    }
}

fn vcpus_of(out: &Value) -> &[Value] {
    out["vcpus"].as_array().unwrap()
}

/// In the shipped example, `diagnose` names the VMs that `plan` then helps, by their weights: every simulated VM has one.
#[test]
fn the_shipped_example_is_diagnosed_and_helped() {
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("n.vsteer");
    let (path, recording) = (scenario("noisy-neighbour.toml"), recording.to_str().unwrap());
    assert!(vsteer(&["simulate", path.to_str().unwrap(), "-o", recording]).status.success());
    let plan = json(&["plan", recording, "--json"]);
    let names = plan["steps"].as_array().unwrap().iter().map(|s| s["vm_name"].as_str().unwrap());
    let helped: Vec<&str> = names.collect();
    assert_eq!(helped.len(), 2, "{}", plan["title"]);
    assert!(plan["steps"].as_array().unwrap().iter().all(|s| s["change"]["setting"] == "weight"), "{plan}");
    let findings = json(&["diagnose", recording, "--json"]);
    for vm in helped {
        let named = findings["findings"]
            .as_array()
            .unwrap()
            .iter()
            .any(|f| f["title"].as_str().unwrap().contains(vm));
        assert!(named, "plan helps {vm}, and diagnose does not name it");
    }
    for forecast in plan["forecast"]["vms"].as_array().unwrap() {
        let (before, after) = (&forecast["run_before"], &forecast["run_after"]["likely"]);
        assert!(
            after.as_f64().unwrap() > 0.9 * before.as_f64().unwrap(),
            "somebody loses a tenth: {forecast}"
        );
    }
}

/// A workload of rt-app is simulated, recorded, written as a workload again and simulated again: every task gets the same
/// CPU time. The first task's share follows from its numbers: 2 ms of every 10 ms.
#[test]
fn a_workload_of_rt_app_goes_round() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let text = r#"{
        "global": { "duration": 4 }, /* two pCPUs */
        "tasks": {
            "timed": { "cpus": [0], "run": 2000, "timer": { "ref": "unique", "period": 10000 } },
            "sleeper": { "cpus": [0, 1], "run": 3000, "sleep": 7000 },
            "hog": { "cpus": [1], "run": 1000 },
        }
    }"#;
    std::fs::write(path("a.json"), text).unwrap();
    let first = json(&["simulate", &path("a.json"), "--json", "-o", &path("a.vsteer")]);
    let share = |out: &Value, vm: &str| figure(&out["points"][0], vm, "run");
    assert!((share(&first, "timed") - 0.2).abs() < 0.001, "{}", share(&first, "timed"));
    let out = vsteer(&["export", &path("a.vsteer"), "--to", "rt-app", "-o", &path("b.json")]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let second = json(&["simulate", &path("b.json"), "--json"]);
    for vm in ["timed", "sleeper", "hog"] {
        let (a, b) = (share(&first, vm), share(&second, &format!("{vm} vcpu0")));
        assert!((a - b).abs() < 0.01, "{vm}: {a}, then {b}");
    }
    let refused = text.replace("\"sleep\": 7000", "\"lock\": \"m\"");
    std::fs::write(path("c.json"), refused).unwrap();
    let out = vsteer(&["simulate", &path("c.json")]);
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(told.contains("line 5: tasks.sleeper.lock") && told.contains("mutex"), "{told}");
}
