//! Turns runstate changes into counters of each vCPU that never fall, while the trace is still being written.
//!
//! `xentrace` empties the buffers of the pCPUs one after the other, a few times a second, so changes are in
//! order only per pCPU. vsteer holds changes back for a while ([`Accounts::see`], `hold`) and counts them in
//! order of time.
//!
//! Ready time is split by its start: woken, or preempted. A vCPU is *limited* while a cap parks it. Xen calls
//! that offline, like a paused vCPU. The caller, who knows the caps, separates the two ([`Vcpu::ticks`]).
//!
//! Blame for a wait goes to the vCPUs that run on the pCPUs allowed to the waiting one, in equal parts. While
//! one of these pCPUs idles, no vCPU gets blame. The trace does not contain the allowed pCPUs
//! ([`Accounts::allow`]). Without them, the pCPU of the last run or wake-up counts.
//!
//! Left out: why a vCPU blocked.

use super::{Change, IDLE_DOMAIN, Record, Runstate, order};
use places::{NONE, Places};
use vsteer_core::CpuSet;
use vsteer_core::nouns::{HISTOGRAM_BUCKETS, Histogram};

mod places;

/// The numbers of a domain and of one of its vCPUs.
pub type Whose = (u16, u16);

/// Which vCPU ran while another was ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ran {
    /// A vCPU of this domain.
    Domain(u16),
    /// No vCPU: an allowed pCPU was idle.
    Nobody,
    /// vsteer does not know what ran.
    Unknown,
}

/// What one vCPU did. Times are in ticks of the time stamp counter.
#[derive(Debug, Clone)]
pub struct Vcpu {
    /// Ticks in each [`Runstate`].
    pub ticks: [u64; 4],
    /// Runnable time after a wake-up. The rest of the runnable time began with a preemption or an unpause.
    pub woken_ticks: u64,
    /// Runnable while another vCPU of its domain ran.
    pub lag_ticks: u64,
    /// How often it got a pCPU.
    pub dispatches: u64,
    /// How often it lost its pCPU while it could run on.
    pub preemptions: u64,
    /// How often it was woken.
    pub wakes: u64,
    /// How often it got another pCPU than before.
    pub migrations: u64,
    /// The pCPU of its last run or wake-up.
    pub pcpu: Option<u16>,
    /// Its present state; `None` while unknown.
    pub state: Option<Runstate>,
    since: u64,
    /// True if the present runnable time began with a wake-up.
    woken: bool,
    ran_on: Option<u16>,
    wake_row: Vec<u64>,
    spell_row: Vec<u64>,
}

impl Vcpu {
    /// A vCPU without history, from this tick on.
    pub fn new(since: u64) -> Vcpu {
        Vcpu {
            ticks: [0; 4],
            woken_ticks: 0,
            lag_ticks: 0,
            dispatches: 0,
            preemptions: 0,
            wakes: 0,
            migrations: 0,
            pcpu: None,
            state: None,
            since,
            woken: false,
            ran_on: None,
            wake_row: vec![0; HISTOGRAM_BUCKETS],
            spell_row: vec![0; HISTOGRAM_BUCKETS],
        }
    }

    /// The times from wake-up to pCPU.
    pub fn wake_latency(&self) -> Histogram {
        Histogram::from_row(&self.wake_row)
    }

    /// Every unbroken wait for a pCPU.
    pub fn ready_spell(&self) -> Histogram {
        Histogram::from_row(&self.spell_row)
    }

    /// Counts the present state up to `now`.
    fn count(&mut self, now: u64) {
        let ticks = now.saturating_sub(self.since);
        self.since = self.since.max(now);
        let Some(state) = self.state else { return };
        self.ticks[state as usize] += ticks;
        if state == Runstate::Runnable && self.woken {
            self.woken_ticks += ticks;
        }
    }
}

/// A vCPU's account with its additional state.
#[derive(Debug, Clone)]
struct Slot {
    whose: Whose,
    vcpu: Vcpu,
    /// The start of its current wait, while it is in [`Accounts::waiting`] ...
    waits_since: u64,
    /// ... and its position there; [`NONE`] while it does not wait.
    waits_at: u32,
    allowed: CpuSet,
    blame: Vec<(Ran, u64)>,
}

