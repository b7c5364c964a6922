//! What does a vCPU want? Demand models: when it wakes, and how much CPU it then needs.
//!
//! Idea: to a hypervisor a guest is a sequence of bursts. The engine asks once per burst, when the last one is done:
//! when does the next begin, and how long is it? A beginning that is past by then (a backlogged server, a late timer)
//! means that the vCPU does not block at all. So arrivals that fall into busy time cost no event, and a wait in the
//! guest's own queue follows from the two times without being simulated.
//!
//! Source: closed forms for the servers are Kleinrock, Queueing Systems I (M/M/1, M/D/1; FCFS).
//! Left out: vCPUs that wait for each other (OpenMP barriers, spinlocks), Xen's Domain-0 I/O path, display pipelines:
//! each makes one vCPU's burst depend on another's, which needs more than this contract's single answer.

use super::random::Random;
use crate::nouns::HISTOGRAM_BUCKETS;
use crate::nouns::Histogram;
use crate::{Fault, FaultKind};
use serde::{Deserialize, Serialize};

/// The longest time that a demand may name: 10 years. Sums of a few of them stay far from overflow.
pub const LONGEST_NS: u64 = 10 * 365 * 86_400 * 1_000_000_000;

/// A distribution of times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Times {
    /// Always this, ns.
    Fixed(u64),
    /// Exponential with this mean, ns.
    Exponential(u64),
    /// Uniform between the two, ns, both included.
    Uniform(u64, u64),
}

impl Times {
    /// The mean, ns.
    pub fn mean_ns(self) -> f64 {
        match self {
            Times::Fixed(ns) | Times::Exponential(ns) => ns as f64,
            Times::Uniform(low_ns, high_ns) => (low_ns as f64 + high_ns as f64) / 2.0,
        }
    }

    fn check(self, key: &str) -> Result<(), Fault> {
        let (low, high) = match self {
            Times::Fixed(ns) | Times::Exponential(ns) => (ns, ns),
            Times::Uniform(low_ns, high_ns) => (low_ns, high_ns),
        };
        if low > high {
            return Err(Fault::new(
                FaultKind::BadInput,
                format!("{key}: the range {low}..={high} ns is empty"),
            )
            .way_out("give the smaller bound first"));
        }
        positive(key, low)?;
        positive(key, high)
    }
}

fn positive(key: &str, ns: u64) -> Result<(), Fault> {
    if (1..=LONGEST_NS).contains(&ns) {
        return Ok(());
    }
    Err(Fault::new(FaultKind::BadInput, format!("{key} is {ns} ns"))
        .way_out(format!("give a time from 1 to {LONGEST_NS} ns")))
}

/// A recorded burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burst {
    /// Blocked before it, ns; 0 continues the burst before.
    pub sleep_ns: u64,
    /// CPU time, ns.
    pub compute_ns: u64,
}

/// A recorded job that came at a moment of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// When it was there to be done, ns after the vCPU begins.
    pub at_ns: u64,
    /// CPU time, ns.
    pub compute_ns: u64,
}

/// What one vCPU does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Demand {
    /// Never wakes.
    Idle,
    /// Computes without end.
    Hog,
    /// Sleeps, computes, and again; the sleep begins when the work is done (a closed loop).
    SleepCompute {
        /// Each sleep.
        sleep: Times,
        /// Each burst.
        compute: Times,
    },
    /// A job released every `period_ns`, whether or not the last one is done; its deadline is the next release.
    Periodic {
        /// Between releases, ns.
        period_ns: u64,
        /// The first release, ns after the vCPU begins; `None`: anywhere within the first period, by the seed.
        offset_ns: Option<u64>,
        /// CPU time of each job.
        work: Times,
    },
    /// One server, requests first come first served (an open loop).
    Server {
        /// Between arrivals.
        between: Times,
        /// CPU time of each request.
        service: Times,
    },
    /// While on (by the clock), computes and sleeps in turn; then sleeps while off.
    OnOff {
        /// How long each on phase lasts; a burst that it cuts is finished.
        on: Times,
        /// How long each off phase lasts.
        off: Times,
        /// Each burst while on.
        compute: Times,
        /// Each sleep while on.
        sleep: Times,
    },
    /// These jobs at their moments, in order, whether or not the last one is done (an open loop): timers, arrivals.
    Released {
        /// What was recorded.
        jobs: Vec<Release>,
        /// Begin again after so long, ns; `None`: sleep for good.
        repeat_ns: Option<u64>,
    },
    /// These bursts in order, each sleep after the last one is done (a closed loop).
    Recorded {
        /// What was recorded.
        bursts: Vec<Burst>,
        /// Begin again at the end; else it sleeps for good.
        repeat: bool,
    },
    /// One of those that sleep, in a guest that looks at its timers at ticks only: as Linux without high-resolution timers
    /// does (`timespec_to_jiffies`), a sleep is rounded up to whole ticks, and one more for the tick that is under way.
    Ticked {
        /// Between ticks of the guest, ns; they fall on multiples of it.
        tick_ns: u64,
        /// `SleepCompute`, `OnOff` or `Recorded`: what releases or arrives from outside is not rounded.
        demand: Box<Demand>,
    },
}

