//! vCPUs that do not depend on others: closed loops, timers, servers, recorded bursts.

use super::demand::{Burst, Demand};
use super::display::Frames;
use super::jobs::{Jobs, Sleeps, Tally};
use super::release::Release;
use super::sequence::Sequence;
use super::times::{Draw, Times};
use super::{NO_MORE, Next};
use crate::event::NEVER;
use polling::Polling;
use vsteer_core::random::Random;

mod polling;

/// The state that determines the next burst, apart from chance. The most common closed loop is stored here
/// directly, all others behind a pointer.
#[derive(Debug, Clone)]
enum Kind {
    SleepCompute {
        sleep: Draw,
        compute: Draw,
    },
    Idle,
    Hog,
    Jobs(Box<JobLoop>),
    OnOff(Box<OnOff>),
    Released(Box<Released>),
    Recorded(Box<Recorded>),
    Sequence(Box<Sequence>),
    Display(Box<Frames>),
    Ticked(Box<Ticked>),
    Polling(Box<Polling>),
    /// Handled in [`super::linked`].
    Linked,
}

/// A guest whose sleeps end at its ticks.
#[derive(Debug, Clone)]
struct Ticked {
    tick_ns: u64,
    /// Does the guest set timers to absolute times? For a relative time, Linux adds one more tick.
    moments: bool,
    guest: Guest,
}

#[derive(Debug, Clone)]
struct JobLoop {
    between: Draw,
    work: Draw,
    /// The first job, after the vCPU starts. Servers draw it like any other.
    offset_ns: Option<u64>,
    /// The release or arrival of the current job.
    released_ns: u64,
    tally: Tally,
}

#[derive(Debug, Clone)]
struct OnOff {
    on: Draw,
    off: Draw,
    compute: Draw,
    sleep: Draw,
    on_until_ns: u64,
}

#[derive(Debug, Clone)]
struct Released {
    jobs: Vec<Release>,
    repeat_ns: Option<u64>,
    place: usize,
    /// The start of this round of jobs.
    from_ns: u64,
    /// The release of the current job.
    released_ns: u64,
    /// How long each job took, if the jobs do not repeat.
    took_ns: Vec<u64>,
}

impl Released {
    fn next(&mut self) -> Next {
        if self.place == self.jobs.len() {
            let Some(repeat_ns) = self.repeat_ns.filter(|_| !self.jobs.is_empty()) else { return NO_MORE };
            (self.place, self.from_ns) = (0, self.from_ns + repeat_ns);
        }
        let job = self.jobs[self.place];
        self.place += 1;
        self.released_ns = self.from_ns + job.at_ns;
        Next { at_ns: self.released_ns, work_ns: job.compute_ns }
    }
}

#[derive(Debug, Clone)]
struct Recorded {
    bursts: Vec<Burst>,
    repeat: bool,
    place: usize,
}

/// The running state of a vCPU's demand.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub(crate) struct Guest {
    random: Random,
    kind: Kind,
}

impl Guest {
    pub(crate) fn new(demand: Demand, mut random: Random) -> Guest {
        let jobs = |between: Draw, work: Times, offset_ns, deadline_ns| {
            Kind::Jobs(Box::new(JobLoop {
                between,
                work: work.into(),
                offset_ns,
                released_ns: 0,
                tally: Tally::new(deadline_ns),
            }))
        };
        let kind = match demand {
            Demand::Idle => Kind::Idle,
            Demand::Hog => Kind::Hog,
            Demand::SleepCompute { sleep, compute } => {
                Kind::SleepCompute { sleep: sleep.into(), compute: compute.into() }
            }
            Demand::Periodic { period_ns, offset_ns, work } => {
                let offset_ns = offset_ns.unwrap_or_else(|| random.within(0, period_ns - 1));
                jobs(Draw::Fixed(period_ns), work, Some(offset_ns), period_ns)
            }
            Demand::Server { between, service } => jobs(between.into(), service, None, u64::MAX),
            Demand::OnOff { on, off, compute, sleep } => Kind::OnOff(Box::new(OnOff {
                on: on.into(),
                off: off.into(),
                compute: compute.into(),
                sleep: sleep.into(),
                on_until_ns: 0,
            })),
            Demand::Released { jobs, repeat_ns } => {
                let took_ns = Vec::with_capacity(if repeat_ns.is_none() { jobs.len() } else { 0 });
                Kind::Released(Box::new(Released {
                    jobs,
                    repeat_ns,
                    place: 0,
                    from_ns: 0,
                    released_ns: 0,
                    took_ns,
                }))
            }
            Demand::Recorded { bursts, repeat } => {
                Kind::Recorded(Box::new(Recorded { bursts, repeat, place: 0 }))
            }
            Demand::Sequence(spec) => Kind::Sequence(Box::new(Sequence::new(*spec))),
            Demand::Display(spec) => Kind::Display(Box::new(Frames::new(spec))),
            Demand::Ticked { tick_ns, demand } => {
                let moments = matches!(*demand, Demand::Display(_));
                let guest = Guest::new(*demand, random);
                Kind::Ticked(Box::new(Ticked { tick_ns, moments, guest }))
            }
            Demand::Loop(_) | Demand::Lock(_) | Demand::Served(_) | Demand::Driver => Kind::Linked,
        };
        Guest { random, kind }
    }

