//! Asks libvirt without linking to it. `vsteer-libvirt`, a separate process, reads one JSON request per line
//! and writes one answer per line (its head comment describes the protocol).
//!
//! vsteer starts the process at the first request and ends it with the client. Each request has a time limit.
//! After a failed exchange vsteer ends the process, and the next request starts a new one. A missing
//! executable, a missing libvirt.so and a libvirt that does not answer are faults with help.
//!
//! Left out: several requests at the same time.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use vsteer_core::limits;
use vsteer_core::{Fault, FaultKind};

/// The version of the protocol.
const VERSION: u64 = 1;
/// The executable's name, and the environment variable that names another one.
const PROGRAM: &str = "vsteer-libvirt";
const VARIABLE: &str = "VSTEER_LIBVIRT";

/// A running VM as libvirt lists it.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
pub struct Listed {
    /// Its UUID.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// libvirt's number of the running VM.
    pub id: Option<u32>,
    /// `running`, `paused`, …
    pub state: String,
    /// Does its definition survive the end of the run?
    pub persistent: bool,
    /// Its live description.
    pub xml: String,
    /// Its definition, without secrets; `None` for a transient VM.
    pub xml_inactive: Option<String>,
    /// The live scheduler parameters; `None` if libvirt has no cgroup for the VM.
    pub sched: Option<serde_json::Map<String, Value>>,
}

/// A running VM that libvirt could not describe.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub struct Undescribed {
    /// The UUID, if libvirt reported it.
    pub uuid: Option<String>,
    /// Why libvirt could not describe it.
    pub cause: String,
}

/// A connection to one libvirt.
pub struct Client {
    uri: String,
    write: bool,
    process: Option<Process>,
    limit: Duration,
    program: Option<PathBuf>,
    /// Was there a connection before? Then libvirt is installed, and if it is unreachable, it has failed.
    reached: bool,
    undescribed: Vec<Undescribed>,
}

struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    /// Bytes read beyond the last answer.
    rest: Vec<u8>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Client {
    /// A client of the libvirt at `uri`. It connects at its first request, read-only unless `write`.
    pub fn new(uri: &str, write: bool) -> Client {
        Client {
            uri: uri.to_owned(),
            write,
            process: None,
            limit: limits::LIBVIRT_TIME,
            program: None,
            reached: false,
            undescribed: Vec::new(),
        }
    }

    /// The same client with another time limit per request.
    #[must_use]
    pub fn with_limit(self, limit: Duration) -> Client {
        Client { limit, ..self }
    }

    /// The connection URI.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Allows changes. If the connection is read-only, the next request that changes something reconnects.
    pub fn set_write(&mut self) {
        if !self.write {
            self.write = true;
            self.process = None;
        }
    }

    /// The running VMs.
    ///
    /// # Errors
    /// If libvirt is unreachable or refuses.
    pub fn list(&mut self) -> Result<Vec<Listed>, Fault> {
        let answer = self.ask(json!({ "op": "list" }))?;
        let undescribed = answer.get("undescribed").cloned().unwrap_or_else(|| json!([]));
        self.undescribed = serde_json::from_value(undescribed).map_err(|e| self.malformed(&e))?;
        let domains = answer.get("domains").cloned().unwrap_or_default();
        serde_json::from_value(domains).map_err(|e| self.malformed(&e))
    }

    /// The VMs that the last list could not describe.
    pub fn undescribed(&self) -> &[Undescribed] {
        &self.undescribed
    }

    /// A VM's definition with its secrets: only for changing it, never for showing it.
    ///
    /// # Errors
    /// `Unsupported` for a transient VM; also if libvirt refuses.
    pub fn definition(&mut self, uuid: &str) -> Result<String, Fault> {
        let answer = self.ask(json!({ "op": "definition", "uuid": uuid }))?;
        let xml = answer.get("xml").and_then(Value::as_str).map(str::to_owned);
        xml.ok_or_else(|| self.malformed(&"the answer holds no definition"))
    }

    /// As [`Client::definition`]; `None` if libvirt says that the VM does not exist.
    ///
    /// # Errors
    /// As [`Client::definition`]; `Failed` if libvirt cannot be asked, because then the VM may still exist.
    pub fn definition_if_known(&mut self, uuid: &str) -> Result<Option<String>, Fault> {
        self.connect().map_err(unreachable)?;
        match self.definition(uuid) {
            Err(fault) if fault.kind == FaultKind::NothingThere => Ok(None),
            other => other.map(Some),
        }
    }

    /// Sends a request, an object with `op`. Returns the content of the answer's `ok`.
    ///
    /// # Errors
    /// The answer's fault, for example `NothingThere` for a VM that libvirt does not know. `NothingThere`
    /// also if the executable or libvirt is missing, but `Failed` if there was a connection before. Also a
    /// fault if no answer comes in time.
    pub fn ask(&mut self, mut request: Value) -> Result<Value, Fault> {
        let reached = self.reached;
        self.connect().map_err(|fault| if reached { unreachable(fault) } else { fault })?;
        request["v"] = json!(VERSION);
        self.exchange(&request)
    }

    fn connect(&mut self) -> Result<(), Fault> {
        if let Some(p) = &mut self.process
            && matches!(p.child.try_wait(), Ok(None))
        {
            return Ok(());
        }
        self.process = Some(self.start()?);
        let open = json!({ "v": VERSION, "op": "open", "uri": self.uri, "write": self.write });
        let opened = self.exchange(&open).map(|_| ());
        match &opened {
            Ok(()) => self.reached = true,
            Err(_) => self.process = None,
        }
        opened
    }

    fn start(&self) -> Result<Process, Fault> {
        let program = match &self.program {
            Some(p) => p.clone(),
            None => find_program().ok_or_else(|| {
                Fault::new(FaultKind::NothingThere, format!("cannot ask libvirt: {PROGRAM} is not installed"))
                    .help(format!(
                        "install {PROGRAM} next to vsteer or on PATH, or set {VARIABLE} to its path"
                    ))
            })?,
        };
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| {
                Fault::io(format!("cannot start {} to ask libvirt", program.display()), &e).help(format!(
                    "install {PROGRAM} next to vsteer or on PATH, or set {VARIABLE} to its path"
                ))
            })?;
        let (stdin, stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Ok(Process { child, stdin, stdout, rest: Vec::new() })
    }

    fn exchange(&mut self, request: &Value) -> Result<Value, Fault> {
        let op = request.get("op").and_then(Value::as_str).unwrap_or_default();
        let what = format!("cannot ask libvirt at {} ({op})", self.uri);
        let limit = self.limit;
        let process = self.process.as_mut().expect("connected before");
        let line = match converse(process, request, limit) {
            Ok(line) => line,
            Err(trouble) => {
                let fault = trouble.fault(what, process, limit);
                self.process = None;
                return Err(if self.reached { unreachable(fault) } else { fault });
            }
        };
        let answer: Value = serde_json::from_slice(&line).map_err(|e| self.malformed(&e))?;
        if let Some(fault) = answer.get("fault") {
            // The connection itself may have failed, so the next request makes a new one.
            let lost = fault.get("cause").and_then(Value::as_str).is_some_and(connection_lost);
            if lost {
                self.process = None;
            }
            return Err(fault_of(fault));
        }
        answer.get("ok").cloned().ok_or_else(|| self.malformed(&"the answer holds neither ok nor fault"))
    }

    fn malformed(&mut self, why: &dyn std::fmt::Display) -> Fault {
        self.process = None;
        Fault::new(FaultKind::BadInput, format!("cannot read the answer of {PROGRAM}"))
            .because(why)
            .help(format!("install vsteer and {PROGRAM} of the same release"))
    }
}

/// Turns "libvirt is not there" into a failure, so that it does not read as "the VM does not exist".
fn unreachable(fault: Fault) -> Fault {
    let kind = if fault.kind == FaultKind::NothingThere { FaultKind::Failed } else { fault.kind };
    Fault { kind, ..fault }
}

fn connection_lost(cause: &str) -> bool {
    [
        "client socket is closed",
        "End of file",
        "Broken pipe",
        "Connection reset",
        "Cannot recv data",
        "Cannot write data",
    ]
    .iter()
    .any(|sign| cause.contains(sign))
}

enum Trouble {
    /// No answer in time.
    Late,
    /// The process ended or closed its pipes.
    Ended,
    /// An answer without an end.
    TooLong,
}

