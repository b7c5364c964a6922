//! Names of VMs that act on a terminal, a spreadsheet or a page: does any command print one raw, or make two names one?
//!
//! A tenant chooses a VM's name. The names are drawn from what has a meaning somewhere: control characters, escape
//! sequences, writing directions, line ends, formulas, HTML, quotes. Many names differ only in such characters. Every
//! command that prints names gets all of them.
//!
//! Left out: files for programs (Parquet, esxtop, the recording in a zip), which keep names exactly; bytes that are not
//! UTF-8, because a recording cannot hold them.

#[path = "common/program.rs"]
mod program;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use vsteer_core::CpuSet;
use vsteer_core::nouns::*;
use vsteer_core::topology::{Parts, Topology};
use vsteer_core::visible::{acts, line};
use vsteer_record::{FORMAT, Manifest, Writer};

/// Begins a line of its own if a line end in a name is printed raw.
const FORGED: &str = "FORGED";

/// `n` distinct names.
fn names(n: usize) -> Vec<String> {
    const PIECES: [&str; 26] = [
        "\u{1b}[2J",
        "\u{1b}]0;title\u{7}",
        "\u{9b}31m",
        "\u{90}q",
        "\u{202e}",
        "\u{2066}",
        "\u{200b}",
        "\u{feff}",
        "\u{e0041}",
        "\0",
        "\u{7f}",
        "\r",
        "\t",
        "\nFORGED",
        "\u{2028}",
        "=cmd|' /C calc'!A0",
        "+1",
        "-1",
        "@x",
        "<script>alert(1)</script>",
        "&amp;",
        "\"",
        "'",
        "\\u{1b}",
        ",",
        "ü",
    ];
    // A fixed sequence (Knuth's MMIX generator), so that a failure happens again.
    let mut state = 7u64;
    let mut below = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let mut all = BTreeSet::from([String::new(), "x".repeat(5_000), "=".to_owned(), "-".to_owned()]);
    while all.len() < n {
        let pieces = 1 + below(5);
        all.insert((0..pieces).map(|_| PIECES[below(PIECES.len())]).collect());
    }
    all.into_iter().collect()
}

/// A recording of 5 s of one VM for each name, all of which wait for a pCPU.
fn record(folder: &Path, names: &[String]) {
    let cpus = CpuSet::first(4);
    let parts =
        Parts { present: cpus.clone(), online: cpus.clone(), allowed: cpus.clone(), ..Parts::default() };
    let vm = |(i, name): (usize, &String)| VmConfig {
        threads: vec![VmThread {
            tid: Tid(1_000 + i as u32),
            role: Role::Vcpu(0),
            affinity: cpus.clone(),
            class: None,
            cgroup: None,
            prefers: None,
            reserved: None,
        }],
        ..VmConfig::new(VmId(format!("id-{i}").into()), name.clone(), 1_000 + i as u32)
    };
    let config = HostConfig {
        cgroups: CgroupLayout::V2,
        vms: names.iter().enumerate().map(vm).collect(),
        ..HostConfig::new("h\u{1b}]0;host\u{7}", "6.18", Topology::new(parts).unwrap())
    };
    let manifest = Manifest {
        format: FORMAT,
        vsteer: "0".into(),
        hostname: config.hostname.clone(),
        fingerprint: config.fingerprint(),
        mono_ns: 0,
        unix_ns: 1_700_000_000_000_000_000,
        collector: Collector { name: "ebpf\u{1b}[2J".into(), missing: Default::default() },
    };
    let mut writer = Writer::create(folder, &manifest, &config, None).unwrap();
    for s in 1..=5u64 {
        let ns = s * 1_000_000_000;
        let thread = |vm: &VmConfig| ThreadSample {
            vm: vm.id.clone(),
            role: Role::Vcpu(0),
            tid: vm.threads[0].tid,
            last_cpu: None,
            waiting_ns: None,
            counters: ThreadCounters {
                run_ns: Some(ns / 4),
                wait_ns: Some(ns / 2),
                ready_ns: Some(ns / 2),
                ..ThreadCounters::default()
            },
        };
        let batch = Batch {
            mono_ns: ns,
            unix_ns: manifest.unix_ns + ns,
            threads: config.vms.iter().map(thread).collect(),
            ..Batch::default()
        };
        writer.append(&batch, &config).unwrap();
    }
    writer.finish().unwrap();
}

