//! How does vsteer hold a connection to a program on another host, and what happens if it breaks?
//!
//! vsteer starts the system's ssh, which reads the user's own configuration. ssh may ask nothing, must know the host's
//! key, forwards nothing, and shares no connection. It has a process group of its own, so Ctrl-C reaches only vsteer,
//! which then ends it. If vsteer is killed, ssh's input ends, and so does the program there.
//!
//! Everything read has a limit in bytes and time. Of ssh's standard error, vsteer keeps the end: its last line says why
//! a connection failed.
//!
//! Left out: a new connection after a lost one. GAP(ssh-reconnect): the counters of the agent are gone with it, so the
//! command ends with a fault.

use super::target::Target;
use super::wire::{Lines, Request, cut, line_of, timeout, write_within};
use crate::privilege::{CapabilitySet, Kept, confine};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vsteer_core::limits;
use vsteer_core::{Fault, FaultKind};

/// ssh ends by itself within this time after its input has ended; then it is ended.
const GRACE: Duration = Duration::from_millis(700);
/// After SIGTERM.
const GRACE_TERM: Duration = Duration::from_millis(300);
/// How long to wait for ssh's last words.
const WORDS_WITHIN: Duration = Duration::from_secs(2);
/// ssh's own code where it reached no host, or lost it (ssh(1)).
const LINK_LOST: i32 = 255;
/// A shell's code for a command that it does not find.
const NOT_FOUND: i32 = 127;
/// The code of a vsteer that has no such command.
const USAGE: i32 = FaultKind::Usage.exit_code() as i32;

/// Codes of the script that receives a copy of vsteer: no folder fits.
pub(super) const NO_FOLDER: i32 = 90;
/// The hash differs.
pub(super) const WRONG_HASH: i32 = 91;
/// A program is missing.
pub(super) const NO_PROGRAM: i32 = 92;

/// The process groups of ssh that run.
static LIVE: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn live() -> MutexGuard<'static, Vec<Pid>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends every connection at once, for a program that cannot wait for its threads. They then find a lost link.
pub fn end_all() {
    for group in live().iter() {
        let _ = kill_process_group(*group, Signal::TERM);
    }
}

/// A connection to a program on another host.
pub struct Link {
    child: Child,
    input: Arc<Mutex<Option<ChildStdin>>>,
    output: ChildStdout,
    errors: Option<ChildStderr>,
    lines: Lines,
    /// The end of what ssh and the program there said.
    words: Vec<u8>,
    host: String,
    /// Was there an answer? Then ssh had reached the host.
    reached: bool,
    /// Dropped, it ends the thread that keeps the agent from ending.
    stay: Option<Sender<()>>,
}

/// ssh to this host.
fn ssh(target: &Target) -> Command {
    let mut ssh = Command::new("ssh");
    for option in [
        "BatchMode=yes",
        "StrictHostKeyChecking=yes",
        "ConnectTimeout=20",
        "ServerAliveInterval=15",
        "ControlMaster=no",
        "ControlPath=none",
        "ClearAllForwardings=yes",
        "ForwardAgent=no",
        "ForwardX11=no",
        "PermitLocalCommand=no",
        "RemoteCommand=none",
    ] {
        ssh.args(["-o", option]);
    }
    if let Some(port) = target.port {
        ssh.args(["-p", &port.to_string()]);
    }
    ssh.args(["-T", "--", &target.destination]);
    ssh
}

impl Link {
    /// Starts `command` at the host. It may not have reached the host yet.
    ///
    /// # Errors
    /// When ssh cannot be started.
    pub fn start(target: &Target, command: &str) -> Result<Link, Fault> {
        let mut ssh = ssh(target);
        ssh.arg(command);
        Link::run(ssh, &target.destination)
    }

