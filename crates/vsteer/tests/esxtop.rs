//! Batch files of esxtop's by the command line: every command that reads a recording reads them, and `export` writes them.

#[path = "common/program.rs"]
mod program;

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Output;

fn vsteer(words: &[&str]) -> Output {
    program::vsteer().args(words).output().unwrap()
}

fn text(words: &[&str]) -> String {
    let out = vsteer(words);
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn json(words: &[&str]) -> Value {
    serde_json::from_str(&text(&[words, &["--json"]].concat())).unwrap()
}

/// Three VMs of eight vCPUs, each busy for a fifth of the time and ready for a fiftieth, on a host of 2 x 8 cores; one of them
/// is called what no program would be.
const NAMES: [&str; 3] = ["web", "it's \"2\", (x)\\", "db"];

fn batch(with_vcpus: bool) -> String {
    let mut columns: Vec<(String, &str)> = Vec::new();
    for (i, name) in NAMES.iter().enumerate() {
        let gid = 10 + i;
        let mut group =
            |counter: &str, value| columns.push((format!("Group Cpu({gid}:{name})\\{counter}"), value));
        group("Members", "17");
        group("% Run", "166.00");
        group("% Ready", "18.00");
        group("% CoStop", "1.00");
        group("% Max Limited", "0.00");
        group("% Wait", "1515.00");
        for v in 0..if with_vcpus { 8 } else { 0 } {
            let mut world = |counter: &str, value| {
                columns.push((
                    format!("Vcpu({gid}:{name}:{}:vmx-vcpu-{v}:{name})\\{counter}", 100 * gid + v),
                    value,
                ));
            };
            world("% Run", "20.00");
            world("% Ready", "2.00");
            world("% CoStop", "0.10");
            world("% Max Limited", "0.00");
            world("% Wait", "77.90");
        }
        columns.push((format!("Group Memory({gid}:{name})\\Numa % Local"), "60.00"));
    }
    columns
        .extend((0..16).map(|cpu| {
            (format!("Physical Cpu({cpu})\\% Util Time"), if cpu < 8 { "62.00" } else { "0.50" })
        }));
    let line = |cells: Vec<String>| {
        cells.iter().map(|c| format!("\"{}\"", c.replace('"', "\"\""))).collect::<Vec<_>>().join(",") + "\r\n"
    };
    let names = columns.iter().map(|(c, _)| format!("\\\\esx\\{c}"));
    let mut text = line(std::iter::once("(PDH-CSV 4.0) (UTC)(0)".to_owned()).chain(names).collect());
    for row in 0..13 {
        let values = columns.iter().map(|(_, v)| (*v).to_owned());
        text += &line(std::iter::once(format!("11/24/2026 08:00:{:02}", 3 * row)).chain(values).collect());
    }
    text
}

const HOST: &str = "esxi = \"7.0.2\"\nsockets = 2\ncores_per_socket = 8\nmemory_gib = 128\n";

fn folder(with_vcpus: bool) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("esxtop.csv");
    std::fs::write(&file, batch(with_vcpus)).unwrap();
    let vms: String = (0..3)
        .map(|i| format!("[[vm]]\ngid = {}\nvcpus = 8\nmemory_gib = 8\nhome_nodes = [0]\n", 10 + i))
        .collect();
    std::fs::write(folder.path().join("host.toml"), format!("{HOST}{vms}")).unwrap();
    (folder, file)
}

fn path(p: &Path) -> &str {
    p.to_str().unwrap()
}

