//! Writes and reads a recording: raw samples on disk. It is readable to the last complete batch, whatever
//! happened to the writer.
//!
//! `NAME.vsteer/` holds `manifest.json` (what, where, how), `config.jsonl` (the configuration, again after
//! each change) and, per table, segments `thread-0001.arrows`, … Each segment is a plain Arrow IPC stream
//! that other tools can open. One record batch is one moment.
//!
//! The writer writes a batch table by table, `thread` last, and syncs it before the next one. A moment
//! without `thread` rows was not finished, so the reader leaves it out. If a stream breaks off, the reader
//! reads up to the break.
//!
//! A ring keeps the newest bytes by deleting whole segments, all tables of one number together. Every segment
//! can be read without the others. Segments around a mark ([`crate::read_marks`]) stay longer, as long as all
//! of them need at most half of the ring. Recorded context switches are a separate table with its own
//! segments and its own ring: [`crate::event`].
//!
//! Idea: facebookincubator/below stores the raw sample and derives the model on reading.
//!
//! GAP(empty-batch): a batch without any row is read back with time 0, because times stand in rows.

use crate::files;
use crate::own_folder::{self, OwnFolder};
use crate::parts::Parts;
use crate::table::{Past, TABLES, read_rows, rows, schema};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use vsteer_core::limits;
use vsteer_core::nouns::{Batch, Collector, HostConfig};
use vsteer_core::plural::counted;
use vsteer_core::trigger::Mark;
use vsteer_core::{Fault, FaultKind};

/// Version of the folder's format, the only one that vsteer reads. In format 1, which no release wrote,
/// histograms and blame were sums and a switch had 16 bytes. Read as format 2, they would give wrong numbers.
pub const FORMAT: u32 = 2;
/// A segment ends when its files together reach this size, bytes.
const SEGMENT_BYTES: u64 = 32 << 20;
/// Configurations may take this fraction (one in N) of a ring's bytes.
const CONFIG_PART: u64 = 16;
/// The table that is written last. The reader ignores a segment without it.
const LAST_TABLE: &str = "thread";

/// Describes a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`] of the writer.
    pub format: u32,
    /// Version of vsteer that wrote it.
    pub vsteer: String,
    /// The host's name.
    pub hostname: String,
    /// Fingerprint of the first configuration.
    pub fingerprint: String,
    /// `CLOCK_MONOTONIC` at the start, ns.
    pub mono_ns: u64,
    /// Wall-clock time at the start, ns since 1970 UTC.
    pub unix_ns: u64,
    /// How samples were taken and what they lack.
    pub collector: Collector,
}

/// A configuration and its start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConfigAt {
    /// The configuration holds from this `CLOCK_MONOTONIC` time on, ns.
    pub mono_ns: u64,
    /// The configuration.
    pub config: HostConfig,
}

/// The fault with the name that people know in place of a writer's path.
pub fn shown_as(fault: Fault, name: &Path) -> Fault {
    Fault { what: own_folder::shown(&fault.what, name), ..fault }
}

pub(crate) fn failed(what: &str, path: &Path, e: &std::io::Error) -> Fault {
    Fault::io(format!("{what} {}", path.display()), e)
}

pub(crate) fn arrow_failed(what: &str, path: &Path, e: &arrow_schema::ArrowError) -> Fault {
    match e {
        arrow_schema::ArrowError::IoError(_, io) => failed(what, path, io),
        e => Fault::new(FaultKind::BadInput, format!("{what} {}", path.display())).because(e),
    }
}

pub(crate) fn segment_name(table: &str, number: u32) -> String {
    format!("{table}-{number:04}.arrows")
}

pub(crate) fn segment_path(folder: &Path, table: &str, number: u32) -> PathBuf {
    folder.join(segment_name(table, number))
}

/// The numbers of the existing segments of a table, ascending.
pub(crate) fn segments(folder: &Path, table: &str) -> Result<Vec<u32>, Fault> {
    segments_of(&Parts::Folder(folder.to_owned()), table)
}

