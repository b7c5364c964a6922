//! What was better, as a plan: `vsteer apply` makes it, reads it back and journals it, `vsteer rollback` takes it back.
//!
//! Per factor the level that was better than the first by most, where one was. It is kept for good where somebody keeps it (decision 0036): files of the kernel's in
//! a generated profile where tuned is in force, words of the kernel's command line by the boot loader's tool, pins and network queues in libvirt's definition, what
//! the experiment's file names commands for by those (`lasting`); of another machine (`on`) by its own tools, over ssh. What else there is is set as the experiment
//! set it, until somebody sets it otherwise or boots, and the plan says so. What is told instead of planned: levels of which an interaction was seen (their effects are
//! not what they are alone), and mitigations switched off, ever.

use super::{begun, host};
use std::collections::BTreeMap;
use std::path::Path;
use vsteer_act::experiment::Log;
use vsteer_core::experiment::answers::{Answer, MeasureTold};
use vsteer_core::experiment::description::{Better, Factor, How, Knob};
use vsteer_core::experiment::lasting::{Element, Lasting, Setting, tuned_can};
use vsteer_core::experiment::{Experiment, Outcome, answer};
use vsteer_core::nouns::VmId;
use vsteer_core::plan::{Change, Forecast, Plan, Scope, Step};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::knob;
use vsteer_host::lasting::place::Place;
use vsteer_host::lasting::{boot_loader, tuned};

/// Where a factor is set: `user@host`, or here.
type On = Option<String>;

/// Steps, and what is not planned.
struct Making<'a> {
    experiment: &'a Experiment,
    first: &'a MeasureTold,
    steps: Vec<Step>,
    left: Vec<String>,
    /// Files that a profile of tuned's shall keep, with why, by machine.
    kept_by_tuned: BTreeMap<On, Vec<(Setting, String)>>,
    /// The profile that is in force on each machine that has been asked, or will be by a factor of this experiment's.
    active: BTreeMap<On, Option<String>>,
}

/// Writes it.
///
/// # Errors
/// `NothingThere` where nothing that can be planned was better; when a setting cannot be read or the file not be written.
pub fn write(folder: &Path, file: &Path) -> Result<(), Fault> {
    let log = Log::read(folder)?;
    let experiment = begun(&log)?;
    let laid = experiment.laid()?;
    let answers = answer(experiment, &laid, log.events());
    let Some(first) = answers.measures.first() else { return Err(nothing("nothing was measured")) };
    let mut making = Making {
        experiment,
        first,
        steps: Vec::new(),
        left: Vec::new(),
        kept_by_tuned: BTreeMap::new(),
        active: BTreeMap::new(),
    };
    for factor in &experiment.factors {
        if let Some((best, level)) = making.best(factor) {
            making.plan(factor, best, level)?;
        }
    }
    making.profiles()?;
    let Making { steps, left, .. } = making;
    left.iter().for_each(|line| eprintln!("vsteer: {line}"));
    if steps.is_empty() {
        return Err(nothing("nothing that can be planned was better than what is in force"));
    }
    let none = Forecast { method: format!("experiment {}", experiment.name), vms: Vec::new() };
    let plan = Plan::new(
        host()?,
        format!("what was better in experiment {}", experiment.name),
        steps,
        Scope::Live,
        none,
    );
    let text = serde_json::to_string_pretty(&plan).expect("a plan is plain data");
    std::fs::write(file, text).map_err(|e| Fault::io(format!("writing {}", file.display()), &e))?;
    eprintln!("vsteer: wrote {}: vsteer apply {0}", file.display());
    Ok(())
}

impl<'a> Making<'a> {
    /// The level that was better by most, where one may be planned.
    fn best(&mut self, factor: &'a Factor) -> Option<(&'a Answer, &'a str)> {
        let gain = |a: &Answer| {
            let likely = a.effect.map_or(0.0, |e| e.likely);
            if self.first.measure.better == Better::Less { -likely } else { likely }
        };
        let better = self.first.answers.iter().filter(|a| a.outcome == Outcome::Better && !a.interaction);
        let of_it = better.filter_map(|a| {
            let level = factor.levels.iter().find(|l| a.name == format!("{}: {l}", factor.name))?;
            Some((a, level.as_str()))
        });
        let (best, level) = of_it.max_by(|a, b| gain(a.0).total_cmp(&gain(b.0)))?;
        let seen = |a: &&Answer| matches!(a.outcome, Outcome::Better | Outcome::Worse);
        let together =
            self.first.answers.iter().filter(seen).find(|a| a.interaction && a.name.contains(&factor.name));
        let why = if let Some(together) = together {
            format!("not planned, since it depends on another factor ({})", together.name)
        } else if level.split_whitespace().any(|w| w == "mitigations=off") {
            "SECURITY: never planned".to_owned()
        } else {
            return Some((best, level));
        };
        self.left.push(format!("{}: {why}", best.name));
        None
    }

