//! Parts of 1 to the whole numbers that a hypervisor takes as weights: which scale loses least, and how much?
//!
//! Only ratios count, so all weights may be multiplied by one factor, the scale, before they are rounded. A larger scale rounds
//! more finely. The largest is the one at which the heaviest weight is the greatest that is allowed. Between two scales at which some weight is rounded another way nothing changes, and the best one is
//! not always the largest (1 : 2 is exact at 1 and 2, and not at 32767 and 65535). So scales are tried: those at which the lightest or the
//! heaviest is a whole number, down from the largest; the first that loses nothing, or the one that loses least. That is not
//! every scale there is: what is found loses at most half of 1 in the lightest's number at the largest scale, and as much by the sum.
//!
//! **Anchored.** Where others that are not VMs of ours share the parent (other cgroups, Domain-0), their part of it changes with the sum of
//! what is set. Then the sum is given and the scale with it; weights are rounded to it by the largest remainder, so that it is
//! kept exactly where the range allows.
//!
//! Ranges: Xen credit and credit2 1 to 65535 (xl(1), sched-credit); cgroup v2 `cpu.weight` 1 to 10000
//! (Documentation/admin-guide/cgroup-v2.rst); cgroup v1 `cpu.shares` 2 to 262144 (kernel/sched/sched.h, MIN_SHARES and MAX_SHARES).
//!
//! Left out: that Xen computes credits in whole numbers too.

use serde::Serialize;

/// The numbers that a hypervisor takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Range {
    /// The least, above 0.
    pub least: u64,
    /// The most.
    pub most: u64,
}

/// Xen's credit and credit2.
pub const XEN: Range = Range { least: 1, most: 65_535 };
/// `cpu.weight`.
pub const CGROUP_V2: Range = Range { least: 1, most: 10_000 };
/// `cpu.shares`.
pub const CGROUP_V1: Range = Range { least: 2, most: 262_144 };

/// Scales that are tried.
const TRIED: u64 = 2000;
/// A loss below this is none.
const NOTHING: f64 = 1e-12;

/// Whole numbers for weights.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rounded {
    /// By VM, as the weights were.
    pub numbers: Vec<u64>,
    /// The largest relative error of a VM's share among these, 0.01 for one that gets 1 % more or less than it should.
    pub loss: f64,
    /// VMs, by their places, whose number would be out of range, and is its end: the weights' span is wider than the range, or the
    /// sum to be kept too large or too small for it.
    pub clamped: Vec<usize>,
}

/// `weights` (above 0, on any scale) in the range; `total`: the sum to be kept, if any.
///
/// `None` where there are none, or one is not a number above 0.
pub fn rounded(weights: &[f64], range: Range, total: Option<u64>) -> Option<Rounded> {
    assert!(range.least > 0 && range.least <= range.most);
    let sum: f64 = weights.iter().sum();
    if weights.is_empty() || !sum.is_finite() || !weights.iter().all(|w| w.is_finite() && *w > 0.0) {
        return None;
    }
    if let Some(total) = total {
        return Some(anchored(weights, sum, range, total));
    }
    let light = weights.iter().copied().fold(f64::INFINITY, f64::min);
    let heavy = weights.iter().copied().fold(0.0, f64::max);
    let (least, most) = (range.least as f64, range.most as f64);
    let at = |scale: f64| {
        let numbers = weights.iter().map(|w| libm::round(w * scale).clamp(least, most) as u64).collect();
        told(weights, sum, range, scale, numbers)
    };
    // Too wide a span: the light ones are clamped, as a heavy one that has less than its part costs more of them.
    let largest = most / heavy;
    let mut best = at(largest);
    let whole_light = (light * largest) as u64;
    let by_light = (range.least..=whole_light).rev().take(TRIED as usize).map(|k| k as f64 / light);
    let by_heavy = (range.least..range.most).rev().take(TRIED as usize).map(|k| k as f64 / heavy);
    for scale in by_light.chain(by_heavy) {
        if best.loss <= NOTHING {
            break;
        }
        let other = at(scale);
        if other.clamped.len() <= best.clamped.len() && other.loss < best.loss {
            best = other;
        }
    }
    Some(best)
}

/// The largest remainder.
fn anchored(weights: &[f64], sum: f64, range: Range, total: u64) -> Rounded {
    let scale = total as f64 / sum;
    let (least, most) = (range.least as f64, range.most as f64);
    let mut numbers: Vec<u64> =
        weights.iter().map(|w| libm::floor(w * scale).clamp(least, most) as u64).collect();
    let mut by_rest: Vec<usize> = (0..weights.len()).collect();
    let rest = |i: &usize| weights[*i] * scale - libm::floor(weights[*i] * scale);
    // The heavier first among alike ones, so that order is kept.
    by_rest
        .sort_by(|a, b| rest(b).total_cmp(&rest(a)).then(weights[*b].total_cmp(&weights[*a])).then(a.cmp(b)));
    let mut missing = total as i128 - numbers.iter().map(|n| i128::from(*n)).sum::<i128>();
    for i in &by_rest {
        if missing > 0 && numbers[*i] < range.most && weights[*i] * scale >= least {
            (numbers[*i], missing) = (numbers[*i] + 1, missing - 1);
        }
    }
    // Light ones that were raised to the least took it from the heaviest.
    if missing < 0 {
        let mut heaviest: Vec<usize> = (0..weights.len()).collect();
        heaviest.sort_by(|a, b| weights[*b].total_cmp(&weights[*a]));
        while missing < 0 {
            // The one with the greatest number gets 1 less, again and again. So no weight falls below a lighter one's.
            let Some(i) = heaviest
                .iter()
                .copied()
                .rev()
                .max_by_key(|i| numbers[*i])
                .filter(|i| numbers[*i] > range.least)
            else {
                break;
            };
            (numbers[i], missing) = (numbers[i] - 1, missing + 1);
        }
    }
    told(weights, sum, range, scale, numbers)
}

