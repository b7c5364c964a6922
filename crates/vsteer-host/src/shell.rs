//! How does vsteer run a command, here or over ssh, measure its time, and end it after a time limit?
//!
//! A command is a list of arguments, which no shell reads here; ssh gives it to the login shell there, quoted. It runs
//! in its own process group, so that a time limit or Ctrl-C also ends its children: SIGTERM, then
//! SIGKILL two seconds later. Its output goes to files, not pipes: nobody must read it meanwhile, and it survives a
//! crash. A process descriptor (`pidfd_open(2)`, Linux 5.3) reports its end, so the time is exact to a scheduling
//! latency without polling.
//!
//! Left out: kernels without process descriptors; background processes of a command that ended.
//! GAP(experiment-far-end): if the link breaks or the command is ended, only ssh ends, not the command on the other
//! machine. A terminal (`-tt`) would end it, but would mix standard output and standard error.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vsteer_core::limits;
use vsteer_core::setting::argv::{Argv, shell_word};
use vsteer_core::{Fault, FaultKind};

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// Pause between checks for a signal, which bounds the reaction to one.
const LOOK: Duration = Duration::from_secs(1);

/// The code of ssh itself where it did not reach the other machine, or lost it (ssh(1)); a command that ran there may
/// end with it, too.
pub const LINK_LOST: i32 = 255;
/// How long to wait for an answer of another machine: longer than ssh's own limit.
const REACHED_WITHIN: Duration = Duration::from_secs(30);

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself, with this code; 128 and a signal's number where one ended it.
    Code(i32),
    /// At the time limit.
    TimedOut,
    /// Since the person wants to stop.
    Stopped,
}

/// A command that was run.
#[derive(Debug, Clone, Copy)]
pub struct Ran {
    /// How it ended.
    pub end: End,
    /// From before it was started until it had ended.
    pub took: Duration,
}

fn failed(command: &Argv, e: impl std::fmt::Display) -> Fault {
    Fault::new(FaultKind::Failed, format!("cannot run {command}")).because(e)
}

/// The command line that runs `command` here or at `on`.
fn line(command: &Argv, on: Option<&str>) -> Command {
    let Some(target) = on else {
        let mut c = Command::new(&command.words()[0]);
        c.args(&command.words()[1..]);
        return c;
    };
    let mut c = Command::new("ssh");
    // No question may be asked; a link that is gone is noticed within a minute.
    c.args([
        "-o",
        "BatchMode=yes",
        "-o",
        "StrictHostKeyChecking=yes",
        "-o",
        "ConnectTimeout=20",
        "-o",
        "ServerAliveInterval=15",
        "-T",
        "--",
        target,
    ]);
    c.arg(command.words().iter().map(|w| shell_word(w)).collect::<Vec<_>>().join(" "));
    c
}

/// Runs a command, its output into these files.
///
/// # Errors
/// When it cannot be started or waited for.
pub fn run(
    command: &Argv,
    on: Option<&str>,
    output: (File, File),
    limit: Duration,
    stopped: &dyn Fn() -> bool,
) -> Result<Ran, Fault> {
    let mut c = line(command, on);
    c.stdin(Stdio::null()).stdout(output.0).stderr(output.1).process_group(0);
    let begun = Instant::now();
    let mut child = c.spawn().map_err(|e| failed(command, e))?;
    let pid = Pid::from_child(&child);
    let descriptor = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| failed(command, e))?;
    let deadline = begun + limit;
    let end = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break Some(End::TimedOut);
        }
        let slice = left.min(LOOK);
        let timeout = Timespec { tv_sec: slice.as_secs() as i64, tv_nsec: i64::from(slice.subsec_nanos()) };
        match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&timeout)) {
            Ok(n) if n > 0 => break None,
            _ if stopped() => break Some(End::Stopped),
            _ => {}
        }
    };
    let took = begun.elapsed();
    let Some(end) = end else {
        let status = child.wait().map_err(|e| failed(command, e))?;
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        return Ok(Ran { end: End::Code(code), took });
    };
    finish(&mut child, pid);
    Ok(Ran { end, took })
}

/// Can a command be run at `on`?
pub fn is_there(on: &str, stopped: &dyn Fn() -> bool) -> bool {
    let nothing = || File::options().write(true).open("/dev/null");
    let Ok(output) = nothing().and_then(|out| Ok((out, nothing()?))) else { return false };
    run(&Argv::shell("true"), Some(on), output, REACHED_WITHIN, stopped)
        .is_ok_and(|ran| ran.end == End::Code(0))
}

