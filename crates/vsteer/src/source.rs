//! Where samples come from: the live host or a recording, in one form for all commands.

#[cfg(feature = "host")]
mod live;
#[cfg(feature = "host")]
mod several;

use crate::cli::Window;
use crate::clock;
#[cfg(feature = "host")]
pub use live::{
    need_one, need_vms, observe_each, only_watch, open_host, open_host_with, open_one_of, opened, progress,
    request, tell,
};
#[cfg(feature = "host")]
pub use several::{Failed, Several};
use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use vsteer_core::model::{self, HostModel};
use vsteer_core::nouns::{Batch, Collector, HostConfig};
use vsteer_core::{Fault, FaultKind};
use vsteer_record::{Recording, esxtop, sched_trace, sniff};

/// A stretch of samples with what is needed to understand them.
pub struct Stretch {
    /// The configuration at its end.
    pub config: HostConfig,
    /// How it was sampled.
    pub collector: Collector,
    pub batches: Vec<Batch>,
}

impl Stretch {
    /// The model of the whole stretch.
    ///
    /// # Errors
    /// `BadInput` when it holds too few samples.
    pub fn model(&self) -> Result<HostModel, Fault> {
        model::derive(&self.config, &self.collector, &self.batches)
    }

    /// Its length, seconds.
    pub fn seconds(&self) -> f64 {
        match (self.batches.first(), self.batches.last()) {
            (Some(a), Some(b)) => b.mono_ns.saturating_sub(a.mono_ns) as f64 / 1e9,
            _ => 0.0,
        }
    }
}

/// The window asked for: a recording, part of one, or the live host.
///
/// # Errors
/// As [`live::observe`] and [`Recording::open`]; `BadInput` when the moment asked for is not in the recording.
pub fn window(w: &Window) -> Result<Stretch, Fault> {
    let Some(folder) = &w.recording else {
        if w.at.is_some() {
            return Err(
                Fault::new(FaultKind::Usage, "--at needs a recording").help("name a recording before --at")
            );
        }
        return live(w);
    };
    let recording = read(folder)?;
    let Some(at) = &w.at else { return whole(recording) };
    let last_ns = recording.batches.last().map_or(0, |b| b.unix_ns);
    let moment = clock::moment(at, last_ns)?;
    let half = w.around.as_nanos() as u64 / 2;
    let batches = recording.between(moment.saturating_sub(half), moment + half).to_vec();
    let (Some(first), Some(last)) = (recording.batches.first(), recording.batches.last()) else {
        return whole(recording);
    };
    if batches.len() < 2 {
        return Err(Fault::new(
            FaultKind::BadInput,
            format!("{at:?} is outside the recording {}", folder.display()),
        )
        .because(format!(
            "the recording lasts from {} to {}",
            clock::text(first.unix_ns),
            clock::text(last.unix_ns)
        ))
        .help(format!("use a time in it, for example --at {}", clock::word(last.unix_ns))));
    }
    let mono = batches[batches.len() - 1].mono_ns;
    Ok(Stretch {
        config: recording.config_at(mono).clone(),
        collector: recording.manifest.collector,
        batches,
    })
}

/// The live host, for as long as was asked.
#[cfg(feature = "host")]
fn live(w: &Window) -> Result<Stretch, Fault> {
    live::observe(&w.source, w.length)
}

/// This build reads files only.
#[cfg(not(feature = "host"))]
fn live(_: &Window) -> Result<Stretch, Fault> {
    Err(Fault::new(FaultKind::Unsupported, "name a recording")
        .because("this build of vsteer reads files and cannot observe a host")
        .help("give a recording or a file of esxtop -b"))
}

