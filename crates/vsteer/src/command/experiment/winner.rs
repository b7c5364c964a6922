//! What was better, as a plan: `vsteer apply` makes it, reads it back and journals it, `vsteer rollback` takes it back.
//!
//! Per factor the level that was better than the first by most, where one was. It is kept for good where somebody keeps it (decision 0036): files of the kernel's in
//! a generated profile where tuned is in force, words of the kernel's command line by the boot loader's tool, pins and network queues in libvirt's definition
//! (`lasting`); what else there is is set as the experiment set it, until somebody sets it otherwise or boots. What is told instead of planned: levels of which an
//! interaction was seen (their effects are not what they are alone), and mitigations switched off, ever.

use super::{begun, host};
use std::path::Path;
use vsteer_act::experiment::Log;
use vsteer_core::experiment::answers::{Answer, MeasureTold};
use vsteer_core::experiment::description::{Better, Factor, How, Knob};
use vsteer_core::experiment::lasting::{Element, Setting, tuned_can};
use vsteer_core::experiment::{Experiment, Outcome, answer};
use vsteer_core::nouns::VmId;
use vsteer_core::plan::{Change, Forecast, Plan, Scope, Step};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::knob;
use vsteer_host::lasting::{boot_loader, tuned};
use vsteer_host::root::Root;

/// Whose definitions are meant where the experiment names no libvirt.
const LIBVIRT: &str = "qemu:///system";

/// Steps, and what is not planned.
struct Making<'a> {
    experiment: &'a Experiment,
    first: &'a MeasureTold,
    steps: Vec<Step>,
    left: Vec<String>,
    /// Files that a profile of tuned's shall keep, with why.
    kept_by_tuned: Vec<(Setting, String)>,
    /// The profile that is in force, or will be by a factor of this experiment's.
    active: Option<String>,
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
    let active =
        if experiment.factors.iter().any(|f| f.file.is_some() || f.tuned) { tuned::active() } else { None };
    let mut making =
        Making { experiment, first, steps: Vec::new(), left: Vec::new(), kept_by_tuned: Vec::new(), active };
    for factor in &experiment.factors {
        if let Some((best, level)) = making.best(factor) {
            making.plan(factor, best, level)?;
        }
    }
    making.profile()?;
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

    fn plan(&mut self, factor: &Factor, best: &Answer, level: &str) -> Result<(), Fault> {
        let here = factor.on.is_none();
        let asked = factor.knob(self.experiment.boot.as_ref())?;
        if let Some(element) = factor.lasting.clone() {
            let connect = self.experiment.connect.clone().unwrap_or_else(|| LIBVIRT.to_owned());
            let at = element.vm().to_owned();
            let when = if matches!(element, Element::Queues { .. }) {
                "; in force when the VM is started anew"
            } else {
                ""
            };
            let kept =
                Knob { name: factor.name.clone(), how: How::Definition { connect, element }, on: None };
            return self.step(kept, at, best, level, when);
        }
        let Some(knob) = asked else {
            self.left.push(format!("{}: it stands in the workload's command", best.name));
            return Ok(());
        };
        let at = knob.on.clone().unwrap_or_else(|| "host".to_owned());
        match &knob.how {
            How::KernelWords { names, .. } => {
                let loader = if here { boot_loader::detect(&Root::live()?) } else { None };
                let Some(loader) = loader else {
                    self.left.push(format!(
                        "{}: no boot loader that is known keeps it here: put it on the kernel's command line, and boot",
                        best.name
                    ));
                    return Ok(());
                };
                let names = names.clone();
                let kept = Knob { how: How::BootLoader { names, loader }, ..knob };
                self.step(kept, at, best, level, "; in force after the next boot")
            }
            How::File { path } if here && self.active.is_some() && tuned_can(path, level) => {
                let from = knob::read(&knob)?;
                let setting = Setting { path: path.clone(), from, to: level.to_owned() };
                let reason = self.reason(best);
                self.kept_by_tuned.push((setting, reason));
                Ok(())
            }
            _ => {
                if factor.tuned && here {
                    self.active = Some(level.to_owned());
                }
                self.step(knob, at, best, level, "")
            }
        }
    }

    fn step(&mut self, knob: Knob, at: String, best: &Answer, level: &str, when: &str) -> Result<(), Fault> {
        let from = knob::read(&knob)?;
        if from == level {
            self.left.push(format!("{}: it is in force", best.name));
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

    /// One profile of all that tuned keeps, after a switch to another one that this experiment found better.
    fn profile(&mut self) -> Result<(), Fault> {
        let Some(active) = self.active.clone().filter(|_| !self.kept_by_tuned.is_empty()) else {
            return Ok(());
        };
        let (settings, reasons): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.kept_by_tuned).into_iter().unzip();
        let profile = tuned::profile(&self.experiment.name, &active, settings);
        if profile.name == active {
            self.left.push(format!(
                "profile {active} of tuned's was made of this experiment before, and is in force"
            ));
            return Ok(());
        }
        self.steps.push(Step {
            vm: VmId("knob:host:tuned".to_owned()),
            vm_name: "host".to_owned(),
            reason: reasons.join("; "),
            change: Change::Knob {
                from: active,
                to: profile.name.clone(),
                knob: Box::new(Knob {
                    name: "tuned profile".to_owned(),
                    how: How::TunedProfile { profile: Box::new(profile) },
                    on: None,
                }),
            },
        });
        Ok(())
    }
}

fn nothing(why: &str) -> Fault {
    Fault::new(FaultKind::NothingThere, "there is nothing to plan").because(why)
}
