//! The queue of one host's future events.
//!
//! Idea: at any time each source of events (a policy's timer, a pCPU, a blocked vCPU) has at most one future
//! event. So the queue is a tournament: a tree of minima over one slot per source, with four children per
//! node. Setting a slot walks up until a node does not change, without a search, an allocation or a branch
//! per comparison. Moving or cancelling an event costs the same. A host of 5,000 vCPUs needs 7 levels and 90
//! KiB. Events at the same time come in the order of their slots, which makes runs repeatable.
//!
//! For up to 64 sources ([`Few`]) two levels are enough, the upper one of sixteen. Setting a slot ends at its
//! group of four. The next event is the least of sixteen groups, without a branch. There, time and slot are
//! one number, so the search for the least also gives the slot. Times are below 2^58 ns, nine years.
//!
//! Source: the tournament tree (tree of winners) of Knuth, The Art of Computer Programming, vol. 3, 5.4.1.
//! Compared with a binary heap, it needs no pointer to each element but has a fixed slot per source. Left
//! out: more than one event per source; a guest that needs two must keep the later one itself.

/// No event: later than every reachable time.
pub const NEVER: u64 = u64::MAX;

/// The next events of a fixed number of sources.
#[derive(Debug, Clone)]
pub struct Queue(Kind);

#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "a host has one queue, and what it is made of should lie together"
)]
enum Kind {
    Few(Few),
    Many(Many),
}

impl Queue {
    /// A queue of `slots` sources without events.
    pub fn new(slots: usize) -> Queue {
        Queue(if slots <= FEW { Kind::Few(Few::new()) } else { Kind::Many(Many::new(slots)) })
    }

    /// The time of the next event ([`NEVER`] if there is none), and its slot. Of events at the same time, the
    /// lowest slot comes first.
    #[inline(always)]
    pub fn next(&self) -> (u64, usize) {
        match &self.0 {
            Kind::Few(few) => few.next(),
            Kind::Many(many) => (many.first_ns, many.first as usize),
        }
    }

    /// Prefetches the time of this slot's event.
    #[inline]
    pub fn touch(&self, slot: usize) {
        if let Kind::Many(many) = &self.0 {
            std::hint::black_box(many.keys[slot]);
        }
    }

    /// Sets, moves or (with [`NEVER`]) cancels the event of `slot`.
    #[inline(always)]
    pub fn set(&mut self, slot: usize, at_ns: u64) {
        match &mut self.0 {
            Kind::Few(few) => few.set(slot, at_ns),
            Kind::Many(many) => many.set(slot, at_ns),
        }
    }
}

/// The most sources of [`Few`], and the number of bits for the slot.
const FEW: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 6;
/// Times from here on count as no event there.
const FAR_NS: u64 = 1 << (64 - SLOT_BITS);

/// Time and slot of every source as one number, and the least of each group of four.
#[derive(Debug, Clone)]
struct Few {
    keys: [u64; FEW],
    least: [u64; FEW / 4],
}

impl Few {
    fn new() -> Few {
        Few { keys: [NEVER; FEW], least: [NEVER; FEW / 4] }
    }

    #[inline(always)]
    fn set(&mut self, slot: usize, at_ns: u64) {
        debug_assert!(slot < FEW);
        let slot = slot & (FEW - 1);
        self.keys[slot] = if at_ns < FAR_NS { at_ns << SLOT_BITS | slot as u64 } else { NEVER };
        let group = slot & !3;
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| self.keys[group | i]);
        self.least[slot >> 2] = a.min(b).min(c.min(d));
    }

    #[inline(always)]
    fn next(&self) -> (u64, usize) {
        let of_four = |i: usize| {
            let [a, b, c, d] = [0, 1, 2, 3].map(|k| self.least[i + k]);
            a.min(b).min(c.min(d))
        };
        let key = of_four(0).min(of_four(4)).min(of_four(8).min(of_four(12)));
        (if key == NEVER { NEVER } else { key >> SLOT_BITS }, key as usize & (FEW - 1))
    }
}

/// A tournament.
#[derive(Debug, Clone)]
struct Many {
    /// The time of every slot, then of every node level by level. Each level is padded with `NEVER` to groups
    /// of four.
    keys: Vec<u64>,
    /// The slot with the key of each node; not used for the slots themselves.
    winners: Vec<u32>,
    /// The start of each level in `keys`; the last level is one group.
    levels: Vec<u32>,
    first_ns: u64,
    first: u32,
}

impl Many {
    fn new(slots: usize) -> Many {
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
        Many { keys: vec![NEVER; total], winners: vec![0; total], levels, first_ns: NEVER, first: 0 }
    }

    #[inline]
    fn set(&mut self, slot: usize, at_ns: u64) {
        self.keys[slot] = at_ns;
        let group = slot & !3;
        let (mut key, winner) = least(&self.keys[group..group + 4]);
        let mut winner = (group + winner) as u32;
        let mut at = slot >> 2;
        for &level in &self.levels[1..] {
            let level = level as usize;
            let node = level + at;
            if self.keys[node] == key && self.winners[node] == winner {
                return;
            }
            self.keys[node] = key;
            self.winners[node] = winner;
            let group = level + (at & !3);
            let child;
            (key, child) = least(&self.keys[group..group + 4]);
            winner = self.winners[group + child];
            at >>= 2;
        }
        self.first_ns = key;
        self.first = winner;
    }
}

/// The least of four and its position; the leftmost of equal ones.
#[inline(always)]
fn least(group: &[u64]) -> (u64, usize) {
    let [a, b, c, d] = *group else { unreachable!("groups are of four") };
    let (left, i) = if b < a { (b, 1) } else { (a, 0) };
    let (right, j) = if d < c { (d, 3) } else { (c, 2) };
    if right < left { (right, j) } else { (left, i) }
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
                let (first_ns, first) = queue.next();
                prop_assert_eq!(first_ns, least);
                if least != NEVER {
                    prop_assert_eq!(first, plain.iter().position(|k| *k == least).unwrap());
                }
            }
        }
    }
}