impl Slot {
    fn charge(&mut self, ran: Ran, ticks: u64) {
        match self.blame.iter_mut().find(|(by, _)| *by == ran) {
            Some((_, all)) => *all += ticks,
            None => self.blame.push((ran, ticks)),
        }
    }
}

/// The accounts of all vCPUs.
#[derive(Debug, Clone)]
pub struct Accounts {
    khz: u64,
    hold: u64,
    /// Changes not yet counted, in order of arrival.
    held: Vec<Change>,
    newest: u64,
    /// The time up to which all is counted; `None` before the first change.
    now: Option<u64>,
    slots: Vec<Slot>,
    places: Places,
    /// The slots of the runnable vCPUs.
    waiting: Vec<u32>,
    /// Index of the account that runs on each pCPU, or [`NONE`].
    running: Vec<u32>,
    /// The number of records that Xen dropped for lack of room.
    pub lost: u64,
    /// The number of records of other events.
    pub others: u64,
}

impl Accounts {
    /// The time stamp counter runs at `khz` (`xl info`, cpu_mhz). Changes are held back for `hold_ms`.
    pub fn new(khz: u64, hold_ms: u64) -> Accounts {
        Accounts {
            khz: khz.max(1),
            hold: hold_ms.saturating_mul(khz),
            held: Vec::new(),
            newest: 0,
            now: None,
            slots: Vec::new(),
            places: Places::default(),
            waiting: Vec::new(),
            running: Vec::new(),
            lost: 0,
            others: 0,
        }
    }

    /// Ticks as ns.
    pub fn ns(&self, ticks: u64) -> u64 {
        // For less than some hours, no wide division is needed.
        if let Some(scaled) = ticks.checked_mul(1_000_000) {
            return scaled / self.khz;
        }
        u64::try_from(u128::from(ticks) * 1_000_000 / u128::from(self.khz)).unwrap_or(u64::MAX)
    }

    /// Converts ns to ticks.
    pub fn ticks(&self, ns: u64) -> u64 {
        u64::try_from(u128::from(ns) * u128::from(self.khz) / 1_000_000).unwrap_or(u64::MAX)
    }

    /// The slot of `whose`, created if missing.
    fn place(&mut self, whose: Whose, since: u64) -> usize {
        let place = self.places.of(whose);
        if place != NONE {
            return place as usize;
        }
        let at = self.slots.len();
        self.places.set(whose, at as u32);
        let (vcpu, allowed, blame) = (Vcpu::new(since), CpuSet::default(), Vec::new());
        self.slots.push(Slot { whose, vcpu, waits_since: 0, waits_at: NONE, allowed, blame });
        at
    }

    /// Sets the pCPUs that `whose` may use. While it waits, it waits for the vCPUs on these pCPUs.
    pub fn allow(&mut self, whose: Whose, pcpus: CpuSet) {
        let at = self.place(whose, self.now.unwrap_or(self.newest));
        self.slots[at].allowed = pcpus;
    }

    /// The present state of `whose`, if no change has set it yet.
    pub fn assume(&mut self, whose: Whose, state: Runstate, pcpu: Option<u16>) {
        let since = self.now.unwrap_or(self.newest);
        let at = self.place(whose, since);
        let vcpu = &mut self.slots[at].vcpu;
        if vcpu.state.is_some() {
            return;
        }
        (vcpu.state, vcpu.since) = (Some(state), since);
        vcpu.pcpu = vcpu.pcpu.or(pcpu);
        match (state, pcpu) {
            (Runstate::Running, Some(pcpu)) if self.on(pcpu) == NONE => self.runs(pcpu, at as u32),
            (Runstate::Runnable, _) => self.waits(at, since),
            _ => {}
        }
    }

