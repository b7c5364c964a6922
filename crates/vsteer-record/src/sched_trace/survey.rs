//! The first pass over a trace: which threads, pCPUs and events does it have, and is it whole?

use super::EVENTS;
use super::line::{self, Event, Line, What};
use std::collections::BTreeMap;
use vsteer_core::plural::counted;
use vsteer_core::{CpuSet, Fault, FaultKind, limits};

/// Two events of one trace are never further out of order than this, ns.
const BACK_NS: u64 = 100_000_000;

/// A thread of the trace.
#[derive(Debug, Clone, Default)]
pub(super) struct Thread {
    /// Its name, the last one that it had. A name of a vCPU stays.
    pub comm: String,
    /// Its process, if the trace names it.
    pub tgid: Option<u32>,
    /// When it first appeared, ns.
    pub first_ns: u64,
    /// A wake-up came before any switch.
    pub woken_first: bool,
    /// It was in a switch.
    pub switched: bool,
}

/// What the first pass found.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub threads: BTreeMap<u32, Thread>,
    pub pcpus: CpuSet,
    /// The thread that ran on each pCPU before its first switch; `None`: events are missing there.
    pub first_on: BTreeMap<u32, Option<u32>>,
    pub begin_ns: Option<u64>,
    pub end_ns: u64,
    pub switches: u64,
    pub wakes: u64,
    pub others: u64,
    pub garbled: u64,
    /// Events whose clock does not count seconds.
    pub timeless: u64,
    /// The largest step back of the time, ns, and how many there were.
    pub back_ns: u64,
    pub backs: u64,
    pub lost: u64,
    /// Losses of an unknown number of events.
    pub lost_unknown: u64,
    pub overwritten: u64,
    /// Lines that mention a switch, and are in no known form.
    pub unread: u64,
    pub too_many: bool,
    pub hostname: Option<String>,
    pub kernel: Option<String>,
}

impl Survey {
    pub(super) fn see(&mut self, text: &str) {
        match line::read(text) {
            Some(Line::Event(event)) => self.event(&event),
            Some(Line::Lost { cpu, events }) => {
                self.lost += events.unwrap_or(0);
                self.lost_unknown += u64::from(events.is_none());
                if let Some(cpu) = cpu {
                    self.first_on.entry(cpu).or_insert(None);
                }
            }
            Some(Line::Pcpus(n)) if n <= limits::TRACE_PCPU => {
                self.pcpus = self.pcpus.union(&CpuSet::first(n));
            }
            Some(Line::Overwritten(n)) => self.overwritten = n,
            Some(Line::Hostname(name)) => self.hostname = Some(name.to_owned()),
            Some(Line::Kernel(version)) => self.kernel = Some(version.to_owned()),
            Some(Line::Pcpus(_)) | None => self.unread += u64::from(text.contains("sched_switch: ")),
        }
    }

    fn event(&mut self, event: &Event<'_>) {
        let Some(ns) = event.ns else {
            self.timeless += 1;
            return;
        };
        if event.cpu > limits::TRACE_PCPU {
            self.garbled += 1;
            return;
        }
        match &event.what {
            What::Switch(_) => self.switches += 1,
            What::Wake(_) => self.wakes += 1,
            What::Garbled => self.garbled += 1,
            What::Migrate { .. } | What::Other => self.others += 1,
        }
        self.begin_ns.get_or_insert(ns);
        if ns < self.end_ns {
            self.backs += 1;
            self.back_ns = self.back_ns.max(self.end_ns - ns);
        }
        self.end_ns = self.end_ns.max(ns);
        if !self.pcpus.contains(event.cpu) {
            self.pcpus.insert(event.cpu);
        }
        if event.tgid.is_some() && event.tid != 0 {
            self.meet(event.tid, event.comm, ns).tgid = event.tgid;
        }
        match &event.what {
            What::Switch(s) => {
                self.first_on.entry(event.cpu).or_insert(Some(s.prev));
                for (tid, comm) in [(s.prev, s.prev_comm), (s.next, s.next_comm)] {
                    if tid != 0 {
                        self.meet(tid, comm, ns).switched = true;
                    }
                }
            }
            What::Wake(w) => {
                let thread = self.meet(w.tid, w.comm, ns);
                thread.woken_first |= !thread.switched;
            }
            _ => {}
        }
    }

