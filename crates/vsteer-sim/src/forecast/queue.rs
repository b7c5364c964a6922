//! Does work arrive for a thread while it waits? Derives a server's queue from its sleeps and run times.
//!
//! A server that is awake when a request comes is not woken for it: the request is part of the present burst. Under
//! another schedule the same request may find it asleep. Replayed as one who sleeps a while after each piece of work, a
//! server that waits less would get more requests, and ran 25 % more in trials than it did.
//!
//! Two facts show that a thread has a queue. It sleeps until the next arrival: where those come at random, sleeps
//! vary as much as their mean, whatever the scheduler does. And what it runs once awake grows with how long it was
//! kept waiting for its first time on a pCPU, by its utilization; one who sleeps after its work has no more to do
//! for having waited. The first wait alone is asked: bursts that are long for reasons of their own are preempted
//! more often, and waited longer for that.
//!
//! Then arrivals have the rate 1/(mean sleep), and what a request takes on average is what the thread ran, divided
//! by all of them. As many as must have come while it was awake are taken out of those bursts that have room for
//! them, and spread evenly over the time awake.
//!
//! Left out: requests that are one after the other by their nature (a client with one connection that sleeps at
//! random after each answer shows in its bursts, not in its sleeps); batches of arrivals; a server that several
//! vCPUs serve.

use crate::guest::Release;
use vsteer_core::stats::{mean, quantile, variance};

/// A stretch from a wake-up to the next sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) woken_ns: u64,
    /// When it first got a pCPU.
    pub(super) first_ns: u64,
    pub(super) ran_ns: u64,
    pub(super) asleep_ns: u64,
}

/// A thread with fewer sleeps than this tells nothing.
const JUDGED_FROM: usize = 32;
/// Sleeps whose standard deviation is a smaller part of their mean than this are no times between random arrivals
/// (1 for Poisson).
const RANDOM_FROM: f64 = 0.5;
/// Of the utilization: a burst that grows by less than this per time waited is one of its own.
const GROWS_BY: f64 = 0.5;
/// Number of standard errors.
const SURE: f64 = 2.0;
/// Of what is longest in a hundred, the rest is left out: a guest's own business now and then.
const KEPT: f64 = 0.99;

/// The requests that came to a thread with these stretches, by time since `from_ns`; `None` where it has no queue.
pub(super) fn arrivals(stretches: &[Stretch], from_ns: u64) -> Option<Vec<Release>> {
    if stretches.len() < JUDGED_FROM {
        return None;
    }
    let (first, last) = (stretches.first()?, stretches.last()?);
    let sleeps: Vec<f64> =
        stretches.windows(2).map(|w| w[1].woken_ns.saturating_sub(w[0].asleep_ns) as f64).collect();
    let (sleep_ns, variance) = (mean(&sleeps)?, variance(&sleeps)?);
    if libm::sqrt(variance) < RANDOM_FROM * sleep_ns {
        return None;
    }
    let ran_ns: u64 = stretches.iter().map(|s| s.ran_ns).sum();
    let whole_ns = (last.asleep_ns - first.woken_ns) as f64;
    let utilization = ran_ns as f64 / whole_ns;
    // Who never waited differently may have one, and more do than do not.
    if growth(stretches).is_some_and(|(slope, error)| slope + SURE * error < GROWS_BY * utilization) {
        return None;
    }
    // Every sleep but the last ends with an arrival, and so does the time that it takes to come to the next one awake.
    let request_ns = ran_ns as f64 * sleep_ns / whole_ns;
    let mut jobs = Vec::with_capacity(stretches.len());
    let mut due = 0.0;
    for s in stretches {
        let awake_ns = s.asleep_ns - s.woken_ns;
        due += awake_ns as f64 / sleep_ns;
        // No more than it ran for, and the first one ran too.
        let room = libm::round(s.ran_ns as f64 / request_ns) - 1.0;
        let more = libm::floor(due).min(room).max(0.0) as u64;
        due -= more as f64;
        let each_ns = s.ran_ns / (more + 1);
        jobs.extend((0..=more).map(|i| Release {
            at_ns: s.woken_ns - from_ns + awake_ns * i / (more + 1),
            compute_ns: if i == 0 { s.ran_ns - more * each_ns } else { each_ns },
        }));
    }
    Some(jobs)
}

