//! Reads the kernel side's traces before they are overwritten: at each reading, and between them.

use super::{Blame, Cause, Copied};
use crate::clock::{now_ns, thread_cpu_ns};
use crate::layout::{Pcpu, RUNNERS, Runner, WAITS, Wait};
use crate::shared::Shared;
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

/// The time between two readings of the rings: as long as the fullest ring needs to fill by [`FILL`]. The longest is short
/// enough for a burst after a quiet time: 40,000 switches or 10,000 waits a second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));
/// A quarter, so that one late look loses nothing.
const FILL: usize = RUNNERS / 4;
/// Between the readings, charging may take this part of a pCPU's time. The next reading does the rest.
const PART: u32 = 20;
/// It charges for about this long at a time: the thread has a priority above all ordinary ones.
const TURN: Duration = Duration::from_millis(20);
const NICE: i32 = -20;
/// If the keeper has not read the rings by then, the reading does it.
const KEEPER_TAKES: Duration = Duration::from_millis(200);

/// How far the kernel side's rings have been read, and what was read but not charged yet.
///
/// Apart from [`Reader`], because a reading charges for a while, and rings that are not read meanwhile overflow.
struct Rings {
    ran: Arc<Shared<Pcpu>>,
    runners_read: Vec<u32>,
    waits_read: Vec<u32>,
    taken_ns: u64,
    /// Until the rings must be read again.
    pause: Duration,
    taken: VecDeque<Taken>,
    /// A reading waits for them to be read now.
    is_asked: bool,
}

/// What all rings held at one moment.
struct Taken {
    /// When they were read before.
    before: u64,
    waits: Vec<Vec<Wait>>,
    /// Of each pCPU, with the number of those that were lost before them.
    runners: Vec<(Vec<Runner>, u32)>,
}

impl Rings {
    /// Takes all traces up to now.
    fn take(&mut self) {
        let (begun, before) = (now_ns(), self.taken_ns);
        let mut most = 0;
        let mut taken = Taken { before, waits: Vec::new(), runners: Vec::new() };
        // The waits of all pCPUs first: who ran in a wait that has ended is in the rings that are read after it.
        for cpu in 0..self.waits_read.len() {
            // Waits that are lost show in the numbers of their threads.
            let (waits, lost) = self.ran.waits(cpu as u32, &mut self.waits_read[cpu]);
            most = most.max((waits.len() + lost as usize) * RUNNERS / WAITS);
            taken.waits.push(waits);
        }
        for cpu in 0..self.runners_read.len() {
            let runners = self.ran.runners(cpu as u32, &mut self.runners_read[cpu]);
            most = most.max(runners.0.len() + runners.1 as usize);
            taken.runners.push(runners);
        }
        self.taken.push_back(taken);
        self.taken_ns = begun;
        self.is_asked = false;
        let fills = begun.saturating_sub(before) as f64 * FILL as f64 / most.max(1) as f64;
        self.pause = Duration::from_nanos(fills as u64).clamp(PAUSES.0, PAUSES.1);
    }
}

/// The rings, and who waits for them to be read.
struct Kept {
    rings: Mutex<Rings>,
    taken: Condvar,
}

/// Reads the rings and charges what they hold.
pub(crate) struct Reader {
    kept: Arc<Kept>,
    /// The thread that reads the rings.
    keeper: Option<Thread>,
    pub(crate) blame: Blame,
}

impl Reader {
    pub(crate) fn of(ran: Arc<Shared<Pcpu>>, pcpus: u32) -> Reader {
        let none = vec![0; pcpus as usize];
        let rings = Rings {
            ran,
            runners_read: none.clone(),
            waits_read: none,
            taken_ns: now_ns(),
            pause: PAUSES.0,
            taken: VecDeque::new(),
            is_asked: false,
        };
        let kept = Kept { rings: Mutex::new(rings), taken: Condvar::new() };
        Reader { kept: Arc::new(kept), keeper: None, blame: Blame::of(pcpus) }
    }

    fn add(&mut self, Taken { before, waits, runners }: Taken) {
        self.blame.begin_look();
        waits.into_iter().for_each(|waits| self.blame.take_waits(waits));
        for (cpu, runners) in runners.into_iter().enumerate() {
            self.blame.take_switches(cpu as u32, runners, before);
        }
    }

    /// Charges all that was taken, at a reading.
    fn settle(&mut self, copied: &BTreeMap<u32, Copied>) {
        let all = std::mem::take(&mut locked(&self.kept.rings).taken);
        all.into_iter().for_each(|taken| self.add(taken));
        self.blame.settle(Some(copied));
    }

