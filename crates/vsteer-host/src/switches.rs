//! Writes every context switch of this host from the kernel's buffer to disk, next to the samples.
//!
//! A separate thread empties the buffer every 20 ms, so a slow disk under the samples loses no switch. It passes
//! batches to the [`EventWriter`] without copying single switches. It looks up each new thread id in /proc at once.
//! The kernel passes 256 switches of a pCPU at a time, so on a quiet pCPU the lookup can come too late. All threads
//! that exist at the start are named at the start.
//!
//! The kernel side counts the switches lost for lack of room. The recording also keeps the kernel's own count of
//! context switches (`ctxt` in /proc/stat) for comparison.
//!
//! Left out: switches in unfinished batches when the recorder is killed (at most 255 per pCPU).

use crate::linux::task::text;
use crate::root::Root;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vsteer_bpf::{EventBatch, Events, Observer};
use vsteer_core::nouns::{HostConfig, Role, Tid, VmId};
use vsteer_core::timeline::Switch;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::{EventSummary, EventWriter, Task};

/// Room in the kernel for switches, bytes: half a million, 2.6 s at 200,000 a second.
pub const EVENT_BUFFER_BYTES: u32 = 8 << 20;
/// Between two looks into the buffer.
const LOOK: Duration = Duration::from_millis(20);
/// What was read is on disk after this time.
const WRITE: Duration = Duration::from_secs(1);
/// The recording thread's nice level: 28 times the weight of an ordinary thread, for a few percent of a pCPU.
const NICE: i32 = -15;
/// A program that was running when its probe was detached is done after this time; it runs for microseconds.
const SETTLE: Duration = Duration::from_millis(5);

type Roles = BTreeMap<Tid, (VmId, Role)>;

/// What the two threads tell each other.
struct Shared {
    stop: AtomicBool,
    failed: AtomicBool,
    /// Up to this moment the recorded switches are compared with the kernel's own count, ns.
    to_ns: AtomicU64,
    kernel_switches: AtomicU64,
    recorded: AtomicU64,
    lost: AtomicU64,
    roles: Mutex<(Roles, BTreeMap<u32, VmId>)>, // by thread; by process
}

/// Records the switches until it is finished.
pub struct SwitchRecorder {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<EventSummary, Fault>>,
    kernel_before: Option<u64>,
}

/// The kernel's count of context switches since boot.
fn kernel_switches(root: &Root) -> Option<u64> {
    text(root, "/proc/stat")?.lines().find_map(|l| l.strip_prefix("ctxt ")?.trim().parse().ok())
}

fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

