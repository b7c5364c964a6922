//! Does the topology read from captured trees of real machines equal what hwloc's `lstopo` says of them?
//!
//! hwloc's source carries such trees (`tests/hwloc/linux/*.tar.bz2` and `allowed/` below it: 2 to 256 CPUs, sparse and
//! buggy NUMA, offline CPUs, cgroup masks, Arm, Itanium, POWER, s390). To run it on Debian, with the packages hwloc,
//! bzip2 and dpkg-dev and a `deb-src` line among the sources:
//!
//! ```sh
//! apt-get source --download-only hwloc && tar xf hwloc_*.orig.tar.bz2
//! VSTEER_HWLOC_TREES=hwloc-2.9.0/tests/hwloc cargo test -p vsteer-host --test hwloc_trees -- --ignored --nocapture
//! ```
//!
//! `lstopo` is asked for everything: disallowed CPUs and nodes (`--disallowed`), every object (`--filter all:all`) and
//! the memory of NVIDIA GPUs (`HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES=1`, as its own `nvidiagpunumanodes.kept.env` has it).
//! Compared are: online, offline and allowed CPUs; packages, cores, dies, clusters, books, drawers with number and
//! CPUs; caches per level and kind with CPUs and size; nodes with CPUs, memory, distances and whether allowed; CPU
//! capacities. What vsteer marks as assumed is not in the comparison, since hwloc supposes nothing there.
//! `fakeheterocpunuma` is read without its own `.env`, which makes hwloc accept nodes that share CPUs (for debugging
//! hwloc: "impossible on Linux so far"); both leave such nodes out. `allowed/test1` holds a cgroup alone and is laid
//! over a synthetic machine, as hwloc's own test does.
//!
//! Different, and why (hwloc 2.9.0, `hwloc/topology-linux.c`); nothing else may differ in these trees:
//! - `64intel64-fakeKNL-A2A-cache` and `64intel64-fakeKNL-SNC4-hybrid`: hwloc shows Knights Landing's memory-side
//!   cache as a level 3 cache (`hwloc_linux_knl_add_cluster`, line 3295, of a file in `/var/run` that hwloc's own
//!   `hwloc-dump-hwdata` wrote). It lies before the memory and not between cores: no last-level cache in the sense of
//!   placement. In the second one hwloc also drops the distances that the kernel gives (`look_sysfsnode`, line 4117).
//! - `nvidiagpunumanodes`: the cgroup's `cpuset.effective_cpus` and `effective_mems` are narrower than its
//!   `cpuset.cpus` and `mems`. The kernel enforces the effective ones (`kernel/cgroup/cpuset.c`,
//!   `guarantee_online_cpus`); hwloc reads the others (`hwloc_admin_disable_set_from_cgroup`, line 2422).

