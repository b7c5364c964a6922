//! What did a thread wait for, and how long? The number of causes that are kept separate has a bound.

use crate::layout::{CulpritKey, culprit};
use std::collections::BTreeMap;

/// The name that all further processes share.
const OTHERS: &[u8; 16] = b"(others)\0\0\0\0\0\0\0\0";
/// Sums that may pile up until the lesser ones are joined, and how many are left then.
const MOST: usize = 1_024;
const KEPT: usize = 256;

/// What a thread waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// This one ran.
    Ran(CulpritKey),
    /// An allowed pCPU idled.
    Placement,
    /// It was not seen.
    Unattributed,
}

/// Times by cause, ns.
#[derive(Debug, Clone, Default)]
pub(super) struct Sums(BTreeMap<Cause, i64>);

impl Sums {
    pub(super) fn add(&mut self, mut cause: Cause, ns: i64) {
        if ns == 0 {
            return;
        }
        if let Cause::Ran(who) = &mut cause
            && who.kind == culprit::KERNEL
        {
            // Kernel threads of one name count as one.
            who.id = 0;
        }
        *self.0.entry(cause).or_default() += ns;
        if self.0.len() > MOST {
            self.0 = few(std::mem::take(&mut self.0), KEPT);
        }
    }

    /// Adds (1) or takes away (-1) all of these.
    pub(super) fn add_all(&mut self, others: &Sums, times: i64) {
        others.0.iter().for_each(|(cause, ns)| self.add(*cause, times * ns));
    }

    pub(super) fn total(&self) -> i64 {
        self.0.values().sum()
    }

    /// The part of this length of them all, of each cause alike.
    pub(super) fn part(&self, ns: u64) -> Sums {
        let whole = i128::from(self.total()).max(1);
        let of = |had: i64| (i128::from(had) * i128::from(ns) / whole) as i64;
        let mut part = Sums(self.0.iter().map(|(cause, had)| (*cause, of(*had))).collect());
        let left = ns as i64 - part.total();
        if let Some(last) = part.0.values_mut().next_back() {
            *last += left;
        }
        part
    }

    /// At most `most` causes, the names of others as many, and what is left; without those of 0.
    pub(super) fn few(self, most: usize) -> impl Iterator<Item = (Cause, i64)> {
        few(self.0, most).into_iter().filter(|(_, ns)| *ns != 0)
    }
}

/// The greatest of these sums. Of the others, processes of one name are joined; and what is left then.
fn few(all: BTreeMap<Cause, i64>, most: usize) -> BTreeMap<Cause, i64> {
    let (mut few, lesser) = greatest(all, most);
    let mut by_name: BTreeMap<Cause, i64> = BTreeMap::new();
    for (cause, ns) in lesser {
        let name = match cause {
            Cause::Ran(who) if who.kind == culprit::PROCESS => Cause::Ran(CulpritKey { id: 0, ..who }),
            other => other,
        };
        *by_name.entry(name).or_default() += ns;
    }
    let (names, others) = greatest(by_name, most);
    names.into_iter().for_each(|(cause, ns)| *few.entry(cause).or_default() += ns);
    for (cause, ns) in others {
        let cause = match cause {
            Cause::Ran(_) => Cause::Ran(CulpritKey { kind: culprit::PROCESS, id: 0, comm: *OTHERS }),
            other => other,
        };
        *few.entry(cause).or_default() += ns;
    }
    few
}

/// The `most` greatest, and the others.
fn greatest(all: BTreeMap<Cause, i64>, most: usize) -> (BTreeMap<Cause, i64>, Vec<(Cause, i64)>) {
    let mut all: Vec<(Cause, i64)> = all.into_iter().collect();
    all.sort_by_key(|(cause, ns)| (std::cmp::Reverse(ns.abs()), *cause));
    let lesser = all.split_off(most.min(all.len()));
    (all.into_iter().collect(), lesser)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(id: u32, name: &[u8]) -> Cause {
        let mut comm = [0; 16];
        comm[..name.len()].copy_from_slice(name);
        Cause::Ran(CulpritKey { kind: culprit::PROCESS, id, comm })
    }

    #[test]
    fn many_causes_become_few_of_the_same_sum() {
        let mut sums = Sums::default();
        sums.add(process(1, b"long"), 5_000);
        sums.add(Cause::Placement, 7);
        for id in 2..9_000 {
            let name = if id % 2 == 0 { "true".to_owned() } else { format!("n{}", id % 501) };
            sums.add(process(id, name.as_bytes()), 1);
        }
        assert!(sums.0.len() <= MOST);
        let total = sums.total();
        let few: BTreeMap<Cause, i64> = sums.few(4).collect();
        assert_eq!(few.values().sum::<i64>(), total);
        assert!(few.len() <= 2 * 4 + 2, "{few:?}");
        assert_eq!(few[&process(1, b"long")], 5_000);
        assert!(few[&process(0, b"true")] > 4_000 && few[&process(0, b"(others)")] > 1_000, "{few:?}");
    }

    #[test]
    fn a_part_has_exactly_its_length() {
        let mut sums = Sums::default();
        (1..8).for_each(|id| sums.add(process(id, b"p"), i64::from(id) * 10));
        for ns in [0, 1, 17, 279, 280] {
            let part = sums.part(ns);
            assert_eq!(part.total(), ns as i64);
            assert!(part.0.iter().all(|(cause, ns)| *ns <= sums.0[cause] + 7), "{part:?}");
        }
    }
}
