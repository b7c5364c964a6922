//! Stores every context switch on disk: which thread left and which thread got which pCPU, in 12 bytes.
//!
//! Table `event`, in its own segments (`event-0001.arrows`, …: plain Arrow IPC streams, no nulls, no
//! compression):
//!
//! | column     | type        | content                                                                               |
//! |------------|-------------|---------------------------------------------------------------------------------------|
//! | `base_ns`  | run-end u64 | `CLOCK_MONOTONIC`; one run per record batch, so it needs almost no space              |
//! | `since_ns` | u32         | ns since `base_ns`; rows more than 4.29 s apart are in different batches              |
//! | `next`     | u32         | thread that got the pCPU (low 22 bits: thread id, 0 is idle); the pCPU (high 10 bits) |
//! | `prev`     | u32         | thread that left (low 22 bits); its kernel state (high 10 bits; 0: it could run on)   |
//!
//! `vsteer export` unpacks them to columns that any program reads. A thread id needs 22 bits (the kernel's
//! PID_MAX_LIMIT is 2^22), so one of 1,024 pCPUs fits next to it.
//!
//! A row whose state is 1022 is not a switch but a wake-up of `prev`'s thread. Only wake-ups of VMs' threads
//! are stored, and the pCPU is the one that made the wake-up. A row whose state is 1023 stands for lost
//! switches: `prev`'s thread id is their number, and `ns` is the last switch of that pCPU before them. Rows
//! of one pCPU are in order of time. Rows of different pCPUs are not, so the reader sorts.
//!
//! vsteer writes rows once a second or every 65,536 rows, whichever comes first. A separate thread syncs once
//! a second, so that a slow disk does not delay the thread that takes switches. In addition to 12 bytes per
//! row, each write costs some 600 bytes. `events.json` is an [`EventSummary`], replaced at every sync.
//! `task.jsonl` names the threads (see [`crate::task`]). A ring deletes whole segments. Its budget is
//! separate from that of the samples, because switches fill it in a shorter time.
//!
//! Left out: compression (LZ4 would save a third, but a corrupt file could make the reader allocate any
//! amount of memory).

use crate::folder::{
    Recording, arrow_failed, failed, segment_name, segment_path, segments, segments_of, stream,
};
use crate::task::{Task, TaskWriter, Tasks};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt32Type, UInt64Type};
use arrow_array::{Array, PrimitiveArray, RecordBatch, RunArray};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use vsteer_core::Fault;
use vsteer_core::nouns::Tid;
use vsteer_core::timeline::Switch;

const TABLE: &str = "event";
/// The most rows of one write.
const ROWS: usize = 1 << 16;
/// A segment ends at this size, bytes: 4 million switches.
const SEGMENT_BYTES: u64 = 64 << 20;
const TID_BITS: u32 = 22;
const TID_MASK: u32 = (1 << TID_BITS) - 1;
/// `include/linux/sched.h`: the state of a thread that ends.
const TASK_DEAD: u16 = 0x80;

/// Statistics of the recorded switches. If a recording has no summary, the writer ended in its first second.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventSummary {
    /// Switches written to disk (a ring may have removed the oldest again).
    pub recorded: u64,
    /// Wake-ups of VMs' threads, not counted as switches.
    #[serde(default)]
    pub wake_ups: u64,
    /// Switches lost because the kernel's buffer was full.
    pub lost: u64,
    /// Those of `recorded` that the kernel did not report. vsteer inferred them from the next switch of that
    /// pCPU.
    pub unseen: u64,
    /// The increase of the kernel's own count (`ctxt` in /proc/stat) over the recording; `None` if it was not
    /// read at the end.
    pub kernel_switches: Option<u64>,
    /// Switches recorded or lost between the two readings of that count.
    pub recorded_meanwhile: Option<u64>,
    /// Was the recording closed, so that nothing is missing at its end?
    pub closed: bool,
}

impl EventSummary {
    /// The part of the kernel's own count that was recorded or counted as lost; 1.0 means all. `None` if
    /// there is no comparison.
    pub fn coverage(&self) -> Option<f64> {
        let kernel = self.kernel_switches.filter(|k| *k > 0)?;
        Some(self.recorded_meanwhile? as f64 / kernel as f64)
    }
}

fn run_end_u64() -> DataType {
    let field = |name: &str, of: DataType, nullable| Arc::new(Field::new(name, of, nullable));
    DataType::RunEndEncoded(
        field("run_ends", DataType::Int32, false),
        field("values", DataType::UInt64, true),
    )
}

