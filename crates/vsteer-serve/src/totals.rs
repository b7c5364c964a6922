//! What did each role of a VM count since its VM came? Counters that never fall while the VM is there.
//!
//! A thread's counters end with it: a vCPU that is unplugged takes its own along, and workers come and go by the second. A sum
//! over threads would fall, and `rate()` would take that for a restart. So what threads had counted when they ended is kept, by
//! VM and role, until the VM itself is gone.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vsteer_core::nouns::{Batch, Role, ThreadCounters, ThreadSample, VmId};

/// What a VM's threads had counted that have ended, by role.
pub type Ended = BTreeMap<VmId, BTreeMap<Role, ThreadCounters>>;

/// The newest sample, and what ended before it.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    batch: Arc<Batch>,
    ended: Arc<Ended>,
}

impl Totals {
    /// With a newer sample.
    #[must_use]
    pub fn with(&self, batch: Arc<Batch>) -> Totals {
        // Mostly the threads are those of the sample before, in the same order.
        let key = |t: &ThreadSample| (t.tid, t.role);
        let (now, before) = (&batch.threads, &self.batch.threads);
        if now.len() == before.len() && now.iter().zip(before).all(|(a, b)| key(a) == key(b) && a.vm == b.vm)
        {
            return Totals { batch, ended: Arc::clone(&self.ended) };
        }
        let vms: BTreeSet<&VmId> = batch.threads.iter().map(|t| &t.vm).collect();
        let now: BTreeSet<_> = batch.threads.iter().map(|t| (&t.vm, t.tid, t.role)).collect();
        let is_over = |t: &&ThreadSample| !now.contains(&(&t.vm, t.tid, t.role)) && vms.contains(&t.vm);
        let over: Vec<_> = self.batch.threads.iter().filter(is_over).collect();
        let gone = self.ended.keys().any(|vm| !vms.contains(vm));
        let mut ended = Arc::clone(&self.ended);
        if gone || !over.is_empty() {
            let all = Arc::make_mut(&mut ended);
            all.retain(|vm, _| vms.contains(vm));
            // Of what was not measured nothing can be kept: it would hide what is measured since.
            for t in over.into_iter().filter(|t| t.counters != ThreadCounters::default()) {
                let roles = all.entry(t.vm.clone()).or_default();
                let sum = roles.get(&t.role).map_or_else(|| t.counters.clone(), |sum| sum.plus(&t.counters));
                roles.insert(t.role, sum);
            }
        }
        Totals { batch, ended }
    }

    /// The newest sample.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// The same, to keep.
    pub fn shared(&self) -> &Arc<Batch> {
        &self.batch
    }

    /// By VM and role, in that order: what its threads have counted, those that have ended included.
    pub fn by_role(&self) -> Vec<((&VmId, Role), Cow<'_, ThreadCounters>)> {
        let running = self.batch.threads.iter().map(|t| ((&t.vm, t.role), &t.counters));
        let ended = self.ended.iter().flat_map(|(vm, roles)| roles.iter().map(move |(r, c)| ((vm, *r), c)));
        let mut parts: Vec<_> = running.chain(ended).collect();
        // Mostly they are sorted but for a few, and one thread has the role: nothing is copied.
        parts.sort_by_key(|(of, _)| *of);
        let sum = |of: &[(_, &ThreadCounters)]| {
            of[1..].iter().fold(of[0].1.clone(), |sum, (_, counters)| sum.plus(counters))
        };
        let all = parts.chunk_by(|(a, _), (b, _)| a == b);
        all.map(|of| (of[0].0, if of.len() == 1 { Cow::Borrowed(of[0].1) } else { Cow::Owned(sum(of)) }))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vsteer_core::nouns::Tid;

    fn batch(threads: &[(&str, Role, u32, u64)]) -> Arc<Batch> {
        let one = |(vm, role, tid, run_ns): &(&str, Role, u32, u64)| ThreadSample {
            vm: VmId((*vm).into()),
            role: *role,
            tid: Tid(*tid),
            last_cpu: None,
            waiting_ns: None,
            counters: ThreadCounters { run_ns: Some(*run_ns), ..ThreadCounters::default() },
        };
        Arc::new(Batch { threads: threads.iter().map(one).collect(), ..Batch::default() })
    }

    fn runs(totals: &Totals, vm: &str, role: Role) -> Option<u64> {
        totals.by_role().into_iter().find(|(of, _)| *of == (&VmId(vm.into()), role))?.1.run_ns
    }

    #[test]
    fn what_a_thread_counted_stays_until_its_vm_is_gone() {
        let vcpu = Role::Vcpu(0);
        let all = Totals::default().with(batch(&[("a", vcpu, 1, 5), ("a", Role::Worker, 2, 7)]));
        let all = all.with(batch(&[("a", vcpu, 1, 6), ("a", Role::Worker, 3, 1)]));
        assert_eq!((runs(&all, "a", vcpu), runs(&all, "a", Role::Worker)), (Some(6), Some(8)));
        let all = all.with(batch(&[("a", vcpu, 1, 6)]));
        assert_eq!(runs(&all, "a", Role::Worker), Some(8), "no worker is left");
        let all = all.with(batch(&[("b", vcpu, 9, 1)]));
        let all = all.with(batch(&[("a", vcpu, 11, 2)]));
        assert_eq!((runs(&all, "a", vcpu), runs(&all, "a", Role::Worker)), (Some(2), None), "another run");
    }

    proptest! {
        /// Whatever threads come and go: while the VM is there, its sums never fall.
        #[test]
        fn sums_never_fall(steps in prop::collection::vec(prop::collection::vec((1_u32..6, 0_u64..9), 0..5), 1..12)) {
            let mut counted: BTreeMap<u32, u64> = BTreeMap::new();
            let mut totals = Totals::default().with(batch(&[("a", Role::Vcpu(0), 100, 0)]));
            let mut before = 0;
            for step in steps {
                let mut threads = vec![("a", Role::Vcpu(0), 100, 0)];
                let now: BTreeMap<u32, u64> = step.into_iter().collect();
                // A thread that ends does not come back with its counter: the kernel starts at 0.
                counted.retain(|tid, _| now.contains_key(tid));
                for (tid, more) in now {
                    let sum = counted.entry(tid).or_default();
                    *sum += more;
                    threads.push(("a", Role::Worker, tid, *sum));
                }
                totals = totals.with(batch(&threads));
                let is = runs(&totals, "a", Role::Worker).unwrap_or(0);
                prop_assert!(is >= before, "{before} -> {is}");
                before = is;
            }
        }
    }
}
