//! Writes the history: a line per minute, files per hour, and what is too old or has no room goes.

use super::column::Row;
use super::day;
use super::disk::{Disk, RealDisk, Sink};
use super::hour::Hours;
use super::journal;
use super::row::{DAY_MS, Event, HOUR_MS, HostRow, Minute, VmRow};
use crate::own_folder::OwnFolder;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use vsteer_core::limits;
use vsteer_core::plural::counted;
use vsteer_core::{Fault, FaultKind};

/// Days for which rows of minutes are kept.
const MINUTE_DAYS: u64 = 90;
/// Days for which rows of hours and the timeline are kept: two years.
const HOUR_DAYS: u64 = 731;
/// Files that one hour removes of each table because they are too old. A clock that is wrong for an hour then costs few days.
const EXPIRE_AT_ONCE: usize = 2;

/// What became of the minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kept {
    /// Minutes that were stored.
    pub minutes: u64,
    /// Minutes that could not be stored.
    pub lost_minutes: u64,
    /// Days that were removed because the disk was full.
    pub dropped_days: u64,
}

/// Writes a history. There is one writer of a folder at a time.
pub struct Writer {
    /// The path for this process.
    folder: PathBuf,
    shown: PathBuf,
    disk: Box<dyn Disk>,
    journal: Box<dyn Sink>,
    /// Bytes of the journal.
    length: u64,
    /// Does the journal end with half a line?
    torn: bool,
    /// The hour of the newest minute; older ones are in the files, if no merge failed.
    hour: u64,
    kept: Kept,
    said_full: bool,
    /// For people, since they were last taken.
    notes: Vec<String>,
    /// Held open: the folder, and the lock on it.
    _held: (Option<OwnFolder>, File),
}

fn failed(what: &str, path: &Path, e: &io::Error) -> Fault {
    Fault::io(format!("{what} {}", path.display()), e)
}

/// Minutes of the journal that are due, by table.
#[derive(Default)]
struct Due {
    vms: Vec<VmRow>,
    hosts: Vec<HostRow>,
    events: Vec<Event>,
    hours: Hours,
    /// Lines that stay in the journal.
    rest: Vec<u8>,
}

impl Due {
    fn add(&mut self, mut minute: Minute) {
        self.hours.add(&minute);
        minute.vms.iter_mut().for_each(|row| row.wake = None);
        self.vms.append(&mut minute.vms);
        self.hosts.extend(minute.host);
        self.events.append(&mut minute.events);
    }
}

impl Writer {
    /// Opens the history in a folder, which is made if it is not there. Merges what a stopped service left in the journal.
    /// `now_ms`: the time of now, ms since 1970.
    ///
    /// # Errors
    /// `NoPrivilege` if the folder belongs to another user; `Failed` if another service writes into it.
    pub fn open(folder: &Path, now_ms: u64) -> Result<Writer, Fault> {
        let held = OwnFolder::make_or_open(folder)?;
        let path = held.path();
        Writer::open_by(Box::new(RealDisk), &path, folder, Some(held), now_ms)
    }

    pub(super) fn open_by(
        disk: Box<dyn Disk>,
        folder: &Path,
        shown: &Path,
        held: Option<OwnFolder>,
        now_ms: u64,
    ) -> Result<Writer, Fault> {
        let lock = File::open(folder).map_err(|e| failed("cannot open", shown, &e))?;
        lock.try_lock().map_err(|_| {
            let what = format!("cannot write the history in {}", shown.display());
            Fault::new(FaultKind::Failed, what)
                .because("another service writes it")
                .help("stop that service, or choose another folder with --history")
        })?;
        for table in day::TABLES {
            let path = folder.join(table);
            fs::create_dir_all(&path).map_err(|e| failed("cannot create", &path, &e))?;
            remove_unfinished(disk.as_ref(), &path);
            let above = path.parent().unwrap_or(folder);
            disk.sync_folder(above).map_err(|e| failed("cannot sync", above, &e))?;
        }
        remove_unfinished(disk.as_ref(), folder);
        let path = folder.join(journal::NAME);
        let (journal, length) = opened(disk.as_ref(), &path)?;
        let mut writer = Writer {
            folder: folder.to_owned(),
            shown: shown.to_owned(),
            disk,
            journal,
            length,
            torn: false,
            hour: now_ms / HOUR_MS,
            kept: Kept::default(),
            said_full: false,
            notes: Vec::new(),
            _held: (held, lock),
        };
        let merged = writer.with_room(|w| w.merge_before(now_ms / HOUR_MS * HOUR_MS));
        if let Err(fault) = merged {
            writer.note(format!("the history of past hours stays in the journal: {fault}"));
        }
        Ok(writer)
    }

