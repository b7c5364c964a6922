//! How does vsteer run Xen's own tools: here in Domain-0, or on another machine over SSH?
//!
//! The other side needs nothing but the tools. SSH runs one shell line, so vsteer quotes the words for a shell. It
//! keeps the connection open between calls (`ControlMaster`), because `xl` itself is already slow.
//!
//! Source: xl(1), xentrace(8) of Xen 4.17; ssh(1), `-o`.
//!
//! Left out: passwords. SSH needs a key or an agent, as everything that runs unattended.

use rustix::process::{Pid, Signal, kill_process};
use std::fs::DirBuilder;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use vsteer_core::limits;
use vsteer_core::setting::argv::shell_word;
use vsteer_core::{Fault, FaultKind};

/// How long to wait for the standard error of a tool that ended.
const WORDS_WITHIN: Duration = Duration::from_secs(1);
/// A running tool ends within this time after a request to end.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// How many bytes from the end of a tool's error text a fault shows.
const SAID: usize = 400;
/// The file in which Domain-0 lists its capabilities.
const CAPABILITIES: &str = "/proc/xen/capabilities";

/// Where Xen's tools run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In this Domain-0.
    Here,
    /// On another machine over `ssh`: `USER@HOST`, and a port if it is not 22.
    Ssh {
        /// The destination argument of `ssh`.
        target: String,
        /// The port of the SSH server.
        port: Option<u16>,
    },
}

impl Place {
    /// Parses a connection URI: `xen:` or `xen+ssh://[USER@]HOST[:PORT]`; `None` if the URI is not for Xen.
    ///
    /// # Errors
    /// `Usage` for a Xen URI that names no host.
    pub fn of(uri: &str) -> Option<Result<Place, Fault>> {
        if matches!(uri, "xen:" | "xen:///" | "xen:///system") {
            return Some(Ok(Place::Here));
        }
        let rest = uri.strip_prefix("xen+ssh://")?.trim_end_matches('/');
        let bad = |why: &str| {
            Fault::new(FaultKind::Usage, format!("{uri:?} does not name a Xen host"))
                .because(why)
                .help("use xen+ssh://root@host, or xen: in Domain-0")
        };
        let (target, port) = match rest.rsplit_once(':') {
            Some((target, port)) => match port.parse() {
                Ok(port) => (target, Some(port)),
                Err(_) => return Some(Err(bad("the text after the colon is not a port"))),
            },
            None => (rest, None),
        };
        // ssh would treat it as an option.
        if target.is_empty() || target.starts_with('-') || target.contains(char::is_whitespace) {
            return Some(Err(bad("the host name is missing or not valid")));
        }
        Some(Ok(Place::Ssh { target: target.to_owned(), port }))
    }

    /// Is this a Domain-0?
    pub fn is_here() -> bool {
        std::fs::read_to_string(CAPABILITIES).is_ok_and(|text| text.contains("control_d"))
    }

