//! Keeps the history: forms a row per minute and VM from the samples, and stores it.
//!
//! ```text
//! samples   the samples of one minute     rows   the rows of a minute, from its model
//! events    what changed since the minute before   plans  which plans were applied and undone
//! ```
//!
//! A thread of its own does this, so that a slow disk cannot delay a sample. If the thread falls behind by [`BEHIND`] samples,
//! the samples that it cannot take are missing in their minute, and the service counts them.

mod events;
mod plans;
mod rows;
mod samples;

use crate::seen::Seen;
use events::Events;
use plans::Plans;
use samples::Samples;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};
use vsteer_core::thresholds::Thresholds;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::privilege::{CapabilitySet, Kept, confine};
use vsteer_record::history::{FOLDER, History, MINUTE_MS, Writer};

/// Samples that wait for the thread, at most. With 200 VMs each takes 3 MB.
const BEHIND: usize = 10;
/// The folder's name if there is to be no history.
const NONE: &str = "none";

/// Where the observer leaves each state of the host for the history.
pub type Keep = SyncSender<Arc<Seen>>;

/// The thread that keeps the history.
pub struct Keeper {
    thread: JoinHandle<()>,
}

impl Keeper {
    /// Waits until the thread has stored what it has.
    pub fn finish(self) {
        if self.thread.join().is_err() {
            eprintln!("vsteer-serve: warning: the thread that keeps the history failed");
        }
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// The folder of the history; `None` if there is to be none.
pub fn folder(chosen: Option<&Path>) -> Option<PathBuf> {
    let folder = chosen.map_or_else(|| PathBuf::from(FOLDER), Path::to_owned);
    (folder.as_os_str() != NONE).then_some(folder)
}

/// Starts to keep the history in a folder. Nobody chose the usual folder, so the service goes on without it.
///
/// # Errors
/// When a chosen folder cannot be used.
pub fn start(
    chosen: Option<&Path>,
    journals: PathBuf,
    thresholds: Thresholds,
) -> Result<Option<(Keep, Keeper)>, Fault> {
    let Some(folder) = folder(chosen) else { return Ok(None) };
    // The last minute may not have been whole. An event that is stored twice is kept once.
    let last_ms = History::open(&folder).ok().and_then(|h| Some(h.span_ms()?.1.saturating_sub(MINUTE_MS)));
    let writer = match Writer::open(&folder, now_ms()) {
        Ok(writer) => writer,
        Err(fault) if chosen.is_none() && fault.kind != FaultKind::Failed => {
            eprintln!("vsteer-serve: warning: no history is kept: {fault}");
            return Ok(None);
        }
        Err(fault) => return Err(fault),
    };
    let (keep, states) = sync_channel(BEHIND);
    let work = move || {
        // The thread writes into one folder, and needs no privilege for it.
        let kept = Kept { capabilities: CapabilitySet::empty(), writes_elsewhere: false };
        if let Err(fault) = confine(kept, &[&folder]) {
            warn(&fault);
        }
        run(writer, &states, Plans::new(journals, last_ms.unwrap_or_else(now_ms)), thresholds);
    };
    let thread = std::thread::Builder::new().name("history".to_owned()).spawn(work);
    let thread = thread.map_err(|e| Fault::io("starting the thread that keeps the history", &e))?;
    Ok(Some((keep, Keeper { thread })))
}

fn warn(text: &dyn std::fmt::Display) {
    eprintln!("vsteer-serve: warning: {text}");
}

/// Stores minutes until the observer ends.
fn run(mut writer: Writer, states: &Receiver<Arc<Seen>>, mut plans: Plans, thresholds: Thresholds) {
    let (mut samples, mut events, mut failing) = (Samples::default(), Events::default(), false);
    let mut store = |minute: samples::Whole, is_last: bool| {
        let mut row = minute.row(&mut events, thresholds);
        row.events.append(&mut plans.since_before(minute.hostname()));
        if is_last {
            row.events.push(minute.stopped());
        }
        let stored = writer.append(&row);
        writer.take_notes().iter().for_each(|note| warn(note));
        if let Err(fault) = &stored
            && !failing
        {
            warn(&format!("a minute of the history was not stored: {fault}"));
        }
        failing = stored.is_err();
    };
    while let Ok(seen) = states.recv() {
        if let Some(minute) = samples.see(&seen) {
            store(minute, false);
        }
    }
    if let Some(last) = samples.finish() {
        store(last, true);
    }
}
