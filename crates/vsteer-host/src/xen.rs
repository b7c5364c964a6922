//! The Xen host: what its vCPUs do, exactly, by its own trace; how it is set up, by its own tools.
//!
//! `xentrace` writes every change of a vCPU's runstate; [`Accounts`] makes counters of them, so that running, ready, blocked
//! and parked times are measured, each, and none is the rest of the others. It costs nothing to look at them more often.
//! Everything else comes from `xl`, in this Domain-0 or over SSH ([`tools::Place`]); `xl` takes a second, so it is asked
//! when the configuration is wanted, and when a domain appears that is not known.
//!
//! Times are those of Xen's time stamp counters, a moment behind: what `xentrace` writes comes in pieces.
//!
//! Source: xentrace(8), xl(1) of Xen 4.17; `xen/common/trace.c`.
//!
//! Left out: several readers of one trace. Where another `xentrace` runs, the two take each other's records away.

use crate::observe::Observe;
use std::io::Read;
use std::process::ChildStdout;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use vsteer_core::nouns::{
    Batch, BlameSample, Collector, Culprit, HostConfig, PcpuSample, Role, ThreadCounters, ThreadSample,
};
use vsteer_core::{CpuSet, Fault, FaultKind};
use vsteer_record::xentrace::account::{Accounts, Ran, Vcpu};
use vsteer_record::xentrace::{IDLE_DOMAIN, Reader, Runstate};

pub mod config;
pub mod listing;
pub mod tools;

use config::{Listed, tid, vm_id};
use tools::{Place, Running};

/// Runstate changes and nothing else: TRC_SCHED_MIN of xen/include/public/trace.h.
const EVENTS: &str = "0x00021000";
/// `xentrace` looks at the buffers this often, ms.
const POLL_MS: u64 = 50;
/// So a record is this late at most.
const HOLD_MS: u64 = 4 * POLL_MS;
/// Pages of buffer per pCPU: at 12 bytes and more a record, 20,000 of them.
const PAGES: &str = "64";
const OUTPUT: &str = "/proc/self/fd/1";
/// The first records come within this.
const FIRST_WITHIN: Duration = Duration::from_secs(10);
/// An unknown domain is asked for this often at most.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// A Xen host.
pub struct XenHost {
    place: Place,
    listed: Listed,
    asked: Instant,
    tracer: Running,
    pieces: Receiver<Vec<u8>>,
    reader: Reader,
    accounts: Accounts,
    /// Wall-clock time at tick 0.
    epoch_ns: Option<u64>,
    /// Records that were lost, as it was told last.
    told_lost: u64,
}

impl XenHost {
    /// Asks for the configuration and starts the trace.
    ///
    /// # Errors
    /// As [`Place::run`].
    pub fn open(place: Place) -> Result<XenHost, Fault> {
        let listed = Listed::ask(&place)?;
        let mut accounts = Accounts::new(listed.khz()?, HOLD_MS);
        introduce(&mut accounts, &listed);
        let poll = POLL_MS.to_string();
        // It must have a file to write to: its own output. -D: what lay in the buffers is of before.
        let mut tracer = place.start(&["xentrace", "-D", "-e", EVENTS, "-s", &poll, "-S", PAGES, OUTPUT])?;
        let output = tracer.take_output().expect("it was just started");
        Ok(XenHost {
            place,
            listed,
            asked: Instant::now(),
            tracer,
            pieces: pieces_of(output),
            reader: Reader::default(),
            accounts,
            epoch_ns: None,
            told_lost: 0,
        })
    }

    /// What has come of the trace.
    fn read(&mut self) -> Result<(), Fault> {
        let (reader, accounts) = (&mut self.reader, &mut self.accounts);
        for piece in self.pieces.try_iter() {
            reader.feed(&piece, &mut |record| accounts.see(record))?;
        }
        self.accounts.settle();
        if self.accounts.lost > self.told_lost {
            eprintln!(
                "vsteer: Xen had no room for {} records of its trace: waits are missing from what follows",
                self.accounts.lost - self.told_lost
            );
            self.told_lost = self.accounts.lost;
        }
        Ok(())
    }

