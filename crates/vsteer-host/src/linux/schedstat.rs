//! How long did each thread run and wait, by asking the kernel again and again? The collector that needs no privilege
//! beyond reading `/proc` and no eBPF.
//!
//! The idea: `/proc/PID/task/TID/schedstat` holds three cumulative numbers (run time ns, run delay ns, times it was
//! given a pCPU). Its file descriptor is kept open and read with `pread` into one buffer, so a poll of a thread is one
//! system call and a parse without allocation. A thread that ended answers ESRCH.
//!
//! Source: `fs/proc/base.c` (`proc_pid_schedstat`), `kernel/sched/stats.h`, Linux 6.12. Where the kernel counts no run
//! delay (neither `CONFIG_SCHEDSTATS` nor delay accounting that is switched on) the file says `0 0 0`, also for the
//! thread that reads it, which surely has run: that distinguishes it from a true zero.
//!
//! Left out: what the run delay cannot tell. It includes the time held by a quota, so ready and limited are not split
//! (`cpu.stat`'s throttled time is per cgroup and pCPU, and right for a thread only where it is alone in its group). A
//! wait that is still open when it is read is counted only when it ends. Threads beyond the limit of open files
//! are opened again at each poll.

use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use vsteer_core::nouns::{Collector, Role, ThreadCounters, ThreadSample, Tid, VmId};

/// File descriptors left for everything else: pipes to processes, a recording, eBPF.
const FILES_LEFT: u64 = 128;

/// Run time, run delay and times given a pCPU, as one reading of `schedstat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// On a pCPU, ns.
    pub run_ns: u64,
    /// Ready or held by a quota, ns.
    pub wait_ns: u64,
    /// Times it was given a pCPU.
    pub switches: u64,
}

/// Reads the text of a `schedstat` file; `None` when it is none.
pub fn parse(text: &[u8]) -> Option<Reading> {
    let mut numbers = [0u64; 3];
    let mut words = text.split(|b| *b == b' ' || *b == b'\n').filter(|w| !w.is_empty());
    for n in &mut numbers {
        let digits = words.next()?;
        for b in digits {
            let digit = b.checked_sub(b'0').filter(|d| *d < 10)?;
            *n = n.checked_mul(10)?.checked_add(u64::from(digit))?;
        }
    }
    if words.next().is_some() {
        return None;
    }
    Some(Reading { run_ns: numbers[0], wait_ns: numbers[1], switches: numbers[2] })
}

/// A thread to poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Polled {
    /// Whose it is.
    pub vm: VmId,
    /// What it does.
    pub role: Role,
    /// Its process.
    pub pid: u32,
    /// Its host thread id.
    pub tid: Tid,
}

struct Entry {
    thread: Polled,
    file: Option<OwnedFd>,
}

/// The polling collector.
pub struct Schedstat {
    entries: BTreeMap<Tid, Entry>,
    counts: bool,
    files_max: u64,
    vanished: bool,
}

impl Schedstat {
    /// A collector that polls nobody yet. Raises the process's limit of open files as far as it may.
    pub fn new() -> Schedstat {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
        let files_max = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).saturating_sub(FILES_LEFT);
        Schedstat { entries: BTreeMap::new(), counts: counts_run_delay(), files_max, vanished: false }
    }

    /// Does this kernel count run delay at all?
    pub fn counts_run_delay(&self) -> bool {
        self.counts
    }

    /// What this collector measures and what not, with the reasons.
    pub fn collector(&self) -> Collector {
        collector(self.counts, Reading::default())
    }

    /// From now on polls exactly these threads. Those known already keep their descriptors.
    pub fn watch(&mut self, threads: &[Polled]) {
        let wanted: BTreeMap<Tid, &Polled> = threads.iter().map(|t| (t.tid, t)).collect();
        self.entries.retain(|tid, e| wanted.get(tid).is_some_and(|t| **t == e.thread));
        for (tid, thread) in wanted {
            if !self.entries.contains_key(&tid) {
                let file = if (self.entries.len() as u64) < self.files_max { open(thread) } else { None };
                self.entries.insert(tid, Entry { thread: thread.clone(), file });
            }
        }
        self.vanished = false;
        // Delay accounting can be switched on while we run.
        self.counts = counts_run_delay();
    }

    /// Did a thread end since the last [`Schedstat::watch`]?
    pub fn vanished(&self) -> bool {
        self.vanished
    }

    /// The counters of all threads that live.
    pub fn read(&mut self) -> Vec<ThreadSample> {
        let mut samples = Vec::with_capacity(self.entries.len());
        let mut gone = false;
        for entry in self.entries.values() {
            let reopened = if entry.file.is_none() { open(&entry.thread) } else { None };
            let Some(reading) = entry.file.as_ref().or(reopened.as_ref()).and_then(read) else {
                gone = true;
                continue;
            };
            let t = &entry.thread;
            let counters = if self.counts { counters(reading) } else { ThreadCounters::default() };
            samples.push(ThreadSample {
                vm: t.vm.clone(),
                role: t.role,
                tid: t.tid,
                last_cpu: None,
                waiting_ns: None,
                counters,
            });
        }
        self.vanished |= gone;
        samples
    }
}

/// What a reading tells of a thread.
pub fn counters(reading: Reading) -> ThreadCounters {
    ThreadCounters {
        run_ns: Some(reading.run_ns),
        wait_ns: Some(reading.wait_ns),
        switches: Some(reading.switches),
        ..ThreadCounters::default()
    }
}

