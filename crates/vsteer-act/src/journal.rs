//! What has been changed, on disk before it is changed: the undo journal.
//!
//! One file per applied plan, one JSON line per entry, each synced before the next thing happens. Reading a journal
//! that breaks off anywhere tells exactly which steps may have been made: those with an [`Entry::Intent`] and no
//! [`Entry::Undone`]. A half-written last line was never acted on, since acting waits for the sync.
//!
//! Fault injection: where the environment variable `VSTEER_FAULT_KILL` is `before:N` or `after:N`, the process kills
//! itself (SIGKILL) around its N-th journal write. The test of crash safety walks every N on a real libvirt.

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use vsteer_core::plan::Plan;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::actuate::Former;

/// One line of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The plan is about to be applied.
    Begin {
        /// The whole plan: rollback needs nothing else.
        plan: Box<Plan>,
        /// libvirt connection URI it is applied through, where one was given.
        connect: Option<String>,
        /// Wall-clock time, ns since 1970 UTC.
        unix_ns: u64,
    },
    /// A watchdog process will roll back unless the plan is confirmed before its deadline.
    Armed {
        /// The watchdog.
        pid: u32,
        /// When, ns since 1970 UTC.
        deadline_unix_ns: u64,
    },
    /// Step `step` is about to be made; `former` is all that it overwrites.
    Intent {
        /// Index into the plan's steps.
        step: usize,
        /// What takes it back.
        former: Former,
    },
    /// Step `step` was made and read back.
    Done {
        /// Index into the plan's steps.
        step: usize,
    },
    /// All steps were made.
    Applied,
    /// The person keeps it.
    Confirmed,
    /// Step `step` was taken back, or had not been made.
    Undone {
        /// Index into the plan's steps.
        step: usize,
        /// Why there was nothing to take back (the VM is gone), if so.
        note: Option<String>,
    },
    /// Nothing of the plan is left.
    RolledBack,
}

/// Where journals are kept: `$VSTEER_STATE`, else `/var/lib/vsteer` for root, else the user's state folder.
pub fn journal_folder() -> PathBuf {
    let var = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    if let Some(p) = var("VSTEER_STATE") {
        return p.join("journal");
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/vsteer/journal");
    }
    let base = var("XDG_STATE_HOME").or_else(|| var("HOME").map(|h| h.join(".local/state")));
    base.unwrap_or_else(|| PathBuf::from("/tmp")).join("vsteer/journal")
}

/// An open journal, locked against any other process that would write it.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    entries: Vec<Entry>,
    writes: u64,
}

fn failed(what: &str, path: &Path, e: &std::io::Error) -> Fault {
    Fault::io(format!("{what} the journal {}", path.display()), e)
}

/// How far a plan has come, from its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Begun and not finished: apply is at work, or was killed.
    Unfinished,
    /// All steps made.
    Applied,
    /// All steps taken back.
    RolledBack,
}

impl Journal {
    /// Begins a journal for `plan`. A finished one of the same plan is set aside under a numbered name.
    ///
    /// # Errors
    /// `Changed` when the plan is applied already; `NoSpace`, `NoPrivilege` when the folder cannot be written.
    pub fn begin(folder: &Path, plan: &Plan, connect: Option<&str>, unix_ns: u64) -> Result<Journal, Fault> {
        fs::create_dir_all(folder).map_err(|e| failed("making the folder of", folder, &e))?;
        let path = folder.join(format!("{}.journal", plan.id));
        if path.exists() {
            let old = Journal::open(&path)?;
            if !old.entries.is_empty() && old.state() != State::RolledBack {
                let fault = Fault::new(FaultKind::Changed, format!("plan {} is applied already", plan.id));
                return Err(fault.way_out(format!("vsteer rollback {}", plan.id)));
            }
            let free = (1..).map(|n| folder.join(format!("{}.{n}.old", plan.id))).find(|p| !p.exists());
            fs::rename(&path, free.expect("there are more numbers than files"))
                .map_err(|e| failed("setting aside", &path, &e))?;
        }
        let file = OpenOptions::new().read(true).append(true).create_new(true).open(&path);
        let file = file.map_err(|e| failed("making", &path, &e))?;
        lock(&file, &path)?;
        // The folder too: a journal that a crash makes vanish is none.
        File::open(folder)
            .and_then(|d| d.sync_all())
            .map_err(|e| failed("syncing the folder of", folder, &e))?;
        let mut journal = Journal { path, file, entries: Vec::new(), writes: 0 };
        journal.write(Entry::Begin {
            plan: Box::new(plan.clone()),
            connect: connect.map(str::to_owned),
            unix_ns,
        })?;
        Ok(journal)
    }