    /// Forgets the vCPUs of domains that no longer exist.
    pub fn keep(&mut self, is_there: impl Fn(u16) -> bool) {
        let stays = |domain: u16| domain == IDLE_DOMAIN || is_there(domain);
        if self.slots.iter().all(|s| stays(s.whose.0)) {
            return;
        }
        let (running, slots) = (std::mem::take(&mut self.running), std::mem::take(&mut self.slots));
        self.places = Places::default();
        self.waiting.clear();
        let mut moved = vec![NONE; slots.len()];
        for (was, slot) in slots.into_iter().enumerate().filter(|(_, s)| stays(s.whose.0)) {
            let at = self.slots.len();
            moved[was] = at as u32;
            self.places.set(slot.whose, at as u32);
            let (waited, since) = (slot.waits_at != NONE, slot.waits_since);
            self.slots.push(Slot { waits_at: NONE, ..slot });
            if waited {
                self.waits(at, since);
            }
        }
        for (pcpu, was) in (0u16..).zip(running) {
            if was != NONE && moved[was as usize] != NONE {
                self.runs(pcpu, moved[was as usize]);
            }
        }
    }

    /// The known vCPUs, ordered by number. Includes those of the idle domain ([`IDLE_DOMAIN`]), one per pCPU.
    pub fn vcpus(&self) -> Vec<(Whose, &Vcpu)> {
        let known = self.slots.iter().filter(|s| s.vcpu.state.is_some());
        let mut all: Vec<(Whose, &Vcpu)> = known.map(|s| (s.whose, &s.vcpu)).collect();
        all.sort_unstable_by_key(|(whose, _)| *whose);
        all
    }

    /// One vCPU; `None` if unknown.
    pub fn vcpu(&self, whose: Whose) -> Option<&Vcpu> {
        self.slots.get(self.places.of(whose) as usize).map(|s| &s.vcpu).filter(|v| v.state.is_some())
    }

    /// The time up to which all is counted, ticks; `None` before the first change.
    pub fn now(&self) -> Option<u64> {
        self.now
    }

    /// How long `whose` has been runnable without interruption, ns.
    pub fn waiting_ns(&self, whose: Whose) -> u64 {
        let slot = self.slots.get(self.places.of(whose) as usize).filter(|s| s.waits_at != NONE);
        slot.zip(self.now).map_or(0, |(s, now)| self.ns(now.saturating_sub(s.waits_since)))
    }

    /// Which vCPU ran while another waited, ns since the last call.
    pub fn take_blame(&mut self) -> Vec<(Whose, Ran, u64)> {
        let mut all = Vec::new();
        for slot in &mut self.slots {
            all.extend(slot.blame.drain(..).map(|(ran, ticks)| (slot.whose, ran, ticks)));
        }
        all.sort_unstable_by_key(|(whose, ran, _)| (*whose, *ran));
        all.into_iter().map(|(whose, ran, ticks)| (whose, ran, self.ns(ticks))).collect()
    }

    /// Takes the next item of the trace.
    #[inline]
    pub fn see(&mut self, record: Record) {
        match record {
            Record::Change(change) => {
                self.newest = self.newest.max(change.ticks);
                self.held.push(change);
            }
            Record::Lost(n) => self.lost += n,
            Record::Other => self.others += 1,
        }
    }

    /// Counts a change at once. For a trace that is in order of time already.
    pub fn take(&mut self, change: Change) {
        self.pass(change.ticks);
        self.newest = self.newest.max(change.ticks);
        self.change(change);
    }

    /// From this tick on, `whose` waits for what runs on this pCPU. For a trace that names the queue of a runnable
    /// thread.
    pub fn queue(&mut self, ticks: u64, whose: Whose, pcpu: u16) {
        self.pass(ticks);
        let at = self.place(whose, ticks);
        self.slots[at].vcpu.pcpu = Some(pcpu);
    }

    /// From this tick on, the state of `whose` is unknown, because the thread ended.
    pub fn forget(&mut self, ticks: u64, whose: Whose) {
        self.pass(ticks);
        let at = self.place(whose, ticks);
        self.slots[at].vcpu.count(ticks);
        self.disown(ticks, whose);
    }

    /// From its last change on, the state of `whose` is unknown, because a part of the trace is missing. That time is not
    /// counted, except for what an earlier sample told.
    pub fn disown(&mut self, ticks: u64, whose: Whose) {
        self.pass(ticks);
        let at = self.place(whose, ticks);
        self.waited(at);
        let vcpu = &mut self.slots[at].vcpu;
        let runs_on = vcpu.pcpu.filter(|_| vcpu.state == Some(Runstate::Running));
        (vcpu.state, vcpu.since) = (None, ticks.max(vcpu.since));
        if let Some(pcpu) = runs_on.filter(|pcpu| self.on(*pcpu) == at as u32) {
            self.leaves(pcpu);
        }
    }