    /// Charges what was taken first. Was there any?
    fn settle_first(&mut self) -> bool {
        let Some(taken) = locked(&self.kept.rings).taken.pop_front() else { return false };
        self.add(taken);
        self.blame.settle(None);
        self.blame.trim(0);
        true
    }

    /// What was charged since the last reading, with the slots as this one copied them (1-based) at `until`.
    pub(crate) fn read(&mut self, copied: &BTreeMap<u32, Copied>, until: u64) -> Vec<(u32, Cause, i64)> {
        self.take();
        self.settle(copied);
        self.blame.hand_out(until)
    }

    /// Has the rings read. This thread must not hold their lock for long: on a busy machine it loses its pCPU, and then the
    /// keeper, which has priority, would wait as long.
    fn take(&self) {
        let begun = now_ns();
        let mut rings = locked(&self.kept.rings);
        let Some(keeper) = &self.keeper else { return rings.take() };
        rings.is_asked = true;
        drop(rings);
        keeper.unpark();
        let rings = locked(&self.kept.rings);
        let waits = |rings: &mut Rings| rings.taken_ns < begun;
        let waited = self.kept.taken.wait_timeout_while(rings, KEEPER_TAKES, waits);
        let (mut rings, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            rings.take();
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the rings if it is time, or a reading asks for it; when to come again.
fn take_if_due(kept: &Kept) -> Duration {
    let mut rings = locked(&kept.rings);
    let since = Duration::from_nanos(now_ns().saturating_sub(rings.taken_ns));
    if since < rings.pause && !rings.is_asked {
        return rings.pause - since;
    }
    rings.take();
    kept.taken.notify_all();
    rings.pause
}

/// Charges what was taken, unless a reading does; a part after the other, with the rings read in between if it is time.
/// Returns how long this thread ran for it, and when to read the rings again.
fn settle_if_free(reader: &Mutex<Reader>, kept: &Kept) -> (Duration, Duration) {
    let mut ran = Duration::ZERO;
    loop {
        let begun = thread_cpu_ns();
        let any = reader.try_lock().is_ok_and(|mut reader| reader.settle_first());
        ran += Duration::from_nanos(thread_cpu_ns().saturating_sub(begun));
        let pause = take_if_due(kept);
        if !any || ran > TURN {
            return (ran, pause);
        }
    }
}

/// Gives this thread the lowest real-time priority, if it may have one, else the lowest nice value. It runs for some
/// milliseconds a second, but where thousands of processes want the pCPUs, it must not come late.
#[allow(unsafe_code)]
fn come_in_time() {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads one sched_param through a valid pointer and does not keep the pointer. 0 is this thread.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const lowest) };
    if done != 0 {
        let _ = setpriority_process(Some(gettid()), NICE);
    }
}

/// A thread that looks between the readings. It ends when this value is dropped.
pub(crate) struct Keeper {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// `confine`: the thread calls it first. All that it needs later is memory.
    ///
    /// # Errors
    /// If no thread can be started, or it cannot be confined.
    pub(crate) fn start(
        reader: &Arc<Mutex<Reader>>,
        confine: Option<fn() -> Result<(), Fault>>,
    ) -> Result<Keeper, Fault> {
        let over = Arc::new(AtomicBool::new(false));
        let (ends, reader) = (Arc::clone(&over), Arc::clone(reader));
        let kept = Arc::clone(&locked(&reader).kept);
        let (to, (tell, told)) = (Arc::clone(&reader), channel());
        let look = move || {
            come_in_time();
            let confined = confine.map_or(Ok(()), |confine| confine());
            let goes_on = confined.is_ok();
            let _ = tell.send(confined);
            let mut settles = Instant::now();
            while goes_on && !ends.load(Ordering::Relaxed) {
                let mut pause = take_if_due(&kept);
                if settles <= Instant::now() {
                    let (ran, until) = settle_if_free(&reader, &kept);
                    (settles, pause) = (Instant::now() + PART * ran, until);
                }
                // Woken too early, it looks again.
                std::thread::park_timeout(pause);
            }
        };
        let failed = |e: &dyn std::fmt::Display| {
            Fault::new(FaultKind::Failed, "cannot start the thread that reads traces").because(e)
        };
        let thread = std::thread::Builder::new().name("vsteer-traces".to_owned()).spawn(look);
        let thread = thread.map_err(|e| failed(&e))?;
        let handle = thread.thread().clone();
        let keeper = Keeper { over, thread: Some(thread) };
        told.recv().map_err(|e| failed(&e))??;
        locked(&to).keeper = Some(handle);
        Ok(keeper)
    }

    /// Has the thread ended, which only a fault of its own can cause?
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