fn schema() -> Arc<Schema> {
    let column = |name: &str, of: DataType, meaning: &str| {
        let meaning = HashMap::from([("meaning".to_owned(), meaning.to_owned())]);
        Field::new(name, of, false).with_metadata(meaning)
    };
    Arc::new(Schema::new(vec![
        column("base_ns", run_end_u64(), "CLOCK_MONOTONIC, ns"),
        column("since_ns", DataType::UInt32, "ns since base_ns"),
        column(
            "next",
            DataType::UInt32,
            "low 22 bits: thread that got the pCPU, 0 is idle; high 10 bits: pCPU",
        ),
        column(
            "prev",
            DataType::UInt32,
            "low 22 bits: thread that lost the pCPU; high 10 bits: its state; 1022: it was woken; 1023: number of lost switches",
        ),
    ]))
}

/// Rows as a record batch.
fn record_batch(base: u64, since: Vec<u32>, next: Vec<u32>, prev: Vec<u32>) -> RecordBatch {
    let bases = RunArray::<Int32Type>::try_new(
        &PrimitiveArray::<Int32Type>::from(vec![since.len() as i32]),
        &PrimitiveArray::<UInt64Type>::from(vec![base]),
    );
    RecordBatch::try_new(
        schema(),
        vec![
            Arc::new(bases.expect("one run ends at the last row")),
            Arc::new(PrimitiveArray::<UInt32Type>::from(since)),
            Arc::new(PrimitiveArray::<UInt32Type>::from(next)),
            Arc::new(PrimitiveArray::<UInt32Type>::from(prev)),
        ],
    )
    .expect("the columns are made by the schema above")
}

/// Switches as the bytes of one segment, for a recording in memory. They are in order of time.
#[derive(Default)]
pub(crate) struct InMemory {
    stream: Option<StreamWriter<Vec<u8>>>,
    base: u64,
    since: Vec<u32>,
    next: Vec<u32>,
    prev: Vec<u32>,
}

impl InMemory {
    /// Adds a switch.
    pub(crate) fn push(&mut self, s: Switch) {
        let since = s.ns.saturating_sub(self.base);
        if self.since.is_empty() || self.since.len() >= ROWS || since > u64::from(u32::MAX) {
            self.write();
            self.base = s.ns;
        }
        self.since.push(s.ns.saturating_sub(self.base) as u32);
        self.next.push(s.next.0 & TID_MASK | s.cpu << TID_BITS);
        self.prev.push(s.prev.0 & TID_MASK | u32::from(s.prev_state) << TID_BITS);
    }

    fn write(&mut self) {
        if self.since.is_empty() {
            return;
        }
        let take = std::mem::take::<Vec<u32>>;
        let rows = record_batch(self.base, take(&mut self.since), take(&mut self.next), take(&mut self.prev));
        let stream = self.stream.get_or_insert_with(|| {
            StreamWriter::try_new(Vec::new(), &schema()).expect("memory takes every byte")
        });
        stream.write(&rows).expect("memory takes every byte");
    }

    /// The name and the bytes of the segment; `None` without switches.
    pub(crate) fn finish(mut self) -> Option<(String, Vec<u8>)> {
        self.write();
        let bytes = self.stream?.into_inner().expect("memory takes every byte");
        Some((segment_name(TABLE, 1), bytes))
    }
}

/// One bit for every possible thread id.
struct Seen(Vec<u64>);

impl Seen {
    fn new() -> Seen {
        let mut s = Seen(vec![0; 1 << (TID_BITS - 6)]);
        s.insert(0); // the idle thread needs no name
        s
    }

