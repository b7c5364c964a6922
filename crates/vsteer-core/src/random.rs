//! Which numbers does chance draw? One seed decides all of them, on every machine.
//!
//! Every vCPU draws from a stream of its own, so that its demands are the same whatever the scheduler does and however
//! many draws others make: two policies, or a host before and after a change, are compared under the same demands
//! (common random numbers), and the difference is the policy's.
//!
//! Source: SplitMix64 with a gamma per stream, Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
//! OOPSLA 2014 (16 bytes of state, 64-bit output, equidistributed per stream). Logarithms are libm's: the platform's
//! differ in the last bit.
//! Left out: jumping ahead, and any claim to cryptographic strength.

/// A stream of random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Random {
    state: u64,
    gamma: u64,
}

/// 2^64 divided by the golden ratio, odd: the generator's own gamma.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

#[inline(always)]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// An odd increment whose bits change often enough (the paper's `mixGamma`).
fn mix_gamma(mut z: u64) -> u64 {
    z = (z ^ (z >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    z = (z ^ (z >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    z = (z ^ (z >> 33)) | 1;
    if (z ^ (z >> 1)).count_ones() < 24 { z ^ 0xAAAA_AAAA_AAAA_AAAA } else { z }
}

impl Random {
    /// Stream number `stream` of `seed`.
    pub fn new(seed: u64, stream: u64) -> Random {
        let state = mix(mix(seed).wrapping_add(GOLDEN.wrapping_mul(stream.wrapping_add(1))));
        Random { state, gamma: mix_gamma(state.wrapping_add(GOLDEN)) }
    }

    /// Its state, without a draw.
    #[inline]
    pub fn peek(&self) -> u64 {
        self.state
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(self.gamma);
        mix(self.state)
    }

    /// Uniform in (0, 1], in steps of 2^-53: never 0, so that its logarithm is finite.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `low..=high`.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "the range {low}..={high} is empty");
        let span = u128::from(high - low) + 1;
        low + ((u128::from(self.bits()) * span) >> 64) as u64
    }

    /// Exponential with this mean.
    #[inline]
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures are the algorithm's, worked out apart from this code: a changed stream changes every simulation that was ever published.
    #[test]
    fn streams_are_frozen() {
        let mut a = Random::new(1, 0);
        let first: Vec<u64> = (0..3).map(|_| a.bits()).collect();
        assert_eq!(first, FROZEN);
        assert_ne!(Random::new(1, 1).bits(), Random::new(1, 0).bits());
        assert_ne!(Random::new(2, 0).bits(), Random::new(1, 0).bits());
    }
    const FROZEN: [u64; 3] = [2674237579730921370, 2272101858303381933, 7114625565327992784];

    #[test]
    fn exponential_has_its_mean_and_spread() {
        let mut r = Random::new(7, 3);
        let n = 200_000;
        let draws: Vec<f64> = (0..n).map(|_| r.exponential(5.0)).collect();
        let mean = draws.iter().sum::<f64>() / f64::from(n);
        let var = draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / f64::from(n);
        // Standard errors: 5/sqrt(n) = 0.011 of the mean, 25*sqrt(8/n) = 0.16 of the variance. Four of each.
        assert!((mean - 5.0).abs() < 0.045, "{mean}");
        assert!((var - 25.0).abs() < 0.64, "{var}");
    }

    #[test]
    fn within_reaches_both_ends() {
        let mut r = Random::new(1, 1);
        let seen: std::collections::BTreeSet<u64> = (0..200).map(|_| r.within(3, 6)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
    }
}
