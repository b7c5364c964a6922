//! How does vsteer set the levels of an experiment, and how does it restore the former settings?
//!
//! The journal holds the undo of every setting before any change, and every change after a rollback too, so that
//! `vsteer rollback` always works. A setting is in force once every factor's level was read back. Boot parameters are
//! set together, for one reboot.
//!
//! Left out: levels that undo each other (vsteer does not check a level again while it sets others).

use super::{Carrier, Told, link, one_line};
use crate::apply::Receipt;
use crate::journal::{Entry, Journal, State};
use crate::system_log::{self, By};
use crate::watchdog::unix_ns;
use std::time::Duration;
use vsteer_core::forecast::Forecast;
use vsteer_core::nouns::VmId;
use vsteer_core::plan::Plan;
use vsteer_core::setting;
use vsteer_core::setting::knob::{How, Knob};
use vsteer_core::setting::{Change, Scope, Step};
use vsteer_core::{Fault, FaultKind};
use vsteer_experiment::description::{Boot, Factor};
use vsteer_experiment::run::Place;
use vsteer_experiment::{Bad, Event, Experiment};
use vsteer_host::actuate::Former;
use vsteer_host::knob::{self, Knobs};
use vsteer_host::shell;

/// After this number of lost links without a finished run, vsteer does not wait again: the experiment itself may break
/// the link.
const LOST_MOST: usize = 5;
/// How long to wait for a reboot.
const BOOT_WITHIN: Duration = Duration::from_secs(600);

/// Is a setting in force?
pub(super) enum Established {
    InForce,
    Booting,
    /// Unknown: a link was lost, and works again.
    Anew,
    NotTaken(Bad),
}

/// An empty former value can hardly be set again: it is not a profile of tuned, nor a boot parameter.
///
/// # Errors
/// `Unsupported` if vsteer could not restore the value.
pub(super) fn can_be_put_back(factor: &Factor, knob: &Knob, found: &str) -> Result<(), Fault> {
    let text = matches!(knob.how, How::File { .. } | How::Commands { .. });
    if !text || factor.tuned || !found.is_empty() || factor.levels.iter().any(String::is_empty) {
        return Ok(());
    }
    Err(Fault::new(FaultKind::Unsupported, format!("cannot change factor {:?}", factor.name))
        .because("its present value is empty, and vsteer could not restore an empty value")
        .help("set the factor to one of its levels first, or add \"\" as a level if the setting accepts it"))
}

/// The present value of one factor, before any change.
#[derive(Debug)]
pub struct InForce {
    /// The factor's name.
    pub name: String,
    /// The present value, or why vsteer cannot read or restore it.
    pub said: String,
    /// Is vsteer unable to read it or to restore it?
    pub cannot: bool,
    /// Index of the level with this value; `None` if no level has it or it is unknown.
    pub level: Option<usize>,
}

/// The present values, factor by factor.
///
/// # Errors
/// `BadInput` for a factor that names no setting.
pub fn in_force(experiment: &Experiment) -> Result<Vec<InForce>, Fault> {
    let of = |f: &Factor| {
        let knob = f.knob(experiment.boot.as_ref())?;
        if let Some(why) = knob.as_ref().and_then(Knob::unread) {
            return Ok(InForce {
                name: f.name.clone(),
                said: format!("not read, because {why}"),
                cannot: false,
                level: None,
            });
        }
        let now = knob.as_ref().map(|knob| (knob, knob::read(knob)));
        let (said, cannot, level) = match &now {
            None => ("part of the workload's command".to_owned(), false, None),
            Some((knob, Ok(now))) => {
                let level = f.levels.iter().position(|l| knob::same(knob, now, l));
                match can_be_put_back(f, knob, now) {
                    Ok(()) => (format!("now {now:?}"), false, level),
                    Err(fault) => (format!("CANNOT be restored: {fault}"), true, level),
                }
            }
            Some((_, Err(fault))) => (format!("CANNOT be read: {fault}"), true, None),
        };
        Ok(InForce { name: f.name.clone(), said, cannot, level })
    };
    experiment.factors.iter().map(of).collect()
}