/// The same of parts that may be in memory.
pub(crate) fn segments_of(parts: &Parts, table: &str) -> Result<Vec<u32>, Fault> {
    let mut numbers: Vec<u32> = parts
        .names()
        .map_err(|e| failed("cannot list", parts.folder(), &e))?
        .into_iter()
        .filter_map(|name| name.strip_prefix(table)?.strip_prefix('-')?.strip_suffix(".arrows")?.parse().ok())
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Writes a recording.
pub struct Writer {
    folder: PathBuf,
    /// Keeps the folder open that `folder` names.
    held: Option<OwnFolder>,
    streams: BTreeMap<&'static str, StreamWriter<File>>,
    number: u32,
    /// State of the current segment.
    past: Past,
    ring_bytes: Option<u64>,
    last_config: HostConfig,
    /// The start of each existing segment, `CLOCK_MONOTONIC`, ns.
    began: BTreeMap<u32, u64>,
    /// Segments around a mark.
    kept: BTreeSet<u32>,
}

impl Writer {
    /// Starts a recording in a new folder. `ring_bytes`: keep only about this many of the newest bytes.
    ///
    /// # Errors
    /// `Usage` if the folder exists (vsteer never overwrites anything), `NoSpace` or `NoPrivilege` if it
    /// cannot be made.
    pub fn create(
        folder: &Path,
        manifest: &Manifest,
        config: &HostConfig,
        ring_bytes: Option<u64>,
    ) -> Result<Writer, Fault> {
        let held = OwnFolder::make(folder)?;
        match Writer::create_in(&held.path(), manifest, config, ring_bytes) {
            Ok(writer) => Ok(Writer { held: Some(held), ..writer }),
            // A full disk leaves no half recording: without its first files, nothing in the folder can be read.
            Err(fault) => {
                held.remove();
                Err(shown_as(fault, folder))
            }
        }
    }

    /// As [`Writer::create`], in a folder that is there and empty.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn create_in(
        folder: &Path,
        manifest: &Manifest,
        config: &HostConfig,
        ring_bytes: Option<u64>,
    ) -> Result<Writer, Fault> {
        let path = folder.join("manifest.json");
        let text = serde_json::to_vec_pretty(manifest).expect("a manifest is plain data");
        let written = File::create(&path).and_then(|mut f| {
            f.write_all(&text)?;
            f.sync_all()
        });
        written.map_err(|e| failed("cannot write", &path, &e))?;
        let mut w = Writer {
            folder: folder.to_owned(),
            held: None,
            streams: BTreeMap::new(),
            number: 0,
            past: Past::default(),
            ring_bytes,
            last_config: config.clone(),
            began: BTreeMap::new(),
            kept: BTreeSet::new(),
        };
        w.append_config(manifest.mono_ns, config)?;
        w.open_segment(1)?;
        Ok(w)
    }

    /// The folder's path for this process, while the writer lives. Faults name it too: see [`shown_as`].
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn append_config(&mut self, mono_ns: u64, config: &HostConfig) -> Result<(), Fault> {
        let path = self.folder.join("config.jsonl");
        let mut line = serde_json::to_vec(&ConfigAt { mono_ns, config: config.clone() }).expect("plain data");
        line.push(b'\n');
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut f| {
                f.write_all(&line)?;
                f.sync_data()
            })
            .map_err(|e| failed("cannot write", &path, &e))?;
        self.last_config = config.clone();
        Ok(())
    }

    fn open_segment(&mut self, number: u32) -> Result<(), Fault> {
        self.finish_streams()?;
        for table in TABLES {
            let path = segment_path(&self.folder, table, number);
            let file = File::create(&path).map_err(|e| failed("cannot create", &path, &e))?;
            let stream = StreamWriter::try_new(file, &schema(table))
                .map_err(|e| arrow_failed("cannot write", &path, &e))?;
            self.streams.insert(table, stream);
        }
        self.number = number;
        self.past = Past::default();
        Ok(())
    }

    fn finish_streams(&mut self) -> Result<(), Fault> {
        for (table, mut stream) in std::mem::take(&mut self.streams) {
            let path = segment_path(&self.folder, table, self.number);
            stream.finish().map_err(|e| arrow_failed("cannot close", &path, &e))?;
            stream.get_ref().sync_data().map_err(|e| failed("cannot sync", &path, &e))?;
        }
        Ok(())
    }

    /// Appends a batch and syncs it. Writes `config` again if it differs from the last one.
    ///
    /// # Errors
    /// `NoSpace` on a full disk; what was written before stays readable.
    pub fn append(&mut self, batch: &Batch, config: &HostConfig) -> Result<(), Fault> {
        self.append_all(batch, config).map_err(|fault| self.named(fault))
    }

    /// The fault with the folder's name in place of its path.
    fn named(&self, fault: Fault) -> Fault {
        match &self.held {
            Some(held) => Fault { what: held.named(&fault.what), ..fault },
            None => fault,
        }
    }

    fn append_all(&mut self, batch: &Batch, config: &HostConfig) -> Result<(), Fault> {
        if *config != self.last_config {
            self.append_config(batch.mono_ns, config)?;
        }
        for table in TABLES {
            let path = segment_path(&self.folder, table, self.number);
            let stream = self.streams.get_mut(table).expect("a segment is open between calls");
            let rows = rows(table, batch, Some(&mut self.past));
            stream.write(&rows).map_err(|e| arrow_failed("cannot write", &path, &e))?;
            stream.get_ref().sync_data().map_err(|e| failed("cannot sync", &path, &e))?;
        }
        self.began.entry(self.number).or_insert(batch.mono_ns);
        let ring = self.ring_bytes;
        let segment_bytes = ring.map_or(SEGMENT_BYTES, |r| (r / 8).clamp(64 << 10, SEGMENT_BYTES));
        if self.segment_size(self.number) >= segment_bytes {
            self.open_segment(self.number + 1)?;
        }
        if let Some(limit) = ring {
            self.drop_oldest(limit)?;
        }
        Ok(())
    }

    fn segment_size(&self, number: u32) -> u64 {
        let size =
            |table: &&str| fs::metadata(segment_path(&self.folder, table, number)).map_or(0, |m| m.len());
        TABLES.iter().map(size).sum()
    }

    /// Marks a moment. The ring then keeps three segments longer: the current one, the one before and the one
    /// after.
    ///
    /// # Errors
    /// `NoSpace` on a full disk.
    pub fn mark(&mut self, mark: &Mark) -> Result<(), Fault> {
        crate::marks::append(&self.folder, mark).map_err(|fault| self.named(fault))?;
        self.kept.extend([self.number.saturating_sub(1), self.number, self.number + 1]);
        Ok(())
    }

    fn drop_oldest(&mut self, limit: u64) -> Result<(), Fault> {
        let current = self.number;
        let sizes: BTreeMap<u32, u64> =
            segments(&self.folder, LAST_TABLE)?.into_iter().map(|n| (n, self.segment_size(n))).collect();
        self.kept.retain(|n| *n >= current || sizes.contains_key(n));
        let mut of_kept: u64 = self.kept.iter().filter_map(|n| sizes.get(n)).sum();
        while of_kept > limit / 2 {
            let Some(oldest) = self.kept.pop_first() else { break };
            of_kept -= sizes.get(&oldest).copied().unwrap_or(0);
        }
        let mut total: u64 = sizes.values().sum();
        let mut dropped = false;
        let old = sizes.iter().filter(|(n, _)| **n != current);
        let (kept, turn): (Vec<_>, Vec<_>) = old.partition(|(n, _)| self.kept.contains(n));
        for (n, size) in turn.into_iter().chain(kept) {
            if total <= limit {
                break;
            }
            total -= size;
            dropped = true;
            self.began.remove(n);
            // Removes `thread` first, because the reader ignores a segment without it.
            for table in TABLES.iter().rev() {
                let path = segment_path(&self.folder, table, *n);
                fs::remove_file(&path).map_err(|e| failed("cannot remove", &path, &e))?;
            }
        }
        if dropped { self.drop_configs(limit / CONFIG_PART) } else { Ok(()) }
    }

    /// If configurations need more than `limit` bytes, drops those that no remaining sample needs, and the
    /// oldest of the others. Threads come and go, and each change adds a line.
    fn drop_configs(&self, limit: u64) -> Result<(), Fault> {
        let path = self.folder.join("config.jsonl");
        if fs::metadata(&path).map_or(0, |m| m.len()) <= limit {
            return Ok(());
        }
        let text = fs::read(&path).map_err(|e| failed("cannot read", &path, &e))?;
        let lines: Vec<&[u8]> = text.split_inclusive(|b| *b == b'\n').collect();
        let oldest = self.began.values().next().copied().unwrap_or(0);
        let later = |l: &&[u8]| serde_json::from_slice::<ConfigAt>(l).is_ok_and(|c| c.mono_ns > oldest);
        // The configuration in force at the oldest sample is the last one that is not newer.
        let first = lines.iter().position(later).unwrap_or(lines.len()).saturating_sub(1);
        let mut rest = &lines[first..];
        // Down to half, so that not every later change rewrites the file.
        while rest.len() > 1 && rest.iter().map(|l| l.len() as u64).sum::<u64>() > limit / 2 {
            rest = &rest[1..];
        }
        crate::marks::replace(&path, &rest.concat())
    }

    /// Closes the streams properly. A recording that was not closed reads the same. The folder's path stays valid while
    /// the writer lives, for the writers of other tables.
    ///
    /// # Errors
    /// If the last bytes cannot be written.
    pub fn finish(&mut self) -> Result<(), Fault> {
        self.finish_streams().map_err(|fault| self.named(fault))
    }
}

