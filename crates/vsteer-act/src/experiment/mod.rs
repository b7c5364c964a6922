//! Runs an experiment: sets and reads back the levels, runs the workload, records the results, and continues after any
//! stop.
//!
//! The log alone decides the next action ([`vsteer_experiment::progress`]), so continuing is the same after a moment
//! and after a crash. The undo journal holds the former settings before any change, as for a plan: `vsteer rollback`
//! restores them whatever happened to this process, and `resume` then begins a new journal. vsteer assumes no setting
//! to be in force that this process did not read back itself.
//!
//! For boot parameters, vsteer sets the next boot's command line for all factors at once, logs that, and reboots once.
//! The resumed process checks the parameters and reports if they are missing.
//!
//! If the link to another machine (`on`) is lost, vsteer waits for it ([`link`]), sets and reads back everything
//! again, and repeats the run that was cut off.
//!
//! Left out: a watchdog that restores settings when this process is killed, because then every reboot would end the
//! experiment.

mod clocks;
pub mod file;
mod link;
pub mod log;
mod observing;
mod one_run;
mod settings;
mod winner;

pub use log::{FILE, Log};
pub use observing::{Observing, Open};
pub use settings::{InForce, in_force};
pub use winner::Winners;

use crate::journal::Journal;
use crate::watchdog::unix_ns;
use one_run::Spoilt;
use settings::{Established, can_be_put_back};
use std::path::Path;
use std::time::Duration;
use vsteer_core::Fault;
use vsteer_core::nouns::HostConfig;
use vsteer_core::setting::knob::Knob;
use vsteer_experiment::description::Of;
use vsteer_experiment::design::Laid;
use vsteer_experiment::progress::LOG_VERSION;
use vsteer_experiment::run::Place;
use vsteer_experiment::{Bad, Event, Experiment, Next, Progress, Run};
use vsteer_host::knob;
use vsteer_host::power::Meter;
use vsteer_host::root::Root;
use vsteer_host::shell;

/// How the work ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// All runs are done and the settings restored.
    Done,
    /// Ctrl-C: vsteer restored the settings; `resume` continues.
    Interrupted(Vec<String>),
    /// The machine reboots; `resume` continues.
    Booting,
}

/// Progress messages.
#[derive(Debug)]
pub enum Told<'a> {
    /// All levels of a setting are in force.
    Set(usize),
    /// A run has ended.
    Ran(&'a Run),
    /// Number of blocks in all, and how many would have been needed.
    Decided(usize, usize),
    /// The machine is rebooting.
    Booting,
    /// A line for the user.
    Note(String),
}

/// What the caller provides to run an experiment.
pub struct Means<'a> {
    /// Configuration of this host, for the journal.
    pub host: HostConfig,
    /// Folder of undo journals.
    pub journals: &'a Path,
    /// Has the person asked to stop?
    pub interrupted: &'a dyn Fn() -> bool,
    /// Receives progress messages.
    pub told: &'a mut dyn FnMut(Told<'_>),
    /// Opens the host to observe its VMs, if a measure needs that.
    pub observe: &'a mut Open<'a>,
    /// How long to wait for a lost link to another machine ([`LINK_WITHIN`]).
    pub link_within: Duration,
}

/// How long another machine may take to reboot.
pub const LINK_WITHIN: Duration = Duration::from_secs(600);
/// Runs an experiment.
struct Carrier<'a, 'm> {
    experiment: Experiment,
    laid: Laid,
    knobs: Vec<Option<Knob>>,
    /// The factors' numbers in the order in which to set them: factors that need a reboot first, because a reboot
    /// undoes the others.
    order: Vec<usize>,
    found: Vec<Option<String>>,
    log: &'a mut Log,
    means: Means<'m>,
    journal: Option<Journal>,
    /// Values that this process has read back, factor by factor.
    in_force: Vec<Option<String>>,
    /// The setting whose levels are in force.
    setting: Option<usize>,
    root: Root,
    boot: String,
    observing: Option<Observing>,
    /// Number of lost links since the last finished run.
    lost: usize,
    /// The run (block, setting, repeat) that ended with ssh's own exit code although the other machine answered at
    /// once.
    broke: Option<(usize, usize, usize)>,
}

/// Continues an experiment from the state in its log.
///
/// # Errors
/// `NoSpace` if the log or journal cannot be written, `BadInput` for an impossible experiment, `NotApplied` if some
/// settings could not be restored (all others were).
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
    // Before any change: report a measure that is not available.
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
    // Whatever the error, restore the settings; add the settings that cannot be restored to the error.
    if let Err(fault) = result {
        let back = carrier.put_back();
        let Err(second) = back else { return Err(fault) };
        let cause = fault.cause.clone().unwrap_or_default();
        let first =
            fault.help.as_ref().map_or_else(String::new, |help| format!("{help}; then, or instead, "));
        return Err(fault
            .because(format!("{cause}; restoring the settings failed too: {second}"))
            .help(format!("{first}run vsteer rollback")));
    }
    result
}

/// Checks that the power meters give values, before any change. A dry run (`dry`) leaves out meters that are commands.
///
/// # Errors
/// The meter's.
pub fn meters_tell(experiment: &Experiment, root: &Root, dry: bool) -> Result<(), Fault> {
    for measure in &experiment.measures {
        if let Of::IdleWatts { meter, .. } = &measure.of {
            let found = Meter::find(root, meter);
            if dry && matches!(found, Ok(Meter::Command(..))) {
                continue;
            }
            found.and_then(|m| m.watts(root)).map_err(|fault| {
                let what = format!("measure {:?}: {}", measure.name, fault.what);
                Fault { what, ..fault }
            })?;
        }
    }
    Ok(())
}

impl Carrier<'_, '_> {
    /// Reads the present settings before any change, or takes them from the log.
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
                meters_tell(&self.experiment, &self.root, false)?;
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
                    let what = format!("run {number} no longer counts: {bad}");
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
                            // Either vsteer waited for the link, or the user stopped the wait.
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

    /// Does one run, and reports it whatever its result.
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
            // If the link works again at once, vsteer believes once per run that the link broke; the second time the
            // command itself returned this exit code.
            if !there || (*bad == Bad::Failed { code: shell::LINK_LOST } && self.broke != broke) {
                self.broke = if there { broke } else { self.broke };
                // On disk before the wait.
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

    /// Reads the meters after the last run of a visit, if a measure needs them.
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

fn one_line(fault: &Fault) -> String {
    match &fault.cause {
        Some(cause) => format!("{}: {cause}", fault.what),
        None => fault.what.clone(),
    }
}
