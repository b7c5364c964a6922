//! Reads the history: the Parquet files, and the minutes that are still in the journal.
//!
//! The journal is read first. The service moves minutes from the journal to the files, so a reader that took the files
//! first could miss minutes. What is in both is returned once. A damaged file is left out, and a note names it.

use super::column::Row;
use super::day;
use super::hour::Hours;
use super::journal;
use super::row::{DAY_MS, Event, EventKind, HOUR_MS, HostRow, MINUTE_MS, Minute, VmRow};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vsteer_core::plural::counted;
use vsteer_core::{Fault, FaultKind};

/// The longest time of which [`Step::of_span`] chooses minutes, ms.
const MINUTES_UP_TO_MS: u64 = 2 * DAY_MS;

/// What a row stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A minute.
    Minute,
    /// An hour.
    Hour,
}

impl Step {
    /// Minutes up to two days, hours above.
    pub fn of_span(ms: u64) -> Step {
        if ms <= MINUTES_UP_TO_MS { Step::Minute } else { Step::Hour }
    }

    /// Length, ms.
    pub fn ms(self) -> u64 {
        match self {
            Step::Minute => MINUTE_MS,
            Step::Hour => HOUR_MS,
        }
    }

    /// Name in options and answers.
    pub fn name(self) -> &'static str {
        match self {
            Step::Minute => "minute",
            Step::Hour => "hour",
        }
    }
}

/// What to look for.
#[derive(Debug, Clone)]
pub struct Query {
    /// From this moment on, ms since 1970. The minute or hour that holds it is part of the answer.
    pub from_ms: u64,
    /// Before this moment, ms since 1970.
    pub to_ms: u64,
    /// Only the VM of this name or id.
    pub vm: Option<String>,
    /// Fail above this number of rows.
    pub most: usize,
}

impl Query {
    fn holds(&self, unix_ms: u64, step_ms: u64) -> bool {
        (self.from_ms / step_ms * step_ms..self.to_ms).contains(&unix_ms)
    }

