//! Finds whether work arrives for a thread while it waits. Derives a server's queue from its sleeps and run
//! times.
//!
//! A request for a server that is awake makes no wake-up. It is part of the present burst. Under another
//! schedule the same request may find the server asleep. If the server were replayed as a thread that sleeps
//! after each piece of work, a shorter wait would bring it more requests. In trials such a replay ran 25 %
//! more than the server did.
//!
//! Two facts show that a thread has a queue. First, it sleeps until the next arrival. If arrivals are random,
//! the spread of the sleeps equals their mean, whatever the scheduler does. Second, its run time after a
//! wake-up grows with its first wait for a pCPU, by its utilization. A thread that sleeps after its work has
//! no more work after a long wait. Only the first wait counts here, because bursts that are long for other
//! reasons are preempted more often and so have longer waits.
//!
//! Then arrivals have the rate 1/(mean sleep). The mean work of a request is the thread's run time divided by
//! the number of requests. The requests that must have come while it was awake are split off from bursts with
//! enough work for them, and spread evenly over the time awake.
//!
//! Left out: requests that by nature follow each other (a client with one connection that sleeps at random
//! after each answer is visible in its bursts, not in its sleeps); batches of arrivals; a server on several
//! vCPUs.

use crate::guest::Release;
use vsteer_core::stats::{mean, quantile, variance};

/// A stretch from a wake-up to the next sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) woken_ns: u64,
    /// The time when it first got a pCPU.
    pub(super) first_ns: u64,
    pub(super) ran_ns: u64,
    pub(super) asleep_ns: u64,
}

/// The fewest sleeps of a thread from which to derive a queue.
const JUDGED_FROM: usize = 32;
/// If the standard deviation of the sleeps is below this part of their mean, they are not times between
/// random arrivals (1 for Poisson).
const RANDOM_FROM: f64 = 0.5;
/// As a part of the utilization. If bursts grow by less than this per time waited, there is no queue.
const GROWS_BY: f64 = 0.5;
/// Number of standard errors.
const SURE: f64 = 2.0;
/// The longest one in a hundred bursts is ignored, because a guest has some work of its own.
const KEPT: f64 = 0.99;

/// The requests of a thread with these stretches, by time since `from_ns`; `None` if it has no queue.
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
    // If its waits never differed, it may have a queue. Most such threads do.
    if growth(stretches).is_some_and(|(slope, error)| slope + SURE * error < GROWS_BY * utilization) {
        return None;
    }
    // Every sleep except the last ends with an arrival. While the thread is awake, the next arrival comes
    // after the same mean time.
    let request_ns = ran_ns as f64 * sleep_ns / whole_ns;
    let mut jobs = Vec::with_capacity(stretches.len());
    let mut due = 0.0;
    for s in stretches {
        let awake_ns = s.asleep_ns - s.woken_ns;
        due += awake_ns as f64 / sleep_ns;
        // Not more requests than the burst's work is enough for; one of them is the first one.
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

/// How much longer a burst is per time of its first wait (least squares), and the standard error. `None` if
/// all waits are equal.
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

    /// A thread that sleeps 5 ms on average, has 1 ms of work, and waits up to 8 ms for its first time on a
    /// pCPU. `comes` returns how much more work arrives in some time awake.
    fn stretches(random: &mut Random, comes: impl Fn(&mut Random, f64) -> u64) -> Vec<Stretch> {
        let mut now = 0.0;
        let mut all = Vec::new();
        for _ in 0..2000 {
            now += random.exponential(5.0 * MS);
            let wait = 8.0 * MS * random.unit();
            let (mut ran, mut seen) = (MS, 0.0);
            // Also work that arrives while this work runs.
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

    /// Random requests every 5 ms with 1 ms of work each. The derived number is the true one.
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

    /// The same sleeps, without more work after a wait. And a timer, whose sleeps are all equal.
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
