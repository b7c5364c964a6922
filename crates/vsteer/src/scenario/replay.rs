//! A recorded host, simulated: as it was (does the simulator give back what was measured?) and changed.

use super::record;
use crate::cli::Setting;
use crate::interrupt::Interrupt;
use crate::source::{self, Stretch, progress_done, progress_of};
use crate::text::one_line;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use vsteer_core::forecast::fluid;
use vsteer_core::model::{HostModel, ThreadModel};
use vsteer_core::nouns::{HostConfig, Tid, VmId, VmThread};
use vsteer_core::timeline::Switch;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::Recording;
use vsteer_sim::forecast::demand::{Demands, demands, unswitched};
use vsteer_sim::forecast::recorded::ReplayForecaster;
use vsteer_sim::forecast::replay::{Got, Replay, keep_slices, replay};
use vsteer_sim::forecast::weights;

/// The tick where a recording tells none: the simulator's default.
const USUAL_HZ: u32 = 250;
/// What others may use before it is worth a note, pCPUs.
const OTHERS_TOLD: f64 = 0.02;

/// What the host's processes outside VMs used, pCPUs.
fn others_pcpus(model: &HostModel) -> f64 {
    let busy: f64 = model.pcpus.iter().map(|p| p.busy).sum();
    let vms: f64 = model.vms.iter().filter_map(|vm| vm.group.run).sum();
    (busy - vms).max(0.0)
}

/// How the host is changed: what is asked for together happens together.
pub struct Change<'a> {
    /// By this plan.
    pub plan: Option<&'a Path>,
    /// To the configuration of this later recording of the same VMs.
    pub under: Option<&'a Path>,
    /// By these parameters of its scheduler.
    pub set: &'a [Setting],
}

/// One vCPU: measured, simulated as it was, predicted under a change, and what was then measured.
struct Row<'a> {
    vm: &'a str,
    vcpu: u32,
    measured: Option<&'a ThreadModel>,
    simulated: &'a Got,
    predicted: Option<&'a Got>,
    /// The ready share by fluid fair share: what a prediction has to beat, as has foretelling no change.
    fluid: Option<f64>,
    then: Option<&'a ThreadModel>,
}

impl Row<'_> {
    /// Does it wait, before or after?
    fn waits(&self) -> bool {
        let ready = |m: Option<&ThreadModel>| m.and_then(|m| m.shares.ready).unwrap_or(0.0);
        ready(self.measured).max(ready(self.then)) >= WAITS_FROM
    }
}

/// A vCPU that waits less than this, before and after, is easy to foretell and is left out of errors.
const WAITS_FROM: f64 = 0.05;
/// A 99th percentile of fewer wake-ups says little, and is left out of errors.
const WAKE_UPS_FROM: u64 = 1000;

/// A recorded host and what each of its threads wanted.
pub struct Recorded {
    /// The recording.
    pub stretch: Stretch,
    /// Its length, ns.
    pub window_ns: u64,
    wanted: Demands,
}

impl Recorded {
    /// Reads `folder`; notes on what is missing in it go to standard error.
    ///
    /// # Errors
    /// As [`source::read`] and [`Recorded::of`].
    pub fn open(folder: &Path) -> Result<Recorded, Fault> {
        Recorded::of(&source::read(folder)?, folder)
    }

    /// What `recording`, read from `folder`, tells.
    ///
    /// # Errors
    /// `NothingThere` for a recording without samples, switches or wake-ups.
    pub fn of(recording: &Recording, folder: &Path) -> Result<Recorded, Fault> {
        let (Some(first), Some(last)) = (recording.batches.first(), recording.batches.last()) else {
            return Err(Fault::new(
                FaultKind::NothingThere,
                format!("{} holds no samples", folder.display()),
            ));
        };
        let (from_ns, to_ns) = (first.mono_ns, last.mono_ns);
        if !recording.has_switches() {
            return Err(without_switches(folder));
        }
        let recorded = recording.switches(from_ns, to_ns)?;
        recorded.notes.iter().for_each(|n| eprintln!("vsteer: {n}"));
        let stretch = source::whole(recording.clone())?;
        let threads: Vec<_> =
            stretch.config.vms.iter().flat_map(|vm| vm.threads.iter().map(|t| t.tid)).collect();
        enough(folder, &recorded.switches, &threads)?;
        let hz = stretch.config.scheduler.as_ref().and_then(|s| s.hz).unwrap_or(USUAL_HZ);
        let tick_ns = 1_000_000_000 / u64::from(hz.max(1));
        let mut wanted = demands(&recorded.switches, &threads, from_ns, to_ns, tick_ns);
        if let (Some(first), Some(last)) = (stretch.batches.first(), stretch.batches.last()) {
            unswitched(&mut wanted.by_thread, first, last);
        }
        Ok(Recorded { stretch, window_ns: to_ns - from_ns, wanted })
    }

