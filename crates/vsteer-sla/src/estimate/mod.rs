//! How long will requests take in the next interval? Seven estimators with one interface.
//!
//! ```text
//! own        vsteer's own: a run of the sharing model, corrected by the last interval
//! simulator  the recorded host, simulated with the requests as demand
//! paper      equations (1) to (4): own service, and that of others by ratios of weights and rates
//! sandpiper  a bound for a G/G/1 queue with a pCPU of its own
//! ps         processor sharing of all pCPUs, without weights
//! kingman    one queue for all VMs, by measured variances
//! last       the values of the last interval
//! ```
//!
//! Each estimator gets the measured values of the last interval and the rates and weights of the next. If it gives
//! only a mean, the percentile follows from the last interval's ratio of the two. An answer is `None` for a load of
//! 1 or more, without requests, and without a host to simulate.

pub mod fluid;
mod own;
pub mod simulated;
pub mod traffic;

use super::window::{Next, Response, Seen};
use fluid::Fluid;
use traffic::Traffic;
use vsteer_core::{Fault, FaultKind};

/// Work that the driver domain (Xen's Domain-0) adds to each request. All 0 without a driver domain.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Driver {
    /// w_0: weight of the driver domain, as a part of all weights with its own.
    pub weight: f64,
    /// X_0: CPU time of the driver domain per request, seconds.
    pub service_s: f64,
    /// IO * D_0: part of the time in which the driver domain waits for a pCPU: its I/O operations per second, each with
    /// its scheduling delay.
    pub delay: f64,
    /// pCPUs that the driver domain used.
    pub run_pcpus: f64,
}

/// Response times from several rounds of requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ran {
    /// Response times over all rounds.
    pub response: Response,
    /// Standard deviation of the rounds' means, seconds.
    pub rounds_apart_s: f64,
}

/// Who shares pCPUs how.
pub trait Sharing {
    /// Response times of the counted requests, by VM; `None` without requests, or if the host cannot be simulated.
    /// A slow model calls `between` regularly.
    fn run(&self, rounds: &[Vec<Traffic>], weights: &[f64], between: &dyn Fn()) -> Vec<Option<Ran>>;
}

/// The standard deviation of rounds' means.
fn rounds_apart(means: &[f64]) -> f64 {
    libm::sqrt(vsteer_core::stats::variance(means).unwrap_or(0.0))
}

/// VMs that share pCPUs, with their last and next interval.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// The last interval, by VM.
    pub seen: &'a [Seen],
    /// The next interval, in the same order.
    pub next: &'a [Next],
    /// Work that a driver domain adds.
    pub driver: Driver,
    /// pCPUs that all these VMs may use.
    pub pcpus: f64,
    /// Measured times between arrivals, by VM, seconds; may be empty.
    pub gaps_s: &'a [Vec<f64>],
    /// The recorded host; `None` if it cannot be simulated.
    pub host: Option<&'a dyn Sharing>,
    /// Number of simulated requests. More requests give more exact answers.
    pub effort: usize,
    /// If true, the answer at unchanged rates and weights is exactly the measured one, as the control loop needs.
    /// If false, the measurement counts only as far as it exceeds chance.
    pub to_the_letter: bool,
    /// Called after every run of requests, so that vsteer can pause and leave the pCPUs to the VMs.
    pub between: &'a dyn Fn(),
}

/// Default number of requests: a person waits for the answer.
pub const EFFORT: usize = 400_000;

impl<'a> Case<'a> {
    /// These VMs on one pCPU, without a driver domain.
    pub fn new(seen: &'a [Seen], next: &'a [Next]) -> Case<'a> {
        Case {
            seen,
            next,
            driver: Driver::default(),
            pcpus: 1.0,
            gaps_s: &[],
            host: None,
            effort: EFFORT,
            to_the_letter: false,
            between: &|| {},
        }
    }

    /// pCPUs that are left for requests.
    fn for_requests(&self) -> f64 {
        self.pcpus - self.seen.iter().map(|s| s.beside).sum::<f64>()
    }

    fn fluid(&self) -> Fluid {
        Fluid { pcpus: self.for_requests(), vcpus: self.seen.iter().map(|s| s.vcpus).collect() }
    }
}

