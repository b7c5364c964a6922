//! Measures how long each thread ran and waited by polling the kernel. This collector needs no eBPF, and no
//! privilege except reading `/proc`.
//!
//! `/proc/PID/task/TID/schedstat` holds three cumulative numbers: run time in ns, run delay in ns, and how
//! often the thread got a pCPU. vsteer keeps the file open and reads it with `pread` into one buffer. So
//! polling a thread costs one system call and a parse without allocation. A thread that ended answers ESRCH.
//!
//! Source: `fs/proc/base.c` (`proc_pid_schedstat`), `kernel/sched/stats.h`, Linux 6.12. If the kernel counts
//! no run delay (no `CONFIG_SCHEDSTATS`, and delay accounting missing or off), the file contains `0 0 0`. It
//! does so even for the thread that reads it, which must have run. That distinguishes this case from a true
//! zero.
//!
//! Left out:
//! - Run delay includes the time throttled by a quota, so ready and limited cannot be separated. `cpu.stat`'s
//!   throttled time is per cgroup and pCPU, and right for a thread only if it is alone in its group.
//! - A wait counts only when it ends, not while it is still open.
//! - Threads beyond the limit of open files are opened again at each poll.

use super::files;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use vsteer_core::nouns::{Collector, Role, ThreadCounters, ThreadSample, Tid, VmId};

/// File descriptors reserved for everything else: pipes to processes, a recording, eBPF.
const FILES_LEFT: u64 = 128;

/// One reading of `schedstat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// Time on a pCPU, ns.
    pub run_ns: u64,
    /// Time ready or throttled by a quota, ns.
    pub wait_ns: u64,
    /// How often the thread got a pCPU.
    pub switches: u64,
}

/// Parses the text of a `schedstat` file; `None` if it is not valid.
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
    /// The VM that the thread belongs to.
    pub vm: VmId,
    /// What the thread does.
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
    /// A collector without threads. Raises the process's limit of open files as far as allowed.
    pub fn new() -> Schedstat {
        let files_max = files::allow_most_open().saturating_sub(FILES_LEFT);
        Schedstat { entries: BTreeMap::new(), counts: counts_run_delay(), files_max, vanished: false }
    }

    /// Does this kernel count run delay at all?
    pub fn counts_run_delay(&self) -> bool {
        self.counts
    }

    /// Describes what this collector measures, and why it lacks the rest.
    pub fn collector(&self) -> Collector {
        collector(self.counts, Reading::default())
    }

    /// Polls exactly these threads from now on. Threads that it already polls keep their descriptors.
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
        // Delay accounting can be switched on while vsteer runs.
        self.counts = counts_run_delay();
    }

    /// Did a thread end since the last [`Schedstat::watch`]?
    pub fn vanished(&self) -> bool {
        self.vanished
    }

    /// The counters of all living threads.
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

/// A thread's counters from a reading.
pub fn counters(reading: Reading) -> ThreadCounters {
    ThreadCounters {
        run_ns: Some(reading.run_ns),
        wait_ns: Some(reading.wait_ns),
        switches: Some(reading.switches),
        ..ThreadCounters::default()
    }
}

/// Describes what polling measures, and why it cannot measure the rest. `counts`: does the kernel count run delay?
/// `of`: an example of a reading.
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

/// Opens the thread's file. The path is `/proc/PID/task/TID`, not `/proc/TID`: if another process now has
/// this tid, the file must not match.
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

/// Does this kernel count? The reader's own thread got a pCPU at least once, so a 0 means no.
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
        // The kernel removes an ended thread a moment after the join.
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
