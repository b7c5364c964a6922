//! Measures how evenly frames arrived.
//!
//! From the times at which frames were presented, this file computes: frames per second, gaps between frames,
//! stalls, jitter, and fluctuation. Fluctuation is how far the frame counts of single seconds are from their
//! mean, as in the source below. Gaps at the window's ends count. So a display that stops at some
//! time does not look fast because of its earlier speed.
//!
//! Source: J. Park, J. Korea Inst. Inf. Commun. Eng. 26(10), 2022 (fluctuation of the frame rate); RFC 3550,
//! 6.4.1 (jitter as the mean difference of successive gaps; here a plain average). Left out: frames that
//! arrived twice.

use serde::{Deserialize, Serialize};
use vsteer_core::stats;

const SECOND_NS: u64 = 1_000_000_000;
/// A picture that does not change for this long looks broken.
pub const STALL_NS: u64 = 250_000_000;

/// The frames of a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Frames {
    pub n: usize,
    /// Frames per second.
    pub per_s: f64,
    /// Half the width of its 95 % interval, from the window's whole seconds; `None` with fewer than two.
    pub per_s_margin: Option<f64>,
    /// Standard deviation of the frames of single seconds, in percent of their mean; `None` with fewer than two seconds or no frame.
    pub fluctuation_percent: Option<f64>,
    /// Its 95 % interval.
    pub fluctuation_interval: Option<[f64; 2]>,
    /// Gap between frames, ms: median, 95th and 99th percentile, longest.
    pub gap_ms: Option<[f64; 4]>,
    /// Number of gaps of at least [`STALL_NS`].
    pub stalls: usize,
    /// Mean difference between a gap and the previous one, ms.
    pub jitter_ms: Option<f64>,
}

impl Frames {
    /// Measures a window, from the times of its frames in order.
    ///
    /// # Panics
    /// An empty window; times out of order or outside.
    pub fn of(times_ns: &[u64], from_ns: u64, until_ns: u64) -> Frames {
        assert!(from_ns < until_ns, "a window has a length");
        assert!(times_ns.is_sorted(), "in order");
        assert!(times_ns.iter().all(|t| (from_ns..=until_ns).contains(t)), "within the window");
        let length_s = (until_ns - from_ns) as f64 / SECOND_NS as f64;
        let edges: Vec<u64> = [from_ns].iter().chain(times_ns).chain(&[until_ns]).copied().collect();
        let gaps: Vec<f64> = edges.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e6).collect();
        let between = if times_ns.len() > 1 { &gaps[1..gaps.len() - 1] } else { &[] };
        let quantile = |q| stats::quantile(between, q);
        let longest = gaps.iter().copied().fold(0.0, f64::max);
        let seconds = (until_ns - from_ns) / SECOND_NS;
        let mut counts = vec![0.0; seconds as usize];
        for t in times_ns {
            if let Some(count) = counts.get_mut(((t - from_ns) / SECOND_NS) as usize) {
                *count += 1.0;
            }
        }
        let deviation = stats::variance(&counts).map(libm::sqrt);
        let mean = stats::mean(&counts).filter(|m| *m > 0.0);
        let differences: Vec<f64> = between.windows(2).map(|w| (w[1] - w[0]).abs()).collect();
        let fluctuation_percent = deviation.zip(mean).map(|(d, m)| 100.0 * d / m);
        let [low, high] = stats::deviation_factors(counts.len()).unwrap_or([f64::NAN; 2]);
        Frames {
            n: times_ns.len(),
            per_s: times_ns.len() as f64 / length_s,
            per_s_margin: stats::half_width(&counts),
            fluctuation_percent,
            fluctuation_interval: fluctuation_percent.map(|percent| [percent * low, percent * high]),
            gap_ms: quantile(0.5)
                .zip(quantile(0.95))
                .zip(quantile(0.99))
                .map(|((a, b), c)| [a, b, c, longest]),
            stalls: gaps.iter().filter(|g| **g >= STALL_NS as f64 / 1e6).count(),
            jitter_ms: stats::mean(&differences),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn even_frames_are_even() {
        let times: Vec<u64> = (0..200).map(|i| 10 * MS + i * 20 * MS).collect();
        let f = Frames::of(&times, 0, 4 * SECOND_NS);
        assert_eq!((f.n, f.per_s, f.stalls), (200, 50.0, 0));
        assert_eq!((f.fluctuation_percent, f.per_s_margin), (Some(0.0), Some(0.0)));
        assert_eq!((f.gap_ms, f.jitter_ms), (Some([20.0; 4]), Some(0.0)));
    }

    #[test]
    fn one_that_stops_has_a_stall_to_the_end() {
        let times: Vec<u64> = (0..50).map(|i| i * 20 * MS).collect();
        let f = Frames::of(&times, 0, 2 * SECOND_NS);
        assert_eq!((f.per_s, f.stalls), (25.0, 1));
        assert_eq!(f.gap_ms.unwrap()[3], 1020.0);
        // 50 and 0 frames: the standard deviation is 35.36, the mean 25.
        assert!((f.fluctuation_percent.unwrap() - 141.421).abs() < 0.001);
        // Two seconds give almost no information: the chi-square quantiles for one degree of freedom are
        // 0.00098 and 5.024.
        let [low, high] = f.fluctuation_interval.unwrap();
        assert!((low - 63.1).abs() < 0.1 && (high / 4512.7 - 1.0).abs() < 0.01, "{low} {high}");
    }

    #[test]
    fn nothing_came() {
        let f = Frames::of(&[], 0, SECOND_NS);
        assert_eq!((f.n, f.per_s, f.stalls, f.gap_ms), (0, 0.0, 1, None));
        assert_eq!((f.fluctuation_percent, f.fluctuation_interval), (None, None));
    }
}