    fn ask_if_unknown(&mut self) -> Result<(), Fault> {
        let known = |domain: u16| domain == IDLE_DOMAIN || self.listed.domains.iter().any(|d| d.id == domain);
        let unknown = self.accounts.vcpus().keys().any(|w| !known(w.0));
        if unknown && self.asked.elapsed() > ASK_AGAIN {
            self.ask()?;
        }
        Ok(())
    }

    fn ask(&mut self) -> Result<(), Fault> {
        self.listed = Listed::ask(&self.place)?;
        self.asked = Instant::now();
        introduce(&mut self.accounts, &self.listed);
        Ok(())
    }

    fn thread(
        &self,
        domain: &listing::Domain,
        index: u16,
        vcpu: &Vcpu,
        capped: bool,
        siblings: bool,
    ) -> ThreadSample {
        let ns = |state: Runstate| self.accounts.ns(vcpu.ticks[state as usize]);
        // A domain with a cap that is offline is parked by it; one without is paused, and wants nothing.
        let (parked, paused) = match capped {
            true => (ns(Runstate::Offline), 0),
            false => (0, ns(Runstate::Offline)),
        };
        let ready_ns = ns(Runstate::Runnable);
        ThreadSample {
            vm: vm_id(domain),
            role: Role::Vcpu(index.into()),
            tid: tid(domain.id, index.into()),
            last_cpu: vcpu.pcpu.map(u32::from),
            waiting_ns: Some(self.accounts.waiting_ns((domain.id, index))),
            counters: ThreadCounters {
                run_ns: Some(ns(Runstate::Running)),
                ready_ns: Some(ready_ns),
                limited_ns: Some(parked),
                wait_ns: Some(ready_ns + parked),
                blocked_ns: Some(ns(Runstate::Blocked) + paused),
                lag_ns: siblings.then(|| self.accounts.ns(vcpu.lag_ticks)),
                switches: Some(vcpu.dispatches),
                preemptions: Some(vcpu.preemptions),
                wakeups: Some(vcpu.wakes),
                migrations: Some(vcpu.migrations),
                wake_latency: Some(vcpu.wake_latency()),
                ready_spell: Some(vcpu.ready_spell()),
                ..ThreadCounters::default()
            },
        }
    }

    fn batch(&mut self) -> Batch {
        let blame = self.accounts.take_blame();
        let ticks = self.accounts.now().unwrap_or(0);
        let mono_ns = self.accounts.ns(ticks);
        let epoch_ns = *self.epoch_ns.get_or_insert_with(|| unix_ns().saturating_sub(mono_ns));
        let domain = |id: u16| self.listed.domains.iter().find(|d| d.id == id);
        let capped =
            |id: u16| self.listed.shares.values().any(|p| p.shares.get(&id).is_some_and(|s| s.cap > 0));
        let siblings = |id: u16| self.listed.vcpus.iter().filter(|v| v.domain == id).count() > 1;
        let all = self.accounts.vcpus();
        let threads = all.iter().filter_map(|((id, index), vcpu)| {
            Some(self.thread(domain(*id)?, *index, vcpu, capped(*id), siblings(*id)))
        });
        let pcpus = all.iter().filter(|((id, _), _)| *id == IDLE_DOMAIN).map(|((_, cpu), idle)| {
            let idle_ns = self.accounts.ns(idle.ticks[Runstate::Running as usize]);
            let whole_ns: u64 = idle.ticks.iter().map(|t| self.accounts.ns(*t)).sum();
            PcpuSample {
                cpu: u32::from(*cpu),
                user_ns: whole_ns.saturating_sub(idle_ns),
                idle_ns,
                ..PcpuSample::default()
            }
        });
        let blame = blame.into_iter().filter_map(|((id, index), ran, ns)| {
            Some(BlameSample {
                victim: vm_id(domain(id)?),
                role: Role::Vcpu(index.into()),
                culprit: match ran {
                    Ran::Domain(by) => domain(by).map_or(Culprit::Unattributed, |d| Culprit::Vm(vm_id(d))),
                    Ran::Nobody => Culprit::Placement,
                    Ran::Unknown => Culprit::Unattributed,
                },
                ns: ns as i64,
            })
        });
        Batch {
            mono_ns,
            unix_ns: epoch_ns + mono_ns,
            threads: threads.collect(),
            pcpus: pcpus.collect(),
            vms: Vec::new(),
            blame: blame.collect(),
        }
    }
}