    /// Stores a minute. It is on the disk when this returns.
    ///
    /// # Errors
    /// `NoSpace` if the disk stays full after all other days were removed; others as the system says.
    pub fn append(&mut self, minute: &Minute) -> Result<(), Fault> {
        let line = journal::line(minute);
        let stored = self.with_room(|w| w.append_line(&line));
        match stored {
            Ok(()) => self.kept.minutes += 1,
            Err(_) => self.kept.lost_minutes += 1,
        }
        stored?;
        let hour = minute.unix_ms / HOUR_MS;
        if hour > self.hour {
            // A merge that failed is tried again after the next minute: its rows are still in the journal.
            self.with_room(|w| w.merge_before(hour * HOUR_MS))?;
            self.hour = hour;
            self.expire(minute.unix_ms);
        }
        Ok(())
    }

    /// What became of the minutes so far.
    pub fn kept(&self) -> Kept {
        self.kept
    }

    /// Texts for people that came up since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn note(&mut self, text: String) {
        self.notes.push(crate::own_folder::shown(&text, &self.shown));
    }

    fn append_line(&mut self, line: &[u8]) -> Result<(), Fault> {
        let path = self.folder.join(journal::NAME);
        if self.length + line.len() as u64 > limits::HISTORY_JOURNAL {
            return Err(Fault::new(FaultKind::NoSpace, format!("{} is too long", path.display())));
        }
        // A new line must not continue half a line.
        let line = if self.torn { [b"\n", line].concat() } else { line.to_vec() };
        let written = self.journal.write_all(&line).and_then(|()| self.journal.sync());
        match written {
            Ok(()) => {
                self.length += line.len() as u64;
                self.torn = false;
                Ok(())
            }
            Err(e) => {
                self.torn = self.disk.shorten(&path, self.length).is_err();
                Err(failed("cannot write", &path, &e))
            }
        }
    }

    /// Does it, and removes the oldest days for as long as the disk is full.
    fn with_room(&mut self, act: impl Fn(&mut Writer) -> Result<(), Fault>) -> Result<(), Fault> {
        loop {
            match act(self) {
                Err(fault) if fault.kind == FaultKind::NoSpace => {
                    let Some(path) = self.drop_oldest() else { return Err(self.named(fault)) };
                    self.kept.dropped_days += 1;
                    if !std::mem::replace(&mut self.said_full, true) {
                        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                        self.note(format!(
                            "the disk is full: the history drops its oldest days, {name} first ({fault})"
                        ));
                    }
                }
                other => return other.map_err(|fault| self.named(fault)),
            }
        }
    }

    fn named(&self, fault: Fault) -> Fault {
        crate::shown_as(fault, &self.shown)
    }

    /// Removes the oldest file: minutes first, because an hour says the same in a sixtieth of the bytes. The newest day stays.
    fn drop_oldest(&mut self) -> Option<PathBuf> {
        for tables in
            [&[day::VM_MINUTE, day::HOST_MINUTE][..], &[day::VM_HOUR, day::HOST_HOUR, day::TIMELINE]]
        {
            let of = |table: &&str| day::files_of(&self.folder, table).unwrap_or_default();
            let mut all: Vec<(u64, PathBuf)> = tables.iter().flat_map(of).collect();
            all.sort();
            let newest = all.last().map(|(day, _)| *day);
            for (day, path) in all {
                if Some(day) != newest && self.disk.remove(&path).is_ok() {
                    let _ = path.parent().map(|folder| self.disk.sync_folder(folder));
                    return Some(path);
                }
            }
        }
        None
    }

    /// Removes what is too old.
    fn expire(&mut self, now_ms: u64) {
        let today = now_ms / DAY_MS;
        for table in day::TABLES {
            let kept = if table.ends_with("minute") { MINUTE_DAYS } else { HOUR_DAYS };
            let files = day::files_of(&self.folder, table).unwrap_or_default();
            let old = files.into_iter().filter(|(day, _)| day + kept < today).take(EXPIRE_AT_ONCE);
            for (_, path) in old {
                if let Err(e) = self.disk.remove(&path) {
                    self.note(failed("cannot remove", &path, &e).to_string());
                }
            }
        }
    }

    /// Moves the minutes before this moment from the journal to the files.
    fn merge_before(&mut self, unix_ms: u64) -> Result<(), Fault> {
        let path = self.folder.join(journal::NAME);
        let mut due = Due::default();
        let mut found = Vec::new();
        let damaged = journal::each(&path, |line, minute| {
            if minute.unix_ms < unix_ms {
                found.push(minute);
            } else {
                due.rest.extend(line);
                due.rest.push(b'\n');
            }
        })?;
        if damaged > 0 {
            self.note(format!("{} in {}: left out", counted(damaged, "damaged line"), path.display()));
        }
        if found.is_empty() && damaged == 0 {
            return Ok(());
        }
        found.sort_by_key(|minute: &Minute| minute.unix_ms);
        found.into_iter().for_each(|minute| due.add(minute));
        let (vm_hours, host_hours) = due.hours.finish();
        self.merge(day::VM_MINUTE, due.vms)?;
        self.merge(day::HOST_MINUTE, due.hosts)?;
        self.merge(day::VM_HOUR, vm_hours)?;
        self.merge(day::HOST_HOUR, host_hours)?;
        self.merge(day::TIMELINE, due.events)?;
        self.replace_journal(&due.rest)
    }

    /// Merges rows into the files of their days.
    fn merge<R: Row>(&mut self, table: &str, mut rows: Vec<R>) -> Result<(), Fault> {
        rows.sort_by(|a, b| a.key().cmp(&b.key()));
        rows.dedup_by(|a, b| a.key() == b.key());
        let mut days: BTreeMap<u64, Vec<R>> = BTreeMap::new();
        for row in rows {
            days.entry(row.unix_ms() / DAY_MS).or_default().push(row);
        }
        for (day, rows) in days {
            let path = day::path(&self.folder, table, day);
            let whole = table == day::VM_HOUR;
            match day::merge(self.disk.as_ref(), &path, rows.clone(), whole) {
                Err(fault) if fault.kind == FaultKind::BadInput => {
                    let aside = path.with_extension(format!("parquet{}", day::DAMAGED));
                    self.disk.rename(&path, &aside).map_err(|e| failed("cannot rename", &path, &e))?;
                    self.note(format!(
                        "{fault}; the history goes on in a new file, the damaged one is {}",
                        aside.display()
                    ));
                    day::merge(self.disk.as_ref(), &path, rows, whole)?;
                }
                other => other?,
            }
        }
        Ok(())
    }

    fn replace_journal(&mut self, rest: &[u8]) -> Result<(), Fault> {
        let path = self.folder.join(journal::NAME);
        let beside = path.with_extension(format!("jsonl{}", day::UNFINISHED));
        let write = || {
            let mut to = self.disk.create(&beside)?;
            to.write_all(rest)?;
            to.sync()?;
            self.disk.rename(&beside, &path)?;
            self.disk.sync_folder(&self.folder)?;
            self.disk.append(&path)
        };
        self.journal = write().map_err(|e| failed("cannot write", &path, &e))?;
        self.length = rest.len() as u64;
        Ok(())
    }
}

