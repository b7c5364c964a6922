//! Weights that are set again and again, and return when the one who sets them is gone.
//!
//! What a weight was before it was first touched is written to a journal and synced before anything is set, as for a plan; setting it
//! again only adds a line that says what and why. So one rollback of that journal brings the first state back, however often weights
//! changed since.
//!
//! A watchdog of its own session holds the reading end of a pipe whose other end dies with the steering process, however that dies; then
//! it rolls back. It is looked after: one that is gone is replaced. Where both are killed at once, `vsteer rollback` finishes, as after
//! any crash.
//!
//! A VM that is touched for the first time later gets a journal and a watchdog of its own.
//!
//! Left out: a crash of the host: weights of running VMs do not outlive it.

use crate::apply::{Receipt, Setting};
use crate::journal::{Entry, Journal, State};
use crate::watchdog::{is_ready, say_ready};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use vsteer_core::nouns::{HostConfig, VmId};
use vsteer_core::plan::{Forecast, Plan, Scope, Step};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::actuate::Actuate;

/// VMs whose first weights are in one journal.
struct Guarded {
    journal: Journal,
    vms: Vec<VmId>,
    watchdog: Child,
}

/// Somebody who steers.
pub struct Steering {
    /// What the watchdog's command line begins with, after the program.
    arguments: Vec<String>,
    guarded: Vec<Guarded>,
}

impl Steering {
    /// Nothing is touched yet. The watchdog is this program with `arguments`, then the journal's path.
    pub fn new(arguments: &[&str]) -> Steering {
        Steering { arguments: arguments.iter().map(|a| (*a).to_owned()).collect(), guarded: Vec::new() }
    }

    /// Makes these steps, `now` being how the host is set up and `why` a line for the journal.
    ///
    /// # Errors
    /// When a journal or watchdog cannot be had, before anything of these steps is made; as [`Actuate::act`] for the first step that
    /// fails: those before it stay, and are taken back at the end with all else.
    pub fn set(
        &mut self,
        now: &HostConfig,
        actuator: &mut dyn Actuate,
        setting: Setting<'_>,
        steps: &[Step],
        why: &str,
    ) -> Result<(), Fault> {
        self.look_after()?;
        let known = |guarded: &[Guarded], vm: &VmId| guarded.iter().any(|g| g.vms.contains(vm));
        let fresh: Vec<Step> = steps.iter().filter(|s| !known(&self.guarded, &s.vm)).cloned().collect();
        if !fresh.is_empty() {
            self.begin(now, actuator, setting, fresh, why)?;
        }
        let what: Vec<String> = steps.iter().map(|s| format!("VM {:?}: {}", s.vm_name, s.change)).collect();
        let entry = Entry::Again { what: format!("{} ({why})", what.join("; ")) };
        self.guarded[0].journal.write(entry)?;
        steps.iter().try_for_each(|step| actuator.act(step, Scope::Live))
    }

    /// Writes down what these steps will overwrite first.
    fn begin(
        &mut self,
        now: &HostConfig,
        actuator: &mut dyn Actuate,
        setting: Setting<'_>,
        steps: Vec<Step>,
        why: &str,
    ) -> Result<(), Fault> {
        let formers = steps.iter().map(|s| actuator.former(s, Scope::Live)).collect::<Result<Vec<_>, _>>()?;
        let vms: Vec<VmId> = steps.iter().map(|s| s.vm.clone()).collect();
        let nothing = Forecast { method: why.to_owned(), vms: Vec::new() };
        let title = "weights for service levels (vsteer steer)".to_owned();
        let plan = Plan::new(now.clone(), title, steps, Scope::Live, nothing);
        let mut journal = Journal::begin(setting.folder, &plan, setting.connect, setting.unix_ns)?;
        for (step, former) in formers.into_iter().enumerate() {
            journal.write(Entry::Intent { step, former })?;
        }
        let watchdog = self.watchdog(&mut journal)?;
        self.guarded.push(Guarded { journal, vms, watchdog });
        Ok(())
    }

    fn watchdog(&self, journal: &mut Journal) -> Result<Child, Fault> {
        let what = || Fault::new(FaultKind::NotApplied, "starting the watchdog of steer");
        let program = std::env::current_exe().map_err(|e| what().because(e))?;
        let mut command = Command::new(program);
        command.args(&self.arguments).arg(journal.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Its own process group: Ctrl-C in the terminal is not meant for it.
        command.process_group(0);
        let mut child = command.spawn().map_err(|e| what().because(e))?;
        is_ready(&mut child).map_err(|e| what().because(e))?;
        journal.write(Entry::Guarded { pid: child.id() })?;
        Ok(child)
    }

    /// Replaces watchdogs that are gone.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn look_after(&mut self) -> Result<(), Fault> {
        for i in 0..self.guarded.len() {
            if !matches!(self.guarded[i].watchdog.try_wait(), Ok(None)) {
                let mut guarded = self.guarded.remove(i);
                let again = self.watchdog(&mut guarded.journal);
                guarded.watchdog = match again {
                    Ok(child) => child,
                    Err(fault) => {
                        self.guarded.insert(i, guarded);
                        return Err(fault);
                    }
                };
                self.guarded.insert(i, guarded);
            }
        }
        Ok(())
    }

    /// Takes everything back; what was done, one line per VM.
    ///
    /// # Errors
    /// As [`crate::rollback`]: the watchdogs then try again.
    pub fn end(mut self, actuator: &mut dyn Actuate) -> Result<Vec<Receipt>, Fault> {
        let mut receipts = Vec::new();
        for guarded in self.guarded.iter_mut().rev() {
            receipts.push(crate::rollback(&mut guarded.journal, actuator)?);
        }
        for guarded in self.guarded {
            let Guarded { journal, mut watchdog, .. } = guarded;
            // It waits for the journal, sees that nothing is left, and ends.
            drop(journal);
            drop(watchdog.stdin.take());
            let _ = watchdog.wait();
        }
        Ok(receipts)
    }
}

/// The watchdog's own life: says `ready`, waits until whoever started it is gone, and rolls back what is left. `open` makes the actuator.
///
/// # Errors
/// As [`crate::rollback`].
pub fn guard(
    journal: &Path,
    open: impl FnOnce(Option<&str>) -> Result<Box<dyn Actuate>, Fault>,
) -> Result<(), Fault> {
    say_ready();
    // Nobody writes there: the end comes when the last writer is gone.
    let mut nothing = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut nothing);
    let mut journal = Journal::open(journal)?;
    if journal.state() == State::RolledBack {
        return Ok(());
    }
    let connect = journal.plan().and_then(|(_, c)| c).map(str::to_owned);
    let mut actuator = open(connect.as_deref())?;
    crate::rollback(&mut journal, actuator.as_mut()).map(|_| ())
}
