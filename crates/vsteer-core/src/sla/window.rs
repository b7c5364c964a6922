//! What was seen of VMs' requests in an interval, and what is known of the next.

use crate::stats::{mean, quantile, variance};
use serde::Serialize;

/// The percentile that levels are about, as the paper has it.
pub const PERCENTILE: f64 = 0.95;

/// Response times of one VM in one interval, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Response {
    /// Their mean.
    pub mean_s: f64,
    /// Their 95th percentile.
    pub p95_s: f64,
}

/// Requests of one VM in one interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Seen {
    /// Arrivals per second.
    pub rate_hz: f64,
    /// Of times between arrivals: variance by squared mean; 1 for Poisson.
    pub gap_cv2: f64,
    /// CPU time per request, seconds: the VM's, divided by what it answered.
    pub service_s: f64,
    /// Of CPU times: variance by squared mean; 1 for exponential ones.
    pub service_cv2: f64,
    /// What clients saw.
    pub response: Response,
    /// The VM's weight then, on any scale that is the same for all.
    pub weight: f64,
}

/// What the next interval brings a VM, known beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Next {
    /// Arrivals per second.
    pub rate_hz: f64,
    /// Its weight.
    pub weight: f64,
}

/// A request as a log has it, ns of any clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// When it came.
    pub began_ns: u64,
    /// Until it was answered.
    pub took_ns: u64,
}

/// What `requests` that came in `from_ns..to_ns` tell, with the CPU time that their VM used then. `None` where there were fewer than
/// two: nothing can be divided by them. A service time's spread is in no log: `service_cv2` is the caller's.
pub fn seen(
    requests: &[Answered],
    (from_ns, to_ns): (u64, u64),
    cpu_ns: u64,
    service_cv2: f64,
    weight: f64,
) -> Option<Seen> {
    let mut came: Vec<&Answered> = requests.iter().filter(|r| (from_ns..to_ns).contains(&r.began_ns)).collect();
    if came.len() < 2 || to_ns <= from_ns {
        return None;
    }
    came.sort_by_key(|r| r.began_ns);
    let gaps: Vec<f64> = came.windows(2).map(|w| (w[1].began_ns - w[0].began_ns) as f64).collect();
    let took: Vec<f64> = came.iter().map(|r| r.took_ns as f64 / 1e9).collect();
    let gap = mean(&gaps)?;
    Some(Seen {
        rate_hz: came.len() as f64 * 1e9 / (to_ns - from_ns) as f64,
        gap_cv2: if gap > 0.0 { variance(&gaps).unwrap_or(0.0) / (gap * gap) } else { 0.0 },
        service_s: cpu_ns as f64 / 1e9 / came.len() as f64,
        service_cv2,
        response: Response { mean_s: mean(&took)?, p95_s: quantile(&took, PERCENTILE)? },
        weight,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_summed_up() {
        let of = |k: u64| Answered { began_ns: 100_000_000 * k, took_ns: 1_000_000 * (k % 10 + 1) };
        let all: Vec<Answered> = (0..40).map(of).collect();
        // 20 requests of 2 s, 10 a second, 4 ms of CPU each, 1 to 10 ms until answered.
        let s = seen(&all, (1_000_000_000, 3_000_000_000), 80_000_000, 1.0, 100.0).unwrap();
        assert!((s.rate_hz - 10.0).abs() < 1e-9 && s.gap_cv2 < 1e-12 && (s.service_s - 0.004).abs() < 1e-12);
        assert!((s.response.mean_s - 0.0055).abs() < 1e-9 && s.response.p95_s > 0.009, "{s:?}");
        assert_eq!(seen(&all, (0, 50_000_000), 1, 1.0, 1.0), None);
        assert_eq!(seen(&[], (0, 1), 0, 1.0, 1.0), None);
    }
}
