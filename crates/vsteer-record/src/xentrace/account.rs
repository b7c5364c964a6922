//! What did each vCPU do, while a trace is still being written? Counters that never fall, from runstate changes as they come.
//!
//! `xentrace` empties the pCPUs' buffers one after the other, a few times a second: what comes is in order per pCPU and not
//! in all. So changes are held back for a while ([`Accounts::see`], `hold`) and counted in the order of time.
//!
//! Ready time is told apart by how it began: woken, or preempted. A vCPU is *limited* while a cap parks it: Xen calls that
//! offline, as it calls a paused one; who knows the caps tells them apart ([`Vcpu::ticks`]).
//!
//! Who is to blame for a wait: whoever runs on the pCPUs that the vCPU may use, each for its part; nobody, where one of
//! them idles. Which those are, the trace does not say ([`Accounts::allow`]); without that it is the pCPU where it ran
//! last or was woken.
//!
//! Left out: why a vCPU blocked.

use super::{Change, IDLE_DOMAIN, Record, Runstate};
use std::collections::BTreeMap;
use vsteer_core::CpuSet;
use vsteer_core::nouns::{HISTOGRAM_BUCKETS, Histogram};

/// A domain and one of its vCPUs.
pub type Whose = (u16, u16);

/// Who ran while a vCPU was ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ran {
    /// This domain.
    Domain(u16),
    /// Nobody: a pCPU that it may use idled.
    Nobody,
    /// It is not known who.
    Unknown,
}

/// What one vCPU did. Times are in ticks of the time stamp counter.
#[derive(Debug, Clone)]
pub struct Vcpu {
    /// In each [`Runstate`].
    pub ticks: [u64; 4],
    /// Runnable since it was woken; the rest of runnable began with a preemption, or by being let go.
    pub woken_ticks: u64,
    /// Runnable while another vCPU of its domain ran.
    pub lag_ticks: u64,
    /// Times it got a pCPU.
    pub dispatches: u64,
    /// Times it lost one and could run on.
    pub preemptions: u64,
    /// Times it was woken.
    pub wakes: u64,
    /// Times it got another pCPU than before.
    pub migrations: u64,
    /// Where it ran last, or was woken.
    pub pcpu: Option<u16>,
    /// What it does now; `None` until something tells.
    pub state: Option<Runstate>,
    since: u64,
    /// Runnable, and how that began.
    woken: bool,
    ran_on: Option<u16>,
    wake_row: Vec<u64>,
    spell_row: Vec<u64>,
}

impl Vcpu {
    fn new(since: u64) -> Vcpu {
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

    /// From wake-up to pCPU.
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

/// What all vCPUs did.
#[derive(Debug, Clone)]
pub struct Accounts {
    khz: u64,
    hold: u64,
    /// Not yet counted, in the order in which they came.
    held: Vec<Change>,
    newest: u64,
    /// Counted up to then; `None` before the first change.
    now: Option<u64>,
    vcpus: BTreeMap<Whose, Vcpu>,
    /// When the current wait of each runnable vCPU began.
    waits: BTreeMap<Whose, u64>,
    running: BTreeMap<u16, Whose>,
    allowed: BTreeMap<Whose, CpuSet>,
    blame: BTreeMap<(Whose, Ran), u64>,
    /// Records that Xen had no room for.
    pub lost: u64,
    /// Records of other events.
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
            vcpus: BTreeMap::new(),
            waits: BTreeMap::new(),
            running: BTreeMap::new(),
            allowed: BTreeMap::new(),
            blame: BTreeMap::new(),
            lost: 0,
            others: 0,
        }
    }

    /// Ticks as ns.
    pub fn ns(&self, ticks: u64) -> u64 {
        u64::try_from(u128::from(ticks) * 1_000_000 / u128::from(self.khz)).unwrap_or(u64::MAX)
    }

    /// The other way.
    pub fn ticks(&self, ns: u64) -> u64 {
        u64::try_from(u128::from(ns) * u128::from(self.khz) / 1_000_000).unwrap_or(u64::MAX)
    }

