//! A vCPU that runs, sleeps and waits for timers in a given order, as a task of rt-app does.
//!
//! A timer counts from the start of its vCPU. Its next time is one period after its last one. A vCPU that comes later
//! than that does not sleep; then the timer restarts, or it catches up.
//!
//! Source: rt-app@1.0/src/rt-app.c (`run_event`, `rtapp_timer`). Left out: what depends on other tasks.

use super::times::positive;
use super::{NO_MORE, Next};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vsteer_core::span::LONGEST_NS;
use vsteer_core::{Fault, FaultKind};

/// What the vCPU does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Computes, ns of CPU time.
    Run(u64),
    /// Sleeps, ns.
    Sleep(u64),
    /// Sleeps until the timer's next time.
    Timer {
        /// Which timer.
        timer: u32,
        /// From its last time, ns.
        period_ns: u64,
        /// It catches up if the vCPU is late; otherwise it restarts.
        catches_up: bool,
    },
}

/// Steps in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceSpec {
    /// All of them.
    pub steps: Vec<Step>,
    /// From which of them on they repeat.
    pub again_from: usize,
    /// How often they are done; `None`: without end.
    pub rounds: Option<u64>,
}

impl SequenceSpec {
    pub(super) fn check(&self, whose: &str) -> Result<(), Fault> {
        let wrong = |what: &str, help: &str| {
            Err(Fault::new(FaultKind::BadInput, format!("{whose}: {what}")).help(help))
        };
        let ns = |step: &Step| match step {
            Step::Run(ns) | Step::Sleep(ns) | Step::Timer { period_ns: ns, .. } => *ns,
        };
        if self.steps.iter().any(|step| ns(step) > LONGEST_NS) {
            return wrong("a step is longer than ten years", "give a shorter time");
        }
        if let Some(i) = self.steps.iter().position(|step| *step == Step::Run(0)) {
            return positive(&format!("{whose}: step {}", i + 1), 0);
        }
        let runs = |steps: &[Step]| steps.iter().any(|step| matches!(step, Step::Run(_)));
        if !self.steps.get(self.again_from..).is_some_and(runs) {
            return wrong("no step that repeats computes", "add a step `run`, or use the demand \"idle\"");
        }
        Ok(())
    }
}

/// The state of a sequence.
#[derive(Debug, Clone)]
pub(super) struct Sequence {
    spec: SequenceSpec,
    place: usize,
    rounds: u64,
    began_ns: u64,
    timers: BTreeMap<u32, u64>,
}

impl Sequence {
    pub(super) fn new(spec: SequenceSpec) -> Sequence {
        Sequence { spec, place: 0, rounds: 0, began_ns: 0, timers: BTreeMap::new() }
    }

    pub(super) fn begin(&mut self, now_ns: u64) -> Next {
        self.began_ns = now_ns;
        self.next(now_ns)
    }

    /// The next burst after one that ended at `now_ns`.
    pub(super) fn next(&mut self, now_ns: u64) -> Next {
        let mut at_ns = now_ns;
        loop {
            if self.place == self.spec.steps.len() {
                self.rounds += 1;
                if self.spec.rounds.is_some_and(|rounds| self.rounds >= rounds) {
                    return NO_MORE;
                }
                self.place = self.spec.again_from;
            }
            let step = self.spec.steps[self.place];
            self.place += 1;
            match step {
                Step::Run(work_ns) => return Next { at_ns, work_ns },
                Step::Sleep(ns) => at_ns = at_ns.saturating_add(ns),
                Step::Timer { timer, period_ns, catches_up } => {
                    let last = self.timers.entry(timer).or_insert(self.began_ns);
                    *last = last.saturating_add(period_ns);
                    if at_ns < *last {
                        at_ns = *last;
                    } else if !catches_up {
                        *last = at_ns;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn timer(catches_up: bool) -> Step {
        Step::Timer { timer: 0, period_ns: 20 * MS, catches_up }
    }

    /// The times of a tutorial of rt-app: the third run takes 30 ms in place of 10 ms, and misses its timer.
    #[test]
    fn a_late_timer_restarts_or_catches_up() {
        for (catches_up, starts) in [(false, [0, 20, 40, 70, 90, 110]), (true, [0, 20, 40, 70, 80, 100])] {
            let steps = vec![Step::Run(10 * MS), timer(catches_up)];
            let mut s = Sequence::new(SequenceSpec { steps, again_from: 0, rounds: None });
            let mut next = s.begin(0);
            for (i, start) in starts.into_iter().enumerate() {
                assert_eq!(next, Next { at_ns: start * MS, work_ns: 10 * MS }, "{catches_up} {i}");
                let took = if i == 2 { 30 } else { 10 };
                next = s.next(next.at_ns + took * MS);
            }
        }
    }

    #[test]
    fn steps_repeat_from_their_place_and_end() {
        let steps = vec![Step::Sleep(5), Step::Run(1), Step::Run(2), Step::Sleep(3), Step::Sleep(4)];
        let mut s = Sequence::new(SequenceSpec { steps, again_from: 2, rounds: Some(2) });
        let mut told = Vec::new();
        let mut next = s.begin(100);
        while next != NO_MORE {
            told.push((next.at_ns, next.work_ns));
            next = s.next(next.at_ns + next.work_ns);
        }
        assert_eq!(told, [(105, 1), (106, 2), (115, 2)]);
    }

    #[test]
    fn a_sequence_that_never_computes_is_refused() {
        let spec = |steps: Vec<Step>, again_from| SequenceSpec { steps, again_from, rounds: None };
        assert!(spec(vec![Step::Run(1)], 0).check("a").is_ok());
        for bad in [
            spec(vec![], 0),
            spec(vec![Step::Sleep(1)], 0),
            spec(vec![Step::Run(1), Step::Sleep(1)], 1),
            spec(vec![Step::Run(1)], 7),
            spec(vec![Step::Run(0)], 0),
            spec(vec![Step::Run(1), Step::Sleep(u64::MAX)], 0),
        ] {
            assert!(bad.check("a").is_err(), "{bad:?}");
        }
    }
}
