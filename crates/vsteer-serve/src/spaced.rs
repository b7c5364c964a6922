//! Samples 15 seconds apart, for a model over a minute: counters are cumulative, so the samples in between add nothing but what
//! they blame.
//!
//! A host that starts many processes blames thousands of them in a minute. So blame is kept as sums, of which each VM has a
//! bounded number.

use std::collections::BTreeMap;
use std::sync::Arc;
use vsteer_core::Fault;
use vsteer_core::model::{HostModel, derive_blaming};
use vsteer_core::nouns::{Batch, BlameSample, Collector, Culprit, HostConfig, VmId};

/// A step of the wall clock. The first sample of each is kept, so all that keep samples keep the same ones.
const STEP_NS: u64 = 15_000_000_000;
/// Culprits of a VM in one step. Above it, processes of one name become one.
const MOST: usize = 64;

/// For each VM: the time that it waited because of each culprit, ns.
#[derive(Default)]
struct Blamed {
    by_vm: BTreeMap<VmId, BTreeMap<Culprit, i64>>,
}

fn add(sums: &mut BTreeMap<Culprit, i64>, culprit: Culprit, ns: i64) {
    let sum = sums.entry(culprit).or_default();
    *sum = sum.saturating_add(ns);
}

impl Blamed {
    fn see(&mut self, blame: &[BlameSample]) {
        for b in blame {
            let sums = match self.by_vm.get_mut(&b.victim) {
                Some(sums) => sums,
                None => self.by_vm.entry(b.victim.clone()).or_default(),
            };
            match sums.get_mut(&b.culprit) {
                Some(sum) => *sum = sum.saturating_add(b.ns),
                None => {
                    sums.insert(b.culprit.clone(), b.ns);
                    if sums.len() > MOST {
                        shorten(sums);
                    }
                }
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = (&VmId, &Culprit, i64)> {
        self.by_vm.iter().flat_map(|(vm, sums)| sums.iter().map(move |(culprit, ns)| (vm, culprit, *ns)))
    }
}

/// Halves a list of culprits that became too long. What the smallest cost remains, without their names.
fn shorten(sums: &mut BTreeMap<Culprit, i64>) {
    let mut short = BTreeMap::new();
    for (culprit, ns) in std::mem::take(sums) {
        add(&mut short, culprit.without_pid(), ns);
    }
    if short.len() > MOST / 2 {
        let mut costs: Vec<i64> = short.values().copied().collect();
        costs.sort_unstable_by(|a, b| b.cmp(a));
        let least = costs[MOST / 2];
        let small: Vec<_> = short.extract_if(.., |_, ns| *ns <= least).collect();
        small.into_iter().for_each(|(_, ns)| add(&mut short, Culprit::Unattributed, ns));
    }
    *sums = short;
}

/// A sample that is kept, and what was blamed since the one before.
struct Step {
    batch: Arc<Batch>,
    blamed: Blamed,
}

/// Neighbouring samples that were kept.
#[derive(Default)]
pub struct Steps(Vec<Step>);

impl Steps {
    /// The samples.
    pub fn batches(&self) -> Vec<Arc<Batch>> {
        self.0.iter().map(|step| Arc::clone(&step.batch)).collect()
    }

    /// Do they reach over a step at least? A shorter time says little.
    pub fn are_enough(&self) -> bool {
        let ns = |step: Option<&Step>| step.map_or(0, |step| step.batch.mono_ns);
        ns(self.0.last()) - ns(self.0.first()) >= STEP_NS * 9 / 10
    }

    /// The model from the first to the last.
    ///
    /// # Errors
    /// As [`derive_blaming`].
    pub fn derive(&self, config: &HostConfig, collector: &Collector) -> Result<HostModel, Fault> {
        // What the first one blames is from before.
        let blamed = self.0.iter().skip(1).flat_map(|step| step.blamed.all());
        derive_blaming(config, collector, &self.batches(), blamed)
    }
}

/// The samples that are kept, each with all that was blamed since the one before.
#[derive(Default)]
pub struct Spaced {
    kept: Steps,
    /// Blamed since the newest of them.
    blamed: Blamed,
}

impl Spaced {
    /// Takes a sample and what it blames. Returns whether it is kept.
    pub fn see(&mut self, batch: &Arc<Batch>, blame: &[BlameSample]) -> bool {
        self.blamed.see(blame);
        let step = |batch: &Batch| batch.unix_ns / STEP_NS;
        let is_first = self.kept.0.last().is_none_or(|last| step(&last.batch) != step(batch));
        if is_first {
            self.keep(batch);
        }
        is_first
    }

    fn keep(&mut self, batch: &Arc<Batch>) {
        self.kept.0.push(Step { batch: Arc::clone(batch), blamed: std::mem::take(&mut self.blamed) });
    }

    /// The samples that are kept.
    pub fn kept(&self) -> &Steps {
        &self.kept
    }

    /// Forgets samples that are not needed to reach back over this time, half a step more or less. Where samples are rarer,
    /// two of them are kept.
    pub fn keep_last(&mut self, ns: u64) {
        let all = &mut self.kept.0;
        let Some(newest) = all.last().map(|step| step.batch.mono_ns) else { return };
        let reaches = |step: &Step| newest.saturating_sub(step.batch.mono_ns) + STEP_NS / 2 >= ns;
        let first = all.iter().rposition(reaches).unwrap_or(0);
        all.drain(..first);
    }

    /// The samples up to `last`, the newest one that was seen. What follows begins with it.
    pub fn close(&mut self, last: &Arc<Batch>) -> Steps {
        if self.kept.0.last().is_none_or(|kept| kept.batch.mono_ns < last.mono_ns) {
            self.keep(last);
        }
        let next = Step { batch: Arc::clone(last), blamed: Blamed::default() };
        std::mem::replace(&mut self.kept, Steps(vec![next]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::nouns::Role;

    fn blame(culprit: Culprit, ns: i64) -> BlameSample {
        BlameSample { victim: VmId("web".into()), role: Role::Vcpu(0), culprit, ns }
    }

    fn sums(of: &Steps) -> Vec<i64> {
        of.0.iter().map(|step| step.blamed.all().map(|(_, _, ns)| ns).sum()).collect()
    }

    #[test]
    fn all_that_is_blamed_is_kept_once() {
        let batch = |s: u64| {
            Arc::new(Batch { mono_ns: s * 1_000_000_000, unix_ns: s * 1_000_000_000, ..Batch::default() })
        };
        let mut all = Spaced::default();
        let blamed = |s: u64| [blame(Culprit::Placement, 10_i64.pow(s as u32 % 10))];
        let kept: Vec<bool> = [0, 3, 21, 22].map(|s| all.see(&batch(s), &blamed(s))).into();
        assert_eq!(kept, [true, false, true, false]);
        assert_eq!(sums(all.kept()), [1, 1_010]);
        let closed = all.close(&batch(22));
        assert_eq!(sums(&closed), [1, 1_010, 100]);
        assert_eq!(sums(all.kept()), [0], "the next one begins where this one ended");
    }

    #[test]
    fn a_minute_is_a_minute_at_any_interval() {
        let kept = |seconds: &mut dyn Iterator<Item = u64>| -> Vec<u64> {
            let mut all = Spaced::default();
            for s in seconds {
                let (mono_ns, unix_ns) = (s * 1_000_000_000, s * 1_000_000_000);
                all.see(&Arc::new(Batch { mono_ns, unix_ns, ..Batch::default() }), &[]);
                all.keep_last(60_000_000_000);
            }
            all.kept().batches().iter().map(|batch| batch.mono_ns / 1_000_000_000).collect()
        };
        assert_eq!(kept(&mut (0..=123)), [60, 75, 90, 105, 120]);
        assert_eq!(kept(&mut (0..=20).map(|n| 20 * n)), [340, 360, 380, 400]);
        assert_eq!(kept(&mut (0..=9).map(|n| 60 * n)), [480, 540]);
        assert_eq!(kept(&mut [0, 10, 20, 500].into_iter()), [20, 500], "a gap");
        assert_eq!(kept(&mut [0, 15].into_iter()), [0, 15]);
    }

    #[test]
    fn processes_without_end_are_a_bounded_number_of_culprits() {
        let mut all = Blamed::default();
        let process = |pid: u32| Culprit::process(format!("job-{}", pid / 7), pid);
        let samples: Vec<_> = (0..10_000).map(|pid| blame(process(pid), 5)).collect();
        all.see(&[blame(Culprit::Vm(VmId("db".into())), 1_000)]);
        all.see(&samples);
        assert!(all.all().count() <= MOST, "{}", all.all().count());
        assert_eq!(all.all().map(|(_, _, ns)| ns).sum::<i64>(), 51_000, "nothing is lost");
        assert!(all.all().any(|of| *of.1 == Culprit::Vm(VmId("db".into())) && of.2 == 1_000));
    }
}
