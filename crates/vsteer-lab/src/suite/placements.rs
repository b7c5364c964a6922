//! Do plans that place VMs respect siblings and NUMA nodes, on a kernel that has both?
//!
//! An emulated host has two nodes of two cores with two threads each. On it, vsteer plans from what it observes, applies the
//! plan and rolls it back:
//! - `separate`, where a timer waits among VMs that compute: it must get whole cores, so that no sibling of its pCPUs computes.
//! - `node`, where the VMs of one node want more than it has and the other idles: one must move, and only as many as needed.
//! - `shared_core`, where two VMs are pinned to siblings while whole cores idle: its finding must name them, and an idle core.
//!
//! Function only: the emulator runs the pCPUs in turn, and siblings do not slow each other. So no times are compared, and plans
//! are forecast by fair shares, which need the fewest instructions.

use super::{Bench, Case, Evidence, Findings, Minutes};
use crate::drive::{Vsteer, findings as found_by};
use crate::emulated::job::Job;
use crate::emulated::{self, Options, Ran};
use crate::fetch::cache_folder;
use crate::fetch::kernels::Which;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use vsteer_core::nouns::HostConfig;
use vsteer_core::{CpuSet, Fault, FaultKind};
use vsteer_record::Recording;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "placements",
    doc: "plans respect siblings and NUMA nodes on an emulated host: planned, applied and undone there",
    in_test: false,
    minutes: Minutes::new(3.0, 3.0),
    beside: true,
    run,
};

const LIMIT: Duration = Duration::from_secs(900);
const READ: Duration = Duration::from_secs(60);
/// The host: pCPUs 0-3 are node 0, and 4-7 node 1. The observer has pCPU 0.
const HOST: &str = "pcpus = 8\nnodes = 2\nthreads = 2\nmemory_mib = 2048\nshift = 3\nsettle_s = 8\n";
const NODES: [&str; 2] = ["0-3", "4-7"];
const CORES: [&str; 4] = ["0-1", "2-3", "4-5", "6-7"];
const HOGS: [&str; 5] = ["one", "two", "three", "four", "five"];
/// To apply and to undo a plan takes up to a minute, because the pCPUs take turns.
const CHANGES_S: u32 = 70;

/// A VM of a job.
fn vm(name: &str, vcpus: u32, workload: &str, cpus: &str) -> String {
    format!("[[case.vm]]\nname = \"{name}\"\nvcpus = {vcpus}\nworkload = \"{workload}\"\ncpus = \"{cpus}\"\n")
}

fn case(name: &str, record_s: u32, more: &str) -> String {
    format!(
        "[[case]]\nname = \"{name}\"\nrecord_s = {record_s}\nask = false\ncollector = \"schedstat\"\n{more}"
    )
}

/// The cases of one plan: it is made, applied, looked at, undone and looked at again.
fn around_plan(action: &str, vms: &str) -> String {
    let plan = format!("/run/results/{action}/plan.json");
    let command = |words: &[&str]| format!("command = {words:?}\n");
    let made = command(&[
        "plan",
        "--only",
        action,
        "--by",
        "fluid",
        "--collector",
        "schedstat",
        "--for",
        "5s",
        "--json",
        "-o",
        &plan,
    ]);
    let next = |name: &str, seconds, more: &str| {
        case(&format!("{action}-{name}"), seconds, &format!("continues = true\nsettle_s = 1\n{more}"))
    };
    [
        case(action, 20, &format!("{made}{vms}")),
        next("apply", CHANGES_S, &command(&["apply", "--yes", &plan])),
        next("applied", 2, ""),
        next("undo", CHANGES_S, &command(&["rollback"])),
        next("undone", 2, ""),
    ]
    .concat()
}

fn job() -> Result<Job, Fault> {
    let timer = |cpus: &str| vm("timer", 1, "periodic,period_us=100000,work_units=20", cpus);
    let hogs = |names: &[&str], cpus: &str| -> String {
        names.iter().map(|name| vm(name, 1, "burn", cpus)).collect()
    };
    let siblings = [vm("left", 1, "burn", "4"), vm("right", 1, "burn", "5")].concat();
    let on_core = [timer(CORES[3]), hogs(&HOGS[..3], CORES[3])].concat();
    let on_node = [timer(NODES[1]), hogs(&HOGS, NODES[1])].concat();
    Job::parse(
        &[
            HOST.to_owned(),
            case("siblings", 4, &siblings),
            around_plan("separate", &on_core),
            around_plan("node", &on_node),
        ]
        .concat(),
    )
}

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let vsteer = Vsteer { state: bench.output.join("state"), ..Vsteer::beside(&bench.lab.program)? };
    let options = Options {
        cache: cache_folder()?,
        kernel: Which::Newest,
        guest: bench.lab.guest.clone(),
        vsteer: vsteer.program.clone(),
        output: PathBuf::from(bench.fresh("placements")?),
        limit: LIMIT,
        seed: bench.seed,
    };
    let seen = Seen { ran: emulated::run(&job()?, &options)?, folder: options.output.clone(), vsteer };
    let mut findings = Findings::default();
    seen.siblings_are_found(&mut findings)?;
    let separate = seen.is_planned_and_undone("separate", &mut findings)?;
    seen.delayed_have_whole_cores(&mut findings)?;
    let node = seen.is_planned_and_undone("node", &mut findings)?;
    seen.a_node_is_relieved(&mut findings)?;
    findings.figures = json!({ "kernel": seen.ran.kernel.release, "took_s": seen.ran.took_s,
        "separate": separate, "node": node });
    Ok(findings)
}

