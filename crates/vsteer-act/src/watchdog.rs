//! `--try`: undo by itself unless confirmed, even if everything that applied the plan is gone.
//!
//! The watchdog is a process of its own session, started before the first step and waited for until it says that it is
//! ready. It does nothing until its deadline, then reads the journal: confirmed, rolled back or applied again since by
//! another apply, it ends; else it rolls back. It holds no lock while it waits. An apply that is still at work then
//! sees the deadline itself and takes back; one that hangs (a libvirt that does not answer) is killed by the watchdog,
//! its child, which then takes back in its stead. What cannot be taken back (a libvirt that is being restarted) is
//! tried again until it is, with the journal free in between, and each failure goes to the system's log, since
//! nobody waits for the watchdog. GAP(try-boot): nothing undoes by itself what a power cut left; the journal names it. A
//! watchdog that is asked to end (SIGTERM, a shutdown of the host) undoes at once.

use crate::journal::{Entry, Journal, State};
use crate::outlive;
use crate::system_log::{By, cannot_roll_back};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use vsteer_core::plan::Plan;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::actuate::Actuate;

/// How long an apply may take after the deadline, to undo its steps, before it counts as hung. A step takes
/// milliseconds; a busy libvirt some seconds.
const HUNG_AFTER: Duration = Duration::from_secs(20);
/// How often the watchdog looks whether the journal is free.
const LOOK: Duration = Duration::from_millis(100);
/// How often the watchdog looks whether it is asked to end.
const ASKED: Duration = Duration::from_millis(500);
/// The pause after a failed try, and its maximum: a manager restarts in seconds, but a repair by hand takes longer.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

pub(crate) fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

/// Starts the watchdog for `journal`: this program with `arguments`, the journal's path, the deadline (ns since 1970) and
/// this process's id. Notes it in the journal. Returns when the watchdog is ready and outlives this process. `secret` goes
/// to its standard input, which no other process reads; without a secret that is empty.
///
/// # Errors
/// If the watchdog does not start, does not report that it is ready, or would end with this process.
pub fn arm(
    journal: &mut Journal,
    after: Duration,
    arguments: &[&str],
    secret: Option<&str>,
) -> Result<(), Fault> {
    let deadline_unix_ns = unix_ns() + after.as_nanos() as u64;
    let fault = |why: String| {
        Fault::new(FaultKind::NotApplied, "cannot start the watchdog of --try").because(why).help(
            "apply without --try, and undo with vsteer rollback; or run vsteer in a shell, not in a service",
        )
    };
    let journal_path = std::path::absolute(journal.path()).map_err(|e| fault(e.to_string()))?;
    let journal_path =
        journal_path.to_str().ok_or_else(|| fault("the journal's path is not UTF-8".into()))?;
    let (deadline, applying) = (deadline_unix_ns.to_string(), std::process::id().to_string());
    let all = [arguments, &[journal_path, &deadline, &applying]].concat();
    let plan = journal.plan().map_or("a plan", |(plan, _)| plan.id.as_str());
    let what = format!("vsteer: undoes plan {plan} unless it is confirmed");
    let started = outlive::start(&what, &all, Some(secret.unwrap_or_default())).map_err(fault)?;
    journal.write(Entry::Armed { pid: started.pid, deadline_unix_ns })
}

/// The process that applies, by a descriptor: its number may belong to another process later.
#[derive(Debug)]
pub struct Applying {
    pid: u32,
    /// `None` before Linux 5.3.
    pidfd: Option<OwnedFd>,
}

impl Applying {
    /// The process `pid`, which must be running, and run this program.
    pub fn new(pid: u32) -> Applying {
        let exe = |who: &str| {
            let file = std::fs::metadata(format!("/proc/{who}/exe")).ok()?;
            Some((file.dev(), file.ino()))
        };
        let opened = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
        // Looked at after the descriptor was opened: so it is of the process whose descriptor that is.
        let same = exe(&pid.to_string()).is_some_and(|theirs| Some(theirs) == exe("self"));
        Applying { pid, pidfd: opened.filter(|_| same) }
    }

    fn kill(&self) {
        if let Some(pidfd) = &self.pidfd {
            let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
            return;
        }
        // The number surely belongs to it while it is this process's parent.
        let parent = rustix::process::getppid();
        if let Some(parent) = parent.filter(|p| p.as_raw_nonzero().get().cast_unsigned() == self.pid) {
            let _ = rustix::process::kill_process(parent, Signal::KILL);
        }
    }
}

