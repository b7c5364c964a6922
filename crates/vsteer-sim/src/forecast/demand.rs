//! Derives the demand of each thread from recorded switches and wake-ups.
//!
//! Idea: between two sleeps a thread needs some CPU time, independent of the scheduler. A burst is the time
//! that it ran from a wake-up to its next sleep. How long that took with all waits depends on the scheduler,
//! so it is ignored. The remaining question is when the next wake-up comes under another schedule. There are
//! two kinds:
//! - Open loop: timers and arrivals come at fixed times, even if the last one was served late.
//! - Closed loop: a thread that waits for an answer, or sleeps after each piece of work, wakes a fixed time
//!   after its work.
//!
//! The recording shows which kind a thread follows. Of the times from wake-up to wake-up and from sleep to
//! wake-up, the ones that vary less are the cause. (The tenths at both ends are ignored, so that one missed
//! timer in a hundred has no effect.) If waits are short compared with the sleeps, both kinds give nearly the
//! same replay. If both vary, the thread may be a server with a queue. An arrival at a server that is already
//! awake makes no wake-up; such arrivals are derived from its work ([`super::queue`]).
//!
//! A thread that never slept in the recording is a hog. So is a thread that ran all the time, for which there
//! are no switches ([`unswitched`]).
//!
//! Left out: `GAP(demand-together)`: threads that wait for each other (locks, barriers, a vCPU for its
//! emulator thread).

use super::queue::{self, Stretch};
use crate::guest::{Burst, Demand, Release};
use std::collections::BTreeMap;
use vsteer_core::nouns::{Batch, Tid};
use vsteer_core::timeline::Switch;

/// A thread with fewer sleeps than this in a recording counts as a closed loop, because the spreads of fewer
/// times are too uncertain.
const JUDGED_FROM: usize = 8;

/// The demand of one thread, derived from a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The demand, from the start of the window on.
    pub demand: Demand,
    /// The number of its complete bursts in the window.
    pub bursts: usize,
    /// The number of incomplete bursts (because of lost switches), which are left out.
    pub broken: usize,
    /// The CPU time that it got in the window, ns.
    pub ran_ns: u64,
}

/// The demands of all threads, derived from a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Demands {
    /// The demand of each thread.
    pub by_thread: BTreeMap<Tid, Wanted>,
    /// The time range of the demands.
    pub round: Round,
    /// From a wake-up to the pCPU if nothing delays it, ns: the host's own interrupt and switch.
    pub hand_over_ns: u64,
}

/// The recorded time range as simulated time. A timer keeps its distance from the kernel's tick and from
/// quota periods as long as it runs. So a round begins with a tick, at or before the start of the recording,
/// and its length is a whole number of ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Simulated time 0, `CLOCK_MONOTONIC`, ns.
    pub begins_ns: u64,
    /// The time after which open demands repeat, ns.
    pub length_ns: u64,
}

impl Round {
    fn of(from_ns: u64, to_ns: u64, tick_ns: u64) -> Round {
        let begins_ns = from_ns - from_ns % tick_ns;
        Round { begins_ns, length_ns: (to_ns - begins_ns + 1).next_multiple_of(tick_ns) }
    }

    /// The offset of a periodic clock in the second round.
    pub(super) fn second(self, mono_ns: u64, period_ns: u64) -> u64 {
        (mono_ns % period_ns + self.length_ns + period_ns - self.begins_ns % period_ns) % period_ns
    }
}

/// If a thread sleeps for a smaller part of the time than this, its sleeps are short pauses in its own work.
/// An example is a guest that never idles, but that its emulator delays for some microseconds now and then.
/// Without this rule, these pauses would look like arrivals of work.
const RESTS_FROM: f64 = 0.02;

#[derive(Debug, Clone, Default)]
struct Thread {
    /// Since when it has been on a pCPU.
    since_ns: Option<u64>,
    /// Since when it has been awake; `None` while it sleeps or this is unknown.
    woken_ns: Option<u64>,
    /// Of the present burst: its first time on a pCPU, and its run time.
    first_ns: Option<u64>,
    ran_ns: u64,
    stretches: Vec<Stretch>,
    broken: usize,
    all_ns: u64,
}

impl Thread {
    fn stops(&mut self, ns: u64) {
        if let Some(since) = self.since_ns.take() {
            self.ran_ns += ns.saturating_sub(since);
            self.all_ns += ns.saturating_sub(since);
        }
    }

