//! Carries an experiment out: sets, reads back, runs, writes down; and goes on wherever it was cut off.
//!
//! What is to be done next is read off the log ([`vsteer_core::experiment::progress`]), so carrying on is the same whether the last line was written a moment
//! ago or before a crash. What settings were before is in an undo journal, as for a plan, before anything is set: `vsteer rollback` puts them
//! back whatever became of this process, and `resume` begins a journal anew where that was done. Nothing is assumed to be in force that this process
//! did not read back itself.
//!
//! A boot: the next boot's command line is set, of all factors that are on it, a line says so, the machine is booted, once; whoever resumes finds the words in
//! force or says that they did not take.
//!
//! A link to another machine (`on`) that is lost is no run's fault: it is waited for ([`link`]), all is set and read back anew, and what was cut off is made again.
//!
//! Left out: a watchdog that puts settings back when this process is killed: it would make every boot the end.

mod clocks;
pub mod file;
mod link;
pub mod log;
mod observing;
mod one_run;

pub use log::{FILE, Log};
pub use observing::{Observing, Open};

use crate::apply::Receipt;
use crate::journal::{Entry, Journal, State};
use crate::watchdog::unix_ns;
use one_run::Spoilt;
use std::path::Path;
use std::time::Duration;
use vsteer_core::experiment::description::{Factor, How, Knob, Of};
use vsteer_core::experiment::design::Laid;
use vsteer_core::experiment::progress::{LOG_VERSION, Place};
use vsteer_core::experiment::{Bad, Event, Experiment, Next, Progress, Run};
use vsteer_core::nouns::{HostConfig, VmId};
use vsteer_core::plan::{Change, Forecast, Plan, Scope, Step};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::actuate::Former;
use vsteer_host::knob::{self, Knobs};
use vsteer_host::power::Meter;
use vsteer_host::root::Root;
use vsteer_host::shell;

/// How carrying on ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Everything is run and put back.
    Done,
    /// Ctrl-C: what was set is put back; `resume` goes on.
    Interrupted(Vec<String>),
    /// The machine is being booted; `resume` goes on.
    Booting,
}

/// What is told on the way.
#[derive(Debug)]
pub enum Told<'a> {
    /// A setting is in force.
    Set(usize),
    /// A run has ended.
    Ran(&'a Run),
    /// So many blocks in all, and how many would have been needed.
    Decided(usize, usize),
    /// The machine is booted.
    Booting,
    /// Something that is worth a line.
    Note(String),
}

/// What carrying on needs of its caller.
pub struct Means<'a> {
    /// How this host is set up, for the journal.
    pub host: HostConfig,
    /// Where undo journals are.
    pub journals: &'a Path,
    /// Has the person asked to stop?
    pub interrupted: &'a dyn Fn() -> bool,
    /// Hears what happens.
    pub told: &'a mut dyn FnMut(Told<'_>),
    /// Opens the host whose VMs are looked at, where a measure asks for that.
    pub observe: &'a mut Open<'a>,
    /// A link to another machine that is lost is waited for so long ([`LINK_WITHIN`]).
    pub link_within: Duration,
}

/// So long another machine may take to boot.
pub const LINK_WITHIN: Duration = Duration::from_secs(600);
/// A link that is lost so often while no run comes to its end is not waited for again: maybe what is run or set breaks it.
const LOST_MOST: usize = 5;

/// A boot that does not come is waited for so long.
const BOOT_WITHIN: Duration = Duration::from_secs(600);

/// Somebody who carries an experiment out.
struct Carrier<'a, 'm> {
    experiment: Experiment,
    laid: Laid,
    knobs: Vec<Option<Knob>>,
    /// The factors' numbers in the order in which they are set: those that need a boot first, since it undoes the others.
    order: Vec<usize>,
    found: Vec<Option<String>>,
    log: &'a mut Log,
    means: Means<'m>,
    journal: Option<Journal>,
    /// What this process has read back, factor by factor.
    in_force: Vec<Option<String>>,
    /// The setting whose levels are in force.
    setting: Option<usize>,
    root: Root,
    boot: String,
    observing: Option<Observing>,
    /// How often a link was lost since a run came to its end.
    lost: usize,
    /// The run (block, setting, repeat) that ended with ssh's own code though the other machine was there at once.
    broke: Option<(usize, usize, usize)>,
}