    fn meet(&mut self, tid: u32, comm: &str, ns: u64) -> &mut Thread {
        if self.threads.len() >= limits::TRACE_THREADS && !self.threads.contains_key(&tid) {
            self.too_many = true;
            return self.threads.entry(u32::MAX).or_default();
        }
        let thread = self.threads.entry(tid).or_insert_with(|| Thread { first_ns: ns, ..Thread::default() });
        if thread.comm != comm && !comm.is_empty() && super::names::vcpu(&thread.comm).is_none() {
            comm.clone_into(&mut thread.comm);
        }
        thread
    }

    /// Refuses a trace from which nothing follows.
    pub(super) fn check(&self, name: &str) -> Result<(), Fault> {
        let bad =
            |why: String| Fault::new(FaultKind::BadInput, format!("cannot diagnose {name}")).because(why);
        if self.timeless > 0 {
            return Err(bad(format!("the clock of {} does not count seconds", counted(self.timeless, "event")))
                .help("record with a clock of seconds: echo mono > /sys/kernel/tracing/trace_clock, or trace-cmd -C mono"));
        }
        if self.too_many {
            return Err(bad(format!("it shows more than {} threads", limits::TRACE_THREADS))
                .help("cut a shorter time out of it: perf script --time FROM,TO"));
        }
        if self.switches == 0 {
            let (why, help) = if self.garbled > 0 {
                (
                    "no sched_switch has fields in a known form".to_owned(),
                    "print it again without options such as -F",
                )
            } else if self.unread > 0 {
                (
                    "the lines of sched_switch lack the pCPU or the time".to_owned(),
                    "print it again without the option -F: perf script -i FILE > FILE.txt",
                )
            } else {
                let others = self.wakes + self.others;
                (
                    format!("it has {}, but no sched_switch", counted(others, "other event")),
                    "record the scheduler's events: perf record -a -e sched:sched_switch,sched:sched_wakeup -- sleep 10",
                )
            };
            return Err(bad(why).help(help));
        }
        if self.back_ns > BACK_NS {
            return Err(bad(format!(
                "its time goes back by {:.3} s: the file has several traces",
                self.back_ns as f64 / 1e9
            ))
            .help("give each trace in a file of its own"));
        }
        if self.begin_ns == Some(self.end_ns) {
            return Err(bad("all its events have the same time".to_owned()).help("record for some seconds"));
        }
        Ok(())
    }

    /// What is missing.
    pub(super) fn notes(&self, name: &str, damage: Option<String>) -> Vec<String> {
        let mut notes: Vec<String> = damage.map(|d| format!("{name}: {d}")).into_iter().collect();
        if self.lost > 0 || self.lost_unknown > 0 {
            let times = if self.lost_unknown > 0 { ", and an unknown number more" } else { "" };
            notes.push(format!(
                "{name}: the recorder lost {}{times}: the states of threads are unknown until their next event",
                counted(self.lost, "event")
            ));
        }
        if self.overwritten > 0 {
            notes.push(format!(
                "{name}: ftrace's buffer overwrote {} before the first one here",
                counted(self.overwritten, "event")
            ));
        }
        if self.garbled > 0 {
            notes.push(format!("{name}: left out {} in an unknown form", counted(self.garbled, "event")));
        }
        if self.backs > 0 {
            notes.push(format!(
                "{name}: {} out of order, by at most {:.3} ms: vsteer counts them at the time of the event before",
                counted(self.backs, "event"),
                self.back_ns as f64 / 1e6
            ));
        }
        if self.wakes == 0 {
            notes.push(format!(
                "{name}: no wake-ups are recorded, so ready time is unknown: record with -e {EVENTS}"
            ));
        }
        notes.push(format!(
            "{name}: quotas, weights, affinities and the host's topology are not in the trace; a throttled VM looks ready"
        ));
        notes
    }
}