    fn sleeps(&mut self, ns: u64) {
        let ran_ns = std::mem::take(&mut self.ran_ns);
        let first_ns = self.first_ns.take();
        let Some(woken_ns) = self.woken_ns.take() else {
            self.broken += 1;
            return;
        };
        if ran_ns > 0 {
            let first_ns = first_ns.unwrap_or(woken_ns);
            self.stretches.push(Stretch { woken_ns, first_ns, ran_ns, asleep_ns: ns });
        }
    }
}

/// The demands of `threads` between two times. `switches` are in order of time and include wake-ups of these
/// threads. The kernel ticks at multiples of `tick_ns`.
pub fn demands(switches: &[Switch], threads: &[Tid], from_ns: u64, to_ns: u64, tick_ns: u64) -> Demands {
    let round = Round::of(from_ns, to_ns, tick_ns.max(1));
    let mut known: BTreeMap<Tid, Thread> = threads.iter().map(|t| (*t, Thread::default())).collect();
    let mut seen: std::collections::BTreeSet<Tid> = std::collections::BTreeSet::new();
    let mut on: BTreeMap<u32, Tid> = BTreeMap::new();
    for s in switches.iter().filter(|s| (from_ns..=to_ns).contains(&s.ns)) {
        if let Some(tid) = s.woken() {
            if let Some(t) = known.get_mut(&tid) {
                seen.insert(tid);
                t.woken_ns.get_or_insert(s.ns);
            }
            continue;
        }
        if s.lost().is_some() {
            // It is unknown which thread ran there in the meantime, and until when.
            if let Some(t) = on.remove(&s.cpu).and_then(|tid| known.get_mut(&tid)) {
                t.stops(s.ns);
                (t.woken_ns, t.first_ns, t.ran_ns) = (None, None, 0);
                t.broken += 1;
            }
            continue;
        }
        if let Some(t) = known.get_mut(&s.prev) {
            if seen.insert(s.prev) {
                // It was running when the window began.
                (t.since_ns, t.woken_ns) = (Some(from_ns), Some(from_ns));
            }
            t.stops(s.ns);
            if s.prev_state != 0 {
                t.sleeps(s.ns);
            }
        }
        if let Some(t) = known.get_mut(&s.next) {
            if seen.insert(s.next) {
                // It was never woken in the window, so it was ready when the window began.
                t.woken_ns = Some(from_ns);
            }
            t.since_ns = Some(s.ns);
            t.first_ns.get_or_insert(s.ns);
            // If a wake-up was not recorded, it happened at this time at the latest.
            t.woken_ns.get_or_insert(s.ns);
        }
        on.insert(s.cpu, s.next);
    }
    let hand_over_ns = hand_over(known.values().flat_map(|t| &t.stretches));
    let told = known.into_iter().map(|(tid, mut t)| {
        t.stops(to_ns);
        (tid, wanted(t, round))
    });
    Demands { by_thread: told.collect(), round, hand_over_ns }
}

/// The shortest first wait, without one in a hundred, which may be errors between the clocks of two pCPUs.
fn hand_over<'a>(stretches: impl Iterator<Item = &'a Stretch>) -> u64 {
    /// Waits above this had another cause: another thread was running.
    const MOST_NS: u64 = 50_000;
    let mut waits: Vec<u64> = stretches.map(|s| s.first_ns - s.woken_ns).filter(|ns| *ns > 0).collect();
    waits.sort_unstable();
    waits.get(waits.len() / 100).copied().filter(|ns| *ns <= MOST_NS).unwrap_or(0)
}

fn wanted(t: Thread, round: Round) -> Wanted {
    let Round { begins_ns, length_ns } = round;
    let (bursts, broken, ran_ns) = (t.stretches.len(), t.broken, t.all_ns);
    let demand = if t.stretches.is_empty() {
        if t.all_ns == 0 { Demand::Idle } else { Demand::Hog }
    } else if rests(&t.stretches) < RESTS_FROM {
        closed(&t.stretches, begins_ns)
    } else if is_open(&t.stretches) {
        let jobs =
            t.stretches.iter().map(|s| Release { at_ns: s.woken_ns - begins_ns, compute_ns: s.ran_ns });
        Demand::Released { jobs: jobs.collect(), repeat_ns: Some(length_ns) }
    } else if let Some(jobs) = queue::arrivals(&t.stretches, begins_ns) {
        Demand::Released { jobs, repeat_ns: Some(length_ns) }
    } else {
        closed(&t.stretches, begins_ns)
    };
    Wanted { demand, bursts, broken, ran_ns }
}

