//! Who made whom wait?
//!
//! The kernel side leaves two traces per pCPU: who got it when, and which wait ended when. Here they come together: the
//! part of a wait in which somebody else had the pCPU is charged to that one. While any pCPU idled that the waiting thread
//! may use, nobody is to blame but the placement. What was not seen is `Unattributed`. So the charges of a thread sum up to
//! the time that it was ready, whatever was lost.
//!
//! A wait that has not ended is charged at each reading up to then. If its end says that a quota held the thread for part
//! of it, that part is taken back.
//!
//! Left out: runners of other pCPUs that kept the thread from moving there.

mod history;
mod idle;
mod reader;

use crate::layout::{CulpritKey, Runner, Wait, culprit};
use history::{History, Ran};
use idle::Idle;
pub(crate) use reader::{Keeper, Reader};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use vsteer_core::CpuSet;

/// Spells kept over all pCPUs between two readings: 32 MiB. With more of them, each pCPU has its part.
const SPELLS: usize = 1 << 20;
/// Processes that are told apart of those for which one thread waited between two readings: those that cost it most.
const PROCESSES: usize = 16;
/// Names of other processes that are told apart there. Anybody can make up names.
const NAMES: usize = 16;
/// Sums that may pile up between two readings before the lesser ones are joined.
const SUMS: usize = 1 << 16;
/// The name that all further processes share.
const OTHERS: &[u8; 16] = b"(others)\0\0\0\0\0\0\0\0";

/// What a thread waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// This one ran.
    Ran(CulpritKey),
    /// An allowed pCPU idled.
    Placement,
    /// It was not seen.
    Unattributed,
}

/// A wait that has not ended, up to the moment when it was looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    /// 1-based.
    pub slot: u32,
    pub cpu: u32,
    pub from: u64,
    pub to: u64,
}

/// A thread that is watched.
#[derive(Debug)]
struct Victim {
    tid: u32,
    /// `None`: idle pCPUs are not told apart.
    affinity: Option<Arc<CpuSet>>,
    /// Sum of its waits that ended and were charged, ns.
    settled_ns: u64,
    ahead: Option<Ahead>,
}

impl Victim {
    /// How long it was ready in waits that left no trace, when its sum had risen to this.
    fn lost_until(&mut self, sum_ns: u64) -> i64 {
        let settled_ns = self.settled_ns.max(sum_ns);
        (settled_ns - std::mem::replace(&mut self.settled_ns, settled_ns)) as i64
    }
}

/// What was charged of a wait that has not ended.
#[derive(Debug)]
struct Ahead {
    from: u64,
    until: u64,
    by: BTreeMap<Cause, u64>,
}

impl Ahead {
    fn sum(&self) -> u64 {
        self.by.values().sum()
    }
}

/// A time in which a thread was ready.
struct Charge {
    slot: u32,
    cpu: u32,
    from: u64,
    to: u64,
    is_open: bool,
}

/// All traces that have not been handed out.
#[derive(Debug, Default)]
pub(crate) struct Blame {
    histories: Vec<History>,
    ended: Vec<Wait>,
    victims: HashMap<u32, Victim>,
    /// Those of the victims, each once.
    affinities: BTreeSet<Arc<CpuSet>>,
    gained: BTreeMap<(u32, Cause), i64>,
}

impl Blame {
    pub(crate) fn of(pcpus: u32) -> Blame {
        Blame { histories: (0..pcpus).map(|_| History::default()).collect(), ..Blame::default() }
    }

    /// Charges the waits of this thread from now on, or changes its affinity; with `None` the placement is not told apart.
    pub(crate) fn watch(&mut self, slot: u32, tid: u32, affinity: Option<&CpuSet>) {
        let affinity = affinity.map(|cpus| match self.affinities.get(cpus) {
            Some(known) => Arc::clone(known),
            None => {
                let new = Arc::new(cpus.clone());
                self.affinities.insert(Arc::clone(&new));
                new
            }
        });
        let new = || Victim { tid, affinity: None, settled_ns: 0, ahead: None };
        let victim = self.victims.entry(slot).or_insert_with(new);
        let is_gone = std::mem::replace(&mut victim.affinity, affinity).is_some();
        if is_gone {
            self.give_back();
        }
    }

    /// Forgets affinities that no thread has any more.
    fn give_back(&mut self) {
        self.affinities.retain(|cpus| Arc::strong_count(cpus) > 1);
    }

    /// Number of different affinities of which more than one pCPU is allowed.
    pub(crate) fn wide_affinities(&self) -> usize {
        self.affinities.iter().filter(|cpus| cpus.len() > 1).count()
    }

    /// Has a thread that is watched this affinity?
    pub(crate) fn knows(&self, cpus: &CpuSet) -> bool {
        self.affinities.contains(cpus)
    }

