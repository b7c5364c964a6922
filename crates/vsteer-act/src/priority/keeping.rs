//! Keeps VMs first until the user asks to stop: which VMs run, and what share is each due?
//!
//! A VM's share changes with the demand of the others, so this loop reads shares twice a second. When threads come or
//! go, it reads the settings again at once. It also reads them at intervals, because somebody may have changed a
//! weight. After a warm-up, the reported counts start at its end.
//!
//! Left out: signals, printing, and questions from other processes. An [`Attend`] brings these.

use super::{Kept, Priority};
use crate::apply::{Receipt, Setting};
use crate::journal::journal_folder;
use crate::watchdog::unix_ns;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use vsteer_core::Fault;
use vsteer_core::model;
use vsteer_core::nouns::{Batch, Histogram, HostConfig, Role, Tid, VmConfig, VmId};
use vsteer_host::backend::Host;
use vsteer_host::realtime::Buckets;

/// How often to check which VM wants how much.
const SHARES_EVERY: Duration = Duration::from_millis(500);
/// How often settings are read again though no thread came or went. That takes tens of ms.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// What is to be kept.
pub struct Asked<'a> {
    /// Which VMs.
    pub meant: &'a dyn Fn(&VmConfig) -> bool,
    /// The host's connection URI.
    pub connect: Option<&'a str>,
    /// Measure how late they are, and put nobody first.
    pub measure_only: bool,
    /// A warm-up: the reported counts leave out this time at the start.
    pub warm_up: Option<Duration>,
    /// For how long; `None`: until asked to stop.
    pub length: Option<Duration>,
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// Asked to stop.
    Stop,
    /// Another process asks for the counts.
    Asked,
    /// It was time.
    Time,
}

/// Who waits, and answers others.
pub trait Attend {
    /// VMs are kept first from here on.
    fn ready(&mut self);
    /// Waits until `then`, until asked to stop, or until somebody asks.
    fn wait(&mut self, then: Option<Instant>) -> Woken;
    /// Answers all requests.
    fn answer(&mut self, told: Value);
    /// Hears why VMs are not put first now, by name.
    fn refused(&mut self, why: BTreeMap<String, Fault>);
}

/// VMs that are kept first.
pub struct Keeping<'a> {
    asked: Asked<'a>,
    host: Box<dyn Host>,
    config: HostConfig,
    priority: Priority,
    last: Option<Batch>,
    /// The counts that are reported start here.
    first: Option<Batch>,
    earlier: BTreeMap<String, Kept>,
    begin: Instant,
}

