//! What does a case run beside its VMs? A command of the observer, such as a controller, from when recording begins.
//!
//! It runs where the observer does. At the case's end it is interrupted, as a person would (SIGINT), and given time to take
//! back what it changed. How it ended is a result (`command.status`), not a fault of the case.
//!
//! Left out: a shell; input.

use super::{LOOK_EVERY_NS, OBSERVER, SECOND_NS};
use crate::clock::{now_ns, sleep_until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus, Stdio};

/// From being interrupted to the end.
const ENDS_WITHIN_NS: u64 = 120 * SECOND_NS;
/// What it says on standard error then.
const READY: &str = "vsteer: ready";
/// Until the kernel has checked eBPF programs: seconds of emulated time.
const READY_WITHIN_NS: u64 = 120 * SECOND_NS;
/// Looking wakes the observer's pCPU, which stops the VMs': less often once it is slow.
const LOOK_LATER_NS: u64 = 50 * LOOK_EVERY_NS;

/// A command that runs.
pub struct Command {
    child: Child,
    words: String,
    folder: String,
}

impl Command {
    /// Starts it, if the case has one.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(words: &[String], folder: &str) -> Result<Option<Command>, String> {
        if words.is_empty() {
            return Ok(None);
        }
        let said = words.join(" ");
        let file = |name: &str| {
            let path = format!("{folder}/{name}");
            File::create(&path).map_err(|e| format!("making {path}: {e}"))
        };
        let child = std::process::Command::new(OBSERVER)
            .args(words)
            .stdin(Stdio::null())
            .stdout(file("command.out")?)
            .stderr(file("command.txt")?)
            .spawn()
            .map_err(|e| format!("starting {OBSERVER} {said}: {e}"))?;
        Ok(Some(Command { child, words: said, folder: folder.to_owned() }))
    }

    /// Waits until it says that it is ready.
    ///
    /// # Errors
    /// It ends instead, or takes too long.
    pub fn ready(mut self) -> Result<Command, String> {
        let begun = now_ns();
        let said = || std::fs::read_to_string(format!("{}/command.txt", self.folder)).unwrap_or_default();
        while !said().lines().any(|line| line == READY) {
            let ended = self.child.try_wait().map_err(|e| format!("waiting for the command: {e}"))?;
            if ended.is_some() || now_ns() - begun > READY_WITHIN_NS {
                return Err(format!("`vsteer {}` did not become ready: {}", self.words, said().trim()));
            }
            sleep_until(now_ns() + LOOK_LATER_NS);
        }
        Ok(self)
    }

    /// Kills it.
    ///
    /// # Errors
    /// It cannot be.
    pub fn kill(&mut self) -> Result<(), String> {
        self.child.kill().map_err(|e| format!("killing the command: {e}"))
    }

    /// Interrupts it, unless it has ended, waits for its end and notes how it ended.
    ///
    /// # Errors
    /// It does not end and was killed.
    pub fn end(mut self) -> Result<(), String> {
        let told = |e: std::io::Error| format!("ending the command: {e}");
        let mut status = self.child.try_wait().map_err(told)?;
        if status.is_none() {
            let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            let pid = pid.ok_or("the command has no process")?;
            kill_process(pid, Signal::INT).map_err(|e| told(e.into()))?;
        }
        let begun = now_ns();
        while status.is_none() && now_ns() - begun < ENDS_WITHIN_NS {
            sleep_until(now_ns() + LOOK_LATER_NS);
            status = self.child.try_wait().map_err(told)?;
        }
        let in_time = status.is_some();
        let status = match status {
            Some(status) => status,
            None => self.child.kill().and_then(|()| self.child.wait()).map_err(told)?,
        };
        let file = format!("{}/command.status", self.folder);
        std::fs::write(&file, in_words(status)).map_err(|e| format!("writing {file}: {e}"))?;
        if in_time {
            Ok(())
        } else {
            let seconds = ENDS_WITHIN_NS / SECOND_NS;
            Err(format!("`vsteer {}` did not end within {seconds} s of being interrupted", self.words))
        }
    }
}

/// The exit status, or the signal that ended it.
fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("{code}\n"),
        (None, signal) => format!("signal {}\n", signal.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_it_ended_is_a_number_or_a_signal() {
        assert_eq!(in_words(ExitStatus::from_raw(3 << 8)), "3\n");
        assert_eq!(in_words(ExitStatus::from_raw(9)), "signal 9\n");
    }
}