/// The content of a recording.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The description of the recording.
    pub manifest: Manifest,
    /// The configuration, first and after each change.
    pub configs: Vec<ConfigAt>,
    /// Every complete batch, in order.
    pub batches: Vec<Batch>,
    /// Incomplete parts that were left out, one line each.
    pub notes: Vec<String>,
    /// The files of the recording. Switches are read only on request.
    pub(crate) parts: Parts,
}

impl Recording {
    /// Reads a recording folder.
    ///
    /// # Errors
    /// `NothingThere` if the folder does not exist, `BadInput` if it is not a recording or has another format.
    pub fn open(folder: &Path) -> Result<Recording, Fault> {
        Recording::of(Parts::Folder(folder.to_owned()))
    }

    /// Opens a recording like [`Recording::open`], from files on disk or in memory.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn of(parts: Parts) -> Result<Recording, Fault> {
        let path = parts.path("manifest.json");
        let text = parts.read("manifest.json").map_err(|e| {
            failed("cannot read", &path, &e).help("name a folder that `vsteer record -o NAME` made")
        })?;
        let foreign = |why: &dyn std::fmt::Display| {
            Fault::new(FaultKind::BadInput, format!("{} is not a vsteer recording", parts.folder().display()))
                .because(why)
        };
        let raw: serde_json::Value = serde_json::from_slice(&text).map_err(|e| foreign(&e))?;
        match raw.get("format").and_then(serde_json::Value::as_u64) {
            Some(f) if f != u64::from(FORMAT) => {
                let help = if f > u64::from(FORMAT) {
                    "read it with a newer vsteer"
                } else {
                    "read it with the vsteer that wrote it, or make a new recording"
                };
                return Err(
                    foreign(&format!("it has format {f}, this vsteer reads format {FORMAT}")).help(help)
                );
            }
            _ => {}
        }
        let manifest: Manifest = serde_json::from_value(raw).map_err(|e| foreign(&e))?;
        let mut notes = Vec::new();
        let configs = read_configs(&parts, &mut notes)?;
        let mut batches = Vec::new();
        for number in segments_of(&parts, LAST_TABLE)? {
            read_segment(&parts, number, &mut batches, &mut notes);
        }
        Ok(Recording { manifest, configs, batches, notes, parts })
    }

    /// A recording in another format, read from `file`: samples under one configuration, no switches.
    pub fn foreign(
        file: &Path,
        config: HostConfig,
        collector: Collector,
        batches: Vec<Batch>,
        notes: Vec<String>,
    ) -> Recording {
        let (mono_ns, unix_ns) = batches.first().map_or((0, 0), |b| (b.mono_ns, b.unix_ns));
        let manifest = Manifest {
            format: FORMAT,
            vsteer: env!("CARGO_PKG_VERSION").to_owned(),
            hostname: config.hostname.clone(),
            fingerprint: config.fingerprint(),
            mono_ns,
            unix_ns,
            collector,
        };
        Recording {
            manifest,
            configs: vec![ConfigAt { mono_ns, config }],
            batches,
            notes,
            parts: Parts::Folder(file.to_owned()),
        }
    }

    /// This recording with files of its own in memory: switches and the names of threads.
    #[must_use]
    pub(crate) fn with_parts(self, parts: BTreeMap<String, Vec<u8>>) -> Recording {
        Recording { parts: Parts::Memory(std::sync::Arc::new(parts)), ..self }
    }

    /// The configuration in force at `mono_ns`.
    pub fn config_at(&self, mono_ns: u64) -> &HostConfig {
        let at = self.configs.iter().rev().find(|c| c.mono_ns <= mono_ns);
        &at.unwrap_or(&self.configs[0]).config
    }

    /// Was the wall clock set back during the recording? Then one wall-clock time may mean two moments of the
    /// recording.
    pub fn clock_went_back(&self) -> bool {
        !self.batches.is_sorted_by_key(|b| b.unix_ns)
    }

    /// The batches from `from_unix_ns` to `to_unix_ns`. If the clock was set back later, the times refer to
    /// the clock at the start of the recording.
    pub fn between(&self, from_unix_ns: u64, to_unix_ns: u64) -> &[Batch] {
        let went_back = self.clock_went_back();
        let first = self.batches.first().map_or((0, 0), |b| (b.mono_ns, b.unix_ns));
        let at = |b: &Batch| {
            if went_back { first.1 + b.mono_ns.saturating_sub(first.0) } else { b.unix_ns }
        };
        let a = self.batches.partition_point(|b| at(b) < from_unix_ns);
        let b = self.batches.partition_point(|b| at(b) <= to_unix_ns);
        &self.batches[a..b.max(a)]
    }
}

