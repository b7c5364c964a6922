//! Which threads made each VM's threads wait?
//!
//! The kernel side leaves two traces per pCPU: who got it when (switches), and which wait ended when (waits). Here they come
//! together: the part of a wait in which somebody else had the pCPU is charged to that one. While any pCPU idled that the
//! waiting thread may use, nobody is to blame but the placement. What was not seen is `Unattributed`. So the charges of a
//! thread sum up to the time that it was ready, whatever was lost.
//!
//! A wait that has not ended is charged at each reading up to then. If its end says that a quota held the thread for part
//! of it, that part is taken back.
//!
//! Left out: runners of other pCPUs that kept the thread from moving there.

mod history;
mod idle;
mod reader;
mod sums;

use crate::layout::{Runner, Wait};
use history::{History, Ran};
use idle::Idle;
pub(crate) use reader::{Keeper, Reader};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
pub(crate) use sums::Cause;
use sums::Sums;
use vsteer_core::CpuSet;

/// Spells kept over all pCPUs between two readings: 32 MiB. With more of them, each pCPU has its part.
const SPELLS: usize = 1 << 20;
/// Rows that a reading may have. An agent's answer over ssh has a limit of its own.
const ROWS: usize = 100_000;
/// In the place of the id of a thread that is not known yet.
const NOT_KNOWN: u32 = 0;
/// Causes that are kept separate for one thread between two readings: those that cost it most.
const CAUSES: usize = 16;

/// A slot as a reading copied it: which of its waits the copy counts, and the wait that had not ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copied {
    pub waits: u64,
    pub charged_ns: u64,
    pub open: Option<Open>,
}

/// A wait that has not ended, up to the moment of the copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    pub cpu: u32,
    pub from: u64,
    pub to: u64,
}

/// A thread that is watched.
#[derive(Debug)]
struct Victim {
    tid: u32,
    /// `None`: time in which an allowed pCPU idled is not charged to placement.
    affinity: Option<Arc<CpuSet>>,
    /// Number and sum of its waits that were charged.
    waits: u64,
    charged_ns: u64,
    ahead: Option<Ahead>,
    sums: Sums,
}

/// What was charged of a wait that has not ended.
#[derive(Debug)]
struct Ahead {
    from: u64,
    until: u64,
    by: Sums,
}

/// A time in which the thread of a slot was ready.
#[derive(Debug, Clone, Copy)]
struct Charge {
    slot: u32,
    cpu: u32,
    from: u64,
    to: u64,
    is_open: bool,
}

/// A wait that was read, and after which look.
#[derive(Debug, Clone, Copy)]
struct Ended {
    wait: Wait,
    look: u64,
}

/// All traces that have not been handed out.
#[derive(Debug, Default)]
pub(crate) struct Blame {
    histories: Vec<History>,
    ended: Vec<Ended>,
    /// By slot, 1-based.
    victims: HashMap<u32, Victim>,
    /// Those of the victims, each once.
    affinities: BTreeSet<Arc<CpuSet>>,
    looks: u64,
}

impl Blame {
    pub(crate) fn of(pcpus: u32) -> Blame {
        Blame { histories: (0..pcpus).map(|_| History::default()).collect(), ..Blame::default() }
    }

    /// Charges the waits of this thread from now on, or changes its affinity. With `None`, time in which an
    /// allowed pCPU idled is not charged to placement.
    pub(crate) fn watch(&mut self, slot: u32, tid: u32, affinity: Option<&CpuSet>) {
        let affinity = affinity.map(|cpus| match self.affinities.get(cpus) {
            Some(known) => Arc::clone(known),
            None => {
                let new = Arc::new(cpus.clone());
                self.affinities.insert(Arc::clone(&new));
                new
            }
        });
        let victim = self.victims.entry(slot).or_insert_with(|| Victim::of(tid));
        victim.tid = tid;
        let former = std::mem::replace(&mut victim.affinity, affinity);
        if former.is_some() {
            drop(former);
            self.give_back();
        }
    }

