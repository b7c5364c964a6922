//! `vsteer plan`: which change helps, and what does it do to each VM? A plan changes nothing.
//!
//! If the recording has context switches and a replay reproduces what was measured, forecasts come from replays. Else they
//! come from a simulation of threads that do at random what was counted, and where that is not possible from fluid fair
//! shares. The plan names the method, and standard error the reason.
//!
//! GAP(control-in-command): which forecaster to use is still decided here.

use crate::cli::{Method, PlanArgs, PlanFormat, ScopeChoice};
use crate::interrupt::Interrupt;
use crate::scenario::replay::Recorded;
use crate::source::{self, Stretch, progress_done, progress_of};
use crate::text;
use vsteer_core::forecast::Forecaster;
use vsteer_core::forecast::fluid;
use vsteer_core::model::HostModel;
use vsteer_core::nouns::HostConfig;
use vsteer_core::plan::advise::{plan as plan_by_fluid, plan_by, plan_of};
use vsteer_core::plan::limits::Limits;
use vsteer_core::plan::{Plan, powercli, set};
#[cfg(feature = "host")]
use vsteer_core::setting::argv::shell_word;
use vsteer_core::setting::{Scope, Step};
use vsteer_core::thresholds::Thresholds;
use vsteer_core::{Fault, FaultKind};
#[cfg(feature = "host")]
use vsteer_host::hypervisors::is_changed_there;
use vsteer_sim::forecast::cosched::Cosched;
use vsteer_sim::forecast::counted::CountedForecaster;
use vsteer_sim::forecast::recorded::{GIVEN_BACK, ReplayForecaster};

/// Plans. `thresholds`: those of the configuration.
///
/// # Errors
/// As [`source::window`]; `Usage` for an unknown action, or for a replay of what cannot be replayed; when the file
/// cannot be written.
pub fn run(a: &PlanArgs, thresholds: Thresholds, json: bool) -> Result<(), Fault> {
    if json && a.format == PlanFormat::Powercli {
        return Err(Fault::new(FaultKind::Usage, "cannot print a plan both as JSON and as a script")
            .help("leave out --json or --format powercli"));
    }
    let a = &Asked { a, thresholds };
    let plan = match look(a)? {
        Seen::Replayable(recorded) => {
            by_cosched_is_meant(a, &recorded.stretch.config)?;
            by_replay(a, &recorded)?
        }
        Seen::Samples(stretch) if by_cosched_is_meant(a, &stretch.config)? => by_cosched(a, &stretch)?,
        Seen::Samples(stretch) => by_samples(a, &stretch, &stretch.model()?)?,
    };
    if let Some(path) = &a.output {
        let text = serde_json::to_vec_pretty(&plan).expect("a plan is plain data");
        vsteer_record::files::replace(path, &text)?;
    }
    if json {
        crate::text::print_json(&plan);
    } else if a.format == PlanFormat::Powercli {
        print!("{}", powercli::script(&plan)?);
    } else {
        print!("{}", text::plan(&plan));
        match &a.output {
            Some(path) if plan.parent.has_powercli() && !plan.steps.is_empty() => {
                println!(
                    "to apply it: vsteer apply {} --connect vsphere://USER@HOST --try 5m",
                    path.display()
                );
                println!("for a script to review: add --format powercli");
            }
            None if plan.parent.has_powercli() && !plan.steps.is_empty() => {
                println!("for a script to review: add --format powercli\nfor vsteer apply: add -o plan.json");
            }
            _ if plan.steps.is_empty() => {}
            Some(path) if plan.parent.is_simulated() => {
                let from =
                    a.window.recording.as_ref().map_or("RECORDING".into(), |r| r.display().to_string());
                println!(
                    "to simulate it: vsteer simulate --from {from} --plan {} -o forecast.vsteer",
                    path.display()
                );
            }
            #[cfg(feature = "host")]
            Some(path) if a.window.recording.is_none() && is_changed_there(a.window.source.uri()) => {
                println!(
                    "to apply it, copy it to host {}, and run there: vsteer apply {} --try 60s",
                    text::one_line(&plan.parent.hostname),
                    path.file_name().unwrap_or_default().display()
                )
            }
            Some(path) => println!("to apply it: vsteer apply {}{} --try 60s", path.display(), connect(a)),
            _ => {}
        }
    }
    Ok(())
}

/// The option that opens the same host for `apply`, which else looks at all VMs of this machine.
#[cfg(feature = "host")]
fn connect(a: &PlanArgs) -> String {
    let uri = a.window.source.uri().filter(|_| a.window.recording.is_none());
    uri.map_or(String::new(), |uri| format!(" --connect {}", shell_word(uri)))
}

