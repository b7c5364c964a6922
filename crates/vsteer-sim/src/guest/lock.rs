//! The cost of a preempted lock holder: vCPUs of a VM that share a lock (spinlocks, and mutexes that sleep).
//!
//! Idea: each vCPU computes outside the lock, wants it, computes inside, and releases it. A vCPU that wants a
//! held lock waits as [`Waiting`] says. A spinning vCPU uses CPU time without progress. A vCPU that releases
//! the lock passes it on. With a ticket lock it goes to the vCPU that has waited longest, even if that is not
//! on a pCPU. With a test-and-set lock it goes to the one on a pCPU that has waited longest, because only a
//! running vCPU can take it.
//!
//! What follows: while the holder waits for a pCPU, all others spin (lock-holder preemption). With a ticket
//! lock the same happens while the next in turn waits (lock-waiter preemption).
//!
//! Source: Uhlig, LeVasseur, Skoglund, Dannowski, "Towards scalable multiprocessor virtual machines", VM
//! 2004; Friebel and Biemueller, "How to deal with lock holder preemption", Xen Summit 2008. Left out: the
//! cost of the lock's cache line; kicks of paravirtual locks take no time. If several vCPUs run, in hardware
//! chance decides which wins a test-and-set lock; here it is the one that has waited longest.

use super::jobs::{Jobs, Tally};
use super::poke::{Poke, Runs, Waiting};
use super::times::{Draw, Times};
use super::{NO_MORE, Next};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use vsteer_core::Fault;
use vsteer_core::random::Random;

/// Which vCPU gets a lock next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The one that has waited longest.
    Ticket,
    /// The one that has waited longest of those on a pCPU.
    Running,
}

/// How vCPUs use a lock; the same for all vCPUs that share it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LockSpec {
    /// vCPUs of a VM with the same number share a lock.
    pub lock: u32,
    /// CPU time before each turn with the lock.
    pub outside: Times,
    /// A sleep before the time outside.
    pub sleep: Option<Times>,
    /// CPU time with the lock.
    pub inside: Times,
    /// How a vCPU waits for the lock.
    pub wait: Waiting,
    /// Which vCPU gets the lock next.
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

/// The running state of a lock.
#[derive(Debug, Clone)]
pub(super) struct Lock {
    outside: Draw,
    sleep: Option<Draw>,
    inside: Draw,
    wait: Waiting,
    order: Order,
    holder: Option<usize>,
    /// When it was passed to its holder; `None` if the holder took it while running.
    handed_ns: Option<u64>,
    waiting: VecDeque<usize>,
    members: Vec<Member>,
}

impl Lock {
    /// The lock of these vCPUs, each with its random stream.
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
            // It stops spinning and sleeps, and keeps its place in the queue.
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
            // If no vCPU was on a pCPU when a test-and-set lock was released, the lock is free for the first
            // one that runs.
            let untouched =
                self.handed_ns.is_some_and(|handed_ns| runs.not_since(self.members[h].vcpu, handed_ns));
            if self.order == Order::Ticket || !untouched {
                self.waiting.push_back(m);
                return self.waits(m, now_ns);
            }
            let next = self.waits(h, now_ns);
            // A sleeping vCPU was woken for the lock, and spins now.
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

    /// Its turns with the lock, from wanting it to releasing it.
    pub(super) fn jobs(&self, m: usize) -> Option<Jobs> {
        Some(self.members[m].tally.jobs())
    }
}