    /// True if it was not in the set.
    fn insert(&mut self, tid: u32) -> bool {
        let (word, bit) = ((tid >> 6) as usize, 1u64 << (tid & 63));
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    fn remove(&mut self, tid: u32) {
        self.0[(tid >> 6) as usize] &= !(1 << (tid & 63));
    }
}

/// Writes the switches of a recording, next to the [`crate::Writer`] of its samples.
pub struct EventWriter {
    folder: PathBuf,
    stream: StreamWriter<File>,
    number: u32,
    ring_bytes: Option<u64>,
    ns: Vec<u64>,
    next: Vec<u32>,
    prev: Vec<u32>,
    seen: Seen,
    unnamed: Vec<(u32, u64)>,
    tasks: TaskWriter,
    disk: Disk,
    oldest: u64, // The oldest time of the rows that wait to be written
    newest: u64,
    oldest_ns: BTreeMap<u32, u64>, // segment -> its oldest row
    recorded: u64,
    wake_ups: u64,
}

impl EventWriter {
    /// Starts in the folder of a recording. `ring_bytes`: keep only about this many of the newest bytes of
    /// switches.
    ///
    /// # Errors
    /// If files cannot be created there.
    pub fn create(folder: &Path, ring_bytes: Option<u64>) -> Result<EventWriter, Fault> {
        Ok(EventWriter {
            folder: folder.to_owned(),
            stream: open_stream(folder, 1)?,
            number: 1,
            ring_bytes,
            ns: Vec::with_capacity(ROWS),
            next: Vec::with_capacity(ROWS),
            prev: Vec::with_capacity(ROWS),
            seen: Seen::new(),
            unnamed: Vec::new(),
            tasks: TaskWriter::create(folder, ring_bytes.is_some())?,
            disk: Disk::start()?,
            oldest: u64::MAX,
            newest: 0,
            oldest_ns: BTreeMap::new(),
            recorded: 0,
            wake_ups: 0,
        })
    }

    /// Adds a switch. It is written at the next [`EventWriter::write`], or now if there are enough rows.
    ///
    /// # Errors
    /// As [`EventWriter::write`].
    pub fn push(&mut self, s: Switch) -> Result<(), Fault> {
        assert!(s.cpu < 1 << (32 - TID_BITS), "a pCPU that the observer rejects: {}", s.cpu);
        let (oldest, newest) = (self.oldest.min(s.ns), self.newest.max(s.ns));
        if newest.saturating_sub(oldest) > u64::from(u32::MAX) {
            self.write()?;
        }
        (self.oldest, self.newest) = (self.oldest.min(s.ns), self.newest.max(s.ns));
        let (next, prev) = (s.next.0 & TID_MASK, s.prev.0 & TID_MASK);
        self.ns.push(s.ns);
        self.next.push(next | s.cpu << TID_BITS);
        self.prev.push(prev | u32::from(s.prev_state) << TID_BITS);
        if s.woken().is_some() {
            self.wake_ups += 1;
            self.meet(prev, s.ns);
        } else if s.lost().is_none() {
            self.recorded += 1;
            self.meet(prev, s.ns);
            self.meet(next, s.ns);
            if s.prev_state & TASK_DEAD != 0 {
                self.seen.remove(prev);
                self.tasks.ended(Tid(prev), s.ns);
            }
        }
        if self.ns.len() >= ROWS { self.write() } else { Ok(()) }
    }

    /// Records that a thread was seen at `ns`. A new thread is then listed by [`EventWriter::unnamed`].
    pub fn meet(&mut self, tid: u32, ns: u64) {
        if self.seen.insert(tid & TID_MASK) {
            self.unnamed.push((tid, ns));
        }
    }

    /// The threads seen for the first time since the last call, with the time. The caller should name them.
    pub fn unnamed(&mut self) -> Vec<(u32, u64)> {
        std::mem::take(&mut self.unnamed)
    }

    /// Names a thread.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn name(&mut self, task: Task) -> Result<(), Fault> {
        self.tasks.write(task)
    }

    /// Switches taken so far.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Wake-ups taken so far.
    pub fn wake_ups(&self) -> u64 {
        self.wake_ups
    }

    /// Writes the waiting rows; [`EventWriter::sync`] brings them to the disk.
    ///
    /// # Errors
    /// `NoSpace` on a full disk; what was written before stays readable.
    pub fn write(&mut self) -> Result<(), Fault> {
        self.tasks.flush()?;
        if self.ns.is_empty() {
            return Ok(());
        }
        let base = self.oldest;
        let oldest = self.oldest_ns.entry(self.number).or_insert(base);
        *oldest = base.min(*oldest);
        let rows = self.rows();
        let path = segment_path(&self.folder, TABLE, self.number);
        self.stream.write(&rows).map_err(|e| arrow_failed("cannot write", &path, &e))?;
        let limit = self.ring_bytes.map_or(SEGMENT_BYTES, |r| (r / 8).clamp(64 << 10, SEGMENT_BYTES));
        if self.size(self.number) >= limit {
            self.stream.finish().map_err(|e| arrow_failed("cannot close", &path, &e))?;
            self.sync()?;
            self.number += 1;
            self.stream = open_stream(&self.folder, self.number)?;
        }
        self.ring_bytes.map_or(Ok(()), |limit| self.drop_oldest(limit))
    }