    fn is_of(&self, id: &str, name: &str) -> bool {
        self.vm.as_deref().is_none_or(|vm| vm == id || vm == name)
    }
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Found<R> {
    /// The rows, by VM and time.
    pub rows: Vec<R>,
    /// Files and lines that could not be read, one text each.
    pub notes: Vec<String>,
}

/// A history on disk.
pub struct History {
    folder: PathBuf,
    /// Minutes of the journal, in order of time.
    recent: Vec<Minute>,
    notes: Vec<String>,
}

impl History {
    /// Opens a history.
    ///
    /// # Errors
    /// `NothingThere` if the folder is not a history; `NoPrivilege` if it must not be read.
    pub fn open(folder: &Path) -> Result<History, Fault> {
        let is_one = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Fault::new(FaultKind::NothingThere, format!("{} does not hold a history", folder.display()))
                    .help("start the service, which keeps the history: vsteer serve")
            }
            _ => Fault::io(format!("cannot read the history in {}", folder.display()), &e),
        };
        let mut entries = std::fs::read_dir(folder).map_err(is_one)?.filter_map(Result::ok);
        let parts = [journal::NAME, "vm", "host", day::TIMELINE];
        if !entries.any(|e| parts.iter().any(|part| e.file_name() == *part)) {
            return Err(is_one(std::io::ErrorKind::NotFound.into()));
        }
        let (mut recent, mut notes) = (Vec::new(), Vec::new());
        let path = folder.join(journal::NAME);
        match journal::each(&path, |_, minute| recent.push(minute)) {
            Ok(0) => {}
            Ok(damaged) => {
                notes.push(format!("{} in {}: skipped", counted(damaged, "damaged line"), path.display()))
            }
            Err(fault) => notes.push(fault.to_string()),
        }
        recent.sort_by_key(|minute: &Minute| minute.unix_ms);
        Ok(History { folder: folder.to_owned(), recent, notes })
    }

    /// Rows of VMs.
    ///
    /// # Errors
    /// `Usage` above the limit of the query.
    pub fn vms(&self, query: &Query, step: Step) -> Result<Found<VmRow>, Fault> {
        let ms = step.ms();
        let keep = |r: &VmRow| query.holds(r.unix_ms, ms) && query.is_of(&r.vm, &r.name);
        let (table, recent) = match step {
            Step::Minute => {
                (day::VM_MINUTE, self.recent.iter().flat_map(|m| m.vms.iter().cloned()).collect())
            }
            Step::Hour => (day::VM_HOUR, self.hours().0),
        };
        self.found(table, query, &keep, recent)
    }

    /// Rows of the host.
    ///
    /// # Errors
    /// As [`History::vms`].
    pub fn host(&self, query: &Query, step: Step) -> Result<Found<HostRow>, Fault> {
        let ms = step.ms();
        let keep = |r: &HostRow| query.holds(r.unix_ms, ms);
        let (table, recent) = match step {
            Step::Minute => (day::HOST_MINUTE, self.recent.iter().filter_map(|m| m.host.clone()).collect()),
            Step::Hour => (day::HOST_HOUR, self.hours().1),
        };
        self.found(table, &Query { vm: None, ..query.clone() }, &keep, recent)
    }

    /// What happened, in order of time.
    ///
    /// # Errors
    /// As [`History::vms`].
    pub fn timeline(&self, query: &Query) -> Result<Found<Event>, Fault> {
        let none = |text: &Option<String>| text.clone().unwrap_or_default();
        let is_of = |e: &Event| query.vm.is_none() || query.is_of(&none(&e.vm), &none(&e.name));
        let keep = |e: &Event| query.holds(e.unix_ms, 1) && is_of(e);
        let recent = self.recent.iter().flat_map(|m| m.events.iter().cloned()).collect();
        self.found(day::TIMELINE, query, &keep, recent)
    }

    /// The findings that were open at a moment: they began before it, and did not end before it.
    ///
    /// # Errors
    /// As [`History::vms`].
    pub fn open_findings(&self, unix_ms: u64) -> Result<Found<Event>, Fault> {
        let query = Query { from_ms: 0, to_ms: unix_ms.saturating_add(1), vm: None, most: usize::MAX };
        let found = self.timeline(&query)?;
        let mut open: BTreeMap<(Option<String>, Option<String>), Event> = BTreeMap::new();
        for event in found.rows {
            let key = (event.rule.clone(), event.vm.clone());
            match event.kind {
                EventKind::Observing | EventKind::Stopped => open.clear(),
                EventKind::FindingBegan => {
                    open.insert(key, event);
                }
                EventKind::FindingEnded => {
                    open.remove(&key);
                }
                _ => {}
            }
        }
        let mut rows: Vec<Event> = open.into_values().collect();
        let loss = |e: &Event| e.loss_pcpus.unwrap_or(0.0);
        rows.sort_by(|a, b| loss(b).total_cmp(&loss(a)));
        Ok(Found { rows, notes: found.notes })
    }

    /// First and last moment of rows, ms since 1970: from the first day of any file to the end of the last minute or day.
    pub fn span_ms(&self) -> Option<(u64, u64)> {
        let days = |table: &&str| day::files_of(&self.folder, table).unwrap_or_default();
        let days: Vec<u64> = day::TABLES.iter().flat_map(days).map(|(day, _)| day).collect();
        let recent = || self.recent.iter().map(|m| m.unix_ms);
        let first = days.iter().map(|day| day * DAY_MS).chain(recent()).min()?;
        let of_files = days.iter().max().map(|day| self.end_of(*day));
        let last = recent().map(|ms| ms + MINUTE_MS).chain(of_files).max()?;
        Some((first, last))
    }

    /// End of the last minute of a day's rows.
    fn end_of(&self, of_day: u64) -> u64 {
        let mut last = of_day * DAY_MS;
        let path = day::path(&self.folder, day::HOST_MINUTE, of_day);
        let _ = day::each::<HostRow>(&path, None, false, &|_| true, &mut |rows| {
            last = rows.iter().map(|r| r.unix_ms + MINUTE_MS).fold(last, u64::max);
        });
        last
    }

    fn hours(&self) -> (Vec<VmRow>, Vec<HostRow>) {
        let mut hours = Hours::default();
        self.recent.iter().for_each(|minute| hours.add(minute));
        hours.finish()
    }

    fn found<R: Row>(
        &self,
        table: &str,
        query: &Query,
        keep: &dyn Fn(&R) -> bool,
        recent: Vec<R>,
    ) -> Result<Found<R>, Fault> {
        let (mut rows, mut notes) = (Vec::new(), self.notes.clone());
        let days = query.from_ms / DAY_MS..=query.to_ms / DAY_MS;
        let listed = day::files_of(&self.folder, table);
        let failed = |e| Fault::io(format!("cannot read {}", self.folder.join(table).display()), &e);
        for (day, path) in listed.map_err(failed)? {
            if path.extension().is_some_and(|end| end == &day::DAMAGED[1..]) || !days.contains(&day) {
                continue;
            }
            let read =
                day::each(&path, query.vm.as_deref(), false, keep, &mut |mut part| rows.append(&mut part));
            notes.extend(read.err().map(|fault| fault.to_string()));
            within(&rows, query)?;
        }
        rows.extend(recent.into_iter().filter(|row| keep(row)));
        within(&rows, query)?;
        // Rows of files come before equal rows of the journal, and stay.
        rows.sort_by(|a, b| a.key().cmp(&b.key()));
        rows.dedup_by(|a, b| a.key() == b.key());
        Ok(Found { rows, notes })
    }
}

fn within<R>(rows: &[R], query: &Query) -> Result<(), Fault> {
    if rows.len() <= query.most {
        return Ok(());
    }
    let what = format!("the answer has more than {}", counted(query.most, "row"));
    Err(Fault::new(FaultKind::Usage, what).help("ask for one VM, a shorter time, or a step of an hour"))
}
