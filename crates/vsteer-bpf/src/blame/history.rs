//! Who had one pCPU, spell after spell, since the last reading.

use crate::layout::{CulpritKey, Runner, culprit};
use std::collections::VecDeque;

/// Stands for the unknown runners of spells that were overwritten before the ring was read.
const NOT_SEEN: CulpritKey = CulpritKey { kind: u32::MAX, id: 0, comm: [0; 16] };

/// Who had a pCPU in a part of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ran<'a> {
    /// This one.
    Somebody(&'a CulpritKey),
    /// Nobody.
    Nobody,
    /// It was not seen.
    NotSeen,
}

/// The spells of one pCPU. Each lasts until the next one; the last one has not ended.
#[derive(Debug, Default)]
pub(super) struct History {
    spells: VecDeque<Runner>,
}

impl History {
    /// The next spells. `known`: others came before these that are not known, and the last one of before lasted at least
    /// until then.
    pub(super) fn add(&mut self, next: Vec<Runner>, known: Option<u64>) {
        if let (Some(known), Some(last)) = (known, self.spells.back()) {
            self.spells.push_back(Runner { since: known.max(last.since), who: NOT_SEEN });
        }
        for mut spell in next {
            // The end of a switch that the kernel did not report is inferred, so it may seem to lie before its start.
            spell.since = spell.since.max(self.spells.back().map_or(0, |last| last.since));
            self.spells.push_back(spell);
        }
    }

    /// Number of spells.
    pub(super) fn len(&self) -> usize {
        self.spells.len()
    }

    /// Forgets what ended before this, and the oldest beyond `most` spells.
    pub(super) fn forget(&mut self, before: u64, most: usize) {
        let over = self.spells.partition_point(|spell| spell.since <= before).saturating_sub(1);
        let surplus = self.spells.len().saturating_sub(most);
        self.spells.drain(..over.max(surplus));
    }

    /// Who ran between these moments, part by part, in order.
    pub(super) fn between(&self, from: u64, to: u64) -> impl Iterator<Item = (Ran<'_>, u64, u64)> {
        let first = self.spells.partition_point(|spell| spell.since <= from).saturating_sub(1);
        let known = self.spells.front().map_or(to, |oldest| oldest.since).clamp(from, to);
        let before = (known > from).then_some((Ran::NotSeen, from, known));
        let spell = move |i: usize| {
            let spell = self.spells.get(i).filter(|spell| spell.since < to)?;
            let end = self.spells.get(i + 1).map_or(to, |next| next.since).min(to);
            let ran = match spell.who.kind {
                culprit::IDLE => Ran::Nobody,
                u32::MAX => Ran::NotSeen,
                _ => Ran::Somebody(&spell.who),
            };
            Some((ran, spell.since.max(from), end))
        };
        before.into_iter().chain((first..).map_while(spell)).filter(|(_, from, to)| from < to)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A spell of process `id`; 0: the pCPU idles.
    pub(crate) fn spell(since: u64, id: u32) -> Runner {
        let kind = if id == 0 { culprit::IDLE } else { culprit::PROCESS };
        Runner { since, who: CulpritKey { kind, id, comm: [0; 16] } }
    }

    fn parts(history: &History, from: u64, to: u64) -> Vec<(Option<u32>, u64, u64)> {
        let id = |ran: Ran<'_>| match ran {
            Ran::Somebody(who) => Some(who.id),
            Ran::Nobody => Some(0),
            Ran::NotSeen => None,
        };
        history.between(from, to).map(|(ran, from, to)| (id(ran), from, to)).collect()
    }

    #[test]
    fn the_parts_fill_any_time() {
        let mut history = History::default();
        assert_eq!(parts(&history, 3, 5), [(None, 3, 5)]);
        history.add(vec![spell(10, 1), spell(20, 0), spell(20, 2), spell(30, 3)], None);
        assert_eq!(parts(&history, 5, 15), [(None, 5, 10), (Some(1), 10, 15)]);
        assert_eq!(parts(&history, 12, 35), [(Some(1), 12, 20), (Some(2), 20, 30), (Some(3), 30, 35)]);
        assert_eq!(parts(&history, 30, 31), [(Some(3), 30, 31)]);
        assert_eq!(parts(&history, 2, 4), [(None, 2, 4)]);
        assert_eq!(parts(&history, 12, 12), []);
    }

    #[test]
    fn what_was_lost_is_not_charged_to_the_last_one_seen() {
        let mut history = History::default();
        history.add(vec![spell(10, 1), spell(20, 2)], None);
        history.add(vec![spell(50, 3)], Some(25));
        assert_eq!(
            parts(&history, 10, 60),
            [(Some(1), 10, 20), (Some(2), 20, 25), (None, 25, 50), (Some(3), 50, 60)]
        );
    }

    #[test]
    fn the_spell_that_lasts_is_kept() {
        let mut history = History::default();
        history.add(vec![spell(10, 1), spell(20, 2), spell(30, 3)], None);
        history.forget(25, 100);
        assert_eq!(parts(&history, 10, 40), [(None, 10, 20), (Some(2), 20, 30), (Some(3), 30, 40)]);
        history.forget(25, 1);
        assert_eq!(parts(&history, 20, 40), [(None, 20, 30), (Some(3), 30, 40)]);
    }
}