#[test]
fn every_reader_reads_it_plain_and_compressed() {
    let (folder, file) = folder(true);
    let rows = text(&["replay", path(&file), "--interval", "3s"]);
    assert_eq!(rows.lines().count(), 1 + 12 * 3 * 10, "a header; 12 intervals of 3 groups, sums and 8 vCPUs");
    let gz = folder.path().join("esxtop.csv.gz");
    let mut to =
        flate2::write::GzEncoder::new(std::fs::File::create(&gz).unwrap(), flate2::Compression::fast());
    to.write_all(batch(true).as_bytes()).unwrap();
    to.finish().unwrap();
    assert_eq!(text(&["replay", path(&gz), "--interval", "3s"]), rows);
    assert_eq!(
        text(&["top", "-b", "-n", "1", "--interval", "3s", path(&file)]),
        rows.lines().take(31).map(|l| format!("{l}\n")).collect::<String>()
    );
    let html = folder.path().join("report.html");
    text(&["report", path(&file), "-o", path(&html)]);
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("Co-stop") && page.contains("powercli"));
}

/// The overload is named by the thresholds of the set that is exceeded, which says so, and by others where they are given.
#[test]
fn diagnosis_says_by_which_threshold() {
    let (_folder, file) = folder(true);
    let of = |words: &[&str]| -> Vec<String> {
        let all = json(&[&["diagnose", path(&file)], words].concat());
        let found =
            all["findings"].as_array().unwrap().iter().find(|f| f["rule"] == "node_overloaded").cloned();
        let evidence = found.map_or(Vec::new(), |f| f["evidence"].as_array().unwrap().clone());
        evidence.iter().map(|e| e["quantity"].as_str().unwrap().to_owned()).collect()
    };
    let count = |all: &[String], what: &str| all.iter().filter(|q| q.contains(what)).count();
    let usual = of(&[]);
    assert_eq!(
        (count(&usual, "per VM group (J. Park 2022)"), count(&usual, "per vCPU (published")),
        (3, 0),
        "{usual:?}"
    );
    let strict = of(&["--threshold", "ready_per_vcpu=1%", "--threshold", "ready_group=50%"]);
    assert_eq!(
        (count(&strict, "per VM group"), count(&strict, "ready per vCPU (published")),
        (0, 3),
        "{strict:?}"
    );
    // These VMs mostly sleep, so the threshold of those applies as well.
    assert!(of(&["--threshold", "ready_group=50", "--threshold", "ready_sleeper=50"]).is_empty());
    assert!(!vsteer(&["diagnose", path(&file), "--threshold", "redy=1"]).status.success());
    let all = json(&["diagnose", path(&file)]);
    assert!(all["findings"].as_array().unwrap().iter().any(|f| f["rule"] == "memory_remote"), "N%L is 60");
}