    /// The simulation of `config`, its own or a changed one, under the recorded demands.
    ///
    /// # Errors
    /// As [`replay`].
    pub fn host(&self, config: &HostConfig) -> Result<Replay, Fault> {
        replay(config, &self.wanted, 1)
    }

    /// The same with these parameters of its scheduler.
    fn host_with<'s>(
        &self,
        config: &HostConfig,
        set: impl IntoIterator<Item = &'s Setting>,
    ) -> Result<Replay, Fault> {
        let mut host = self.host(config)?;
        for setting in set {
            host.values.set(&setting.key, number(setting)?)?;
        }
        Ok(host)
    }

    /// What the weights of its VMs come to ([`weights::effective`]).
    fn effective(
        &self,
        host: &Replay,
        as_it_was: &[Got],
        model: &HostModel,
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>, Fault> {
        let mut go_on = || {
            progress_of("reading off what weights come to", 0.5, "");
            !interrupt.is_set()
        };
        let effective = weights::effective(host, as_it_was, model, self.window_ns, &mut go_on)?;
        progress_done();
        Ok(effective)
    }

    /// What each thread gets in it, once round to warm up and once measured.
    ///
    /// # Errors
    /// As [`Replay::run`].
    pub fn simulate(
        &self,
        config: &HostConfig,
        what: &str,
        interrupt: &Interrupt,
    ) -> Result<Vec<Got>, Fault> {
        self.run(&self.host(config)?, what, interrupt)
    }

    /// The same of a simulation that was made already.
    ///
    /// # Errors
    /// As [`Replay::run`].
    pub fn run(&self, host: &Replay, what: &str, interrupt: &Interrupt) -> Result<Vec<Got>, Fault> {
        let mut go_on = || {
            progress_of(what, 0.5, "");
            !interrupt.is_set()
        };
        let got = host.run(self.window_ns, self.window_ns, &mut go_on);
        progress_done();
        got
    }

    /// Simulates the host as it was, to foretell what changes do to it.
    ///
    /// # Errors
    /// As [`ReplayForecaster::new`].
    pub fn forecaster<'a>(
        &'a self,
        model: &'a HostModel,
        interrupt: &Interrupt,
    ) -> Result<ReplayForecaster<'a>, Fault> {
        let mut go_on = || {
            progress_of("simulating the host as it was", 0.5, "");
            !interrupt.is_set()
        };
        let told =
            ReplayForecaster::new(&self.stretch.config, model, &self.wanted, self.window_ns, &mut go_on);
        progress_done();
        told
    }

    /// Whole bursts, and those that were not seen whole.
    fn bursts(&self) -> (usize, usize) {
        self.wanted.by_thread.values().fold((0, 0), |(w, b), t| (w + t.bursts, b + t.broken))
    }

    /// What the simulation cannot know.
    pub fn notes(&self, model: &HostModel) -> Vec<String> {
        let mut notes = Vec::new();
        let (whole, broken) = self.bursts();
        if broken > 0 {
            notes.push(format!("{broken} of {} bursts were not seen whole and are left out", whole + broken));
        }
        let others = others_pcpus(model);
        if others > OTHERS_TOLD {
            notes.push(format!(
                "processes outside the VMs used {others:.2} pCPUs; they are not simulated, so waits for them are missing"
            ));
        }
        notes
    }
}

/// How far what was simulated is off what was measured.
pub fn calibration(got: &[Got], model: &HostModel) -> Errors {
    let pair = |g| -> (Option<&Got>, Option<&ThreadModel>) { (Some(g), measured(g, model)) };
    Errors::of(got.iter().filter(|g| g.thread.role.vcpu().is_some()).map(pair))
}

