//! The undo journal: every change is on disk before vsteer makes it.
//!
//! There is one file per applied plan, with one JSON line per entry. vsteer syncs each entry before it continues. A
//! journal that ends anywhere tells exactly which steps may have been made: those with an [`Entry::Intent`] and no
//! later [`Entry::Undone`], nor one since an [`Entry::Again`]. An incomplete last line has had no effect, because
//! vsteer acts only after the sync.
//!
//! A process that writes a journal holds a lock on it. A process that begins one also locks the folder meanwhile, so
//! that two processes that begin the same plan cannot set each other's journal aside. Listing takes no lock and
//! repairs nothing, because it must not wait for an apply.
//!
//! Fault injection, only in builds with debug assertions: if the environment variable `VSTEER_FAULT_KILL` is `before:N` or `after:N`, the process kills
//! itself (SIGKILL) around its N-th journal write. The test of crash safety walks every N on a real libvirt.

use crate::locked::Locked;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use vsteer_core::limits;
use vsteer_core::plan::Plan;
use vsteer_core::setting::Step;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::actuate::Former;
use vsteer_record::{applied, trusted};

/// One line of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The plan is about to be applied.
    Begin {
        /// The whole plan, so that a rollback needs nothing else.
        plan: Box<Plan>,
        /// libvirt connection URI of the apply, if one was given.
        connect: Option<String>,
        /// Wall-clock time, ns since 1970 UTC.
        unix_ns: u64,
        /// Place in the order of all plans begun here, which no clock decides. 0: by an earlier version.
        #[serde(default)]
        sequence: u64,
    },
    /// A watchdog process will roll back unless the plan is confirmed before its deadline.
    Armed {
        /// Process id of the watchdog.
        pid: u32,
        /// Deadline, ns since 1970.
        deadline_unix_ns: u64,
    },
    /// Step `step` is about to be made; `former` holds everything that it overwrites.
    Intent {
        /// Index into the plan's steps.
        step: usize,
        /// The former state, for the undo.
        former: Box<Former>,
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
        /// Process id of the watchdog.
        pid: u32,
    },
    /// Steps that were made were set again, and why: `former` of each step still undoes it.
    Again {
        /// The settings and the reason, in one line.
        what: String,
    },
    /// The person confirmed the plan.
    Confirmed,
    /// Step `step` was undone, or had not been made.
    Undone {
        /// Index into the plan's steps.
        step: usize,
        /// Why nothing was undone in the running VM (it is gone), if so.
        note: Option<String>,
    },
    /// The whole plan was undone.
    RolledBack,
}

/// The state folder that the configuration names (`paths.state`).
static CONFIGURED: OnceLock<PathBuf> = OnceLock::new();

/// Says which state folder the configuration names. Only the first call counts: a process has one configuration.
pub fn configure(state: PathBuf) {
    let _ = CONFIGURED.set(state);
}

/// A folder that a variable names, from the root.
fn var(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute())
}

/// Where journals are kept: `$VSTEER_STATE`, else the configured folder, else [`applied::usual_folder`].
pub fn journal_folder() -> PathBuf {
    let named = var("VSTEER_STATE").or_else(|| CONFIGURED.get().cloned());
    named.map_or_else(applied::usual_folder, |folder| folder.join("journal"))
}

/// An open journal, locked against all other processes that write.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Locked,
    entries: Vec<Entry>,
    /// Number of bytes in complete lines.
    whole: u64,
    /// Is there an incomplete line at the end that could not be removed? Then no entry may follow.
    torn: bool,
    writes: u64,
}

fn failed(what: &str, path: &Path, e: &std::io::Error) -> Fault {
    Fault::io(format!("{what} the journal {}", path.display()), e)
}

/// State of a plan, according to its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Not finished: an apply is running, or was killed.
    Unfinished,
    /// All steps were made.
    Applied,
    /// All steps were undone.
    RolledBack,
}

/// What a journal says about its plan, for a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Id of the plan.
    pub plan: String,
    /// The plan's one line about what it does.
    pub title: String,
    /// How far it came.
    pub state: State,
    /// Connection URI of the apply, if one was given.
    pub connect: Option<String>,
    /// When it was begun, ns since 1970 UTC.
    pub begun_unix_ns: u64,
    /// When the watchdog of `--try` undoes it, ns since 1970 UTC; `None` without one, or if it is confirmed.
    pub undone_at_unix_ns: Option<u64>,
    /// The journal's file.
    pub journal: PathBuf,
}