impl Demand {
    /// Is it one that can be simulated? `whose` begins each message.
    ///
    /// # Errors
    /// `BadInput` for a time of 0 or beyond [`LONGEST_NS`], and for a recording that never computes.
    pub fn check(&self, whose: &str) -> Result<(), Fault> {
        let key = |k: &str| format!("{whose}: {k}");
        match self {
            Demand::Idle | Demand::Hog => Ok(()),
            Demand::SleepCompute { sleep, compute } => {
                sleep.check(&key("sleep"))?;
                compute.check(&key("compute"))
            }
            Demand::Periodic { period_ns, offset_ns, work } => {
                positive(&key("period"), *period_ns)?;
                positive(&key("offset"), offset_ns.unwrap_or(0).saturating_add(1))?;
                work.check(&key("work"))
            }
            Demand::Server { between, service } => {
                between.check(&key("between"))?;
                service.check(&key("service"))
            }
            Demand::OnOff { on, off, compute, sleep } => {
                on.check(&key("on"))?;
                off.check(&key("off"))?;
                compute.check(&key("compute"))?;
                sleep.check(&key("sleep"))
            }
            Demand::Released { jobs, repeat_ns } => {
                let wrong = |r: &Release| r.compute_ns == 0 || r.compute_ns.max(r.at_ns) > LONGEST_NS;
                if let Some(i) = jobs.iter().position(wrong) {
                    return positive(&key(&format!("recorded job {}", i + 1)), 0);
                }
                let in_order = jobs.windows(2).all(|w| w[0].at_ns <= w[1].at_ns);
                let last_ns = jobs.last().map_or(0, |r| r.at_ns);
                match repeat_ns {
                    _ if !in_order => {
                        Err(Fault::new(FaultKind::BadInput, key("recorded jobs are out of order"))
                            .way_out("give them in order of time"))
                    }
                    Some(ns) if *ns <= last_ns || *ns > LONGEST_NS => {
                        Err(Fault::new(FaultKind::BadInput, key(&format!("they repeat after {ns} ns")))
                            .way_out(format!("give more than the last job's {last_ns} ns")))
                    }
                    _ => Ok(()),
                }
            }
            Demand::Recorded { bursts, .. } => {
                if let Some(i) =
                    bursts.iter().position(|b| b.compute_ns == 0 || b.compute_ns.max(b.sleep_ns) > LONGEST_NS)
                {
                    return positive(&key(&format!("recorded burst {}", i + 1)), 0);
                }
                Ok(())
            }
            Demand::Ticked { tick_ns, demand } => {
                positive(&key("tick"), *tick_ns)?;
                match **demand {
                    Demand::SleepCompute { .. } | Demand::OnOff { .. } | Demand::Recorded { .. } => {
                        demand.check(whose)
                    }
                    _ => {
                        Err(Fault::new(FaultKind::BadInput, key("a guest tick for a demand without sleeps"))
                            .way_out("it rounds sleep_compute, on_off and recorded"))
                    }
                }
            }
        }
    }
}