/// Carries an experiment on, from wherever its log is.
///
/// # Errors
/// `NoSpace` where the log or journal cannot be written, `BadInput` for an experiment that cannot be, `NotApplied` where settings could not be put
/// back; what could be put back has been.
pub fn carry_on(experiment: &Experiment, log: &mut Log, means: Means<'_>) -> Result<Ended, Fault> {
    experiment.check()?;
    let laid = experiment.laid()?;
    let knobs = experiment.factors.iter().map(|f| f.knob(experiment.boot.as_ref()));
    let knobs: Vec<Option<Knob>> = knobs.collect::<Result<_, _>>()?;
    let mut order: Vec<usize> = (0..knobs.len()).collect();
    order.sort_by_key(|i| !experiment.factors[*i].kernel);
    let root = Root::live()?;
    let boot = clocks::boot_id(&root);
    let in_force = vec![None; knobs.len()];
    // Before anything is set: a measure that cannot be had is told now.
    let observing = Observing::open(experiment, means.observe)?;
    let mut carrier = Carrier {
        experiment: experiment.clone(),
        laid,
        found: vec![None; knobs.len()],
        order,
        knobs,
        log,
        means,
        journal: None,
        in_force,
        setting: None,
        root,
        boot,
        observing,
        lost: 0,
        broke: None,
    };
    carrier.begin()?;
    let result = carrier.work();
    // Whatever went wrong, what was set is put back; what cannot be is told beside it.
    if let Err(fault) = result {
        let back = carrier.put_back();
        let Err(second) = back else { return Err(fault) };
        let cause = fault.cause.clone().unwrap_or_default();
        let first = fault
            .way_out
            .as_ref()
            .map_or_else(String::new, |way| format!("{way}; before that, or instead: "));
        return Err(fault
            .because(format!("{cause}; and putting settings back: {second}"))
            .way_out(format!("{first}vsteer rollback")));
    }
    result
}

/// Nothing, which was found, is hardly something that can be set. Of tuned it is no profile, of a command line no such word.
///
/// # Errors
/// `Unsupported` where it could not be put back.
pub fn can_be_put_back(factor: &Factor, knob: &Knob, found: &str) -> Result<(), Fault> {
    let text = matches!(knob.how, How::File { .. } | How::Commands { .. });
    if !text || factor.tuned || !found.is_empty() || factor.levels.iter().any(String::is_empty) {
        return Ok(());
    }
    Err(Fault::new(FaultKind::Unsupported, format!("factor {:?}", factor.name))
        .because("what is read now is empty: that could not be put back")
        .way_out("set it to one of its levels first; or make \"\" a level, where that can be set"))
}

/// Meters tell something now: one that is not there is told of before anything is set.
///
/// # Errors
/// The meter's.
pub fn meters_tell(experiment: &Experiment, root: &Root) -> Result<(), Fault> {
    for measure in &experiment.measures {
        if let Of::IdleWatts { meter, .. } = &measure.of {
            Meter::find(root, meter).and_then(|m| m.watts(root)).map_err(|fault| {
                let what = format!("measure {:?}: {}", measure.name, fault.what);
                Fault { what, ..fault }
            })?;
        }
    }
    Ok(())
}

impl Carrier<'_, '_> {
    /// Looks at what is in force before anything is touched, or reads in the log what was.
    fn begin(&mut self) -> Result<(), Fault> {
        let begun = self.log.events().iter().find_map(|e| match e {
            Event::Begun { found, host, .. } => Some((found.clone(), host.clone())),
            _ => None,
        });
        match begun {
            Some((found, host)) => {
                self.found = found;
                self.means.host = *host;
                let boot = self.boot.clone();
                self.log.write(Event::Resumed { unix_ns: unix_ns(), boot })?;
            }
            None => {
                let found = self.knobs.iter().map(|k| k.as_ref().map(knob::read).transpose());
                self.found = found.collect::<Result<_, _>>()?;
                self.can_be_put_back()?;
                meters_tell(&self.experiment, &self.root)?;
                self.log.write(Event::Begun {
                    version: LOG_VERSION,
                    experiment: Box::new(self.experiment.clone()),
                    unix_ns: unix_ns(),
                    host: Box::new(self.means.host.clone()),
                    found: self.found.clone(),
                })?;
            }
        }
        Ok(())
    }