impl Journal {
    /// Begins a journal for `plan`. A finished one of the same plan gets a numbered name.
    ///
    /// # Errors
    /// `Changed` if the plan is applied already, or another process is applying it or rolling it back; `NoSpace`,
    /// `NoPrivilege` if the folder is not writable; `BadInput` for an id that is not a plain name.
    pub fn begin(folder: &Path, plan: &Plan, connect: Option<&str>, unix_ns: u64) -> Result<Journal, Fault> {
        Plan::check_id(&plan.id)?;
        trusted::make_private_folder(folder)?;
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
        let sequence = next_in_sequence(folder)?;
        let file = lock(trusted::create(&path)?, &path)?;
        // Sync the folder too, so that a crash cannot remove the journal.
        beginning.sync_all().map_err(|e| failed("cannot sync the folder of", folder, &e))?;
        let mut journal = Journal { path, file, entries: Vec::new(), whole: 0, torn: false, writes: 0 };
        journal.write(Entry::Begin {
            plan: Box::new(plan.clone()),
            connect: connect.map(str::to_owned),
            unix_ns,
            sequence,
        })?;
        Ok(journal)
    }

    /// Opens an existing journal; waits for the process that holds it.
    ///
    /// # Errors
    /// `NothingThere` if it does not exist; `BadInput`, with its name, if it is garbled.
    pub fn open(path: &Path) -> Result<Journal, Fault> {
        let opened = Journal::open_locked(path, |file| Locked::within(file, limits::JOURNAL_LOCK_TIME))?;
        opened.ok_or_else(|| {
            let what = format!("another process holds the journal {}", path.display());
            Fault::new(FaultKind::Changed, what)
                .because(format!("it did not finish within {} s", limits::JOURNAL_LOCK_TIME.as_secs()))
                .help("see who has it open: fuser -v JOURNAL; then try again")
        })
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
            let file = trusted::open_to_append(path)?;
            let Some(file) = lock(file).map_err(|e| failed("cannot lock", path, &e))? else {
                return Ok(None);
            };
            // During the wait for the lock it may have been set aside, and another begun under its name.
            let mine = file.metadata().map_err(|e| failed("cannot read", path, &e))?;
            if fs::metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (mine.dev(), mine.ino())) {
                break file;
            }
        };
        let mut text = Vec::new();
        (&mut *file)
            .take(limits::JOURNAL)
            .read_to_end(&mut text)
            .map_err(|e| failed("cannot read", path, &e))?;
        let (entries, whole) = parse(&text, path)?;
        if whole < text.len() as u64 {
            // The incomplete line had no effect; it must not run into the next entry.
            file.set_len(whole).map_err(|e| failed("cannot repair", path, &e))?;
        }
        Ok(Some(Journal { path: path.to_owned(), file, entries, whole, torn: false, writes: 0 }))
    }

    /// The journals in a folder with plans that are not rolled back, newest first; then those that cannot be read.
    /// Opening one of the latter gives the fault. Takes no lock and changes nothing.
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
            match read(&path).and_then(|text| parse(&text, &path)) {
                // Ends within its first line: no step was made.
                Ok((entries, _)) if entries.is_empty() => {}
                Ok((entries, _)) => {
                    if let (Some(Entry::Begin { unix_ns, sequence, .. }), true) =
                        (entries.first(), state_of(&entries) != State::RolledBack)
                    {
                        found.push(((*sequence, *unix_ns), path));
                    }
                }
                Err(_) => garbled.push(path),
            }
        }
        found.sort();
        garbled.sort();
        Ok(found.into_iter().rev().map(|(_, p)| p).chain(garbled).collect())
    }

    /// Reads a journal without a lock, to list it. `None` if its plan is undone, or if it ends before its plan.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn summary(path: &Path) -> Result<Option<Summary>, Fault> {
        let (entries, _) = parse(&read(path)?, path)?;
        let state = state_of(&entries);
        let Some(Entry::Begin { plan, connect, unix_ns, .. }) = entries.first() else { return Ok(None) };
        Ok((state != State::RolledBack).then(|| Summary {
            plan: plan.id.clone(),
            title: plan.title.clone(),
            state,
            connect: connect.clone(),
            begun_unix_ns: *unix_ns,
            undone_at_unix_ns: deadline_of(&entries).filter(|_| !confirmed_in(&entries)),
            journal: path.to_owned(),
        }))
    }

    /// Plan and connection of the journal at `path`. Takes no lock.
    ///
    /// # Errors
    /// As [`Journal::open`], without waiting; `BadInput` if it does not begin with a plan.
    pub fn begun(path: &Path) -> Result<(Plan, Option<String>), Fault> {
        let (entries, _) = parse(&read(path)?, path)?;
        match entries.into_iter().next() {
            Some(Entry::Begin { plan, connect, .. }) => Ok((*plan, connect)),
            _ => {
                Err(Fault::new(FaultKind::BadInput, format!("{} does not begin with a plan", path.display())))
            }
        }
    }

    /// Appends an entry and syncs it.
    ///
    /// # Errors
    /// `NoSpace` on a full disk. Then the caller must not do what the entry announces; the journal is unchanged.
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

    /// Path of the journal's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All entries, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The plan and its connection URI; `None` in a journal that ends before them.
    pub fn plan(&self) -> Option<(&Plan, Option<&str>)> {
        match self.entries.first() {
            Some(Entry::Begin { plan, connect, .. }) => Some((plan, connect.as_deref())),
            _ => None,
        }
    }

    /// Steps that may have been made and are not undone, newest first, with their former state.
    pub fn to_undo(&self) -> Vec<(usize, Former)> {
        to_undo_of(&self.entries)
    }

    /// Plans that were begun after this one, are not undone, and change the same settings; the newest first. If this
    /// plan were undone before them, it would overwrite their settings, and they would later bring its own back. Takes
    /// no lock.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn set_later_by(&self) -> Result<Vec<String>, Fault> {
        let Some(Entry::Begin { plan, unix_ns, sequence, .. }) = self.entries.first() else {
            return Ok(Vec::new());
        };
        let own_place = (*sequence, *unix_ns);
        let own: Vec<&Step> = self.to_undo().into_iter().map(|(i, _)| &plan.steps[i]).collect();
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let mut later = Vec::new();
        for path in Journal::pending(folder)?.into_iter().filter(|path| *path != self.path) {
            // A journal that cannot be read is reported when it is itself to be rolled back.
            let Some((entries, _)) = read(&path).ok().and_then(|text| parse(&text, &path).ok()) else {
                continue;
            };
            let Some(Entry::Begin { plan: other, unix_ns, sequence, .. }) = entries.first() else { continue };
            let left = to_undo_of(&entries);
            let mut theirs = left.iter().map(|(i, _)| &other.steps[*i]);
            if (*sequence, *unix_ns) > own_place
                && theirs.any(|step| own.iter().any(|mine| mine.sets_what(step)))
            {
                later.push(other.id.clone());
            }
        }
        Ok(later)
    }

    /// State of the plan.
    pub fn state(&self) -> State {
        state_of(&self.entries)
    }

    /// Has the person confirmed the plan?
    pub fn confirmed(&self) -> bool {
        confirmed_in(&self.entries)
    }

    /// Deadline of the watchdog of `--try`, ns since 1970 UTC; `None` without one.
    pub fn deadline_unix_ns(&self) -> Option<u64> {
        deadline_of(&self.entries)
    }
}