#[cfg(not(feature = "host"))]
fn connect(_: &PlanArgs) -> String {
    String::new()
}

/// What is asked for, and when a delay matters.
struct Asked<'a> {
    a: &'a PlanArgs,
    thresholds: Thresholds,
}

impl std::ops::Deref for Asked<'_> {
    type Target = PlanArgs;

    fn deref(&self) -> &PlanArgs {
        self.a
    }
}

fn limits(a: &Asked<'_>) -> Limits {
    let move_cost_ns = a.move_cost_us.map(|us| 1e3 * us);
    Limits { work_loss: a.work_loss / 100.0, move_cost_ns, thresholds: a.thresholds, ..Limits::default() }
}

fn scope(a: &PlanArgs, config: &HostConfig) -> Scope {
    match a.scope {
        // It has no setting that ends with the VM's run.
        None if config.keeps_settings() => Scope::Both,
        None | Some(ScopeChoice::Live) => Scope::Live,
        Some(ScopeChoice::Persistent) => Scope::Persistent,
        Some(ScopeChoice::Both) => Scope::Both,
    }
}

/// What a plan is made from.
enum Seen {
    /// A recording with switches and wake-ups.
    Replayable(Box<Recorded>),
    Samples(Box<Stretch>),
}

fn look(a: &Asked<'_>) -> Result<Seen, Fault> {
    let refused =
        |what: &str, help: &str| Err(Fault::new(FaultKind::Usage, format!("--by replay: {what}")).help(help));
    let asked = a.by == Method::Replay;
    match (&a.window.recording, &a.window.at) {
        (None, _) if asked => refused(
            "the live host has no recorded context switches",
            "first record some: vsteer record --events",
        ),
        (Some(_), Some(_)) if asked => refused("a replay needs the whole recording", "leave out --at"),
        (Some(folder), None) if !matches!(a.by, Method::Fluid | Method::Counted) => {
            let recording = source::read(folder)?;
            match Recorded::of(&recording, folder) {
                // Switches of a vsteer that recorded no wake-ups tell no demands either.
                Err(fault) if !asked && fault.kind == FaultKind::NothingThere => {
                    source::whole(recording).map(|s| Seen::Samples(Box::new(s)))
                }
                other => other.map(|recorded| Seen::Replayable(Box::new(recorded))),
            }
        }
        _ => source::window(&a.window).map(|s| Seen::Samples(Box::new(s))),
    }
}

/// By simulation, if that is asked for or possible.
fn by_samples(a: &Asked<'_>, stretch: &Stretch, model: &HostModel) -> Result<Plan, Fault> {
    if a.by == Method::Fluid {
        return by_fluid(a, stretch, model);
    }
    let interrupt = Interrupt::listen();
    let mut go_on = || {
        progress_of("simulating changes", 0.5, "");
        !interrupt.is_set()
    };
    // A host that cannot be simulated as it is, whatever the reason, has a plan all the same.
    let told = counted(stretch, model, &mut go_on).map_err(|fault| match fault.kind {
        FaultKind::Interrupted => fault,
        _ => Fault { kind: FaultKind::Unsupported, ..fault },
    });
    let plan = told.and_then(|told| chosen(a, stretch, model, &mut told.asking(&mut go_on)));
    progress_done();
    match plan {
        Err(fault) if a.by != Method::Counted && fault.kind == FaultKind::Unsupported => {
            eprintln!("vsteer: forecasting by fluid fair shares: {fault}");
            by_fluid(a, stretch, model)
        }
        other => other,
    }
}

fn counted<'a>(
    stretch: &'a Stretch,
    model: &'a HostModel,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<CountedForecaster<'a>, Fault> {
    let config = &stretch.config;
    if config.keeps_settings() {
        let what = "only hosts of Linux's and Xen's are simulated by their counters";
        return Err(Fault::new(FaultKind::Unsupported, what));
    }
    CountedForecaster::new(config, model, go_on)
}

/// What `vsteer plan` proposes by itself for a recording, without asking anything; `None` where it cannot plan.
pub fn proposed(stretch: &Stretch, model: &HostModel, limits: Limits) -> Option<Plan> {
    let config = &stretch.config;
    let simulated = counted(stretch, model, &mut || true)
        .and_then(|told| plan_by(config, model, limits, Scope::Live, None, &mut told.asking(&mut || true)));
    proposed_by_cosched(stretch, model, limits)
        .or_else(|| simulated.ok())
        .or_else(|| plan_by_fluid(config, model, limits, Scope::Live, None).ok())
}