impl Trouble {
    fn fault(self, what: String, process: &mut Process, limit: Duration) -> Fault {
        match self {
            Trouble::Late => Fault::new(FaultKind::Failed, what)
                .because(format!("{PROGRAM} did not answer within {} s", limit.as_secs()))
                .help("check whether libvirtd hangs (virsh list); a VM's hung monitor can block it"),
            Trouble::TooLong => Fault::new(FaultKind::BadInput, what).because("the answer exceeds 256 MiB"),
            Trouble::Ended => {
                let mut words = String::new();
                let _ = process.child.kill();
                if let Some(stderr) = process.child.stderr.take() {
                    let _ = stderr.take(4096).read_to_string(&mut words);
                }
                let words = words.lines().next().unwrap_or("ended without a message");
                let fault = Fault::new(FaultKind::NothingThere, what).because(format!("{PROGRAM}: {words}"));
                if words.contains("shared librar") {
                    fault.help("install libvirt's client library (Debian: libvirt0; Fedora: libvirt-libs)")
                } else {
                    fault.help(format!("run {PROGRAM} by hand to see its error"))
                }
            }
        }
    }
}

/// Sends one line and reads one.
fn converse(process: &mut Process, request: &Value, limit: Duration) -> Result<Vec<u8>, Trouble> {
    let mut text = request.to_string();
    text.push('\n');
    // The process reads a whole request before it answers, so this write waits only until the process reads
    // its pipe.
    process.stdin.write_all(text.as_bytes()).map_err(|_| Trouble::Ended)?;
    let deadline = Instant::now() + limit;
    let mut buffer = vec![0u8; 64 << 10];
    let mut searched = 0;
    loop {
        if let Some(at) = process.rest[searched..].iter().position(|b| *b == b'\n') {
            let after = process.rest.split_off(searched + at + 1);
            return Ok(std::mem::replace(&mut process.rest, after));
        }
        searched = process.rest.len();
        if searched > limits::LIBVIRT_BYTES {
            return Err(Trouble::TooLong);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Trouble::Late);
        }
        let wait = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut fds = [PollFd::new(&process.stdout, PollFlags::IN)];
        match poll(&mut fds, Some(&wait)) {
            Ok(0) => return Err(Trouble::Late),
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return Err(Trouble::Ended),
            Ok(_) => {}
        }
        match process.stdout.read(&mut buffer) {
            Ok(0) => return Err(Trouble::Ended),
            Ok(n) => process.rest.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return Err(Trouble::Ended),
        }
    }
}

fn fault_of(value: &Value) -> Fault {
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let kind = match text("kind").as_deref() {
        Some("nothing_there") => FaultKind::NothingThere,
        Some("no_privilege") => FaultKind::NoPrivilege,
        Some("unsupported") => FaultKind::Unsupported,
        Some("bad_input") => FaultKind::BadInput,
        Some("changed") => FaultKind::Changed,
        _ => FaultKind::Failed,
    };
    Fault {
        kind,
        what: text("what").unwrap_or_default(),
        cause: text("cause"),
        help: text("help").or_else(|| text("way_out")),
    }
}

/// The folder of this executable. `None` where something else can lie: an executable whose name was removed, as that
/// of a copied agent in `/dev/shm`, and a folder in which every user may make files.
fn own_folder() -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let is_there = std::fs::metadata("/proc/self/exe").is_ok_and(|m| m.nlink() > 0);
    let folder = std::env::current_exe().ok()?.parent()?.to_owned();
    let is_open_to_all = folder.metadata().is_ok_and(|m| m.mode() & 0o002 != 0);
    (is_there && !is_open_to_all).then_some(folder)
}

