//! Which plans were applied on this host, and which of them were undone? Reads undo journals, for lists and timelines.
//!
//! The crate `vsteer-act` writes the journals: a line of JSON for each entry. The first one has the plan; `"applied"`,
//! `"guarded"` and `"rolled_back"` tell how far it came. Entries for the undo are passed over here.

use crate::{system, trusted};
use serde::Deserialize;
use std::io::Read;
use std::path::{Path, PathBuf};
use vsteer_core::limits;
use vsteer_core::plan::Plan;
use vsteer_core::{Fault, FaultKind};

/// Where root's journals are kept. The units in packaging/ must let vsteer write here, and must not remove it.
pub const ROOTS_JOURNALS: &str = "/var/lib/vsteer/journal";

/// Where journals are kept if nobody says otherwise: in `/var/lib/vsteer` for root, else in the user's state folder.
pub fn usual_folder() -> PathBuf {
    if system::is_root() {
        return PathBuf::from(ROOTS_JOURNALS);
    }
    let var = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = var("XDG_STATE_HOME").or_else(|| var("HOME").map(|h| h.join(".local/state")));
    base.unwrap_or_else(|| PathBuf::from("/tmp")).join("vsteer/journal")
}

/// How far a plan came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Not finished: it is being applied, or whoever applied it was killed.
    Begun,
    /// A command that still runs, such as `vsteer steer`, made the steps, and undoes them when it ends.
    Held,
    /// All steps were made.
    Applied,
    /// All steps were undone.
    Undone,
}

/// A plan of a journal.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// The plan.
    pub plan: Plan,
    /// When it was begun, ms since 1970.
    pub begun_unix_ms: u64,
    /// How far it came.
    pub progress: Progress,
}

#[derive(Deserialize)]
struct First {
    begin: Begin,
}

#[derive(Deserialize)]
struct Begin {
    plan: Plan,
    unix_ns: u64,
}

/// Is this the name of a journal? Those that were set aside count too.
pub fn is_journal(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "journal" || e == "old")
}

/// Reads a journal without a lock. `None`: it ends within its first line, so nothing was changed.
///
/// # Errors
/// When it cannot be read; `BadInput` if it does not begin with a plan.
pub fn read(path: &Path) -> Result<Option<Applied>, Fault> {
    let mut text = Vec::new();
    let failed = |e| Fault::io(format!("cannot read the journal {}", path.display()), &e);
    trusted::open(path)?.take(limits::JOURNAL).read_to_end(&mut text).map_err(failed)?;
    // An incomplete last line had no effect.
    let mut lines = text.split_inclusive(|b| *b == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
    let Some(first) = lines.next() else { return Ok(None) };
    let First { begin } = serde_json::from_slice(first).map_err(|e| {
        Fault::new(FaultKind::BadInput, format!("{} does not begin with a plan", path.display())).because(e)
    })?;
    let progress = lines.fold(Progress::Begun, |progress, line| match line {
        b"\"rolled_back\"" => Progress::Undone,
        b"\"applied\"" => Progress::Applied,
        _ if progress == Progress::Begun && line.starts_with(b"{\"guarded\"") => Progress::Held,
        _ => progress,
    });
    Ok(Some(Applied { plan: begin.plan, begun_unix_ms: begin.unix_ns / 1_000_000, progress }))
}