impl Carrier<'_, '_> {
    /// The journal that undoes all changes, on disk before the first change.
    fn journal(&mut self) -> Result<&mut Journal, Fault> {
        if self.journal.is_none() {
            let steps: Vec<Step> = self.steps();
            let nothing = Forecast { method: "an experiment".into(), vms: Vec::new() };
            let title = format!("experiment {}", self.experiment.name);
            let plan = Plan::new(self.means.host.clone(), title, steps, Scope::Live, nothing);
            let path = self.means.journals.join(format!("{}.journal", plan.id));
            // An interrupted run of this experiment left it: it holds the same former values, according to its name.
            let open = if path.exists() { Some(Journal::open(&path)?) } else { None };
            let journal = match open {
                Some(j) if j.plan().is_some() && j.state() != State::RolledBack => j,
                old => {
                    drop(old);
                    Journal::begin(self.means.journals, &plan, None, unix_ns())?
                }
            };
            let journal = self.journal.insert(journal);
            for (step, one) in plan.steps.iter().enumerate() {
                let known = journal
                    .entries()
                    .iter()
                    .any(|e| matches!(e, Entry::Intent { step: s, .. } if *s == step));
                if !known {
                    journal.write(Entry::Intent { step, former: Box::new(former(one)) })?;
                }
            }
        }
        Ok(self.journal.as_mut().expect("it was made above"))
    }

    /// One step per knob, from its first value.
    fn steps(&self) -> Vec<Step> {
        (0..self.knobs.len()).filter_map(|f| self.step(f)).collect()
    }

    /// The step of one factor, from its first value to its first level. `None` if it has no knob.
    fn step(&self, factor: usize) -> Option<Step> {
        let (knob, from) = (self.knobs[factor].as_ref()?, self.found[factor].as_ref()?);
        let at = knob.on.clone().unwrap_or_else(|| "host".into());
        Some(Step {
            vm: VmId(format!("knob:{at}:{}", knob.name).into()),
            vm_name: at,
            change: Change::Knob(setting::HostKnob {
                knob: Box::new(knob.clone()),
                from: from.clone(),
                to: self.experiment.factors[factor].levels[0].clone(),
            }),
            reason: format!("experiment {}", self.experiment.name),
        })
    }

    /// Sets a setting's levels and reads them back.
    pub(super) fn establish(&mut self, place: Place) -> Result<Established, Fault> {
        self.setting = None;
        let levels = self.laid.settings[place.setting].clone();
        let wanted = |e: &Experiment, f: usize| e.factors[f].levels[levels[f]].clone();
        let mut words = Vec::new();
        let mut other = None;
        for f in self.order.clone() {
            let Some(knob) = self.knobs[f].clone() else { continue };
            let wanted = wanted(&self.experiment, f);
            let boots = matches!(knob.how, How::KernelWords { .. });
            // All boot parameters first: they are set together, for one reboot.
            if !boots && other.is_some() {
                break;
            }
            if boots {
                words.push((f, knob.clone(), wanted.clone()));
            }
            if self.in_force[f].as_ref() == Some(&wanted) {
                continue;
            }
            let Some(now) = self.asked(&knob, knob::read)? else { return Ok(Established::Anew) };
            if now.as_ref().is_ok_and(|now| knob::same(&knob, now, &wanted)) {
                self.in_force[f] = Some(wanted);
                continue;
            }
            if boots {
                other.get_or_insert((f, wanted, now.unwrap_or_else(|fault| fault.to_string())));
                continue;
            }
            self.announce(&knob, &wanted, place)?;
            self.in_force[f] = None;
            let set = self.asked(&knob, |knob| knob::set(knob, &wanted))?;
            let Some(set) = set else { return Ok(Established::Anew) };
            self.tell_log(f, &wanted, &set);
            if let Err(fault) = set {
                let why = format!("refused: {}", one_line(&fault));
                return Ok(Established::NotTaken(self.not_taken(f, wanted, why)));
            }
            let Some(now) = self.asked(&knob, knob::read)? else { return Ok(Established::Anew) };
            match now {
                Ok(found) if knob::same(&knob, &found, &wanted) => self.in_force[f] = Some(wanted),
                Ok(found) => {
                    return Ok(Established::NotTaken(self.not_taken(f, wanted, format!("{found:?}"))));
                }
                Err(fault) => {
                    return Ok(Established::NotTaken(self.not_taken(f, wanted, one_line(&fault))));
                }
            }
        }
        if let Some((f, wanted, found)) = other {
            if self.booted_for(place) {
                return Ok(Established::NotTaken(self.not_taken(f, wanted, found)));
            }
            // Also parameters that the running kernel has: it does not show what the next boot will get.
            for (f, knob, wanted) in words {
                self.announce(&knob, &wanted, place)?;
                self.in_force[f] = None;
                let set = knob::set(&knob, &wanted);
                self.tell_log(f, &wanted, &set);
                if let Err(fault) = set {
                    let why = format!("refused: {}", one_line(&fault));
                    return Ok(Established::NotTaken(self.not_taken(f, wanted, why)));
                }
            }
            return self.boot(place.block, Some(place.setting)).map(|()| Established::Booting);
        }
        self.log.write(Event::Set { block: place.block, setting: place.setting })?;
        (self.means.told)(Told::Set(place.setting));
        self.setting = Some(place.setting);
        self.pause(Duration::from_secs_f64(self.experiment.settle_s));
        Ok(Established::InForce)
    }