    /// `whose` was not blocked since `since`, as it seemed, but woken then, and has been runnable. The caller has told
    /// nobody of the time since.
    pub fn was_woken(&mut self, ticks: u64, whose: Whose, since: u64) {
        self.pass(ticks);
        let at = self.place(whose, ticks);
        let vcpu = &mut self.slots[at].vcpu;
        vcpu.count(ticks);
        let ready = ticks.saturating_sub(since).min(vcpu.ticks[Runstate::Blocked as usize]);
        vcpu.ticks[Runstate::Blocked as usize] -= ready;
        vcpu.ticks[Runstate::Runnable as usize] += ready;
        vcpu.woken_ticks += ready;
        vcpu.wakes += 1;
        (vcpu.state, vcpu.woken) = (Some(Runstate::Runnable), true);
        self.waits(at, since);
        self.slots[at].charge(Ran::Unknown, ready);
    }

    /// From this tick on, it is unknown what runs on this pCPU.
    pub fn vacate(&mut self, ticks: u64, pcpu: u16) {
        self.pass(ticks);
        let at = self.on(pcpu);
        if let Some(slot) = self.slots.get_mut(at as usize) {
            (slot.vcpu.state, slot.vcpu.since) = (None, ticks.max(slot.vcpu.since));
            self.leaves(pcpu);
        }
    }

    /// One vCPU's counters, also while its state is unknown; `None` if it never had one.
    pub fn counted(&self, whose: Whose) -> Option<&Vcpu> {
        self.slots.get(self.places.of(whose) as usize).map(|s| &s.vcpu)
    }

    /// Counts the changes that are old enough.
    pub fn settle(&mut self) {
        self.settle_to(self.newest.saturating_sub(self.hold));
    }

    /// Counts everything, because the trace has ended.
    pub fn finish(&mut self) {
        self.settle_to(self.newest);
    }

    /// Counts everything up to `to`, ticks. Later calls cannot change that part.
    pub fn settle_to(&mut self, to: u64) {
        order::sort(&mut self.held);
        let old = self.held.partition_point(|c| c.ticks <= to);
        let mut held = std::mem::take(&mut self.held);
        for change in held.drain(..old) {
            self.pass(change.ticks);
            self.change(change);
        }
        self.held = held;
        if self.now.is_some() {
            self.pass(to);
            self.slots.iter_mut().for_each(|slot| slot.vcpu.count(to));
        }
    }

    /// The first change: all assumed states start now.
    fn begin(&mut self, at: u64) {
        self.now = Some(at);
        for slot in &mut self.slots {
            (slot.vcpu.since, slot.waits_since) = (at, at);
        }
    }

    /// Index of the account on this pCPU; [`NONE`]: unknown.
    #[inline]
    fn on(&self, pcpu: u16) -> u32 {
        self.running.get(usize::from(pcpu)).copied().unwrap_or(NONE)
    }

    /// This vCPU now runs on that pCPU.
    fn runs(&mut self, pcpu: u16, place: u32) {
        self.leaves(pcpu);
        let at = usize::from(pcpu);
        if at >= self.running.len() {
            self.running.resize(at + 1, NONE);
        }
        self.running[at] = place;
        self.places.begins(self.slots[place as usize].whose.0);
    }

    /// That pCPU no longer runs a vCPU.
    fn leaves(&mut self, pcpu: u16) {
        let place = self.on(pcpu);
        if place != NONE {
            self.running[usize::from(pcpu)] = NONE;
            self.places.ends(self.slots[place as usize].whose.0);
        }
    }

    fn waits(&mut self, at: usize, since: u64) {
        let slot = &mut self.slots[at];
        slot.waits_since = since;
        if slot.waits_at == NONE {
            slot.waits_at = self.waiting.len() as u32;
            self.waiting.push(at as u32);
        }
    }