    /// Runs a program in place of ssh.
    pub(super) fn run(mut program: Command, host: &str) -> Result<Link, Fault> {
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let failed =
            |e| Fault::io(format!("cannot start ssh to reach {host}"), &e).help("install an SSH client");
        // The table is locked meanwhile, so no ssh that runs is missing in it.
        let mut all = live();
        let mut child = program.spawn().map_err(failed)?;
        all.push(Pid::from_child(&child));
        drop(all);
        let input = child.stdin.take().expect("piped");
        let (output, errors) = (child.stdout.take().expect("piped"), child.stderr.take());
        let link = Link {
            child,
            input: Arc::new(Mutex::new(Some(input))),
            output,
            errors,
            lines: Lines::default(),
            words: Vec::new(),
            host: host.to_owned(),
            reached: false,
            stay: None,
        };
        let unblocked = link.input().as_ref().map_or(Ok(()), |input| ioctl_fionbio(input, true));
        unblocked.map_err(|e| failed(e.into()))?;
        Ok(link)
    }

    /// The host, for people.
    pub fn host(&self) -> &str {
        &self.host
    }

    fn input(&self) -> MutexGuard<'_, Option<ChildStdin>> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// `Failed` if the link is lost, or takes none of them for a while.
    pub fn send(&mut self, bytes: &[u8], limit: Duration) -> Result<(), Fault> {
        let sent = self.input().as_ref().is_some_and(|input| write_within(input.as_fd(), bytes, limit));
        if sent { Ok(()) } else { Err(self.ended()) }
    }

