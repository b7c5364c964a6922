//! Do the crates depend on each other as designed, and does the core stay pure?
//!
//! The edges are what makes the design hold: the simulator can only be what live code is tested on while the core sees
//! no file and no clock. Asked of cargo itself, so that renamed or target-specific dependencies count too. Licences are
//! deny.toml's part.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Which of ours each may depend on. A crate that is not here has no edge.
const EDGES: &[(&str, &[&str])] = &[
    ("vsteer-core", &[]),
    ("vsteer-sim", &["vsteer-core"]),
    ("vsteer-sla", &["vsteer-core", "vsteer-sim"]),
    ("vsteer-experiment", &["vsteer-core"]),
    ("vsteer-record", &["vsteer-core"]),
    ("vsteer-bpf", &["vsteer-core"]),
    ("vsteer-host", &["vsteer-core", "vsteer-record", "vsteer-bpf"]),
    ("vsteer-act", &["vsteer-core", "vsteer-sla", "vsteer-experiment", "vsteer-record", "vsteer-host"]),
    (
        "vsteer",
        &[
            "vsteer-core",
            "vsteer-sim",
            "vsteer-sla",
            "vsteer-experiment",
            "vsteer-record",
            "vsteer-host",
            "vsteer-act",
        ],
    ),
    ("vsteer-serve", &["vsteer-core", "vsteer-sim", "vsteer-record", "vsteer-host"]),
    ("vsteer-lab", &["vsteer-core", "vsteer-sim", "vsteer-experiment", "vsteer-record"]),
    ("vsteer-display", &["vsteer-core"]),
    ("vsteer-guest", &[]),
    ("vsteer-vit", &[]),
    ("vsteer-libvirt", &[]),
    ("vsteer-tally", &[]),
    (
        "vsteer-fuzz",
        &[
            "vsteer-core",
            "vsteer-sim",
            "vsteer-sla",
            "vsteer-experiment",
            "vsteer-record",
            "vsteer-host",
            "vsteer-act",
        ],
    ),
];

/// All that the core may depend on.
const OF_CORE: [&str; 3] = ["libm", "serde", "thiserror"];

/// Package -> what it depends on when it is built for use, not for tests.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--manifest-path"])
        .arg(manifest);
    let output = cargo.output().expect("cargo runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |v: &serde_json::Value| v.as_str().unwrap().to_owned();
    let packages = all["packages"].as_array().unwrap().iter().map(|p| {
        let normal = p["dependencies"].as_array().unwrap().iter().filter(|d| d["kind"].is_null());
        (text(&p["name"]), normal.map(|d| text(&d["name"])).collect())
    });
    packages.collect()
}

#[test]
fn crates_depend_on_each_other_as_designed() {
    let found = dependencies();
    assert!(found.len() > 5, "{found:?}");
    for (name, all) in &found {
        let allowed = EDGES.iter().find(|(n, _)| n == name).map(|(_, a)| *a);
        let allowed = allowed.unwrap_or_else(|| panic!("crate {name} has no edges in this test: add it"));
        let ours: Vec<&String> = all.iter().filter(|d| d.starts_with("vsteer")).collect();
        for edge in ours {
            assert!(allowed.contains(&edge.as_str()), "{name} may not depend on {edge}, only on {allowed:?}");
        }
    }
}

#[test]
fn the_core_depends_on_three_crates() {
    let found: Vec<String> = dependencies()["vsteer-core"].iter().cloned().collect();
    assert_eq!(found, OF_CORE);
}

/// Package and features, a line each, of what cargo builds for the crates that `selection` names.
fn features(selection: &[&str]) -> BTreeSet<String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--offline", "--locked", "--prefix", "none"]);
    if !selection.contains(&"-e") {
        cargo.args(["-e", "normal,build,dev"]);
    }
    cargo.args(["-f", "{p} [{f}]", "--manifest-path"]).arg(manifest).args(selection);
    // From inside a crate, cargo selects that crate in place of the default members.
    cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    let output = cargo.output().expect("cargo runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

/// cargo unifies features over the crates that one command selects. If the whole workspace asks for more of a
/// dependency than the main tool does, each of `make check` and `make test` builds again what the other has built.
#[test]
fn the_main_tool_and_the_workspace_choose_the_same_features() {
    let (main_tool, workspace) = (features(&[]), features(&["--workspace"]));
    assert!(main_tool.len() > 100 && main_tool.len() < workspace.len());
    let apart: Vec<&String> = main_tool.difference(&workspace).collect();
    assert!(apart.is_empty(), "the workspace asks for other features of {apart:#?}");
}

/// What observes or changes hosts, and what that needs of Linux. rustix is not here: clap asks it for the
/// terminal's width.
const OF_HOSTS: [&str; 6] = ["vsteer-host", "vsteer-act", "vsteer-bpf", "libbpf-sys", "perf-event", "rustls"];

#[test]
fn what_reads_files_is_built_without_hosts() {
    let names = |selection: &[&str]| -> BTreeSet<String> {
        let name = |line: &String| line.split(' ').next().unwrap_or_default().to_owned();
        features(selection).iter().map(name).collect()
    };
    let all = names(&["-p", "vsteer", "-e", "normal"]);
    let files_only = names(&["-p", "vsteer", "--no-default-features", "-e", "normal"]);
    for of_hosts in OF_HOSTS {
        assert!(all.contains(of_hosts), "{of_hosts} is not in vsteer: this list is out of date");
        assert!(!files_only.contains(of_hosts), "without hosts, vsteer still depends on {of_hosts}");
    }
}

/// A call that asks the machine for something. In tests they are allowed.
const IMPURE: [&str; 9] = [
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "Instant::now",
    "SystemTime",
    "HashMap",
    "HashSet",
];

/// Crates whose results depend on their arguments alone.
const PURE: [&str; 4] = ["vsteer-core", "vsteer-sim", "vsteer-sla", "vsteer-experiment"];

#[test]
fn pure_crates_ask_the_machine_for_nothing() {
    let mut files = Vec::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut folders: Vec<_> = PURE.iter().map(|name| crates.join(name).join("src")).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    assert!(files.len() > 100);
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or("");
        let lines = code.lines().filter(|l| !l.trim_start().starts_with("//"));
        for (line, word) in lines.flat_map(|l| IMPURE.iter().map(move |w| (l, w))) {
            assert!(!line.contains(word) || path.ends_with("tests.rs"), "{}: {line}", path.display());
        }
    }
}
