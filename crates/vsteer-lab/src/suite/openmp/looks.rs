//! Shows with the observer why parallel loops take their time, pinned and floating, for a while each.
//!
//! The vCPU for which a vCPU waited shows where the vCPUs were. If it waited for its own VM's, they shared a
//! pCPU. If it waited for the other VM's, each VM had both pCPUs. A third setting, `together`, pins both
//! vCPUs of a VM to one pCPU; floating looks like this after the kernel has put them together.
//!
//! Left out: caches, whose counters this machine does not have.

use super::loops::{Region, Took, in_window};
use super::{LIMIT, LOGGED_S, regions};
use crate::drive::{Vsteer, wait};
use crate::suite::steered::failed;
use crate::suite::{Bench, Findings};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vsteer_core::Fault;
use vsteer_core::model::{self, HostModel, ThreadModel};
use vsteer_core::nouns::Culprit;
use vsteer_record::Recording;

const LEVELS: [&str; 3] = ["floating", "pinned", "together"];
const LOOK: &str = "10s";
/// If a VM's vCPUs share a pCPU, more than this part of their waits is for each other; otherwise less.
const HALF: f64 = 0.5;

/// What the observer saw of all vCPUs.
#[derive(Debug, Clone, Serialize)]
pub struct Seen {
    /// Migrations of all vCPUs together, per second.
    migrations_per_s: Option<f64>,
    /// Their switches, per second.
    switches_per_s: Option<f64>,
    /// Mean ready share of the vCPUs, % of the time.
    ready_pct: Option<f64>,
    /// The part of the VMs' waits that was for vCPUs of the same VM.
    behind_own: Option<f64>,
    /// The largest p99 of a vCPU's unbroken waits, ms.
    wait_p99_ms: Option<f64>,
    /// Mean idle share of the host's pCPUs, % of the time.
    idle_pct: f64,
}

impl Seen {
    /// What a recording shows.
    pub fn of(model: &HostModel) -> Seen {
        let vcpus: Vec<&ThreadModel> = model.vms.iter().flat_map(|vm| vm.vcpu_threads()).collect();
        let sum = |of: fn(&ThreadModel) -> Option<f64>| vcpus.iter().map(|t| of(t)).sum::<Option<f64>>();
        let behind_own = model.blame.as_ref().and_then(|blame| {
            let share = |own: bool| -> f64 {
                let is = |culprit: &Culprit, victim| matches!(culprit, Culprit::Vm(id) if id == victim);
                blame.iter().filter(|b| !own || is(&b.culprit, &b.victim)).map(|b| b.share).sum()
            };
            (share(false) > 0.0).then(|| share(true) / share(false))
        });
        let busy: f64 = model.pcpus.iter().map(|p| p.busy).sum();
        let spell = |t: &&ThreadModel| Some(t.ready_spell?.p99_ns / 1e6);
        Seen {
            migrations_per_s: sum(|t| t.migrations_per_s),
            switches_per_s: sum(|t| t.switches_per_s),
            ready_pct: sum(|t| t.shares.ready).map(|sum| 100.0 * sum / vcpus.len().max(1) as f64),
            behind_own,
            wait_p99_ms: vcpus.iter().filter_map(spell).reduce(f64::max),
            idle_pct: 100.0 * (1.0 - busy / model.pcpus.len().max(1) as f64),
        }
    }

    /// No vCPU moved, and this was measured.
    pub fn never_moves(&self) -> bool {
        self.migrations_per_s == Some(0.0)
    }

    /// Most waits were for the other VM.
    pub fn waits_for_others(&self) -> bool {
        self.behind_own.is_some_and(|part| part < HALF)
    }

    /// Most waits were for vCPUs of the same VM.
    pub fn waits_for_its_own(&self) -> bool {
        self.behind_own.is_some_and(|part| part > HALF)
    }
}

/// What is seen in one setting.
#[derive(Debug, Clone, Serialize)]
pub struct Look {
    /// `floating`, `pinned`, `together`.
    level: &'static str,
    #[serde(flatten)]
    seen: Seen,
    /// The times of the loops in this setting.
    took: Took,
    /// The longest region, ms.
    longest_ms: f64,
}

/// What the observer sees of the vCPUs in each setting, which `set` makes.
pub fn looks(
    bench: &Bench,
    v: &Vsteer,
    name: &str,
    set: &Path,
    logs: &[PathBuf],
) -> Result<Vec<Look>, Fault> {
    let look = |level: &'static str| {
        let mut sh = std::process::Command::new("sh");
        crate::command::output(sh.arg(set).arg(level), Duration::from_secs(30))?;
        // vCPUs that were placed differently move in this time.
        wait("until vCPUs are where they will be", Duration::from_secs(2))?;
        let to = bench.fresh(&called(name, level))?;
        let from_s = now_s();
        v.run(&["record", "-o", &to, "--for", LOOK, "--connect", &v.uri], false, LIMIT)?;
        let to_s = now_s();
        wait("for the logs", Duration::from_secs_f64(LOGGED_S))?;
        let all = logs.iter().map(|log| regions(log)).collect::<Result<Vec<_>, Fault>>()?;
        let r = Recording::open(Path::new(&to))?;
        let model = model::derive(r.config_at(u64::MAX), &r.manifest.collector, &r.batches)?;
        seen(level, &model, &all, (from_s, to_s)).ok_or_else(|| failed("no region while it was looked at"))
    };
    LEVELS.into_iter().map(look).collect()
}

fn called(name: &str, level: &str) -> String {
    format!("openmp-{name}-{level}.vsteer")
}

/// The recording of a setting by [`looks`].
pub fn recording_of(bench: &Bench, name: &str, level: &str) -> String {
    bench.output.join(called(name, level)).to_string_lossy().into_owned()
}

/// The present wall-clock time of this machine, s.
pub fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

fn seen(
    level: &'static str,
    model: &HostModel,
    all: &[Vec<Region>],
    (from_s, to_s): (f64, f64),
) -> Option<Look> {
    let took = in_window(all.iter().map(Vec::as_slice), from_s, to_s)?;
    let meanwhile = all.iter().flatten().filter(|r| r.begin_s < to_s && r.end_s > from_s);
    let longest_ms = meanwhile.map(|r| 1e3 * r.took_s()).fold(0.0, f64::max);
    Some(Look { level, seen: Seen::of(model), took, longest_ms })
}

/// Claims that the reason is visible.
pub fn claim(name: &str, looks: &[Look], findings: &mut Findings) {
    let of = |level: &str| looks.iter().find(|look| look.level == level).map(|look| &look.seen);
    findings.claim(
        format!(
            "OpenMP, {name}: the observer sees why: pinned vCPUs never move and wait for the other VM's, those that share a pCPU wait for each other"
        ),
        of("pinned").is_some_and(|s| s.never_moves() && s.waits_for_others())
            && of("together").is_some_and(|s| s.never_moves() && s.waits_for_its_own()),
        serde_json::to_string(looks).unwrap_or_default(),
    );
}