/// One way to tell.
#[derive(Debug, Clone, Copy)]
pub struct Estimator {
    /// Name of the estimator.
    pub name: &'static str,
    /// Forecast response times, by VM.
    pub tell: fn(&Case<'_>) -> Vec<Option<Response>>,
    /// Prepares answers for several weights at the next interval's rates, so that common work is done once.
    prepare: for<'a> fn(Case<'a>) -> ByWeights<'a>,
}

/// Forecast for the next interval with these weights, by VM.
pub type ByWeights<'a> = Box<dyn Fn(&[f64]) -> Vec<Option<Response>> + 'a>;

impl Estimator {
    /// The answer as a function of weights. The weights in `case.next` do not matter.
    pub fn by_weights<'a>(&self, case: Case<'a>) -> ByWeights<'a> {
        (self.prepare)(case)
    }
}

const fn line(
    name: &'static str,
    tell: fn(&Case<'_>) -> Vec<Option<Response>>,
    prepare: Prepare,
) -> Estimator {
    Estimator { name, tell, prepare }
}

/// How an estimator gets ready.
type Prepare = for<'a> fn(Case<'a>) -> ByWeights<'a>;

/// Computes each answer from the start.
fn anew(tell: fn(&Case<'_>) -> Vec<Option<Response>>, case: Case<'_>) -> ByWeights<'_> {
    Box::new(move |weights| {
        let next: Vec<Next> =
            case.next.iter().zip(weights).map(|(n, w)| Next { rate_hz: n.rate_hz, weight: *w }).collect();
        tell(&Case { next: &next, ..case })
    })
}

/// All estimators.
pub const ALL: [Estimator; 7] = [
    line("own", own::tell, |case| Box::new(own::Prepared::new(case).by_weights())),
    line("simulator", own::simulator, |case| anew(own::simulator, case)),
    line("paper", paper, |case| anew(paper, case)),
    line("sandpiper", sandpiper, |case| anew(sandpiper, case)),
    line("ps", processor_sharing, |case| anew(processor_sharing, case)),
    line("kingman", kingman, |case| anew(kingman, case)),
    line("last", last, |case| anew(last, case)),
];

fn last(case: &Case<'_>) -> Vec<Option<Response>> {
    case.seen.iter().map(|s| Some(s.response)).collect()
}

/// The one of this name.
///
/// # Errors
/// `BadInput`, with the names of the estimators.
pub fn find(name: &str) -> Result<Estimator, Fault> {
    ALL.into_iter().find(|e| e.name == name).ok_or_else(|| {
        let known: Vec<&str> = ALL.iter().map(|e| e.name).collect();
        Fault::new(FaultKind::BadInput, format!("{name:?} is not the name of an estimator"))
            .help(format!("known estimators: {}", known.join(", ")))
    })
}

/// A mean with the percentile that follows from the last interval's ratio.
fn with_ratio(seen: &Seen, mean_s: f64) -> Option<Response> {
    let ratio = seen.response.p95_s / seen.response.mean_s;
    (mean_s.is_finite() && mean_s > 0.0 && ratio.is_finite())
        .then_some(Response { mean_s, p95_s: ratio * mean_s })
}

/// Load: demand as a part of the pCPUs left for requests.
fn load(case: &Case<'_>) -> f64 {
    case.seen.iter().zip(case.next).map(|(s, n)| n.rate_hz * s.service_s).sum::<f64>() / case.for_requests()
}