    /// Charges the waits of a thread that is not known yet, and hands them out once it is watched.
    pub(crate) fn expect(&mut self, slot: u32) {
        self.victims.insert(slot, Victim::of(NOT_KNOWN));
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

    /// Forgets the threads of these slots and their waits.
    pub(crate) fn forget(&mut self, slots: &BTreeSet<u32>) {
        slots.iter().for_each(|slot| drop(self.victims.remove(slot)));
        self.ended.retain(|ended| !slots.contains(&ended.wait.slot));
        self.give_back();
    }

    /// What is taken from now on is of the next look.
    fn begin_look(&mut self) {
        self.looks += 1;
    }

    /// Takes the waits that a pCPU's ring holds. The switches of all pCPUs are taken after the waits of all.
    fn take_waits(&mut self, waits: Vec<Wait>) {
        let look = self.looks;
        self.ended.extend(waits.into_iter().map(|wait| Ended { wait, look }));
    }

    /// Takes a pCPU's switches, and how many were lost between those taken before, until `known`, and these.
    fn take_switches(&mut self, cpu: u32, (runners, lost): (Vec<Runner>, u32), known: u64) {
        if let Some(history) = self.histories.get_mut(cpu as usize) {
            history.add(runners, (lost > 0).then_some(known));
        }
    }

    /// Charges the waits that were taken; at a reading those that its copies of the slots count.
    fn settle(&mut self, copied: Option<&BTreeMap<u32, Copied>>) {
        let mut ended = std::mem::take(&mut self.ended);
        ended.sort_by_key(|ended| (ended.wait.slot, ended.wait.number));
        let mut charges = Vec::new();
        for Ended { wait, look } in ended {
            let Some(victim) = self.victims.get_mut(&wait.slot).filter(|v| v.is(wait.tid)) else {
                continue;
            };
            let is_counted =
                copied.is_none_or(|all| all.get(&wait.slot).is_some_and(|copy| wait.number <= copy.waits));
            // The waits before it may lie in rings that were read before they had them. At the next look they are lost.
            let is_next = wait.number == victim.waits + 1 || look < self.looks || copied.is_some();
            if wait.number <= victim.waits {
                // A reading has counted it as lost.
            } else if is_counted && is_next {
                charges.extend(victim.end(&wait));
            } else {
                self.ended.push(Ended { wait, look });
            }
        }
        for (slot, copy) in copied.into_iter().flatten() {
            let Some(victim) = self.victims.get_mut(slot) else { continue };
            victim.lose_until(copy.waits, copy.charged_ns);
            charges.extend(victim.lasts(*slot, copy.open));
        }
        self.charge(charges);
    }

    fn charge(&mut self, mut charges: Vec<Charge>) {
        // Threads that wait for one pCPU since the last reading wait for the same.
        charges.sort_by_key(|c| (c.cpu, c.from, c.to));
        let mut idle: BTreeMap<Arc<CpuSet>, Idle> = BTreeMap::new();
        let mut times: BTreeMap<Arc<CpuSet>, (u64, u64)> = BTreeMap::new();
        for c in &charges {
            if let Some(affinity) = self.victims.get(&c.slot).and_then(|victim| victim.affinity.clone()) {
                let time = times.entry(affinity).or_insert((c.from, c.to));
                *time = (time.0.min(c.from), time.1.max(c.to));
            }
        }
        for (cpus, (from, to)) in times {
            let when = Idle::of(&cpus, &self.histories, from, to);
            idle.insert(cpus, when);
        }
        let never = Idle::default();
        let mut last: Option<(Charge, Option<Arc<CpuSet>>, Rc<Sums>)> = None;
        for c in charges {
            let Some(victim) = self.victims.get_mut(&c.slot) else { continue };
            let same = last.as_ref().filter(|(l, affinity, _)| {
                (l.cpu, l.from, l.to) == (c.cpu, c.from, c.to) && *affinity == victim.affinity
            });
            let by = if let Some((_, _, by)) = same {
                Rc::clone(by)
            } else {
                let idle = victim.affinity.as_ref().and_then(|cpus| idle.get(cpus)).unwrap_or(&never);
                Rc::new(causes(self.histories.get(c.cpu as usize), idle, c.from, c.to))
            };
            if let Some(ahead) = victim.ahead.as_mut().filter(|_| c.is_open) {
                ahead.by.add_all(&by, 1);
            }
            victim.sums.add_all(&by, 1);
            last = Some((c, victim.affinity.clone(), by));
        }
    }

    /// What was charged since the last time, by slot; and forgets who ran before `until`, to which all was charged.
    fn hand_out(&mut self, until: u64) -> Vec<(u32, Cause, i64)> {
        let needed = self.ended.iter().map(|ended| ended.wait.from).fold(until, u64::min);
        self.trim(needed);
        let known = self.victims.values().filter(|victim| victim.tid != NOT_KNOWN).count();
        let most = (ROWS / known.max(1)).clamp(1, CAUSES);
        let of = |(slot, victim): (&u32, &mut Victim)| {
            let slot = *slot;
            std::mem::take(&mut victim.sums).few(most).map(move |(cause, ns)| (slot, cause, ns))
        };
        self.victims.iter_mut().filter(|(_, victim)| victim.tid != NOT_KNOWN).flat_map(of).collect()
    }

    /// Bounds what is kept of the switches between two readings.
    fn trim(&mut self, before: u64) {
        self.histories.iter_mut().for_each(|history| history.forget(before, usize::MAX));
        if self.histories.iter().map(History::len).sum::<usize>() > SPELLS {
            let each = SPELLS / self.histories.len();
            self.histories.iter_mut().for_each(|history| history.forget(before, each));
        }
    }
}

impl Victim {
    fn of(tid: u32) -> Victim {
        Victim { tid, affinity: None, waits: 0, charged_ns: 0, ahead: None, sums: Sums::default() }
    }