impl SwitchRecorder {
    /// Starts recording into the folder of a recording. `ring_bytes`: keep about the newest bytes of this number.
    ///
    /// # Errors
    /// `Usage` when the observer was not started in event mode; when files cannot be made.
    pub fn start(
        observer: &Observer,
        folder: &Path,
        ring_bytes: Option<u64>,
        config: &HostConfig,
    ) -> Result<SwitchRecorder, Fault> {
        let events = observer.events()?.ok_or_else(|| {
            Fault::new(FaultKind::Usage, "cannot record switches: this observer does not record them")
        })?;
        let writer = EventWriter::create(folder, ring_bytes)?;
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            to_ns: AtomicU64::new(u64::MAX),
            kernel_switches: AtomicU64::new(u64::MAX),
            recorded: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            roles: Mutex::new(roles(config)),
        });
        let (root, theirs) = (Root::live()?, Arc::clone(&shared));
        let (kernel_before, from_ns) = (kernel_switches(&root), now_ns());
        let thread = std::thread::Builder::new()
            .name("vsteer-events".to_owned())
            .spawn(move || {
                let result = record(&events, writer, &root, from_ns, &theirs);
                theirs.failed.store(result.is_err(), Ordering::Relaxed);
                result
            })
            .map_err(|e| Fault::io("cannot start the thread that records switches", &e))?;
        Ok(SwitchRecorder { shared, thread, kernel_before })
    }

    /// Says which threads belong to VMs, from now on.
    pub fn set_config(&self, config: &HostConfig) {
        *self.shared.roles.lock().expect("no holder of this lock panics") = roles(config);
    }

    /// Switches written and lost so far.
    pub fn progress(&self) -> (u64, u64) {
        (self.shared.recorded.load(Ordering::Relaxed), self.shared.lost.load(Ordering::Relaxed))
    }

    /// Has recording failed? [`SwitchRecorder::finish`] says why.
    pub fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Detaches the observer, writes what is left and says what became of the switches.
    ///
    /// # Errors
    /// `NoSpace` on a full disk; when the kernel's tables could not be read.
    pub fn finish(self, mut observer: Observer) -> Result<EventSummary, Fault> {
        let after = Root::live().ok().and_then(|root| kernel_switches(&root));
        self.shared.to_ns.store(now_ns(), Ordering::Relaxed);
        let rise = after.zip(self.kernel_before).map(|(b, a)| b.saturating_sub(a));
        self.shared.kernel_switches.store(rise.unwrap_or(u64::MAX), Ordering::Relaxed);
        observer.detach();
        std::thread::sleep(SETTLE);
        self.shared.stop.store(true, Ordering::Release);
        self.thread.join().expect("the recording thread does not panic")
    }
}

fn roles(config: &HostConfig) -> (Roles, BTreeMap<u32, VmId>) {
    let threads =
        config.vms.iter().flat_map(|vm| vm.threads.iter().map(|t| (t.tid, (vm.id.clone(), t.role))));
    (threads.collect(), config.vms.iter().map(|vm| (vm.pid, vm.id.clone())).collect())
}

/// What is written, and what of it counts against the kernel's own count.
struct Intake<'a> {
    writer: EventWriter,
    shared: &'a Shared,
    from_ns: u64,
    meanwhile: u64,
    lost: BTreeMap<u32, u64>,    // per pCPU
    last_ns: BTreeMap<u32, u64>, // per pCPU
    fault: Option<Fault>,
}

impl Intake<'_> {
    fn take(&mut self, batch: EventBatch<'_>) {
        let to_ns = self.shared.to_ns.load(Ordering::Relaxed);
        let before = self.lost.insert(batch.cpu, batch.lost).unwrap_or(0);
        if batch.lost > before {
            let at = self.last_ns.get(&batch.cpu).copied().unwrap_or(self.from_ns);
            self.push(Switch::loss(batch.cpu, at, batch.lost - before));
        }
        for e in batch.events {
            if e.is_wake_up() {
                self.push(Switch::wake_up(batch.cpu, e.ns, Tid(e.prev_tid())));
                continue;
            }
            self.meanwhile += u64::from((self.from_ns..=to_ns).contains(&e.ns));
            self.push(Switch {
                ns: e.ns,
                cpu: batch.cpu,
                prev: Tid(e.prev_tid()),
                prev_state: e.prev_state() as u16,
                next: Tid(e.next_tid),
            });
        }
        if let Some(last) = batch.events.last() {
            self.last_ns.insert(batch.cpu, last.ns);
        }
    }

    fn push(&mut self, s: Switch) {
        if self.fault.is_none() {
            self.fault = self.writer.push(s).err();
        }
    }

    /// Names the threads met since the last call.
    fn name(&mut self, root: &Root) -> Result<(), Fault> {
        for (tid, ns) in self.writer.unnamed() {
            if let Some(task) = look_up(root, tid, ns, self.shared) {
                self.writer.name(task)?;
            }
        }
        Ok(())
    }

    fn summary(&self, events: &Events) -> Result<EventSummary, Fault> {
        let lost = events.lost()?;
        self.shared.recorded.store(self.writer.recorded(), Ordering::Relaxed);
        self.shared.lost.store(lost, Ordering::Relaxed);
        let unseen = events.unseen();
        Ok(EventSummary {
            recorded: self.writer.recorded(),
            wake_ups: self.writer.wake_ups(),
            lost,
            unseen,
            ..EventSummary::default()
        })
    }
}

