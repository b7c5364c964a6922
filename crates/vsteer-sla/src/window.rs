//! Which request statistics describe a VM's interval: rates, CPU times, response times? Left out: how they were
//! recorded.

use super::histogram::Lots;
use serde::Serialize;
use vsteer_core::requests::Answered;
use vsteer_core::stats::{mean, quantile, variance};

/// Percentile of response times that levels limit, as in the paper.
pub const PERCENTILE: f64 = 0.95;

/// Response times of one VM in one interval, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Response {
    /// Mean, seconds.
    pub mean_s: f64,
    /// 95th percentile, seconds.
    pub p95_s: f64,
}

/// Requests of one VM in one interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Seen {
    /// Arrivals per second.
    pub rate_hz: f64,
    /// Variance of times between arrivals divided by their squared mean; 1 for Poisson arrivals.
    pub gap_cv2: f64,
    /// CPU time per request, seconds: the VM's CPU time without `beside`, divided by the number of answers.
    pub service_s: f64,
    /// pCPUs that the VM uses without requests (kernel ticks, emulator). 0 until [`super::spread`] estimates it.
    pub beside: f64,
    /// Variance of CPU times per request divided by their squared mean; 1 for exponential times.
    pub service_cv2: f64,
    /// What clients saw.
    pub response: Response,
    /// Weight of the VM, on a scale that is the same for all VMs.
    pub weight: f64,
    /// Number of requests that the VM can serve at once.
    pub vcpus: u32,
}

impl Seen {
    /// pCPUs that the VM needs at this rate.
    pub fn load_at(&self, rate_hz: f64) -> f64 {
        rate_hz * self.service_s + self.beside
    }
}

/// Request rate and weight of a VM in the next interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Next {
    /// Arrivals per second.
    pub rate_hz: f64,
    /// Weight of the VM.
    pub weight: f64,
}

/// CPU time, weight and vCPUs of a VM in an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vm {
    /// CPU time that it used, ns.
    pub cpu_ns: u64,
    /// Weight of the VM.
    pub weight: f64,
    /// Number of vCPUs.
    pub vcpus: u32,
}

/// Statistics of a VM's interval, with the values they come from.
#[derive(Debug, Clone, PartialEq)]
pub struct Interval {
    /// The moments.
    pub seen: Seen,
    /// Times between arrivals, in order, seconds.
    pub gaps_s: Vec<f64>,
    /// Response times, seconds.
    pub took_s: Vec<f64>,
    /// How the requests were counted, if they come from a histogram; `None` for a log.
    pub lots: Option<Lots>,
}

/// Statistics of the `requests` that arrived in `from_ns..to_ns`; `None` if there are fewer than two. The spread of
/// CPU times is that of exponential times until [`super::spread`] estimates it.
pub fn interval(requests: &[Answered], (from_ns, to_ns): (u64, u64), vm: Vm) -> Option<Interval> {
    let mut came: Vec<&Answered> =
        requests.iter().filter(|r| (from_ns..to_ns).contains(&r.began_ns)).collect();
    if came.len() < 2 || to_ns <= from_ns || vm.cpu_ns == 0 {
        return None;
    }
    came.sort_by_key(|r| r.began_ns);
    let gaps_s: Vec<f64> = came.windows(2).map(|w| (w[1].began_ns - w[0].began_ns) as f64 / 1e9).collect();
    let took_s: Vec<f64> = came.iter().map(|r| r.took_ns as f64 / 1e9).collect();
    let gap = mean(&gaps_s)?;
    let seen = Seen {
        rate_hz: came.len() as f64 * 1e9 / (to_ns - from_ns) as f64,
        gap_cv2: if gap > 0.0 { variance(&gaps_s).unwrap_or(0.0) / (gap * gap) } else { 0.0 },
        service_s: vm.cpu_ns as f64 / 1e9 / came.len() as f64,
        beside: 0.0,
        service_cv2: 1.0,
        response: Response { mean_s: mean(&took_s)?, p95_s: quantile(&took_s, PERCENTILE)? },
        weight: vm.weight,
        vcpus: vm.vcpus,
    };
    Some(Interval { seen, gaps_s, took_s, lots: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_summed_up() {
        let of = |k: u64| Answered { began_ns: 100_000_000 * k, took_ns: 1_000_000 * (k % 10 + 1) };
        let all: Vec<Answered> = (0..40).map(of).collect();
        // 20 requests of 2 s, 10 a second, 4 ms of CPU each, 1 to 10 ms until answered.
        let vm = Vm { cpu_ns: 80_000_000, weight: 100.0, vcpus: 1 };
        let s = interval(&all, (1_000_000_000, 3_000_000_000), vm).unwrap().seen;
        assert!((s.rate_hz - 10.0).abs() < 1e-9 && s.gap_cv2 < 1e-12 && (s.service_s - 0.004).abs() < 1e-12);
        assert!((s.response.mean_s - 0.0055).abs() < 1e-9 && s.response.p95_s > 0.009, "{s:?}");
        assert_eq!(interval(&all, (0, 50_000_000), vm), None);
        assert_eq!(interval(&[], (0, 1), vm), None);
        assert_eq!(interval(&all, (0, 4_000_000_000), Vm { cpu_ns: 0, ..vm }), None);
    }
}