fn confirmed_in(entries: &[Entry]) -> bool {
    entries.iter().any(|e| matches!(e, Entry::Confirmed))
}

fn deadline_of(entries: &[Entry]) -> Option<u64> {
    entries.iter().rev().find_map(|e| match e {
        Entry::Armed { deadline_unix_ns, .. } => Some(*deadline_unix_ns),
        _ => None,
    })
}

/// Steps of these entries that may have been made and are not undone, newest first, with their former state.
pub fn to_undo_of(entries: &[Entry]) -> Vec<(usize, Former)> {
    // A step that was undone and set again must be undone again. `Again` does not name its steps, so it counts for all
    // of them: restoring an unchanged setting does no harm.
    let again = entries.iter().rposition(|e| matches!(e, Entry::Again { .. })).unwrap_or(0);
    let undone = |step: usize, intent: usize| {
        let mut later = entries.iter().skip(again.max(intent));
        later.any(|e| matches!(e, Entry::Undone { step: s, .. } if *s == step))
    };
    let intents = entries.iter().enumerate().rev().filter_map(|(at, e)| match e {
        Entry::Intent { step, former } if !undone(*step, at) => Some((*step, (**former).clone())),
        _ => None,
    });
    intents.collect()
}

/// The state of a plan with these entries.
pub fn state_of(entries: &[Entry]) -> State {
    let has = |want: fn(&Entry) -> bool| entries.iter().any(want);
    if has(|e| matches!(e, Entry::RolledBack)) {
        State::RolledBack
    } else if has(|e| matches!(e, Entry::Applied)) {
        State::Applied
    } else {
        State::Unfinished
    }
}