/// Equations (1) to (4) exactly as printed. `known_gaps` of the paper's figures list where they are wrong.
///
/// (4) divides a guest's credit by those of the guests, 1 to n. It says of w_0 only that it is expressed likewise; a
/// part that is at most 1 for any weight has Domain-0's own in the sum.
fn paper(case: &Case<'_>) -> Vec<Option<Response>> {
    let all: f64 = case.next.iter().map(|n| n.weight).sum::<f64>();
    let part = |n: &Next| n.weight / all;
    let of = |(p, (s, n)): (usize, (&Seen, &Next))| {
        let others = case.seen.iter().zip(case.next).enumerate().filter(|(i, _)| *i != p);
        let delay: f64 = others
            .map(|(_, (other, o))| part(o) / part(n) * (o.rate_hz / n.rate_hz) * other.service_s)
            .sum::<f64>()
            + case.driver.weight * case.driver.service_s;
        with_ratio(s, s.service_s + delay + case.driver.delay / (part(n) * n.rate_hz))
    };
    case.seen.iter().zip(case.next).enumerate().map(of).collect()
}

/// Wood et al., "Black-box and gray-box strategies for virtual machine migration", NSDI 2007, equation (1), solved
/// for the response time. It ignores other VMs.
fn sandpiper(case: &Case<'_>) -> Vec<Option<Response>> {
    let of = |(s, n): (&Seen, &Next)| {
        let (gap_s, x) = (1.0 / n.rate_hz, s.service_s);
        let variances = s.gap_cv2 * gap_s * gap_s + s.service_cv2 * x * x;
        (gap_s > x).then(|| with_ratio(s, x + variances / (2.0 * (gap_s - x)))).flatten()
    };
    case.seen.iter().zip(case.next).map(of).collect()
}

/// M/G/1 with processor sharing: x / (1 - ρ), whatever the distribution of service times.
fn processor_sharing(case: &Case<'_>) -> Vec<Option<Response>> {
    let rho = load(case);
    case.seen
        .iter()
        .map(|s| (rho < 1.0).then(|| with_ratio(s, s.service_s / (1.0 - rho))).flatten())
        .collect()
}

