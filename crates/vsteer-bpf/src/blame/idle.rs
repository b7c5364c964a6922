//! When did at least one pCPU of an affinity set idle?

use super::history::{History, Ran};
use vsteer_core::CpuSet;

/// Times, in order, that do not touch, and how much lies before each.
#[derive(Debug, Default)]
pub(super) struct Idle {
    times: Vec<(u64, u64)>,
    before: Vec<u64>,
}

impl Idle {
    /// That of these pCPUs between two moments.
    pub(super) fn of(cpus: &CpuSet, histories: &[History], from: u64, to: u64) -> Idle {
        let history = |cpu: u32| histories.get(cpu as usize);
        let nobody = |history: &History| -> Vec<(u64, u64)> {
            let idle = history.between(from, to).filter(|(ran, ..)| *ran == Ran::Nobody);
            idle.map(|(_, from, to)| (from, to)).collect()
        };
        let mut all: Vec<(u64, u64)> = cpus.iter().filter_map(history).flat_map(nobody).collect();
        all.sort_unstable();
        let mut idle = Idle::default();
        for (from, to) in all {
            match idle.times.last_mut() {
                Some((_, end)) if from <= *end => *end = to.max(*end),
                _ => idle.times.push((from, to)),
            }
        }
        let mut sum = 0;
        for (from, to) in &idle.times {
            idle.before.push(sum);
            sum += to - from;
        }
        idle
    }

    /// How much of the time between two moments it was.
    pub(super) fn within(&self, from: u64, to: u64) -> u64 {
        self.until(to) - self.until(from)
    }

    fn until(&self, moment: u64) -> u64 {
        let Some(i) = self.times.partition_point(|(from, _)| *from <= moment).checked_sub(1) else {
            return 0;
        };
        let (from, to) = self.times[i];
        self.before[i] + moment.min(to) - from
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::tests::spell;
    use super::*;

    #[test]
    fn two_pcpus_that_idle_at_once_count_once() {
        let mut histories = [History::default(), History::default(), History::default()];
        histories[0].add(vec![spell(0, 1), spell(10, 0), spell(20, 1), spell(50, 0), spell(60, 1)], None);
        histories[1].add(vec![spell(0, 1), spell(15, 0), spell(30, 1)], None);
        histories[2].add(vec![spell(0, 0)], None);
        let idle = Idle::of(&CpuSet::first(2), &histories, 0, 100);
        assert_eq!(idle.times, [(10, 30), (50, 60)]);
        assert_eq!(
            [(0, 100), (0, 10), (12, 55), (30, 50), (59, 100)].map(|(a, b)| idle.within(a, b)),
            [30, 0, 23, 0, 1]
        );
        assert_eq!(Idle::of(&CpuSet::first(9), &histories, 40, 50).within(0, 100), 10);
        assert_eq!(Idle::of(&CpuSet::new(), &histories, 0, 100).within(0, 100), 0);
    }
}