impl Observe for XenHost {
    fn config(&mut self) -> Result<HostConfig, Fault> {
        self.ask()?;
        self.listed.config()
    }

    fn collector(&self) -> Collector {
        let missing = [
            ("overlap_ns", "Xen serves interrupts in nobody's name"),
            ("exit_ns", "Xen's trace of runstates does not tell time in the hypervisor"),
            ("halt_poll_ns", "Xen does not poll before it lets a vCPU sleep"),
        ];
        let missing = missing.into_iter().map(|(what, why)| (what.to_owned(), why.to_owned()));
        Collector { name: "xentrace".to_owned(), missing: missing.collect() }
    }

    fn sample(&mut self) -> Result<Batch, Fault> {
        let begin = Instant::now();
        self.read()?;
        while self.accounts.now().is_none() {
            if let Some(fault) = self.tracer.ended() {
                return Err(fault);
            }
            if begin.elapsed() > FIRST_WITHIN {
                let what = format!(
                    "no vCPU on {} changed its state for {} s",
                    self.place.told(),
                    FIRST_WITHIN.as_secs()
                );
                return Err(Fault::new(FaultKind::NothingThere, what)
                    .because("xentrace wrote nothing")
                    .way_out("another xentrace may take the records away: end it"));
            }
            std::thread::sleep(Duration::from_millis(POLL_MS));
            self.read()?;
        }
        if let Some(fault) = self.tracer.ended() {
            return Err(fault);
        }
        self.ask_if_unknown()?;
        Ok(self.batch())
    }
}

/// Tells the accounts where vCPUs may run, and what those do that may never change their state.
fn introduce(accounts: &mut Accounts, listed: &Listed) {
    let everywhere: CpuSet = listed.pools.iter().flat_map(|p| p.cpus.iter()).collect();
    for v in &listed.vcpus {
        let Ok(index) = u16::try_from(v.index) else { continue };
        let whose = (v.domain, index);
        let pool = listed
            .shares
            .iter()
            .find(|(_, s)| s.shares.contains_key(&v.domain))
            .and_then(|(name, _)| listed.pools.iter().find(|p| p.name == *name));
        let pool = pool.map_or(&everywhere, |p| &p.cpus);
        accounts.allow(whose, v.hard.as_ref().map_or_else(|| pool.clone(), |hard| hard.intersection(pool)));
        let pcpu = v.pcpu.and_then(|p| u16::try_from(p).ok());
        let state = match (v.running, v.blocked, pcpu) {
            (true, ..) => Runstate::Running,
            (_, true, _) => Runstate::Blocked,
            (.., None) => Runstate::Offline,
            _ => Runstate::Runnable,
        };
        accounts.assume(whose, state, pcpu);
    }
    // A pCPU that none of them has idles: its idle vCPU has it.
    for cpu in everywhere.iter().filter_map(|p| u16::try_from(p).ok()) {
        let taken = listed.vcpus.iter().any(|v| v.running && v.pcpu == Some(cpu.into()));
        let state = if taken { Runstate::Runnable } else { Runstate::Running };
        accounts.assume((IDLE_DOMAIN, cpu), state, Some(cpu));
    }
}

/// What a pipe brings, as it comes.
fn pieces_of(mut output: ChildStdout) -> Receiver<Vec<u8>> {
    let (send, pieces) = channel();
    std::thread::spawn(move || {
        let mut piece = vec![0; 1 << 16];
        while let Ok(n @ 1..) = output.read(&mut piece) {
            if send.send(piece[..n].to_vec()).is_err() {
                break;
            }
        }
    });
    pieces
}

fn unix_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}
