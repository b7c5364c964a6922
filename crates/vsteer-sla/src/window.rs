//! What was seen of VMs' requests in an interval, and what is known of the next.

use super::histogram::Lots;
use serde::Serialize;
use vsteer_core::requests::Answered;
use vsteer_core::stats::{mean, quantile, variance};

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
    /// CPU time per request, seconds: the VM's less what it uses beside, divided by what it answered.
    pub service_s: f64,
    /// pCPUs that it uses beside, whatever is asked of it: its kernel's ticks, its emulator. 0 until [`super::spread`] has read it off.
    pub beside: f64,
    /// Of CPU times: variance by squared mean; 1 for exponential ones.
    pub service_cv2: f64,
    /// What clients saw.
    pub response: Response,
    /// The VM's weight then, on any scale that is the same for all.
    pub weight: f64,
    /// How many requests it can serve at once.
    pub vcpus: u32,
}

impl Seen {
    /// pCPUs that it needs at this rate.
    pub fn load_at(&self, rate_hz: f64) -> f64 {
        rate_hz * self.service_s + self.beside
    }
}

/// What the next interval brings a VM, known beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Next {
    /// Arrivals per second.
    pub rate_hz: f64,
    /// Its weight.
    pub weight: f64,
}

/// A VM in an interval, as its requests are looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vm {
    /// CPU time that it used, ns.
    pub cpu_ns: u64,
    /// Its weight.
    pub weight: f64,
    /// Its vCPUs.
    pub vcpus: u32,
}

/// A VM's interval: its moments, and what they are of.
#[derive(Debug, Clone, PartialEq)]
pub struct Interval {
    /// The moments.
    pub seen: Seen,
    /// Gaps between arrivals, in their order, seconds.
    pub gaps_s: Vec<f64>,
    /// Response times, seconds.
    pub took_s: Vec<f64>,
    /// Where they are drawn, since a histogram counted them. `None` for a log, which tells of each.
    pub lots: Option<Lots>,
}

/// What `requests` that came in `from_ns..to_ns` tell. `None` where there were fewer than two: nothing can be divided by them. A
/// service time's spread is in no log: until [`super::spread`] has read it off, it is that of exponential ones.
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
