//! Which pCPUs? A set of logical CPU numbers, as affinity masks, cgroups and libvirt speak of them.
//!
//! The text form is the kernel's list format (`0-3,8,10-11`; `Documentation/admin-guide/cputopology.rst`),
//! which libvirt's `cpuset` attributes share; libvirt's `^N` exclusions are read as well.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The largest CPU number accepted. Linux allows 8,192 CPUs at most (`CONFIG_NR_CPUS` on x86).
pub const MAX_CPU: u32 = 8191;

/// A set of logical CPU numbers (pCPUs). Ordered iteration, value equality.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CpuSet {
    /// Bit `n % 64` of word `n / 64` is CPU `n`; no trailing zero words, so that equality is by value.
    words: Vec<u64>,
}

/// Why a text is not a CPU list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuListError {
    /// A part between commas is neither `N`, `A-B` nor `^N`.
    #[error("`{0}` is not a CPU number or a range of them (expected a list such as 0-3,8)")]
    NotANumber(String),
    /// `A-B` with A greater than B.
    #[error("the range {0}-{1} runs backwards")]
    Backwards(u32, u32),
    /// A CPU number beyond [`MAX_CPU`].
    #[error("CPU {0} is beyond the largest number accepted, {MAX_CPU}")]
    TooLarge(u64),
}

impl CpuSet {
    /// The empty set.
    pub const fn new() -> Self {
        CpuSet { words: Vec::new() }
    }

    /// The CPUs `0..n`.
    pub fn first(n: u32) -> Self {
        (0..n).collect()
    }

    /// The set of one CPU.
    pub fn single(cpu: u32) -> Self {
        std::iter::once(cpu).collect()
    }

    /// Adds `cpu`.
    ///
    /// # Panics
    /// When `cpu` exceeds [`MAX_CPU`]: numbers from outside are checked where they are parsed.
    pub fn insert(&mut self, cpu: u32) {
        assert!(cpu <= MAX_CPU, "CPU {cpu} is beyond MAX_CPU");
        let word = (cpu / 64) as usize;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (cpu % 64);
    }

    /// Takes `cpu` out, if it is in.
    pub fn remove(&mut self, cpu: u32) {
        if let Some(word) = self.words.get_mut((cpu / 64) as usize) {
            *word &= !(1 << (cpu % 64));
            self.trim();
        }
    }

    /// Is `cpu` in the set?
    pub fn contains(&self, cpu: u32) -> bool {
        self.words.get((cpu / 64) as usize).is_some_and(|w| w & (1 << (cpu % 64)) != 0)
    }

    /// How many CPUs?
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// No CPU at all?
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words
            .iter()
            .enumerate()
            .flat_map(|(i, &w)| (0..64u32).filter(move |b| w & (1 << b) != 0).map(move |b| i as u32 * 64 + b))
    }

    /// CPUs in both.
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        let mut r = CpuSet { words: self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect() };
        r.trim();
        r
    }

    /// CPUs in either.
    pub fn union(&self, other: &CpuSet) -> CpuSet {
        let n = self.words.len().max(other.words.len());
        let at = |s: &CpuSet, i: usize| s.words.get(i).copied().unwrap_or(0);
        CpuSet { words: (0..n).map(|i| at(self, i) | at(other, i)).collect() }
    }

    /// CPUs in `self` and not in `other`.
    pub fn difference(&self, other: &CpuSet) -> CpuSet {
        let mut r = self.clone();
        for (a, b) in r.words.iter_mut().zip(&other.words) {
            *a &= !b;
        }
        r.trim();
        r
    }

    /// Is every CPU of `self` in `other`?
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.difference(other).is_empty()
    }

    /// Do the two share a CPU?
    pub fn intersects(&self, other: &CpuSet) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(iter: I) -> Self {
        let mut s = CpuSet::new();
        for cpu in iter {
            s.insert(cpu);
        }
        s
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut it = self.iter().peekable();
        let mut sep = "";
        while let Some(start) = it.next() {
            let mut end = start;
            while it.peek() == Some(&(end + 1)) {
                end = it.next().unwrap_or(end);
            }
            if start == end {
                write!(f, "{sep}{start}")?;
            } else {
                write!(f, "{sep}{start}-{end}")?;
            }
            sep = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl FromStr for CpuSet {
    type Err = CpuListError;

    fn from_str(s: &str) -> Result<Self, CpuListError> {
        let number = |t: &str| -> Result<u32, CpuListError> {
            let digits = !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
            let n: u64 = digits
                .then(|| t.parse().ok())
                .flatten()
                .ok_or_else(|| CpuListError::NotANumber(t.to_owned()))?;
            if n > u64::from(MAX_CPU) { Err(CpuListError::TooLarge(n)) } else { Ok(n as u32) }
        };
        let (mut set, mut not) = (CpuSet::new(), CpuSet::new());
        for part in s.trim().split(',').map(str::trim).filter(|p| !p.is_empty()) {
            if let Some(n) = part.strip_prefix('^') {
                not.insert(number(n)?);
            } else if let Some((a, b)) = part.split_once('-') {
                let (a, b) = (number(a)?, number(b)?);
                if a > b {
                    return Err(CpuListError::Backwards(a, b));
                }
                (a..=b).for_each(|c| set.insert(c));
            } else {
                set.insert(number(part)?);
            }
        }
        Ok(set.difference(&not))
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_libvirt_and_the_kernel_write() {
        assert_eq!("0-3,^1".parse::<CpuSet>().unwrap().to_string(), "0,2-3");
        assert_eq!(" 0,2-3\n".parse::<CpuSet>().unwrap().len(), 3);
        assert_eq!("".parse::<CpuSet>().unwrap(), CpuSet::new());
        assert_eq!("3-1".parse::<CpuSet>(), Err(CpuListError::Backwards(3, 1)));
        assert!("99999999999999999999".parse::<CpuSet>().is_err());
        assert_eq!("8192".parse::<CpuSet>(), Err(CpuListError::TooLarge(8192)));
        assert!("0-".parse::<CpuSet>().is_err());
    }

    proptest! {
        #[test]
        fn text_round_trips(cpus in proptest::collection::btree_set(0u32..=MAX_CPU, 0..40)) {
            let set: CpuSet = cpus.iter().copied().collect();
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set.clone());
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), cpus.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn any_text_is_read_or_refused(s in "\\PC{0,30}") {
            let _ = s.parse::<CpuSet>();
        }

        #[test]
        fn algebra(a in proptest::collection::vec(0u32..200, 0..20), b in proptest::collection::vec(0u32..200, 0..20)) {
            let (a, b): (CpuSet, CpuSet) = (a.into_iter().collect(), b.into_iter().collect());
            prop_assert_eq!(a.union(&b).len() + a.intersection(&b).len(), a.len() + b.len());
            prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
            prop_assert_eq!(a.intersects(&b), !a.intersection(&b).is_empty());
            prop_assert!(a.intersection(&b).is_subset(&b));
        }
    }
}
