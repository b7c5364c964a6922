//! Every context switch on disk: who left and who got which pCPU, in 12 bytes.
//!
//! Table `event`, in segments of its own (`event-0001.arrows`, …: plain Arrow IPC streams, no nulls, no compression):
//!
//! | column     | type        | what it holds                                                                              |
//! |------------|-------------|--------------------------------------------------------------------------------------------|
//! | `base_ns`  | run-end u64 | `CLOCK_MONOTONIC`; one run per record batch, so it costs next to nothing                   |
//! | `since_ns` | u32         | ns since `base_ns`; rows further apart than 4.29 s are in batches of their own             |
//! | `next`     | u32         | who got the pCPU (low 22 bits: thread id, 0 is idle) and which pCPU (high 10 bits)         |
//! | `prev`     | u32         | who lost it (low 22 bits) and the kernel's state of it (high 10 bits; 0: could run on)     |
//!
//! `vsteer export` unpacks them to columns that any program reads. A thread id needs 22 bits (the kernel's
//! PID_MAX_LIMIT is 2^22), so one pCPU of 1,024 fits next to it. A row whose state is 1022 is not a switch:
//! `prev`'s thread was woken (those of VMs only; the pCPU is the one that this was done on). One whose state is 1023
//! stands for lost switches: `prev`'s thread id is their number, `ns` the last switch of that pCPU before them. Rows
//! of one pCPU are in order of time; those of different pCPUs are not: the reader sorts.
//!
//! Rows are written once a second or every 65,536, whichever comes first, and synced once a second by a thread of
//! their own: a slow disk shall not keep the one who takes switches. Beside 12 bytes a row, each write costs some 600.
//! `events.json` is an [`EventSummary`], replaced at every sync; `task.jsonl` names the threads (see [`crate::task`]).
//! A ring deletes whole segments, by a budget apart from that of the samples: it holds a shorter time.
//!
//! Left out: compression (LZ4 would save a third, and cost the reader memory that a garbled file dictates).

use crate::folder::{Recording, arrow_failed, failed, segment_path, segments, stream};
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
/// Rows of one write.
const ROWS: usize = 1 << 16;
/// A segment is closed at this size, bytes: 4 million switches.
const SEGMENT_BYTES: u64 = 64 << 20;
const TID_BITS: u32 = 22;
const TID_MASK: u32 = (1 << TID_BITS) - 1;
/// `include/linux/sched.h`: the state in which a thread leaves for good.
const TASK_DEAD: u16 = 0x80;

/// What became of the switches. Where a recording has no such summary, the writer ended in its first second.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventSummary {
    /// Written to disk (a ring has removed the oldest again).
    pub recorded: u64,
    /// Wake-ups of VMs' threads, beside the switches.
    #[serde(default)]
    pub wake_ups: u64,
    /// Switches lost for want of room in the kernel's buffer.
    pub lost: u64,
    /// Among those recorded: not reported by the kernel and inferred from the next switch of that pCPU.
    pub unseen: u64,
    /// The kernel's own count (`ctxt` in /proc/stat) over the recording; `None`: it was not read to the end.
    pub kernel_switches: Option<u64>,
    /// Recorded or lost between the two readings of that count.
    pub recorded_meanwhile: Option<u64>,
    /// Was the recording closed, so that nothing of it is missing at the end?
    pub closed: bool,
}

impl EventSummary {
    /// The part of the kernel's own count that was recorded or counted as lost; 1.0 is all. `None`: not compared.
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

/// One bit for every thread id there can be.
struct Seen(Vec<u64>);

impl Seen {
    fn new() -> Seen {
        let mut s = Seen(vec![0; 1 << (TID_BITS - 6)]);
        s.insert(0); // the idle thread needs no name
        s
    }

    /// True when it was not in the set.
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

/// Writes the switches of a recording, beside the [`crate::Writer`] of its samples.
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
    oldest: u64, // of the rows that wait to be written
    newest: u64,
    oldest_ns: BTreeMap<u32, u64>, // segment -> its oldest row
    recorded: u64,
    wake_ups: u64,
}

impl EventWriter {
    /// Starts in the folder of a recording. `ring_bytes`: keep only about this many of the newest bytes of switches.
    ///
    /// # Errors
    /// When files cannot be made there.
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