    /// Before anything is set.
    fn can_be_put_back(&self) -> Result<(), Fault> {
        let each = self.experiment.factors.iter().zip(&self.knobs).zip(&self.found);
        for ((factor, knob), found) in each {
            if let (Some(knob), Some(found)) = (knob, found) {
                can_be_put_back(factor, knob, found)?;
            }
        }
        Ok(())
    }

    fn work(&mut self) -> Result<Ended, Fault> {
        loop {
            if (self.means.interrupted)() {
                let mut lines = self.put_back()?;
                lines.extend(self.still_running());
                return Ok(Ended::Interrupted(lines));
            }
            let (next, number) = {
                let progress = Progress::new(&self.experiment, &self.laid, self.log.events());
                (progress.next(), progress.next_number())
            };
            match next {
                Next::Nothing => return Ok(Ended::Done),
                Next::CutOff(number, place) => self.tell(self.bad_run(number, place, Bad::CutOff))?,
                Next::NotCounting(number, bad) => {
                    let what = format!("run {number} does not count after all: {bad}");
                    self.log.write(Event::NotCounting { number, bad })?;
                    (self.means.told)(Told::Note(what));
                }
                Next::Decide { blocks, wanted } => {
                    self.log.write(Event::Decided { blocks, wanted })?;
                    (self.means.told)(Told::Decided(blocks, wanted));
                }
                Next::End => {
                    self.put_back()?;
                    if self.must_boot_back()? {
                        return Ok(Ended::Booting);
                    }
                    self.log.write(Event::Ended)?;
                    return Ok(Ended::Done);
                }
                Next::Run(place) => {
                    if self.setting != Some(place.setting) {
                        match self.establish(place)? {
                            Established::InForce => {}
                            Established::Booting => return Ok(Ended::Booting),
                            // It was waited for, or nobody waits any more.
                            Established::Anew => continue,
                            Established::NotTaken(_) if (self.means.interrupted)() => continue,
                            Established::NotTaken(bad) => {
                                self.log.write(Event::Starting { number, place })?;
                                self.tell(self.bad_run(number, place, bad))?;
                                continue;
                            }
                        }
                    }
                    self.run(number, place)?;
                }
            }
        }
    }

    fn bad_run(&self, number: usize, place: Place, bad: Bad) -> Run {
        Run {
            number,
            place,
            warm_up: place.repeat < self.experiment.warm_up,
            unix_ns: unix_ns(),
            took_s: None,
            values: vec![None; self.experiment.measured().len()],
            missing: Vec::new(),
            bad: Some(bad),
        }
    }

    fn tell(&mut self, run: Run) -> Result<(), Fault> {
        self.log.write(Event::Ran(run.clone()))?;
        (self.means.told)(Told::Ran(&run));
        Ok(())
    }