    /// Ends a wait; returns its start.
    fn waited(&mut self, at: usize) -> Option<u64> {
        let slot = &mut self.slots[at];
        let place = std::mem::replace(&mut slot.waits_at, NONE);
        if place == NONE {
            return None;
        }
        let since = slot.waits_since;
        self.waiting.swap_remove(place as usize);
        if let Some(moved) = self.waiting.get(place as usize) {
            self.slots[*moved as usize].waits_at = place;
        }
        Some(since)
    }

    /// Advances the time to `to` without a change.
    #[inline]
    fn pass(&mut self, to: u64) {
        let Some(from) = self.now else {
            self.begin(to);
            return;
        };
        let ticks = to.saturating_sub(from);
        if ticks == 0 {
            return;
        }
        self.now = Some(to);
        for i in 0..self.waiting.len() {
            self.blame(self.waiting[i] as usize, ticks);
        }
    }

    /// What runs on this pCPU, as seen by a waiting vCPU.
    #[inline]
    fn ran(&self, pcpu: u32) -> Ran {
        match self.running.get(pcpu as usize).and_then(|place| self.slots.get(*place as usize)) {
            Some(slot) if slot.whose.0 == IDLE_DOMAIN => Ran::Nobody,
            Some(slot) => Ran::Domain(slot.whose.0),
            None => Ran::Unknown,
        }
    }

    /// Charges these ticks to the culprits of this wait.
    fn blame(&mut self, at: usize, ticks: u64) {
        let allowed = std::mem::take(&mut self.slots[at].allowed);
        let pcpus = allowed.len() as u64;
        let one = match pcpus {
            0 => Some(self.slots[at].vcpu.pcpu.map_or(Ran::Unknown, |p| self.ran(p.into()))),
            1 => allowed.iter().next().map(|p| self.ran(p)),
            _ => allowed.iter().map(|p| self.ran(p)).find(|r| *r == Ran::Nobody),
        };
        if let Some(ran) = one {
            self.slots[at].charge(ran, ticks);
        } else {
            for (i, p) in allowed.iter().enumerate() {
                // The remainder of the division goes to the first.
                let (ran, rest) = (self.ran(p), if i == 0 { ticks % pcpus } else { 0 });
                self.slots[at].charge(ran, ticks / pcpus + rest);
            }
        }
        let sibling = self.places.runs(self.slots[at].whose.0);
        let slot = &mut self.slots[at];
        slot.allowed = allowed;
        slot.vcpu.lag_ticks += if sibling { ticks } else { 0 };
    }