/// What the host left.
struct Seen {
    ran: Ran,
    folder: PathBuf,
    vsteer: Vsteer,
}

fn set(text: &str) -> CpuSet {
    text.parse().expect("it is a list of pCPUs")
}

/// The pCPUs of a VM's vCPUs.
fn pcpus(config: &HostConfig, name: &str) -> CpuSet {
    let vcpus = config.vms.iter().filter(|vm| vm.name == name).flat_map(|vm| vm.vcpus());
    vcpus.fold(CpuSet::new(), |all, t| all.union(&t.affinity))
}

/// The pCPUs of every thread, as text.
fn placed(config: &HostConfig) -> Vec<String> {
    let of = |vm: &vsteer_core::nouns::VmConfig| {
        let one = |t: &vsteer_core::nouns::VmThread| format!("{} {}: {}", vm.name, t.role, t.affinity);
        vm.threads.iter().map(one).collect::<Vec<_>>()
    };
    config.vms.iter().flat_map(of).collect()
}

impl Seen {
    fn recording(&self, case: &str) -> Result<&Path, Fault> {
        let of = self.ran.cases.iter().find(|c| c.name == case).and_then(|c| c.recording.as_deref());
        of.ok_or_else(|| Fault::new(FaultKind::NothingThere, format!("the recording of {case}")))
    }

    fn config(&self, case: &str) -> Result<HostConfig, Fault> {
        Ok(Recording::open(self.recording(case)?)?.configs[0].config.clone())
    }

    /// What the case's command printed, and how it ended.
    fn command(&self, case: &str) -> (String, String) {
        let read =
            |name: &str| std::fs::read_to_string(self.folder.join(case).join(name)).unwrap_or_default();
        let status = read("command.status").trim().to_owned();
        (read("command.out"), if status == "0" { status } else { status + ": " + read("command.txt").trim() })
    }

    fn siblings_are_found(&self, findings: &mut Findings) -> Result<(), Fault> {
        let recording = self.recording("siblings")?.to_string_lossy().into_owned();
        let told = self.vsteer.json(&["diagnose", &recording], READ)?;
        let found = found_by(&told).into_iter().find(|f| f["rule"] == "shared_core").cloned();
        let found = found.unwrap_or_default();
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        findings.claim(
            "two VMs on siblings while cores idle: both are named, and a core that idles",
            text("title").contains("\"left\", \"right\"") && text("next").contains("right:pin.0=6"),
            format!("{}; {}", text("title"), text("next")),
        );
        Ok(())
    }

    /// Was the plan made, applied and undone there?
    fn is_planned_and_undone(&self, action: &str, findings: &mut Findings) -> Result<Value, Fault> {
        let (plan, made) = self.command(action);
        let plan: Value = serde_json::from_str(&plan).unwrap_or_default();
        let steps = plan["steps"].as_array().map_or(0, Vec::len);
        findings.claim(
            format!("{action}: a plan is made there"),
            steps > 0,
            format!("{} ({made})", plan["title"]),
        );
        let [before, applied, undone] =
            ["", "-applied", "-undone"].map(|s| self.config(&format!("{action}{s}")));
        let [before, applied, undone] = [placed(&before?), placed(&applied?), placed(&undone?)];
        let ended = ["apply", "undo"].map(|s| self.command(&format!("{action}-{s}")).1);
        findings.claim_on(
            format!("{action}: the plan is applied there, and rollback restores every thread"),
            Evidence::count(before.len(), 6, "threads"),
            ended.iter().all(|e| e == "0") && applied != before && undone == before,
            format!("{}; {}", ended.join("; "), applied.join(", ")),
        );
        Ok(json!({ "title": plan["title"], "before": before, "applied": applied }))
    }

    fn delayed_have_whole_cores(&self, findings: &mut Findings) -> Result<(), Fault> {
        let applied = self.config("separate-applied")?;
        let own = pcpus(&applied, "timer");
        let others =
            HOGS.iter().map(|name| pcpus(&applied, name)).fold(CpuSet::new(), |all, cpus| all.union(&cpus));
        let theirs = CORES.map(set).into_iter().filter(|core| core.intersects(&own));
        let theirs = theirs.fold(CpuSet::new(), |all, core| all.union(&core));
        findings.claim(
            "separate: nobody else may run on a core of the delayed VM, siblings included",
            !own.is_empty() && !others.is_empty() && !others.intersects(&theirs),
            format!("the timer has {own}, the others {others}"),
        );
        Ok(())
    }

    fn a_node_is_relieved(&self, findings: &mut Findings) -> Result<(), Fault> {
        let applied = self.config("node-applied")?;
        let [to, from] = NODES.map(set);
        let names: Vec<&str> = applied.vms.iter().map(|vm| vm.name.as_str()).collect();
        let on = |node: &CpuSet| names.iter().filter(|name| pcpus(&applied, name).is_subset(node)).count();
        findings.claim(
            "node: one or two VMs move to the idle node, each with all vCPUs, and the others stay",
            (1..=2).contains(&on(&to)) && on(&to) + on(&from) == names.len(),
            format!("{} on node 0, {} on node 1, of {}", on(&to), on(&from), names.len()),
        );
        Ok(())
    }
}
