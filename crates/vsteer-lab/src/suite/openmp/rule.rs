//! Does the rule about the benefit of pins (`plan --only pin`) agree with the measurement? And is a pin that
//! leaves a pCPU idle found and removed?
//!
//! There are two tests. First, both VMs compute. The rule's statement about the moves of floating vCPUs is
//! compared with the measured effect of pinning in the experiment: how much sooner products follow each
//! other, because the rule's terms are parts of the host's work. Second, the second VM is suspended and the
//! first is pinned to one pCPU, so that the other one idles. The cost is measured. `diagnose` must find it,
//! `plan` must propose to remove the pin, and after `apply` the time must be recovered.

use super::looks::{now_s, recording_of};
use super::loops::{Gain, in_window};
use super::{LIMIT, LOGGED_S, regions};
use crate::command;
use crate::drive::{self, Vsteer, wait};
use crate::suite::steered::failed;
use crate::suite::{Bench, Evidence, Findings};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vsteer_core::Fault;

const LOOK: &str = "10s";
/// A VM with two busy vCPUs on one pCPU takes up to twice the time. If the pCPUs are threads of one core, as
/// may be in a cloud, it takes half as long again (a factor of 1.5 was seen).
const COSTS: f64 = 1.3;
const SOON: Duration = Duration::from_secs(30);

/// The rule's statement about the floating vCPUs that [`super::looks`] recorded.
pub fn weighed(
    bench: &Bench,
    v: &Vsteer,
    name: &str,
    measured: Gain,
    findings: &mut Findings,
) -> Result<(), Fault> {
    let seen = recording_of(bench, name, "floating");
    let plan = v.json(&["plan", &seen, "--only", "pin"], LIMIT)?;
    let pins = plan["steps"].as_array().map_or(0, Vec::len);
    let why = &plan["alternatives"][0]["why_not"];
    findings.claim_on(
        format!("OpenMP, {name}: `plan --only pin` proposes pins where the experiment says that they pay, and only there"),
        Evidence::count(if measured.pct.is_finite() { measured.n } else { 0 }, 2, "blocks"),
        (pins > 0) == (measured.sign() > 0.0),
        format!("{pins} pins, {why}; measured {}", measured.told()),
    );
    Ok(())
}

/// Mean time of a region of the first VM, ms: floating, on one pCPU, and after vsteer removed that pin.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Idle {
    floating_ms: f64,
    kept_ms: f64,
    freed_ms: f64,
}

/// The first VM alone, pinned to one pCPU.
pub fn idle(
    bench: &Bench,
    v: &Vsteer,
    set: &Path,
    (names, logs): (&[&str], &[PathBuf]),
    findings: &mut Findings,
) -> Result<Idle, Fault> {
    let virsh = |word: &str| {
        let mut c = Command::new("virsh");
        command::output(c.args(["--quiet", "--connect", &v.uri, word, names[1]]), SOON).map(drop)
    };
    let place = |level: &str| {
        let mut c = Command::new("sh");
        command::output(c.arg(set).arg(level), SOON).map(drop)
    };
    place("floating")?;
    virsh("suspend")?;
    let found = alone(bench, v, &place, &logs[0], findings);
    // In any case, the next step finds both running.
    virsh("resume")?;
    found
}

fn alone(
    bench: &Bench,
    v: &Vsteer,
    place: &dyn Fn(&str) -> Result<(), Fault>,
    log: &Path,
    findings: &mut Findings,
) -> Result<Idle, Fault> {
    let look = |called: &str| -> Result<(String, f64), Fault> {
        wait("until vCPUs are where they will be", Duration::from_secs(2))?;
        let to = bench.fresh(&format!("openmp-alone-{called}.vsteer"))?;
        let from_s = now_s();
        v.run(&["record", "-o", &to, "--for", LOOK, "--connect", &v.uri], false, LIMIT)?;
        let to_s = now_s();
        wait("for the log", Duration::from_secs_f64(LOGGED_S))?;
        let took = in_window([&regions(log)?[..]], from_s, to_s);
        let took = took.ok_or_else(|| failed("no region of the first VM alone"))?;
        Ok((to, 1e3 * took.region_s))
    };
    let (_, floating_ms) = look("floating")?;
    place("together")?;
    let (seen, kept_ms) = look("kept")?;
    let diagnosed = v.json(&["diagnose", &seen], LIMIT)?;
    let found = drive::findings(&diagnosed).iter().any(|f| f["rule"] == "pinned_busy");
    let file = bench.fresh("openmp-alone-plan.json")?;
    let plan = v.json(&["plan", &seen, "--output", &file], LIMIT)?;
    let title = plan["title"].as_str().unwrap_or_default().to_owned();
    v.run(&["apply", &file, "--yes", "--connect", &v.uri], false, LIMIT)?;
    let (_, freed_ms) = look("freed")?;
    findings.claim(
        "OpenMP: a VM kept on one pCPU beside an idle one takes 1.3 times as long or more; that is found, and applying vsteer's plan wins it back",
        kept_ms >= COSTS * floating_ms && found && kept_ms >= COSTS * freed_ms,
        format!(
            "{floating_ms:.1} ms floating, {kept_ms:.1} on one pCPU, pinned_busy {}, plan {title:?}, {freed_ms:.1} after it",
            if found { "found" } else { "not found" }
        ),
    );
    Ok(Idle { floating_ms, kept_ms, freed_ms })
}
