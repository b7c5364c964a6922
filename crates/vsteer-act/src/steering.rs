//! Settings that vsteer changes repeatedly, and restores when the process that changes them is gone.
//!
//! Before the first change of a setting, its value goes to a journal and is synced, as for a plan. Further changes
//! only add a line with the reason. So one rollback of that journal restores the first state, however often the
//! setting changed. A setting that changes for the first time later gets its own journal.
//!
//! A watchdog in its own session reads the names of the journals from a pipe. The pipe closes when the steering
//! process ends, for any reason. Then the watchdog rolls the journals back, the newest first, because budgets of
//! nested cgroups depend on their order. vsteer replaces a watchdog that is gone. If both are killed at once, or the
//! host loses power, the next process that steers the same finishes, or `vsteer rollback`.

use crate::apply::{Receipt, Setting};
use crate::journal::{Entry, Journal, State};
use crate::outlive::{self, Started};
use crate::system_log::{self, By, cannot_roll_back};
use rustix::process::Pid;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ChildStdin};
use vsteer_core::forecast::Forecast;
use vsteer_core::nouns::HostConfig;
use vsteer_core::plan::Plan;
use vsteer_core::setting::{Scope, Step};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::actuate::Actuate;

/// Settings with their first values in one journal.
struct Held {
    journal: Journal,
    steps: Vec<Step>,
}

/// The watchdog's process, and the pipe for names of journals.
struct Watchdog {
    process: Child,
    pid: u32,
    told: ChildStdin,
}

/// Sets settings repeatedly, with a watchdog that restores them.
pub struct Steering {
    by: By,
    /// Title of the journals.
    title: String,
    /// Arguments of the watchdog's program.
    arguments: Vec<String>,
    held: Vec<Held>,
    watchdog: Option<Watchdog>,
}

impl Steering {
    /// Changes nothing yet. The watchdog is this program with `arguments`; `title` is one line about who steers what,
    /// `by` is for the system's log.
    pub fn new(by: By, title: &str, arguments: &[&str]) -> Steering {
        Steering {
            by,
            title: title.to_owned(),
            arguments: arguments.iter().map(|a| (*a).to_owned()).collect(),
            held: Vec::new(),
            watchdog: None,
        }
    }

    /// Applies these steps; `now` is the host's configuration, `why` a line for the journal.
    ///
    /// # Errors
    /// As [`Steering::will_be_put_back`]; as [`Actuate::act`] for the first step that fails: earlier steps stay, and
    /// the end undoes them with all others.
    pub fn set(
        &mut self,
        now: &HostConfig,
        actuator: &mut dyn Actuate,
        setting: Setting<'_>,
        steps: &[Step],
        why: &str,
    ) -> Result<(), Fault> {
        self.hold(now, actuator, setting, steps, why)?;
        let what: Vec<String> = steps.iter().map(|s| format!("VM {:?}: {}", s.vm_name, s.change)).collect();
        let entry = Entry::Again { what: format!("{} ({why})", what.join("; ")) };
        self.held.first_mut().map_or(Ok(()), |first| first.journal.write(entry))?;
        for step in steps {
            let made = actuator.act(step, Scope::Live);
            system_log::made(self.by, self.plan_of(step), step, &made);
            made?;
        }
        Ok(())
    }

    /// Arranges the undo of these steps, but leaves the changes to the caller, who may then repeat them at will.
    ///
    /// # Errors
    /// If there is no journal or watchdog, before any of these changes.
    pub fn will_be_put_back(
        &mut self,
        now: &HostConfig,
        actuator: &mut dyn Actuate,
        setting: Setting<'_>,
        steps: &[Step],
        why: &str,
    ) -> Result<(), Fault> {
        for step in &self.hold(now, actuator, setting, steps, why)? {
            system_log::begun(self.by, self.plan_of(step), step);
        }
        Ok(())
    }

    /// Schedules the undo of each step that has none scheduled yet, and returns those steps.
    fn hold(
        &mut self,
        now: &HostConfig,
        actuator: &mut dyn Actuate,
        setting: Setting<'_>,
        steps: &[Step],
        why: &str,
    ) -> Result<Vec<Step>, Fault> {
        self.look_after()?;
        let known = |step: &Step| self.held.iter().flat_map(|h| &h.steps).any(|s| s.sets_what(step));
        let fresh: Vec<Step> = steps.iter().filter(|s| !known(s)).cloned().collect();
        if !fresh.is_empty() {
            if self.held.is_empty() {
                self.finish_former(actuator, setting)?;
            }
            self.begin(now, actuator, setting, fresh.clone(), why)?;
        }
        Ok(fresh)
    }

    /// Id of the plan whose journal undoes this step.
    fn plan_of(&self, step: &Step) -> &str {
        let held = self.held.iter().find(|h| h.steps.iter().any(|s| s.sets_what(step)));
        held.and_then(|h| h.journal.plan()).map_or("none", |(plan, _)| plan.id.as_str())
    }

    /// Undoes what processes that steered the same have left: those that ended together with their watchdog. What
    /// cannot be undone stays for `vsteer rollback`, and the system's log says why.
    fn finish_former(&self, actuator: &mut dyn Actuate, setting: Setting<'_>) -> Result<(), Fault> {
        for path in Journal::pending(setting.folder)? {
            let mine = |(plan, connect): (Plan, Option<String>)| {
                plan.title == self.title && connect.as_deref() == setting.connect
            };
            if !Journal::begun(&path).is_ok_and(mine) {
                continue;
            }
            let mut undo = || {
                // A process that steers by it, or undoes it, has it locked.
                let Some(mut left) = Journal::try_open(&path)? else { return Ok(()) };
                // Steering never completes a plan. A newer plan of the same setting must be undone first.
                if left.state() != State::Unfinished || !left.set_later_by()?.is_empty() {
                    return Ok(());
                }
                crate::rollback(&mut left, actuator, self.by).map(|_| ())
            };
            undo().unwrap_or_else(|fault| cannot_roll_back(&path, &fault));
        }
        Ok(())
    }

