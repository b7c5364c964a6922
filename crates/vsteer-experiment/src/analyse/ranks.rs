//! Do two settings differ, whatever shape their values have?
//!
//! Mann and Whitney's test by the exact distribution of the rank sum over all ways to deal the values to the two
//! settings, midranks for equal values included (so that ties cost nothing but a coarser p); by the normal
//! approximation, corrected for ties and continuity, where there are too many ways.
//!
//! Sources: H. Mann, D. Whitney, Ann. Math. Stat. 18, 1947; the counting by C. Mehta, N. Patel, J. Am. Stat. Assoc.
//! 78, 1983 (network), here as sums over subsets. Left out: pairs; what it tests is that the two distributions are
//! equal, not their means alone.

use super::distribution::normal_cdf;

/// Up to this many runs of both sides the distribution is computed exactly: about 10 million additions.
const EXACT_MAX: usize = 60;

/// Two-sided p; `None` where either has no value.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let (doubled, ties) = doubled_ranks(a, b);
    let sum: usize = doubled[..a.len()].iter().sum();
    if doubled.len() <= EXACT_MAX {
        return Some(Dealt::new(&doubled, a.len()).p(sum));
    }
    let (n, m) = (a.len() as f64, b.len() as f64);
    let whole = n + m;
    let variance = n * m / 12.0 * ((whole + 1.0) - ties / (whole * (whole - 1.0)));
    let off = (sum as f64 / 2.0 - n * (whole + 1.0) / 2.0).abs();
    if variance <= 0.0 {
        return Some(1.0);
    }
    Some((2.0 * normal_cdf(-((off - 0.5).max(0.0)) / libm::sqrt(variance))).min(1.0))
}

/// Twice the midranks of a's values, then of b's; and the sum of t^3 - t over groups of t equal ones.
fn doubled_ranks(a: &[f64], b: &[f64]) -> (Vec<usize>, f64) {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|i, j| all[*i].total_cmp(&all[*j]));
    let (mut ranks, mut ties, mut at) = (vec![0; all.len()], 0.0, 0);
    while at < order.len() {
        let equal = order[at..].iter().take_while(|i| all[**i] == all[order[at]]).count().max(1);
        // The mean of the ranks at+1 to at+equal, doubled.
        order[at..at + equal].iter().for_each(|i| ranks[*i] = 2 * at + equal + 1);
        ties += (equal * equal * equal - equal) as f64;
        at += equal;
    }
    (ranks, ties)
}

/// In how many ways `n` of these doubled ranks have each sum, as shares of all ways.
pub struct Dealt {
    shares: Vec<f64>,
}

impl Dealt {
    /// Of values without ties.
    pub fn untied(n: usize, m: usize) -> Dealt {
        let doubled: Vec<usize> = (1..=n + m).map(|r| 2 * r).collect();
        Dealt::new(&doubled, n)
    }

    fn new(doubled: &[usize], n: usize) -> Dealt {
        let most: usize = doubled.iter().sum();
        let mut ways = vec![vec![0.0_f64; most + 1]; n + 1];
        ways[0][0] = 1.0;
        for (seen, rank) in doubled.iter().enumerate() {
            for k in (1..=n.min(seen + 1)).rev() {
                let (fewer, more) = ways.split_at_mut(k);
                for sum in (*rank..=most).rev() {
                    more[0][sum] += fewer[k - 1][sum - rank];
                }
            }
        }
        let mut shares = ways.pop().expect("there is one for every number");
        let all: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|w| *w /= all);
        Dealt { shares }
    }

    /// P(as far from the middle as `sum`, a doubled rank sum, on either side).
    fn p(&self, sum: usize) -> f64 {
        let below: f64 = self.shares[..=sum].iter().sum();
        let above: f64 = self.shares[sum..].iter().sum();
        (2.0 * below.min(above)).min(1.0)
    }

    /// Two-sided p of values without ties.
    pub fn p_of(&self, a: &[f64], b: &[f64]) -> f64 {
        let (doubled, _) = doubled_ranks(a, b);
        self.p(doubled[..a.len()].iter().sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_exact() {
        // Five below five: 2 of the 252 ways.
        let (low, high) = ([1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0]);
        assert!((mann_whitney(&low, &high).unwrap() - 2.0 / 252.0).abs() < 1e-12);
        // R: wilcox.test(c(0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46), c(1.15, 0.88, 0.90, 0.74,
        // 1.21)): W = 35, p = 0.2544.
        let x = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let y = [1.15, 0.88, 0.90, 0.74, 1.21];
        assert!((mann_whitney(&x, &y).unwrap() - 0.2544).abs() < 1e-4);
        assert_eq!(mann_whitney(&x, &y), Some(Dealt::untied(10, 5).p_of(&x, &y)));
        assert!(mann_whitney(&[], &y).is_none());
    }

    #[test]
    fn ties_are_dealt_out_too() {
        // 1 1 2 | 2 3 3: by hand. Doubled midranks 3 3 7 7 11 11; a has 13. Of the 20 ways two have 3+3+7: 0.1 on
        // each side.
        let p = mann_whitney(&[1.0, 1.0, 2.0], &[2.0, 3.0, 3.0]).unwrap();
        assert!((p - 0.2).abs() < 1e-12, "{p}");
        assert_eq!(mann_whitney(&[4.0; 5], &[4.0; 5]), Some(1.0));
        let many: Vec<f64> = (0..40).map(f64::from).collect();
        let moved: Vec<f64> = many.iter().map(|v| v + 15.5).collect();
        let (far, same) = (mann_whitney(&many, &moved).unwrap(), mann_whitney(&many, &many).unwrap());
        assert!(far < 1e-4 && same > 0.99, "{far} {same}");
    }
}