fn told(weights: &[f64], sum: f64, range: Range, scale: f64, numbers: Vec<u64>) -> Rounded {
    let total: f64 = numbers.iter().map(|n| *n as f64).sum();
    let off = weights.iter().zip(&numbers).map(|(w, n)| (*n as f64 / total * (sum / w) - 1.0).abs());
    let loss = off.fold(0.0, f64::max);
    let out = |w: f64| w * scale < range.least as f64 - 0.5 || w * scale > range.most as f64 + 0.5;
    let clamped = (0..weights.len()).filter(|i| out(weights[*i])).collect();
    Rounded { numbers, loss, clamped }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_ratios_lose_nothing() {
        let of = |weights: &[f64], range| rounded(weights, range, None).unwrap();
        let two = of(&[1.0 / 3.0, 2.0 / 3.0], XEN);
        assert!(
            two.loss < 1e-12 && two.numbers[1] == 2 * two.numbers[0] && two.clamped.is_empty(),
            "{two:?}"
        );
        assert!(of(&[0.2, 0.3, 0.5], CGROUP_V2).loss < 1e-12);
        assert_eq!(of(&[7.0], CGROUP_V1).loss, 0.0);
        assert_eq!(rounded(&[], XEN, None), None);
        assert_eq!(rounded(&[0.0, 1.0], XEN, None), None);
        assert_eq!(rounded(&[f64::NAN], XEN, None), None);
    }

    #[test]
    fn wider_than_the_range_is_told() {
        let wide = rounded(&[1e-6, 0.5, 0.5], CGROUP_V2, None).unwrap();
        assert_eq!((wide.numbers, wide.clamped), (vec![1, 10_000, 10_000], vec![0]));
        // The first gets 50 times its share.
        assert!(wide.loss > 40.0);
    }

    #[test]
    fn a_sum_is_kept() {
        let kept = rounded(&[1.0, 1.0, 1.0], XEN, Some(1000)).unwrap();
        assert_eq!((kept.numbers.iter().sum::<u64>(), kept.clamped.len()), (1000, 0));
        assert!(kept.loss < 3e-3);
        // One would be 0.1, and takes the rest of its 1 from the largest.
        let light = rounded(&[0.001, 0.999], CGROUP_V2, Some(100)).unwrap();
        assert_eq!((light.numbers, light.clamped), (vec![1, 99], vec![0]));
        let too_much = rounded(&[0.5, 0.5], CGROUP_V2, Some(1_000_000)).unwrap();
        assert_eq!((too_much.numbers, too_much.clamped), (vec![10_000; 2], vec![0, 1]));
    }

    proptest! {
        #[test]
        fn numbers_are_in_range_in_order_and_near(
            weights in prop::collection::vec(1e-4..1.0f64, 1..40),
            range in prop_oneof![Just(XEN), Just(CGROUP_V2), Just(CGROUP_V1)],
            total in prop::option::of(100..100_000u64),
        ) {
            let r = rounded(&weights, range, total).unwrap();
            prop_assert!(r.numbers.iter().all(|n| (range.least..=range.most).contains(n)));
            for (i, a) in weights.iter().enumerate() {
                for (k, b) in weights.iter().enumerate() {
                    prop_assert!(a <= b || r.numbers[i] >= r.numbers[k], "{i} {k} {r:?}");
                }
            }
            let (sum, least) = (weights.iter().sum::<f64>(), weights.iter().copied().fold(1.0, f64::min));
            if let Some(total) = total {
                if r.clamped.is_empty() && least * total as f64 / sum >= range.least as f64 {
                    prop_assert_eq!(r.numbers.iter().sum::<u64>(), total);
                    prop_assert!(r.loss <= 1.0 / (least * total as f64 / sum) + 1e-9);
                }
            } else if r.clamped.is_empty() {
                // Half of 1 of the lightest, and of the sum.
                let heavy = weights.iter().copied().fold(0.0, f64::max);
                let half = 0.5 / (least * range.most as f64 / heavy);
                let raised = least * range.most as f64 / heavy < range.least as f64;
                prop_assert!(raised || r.loss <= 2.0 * half / (1.0 - half).max(0.1) + 1e-9, "{} {half}", r.loss);
            }
        }
    }
}