    /// The same guest with an idle loop that polls.
    pub(crate) fn polling(self) -> Guest {
        Guest { random: self.random, kind: Kind::Polling(Box::new(Polling::new(self))) }
    }

    /// Until when it polls now; `None` if it does not poll.
    pub(crate) fn polls_until_ns(&self) -> Option<u64> {
        match &self.kind {
            Kind::Polling(p) => p.until_ns(),
            _ => None,
        }
    }

    /// The first burst of a vCPU that starts at `now_ns`.
    pub(crate) fn begin(&mut self, now_ns: u64) -> Next {
        let random = &mut self.random;
        match &mut self.kind {
            Kind::Jobs(jobs) => {
                jobs.released_ns = now_ns + jobs.offset_ns.unwrap_or_else(|| jobs.between.draw(random));
                Next { at_ns: jobs.released_ns, work_ns: jobs.work.draw(random) }
            }
            Kind::OnOff(o) => {
                o.on_until_ns = now_ns + o.on.draw(random);
                Next { at_ns: now_ns, work_ns: o.compute.draw(random) }
            }
            Kind::Released(r) => {
                r.from_ns = now_ns;
                r.next()
            }
            Kind::Sequence(s) => s.begin(now_ns),
            Kind::Display(f) => f.begin(now_ns, random),
            Kind::Ticked(t) => {
                let next = t.guest.begin(now_ns);
                t.rounded(now_ns, next)
            }
            Kind::Polling(p) => p.begin(now_ns),
            _ => self.burst_done(now_ns),
        }
    }

    /// Loads it into the cache before it is needed.
    #[inline]
    pub(crate) fn touch(&self) {
        std::hint::black_box(self.random.peek());
    }

    /// A burst ended at `now_ns`. Counts it and returns the next one.
    #[inline(always)]
    pub(crate) fn burst_done(&mut self, now_ns: u64) -> Next {
        let random = &mut self.random;
        match &mut self.kind {
            Kind::SleepCompute { sleep, compute } => {
                let at_ns = now_ns + sleep.draw(random);
                Next { at_ns, work_ns: compute.draw(random) }
            }
            Kind::Idle => NO_MORE,
            Kind::Hog => Next { at_ns: now_ns, work_ns: u64::MAX },
            Kind::Jobs(jobs) => {
                jobs.tally.count(now_ns - jobs.released_ns);
                jobs.released_ns += jobs.between.draw(random);
                Next { at_ns: jobs.released_ns, work_ns: jobs.work.draw(random) }
            }
            Kind::OnOff(o) => {
                let mut at_ns = now_ns + o.sleep.draw(random);
                if at_ns >= o.on_until_ns {
                    at_ns = o.on_until_ns.max(now_ns) + o.off.draw(random);
                    o.on_until_ns = at_ns + o.on.draw(random);
                }
                Next { at_ns, work_ns: o.compute.draw(random) }
            }
            Kind::Released(r) => {
                if r.repeat_ns.is_none() {
                    r.took_ns.push(now_ns - r.released_ns);
                }
                r.next()
            }
            Kind::Recorded(r) => {
                if r.repeat && r.place == r.bursts.len() {
                    r.place = 0;
                }
                let burst = r.bursts.get(r.place);
                r.place += 1;
                burst.map_or(NO_MORE, |b| Next { at_ns: now_ns + b.sleep_ns, work_ns: b.compute_ns })
            }
            Kind::Sequence(s) => s.next(now_ns),
            Kind::Display(f) => f.burst_done(now_ns, random),
            Kind::Ticked(t) => t.burst_done(now_ns),
            Kind::Polling(p) => p.burst_done(now_ns),
            Kind::Linked => unreachable!("a linked vCPU is asked where its links are"),
        }
    }

