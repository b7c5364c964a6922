//! What has been changed, on disk before it is changed: the undo journal.
//!
//! One file per applied plan, one JSON line per entry, each synced before the next thing happens. Reading a journal
//! that breaks off anywhere tells exactly which steps may have been made: those with an [`Entry::Intent`] and no
//! [`Entry::Undone`] since, nor since an [`Entry::Again`]. A half-written last line was never acted on, since acting
//! waits for the sync.
//!
//! Who writes a journal holds a lock on it; who begins one also holds a lock on the folder meanwhile, so that two that
//! begin the same plan at once cannot set each other's journal aside. Listing locks nothing and mends nothing: it must
//! not wait for an apply that is at work.
//!
//! Fault injection: where the environment variable `VSTEER_FAULT_KILL` is `before:N` or `after:N`, the process kills
//! itself (SIGKILL) around its N-th journal write. The test of crash safety walks every N on a real libvirt.

use crate::locked::Locked;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vsteer_core::plan::Plan;
use vsteer_core::setting::Step;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::actuate::Former;

/// One line of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "a journal has a few lines for each step, and lives as long as an apply"
)]
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
    /// A watchdog process will roll back when the process that began this journal is gone.
    Guarded {
        /// The watchdog.
        pid: u32,
    },
    /// Settings of steps that were made were set again, and why: `former` of each step still takes it back.
    Again {
        /// One line.
        what: String,
    },
    /// The person keeps it.
    Confirmed,
    /// Step `step` was taken back, or had not been made.
    Undone {
        /// Index into the plan's steps.
        step: usize,
        /// Why there was nothing to take back in the running VM (it is gone), if so.
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
    file: Locked,
    entries: Vec<Entry>,
    /// Bytes of whole lines.
    whole: u64,
    /// A half line is at its end and could not be removed: nothing may be written after it.
    torn: bool,
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
    /// `Changed` when the plan is applied already, or is being applied or taken back right now; `NoSpace`,
    /// `NoPrivilege` if the folder is not writable; `BadInput` for an id that is not a plain name.
    pub fn begin(folder: &Path, plan: &Plan, connect: Option<&str>, unix_ns: u64) -> Result<Journal, Fault> {
        // The id becomes a file's name, and a plan may come from anywhere.
        if plan.id.is_empty() || !plan.id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        {
            return Err(Fault::new(FaultKind::BadInput, format!("{:?} is not a valid plan id", plan.id)));
        }
        fs::create_dir_all(folder).map_err(|e| failed("cannot create the folder of", folder, &e))?;
        let beginning = File::open(folder).map_err(|e| failed("cannot open the folder of", folder, &e))?;
        let beginning = lock(beginning, folder)?;
        let path = folder.join(format!("{}.journal", plan.id));
        if path.exists() {
            let busy = || {
                let what = format!("another process is applying plan {} or rolling it back", plan.id);
                Fault::new(FaultKind::Changed, what)
            };
            let old = Journal::try_open(&path)?.ok_or_else(busy)?;
            if !old.entries.is_empty() && old.state() != State::RolledBack {
                let fault = Fault::new(FaultKind::Changed, format!("plan {} is already applied", plan.id));
                return Err(fault.help(format!("undo it first: vsteer rollback {}", plan.id)));
            }
            let free = (1..).map(|n| folder.join(format!("{}.{n}.old", plan.id))).find(|p| !p.exists());
            fs::rename(&path, free.expect("there are more numbers than files"))
                .map_err(|e| failed("cannot set aside", &path, &e))?;
        }
        let file = OpenOptions::new().read(true).append(true).create_new(true).open(&path);
        let file = lock(file.map_err(|e| failed("cannot create", &path, &e))?, &path)?;
        // The folder too: a journal that a crash makes vanish is none.
        beginning.sync_all().map_err(|e| failed("cannot sync the folder of", folder, &e))?;
        let mut journal = Journal { path, file, entries: Vec::new(), whole: 0, torn: false, writes: 0 };
        journal.write(Entry::Begin {
            plan: Box::new(plan.clone()),
            connect: connect.map(str::to_owned),
            unix_ns,
        })?;
        Ok(journal)
    }

    /// Opens an existing journal; waits for the process that holds it.
    ///
    /// # Errors
    /// `NothingThere` when there is none of this name; `BadInput`, naming it, when it is garbled.
    pub fn open(path: &Path) -> Result<Journal, Fault> {
        let opened = Journal::open_locked(path, |file| Locked::wait(file).map(Some))?;
        Ok(opened.expect("waiting for the lock ends with the lock"))
    }

    /// Opens an existing journal, or says `None` at once when another process holds it.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn try_open(path: &Path) -> Result<Option<Journal>, Fault> {
        Journal::open_locked(path, Locked::at_once)
    }

    fn open_locked(
        path: &Path,
        lock: fn(File) -> std::io::Result<Option<Locked>>,
    ) -> Result<Option<Journal>, Fault> {
        let mut file = loop {
            let file = OpenOptions::new().read(true).append(true).open(path);
            let file = file.map_err(|e| failed("cannot open", path, &e))?;
            let Some(file) = lock(file).map_err(|e| failed("cannot lock", path, &e))? else {
                return Ok(None);
            };
            // While it was waited for, it may have been set aside and another begun under its name.
            let mine = file.metadata().map_err(|e| failed("cannot read", path, &e))?;
            if fs::metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (mine.dev(), mine.ino())) {
                break file;
            }
        };
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(|e| failed("cannot read", path, &e))?;
        let (entries, whole) = parse(&text, path)?;
        if whole < text.len() as u64 {
            // The half line was never acted on; it must not run into the next entry.
            file.set_len(whole).map_err(|e| failed("cannot repair", path, &e))?;
        }
        Ok(Some(Journal { path: path.to_owned(), file, entries, whole, torn: false, writes: 0 }))
    }

    /// The journals of a folder whose plans are not rolled back, newest first, then those that cannot be read: opening
    /// one of them says why. Waits for nobody and changes nothing.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn pending(folder: &Path) -> Result<Vec<PathBuf>, Fault> {
        let list = match fs::read_dir(folder) {
            Ok(list) => list,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed("cannot list the folder of", folder, &e)),
        };
        let (mut found, mut garbled) = (Vec::new(), Vec::new());
        for path in list.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.extension().is_none_or(|e| e != "journal") {
                continue;
            }
            let read = fs::read(&path).map_err(|e| failed("cannot read", &path, &e));
            match read.and_then(|text| parse(&text, &path)) {
                // Broken off before its first line was whole: nothing was done.
                Ok((entries, _)) if entries.is_empty() => {}
                Ok((entries, _)) => {
                    if let (Some(Entry::Begin { unix_ns, .. }), true) =
                        (entries.first(), state_of(&entries) != State::RolledBack)
                    {
                        found.push((*unix_ns, path));
                    }
                }
                Err(_) => garbled.push(path),
            }
        }
        found.sort();
        garbled.sort();
        Ok(found.into_iter().rev().map(|(_, p)| p).chain(garbled).collect())
    }

    /// Appends an entry and syncs it.
    ///
    /// # Errors
    /// `NoSpace` on a full disk; then nothing that the entry announces may be done, and the journal is as before.
    pub fn write(&mut self, entry: Entry) -> Result<(), Fault> {
        if self.torn {
            return Err(Fault::new(
                FaultKind::NoSpace,
                format!("cannot write the journal {}", self.path.display()),
            )
            .because("vsteer could not remove an incomplete line at its end"));
        }
        self.writes += 1;
        die_if_asked("before", self.writes);
        let mut line = serde_json::to_vec(&entry).expect("an entry is plain data");
        line.push(b'\n');
        if let Err(e) = self.file.write_all(&line).and_then(|()| self.file.sync_data()) {
            self.torn = self.file.set_len(self.whole).is_err();
            return Err(failed("cannot write", &self.path, &e));
        }
        self.whole += line.len() as u64;
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
        to_undo_of(&self.entries)
    }

    /// Plans beside this one that were begun later, are not taken back, and set what is left of this one; the newest
    /// first. Taken back before them, this one would change their settings, and they would bring its own back. Waits
    /// for nobody.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn set_later_by(&self) -> Result<Vec<String>, Fault> {
        let Some(Entry::Begin { plan, unix_ns, .. }) = self.entries.first() else { return Ok(Vec::new()) };
        let own: Vec<&Step> = self.to_undo().into_iter().map(|(i, _)| &plan.steps[i]).collect();
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let mut later = Vec::new();
        for path in Journal::pending(folder)?.into_iter().filter(|path| *path != self.path) {
            // A journal that cannot be read is reported when it is itself to be rolled back.
            let Some((entries, _)) = fs::read(&path).ok().and_then(|text| parse(&text, &path).ok()) else {
                continue;
            };
            let Some(Entry::Begin { plan: other, unix_ns: then, .. }) = entries.first() else { continue };
            let left = to_undo_of(&entries);
            let mut theirs = left.iter().map(|(i, _)| &other.steps[*i]);
            if then > unix_ns && theirs.any(|step| own.iter().any(|mine| mine.sets_what(step))) {
                later.push(other.id.clone());
            }
        }
        Ok(later)
    }

    /// How far it has come.
    pub fn state(&self) -> State {
        state_of(&self.entries)
    }

    /// Has the person said to keep it?
    pub fn confirmed(&self) -> bool {
        self.entries.iter().any(|e| matches!(e, Entry::Confirmed))
    }

    /// When the watchdog of `--try` will take it back, ns since 1970 UTC; `None` without one.
    pub fn deadline_unix_ns(&self) -> Option<u64> {
        self.entries.iter().rev().find_map(|e| match e {
            Entry::Armed { deadline_unix_ns, .. } => Some(*deadline_unix_ns),
            _ => None,
        })
    }
}

