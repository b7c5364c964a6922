//! Starts, watches and ends a process of another project's server.
//!
//! The process has no screen, its own folder and its own process group. (So only this program receives
//! Ctrl-C, and it ends the servers after it has their results.) It always ends with this program, because
//! `setpriv --pdeathsig` (util-linux) asks the kernel for that. The last lines of its output are kept, so
//! that a fault can quote a server that does not run. Its CPU time is the kernel's count of the process and
//! its threads. Children that have ended count too, children that still run do not.
//!
//! Source: `man 1 setpriv`, `man 5 proc` (stat: utime, stime, cutime, cstime; in ticks of 10 ms). Left out:
//! servers on another machine.

use crate::cpu::now_ns;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// How many lines of its output are kept.
const LINES_KEPT: usize = 4000;
/// How many lines a fault quotes.
const LINES_TOLD: usize = 6;
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// After this time, a process that was asked to end is killed.
const ENDS_WITHIN_NS: u64 = 2_000_000_000;
/// Ticks of the kernel's count per second; Linux has the same value on all machines that Rust supports.
const TICKS_PER_S: u64 = 100;

/// A command and its package: `--pdeathsig` makes the kernel end a server when vsteer ends.
pub const SETPRIV: (&str, &str) = ("setpriv", "util-linux");

/// A running server.
pub struct Process {
    program: &'static str,
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
    lines: Receiver<String>,
}

/// Is the program installed?
pub fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

impl Process {
    /// Starts the program of `package`.
    ///
    /// # Errors
    /// It is not installed.
    pub fn start(
        program: &'static str,
        package: &str,
        words: &[String],
        environment: &[(&str, String)],
    ) -> Result<Process, Fault> {
        for (program, package) in [(program, package), SETPRIV] {
            if !is_there(program) {
                return Err(Fault::new(FaultKind::NothingThere, format!("{program} is not there"))
                    .help(format!("apt-get install {package}")));
            }
        }
        let told = |e| Fault::io(format!("starting {program}"), &e);
        let mut child = Command::new(SETPRIV.0)
            .args(["--pdeathsig", "KILL", "--", program])
            .args(words)
            .envs(environment.iter().map(|(key, value)| (*key, value)))
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(told)?;
        let said = Arc::new(Mutex::new(Vec::new()));
        let (tells, lines) = channel();
        let out = child.stdout.take().map(|s| Box::new(s) as Box<dyn Read + Send>);
        let err = child.stderr.take().map(|s| Box::new(s) as Box<dyn Read + Send>);
        for (stream, is_out) in [(out, true), (err, false)] {
            let (said, tells) = (said.clone(), tells.clone());
            let stream = stream.expect("piped above");
            // The thread ends when the process's stream ends.
            std::thread::spawn(move || {
                for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                    let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                    if is_out {
                        let _ = tells.send(line.clone());
                    }
                    let mut said: std::sync::MutexGuard<Vec<String>> =
                        said.lock().unwrap_or_else(PoisonError::into_inner);
                    if said.len() == LINES_KEPT {
                        said.remove(0);
                    }
                    said.push(line);
                }
            });
        }
        Ok(Process { program, child, said, lines })
    }

    /// The next line of its standard output.
    ///
    /// # Errors
    /// It has ended, or printed nothing for this time.
    pub fn line(&mut self, within: Duration) -> Result<String, Fault> {
        let until = now_ns() + within.as_nanos() as u64;
        loop {
            if let Ok(line) = self.lines.recv_timeout(LOOK_EVERY) {
                return Ok(line);
            }
            self.runs()?;
            if now_ns() > until {
                return Err(self.fault(format!("it said nothing in {} s", within.as_secs())));
            }
        }
    }

    /// Waits until the condition holds.
    ///
    /// # Errors
    /// It has ended, or the condition did not hold for this time.
    pub fn until(
        &mut self,
        what: &str,
        within: Duration,
        mut is_so: impl FnMut(&Process) -> bool,
    ) -> Result<(), Fault> {
        let until = now_ns() + within.as_nanos() as u64;
        while !is_so(self) {
            self.runs()?;
            if now_ns() > until {
                return Err(self.fault(format!("after {} s {what}", within.as_secs())));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Checks that it still runs.
    ///
    /// # Errors
    /// How it ended, with its last lines.
    pub fn runs(&mut self) -> Result<(), Fault> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                // Its last lines may not have been read yet.
                std::thread::sleep(LOOK_EVERY);
                Err(self.fault(format!("it ended by itself: {status}")))
            }
            Err(e) => Err(Fault::io(format!("watching {}", self.program), &e)),
        }
    }

    fn fault(&self, why: String) -> Fault {
        let said = self.said();
        let last: Vec<&str> =
            said.iter().map(String::as_str).filter(|l| !l.is_empty()).rev().take(LINES_TOLD).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        let said =
            if last.is_empty() { String::new() } else { format!("; it said last: {}", last.join(" | ")) };
        Fault::new(FaultKind::Failed, self.program).because(why + &said)
    }

    /// Its output, by line.
    pub fn said(&self) -> Vec<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its CPU time so far, ns; `None` if it is gone.
    pub fn cpu_ns(&self) -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        ticks(&stat).map(|t| t * (1_000_000_000 / TICKS_PER_S))
    }

    /// Asks it to end, and kills it if it does not.
    pub fn end(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            let until = now_ns() + ENDS_WITHIN_NS;
            while matches!(self.child.try_wait(), Ok(None)) {
                if now_ns() > until {
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// utime, stime, cutime and cstime, which are the 12th to 15th field after the name in brackets.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    fields.get(11..15)?.iter().map(|f| f.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_whatever_the_name() {
        let stat = "12 (a) b (c) S 1 12 12 0 -1 4194304 1 2 3 4 150 50 7 3 20 0 1 0 99 1 2";
        assert_eq!(ticks(stat), Some(210));
        assert_eq!(ticks("12 (a"), None);
        assert_eq!(ticks("12 (a) S 1 2"), None);
    }

    #[test]
    fn one_that_ends_or_is_not_there_is_told_of_in_its_own_words() {
        let words = ["-c".to_owned(), "echo ready; echo no display >&2; exit 3".to_owned()];
        let mut process = Process::start("sh", "dash", &words, &[]).unwrap();
        assert_eq!(process.line(Duration::from_secs(20)).unwrap(), "ready");
        let why = process.until("never", Duration::from_secs(20), |_| false).unwrap_err().to_string();
        assert!(why.contains("exit status: 3") && why.contains("no display"), "{why}");
        let why = Process::start("no-such-server", "its-package", &[], &[]).err().unwrap().to_string();
        assert!(why.contains("no-such-server is not there") && why.contains("its-package"), "{why}");
    }

    #[test]
    fn one_that_runs_is_counted_and_ended() {
        let words = ["-c".to_owned(), "while :; do :; done".to_owned()];
        let mut process = Process::start("sh", "dash", &words, &[]).unwrap();
        let works =
            process.until("it did nothing", Duration::from_secs(30), |p| p.cpu_ns() > Some(50_000_000));
        works.unwrap();
        assert!(process.line(Duration::from_millis(50)).unwrap_err().to_string().contains("said nothing"));
        process.end();
        assert_eq!(process.cpu_ns(), None);
    }
}