fn read_configs(parts: &Parts, notes: &mut Vec<String>) -> Result<Vec<ConfigAt>, Fault> {
    let path = &parts.path("config.jsonl");
    let file = parts.open("config.jsonl").map_err(|e| failed("cannot read", path, &e))?;
    let mut configs = Vec::new();
    for line in files::lines(BufReader::new(file), limits::RECORDING_TEXT) {
        let line = line.map_err(|e| failed("cannot read", path, &e))?;
        match serde_json::from_slice(&line) {
            Ok(c) => configs.push(c),
            Err(_) if line.is_empty() => {}
            Err(e) => notes.push(format!("{}: left out a line: {e}", path.display())),
        }
    }
    if configs.is_empty() {
        return Err(Fault::new(
            FaultKind::BadInput,
            format!("{} holds no complete configuration", path.display()),
        ));
    }
    Ok(configs)
}

/// Runs one step of the Arrow reader. For some corrupt lengths the reader panics instead of returning an
/// error (arrow-buffer 60, `buffer/immutable.rs`). A foreign file must not end the program.
fn contained<T>(step: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(step))
        .map_err(|_| "its contents are garbled".to_owned())
}

/// Passes on the record batches of one stream, up to where it breaks off.
pub(crate) fn stream(
    parts: &Parts,
    name: &str,
    notes: &mut Vec<String>,
    mut give: impl FnMut(arrow_array::RecordBatch),
) {
    // What Arrow writes in place of one more batch when it closes a stream.
    const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    let path = parts.path(name);
    let opened = parts
        .open(name)
        .map_err(|e| e.to_string())
        .and_then(|from| contained(|| StreamReader::try_new(from, None))?.map_err(|e| e.to_string()));
    let mut reader = match opened {
        Ok(r) => r,
        Err(e) => {
            notes.push(format!("{}: cannot read any of it: {e}", path.display()));
            return;
        }
    };
    for whole in 0u64.. {
        match contained(|| reader.next()).and_then(|b| b.transpose().map_err(|e| e.to_string())) {
            Ok(Some(b)) => give(b),
            Ok(None) => {
                // Arrow's reader also takes a cut between two batches, or in the first bytes of one, for the
                // end of the stream.
                if !parts.ends_with(name, END) {
                    notes.push(format!(
                        "{}: not closed, ends after {}",
                        path.display(),
                        counted(whole, "batch")
                    ));
                }
                return;
            }
            Err(e) => {
                notes.push(format!("{}: unreadable after {}: {e}", path.display(), counted(whole, "batch")));
                return;
            }
        }
    }
}