/// The executable: the one that the variable names, otherwise the one beside this executable (for tests, one
/// folder above), otherwise the one on PATH.
fn find_program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Some(PathBuf::from(named));
    }
    let here = own_folder();
    let folder = here.as_deref();
    let built = folder.filter(|f| f.ends_with("deps") || f.ends_with("examples")).and_then(Path::parent);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let beside = folder.into_iter().chain(built).map(Path::to_owned);
    beside.chain(std::env::split_paths(&path)).map(|f| f.join(PROGRAM)).find(|p| p.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(script: &str) -> (tempfile::TempDir, Client) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        crate::stand_in::script(&path, script);
        let mut client = Client::new("test:///default", false);
        client.program = Some(path);
        client.limit = Duration::from_millis(400);
        (dir, client)
    }

    const OPEN: &str = r#"read -r line; echo '{"v":1,"ok":{}}'; "#;

    #[test]
    fn answers_and_faults_are_handed_on() {
        let (_dir, mut c) = client(&format!(
            r#"{OPEN} read -r line; echo '{{"v":1,"ok":{{"domains":[]}}}}'
            read -r line; echo '{{"v":1,"fault":{{"kind":"changed","what":"w","cause":"c","help":null}}}}'"#
        ));
        assert_eq!(c.list().unwrap(), []);
        let fault = c.definition("u").unwrap_err();
        assert_eq!((fault.kind, fault.what.as_str(), fault.help), (FaultKind::Changed, "w", None));
    }

    #[test]
    fn a_vm_that_cannot_be_described_is_told_of() {
        let list = r#"{"domains":[],"undescribed":[{"uuid":"u","cause":"busy"}]}"#;
        let (_dir, mut c) = client(&format!(r#"{OPEN} read -r line; echo '{{"v":1,"ok":{list}}}'"#));
        assert_eq!(c.list().unwrap(), []);
        assert_eq!(c.undescribed(), [Undescribed { uuid: Some("u".into()), cause: "busy".into() }]);
    }

    #[test]
    fn one_that_hangs_ends_or_babbles_is_a_fault() {
        let (_dir, mut c) = client(&format!("{OPEN} exec sleep 20"));
        let fault = c.list().unwrap_err();
        assert!(fault.cause.unwrap().contains("did not answer within"), "a time limit");
        let (_dir, mut c) =
            client("echo 'x: error while loading shared libraries: libvirt.so.0' >&2; exit 127");
        let fault = c.list().unwrap_err();
        assert!(fault.to_string().contains("libvirt0"), "{fault}");
        let (_dir, mut c) = client("read -r line; echo nonsense; exec sleep 20");
        assert_eq!(c.list().unwrap_err().kind, FaultKind::BadInput);
        c.program = Some("/nonexistent/vsteer-libvirt".into());
        assert_eq!(c.list().unwrap_err().kind, FaultKind::NothingThere);
    }

    #[test]
    fn who_cannot_be_reached_has_not_said_that_a_vm_is_gone() {
        let gone = r#"echo '{"v":1,"fault":{"kind":"nothing_there","what":"w","cause":"c"}}'"#;
        let next = "read -r line";
        let (_dir, mut c) = client(&format!("{OPEN} {next}; {gone}; {next}; {gone}; {next}"));
        assert_eq!(c.definition_if_known("u").unwrap(), None);
        assert_eq!(c.definition("u").unwrap_err().kind, FaultKind::NothingThere);
        // The process ends in the middle of a request, and no new connection is possible.
        assert_eq!(c.definition_if_known("u").unwrap_err().kind, FaultKind::Failed);
        // The same for the connection itself.
        let (_dir, mut c) = client(&format!("read -r line; {gone}"));
        assert_eq!(c.definition("u").unwrap_err().kind, FaultKind::NothingThere, "it never was there");
        assert_eq!(c.definition_if_known("u").unwrap_err().kind, FaultKind::Failed);
        let down = c.program.clone();
        let (_dir, mut c) = client(&format!("{OPEN} read -r line; {gone}"));
        assert_eq!(c.definition_if_known("u").unwrap(), None);
        c.program = down;
        // The result is the same whether the last process has already ended or ends during the request.
        for _ in 0..2 {
            assert_eq!(c.definition("u").unwrap_err().kind, FaultKind::Failed, "it was there before");
        }
    }

    #[test]
    fn after_a_fault_the_next_request_starts_anew() {
        let (dir, mut c) = client("exit 1");
        assert!(c.list().is_err());
        let path = dir.path().join("program");
        std::fs::write(&path, format!("#!/bin/sh\n{OPEN} read -r line; echo '{{\"v\":1,\"ok\":{{}}}}'\n"))
            .unwrap();
        assert!(c.list().is_err(), "no domains");
        assert!(c.ask(json!({"op": "list"})).is_ok());
    }
}
