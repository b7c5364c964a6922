//! Turns the better levels of an experiment into a plan for `vsteer apply` and `vsteer rollback`.
//!
//! For each factor vsteer plans the level with the largest improvement over the first level. If no level was better
//! than the first, and the present level was worse, vsteer plans the first. It does not plan what the verdicts do not
//! say: a level against a present one that was not worse than the first, unless their intervals are apart.
//!
//! If a tool can keep the setting, the step is permanent (decision 0014). Kernel files go into a generated profile of
//! tuned, boot parameters to the boot loader's tool, pins and network queues into libvirt's definition. Commands in
//! the experiment's file (`lasting`) keep their own settings. Another machine (`on`) uses its own tools, over ssh. All
//! other steps last until the next boot, and the plan says so.
//!
//! Notes take the place of two kinds of steps: levels with a seen or possible interaction, because their effects
//! differ alone, and levels that switch mitigations off. A note next to a step names effects that the design cannot
//! distinguish from it.
//!
//! Left out: settings that switch mitigations off without a sign in their name, commands or levels (a profile of
//! tuned).
//!
//! GAP(experiment-plan): no machine has booted from a kernel word that such a plan kept.

use super::log::Log;
use std::collections::BTreeMap;
use vsteer_core::forecast::Forecast;
use vsteer_core::nouns::{HostConfig, VmId};
use vsteer_core::plan::Plan;
use vsteer_core::setting;
use vsteer_core::setting::argv::Argv;
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

/// Machine of a factor: `user@host`, or `None` for this one.
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

/// A level that vsteer may plan.
struct Choice<'a> {
    name: String,
    level: &'a str,
    /// The verdict for it.
    answer: &'a Answer,
    /// The comparison behind the verdict, if it is not the level against the present first level.
    of: String,
}

/// Steps and notes under construction.
struct Making<'a> {
    experiment: &'a Experiment,
    first: &'a MeasureTold,
    steps: Vec<Step>,
    left: Vec<String>,
    /// Files for a profile of tuned, with reasons, by machine.
    kept_by_tuned: BTreeMap<On, Vec<(Setting, String)>>,
    /// The active profile of each machine asked so far, or the one that a factor of this experiment will activate.
    active: BTreeMap<On, Option<String>>,
}

/// The steps and notes that come from an experiment.
pub struct Winners {
    experiment: String,
    steps: Vec<Step>,
    left: Vec<String>,
}

impl Winners {
    /// Compares an experiment's log with the present settings.
    ///
    /// # Errors
    /// `NothingThere` if nothing was measured; if a setting cannot be read.
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
    /// `NothingThere` if no level to plan was better; as `host`.
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
            // The definition of a VM that is off can still change; for other unreadable settings, the step reports the
            // fault.
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

    /// Is one interval entirely on the better side of the other?
    fn apart(&self, one: &Answer, other: &Answer) -> bool {
        one.effect.zip(other.effect).is_some_and(|(one, other)| match self.first.measure.better {
            Better::Less => one.high < other.low,
            Better::More => one.low > other.high,
        })
    }

    /// The level that the verdicts show to be better than the present one. `in_force`: the present level, unless it is
    /// the first. `known`: the present value is known and is not the first level.
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

    /// An interaction with this factor that was seen, or that the design cannot distinguish from one that was.
    fn interaction(&self, factor: &Factor) -> Option<String> {
        let seen = |a: &&Answer| a.interaction && matches!(a.outcome, Outcome::Better | Outcome::Worse);
        let mut all = self.first.answers.iter().filter(seen);
        let names = |a: &'a Answer| std::iter::once(&a.name).chain(&a.also);
        let found = all.find(|a| names(a).any(|name| self.is_pair_of(factor, name)))?;
        Some(names(found).map(String::as_str).collect::<Vec<_>>().join(", or "))
    }

    /// Is this the name of a pair of factors that includes this one? Compares whole names, as designs write them.
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

    /// The active profile of tuned on the machine of this setting.
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
            // Whether the lasting commands also set the value now is unknown. Boot parameters need a reboot.
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
            vm: VmId(format!("knob:{at}:{}", knob.name).into()),
            vm_name: at,
            reason: format!("{}{when}", self.reason(best)),
            change: Change::Knob(setting::HostKnob { knob: Box::new(knob), from, to: level.to_owned() }),
        });
        Ok(())
    }

    /// One profile per machine with everything that tuned keeps there, based on the profile that this experiment chose.
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
                vm: VmId(format!("knob:{at}:tuned").into()),
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

/// The words of a command as one text, without quotes.
fn joined(command: &Argv) -> String {
    command.words().join(" ")
}

/// Why vsteer never plans a level: it switches mitigations off, or may do so.
fn opens(factor: &Factor, level: &str) -> Option<String> {
    let never = |word: &str| Some(format!("SECURITY: never planned: {word} switches a mitigation off"));
    if let Some(word) = switched_off_in(level) {
        return never(word);
    }
    // A boot parameter has no effect except its own.
    if factor.kernel {
        return None;
    }
    let mut sets: Vec<&Argv> = factor.set.iter().collect();
    let mut texts: Vec<String> = vec![factor.name.clone()];
    texts.extend(factor.read.iter().map(joined).chain(factor.file.clone()));
    if let Some(Lasting::Commands { set, read }) = &factor.lasting {
        sets.push(set);
        texts.push(joined(read));
    }
    // A command that mentions such a word for every level decides by the level itself.
    for set in sets.iter().filter(|set| switched_off_in(&joined(set)).is_none()) {
        if let Some(word) = switched_off_in(&joined(&set.with("level", level))) {
            return never(word);
        }
    }
    texts.extend(sets.iter().map(|set| joined(set)));
    texts.extend(factor.levels.iter().cloned());
    let about = texts.iter().find_map(|text| about_mitigations(text))?;
    let value = |word: &str| word.rsplit('=').next().unwrap_or(word).to_ascii_lowercase();
    let leaves_on = level.split([' ', ',', ';']).all(|word| LEAVES_ON.contains(&value(word.trim()).as_str()));
    (!leaves_on).then(|| {
        format!("SECURITY: never planned: it concerns {about}, and {level:?} may switch a mitigation off")
    })
}

/// Does this level allow two threads per core, while another level does not?
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