    /// The pCPUs that `whose` may use, and so whose users it waits for.
    pub fn allow(&mut self, whose: Whose, pcpus: CpuSet) {
        self.allowed.insert(whose, pcpus);
    }

    /// What `whose` was seen to do, for one that no change has told of yet.
    pub fn assume(&mut self, whose: Whose, state: Runstate, pcpu: Option<u16>) {
        let since = self.now.unwrap_or(self.newest);
        let vcpu = self.vcpus.entry(whose).or_insert_with(|| Vcpu::new(since));
        if vcpu.state.is_some() {
            return;
        }
        (vcpu.state, vcpu.since) = (Some(state), since);
        vcpu.pcpu = vcpu.pcpu.or(pcpu);
        match (state, pcpu) {
            (Runstate::Running, Some(pcpu)) => {
                self.running.entry(pcpu).or_insert(whose);
            }
            (Runstate::Runnable, _) => {
                self.waits.insert(whose, since);
            }
            _ => {}
        }
    }

    /// Forgets the vCPUs of domains that are no more.
    pub fn keep(&mut self, is_there: impl Fn(u16) -> bool) {
        let stays = |domain: u16| domain == IDLE_DOMAIN || is_there(domain);
        self.vcpus.retain(|whose, _| stays(whose.0));
        self.waits.retain(|whose, _| stays(whose.0));
        self.allowed.retain(|whose, _| stays(whose.0));
        self.running.retain(|_, whose| stays(whose.0));
    }

    /// The vCPUs, those of the idle domain ([`IDLE_DOMAIN`]) too: one per pCPU.
    pub fn vcpus(&self) -> &BTreeMap<Whose, Vcpu> {
        &self.vcpus
    }

    /// Up to when all is counted, ticks; `None` before the first change.
    pub fn now(&self) -> Option<u64> {
        self.now
    }

    /// For how long `whose` has been runnable without a break, ns.
    pub fn waiting_ns(&self, whose: Whose) -> u64 {
        let since = self.waits.get(&whose).zip(self.now);
        since.map_or(0, |(since, now)| self.ns(now.saturating_sub(*since)))
    }

    /// Who ran while whom waited, ns since this was asked last.
    pub fn take_blame(&mut self) -> Vec<(Whose, Ran, u64)> {
        let all = std::mem::take(&mut self.blame);
        all.into_iter().map(|((whose, ran), ticks)| (whose, ran, self.ns(ticks))).collect()
    }

    /// What a trace says next.
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

    /// Counts what is old enough.
    pub fn settle(&mut self) {
        self.settle_to(self.newest.saturating_sub(self.hold));
    }

    /// Counts everything: the trace has ended.
    pub fn finish(&mut self) {
        self.settle_to(self.newest);
    }

    /// Counts everything up to `to`, ticks, which no longer changes.
    pub fn settle_to(&mut self, to: u64) {
        // Stable: changes of one instant keep their order.
        self.held.sort_by_key(|c| c.ticks);
        let old = self.held.partition_point(|c| c.ticks <= to);
        let held = self.held.split_off(old);
        for change in std::mem::replace(&mut self.held, held) {
            self.pass(change.ticks);
            self.change(change);
        }
        if self.now.is_some() {
            self.pass(to);
            self.vcpus.values_mut().for_each(|vcpu| vcpu.count(to));
        }
    }

    /// The first change: what was assumed until now begins here.
    fn begin(&mut self, at: u64) {
        self.now = Some(at);
        self.vcpus.values_mut().for_each(|vcpu| vcpu.since = at);
        self.waits.values_mut().for_each(|since| *since = at);
    }

