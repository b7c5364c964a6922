//! The record of everything that the lab made on this machine, so that all of it can be removed, even after a
//! crash.
//!
//! There is one record in the lab's folder. It is always replaced as a whole, before the things that it names
//! are made. It also has the secret: which VM has which workload. So other users cannot read the folder. Left
//! out: history.

use crate::accel::Decision;
use crate::files::replace_file;
use crate::process::{ProcessId, boot_id};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use vsteer_core::{Fault, FaultKind};

const FILE: &str = "lab.json";
const SCHEMA: u32 = 1;

/// A process that the lab started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The kind of process: `libvirtd`, `stamp`, `qemu amber-elm`.
    pub what: String,
    pub process: ProcessId,
}

/// A VM of the lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vm {
    /// Its name, which reveals nothing.
    pub name: String,
    /// Its workload, which is the secret.
    pub workload: String,
    pub vcpus: u32,
    pub memory_mib: u32,
    /// From its start to its first report, s; `None` until then.
    pub boot_s: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The record's version.
    pub schema: u32,
    /// The boot of the host in which it was made.
    pub boot_id: String,
    /// A word that is unique to this lab: names the cgroup partition and the marking mount.
    pub token: String,
    /// The seed of names, order and sizes.
    pub seed: u64,
    /// The process that uses the lab. Without it the lab is useless. `None` for a person's lab.
    #[serde(default)]
    pub owner: Option<ProcessId>,
    /// The requested VMs.
    pub spec: String,
    /// KVM or emulation, and why.
    pub accel: Decision,
    /// The connection URI of the private libvirt.
    pub uri: String,
    /// When every workload had begun, host CLOCK_MONOTONIC, ns; `None` until then.
    pub begun_ns: Option<u64>,
    /// Missing mount points that were made on the host for the private libvirt.
    pub made_folders: Vec<PathBuf>,
    pub processes: Vec<Started>,
    /// The VMs, in the order of their start.
    pub vms: Vec<Vm>,
}

impl State {
    /// An empty record for this boot.
    pub fn new(token: String, seed: u64, spec: String, accel: Decision, uri: String) -> State {
        State {
            schema: SCHEMA,
            boot_id: boot_id(),
            token,
            seed,
            owner: None,
            spec,
            accel,
            uri,
            begun_ns: None,
            made_folders: Vec::new(),
            processes: Vec::new(),
            vms: Vec::new(),
        }
    }

    /// The cgroup partition's name, without libvirt's leading slash.
    pub fn partition(&self) -> String {
        format!("vsteer-lab-{}", self.token)
    }

    /// The name of the mount that marks the lab's namespace.
    pub fn mount_source(&self) -> String {
        mount_source(&self.token)
    }

    /// Is it from this boot? If not, its pids mean nothing and its mounts and cgroups are gone.
    pub fn is_of_this_boot(&self) -> bool {
        self.boot_id == boot_id()
    }

    /// Writes the record into the lab's folder.
    ///
    /// # Errors
    /// The folder is not writable.
    pub fn write(&self, dir: &Path) -> Result<(), Fault> {
        replace_file(&dir.join(FILE), serde_json::to_string_pretty(self).expect("plain data"))
    }

    /// Adds a started process.
    ///
    /// # Errors
    /// As [`State::write`].
    pub fn started(&mut self, dir: &Path, what: impl Into<String>, process: ProcessId) -> Result<(), Fault> {
        self.processes.push(Started { what: what.into(), process });
        self.write(dir)
    }
}

/// The name of the mount that marks the namespace of the lab with `token`.
pub fn mount_source(token: &str) -> String {
    format!("vsteer-lab:{token}")
}

/// Reads the record of the lab in `dir`; `None` if there is no lab.
///
/// # Errors
/// This version does not understand the record.
pub fn read(dir: &Path) -> Result<Option<State>, Fault> {
    let file = dir.join(FILE);
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Fault::io(format!("reading {}", file.display()), &e)),
    };
    let foreign = |cause: String| {
        Fault::new(
            FaultKind::BadInput,
            format!("{} is not a lab's record that this version reads", file.display()),
        )
        .because(cause)
        .help("take the lab down with the version of vsteer-lab that started it")
    };
    let state: State = serde_json::from_str(&text).map_err(|e| foreign(e.to_string()))?;
    if state.schema != SCHEMA {
        return Err(foreign(format!("its schema is {}, this version reads {SCHEMA}", state.schema)));
    }
    Ok(Some(state))
}

/// Is the lab in `dir` (still) the one with `token`?
pub fn bears_token(dir: &Path, token: &str) -> bool {
    read(dir).ok().flatten().is_some_and(|s| s.token == token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accel::Accel;

    #[test]
    fn the_record_reads_back_and_a_foreign_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), None);
        let accel = Decision { accel: Accel::Tcg, reason: "r".into(), boot_id: "b".into() };
        let mut state = State::new("t0".into(), 5, "burn=1x1".into(), accel, "u".into());
        state.started(folder.path(), "libvirtd", ProcessId { pid: 3, start_ticks: 4 }).unwrap();
        assert_eq!(read(folder.path()).unwrap(), Some(state.clone()));
        assert!(state.is_of_this_boot());
        assert!(bears_token(folder.path(), "t0") && !bears_token(folder.path(), "t1"));
        state.schema = 2;
        state.write(folder.path()).unwrap();
        assert_eq!(read(folder.path()).unwrap_err().kind, FaultKind::BadInput);
    }
}
