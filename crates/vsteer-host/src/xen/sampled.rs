//! How long did each vCPU run and wait, without a trace? vsteer repeatedly asks Xen for each vCPU's state.
//!
//! CPU time is Xen's own exact count. The rest of the time between two samples is ready or blocked. If the vCPU did
//! not run in between, it can only have woken up: the states at both ends decide. If it ran, it may have slept and
//! waited many times; then the states around such periods in the last seconds give the ratio. Samples come at random
//! moments, 20 ms apart on average, so that they do not synchronise with a timer of a guest or of the scheduler.
//!
//! **Error.** If a share p of the samples sees a vCPU wait, n samples give p with an error of sqrt(p (1 - p) / n): 1.6
//! points at p = 0.2 after 600 samples, which take 12 s. In addition, vsteer itself runs on a pCPU of Domain-0, so a
//! vCPU that would run there is always seen waiting. If Domain-0 has pCPUs of its own, this second error does not
//! exist.
//!
//! **Parked looks like ready.** This call shows a vCPU parked by a cap as neither running nor blocked, like a ready
//! one. For a domain with a cap, vsteer therefore reports only the sum ([`ThreadCounters::wait_ns`]), never ready
//! time.
//!
//! Source: [`super::xenctrl`].
//!
//! Left out: SSH, because the library works only locally; switches, wake-ups and blame, which need the trace. A domain
//! paused by a person counts as ready until vsteer asks the tools again.

use super::config::{Listed, tid, vm_id};
use super::io;
use super::is_wanted;
use super::tools::Place;
use super::unix_ns;
use super::xenctrl::{VcpuInfo, Xenctrl};
use crate::observe::Observe;
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vsteer_core::nouns::{Batch, Collector, HostConfig, Role, ThreadCounters, ThreadSample};
use vsteer_core::random::Random;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::xentrace::account::Whose;

/// The time between two looks, us: at least a quarter of the mean, plus a random time whose distribution
/// makes every moment equally likely.
const LEAST_US: u64 = 5_000;
const MORE_MEAN_US: f64 = 15_000.0;
const MORE_MOST_US: u64 = 100_000;
/// The weight of a look falls by a factor of e in this time.
const REMEMBERED_NS: f64 = 5e9;
/// How often to ask the tools for new domains.
const ASK_EVERY: Duration = Duration::from_secs(15);

/// The state of a vCPU in one look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Look {
    Running,
    Blocked,
    Waiting,
    /// Paused or offline: the vCPU does not want a pCPU.
    #[default]
    Out,
}

/// What one vCPU did since the first look, ns.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    run_ns: u64,
    wait_ns: u64,
    blocked_ns: u64,
    at_ns: u64,
    cpu_time_ns: u64,
    look: Look,
    pcpu: u32,
    waiting_since: Option<u64>,
    /// Looks before and after times in which the vCPU ran: how many saw it waiting, and how many blocked.
    /// Older looks count less.
    seen: [f64; 2],
}

impl Tally {
    fn new(at_ns: u64, info: &VcpuInfo, look: Look) -> Tally {
        let (waiting_since, pcpu) = ((look == Look::Waiting).then_some(at_ns), info.cpu);
        let cpu_time_ns = info.cpu_time;
        let seen = [0.0; 2];
        Tally { run_ns: 0, wait_ns: 0, blocked_ns: 0, at_ns, cpu_time_ns, look, pcpu, waiting_since, seen }
    }

    fn see(&mut self, at_ns: u64, info: &VcpuInfo, look: Look) {
        let all = at_ns.saturating_sub(self.at_ns);
        let ran = info.cpu_time.saturating_sub(self.cpu_time_ns).min(all);
        let rest = all - ran;
        let looks = [self.look, look];
        let count = |of: &[Look]| looks.iter().filter(|l| of.contains(l)).count() as f64;
        let (waiting, off) = (count(&[Look::Waiting]), count(&[Look::Blocked, Look::Out]));
        if ran > 0 {
            let fades = (-(all as f64) / REMEMBERED_NS).exp();
            self.seen = [self.seen[0] * fades + waiting, self.seen[1] * fades + off];
        }
        let [waiting, off] = if ran > 0 { self.seen } else { [waiting, off] };
        // All looks saw the vCPU running, so the time it did not run was waiting.
        let waited = if waiting + off > 0.0 { waiting / (waiting + off) } else { 1.0 };
        let wait = ((waited * rest as f64) as u64).min(rest);
        self.run_ns += ran;
        self.wait_ns += wait;
        self.blocked_ns += rest - wait;
        self.waiting_since = (look == Look::Waiting && ran == 0).then(|| self.waiting_since.unwrap_or(at_ns));
        (self.at_ns, self.cpu_time_ns, self.look, self.pcpu) = (at_ns, info.cpu_time, look, info.cpu);
    }
}