    /// Forgets a thread and its waits.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.victims.remove(&slot);
        self.ended.retain(|wait| wait.slot != slot);
        self.gained.retain(|(victim, _), _| *victim != slot);
        self.give_back();
    }

    /// Takes what a pCPU's traces say, and how many entries of both were lost before.
    fn take(&mut self, cpu: u32, (runners, lost): (Vec<Runner>, u32), waits: Vec<Wait>) {
        if let Some(history) = self.histories.get_mut(cpu as usize) {
            history.add(runners, lost > 0);
        }
        self.ended.extend(waits);
    }

    /// Charges the waits that ended before `horizon`, up to which all traces have been taken. At a reading, only those that
    /// its copies of the slots count: `counted` has their sums by slot.
    fn settle(&mut self, horizon: u64, counted: Option<&BTreeMap<u32, u64>>) {
        let mut ended = std::mem::take(&mut self.ended);
        ended.sort_by_key(|wait| wait.to);
        let mut charges = Vec::new();
        for wait in ended {
            let is_counted =
                counted.is_none_or(|c| c.get(&wait.slot).is_some_and(|ns| wait.charged_ns <= *ns));
            match self.victims.get_mut(&wait.slot).filter(|victim| victim.tid == wait.tid) {
                None => {}
                Some(_) if wait.to > horizon || !is_counted => self.ended.push(wait),
                Some(victim) => {
                    let ahead = victim.ahead.take_if(|ahead| ahead.from == wait.from);
                    let lost_ns = victim.lost_until(wait.charged_ns.saturating_sub(wait.ready));
                    let stale_ns = victim.ahead.take().map_or(0, |ahead| ahead.sum());
                    victim.settled_ns = wait.charged_ns;
                    add(&mut self.gained, wait.slot, Cause::Unattributed, lost_ns - stale_ns as i64);
                    let had_ns = ahead.as_ref().map_or(0, Ahead::sum);
                    if let Some(rest_ns) = wait.ready.checked_sub(had_ns) {
                        let (slot, cpu, to) = (wait.slot, wait.cpu, wait.to);
                        charges.push(Charge { slot, cpu, from: to - rest_ns, to, is_open: false });
                    } else if let Some(ahead) = ahead {
                        take_back(&mut self.gained, wait.slot, &ahead, had_ns - wait.ready);
                    }
                }
            }
        }
        for (slot, ns) in counted.into_iter().flatten() {
            let Some(victim) = self.victims.get_mut(slot) else { continue };
            let lost_ns = victim.lost_until(*ns);
            add(&mut self.gained, *slot, Cause::Unattributed, lost_ns);
        }
        self.charge(&charges);
    }

    /// Charges waits that had not ended at a reading, after [`Blame::settle`] with the same `counted`.
    fn settle_open(&mut self, open: &[Open], counted: &BTreeMap<u32, u64>) {
        let mut charges = Vec::new();
        let lasts: BTreeMap<u32, u64> = open.iter().map(|wait| (wait.slot, wait.from)).collect();
        for slot in counted.keys() {
            let Some(victim) = self.victims.get_mut(slot) else { continue };
            // The trace of its end was lost, and its time is among what was lost.
            if let Some(stale) = victim.ahead.take_if(|ahead| lasts.get(slot) != Some(&ahead.from)) {
                add(&mut self.gained, *slot, Cause::Unattributed, -(stale.sum() as i64));
            }
        }
        for wait in open {
            let Some(victim) = self.victims.get_mut(&wait.slot) else { continue };
            let new = || Ahead { from: wait.from, until: wait.from, by: BTreeMap::new() };
            let ahead = victim.ahead.get_or_insert_with(new);
            let from = ahead.until;
            if wait.to > from {
                ahead.until = wait.to;
                charges.push(Charge { slot: wait.slot, cpu: wait.cpu, from, to: wait.to, is_open: true });
            }
        }
        self.charge(&charges);
    }

    fn charge(&mut self, charges: &[Charge]) {
        for (c, by) in charges.iter().zip(self.causes(charges)) {
            let ahead = self.victims.get_mut(&c.slot).and_then(|v| v.ahead.as_mut()).filter(|_| c.is_open);
            if let Some(ahead) = ahead {
                by.iter().for_each(|(cause, ns)| *ahead.by.entry(*cause).or_default() += ns);
            }
            by.into_iter().for_each(|(cause, ns)| add(&mut self.gained, c.slot, cause, ns as i64));
        }
    }

    /// What each of these was due to, ns.
    fn causes(&self, charges: &[Charge]) -> Vec<BTreeMap<Cause, u64>> {
        let affinity = |c: &Charge| self.victims.get(&c.slot).and_then(|victim| victim.affinity.as_deref());
        let mut times: BTreeMap<&CpuSet, (u64, u64)> = BTreeMap::new();
        for c in charges {
            if let Some(affinity) = affinity(c) {
                let time = times.entry(affinity).or_insert((c.from, c.to));
                *time = (time.0.min(c.from), time.1.max(c.to));
            }
        }
        let idle_of = |(cpus, (from, to))| (cpus, Idle::of(cpus, &self.histories, from, to));
        let idle: BTreeMap<&CpuSet, Idle> = times.into_iter().map(idle_of).collect();
        let never = Idle::default();
        let causes = |c: &Charge| {
            let idle = affinity(c).and_then(|cpus| idle.get(cpus)).unwrap_or(&never);
            let mut by: BTreeMap<Cause, u64> = BTreeMap::new();
            let history = self.histories.get(c.cpu as usize);
            for (ran, from, to) in history.into_iter().flat_map(|history| history.between(c.from, c.to)) {
                let (cause, idle_ns) = match ran {
                    Ran::Nobody => (Cause::Placement, 0),
                    Ran::Somebody(who) => (Cause::Ran(*who), idle.within(from, to)),
                    Ran::NotSeen => (Cause::Unattributed, idle.within(from, to)),
                };
                for (cause, ns) in [(cause, to - from - idle_ns), (Cause::Placement, idle_ns)] {
                    if ns > 0 {
                        *by.entry(cause).or_default() += ns;
                    }
                }
            }
            by
        };
        charges.iter().map(causes).collect()
    }

    /// What was charged since the last time, by slot; and forgets who ran before `until`, to which all was charged.
    fn hand_out(&mut self, until: u64) -> Vec<(u32, Cause, i64)> {
        let needed = self.ended.iter().map(|wait| wait.from).fold(until, u64::min);
        self.trim(needed);
        self.join_lesser();
        let gained = std::mem::take(&mut self.gained).into_iter();
        gained.filter(|(_, ns)| *ns != 0).map(|((slot, cause), ns)| (slot, cause, ns)).collect()
    }

    /// Joins the lesser of the many processes for which one thread waited.
    fn join_lesser(&mut self) {
        let mut by_slot: BTreeMap<u32, BTreeMap<CulpritKey, i64>> = BTreeMap::new();
        for ((slot, cause), ns) in &self.gained {
            if let Cause::Ran(who) = cause
                && who.kind == culprit::PROCESS
            {
                by_slot.entry(*slot).or_default().insert(*who, *ns);
            }
        }
        for (slot, processes) in by_slot.into_iter().filter(|(_, processes)| processes.len() > PROCESSES) {
            for who in processes.keys() {
                self.gained.remove(&(slot, Cause::Ran(*who)));
            }
            for (who, ns) in few(processes) {
                add(&mut self.gained, slot, Cause::Ran(who), ns);
            }
        }
    }

    /// Bounds what is kept between two readings.
    fn bound(&mut self) {
        self.trim(0);
        if self.gained.len() > SUMS {
            self.join_lesser();
        }
    }

    fn trim(&mut self, before: u64) {
        self.histories.iter_mut().for_each(|history| history.forget(before, usize::MAX));
        if self.histories.iter().map(History::len).sum::<usize>() > SPELLS {
            let each = SPELLS / self.histories.len();
            self.histories.iter_mut().for_each(|history| history.forget(before, each));
        }
    }
}