    /// Opens an existing journal, waiting for whoever holds it.
    ///
    /// # Errors
    /// `NothingThere` when there is none of this name.
    pub fn open(path: &Path) -> Result<Journal, Fault> {
        let file = OpenOptions::new().read(true).append(true).open(path);
        let mut file = file.map_err(|e| failed("opening", path, &e))?;
        lock(&file, path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(|e| failed("reading", path, &e))?;
        let mut entries = Vec::new();
        let mut whole = 0;
        for line in text.split_inclusive(|b| *b == b'\n').filter(|l| l.ends_with(b"\n")) {
            match serde_json::from_slice(line) {
                Ok(entry) => entries.push(entry),
                Err(e) => {
                    let fault =
                        Fault::new(FaultKind::BadInput, format!("the journal {} is garbled", path.display()));
                    return Err(fault
                        .because(e)
                        .way_out("compare the VMs' settings with the plan inside it by hand"));
                }
            }
            whole += line.len() as u64;
        }
        if whole < text.len() as u64 {
            // The half line was never acted on; it must not run into the next entry.
            file.set_len(whole).map_err(|e| failed("mending", path, &e))?;
        }
        Ok(Journal { path: path.to_owned(), file, entries, writes: 0 })
    }

    /// The journals of a folder whose plans are not rolled back, newest first. Garbled ones are left out.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn pending(folder: &Path) -> Result<Vec<PathBuf>, Fault> {
        let list = match fs::read_dir(folder) {
            Ok(list) => list,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed("listing the folder of", folder, &e)),
        };
        let mut found: Vec<(u64, PathBuf)> = list
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|p| p.extension().is_some_and(|e| e == "journal"))
            .filter_map(|p| {
                let journal = Journal::open(&p).ok()?;
                let Some(Entry::Begin { unix_ns, .. }) = journal.entries.first() else { return None };
                (journal.state() != State::RolledBack).then_some((*unix_ns, p))
            })
            .collect();
        found.sort();
        Ok(found.into_iter().rev().map(|(_, p)| p).collect())
    }

    /// Appends an entry and syncs it.
    ///
    /// # Errors
    /// `NoSpace` on a full disk; then nothing that the entry announces may be done.
    pub fn write(&mut self, entry: Entry) -> Result<(), Fault> {
        self.writes += 1;
        die_if_asked("before", self.writes);
        let mut line = serde_json::to_vec(&entry).expect("an entry is plain data");
        line.push(b'\n');
        self.file
            .write_all(&line)
            .and_then(|()| self.file.sync_data())
            .map_err(|e| failed("writing", &self.path, &e))?;
        die_if_asked("after", self.writes);
        self.entries.push(entry);
        Ok(())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The plan and the connection it was begun with; `None` in a journal that breaks off before that.
    pub fn plan(&self) -> Option<(&Plan, Option<&str>)> {
        match self.entries.first() {
            Some(Entry::Begin { plan, connect, .. }) => Some((plan, connect.as_deref())),
            _ => None,
        }
    }

    /// Steps that may have been made and are not taken back, newest first, with what takes them back.
    pub fn to_undo(&self) -> Vec<(usize, Former)> {
        let undone = |step: usize| {
            self.entries.iter().any(|e| matches!(e, Entry::Undone { step: s, .. } if *s == step))
        };
        let intents = self.entries.iter().rev().filter_map(|e| match e {
            Entry::Intent { step, former } if !undone(*step) => Some((*step, former.clone())),
            _ => None,
        });
        intents.collect()
    }

    /// How far it has come.
    pub fn state(&self) -> State {
        let has = |want: fn(&Entry) -> bool| self.entries.iter().any(want);
        if has(|e| matches!(e, Entry::RolledBack)) {
            State::RolledBack
        } else if has(|e| matches!(e, Entry::Applied)) {
            State::Applied
        } else {
            State::Unfinished
        }
    }

    /// Has the person said to keep it?
    pub fn confirmed(&self) -> bool {
        self.entries.iter().any(|e| matches!(e, Entry::Confirmed))
    }
}

fn lock(file: &File, path: &Path) -> Result<(), Fault> {
    flock(file, FlockOperation::LockExclusive).map_err(|e| failed("locking", path, &e.into()))
}

fn die_if_asked(when: &str, write: u64) {
    if let Ok(spec) = std::env::var("VSTEER_FAULT_KILL")
        && spec == format!("{when}:{write}")
    {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