fn measured<'a>(got: &Got, model: &'a HostModel) -> Option<&'a ThreadModel> {
    model.vm(&got.thread.vm)?.threads.iter().find(|t| t.tid == got.thread.tid)
}

/// Simulates `folder`'s host, whose scheduler's parameters `was` tells where they were not the defaults; and once more with
/// the change, if there is one.
///
/// # Errors
/// As [`Recorded::open`] and [`Recorded::run`]; for a plan or recording that does not belong to it; `BadInput` for a
/// parameter that the scheduler does not have; as [`record::recorded`] for `output`, into which the last forecast goes:
/// the host under the change, or as it was.
pub fn run(
    folder: &Path,
    was: &[Setting],
    change: &Change<'_>,
    output: Option<&Path>,
    json: bool,
) -> Result<(), Fault> {
    let interrupt = Interrupt::listen();
    let recorded = Recorded::open(folder)?;
    let later = change.under.map(|p| source::whole(source::read(p)?)).transpose()?;
    let config = &recorded.stretch.config;
    let changed = changed(config, change, later.as_ref())?;
    let model = recorded.stretch.model()?;
    let then = later.map(|l| l.model()).transpose()?;
    let before = recorded.host_with(config, was)?;
    let as_it_was = recorded.run(&before, "simulating", &interrupt)?;
    let mut notes = recorded.notes(&model);
    let after = match &changed {
        None => None,
        Some(changed) => {
            let effective = recorded.effective(&before, &as_it_was, &model, &interrupt)?;
            notes.extend(weights::told(&before, &effective));
            let mut after = recorded.host_with(changed, was.iter().chain(change.set))?;
            weights::scale(&mut after, &effective);
            keep_slices(&before, &mut after)?;
            Some(after)
        }
    };
    let predicted =
        after.as_ref().map(|a| recorded.run(a, "simulating the change", &interrupt)).transpose()?;
    if let Some(output) = output {
        let case = after.as_ref().unwrap_or(&before).case(recorded.window_ns)?;
        let (_, events) = record::recorded(&case, case.setup.seed, output, &interrupt)?;
        record::told(output, events.recorded);
    }
    let fluid = changed.map(|c| fluid::ready_after(config, &c, &model)).unwrap_or_default();
    let rows = Sources { model: &model, predicted: predicted.as_deref(), fluid: &fluid, then: then.as_ref() }
        .rows(&as_it_was);
    let off = Off::of(&rows);
    if json {
        let (whole, broken) = recorded.bursts();
        let rows: Vec<Value> = rows.iter().map(value).collect();
        crate::text::print_json(&json!({
            "recording": folder, "window_ns": recorded.window_ns, "bursts": whole, "broken": broken,
            "notes": notes, "calibration": off.calibration, "prediction": off.prediction,
            "no_change_ready_error": off.no_change, "fluid_ready_error": off.fluid, "vcpus": rows,
        }));
    } else {
        print(&rows, &off, &notes);
    }
    Ok(())
}

fn print(rows: &[Row<'_>], off: &Off, notes: &[String]) {
    print!("{}", text(rows));
    println!("simulated against measured: {}", off.calibration.told());
    if rows.iter().any(|r| r.then.is_some()) {
        println!("predicted against measured then: {}", off.prediction.told());
        let told =
            |e: Option<f64>| e.map_or_else(|| "-".to_owned(), |e| format!("{:.2} points off", 100.0 * e));
        println!(
            "foretelling that nothing changes: ready {}; by fluid fair share: {}",
            told(off.no_change),
            told(off.fluid)
        );
    }
    notes.iter().for_each(|n| println!("note: {n}"));
}

/// The configuration under the change; `None` where nothing is changed.
fn changed(
    config: &HostConfig,
    change: &Change<'_>,
    later: Option<&Stretch>,
) -> Result<Option<HostConfig>, Fault> {
    Ok(match (change.plan, later) {
        (Some(path), _) => Some(fluid::after(config, &vsteer_record::plan::read(path)?.steps)),
        (None, Some(later)) => Some(same_threads(config, &later.config)?),
        (None, None) => (!change.set.is_empty()).then(|| config.clone()),
    })
}

/// What a host's simulated vCPUs are held against.
struct Sources<'a> {
    model: &'a HostModel,
    predicted: Option<&'a [Got]>,
    fluid: &'a BTreeMap<Tid, f64>,
    then: Option<&'a HostModel>,
}