/// A scenario with one VM for each name.
fn scenario(names: &[String]) -> String {
    let toml = |name: &str| name.chars().map(|c| format!("\\U{:08x}", c as u32)).collect::<String>();
    let vms: String = names
        .iter()
        .filter(|name| !name.is_empty())
        .map(|name| format!("[[vm]]\nname = \"{}\"\ndemand = \"hog\"\n", toml(name)))
        .collect();
    format!(
        "title = \"{}\"\nfor = \"50ms\"\nscheduler = {{ policy = \"credit2\" }}\nmachine = {{ cores_per_node = 2 }}\n{vms}",
        toml("t\u{1b}[2J")
    )
}

struct Place(tempfile::TempDir);

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// What a command prints, on both streams; nothing in it acts. `ends`: how it may end.
    fn prints(&self, words: &[&str], ends: &[i32]) -> String {
        let mut c = program::vsteer();
        let out = c
            .args(words)
            .current_dir(self.0.path())
            .env("VSTEER_STATE", self.path("state"))
            .output()
            .unwrap();
        let told = String::from_utf8(out.stderr).unwrap();
        quiet(&format!("{words:?}, stderr"), &told);
        assert!(out.status.code().is_some_and(|c| ends.contains(&c)), "{words:?}: {:?} {told}", out.status);
        let text = String::from_utf8(out.stdout).unwrap();
        quiet(&format!("{words:?}"), &text);
        text
    }

    fn reads(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.path(name)).unwrap();
        quiet(name, &text);
        text
    }
}

/// No character of a text acts on a terminal, and no name begins a line.
fn quiet(what: &str, text: &str) {
    for line in text.split('\n') {
        assert!(!line.contains(acts), "{what} prints {line:?}");
        assert!(!line.trim_start().starts_with(FORGED), "{what}: a name begins the line {line:?}");
    }
}

/// The cells of one column of CSV, exactly as written, quotes included. Only for files whose cells contain no line ends.
fn column(text: &str, n: usize) -> Vec<String> {
    let cells = |line: &str| {
        let (mut cells, mut quoted) = (vec![String::new()], false);
        for c in line.chars() {
            match c {
                ',' if !quoted => cells.push(String::new()),
                c => {
                    quoted ^= c == '"';
                    cells.last_mut().unwrap().push(c);
                }
            }
        }
        cells.swap_remove(n)
    };
    text.lines().skip(1).map(cells).collect()
}

fn distinct(what: &str, found: impl IntoIterator<Item = String>, n: usize) {
    let found: BTreeSet<String> = found.into_iter().collect();
    assert_eq!(found.len(), n, "{what}: distinct names");
    let content = |cell: &String| cell.strip_prefix('"').unwrap_or(cell).to_owned();
    let formula = found.iter().map(content).find(|text| text.starts_with(['=', '+', '-', '@']));
    assert!(!what.contains("csv") || formula.is_none(), "{what}: {formula:?}");
}

/// A name as a page shows it.
fn html(name: &str) -> String {
    let line = line(name).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    line.replace('"', "&quot;").replace('\'', "&#39;")
}

fn strings(value: &serde_json::Value, key: &str, found: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(map) => map.iter().for_each(|(k, v)| match v {
            serde_json::Value::String(s) if k == key => {
                found.insert(s.clone());
            }
            v => strings(v, key, found),
        }),
        serde_json::Value::Array(all) => all.iter().for_each(|v| strings(v, key, found)),
        _ => {}
    }
}