/// Reads a journal's bytes: the entries in its complete lines, and the number of bytes in these lines.
///
/// # Errors
/// `BadInput` if a complete line is not an entry, or does not fit the lines before it.
pub fn parse(text: &[u8], path: &Path) -> Result<(Vec<Entry>, u64), Fault> {
    let garbled = |why: &dyn std::fmt::Display| {
        Fault::new(FaultKind::BadInput, format!("cannot read the journal {}", path.display()))
            .because(why)
            .help("compare the VMs' settings with the plan in the journal by hand, then remove the journal")
    };
    let (mut entries, mut whole, mut steps) = (Vec::new(), 0, 0);
    for line in text.split_inclusive(|b| *b == b'\n').filter(|l| l.ends_with(b"\n")) {
        let entry: Entry = serde_json::from_slice(line).map_err(|e| garbled(&e))?;
        match &entry {
            Entry::Begin { plan, .. } if entries.is_empty() => {
                Plan::check_id(&plan.id).map_err(|fault| garbled(&fault))?;
                steps = plan.steps.len();
            }
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
    let locked =
        Locked::within(file, limits::JOURNAL_LOCK_TIME).map_err(|e| failed("cannot lock", path, &e))?;
    locked.ok_or_else(|| {
        Fault::new(FaultKind::Changed, format!("another process holds {}", path.display()))
            .because(format!("it did not finish within {} s", limits::JOURNAL_LOCK_TIME.as_secs()))
    })
}

/// A journal's bytes, without a lock.
fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    let mut text = Vec::new();
    let file = trusted::open(path)?;
    file.take(limits::JOURNAL).read_to_end(&mut text).map_err(|e| failed("cannot read", path, &e))?;
    Ok(text)
}

/// The next place in the order of all plans begun in this folder. The caller holds the folder's lock.
fn next_in_sequence(folder: &Path) -> Result<u64, Fault> {
    let path = folder.join("sequence");
    let mut last = 0;
    if path.exists() {
        let mut text = String::new();
        let file = trusted::open(&path)?;
        file.take(64).read_to_string(&mut text).map_err(|e| failed("cannot read", &path, &e))?;
        last = text.trim().parse().unwrap_or(0);
    }
    // The file may be gone or older than a journal that was copied here.
    for journal in Journal::pending(folder)? {
        let entries = read(&journal).and_then(|text| parse(&text, &journal)).map(|(entries, _)| entries);
        if let Ok(Some(Entry::Begin { sequence, .. })) = entries.as_ref().map(|e| e.first()) {
            last = last.max(*sequence);
        }
    }
    let new = folder.join("sequence.new");
    let written = trusted::create_again(&new)?.write_all(format!("{}\n", last + 1).as_bytes());
    let written = written.and_then(|()| fs::rename(&new, &path));
    written.map_err(|e| failed("cannot count the plans beside", &path, &e))?;
    Ok(last + 1)
}

/// Only in builds with debug assertions: nobody's environment ends a release build.
fn die_if_asked(when: &str, write: u64) {
    if !cfg!(debug_assertions) {
        return;
    }
    if let Ok(spec) = std::env::var("VSTEER_FAULT_KILL")
        && spec == format!("{when}:{write}")
    {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
