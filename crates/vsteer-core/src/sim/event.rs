//! What happens next? The queue of one host's future events.
//!
//! Idea: at any moment each source of events (a policy's timer, a pCPU, a blocked vCPU) has at most one event ahead, so
//! the queue is a tournament: a tree of minima over one slot per source, four children to a node. Setting a slot walks
//! up until a node does not change, without a search, an allocation or a branch per comparison; a source may be moved
//! or cancelled at any time for the same price. A host of 40 vCPUs needs 3 levels and 600 bytes, one of 5,000 needs 7
//! and 90 KiB. Events of the same instant come in the order of their slots: that is what makes runs repeatable.
//!
//! Source: the tournament tree (tree of winners) of Knuth, The Art of Computer Programming, vol. 3, 5.4.1; against
//! binary heaps it trades a pointer to each element for a fixed slot per source.
//! Left out: more than one event per source; a guest that needs two has to keep the later one itself.

/// No event: later than every time that is reached.
pub const NEVER: u64 = u64::MAX;

/// A tournament of the next events of a fixed number of sources.
#[derive(Debug, Clone)]
pub struct Queue {
    /// The time of every slot, then of every node level by level; each level is padded to groups of four by `NEVER`.
    keys: Vec<u64>,
    /// The slot that holds the key of each node; not used for the slots themselves.
    winners: Vec<u32>,
    /// Where each level begins in `keys`; the last level is one group.
    levels: Vec<u32>,
    first_ns: u64,
    first: u32,
}

impl Queue {
    /// A queue of `slots` sources without an event.
    pub fn new(slots: usize) -> Queue {
        let (mut levels, mut size, mut total) = (Vec::new(), slots.max(1), 0);
        loop {
            levels.push(u32::try_from(total).expect("a host has fewer than 2^32 sources"));
            let groups = size.div_ceil(4);
            total += groups * 4;
            if groups == 1 {
                break;
            }
            size = groups;
        }
        Queue { keys: vec![NEVER; total], winners: vec![0; total], levels, first_ns: NEVER, first: 0 }
    }

    /// When the next event happens; [`NEVER`] when there is none.
    #[inline]
    pub fn first_ns(&self) -> u64 {
        self.first_ns
    }

    /// Whose event is next: of those at the same instant, the lowest slot's.
    #[inline]
    pub fn first(&self) -> usize {
        self.first as usize
    }

    /// When the event of this slot happens.
    #[inline]
    pub fn at_ns(&self, slot: usize) -> u64 {
        self.keys[slot]
    }

    /// Sets, moves or (with [`NEVER`]) cancels the event of `slot`.
    ///
    /// Who is the least of the other three of each group does not depend on this slot, so the processor works all of
    /// them out side by side; what is left to be done one after the other is a comparison per level.
    #[inline]
    pub fn set(&mut self, slot: usize, at_ns: u64) {
        self.keys[slot] = at_ns;
        let Rival { place, key: its } = rival(&self.keys[slot & !3..(slot & !3) + 4], slot & 3);
        let (mut key, mut winner) = (at_ns, slot as u32);
        if wins(its, place, at_ns, slot & 3) {
            (key, winner) = (its, (slot & !3 | place) as u32);
        }
        let early = self.levels.len() > SHALLOW;
        let mut at = slot >> 2;
        for &level in &self.levels[1..] {
            let (node, group) = (level as usize + at, level as usize + (at & !3));
            if early && self.keys[node] == key && self.winners[node] == winner {
                return;
            }
            self.keys[node] = key;
            self.winners[node] = winner;
            let Rival { place, key: its } = rival(&self.keys[group..group + 4], at & 3);
            let other = self.winners[group + place];
            if wins(its, place, key, at & 3) {
                (key, winner) = (its, other);
            }
            at >>= 2;
        }
        self.first_ns = key;
        self.first = winner;
    }
}

/// With so many levels it costs less to walk all of them than to find out that one need not.
const SHALLOW: usize = 3;

struct Rival {
    place: usize,
    key: u64,
}

/// The least of a group of four but for the one at `own`; the leftmost of equals.
#[inline(always)]
fn rival(group: &[u64], own: usize) -> Rival {
    let [a, b, c] = [own ^ 1, own ^ 2, own ^ 3].map(|place| Rival { place, key: group[place & 3] });
    let least = |a: Rival, b: Rival| if wins(b.key, b.place, a.key, a.place) { b } else { a };
    least(least(a, b), c)
}

/// Does the first come before the second?
#[inline(always)]
fn wins(key: u64, place: usize, other: u64, at: usize) -> bool {
    key < other || (key == other && place < at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn is_the_least_of_all_slots(
            slots in 1usize..200,
            sets in proptest::collection::vec((0usize..200, 0u64..50), 1..300),
        ) {
            let mut queue = Queue::new(slots);
            let mut plain = vec![NEVER; slots];
            for (slot, at) in sets {
                let (slot, at) = (slot % slots, if at == 0 { NEVER } else { at });
                queue.set(slot, at);
                plain[slot] = at;
                let least = *plain.iter().min().unwrap();
                prop_assert_eq!(queue.first_ns(), least);
                if least != NEVER {
                    prop_assert_eq!(queue.first(), plain.iter().position(|k| *k == least).unwrap());
                }
            }
        }
    }
}