    /// Writes to the journal what these steps will overwrite first.
    fn begin(
        &mut self,
        now: &HostConfig,
        actuator: &mut dyn Actuate,
        setting: Setting<'_>,
        steps: Vec<Step>,
        why: &str,
    ) -> Result<(), Fault> {
        let formers = steps.iter().map(|s| actuator.former(s, Scope::Live)).collect::<Result<Vec<_>, _>>()?;
        let nothing = Forecast { method: why.to_owned(), vms: Vec::new() };
        let plan = Plan::new(now.clone(), self.title.clone(), steps.clone(), Scope::Live, nothing);
        let mut journal = Journal::begin(setting.folder, &plan, setting.connect, setting.unix_ns)?;
        for (step, former) in formers.into_iter().enumerate() {
            journal.write(Entry::Intent { step, former: Box::new(former) })?;
        }
        self.held.push(Held { journal, steps });
        let last = self.held.len() - 1;
        match &mut self.watchdog {
            None => self.watch(),
            Some(watchdog) => tell(watchdog, &mut self.held[last].journal),
        }
    }

    /// Starts the watchdog, and sends it the names of all journals.
    fn watch(&mut self) -> Result<(), Fault> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let what = format!("vsteer: restores the settings of: {}", self.title);
        let Started { child: mut process, pid } =
            outlive::start(&what, &arguments, None).map_err(no_watchdog)?;
        let told = process.stdin.take().expect("it was asked for");
        let mut watchdog = Watchdog { process, pid, told };
        self.held.iter_mut().try_for_each(|held| tell(&mut watchdog, &mut held.journal))?;
        self.watchdog = Some(watchdog);
        Ok(())
    }

    /// Replaces a watchdog that is gone.
    ///
    /// # Errors
    /// If no watchdog can be started.
    pub fn look_after(&mut self) -> Result<(), Fault> {
        let Some(watchdog) = &mut self.watchdog else { return Ok(()) };
        // Asked first: a child that has ended counts as alive until then.
        let waits = matches!(watchdog.process.try_wait(), Ok(None));
        // systemd-run may end before the watchdog that it started, for example if the bus restarts.
        let pid = i32::try_from(watchdog.pid).ok().and_then(Pid::from_raw);
        let alive = || pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok());
        if waits || alive() { Ok(()) } else { self.watch() }
    }

    /// Undoes everything; returns one line per VM.
    ///
    /// # Errors
    /// As [`crate::rollback`]: then the watchdogs try again.
    pub fn end(mut self, actuator: &mut dyn Actuate) -> Result<Vec<Receipt>, Fault> {
        let mut receipts = Vec::new();
        for held in self.held.iter_mut().rev() {
            receipts.push(crate::rollback(&mut held.journal, actuator, self.by)?);
        }
        // The watchdog waits for the journals, sees that nothing is left, and ends.
        drop(self.held);
        if let Some(Watchdog { mut process, told, .. }) = self.watchdog {
            drop(told);
            let _ = process.wait();
        }
        Ok(receipts)
    }
}

fn no_watchdog(why: impl std::fmt::Display) -> Fault {
    Fault::new(FaultKind::NotApplied, "cannot start the watchdog that restores the settings").because(why)
}

fn tell(watchdog: &mut Watchdog, journal: &mut Journal) -> Result<(), Fault> {
    let path = journal.path().as_os_str().as_bytes();
    watchdog.told.write_all(&[path, b"\0"].concat()).map_err(no_watchdog)?;
    journal.write(Entry::Guarded { pid: watchdog.pid })
}

/// The watchdog's own loop: reports that it is ready, reads names of journals until its parent is gone, and rolls back what is
/// left. `open` makes the actuator.
///
/// # Errors
/// As [`crate::rollback`], of the first journal that could not be rolled back.
pub fn guard(open: impl Fn(Option<&str>) -> Result<Box<dyn Actuate>, Fault>) -> Result<(), Fault> {
    outlive::say_ready();
    // The pipe ends when its last writer is gone.
    let mut told = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut told);
    let paths: Vec<&[u8]> = told.split(|byte| *byte == 0).filter(|path| !path.is_empty()).collect();
    let roll_back = |path: &[u8]| -> Result<(), Fault> {
        let mut journal = Journal::open(Path::new(OsStr::from_bytes(path)))?;
        if journal.state() == State::RolledBack {
            return Ok(());
        }
        let connect = journal.plan().and_then(|(_, c)| c).map(str::to_owned);
        let mut actuator = open(connect.as_deref())?;
        crate::rollback(&mut journal, actuator.as_mut(), By::SteeringWatchdog).map(|_| ())
    };
    // A journal that cannot be rolled back does not block the others.
    let done = paths.into_iter().rev().map(|path| {
        let named = Path::new(OsStr::from_bytes(path));
        roll_back(path).inspect_err(|fault| cannot_roll_back(named, fault))
    });
    let done: Vec<Result<(), Fault>> = done.collect();
    done.into_iter().collect()
}
