//! What was better, as a plan: `vsteer apply` makes it, reads it back and journals it, `vsteer rollback` takes it back.
//!
//! Per factor the level that was better than the first by most, against what is in force: where no level was better
//! than the first, and what is in force is one that was worse, the first. What the verdicts do not say is not planned:
//! a level against another one in force that was not worse than the first, unless their intervals lie apart. It is
//! kept for good where somebody keeps it (decision 0036): files of the kernel's in a generated profile where tuned is
//! in force, words of the kernel's command line by the boot loader's tool, pins and network queues in libvirt's
//! definition, what the experiment's file names commands for by those (`lasting`); of another machine (`on`) by its
//! own tools, over ssh. What else there is is set as the experiment set it, until somebody sets it otherwise or boots,
//! and the plan says so. What is told instead of planned: levels of which an interaction was, or may have been, seen
//! (their effects are not what they are alone), and mitigations switched off, ever. What a design cannot tell from an
//! effect is told beside its plan.
//!
//! Left out: what switches mitigations off and does not say so, by its name, its commands or its levels (a profile of
//! tuned's).

use super::log::Log;
use std::collections::BTreeMap;
use vsteer_core::forecast::Forecast;
use vsteer_core::nouns::{HostConfig, VmId};
use vsteer_core::plan::Plan;
use vsteer_core::setting;
use vsteer_core::setting::knob::{How, Knob};
use vsteer_core::setting::lasting::{Element, Lasting, Setting, tuned_can};
use vsteer_core::setting::words::word_name;
use vsteer_core::setting::{Change, Scope, Step};
use vsteer_core::{Fault, FaultKind};
use vsteer_experiment::answers::{Answer, MeasureTold};
use vsteer_experiment::audit::{about_mitigations, switched_off_in};
use vsteer_experiment::description::{Better, Factor};
use vsteer_experiment::{Experiment, Outcome, answer};
use vsteer_host::knob;
use vsteer_host::lasting::place::Place;
use vsteer_host::lasting::{boot_loader, tuned};

/// Where a factor is set: `user@host`, or here.
type On = Option<String>;

/// Values of settings that leave mitigations on.
const LEAVES_ON: &[&str] = &[
    "",
    "auto",
    "on",
    "full",
    "force",
    "forced",
    "always",
    "yes",
    "y",
    "true",
    "1",
    "enable",
    "enabled",
    "default",
    "nosmt",
    "prctl",
    "seccomp",
    "retpoline",
    "eibrs",
    "ibrs",
    "ibpb",
    "unret",
    "stuff",
    "flush",
];

/// A level that may be planned.
struct Choice<'a> {
    name: String,
    level: &'a str,
    /// What speaks for it.
    answer: &'a Answer,
    /// What that is of, where it is not of the level against the first one in force.
    of: String,
}

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

/// What can be planned of an experiment.
pub struct Winners {
    experiment: String,
    steps: Vec<Step>,
    left: Vec<String>,
}

impl Winners {
    /// Of what an experiment's log says, against what is in force now.
    ///
    /// # Errors
    /// `NothingThere` where nothing was measured; when a setting cannot be read.
    pub fn of(log: &Log) -> Result<Winners, Fault> {
        let experiment = log.begun()?;
        let laid = experiment.laid()?;
        let answers = answer(experiment, &laid, log.events());
        let Some(first) = answers.measures.first() else {
            return Err(nothing("the experiment measured nothing"));
        };
        let (steps, left) = Making::of(experiment, first).all()?;
        Ok(Winners { experiment: experiment.name.clone(), steps, left })
    }

    /// Notes for the user: why a level is not in the plan, or what to know about it.
    pub fn notes(&self) -> &[String] {
        &self.left
    }

    /// The plan, for the host that `host` opens.
    ///
    /// # Errors
    /// `NothingThere` where nothing that can be planned was better; as `host`.
    pub fn plan(self, host: impl FnOnce() -> Result<HostConfig, Fault>) -> Result<Plan, Fault> {
        if self.steps.is_empty() {
            return Err(nothing("no level that vsteer can plan is known to be better than the present one"));
        }
        let none = Forecast { method: format!("experiment {}", self.experiment), vms: Vec::new() };
        let title = format!("the better settings of experiment {}", self.experiment);
        Ok(Plan::new(host()?, title, self.steps, Scope::Live, none))
    }
}