    /// Takes the waiting rows as a record batch.
    fn rows(&mut self) -> RecordBatch {
        let base = std::mem::replace(&mut self.oldest, u64::MAX);
        self.newest = 0;
        let since: Vec<u32> = self.ns.drain(..).map(|ns| (ns - base) as u32).collect();
        let taken = |column: &mut Vec<u32>| std::mem::replace(column, Vec::with_capacity(ROWS));
        let (next, prev) = (taken(&mut self.next), taken(&mut self.prev));
        record_batch(base, since, next, prev)
    }

    fn size(&self, number: u32) -> u64 {
        fs::metadata(segment_path(&self.folder, TABLE, number)).map_or(0, |m| m.len())
    }

    fn drop_oldest(&mut self, limit: u64) -> Result<(), Fault> {
        let numbers = segments(&self.folder, TABLE)?;
        let mut total: u64 = numbers.iter().map(|n| self.size(*n)).sum();
        for n in numbers.into_iter().filter(|n| *n != self.number) {
            if total <= limit {
                break;
            }
            total -= self.size(n);
            let path = segment_path(&self.folder, TABLE, n);
            fs::remove_file(&path).map_err(|e| failed("cannot remove", &path, &e))?;
            self.oldest_ns.remove(&n);
            if let Some(oldest) = self.oldest_ns.values().min() {
                self.tasks.forget_before(*oldest)?;
            }
        }
        Ok(())
    }

    /// Starts to sync what was written, without waiting for it.
    ///
    /// # Errors
    /// If an earlier sync failed.
    pub fn sync(&mut self) -> Result<(), Fault> {
        let path = segment_path(&self.folder, TABLE, self.number);
        let file = self.stream.get_ref().try_clone().map_err(|e| failed("cannot sync", &path, &e))?;
        let tasks = self.tasks.handle()?;
        self.disk.do_later(move || {
            tasks.sync_data().and_then(|()| file.sync_data()).map_err(|e| failed("cannot sync", &path, &e))
        })
    }

    /// Replaces the summary, without waiting for the disk.
    ///
    /// # Errors
    /// If an earlier write failed.
    pub fn summarise(&mut self, summary: &EventSummary) -> Result<(), Fault> {
        let (path, new) = (self.folder.join("events.json"), self.folder.join("events.json.new"));
        let text = serde_json::to_vec_pretty(summary).expect("a summary is plain data");
        self.disk.do_later(move || {
            let written = File::create(&new).and_then(|mut f| {
                f.write_all(&text)?;
                f.sync_all()?;
                fs::rename(&new, &path)
            });
            written.map_err(|e| failed("cannot write", &path, &e))
        })
    }

    /// Writes the rest, closes the stream and writes the summary. A stream that was not closed reads the
    /// same.
    ///
    /// # Errors
    /// As [`EventWriter::write`].
    pub fn finish(mut self, summary: &EventSummary) -> Result<(), Fault> {
        self.write()?;
        let path = segment_path(&self.folder, TABLE, self.number);
        self.stream.finish().map_err(|e| arrow_failed("cannot close", &path, &e))?;
        self.sync()?;
        self.summarise(summary)?;
        self.disk.finish()
    }
}

/// Work for the disk, done in order by its own thread.
struct Disk {
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
    fault: Arc<Mutex<Option<Fault>>>,
}

type Work = Box<dyn FnOnce() -> Result<(), Fault> + Send>;

impl Disk {
    fn start() -> Result<Disk, Fault> {
        let (work, todo) = std::sync::mpsc::channel::<Work>();
        let fault = Arc::new(Mutex::new(None));
        let theirs = Arc::clone(&fault);
        let thread = std::thread::Builder::new().name("vsteer-disk".to_owned()).spawn(move || {
            for work in todo {
                if let Err(e) = work() {
                    theirs.lock().expect("no holder of this lock panics").get_or_insert(e);
                }
            }
        });
        let thread = thread.map_err(|e| Fault::io("cannot start the thread that syncs switches", &e))?;
        Ok(Disk { work: Some(work), thread: Some(thread), fault })
    }

    /// The first fault so far; returned only once.
    fn fault(&self) -> Result<(), Fault> {
        self.fault.lock().expect("no holder of this lock panics").take().map_or(Ok(()), Err)
    }