/// What polling measures and what not, with the reasons, on a kernel that counts run delay or does not. `of`: a
/// reading as it is made there.
pub fn collector(counts: bool, of: Reading) -> Collector {
    let measured = counters(of);
    let unseen = "schedstat does not report it: use --collector ebpf";
    let limited = "schedstat's run delay includes throttled time: see wait_ns";
    let each = "it needs every single context switch: use --collector ebpf";
    let collector = Collector::new("schedstat", |c| measured.holds(c), unseen)
        .without(&["ready_ns", "limited_ns"], limited)
        .without(&["wake_latency", "ready_spell", "blame"], each)
        .without(&["exit_ns", "halt_poll_ns"], "schedstat does not measure KVM exits");
    if counts {
        return collector;
    }
    let why =
        "this kernel counts no run delay: sysctl kernel.task_delayacct=1, or a kernel with CONFIG_SCHEDSTATS";
    collector.without(&["run_ns", "wait_ns", "switches"], why)
}

impl Default for Schedstat {
    fn default() -> Self {
        Schedstat::new()
    }
}

/// The thread's file. `/proc/PID/task/TID`, not `/proc/TID`: a tid that was given to another process must not match.
fn open(t: &Polled) -> Option<OwnedFd> {
    let path = format!("/proc/{}/task/{}/schedstat", t.pid, t.tid.0);
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

fn read(file: &OwnedFd) -> Option<Reading> {
    // Three numbers of at most 20 digits.
    let mut buffer = [0u8; 80];
    let n = rustix::io::pread(file, &mut buffer, 0).ok()?;
    parse(&buffer[..n])
}

/// The reader's own thread has been given a pCPU at least once: a kernel that says 0 does not count.
fn counts_run_delay() -> bool {
    std::fs::read("/proc/thread-self/schedstat").ok().and_then(|t| parse(&t)).is_some_and(|r| r.switches > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn myself(role: u32) -> Polled {
        let tid = Tid(rustix::thread::gettid().as_raw_nonzero().get() as u32);
        Polled { vm: VmId("me".into()), role: Role::Vcpu(role), pid: std::process::id(), tid }
    }

    #[test]
    fn a_busy_thread_runs_and_an_ended_one_vanishes() {
        let mut s = Schedstat::new();
        assert!(s.counts_run_delay(), "the kernels this is tested on count");
        let (send, receive) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            send.send(myself(1)).unwrap();
            let _ = stopped.recv();
        });
        let other_thread = receive.recv().unwrap();
        s.watch(&[myself(0), other_thread.clone()]);
        let before = s.read();
        assert_eq!(before.len(), 2);
        let begun = std::time::Instant::now();
        while begun.elapsed().as_millis() < 30 {
            std::hint::black_box(0);
        }
        let after = s.read();
        let run = |samples: &[ThreadSample], tid| {
            samples.iter().find(|t| t.tid == tid).and_then(|t| t.counters.run_ns).unwrap()
        };
        let mine = myself(0).tid;
        assert!(run(&after, mine) - run(&before, mine) > 1_000_000);
        assert!(run(&after, other_thread.tid) - run(&before, other_thread.tid) < 10_000_000);
        assert!(!s.vanished());
        drop(stop);
        other.join().unwrap();
        // The kernel lets go of an ended thread a moment after it is joined.
        for _ in 0..100 {
            s.read();
            if s.vanished() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(s.vanished() && s.read().len() == 1);
    }

    #[test]
    fn what_is_not_measured_is_missing_not_zero() {
        let mut s = Schedstat::new();
        s.counts = false;
        s.entries.insert(myself(0).tid, Entry { thread: myself(0), file: open(&myself(0)) });
        assert_eq!(s.read()[0].counters, ThreadCounters::default());
        assert!(s.collector().missing.contains_key("wait_ns"));
        s.counts = true;
        assert!(!s.collector().missing.contains_key("wait_ns"));
    }

    #[test]
    fn each_counter_that_polling_does_not_tell_has_its_reason() {
        let collector = collector(true, Reading::default());
        let of = |what: &str, word: &str| assert!(collector.missing[what].contains(word), "{what}: {word}");
        let reasons: [(&[&str], &str); 4] = [
            (
                &["blocked_ns", "lag_ns", "migrations", "overlap_ns", "preemptions", "wakeups"],
                "does not report it",
            ),
            (&["limited_ns", "ready_ns"], "throttled time"),
            (&["blame", "ready_spell", "wake_latency"], "every single"),
            (&["exit_ns", "halt_poll_ns"], "KVM exits"),
        ];
        reasons.iter().for_each(|(all, why)| all.iter().for_each(|what| of(what, why)));
        for what in ["run_ns", "wait_ns", "switches", "costop_ns", "system_ns", "used_ns"] {
            assert!(collector.measures(what), "{what} is measured, or no lack");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(s in proptest::collection::vec(any::<u8>(), 0..70)) {
            let _ = parse(&s);
        }

        #[test]
        fn numbers_round_trip(a in any::<u64>(), b in any::<u64>(), c in any::<u64>()) {
            let read = parse(format!("{a} {b} {c}\n").as_bytes());
            prop_assert_eq!(read, Some(Reading { run_ns: a, wait_ns: b, switches: c }));
            prop_assert_eq!(parse(format!("{a} {b}\n").as_bytes()), None);
        }
    }
}