/// Data shared between the looking thread and its owner.
#[derive(Default)]
struct Shared {
    /// The observed vCPUs, each with whether its domain is paused.
    watched: Mutex<BTreeMap<Whose, bool>>,
    tallies: Mutex<BTreeMap<Whose, Tally>>,
    stop: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn look(&self, library: &mut Xenctrl) {
        let watched = locked(&self.watched).clone();
        for (whose, paused) in watched {
            let info = library.vcpu(whose.0, whose.1);
            let at_ns = mono_ns();
            let mut tallies = locked(&self.tallies);
            let Some(info) = info else {
                tallies.remove(&whose);
                continue;
            };
            let look = match (info.running, info.blocked, info.online) {
                (1.., ..) => Look::Running,
                (_, 1.., _) => Look::Blocked,
                (.., 0) => Look::Out,
                _ if paused => Look::Out,
                _ => Look::Waiting,
            };
            tallies.entry(whose).or_insert_with(|| Tally::new(at_ns, &info, look)).see(at_ns, &info, look);
        }
    }
}

/// A Xen host that vsteer observes by looks instead of a trace.
pub struct SampledHost {
    place: Place,
    wanted: Vec<String>,
    listed: Listed,
    asked: Instant,
    shared: Arc<Shared>,
    looking: Option<JoinHandle<()>>,
}

impl SampledHost {
    /// Reads the configuration and starts to look.
    ///
    /// # Errors
    /// `Usage` for a host over SSH; as [`Xenctrl::open`] and [`Place::run`].
    pub fn open(place: Place, wanted: Vec<String>) -> Result<SampledHost, Fault> {
        if place != Place::Here {
            return Err(Fault::new(
                FaultKind::Usage,
                "--collector sampled works only in the host's Domain-0",
            )
            .help("run vsteer there, or leave out --collector: xentrace works over SSH"));
        }
        let listed = Listed::ask(&place)?;
        super::need_wanted(&wanted, &listed)?;
        let version = listed.info.get("xen_version").cloned().unwrap_or_default();
        let mut library = Xenctrl::open(&version)?;
        let shared = Arc::new(Shared::default());
        let mut host = SampledHost {
            place,
            wanted,
            listed,
            asked: Instant::now(),
            shared: shared.clone(),
            looking: None,
        };
        host.watch();
        shared.look(&mut library);
        let looking = std::thread::Builder::new().name("xen-looks".to_owned()).spawn(move || {
            let mut random = Random::new(u64::from(std::process::id()), 0);
            while !shared.stop.load(Ordering::Relaxed) {
                let more = random.exponential(MORE_MEAN_US) as u64;
                std::thread::sleep(Duration::from_micros(LEAST_US + more.min(MORE_MOST_US)));
                shared.look(&mut library);
            }
        });
        host.looking = Some(looking.map_err(|e| Fault::io("cannot start the sampling thread", &e))?);
        Ok(host)
    }

    fn watch(&mut self) {
        let paused: BTreeSet<u16> = self.listed.domains.iter().filter(|d| d.paused).map(|d| d.id).collect();
        let wanted = self.listed.domains.iter().filter(|d| is_wanted(&self.wanted, &d.name, &vm_id(d)));
        let wanted: BTreeSet<u16> = wanted.map(|d| d.id).collect();
        let all = self.listed.vcpus.iter().filter(|v| wanted.contains(&v.domain));
        let all =
            all.filter_map(|v| Some(((v.domain, u16::try_from(v.index).ok()?), paused.contains(&v.domain))));
        let all: BTreeMap<Whose, bool> = all.collect();
        locked(&self.shared.tallies).retain(|whose, _| all.contains_key(whose));
        *locked(&self.shared.watched) = all;
    }

    fn ask(&mut self) -> Result<(), Fault> {
        self.listed = Listed::ask(&self.place)?;
        self.asked = Instant::now();
        self.watch();
        Ok(())
    }

    /// Xen's tools, which make changes.
    pub fn tools(&mut self) -> &mut Place {
        &mut self.place
    }
}

impl Drop for SampledHost {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(looking) = self.looking.take() {
            let _ = looking.join();
        }
    }
}

impl Observe for SampledHost {
    fn config(&mut self) -> Result<HostConfig, Fault> {
        self.ask()?;
        let mut config = self.listed.config()?;
        config.vms.retain(|vm| is_wanted(&self.wanted, &vm.name, &vm.id));
        Ok(config)
    }