    fn do_later(&self, work: impl FnOnce() -> Result<(), Fault> + Send + 'static) -> Result<(), Fault> {
        if let Some(to) = &self.work {
            to.send(Box::new(work)).expect("the thread ends when this end is dropped");
        }
        self.fault()
    }

    /// Waits until all work is done.
    fn finish(&mut self) -> Result<(), Fault> {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the thread that syncs does not panic");
        }
        self.fault()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

fn open_stream(folder: &Path, number: u32) -> Result<StreamWriter<File>, Fault> {
    let path = segment_path(folder, TABLE, number);
    let file = File::create(&path).map_err(|e| failed("cannot create", &path, &e))?;
    StreamWriter::try_new(file, &schema()).map_err(|e| arrow_failed("cannot write", &path, &e))
}

/// The recorded switches of a time range.
#[derive(Debug, Clone, Default)]
pub struct Switches {
    /// Switches in order of time. The first ones are, for each pCPU, its last switch before the time range.
    pub switches: Vec<Switch>,
    /// What could not be read, one line each.
    pub notes: Vec<String>,
}

/// The switches of one record batch; `None` if it is not from this table.
fn switches_of(rows: &RecordBatch) -> Option<impl Iterator<Item = Switch> + '_> {
    let u32s = |name: &str| rows.column_by_name(name)?.as_any().downcast_ref::<PrimitiveArray<UInt32Type>>();
    let bases = rows.column_by_name("base_ns")?.as_any().downcast_ref::<RunArray<Int32Type>>()?;
    let base = bases.values().as_primitive_opt::<UInt64Type>().filter(|v| v.len() == 1)?.value(0);
    let (since, next, prev) = (u32s("since_ns")?.values(), u32s("next")?.values(), u32s("prev")?.values());
    Some(since.iter().zip(next.iter().zip(prev)).map(move |(since, (next, prev))| Switch {
        ns: base.saturating_add(u64::from(*since)),
        cpu: next >> TID_BITS,
        prev: Tid(prev & TID_MASK),
        prev_state: (prev >> TID_BITS) as u16,
        next: Tid(next & TID_MASK),
    }))
}

impl Recording {
    /// Were context switches recorded?
    pub fn has_switches(&self) -> bool {
        segments_of(&self.parts, TABLE).is_ok_and(|s| !s.is_empty())
    }

    /// The statistics of the switches; `None` without events, or if the writer ended before it wrote them.
    pub fn event_summary(&self) -> Option<EventSummary> {
        serde_json::from_slice(&self.parts.read("events.json").ok()?).ok()
    }

    /// Passes every recorded switch to `take`, in order of time per pCPU, without holding them all in memory.
    /// Returns one line for each part that could not be read.
    ///
    /// # Errors
    /// The errors of `take`; also if the folder cannot be listed.
    pub fn each_switch<E: From<Fault>>(
        &self,
        mut take: impl FnMut(Switch) -> Result<(), E>,
    ) -> Result<Vec<String>, E> {
        let mut notes = Vec::new();
        for number in segments_of(&self.parts, TABLE)? {
            let mut result = Ok(());
            stream(&self.parts, &segment_name(TABLE, number), &mut notes, |rows| {
                if let Some(all) = switches_of(&rows)
                    && result.is_ok()
                {
                    result = all.into_iter().try_for_each(&mut take);
                }
            });
            result?;
        }
        Ok(notes)
    }

    /// The switches from `from_ns` to `to_ns` (`CLOCK_MONOTONIC`), in order of time.
    ///
    /// # Errors
    /// If the folder cannot be listed.
    pub fn switches(&self, from_ns: u64, to_ns: u64) -> Result<Switches, Fault> {
        let mut before: BTreeMap<u32, Switch> = BTreeMap::new();
        let mut switches = Vec::new();
        let notes = self.each_switch(|s| -> Result<(), Fault> {
            if s.ns < from_ns {
                if s.woken().is_none() {
                    before.insert(s.cpu, s);
                }
            } else if s.ns <= to_ns {
                switches.push(s);
            }
            Ok(())
        })?;
        switches.splice(0..0, before.into_values());
        // The sort is stable, because the order within a pCPU is right even if two switches have the same
        // time.
        switches.sort_by_key(|s| s.ns);
        Ok(Switches { switches, notes })
    }

    /// Names and roles of the recorded threads.
    pub fn tasks(&self) -> Tasks {
        Tasks::read(&self.parts, &self.configs)
    }
}
