//! Draws names and sizes of VMs that do not reveal what the VMs do.
//!
//! Names of two words, sizes and the order of the start come from one printed seed, independently of the
//! workload. The generator is SplitMix64 (Steele, Lea, Flood 2014), so the same seed gives the same lab on
//! every machine.

const FIRST: &[&str] = &[
    "amber", "ashen", "brisk", "calm", "clear", "coral", "dusky", "early", "fallow", "gentle", "hazel",
    "ivory", "keen", "lunar", "mellow", "noble", "olive", "pale", "quiet", "russet", "silver", "tawny",
    "umber", "violet",
];
const SECOND: &[&str] = &[
    "alder", "badger", "birch", "curlew", "dipper", "elm", "falcon", "finch", "gannet", "heron", "ibis",
    "jackdaw", "kestrel", "larch", "marten", "newt", "osprey", "plover", "quail", "rowan", "siskin", "tern",
    "vole", "wren",
];

/// Random numbers from a seed.
pub struct Draw(u64);

impl Draw {
    /// Starts at `seed`.
    pub fn new(seed: u64) -> Self {
        Draw(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`. The bias is below bound / 2^64.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "nothing is below 0");
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Shuffles `items` (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// `count` different names of two words.
    pub fn names(&mut self, count: usize) -> Vec<String> {
        let mut all: Vec<(usize, usize)> =
            (0..FIRST.len()).flat_map(|a| (0..SECOND.len()).map(move |b| (a, b))).collect();
        assert!(count <= all.len(), "more VMs than names");
        self.shuffle(&mut all);
        all[..count].iter().map(|&(a, b)| format!("{}-{}", FIRST[a], SECOND[b])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_differ_and_the_seed_decides() {
        let names = Draw::new(7).names(64);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 64);
        assert_eq!(names, Draw::new(7).names(64));
        assert_ne!(names, Draw::new(8).names(64));
    }

    #[test]
    fn every_order_of_three_comes_up_equally_often() {
        let mut draw = Draw::new(1);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..6_000 {
            let mut items = [0, 1, 2];
            draw.shuffle(&mut items);
            *seen.entry(items).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 6);
        // The expected count is 1,000 with a standard deviation of 29; 150 is five of these.
        assert!(seen.values().all(|&n: &i32| (n - 1_000).abs() < 150), "{seen:?}");
    }
}
