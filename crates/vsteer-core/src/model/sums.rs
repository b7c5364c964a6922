//! By how much did each thread's counters rise over a window of several samples?
//!
//! Counters are cumulative, so over a run of samples in which none of them falls the rise is that from the first to the last.
//! Only where a counter fell, or a thread was away, are there several rises to add. A service that looks at 1,600 threads
//! each second so reads two of seven samples in full.

use crate::nouns::{Batch, Role, ThreadCounters, ThreadSample, Tid, VmId, rise};
use std::borrow::Borrow;
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// What identifies a thread in a batch.
pub(super) type ThreadKey<'a> = (&'a VmId, Role, Tid);

fn key(t: &ThreadSample) -> ThreadKey<'_> {
    (&t.vm, t.role, t.tid)
}

/// A thread that was seen at both ends of an interval.
pub(super) struct Interval<'a> {
    pub(super) ns: u64,
    pub(super) earlier: &'a ThreadSample,
    pub(super) later: &'a ThreadSample,
}

/// Every interval of every thread seen at both of its ends.
pub(super) fn intervals<'a, B: Borrow<Batch>>(batches: &'a [B]) -> impl Iterator<Item = Interval<'a>> {
    batches.windows(2).flat_map(|pair| {
        let pair: [&Batch; 2] = [pair[0].borrow(), pair[1].borrow()];
        let before = OnceCell::<BTreeMap<ThreadKey<'a>, &ThreadSample>>::new();
        let of_all = move || pair[0].threads.iter().map(|t| (key(t), t)).collect();
        let ns = pair[1].mono_ns.saturating_sub(pair[0].mono_ns);
        pair[1].threads.iter().enumerate().filter_map(move |(i, later)| {
            // Mostly it has the same place in both.
            let same = pair[0].threads.get(i).filter(|earlier| key(earlier) == key(later));
            let earlier = same.or_else(|| before.get_or_init(of_all).get(&key(later)).copied())?;
            Some(Interval { ns, earlier, later })
        })
    })
}

/// Sums of one thread's counters over the intervals in which it was seen at both ends.
#[derive(Default)]
pub(super) struct Sum {
    pub(super) seen_ns: u64,
    pub(super) counters: ThreadCounters,
    pub(super) last_cpu: Option<u32>,
    /// Run time by pCPU, ns, and the number of intervals. A thread is found on few pCPUs.
    pub(super) ran_on: Vec<(u32, u64, u32)>,
}

impl Sum {
    /// Counts an interval that ended on this pCPU.
    fn place(&mut self, cpu: Option<u32>, run_ns: Option<u64>) {
        self.last_cpu = cpu;
        let (Some(cpu), Some(run_ns)) = (cpu, run_ns.filter(|ns| *ns > 0)) else { return };
        match self.ran_on.iter_mut().find(|(known, ..)| *known == cpu) {
            Some((_, ns, samples)) => (*ns, *samples) = (ns.saturating_add(run_ns), *samples + 1),
            None => self.ran_on.push((cpu, run_ns, 1)),
        }
    }
}

/// A sum that is being made.
#[derive(Default)]
struct Adding<'a> {
    sum: Sum,
    /// Does the sum hold the counters of a run that is over?
    has_counters: bool,
    /// First and last sample of the run.
    run: Option<[&'a ThreadSample; 2]>,
}

impl<'a> Adding<'a> {
    fn add(&mut self, Interval { ns, earlier, later }: Interval<'a>) {
        self.sum.seen_ns += ns;
        self.sum.place(later.last_cpu, rise(earlier.counters.run_ns, later.counters.run_ns));
        let continues = later.counters.continues(&earlier.counters);
        match &mut self.run {
            Some([_, last]) if continues && std::ptr::eq(*last, earlier) => *last = later,
            _ => {
                self.end_run();
                self.run = Some([earlier, later]);
                if !continues {
                    self.end_run();
                }
            }
        }
    }

    fn end_run(&mut self) {
        let Some([first, last]) = self.run.take() else { return };
        let rose = last.counters.since(&first.counters);
        self.sum.counters = if self.has_counters { self.sum.counters.plus(&rose) } else { rose };
        self.has_counters = true;
    }

    fn finish(mut self) -> Sum {
        self.end_run();
        self.sum
    }
}

/// What each thread's counters rose by in all intervals, in the order in which threads came.
pub(super) fn sums<B: Borrow<Batch>>(batches: &[B]) -> Vec<(ThreadKey<'_>, Sum)> {
    let mut sums: Vec<(ThreadKey<'_>, Adding<'_>)> = Vec::new();
    for interval in intervals(&batches[..batches.len().min(2)]) {
        let mut first = Adding::default();
        let key = key(interval.later);
        first.add(interval);
        sums.push((key, first));
    }
    let mut known: BTreeMap<ThreadKey<'_>, usize> = BTreeMap::new();
    let (mut guess, mut listed) = (0, 0);
    for interval in intervals(batches.get(1..).unwrap_or_default()) {
        let key = key(interval.later);
        // Mostly the threads of an interval are those of the one before, in the same order.
        let is_this = |at: &usize| sums.get(*at).is_some_and(|(of, _)| *of == key);
        let at = [guess, 0].into_iter().find(is_this).unwrap_or_else(|| {
            known.extend(sums.iter().enumerate().skip(listed).map(|(i, (key, _))| (*key, i)));
            listed = sums.len();
            known.get(&key).copied().unwrap_or(sums.len())
        });
        if at == sums.len() {
            sums.push((key, Adding::default()));
        }
        sums[at].1.add(interval);
        guess = at + 1;
    }
    sums.into_iter().map(|(key, adding)| (key, adding.finish())).collect()
}