/// The complete part of a segment, up to the first unreadable row, because later rows may depend on it.
fn read_segment(parts: &Parts, number: u32, batches: &mut Vec<Batch>, notes: &mut Vec<String>) {
    let mut tables: Vec<(&str, Vec<arrow_array::RecordBatch>)> = Vec::new();
    for table in TABLES {
        let mut whole = Vec::new();
        stream(parts, &segment_name(table, number), notes, |b| whole.push(b));
        tables.push((table, whole));
    }
    // There is one record batch per moment and table, in the same order, so the i-th of each table belong
    // together.
    let whole = tables.iter().map(|(_, b)| b.len()).min().unwrap_or(0);
    let mut past = Past::default();
    for i in 0..whole {
        let mut batch = Batch::default();
        for (table, streams) in &tables {
            let rows = &streams[i];
            let read = contained(|| read_rows(table, rows, &mut batch, &mut past))
                .unwrap_or_else(|e| Err(arrow_schema::ArrowError::IpcError(e)));
            if let Err(e) = read {
                let path = parts.path(&segment_name(table, number));
                notes.push(format!("{}: unreadable after {}: {e}", path.display(), counted(i, "batch")));
                return;
            }
            if let Some((mono_ns, unix_ns)) = crate::table::stamp_of(rows) {
                (batch.mono_ns, batch.unix_ns) = (mono_ns, unix_ns);
            }
        }
        batches.push(batch);
    }
}