/// Sleeps that follow bursts, whenever the bursts end.
fn closed(stretches: &[Stretch], begins_ns: u64) -> Demand {
    let mut asleep_ns = begins_ns;
    let bursts = stretches.iter().map(|s| {
        let sleep_ns = s.woken_ns.saturating_sub(asleep_ns);
        asleep_ns = s.asleep_ns;
        Burst { sleep_ns, compute_ns: s.ran_ns }
    });
    Demand::Recorded { bursts: bursts.collect(), repeat: true }
}

/// The part of the time between its first and last wake-up that a thread slept.
fn rests(stretches: &[Stretch]) -> f64 {
    let asleep_ns: u64 = stretches.windows(2).map(|w| w[1].woken_ns.saturating_sub(w[0].asleep_ns)).sum();
    let whole_ns =
        stretches.last().map_or(0, |last| last.woken_ns) - stretches.first().map_or(0, |s| s.woken_ns);
    if whole_ns == 0 { 1.0 } else { asleep_ns as f64 / whole_ns as f64 }
}

/// Threads that, according to the samples, ran from `first` to `last`, but have no switches: no other thread
/// ever took their pCPU.
pub fn unswitched(wanted: &mut BTreeMap<Tid, Wanted>, first: &Batch, last: &Batch) {
    let window_ns = last.mono_ns.saturating_sub(first.mono_ns);
    for now in &last.threads {
        let before = first.threads.iter().find(|t| t.tid == now.tid).and_then(|t| t.counters.run_ns);
        let (Some(before), Some(ran)) = (before, now.counters.run_ns) else { continue };
        let ran_ns = ran.saturating_sub(before);
        if let Some(w) = wanted.get_mut(&now.tid)
            && w.demand == Demand::Idle
            && 2 * ran_ns > window_ns
        {
            (w.demand, w.ran_ns) = (Demand::Hog, ran_ns);
        }
    }
}

/// Do the wake-ups come at fixed times (open loop)?
fn is_open(stretches: &[Stretch]) -> bool {
    if stretches.len() < JUDGED_FROM {
        return false;
    }
    let between: Vec<f64> = stretches.windows(2).map(|w| (w[1].woken_ns - w[0].woken_ns) as f64).collect();
    let asleep: Vec<f64> = stretches.windows(2).map(|w| (w[1].woken_ns - w[0].asleep_ns) as f64).collect();
    spread(&between) < spread(&asleep)
}

