//! Who made each VM wait, as counters that Prometheus can take: few series, and none that falls.
//!
//! A host that starts many processes has thousands of culprits in a day. So each VM has a bounded number of them by name. A
//! culprit gets a name once it made the VM wait long enough, and keeps it until the VM is gone: a series that ended and began
//! again would give `rate()` nothing. What it had before, and what all others cost, is the rest. The rest never falls either.
//!
//! An observer may charge an open wait to one culprit first, and to another one later: what it takes back lowers what is to
//! come, not what was told.

use std::collections::{BTreeMap, BTreeSet};
use vsteer_core::nouns::{BlameSample, Culprit, VmId};

/// Names of one VM, beside the rest.
const NAMES: usize = 12;
/// A culprit has a name once it cost the VM this much, ns.
const NAMED_FROM_NS: i64 = 100_000_000;
/// Culprits without a name of which the sum is kept, for each VM.
const UNNAMED: usize = 64;

/// A counter that never falls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Rising {
    /// What was charged less what was taken back, ns.
    is: i64,
    /// The most that it was.
    told: i64,
}

impl Rising {
    fn add(&mut self, ns: i64) {
        self.is = self.is.saturating_add(ns);
        self.told = self.told.max(self.is);
    }
}

/// What one VM waited for.
#[derive(Debug, Clone, Default)]
struct OfVm {
    named: BTreeMap<Culprit, Rising>,
    rest: Rising,
    /// What those have cost so far that may yet get a name, and when they did last; it is in the rest.
    unnamed: BTreeMap<Culprit, (i64, u64)>,
    /// Number of charges to those without a name.
    charges: u64,
}

impl OfVm {
    fn add(&mut self, culprit: &Culprit, ns: i64) {
        if let Some(named) = self.named.get_mut(culprit) {
            named.add(ns);
            return;
        }
        self.rest.add(ns);
        self.charges += 1;
        let (cost, charged) = self.unnamed.entry(culprit.clone()).or_default();
        *cost = cost.saturating_add(ns);
        *charged = self.charges;
        // VMs are few, and who asks for blame wants to know them.
        let is_plain = matches!(culprit, Culprit::Vm(_) | Culprit::Placement | Culprit::Unattributed);
        if (*cost >= NAMED_FROM_NS || is_plain && *cost > 0) && self.named.len() < NAMES {
            self.unnamed.remove(culprit);
            self.named.insert(culprit.clone(), Rising::default());
        } else if self.unnamed.len() > UNNAMED {
            // The one that has been quiet longest. The smallest would mostly be the newcomer, which then never gets a name.
            let quiet = self.unnamed.iter().min_by_key(|(_, (_, charged))| *charged);
            let quiet = quiet.map(|(culprit, _)| culprit.clone());
            quiet.iter().for_each(|culprit| {
                self.unnamed.remove(culprit);
            });
        }
    }
}

/// What all VMs waited for since they came.
#[derive(Debug, Clone, Default)]
pub struct Culprits {
    by_vm: BTreeMap<VmId, OfVm>,
}

impl Culprits {
    /// Adds what one sample tells; `here` are the VMs that are there.
    pub fn see(&mut self, blame: &[BlameSample], here: &BTreeSet<&VmId>) {
        self.by_vm.retain(|vm, _| here.contains(vm));
        for b in blame.iter().filter(|b| here.contains(&b.victim)) {
            let of = match self.by_vm.get_mut(&b.victim) {
                Some(of) => of,
                None => self.by_vm.entry(b.victim.clone()).or_default(),
            };
            // Processes of one name and container are one culprit: their numbers would be series without end.
            match &b.culprit {
                Culprit::Process { pid: 1.., .. } => of.add(&b.culprit.without_pid(), b.ns),
                other => of.add(other, b.ns),
            }
        }
    }

