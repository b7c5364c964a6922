//! `--try`: undo by itself unless confirmed, even if everything that applied the plan is gone.
//!
//! The watchdog is a process of its own session, started before the first step and waited for until it says that it is
//! ready. It does nothing until its deadline, then reads the journal: confirmed, rolled back or applied again since by
//! another apply, it ends; else it rolls back. It holds no lock while it waits. An apply that is still at work then
//! sees the deadline itself and takes back; one that hangs (a libvirt that does not answer) is killed by the watchdog,
//! its child, which then takes back in its stead. What cannot be taken back (a libvirt that is being restarted) is
//! tried again until it is, with the journal free in between, and each failure goes to the system's log, since
//! nobody waits for the watchdog. GAP(try-unit): under systemd a transient unit would also survive the caller's cgroup
//! being killed.

use crate::journal::{Entry, Journal, State};
use crate::system_log::{By, cannot_roll_back};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use vsteer_core::plan::Plan;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::actuate::Actuate;

/// How long an apply may take after the deadline, to undo its steps, before it counts as hung. A step takes
/// milliseconds; a busy libvirt some seconds.
const HUNG_AFTER: Duration = Duration::from_secs(20);
/// How often the watchdog looks whether the journal is free.
const LOOK: Duration = Duration::from_millis(100);
/// The pause after a failed try, and its maximum: a manager restarts in seconds, but a repair by hand takes longer.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

pub(crate) fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

/// Starts the watchdog for `journal`: this program with `arguments`, the journal's path and the deadline (ns since
/// 1970). Notes it in the journal. Returns when the watchdog is ready. `secret` goes to its standard input, which no
/// other process reads; without a secret that is empty.
///
/// # Errors
/// If the watchdog does not start or does not report that it is ready.
pub fn arm(
    journal: &mut Journal,
    after: Duration,
    arguments: &[&str],
    secret: Option<&str>,
) -> Result<(), Fault> {
    let deadline_unix_ns = unix_ns() + after.as_nanos() as u64;
    let what = || Fault::new(FaultKind::NotApplied, "cannot start the watchdog of --try");
    let program = std::env::current_exe().map_err(|e| what().because(e))?;
    let mut command = Command::new(program);
    command.args(arguments).arg(journal.path()).arg(deadline_unix_ns.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    // Its own process group: Ctrl-C in the terminal is not meant for it.
    command.process_group(0);
    let mut child = command.spawn().map_err(|e| what().because(e))?;
    // It is closed with that.
    let mut told = child.stdin.take().expect("it was asked for");
    told.write_all(secret.unwrap_or_default().as_bytes()).map_err(|e| what().because(e))?;
    drop(told);
    is_ready(&mut child).map_err(|e| what().because(e))?;
    journal.write(Entry::Armed { pid: child.id(), deadline_unix_ns })
}

/// Waits until a watchdog reports that it is ready.
pub(crate) fn is_ready(child: &mut Child) -> std::io::Result<()> {
    let mut line = String::new();
    let stdout = child.stdout.take().expect("it was asked for");
    BufReader::new(stdout).read_line(&mut line)?;
    if line.trim() == "ready" {
        Ok(())
    } else {
        Err(std::io::Error::other(format!("it printed {line:?}, not \"ready\"")))
    }
}

/// Reports that it is ready, from its own session: a closing terminal's hang-up does not reach it.
pub(crate) fn say_ready() {
    let _ = rustix::process::setsid();
    println!("ready");
    let _ = std::io::stdout().flush();
}

/// The watchdog's own loop: prints `ready`, waits, and rolls back unless the plan is confirmed; repeats what fails.
/// `open` makes the actuator of the plan and its connection.
///
/// # Errors
/// As [`Journal::open`], if the journal is gone or garbled: then the watchdog knows nothing.
pub fn watch(
    journal: &Path,
    deadline_unix_ns: u64,
    open: impl Fn(Option<&Plan>, Option<&str>) -> Result<Box<dyn Actuate>, Fault>,
) -> Result<(), Fault> {
    // The monotonic clock from here on: setting the wall clock back must not delay the rollback.
    let left = Duration::from_nanos(deadline_unix_ns.saturating_sub(unix_ns()));
    let deadline = Instant::now() + left;
    let applying = rustix::process::getppid();
    say_ready();
    while let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|l| !l.is_zero()) {
        std::thread::sleep(left);
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
        pause = (pause * 2).min(longest);
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

/// Opens the journal; kills the parent process if it still holds the journal after [`HUNG_AFTER`].
fn open_at_last(path: &Path, applying: Option<rustix::process::Pid>) -> Result<Journal, Fault> {
    let hung = Instant::now() + HUNG_AFTER;
    loop {
        if let Some(journal) = Journal::try_open(path)? {
            return Ok(journal);
        }
        // The number surely belongs to it only while it is this process's parent. For any other holder of the journal
        // (a rollback, a confirmation) the watchdog waits.
        if Instant::now() >= hung
            && let Some(pid) = applying.filter(|pid| rustix::process::getppid() == Some(*pid))
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
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