/// The next burst: when it begins and how much CPU it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// When, ns; the past for work that already waits, [`super::event::NEVER`] for none.
    pub at_ns: u64,
    /// CPU time at full speed, ns; `u64::MAX` never ends.
    pub work_ns: u64,
}

/// What was measured of a guest's jobs: from the release or arrival of each to its end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Jobs {
    /// Jobs done.
    pub done: u64,
    /// Of these, how many after their deadline (the next release); 0 for servers, which have none.
    pub late: u64,
    /// Sum of all response times, ns.
    pub response_ns: u64,
    /// The longest, ns.
    pub response_max_ns: u64,
    /// All of them.
    pub response: Histogram,
}

/// [`Times`] in 16 bytes: two of them and a generator fit into a cache line.
#[derive(Debug, Clone)]
enum Draw {
    Fixed(u64),
    Exponential(f64),
    Uniform(Box<(u64, u64)>),
}

impl From<Times> for Draw {
    fn from(times: Times) -> Draw {
        match times {
            Times::Fixed(ns) => Draw::Fixed(ns.max(1)),
            Times::Exponential(mean_ns) => Draw::Exponential(mean_ns as f64),
            Times::Uniform(low_ns, high_ns) => Draw::Uniform(Box::new((low_ns.max(1), high_ns.max(1)))),
        }
    }
}

impl Draw {
    /// A time, ns; at least 1, so that time passes.
    #[inline(always)]
    fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Draw::Fixed(ns) => *ns,
            Draw::Exponential(mean_ns) => (random.exponential(*mean_ns) as u64).max(1),
            Draw::Uniform(bounds) => random.within(bounds.0, bounds.1),
        }
    }
}

/// What the following burst depends on, besides chance. The commonest closed loop lies here, all else one step away.
#[derive(Debug, Clone)]
enum Kind {
    SleepCompute { sleep: Draw, compute: Draw },
    Idle,
    Hog,
    Jobs(Box<JobLoop>),
    OnOff(Box<OnOff>),
    Released(Box<Released>),
    Recorded(Box<Recorded>),
    Ticked(Box<Ticked>),
}

/// A guest whose sleeps end at its ticks.
#[derive(Debug, Clone)]
struct Ticked {
    tick_ns: u64,
    guest: Guest,
}

#[derive(Debug, Clone)]
struct JobLoop {
    between: Draw,
    work: Draw,
    /// The first job, after the vCPU begins; servers draw it as any other.
    offset_ns: Option<u64>,
    /// `u64::MAX` for none.
    deadline_ns: u64,
    /// When the current job was released or arrived.
    released_ns: u64,
    done: u64,
    late: u64,
    response_ns: u64,
    response_max_ns: u64,
    response: Vec<u32>,
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
    /// When this round of them began.
    from_ns: u64,
}

impl Released {
    fn next(&mut self) -> Next {
        if self.place == self.jobs.len() {
            let Some(repeat_ns) = self.repeat_ns.filter(|_| !self.jobs.is_empty()) else { return NO_MORE };
            (self.place, self.from_ns) = (0, self.from_ns + repeat_ns);
        }
        let job = self.jobs[self.place];
        self.place += 1;
        Next { at_ns: self.from_ns + job.at_ns, work_ns: job.compute_ns }
    }
}

#[derive(Debug, Clone)]
struct Recorded {
    bursts: Vec<Burst>,
    repeat: bool,
    place: usize,
}

/// A vCPU's demand as it goes.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub(super) struct Guest {
    random: Random,
    kind: Kind,
}

const NO_MORE: Next = Next { at_ns: super::event::NEVER, work_ns: u64::MAX };

