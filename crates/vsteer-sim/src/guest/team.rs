//! Parallel loops and tasks of OpenMP whose threads are vCPUs.
//!
//! Idea: a team of vCPUs of one VM executes the same parallel region repeatedly. Its schedule distributes the
//! iterations. Static: in advance. Dynamic: a chunk whenever a thread has none. Task: one by one, after the
//! first thread has made tasks of all of them. A region ends when the last thread reaches the barrier.
//! Threads at the barrier wait: they spin, sleep, or spin for a while and then sleep. Between regions the
//! first thread may compute alone. Before that, it may sleep (for a time, or until the next start of a
//! period).
//!
//! What follows: a thread whose vCPU waits for a pCPU delays all others. Spinning threads use CPU time that
//! others could have. With dynamic schedules, the others take the iterations that a waiting thread does not.
//!
//! Source: OpenMP Application Programming Interface 5.0, 2.9.2 (schedules) and 2.10 (tasks); libgomp's
//! `GOMP_SPINCOUNT` and `OMP_WAIT_POLICY` for how long threads spin. Left out: `guided`; nested regions;
//! threads that share a vCPU in turns (a thread above the number of vCPUs adds its share of a static schedule
//! to its vCPU's); contention for the loop's counter.

use super::jobs::{Jobs, Tally};
use super::poke::{Poke, Waiting};
use super::times::{Draw, Times, positive};
use super::{NO_MORE, Next};
use serde::{Deserialize, Serialize};
use vsteer_core::random::Random;
use vsteer_core::span::LONGEST_NS;
use vsteer_core::{Fault, FaultKind};

#[cfg(test)]
mod tests;

/// The most iterations of one loop; more would be a typing error.
const ITERATIONS_MAX: u64 = 10_000_000;
/// The most threads of one team.
const THREADS_MAX: u32 = 4096;

/// How iterations are distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Chunks to threads in turn, in advance; without a chunk size, one chunk each.
    Static,
    /// A chunk (1 by default) to each thread that has none.
    Dynamic,
    /// As dynamic, after the first thread has made every chunk a task.
    Task,
}

/// What the first thread does before a region.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pause {
    /// Sleeps for this time.
    For(Times),
    /// Sleeps until this time after the last region was due (a period, or arrivals). If that time has passed,
    /// continues at once. The first region is due at a random time within the first such time.
    Every(Times),
}

/// The loop of a team; the same for all of its vCPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopSpec {
    /// vCPUs of a VM with the same number are a team.
    pub team: u32,
    /// Iterations of a region.
    pub iterations: u64,
    /// CPU time of each iteration.
    pub work: Times,
    /// How iterations are distributed.
    pub schedule: Schedule,
    /// Iterations per chunk; `None`: the schedule's default.
    pub chunk: Option<u64>,
    /// Threads; `None`: one per vCPU.
    pub threads: Option<u32>,
    /// CPU time to take a chunk, and to make a task of one, ns.
    pub overhead_ns: u64,
    /// How threads wait at the barrier, and for the next region.
    pub wait: Waiting,
    /// CPU time of the first thread between regions.
    pub serial: Option<Times>,
    /// A sleep of the first thread before that.
    pub pause: Option<Pause>,
}

impl LoopSpec {
    pub(super) fn check(&self, whose: &str) -> Result<(), Fault> {
        let key = |k: &str| format!("{whose}: {k}");
        let range = |k: &str, n: u64, most: u64| {
            if (1..=most).contains(&n) {
                return Ok(());
            }
            Err(Fault::new(FaultKind::BadInput, format!("{whose}: {k} is {n}"))
                .help(format!("give 1 to {most}")))
        };
        range("iterations", self.iterations, ITERATIONS_MAX)?;
        range("chunk", self.chunk.unwrap_or(1), ITERATIONS_MAX)?;
        range("threads", self.threads.unwrap_or(1).into(), THREADS_MAX.into())?;
        self.work.check(&key("work"))?;
        positive(&key("overhead"), self.overhead_ns.saturating_add(1))?;
        let most_ns = self.work.mean_ns() * self.iterations as f64;
        if most_ns > LONGEST_NS as f64 {
            return Err(Fault::new(
                FaultKind::BadInput,
                format!(
                    "{whose}: a region takes up to {most_ns:e} \
                ns, more than ten years"
                ),
            )
            .help("give fewer iterations or less work"));
        }
        self.wait.check(&key("wait"))?;
        self.serial.map_or(Ok(()), |t| t.check(&key("serial")))?;
        match self.pause {
            Some(Pause::For(t)) => t.check(&key("pause")),
            Some(Pause::Every(t)) => t.check(&key("every")),
            None => Ok(()),
        }
    }