/// Commands that only list.
fn listed(names: &[String]) {
    let p = Place(tempfile::tempdir().unwrap());
    record(&p.path("r.vsteer"), names);
    let rows = p.prints(&["replay", "r.vsteer"], &[0]);
    distinct("csv of replay", column(&rows, 1), names.len());
    let rows = p.prints(&["top", "-b", "-n", "1", "r.vsteer"], &[0]);
    distinct("csv of top", column(&rows, 1), names.len());
    let told = p.prints(&["replay", "r.vsteer", "--json"], &[0]);
    let mut found = BTreeSet::new();
    told.lines().for_each(|line| strings(&serde_json::from_str(line).unwrap(), "name", &mut found));
    assert!(names.iter().all(|name| found.contains(name)), "JSON keeps names exactly");
    p.prints(&["export", "r.vsteer", "--to", "csv", "-o", "csv"], &[0]);
    for entry in std::fs::read_dir(p.path("csv")).unwrap() {
        p.reads(&format!("csv/{}", entry.unwrap().file_name().to_string_lossy()));
    }
    p.prints(&["export", "r.vsteer", "--to", "perfetto", "-o", "trace"], &[0]);
    let trace = String::from_utf8_lossy(&std::fs::read(p.path("trace")).unwrap()).into_owned();
    assert!(!trace.contains("\u{1b}[2J") && !trace.contains('\u{202e}') && trace.contains("\\u{1b}[2J"));
    p.prints(&["export", "r.vsteer", "--to", "zip", "-o", "zip"], &[0]);
}

/// Commands that compute.
fn computed(names: &[String]) {
    let p = Place(tempfile::tempdir().unwrap());
    record(&p.path("r.vsteer"), names);
    p.prints(&["diagnose", "r.vsteer"], &[0]);
    p.prints(&["diagnose", "r.vsteer", "--json"], &[0]);
    p.prints(&["numa", "r.vsteer"], &[0, 3, 6]);
    p.prints(&["plan", "r.vsteer"], &[0]);
    // What `--set` can name: its words end at `=` and cannot hold a zero byte.
    let typed = names.iter().filter(|n| !n.is_empty() && !n.contains(['=', '\0', '-']));
    let set: Vec<String> = typed.take(20).map(|n| format!("{n}:pin=0")).collect();
    let typed: Vec<&str> = set.iter().flat_map(|s| ["--set", s]).collect();
    p.prints(&[&["plan", "r.vsteer", "-o", "plan.json"][..], &typed].concat(), &[0]);
    p.prints(&["apply", "plan.json"], &[0, 3, 4, 6, 7]);
    p.prints(&["apply", "plan.json", "--json"], &[0, 3, 4, 6, 7]);
    p.prints(&["report", "r.vsteer", "-o", "report.html"], &[0]);
    let page = p.reads("report.html");
    let shown = page.split("<bdi>").skip(1).filter_map(|rest| rest.split_once("</bdi>"));
    let shown: BTreeSet<&str> = shown.map(|(name, _)| name).collect();
    let expected: BTreeSet<String> = names.iter().map(|name| html(name)).collect();
    assert_eq!(expected.len(), names.len());
    let lacking = expected.iter().find(|name| !shown.contains(name.as_str()));
    assert!(lacking.is_none(), "the report lacks {lacking:?}");
    std::fs::write(p.path("s.toml"), scenario(names)).unwrap();
    let told = p.prints(&["simulate", "s.toml"], &[0]);
    assert!(told.contains("\\u{1b}"));
    p.prints(&["simulate", "s.toml", "--json"], &[0]);
}

#[test]
fn no_name_acts_and_distinct_names_stay_distinct() {
    let names = names(300);
    listed(&names);
    computed(&names[..60]);
}

/// 4,000 of them, or as many as `VSTEER_HOSTILE_NAMES` says.
#[test]
#[ignore = "takes a minute: it runs 200 commands"]
fn the_same_with_thousands_of_names() {
    let count = std::env::var("VSTEER_HOSTILE_NAMES").ok().and_then(|n| n.parse().ok());
    let names = names(count.unwrap_or(4_000));
    names.chunks(5_000).for_each(listed);
    names.chunks(200).for_each(computed);
}
