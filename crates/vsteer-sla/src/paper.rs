//! What do the paper's own rules decide? Implemented exactly as printed, for reference.
//!
//! ```text
//! (5)  re-allocate where N_sla >= N_peak or R_sla <= R_peak for some VM, and sum R_sla >= sum R_peak
//! (6)  migrate where sum R_sla <= sum R_peak
//! (7)  of all weights in steps of 0.05 those that make the sum of all delays smallest
//! ```
//! N and R are requests per second and response times; peak is the 95th percentile of the profiled log. Domain-0's
//! weight is never changed.
//!
//! Their flaws: (5) fires for every idle VM, because its peak of requests is below its
//! level. A sum of times does not say whether each level can be held. The weights of (7) favour the VM with the
//! least load. vsteer uses [`super::control`] instead, unless a user asks for these rules ([`super::rule`]).
//!
//! Source: E. Yang, H. Choi, S. Han, S. Park, "A Priority Allocation Scheme Considering Virtual Machine Scheduling
//! Delays in Xen Environments", J. KIISE 37(4), 2010, equations (5) to (7). Left out: more than [`VMS_MOST`] VMs,
//! because the grid then has too many points ([`super::solve`] finds the exact optimum).

use super::solve::{Problem, told};

/// Steps of 0.05.
const STEPS: usize = 20;
/// C(19, 5) are 11,628 points.
pub const VMS_MOST: usize = 6;

/// A VM as input of the rules.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vm {
    /// Promised requests per second, and the 95th percentile of answered ones; `None` without such a promise.
    pub rate_hz: Option<(f64, f64)>,
    /// Promised response time and the 95th percentile of response times, s; `None` without such a promise.
    pub response_s: Option<(f64, f64)>,
}

/// What the rules say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// Change nothing.
    Nothing,
    /// Other weights.
    Reallocate,
    /// Migrate a VM.
    Migrate,
}

/// Rules (5) and (6).
pub fn says(vms: &[Vm]) -> Says {
    let fires = |vm: &Vm| {
        vm.rate_hz.is_some_and(|(level, peak)| level >= peak)
            || vm.response_s.is_some_and(|(level, peak)| level <= peak)
    };
    let promised = || vms.iter().filter_map(|vm| vm.response_s);
    let (levels, peaks) = promised().fold((0.0, 0.0), |(l, p), (level, peak)| (l + level, p + peak));
    if !vms.iter().any(fires) {
        Says::Nothing
    } else if levels >= peaks {
        Says::Reallocate
    } else {
        Says::Migrate
    }
}

/// Rule (7): the best weights in steps of 0.05, each at least one step; `None` without VMs or with more than
/// [`VMS_MOST`].
pub fn grid(problem: &Problem) -> Option<Vec<f64>> {
    let n = problem.guests.len();
    if !(1..=VMS_MOST).contains(&n) {
        return None;
    }
    let mut best: Option<(f64, Vec<f64>)> = None;
    let mut steps = vec![1; n];
    steps[n - 1] = STEPS - (n - 1);
    loop {
        let weights: Vec<f64> = steps.iter().map(|s| *s as f64 / STEPS as f64).collect();
        let told = told(problem, weights, 0);
        if best.as_ref().is_none_or(|(least, _)| told.total_s < *least) {
            best = Some((told.total_s, told.weights));
        }
        // The next way to divide the steps: the last takes what the others leave.
        let mut k = n - 1;
        loop {
            if k == 0 {
                return best.map(|(_, weights)| weights);
            }
            k -= 1;
            steps[k] += 1;
            let left: usize = steps[..n - 1].iter().sum();
            if left < STEPS {
                steps[n - 1] = STEPS - left;
                break;
            }
            steps[k] = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::solve::{Guest, best};
    use super::*;

    fn vm(level_ms: f64, peak_ms: f64, busy: bool) -> Vm {
        let rate_peak_hz = if busy { 50.0 } else { 1.0 };
        Vm { rate_hz: Some((45.0, rate_peak_hz)), response_s: Some((level_ms / 1e3, peak_ms / 1e3)) }
    }

    /// The paper's third scenario: VM1 misses its level of 9 ms, and the levels of all VMs add up to 26 ms.
    #[test]
    fn it_says_what_it_says() {
        assert_eq!(says(&[vm(9.0, 9.5, true), vm(9.0, 8.0, true), vm(8.0, 5.0, true)]), Says::Reallocate);
        assert_eq!(says(&[vm(9.0, 14.0, true), vm(9.0, 14.0, true), vm(8.0, 5.0, true)]), Says::Migrate);
        assert_eq!(says(&[vm(9.0, 8.0, true), vm(9.0, 8.0, true), vm(8.0, 5.0, true)]), Says::Nothing);
        // And of a VM that nobody asks anything.
        assert_eq!(says(&[vm(9.0, 1.0, false), vm(9.0, 8.0, true), vm(8.0, 5.0, true)]), Says::Reallocate);
    }

    fn problem(rates: &[f64], service_ms: &[f64]) -> Problem {
        let guest = |(rate, ms): (&f64, &f64)| Guest {
            rate_hz: *rate,
            service_s: ms / 1e3,
            level_s: None,
            bounds: (0.0, 1.0),
        };
        Problem { guests: rates.iter().zip(service_ms).map(guest).collect(), driver: 0.0 }
    }

    /// Its grid finds the point that lies nearest to the exact optimum, which treats VM1 and VM2 alike and favours
    /// who has least to do.
    #[test]
    fn the_grid_is_the_exact_optimum_in_steps() {
        let p = problem(&[45.0, 45.0, 170.0], &[6.6, 6.6, 1.7]);
        let (grid, exact) = (grid(&p).unwrap(), best(&p).unwrap());
        for (g, e) in grid.iter().zip(&exact.weights) {
            assert!((g - e).abs() <= 0.05, "{grid:?} {:?}", exact.weights);
        }
        assert!((grid[0] - grid[1]).abs() < 0.051 && (grid.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let idle = problem(&[1.0, 45.0, 170.0], &[6.6, 6.6, 1.7]);
        assert!(super::grid(&idle).unwrap()[0] > 0.8, "the least loaded gets the most");
        assert_eq!(super::grid(&problem(&[], &[])), None);
        assert_eq!(super::grid(&problem(&[1.0], &[1.0])), Some(vec![1.0]));
        assert_eq!(super::grid(&problem(&[1.0; 7], &[1.0; 7])), None);
    }
}