impl<'a> Making<'a> {
    fn of(experiment: &'a Experiment, first: &'a MeasureTold) -> Making<'a> {
        Making {
            experiment,
            first,
            steps: Vec::new(),
            left: Vec::new(),
            kept_by_tuned: BTreeMap::new(),
            active: BTreeMap::new(),
        }
    }

    /// The steps, and the notes about them or in place of them.
    fn all(mut self) -> Result<(Vec<Step>, Vec<String>), Fault> {
        for factor in &self.experiment.factors {
            self.factor(factor)?;
        }
        self.profiles()?;
        Ok((self.steps, self.left))
    }

    fn factor(&mut self, factor: &'a Factor) -> Result<(), Fault> {
        let level = |a: &Answer| factor.levels.iter().find(|l| a.name == format!("{}: {l}", factor.name));
        let alone = self.first.answers.iter().filter(|a| !a.interaction);
        let told: Vec<(&Answer, &str)> = alone.filter_map(|a| Some((a, level(a)?.as_str()))).collect();
        let mut better: Vec<(&Answer, &str)> =
            told.iter().filter(|(a, _)| a.outcome == Outcome::Better).copied().collect();
        better.sort_by(|a, b| self.gain(b.0).total_cmp(&self.gain(a.0)));
        better.retain(|(a, level)| match opens(factor, level) {
            Some(why) => {
                self.left.push(format!("{}: {why}", a.name));
                false
            }
            None => true,
        });
        let worse = told.iter().any(|(a, _)| a.outcome == Outcome::Worse);
        if better.is_empty() && !worse {
            return Ok(());
        }
        let (asked, kept) =
            (factor.knob(self.experiment.boot.as_ref())?, factor.kept(self.experiment.connect.as_deref())?);
        let now = match asked.as_ref().or(kept.as_ref()).map(|knob| (knob, knob::read(knob))) {
            Some((knob, Ok(now))) => Some((knob, now)),
            // Of a VM that does not run its definition can be changed nevertheless; what cannot be read else a step
            // says.
            Some((_, Err(_))) if !better.is_empty() => None,
            Some((_, Err(fault))) => {
                let first = &factor.levels[0];
                self.left.push(format!(
                    "{}: vsteer does not know whether {first} is better than the present value: {fault}",
                    factor.name
                ));
                return Ok(());
            }
            None => None,
        };
        let is_now = |level: &str| now.as_ref().is_some_and(|(knob, now)| knob::same(knob, level, now));
        let in_force = told.iter().find(|(_, level)| is_now(level)).copied();
        let known = now.is_some() && !is_now(&factor.levels[0]);
        let Some(choice) = self.choose(factor, better.first().copied(), in_force, known) else {
            return Ok(());
        };
        if let Some(together) = self.interaction(factor) {
            self.left.push(format!(
                "{}: not planned: its effect depends, or may depend, on another factor ({together})",
                choice.name
            ));
            return Ok(());
        }
        let before = self.planned();
        self.plan(factor, &choice, asked, kept)?;
        if self.planned() == before {
            return Ok(());
        }
        if !choice.answer.also.is_empty() {
            self.left.push(format!(
                "{}: planned, but {} may have caused the effect: this design cannot distinguish them",
                choice.name,
                choice.answer.also.join(", ")
            ));
        }
        if joins_threads(factor, choice.level) {
            self.left.push(format!(
                "{}: planned. SECURITY: VMs can then learn from each other on threads of one core if this processor permits it: \
                see `vsteer audit` (smt)",
                choice.name
            ));
        }
        Ok(())
    }

    fn planned(&self) -> usize {
        self.steps.len() + self.kept_by_tuned.values().map(Vec::len).sum::<usize>()
    }

    fn gain(&self, a: &Answer) -> f64 {
        let likely = a.effect.map_or(0.0, |e| e.likely);
        if self.first.measure.better == Better::Less { -likely } else { likely }
    }

    /// Does the one's interval lie on the better side of the other's?
    fn apart(&self, one: &Answer, other: &Answer) -> bool {
        one.effect.zip(other.effect).is_some_and(|(one, other)| match self.first.measure.better {
            Better::Less => one.high < other.low,
            Better::More => one.low > other.high,
        })
    }

    /// The level that the verdicts say is better than what is in force. `in_force` is the level that is, but for the
    /// first; `known`: what is in force is known, and is not the first.
    fn choose(
        &mut self,
        factor: &'a Factor,
        best: Option<(&'a Answer, &'a str)>,
        in_force: Option<(&'a Answer, &'a str)>,
        known: bool,
    ) -> Option<Choice<'a>> {
        let first = factor.levels[0].as_str();
        match (best, in_force) {
            (None, Some((answer, now))) if answer.outcome == Outcome::Worse => {
                let name = format!("{}: {first}", factor.name);
                if let Some(why) = opens(factor, first) {
                    self.left.push(format!("{name}: {why}"));
                    return None;
                }
                Some(Choice { name, level: first, answer, of: format!(" of {now}, against it") })
            }
            (None, _) => None,
            (Some((best, level)), Some((answer, now)))
                if level != now && answer.outcome != Outcome::Worse && !self.apart(best, answer) =>
            {
                self.left.push(format!(
                    "{}: not planned: it was better than {first}, but not measurably better than the present value {now}: \
                    make {now} the first level, and run the experiment again",
                    best.name
                ));
                None
            }
            (Some((answer, level)), _) => {
                let of = if known { format!(" against {first}") } else { String::new() };
                Some(Choice { name: answer.name.clone(), level, answer, of })
            }
        }
    }

    /// The interaction with this factor that was seen, or that a design cannot tell from the one that was.
    fn interaction(&self, factor: &Factor) -> Option<String> {
        let seen = |a: &&Answer| a.interaction && matches!(a.outcome, Outcome::Better | Outcome::Worse);
        let mut all = self.first.answers.iter().filter(seen);
        let names = |a: &'a Answer| std::iter::once(&a.name).chain(&a.also);
        let found = all.find(|a| names(a).any(|name| self.is_pair_of(factor, name)))?;
        Some(names(found).map(String::as_str).collect::<Vec<_>>().join(", or "))
    }

    /// Is this the name of two factors together, of which this is one? By whole names, as designs make them.
    fn is_pair_of(&self, factor: &Factor, name: &str) -> bool {
        let is = |a: &Factor, b: &Factor| {
            let of_levels =
                |i: &String| b.levels.iter().any(|j| name == format!("{}: {i} x {}: {j}", a.name, b.name));
            name == format!("{} x {}", a.name, b.name) || a.levels.iter().any(of_levels)
        };
        let others = self.experiment.factors.iter().filter(|other| other.name != factor.name);
        others.into_iter().any(|other| is(factor, other) || is(other, factor))
    }

    fn reason(&self, choice: &Choice<'_>) -> String {
        let answer = choice.answer;
        let effect = answer
            .effect
            .map_or(String::new(), |e| format!("{:+.1} ({:+.1} to {:+.1})", e.likely, e.low, e.high));
        let unit = if answer.percent { "%" } else { &self.first.measure.unit };
        let also =
            if answer.also.is_empty() { String::new() } else { format!(" (or {})", answer.also.join(", ")) };
        format!(
            "experiment {}: {} {effect} {unit}{}{also}",
            self.experiment.name, self.first.measure.name, choice.of
        )
    }

    /// The profile of tuned's that is in force where this is set.
    fn active(&mut self, on: &On) -> Option<&str> {
        let ask = || tuned::active(Place(on.as_deref()));
        self.active.entry(on.clone()).or_insert_with(ask).as_deref()
    }

    fn plan(
        &mut self,
        factor: &Factor,
        best: &Choice<'_>,
        asked: Option<Knob>,
        kept: Option<Knob>,
    ) -> Result<(), Fault> {
        let level = best.level;
        if let Some(kept) = kept {
            let of_host = || factor.on.clone().unwrap_or_else(|| "host".to_owned());
            let (at, when) = match &kept.how {
                How::Definition { element: element @ Element::Queues { .. }, .. } => {
                    (element.vm().to_owned(), "; takes effect when the VM restarts")
                }
                How::Definition { element, .. } => (element.vm().to_owned(), ""),
                _ => (of_host(), "; permanent"),
            };
            // Commands keep it; whether that also sets it now is theirs to know. Words of the command line only a boot
            // sets.
            let now = asked.filter(|k| !matches!(k.how, How::KernelWords { .. }));
            if let (Some(Lasting::Commands { .. }), Some(now)) = (&factor.lasting, now) {
                self.step(now, of_host(), best, "; now")?;
            }
            return self.step(kept, at, best, when);
        }
        let Some(knob) = asked else {
            self.left.push(format!("{}: not planned: it is part of the workload's command", best.name));
            return Ok(());
        };
        let at = knob.on.clone().unwrap_or_else(|| "host".to_owned());
        match &knob.how {
            How::KernelWords { names, .. } => {
                let Some(loader) = boot_loader::detect(Place(knob.on.as_deref()))? else {
                    self.left.push(format!(
                        "{}: not planned: vsteer knows no boot loader on {} to keep it: add it to the kernel's command line and reboot, \
                        or name your own commands (lasting)",
                        best.name,
                        knob.on.as_deref().unwrap_or("this host")
                    ));
                    return Ok(());
                };
                let names = names.clone();
                let kept = Knob { how: How::BootLoader { names, loader }, ..knob };
                self.step(kept, at, best, "; takes effect at the next boot")
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
                let when = if factor.tuned { "" } else { "; until the next boot, unless changed before" };
                if factor.tuned {
                    self.active.insert(knob.on.clone(), Some(level.to_owned()));
                }
                self.step(knob, at, best, when)
            }
        }
    }

    fn step(&mut self, knob: Knob, at: String, best: &Choice<'_>, when: &str) -> Result<(), Fault> {
        let (from, level) = (knob::read(&knob)?, best.level);
        if from == level {
            self.left.push(format!("{}: {} already has this value", best.name, knob.name));
            return Ok(());
        }
        self.steps.push(Step {
            vm: VmId(format!("knob:{at}:{}", knob.name)),
            vm_name: at,
            reason: format!("{}{when}", self.reason(best)),
            change: Change::Knob(setting::HostKnob { knob: Box::new(knob), from, to: level.to_owned() }),
        });
        Ok(())
    }

    /// On each machine one profile of all that tuned keeps there, after a switch to another one that this experiment
    /// found better.
    fn profiles(&mut self) -> Result<(), Fault> {
        for (on, kept) in std::mem::take(&mut self.kept_by_tuned) {
            let Some(active) = self.active(&on).map(str::to_owned) else { continue };
            let (settings, reasons): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
            let profile = tuned::profile(&self.experiment.name, &active, settings, Place(on.as_deref()))?;
            if profile.name == active {
                self.left.push(format!(
                    "tuned's profile {active}, made from this experiment before, is already active"
                ));
                continue;
            }
            let at = on.clone().unwrap_or_else(|| "host".to_owned());
            self.steps.push(Step {
                vm: VmId(format!("knob:{at}:tuned")),
                vm_name: at,
                reason: reasons.join("; "),
                change: Change::Knob(setting::HostKnob {
                    from: active,
                    to: profile.name.clone(),
                    knob: Box::new(Knob {
                        name: "tuned profile".to_owned(),
                        how: How::TunedProfile { profile: Box::new(profile) },
                        on,
                    }),
                }),
            });
        }
        Ok(())
    }
}

