//! A period by a published rule ([`crate::rule`]), which knows of no period before it.

use super::{
    ANSWERED, Decision, Driver, HOLDS, Holder, Interval, Outcome, Period, Violation, VmPeriod, left, with_new,
};
use crate::control::Candidate;
use crate::rule::{Profile, Published, rate_peak_hz};

impl Holder {
    pub(super) fn step_by(&mut self, rule: Published, period: Period, driver: Driver) -> Outcome {
        self.pool.clear();
        self.gathered.iter_mut().for_each(Vec::clear);
        let span_ns = period.span_ns;
        self.pool_with(period);
        let now = self.pool[0].clone();
        let intervals: Vec<Option<Interval>> = (0..now.vms.len()).map(|i| self.interval(i)).collect();
        let is_alive = |vm: &Option<VmPeriod>| vm.as_ref().is_some_and(|v| v.dead.is_none());
        let turned: Vec<usize> =
            (0..now.vms.len()).filter(|i| intervals[*i].is_some() && is_alive(&now.vms[*i])).collect();
        let profile = |i: &usize| {
            let rate_peak_hz = rate_peak_hz(&self.gathered[*i], span_ns);
            Some(Profile { seen: intervals[*i].as_ref()?.seen, level: self.promises[*i].level, rate_peak_hz })
        };
        let profiles: Vec<Profile> = turned.iter().filter_map(profile).collect();
        let found: Vec<Option<Violation>> =
            turned.iter().zip(&profiles).map(|(i, vm)| self.missed(*i, vm)).collect();
        let decision = if turned.is_empty() {
            Decision::Keep
        } else {
            rule.decide(&profiles, driver, left(&now, &intervals, &turned))
        };
        let weights: Vec<f64> = now.vms.iter().map(|v| v.as_ref().map_or(0.0, |v| v.vm.weight)).collect();
        let decision = match decision {
            Decision::Set { weights: new, worst } => {
                Decision::Set { weights: with_new(&weights, &turned, &new), worst }
            }
            Decision::Move { worst, candidates } => {
                let of_all = |c: Candidate| Candidate { vm: turned[c.vm], ..c };
                Decision::Move { worst, candidates: candidates.into_iter().map(of_all).collect() }
            }
            Decision::Keep => Decision::Keep,
        };
        let wrong = self.wrong(&turned, &found, self.helpless(&intervals));
        let why = match &decision {
            Decision::Keep if wrong == HOLDS => wrong,
            Decision::Keep => format!("{wrong}; the rule of {} changes nothing", rule.named()),
            other => format!("{wrong}; by the rule of {}, {}", rule.named(), self.reason(other)),
        };
        let mut violations = vec![None; now.vms.len()];
        turned.iter().zip(&found).for_each(|(i, v)| violations[*i] = *v);
        let seen = intervals.iter().map(|i| i.as_ref().map(|i| i.seen)).collect();
        Outcome { seen, violations, pooled: 1, shifted: false, decision, why }
    }

    /// How a VM misses its level in this period.
    fn missed(&self, i: usize, vm: &Profile) -> Option<Violation> {
        let served_hz = self.served_hz(i);
        let due_hz = vm.level.rate_hz.map_or(0.0, |rate| rate.min(vm.seen.rate_hz));
        if served_hz < ANSWERED * due_hz {
            return Some(Violation::Throughput { served_hz, due_hz });
        }
        let part = vm.level.part(vm.seen.response);
        (part > 1.0).then_some(Violation::Response { part })
    }
}