/// The range of the middle eight tenths of some times.
fn spread(times: &[f64]) -> f64 {
    let at = |q| vsteer_core::stats::quantile(times, q).unwrap_or(0.0);
    at(0.9) - at(0.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::nouns::{Role, ThreadCounters, ThreadSample, VmId};

    fn switch(ns: u64, prev: u32, prev_state: u16, next: u32) -> Switch {
        Switch { ns, cpu: 0, prev: Tid(prev), prev_state, next: Tid(next) }
    }

    fn wake(ns: u64, tid: u32) -> Switch {
        Switch::wake_up(0, ns, Tid(tid))
    }

    /// A timer every 100, served up to 40 late, beside a hog. The result has the timer's times and work, and
    /// no waits.
    #[test]
    fn a_timer_is_told_from_the_waits_it_had() {
        let mut all = vec![switch(0, 0, 0, 9)];
        for k in 0..20u64 {
            let (due, late) = (100 * (k + 1), [0, 40, 10, 25][k as usize % 4]);
            all.push(wake(due, 7));
            all.push(switch(due + late, 9, 0, 7));
            all.push(switch(due + late + 5, 7, 1, 9));
        }
        let got = demands(&all, &[Tid(7), Tid(9), Tid(8)], 0, 3000, 1).by_thread;
        let Demand::Released { jobs, .. } = &got[&Tid(7)].demand else { panic!("{:?}", got[&Tid(7)].demand) };
        let expected: Vec<Release> = (1..=20).map(|k| Release { at_ns: 100 * k, compute_ns: 5 }).collect();
        assert_eq!(*jobs, expected);
        assert_eq!((&got[&Tid(9)].demand, &got[&Tid(8)].demand), (&Demand::Hog, &Demand::Idle));
        assert_eq!((got[&Tid(7)].ran_ns, got[&Tid(9)].ran_ns), (100, 2900));
    }

    /// Sleeps 50 after each piece of work, which takes 5 of CPU and up to 40 of waiting.
    #[test]
    fn who_sleeps_after_its_work_is_told_by_its_sleeps() {
        let (mut all, mut now) = (Vec::new(), 0);
        for k in 0..20usize {
            now += 50;
            all.push(wake(now, 7));
            now += [0, 40, 10, 25][k % 4];
            all.push(switch(now, 9, 0, 7));
            now += 2;
            all.push(switch(now, 7, 0, 9));
            now += 6;
            all.push(switch(now, 9, 0, 7));
            now += 3;
            all.push(switch(now, 7, 1, 9));
        }
        let got = demands(&all, &[Tid(7)], 0, now, 1).by_thread;
        let bursts = vec![Burst { sleep_ns: 50, compute_ns: 5 }; 20];
        assert_eq!(got[&Tid(7)].demand, Demand::Recorded { bursts, repeat: true });
    }

    /// A thread that hardly sleeps has no arrivals of work: random sleeps of 10 in 4,000.
    #[test]
    fn who_hardly_rests_is_no_server() {
        let (mut all, mut now) = (vec![switch(0, 0, 0, 7)], 0);
        for k in 0..64u64 {
            now += 4000;
            all.push(switch(now, 7, 1, 9));
            now += 1 + (k * k * 7) % 19;
            all.push(wake(now, 7));
            all.push(switch(now + 2, 9, 0, 7));
        }
        let got = demands(&all, &[Tid(7)], 0, now + 2, 1);
        assert!(matches!(got.by_thread[&Tid(7)].demand, Demand::Recorded { .. }), "{:?}", got.by_thread);
        // From each wake-up to the pCPU it took 2.
        assert_eq!(got.hand_over_ns, 2);
    }

    /// In every round, ticks have the same distance from a timer, and so do periods of 10.
    #[test]
    fn a_round_is_whole_ticks_long() {
        let round = Round::of(1003, 1500, 4);
        assert_eq!(round, Round { begins_ns: 1000, length_ns: 504 });
        // A period that begins at 1007, and so at 997 and 987. That is at 7 of the first round, and 3 before
        // the second one, which begins at 504.
        assert_eq!((504 + 7 - round.second(987, 10)) % 10, 0);
        let all = [wake(1010, 7), switch(1011, 9, 0, 7), switch(1013, 7, 1, 9)];
        let got = demands(&all, &[Tid(7)], 1003, 1500, 4);
        assert_eq!(got.round, round);
        let Demand::Recorded { bursts, .. } = &got.by_thread[&Tid(7)].demand else { panic!() };
        assert_eq!(bursts[0], Burst { sleep_ns: 10, compute_ns: 2 });
    }

    #[test]
    fn who_ran_all_the_time_is_no_sleeper() {
        let at = |mono_ns, ran: [u64; 2]| {
            let thread = |(i, ran_ns): (usize, u64)| ThreadSample {
                vm: VmId("a".into()),
                role: Role::Vcpu(i as u32),
                tid: Tid(7 + i as u32),
                last_cpu: None,
                waiting_ns: None,
                counters: ThreadCounters { run_ns: Some(ran_ns), ..ThreadCounters::default() },
            };
            let threads = ran.into_iter().enumerate().map(thread).collect();
            Batch { mono_ns, threads, ..Batch::default() }
        };
        let mut got = demands(&[], &[Tid(7), Tid(8)], 100, 1100, 1).by_thread;
        unswitched(&mut got, &at(100, [40, 5]), &at(1100, [1040, 5]));
        assert_eq!((&got[&Tid(7)].demand, &got[&Tid(8)].demand), (&Demand::Hog, &Demand::Idle));
        assert_eq!(got[&Tid(7)].ran_ns, 1000);
    }

    #[test]
    fn a_burst_around_lost_switches_is_left_out() {
        let all = [
            wake(10, 7),
            switch(10, 0, 0, 7),
            switch(15, 7, 1, 0),
            wake(50, 7),
            switch(50, 0, 0, 7),
            Switch::loss(0, 50, 9),
            wake(90, 7),
            switch(90, 0, 0, 7),
            switch(97, 7, 1, 0),
        ];
        let got = demands(&all, &[Tid(7)], 0, 100, 1).by_thread;
        assert_eq!((got[&Tid(7)].bursts, got[&Tid(7)].broken), (2, 1));
        let Demand::Recorded { bursts, .. } = &got[&Tid(7)].demand else { panic!() };
        assert_eq!(bursts.iter().map(|b| b.compute_ns).collect::<Vec<_>>(), [5, 7]);
    }
}
