//! Does a media player in a VM with Linux keep its frames beside a VM that computes?
//!
//! The last table of VIT (Park et al., J. KIISE 37(1), 2010, table 5): MPlayer plays 320x240 at 20 frames per
//! second, alone, beside a domain that computes, and with VIT. Here Debian's MPlayer, kernel and QEMU run
//! unmodified under KVM on the emulated host (see [`crate::emulated`]), on one pCPU. The paper's BVT lets a
//! domain run for 50 ms at a time. The result also shows how much the kernel's own scheduler takes from a
//! player.
//!
//! Left out: a thread of class idle that computes in the player's VM, so that its vCPU never sleeps
//! (`play,background=1`): beside a competitor that guest crashed in four boots of four (GAP(rt-media) in
//! docs/realtime.md).
//!
//! Each set-up has a separate boot, because the image is large and one VM of this kind is enough for one
//! boot.

use super::boots;
use crate::emulated::Ran;
use crate::emulated::job::Job;
use crate::fetch::kernels::Which;
use crate::report::window::VmWindow;
use crate::suite::{Bench, Findings};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use vsteer_core::{Fault, FaultKind};

/// The film's rate; a loop's first frame adds to it.
const FRAMES_PER_S: f64 = 20.0;
/// The least part of the frames per second that it has alone.
const KEPT_LEAST: f64 = 0.97;
/// The least number of calls of a player that reports its timers, from its start to the end; 523 were seen at
/// first.
const CALLS_LEAST: u64 = 100;
/// The time until QEMU has read its files, Linux has booted and the player has found its 281 libraries: 15 s
/// of a pCPU, of which half is available.
const SETTLE_S: u32 = 34;
const RECORD_S: u32 = 20;
const POLICY: &str =
    "ahead = true\ncommand = [\"realtime\", \"run\", \"--yes\", \"--json\", \"--vm\", \"rt\"]\n";

/// The competitor of a player, and the scheduler.
#[derive(Clone, Copy)]
struct SetUp {
    name: &'static str,
    /// Is there a VM that computes?
    competitor: bool,
    policy: bool,
    /// Does the library report the player's timers? Otherwise only the VM's own timer counts.
    told: bool,
}

const SET_UPS: &[SetUp] = &[
    SetUp { name: "player-alone", competitor: false, policy: false, told: false },
    SetUp { name: "player-competitor", competitor: true, policy: false, told: false },
    SetUp { name: "player-vit", competitor: true, policy: true, told: false },
    SetUp { name: "player-told", competitor: true, policy: true, told: true },
];

fn job(set_up: SetUp, before_s: u32) -> Result<Job, Fault> {
    // The image of 350 MiB is in memory twice for a moment, and the VM holds another copy.
    let mut text = format!(
        "memory_mib = 3072\nsettle_s = {before_s}\n[[case]]\nname = {:?}\nsettle_s = {SETTLE_S}\nrecord_s = {RECORD_S}\nobserve = false\n{}",
        set_up.name,
        if set_up.policy { POLICY } else { "" }
    );
    let competitor = set_up.competitor.then_some(("job", "burn"));
    for (name, workload) in
        [("rt", if set_up.told { "play,call=1" } else { "play" })].into_iter().chain(competitor)
    {
        let _ = write!(text, "[[case.vm]]\nname = {name:?}\nworkload = {workload:?}\ncpus = \"1\"\n");
    }
    Job::parse(&text)
}

