//! A guest whose idle loop polls (`idle=poll`, or the hypervisor does not know its timers). To the hypervisor
//! it always wants to run.
//!
//! Idea: a sleep becomes a burst that ends at a time instead of after some CPU time. While the vCPU is on a
//! pCPU, the guest sees its timer in time. Otherwise it sees the timer when it next gets a pCPU. The guest
//! measures this itself, because the hypervisor sees no sleep.

use super::Guest;
use crate::event::NEVER;
use crate::guest::jobs::Naps;
use crate::guest::{Next, Sleeps};

#[derive(Debug, Clone)]
pub(super) struct Polling {
    guest: Guest,
    /// While it sleeps: the end of the sleep, and the work that follows.
    sleeping: Option<(u64, u64)>,
    /// The start of the last sleep, until the work after it is done.
    asleep_ns: Option<u64>,
    naps: Naps,
}

impl Polling {
    pub(super) fn new(guest: Guest) -> Polling {
        Polling { guest, sleeping: None, asleep_ns: None, naps: Naps::new() }
    }

    pub(super) fn begin(&mut self, now_ns: u64) -> Next {
        let next = self.guest.begin(now_ns);
        self.kept(now_ns, next)
    }

    pub(super) fn burst_done(&mut self, now_ns: u64) -> Next {
        if let Some((_, work_ns)) = self.sleeping.take() {
            self.naps.over(now_ns - self.asleep_ns.expect("it slept"));
            return Next { at_ns: now_ns, work_ns };
        }
        if let Some(asleep_ns) = self.asleep_ns.take() {
            self.naps.worked(now_ns - asleep_ns);
        }
        let next = self.guest.burst_done(now_ns);
        self.kept(now_ns, next)
    }

    /// A sleep that starts now becomes polling. A sleep without an end becomes endless polling.
    fn kept(&mut self, now_ns: u64, next: Next) -> Next {
        if next.at_ns <= now_ns {
            return next;
        }
        self.sleeping = Some((next.at_ns, next.work_ns));
        self.asleep_ns = Some(now_ns);
        let left_ns = if next.at_ns == NEVER { u64::MAX } else { next.at_ns - now_ns };
        Next { at_ns: now_ns, work_ns: left_ns }
    }

    /// Until when it polls now.
    pub(super) fn until_ns(&self) -> Option<u64> {
        self.sleeping.map(|(until_ns, _)| until_ns)
    }

    pub(super) fn inner(&self) -> &Guest {
        &self.guest
    }

    pub(super) fn sleeps(&self) -> Sleeps {
        let own = self.naps.sleeps();
        match self.guest.sleeps() {
            Some(s) => Sleeps { asked: s.asked, asked_ns: s.asked_ns, ..own },
            None => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::{Demand, Times};
    use vsteer_core::random::Random;

    #[test]
    fn a_sleep_is_a_burst_that_ends_at_its_moment() {
        let sleeps = Demand::SleepCompute { sleep: Times::Fixed(30), compute: Times::Fixed(5) };
        let mut p = Polling::new(Guest::new(sleeps, Random::new(1, 0)));
        assert_eq!(p.begin(0), Next { at_ns: 0, work_ns: 30 });
        assert_eq!(p.until_ns(), Some(30));
        // It was off its pCPU at 30, so it sees the timer at 42.
        assert_eq!(p.burst_done(42), Next { at_ns: 42, work_ns: 5 });
        assert_eq!(p.until_ns(), None);
        assert_eq!(p.burst_done(50), Next { at_ns: 50, work_ns: 30 });
        let s = p.sleeps();
        assert_eq!((s.seen, s.took_ns, s.cycle_ns), (1, 42, 50));
    }
}