    /// The next line.
    ///
    /// # Errors
    /// `Failed` if the link is lost or nothing comes within this time; `BadInput` for a line of more than `limit` bytes.
    pub fn line(&mut self, limit: usize, within: Duration) -> Result<Vec<u8>, Fault> {
        let deadline = Instant::now() + within;
        loop {
            match self.lines.take(limit) {
                Ok(Some(line)) => {
                    self.reached = true;
                    return Ok(line);
                }
                Ok(None) => {}
                Err(_) => {
                    return Err(self.strange(&format!("it sends a line of more than {limit} bytes")));
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // An answer that comes late would be taken for that of the next request.
                drop(self.input().take());
                let what = format!("{} does not answer", self.host);
                return Err(Fault::new(FaultKind::Failed, what)
                    .because(format!("vsteer waited {} s", within.as_secs()))
                    .help(format!("check the host and the network: ssh {} uptime", self.host)));
            }
            if !self.more(left) {
                return Err(self.ended());
            }
        }
    }

    /// The fault for an answer that is not the agent's.
    pub fn strange(&self, why: &str) -> Fault {
        Fault::new(FaultKind::BadInput, format!("cannot understand {}", self.host)).because(why).help(format!(
            "check that its login shell prints nothing, and that vsteer runs there: ssh {} vsteer --version",
            self.host
        ))
    }

    /// Waits for bytes and keeps them. `false`: the output has ended.
    fn more(&mut self, left: Duration) -> bool {
        let mut buffer = [0; 64 << 10];
        let mut ready = vec![PollFd::new(&self.output, PollFlags::IN)];
        ready.extend(self.errors.as_ref().map(|errors| PollFd::new(errors, PollFlags::IN)));
        if poll(&mut ready, Some(&timeout(left))).is_err() {
            return true;
        }
        let is_ready: Vec<bool> = ready.iter().map(|fd| !fd.revents().is_empty()).collect();
        if is_ready.get(1) == Some(&true) {
            self.read_words();
        }
        if !is_ready[0] {
            return true;
        }
        match self.output.read(&mut buffer) {
            Ok(0) => false,
            Ok(n) => {
                self.lines.push(&buffer[..n]);
                true
            }
            Err(e) => e.kind() == ErrorKind::Interrupted,
        }
    }

    fn read_words(&mut self) {
        let mut buffer = [0; 4 << 10];
        match self.errors.as_mut().map(|errors| errors.read(&mut buffer)) {
            Some(Ok(0) | Err(_)) | None => self.errors = None,
            Some(Ok(n)) => {
                self.words.extend_from_slice(&buffer[..n]);
                let early = self.words.len().saturating_sub(limits::AGENT_TEXT);
                self.words.drain(..early);
            }
        }
    }

    /// What ssh and the program there said last: vsteer's own error, where there is one, else the last line.
    fn last_words(&self) -> Option<String> {
        let words = String::from_utf8_lossy(&self.words);
        let lines = || words.lines().rev().map(str::trim).filter(|line| !line.is_empty());
        lines().find_map(|line| line.strip_prefix("error: ")).or_else(|| lines().next()).map(cut)
    }

    /// What came so far was not the agent's: if the link ends now, the agent did not start.
    pub fn not_reached(&mut self) {
        self.reached = false;
    }

    /// Why the output ended: ssh's code and its last line.
    fn ended(&mut self) -> Fault {
        drop(self.input().take());
        let group = Pid::from_child(&self.child);
        live().retain(|g| *g != group);
        let begun = Instant::now();
        let mut status = None;
        while begun.elapsed() < WORDS_WITHIN && (status.is_none() || self.errors.is_some()) {
            status = status.or_else(|| self.child.try_wait().ok().flatten());
            let ready = self.errors.as_ref().is_some_and(|errors| {
                let wait = timeout(Duration::from_millis(20));
                poll(&mut [PollFd::new(errors, PollFlags::IN)], Some(&wait)).is_ok_and(|n| n > 0)
            });
            if ready {
                self.read_words();
            } else if self.errors.is_none() {
                std::thread::sleep(Duration::from_millis(10));
            } else if status.is_some() {
                break;
            }
        }
        self.fault(status)
    }

    fn fault(&self, status: Option<ExitStatus>) -> Fault {
        let host = &self.host;
        let code = status.and_then(|s| s.code());
        let words = self.last_words();
        let cause = match (&words, code) {
            (Some(words), _) => words.clone(),
            (None, Some(code)) => format!("ssh ended with code {code} and no message"),
            (None, None) => "ssh ended without a message".to_owned(),
        };
        let fault = |kind, what: String, help: String| Fault::new(kind, what).because(&cause).help(help);
        if self.reached && code.is_none_or(|code| ![NO_FOLDER, WRONG_HASH, NO_PROGRAM].contains(&code)) {
            return fault(
                FaultKind::Failed,
                format!("lost the connection to {host}"),
                format!("check the host and the network: ssh {host} uptime"),
            );
        }
        let has = |part: &str| cause.contains(part);
        match code {
            Some(NOT_FOUND) => fault(
                FaultKind::NothingThere,
                format!("vsteer is not installed on {host}"),
                "install vsteer there, or add --copy-vsteer to send it for this command".to_owned(),
            ),
            Some(USAGE) => fault(
                FaultKind::Unsupported,
                format!("the vsteer on {host} is too old to be asked over ssh"),
                format!("install vsteer {} there, or add --copy-vsteer", super::wire::VERSION),
            ),
            Some(NO_FOLDER | WRONG_HASH | NO_PROGRAM) => fault(
                FaultKind::Failed,
                format!("cannot copy vsteer to {host}"),
                "install vsteer there".to_owned(),
            ),
            Some(LINK_LOST) if has("Host key verification failed") || has("host key is known") => fault(
                FaultKind::Failed,
                format!("ssh does not trust the key of {host}"),
                format!("compare the key with the host's own, then accept it: ssh {host}"),
            ),
            Some(LINK_LOST) if has("Permission denied") => fault(
                FaultKind::NoPrivilege,
                format!("ssh cannot log in to {host}"),
                format!("use a key that needs no question (ssh-agent): ssh -o BatchMode=yes {host} true"),
            ),
            Some(LINK_LOST) => fault(
                FaultKind::NothingThere,
                format!("ssh cannot reach {host}"),
                format!("check the name and the network: ssh {host} uptime"),
            ),
            _ => fault(
                FaultKind::Failed,
                format!("cannot run vsteer on {host}"),
                format!("run it by hand to see its error: ssh {host} vsteer --version"),
            ),
        }
    }

    /// From now on a thread tells the agent to stay, however rarely it is asked.
    pub fn keep(&mut self) {
        let (stay, ended) = channel::<()>();
        let input = Arc::clone(&self.input);
        let every = limits::AGENT_SILENCE / 5;
        let remind = move || {
            // As the thread that waits for signals: it needs no privilege.
            let _ = confine(Kept { capabilities: CapabilitySet::empty(), writes_elsewhere: false }, &[]);
            let line = line_of(&Request::Stay);
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let input = input.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(open) = input.as_ref() else { return };
                // Half a line would spoil the next request; the main thread then finds the link lost.
                if !write_within(open.as_fd(), &line, limits::AGENT_WRITE_TIME) {
                    return;
                }
            }
        };
        if std::thread::Builder::new().name("ssh-stay".to_owned()).spawn(remind).is_ok() {
            self.stay = Some(stay);
        }
    }