    /// Time goes on to `to`, and nobody changes meanwhile.
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
        let Accounts { waits, vcpus, running, allowed, blame, .. } = self;
        let ran = |pcpu: u32| match u16::try_from(pcpu).ok().and_then(|p| running.get(&p)) {
            Some((IDLE_DOMAIN, _)) => Ran::Nobody,
            Some((domain, _)) => Ran::Domain(*domain),
            None => Ran::Unknown,
        };
        for whose in waits.keys() {
            let vcpu = vcpus.get_mut(whose).expect("who waits is known");
            if running.values().any(|r| r.0 == whose.0) {
                vcpu.lag_ticks += ticks;
            }
            let mut charge = |ran: Ran, ticks: u64| *blame.entry((*whose, ran)).or_default() += ticks;
            match allowed.get(whose).filter(|set| !set.is_empty()) {
                Some(set) if set.iter().any(|p| ran(p) == Ran::Nobody) => charge(Ran::Nobody, ticks),
                Some(set) => {
                    let (each, rest) = (ticks / set.len() as u64, ticks % set.len() as u64);
                    // What does not divide evenly goes to the first.
                    set.iter()
                        .enumerate()
                        .for_each(|(i, p)| charge(ran(p), each + if i == 0 { rest } else { 0 }));
                }
                None => charge(vcpu.pcpu.map_or(Ran::Unknown, |p| ran(p.into())), ticks),
            }
        }
    }

    fn change(&mut self, c: Change) {
        let whose = (c.domain, c.vcpu);
        let khz = self.khz;
        let begin = self.now.unwrap_or(c.ticks);
        let vcpu = self.vcpus.entry(whose).or_insert_with(|| Vcpu::new(begin));
        vcpu.count(c.ticks);
        if let Some(since) = self.waits.remove(&whose)
            && c.to == Runstate::Running
        {
            let ns = u128::from(c.ticks.saturating_sub(since)) * 1_000_000 / u128::from(khz);
            let bucket = usize::from(Histogram::bucket_of(u64::try_from(ns).unwrap_or(u64::MAX)));
            vcpu.spell_row[bucket] += 1;
            if vcpu.woken {
                vcpu.wake_row[bucket] += 1;
            }
        }
        vcpu.state = Some(c.to);
        vcpu.woken = false;
        match c.to {
            Runstate::Running => {
                vcpu.dispatches += 1;
                vcpu.migrations += u64::from(vcpu.ran_on.is_some_and(|before| before != c.pcpu));
                (vcpu.pcpu, vcpu.ran_on) = (Some(c.pcpu), Some(c.pcpu));
                self.running.insert(c.pcpu, whose);
            }
            Runstate::Runnable => {
                vcpu.woken = c.from == Runstate::Blocked;
                vcpu.wakes += u64::from(vcpu.woken);
                vcpu.preemptions += u64::from(c.from == Runstate::Running);
                vcpu.pcpu = vcpu.ran_on.or(Some(c.pcpu));
                self.waits.insert(whose, c.ticks);
            }
            Runstate::Blocked | Runstate::Offline => {}
        }
        if c.from == Runstate::Running && self.running.get(&c.pcpu) == Some(&whose) {
            self.running.remove(&c.pcpu);
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

    /// One pCPU, 1 MHz, so that a tick is 1,000 ns: domain 1 wakes while 2 runs, and gets the pCPU; 2 waits, preempted.
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
        let (one, two) = (&accounts.vcpus()[&a], &accounts.vcpus()[&b]);
        // Domain 1 was first heard of at 110: what it did before is not known.
        assert_eq!((one.ticks, one.woken_ticks, one.dispatches), ([6, 6, 15, 0], 6, 2));
        assert_eq!((two.ticks, two.woken_ticks, two.preemptions), ([24, 6, 0, 7], 0, 1));
        assert_eq!(one.wake_latency().total(), 2);
        let blame = accounts.take_blame();
        assert!(blame.contains(&(a, Ran::Domain(2), 4_000)) && blame.contains(&(b, Ran::Domain(1), 6_000)));
        assert!(blame.contains(&(a, Ran::Nobody, 2_000)), "{blame:?}");
        assert!(accounts.take_blame().is_empty());
    }

    /// What comes late from another pCPU is counted where it belongs, as long as it is not later than what is held.
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
            assert_eq!(late.vcpus()[&whose].ticks, in_order.vcpus()[&whose].ticks);
        }
        let b = &late.vcpus()[&b];
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
        assert_eq!(accounts.vcpus()[&(7, 0)].ticks, [20, 0, 0, 0]);
        assert_eq!(accounts.vcpus()[&(3, 0)].ticks, [20, 0, 0, 0]);
    }
}
