//! Does the audit read real machines as other programs read them?
//!
//! The machines are captures from two packages of Debian, fetched into the cache and never kept with the
//! source: hwloc's (47 trees: EPYC's predecessors, Xeons, Itanium, Arm, POWER, s390, guests) and util-linux's
//! lscpu dumps (EPYC 7451, Xeons, Arm, RISC-V, s390 under KVM and z/VM, VirtualBox, VMware). The claims:
//! - `vsteer audit --root` of each tree succeeds, and every check gives a result with a reason.
//! - If a tree lacks a check's files, the check says that it does not apply, never "as it should be".
//! - The report about threads of cores agrees with the topology files of the tree itself.
//! - The vulnerabilities, and whether the machine is a guest, agree with the output of lscpu for that dump
//!   (its `expected` file, by other authors).
//!
//! Left out: files of libvirt and tuned, because no such tree contains them. The host crate's tests use
//! invented ones and a real cloud guest.

use super::{Bench, Case, Findings, Minutes};
use crate::captured;
use crate::command;
use crate::drive::Vsteer;
use crate::fetch::Fetcher;
use crate::files::names;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vsteer_core::Fault;
use vsteer_experiment::audit::CHECKS;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "audit",
    doc: "the audit of 63 captured machines: never a crash, a missing file is named, SMT, guests and vulnerabilities as their files and lscpu say",
    in_test: true,
    minutes: Minutes::new(0.3, 0.6),
    beside: true,
    run,
};

const LIMIT: Duration = Duration::from_secs(60);
/// hwloc 2.9.0 and util-linux 2.38.
const TREES_MIN: usize = 60;

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut fetcher = Fetcher::of_system(&bench.lab.cache, false);
    let mut machines = captured::of_hwloc(&mut fetcher, &bench.lab.cache)?;
    machines.extend(captured::of_util_linux(&mut fetcher, &bench.lab.cache)?);
    let vsteer = Vsteer::beside(&bench.lab.program)?;
    let mut wrong: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut looked: BTreeMap<&str, usize> = BTreeMap::new();
    let mut states: BTreeMap<String, usize> = BTreeMap::new();
    for m in &machines {
        let told = match vsteer.json(&["audit", "--root", &m.root.to_string_lossy()], LIMIT) {
            Ok(told) => told["findings"].as_array().cloned().unwrap_or_default(),
            Err(fault) => {
                wrong.entry("whole").or_default().push(format!("{}: {fault}", m.name));
                continue;
            }
        };
        for f in &told {
            *states.entry(text(f, "state").to_owned()).or_default() += 1;
        }
        let mut note = |what: &'static str, found: Result<usize, String>| match found {
            Ok(n) => *looked.entry(what).or_default() += n,
            Err(why) => wrong.entry(what).or_default().push(format!("{}: {why}", m.name)),
        };
        let paths = paths(&m.root)?;
        note("whole", whole(&told));
        note("lacking", lacking(&told, &paths));
        note("smt", smt(&told, &m.root));
        if let Some(lscpu) = &m.lscpu {
            note("vulnerabilities", vulnerabilities(&told, lscpu));
            note("guest", guest(&told, lscpu));
        }
    }
    let mut findings = Findings::default();
    for (what, claim, least) in [
        ("whole", format!("each of at least {TREES_MIN} captured machines is audited to the end: all checks, three states, each with a reason"), TREES_MIN),
        ("lacking", "a check whose files a machine lacks does not apply there".to_owned(), 100),
        ("smt", "SMT is on where a core of the machine's own topology files has two online threads, and only there".to_owned(), 3),
        ("vulnerabilities", "each vulnerability is as lscpu prints it of the same dump".to_owned(), 10),
        ("guest", "a guest is what lscpu says runs under a hypervisor of software".to_owned(), 5),
    ] {
        let (n, bad) = (looked.get(what).copied().unwrap_or(0), wrong.remove(what).unwrap_or_default());
        let shown = bad.iter().take(4).cloned().collect::<Vec<_>>().join(" | ");
        findings.claim(claim, bad.is_empty() && n >= least, if bad.is_empty() { format!("{n} looked at") } else { shown });
    }
    findings.figures = json!({ "machines": machines.len(), "states": states, "looked_at": looked });
    Ok(findings)
}

fn text<'a>(f: &'a Value, key: &str) -> &'a str {
    f[key].as_str().unwrap_or_default()
}

/// Every path of a tree. Links are included but not followed.
fn paths(root: &Path) -> Result<Vec<String>, Fault> {
    let mut find = Command::new("find");
    find.arg(root).args(["-printf", "%P\\n"]);
    Ok(command::output(&mut find, LIMIT)?.lines().map(str::to_owned).collect())
}