fn by_fluid(a: &Asked<'_>, stretch: &Stretch, model: &HostModel) -> Result<Plan, Fault> {
    chosen(a, stretch, model, &mut |steps: &[Step]| Ok(fluid::forecast(&stretch.config, model, steps)))
}

/// What is proposed for VMs of vSphere's, forecast by ESXi's simulated co-scheduling; `None` for others, and where that cannot
/// be.
fn proposed_by_cosched(stretch: &Stretch, model: &HostModel, limits: Limits) -> Option<Plan> {
    if !stretch.config.co_schedules() {
        return None;
    }
    let fitted = Cosched::new(&stretch.config, model, &mut || true).ok()?;
    let mut foretell = |steps: &[Step]| fitted.forecast(steps, &mut || true);
    plan_by(&stretch.config, model, limits, Scope::Both, None, &mut foretell).ok()
}

/// Is it ESXi's scheduler that is to be simulated?
fn by_cosched_is_meant(a: &PlanArgs, config: &HostConfig) -> Result<bool, Fault> {
    match (a.by, config.co_schedules()) {
        (Method::Cosched, false) => {
            Err(Fault::new(FaultKind::Usage, "--by cosched works only for VMs of a vSphere")
                .help("leave out --by cosched"))
        }
        (Method::Cosched, true) => Ok(true),
        (Method::Auto, co_schedules) => Ok(co_schedules),
        _ => Ok(false),
    }
}

fn by_cosched(a: &Asked<'_>, stretch: &Stretch) -> Result<Plan, Fault> {
    let interrupt = Interrupt::listen();
    let model = stretch.model()?;
    let mut go_on = || {
        progress_of("simulating ESXi", 0.5, "");
        !interrupt.is_set()
    };
    let fitted = match Cosched::new(&stretch.config, &model, &mut go_on) {
        Ok(fitted) => fitted,
        Err(fault) if a.by == Method::Auto && fault.kind != FaultKind::Interrupted => {
            progress_done();
            eprintln!("vsteer: forecasting by fluid fair shares: {fault}");
            return by_fluid(a, stretch, &model);
        }
        Err(fault) => {
            progress_done();
            return Err(fault);
        }
    };
    let plan = chosen(a, stretch, &model, &mut |steps: &[Step]| fitted.forecast(steps, &mut go_on));
    progress_done();
    plan
}

/// The plan that is asked for, by any forecaster.
fn chosen(
    a: &Asked<'_>,
    stretch: &Stretch,
    model: &HostModel,
    forecaster: &mut dyn Forecaster,
) -> Result<Plan, Fault> {
    let config = &stretch.config;
    if a.set.is_empty() {
        return plan_by(config, model, limits(a), scope(a, config), a.only.as_deref(), forecaster);
    }
    let steps = set::steps(config, &a.set)?;
    let title = if steps.is_empty() {
        "nothing to change: the setting already has this value"
    } else {
        "requested by --set"
    };
    plan_of(config, title, steps, scope(a, config), forecaster)
}

fn by_replay(a: &Asked<'_>, recorded: &Recorded) -> Result<Plan, Fault> {
    let interrupt = Interrupt::listen();
    let (stretch, model) = (&recorded.stretch, recorded.stretch.model()?);
    let mut told = match recorded.forecaster(&model, &interrupt) {
        Ok(told) => told,
        Err(fault) if a.by == Method::Auto && fault.kind != FaultKind::Interrupted => {
            eprintln!("vsteer: forecasting without a replay: {fault}");
            return by_samples(a, stretch, &model);
        }
        Err(fault) => return Err(fault),
    };
    if let Some(off) = told.calibration().filter(|off| *off > GIVEN_BACK) {
        let off = format!("ready time {:.1} percentage points off the measured one", 100.0 * off);
        if a.by == Method::Auto {
            eprintln!(
                "vsteer: forecasting without a replay, because it gives {off} (`--by replay` uses it anyway)"
            );
            return by_samples(a, stretch, &model);
        }
        eprintln!("vsteer: the replay gives {off}; its forecasts are as far off");
    }
    recorded.notes(&model).iter().for_each(crate::text::note);
    forecaster(a, stretch, &model, &mut told, &interrupt)
}

fn forecaster(
    a: &Asked<'_>,
    stretch: &Stretch,
    model: &HostModel,
    told: &mut ReplayForecaster<'_>,
    interrupt: &Interrupt,
) -> Result<Plan, Fault> {
    let mut go_on = || {
        progress_of("simulating changes", 0.5, "");
        !interrupt.is_set()
    };
    let plan = chosen(a, stretch, model, &mut told.asking(&mut go_on));
    progress_done();
    plan
}