impl<'a> Sources<'a> {
    fn rows(&self, as_it_was: &'a [Got]) -> Vec<Row<'a>> {
        let row = |got: &'a Got| {
            let same = |g: &&Got| g.thread.tid == got.thread.tid;
            Some(Row {
                vm: &self.model.vm(&got.thread.vm)?.name,
                vcpu: got.thread.role.vcpu()?,
                measured: measured(got, self.model),
                simulated: got,
                predicted: self.predicted.and_then(|all| all.iter().find(same)),
                fluid: self.fluid.get(&got.thread.tid).copied(),
                then: self.then.and_then(|m| measured(got, m)),
            })
        };
        as_it_was.iter().filter_map(row).collect()
    }
}

/// The error of each kind of forecast, over the vCPUs that wait.
struct Off {
    calibration: Errors,
    prediction: Errors,
    /// What the prediction has to beat: that nothing changes, and fluid fair share.
    no_change: Option<f64>,
    fluid: Option<f64>,
}

impl Off {
    fn of(rows: &[Row<'_>]) -> Off {
        let waiting: Vec<&Row<'_>> = rows.iter().filter(|r| r.waits()).collect();
        let ready = |m: Option<&ThreadModel>| m.and_then(|m| m.shares.ready);
        let measured = waiting.iter().filter_map(|r| Some((ready(r.measured)?, ready(r.then)?)));
        Off {
            calibration: Errors::of(waiting.iter().map(|r| (Some(r.simulated), r.measured))),
            prediction: Errors::of(waiting.iter().map(|r| (r.predicted, r.then))),
            no_change: ready_error(measured),
            fluid: ready_error(waiting.iter().filter_map(|r| Some((r.fluid?, ready(r.then)?)))),
        }
    }
}

/// The value of a scheduler's parameter.
fn number(setting: &Setting) -> Result<u64, Fault> {
    setting.text.parse().map_err(|_| {
        Fault::new(FaultKind::Usage, format!("{}={}: not a whole number", setting.key, setting.text))
            .way_out("with --from, parameters of the scheduler are set: `vsteer simulate --list` has them")
    })
}

/// The later configuration, if its threads are those of the recording.
fn same_threads(config: &HostConfig, later: &HostConfig) -> Result<HostConfig, Fault> {
    let has = |vm: &VmId, t: &VmThread| {
        let vm = later.vms.iter().find(|v| v.id == *vm);
        vm.is_some_and(|v| v.threads.iter().any(|u| u.tid == t.tid && u.role == t.role))
    };
    for vm in &config.vms {
        if let Some(t) = vm.threads.iter().find(|t| t.role.vcpu().is_some() && !has(&vm.id, t)) {
            let what = format!(
                "VM {:?}: its {} (thread {}) is not in the later recording",
                vm.name, t.role, t.tid.0
            );
            return Err(
                Fault::new(FaultKind::BadInput, what).way_out("take two recordings of the same running VMs")
            );
        }
    }
    // When periods of quotas begin is known before the change.
    let clocks = config.scheduler.as_ref().map(|s| s.quota_clocks.clone()).unwrap_or_default();
    let mut later = later.clone();
    if let Some(scheduler) = &mut later.scheduler {
        scheduler.quota_clocks = clocks;
    }
    Ok(later)
}

/// How far off, over some vCPUs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Errors {
    /// Of the ready share, mean.
    ready: Option<f64>,
    /// Over so many vCPUs.
    vcpus: usize,
    /// Of the 99th percentile of the wake-up latency, as a part of the measured one: mean over those with enough wake-ups.
    wake_p99: Option<f64>,
}

impl Errors {
    fn of<'a>(pairs: impl Iterator<Item = (Option<&'a Got>, Option<&'a ThreadModel>)>) -> Errors {
        let pairs: Vec<(&Got, &ThreadModel)> =
            pairs.filter_map(|(got, thread)| Some((got?, thread?))).collect();
        let wake: Vec<f64> = pairs
            .iter()
            .filter_map(|(got, thread)| {
                let q = thread.wake_latency.filter(|q| q.count >= WAKE_UPS_FROM)?;
                Some((got.wake.quantile_ns(0.99)? - q.p99_ns).abs() / q.p99_ns)
            })
            .collect();
        let ready = pairs.iter().filter_map(|(got, thread)| Some((got.ready, thread.shares.ready?)));
        Errors { ready: ready_error(ready), vcpus: pairs.len(), wake_p99: vsteer_core::stats::mean(&wake) }
    }

    /// In words.
    pub fn told(&self) -> String {
        let Some(ready) = self.ready else { return "no vCPU waited 5 % or more".to_owned() };
        let wake = self.wake_p99.map_or_else(String::new, |w| format!(", wake-up p99 {:.0} %", 100.0 * w));
        format!(
            "ready {:.2} points off{wake} (means over {} vCPUs that wait 5 % or more)",
            100.0 * ready,
            self.vcpus
        )
    }
}