fn whole(told: &[Value]) -> Result<usize, String> {
    for f in told {
        let state = text(f, "state");
        if !["as_it_should", "not", "does_not_apply"].contains(&state) || text(f, "reason").is_empty() {
            return Err(format!("a finding without a state or a reason: {f}"));
        }
        if state == "not" && ["risk", "change", "undo"].iter().any(|key| text(f, key).is_empty()) {
            return Err(format!("a \"not\" without risk, change and undo: {f}"));
        }
    }
    let mut checks: Vec<&str> = told.iter().map(|f| text(f, "check")).collect();
    checks.sort_unstable();
    checks.dedup();
    let silent: Vec<&str> = CHECKS.iter().map(|c| c.name).filter(|name| !checks.contains(name)).collect();
    if silent.is_empty() { Ok(1) } else { Err(format!("these checks said nothing: {silent:?}")) }
}

fn lacking(told: &[Value], paths: &[String]) -> Result<usize, String> {
    let mut looked = 0;
    for check in CHECKS {
        if paths.iter().any(|p| check.rests_on.iter().any(|f| p.contains(f))) {
            continue;
        }
        looked += 1;
        let said =
            told.iter().find(|f| text(f, "check") == check.name && text(f, "state") != "does_not_apply");
        if let Some(said) = said {
            return Err(format!("{} has none of its files, and says {said}", check.name));
        }
    }
    Ok(looked)
}

/// Online threads of the core that has most of them, by the machine's own topology files; `None` if it has
/// none.
fn threads(root: &Path) -> Option<usize> {
    let cpus = root.join("sys/devices/system/cpu");
    let read = |file: PathBuf| std::fs::read_to_string(file).ok();
    let online: vsteer_core::CpuSet = read(cpus.join("online"))?.trim().parse().ok()?;
    let of = |name: String| -> Option<usize> {
        let text = read(cpus.join(name).join("topology/thread_siblings_list"))?;
        let siblings: vsteer_core::CpuSet = text.trim().parse().ok()?;
        Some(siblings.iter().filter(|c| online.contains(*c)).count())
    };
    names(&cpus).ok()?.into_iter().filter_map(of).max()
}

fn smt(told: &[Value], root: &Path) -> Result<usize, String> {
    let said = told.iter().find(|f| text(f, "check") == "smt").ok_or("nothing is said of SMT")?;
    let value = text(said, "value");
    let (on, Some(threads)) = (value == "on", threads(root)) else { return Ok(0) };
    // If the kernel has no such file, or says that it does not know, SMT is not on.
    if value == "not there" {
        return Ok(0);
    }
    if on == (threads > 1) {
        Ok(1)
    } else {
        Err(format!("SMT is reported as {value:?}, and a core has {threads} threads online"))
    }
}

fn vulnerabilities(told: &[Value], lscpu: &BTreeMap<String, String>) -> Result<usize, String> {
    let ours: BTreeMap<String, &str> = told
        .iter()
        .filter(|f| text(f, "check") == "mitigations")
        .map(|f| (text(f, "setting").trim_end_matches(" (in this guest)").to_owned(), text(f, "state")))
        .collect();
    let mut looked = 0;
    for (key, said) in lscpu {
        let Some(name) = key.strip_prefix("Vulnerability ") else { continue };
        let name = name.to_lowercase().replace(' ', "_");
        // lscpu prints no colons: `Mitigation; PTE Inversion; VMX vulnerable`. Its statements about SMT do
        // not belong to this check.
        let is_open = |part: &str| {
            let part = part.trim().to_lowercase();
            part.split(' ').any(|word| word == "vulnerable") && !part.contains("smt ")
        };
        let state = match said.as_str() {
            s if s.starts_with("Not affected") || s.starts_with("Unknown") => "does_not_apply",
            s if s.split([';', ',']).any(is_open) => "not",
            _ => "as_it_should",
        };
        match ours.get(&name) {
            Some(our) if *our == state => looked += 1,
            other => return Err(format!("{name} is reported as {other:?}, lscpu says {said}")),
        }
    }
    let told_of = ours.keys().filter(|k| *k != "mitigations").count();
    if looked == told_of {
        Ok(looked)
    } else {
        Err(format!("{told_of} vulnerabilities are told, lscpu knows {looked}"))
    }
}

fn guest(told: &[Value], lscpu: &BTreeMap<String, String>) -> Result<usize, String> {
    // This is reported only without other evidence: a guest's frequencies are its host's. A tree with a
    // frequency driver does not report it.
    let scaling = told.iter().find(|f| text(f, "check") == "scaling").map_or("", |f| text(f, "reason"));
    let said = if scaling.starts_with("a guest runs at") {
        true
    } else if scaling.starts_with("the kernel does not scale") {
        false
    } else {
        return Ok(0);
    };
    // IBM's hypervisor below an LPAR is the machine's firmware (lscpu reports only this under z/VM, too);
    // pHyp is POWER's.
    let vendor = lscpu.get("Hypervisor vendor").map(String::as_str);
    match vendor {
        Some("IBM" | "pHyp") => Ok(0),
        vendor if vendor.is_some() == said => Ok(1),
        vendor => Err(format!("a guest: {said}, lscpu's hypervisor: {vendor:?}")),
    }
}