    /// The culprits as the metrics show them.
    pub fn named(&self) -> Named {
        let ns = |rising: &Rising| rising.told.max(0) as u64;
        let of = |of: &OfVm| {
            let named = of.named.iter().map(|(culprit, rising)| (Some(culprit.clone()), ns(rising)));
            named.chain(std::iter::once((None, ns(&of.rest)))).collect()
        };
        Named { by_vm: self.by_vm.iter().map(|(vm, all)| (vm.clone(), of(all))).collect() }
    }
}

/// A culprit, or `None` for the rest, and what it cost, ns.
type Cost = (Option<Culprit>, u64);

/// The culprits that have a name, and the rest, at one moment.
#[derive(Debug, Default)]
pub struct Named {
    by_vm: Vec<(VmId, Vec<Cost>)>,
}

impl Named {
    /// By VM: each culprit with the time, ns; the rest has none.
    pub fn all(&self) -> impl Iterator<Item = (&VmId, Option<&Culprit>, u64)> {
        self.by_vm
            .iter()
            .flat_map(|(vm, all)| all.iter().map(move |(culprit, ns)| (vm, culprit.as_ref(), *ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vsteer_core::nouns::Role;

    fn blame(culprit: Culprit, ns: i64) -> BlameSample {
        BlameSample { victim: VmId("web".into()), role: Role::Vcpu(0), culprit, ns }
    }

    fn told(all: &Culprits) -> BTreeMap<Option<Culprit>, u64> {
        all.named().all().map(|(_, culprit, ns)| (culprit.cloned(), ns)).collect()
    }

    #[test]
    fn a_culprit_keeps_its_series_until_its_vm_leaves() {
        let (web, mut all) = (VmId("web".into()), Culprits::default());
        let here: BTreeSet<&VmId> = [&web].into();
        let backup = || Culprit::process("backup", 7);
        all.see(&[blame(backup(), 150_000_000)], &here);
        assert_eq!(told(&all), [(None, 150_000_000), (Some(Culprit::process("backup", 0)), 0)].into());
        all.see(&[blame(Culprit::process("backup", 8), 5)], &here);
        assert_eq!(told(&all)[&Some(Culprit::process("backup", 0))], 5);
        all.see(&[], &here);
        assert_eq!(told(&all).len(), 2);
        all.see(&[], &BTreeSet::new());
        assert!(told(&all).is_empty());
    }

    #[test]
    fn a_newcomer_gets_a_name_after_days_of_short_processes() {
        let (web, mut all) = (VmId("web".into()), Culprits::default());
        let here: BTreeSet<&VmId> = [&web].into();
        for n in 0..UNNAMED as u32 {
            all.see(&[blame(Culprit::process(format!("cron-{n}"), 7), NAMED_FROM_NS / 2)], &here);
        }
        for n in 0..30 {
            let steady = blame(Culprit::process("steady", 8), 5_000_000);
            all.see(&[steady, blame(Culprit::process(format!("short-{n}"), 9), 1_000_000)], &here);
        }
        assert!(told(&all).contains_key(&Some(Culprit::process("steady", 0))));
    }

    proptest! {
        /// Whatever is charged and taken back: series are bounded, do not end, and do not fall.
        #[test]
        fn series_do_not_fall_or_end(all in prop::collection::vec((0_u8..40, -50_000_000_i64..200_000_000), 1..300)) {
            let (web, mut culprits) = (VmId("web".into()), Culprits::default());
            let here: BTreeSet<&VmId> = [&web].into();
            let mut before = BTreeMap::new();
            for (who, ns) in all {
                let culprit = Culprit::process(format!("p{who}"), u32::from(who));
                culprits.see(&[blame(culprit, ns)], &here);
                let now = told(&culprits);
                prop_assert!(now.len() <= NAMES + 1);
                for (culprit, ns) in &before {
                    prop_assert!(now.get(culprit).is_some_and(|now| now >= ns), "{culprit:?}");
                }
                before = now;
            }
        }
    }
}