/// The watchdog's own loop: reports that it is ready, waits, and rolls back unless the plan is confirmed; repeats what
/// fails. `asked_to_end` ends the waiting before the deadline. `open` makes the actuator of the plan and its connection.
///
/// # Errors
/// As [`Journal::open`], if the journal is gone or garbled: then the watchdog knows nothing. As `open`, before it is ready.
pub fn watch(
    journal: &Path,
    deadline_unix_ns: u64,
    applying: &Applying,
    asked_to_end: impl Fn() -> bool,
    open: impl Fn(Option<&Plan>, Option<&str>) -> Result<Box<dyn Actuate>, Fault>,
) -> Result<(), Fault> {
    // The monotonic clock from here on: setting the wall clock back must not delay the rollback.
    let left = Duration::from_nanos(deadline_unix_ns.saturating_sub(unix_ns()));
    let deadline = Instant::now() + left;
    // In a unit of its own it may have other rights than the process that applies: only who can undo may say so.
    let able = Journal::begun(journal).and_then(|(plan, connect)| open(Some(&plan), connect.as_deref()));
    able.inspect_err(outlive::say_failed)?;
    outlive::say_ready();
    while let Some(left) =
        deadline.checked_duration_since(Instant::now()).filter(|l| !l.is_zero() && !asked_to_end())
    {
        std::thread::sleep(left.min(ASKED));
    }
    let (mut pause, longest) = PAUSE;
    loop {
        // Opened again each time: during a pause a person may roll the plan back, confirm it or apply it again.
        let opened = open_at_last(journal, applying);
        let mut opened = opened.inspect_err(|fault| cannot_roll_back(journal, fault))?;
        let Err(fault) = undo_if_due(&mut opened, deadline_unix_ns, &open) else { return Ok(()) };
        drop(opened);
        cannot_roll_back(journal, &fault);
        std::thread::sleep(pause);
        // A host that shuts down waits for it.
        pause = if asked_to_end() { PAUSE.0 } else { (pause * 2).min(longest) };
    }
}

/// Rolls back, unless this is not, or no longer, this watchdog's task.
fn undo_if_due(
    journal: &mut Journal,
    deadline_unix_ns: u64,
    open: impl Fn(Option<&Plan>, Option<&str>) -> Result<Box<dyn Actuate>, Fault>,
) -> Result<(), Fault> {
    // If the plan was rolled back and applied again meanwhile, its new journal has the same name and another watchdog.
    let ours = journal.deadline_unix_ns() == Some(deadline_unix_ns);
    if !ours || journal.confirmed() || journal.state() == State::RolledBack {
        return Ok(());
    }
    let (plan, connect) = journal.plan().unzip();
    let mut actuator = open(plan, connect.flatten())?;
    let conflicts = crate::conflicts(journal, actuator.as_mut());
    if !conflicts.is_empty() {
        // Somebody decided otherwise since. Trying again would only repeat this line.
        let what =
            format!("somebody else changed these settings since, and they stay: {}", conflicts.join("; "));
        cannot_roll_back(journal.path(), &Fault::new(FaultKind::Changed, what));
        return Ok(());
    }
    crate::rollback(journal, actuator.as_mut(), By::TryWatchdog).map(|_| ())
}

/// Opens the journal; kills the process that applies if it still holds the journal after [`HUNG_AFTER`]. For any other
/// holder (a rollback, a confirmation) the watchdog waits.
fn open_at_last(path: &Path, applying: &Applying) -> Result<Journal, Fault> {
    let hung = Instant::now() + HUNG_AFTER;
    loop {
        if let Some(journal) = Journal::try_open(path)? {
            return Ok(journal);
        }
        if Instant::now() >= hung {
            applying.kill();
        }
        std::thread::sleep(LOOK);
    }
}

/// Confirms what `--try` did.
///
/// # Errors
/// `Changed` if it was already rolled back.
pub fn confirm(journal: &mut Journal) -> Result<(), Fault> {
    match journal.state() {
        State::Applied if journal.confirmed() => Ok(()),
        State::Applied => journal.write(Entry::Confirmed),
        State::RolledBack => Err(Fault::new(FaultKind::Changed, "the plan was already rolled back")
            .help("make a new plan and apply it: vsteer plan -o plan.json")),
        State::Unfinished => Err(Fault::new(FaultKind::Changed, "the plan was applied only in part")
            .help("undo that part: vsteer rollback")),
    }
}
