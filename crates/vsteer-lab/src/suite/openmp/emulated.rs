//! What do pinned and floating parallel loops do on the emulated host? The same program in two VMs with Linux of two vCPUs each, on two of its pCPUs.
//!
//! Function, not speed: pCPUs that are busy together take turns in being emulated, so no time there is a processor's, and none is claimed ([`crate::emulated`]). What is: the
//! loops run under OpenMP's own threads in guests of two vCPUs, the observer sees pinned vCPUs that never move and for whom each waited, and the rule that says
//! when pins pay is given what it saw. Each schedule has a boot, each setting guests of its own.
//!
//! Left out: effects of pinning (on real machines: [`super`], and on Xen).

use super::looks::Seen;
use super::loops::{NAMES, ROWS, SCHEDULES, THREADS, VCPUS};
use crate::drive::Vsteer;
use crate::emulated::Ran;
use crate::emulated::job::Job;
use crate::fetch::kernels::Which;
use crate::report::window::GuestReport;
use crate::suite::realtime::boots;
use crate::suite::steered::failed;
use crate::suite::{Bench, Case, Findings};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind, model};
use vsteer_record::Recording;

/// See the file's head.
pub const CASE: Case = Case {
    name: "openmp-emulated",
    doc: "parallel loops in two VMs of two vCPUs on the emulated host, pinned and floating: what the observer sees, not how fast",
    in_test: false,
    run,
};

const SETTINGS: [&str; 2] = ["floating", "pinned"];
/// Until QEMU and Linux are up in both VMs and the loops go round.
const SETTLE_S: u32 = 25;
const RECORD_S: u32 = 10;
const LIMIT: Duration = Duration::from_secs(120);

fn job(schedule: &str, before_s: u32) -> Result<Job, Fault> {
    let mut text = format!("pcpus = 3\nmemory_mib = 2048\nsettle_s = {before_s}\n");
    for setting in SETTINGS {
        let _ = write!(text, "[[case]]\nname = {setting:?}\nsettle_s = {SETTLE_S}\nrecord_s = {RECORD_S}\n");
        for name in NAMES {
            let pins = if setting == "pinned" { "vcpu_cpus = [\"1\", \"2\"]\n" } else { "" };
            let _ = write!(
                text,
                "[[case.vm]]\nname = {name:?}\nvcpus = {VCPUS}\nworkload = \"program,run=loops/{schedule}/{ROWS}/{THREADS}/0\"\ncpus = \"1-2\"\n{pins}"
            );
        }
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
        match boots::boot(name, &options, |before_s| job(name, before_s)) {
            Ok(ran) => {
                let seen = looked_at(name, &ran, &options.output, &v, &mut findings)?;
                figures.insert((*name).to_owned(), seen);
            }
            Err(fault) if fault.kind == FaultKind::Interrupted => return Err(fault),
            Err(fault) => {
                findings.claim(
                    format!("OpenMP, emulated, {name}: it runs to its end"),
                    false,
                    fault.to_string(),
                );
            }
        }
    }
    findings.figures = Value::Object(figures);
    Ok(findings)
}

fn looked_at(
    name: &str,
    ran: &Ran,
    folder: &Path,
    v: &Vsteer,
    findings: &mut Findings,
) -> Result<Value, Fault> {
    let mut out = Map::new();
    let mut all = Vec::new();
    for case in &ran.cases {
        let recording = case.recording.as_ref().ok_or_else(|| failed("a case without a recording"))?;
        let r = Recording::open(recording)?;
        let seen = Seen::of(&model::derive(r.config_at(u64::MAX), &r.manifest.collector, &r.batches)?);
        let regions = NAMES.map(|vm| regions_done(&folder.join(&case.name).join(format!("{vm}.reports"))));
        let plan = v.json(&["plan", &recording.to_string_lossy(), "--only", "pin"], LIMIT)?;
        let told = json!({ "seen": seen, "regions": regions, "rule": plan["alternatives"][0]["why_not"], "pins": plan["steps"] });
        out.insert(case.name.clone(), told);
        all.push((case.name.as_str(), seen, regions));
    }
    let of = |setting: &str| all.iter().find(|(name, ..)| *name == setting);
    let both = of("floating").zip(of("pinned"));
    let held = both.is_some_and(|(floating, pinned)| {
        let go_round = |regions: &[u64; 2]| regions.iter().all(|n| *n > 1);
        go_round(&floating.2) && go_round(&pinned.2) && pinned.1.never_moves() && pinned.1.waits_for_others()
    });
    findings.claim(
        format!("OpenMP, emulated, {name}: loops go round in all VMs of two vCPUs, pinned vCPUs never move and wait for the other VM's"),
        held,
        Value::Object(out.clone()).to_string(),
    );
    Ok(Value::Object(out))
}

/// Between a VM's two reports.
fn regions_done(file: &Path) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let units: Vec<u64> =
        text.lines().filter_map(|l| serde_json::from_str::<GuestReport>(l).ok()).map(|r| r.units).collect();
    units.last().zip(units.first()).map_or(0, |(last, first)| last - first)
}
