//! A vSphere service for tests without VMware: govmomi's simulator on loopback, built from pinned sources.
//!
//! It answers the API (vim25) like a vCenter, with invented hosts and VMs, over TLS with a certificate that
//! it makes at each start. The program beside this file (Go; `go.sum` pins every module) also contains `govc
//! object.collect`, with which vsteer's reading of an inventory is compared.
//!
//! Our own hooks add what it lacks of a real vSphere, so these do not prove what a real one does: sessions
//! that end, a user without rights, refusals of changes that are not possible while a VM is on (`hooks.go`),
//! and counters with known values (`counters.go`).
//!
//! Left out: DRS, vMotion, resource pools, the time that a task takes.

use crate::command;
use crate::files::write_file;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// A user who may see everything and change nothing; the password is the same.
pub const READER: &str = "reader";
/// The accepted user and password.
pub const USER: &str = "user";
pub const PASSWORD: &str = "pass";

const SOURCES: [(&str, &str); 5] = [
    ("main.go", include_str!("simulator/main.go")),
    ("hooks.go", include_str!("simulator/hooks.go")),
    ("counters.go", include_str!("simulator/counters.go")),
    ("go.mod", include_str!("simulator/go.mod")),
    ("go.sum", include_str!("simulator/go.sum")),
];
/// Its modules are fetched and compiled once.
const BUILT_WITHIN: Duration = Duration::from_secs(900);
const ASKED_WITHIN: Duration = Duration::from_secs(300);

#[derive(Debug, Clone)]
pub struct Program(PathBuf);

impl Program {
    /// Builds it in the cache, unless it was already built from the same sources.
    ///
    /// # Errors
    /// `NothingThere` without Go; it does not build.
    pub fn build(cache: &Path) -> Result<Program, Fault> {
        let folder = cache.join("vsphere-simulator");
        let program = folder.join("simulator");
        let is_same = |(name, text): &(&str, &str)| {
            std::fs::read_to_string(folder.join(name)).is_ok_and(|there| there == *text)
        };
        if program.is_file() && SOURCES.iter().all(is_same) {
            return Ok(Program(program));
        }
        let go = command::find_program("go").ok_or_else(|| {
            Fault::new(FaultKind::NothingThere, "no go here, with which the simulator of vSphere is built")
                .help("install Go 1.25 or later")
        })?;
        std::fs::create_dir_all(&folder)
            .map_err(|e| Fault::io(format!("making {}", folder.display()), &e))?;
        // After an interruption, the old program must not count as built from these sources.
        let _ = std::fs::remove_file(&program);
        SOURCES.iter().try_for_each(|(name, text)| write_file(&folder.join(name), text.as_bytes()))?;
        eprintln!("vsteer-lab: building the simulator of vSphere, once");
        let mut build = Command::new(go);
        build.args(["build", "-mod=readonly", "-o"]).arg(&program).arg(".").current_dir(&folder);
        command::output(build.env("CGO_ENABLED", "0"), BUILT_WITHIN)?;
        Ok(Program(program))
    }

    /// Starts the service with this many hosts and VMs per host.
    ///
    /// # Errors
    /// It does not start.
    pub fn serve(&self, hosts: u32, vms_each: u32) -> Result<Serving, Fault> {
        let told = |e: std::io::Error| Fault::io("starting the simulator of vSphere", &e);
        let mut child = Command::new(&self.0)
            .args(["serve", &hosts.to_string(), &vms_each.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(told)?;
        let open = child.stdin.take().expect("stdin is piped");
        let out = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut serving = Serving {
            program: self.clone(),
            child,
            open,
            out,
            address: String::new(),
            thumbprint: String::new(),
        };
        let mut line = String::new();
        serving.out.read_line(&mut line).map_err(told)?;
        let (address, thumbprint) = line.trim().split_once(' ').ok_or_else(|| {
            Fault::new(FaultKind::Failed, "the simulator of vSphere did not say where it listens")
        })?;
        (serving.address, serving.thumbprint) = (address.to_owned(), thumbprint.to_owned());
        Ok(serving)
    }
}

/// The running service. It ends with this value or this process, because then its input ends.
#[derive(Debug)]
pub struct Serving {
    program: Program,
    child: Child,
    open: ChildStdin,
    out: BufReader<ChildStdout>,
    /// `127.0.0.1:PORT`.
    pub address: String,
    /// SHA-256 of its certificate, hexadecimal.
    pub thumbprint: String,
}

impl Serving {
    /// Makes something happen in the service; `hooks.go` lists the words.
    ///
    /// # Errors
    /// It is not possible, or the simulator is gone.
    pub fn happens(&mut self, words: &[&str]) -> Result<(), Fault> {
        let what = || format!("having the simulator of vSphere do {words:?}");
        let mut answer = String::new();
        writeln!(self.open, "{}", words.join("\t"))
            .and_then(|()| self.out.read_line(&mut answer))
            .map_err(|e| Fault::io(what(), &e))?;
        match answer.trim_end() {
            "ok" => Ok(()),
            other => Err(Fault::new(FaultKind::Failed, what()).because(other)),
        }
    }

    /// The output of govc: these properties of all objects of a kind, as JSON, one object after another.
    ///
    /// # Errors
    /// It fails.
    pub fn govc_collects(&self, kind: &str, properties: &[&str]) -> Result<String, Fault> {
        let mut govc = Command::new(&self.program.0);
        govc.args(["object.collect", "-json", "-type", kind, "/"]).args(properties);
        govc.env("GOVC_URL", format!("https://{USER}:{PASSWORD}@{}/sdk", self.address));
        // With a stored session, govc would save the login that vsteer makes each time.
        govc.env("GOVC_INSECURE", "1").env("GOVC_PERSIST_SESSION", "false");
        command::output(&mut govc, ASKED_WITHIN)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