/// The greatest of these sums; of the others those of one name together; and what is left.
fn few(all: BTreeMap<CulpritKey, i64>) -> BTreeMap<CulpritKey, i64> {
    let (mut few, lesser) = greatest(all, PROCESSES);
    let mut by_name = BTreeMap::new();
    lesser.into_iter().for_each(|(who, ns)| *by_name.entry(CulpritKey { id: 0, ..who }).or_default() += ns);
    let (names, others) = greatest(by_name, NAMES);
    let others = others.into_iter().map(|(who, ns)| (CulpritKey { comm: *OTHERS, ..who }, ns));
    names.into_iter().chain(others).for_each(|(who, ns)| *few.entry(who).or_default() += ns);
    few
}

/// The `most` greatest, and the others.
fn greatest(
    all: BTreeMap<CulpritKey, i64>,
    most: usize,
) -> (BTreeMap<CulpritKey, i64>, Vec<(CulpritKey, i64)>) {
    let mut all: Vec<(CulpritKey, i64)> = all.into_iter().collect();
    all.sort_by_key(|(who, ns)| (std::cmp::Reverse(ns.abs()), *who));
    let lesser = all.split_off(most.min(all.len()));
    (all.into_iter().collect(), lesser)
}

fn take_back(gained: &mut BTreeMap<(u32, Cause), i64>, slot: u32, ahead: &Ahead, ns: u64) {
    let whole = ahead.sum();
    let mut left = ns;
    let last = ahead.by.len() - 1;
    for (i, (cause, had)) in ahead.by.iter().enumerate() {
        let part = (u128::from(*had) * u128::from(ns) / u128::from(whole)) as u64;
        let part = if i == last { left } else { part };
        left -= part;
        add(gained, slot, *cause, -(part as i64));
    }
}

fn add(gained: &mut BTreeMap<(u32, Cause), i64>, slot: u32, cause: Cause, ns: i64) {
    if ns != 0 {
        *gained.entry((slot, cause)).or_default() += ns;
    }
}

#[cfg(test)]
mod tests;