fn ready_error(pairs: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let errors: Vec<f64> = pairs.map(|(a, b)| (a - b).abs()).collect();
    vsteer_core::stats::mean(&errors)
}

fn without_switches(folder: &Path) -> Fault {
    Fault::new(FaultKind::NothingThere, format!("{} has no context switches", folder.display()))
        .way_out("record with --events")
}

/// Is there what demands of these threads are made of?
fn enough(folder: &Path, switches: &[Switch], threads: &[Tid]) -> Result<(), Fault> {
    if !switches.iter().any(Switch::is_switch) {
        return Err(without_switches(folder));
    }
    // Where all burn there are none.
    let sleeps = switches.iter().any(|s| s.is_switch() && s.prev_state != 0 && threads.contains(&s.prev));
    if sleeps && !switches.iter().any(|s| s.woken().is_some()) {
        return Err(Fault::new(FaultKind::NothingThere, format!("{} has no wake-ups", folder.display()))
            .way_out("record with --events, by a vsteer that records them"));
    }
    Ok(())
}

fn value(row: &Row<'_>) -> Value {
    let told = |g: &Got| {
        json!({ "run": g.run, "ready": g.ready, "limited": g.limited, "wake_p99_ns": g.wake.quantile_ns(0.99),
            "wake_ups": g.wake_ups(), "switches_per_s": g.switches_per_s })
    };
    let seen = |m: &ThreadModel| {
        json!({ "run": m.shares.run, "ready": m.shares.ready, "limited": m.shares.limited,
            "wake_p99_ns": m.wake_latency.map(|q| q.p99_ns), "wake_ups": m.wake_latency.map(|q| q.count),
            "switches_per_s": m.switches_per_s })
    };
    json!({ "vm": row.vm, "vcpu": row.vcpu, "measured": row.measured.map(seen), "simulated": told(row.simulated),
        "predicted": row.predicted.map(told), "fluid_ready": row.fluid, "then": row.then.map(seen), "waits": row.waits() })
}

fn text(rows: &[Row<'_>]) -> String {
    let ms = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.3}", ns / 1e6));
    let percent = |x: Option<f64>| x.map_or_else(|| "-".to_owned(), |x| format!("{:.2}", 100.0 * x));
    let cells = |run, ready, wake| format!("  {:>7} {:>7} {:>9}", percent(run), percent(ready), ms(wake));
    let of = |g: &Got| cells(Some(g.run), Some(g.ready), g.wake.quantile_ns(0.99));
    let seen = |m: Option<&ThreadModel>| {
        m.map_or_else(
            || cells(None, None, None),
            |m| cells(m.shares.run, m.shares.ready, m.wake_latency.map(|q| q.p99_ns)),
        )
    };
    let mut groups = vec!["measured", "simulated"];
    groups.extend(rows.iter().any(|r| r.predicted.is_some()).then_some("predicted"));
    groups.extend(rows.iter().any(|r| r.then.is_some()).then_some("measured then"));
    let mut out = format!("{:<22} {:>4}", "", "");
    groups.iter().for_each(|g| out += &format!("  {g:>25}"));
    out += &format!("\n{:<22} {:>4}", "VM", "vCPU");
    groups.iter().for_each(|_| out += &format!("  {:>7} {:>7} {:>9}", "run %", "ready %", "wake p99"));
    out += "  (ms)\n";
    for row in rows {
        out +=
            &format!("{:<22} {:>4}{}{}", one_line(row.vm), row.vcpu, seen(row.measured), of(row.simulated));
        out += &row.predicted.map_or_else(String::new, of);
        out += &row.then.map_or_else(String::new, |m| seen(Some(m)));
        out += "\n";
    }
    out
}