use roxmltree::{Document, Node, ParsingOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use vsteer_core::topology::{CacheKind, GroupKind};
use vsteer_core::{CpuSet, Topology};
use vsteer_host::linux::cpuset::{self, Process};
use vsteer_host::linux::topology;
use vsteer_host::root::Root;

/// The variable that names the folder of the trees.
const VARIABLE: &str = "VSTEER_HWLOC_TREES";
/// How many trees hwloc 2.9.0 has under `tests/hwloc/linux`.
const TREES_MIN: usize = 48;
/// Trees that differ, the aspect in which they may, and how many lines vsteer must say there: see the module for why.
const KNOWN: [(&str, &str, usize); 5] = [
    ("64intel64-fakeKNL-A2A-cache", "L3 unified", 0),
    ("64intel64-fakeKNL-SNC4-hybrid", "L3 unified", 0),
    ("64intel64-fakeKNL-SNC4-hybrid", "distances", 64),
    ("nvidiagpunumanodes", "allowed", 16),
    ("nvidiagpunumanodes", "nodes allowed", 1),
];

/// What is compared: per aspect, the things said, each as a line.
type Facts = BTreeMap<String, BTreeSet<String>>;

#[test]
#[ignore = "needs VSTEER_HWLOC_TREES: the folder of hwloc's captured machines (the file's head says how)"]
fn topologies_equal_those_of_hwloc() {
    let folder = std::env::var_os(VARIABLE).expect("VSTEER_HWLOC_TREES names hwloc's tests/hwloc folder");
    let mut tarballs = Vec::new();
    find_tarballs(Path::new(&folder), 3, &mut tarballs);
    tarballs.sort();
    let (mut equal, mut known, mut wrong) = (0, Vec::new(), Vec::new());
    for tarball in tarballs {
        let name = tarball.file_name().unwrap_or_default().to_string_lossy().replace(".tar.bz2", "");
        let scratch = extracted(&tarball);
        let Some(tree) = captured_tree(scratch.path()) else { continue };
        let (ours, theirs, summary) = match tree.join("sys").is_dir() {
            true => both_of_a_machine(&tree),
            false => both_of_a_cgroup(&tree, &tarball),
        };
        let differences = differences(&ours, &theirs);
        let said = |aspect: &str| ours.get(aspect).map_or(0, BTreeSet::len);
        let excused = |aspect: &&String| KNOWN.contains(&(name.as_str(), aspect.as_str(), said(aspect)));
        let unexcused = differences.keys().filter(|a| !excused(a)).count();
        match (differences.len(), unexcused) {
            (0, _) => {
                println!("equal   {name}: {summary}");
                equal += 1;
            }
            (_, 0) => {
                println!(
                    "known   {name}: {summary}; differs in {:?}",
                    differences.keys().collect::<Vec<_>>()
                );
                known.push(name);
            }
            _ => {
                println!("DIFFERS {name}: {summary}");
                differences.values().for_each(|d| println!("{d}"));
                wrong.push(name);
            }
        }
    }
    let found = equal + known.len() + wrong.len();
    let version = run(Command::new("lstopo").arg("--version"));
    println!(
        "{equal} of {found} trees equal to {}, {} known differences {known:?}, {} unexpected {wrong:?}",
        version.trim(),
        known.len(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "unexpected differences: {wrong:?}");
    assert!(found >= TREES_MIN, "{found} trees found under {VARIABLE}, expected at least {TREES_MIN}");
}

fn find_tarballs(folder: &Path, depth: u32, tarballs: &mut Vec<PathBuf>) {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{VARIABLE}: {}: {e}", folder.display()));
    for path in entries.map(|e| e.unwrap().path()) {
        if path.is_dir() && depth > 0 {
            find_tarballs(&path, depth - 1, tarballs);
        } else if path.to_string_lossy().ends_with(".tar.bz2") {
            tarballs.push(path);
        }
    }
}

/// The tarball's files, in memory where it has room: thousands of small files take a disk many times longer.
fn extracted(tarball: &Path) -> tempfile::TempDir {
    for folder in [PathBuf::from("/dev/shm"), std::env::temp_dir()] {
        let Ok(scratch) = tempfile::tempdir_in(&folder) else { continue };
        let mut tar = Command::new("tar");
        tar.arg("xjf").arg(tarball).arg("-C").arg(scratch.path());
        if tar.stderr(std::process::Stdio::null()).status().is_ok_and(|s| s.success()) {
            return scratch;
        }
    }
    panic!("tar xjf {} fails: is it whole, is bzip2 installed, is there room?", tarball.display());
}

/// The one folder in a tarball, if it holds files of a Linux machine (others hold CPUID dumps).
fn captured_tree(scratch: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(scratch).unwrap().map(|e| e.unwrap().path());
    let mut trees = entries.flat_map(|tree| [tree.join("fsroot"), tree]);
    trees.find(|tree| tree.join("sys").is_dir() || tree.join("proc").is_dir())
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn lstopo() -> Command {
    let mut command = Command::new("lstopo");
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("HWLOC_")) {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C").env("HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES", "1");
    command.args(["--disallowed", "--filter", "all:all", "--filter", "io:none", "--of", "xml"]);
    command
}

fn both_of_a_machine(tree: &Path) -> (Facts, Facts, String) {
    let read = || topology::read(&Root::open(tree).unwrap()).unwrap();
    let machine = read();
    let xml = run(lstopo().args(["--if", "fsroot", "--input"]).arg(tree));
    let (mut ours, mut theirs) = (facts(&machine), facts_of_xml(&xml));
    if tree.join("proc/device-tree/cpus").is_dir() {
        // Real firmware beside sysfs: the fallback must say what sysfs said.
        run(Command::new("sh")
            .arg("-c")
            .arg(r#"rm -r "$1"/sys/devices/system/cpu/cpu*/*"#)
            .arg("sh")
            .arg(tree));
        let rest = read();
        let of_tree = facts_of_parts(&rest, true);
        for (aspect, lines) in facts_of_parts(&machine, true) {
            let same = of_tree.get(&aspect) == Some(&lines);
            theirs.entry("device tree as sysfs".into()).or_default().insert(format!("{aspect}: true"));
            ours.entry("device tree as sysfs".into()).or_default().insert(format!("{aspect}: {same}"));
        }
    }
    let summary = format!(
        "{} packages, {} nodes, {} caches, {} cores, {} threads, {} offline, {} usable; {} oddities",
        machine.packages().len(),
        machine.nodes().len(),
        machine.caches().len(),
        machine.cores().len(),
        machine.online().len(),
        machine.offline().len(),
        machine.usable().len(),
        machine.oddities().len()
    );
    // What is stored must be what was read.
    let stored = serde_json::to_string(&machine).unwrap();
    assert_eq!(
        serde_json::from_str::<Topology>(&stored).unwrap(),
        machine,
        "{} does not round-trip",
        tree.display()
    );
    (ours, theirs, summary)
}

fn both_of_a_cgroup(tree: &Path, tarball: &Path) -> (Facts, Facts, String) {
    let bounds = cpuset::bounds(&Root::open(tree).unwrap(), Process::Current);
    let synthetic = tarball.to_string_lossy().replace(".fsroot.tar.bz2", ".synthetic");
    let machine = std::fs::read_to_string(&synthetic).unwrap_or_else(|e| panic!("{synthetic}: {e}"));
    let mut command = lstopo();
    command
        .env("HWLOC_THISSYSTEM", "1")
        .env("HWLOC_THISSYSTEM_ALLOWED_RESOURCES", "1")
        .env("HWLOC_FSROOT", tree);
    let theirs = facts_of_xml(&run(command.args(["--if", "synthetic", "--input", machine.trim()])));
    let all: CpuSet = theirs["online"].iter().map(|c| c.parse::<u32>().unwrap()).collect();
    let allowed = bounds.cpus.unwrap_or_default().intersection(&all);
    let mut ours = Facts::new();
    ours.insert("allowed".into(), allowed.iter().map(|c| c.to_string()).collect());
    ours.insert("nodes allowed".into(), bounds.nodes.unwrap().iter().map(|n| n.to_string()).collect());
    let theirs = theirs.into_iter().filter(|(aspect, _)| ours.contains_key(aspect)).collect();
    (ours, theirs, format!("a cgroup of {} CPUs", allowed.len()))
}

/// Per aspect that differs, what only one of the two says.
fn differences(ours: &Facts, theirs: &Facts) -> BTreeMap<String, String> {
    let aspects: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let empty = BTreeSet::new();
    let of = |aspect: &String| (ours.get(aspect).unwrap_or(&empty), theirs.get(aspect).unwrap_or(&empty));
    let differing = aspects.into_iter().filter(|a| of(a).0 != of(a).1);
    let shown = differing.map(|aspect| {
        let (a, b) = of(aspect);
        let only = |x: &BTreeSet<String>, y: &BTreeSet<String>| {
            x.difference(y).cloned().collect::<Vec<_>>().join("; ")
        };
        (
            aspect.clone(),
            format!("    {aspect}\n      vsteer alone: {}\n      lstopo alone: {}", only(a, b), only(b, a)),
        )
    });
    shown.collect()
}

fn id(id: Option<u32>) -> String {
    id.map_or("?".into(), |n| n.to_string())
}

fn facts(machine: &Topology) -> Facts {
    let mut facts = facts_of_parts(machine, false);
    let mut say = |aspect: &str, line: String| facts.entry(aspect.into()).or_default().insert(line);
    for thread in machine.threads() {
        say(if thread.online { "online" } else { "offline" }, thread.cpu.to_string());
        if thread.online && thread.allowed {
            say("allowed", thread.cpu.to_string());
        }
    }
    for package in machine.packages().iter().filter(|p| !p.assumed) {
        say("packages", format!("{}: {}", id(package.id), package.cpus));
    }
    for group in machine.groups() {
        let kind = match group.kind {
            GroupKind::Drawer => "drawers",
            GroupKind::Book => "books",
            GroupKind::Die => "dies",
            GroupKind::Cluster => "clusters",
        };
        // hwloc merges a group into whatever has the same CPUs; a die stays.
        let merged = machine.caches().iter().any(|c| c.cpus == group.cpus);
        if group.kind == GroupKind::Die || !merged {
            say(kind, format!("{}: {}", id(group.id), group.cpus));
        }
    }
    for core in machine.cores() {
        if let Some(capacity) = core.capacity {
            core.cpus.iter().for_each(|cpu| _ = say("capacities", format!("{cpu}: {capacity}")));
        }
    }
    for node in machine.nodes() {
        let memory = node.memory_bytes.unwrap_or(0);
        say("nodes", format!("{}: CPUs {}, {memory} bytes", node.id, node.nearest_cpus));
        if node.allowed {
            say("nodes allowed", node.id.to_string());
        }
        if machine.nodes().len() > 1 {
            for (to, distance) in node.distances.iter().filter(|(to, _)| machine.node(**to).is_some()) {
                say("distances", format!("{} to {to}: {distance}", node.id));
            }
        }
    }
    facts
}

/// Cores and caches; with `assumed` ones, and then without the numbers that only sysfs gives.
fn facts_of_parts(machine: &Topology, assumed: bool) -> Facts {
    let mut facts = Facts::new();
    for core in machine.cores().iter().filter(|c| assumed || !c.assumed) {
        let line = if assumed { core.cpus.to_string() } else { format!("{}: {}", id(core.id), core.cpus) };
        facts.entry("cores".into()).or_default().insert(line);
    }
    for cache in machine.caches() {
        let kind = match cache.kind {
            CacheKind::Data => "data",
            CacheKind::Instruction => "instruction",
            CacheKind::Unified => "unified",
        };
        let line = format!("{}: {} bytes", cache.cpus, cache.size_bytes.unwrap_or(0));
        facts.entry(format!("L{} {kind}", cache.level)).or_default().insert(line);
    }
    facts
}

fn facts_of_xml(xml: &str) -> Facts {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document = Document::parse_with_options(xml, options).unwrap();
    let mut facts = Facts::new();
    let mut say = |aspect: &str, line: String| facts.entry(aspect.into()).or_default().insert(line);
    let objects = || document.descendants().filter(|n| n.has_tag_name("object"));
    let set = |object: &Node, name: &str| bitmap(object.attribute(name).unwrap_or("0x0"));
    let number = |object: &Node| object.attribute("os_index").unwrap_or("?").replace("4294967295", "?");
    for object in objects() {
        let cpus = set(&object, "cpuset");
        let numbered = format!("{}: {cpus}", number(&object));
        match (object.attribute("type").unwrap(), object.attribute("subtype")) {
            ("Machine", _) => {
                cpus.iter().for_each(|c| _ = say("online", c.to_string()));
                let offline = set(&object, "complete_cpuset").difference(&cpus);
                offline.iter().for_each(|c| _ = say("offline", c.to_string()));
                set(&object, "allowed_cpuset").iter().for_each(|c| _ = say("allowed", c.to_string()));
                set(&object, "allowed_nodeset").iter().for_each(|n| _ = say("nodes allowed", n.to_string()));
            }
            ("Package", _) => _ = say("packages", numbered),
            ("Die", _) => _ = say("dies", numbered),
            ("Core", _) => _ = say("cores", numbered),
            ("Group", Some("Cluster")) => _ = say("clusters", numbered),
            ("Group", Some("Book")) => _ = say("books", numbered),
            ("Group", Some("Drawer")) => _ = say("drawers", numbered),
            ("NUMANode", _) => {
                let memory = object.attribute("local_memory").unwrap_or("0");
                say("nodes", format!("{numbered}, {memory} bytes").replace(": ", ": CPUs "));
            }
            (kind, _) if kind.ends_with("Cache") && kind.starts_with('L') => {
                let contents = match object.attribute("cache_type") {
                    Some("0") => "unified",
                    Some("1") => "data",
                    Some("2") => "instruction",
                    other => panic!("cache type {other:?}"),
                };
                let (level, size) =
                    (object.attribute("depth").unwrap(), object.attribute("cache_size").unwrap());
                say(&format!("L{level} {contents}"), format!("{cpus}: {size} bytes"));
            }
            _ => {}
        }
    }
    for matrix in document.descendants().filter(|n| n.attribute("name") == Some("NUMALatency")) {
        let words = |tag: &str| -> Vec<String> {
            let texts = matrix.children().filter(|n| n.has_tag_name(tag)).filter_map(|n| n.text());
            texts.flat_map(|t| t.split_whitespace()).map(str::to_owned).collect()
        };
        let (ids, values) = (words("indexes"), words("u64values"));
        for (i, from) in ids.iter().enumerate() {
            for (to, value) in ids.iter().zip(&values[i * ids.len()..]) {
                say("distances", format!("{from} to {to}: {value}"));
            }
        }
    }
    for kind in document.descendants().filter(|n| n.has_tag_name("cpukind")) {
        let capacity = kind.children().find(|n| n.attribute("name") == Some("LinuxCapacity"));
        if let Some(capacity) = capacity.and_then(|n| n.attribute("value")) {
            set(&kind, "cpuset").iter().for_each(|c| _ = say("capacities", format!("{c}: {capacity}")));
        }
    }
    facts
}

/// hwloc writes `0x000000ff,,0x0000ffff`: groups of 32 bits, the highest first, empty ones zero.
fn bitmap(text: &str) -> CpuSet {
    let mut set = CpuSet::new();
    for (group, base) in text.rsplit(',').zip((0u32..).step_by(32)) {
        let bits = u32::from_str_radix(group.trim_start_matches("0x"), 16).unwrap_or(0);
        (0..32).filter(|b| bits & (1 << b) != 0).for_each(|b| set.insert(base + b));
    }
    set
}
