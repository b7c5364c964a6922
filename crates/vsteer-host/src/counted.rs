//! How often did an event (cache miss, instruction, switch, migration) happen to a VM's vCPUs?
//!
//! The kernel's performance counters tell: one counter per vCPU thread and event, from [`Counting::begin`] to
//! [`Counting::end`]. They count the guest's code and the hypervisor's, because both use the caches. If the processor
//! has too few counters, the kernel multiplexes them and reports how long each counted; vsteer scales the number
//! accordingly.
//!
//! Hardware events are **untried**: no machine with such counters was available, and cloud guests mostly lack them.
//! The kernel's own events (`context-switches`, `cpu-migrations`, `page-faults`) use the same code and are checked
//! with `/proc`.
//!
//! Source: `man 2 perf_event_open`; the names are those of `man 1 perf-list`.
//!
//! Left out: events by number, events of a socket's uncore, groups.

use perf_event::events::{Hardware, Software};
use perf_event::{Builder, Counter};
use std::time::Instant;
use vsteer_core::counted::Event;
use vsteer_core::nouns::Tid;
use vsteer_core::{Fault, FaultKind};

/// An open counter of this thread, or of another; not yet counting.
fn open(event: Event, thread: Option<Tid>) -> std::io::Result<Counter> {
    let builder = match event {
        Event::Instructions => Builder::new().kind(Hardware::INSTRUCTIONS),
        Event::Cycles => Builder::new().kind(Hardware::CPU_CYCLES),
        Event::CacheReferences => Builder::new().kind(Hardware::CACHE_REFERENCES),
        Event::CacheMisses => Builder::new().kind(Hardware::CACHE_MISSES),
        Event::BranchMisses => Builder::new().kind(Hardware::BRANCH_MISSES),
        Event::ContextSwitches => Builder::new().kind(Software::CONTEXT_SWITCHES),
        Event::CpuMigrations => Builder::new().kind(Software::CPU_MIGRATIONS),
        Event::PageFaults => Builder::new().kind(Software::PAGE_FAULTS),
    };
    let mut builder = match thread {
        Some(thread) => builder.observe_pid(i32::try_from(thread.0).unwrap_or(i32::MAX)),
        None => builder.observe_self(),
    };
    builder.include_kernel().include_hv();
    builder.build()
}

/// Can it be counted here?
///
/// # Errors
/// `Unsupported`, `NoPrivilege`: with help.
pub fn available(event: Event) -> Result<(), Fault> {
    open(event, None).map(drop).map_err(|e| cannot(event, &e))
}

fn cannot(event: Event, e: &std::io::Error) -> Fault {
    let what = format!("cannot count {}", event.name());
    match e.kind() {
        std::io::ErrorKind::PermissionDenied => Fault::new(FaultKind::NoPrivilege, what)
            .because(e)
            .help("run as root, or with CAP_PERFMON"),
        _ if event.is_hardwares() => Fault::new(FaultKind::Unsupported, what)
            .because(format!("the kernel offers no such hardware counter on this machine ({e})"))
            .help("measure on a machine that has performance counters (test: `perf stat -e cache-misses true`), or leave out this measure"),
        _ => Fault::io(what, e),
    }
}

/// Counters that count.
pub struct Counting {
    event: Event,
    counters: Vec<Counter>,
    begun: Instant,
}

impl Counting {
    /// Begins to count for these threads together.
    ///
    /// # Errors
    /// A thread that is gone; as [`available`].
    pub fn begin(event: Event, threads: &[Tid]) -> Result<Counting, Fault> {
        let mut counters = Vec::new();
        for thread in threads {
            counters.push(open(event, Some(*thread)).map_err(|e| cannot(event, &e))?);
        }
        for counter in &mut counters {
            counter.enable().map_err(|e| cannot(event, &e))?;
        }
        Ok(Counting { event, counters, begun: Instant::now() })
    }

    /// Events per second of all threads together.
    ///
    /// # Errors
    /// A counter that cannot be read, or that had no turn.
    pub fn end(mut self) -> Result<f64, Fault> {
        let passed_s = self.begun.elapsed().as_secs_f64();
        let mut all = 0.0;
        for counter in &mut self.counters {
            let seen = counter.read_count_and_time().map_err(|e| cannot(self.event, &e))?;
            all += scaled(seen.count, seen.time_enabled, seen.time_running).ok_or_else(|| {
                Fault::new(FaultKind::Failed, format!("cannot count {}", self.event.name()))
                    .because("the kernel never scheduled the counter")
                    .help("stop other users of the processor's counters, or ask for fewer counters")
            })?;
        }
        Ok(all / passed_s.max(f64::MIN_POSITIVE))
    }
}

/// A count, had it counted all of the time that it was enabled. Of a thread that did not run there is nothing to count.
fn scaled(count: u64, enabled_ns: u64, running_ns: u64) -> Option<f64> {
    match (enabled_ns, running_ns) {
        (0, _) => Some(0.0),
        (_, 0) => None,
        (enabled, running) => Some(count as f64 * enabled as f64 / running as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switches() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let counted = status.lines().filter(|l| l.contains("ctxt_switches"));
        counted.map(|l| l.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
    }

    #[test]
    fn a_thread_is_switched_as_often_as_proc_says() {
        let me = Tid(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        let counting = match Counting::begin(Event::ContextSwitches, &[me]) {
            Ok(counting) => counting,
            // Where perf is forbidden to this user nothing can be shown.
            Err(fault) if fault.kind == FaultKind::NoPrivilege => return,
            Err(fault) => panic!("{fault}"),
        };
        let (before, begun) = (switches(), Instant::now());
        for _ in 0..50 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let per_s = counting.end().unwrap();
        let (by_proc, passed_s) = ((switches() - before) as f64, begun.elapsed().as_secs_f64());
        assert!(
            by_proc >= 50.0 && (per_s * passed_s - by_proc).abs() <= 4.0,
            "{} and {by_proc}",
            per_s * passed_s
        );
    }

    #[test]
    fn what_is_not_there_is_named() {
        let gone = Counting::begin(Event::CpuMigrations, &[Tid(u32::MAX)]);
        assert!(gone.is_err_and(|f| f.to_string().contains("cpu-migrations")));
        if let Err(fault) = available(Event::CacheMisses) {
            assert!(fault.to_string().contains("cache-misses") && fault.help.is_some(), "{fault}");
        }
    }

    #[test]
    fn turns_are_scaled() {
        assert_eq!(scaled(10, 100, 100), Some(10.0));
        assert_eq!(scaled(10, 100, 25), Some(40.0));
        assert_eq!((scaled(0, 0, 0), scaled(0, 100, 0)), (Some(0.0), None));
    }
}