    /// The measurements of its jobs; `None` for a demand without jobs.
    pub(crate) fn jobs(&self) -> Option<Jobs> {
        match &self.kind {
            Kind::Jobs(jobs) => Some(jobs.tally.jobs()),
            Kind::Display(frames) => Some(frames.jobs()),
            Kind::Ticked(t) => t.guest.jobs(),
            Kind::Polling(p) => p.inner().jobs(),
            _ => None,
        }
    }

    /// How long each of its recorded jobs took from its release to its end, in order; empty for other
    /// demands.
    pub(crate) fn took_ns(&self) -> &[u64] {
        match &self.kind {
            Kind::Released(r) => &r.took_ns,
            _ => &[],
        }
    }

    /// How many frames it has shown; `None` if it shows none.
    pub(crate) fn frames(&self) -> Option<u64> {
        match &self.kind {
            Kind::Display(frames) => Some(frames.shown()),
            Kind::Ticked(t) => t.guest.frames(),
            Kind::Polling(p) => p.inner().frames(),
            _ => None,
        }
    }

    /// What it measures of its sleeps; `None` if it does not count them.
    pub(crate) fn sleeps(&self) -> Option<Sleeps> {
        match &self.kind {
            Kind::Display(frames) => Some(frames.sleeps()),
            Kind::Ticked(t) => t.guest.sleeps(),
            Kind::Polling(p) => Some(p.sleeps()),
            _ => None,
        }
    }
}

impl Ticked {
    #[inline(never)]
    fn burst_done(&mut self, now_ns: u64) -> Next {
        let next = self.guest.burst_done(now_ns);
        self.rounded(now_ns, next)
    }

    /// Rounds the end of a sleep that starts now up to a tick: the sleep's length in ticks, rounded up, after
    /// the current tick.
    fn rounded(&self, now_ns: u64, next: Next) -> Next {
        if next.at_ns <= now_ns || next.at_ns == NEVER {
            return next;
        }
        if self.moments {
            return Next { at_ns: next.at_ns.next_multiple_of(self.tick_ns), ..next };
        }
        let ticks = now_ns / self.tick_ns + (next.at_ns - now_ns).div_ceil(self.tick_ns) + 1;
        Next { at_ns: ticks.saturating_mul(self.tick_ns).min(NEVER - 1), ..next }
    }
}

#[cfg(test)]
mod tests {
    use super::super::display::DisplaySpec;
    use super::*;

    fn guest(demand: Demand) -> Guest {
        demand.check("vm").unwrap();
        Guest::new(demand, Random::new(1, 0))
    }

    #[test]
    fn a_late_periodic_job_is_followed_by_the_one_that_waits() {
        let mut g = guest(Demand::Periodic { period_ns: 100, offset_ns: Some(10), work: Times::Fixed(30) });
        assert_eq!(g.begin(1000), Next { at_ns: 1010, work_ns: 30 });
        assert_eq!(g.burst_done(1250), Next { at_ns: 1110, work_ns: 30 }, "released at 1110, in the past");
        assert_eq!(g.burst_done(1280), Next { at_ns: 1210, work_ns: 30 });
        let jobs = g.jobs().unwrap();
        assert_eq!((jobs.done, jobs.late, jobs.response_ns), (2, 2, 240 + 170));
    }

    #[test]
    fn recorded_bursts_end_or_repeat() {
        let bursts = vec![Burst { sleep_ns: 5, compute_ns: 7 }];
        let mut g = guest(Demand::Recorded { bursts: bursts.clone(), repeat: false });
        assert_eq!(g.begin(0), Next { at_ns: 5, work_ns: 7 });
        assert_eq!(g.burst_done(12).at_ns, NEVER);
        let mut g = guest(Demand::Recorded { bursts, repeat: true });
        g.begin(0);
        assert_eq!(g.burst_done(12), Next { at_ns: 17, work_ns: 7 });
    }