/// Why a level is never planned: it switches mitigations off, or may.
fn opens(factor: &Factor, level: &str) -> Option<String> {
    let never = |word: &str| Some(format!("SECURITY: never planned: {word} switches a mitigation off"));
    if let Some(word) = switched_off_in(level) {
        return never(word);
    }
    // Words of the command line say all that they do.
    if factor.kernel {
        return None;
    }
    let (mut sets, mut texts) = (Vec::new(), vec![factor.name.as_str()]);
    sets.extend(factor.set.as_deref());
    texts.extend([factor.read.as_deref(), factor.file.as_deref()].into_iter().flatten());
    if let Some(Lasting::Commands { set, read }) = &factor.lasting {
        sets.push(set);
        texts.push(read);
    }
    // A command that speaks of such a word whatever the level decides by the level itself.
    for set in sets.iter().filter(|set| switched_off_in(set).is_none()) {
        if let Some(word) = switched_off_in(&set.replace("{level}", level)) {
            return never(word);
        }
    }
    texts.extend(sets);
    texts.extend(factor.levels.iter().map(String::as_str));
    let about = texts.into_iter().find_map(about_mitigations)?;
    let value = |word: &str| word.rsplit('=').next().unwrap_or(word).to_ascii_lowercase();
    let leaves_on = level.split([' ', ',', ';']).all(|word| LEAVES_ON.contains(&value(word.trim()).as_str()));
    (!leaves_on).then(|| {
        format!("SECURITY: never planned: it concerns {about}, and {level:?} may switch a mitigation off")
    })
}

/// Does a level let cores run two threads, where another one does not?
fn joins_threads(factor: &Factor, level: &str) -> bool {
    let one = |level: &str| level.split([' ', ',', ';']).any(|word| word_name(word) == "nosmt");
    let by_word = !one(level) && factor.levels.iter().any(|other| one(other));
    let by_file = factor.file.as_deref().is_some_and(|path| path.ends_with("/smt/control")) && level == "on";
    by_word || by_file
}

fn nothing(why: &str) -> Fault {
    Fault::new(FaultKind::NothingThere, "nothing to plan").because(why)
}

#[cfg(test)]
mod tests;