    /// Is it this thread, as far as is known?
    fn is(&self, tid: u32) -> bool {
        self.tid == tid || self.tid == NOT_KNOWN
    }

    /// Charges a wait that has ended; what is left of it to charge.
    fn end(&mut self, wait: &Wait) -> Option<Charge> {
        self.lose_until(wait.number - 1, wait.charged_ns.saturating_sub(wait.ready));
        (self.waits, self.charged_ns) = (wait.number, wait.charged_ns.max(self.charged_ns));
        let ahead = self.take_ahead(Some(wait.from));
        let had_ns = ahead.as_ref().map_or(0, |ahead| ahead.by.total().unsigned_abs());
        if let Some(rest_ns) = wait.ready.checked_sub(had_ns) {
            let from = wait.to.saturating_sub(rest_ns);
            return Some(Charge { slot: wait.slot, cpu: wait.cpu, from, to: wait.to, is_open: false });
        }
        let ahead = ahead.expect("what was charged of it is not 0");
        self.sums.add_all(&ahead.by.part(had_ns - wait.ready), -1);
        None
    }

    /// Waits up to this number left no trace: their time, of which the sum tells, is not attributed.
    fn lose_until(&mut self, waits: u64, charged_ns: u64) {
        if waits > self.waits {
            let lost_ns = charged_ns.saturating_sub(self.charged_ns);
            (self.waits, self.charged_ns) = (waits, charged_ns.max(self.charged_ns));
            self.sums.add(Cause::Unattributed, lost_ns as i64);
        }
    }

    /// Charges a wait that has not ended: what is new of it.
    fn lasts(&mut self, slot: u32, open: Option<Open>) -> Option<Charge> {
        let ahead = self.take_ahead(open.map(|open| open.from));
        let Open { cpu, from, to } = open?;
        let ahead = ahead.unwrap_or_else(|| Ahead { from, until: from, by: Sums::default() });
        let since = ahead.until;
        self.ahead = Some(Ahead { until: to.max(since), ..ahead });
        (to > since).then_some(Charge { slot, cpu, from: since, to, is_open: true })
    }

    /// What was charged of the wait that began then. That of another wait is taken back: the trace of its end was lost, so
    /// its time is not attributed.
    fn take_ahead(&mut self, from: Option<u64>) -> Option<Ahead> {
        let ahead = self.ahead.take()?;
        if Some(ahead.from) == from {
            return Some(ahead);
        }
        self.sums.add(Cause::Unattributed, -ahead.by.total());
        None
    }
}

/// What a thread waited for that was ready on this pCPU between two moments.
fn causes(history: Option<&History>, idle: &Idle, from: u64, to: u64) -> Sums {
    let mut sums = Sums::default();
    for (ran, from, to) in history.into_iter().flat_map(|history| history.between(from, to)) {
        let (cause, idle_ns) = match ran {
            Ran::Nobody => (Cause::Placement, 0),
            Ran::Somebody(who) => (Cause::Ran(*who), idle.within(from, to)),
            Ran::NotSeen => (Cause::Unattributed, idle.within(from, to)),
        };
        sums.add(cause, (to - from - idle_ns) as i64);
        sums.add(Cause::Placement, idle_ns as i64);
    }
    sums
}

#[cfg(test)]
mod tests;