#[test]
fn the_plan_moves_and_prints_as_a_script() {
    let (folder, file) = folder(true);
    let out = folder.path().join("plan.json");
    let plan = json(&["plan", path(&file), "-o", path(&out)]);
    let steps = plan["steps"].as_array().unwrap();
    assert!(
        !steps.is_empty() && steps.iter().all(|s| s["change"]["setting"] == "node_affinity"),
        "{steps:?}"
    );
    assert!(plan["forecast"]["method"].as_str().unwrap().contains("relaxed co-scheduling"));
    assert!(plan["forecast"]["vms"][0]["costop_after"]["likely"].is_number());
    let script = text(&["plan", path(&file), "--format", "powercli"]);
    assert_eq!(script.matches("{ Set-Step ").count(), steps.len());
    let refused = vsteer(&["apply", path(&out), "--yes"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("powercli"));
}

/// Groups alone are enough for what is of groups; what is per vCPU is not made up.
#[test]
fn groups_alone_are_enough_for_the_nodes() {
    let (_folder, file) = folder(false);
    let all = json(&["diagnose", path(&file)]);
    assert_eq!(all["findings"][0]["rule"], "node_overloaded");
    assert_eq!(all["model"]["vms"][0]["vcpus"]["run"], Value::Null);
    let steps = json(&["plan", path(&file)])["steps"].as_array().unwrap().len();
    assert!(steps > 0);
    let verdict = text(&["verify", path(&file), path(&file)]);
    assert!(verdict.contains("no difference") && verdict.contains("18.0"), "{verdict}");
    let numa = json(&["numa", path(&file)]);
    assert_eq!(numa["nodes"]["nodes"][0]["has_room"], false);
    assert_eq!(numa["vms"][0]["own"]["shape"]["cores_per_socket"], 8);
}

/// Without home nodes nothing is said of nodes, but that they are not told.
#[test]
fn home_nodes_that_are_not_told_are_asked_for() {
    let (folder, file) = folder(true);
    std::fs::write(folder.path().join("host.toml"), HOST).unwrap();
    let all = json(&["diagnose", path(&file)]);
    let found: Vec<&Value> =
        all["findings"].as_array().unwrap().iter().filter(|f| f["rule"] == "node_overloaded").collect();
    assert_eq!(found.len(), 1);
    assert!(found[0]["next"].as_str().unwrap().contains("home_nodes"), "{found:?}");
    assert!(text(&["plan", path(&file)]).contains("write home_nodes into host.toml"));
}

#[test]
fn a_shape_that_is_only_described() {
    let words = [
        "numa",
        "--host",
        "2x18",
        "--vcpus",
        "12",
        "--memory",
        "200G",
        "--host-memory",
        "384G",
        "--esxi",
        "7.0.2",
    ];
    let a = &json(&words)["vms"][0];
    assert_eq!(
        (a["paper"]["cores_per_socket"].as_f64(), a["own"]["shape"]["sockets"].as_u64()),
        (Some(6.0), Some(2))
    );
    assert_eq!(a["exposed_now"]["nodes"], 1, "ESXi 7 looks at vCPUs alone");
    assert!(!vsteer(&["numa", "--host", "2x", "--vcpus", "1"]).status.success());
    assert!(!vsteer(&["numa", "--host", "2x8", "--vcpus", "1", "--esxi", "new"]).status.success());
}

/// What a simulation recorded opens as a batch file with the same shares, co-stop among them, within what two digits hold.
#[test]
fn a_recording_written_and_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("s.toml");
    std::fs::write(
        &scenario,
        "title = \"t\"\nfor = \"12s\"\nscheduler = { policy = \"esxi\" }\nmachine = { sockets = 1, cores_per_node = 3 }\n\
         [[vm]]\nname = \"a\"\nvcpus = 2\ndemand = \"hog\"\n[[vm]]\nname = \"b\"\nvcpus = 2\ndemand = \"hog\"\n",
    )
    .unwrap();
    let (rec, csv) = (folder.path().join("s.vsteer"), folder.path().join("s.csv"));
    text(&["simulate", path(&scenario), "-o", path(&rec)]);
    text(&["export", path(&rec), "--to", "esxtop", "-o", path(&csv)]);
    let model = |file: &Path| json(&["diagnose", path(file)])["model"]["vms"].as_array().unwrap().clone();
    let (before, after) = (model(&rec), model(&csv));
    assert_eq!(before.len(), 2);
    for (a, b) in before.iter().zip(&after) {
        assert_eq!(a["name"], b["name"]);
        for share in ["run", "ready", "costop", "limited", "blocked"] {
            let (a, b) = (a["vcpus"][share].as_f64().unwrap(), b["vcpus"][share].as_f64().unwrap());
            assert!((a - b).abs() < 5e-4, "{share}: {a} {b}");
        }
    }
    assert!(before.iter().any(|vm| vm["vcpus"]["costop"].as_f64().unwrap() > 0.01), "{before:?}");
    let again = vsteer(&["export", path(&rec), "--to", "esxtop", "-o", path(&csv)]);
    assert!(!again.status.success(), "nothing is overwritten");
}

#[test]
fn what_is_wrong_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("esxtop.csv");
    let fails = |content: &str, words: &str| {
        std::fs::write(&file, content).unwrap();
        let out = vsteer(&["diagnose", path(&file)]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && said.contains(words), "{said}");
    };
    let whole = batch(true);
    let header = whole.split_inclusive("\r\n").next().unwrap().to_owned();
    fails(&header, "0 complete rows");
    fails(&whole[..header.len() + 40], "ends inside this row");
    fails("\"(PDH-CSV 4.0) (UTC)(0)\",\"\\\\h\\Memory\\Free\"\r\n", "no VM");
    std::fs::write(folder.path().join("host.toml"), "sockets = 2\ncores_per_socket = 9\n").unwrap();
    fails(&whole, "18 pCPUs are described, but esxtop counted 16");
    std::fs::write(folder.path().join("host.toml"), "cores = 9\n").unwrap();
    fails(&whole, "host.toml");
}

