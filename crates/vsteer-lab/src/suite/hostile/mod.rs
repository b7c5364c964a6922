//! What can another user of the host do to vsteer that runs as root?
//!
//! The other user is `nobody`, with real processes, sockets, folders and files. Each attack is a function with
//! the folder and the attackers of its own ([`ground`]). It looks at what must hold, and every run of vsteer in
//! it is held to the same rules: it ends in time, with a known exit code, in little memory, prints no control
//! characters and no secret, and changes no file of root's.
//!
//! The attacks are those of an attack on an early version, and those that a reviewer invented who had read the
//! documentation only.
//!
//! Left out: attacks that need libvirt, systemd or a second machine; attacks on the kernel.

pub mod actor;
mod folders;
mod ground;
mod inputs;
mod outputs;
mod processes;
mod service;
mod state;

use super::{Bench, Case, Findings, Minutes};
use crate::interrupt;
use ground::{Ground, Ran};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;
use vsteer_core::{Fault, FaultKind};

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "hostile",
    doc: "another user's processes, sockets, folders and files cannot hang, mislead or misuse vsteer as root",
    in_test: true,
    minutes: Minutes::new(1.2, 5.0),
    beside: true,
    run,
};

/// An attack: its name, what must hold, and how it is tried.
pub struct Attack {
    name: &'static str,
    holds: &'static str,
    attempt: fn(&mut Trial) -> Result<(), Fault>,
}

/// One attempt of an attack.
pub struct Trial {
    pub ground: Ground,
    recording: PathBuf,
    /// The size of the promise, or a short run.
    pub full: bool,
    runs: usize,
    broken: Vec<String>,
}

impl Trial {
    /// A good recording of root's, of a simulated host with the VM `burner-1`.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn recording(&mut self) -> Result<String, Fault> {
        let path = self.recording.to_string_lossy().into_owned();
        if !self.recording.exists() {
            let scenario = self.scenario()?;
            self.must(&["simulate", &scenario, "-o", &path])?;
        }
        Ok(path)
    }

    /// A scenario.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn scenario(&self) -> Result<String, Fault> {
        let path = self.ground.our("scenario.toml");
        std::fs::write(&path, SCENARIO).map_err(|e| Fault::io(format!("writing {path}"), &e))?;
        Ok(path)
    }

    /// What must hold.
    pub fn need(&mut self, holds: bool, otherwise: impl Into<String>) {
        if !holds {
            self.broken.push(otherwise.into());
        }
    }

    /// Holds a run of vsteer to the general rules.
    pub fn judged(&mut self, ran: Result<Ran, Fault>) -> Result<Ran, Fault> {
        let ran = ran?;
        self.runs += 1;
        self.broken.extend(ran.broken());
        Ok(ran)
    }

    /// Runs vsteer as root.
    pub fn vsteer(&mut self, words: &[&str]) -> Result<Ran, Fault> {
        let ran = self.ground.vsteer(words);
        self.judged(ran)
    }

    /// Runs vsteer as root; anything but success breaks the attempt.
    pub fn must(&mut self, words: &[&str]) -> Result<Ran, Fault> {
        let ran = self.vsteer(words)?;
        self.need(
            ran.code == Some(0),
            format!("`vsteer {}` failed: {}", words.join(" "), ran.err().trim_end()),
        );
        Ok(ran)
    }
}

/// A host that is short of pCPUs.
const SCENARIO: &str = "title = \"Timers beside burners\"\nfor = \"3s\"\nwarm_up = \"1s\"\n\
    [scheduler]\npolicy = \"eevdf\"\n[machine]\ncores_per_node = 2\n\
    [[vm]]\nname = \"burner\"\ncount = 2\nvcpus = 2\ndemand = \"hog\"\n\
    [[vm]]\nname = \"timer\"\nvcpus = 2\ndemand = { periodic = { period = \"10ms\", work = \"500us\" } }\n";

/// All attacks, by what they abuse.
const ATTACKS: [&[Attack]; 6] = [
    processes::ATTACKS,
    folders::ATTACKS,
    outputs::ATTACKS,
    inputs::ATTACKS,
    state::ATTACKS,
    service::ATTACKS,
];

fn run(bench: &Bench) -> Result<Findings, Fault> {
    if !rustix::process::geteuid().is_root() {
        return Err(
            Fault::new(FaultKind::NoPrivilege, "cannot attack vsteer as another user").help("run as root")
        );
    }
    let vsteer = crate::drive::Vsteer::beside(&bench.lab.program)?.program;
    let actor = copy_for_everybody(&bench.lab.program)?;
    let recording = std::env::temp_dir().join(format!("vsteer-hostile-{}.vsteer", std::process::id()));
    let mut findings = Findings::default();
    let mut figures = Vec::new();
    for attack in ATTACKS.iter().copied().flatten() {
        interrupt::check()?;
        let begun = Instant::now();
        let ground = Ground::make(&attack.name.replace(' ', "-"), &vsteer, &actor)?;
        // A host without VMs has nothing to record.
        let _vm = ground.qemu(0, "ordinary", &["CPU 0/KVM"], &[])?;
        let mut trial =
            Trial { ground, recording: recording.clone(), full: bench.full, runs: 0, broken: Vec::new() };
        let ended = (attack.attempt)(&mut trial);
        trial.broken.extend(trial.ground.broken());
        trial.broken.extend(ended.err().map(|fault| fault.to_string()));
        trial.broken.dedup();
        // An attempt without a run of vsteer attacked nothing.
        let held = trial.broken.is_empty() && trial.runs > 0;
        let found = if held { format!("{} runs", trial.runs) } else { trial.broken.join("; ") };
        eprintln!("vsteer-lab: {} {}", attack.name, if held { "held" } else { "BROKE" });
        findings.claim(format!("{}: {}", attack.name, attack.holds), held, found);
        figures
            .push(json!({ "attack": attack.name, "runs": trial.runs, "s": begun.elapsed().as_secs_f64() }));
    }
    let _ = std::fs::remove_file(&actor);
    let _ = std::fs::remove_dir_all(&recording);
    findings.figures = json!(figures);
    Ok(findings)
}

/// The folder of a build is often closed to other users.
fn copy_for_everybody(program: &Path) -> Result<PathBuf, Fault> {
    let copy = std::env::temp_dir().join(format!("vsteer-hostile-{}", std::process::id()));
    let made = std::fs::copy(program, &copy)
        .and_then(|_| std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o755)));
    made.map_err(|e| Fault::io(format!("copying this program to {}", copy.display()), &e))?;
    Ok(copy)
}