    fn reason(&self, best: &Answer) -> String {
        let effect = best
            .effect
            .map_or(String::new(), |e| format!("{:+.1} ({:+.1} to {:+.1})", e.likely, e.low, e.high));
        format!("experiment {}: {} {effect} %", self.experiment.name, self.first.measure.name)
    }

    /// The profile of tuned's that is in force where this is set.
    fn active(&mut self, on: &On) -> Option<&str> {
        let ask = || tuned::active(Place(on.as_deref()));
        self.active.entry(on.clone()).or_insert_with(ask).as_deref()
    }

    fn plan(&mut self, factor: &Factor, best: &Answer, level: &str) -> Result<(), Fault> {
        let asked = factor.knob(self.experiment.boot.as_ref())?;
        if let Some(kept) = factor.kept(self.experiment.connect.as_deref())? {
            let of_host = || factor.on.clone().unwrap_or_else(|| "host".to_owned());
            let (at, when) = match &kept.how {
                How::Definition { element: element @ Element::Queues { .. }, .. } => {
                    (element.vm().to_owned(), "; in force when the VM is started anew")
                }
                How::Definition { element, .. } => (element.vm().to_owned(), ""),
                _ => (of_host(), "; kept for good"),
            };
            // Commands keep it; whether that also sets it now is theirs to know. Words of the command line only a boot sets.
            let now = asked.filter(|k| !matches!(k.how, How::KernelWords { .. }));
            if let (Some(Lasting::Commands { .. }), Some(now)) = (&factor.lasting, now) {
                self.step(now, of_host(), best, level, "; now")?;
            }
            return self.step(kept, at, best, level, when);
        }
        let Some(knob) = asked else {
            self.left.push(format!("{}: it stands in the workload's command", best.name));
            return Ok(());
        };
        let at = knob.on.clone().unwrap_or_else(|| "host".to_owned());
        match &knob.how {
            How::KernelWords { names, .. } => {
                let Some(loader) = boot_loader::detect(Place(knob.on.as_deref()))? else {
                    self.left.push(format!(
                        "{}: no boot loader that is known keeps it on {}: put it on the kernel's command line, and boot; \
                         or name commands of your own (lasting)",
                        best.name,
                        knob.on.as_deref().unwrap_or("this host")
                    ));
                    return Ok(());
                };
                let names = names.clone();
                let kept = Knob { how: How::BootLoader { names, loader }, ..knob };
                self.step(kept, at, best, level, "; in force after the next boot")
            }
            How::File { path } if tuned_can(path, level) && self.active(&knob.on).is_some() => {
                let from = knob::read(&knob)?;
                let setting = Setting { path: path.clone(), from, to: level.to_owned() };
                let reason = self.reason(best);
                self.kept_by_tuned.entry(knob.on.clone()).or_default().push((setting, reason));
                Ok(())
            }
            _ => {
                // tuned itself keeps its profile.
                let when = if factor.tuned { "" } else { "; until it is set otherwise, or the next boot" };
                if factor.tuned {
                    self.active.insert(knob.on.clone(), Some(level.to_owned()));
                }
                self.step(knob, at, best, level, when)
            }
        }
    }

    fn step(&mut self, knob: Knob, at: String, best: &Answer, level: &str, when: &str) -> Result<(), Fault> {
        let from = knob::read(&knob)?;
        if from == level {
            self.left.push(format!("{}: {} is that already", best.name, knob.name));
            return Ok(());
        }
        self.steps.push(Step {
            vm: VmId(format!("knob:{at}:{}", knob.name)),
            vm_name: at,
            reason: format!("{}{when}", self.reason(best)),
            change: Change::Knob { knob: Box::new(knob), from, to: level.to_owned() },
        });
        Ok(())
    }

    /// On each machine one profile of all that tuned keeps there, after a switch to another one that this experiment found better.
    fn profiles(&mut self) -> Result<(), Fault> {
        for (on, kept) in std::mem::take(&mut self.kept_by_tuned) {
            let Some(active) = self.active(&on).map(str::to_owned) else { continue };
            let (settings, reasons): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
            let profile = tuned::profile(&self.experiment.name, &active, settings, Place(on.as_deref()))?;
            if profile.name == active {
                self.left.push(format!(
                    "profile {active} of tuned's was made of this experiment before, and is in force"
                ));
                continue;
            }
            let at = on.clone().unwrap_or_else(|| "host".to_owned());
            self.steps.push(Step {
                vm: VmId(format!("knob:{at}:tuned")),
                vm_name: at,
                reason: reasons.join("; "),
                change: Change::Knob {
                    from: active,
                    to: profile.name.clone(),
                    knob: Box::new(Knob {
                        name: "tuned profile".to_owned(),
                        how: How::TunedProfile { profile: Box::new(profile) },
                        on,
                    }),
                },
            });
        }
        Ok(())
    }
}

fn nothing(why: &str) -> Fault {
    Fault::new(FaultKind::NothingThere, "there is nothing to plan").because(why)
}