/// How much longer a burst is per time that it waited first, by least squares, and the standard error of that.
/// `None` where all waited as long.
fn growth(stretches: &[Stretch]) -> Option<(f64, f64)> {
    let ran: Vec<f64> = stretches.iter().map(|s| s.ran_ns as f64).collect();
    let most = quantile(&ran, KEPT)?;
    let kept: Vec<(f64, f64)> = stretches
        .iter()
        .zip(&ran)
        .filter(|(_, ran)| **ran <= most)
        .map(|(s, ran)| ((s.first_ns - s.woken_ns) as f64, *ran))
        .collect();
    let n = kept.len() as f64;
    let (x, y) = (kept.iter().map(|k| k.0).sum::<f64>() / n, kept.iter().map(|k| k.1).sum::<f64>() / n);
    let spread: f64 = kept.iter().map(|k| (k.0 - x) * (k.0 - x)).sum();
    if spread == 0.0 {
        return None;
    }
    let slope = kept.iter().map(|k| (k.0 - x) * (k.1 - y)).sum::<f64>() / spread;
    let rest: f64 = kept.iter().map(|k| k.1 - y - slope * (k.0 - x)).map(|r| r * r).sum();
    Some((slope, libm::sqrt(rest / (n - 2.0) / spread)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::random::Random;

    const MS: f64 = 1e6;

    /// One that sleeps 5 ms on average, has 1 ms to do, and waits up to 8 ms for its first time on a pCPU; `comes`
    /// says what else comes in some time awake.
    fn stretches(random: &mut Random, comes: impl Fn(&mut Random, f64) -> u64) -> Vec<Stretch> {
        let mut now = 0.0;
        let mut all = Vec::new();
        for _ in 0..2000 {
            now += random.exponential(5.0 * MS);
            let wait = 8.0 * MS * random.unit();
            let (mut ran, mut seen) = (MS, 0.0);
            // What comes while that runs, too.
            while wait + ran > seen {
                let more = wait + ran - seen;
                seen = wait + ran;
                ran += comes(random, more) as f64 * MS;
            }
            let at = |t: f64| t as u64;
            all.push(Stretch {
                woken_ns: at(now),
                first_ns: at(now + wait),
                ran_ns: at(ran),
                asleep_ns: at(now + wait + ran),
            });
            now += wait + ran;
        }
        all
    }

    /// Requests every 5 ms at random, of 1 ms each: the derived number is the true one.
    #[test]
    fn what_came_while_it_waited_is_told() {
        let mut random = Random::new(7, 1);
        let came = std::cell::Cell::new(2000);
        let all = stretches(&mut random, |random, time| {
            let (mut n, mut t) = (0, random.exponential(5.0 * MS));
            while t < time {
                n += 1;
                t += random.exponential(5.0 * MS);
            }
            came.set(came.get() + n);
            n
        });
        let jobs = arrivals(&all, 0).expect("it has a queue");
        let (told, came) = (jobs.len() as f64, came.get() as f64);
        assert!((told / came - 1.0).abs() < 0.05, "{told} of {came}");
        let work = |ns: &mut dyn Iterator<Item = u64>| ns.sum::<u64>();
        assert_eq!(work(&mut jobs.iter().map(|j| j.compute_ns)), work(&mut all.iter().map(|s| s.ran_ns)));
        assert!(jobs.windows(2).all(|w| w[0].at_ns <= w[1].at_ns));
    }

    /// The same sleeps, and nothing more to do for having waited; and a timer, whose sleeps are all alike.
    #[test]
    fn who_sleeps_after_its_work_has_no_queue() {
        let mut random = Random::new(7, 2);
        assert_eq!(arrivals(&stretches(&mut random, |_, _| 0), 0), None);
        let timer = (1..=100).map(|k| k * 5_000_000);
        let timer: Vec<Stretch> = timer
            .map(|at| Stretch { woken_ns: at, first_ns: at, ran_ns: 100, asleep_ns: at + 100 })
            .collect();
        assert_eq!(arrivals(&timer, 0), None);
        assert_eq!(arrivals(&timer[..10], 0), None);
    }
}