    /// How many iterations a static schedule gives to each of `vcpus`.
    fn dealt(&self, vcpus: u32) -> Vec<u64> {
        let threads = u64::from(self.threads.unwrap_or(vcpus));
        let mut dealt = vec![0; vcpus as usize];
        match self.chunk {
            // Without a chunk size, they differ by at most one.
            None => (0..threads).for_each(|t| {
                let more = u64::from(t < self.iterations % threads);
                dealt[(t % u64::from(vcpus)) as usize] += self.iterations / threads + more;
            }),
            Some(chunk) => (0..self.iterations.div_ceil(chunk)).for_each(|k| {
                let size = chunk.min(self.iterations - k * chunk);
                dealt[(k % threads % u64::from(vcpus)) as usize] += size;
            }),
        }
        dealt
    }
}

/// The present activity of a team's member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// Computes iterations.
    Work,
    /// Waits, and spins whenever it has a pCPU.
    Spin,
    /// Waits, blocked; also before all members exist.
    Sleep,
    /// Only the first member: it knows that the region has ended.
    Told,
    /// Only the first member: the serial part between regions.
    Between,
}

#[derive(Debug, Clone)]
struct Member {
    vcpu: u32,
    random: Random,
    doing: Doing,
}

/// [`Pause`] with its random draws.
#[derive(Debug, Clone)]
enum Rest {
    Not,
    For(Draw),
    Every(Draw),
}

/// The running state of a team.
#[derive(Debug, Clone)]
pub(super) struct Team {
    work: Draw,
    schedule: Schedule,
    iterations: u64,
    chunk: u64,
    overhead_ns: u64,
    wait: Waiting,
    serial: Option<Draw>,
    rest: Rest,
    /// Iterations of each member in a static schedule.
    dealt: Vec<u64>,
    members: Vec<Member>,
    begun: usize,
    arrived: usize,
    /// How many iterations of the present region have been given out.
    taken: u64,
    region_ns: u64,
    due_ns: u64,
    tally: Tally,
}

impl Team {
    /// The team of these vCPUs, each with its random stream.
    pub(super) fn new(spec: &LoopSpec, vcpus: &[(u32, Random)]) -> Team {
        let n = vcpus.len() as u32;
        let member =
            |(vcpu, random): &(u32, Random)| Member { vcpu: *vcpu, random: *random, doing: Doing::Sleep };
        Team {
            work: spec.work.into(),
            schedule: spec.schedule,
            iterations: spec.iterations,
            chunk: spec.chunk.unwrap_or(1),
            overhead_ns: spec.overhead_ns,
            wait: spec.wait,
            serial: spec.serial.map(Draw::from),
            rest: match spec.pause {
                None => Rest::Not,
                Some(Pause::For(t)) => Rest::For(t.into()),
                Some(Pause::Every(t)) => Rest::Every(t.into()),
            },
            dealt: spec.dealt(n),
            members: vcpus.iter().map(member).collect(),
            begun: 0,
            arrived: 0,
            taken: 0,
            region_ns: 0,
            due_ns: 0,
            tally: Tally::new(match spec.pause {
                Some(Pause::Every(Times::Fixed(ns))) => ns,
                _ => u64::MAX,
            }),
        }
    }

    /// A member starts. The last one to start begins the first region.
    pub(super) fn begin(&mut self, m: usize, now_ns: u64, pokes: &mut Vec<Poke>) -> Next {
        self.begun += 1;
        if self.begun < self.members.len() {
            return NO_MORE;
        }
        let Rest::Every(every) = &self.rest else { return self.start(m, now_ns, now_ns, pokes) };
        let first = &mut self.members[0];
        let every_ns = every.draw(&mut first.random);
        self.due_ns = now_ns + first.random.within(0, every_ns - 1);
        first.doing = Doing::Between;
        let first = Poke { vcpu: first.vcpu, at_ns: self.due_ns, work_ns: 1 };
        if m == 0 {
            return Next { at_ns: first.at_ns, work_ns: first.work_ns };
        }
        pokes.push(first);
        NO_MORE
    }