    fn wait(&mut self, limit: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Link {
    /// Ends ssh, which ends the program there.
    fn drop(&mut self) {
        drop(self.stay.take());
        let group = Pid::from_child(&self.child);
        live().retain(|g| *g != group);
        if let Some(input) = self.input().take() {
            let _ = rustix::io::write(&input, &line_of(&Request::Bye));
        }
        // After the wait, the number may belong to another process.
        if !matches!(self.child.try_wait(), Ok(None)) || (self.reached && self.wait(GRACE)) {
            return;
        }
        let _ = kill_process_group(group, Signal::TERM);
        if !self.wait(GRACE_TERM) {
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(script: &str) -> Link {
        let mut program = Command::new("sh");
        program.args(["-c", script]);
        Link::run(program, "far").unwrap()
    }

    /// The fault of a program that ends without an answer.
    fn fault(script: &str) -> Fault {
        link(script).line(100, Duration::from_secs(20)).unwrap_err()
    }

    #[test]
    fn each_end_of_ssh_has_its_help() {
        for (script, kind, part) in [
            ("echo 'sh: 1: vsteer: not found' >&2; exit 127", FaultKind::NothingThere, "--copy-vsteer"),
            ("exit 2", FaultKind::Unsupported, "too old"),
            ("echo no folder >&2; exit 90", FaultKind::Failed, "cannot copy vsteer to far: no folder"),
            ("echo 'Host key verification failed.' >&2; exit 255", FaultKind::Failed, "compare the key"),
            ("echo 'x: Permission denied (publickey).' >&2; exit 255", FaultKind::NoPrivilege, "ssh-agent"),
            ("echo 'connect: refused' >&2; exit 255", FaultKind::NothingThere, "far: connect: refused"),
            ("exit 3", FaultKind::Failed, "code 3"),
        ] {
            let fault = fault(script);
            assert_eq!(fault.kind, kind, "{script}");
            assert!(fault.to_string().contains(part), "{script}: {fault}");
        }
    }

    #[test]
    fn a_lost_link_says_what_ssh_said_last() {
        let mut link =
            link("echo hello; echo 'first' >&2; printf 'Connection reset by peer\\r\\n' >&2; exit 255");
        assert_eq!(link.line(100, Duration::from_secs(20)).unwrap(), b"hello");
        let fault = link.line(100, Duration::from_secs(20)).unwrap_err();
        assert!(
            fault.to_string().starts_with("lost the connection to far: Connection reset by peer\n"),
            "{fault}"
        );
    }

    #[test]
    fn neither_silence_nor_a_flood_hangs() {
        let begun = Instant::now();
        let mut silent = link("exec sleep 60");
        let fault = silent.line(100, Duration::from_millis(200)).unwrap_err();
        assert!(fault.to_string().contains("does not answer"), "{fault}");
        let mut dripping = link("while :; do printf x; sleep 0.05; done");
        assert!(dripping.line(100_000, Duration::from_millis(300)).is_err());
        let mut flood = link("yes | tr -d '\\n'");
        assert_eq!(flood.line(1 << 20, Duration::from_secs(20)).unwrap_err().kind, FaultKind::BadInput);
        assert!(flood.lines.take(usize::MAX).unwrap().is_none() && flood.words.len() <= limits::AGENT_TEXT);
        let mut loud = link("exec yes >&2");
        assert!(loud.line(100, Duration::from_millis(300)).is_err());
        assert!(loud.words.len() <= limits::AGENT_TEXT);
        drop((silent, dripping, flood, loud));
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_program_that_does_not_end_is_ended_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let marker = dir.path().join("marker");
        let script = format!("trap '' TERM; (sleep 2; touch {}) & echo hello; sleep 60", marker.display());
        let mut link = link(&script);
        link.line(100, Duration::from_secs(20)).unwrap();
        let pid = link.child.id();
        let begun = Instant::now();
        drop(link);
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "it is reaped");
        std::thread::sleep(Duration::from_millis(2200));
        assert!(!marker.exists());
    }
}
