//! What does contention cost a remote display, and does a plan recover it? `vsteer-display` runs in a real
//! VM: alone, beside VMs that compute, and after `vsteer plan` and `apply`, in turn.
//!
//! The whole path runs in the VM: drawing, encoding, the link, decoding. The VM reports each presented frame
//! when its number has been read (as an answered request, which also gives its latency). The picture is the
//! largest at which the VM alone reaches 20 frames a second, found by trying. The codec keeps its quality
//! with any amount of CPU, so presented frames are as legible as those of the VM alone. Legibility is
//! measured for this picture on this machine, not in the VM.
//!
//! The plan is made once, from a recording beside the others. A VM that shows as many frames as it can asks
//! for all of its pCPUs. So vsteer has no reason of its own to prefer it to others that do the same. Its
//! operator says that this VM matters more (`plan --set VM:weight=`), and the plan forecasts what it gets.
//! Then follow windows alone (the others are stopped: SIGSTOP), beside the others, and after the plan, in
//! turn, in an order that changes from round to round. A round gives one difference of each kind; the rounds
//! give an interval. During a window the observer measures the same VM: its vCPUs' ready time and wake-up
//! latency are the cause of missing frames.
//!
//! Left out: real servers in the VM; a viewer on another machine.

use crate::contention::Lab;
use crate::drive::{Vsteer, wait};
use crate::report::requests::{self, requests_file};
use crate::suite::steered::failed;
use crate::suite::stopped::Stopped;
use crate::suite::{Bench, Findings};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vsteer_core::model;
use vsteer_core::stats::{half_width, mean};
use vsteer_core::{Fault, FaultKind};
use vsteer_record::Recording;

/// The cheapest codec whose quality is constant and whose frames can all be read.
const CODEC: &str = "tiles";
const TARGETS: u32 = 200;
/// Picture sizes, the smallest first.
const SIZES: [(u32, u32); 8] =
    [(352, 200), (400, 224), (480, 270), (640, 360), (800, 450), (960, 540), (1280, 720), (1920, 1080)];
const HELD_FPS: f64 = 20.0;
/// The required share of legible frames among the presented ones.
const LEGIBLE_LEAST: f64 = 0.9;
const VCPUS: u32 = 2;
/// The VM's weight if vsteer proposes nothing; the others have 1,024 shares each.
const WEIGHT: &str = "10240";
/// At full size, each of [`ORDERS`] once.
const ROUNDS: (usize, usize) = (ORDERS.len(), 2);
const WINDOW: Duration = Duration::from_secs(10);
/// The longest time from the presentation of a frame to its line in the log.
const LOGGED: Duration = Duration::from_millis(2500);
const SETTLE: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(120);
/// The VMs beside it, on two pCPUs.
const BESIDE: &str = "burn=2x2";

/// The results of one window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Seen {
    /// Frames presented per second.
    fps: f64,
    /// Mean time from when a frame should have been drawn until it was presented, ms.
    latency_ms: f64,
    /// Mean ready share of the VM's vCPUs, percent.
    ready_pct: Option<f64>,
    /// From wake-up to running, 99th percentile, ms.
    lag_p99_ms: Option<f64>,
    /// Work units of the others per second.
    others_work: f64,
}

/// The kinds of windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Now {
    /// Alone: the others are stopped.
    Alone,
    /// Beside the others.
    Before,
    /// Beside the others, after the plan.
    After,
}

/// The orders, one per round. Each kind is equally often at each place.
const ORDERS: [[Now; 3]; 6] = [
    [Now::Alone, Now::Before, Now::After],
    [Now::After, Now::Before, Now::Alone],
    [Now::Before, Now::After, Now::Alone],
    [Now::Alone, Now::After, Now::Before],
    [Now::After, Now::Alone, Now::Before],
    [Now::Before, Now::Alone, Now::After],
];

/// A mean and half its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Interval {
    mean: f64,
    half: f64,
}

impl Interval {
    fn of(values: &[f64]) -> Option<Interval> {
        Some(Interval { mean: mean(values)?, half: half_width(values)? })
    }