    /// Writes the change to the system's log, as one from the setting's first value.
    fn tell_log(&self, factor: usize, wanted: &str, set: &Result<(), Fault>) {
        let plan = self.journal.as_ref().and_then(|j| j.plan()).map_or("none", |(plan, _)| plan.id.as_str());
        if let Some(mut step) = self.step(factor) {
            if let Change::Knob(knob) = &mut step.change {
                wanted.clone_into(&mut knob.to);
            }
            system_log::made(By::Experiment, plan, &step, set);
        }
    }

    /// Writes to the journal before the change.
    fn announce(&mut self, knob: &Knob, wanted: &str, place: Place) -> Result<(), Fault> {
        let what =
            format!("{} set to {wanted:?} (block {}, setting {})", knob.name, place.block, place.setting);
        self.journal()?.write(Entry::Again { what })
    }

    /// Reads or sets. `None` if the link to the machine was lost and vsteer waited for it: the values there are then
    /// unknown.
    fn asked<T>(
        &mut self,
        knob: &Knob,
        ask: impl Fn(&Knob) -> Result<T, Fault>,
    ) -> Result<Option<Result<T, Fault>>, Fault> {
        match (ask(knob), &knob.on) {
            // Try once more: perhaps only the link broke, and it works again.
            (Err(_), Some(on)) if shell::is_there(on, self.means.interrupted) => Ok(Some(ask(knob))),
            (Err(_), Some(on)) => self.wait_for(on).map(|()| None),
            (told, _) => Ok(Some(told)),
        }
    }

    /// Waits until another machine answers or the user stops.
    pub(super) fn wait_for(&mut self, on: &str) -> Result<(), Fault> {
        self.setting = None;
        self.in_force = vec![None; self.knobs.len()];
        self.lost += 1;
        let gone = |why: String| {
            let way = format!(
                "continue once {on} is reachable: vsteer experiment resume {} --yes",
                self.log.folder().display()
            );
            Fault::new(FaultKind::Failed, format!("cannot reach {on} over ssh")).because(why).help(way)
        };
        let within = self.means.link_within;
        if self.lost > LOST_MOST {
            return Err(gone(format!(
                "the connection was lost {LOST_MOST} times without a finished run in between"
            )));
        }
        let told = &mut *self.means.told;
        told(Told::Note(format!("cannot reach {on} over ssh: waiting up to {} s", within.as_secs())));
        let stopped = self.means.interrupted;
        let note = |so_long: Duration| {
            told(Told::Note(format!("cannot reach {on} over ssh for {} s", so_long.as_secs())));
        };
        match link::wait(|| shell::is_there(on, stopped), stopped, note, within, link::EVERY) {
            link::Waited::There => (self.means.told)(Told::Note(format!("{on} is reachable again"))),
            link::Waited::Stopped => {}
            link::Waited::Gone => {
                return Err(gone(format!("vsteer waited {} s", within.as_secs())));
            }
        }
        Ok(())
    }