fn to_undo_of(entries: &[Entry]) -> Vec<(usize, Former)> {
    // What was taken back and then set again is to be taken back again. `Again` does not say of which steps it is, so
    // it is of all: restoring what is in force already does no harm.
    let again = entries.iter().rposition(|e| matches!(e, Entry::Again { .. })).unwrap_or(0);
    let undone = |step: usize, intent: usize| {
        let mut later = entries.iter().skip(again.max(intent));
        later.any(|e| matches!(e, Entry::Undone { step: s, .. } if *s == step))
    };
    let intents = entries.iter().enumerate().rev().filter_map(|(at, e)| match e {
        Entry::Intent { step, former } if !undone(*step, at) => Some((*step, former.clone())),
        _ => None,
    });
    intents.collect()
}

fn state_of(entries: &[Entry]) -> State {
    let has = |want: fn(&Entry) -> bool| entries.iter().any(want);
    if has(|e| matches!(e, Entry::RolledBack)) {
        State::RolledBack
    } else if has(|e| matches!(e, Entry::Applied)) {
        State::Applied
    } else {
        State::Unfinished
    }
}

/// The entries of a journal's whole lines, and how many bytes those are.
fn parse(text: &[u8], path: &Path) -> Result<(Vec<Entry>, u64), Fault> {
    let garbled = |why: &dyn std::fmt::Display| {
        Fault::new(FaultKind::BadInput, format!("cannot read the journal {}", path.display()))
            .because(why)
            .help("compare the VMs' settings with the plan in the journal by hand, then remove the journal")
    };
    let (mut entries, mut whole, mut steps) = (Vec::new(), 0, 0);
    for line in text.split_inclusive(|b| *b == b'\n').filter(|l| l.ends_with(b"\n")) {
        let entry: Entry = serde_json::from_slice(line).map_err(|e| garbled(&e))?;
        match &entry {
            Entry::Begin { plan, .. } if entries.is_empty() => steps = plan.steps.len(),
            Entry::Begin { .. } => return Err(garbled(&"it has two begin entries")),
            Entry::RolledBack => {}
            _ if entries.is_empty() => return Err(garbled(&"its begin entry is missing")),
            Entry::Intent { step, .. } | Entry::Done { step } | Entry::Undone { step, .. }
                if *step >= steps =>
            {
                return Err(garbled(&format!("it names step {step}, but its plan has {steps} steps")));
            }
            _ => {}
        }
        entries.push(entry);
        whole += line.len() as u64;
    }
    Ok((entries, whole))
}

fn lock(file: File, path: &Path) -> Result<Locked, Fault> {
    Locked::wait(file).map_err(|e| failed("cannot lock", path, &e))
}

fn die_if_asked(when: &str, write: u64) {
    if let Ok(spec) = std::env::var("VSTEER_FAULT_KILL")
        && spec == format!("{when}:{write}")
    {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
