//! Simulates a recorded host: as recorded, to check the simulator against the measurement, and with changes.

use super::record;
use crate::assignment::Setting;
use crate::interrupt::Interrupt;
use crate::source::{self, Stretch, progress_done, progress_of};
use crate::text::one_line;
use serde_json::{Value, json};
use std::path::Path;
use vsteer_core::forecast::fluid;
use vsteer_core::model::{HostModel, ThreadModel};
use vsteer_core::nouns::{HostConfig, Tid};
use vsteer_core::timeline::Switch;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::Recording;
use vsteer_sim::forecast::compared::{Compared, Row, Sides, others_pcpus, same_threads};
use vsteer_sim::forecast::demand::{Demands, Wanted, demands, unswitched};
use vsteer_sim::forecast::recorded::ReplayForecaster;
use vsteer_sim::forecast::replay::{Got, Replay, keep_slices, replay};
use vsteer_sim::forecast::weights;

/// The tick where a recording tells none: the simulator's default.
const USUAL_HZ: u32 = 250;
/// What others may use before it is worth a note, pCPUs.
const OTHERS_TOLD: f64 = 0.02;

/// How the host is changed: what is asked for together happens together.
pub struct Change<'a> {
    /// By this plan.
    pub plan: Option<&'a Path>,
    /// To the configuration of this later recording of the same VMs.
    pub under: Option<&'a Path>,
    /// By these parameters of its scheduler.
    pub set: &'a [Setting],
}

/// A recorded host and what each of its threads wanted.
pub struct Recorded {
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
                format!("recording {} has no samples", folder.display()),
            ));
        };
        let (from_ns, to_ns) = (first.mono_ns, last.mono_ns);
        if !recording.has_switches() {
            return Err(without_switches(folder));
        }
        let recorded = recording.switches(from_ns, to_ns)?;
        recorded.notes.iter().for_each(crate::text::note);
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

    /// The demand of a thread; `None` if it is not in the recording.
    pub fn wanted(&self, tid: Tid) -> Option<&Wanted> {
        self.wanted.by_thread.get(&tid)
    }

    /// The simulation of `config`, its own or a changed one, under the recorded demands.
    ///
    /// # Errors
    /// As [`replay`].
    pub fn host(&self, config: &HostConfig) -> Result<Replay, Fault> {
        replay(config, &self.wanted, 1)
    }

    /// The same, with these parameters of its scheduler.
    fn with(&self, config: &HostConfig, set: &[Setting]) -> Result<Replay, Fault> {
        let mut host = self.host(config)?;
        for setting in set {
            host.values.set(&setting.key, number(setting)?)?;
        }
        Ok(host)
    }

    /// What weights come to on this host, by what each thread got and was measured to get.
    fn weights(
        &self,
        host: &Replay,
        got: &[Got],
        model: &HostModel,
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>, Fault> {
        let mut go_on = || {
            progress_of("measuring the effect of weights", 0.5, "");
            !interrupt.is_set()
        };
        let effective = weights::effective(host, got, model, self.window_ns, &mut go_on);
        progress_done();
        effective
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
            progress_of("simulating the recorded host", 0.5, "");
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
            notes.push(format!(
                "left out {broken} of {} bursts that the recording shows only in part",
                whole + broken
            ));
        }
        let others = others_pcpus(model);
        if others > OTHERS_TOLD {
            notes.push(format!(
                "processes outside the VMs used {others:.2} pCPUs; the simulation leaves them out, and so the waits for them"
            ));
        }
        notes
    }
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
    let changed = match (change.plan, &later) {
        (Some(path), _) => Some(fluid::after(config, &vsteer_record::files::read_plan(path)?.steps)),
        (None, Some(later)) => Some(same_threads(config, &later.config)?),
        (None, None) => (!change.set.is_empty()).then(|| config.clone()),
    };
    let model = recorded.stretch.model()?;
    let then = later.map(|l| l.model()).transpose()?;
    let before = recorded.with(config, was)?;
    let as_it_was = recorded.run(&before, "simulating", &interrupt)?;
    let mut notes = recorded.notes(&model);
    let mut last = before.clone();
    let mut predicted = None;
    if let Some(changed) = &changed {
        let effective = recorded.weights(&before, &as_it_was, &model, &interrupt)?;
        notes.extend(weights::told(&before, &effective));
        let set: Vec<Setting> = was.iter().chain(change.set).cloned().collect();
        last = recorded.with(changed, &set)?;
        weights::scale(&mut last, &effective);
        keep_slices(&before, &mut last)?;
        predicted = Some(recorded.run(&last, "simulating the change", &interrupt)?);
    }
    if let Some(output) = output {
        let case = last.case(recorded.window_ns)?;
        let (_, events) = record::recorded(&case, case.setup.seed, output, &interrupt)?;
        record::told(output, events.recorded);
    }
    let fluid = changed.map(|c| fluid::ready_after(config, &c, &model)).unwrap_or_default();
    let compared = Compared::of(&Sides {
        model: &model,
        as_it_was: &as_it_was,
        predicted: predicted.as_deref(),
        fluid: &fluid,
        then: then.as_ref(),
    });
    say(folder, &recorded, &compared, &notes, json);
    Ok(())
}

fn say(folder: &Path, recorded: &Recorded, compared: &Compared<'_>, notes: &[String], json: bool) {
    let Compared { rows, calibration, prediction, no_change, fluid } = compared;
    if json {
        let (whole, broken) = recorded.bursts();
        let rows: Vec<Value> = rows.iter().map(value).collect();
        crate::text::print_json(&json!({
            "recording": folder, "window_ns": recorded.window_ns, "bursts": whole, "broken": broken, "notes": notes,
            "calibration": calibration, "prediction": prediction, "no_change_ready_error": no_change,
            "fluid_ready_error": fluid, "vcpus": rows,
        }));
        return;
    }
    print!("{}", text(rows));
    println!("simulated against measured: {}", calibration.told());
    if rows.iter().any(|r| r.then.is_some()) {
        println!("predicted against measured after the change: {}", prediction.told());
        let told =
            |e: &Option<f64>| e.map_or_else(|| "-".to_owned(), |e| format!("{:.2} points off", 100.0 * e));
        println!(
            "for comparison, off by: no change at all: ready {}; fluid fair shares: {}",
            told(no_change),
            told(fluid)
        );
    }
    notes.iter().for_each(|n| println!("note: {n}"));
}

/// The value of a scheduler's parameter.
fn number(setting: &Setting) -> Result<u64, Fault> {
    setting.text.parse().map_err(|_| {
        Fault::new(FaultKind::Usage, format!("{}={} is not a whole number", setting.key, setting.text)).help(
            "with --from, --set changes a parameter of the scheduler; to list them: vsteer simulate --list",
        )
    })
}

fn without_switches(folder: &Path) -> Fault {
    Fault::new(FaultKind::NothingThere, format!("recording {} has no context switches", folder.display()))
        .help("record with --events")
}

/// Is there what demands of these threads are made of?
fn enough(folder: &Path, switches: &[Switch], threads: &[Tid]) -> Result<(), Fault> {
    if !switches.iter().any(Switch::is_switch) {
        return Err(without_switches(folder));
    }
    // Where all burn there are none.
    let sleeps = switches.iter().any(|s| s.is_switch() && s.prev_state != 0 && threads.contains(&s.prev));
    if sleeps && !switches.iter().any(|s| s.woken().is_some()) {
        return Err(Fault::new(
            FaultKind::NothingThere,
            format!("recording {} has no wake-ups", folder.display()),
        )
        .help("make a new recording with this version of vsteer and --events"));
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