    fn not_taken(&self, factor: usize, wanted: String, found: String) -> Bad {
        Bad::NotTaken { factor: self.experiment.factors[factor].name.clone(), wanted, found }
    }

    /// Did the machine reboot for this very visit, without its levels seen in force since? If they were seen, somebody
    /// has restored the former ones.
    fn booted_for(&self, place: Place) -> bool {
        for event in self.log.events().iter().rev() {
            match event {
                Event::Set { .. } => return false,
                Event::Booting { block, setting, boot } => {
                    return (*block, *setting) == (place.block, Some(place.setting)) && *boot != self.boot;
                }
                _ => {}
            }
        }
        false
    }

    /// Reboots the machine; returns once it is going down.
    fn boot(&mut self, block: usize, setting: Option<usize>) -> Result<(), Fault> {
        let Some(Boot { reboot, .. }) = &self.experiment.boot else { return Ok(()) };
        self.log.write(Event::Booting { block, setting, boot: self.boot.clone() })?;
        (self.means.told)(Told::Booting);
        // The log must survive the reboot, even an abrupt one.
        rustix::fs::sync();
        shell::ask(reboot, None, BOOT_WITHIN).map(drop)
    }

    /// Restores the former settings. Returns one line per change.
    pub(super) fn put_back(&mut self) -> Result<Vec<String>, Fault> {
        self.setting = None;
        self.in_force = vec![None; self.knobs.len()];
        if self.steps().is_empty() {
            return Ok(Vec::new());
        }
        // Even if this process has changed nothing: an earlier process may have.
        let Receipt { steps, .. } = crate::rollback(self.journal()?, &mut Knobs, By::Experiment)?;
        self.journal = None;
        Ok(steps)
    }

    /// Boot parameters with which the kernel still runs: the restored ones take effect at the next boot.
    pub(super) fn still_running(&self) -> Vec<String> {
        let each = self.knobs.iter().zip(&self.found).filter_map(|(knob, found)| {
            let (knob, found) = (knob.as_ref()?, found.as_ref()?);
            let now = matches!(knob.how, How::KernelWords { .. }).then(|| knob::read(knob).ok()).flatten()?;
            let other = !knob::same(knob, &now, found);
            other.then(|| {
                format!(
                    "the kernel still runs with {now:?} for {:?}: reboot to return to {found:?}",
                    knob.name
                )
            })
        });
        each.collect()
    }

    /// Does the machine run with other boot parameters than before the experiment, and has it begun to reboot for that?
    pub(super) fn must_boot_back(&mut self) -> Result<bool, Fault> {
        for f in 0..self.knobs.len() {
            let (Some(knob), Some(found)) = (self.knobs[f].clone(), self.found[f].clone()) else { continue };
            if !matches!(knob.how, How::KernelWords { .. }) || knob::same(&knob, &knob::read(&knob)?, &found)
            {
                continue;
            }
            let back = self.log.events().iter().rev().find_map(|e| match e {
                Event::Booting { setting, boot, .. } => Some(setting.is_none() && *boot != self.boot),
                _ => None,
            });
            if back == Some(true) {
                return Err(Fault::new(
                    FaultKind::NotApplied,
                    format!("cannot restore the boot parameters of {:?}", knob.name),
                )
                .because(format!(
                    "they were {found:?} before the experiment, but a reboot did not bring them back"
                ))
                .help("check the boot loader's configuration"));
            }
            self.boot(0, None)?;
            return Ok(true);
        }
        Ok(false)
    }
}

/// The undo of a step: the first value, not the present one.
fn former(step: &Step) -> Former {
    Former { live: Some(step.change.clone()), ..Former::default() }
}