/// Ends a command and all that it started.
fn finish(child: &mut Child, pid: Pid) {
    let _ = kill_process_group(pid, Signal::TERM);
    let begun = Instant::now();
    while begun.elapsed() < GRACE && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(20));
    }
    // Kill the group even if its first process has ended, because its children may still run.
    let _ = kill_process_group(pid, Signal::KILL);
    let _ = child.wait();
}

/// The end of what a command printed into a file.
///
/// # Errors
/// When it cannot be read.
pub fn printed(file: &std::path::Path) -> Result<String, Fault> {
    use std::io::{Read, Seek, SeekFrom};
    let read = |e: std::io::Error| Fault::io(format!("cannot read {}", file.display()), &e);
    let mut f = File::open(file).map_err(read)?;
    let length = f.metadata().map_err(read)?.len();
    f.seek(SeekFrom::Start(length.saturating_sub(limits::PRINTED))).map_err(read)?;
    let mut bytes = Vec::new();
    f.take(limits::PRINTED).read_to_end(&mut bytes).map_err(read)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs a short command and gives what it printed.
///
/// # Errors
/// `Failed` where it cannot be run, does not succeed (with what it said last) or takes longer than `limit`.
pub fn ask(command: &Argv, on: Option<&str>, limit: Duration) -> Result<String, Fault> {
    let file = || -> Result<File, Fault> {
        let fd = rustix::fs::memfd_create(c"vsteer-output", rustix::fs::MemfdFlags::CLOEXEC);
        fd.map(File::from).map_err(|e| failed(command, e))
    };
    let (out, err) = (file()?, file()?);
    let copy = |f: &File| f.try_clone().map_err(|e| failed(command, e));
    let ran = run(command, on, (copy(&out)?, copy(&err)?), limit, &|| false)?;
    let text = |mut f: File| -> String {
        use std::io::{Read, Seek, SeekFrom};
        let mut bytes = Vec::new();
        let _ = f.seek(SeekFrom::Start(0)).and_then(|_| f.take(limits::PRINTED).read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    };
    match ran.end {
        End::Code(0) => Ok(text(out)),
        End::Code(code) => {
            let said = text(err);
            let said = said.trim().lines().last().unwrap_or("nothing").to_owned();
            Err(failed(command, format!("exit code {code}, last line: {said}")))
        }
        End::TimedOut | End::Stopped => Err(failed(command, format!("no end within {limit:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(dir: &std::path::Path) -> (File, File) {
        (File::create(dir.join("out")).unwrap(), File::create(dir.join("err")).unwrap())
    }

    #[test]
    fn commands_end_by_themselves_or_are_ended() {
        let dir = tempfile::tempdir().unwrap();
        let run = |command: &str, limit: u64, stop: bool| {
            super::run(&Argv::shell(command), None, files(dir.path()), Duration::from_millis(limit), &|| stop)
                .unwrap()
        };
        let ran = run("echo one; sleep 0.1; echo two >&2; exit 3", 10_000, false);
        assert_eq!(ran.end, End::Code(3));
        assert!(ran.took >= Duration::from_millis(100), "{ran:?}");
        assert_eq!(printed(&dir.path().join("out")).unwrap(), "one\n");
        assert_eq!(run("kill -9 $$", 10_000, false).end, End::Code(137));
        // What it started is ended too: a marker that would be made is not.
        let marker = dir.path().join("marker");
        let line = format!("(sleep 1; touch {}) & sleep 60", marker.display());
        assert_eq!(run(&line, 200, false).end, End::TimedOut);
        assert_eq!(run("sleep 60", 60_000, true).end, End::Stopped);
        std::thread::sleep(Duration::from_millis(1100));
        assert!(!marker.exists());
    }

    #[test]
    fn a_question_is_answered_or_its_refusal_told() {
        let limit = Duration::from_secs(10);
        let ask = |line: &str| super::ask(&Argv::shell(line), None, limit);
        assert_eq!(ask("echo yes").unwrap(), "yes\n");
        let refused = ask("echo no >&2; false").unwrap_err();
        assert!(refused.cause.unwrap().contains("last line: no"));
    }
}
