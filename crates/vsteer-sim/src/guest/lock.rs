//! What does a preempted lock holder cost? vCPUs of a VM that share a lock: spinlocks, and mutexes that sleep.
//!
//! Idea: each vCPU computes outside the lock, wants it, computes inside, and lets it go. A vCPU that wants a held
//! lock waits as [`Waiting`] says. A spinning vCPU runs for nothing. A vCPU that releases the lock passes it on: to
//! the one that has waited longest (a ticket lock), whether or not it is on a pCPU, or to the one among those on a
//! pCPU that has waited longest (a test-and-set lock, which who runs wins).
//!
//! What follows: while the holder, or under a ticket lock the next in turn, waits for a pCPU, all others spin:
//! lock-holder preemption and lock-waiter preemption.
//!
//! Source: Uhlig, LeVasseur, Skoglund, Dannowski, "Towards scalable multiprocessor virtual machines", VM 2004;
//! Friebel and Biemueller, "How to deal with lock holder preemption", Xen Summit 2008. Left out: the cost of the
//! lock's cache line; kicks of paravirtual locks take no time; which of several that run wins a test-and-set lock
//! is chance in hardware and here who waited longest.

use super::jobs::{Jobs, Tally};
use super::poke::{Poke, Runs, Waiting};
use super::times::{Draw, Times};
use super::{NO_MORE, Next};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use vsteer_core::Fault;
use vsteer_core::random::Random;

/// Who gets a lock next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Who has waited longest.
    Ticket,
    /// Who has waited longest of those on a pCPU.
    Running,
}

/// A lock's use; the same for all vCPUs that share it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LockSpec {
    /// vCPUs of a VM with the same number share a lock.
    pub lock: u32,
    /// CPU time before each turn with the lock.
    pub outside: Times,
    /// A sleep before that.
    pub sleep: Option<Times>,
    /// CPU time with the lock.
    pub inside: Times,
    /// How it waits.
    pub wait: Waiting,
    /// Who is next.
    pub order: Order,
}

impl LockSpec {
    pub(super) fn check(&self, whose: &str) -> Result<(), Fault> {
        self.outside.check(&format!("{whose}: outside"))?;
        self.sleep.map_or(Ok(()), |t| t.check(&format!("{whose}: sleep")))?;
        self.inside.check(&format!("{whose}: inside"))?;
        self.wait.check(&format!("{whose}: wait"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Outside,
    Inside,
    Spin,
    Sleep,
}

#[derive(Debug, Clone)]
struct Member {
    vcpu: u32,
    random: Random,
    doing: Doing,
    wanted_ns: u64,
    tally: Tally,
}

/// A lock as it goes.
#[derive(Debug, Clone)]
pub(super) struct Lock {
    outside: Draw,
    sleep: Option<Draw>,
    inside: Draw,
    wait: Waiting,
    order: Order,
    holder: Option<usize>,
    /// When it was handed to its holder; `None` where that took it while running.
    handed_ns: Option<u64>,
    waiting: VecDeque<usize>,
    members: Vec<Member>,
}

impl Lock {
    /// The lock of these vCPUs, each with its stream.
    pub(super) fn new(spec: &LockSpec, vcpus: &[(u32, Random)]) -> Lock {
        let member = |(vcpu, random): &(u32, Random)| Member {
            vcpu: *vcpu,
            random: *random,
            doing: Doing::Outside,
            wanted_ns: 0,
            tally: Tally::new(u64::MAX),
        };
        Lock {
            outside: spec.outside.into(),
            sleep: spec.sleep.map(Draw::from),
            inside: spec.inside.into(),
            wait: spec.wait,
            order: spec.order,
            holder: None,
            handed_ns: None,
            waiting: VecDeque::with_capacity(vcpus.len()),
            members: vcpus.iter().map(member).collect(),
        }
    }

    pub(super) fn begin(&mut self, m: usize, now_ns: u64) -> Next {
        self.outside(m, now_ns)
    }

    pub(super) fn burst_done(
        &mut self,
        m: usize,
        now_ns: u64,
        runs: Runs<'_>,
        pokes: &mut Vec<Poke>,
    ) -> Next {
        match self.members[m].doing {
            Doing::Outside => self.want(m, now_ns, runs, pokes),
            Doing::Inside => {
                assert_eq!(self.holder, Some(m), "a lock is let go by who does not hold it");
                let member = &mut self.members[m];
                member.tally.count(now_ns - member.wanted_ns);
                self.hand_on(now_ns, runs, pokes);
                self.outside(m, now_ns)
            }
            // Its patience is over; it keeps its place.
            Doing::Spin => {
                self.members[m].doing = Doing::Sleep;
                NO_MORE
            }
            Doing::Sleep => unreachable!("who sleeps for a lock computes"),
        }
    }

    fn outside(&mut self, m: usize, now_ns: u64) -> Next {
        let member = &mut self.members[m];
        member.doing = Doing::Outside;
        let at_ns = now_ns + self.sleep.as_ref().map_or(0, |s| s.draw(&mut member.random));
        Next { at_ns, work_ns: self.outside.draw(&mut member.random) }
    }

    fn want(&mut self, m: usize, now_ns: u64, runs: Runs<'_>, pokes: &mut Vec<Poke>) -> Next {
        self.members[m].wanted_ns = now_ns;
        if let Some(h) = self.holder {
            // A test-and-set lock that was let go while nobody was there to take it is free for who comes first.
            let untouched =
                self.handed_ns.is_some_and(|handed_ns| runs.not_since(self.members[h].vcpu, handed_ns));
            if self.order == Order::Ticket || !untouched {
                self.waiting.push_back(m);
                return self.waits(m, now_ns);
            }
            let next = self.waits(h, now_ns);
            // One that sleeps was woken for it, and spins now.
            self.members[h].doing = Doing::Spin;
            let work_ns = if next == NO_MORE { 1 } else { next.work_ns };
            pokes.push(Poke { vcpu: self.members[h].vcpu, at_ns: now_ns, work_ns });
            self.waiting.push_front(h);
        }
        (self.holder, self.handed_ns) = (Some(m), None);
        let member = &mut self.members[m];
        member.doing = Doing::Inside;
        Next { at_ns: now_ns, work_ns: self.inside.draw(&mut member.random) }
    }

    fn waits(&mut self, m: usize, now_ns: u64) -> Next {
        self.members[m].doing = if self.wait == Waiting::Sleep { Doing::Sleep } else { Doing::Spin };
        self.wait.next(now_ns)
    }

    fn hand_on(&mut self, now_ns: u64, runs: Runs<'_>, pokes: &mut Vec<Poke>) {
        let at = match self.order {
            Order::Ticket => 0,
            Order::Running => self.waiting.iter().position(|w| runs.now(self.members[*w].vcpu)).unwrap_or(0),
        };
        self.holder = self.waiting.remove(at);
        let Some(h) = self.holder else { return };
        let member = &mut self.members[h];
        self.handed_ns = (!runs.now(member.vcpu)).then_some(now_ns);
        member.doing = Doing::Inside;
        let work_ns = self.inside.draw(&mut member.random);
        pokes.push(Poke { vcpu: member.vcpu, at_ns: now_ns, work_ns });
    }

    /// Turns with the lock: from wanting it to letting it go.
    pub(super) fn jobs(&self, m: usize) -> Option<Jobs> {
        Some(self.members[m].tally.jobs())
    }
}