fn look_up(root: &Root, tid: u32, mono_ns: u64, shared: &Shared) -> Option<Task> {
    let status = text(root, &format!("/proc/{tid}/status"))?;
    let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
    let tgid: u32 = field("Tgid:")?.parse().ok()?;
    let comm = text(root, &format!("/proc/{tid}/comm"))?.trim_end_matches('\n').to_owned();
    let known = shared.roles.lock().expect("no holder of this lock panics");
    let (vm, role) = match known.0.get(&Tid(tid)) {
        Some((vm, role)) => (Some(vm.clone()), Some(*role)),
        None => (known.1.get(&tgid).cloned(), known.1.get(&tgid).map(|_| Role::Worker)),
    };
    Some(Task { mono_ns, tid: Tid(tid), tgid, comm, vm, role })
}

/// The threads that live now.
fn living(root: &Root) -> Vec<u32> {
    let ids = |path: &str| -> Vec<u32> {
        root.names(path).unwrap_or_default().iter().filter_map(|n| n.parse().ok()).collect()
    };
    ids("/proc").into_iter().flat_map(|pid| ids(&format!("/proc/{pid}/task"))).collect()
}

/// While it lives, this thread is urgent, and so is a thread that it starts. Where VMs wait for a pCPU, the thread that
/// records switches would wait too, and lose what it waits for. It cannot make itself urgent, because it starts after
/// the privileges are dropped.
pub struct Urgent(Option<i32>);

impl Urgent {
    /// Makes this thread urgent, if it may.
    pub fn begin() -> Urgent {
        let before = rustix::process::getpriority_process(None).ok();
        let _ = rustix::process::setpriority_process(None, NICE);
        Urgent(before)
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        // To become less urgent needs no privilege.
        if let Some(before) = self.0 {
            let _ = rustix::process::setpriority_process(None, before);
        }
    }
}

fn record(
    events: &Events,
    writer: EventWriter,
    root: &Root,
    from_ns: u64,
    shared: &Shared,
) -> Result<EventSummary, Fault> {
    let intake = RefCell::new(Intake {
        writer,
        shared,
        from_ns,
        meanwhile: 0,
        lost: BTreeMap::new(),
        last_ns: BTreeMap::new(),
        fault: None,
    });
    let drain = events.drain(|batch| intake.borrow_mut().take(batch))?;
    for tid in living(root) {
        intake.borrow_mut().writer.meet(tid, from_ns);
    }
    let mut written = Instant::now();
    loop {
        // Read before the last look: after it nothing comes any more.
        let stop = shared.stop.load(Ordering::Acquire);
        let more = drain.look()?;
        let mut i = intake.borrow_mut();
        if let Some(fault) = i.fault.take() {
            return Err(fault);
        }
        i.name(root)?;
        if stop && !more {
            break;
        }
        if written.elapsed() >= WRITE {
            written = Instant::now();
            i.writer.write()?;
            i.writer.sync()?;
            let summary = i.summary(events)?;
            i.writer.summarise(&summary)?;
        }
        drop(i);
        if !more {
            std::thread::sleep(LOOK);
        }
    }
    events.rest(|batch| intake.borrow_mut().take(batch))?;
    drop(drain);
    let mut i = intake.into_inner();
    if let Some(fault) = i.fault.take() {
        return Err(fault);
    }
    i.name(root)?;
    let mut summary = i.summary(events)?;
    let kernel = shared.kernel_switches.load(Ordering::Relaxed);
    summary.kernel_switches = (kernel != u64::MAX).then_some(kernel);
    summary.recorded_meanwhile = Some(i.meanwhile + summary.lost);
    summary.closed = true;
    i.writer.finish(&summary)?;
    Ok(summary)
}