impl<'a> Keeping<'a> {
    /// Nobody is put first yet.
    pub fn new(asked: Asked<'a>, host: Box<dyn Host>, config: HostConfig, priority: Priority) -> Keeping<'a> {
        Keeping {
            asked,
            host,
            config,
            priority,
            last: None,
            first: None,
            earlier: BTreeMap::new(),
            begin: Instant::now(),
        }
    }

    /// Keeps them first until asked to stop, or for as long as was asked for.
    ///
    /// # Errors
    /// As [`Priority::follow`]; the host cannot be observed. What was set stays until [`Keeping::end`].
    pub fn keep(&mut self, attend: &mut dyn Attend) -> Result<(), Fault> {
        self.last = Some(self.host.sample()?);
        self.first.clone_from(&self.last);
        self.follow(attend)?;
        attend.ready();
        let now = Instant::now();
        let (mut look, mut shares) = (now + LOOK_EVERY, now + SHARES_EVERY);
        let mut counts_from = self.asked.warm_up.map(|warm_up| now + warm_up);
        let mut end = self.asked.length.map(|length| counts_from.unwrap_or(now) + length);
        self.begin = now;
        loop {
            let until = [Some(look), Some(shares), counts_from, end].into_iter().flatten().min();
            match attend.wait(until) {
                Woken::Stop => return Ok(()),
                Woken::Asked => attend.answer(self.told()?),
                Woken::Time => {}
            }
            let now = Instant::now();
            if now >= shares {
                if self.share()? {
                    look = now;
                }
                shares = now + SHARES_EVERY;
            }
            if now >= look {
                self.config = self.host.config()?;
                self.follow(attend)?;
                look = now + LOOK_EVERY;
            }
            if counts_from.is_some_and(|from| now >= from) {
                counts_from = None;
                self.begin = now;
                end = self.asked.length.map(|length| now + length);
                self.first = Some(self.host.sample()?);
                self.earlier = self.kept()?;
            }
            if counts_from.is_none() && end.is_some_and(|end| now >= end) {
                return Ok(());
            }
        }
    }

    /// Puts everything back.
    ///
    /// # Errors
    /// As [`Priority::end`].
    pub fn end(self) -> Result<Vec<Receipt>, Fault> {
        let Keeping { mut host, priority, .. } = self;
        priority.end(host.actuator()?)
    }

    /// What became of the VMs since counting began.
    ///
    /// # Errors
    /// The host cannot be observed, or the keeper is gone.
    pub fn told(&mut self) -> Result<Value, Fault> {
        let elapsed = self.begin.elapsed();
        let now = self.host.sample()?;
        let mut kept = self.kept()?;
        let mut vms = Vec::new();
        for vm in self.config.vms.iter().filter(|vm| (self.asked.meant)(vm)) {
            let mut told = match kept.remove(&vm.name) {
                Some(kept) => json!(self.earlier.get(&vm.name).map_or(kept.clone(), |e| kept.since(e))),
                None => json!({ "name": vm.name, "first": false }),
            };
            let waited = woken(&vm.id, self.first.as_ref(), &now);
            told["wake_to_running_us"] = json!(waited.and_then(|h| Buckets::of(&h)));
            vms.push(told);
        }
        let missing = self.host.collector().missing.get("wake_latency").cloned();
        Ok(json!({
            "pid": std::process::id(),
            "seconds": elapsed.as_secs_f64(),
            "honoured": !self.asked.measure_only,
            "vms": vms,
            "wake_to_running_missing": missing,
        }))
    }

    fn follow(&mut self, attend: &mut dyn Attend) -> Result<(), Fault> {
        if self.asked.measure_only {
            return Ok(());
        }
        let folder = journal_folder();
        let setting = Setting { folder: &folder, connect: self.asked.connect, unix_ns: unix_ns() };
        let vms = self.config.vms.iter().filter(|vm| (self.asked.meant)(vm));
        attend.refused(self.priority.follow(&self.config, vms, self.host.actuator()?, setting)?);
        Ok(())
    }

    /// Tells what each VM is due; have threads come or gone?
    fn share(&mut self) -> Result<bool, Fault> {
        let now = self.host.sample()?;
        let Some(before) = self.last.take() else { return Ok(true) };
        let pair = [before, now];
        // Two samples of a host that has just got its first VM may share no thread.
        if let Ok(model) = model::derive(&self.config, &self.host.collector(), &pair) {
            self.priority.shares(&self.config, &model)?;
        }
        let [before, now] = pair;
        let changed = !threads(&before).eq(threads(&now));
        self.last = Some(now);
        Ok(changed)
    }

    fn kept(&self) -> Result<BTreeMap<String, Kept>, Fault> {
        Ok(self.priority.report()?.into_iter().map(|kept| (kept.name.clone(), kept)).collect())
    }
}

/// From waking to running, of a VM's vCPU and emulator threads, since `first`.
fn woken(vm: &VmId, first: Option<&Batch>, now: &Batch) -> Option<Histogram> {
    let mut all: Option<Histogram> = None;
    let counts = |role| matches!(role, Role::Vcpu(_) | Role::Emulator);
    for thread in now.threads.iter().filter(|t| t.vm == *vm && counts(t.role)) {
        let Some(counted) = &thread.counters.wake_latency else { continue };
        let before = first.iter().flat_map(|b| &b.threads).find(|t| t.tid == thread.tid);
        let before = before.and_then(|t| t.counters.wake_latency.as_ref());
        let since = before.map_or_else(|| counted.clone(), |before| counted.since(before));
        all = Some(all.map_or_else(|| since.clone(), |sum| sum.merged(&since)));
    }
    all
}

/// The threads of VMs, except workers, which QEMU starts and ends all the time.
fn threads(batch: &Batch) -> impl Iterator<Item = (&VmId, Tid)> {
    batch.threads.iter().filter(|t| t.role != Role::Worker).map(|t| (&t.vm, t.tid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::nouns::{ThreadCounters, ThreadSample};

    fn sample(tid: u32, role: Role, woken: Option<u64>) -> ThreadSample {
        let wake_latency = woken.map(|n| Histogram::from_row(&[0, 0, 0, n]));
        ThreadSample {
            vm: VmId("a".into()),
            role,
            tid: Tid(tid),
            last_cpu: None,
            waiting_ns: None,
            counters: ThreadCounters { wake_latency, ..ThreadCounters::default() },
        }
    }

    fn batch(threads: Vec<ThreadSample>) -> Batch {
        Batch { threads, ..Batch::default() }
    }

    #[test]
    fn waits_are_those_since_counting_began() {
        let first = batch(vec![sample(1, Role::Vcpu(0), Some(5))]);
        let now = batch(vec![
            sample(1, Role::Vcpu(0), Some(12)),
            // One that came later counts whole; a worker's waits are nobody's.
            sample(2, Role::Emulator, Some(3)),
            sample(3, Role::Worker, Some(100)),
        ]);
        let total = |vm: &str| woken(&VmId(vm.into()), Some(&first), &now).map(|h| h.total());
        assert_eq!((total("a"), total("b")), (Some(10), None));
        let uncounted = batch(vec![sample(1, Role::Vcpu(0), None)]);
        assert_eq!(woken(&VmId("a".into()), None, &uncounted), None);
    }

    #[test]
    fn workers_that_come_and_go_are_no_change() {
        let with = |workers: u32| {
            let all = (10..10 + workers).map(|tid| sample(tid, Role::Worker, None));
            batch(std::iter::once(sample(1, Role::Vcpu(0), None)).chain(all).collect())
        };
        assert!(threads(&with(0)).eq(threads(&with(3))));
        assert!(!threads(&with(0)).eq(threads(&batch(Vec::new()))));
    }
}
