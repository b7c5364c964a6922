//! Is a vCenter's inventory read completely, only by permitted users, and as fast as VMware's own tool reads
//! it?
//!
//! Against govmomi's simulator ([`crate::vsphere::simulator`]): `vsteer numa` and `govc` read 1,000 VMs on 20
//! hosts in turn; and some logins must be refused. The reading may take 1.5 times govc's time, which reads
//! only the VMs' properties.
//!
//! Then, with smaller inventories: are counters read as they were planted ([`counters`]), also by the service
//! ([`served`]), and is every change made, read back and rolled back, wherever it is killed ([`changes`])?

use super::{LIMIT, changes, counters, served};
use crate::command::{self, Finished};
use crate::drive::Vsteer;
use crate::fetch::cache_folder;
use crate::files::write_file;
use crate::suite::{Bench, Case, Findings, Minutes};
use crate::vsphere::simulator::{PASSWORD, Program, Serving, USER};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;
use vsteer_core::Fault;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "vsphere-api",
    doc: "vSphere's API (govmomi's simulator): 1,000 VMs beside govc; counters as planted; changes made, killed at every point, taken back",
    in_test: false,
    minutes: Minutes::new(6.0, 6.0),
    beside: false,
    run,
};

const HOSTS: u32 = 20;
const VMS_EACH: u32 = 50;
/// Readings by each, in turn.
const TIMES: usize = 9;
/// The allowed multiple of govc's time.
const TIMES_MOST: f64 = 1.5;
/// The properties of a VM that `vsteer` reads (host/src/vsphere/settings.rs).
const PROPERTIES: &[&str] = &[
    "name",
    "runtime.host",
    "runtime.powerState",
    "config.instanceUuid",
    "config.hardware.numCPU",
    "config.hardware.numCoresPerSocket",
    "config.hardware.memoryMB",
    "config.cpuHotAddEnabled",
    "config.changeVersion",
    "config.cpuAllocation.shares.level",
    "config.cpuAllocation.shares.shares",
    "config.cpuAllocation.reservation",
    "config.cpuAllocation.expandableReservation",
    "config.cpuAllocation.limit",
    "config.memoryAllocation.reservation",
    "config.memoryReservationLockedToMax",
    "config.latencySensitivity.level",
    "config.cpuAffinity",
    "config.extraConfig[\"numa.nodeAffinity\"]",
    "config.extraConfig[\"sched.cpu.affinity\"]",
];

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let program = Program::build(&cache_folder()?)?;
    let serving = program.serve(HOSTS, VMS_EACH)?;
    let folder = bench.fresh("vsphere-api")?;
    let asks = Asks {
        vsteer: Vsteer { state: bench.output.join("state"), ..Vsteer::beside(&bench.lab.program)? },
        right: format!("{folder}/right"),
        wrong: format!("{folder}/wrong"),
    };
    std::fs::create_dir_all(&folder).map_err(|e| Fault::io(format!("making {folder}"), &e))?;
    write_file(Path::new(&asks.right), PASSWORD.as_bytes())?;
    write_file(Path::new(&asks.wrong), b"not this")?;
    let mut findings = Findings::default();
    let (mut ours, mut govcs) = (Vec::new(), Vec::new());
    let (mut read, mut collected) = (Value::Null, String::new());
    for _ in 0..TIMES {
        let begun = Instant::now();
        let said = asks.numa(&serving.address, &serving.thumbprint, &asks.right)?;
        ours.push(begun.elapsed().as_secs_f64());
        read = serde_json::from_str(&said.stdout).unwrap_or_default();
        let begun = Instant::now();
        collected = serving.govc_collects("VirtualMachine", PROPERTIES)?;
        govcs.push(begun.elapsed().as_secs_f64());
    }
    all_are_there(&read, &collected, &mut findings);
    let (own, govc) = (median(&mut ours), median(&mut govcs));
    findings.claim(
        format!("an inventory takes at most {TIMES_MOST} times as long as govc takes for the VMs' properties (medians of {TIMES} in turn)"),
        own <= TIMES_MOST * govc,
        format!("{own:.3} s, {govc:.3} by govc: {:.2} times", own / govc),
    );
    findings.figures = json!({ "vms": HOSTS * VMS_EACH, "own_s": own, "govc_s": govc, "times": own / govc });
    refusals(&asks, &serving, &mut findings)?;
    drop(serving);
    counters::run(bench, &program, &asks.right, &mut findings)?;
    served::run(bench, &program, &asks.right, &mut findings)?;
    changes::run(bench, &program, &asks.right, &mut findings)?;
    Ok(findings)
}

