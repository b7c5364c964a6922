//! Parallel loops on the emulated host: the same program in two VMs with Linux and two vCPUs each, each VM
//! pinned to its own pCPU.
//!
//! This tests functions, not speed. Busy pCPUs are emulated in turn, so no time there is a processor's time,
//! and none is claimed ([`crate::emulated`]). The claims: the loops run under OpenMP's own threads in guests
//! with two vCPUs. The observer sees vCPUs that never move and wait for each other. The rule about the
//! benefit of pins gets what the observer saw. A boot is as short as possible, on pCPUs twice as fast as
//! usual, because guests sometimes crash in it ([`boots`]).
//!
//! GAP(openmp-emulated): if both vCPUs of a VM could run at once, guests crashed nearly always: floating in
//! seven boots of nine, vCPU n pinned to pCPU n (as in the paper and in [`super`]) in eight of eight. Left
//! out: effects of pinning (on real machines: [`super`], and on Xen).

use super::looks::Seen;
use super::loops::{NAMES, ROWS, SCHEDULES, THREADS, VCPUS};
use crate::drive::Vsteer;
use crate::emulated::Ran;
use crate::emulated::job::Job;
use crate::fetch::kernels::Which;
use crate::report::window::GuestReport;
use crate::suite::realtime::boots;
use crate::suite::steered::failed;
use crate::suite::{Bench, Case, Findings, Minutes};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind, model};
use vsteer_record::Recording;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "openmp-emulated",
    doc: "parallel loops in two VMs of two vCPUs on the emulated host, each pinned to a pCPU: what the observer sees, not how fast",
    in_test: false,
    minutes: Minutes::new(3.0, 15.0),
    beside: false,
    run,
};

const SETTING: &str = "together";
/// Time until QEMU and Linux run in both VMs and the loops have started.
const SETTLE_S: u32 = 5;
const RECORD_S: u32 = 3;
const LIMIT: Duration = Duration::from_secs(120);

fn job(schedule: &str, before_s: u32) -> Result<Job, Fault> {
    let mut text = format!(
        "pcpus = 3\nshift = 0\nmemory_mib = 2048\nsettle_s = {before_s}\n[[case]]\nname = {SETTING:?}\nsettle_s = {SETTLE_S}\nrecord_s = {RECORD_S}\n"
    );
    for (name, cpus) in NAMES.iter().zip(["1", "2"]) {
        let _ = write!(
            text,
            "[[case.vm]]\nname = {name:?}\nvcpus = {VCPUS}\nworkload = \"program,run=loops/{schedule}/{ROWS}/{THREADS}/0\"\ncpus = {cpus:?}\n"
        );
    }
    Job::parse(&text)
}

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    let v = Vsteer { state: bench.output.join("state"), ..Vsteer::beside(&bench.lab.program)? };
    let schedules = if bench.full { &SCHEDULES[..] } else { &SCHEDULES[..1] };
    let mut figures = Map::new();
    for (name, ..) in schedules {
        let options = boots::options(bench, Which::Newest, &format!("openmp-emulated-{name}"))?;
        let found = boots::boot(name, &options, |before_s| job(name, before_s))
            .and_then(|ran| Looked::at(&ran, &options.output, &v));
        match found {
            Ok(looked) => {
                let figure = json!(looked);
                findings.claim(
                    format!("OpenMP, emulated, {name}: loops go round in all VMs of two vCPUs, those that share a pCPU never move and wait for each other"),
                    looked.goes_round() && looked.seen.never_moves() && looked.seen.waits_for_its_own(),
                    figure.to_string(),
                );
                figures.insert((*name).to_owned(), figure);
            }
            Err(fault) if fault.kind == FaultKind::Interrupted => return Err(fault),
            Err(fault) => {
                let claim = format!("OpenMP, emulated, {name}: it runs to its end");
                findings.claim(claim, false, fault.to_string());
            }
        }
    }
    findings.figures = Value::Object(figures);
    Ok(findings)
}

/// The results of a boot.
#[derive(Debug, Serialize)]
struct Looked {
    seen: Seen,
    /// Regions that each VM finished between its two reports.
    regions: [u64; 2],
    /// What `plan --only pin` says about it, and the number of its steps.
    rule: Value,
    pins: usize,
}

impl Looked {
    fn at(ran: &Ran, folder: &Path, v: &Vsteer) -> Result<Looked, Fault> {
        let case = ran.cases.first().ok_or_else(|| failed("a boot without its case"))?;
        let recording = case.recording.as_ref().ok_or_else(|| failed("a case without a recording"))?;
        let r = Recording::open(recording)?;
        let plan = v.json(&["plan", &recording.to_string_lossy(), "--only", "pin"], LIMIT)?;
        Ok(Looked {
            seen: Seen::of(&model::derive(r.config_at(u64::MAX), &r.manifest.collector, &r.batches)?),
            regions: NAMES.map(|vm| regions_done(&folder.join(&case.name).join(format!("{vm}.reports")))),
            rule: plan["alternatives"][0]["why_not"].clone(),
            pins: plan["steps"].as_array().map_or(0, Vec::len),
        })
    }

    fn goes_round(&self) -> bool {
        self.regions.iter().all(|n| *n > 1)
    }
}

/// Regions finished between a VM's two reports.
fn regions_done(file: &Path) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let units: Vec<u64> =
        text.lines().filter_map(|l| serde_json::from_str::<GuestReport>(l).ok()).map(|r| r.units).collect();
    units.last().zip(units.first()).map_or(0, |(last, first)| last - first)
}