    pub(super) fn burst_done(&mut self, m: usize, now_ns: u64, pokes: &mut Vec<Poke>) -> Next {
        match self.members[m].doing {
            Doing::Work => {
                if let Some(work_ns) = self.more(m) {
                    return Next { at_ns: now_ns, work_ns };
                }
                self.arrived += 1;
                if self.arrived < self.members.len() {
                    return self.waits(m, now_ns);
                }
                self.tally.count(now_ns - self.region_ns);
                self.over(m, now_ns, pokes)
            }
            // It stops spinning and sleeps.
            Doing::Spin => {
                self.members[m].doing = Doing::Sleep;
                NO_MORE
            }
            Doing::Told => self.between(now_ns),
            Doing::Between => {
                let region_ns = if matches!(self.rest, Rest::Every(_)) { self.due_ns } else { now_ns };
                self.start(m, now_ns, region_ns, pokes)
            }
            Doing::Sleep => unreachable!("a sleeping member of a team computes"),
        }
    }

    /// The region has ended; `m` came last.
    fn over(&mut self, m: usize, now_ns: u64, pokes: &mut Vec<Poke>) -> Next {
        if self.serial.is_none() && matches!(self.rest, Rest::Not) {
            return self.start(m, now_ns, now_ns, pokes);
        }
        if m == 0 {
            return self.between(now_ns);
        }
        self.members[0].doing = Doing::Told;
        pokes.push(Poke { vcpu: self.members[0].vcpu, at_ns: now_ns, work_ns: 1 });
        self.waits(m, now_ns)
    }

    /// The part of the first thread alone.
    fn between(&mut self, now_ns: u64) -> Next {
        let first = &mut self.members[0];
        first.doing = Doing::Between;
        let at_ns = match &self.rest {
            Rest::Not => now_ns,
            Rest::For(pause) => now_ns + pause.draw(&mut first.random),
            Rest::Every(every) => {
                let every_ns = every.draw(&mut first.random);
                // If it is late by more, the rest is dropped: the next region is due at once.
                self.due_ns = (self.due_ns + every_ns).max(now_ns.saturating_sub(every_ns));
                self.due_ns.max(now_ns)
            }
        };
        let work_ns = self.serial.as_ref().map_or(1, |s| s.draw(&mut first.random));
        Next { at_ns, work_ns }
    }

    /// A region begins. `m` computes now, all others wait. `region_ns` is when it should have begun.
    fn start(&mut self, m: usize, now_ns: u64, region_ns: u64, pokes: &mut Vec<Poke>) -> Next {
        (self.arrived, self.taken, self.region_ns) = (0, 0, region_ns);
        let mut own = None;
        for k in 0..self.members.len() {
            let Some(work_ns) = self.first(k) else {
                // It has no iterations, so it is at the barrier.
                self.arrived += 1;
                continue;
            };
            if k == m {
                own = Some(work_ns);
            } else {
                let member = &mut self.members[k];
                member.doing = Doing::Work;
                pokes.push(Poke { vcpu: member.vcpu, at_ns: now_ns, work_ns });
            }
        }
        match own {
            Some(work_ns) => {
                self.members[m].doing = Doing::Work;
                Next { at_ns: now_ns, work_ns }
            }
            None => self.waits(m, now_ns),
        }
    }

    fn waits(&mut self, m: usize, now_ns: u64) -> Next {
        let sleeps = self.wait == Waiting::Sleep;
        self.members[m].doing = if sleeps { Doing::Sleep } else { Doing::Spin };
        self.wait.next(now_ns)
    }

    /// The first work of a member in a region, ns.
    fn first(&mut self, m: usize) -> Option<u64> {
        if self.schedule == Schedule::Static {
            let n = self.dealt[m];
            let work_ns = self.work.sum(n, &mut self.members[m].random);
            return (n > 0).then(|| work_ns.saturating_add(self.overhead_ns));
        }
        let making_ns = match self.schedule {
            Schedule::Task if m == 0 => self.iterations.div_ceil(self.chunk).saturating_mul(self.overhead_ns),
            _ => 0,
        };
        self.more(m).map(|ns| ns.saturating_add(making_ns))
    }

    /// The next chunk of a member, ns.
    fn more(&mut self, m: usize) -> Option<u64> {
        let n = self.chunk.min(self.iterations - self.taken);
        if self.schedule == Schedule::Static || n == 0 {
            return None;
        }
        self.taken += n;
        Some(self.work.sum(n, &mut self.members[m].random).saturating_add(self.overhead_ns))
    }

    /// Number of regions done, counted at the first member.
    pub(super) fn jobs(&self, m: usize) -> Option<Jobs> {
        (m == 0).then(|| self.tally.jobs())
    }
}