/// A VM of two vCPUs on four pCPUs that are half busy. `ready` and `costop`: of each vCPU, %; `local`: of its memory.
fn half_busy(ready: &str, costop: &str, local: &str) -> tempfile::TempDir {
    let mut columns: Vec<(String, &str)> =
        (0..4).map(|cpu| (format!("Physical Cpu({cpu})\\% Util Time"), "50.00")).collect();
    for v in 0..2 {
        for (counter, value) in [
            ("Run", "30.00"),
            ("Ready", ready),
            ("CoStop", costop),
            ("Max Limited", "0.00"),
            ("Wait", "40.00"),
        ] {
            columns.push((format!("Vcpu(7:a:7{v}:vmx-vcpu-{v}:a)\\% {counter}"), value));
        }
    }
    columns.push(("Group Memory(7:a)\\Numa % Local".to_owned(), local));
    let quoted = |cells: Vec<String>| format!("\"{}\"\n", cells.join("\",\""));
    let names = columns.iter().map(|(name, _)| format!("\\\\h\\{name}"));
    let mut text = quoted(std::iter::once("(PDH-CSV 4.0) (UTC)(0)".to_owned()).chain(names).collect());
    for second in [0, 5, 10] {
        let values = columns.iter().map(|(_, value)| (*value).to_owned());
        text += &quoted(std::iter::once(format!("11/24/2026 08:00:{second:02}")).chain(values).collect());
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("host.csv"), text).unwrap();
    folder
}

/// Half of the host idles, and no rule knows why the VM waits: it is named all the same.
#[test]
fn a_vm_above_a_threshold_is_named_though_the_cause_is_unknown() {
    for (ready, costop, local, rule, says) in [
        ("20.00", "0.00", "100.00", "over_threshold", "VM \"a\" waits for a pCPU"),
        ("0.00", "20.00", "100.00", "over_threshold", "VM \"a\" is co-stopped"),
        ("0.00", "0.00", "30.00", "memory_remote", "70 % of its memory"),
    ] {
        for topology in ["", "sockets = 2\ncores_per_socket = 2\n"] {
            let folder = half_busy(ready, costop, local);
            if !topology.is_empty() {
                std::fs::write(folder.path().join("host.toml"), topology).unwrap();
            }
            let found = json(&["diagnose", path(&folder.path().join("host.csv"))]);
            let first = &found["findings"][0];
            let of_waits = found["findings"].as_array().unwrap().iter().any(|f| f["rule"] == rule);
            assert!(of_waits, "{rule}: {found}");
            if topology.is_empty() {
                assert_eq!(first["rule"], rule, "{found}");
                assert!(first["title"].as_str().unwrap().contains(says), "{first}");
            }
            let all = found["findings"].to_string();
            assert!(!all.contains("nothing_wrong"), "{all}");
        }
    }
    // Below its thresholds it is not named; and `--threshold` reaches them.
    let folder = half_busy("0.80", "0.00", "100.00");
    let file = folder.path().join("host.csv");
    assert!(text(&["diagnose", path(&file)]).contains("no VM waits for a CPU"));
    let lower = text(&["diagnose", "--threshold", "ready_per_vcpu=0.5%", path(&file)]);
    assert!(lower.contains("VM \"a\" waits for a pCPU") && lower.contains("compared with 0.50 %"), "{lower}");
    // What was not measured is one line, and its reasons are asked for.
    assert_eq!(lower.lines().filter(|line| line.starts_with("not measured")).count(), 1);
    assert!(!lower.contains("esxtop does not count it"), "{lower}");
    let why = text(&["diagnose", "--why", path(&file)]);
    assert!(why.contains("lag_ns: esxtop does not count it"), "{why}");
}
