//! Stores names for the thread ids of recorded switches, in `task.jsonl`.
//!
//! There is one line per thread, written when it first appears: its process, its name, and for a VM's thread
//! the VM and role. The kernel reuses a thread id after its thread has ended, so a line holds until the next
//! line with the same id. If a thread ended before vsteer could look it up, it has no line. A ring forgets
//! threads that ended before its oldest switch.

use crate::folder::{ConfigAt, failed};
use crate::parts::Parts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use vsteer_core::Fault;
use vsteer_core::nouns::{Role, Tid, VmId};

/// A thread with its names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// When it first appeared, `CLOCK_MONOTONIC`, ns.
    pub mono_ns: u64,
    /// Its id.
    pub tid: Tid,
    /// Its process.
    pub tgid: u32,
    /// Its name (`comm`), at most 15 bytes, with bytes that are not UTF-8 replaced.
    pub comm: String,
    /// The VM it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<VmId>,
    /// Its role in that VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
}

pub(crate) struct TaskWriter {
    path: PathBuf,
    file: BufWriter<File>,
    /// The content of the file, only with a ring.
    kept: Option<Kept>,
}

/// Threads that a ring may have to forget.
#[derive(Default)]
struct Kept {
    living: BTreeMap<Tid, Task>,
    ended: Vec<(Task, u64)>,
}

fn open(path: &Path) -> Result<BufWriter<File>, Fault> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.map(BufWriter::new).map_err(|e| failed("cannot create", path, &e))
}

impl TaskWriter {
    pub(crate) fn create(folder: &Path, ring: bool) -> Result<TaskWriter, Fault> {
        let path = folder.join("task.jsonl");
        Ok(TaskWriter { file: open(&path)?, path, kept: ring.then(Kept::default) })
    }

    pub(crate) fn write(&mut self, task: Task) -> Result<(), Fault> {
        let mut line = serde_json::to_vec(&task).expect("a task is plain data");
        line.push(b'\n');
        self.file.write_all(&line).map_err(|e| failed("cannot write", &self.path, &e))?;
        if let Some(kept) = &mut self.kept {
            let ns = task.mono_ns;
            kept.ended.extend(kept.living.insert(task.tid, task).map(|old| (old, ns)));
        }
        Ok(())
    }

    /// Hands what was written to the operating system.
    pub(crate) fn flush(&mut self) -> Result<(), Fault> {
        self.file.flush().map_err(|e| failed("cannot write", &self.path, &e))
    }

    /// The file, for syncing.
    pub(crate) fn handle(&self) -> Result<File, Fault> {
        self.file.get_ref().try_clone().map_err(|e| failed("cannot sync", &self.path, &e))
    }

    /// The thread with that id ended.
    pub(crate) fn ended(&mut self, tid: Tid, ns: u64) {
        if let Some(kept) = &mut self.kept {
            kept.ended.extend(kept.living.remove(&tid).map(|task| (task, ns)));
        }
    }

    /// Rewrites the file without the threads that ended before `ns`.
    pub(crate) fn forget_before(&mut self, ns: u64) -> Result<(), Fault> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        let before = kept.ended.len();
        kept.ended.retain(|(_, end)| *end >= ns);
        if kept.ended.len() == before {
            return Ok(());
        }
        let new = self.path.with_extension("jsonl.new");
        let write = || -> std::io::Result<()> {
            let mut to = BufWriter::new(File::create(&new)?);
            for task in kept.ended.iter().map(|(t, _)| t).chain(kept.living.values()) {
                serde_json::to_writer(&mut to, task)?;
                to.write_all(b"\n")?;
            }
            to.flush()?;
            to.get_ref().sync_all()?;
            fs::rename(&new, &self.path)
        };
        write().map_err(|e| failed("cannot write", &self.path, &e))?;
        self.file = open(&self.path)?;
        Ok(())
    }
}

/// The names of a recording's threads.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    by_tid: BTreeMap<Tid, Vec<Task>>,
}

impl Tasks {
    /// Reads `task.jsonl` up to where it breaks off. If a line names no VM, the configurations do.
    pub(crate) fn read(parts: &Parts, configs: &[ConfigAt]) -> Tasks {
        let bytes = parts.read("task.jsonl").unwrap_or_default();
        let lines = bytes.split(|b| *b == b'\n').filter_map(|l| serde_json::from_slice::<Task>(l).ok());
        let mut by_tid: BTreeMap<Tid, Vec<Task>> = BTreeMap::new();
        for mut task in lines {
            let known = configs.iter().flat_map(|c| &c.config.vms).find_map(|vm| {
                let role = vm.threads.iter().find(|t| t.tid == task.tid).map(|t| t.role);
                role.or((vm.pid == task.tgid).then_some(Role::Worker)).map(|r| (vm.id.clone(), r))
            });
            if let (None, Some((vm, role))) = (&task.vm, known) {
                (task.vm, task.role) = (Some(vm), Some(role));
            }
            by_tid.entry(task.tid).or_default().push(task);
        }
        by_tid.values_mut().for_each(|of| of.sort_by_key(|t| t.mono_ns));
        Tasks { by_tid }
    }

    /// The thread with this id at `ns`; `None` if it is not known.
    pub fn at(&self, tid: Tid, ns: u64) -> Option<&Task> {
        let of = self.by_tid.get(&tid)?;
        // A line is written a little after the switch that showed the thread.
        of.iter().rev().find(|t| t.mono_ns <= ns).or(of.first())
    }

    /// All of them, by thread id.
    pub fn iter(&self) -> impl Iterator<Item = &Task> {
        self.by_tid.values().flatten()
    }
}
