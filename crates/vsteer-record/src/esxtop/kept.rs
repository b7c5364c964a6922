//! Limits the memory for samples by dropping some of them.
//!
//! Counters rise, so leaving out a sample does not change the sums around it. vsteer keeps all samples until
//! they need too much memory. Then it drops every second one, and from there on makes only every second one.
//! This may repeat. The last sample always stays. If a thread is missing in a dropped sample, the next kept
//! one also leaves it out. Its counters stood still, which would look like rest.

use std::collections::BTreeSet;
use std::mem::size_of;
use vsteer_core::nouns::{Batch, PcpuSample, ThreadSample, Tid, VmId, VmSample};

/// Samples; some are dropped if there are too many.
pub(super) struct Kept {
    limit_bytes: usize,
    batches: Vec<Batch>,
    /// One in this many samples is kept.
    every: u64,
    count: u64,
    /// The last sample was not kept.
    skipped: bool,
    /// The last sample that was kept first and dropped later.
    passed: Option<Batch>,
}

impl Kept {
    pub(super) fn new(limit_bytes: usize) -> Kept {
        Kept { limit_bytes, batches: Vec::new(), every: 1, count: 0, skipped: false, passed: None }
    }

    /// Takes the next sample. `make` runs only if the sample is kept.
    pub(super) fn offer(&mut self, make: impl FnOnce() -> Batch) {
        self.skipped = !self.count.is_multiple_of(self.every);
        self.count += 1;
        if self.skipped {
            return;
        }
        self.add(make());
        let most = (self.limit_bytes / bytes_of(&self.batches[0])).max(16);
        if self.batches.len() > most {
            self.join();
        }
    }

    fn add(&mut self, mut batch: Batch) {
        if let Some(passed) = self.passed.take() {
            only_those_in(&mut batch, &passed);
        }
        self.batches.push(batch);
    }

    fn join(&mut self) {
        self.every *= 2;
        let mut joined: Vec<Batch> = Vec::with_capacity(self.batches.len() / 2 + 1);
        let mut dropped: Option<Batch> = None;
        for (i, mut batch) in std::mem::take(&mut self.batches).into_iter().enumerate() {
            if i % 2 == 1 {
                dropped = Some(batch);
                continue;
            }
            if let Some(dropped) = dropped.take() {
                only_those_in(&mut batch, &dropped);
            }
            joined.push(batch);
        }
        // If the number is even, the last sample is not one of those that stay.
        self.passed = dropped;
        self.batches = joined;
    }

    /// All kept samples, and how many original ones each stands for. If the last sample was not kept, `make`
    /// makes it.
    pub(super) fn finish(mut self, make: impl FnOnce() -> Batch) -> (Vec<Batch>, u64) {
        if self.skipped {
            self.add(make());
        }
        self.batches.extend(self.passed.take());
        (self.batches, self.every)
    }
}

fn bytes_of(batch: &Batch) -> usize {
    let threads = batch.threads.iter().map(|t| size_of::<ThreadSample>() + t.vm.0.len() + 16);
    let vms = batch.vms.iter().map(|v| size_of::<VmSample>() + v.vm.0.len() + 16);
    threads.chain(vms).sum::<usize>() + batch.pcpus.len() * size_of::<PcpuSample>() + size_of::<Batch>()
}

/// Leaves out of a sample the threads that were missing in the dropped sample before it: their counters stood still.
fn only_those_in(batch: &mut Batch, before: &Batch) {
    let same = batch.threads.len() == before.threads.len()
        && batch.threads.iter().zip(&before.threads).all(|(a, b)| a.tid == b.tid);
    if !same {
        let there: BTreeSet<(&VmId, Tid)> = before.threads.iter().map(|t| (&t.vm, t.tid)).collect();
        batch.threads.retain(|t| there.contains(&(&t.vm, t.tid)));
    }
    // Every sample has the same VMs in the same order.
    for (vm, was) in batch.vms.iter_mut().zip(&before.vms) {
        if was.group.is_none() {
            vm.group = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::nouns::{Role, ThreadCounters};

    fn batch(i: u64, tids: &[u32]) -> Batch {
        let thread = |tid: &u32| ThreadSample {
            vm: VmId("a".into()),
            role: Role::Vcpu(*tid),
            tid: Tid(*tid),
            last_cpu: None,
            waiting_ns: None,
            counters: ThreadCounters { run_ns: Some(i * 10), ..ThreadCounters::default() },
        };
        Batch { mono_ns: i * 100, unix_ns: i, threads: tids.iter().map(thread).collect(), ..Batch::default() }
    }

    /// For any number of samples, the first and the last stay, and one in N in between.
    #[test]
    fn joined_samples_tell_the_same() {
        for n in [1u64, 2, 15, 16, 17, 18, 33, 64, 65, 100, 1000] {
            let mut kept = Kept::new(0);
            (0..n).for_each(|i| kept.offer(|| batch(i, &[0, 1])));
            let (batches, every) = kept.finish(|| batch(n - 1, &[0, 1]));
            assert!(batches.len() <= 18, "{n}: {}", batches.len());
            assert_eq!((batches[0].unix_ns, batches[batches.len() - 1].unix_ns), (0, n - 1), "{n}");
            let whole = batches.len() as u64 - 1;
            assert!(batches.iter().take(whole as usize).all(|b| b.unix_ns % every == 0), "{n} by {every}");
            assert!(batches.windows(2).all(|w| w[0].unix_ns < w[1].unix_ns));
        }
    }

    /// If a thread is missing in a dropped sample, it is missing in the next kept one, because its counters
    /// stood still.
    #[test]
    fn an_absence_survives_joining() {
        let mut kept = Kept::new(0);
        (0..40).for_each(|i| kept.offer(|| batch(i, if i == 5 { &[0] } else { &[0, 1] })));
        let (batches, every) = kept.finish(|| batch(39, &[0, 1]));
        assert_eq!(every, 4);
        let lacking: Vec<u64> = batches.iter().filter(|b| b.threads.len() == 1).map(|b| b.unix_ns).collect();
        assert_eq!(lacking, [8]);
    }
}