    fn collector(&self) -> Collector {
        let measured = counters(&Tally::default(), false);
        let unseen = "sampling vCPU states does not show it: leave out --collector sampled";
        Collector::new("sampled", |c| measured.holds(c), unseen)
            .without(&["limited_ns"], "Xen reports a vCPU that a cap parks as ready: see wait_ns")
            .without(&["overlap_ns"], "Xen charges interrupts to no vCPU")
            .without(&["exit_ns"], "sampling vCPU states does not show time in the hypervisor")
            .without(&["halt_poll_ns"], "Xen does not poll before it lets a vCPU sleep")
            .without(&["blame"], unseen)
    }

    fn sample(&mut self) -> Result<Batch, Fault> {
        if self.asked.elapsed() > ASK_EVERY {
            self.ask()?;
        }
        let tallies = locked(&self.shared.tallies).clone();
        let now = mono_ns();
        let capped =
            |id: u16| self.listed.shares.values().any(|p| p.shares.get(&id).is_some_and(|s| s.cap > 0));
        let domain = |id: u16| self.listed.domains.iter().find(|d| d.id == id);
        let threads = tallies.iter().filter_map(|((id, index), t)| {
            Some(ThreadSample {
                vm: vm_id(domain(*id)?),
                role: Role::Vcpu((*index).into()),
                tid: tid(*id, (*index).into()),
                last_cpu: Some(t.pcpu),
                waiting_ns: t.waiting_since.map_or(Some(0), |since| Some(t.at_ns.saturating_sub(since))),
                counters: counters(t, capped(*id)),
            })
        });
        // All looks were made a moment ago, at about the same time.
        let at = tallies.values().map(|t| t.at_ns).max().unwrap_or(now);
        Ok(Batch {
            mono_ns: at,
            unix_ns: unix_ns().saturating_sub(now.saturating_sub(at)),
            threads: threads.collect(),
            vms: io::samples(&Place::Here, &self.listed.domains),
            ..Batch::default()
        })
    }
}

/// The counters of a vCPU from its looks.
fn counters(t: &Tally, capped: bool) -> ThreadCounters {
    ThreadCounters {
        run_ns: Some(t.run_ns),
        ready_ns: (!capped).then_some(t.wait_ns),
        wait_ns: Some(t.wait_ns),
        blocked_ns: Some(t.blocked_ns),
        ..ThreadCounters::default()
    }
}

fn mono_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(cpu_time_ms: u64) -> VcpuInfo {
        VcpuInfo { online: 1, cpu_time: cpu_time_ms * 1_000_000, ..VcpuInfo::default() }
    }

    /// Every state in turn, in ms. The run time is exact. The rest is divided according to the looks before
    /// and after.
    #[test]
    fn time_off_the_pcpu_goes_to_what_was_seen_around_it() {
        let at = |ms: u64| ms * 1_000_000;
        let mut t = Tally::new(0, &info(0), Look::Running);
        t.see(at(10), &info(4), Look::Waiting);
        assert_eq!((t.run_ns, t.wait_ns, t.blocked_ns), (at(4), at(6), 0));
        t.see(at(20), &info(4), Look::Blocked);
        assert_eq!((t.wait_ns, t.blocked_ns), (at(11), at(5)));
        // It ran in between. One of the looks around saw it waiting, the other blocked.
        t.see(at(30), &info(9), Look::Running);
        assert_eq!(t.run_ns, at(9));
        assert!(
            t.wait_ns.abs_diff(at(11) + at(5) / 2) < 10_000 && t.run_ns + t.wait_ns + t.blocked_ns == at(30),
            "{t:?}"
        );
        // Both looks saw it running, so waiting and blocked keep their former ratio.
        t.see(at(40), &info(17), Look::Running);
        assert_eq!(t.run_ns, at(17));
        assert!(
            t.wait_ns.abs_diff(at(29) / 2) < 10_000 && t.blocked_ns.abs_diff(at(17) / 2) < 10_000,
            "{t:?}"
        );
        assert_eq!(t.run_ns + t.wait_ns + t.blocked_ns, at(40));
        // If the clock of CPU time runs ahead, the total time stays right.
        t.see(at(41), &info(40), Look::Out);
        assert_eq!(t.run_ns + t.wait_ns + t.blocked_ns, at(41));
    }

    #[test]
    fn a_wait_goes_on_only_while_it_does_not_run() {
        let at = |ms: u64| ms * 1_000_000;
        let mut t = Tally::new(0, &info(0), Look::Waiting);
        t.see(at(10), &info(0), Look::Waiting);
        assert_eq!(t.waiting_since, Some(0));
        t.see(at(20), &info(1), Look::Waiting);
        assert_eq!(t.waiting_since, None);
        t.see(at(30), &info(1), Look::Waiting);
        assert_eq!(t.waiting_since, Some(at(30)));
    }
}