/// Reads a recording and says on standard error what of it was not whole.
///
/// # Errors
/// `NothingThere` if the path does not exist. For a folder as [`Recording::open`], for a batch file as [`esxtop::read`],
/// for text of `perf script`, `trace-cmd` or ftrace as [`sched_trace::read`].
/// A file of another kind is named as what it is, and otherwise taken for a trace of Xen's.
pub fn read(folder: &Path) -> Result<Recording, Fault> {
    let recording = if folder.is_file() && esxtop::is_one(folder) {
        let esxtop::Saved { config, collector, batches, notes } = esxtop::read(folder)?;
        Recording::foreign(folder, config, collector, batches, notes)
    } else if folder.is_file() && sched_trace::is_one(folder) {
        sched_trace::read(folder)?
    } else if folder.is_file() {
        check_kind(folder)?;
        xentrace(folder)?
    } else if !folder.exists() {
        return Err(Fault::new(FaultKind::NothingThere, format!("{} does not exist", folder.display()))
            .help("name a folder that `vsteer record -o NAME` made, or a batch file of `esxtop -b`"));
    } else {
        Recording::open(folder)?
    };
    for note in &recording.notes {
        crate::text::note(note);
    }
    Ok(recording)
}

/// Refuses a file that is certainly not a trace of Xen, and says what it is.
fn check_kind(file: &Path) -> Result<(), Fault> {
    let not_one = || Fault::new(FaultKind::BadInput, format!("{} is not a recording", file.display()));
    match sniff::file(file)? {
        Some(known) if known.reader == Some(sniff::Reader::XenTrace) => Ok(()),
        Some(known) => Err(not_one().because(format!("it is {}", known.name)).help(known.help)),
        None if is_text(file) => {
            let help = "give a folder of `vsteer record`, a batch file of `esxtop -b`, a trace of `xentrace`, or text of `perf script`";
            Err(not_one()
                .because("it is a text file, but not one of `esxtop -b` or `perf script`")
                .help(help))
        }
        None => Ok(()),
    }
}

/// Does the file begin as text? A trace of Xen is binary from its first record on.
fn is_text(file: &Path) -> bool {
    let mut begin = [0; 512];
    let read = std::fs::File::open(file).and_then(|mut f| f.read(&mut begin)).unwrap_or(0);
    let is_plain = |b: &u8| b.is_ascii_graphic() || b.is_ascii_whitespace() || *b >= 0x80;
    read > 0 && begin[..read].iter().all(is_plain)
}

/// A saved trace of Xen.
#[cfg(feature = "host")]
fn xentrace(file: &Path) -> Result<Recording, Fault> {
    use vsteer_host::xen::saved::{Saved, read};
    let Saved { config, collector, batches, notes } = read(file)?;
    Ok(Recording::foreign(file, config, collector, batches, notes))
}

/// GAP(files-only-xentrace): this build reads no traces of Xen, because the Xen backend names their domains.
#[cfg(not(feature = "host"))]
fn xentrace(file: &Path) -> Result<Recording, Fault> {
    Err(Fault::new(FaultKind::Unsupported, format!("cannot read {}", file.display()))
        .because("this build of vsteer reads recordings and files of esxtop, but not traces of Xen")
        .help("record on the Xen host instead: vsteer record -o FOLDER"))
}

/// All of a recording.
///
/// # Errors
/// `BadInput` when it holds no sample.
pub fn whole(recording: Recording) -> Result<Stretch, Fault> {
    let Some(last) = recording.batches.last() else {
        return Err(Fault::new(FaultKind::BadInput, "the recording has no complete sample"));
    };
    let config = recording.config_at(last.mono_ns).clone();
    Ok(Stretch { config, collector: recording.manifest.collector, batches: recording.batches })
}

/// A progress bar of a part (0..=1) of the work.
pub fn progress_of(what: &str, part: f64, note: &str) {
    let mut err = std::io::stderr();
    if !err.is_terminal() {
        return;
    }
    let part = part.clamp(0.0, 1.0);
    let bar: String = (0..30).map(|i| if f64::from(i) < part * 30.0 { '#' } else { '.' }).collect();
    let _ = write!(err, "\r{what} [{bar}] {note} ");
    let _ = err.flush();
}

/// Clears the progress bar.
pub fn progress_done() {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        let _ = write!(err, "\r{:70}\r", "");
        let _ = err.flush();
    }
}