    fn above_0(self) -> bool {
        self.mean - self.half > 0.0
    }
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn spec((width, height): (u32, u32)) -> String {
    format!(
        "program(run=vsteer-display/run/--tell/--codec/{CODEC}/--fps/25/--targets/{TARGETS}/--seconds/3600/--size/{width}x{height})=1x{VCPUS}"
    )
}

/// The VM that shows the picture.
fn shows(lab: &Lab) -> Result<String, Fault> {
    let vm = lab.state().vms.iter().find(|vm| vm.workload.starts_with("program"));
    vm.map(|vm| vm.name.clone()).ok_or_else(|| failed("no VM shows anything"))
}

/// Frames presented per second between two times, and their mean latency, ms.
fn frames(lab: &Lab, vm: &str, from_s: f64, to_s: f64) -> Result<(f64, f64), Fault> {
    let all = requests::answered(&requests_file(lab.dir(), vm))?;
    let took: Vec<f64> =
        all.iter().filter(|r| (from_s..to_s).contains(&r.ts_s)).map(|r| 1e3 * r.took_s).collect();
    Ok((took.len() as f64 / (to_s - from_s), mean(&took).unwrap_or(f64::NAN)))
}

/// Observes the VM for one window.
fn window(bench: &Bench, lab: &Lab, v: &Vsteer, vm: &str) -> Result<Seen, Fault> {
    let to = bench.fresh("display-window.vsteer")?;
    let (from_s, from_ns) = (now_s(), crate::report::clock::now_ns());
    let length = format!("{}s", WINDOW.as_secs());
    v.run(&["record", "-o", &to, "--for", &length, "--connect", &v.uri], false, LIMIT)?;
    let (to_s, to_ns) = (now_s(), crate::report::clock::now_ns());
    wait("until its frames are told", LOGGED)?;
    let (fps, latency_ms) = frames(lab, vm, from_s, to_s)?;
    let r = Recording::open(Path::new(&to))?;
    let model = model::derive(r.config_at(u64::MAX), &r.manifest.collector, &r.batches)?;
    let seen = model.vms.iter().find(|known| known.name == vm);
    let others = lab.window(from_ns, to_ns);
    let others = others.iter().filter(|m| m.vm != vm).filter_map(|m| m.window.as_ref());
    Ok(Seen {
        fps,
        latency_ms,
        ready_pct: seen.and_then(|vm| vm.vcpus.ready).map(|ready| 100.0 * ready / f64::from(VCPUS)),
        lag_p99_ms: seen.and_then(|vm| vm.wake_latency.as_ref()).map(|q| q.p99_ns / 1e6),
        others_work: others.map(|w| w.work_units_per_s).sum(),
    })
}

/// Frames per second of a VM alone with this picture.
fn alone(bench: &Bench, size: (u32, u32)) -> Result<f64, Fault> {
    let lab = bench.with(&spec(size), bench.seed)?;
    let lab = Bench { lab, ..bench.clone() };
    let fps = lab.on_lab(&spec(size), bench.seed, |lab, _| {
        let (vm, from_s) = (shows(lab)?, now_s());
        wait("alone", WINDOW)?;
        let to_s = now_s();
        wait("until its frames are told", LOGGED)?;
        Ok(frames(lab, &vm, from_s, to_s)?.0)
    })?;
    eprintln!("vsteer-lab: alone, {}x{}: {fps:.1} frames per second", size.0, size.1);
    Ok(fps)
}

/// A picture that the VM manages alone.
struct Largest {
    size: (u32, u32),
    fps: f64,
    tried: Vec<Value>,
}

/// The largest picture at which the VM alone reaches [`HELD_FPS`].
fn largest(bench: &Bench) -> Result<Largest, Fault> {
    let mut tried = Vec::new();
    let (mut holds, mut low, mut high) = (None, 0, SIZES.len());
    while low < high {
        let at = (low + high) / 2;
        let fps = alone(bench, SIZES[at])?;
        tried.push(json!({ "width": SIZES[at].0, "height": SIZES[at].1, "fps": fps }));
        if fps >= HELD_FPS {
            (holds, low) = (Some((SIZES[at], fps)), at + 1);
        } else {
            high = at;
        }
    }
    let (size, fps) = holds.ok_or_else(|| {
        Fault::new(FaultKind::Failed, format!("a VM that shows {}x{}", SIZES[0].0, SIZES[0].1))
            .because(format!("it does not hold {HELD_FPS} frames per second even alone: {tried:?}"))
    })?;
    Ok(Largest { size, fps, tried })
}

/// How well presented frames can be read: measured for this picture on this machine without a VM, because the
/// codec keeps its quality.
fn legibility(v: &Vsteer, (width, height): (u32, u32)) -> Result<f64, Fault> {
    let (size, targets) = (format!("{width}x{height}"), TARGETS.to_string());
    let words =
        ["display", "run", "--codec", CODEC, "--targets", &targets, "--size", &size, "--seconds", "3"];
    let row = v.json(&words, LIMIT)?["rows"][0].clone();
    let of = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
    Ok(of("legible_fps") / of("received_fps"))
}

/// The claims.
///
/// # Errors
/// The lab's.
pub fn run(bench: &Bench, findings: &mut Findings) -> Result<Value, Fault> {
    let largest = if bench.full {
        largest(bench)?
    } else {
        // A size that every machine manages, to show that the path works.
        Largest { size: SIZES[0], fps: alone(bench, SIZES[0])?, tried: Vec::new() }
    };
    let spec = format!("{},{BESIDE}", spec(largest.size));
    bench.on_lab(&spec, bench.seed, |lab, v| {
        let vm = shows(lab)?;
        let legible = legibility(v, largest.size)?;
        let (file, plan) = planned(bench, v, &vm)?;
        let steps = count(&plan);
        let found = v.settings()?;
        let rounds = rounds(bench, lab, v, &vm, (steps > 0).then_some(&file))?;
        let restored = v.settings()? == found;
        let effects = rounds.effects()?;
        findings.claim(
            format!(
                "contention: {}x{}, the largest picture at which the VM alone holds {HELD_FPS} frames per second, also between the rounds within their interval; they can be read",
                largest.size.0, largest.size.1
            ),
            effects.alone.mean + effects.alone.half >= HELD_FPS && legible >= LEGIBLE_LEAST,
            format!(
                "alone {:.1} when it was looked for, {:.1} ±{:.1} in the rounds, {:.0} % of them legible (on this machine, not in the VM); tried {}",
                largest.fps,
                effects.alone.mean,
                effects.alone.half,
                100.0 * legible,
                json!(largest.tried)
            ),
        );
        findings.claim(
            "contention costs frames, beside two VMs that compute, and the plan wins them back",
            effects.lost.above_0() && effects.won.above_0() && restored,
            format!(
                "{}; {steps} steps: {}; the others do {:.0} % of their work after; settings at the end {}",
                rounds.told(&effects),
                plan["title"].as_str().unwrap_or("no plan"),
                100.0 * rounds.others_keep(),
                if restored { "as found" } else { "differ" },
            ),
        );
        let Rounds { alone, before, after } = rounds;
        Ok(json!({ "size": largest.size, "alone_fps": largest.fps, "legible": legible, "tried": largest.tried,
            "alone": alone, "before": before, "after": after, "lost": effects.lost, "won_back": effects.won,
            "plan": plan["steps"] }))
    })
}

/// The number of steps of a plan.
fn count(plan: &Value) -> usize {
    plan["steps"].as_array().map_or(0, Vec::len)
}

/// Records beside the other VMs and plans. If vsteer proposes nothing, the plan raises the VM's weight.
/// Returns file and plan.
fn planned(bench: &Bench, v: &Vsteer, vm: &str) -> Result<(String, Value), Fault> {
    let file = bench.output.join("display-plan.json").to_string_lossy().into_owned();
    let recording = bench.fresh("display-before.vsteer")?;
    v.run(&["record", "-o", &recording, "--for", "30s", "--connect", &v.uri, "--events"], false, LIMIT)?;
    let mut plan = v.json(&["plan", &recording, "-o", &file], LIMIT)?;
    if count(&plan) == 0 {
        let set = format!("{vm}:weight={WEIGHT}");
        plan = v.json(&["plan", &recording, "-o", &file, "--set", &set], LIMIT)?;
        eprint!("{}", v.run(&["plan", &recording, "--set", &set], false, LIMIT)?);
    }
    Ok((file, plan))
}

/// The windows of each kind, by round.
#[derive(Default)]
struct Rounds {
    alone: Vec<Seen>,
    before: Vec<Seen>,
    after: Vec<Seen>,
}

/// Frames per second.
struct Effects {
    alone: Interval,
    lost: Interval,
    won: Interval,
}

/// Runs all rounds. Without a plan, the windows "after" are the same as those "before".
fn rounds(bench: &Bench, lab: &Lab, v: &Vsteer, vm: &str, plan: Option<&String>) -> Result<Rounds, Fault> {
    let mut rounds = Rounds::default();
    for round in 0..if bench.full { ROUNDS.0 } else { ROUNDS.1 } {
        for now in ORDERS[round % ORDERS.len()] {
            let stopped = (now == Now::Alone).then(|| Stopped::all_but(lab, vm)).transpose()?;
            let applied = plan.filter(|_| now == Now::After);
            if let Some(plan) = applied {
                v.json(&["apply", plan, "--yes", "--connect", &v.uri], LIMIT)?;
            }
            wait("letting it settle", SETTLE)?;
            let seen = window(bench, lab, v, vm)?;
            match now {
                Now::Alone => rounds.alone.push(seen),
                Now::Before => rounds.before.push(seen),
                Now::After => rounds.after.push(seen),
            }
            drop(stopped);
            if applied.is_some() {
                v.json(&["rollback", "--connect", &v.uri], LIMIT)?;
            }
        }
    }
    Ok(rounds)
}

fn each(seen: &[Seen], of: fn(&Seen) -> f64) -> Vec<f64> {
    seen.iter().map(of).collect()
}

fn mean_of(seen: &[Seen], of: fn(&Seen) -> f64) -> f64 {
    mean(&each(seen, of)).unwrap_or(f64::NAN)
}

/// Windows of a kind as text.
fn told(seen: &[Seen]) -> String {
    format!(
        "{:.1} frames/s, {:.0} ms late, ready {:.1} %, lag (p99) {:.1} ms",
        mean_of(seen, |s| s.fps),
        mean_of(seen, |s| s.latency_ms),
        mean_of(seen, |s| s.ready_pct.unwrap_or(f64::NAN)),
        mean_of(seen, |s| s.lag_p99_ms.unwrap_or(f64::NAN))
    )
}

impl Rounds {
    fn effects(&self) -> Result<Effects, Fault> {
        let fps = |seen: &[Seen]| each(seen, |s| s.fps);
        let differences = |more: &[Seen], less: &[Seen]| {
            Interval::of(&fps(more).iter().zip(fps(less)).map(|(more, less)| more - less).collect::<Vec<_>>())
        };
        let few = || failed("too few rounds");
        Ok(Effects {
            lost: differences(&self.alone, &self.before).ok_or_else(few)?,
            won: differences(&self.after, &self.before).ok_or_else(few)?,
            alone: Interval::of(&fps(&self.alone)).ok_or_else(few)?,
        })
    }

    fn told(&self, effects: &Effects) -> String {
        let Effects { lost, won, .. } = effects;
        format!(
            "lost {:.1} ±{:.1}, won back {:.1} ±{:.1} frames per second in {} rounds; alone: {}; before: {}; after: {}",
            lost.mean,
            lost.half,
            won.mean,
            won.half,
            self.before.len(),
            told(&self.alone),
            told(&self.before),
            told(&self.after)
        )
    }

    /// The other VMs' work after the plan, as a part of their work before it.
    fn others_keep(&self) -> f64 {
        mean_of(&self.after, |s| s.others_work) / mean_of(&self.before, |s| s.others_work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_can_have_it() {
        let text = format!("{},{BESIDE}", spec(SIZES[0]));
        let spec = text.parse::<crate::contention::spec::Spec>().unwrap();
        assert_eq!(crate::image::programs::named(&spec.groups[0].workload), Some("vsteer-display"));
    }

    #[test]
    fn an_interval_says_whether_it_holds_0() {
        let of = |values: &[f64]| Interval::of(values).unwrap();
        assert!(of(&[1.0, 1.1, 0.9]).above_0() && !of(&[1.0, -1.1, 0.9]).above_0());
        assert!(Interval::of(&[1.0]).is_none());
    }
}