    /// VIT's test program (Park et al. 2010): with a guest tick of 10 ms, a sleep of 30 ms lasts 30 to 40 ms.
    #[test]
    fn a_guest_tick_rounds_sleeps_up() {
        let sleeps = Demand::SleepCompute { sleep: Times::Fixed(30), compute: Times::Fixed(5) };
        let mut g = guest(Demand::Ticked { tick_ns: 10, demand: Box::new(sleeps) });
        assert_eq!(g.begin(0), Next { at_ns: 40, work_ns: 5 });
        assert_eq!(g.burst_done(45).at_ns, 80);
        assert_eq!(g.burst_done(89).at_ns, 120);
        let bursts = vec![Burst { sleep_ns: 0, compute_ns: 7 }];
        let recorded = Demand::Recorded { bursts, repeat: false };
        let mut g = guest(Demand::Ticked { tick_ns: 10, demand: Box::new(recorded) });
        assert_eq!(g.begin(3).at_ns, 3, "nothing to round");
        assert_eq!(g.burst_done(10).at_ns, NEVER);
        let spec =
            DisplaySpec { period_ns: 25, work: Times::Fixed(5), device: None, reset_ns: None, drop: false };
        let mut g = guest(Demand::Ticked { tick_ns: 10, demand: Box::new(Demand::Display(spec)) });
        assert_eq!(g.begin(3).at_ns, 3);
        assert_eq!(g.burst_done(8).at_ns, 30, "due at 28");
        let server = Demand::Server { between: Times::Fixed(1), service: Times::Fixed(1) };
        assert!(Demand::Ticked { tick_ns: 10, demand: Box::new(server) }.check("x").is_err());
    }

    #[test]
    fn the_common_guest_is_one_cache_line() {
        assert_eq!(std::mem::size_of::<Guest>(), 64);
    }

    #[test]
    fn released_jobs_keep_their_moments() {
        let jobs = vec![Release { at_ns: 10, compute_ns: 4 }, Release { at_ns: 30, compute_ns: 5 }];
        let mut g = guest(Demand::Released { jobs: jobs.clone(), repeat_ns: Some(100) });
        assert_eq!(g.begin(1000), Next { at_ns: 1010, work_ns: 4 });
        assert_eq!(g.burst_done(1080), Next { at_ns: 1030, work_ns: 5 }, "it waits already");
        assert_eq!(g.burst_done(1085), Next { at_ns: 1110, work_ns: 4 }, "the next round");
        let mut g = guest(Demand::Released { jobs: jobs.clone(), repeat_ns: None });
        g.begin(0);
        g.burst_done(20);
        assert_eq!(g.burst_done(40).at_ns, NEVER);
        assert!(Demand::Released { jobs: jobs.clone(), repeat_ns: Some(30) }.check("x").is_err());
        let backwards = jobs.into_iter().rev().collect();
        assert!(Demand::Released { jobs: backwards, repeat_ns: None }.check("x").is_err());
    }

    #[test]
    fn on_and_off_take_turns() {
        let (on, off) = (Times::Fixed(100), Times::Fixed(1000));
        let (compute, sleep) = (Times::Fixed(30), Times::Fixed(20));
        let mut g = guest(Demand::OnOff { on, off, compute, sleep });
        assert_eq!(g.begin(0).at_ns, 0);
        assert_eq!(g.burst_done(30).at_ns, 50);
        assert_eq!(g.burst_done(80).at_ns, 1100, "the sleep would end with the on phase: off until 1100");
        assert_eq!(g.burst_done(1130).at_ns, 1150);
    }

    #[test]
    fn a_time_of_zero_is_refused_by_name() {
        let bad = Demand::Periodic { period_ns: 0, offset_ns: None, work: Times::Fixed(1) };
        let fault = bad.check("vm web, vCPU 0").unwrap_err();
        assert!(fault.what.starts_with("vm web, vCPU 0: period is 0 ns"), "{fault}");
        let bad = Demand::SleepCompute { sleep: Times::Uniform(9, 3), compute: Times::Fixed(1) };
        assert!(bad.check("x").is_err());
        let bad = Demand::Recorded { bursts: vec![Burst { sleep_ns: 1, compute_ns: 0 }], repeat: true };
        assert!(bad.check("x").unwrap_err().what.contains("burst 1"));
    }
}