/// The claims.
///
/// # Errors
/// None: a set-up whose emulated host fails is a claim that does not hold, and the results of the others are
/// reported.
pub fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    let kernels: &[Which] = if bench.full { &[boots::SERIES, Which::Newest] } else { &[Which::Newest] };
    let mut figures = Map::new();
    for which in kernels {
        let mut found = BTreeMap::new();
        let mut kernel = String::new();
        // On the older kernel, the guest with reported timers crashed in four boots of four (GAP(rt-guest) in
        // docs/realtime.md).
        for set_up in SET_UPS.iter().filter(|set_up| !set_up.told || *which == Which::Newest) {
            let options = boots::options(bench, *which, &format!("realtime-media-{}", set_up.name))?;
            match boots::boot(set_up.name, &options, |before_s| job(*set_up, before_s)) {
                Ok(ran) => {
                    kernel = format!("Linux {}", ran.kernel.release);
                    found.insert(set_up.name, Played::of(&ran, set_up.name, &options.output));
                }
                Err(fault) if fault.kind == FaultKind::Interrupted => return Err(fault),
                Err(fault) => {
                    findings.claim(
                        format!("{kernel}: {} runs to its end", set_up.name),
                        false,
                        fault.to_string(),
                    );
                }
            }
        }
        claims(&kernel, &found, &mut findings);
        let found: Map<String, Value> =
            found.iter().map(|(name, p)| ((*name).to_owned(), p.figures())).collect();
        figures.insert(kernel, Value::Object(found));
    }
    findings.figures = json!({ "kernels": figures, "seed": bench.seed });
    Ok(findings)
}

/// Frames per second, the 99th percentile of the time between frames, ms, and the competitor's units per
/// second.
struct Played {
    fps: f64,
    p99_ms: f64,
    max_ms: f64,
    job: f64,
    /// The policy's final output; null without one.
    said: Value,
}

impl Played {
    fn of(ran: &Ran, case: &str, folder: &Path) -> Played {
        let said = std::fs::read_to_string(folder.join(case).join("command.out")).unwrap_or_default();
        let window = |name: &str| -> Option<&VmWindow> {
            let case = ran.cases.iter().find(|c| c.name == case)?;
            case.measured.iter().flatten().find(|m| m.name == name).map(|m| &m.window)
        };
        let frames = window("rt").and_then(|w| w.response.as_ref());
        Played {
            fps: window("rt").map_or(f64::NAN, |w| w.work_units_per_s),
            p99_ms: frames.map_or(f64::NAN, |f| f.p99_ms),
            max_ms: frames.map_or(f64::NAN, |f| f.max_ms),
            job: window("job").map_or(f64::NAN, |w| w.work_units_per_s),
            said: serde_json::from_str(&said).unwrap_or_default(),
        }
    }

    fn figures(&self) -> Value {
        json!({ "fps": self.fps, "frame_to_frame_p99_ms": self.p99_ms, "frame_to_frame_max_ms": self.max_ms, "competitor_units_per_s": self.job })
    }
}

fn claims(kernel: &str, found: &BTreeMap<&str, Played>, findings: &mut Findings) {
    let [alone, beside, vit, told] =
        ["alone", "competitor", "vit", "told"].map(|set_up| found.get(format!("player-{set_up}").as_str()));
    let (Some(alone), Some(beside), Some(vit)) = (alone, beside, vit) else { return };
    findings.claim(
        format!("{kernel}: a media player in a VM with Linux plays 97 % of its frames beside a VM that computes, with VIT"),
        alone.fps >= KEPT_LEAST * FRAMES_PER_S && vit.fps >= KEPT_LEAST * alone.fps,
        format!(
            "{:.2} frames/s alone, {:.2} with the competitor, {:.2} with VIT; from frame to frame (99th percentile) {:.1}, {:.1}, {:.1} ms",
            alone.fps, beside.fps, vit.fps, alone.p99_ms, beside.p99_ms, vit.p99_ms
        ),
    );
    let Some(told) = told else { return };
    let calls = told.said["vms"][0]["calls"].as_u64().unwrap_or(0);
    findings.claim(
        format!(
            "{kernel}: unmodified, started by `vit` in its Linux, it tells the host of its timers once the host has opted its VM in by the port, and plays as well"
        ),
        told.said["guests_told"] == 1 && calls >= CALLS_LEAST && told.fps >= KEPT_LEAST * alone.fps,
        format!(
            "{} guests told, {calls} calls; {:.2} frames/s, from frame to frame (99th percentile) {:.1} ms",
            told.said["guests_told"], told.fps, told.p99_ms
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobs_are_some_and_their_times_are_exact() {
        for set_up in SET_UPS {
            let job = job(*set_up, boots::BEFORE_S).unwrap();
            assert!(job.plays() && job.inexact(&job.cases[0]).is_none(), "{}", set_up.name);
        }
    }
}