    /// Adds a switch; it is written at the next [`EventWriter::write`], or here when enough have come.
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

    /// Marks a thread as seen at `ns`; the first time it waits for a name.
    pub fn meet(&mut self, tid: u32, ns: u64) {
        if self.seen.insert(tid & TID_MASK) {
            self.unnamed.push((tid, ns));
        }
    }

    /// The threads seen for the first time since the last call, with the moment: they want a name.
    pub fn unnamed(&mut self) -> Vec<(u32, u64)> {
        std::mem::take(&mut self.unnamed)
    }

    /// Names a thread.
    ///
    /// # Errors
    /// When it cannot be written.
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

    /// Writes what was pushed; [`EventWriter::sync`] brings it to the disk.
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

    /// The rows that wait, as a record batch; none waits afterwards.
    fn rows(&mut self) -> RecordBatch {
        let base = std::mem::replace(&mut self.oldest, u64::MAX);
        self.newest = 0;
        let since: Vec<u32> = self.ns.drain(..).map(|ns| (ns - base) as u32).collect();
        let bases = RunArray::<Int32Type>::try_new(
            &PrimitiveArray::<Int32Type>::from(vec![since.len() as i32]),
            &PrimitiveArray::<UInt64Type>::from(vec![base]),
        );
        let taken = |column: &mut Vec<u32>| {
            PrimitiveArray::<UInt32Type>::from(std::mem::replace(column, Vec::with_capacity(ROWS)))
        };
        RecordBatch::try_new(
            schema(),
            vec![
                Arc::new(bases.expect("one run ends at the last row")),
                Arc::new(PrimitiveArray::<UInt32Type>::from(since)),
                Arc::new(taken(&mut self.next)),
                Arc::new(taken(&mut self.prev)),
            ],
        )
        .expect("the columns are made by the schema above")
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

    /// Has what was written brought to the disk, without waiting for it.
    ///
    /// # Errors
    /// When an earlier one failed.
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
    /// When an earlier write failed.
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

    /// Writes the rest, closes the stream and leaves the summary; an unclosed one reads the same.
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

/// What waits for the disk, done in order by a thread of its own.
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

    /// The first fault so far, once.
    fn fault(&self) -> Result<(), Fault> {
        self.fault.lock().expect("no holder of this lock panics").take().map_or(Ok(()), Err)
    }

    fn do_later(&self, work: impl FnOnce() -> Result<(), Fault> + Send + 'static) -> Result<(), Fault> {
        if let Some(to) = &self.work {
            to.send(Box::new(work)).expect("the thread ends when this end is dropped");
        }
        self.fault()
    }

    /// Waits for all of it.
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

/// The recorded switches of a stretch of time.
#[derive(Debug, Clone, Default)]
pub struct Switches {
    /// Switches in order of time. The first ones are, for each pCPU, its last switch before the time range.
    pub switches: Vec<Switch>,
    /// What could not be read, one line each.
    pub notes: Vec<String>,
}

/// The switches of one record batch; `None` when it is not of our table.
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
        segments(&self.folder, TABLE).is_ok_and(|s| !s.is_empty())
    }

    /// What became of the switches; `None` without events, or where the writer did not come to say.
    pub fn event_summary(&self) -> Option<EventSummary> {
        serde_json::from_slice(&fs::read(self.folder.join("events.json")).ok()?).ok()
    }

    /// Hands over every recorded switch, each pCPU's in order of time, without holding them all; what could not be
    /// read is returned, one line each.
    ///
    /// # Errors
    /// What `take` returns, or when the folder cannot be listed.
    pub fn each_switch<E: From<Fault>>(
        &self,
        mut take: impl FnMut(Switch) -> Result<(), E>,
    ) -> Result<Vec<String>, E> {
        let mut notes = Vec::new();
        for number in segments(&self.folder, TABLE)? {
            let path = segment_path(&self.folder, TABLE, number);
            let mut result = Ok(());
            stream(&path, &mut notes, |rows| {
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
    /// When the folder cannot be listed.
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
        // Stable: a pCPU's own order is right even where two of its switches bear one time.
        switches.sort_by_key(|s| s.ns);
        Ok(Switches { switches, notes })
    }

    /// Names and roles of the recorded threads.
    pub fn tasks(&self) -> Tasks {
        Tasks::read(&self.folder, &self.configs)
    }
}