    fn change(&mut self, c: Change) {
        let at = self.place((c.domain, c.vcpu), self.now.unwrap_or(c.ticks));
        let waited = self.waited(at).filter(|_| c.to == Runstate::Running);
        let bucket =
            waited.map(|since| usize::from(Histogram::bucket_of(self.ns(c.ticks.saturating_sub(since)))));
        let vcpu = &mut self.slots[at].vcpu;
        vcpu.count(c.ticks);
        if let Some(bucket) = bucket {
            vcpu.spell_row[bucket] += 1;
            vcpu.wake_row[bucket] += u64::from(vcpu.woken);
        }
        vcpu.state = Some(c.to);
        vcpu.woken = false;
        match c.to {
            Runstate::Running => {
                // If the end of its run elsewhere was lost, it no longer runs there.
                let left = vcpu.ran_on.filter(|before| *before != c.pcpu);
                vcpu.dispatches += 1;
                vcpu.migrations += u64::from(vcpu.ran_on.is_some_and(|before| before != c.pcpu));
                (vcpu.pcpu, vcpu.ran_on) = (Some(c.pcpu), Some(c.pcpu));
                if let Some(before) = left.filter(|before| self.on(*before) == at as u32) {
                    self.leaves(before);
                }
                self.runs(c.pcpu, at as u32);
            }
            Runstate::Runnable => {
                vcpu.woken = c.from == Runstate::Blocked;
                vcpu.wakes += u64::from(vcpu.woken);
                vcpu.preemptions += u64::from(c.from == Runstate::Running);
                vcpu.pcpu = vcpu.ran_on.or(Some(c.pcpu));
                self.waits(at, c.ticks);
            }
            Runstate::Blocked | Runstate::Offline => {}
        }
        if c.from == Runstate::Running && c.to != Runstate::Running && self.on(c.pcpu) == at as u32 {
            self.leaves(c.pcpu);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Runstate::{Blocked, Offline, Runnable, Running};

    fn change(ticks: u64, pcpu: u16, whose: Whose, from: Runstate, to: Runstate) -> Record {
        Record::Change(Change { ticks, pcpu, domain: whose.0, vcpu: whose.1, from, to })
    }

    /// One pCPU, 1 MHz, so that a tick is 1,000 ns. Domain 1 wakes while domain 2 runs, and gets the pCPU.
    /// Domain 2 is preempted and waits.
    #[test]
    fn waits_are_told_by_how_they_began_and_charged_to_who_ran() {
        let (a, b) = ((1, 0), (2, 0));
        let mut accounts = Accounts::new(1000, 0);
        for record in [
            change(100, 0, b, Runnable, Running),
            change(110, 0, a, Blocked, Runnable),
            change(114, 0, b, Running, Runnable),
            change(114, 0, a, Runnable, Running),
            change(120, 0, a, Running, Blocked),
            change(120, 0, b, Runnable, Running),
            change(130, 0, b, Running, Offline),
            change(130, 0, (IDLE_DOMAIN, 0), Runnable, Running),
            change(135, 0, a, Blocked, Runnable),
            change(137, 0, (IDLE_DOMAIN, 0), Running, Runnable),
            change(137, 0, a, Runnable, Running),
        ] {
            accounts.see(record);
        }
        accounts.settle();
        let (one, two) = (accounts.vcpu(a).unwrap(), accounts.vcpu(b).unwrap());
        // Domain 1 appears first at 110, so its earlier states are unknown.
        assert_eq!((one.ticks, one.woken_ticks, one.dispatches), ([6, 6, 15, 0], 6, 2));
        assert_eq!((two.ticks, two.woken_ticks, two.preemptions), ([24, 6, 0, 7], 0, 1));
        assert_eq!(one.wake_latency().total(), 2);
        let blame = accounts.take_blame();
        assert!(blame.contains(&(a, Ran::Domain(2), 4_000)) && blame.contains(&(b, Ran::Domain(1), 6_000)));
        assert!(blame.contains(&(a, Ran::Nobody, 2_000)), "{blame:?}");
        assert!(accounts.take_blame().is_empty());
    }

    /// A late change from another pCPU counts at its own time, if it is not later than the hold time.
    #[test]
    fn changes_are_counted_in_the_order_of_time() {
        let (a, b) = ((1, 0), (1, 1));
        let all = [
            change(10, 0, a, Blocked, Running),
            change(30, 1, b, Blocked, Runnable),
            change(40, 1, b, Runnable, Running),
            change(50, 0, a, Running, Blocked),
        ];
        let mut in_order = Accounts::new(1000, 0);
        all.iter().for_each(|r| in_order.see(*r));
        in_order.finish();
        let mut late = Accounts::new(1000, 1);
        for i in [0, 3] {
            late.see(all[i]);
        }
        late.settle();
        assert_eq!(late.now(), None, "nothing is old enough");
        for i in [1, 2] {
            late.see(all[i]);
        }
        late.finish();
        for whose in [a, b] {
            assert_eq!(late.vcpu(whose).unwrap().ticks, in_order.vcpu(whose).unwrap().ticks);
        }
        let b = late.vcpu(b).unwrap();
        assert_eq!((b.lag_ticks, b.woken_ticks), (10, 10), "its sibling ran meanwhile");
    }

    #[test]
    fn one_that_never_changes_is_what_it_was_seen_to_be() {
        let mut accounts = Accounts::new(1000, 0);
        accounts.see(change(5, 1, (3, 0), Blocked, Running));
        accounts.settle();
        accounts.assume((7, 0), Running, Some(0));
        accounts.assume((3, 0), Blocked, None);
        accounts.see(change(25, 1, (3, 0), Running, Blocked));
        accounts.settle();
        assert_eq!(accounts.vcpu((7, 0)).unwrap().ticks, [20, 0, 0, 0]);
        assert_eq!(accounts.vcpu((3, 0)).unwrap().ticks, [20, 0, 0, 0]);
    }
}
