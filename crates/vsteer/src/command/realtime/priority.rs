//! VMs put first by a real-time class of the kernel's, where there is no sched_ext.

use super::service::Desk;
use super::{BY_PRIORITY, Opened, Refusals, meant};
use crate::cli::RealtimeRun;
use crate::command::steer::GUARD;
use crate::interrupt::{Interrupt, Woken};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use vsteer_act::priority::{Kept, Priority};
use vsteer_act::{Setting, journal_folder};
use vsteer_core::Fault;
use vsteer_core::model;
use vsteer_core::nouns::{Batch, Histogram, HostConfig, Role, Tid, VmId};
use vsteer_host::realtime::Buckets;

/// How often it is looked at who wants how much: what a VM is due changes with the others.
const SHARES_EVERY: Duration = Duration::from_millis(500);
/// How often settings are read again though no thread came or went: somebody may have changed a weight. That takes tens of ms.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Keeps VMs first until interrupted, then puts everything back and reports.
///
/// # Errors
/// As [`Priority::follow`] and [`Priority::end`]; the host cannot be observed.
pub fn keep(
    a: &RealtimeRun,
    json: bool,
    interrupt: &Interrupt,
    host: Opened,
    config: HostConfig,
    desk: Desk,
) -> Result<(), Fault> {
    let priority = Priority::start(a.limit, &[GUARD])?;
    priority.notes().iter().for_each(|note| eprintln!("vsteer: {note}"));
    let mut keeping = Keeping {
        a,
        host,
        config,
        priority,
        refusals: Refusals::default(),
        last: None,
        first: None,
        earlier: BTreeMap::new(),
        begin: Instant::now(),
    };
    let kept = keeping.until_interrupted(interrupt, &desk);
    let told = keeping.told();
    let Keeping { mut host, priority, .. } = keeping;
    let receipts = priority.end(host.actuator()?);
    kept?;
    let mut told = told?;
    told["put_back"] = json!(receipts?.iter().map(|r| r.steps.len()).sum::<usize>());
    if json {
        crate::text::print_json(&told);
    } else {
        print!("{}", super::text::report(&told));
    }
    Ok(())
}

struct Keeping<'a> {
    a: &'a RealtimeRun,
    host: Opened,
    config: HostConfig,
    priority: Priority,
    refusals: Refusals,
    last: Option<Batch>,
    /// What is told counts from here.
    first: Option<Batch>,
    earlier: BTreeMap<String, Kept>,
    begin: Instant,
}

impl Keeping<'_> {
    fn until_interrupted(&mut self, interrupt: &Interrupt, desk: &Desk) -> Result<(), Fault> {
        self.last = Some(self.host.sample()?);
        self.first.clone_from(&self.last);
        self.follow()?;
        desk.ready();
        let now = Instant::now();
        let (mut look, mut shares) = (now + LOOK_EVERY, now + SHARES_EVERY);
        let mut counts_from = self.a.warm_up.map(|warm_up| now + warm_up);
        let mut end = self.a.length.map(|length| counts_from.unwrap_or(now) + length);
        self.begin = now;
        loop {
            let until = [Some(look), Some(shares), counts_from, end].into_iter().flatten().min();
            match interrupt.wait(until, &[desk.asked()]) {
                Woken::Interrupted => return Ok(()),
                Woken::Readable(_) => desk.answer(&self.told()?),
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
                self.follow()?;
                look = now + LOOK_EVERY;
            }
            if counts_from.is_some_and(|from| now >= from) {
                counts_from = None;
                self.begin = now;
                end = self.a.length.map(|length| now + length);
                self.first = Some(self.host.sample()?);
                self.earlier = self.kept()?;
            }
            if counts_from.is_none() && end.is_some_and(|end| now >= end) {
                return Ok(());
            }
        }
    }

    fn follow(&mut self) -> Result<(), Fault> {
        if self.a.measure_only {
            return Ok(());
        }
        let folder = journal_folder();
        let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        let setting = Setting { folder: &folder, connect: self.a.connect.as_deref(), unix_ns };
        let vms = meant(self.a, &self.config);
        self.refusals.take(self.priority.follow(&self.config, vms, self.host.actuator()?, setting)?);
        Ok(())
    }

    /// Tells what each VM is due; have threads come or gone?
    fn share(&mut self) -> Result<bool, Fault> {
        let now = self.host.sample()?;
        let Some(before) = self.last.take() else { return Ok(true) };
        let pair = [before, now];
        // Two samples of a host that has just got its first VM may have nothing in common.
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

    fn told(&mut self) -> Result<Value, Fault> {
        let elapsed = self.begin.elapsed();
        let now = self.host.sample()?;
        let mut kept = self.kept()?;
        let mut vms = Vec::new();
        for vm in meant(self.a, &self.config) {
            let mut told = match kept.remove(&vm.name) {
                Some(kept) => json!(self.earlier.get(&vm.name).map_or(kept.clone(), |e| kept.since(e))),
                None => json!({ "name": vm.name, "first": false }),
            };
            told["wake_to_running_us"] = json!(self.waited(&vm.id, &now).and_then(|h| Buckets::of(&h)));
            vms.push(told);
        }
        let missing = self.host.collector().missing.get("wake_latency").cloned();
        Ok(json!({
            "by": BY_PRIORITY,
            "pid": std::process::id(),
            "seconds": elapsed.as_secs_f64(),
            "honoured": !self.a.measure_only,
            "vms": vms,
            "refused": self.refusals.0,
            "wake_to_running_missing": missing,
        }))
    }

    /// From waking to running, of a VM's vCPU and emulator threads, since counting began.
    fn waited(&self, vm: &VmId, now: &Batch) -> Option<Histogram> {
        let mut all: Option<Histogram> = None;
        let counts = |role| matches!(role, Role::Vcpu(_) | Role::Emulator);
        for thread in now.threads.iter().filter(|t| t.vm == *vm && counts(t.role)) {
            let Some(counted) = &thread.counters.wake_latency else { continue };
            let before = self.first.iter().flat_map(|b| &b.threads).find(|t| t.tid == thread.tid);
            let before = before.and_then(|t| t.counters.wake_latency.as_ref());
            let since = before.map_or_else(|| counted.clone(), |before| counted.since(before));
            all = Some(all.map_or_else(|| since.clone(), |sum| sum.merged(&since)));
        }
        all
    }
}

/// Those that VMs wait for: workers come and go all the time.
fn threads(batch: &Batch) -> impl Iterator<Item = (&VmId, Tid)> {
    batch.threads.iter().filter(|t| t.role != Role::Worker).map(|t| (&t.vm, t.tid))
}
