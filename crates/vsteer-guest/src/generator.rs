//! What is a unit of work, and where do seeded numbers come from? One generator serves for both.
//!
//! Left out: whatever needs more than `core`, for the VMs of the emulated host, which have no operating system, work
//! by this very file.

use core::hint::black_box;

/// Steps of the generator in one work unit: about a microsecond natively, several under emulation.
const STEPS_PER_UNIT: u32 = 1_000;

/// A source of work and of seeded numbers. SplitMix64 (Steele, Lea, Flood 2014) spreads the seed.
pub struct Generator(u64);

impl Generator {
    /// Every number it gives follows from the seed.
    pub fn new(seed: u64) -> Self {
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Generator((z ^ (z >> 31)) | 1)
    }

    /// xorshift64 (Marsaglia 2003).
    pub fn step(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// One work unit. One piece of code for all who call it: made part of each caller, it took a sixth fewer
    /// instructions in some than in others, and a unit was not a unit.
    #[inline(never)]
    pub fn work(&mut self) {
        for _ in 0..STEPS_PER_UNIT {
            self.step();
        }
        black_box(self.0);
    }
}