/// Kingman's approximation for all requests in one queue: the wait is ρ / (1 - ρ) * (c_a² + c_s²) / 2 * x.
fn kingman(case: &Case<'_>) -> Vec<Option<Response>> {
    let rho = load(case);
    let rate: f64 = case.next.iter().map(|n| n.rate_hz).sum();
    let x = rho * case.for_requests() / rate;
    let pairs = || case.seen.iter().zip(case.next);
    // Of a mixture: the mean of the squares; arrivals of independent streams add up their variances per time.
    let square: f64 =
        pairs().map(|(s, n)| n.rate_hz / rate * s.service_s * s.service_s * (1.0 + s.service_cv2)).sum();
    let gap_cv2: f64 = pairs().map(|(s, n)| n.rate_hz / rate * s.gap_cv2).sum();
    let wait_s = rho / (1.0 - rho) * (gap_cv2 + square / (x * x) - 1.0) / 2.0 * x;
    case.seen.iter().map(|s| (rho < 1.0).then(|| with_ratio(s, s.service_s + wait_s)).flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(rate_hz: f64, service_ms: f64) -> Seen {
        let response = Response { mean_s: 0.02, p95_s: 0.05 };
        Seen {
            rate_hz,
            gap_cv2: 1.0,
            service_s: service_ms / 1e3,
            beside: 0.0,
            service_cv2: 1.0,
            response,
            weight: 1.0,
            vcpus: 1,
        }
    }

    fn tell(name: &str, seen: &[Seen], next: &[Next]) -> Vec<Option<Response>> {
        let estimator = ALL.iter().find(|e| e.name == name).unwrap();
        (estimator.tell)(&Case::new(seen, next))
    }

    fn next(rate_hz: f64) -> Next {
        Next { rate_hz, weight: 1.0 }
    }

    /// Equations (1) to (4) once more, from the paper's text: sums over guests 1 to n, in ms.
    #[test]
    fn the_papers_equations_with_domain_0() {
        let (rates, services_ms) = ([45.0, 45.0, 170.0], [6.6, 6.6, 1.7]);
        let credits = [384.0, 256.0, 256.0];
        let (credit_0, x_0_ms, waits_0) = (256.0, 0.4, 0.03);
        let all: Vec<Seen> = rates.iter().zip(services_ms).map(|(hz, ms)| seen(*hz, ms)).collect();
        let next: Vec<Next> =
            rates.iter().zip(credits).map(|(hz, credit)| Next { rate_hz: *hz, weight: credit }).collect();
        let w_0 = credit_0 / (credits.iter().sum::<f64>() + credit_0);
        let driver = Driver { weight: w_0, service_s: x_0_ms / 1e3, delay: waits_0, run_pcpus: 0.1 };
        let case = Case { driver, ..Case::new(&all, &next) };
        let told = (ALL.iter().find(|e| e.name == "paper").unwrap().tell)(&case);
        let w: Vec<f64> = credits.iter().map(|c| c / 896.0).collect();
        for p in 0..3 {
            let mut r_ms = services_ms[p] + w_0 * x_0_ms + 1e3 * waits_0 / (w[p] * rates[p]);
            for i in (0..3).filter(|i| *i != p) {
                r_ms += w[i] / w[p] * rates[i] / rates[p] * services_ms[i];
            }
            let told_ms = 1e3 * told[p].unwrap().mean_s;
            assert!((told_ms - r_ms).abs() < 1e-9 * r_ms, "VM {p}: {told_ms} ms, the equations {r_ms} ms");
        }
    }

    /// Scenario 1: by ratios of rates alone, 21.1 ms at 15, 15, 70 a second, 19.6 at 45, 45, 170 (`known_gaps`).
    #[test]
    fn the_paper_says_what_it_says() {
        let all = [seen(15.0, 6.6), seen(15.0, 6.6), seen(70.0, 1.7)];
        let at = |rates: [f64; 3]| tell("paper", &all, &rates.map(next))[0].unwrap().mean_s;
        assert!((at([15.0, 15.0, 70.0]) - 0.0211).abs() < 1e-4, "{}", at([15.0, 15.0, 70.0]));
        assert!((at([45.0, 45.0, 170.0]) - 0.0196).abs() < 1e-4, "{}", at([45.0, 45.0, 170.0]));
    }

    /// One VM alone, Poisson arrivals, exponential service: everybody who models a queue says x / (1 - ρ).
    #[test]
    fn alone_it_is_one_queue() {
        let (all, then) = ([seen(50.0, 10.0)], [next(50.0)]);
        for name in ["ps", "kingman"] {
            let told = tell(name, &all, &then)[0].unwrap();
            assert!(
                (told.mean_s - 0.02).abs() < 1e-9 && (told.p95_s / told.mean_s - 2.5).abs() < 1e-9,
                "{name} {told:?}"
            );
        }
        // Sandpiper's is a bound for heavy load: (1 + 0.25) / (2 * 0.5) * gap more than x.
        assert!((tell("sandpiper", &all, &then)[0].unwrap().mean_s - 0.035).abs() < 1e-9);
        let own = tell("own", &all, &then)[0].unwrap();
        assert!((own.mean_s / 0.02 - 1.0).abs() < 0.05, "{own:?}");
    }

    #[test]
    fn where_there_is_too_much_nobody_makes_a_number_up() {
        let (all, then) = ([seen(50.0, 10.0), seen(50.0, 10.0)], [next(60.0), next(60.0)]);
        for name in ["ps", "kingman", "own"] {
            assert_eq!(tell(name, &all, &then), [None, None], "{name}");
        }
        assert_eq!(tell("sandpiper", &all, &[next(120.0), next(1.0)])[0], None);
    }
}