    /// A name to show to people.
    pub fn told(&self) -> String {
        match self {
            Place::Here => "this Domain-0".to_owned(),
            Place::Ssh { target, .. } => target.clone(),
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        match self {
            Place::Here => {
                let mut command = Command::new(words[0]);
                command.args(&words[1..]);
                command
            }
            Place::Ssh { target, port } => {
                let mut command = Command::new("ssh");
                // A host whose key is not known is refused, whatever this user's configuration says.
                command.args(["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"]);
                if let Some(path) = control_path() {
                    let control = format!("ControlPath={}", path.display());
                    command.args(["-o", "ControlMaster=auto", "-o", "ControlPersist=60", "-o", &control]);
                }
                port.iter().for_each(|p| {
                    command.args(["-p", &p.to_string()]);
                });
                // The remote shell splits the line into words. root's PATH may lack /usr/sbin in such
                // sessions.
                let line: Vec<String> = words.iter().map(|w| shell_word(w)).collect();
                command.args(["--", target]).arg(format!("PATH=$PATH:/usr/sbin:/sbin {}", line.join(" ")));
                command
            }
        }
    }

    /// Runs a tool to its end, and returns what it printed.
    ///
    /// # Errors
    /// `NothingThere` if the tool or the host does not exist; `NoPrivilege` if access is denied; `Failed`
    /// otherwise.
    pub fn run(&self, words: &[&str]) -> Result<String, Fault> {
        let line = words.join(" ");
        let mut child = self.start_with(words, Stdio::piped())?;
        let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
        // Reads both pipes at the same time, because a full pipe would block the tool.
        let (send, errors) = channel();
        std::thread::spawn(move || send.send(text_of(&mut err)));
        let output = std::thread::spawn(move || text_of(&mut out));
        let begin = Instant::now();
        let status = loop {
            let ended = child.try_wait().map_err(|e| Fault::io(format!("cannot wait for `{line}`"), &e))?;
            if let Some(status) = ended {
                break status;
            }
            if begin.elapsed() > limits::XEN_TOOL_TIME {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Fault::new(
                    FaultKind::Failed,
                    format!("`{line}` on {} does not answer", self.told()),
                )
                .because(format!("vsteer waited {} s", limits::XEN_TOOL_TIME.as_secs()))
                .help("check for an xl that hangs there (ps): it may hold Xen's lock"));
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let output = output.join().unwrap_or_default();
        // A connection that ssh keeps open for the next call may keep this pipe open too.
        let errors = errors.recv_timeout(WORDS_WITHIN).unwrap_or_default();
        if status.success() { Ok(output) } else { Err(self.refused(&line, status.code(), &errors)) }
    }

    /// Starts a tool that runs until [`Running::end`].
    ///
    /// # Errors
    /// As [`Place::run`], if the tool cannot be started.
    pub fn start(&self, words: &[&str]) -> Result<Running, Fault> {
        let mut command = match self {
            Place::Here => self.command(words),
            Place::Ssh { .. } => self.command(&["sh", "-c", &tethered(words)]),
        };
        // The tool gets its own process group, so Ctrl-C reaches only vsteer, which then ends the tool.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let started = command.spawn();
        let mut child = started.map_err(|e| self.not_started(words, &e))?;
        let (output, words_of) = (child.stdout.take().expect("piped"), child.stderr.take());
        Ok(Running {
            child,
            output: Some(output),
            errors: words_of,
            line: words.join(" "),
            place: self.clone(),
        })
    }

    fn start_with(&self, words: &[&str], err: Stdio) -> Result<Child, Fault> {
        let mut command = self.command(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(err).process_group(0);
        command.spawn().map_err(|e| self.not_started(words, &e))
    }

    fn not_started(&self, words: &[&str], e: &std::io::Error) -> Fault {
        let missing = match self {
            Place::Here => "install Xen's tools (package xen-utils)",
            Place::Ssh { .. } => "install an SSH client",
        };
        Fault::io(format!("cannot start `{}`", words.join(" ")), e).help(missing)
    }

    fn refused(&self, line: &str, code: Option<i32>, said: &str) -> Fault {
        let said = said.trim();
        let end = said.char_indices().rev().nth(SAID).map_or(said, |(at, _)| &said[at..]);
        let what = format!("`{line}` on {} failed", self.told());
        let low = end.to_lowercase();
        let fault = |kind, help: &str| Fault::new(kind, what.clone()).because(end).help(help);
        match (self, code) {
            (Place::Ssh { .. }, Some(255)) => {
                fault(FaultKind::NothingThere, "check that `ssh` can log in there without a password prompt")
            }
            (_, Some(127)) => fault(FaultKind::NothingThere, "install Xen's tools there"),
            _ if low.contains("permission denied") || low.contains("operation not permitted") => {
                fault(FaultKind::NoPrivilege, "run as root in Domain-0, which Xen's tools need")
            }
            _ if low.contains("could not obtain handle on privileged") || low.contains("cannot open") => {
                fault(
                    FaultKind::NothingThere,
                    "check that this is Domain-0 of a Xen host, and that you are root there",
                )
            }
            _ => fault(FaultKind::Failed, "run the command there by hand"),
        }
    }
}

/// A running tool, such as xentrace.
#[derive(Debug)]
pub struct Running {
    child: Child,
    output: Option<ChildStdout>,
    errors: Option<ChildStderr>,
    line: String,
    place: Place,
}

impl Running {
    /// The tool's output; `None` after the first call.
    pub fn take_output(&mut self) -> Option<ChildStdout> {
        self.output.take()
    }

    /// Why the tool ended by itself; `None` while it runs.
    pub fn ended(&mut self) -> Option<Fault> {
        let status = self.child.try_wait().ok()??;
        Some(self.place.refused(&self.line, status.code(), &text_of(&mut self.errors)))
    }

    /// Asks the tool to end, so that it can clean up.
    pub fn end(&mut self) {
        drop(self.child.stdin.take());
        // After the wait, the process number may belong to another process.
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        if self.place == Place::Here
            && let Some(pid) = Pid::from_raw(self.child.id().cast_signed())
        {
            let _ = kill_process(pid, Signal::TERM);
        }
        let begin = Instant::now();
        while begin.elapsed() < ENDS_WITHIN {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn text_of(pipe: &mut Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Path of the control socket for ssh, where `%C` stands for a hash of user, host and port. `None` without a private
/// folder: then every command makes its own connection. Anybody could listen on a socket in a shared folder before ssh
/// does, and would get the commands.
fn control_path() -> Option<PathBuf> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(private_folder).as_ref().map(|folder| folder.join("%C"))
}

/// A new folder that only this user can enter. Its last connection ends a minute after vsteer; the next process
/// of vsteer's that uses ssh removes the folder.
fn private_folder() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    // Those of processes that ended. `rmdir` removes only an empty folder.
    for entry in std::fs::read_dir(&base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|n| n.strip_prefix("vsteer-")?.split_once('-')).map(|(pid, _)| pid);
        let ended = |pid: &str| pid.parse::<u32>().is_ok() && !PathBuf::from(format!("/proc/{pid}")).exists();
        if pid.is_some_and(ended) {
            let _ = std::fs::remove_dir(entry.path());
        }
    }
    // `mkdir` fails on whatever is there already, also on a link. So the folder is new and this user's.
    (0..100).find_map(|n| {
        let folder = base.join(format!("vsteer-{}-{n}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&folder).ok().map(|()| folder)
    })
}

/// A shell line that ends the tool when vsteer is gone; on the other machine nothing else would. The tool
/// ends when this side of the connection closes its input. The line ends when the tool ends. The output goes
/// through a pipe, because sshd may give a socket as output, which cannot be opened by its name.
fn tethered(words: &[&str]) -> String {
    let tool: Vec<String> = words.iter().map(|w| shell_word(w)).collect();
    format!(
        "exec 3<&0; {{ {} 3<&- & p=$!; {{ cat <&3; kill -TERM $p; }} >/dev/null 2>&1 & exec 3<&-; wait $p; }} | cat",
        tool.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_name_a_place_or_are_somebody_elses() {
        let ssh = |target: &str, port| Place::Ssh { target: target.into(), port };
        let of = |uri| Place::of(uri).map(Result::unwrap);
        assert_eq!(of("xen:"), Some(Place::Here));
        assert_eq!(of("xen+ssh://root@host"), Some(ssh("root@host", None)));
        assert_eq!(of("xen+ssh://host:2222/"), Some(ssh("host", Some(2222))));
        assert_eq!(of("qemu:///system"), None);
        for bad in ["xen+ssh://", "xen+ssh://host:x", "xen+ssh://-oProxyCommand=x", "xen+ssh://a b"] {
            assert_eq!(Place::of(bad).unwrap().unwrap_err().kind, FaultKind::Usage, "{bad}");
        }
    }

    #[test]
    fn words_reach_a_shell_as_they_are() {
        for word in ["a b", "it's", "$(reboot)", "", "x;y", "plain-1.2", "\"q\"", "ü"] {
            let told =
                Command::new("sh").args(["-c", &format!("printf %s {}", shell_word(word))]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&told.stdout), word);
        }
    }

    /// Runs the line as sshd would: the tool ends with its input, and the line ends with the tool.
    #[test]
    fn a_tethered_tool_ends_with_its_connection() {
        let start = |tool: &[&str]| {
            let mut command = Command::new("sh");
            command.args(["-c", &tethered(tool)]).stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn().unwrap()
        };
        // Without a signal, the tool would run for a minute. It prints what ended it.
        let mut child = start(&[
            "sh",
            "-c",
            "trap 'echo put away; kill $!; exit' TERM; sleep 60 >/dev/null & echo begun; wait",
        ]);
        let mut out = child.stdout.take().unwrap();
        let mut begun = [0; 6];
        out.read_exact(&mut begun).unwrap();
        drop(child.stdin.take());
        let mut said = String::new();
        out.read_to_string(&mut said).unwrap();
        assert_eq!((&begun, said.as_str()), (b"begun\n", "put away\n"));
        child.wait().unwrap();
        // If the tool fails at once, the line ends without waiting for this side.
        let mut child = start(&["sh", "-c", "echo no; exit 3"]);
        let begin = Instant::now();
        let kept = child.stdin.take();
        child.wait().unwrap();
        assert!(begin.elapsed() < Duration::from_secs(20));
        drop(kept);
    }

    #[test]
    fn what_a_tool_says_is_in_the_fault() {
        let fault = Place::Here
            .run(&["sh", "-c", "echo out; echo 'Operation not permitted' >&2; exit 1"])
            .unwrap_err();
        assert_eq!(fault.kind, FaultKind::NoPrivilege, "{fault}");
        let fault = Place::Here.run(&["/nowhere/xl", "list"]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::NothingThere, "{fault}");
        assert_eq!(Place::Here.run(&["echo", "fine"]).unwrap(), "fine\n");
    }
}
