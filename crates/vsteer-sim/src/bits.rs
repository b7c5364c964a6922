//! A set of pCPUs of fixed size, counted from 0 inside one host, with a circular walk.
//!
//! Schedulers keep such masks (idlers, overloaded, affinity) and walk around them from the last position.
//! [`CpuSet`] can grow and is for people; this type is for the inner loop and does not grow.
//!
//! [`CpuSet`]: vsteer_core::CpuSet

/// A set of numbers below a fixed size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// The empty set for numbers below `size`.
    pub fn new(size: usize) -> Bits {
        Bits { words: vec![0; size.div_ceil(64).max(1)] }
    }

    /// The set of these members.
    pub fn of(size: usize, members: impl IntoIterator<Item = usize>) -> Bits {
        let mut bits = Bits::new(size);
        members.into_iter().for_each(|m| bits.insert(m));
        bits
    }

    /// Is `i` a member?
    #[inline]
    pub fn contains(&self, i: usize) -> bool {
        self.words[i >> 6] & (1 << (i & 63)) != 0
    }

    /// Adds `i`.
    #[inline]
    pub fn insert(&mut self, i: usize) {
        self.words[i >> 6] |= 1 << (i & 63);
    }

    /// Removes `i`.
    #[inline]
    pub fn remove(&mut self, i: usize) {
        self.words[i >> 6] &= !(1 << (i & 63));
    }

    /// Is the set empty?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Do the sets have a common member?
    #[inline]
    pub fn intersects(&self, other: &Bits) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// The number of common members.
    pub fn common(&self, other: &Bits) -> usize {
        self.words.iter().zip(&other.words).map(|(a, b)| (a & b).count_ones() as usize).sum()
    }

    /// Are all members in `other`?
    pub fn is_subset(&self, other: &Bits) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & !b == 0)
    }

    /// Becomes a copy of `other`.
    #[inline]
    pub fn copy_from(&mut self, other: &Bits) {
        self.words.copy_from_slice(&other.words);
    }

    /// Keeps only members that are also in `other`.
    #[inline]
    pub fn keep(&mut self, other: &Bits) {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a &= b);
    }

    /// Removes the members of `other`.
    #[inline]
    pub fn subtract(&mut self, other: &Bits) {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a &= !b);
    }

    /// The first member.
    pub fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    /// A word of 64 bits, for [`after`].
    #[inline(always)]
    pub fn word(&self, w: usize) -> u64 {
        self.words[w]
    }

    /// The next member after `i`, circular; `i` itself comes last.
    #[inline]
    pub fn after(&self, i: usize) -> Option<usize> {
        after(self.words.len(), i, |w| self.words[w])
    }

    /// The number of words.
    #[inline(always)]
    pub fn words(&self) -> usize {
        self.words.len()
    }

    /// The members, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(i, &w)| {
            let mut left = w;
            std::iter::from_fn(move || {
                (left != 0).then(|| {
                    let bit = left.trailing_zeros() as usize;
                    left &= left - 1;
                    (i << 6) + bit
                })
            })
        })
    }
}

/// The next member after `i`, circular (`i` itself comes last), of a set that is computed word by word.
#[inline(always)]
pub fn after(words: usize, i: usize, word: impl Fn(usize) -> u64) -> Option<usize> {
    let start = (i + 1) >> 6;
    if start < words {
        let masked = word(start) & (!0 << ((i + 1) & 63));
        if masked != 0 {
            return Some((start << 6) + masked.trailing_zeros() as usize);
        }
    }
    // The walk ends with the first word again, as a whole, so that its members before `i` also have their
    // turn.
    let base = start.min(words - 1);
    for k in 1..=words {
        let w = if base + k < words { base + k } else { base + k - words };
        let bits = word(w);
        if bits != 0 {
            return Some((w << 6) + bits.trailing_zeros() as usize);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn going_round_visits_each_once(
            size in 1usize..300,
            members in proptest::collection::btree_set(0usize..300, 0..60),
            from in 0usize..300,
        ) {
            let members: Vec<usize> = members.into_iter().filter(|m| *m < size).collect();
            let from = from % size;
            let bits = Bits::of(size, members.iter().copied());
            prop_assert_eq!(bits.iter().collect::<Vec<_>>(), members.clone());
            let mut expected: Vec<usize> = members.iter().copied().filter(|m| *m > from).collect();
            expected.extend(members.iter().copied().filter(|m| *m <= from));
            let mut at = from;
            for e in expected {
                at = bits.after(at).unwrap();
                prop_assert_eq!(at, e);
            }
            prop_assert_eq!(bits.after(from).is_none(), members.is_empty());
        }
    }
}