    /// What takes back all that will be set, on disk before anything is.
    fn journal(&mut self) -> Result<&mut Journal, Fault> {
        if self.journal.is_none() {
            let steps: Vec<Step> = self.steps();
            let nothing = Forecast { method: "an experiment".into(), vms: Vec::new() };
            let title = format!("experiment {}", self.experiment.name);
            let plan = Plan::new(self.means.host.clone(), title, steps, Scope::Live, nothing);
            let path = self.means.journals.join(format!("{}.journal", plan.id));
            // Of the same experiment, cut off: it holds the same formers, by its name.
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
                    journal.write(Entry::Intent { step, former: former(one) })?;
                }
            }
        }
        Ok(self.journal.as_mut().expect("it was made above"))
    }

    /// One step per knob, from what was found first.
    fn steps(&self) -> Vec<Step> {
        let all = self.knobs.iter().zip(&self.found).zip(&self.experiment.factors);
        let steps = all.filter_map(|((knob, found), factor)| {
            let (knob, from) = (knob.as_ref()?, found.as_ref()?);
            let at = knob.on.clone().unwrap_or_else(|| "host".into());
            Some(Step {
                vm: VmId(format!("knob:{at}:{}", knob.name)),
                vm_name: at,
                change: Change::Knob {
                    knob: Box::new(knob.clone()),
                    from: from.clone(),
                    to: factor.levels[0].clone(),
                },
                reason: format!("experiment {}", self.experiment.name),
            })
        });
        steps.collect()
    }

    /// Sets a setting's levels and reads them back.
    fn establish(&mut self, place: Place) -> Result<Established, Fault> {
        self.setting = None;
        let levels = self.laid.settings[place.setting].clone();
        let wanted = |e: &Experiment, f: usize| e.factors[f].levels[levels[f]].clone();
        let mut words = Vec::new();
        let mut other = None;
        for f in self.order.clone() {
            let Some(knob) = self.knobs[f].clone() else { continue };
            let wanted = wanted(&self.experiment, f);
            let boots = matches!(knob.how, How::KernelWords { .. });
            // All words come first: they are set together, for one boot.
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
            // Also those that the running kernel has: what the next boot is given is not told by what runs.
            for (f, knob, wanted) in words {
                self.announce(&knob, &wanted, place)?;
                self.in_force[f] = None;
                if let Err(fault) = knob::set(&knob, &wanted) {
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

    /// In the journal, before it is done.
    fn announce(&mut self, knob: &Knob, wanted: &str, place: Place) -> Result<(), Fault> {
        let what =
            format!("{} set to {wanted:?} (block {}, setting {})", knob.name, place.block, place.setting);
        self.journal()?.write(Entry::Again { what })
    }

    /// Reads or sets; `None` where the link to its machine was lost and has been waited for: what is in force there is not known any more.
    fn asked<T>(
        &mut self,
        knob: &Knob,
        ask: impl Fn(&Knob) -> Result<T, Fault>,
    ) -> Result<Option<Result<T, Fault>>, Fault> {
        match (ask(knob), &knob.on) {
            // Once more: it may have been the link, which is there again.
            (Err(_), Some(on)) if shell::is_there(on, self.means.interrupted) => Ok(Some(ask(knob))),
            (Err(_), Some(on)) => self.wait_for(on).map(|()| None),
            (told, _) => Ok(Some(told)),
        }
    }

    /// Waits until another machine is there, or nobody waits.
    fn wait_for(&mut self, on: &str) -> Result<(), Fault> {
        self.setting = None;
        self.in_force = vec![None; self.knobs.len()];
        self.lost += 1;
        let gone = |why: String| {
            let way =
                format!("when it is there: vsteer experiment resume {} --yes", self.log.folder().display());
            Fault::new(FaultKind::Failed, format!("reaching {on} over ssh")).because(why).way_out(way)
        };
        let within = self.means.link_within;
        if self.lost > LOST_MOST {
            return Err(gone(format!("it was lost {LOST_MOST} times, and no run came to its end between")));
        }
        let told = &mut *self.means.told;
        told(Told::Note(format!(
            "{on} is not reached over ssh: it is waited for, up to {} s",
            within.as_secs()
        )));
        let stopped = self.means.interrupted;
        let note = |so_long: Duration| {
            told(Told::Note(format!("{on} is not reached over ssh, for {} s now", so_long.as_secs())));
        };
        match link::wait(|| shell::is_there(on, stopped), stopped, note, within, link::EVERY) {
            link::Waited::There => (self.means.told)(Told::Note(format!("{on} is there again"))),
            link::Waited::Stopped => {}
            link::Waited::Gone => {
                return Err(gone(format!("it was not there within {} s", within.as_secs())));
            }
        }
        Ok(())
    }

    fn pause(&self, length: Duration) {
        let end = std::time::Instant::now() + length;
        while !(self.means.interrupted)() {
            let left = end.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(Duration::from_millis(200)));
        }
    }

    fn not_taken(&self, factor: usize, wanted: String, found: String) -> Bad {
        Bad::NotTaken { factor: self.experiment.factors[factor].name.clone(), wanted, found }
    }

    /// Was the machine booted for this very visit, and have its levels not been seen in force since? Where they were, somebody put them back.
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

    /// Boots the machine; returns when it is on its way down.
    fn boot(&mut self, block: usize, setting: Option<usize>) -> Result<(), Fault> {
        let command = self.experiment.boot.as_ref().map(|b| b.reboot.clone()).unwrap_or_default();
        self.log.write(Event::Booting { block, setting, boot: self.boot.clone() })?;
        (self.means.told)(Told::Booting);
        // What was written must outlive the boot, also where the boot is abrupt.
        rustix::fs::sync();
        shell::ask(&command, None, BOOT_WITHIN).map(drop)
    }

    /// Puts back what was found. What is done, one line each.
    fn put_back(&mut self) -> Result<Vec<String>, Fault> {
        self.setting = None;
        self.in_force = vec![None; self.knobs.len()];
        if self.steps().is_empty() {
            return Ok(Vec::new());
        }
        // Also where this process has set nothing: one before it may have.
        let Receipt { steps, .. } = crate::rollback(self.journal()?, &mut Knobs)?;
        self.journal = None;
        Ok(steps)
    }

    /// Words of the command line that the kernel still runs with: what was put back is the next boot's.
    fn still_running(&self) -> Vec<String> {
        let each = self.knobs.iter().zip(&self.found).filter_map(|(knob, found)| {
            let (knob, found) = (knob.as_ref()?, found.as_ref()?);
            let now = matches!(knob.how, How::KernelWords { .. }).then(|| knob::read(knob).ok()).flatten()?;
            let other = !knob::same(knob, &now, found);
            other.then(|| {
                format!(
                    "the kernel still runs with {now:?} for {:?}: boot to have {found:?} again",
                    knob.name
                )
            })
        });
        each.collect()
    }

    /// Does the machine run with other words than those that were found, and is it being booted for that?
    fn must_boot_back(&mut self) -> Result<bool, Fault> {
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
                    format!("the words of {:?} on the kernel's command line", knob.name),
                )
                .because(format!(
                    "they were {found:?} at first, and after a boot that should bring them back they are not"
                ))
                .way_out("look at the boot loader's configuration"));
            }
            self.boot(0, None)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// One run, told whatever becomes of it.
    fn run(&mut self, number: usize, place: Place) -> Result<(), Fault> {
        self.log.write(Event::Starting { number, place })?;
        let levels = &self.laid.settings[place.setting];
        let mut run = self.bad_run(number, place, Bad::CutOff);
        let spoilt = one_run::carry_out(
            &self.experiment,
            levels,
            self.log.output(number),
            &mut run,
            self.observing.as_mut(),
            self.means.interrupted,
        );
        let on = self.experiment.workload.on.clone();
        if let (Some(Spoilt { bad, link: true }), Some(on)) = (&spoilt, &on) {
            let there = shell::is_there(on, self.means.interrupted);
            let broke = Some((place.block, place.setting, place.repeat));
            // Once a run, a link that is there again at once is believed to have broken; then it is the command that ends so.
            if !there || (*bad == Bad::Failed { code: shell::LINK_LOST } && self.broke != broke) {
                self.broke = if there { broke } else { self.broke };
                // On disk before it is waited for.
                self.tell(self.bad_run(number, place, Bad::CutOff))?;
                return if there { Ok(()) } else { self.wait_for(on) };
            }
        }
        self.lost = 0;
        run.bad = spoilt.map(|s| s.bad);
        if run.bad.is_none() {
            run.bad = Progress::new(&self.experiment, &self.laid, self.log.events()).tenfold(&run);
        }
        if run.bad.is_none() && self.is_last(place) {
            self.idle_watts(&mut run);
        }
        self.tell(run)
    }

    fn is_last(&self, place: Place) -> bool {
        place.repeat + 1 == self.experiment.warm_up + self.experiment.runs_per_visit
    }

    /// Reads meters after the last run of a visit, where they are asked for.
    fn idle_watts(&self, run: &mut Run) {
        for (i, measure) in self.experiment.measured().iter().enumerate() {
            let Of::IdleWatts { meter, for_s } = &measure.of else { continue };
            let read = Meter::find(&self.root, meter).and_then(|m| {
                m.idle_watts(&self.root, Duration::from_secs_f64(*for_s), self.means.interrupted)
            });
            match read {
                Ok(watts) => run.values[i] = Some(watts),
                Err(fault) => {
                    run.missing.push(format!("{} in run {}: {}", measure.name, run.number, one_line(&fault)))
                }
            }
        }
    }
}

/// Whether a setting is in force.
enum Established {
    InForce,
    Booting,
    /// Not known: a link was lost, and is there again.
    Anew,
    NotTaken(Bad),
}

fn one_line(fault: &Fault) -> String {
    match &fault.cause {
        Some(cause) => format!("{}: {cause}", fault.what),
        None => fault.what.clone(),
    }
}

/// What takes a step back: what was found first, not what is in force now.
fn former(step: &Step) -> Former {
    Former { live: Some(step.change.clone()), ..Former::default() }
}