impl Guest {
    pub(super) fn new(demand: Demand, mut random: Random) -> Guest {
        let jobs = |between: Draw, work: Times, offset_ns, deadline_ns| {
            Kind::Jobs(Box::new(JobLoop {
                between,
                work: work.into(),
                offset_ns,
                deadline_ns,
                released_ns: 0,
                done: 0,
                late: 0,
                response_ns: 0,
                response_max_ns: 0,
                response: vec![0; HISTOGRAM_BUCKETS],
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
                Kind::Released(Box::new(Released { jobs, repeat_ns, place: 0, from_ns: 0 }))
            }
            Demand::Recorded { bursts, repeat } => {
                Kind::Recorded(Box::new(Recorded { bursts, repeat, place: 0 }))
            }
            Demand::Ticked { tick_ns, demand } => {
                let guest = Guest::new(*demand, random);
                Kind::Ticked(Box::new(Ticked { tick_ns, guest }))
            }
        };
        Guest { random, kind }
    }

    /// The first burst of a vCPU that begins at `now_ns`.
    pub(super) fn begin(&mut self, now_ns: u64) -> Next {
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
            Kind::Ticked(t) => {
                let next = t.guest.begin(now_ns);
                t.rounded(now_ns, next)
            }
            _ => self.burst_done(now_ns),
        }
    }

    /// Reads it, so that it is near when it is needed.
    #[inline]
    pub(super) fn touch(&self) {
        std::hint::black_box(self.random.peek());
    }

    /// A burst is done at `now_ns`: counts it, and says what follows.
    #[inline(always)]
    pub(super) fn burst_done(&mut self, now_ns: u64) -> Next {
        let random = &mut self.random;
        match &mut self.kind {
            Kind::SleepCompute { sleep, compute } => {
                let at_ns = now_ns + sleep.draw(random);
                Next { at_ns, work_ns: compute.draw(random) }
            }
            Kind::Idle => NO_MORE,
            Kind::Hog => Next { at_ns: now_ns, work_ns: u64::MAX },
            Kind::Jobs(jobs) => {
                jobs.count(now_ns - jobs.released_ns);
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
            Kind::Released(r) => r.next(),
            Kind::Recorded(r) => {
                if r.repeat && r.place == r.bursts.len() {
                    r.place = 0;
                }
                let burst = r.bursts.get(r.place);
                r.place += 1;
                burst.map_or(NO_MORE, |b| Next { at_ns: now_ns + b.sleep_ns, work_ns: b.compute_ns })
            }
            Kind::Ticked(t) => t.burst_done(now_ns),
        }
    }

    /// What was measured of its jobs; `None` for a demand without jobs.
    pub(super) fn jobs(&self) -> Option<Jobs> {
        let Kind::Jobs(jobs) = &self.kind else { return None };
        let row: Vec<u64> = jobs.response.iter().map(|c| u64::from(*c)).collect();
        Some(Jobs {
            done: jobs.done,
            late: jobs.late,
            response_ns: jobs.response_ns,
            response_max_ns: jobs.response_max_ns,
            response: Histogram::from_row(&row),
        })
    }
}

impl Ticked {
    #[inline(never)]
    fn burst_done(&mut self, now_ns: u64) -> Next {
        let next = self.guest.burst_done(now_ns);
        self.rounded(now_ns, next)
    }

    /// A sleep that begins now ends at a tick: as many as it is long, rounded up, after the one that is under way.
    fn rounded(&self, now_ns: u64, next: Next) -> Next {
        if next.at_ns <= now_ns || next.at_ns == super::event::NEVER {
            return next;
        }
        let ticks = now_ns / self.tick_ns + (next.at_ns - now_ns).div_ceil(self.tick_ns) + 1;
        Next { at_ns: ticks.saturating_mul(self.tick_ns).min(super::event::NEVER - 1), ..next }
    }
}

impl JobLoop {
    fn count(&mut self, response_ns: u64) {
        self.done += 1;
        self.late += u64::from(response_ns > self.deadline_ns);
        self.response_ns += response_ns;
        self.response_max_ns = self.response_max_ns.max(response_ns);
        self.response[usize::from(Histogram::bucket_of(response_ns))] += 1;
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(g.burst_done(12).at_ns, super::super::event::NEVER);
        let mut g = guest(Demand::Recorded { bursts, repeat: true });
        g.begin(0);
        assert_eq!(g.burst_done(12), Next { at_ns: 17, work_ns: 7 });
    }

    /// VIT's test program (Park et al. 2010): 30 ms asked for in a guest with a tick of 10 ms are 30 to 40.
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
        assert_eq!(g.burst_done(10).at_ns, super::super::event::NEVER);
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
        assert_eq!(g.burst_done(40).at_ns, super::super::event::NEVER);
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