/// Opens the journal at its end. Half a line that a power cut left gets an end, so that the next line stands alone.
fn opened(disk: &dyn Disk, path: &Path) -> Result<(Box<dyn Sink>, u64), Fault> {
    let failed = |e: &io::Error| failed("cannot open", path, e);
    let mut journal = disk.append(path).map_err(|e| failed(&e))?;
    let mut length = fs::metadata(path).map_err(|e| failed(&e))?.len();
    let last = crate::system::open_ordinary(path).and_then(|mut file| {
        use std::io::{Read, Seek, SeekFrom};
        let mut last = [b'\n'];
        if length > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        Ok(last)
    });
    if last.map_err(|e| failed(&e))? != [b'\n'] {
        // Without room for one byte the first line joins the half one, and the checksum refuses both.
        if journal.write_all(b"\n").is_ok() {
            length += 1;
        }
    }
    journal.sync().map_err(|e| failed(&e))?;
    if let Some(folder) = path.parent() {
        disk.sync_folder(folder).map_err(|e| failed(&e))?;
    }
    Ok((journal, length))
}

/// Removes files that were not finished when a service ended.
fn remove_unfinished(disk: &dyn Disk, folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().ends_with(day::UNFINISHED) {
            let _ = disk.remove(&entry.path());
        }
    }
}