/// How to read the inventory.
struct Asks {
    vsteer: Vsteer,
    /// Files with the right and a wrong password.
    right: String,
    wrong: String,
}

impl Asks {
    fn numa(&self, address: &str, thumbprint: &str, password: &str) -> Result<Finished, Fault> {
        let place = format!("vsphere://{USER}@{address}");
        let words = ["numa", "--connect", &place, "--thumbprint", thumbprint, "--password-file", password];
        command::run(self.vsteer.command(&words).arg("--json"), LIMIT)
    }
}

/// Compares names, which govc also reports.
fn all_are_there(read: &Value, collected: &str, findings: &mut Findings) {
    let hosts: Vec<&Value> = read["hosts"].as_array().into_iter().flatten().collect();
    let vms = hosts.iter().flat_map(|host| host["vms"].as_array().into_iter().flatten());
    let ours: BTreeSet<String> = vms.filter_map(|vm| vm["vm"].as_str().map(str::to_owned)).collect();
    let objects = serde_json::Deserializer::from_str(collected).into_iter::<Value>().flatten();
    let name_of = |object: Value| -> Option<String> {
        let mut set = object["changeSet"].as_array()?.iter();
        set.find(|c| c["name"] == "name")?["val"].as_str().map(str::to_owned)
    };
    let govcs: BTreeSet<String> = objects.filter_map(name_of).collect();
    findings.claim(
        format!("all {} VMs on {HOSTS} hosts are read, those that govc reads", HOSTS * VMS_EACH),
        ours == govcs && ours.len() == (HOSTS * VMS_EACH) as usize && hosts.len() == HOSTS as usize,
        format!("{} VMs on {} hosts, {} by govc", ours.len(), hosts.len(), govcs.len()),
    );
}

fn refusals(asks: &Asks, serving: &Serving, findings: &mut Findings) -> Result<(), Fault> {
    const NO_PRIVILEGE: i32 = 4;
    const NOTHING_THERE: i32 = 3;
    let other: String = serving.thumbprint.chars().map(|c| if c == '0' { '1' } else { '0' }).collect();
    // A port of loopback on which no process listens.
    let nobody = "127.0.0.1:1";
    for (what, address, thumbprint, password, code, named) in [
        ("a wrong password", &*serving.address, &serving.thumbprint, &asks.wrong, NO_PRIVILEGE, USER),
        (
            "a certificate of another thumbprint",
            &serving.address,
            &other,
            &asks.right,
            NO_PRIVILEGE,
            &serving.thumbprint,
        ),
        ("a host that does not answer", nobody, &serving.thumbprint, &asks.right, NOTHING_THERE, nobody),
    ] {
        let ended = asks.numa(address, thumbprint, password)?;
        let status = ended.status.and_then(|s| s.code());
        let said = ended.stderr.to_lowercase();
        // A thumbprint may be shown in groups.
        let is_named = said.contains(named) || said.replace(':', "").contains(named);
        findings.claim(
            format!("{what} is refused by exit code {code}, and named"),
            status == Some(code) && is_named && !ended.stdout.contains("\"hosts\""),
            format!("{status:?}: {}", ended.stderr.trim().replace('\n', " ")),
        );
    }
    Ok(())
}

fn median(all: &mut [f64]) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
