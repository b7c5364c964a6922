//! Turns a histogram's counts into single requests, because [`super::window`] and [`super::hold`] need them one by one.
//!
//! **Idea.** Draw as many requests as were counted, in each bucket as many as it holds, with the counted sum of
//! times. Rate and mean are then exact, and a percentile is in its bucket. Within buckets times follow an
//! exponential density, cut off at the bounds (greatest entropy). One parameter for all buckets makes the sum
//! right. A straight line as in `histogram_quantile` ignores the sum and gives too long percentiles.
//!
//! **Arrivals** are uniform in the interval, so bursts within it are not visible (GAP(sla-histogram)). Each request
//! begins and ends within the interval.
//!
//! **Order.** The real order, in which long requests follow long ones, is unknown. Batch means within one interval
//! would be too sure. So [`Lots`] says how many requests were counted together, and a batch in [`super::hold`] has
//! at least two lots. With one scrape per period, chance is unknown for at least six periods.
//!
//! The seed is fixed and includes the interval's begin, so the same counts give the same requests.
//!
//! Source: E. T. Jaynes, "Information theory and statistical mechanics", Physical Review 106(4), 1957. Left out:
//! times below 0.

use vsteer_core::random::Random;
use vsteer_core::requests::{Answered, Counted};
use vsteer_core::{Fault, FaultKind};

/// Most requests drawn. More would be the counter's whole past, not one interval.
pub const MOST: f64 = 1e7;
const SEED: u64 = 0x6869;
/// Range of the inverse hyperbolic sine of the density's parameter. Halving finds the parameter exactly, up to 5e12
/// per second.
const WIDEST: f64 = 30.0;
const HALVINGS: usize = 100;
/// If the product of parameter and width is smaller, the density is uniform within floating-point precision.
const EVEN: f64 = 1e-5;

/// What is known about requests that a histogram counted.
#[derive(Debug, Clone, PartialEq)]
pub struct Lots {
    /// Most requests counted together between two scrapes. Their order is unknown.
    pub most: usize,
    /// Upper bounds of the buckets, seconds, in order, the last infinite.
    pub bounds_s: Vec<f64>,
}

impl Lots {
    /// The lot of the requests counted between two scrapes.
    pub fn of(counted: &Counted) -> Lots {
        let bounds_s = counted.buckets.iter().map(|(high_s, _)| *high_s).collect();
        Lots { most: libm::round(counted.count()) as usize, bounds_s }
    }

    /// Combines two consecutive lots. If the bounds differ, those of the later lot count.
    pub fn both(one: Option<Lots>, then: &Option<Lots>) -> Option<Lots> {
        match (one, then) {
            (Some(one), Some(then)) => Some(Lots { most: one.most.max(then.most), ..then.clone() }),
            (one, then) => one.or_else(|| then.clone()),
        }
    }

    /// Combines two lots of the same time, as two processes of one VM count them. Only bounds that both have are bounds of
    /// all requests.
    pub fn beside(self, other: &Lots) -> Lots {
        let both = |s: &f64| other.bounds_s.iter().any(|other| other.total_cmp(s).is_eq());
        let bounds_s = self.bounds_s.into_iter().filter(both).collect();
        Lots { most: self.most + other.most, bounds_s }
    }

    /// Bounds, seconds, of the bucket that contains a time. The upper bound may be infinite.
    pub fn bucket_at(&self, took_s: f64) -> (f64, f64) {
        let i = self.bounds_s.iter().position(|high_s| took_s <= *high_s).unwrap_or(self.bounds_s.len());
        let low_s = self.bounds_s[..i].last().map_or(0.0, |s| s.max(0.0));
        (low_s, self.bounds_s.get(i).map_or(f64::INFINITY, |s| s.max(low_s)))
    }
}

/// Requests of one bucket.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    low_s: f64,
    high_s: f64,
    requests: usize,
}

/// Draws the counted requests of the interval, ns of any clock, in the order of arrival.
///
/// # Errors
/// `BadInput` if there are more than [`MOST`] requests, or if the sum is not finite or does not fit the buckets.
pub fn requests(counted: &Counted, (from_ns, to_ns): (u64, u64)) -> Result<Vec<Answered>, Fault> {
    let bad = |why: String| {
        Fault::new(FaultKind::BadInput, "cannot use the counts of a histogram".to_owned()).because(why)
    };
    // A count that is not a number fails this comparison too.
    if !(counted.count() <= MOST && counted.sum_s.is_finite()) {
        let why = if counted.sum_s.is_finite() {
            format!("the interval has {} requests, expected at most {MOST}", counted.count())
        } else {
            format!("the sum of response times, {} s, is not a finite number", counted.sum_s)
        };
        return Err(bad(why).help("check that both scrapes come from the same server process"));
    }
    let (least_s, most_s) = whole(counted).iter().fold((0.0, 0.0), |(least, most), b| {
        (least + b.low_s * b.requests as f64, most + b.high_s * b.requests as f64)
    });
    // The server may read buckets and sum at different moments.
    let slack_s = 0.02 * counted.sum_s.abs() + 1e-9;
    if !(least_s - slack_s..=most_s + slack_s).contains(&counted.sum_s) {
        return Err(bad(format!(
            "the buckets give a total of {least_s} to {most_s} s, but the sum is {} s",
            counted.sum_s
        ))
        .help("check that the histogram counts response times, with bounds and sum in the same unit"));
    }
    let mut random = Random::new(SEED, from_ns);
    let mut took = took_s(counted);
    for i in (1..took.len()).rev() {
        took.swap(i, random.within(0, i as u64) as usize);
    }
    let length_ns = to_ns.saturating_sub(from_ns);
    let place = |took_s: f64| {
        let took_ns = libm::round(took_s * 1e9) as u64;
        let within = took_ns.min(length_ns);
        let at = ((1.0 - random.unit()) * (length_ns - within) as f64) as u64;
        Answered { began_ns: (from_ns + within + at).saturating_sub(took_ns), took_ns }
    };
    let mut all: Vec<Answered> = took.into_iter().map(place).collect();
    all.sort_by_key(|r| r.began_ns);
    Ok(all)
}

/// Response time of each request, seconds, bucket after bucket.
pub fn took_s(counted: &Counted) -> Vec<f64> {
    drawn(&whole(counted), counted.sum_s)
}

/// The buckets that contain requests.
fn whole(counted: &Counted) -> Vec<Bucket> {
    let upto = |i: usize| libm::round(counted.buckets[i].1).max(0.0) as usize;
    let of = |i: usize| {
        let (low_s, high_s) = bounds(&counted.buckets, i);
        let before = if i == 0 { 0 } else { upto(i - 1) };
        Bucket { low_s, high_s, requests: upto(i).saturating_sub(before) }
    };
    (0..counted.buckets.len()).map(of).filter(|b| b.requests > 0).collect()
}

/// Bounds of the `i`th bucket. Times are at least 0.
fn bounds(buckets: &[(f64, f64)], i: usize) -> (f64, f64) {
    let low_s = if i == 0 { 0.0 } else { buckets[i - 1].0.max(0.0) };
    (low_s, buckets[i].0.max(low_s))
}

impl Bucket {
    fn is_open(&self) -> bool {
        self.high_s.is_infinite()
    }

    /// Mean time of the bucket's requests, seconds, for this parameter of the density (per second).
    fn mean_s(&self, fall: f64) -> f64 {
        let width_s = self.high_s - self.low_s;
        if self.is_open() {
            return if fall > 0.0 { self.low_s + 1.0 / fall } else { f64::INFINITY };
        }
        let x = fall * width_s;
        if x.abs() < EVEN {
            return self.low_s + width_s * (0.5 - x / 12.0);
        }
        // If the exponential overflows, this is 0, which is correct.
        self.low_s + 1.0 / fall - width_s / libm::expm1(x)
    }

    /// Time that this part of the bucket's requests does not exceed, seconds.
    fn at(&self, part: f64, fall: f64) -> f64 {
        let width_s = self.high_s - self.low_s;
        if (fall * width_s).abs() < EVEN {
            return self.low_s + part * width_s;
        }
        // A rising density is a falling one from the other end. This way no exponential overflows.
        if fall > 0.0 {
            self.low_s - libm::log1p(part * libm::expm1(-fall * width_s)) / fall
        } else {
            self.high_s - libm::log1p((1.0 - part) * libm::expm1(fall * width_s)) / fall
        }
    }
}

/// What each takes, seconds, bucket after bucket.
fn drawn(buckets: &[Bucket], sum_s: f64) -> Vec<f64> {
    // A steeper density gives shorter times.
    let (mut low, mut high) = (-WIDEST, WIDEST);
    for _ in 0..HALVINGS {
        let fall = libm::sinh(0.5 * (low + high));
        let together_s: f64 = buckets.iter().map(|b| b.requests as f64 * b.mean_s(fall)).sum();
        *(if together_s > sum_s { &mut low } else { &mut high }) = 0.5 * (low + high);
    }
    let fall = libm::sinh(high);
    let mut took: Vec<(f64, Bucket)> = Vec::new();
    for b in buckets {
        let n = b.requests as f64;
        took.extend((0..b.requests).map(|k| (b.at((k as f64 + 0.5) / n, fall).clamp(b.low_s, b.high_s), *b)));
    }
    // The drawn times miss the sum slightly. Each time moves the same part of its way to a bound.
    let left_s = sum_s - took.iter().map(|(t, _)| t).sum::<f64>();
    let open = took.iter().filter(|(_, b)| b.is_open()).count() as f64;
    let way_s: f64 = took
        .iter()
        .filter(|_| left_s < 0.0 || open == 0.0)
        .map(|(t, b)| if left_s > 0.0 { b.high_s - t } else { t - b.low_s })
        .sum();
    let part = if way_s > 0.0 { (left_s.abs() / way_s).min(1.0) } else { 0.0 };
    let moved = |(t, b): (f64, Bucket)| match (left_s > 0.0, b.is_open()) {
        (false, _) => t - part * (t - b.low_s),
        (true, true) => t + left_s / open,
        (true, false) if open > 0.0 => t,
        (true, false) => t + part * (b.high_s - t),
    };
    took.into_iter().map(moved).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::{PERCENTILE, Vm, interval};
    use vsteer_core::stats::{mean, quantile, variance};

    /// As client libraries have them.
    const USUAL_S: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, f64::INFINITY];
    const MINUTE: (u64, u64) = (1_000_000_000_000, 1_060_000_000_000);

    fn counted(took_s: &[f64]) -> Counted {
        Counted::of(&USUAL_S, took_s)
    }

    /// Real requests of several kinds, counted in buckets, come back: as many, with the same mean, in the same buckets.
    #[test]
    fn what_was_counted_comes_back() {
        let mut random = Random::new(5, 0);
        // What is drawn, by how much the percentile may be off.
        type Kind = (&'static str, fn(&mut Random) -> f64, f64);
        let kinds: [Kind; 6] = [
            ("exponential", |r| r.exponential(0.02), 0.05),
            (
                "long and short",
                |r| if r.unit() < 0.9 { r.exponential(0.004) } else { r.exponential(0.2) },
                0.15,
            ),
            ("Erlang", |r| (0..8).map(|_| r.exponential(0.002)).sum(), 0.1),
            ("all alike", |_| 0.0123, 1.0),
            ("beyond the last bound", |r| 8.0 + r.exponential(30.0), 0.05),
            ("of one bucket", |r| 0.0012 * r.unit(), 0.6),
        ];
        for (name, draw, off) in kinds {
            for n in [1, 2, 3, 40, 3000] {
                let took: Vec<f64> = (0..n).map(|_| draw(&mut random)).collect();
                let of = counted(&took);
                let all = requests(&of, MINUTE).unwrap();
                assert_eq!(all.len(), n, "{name}");
                let drawn: Vec<f64> = all.iter().map(|r| r.took_ns as f64 / 1e9).collect();
                let (was, is) = (mean(&took).unwrap(), mean(&drawn).unwrap());
                assert!((is - was).abs() < 1e-8, "{name}, {n}: {is} for {was}");
                // A time at a bound may be on its other side by less than a nanosecond.
                let back = counted(&drawn.iter().map(|t| t - 1e-9).collect::<Vec<f64>>());
                assert_eq!(back.buckets, of.buckets, "{name}, {n}");
                if n < 3000 {
                    continue;
                }
                let (truly, told) =
                    (quantile(&took, PERCENTILE).unwrap(), quantile(&drawn, PERCENTILE).unwrap());
                let lots = Lots::of(&of);
                assert_eq!(lots.bucket_at(told), lots.bucket_at(truly), "{name}: {told} for {truly}");
                assert!((told / truly - 1.0).abs() <= off, "{name}: {told} for {truly}");
            }
        }
    }

    #[test]
    fn an_interval_of_them_is_that_of_a_log() {
        let mut random = Random::new(1, 0);
        let took: Vec<f64> = (0..5000).map(|_| random.exponential(0.03)).collect();
        let of = counted(&took);
        let all = requests(&of, MINUTE).unwrap();
        assert_eq!(all, requests(&of, MINUTE).unwrap());
        assert_ne!(all, requests(&of, (MINUTE.0 + 1, MINUTE.1)).unwrap());
        // Every one came and was answered within.
        assert!(all.iter().all(|r| r.began_ns >= MINUTE.0 && r.began_ns + r.took_ns <= MINUTE.1));
        let seen = interval(&all, MINUTE, Vm { cpu_ns: 10_000_000_000, weight: 1.0, vcpus: 1 }).unwrap().seen;
        assert_eq!((seen.rate_hz, seen.service_s), (5000.0 / 60.0, 0.002));
        assert!((seen.gap_cv2 - 1.0).abs() < 0.1, "{}", seen.gap_cv2);
        assert!((seen.response.mean_s - of.mean_s().unwrap()).abs() < 1e-9);
        // Long ones lie anywhere: no half minute has all of them.
        let took: Vec<f64> = all.iter().map(|r| r.took_ns as f64 / 1e9).collect();
        let parts: Vec<f64> = took.chunks(250).filter_map(mean).collect();
        assert!(variance(&parts).unwrap() < 2.0 * variance(&took).unwrap() / 250.0);
        // A request that took longer than the interval counts where it ended.
        let long = requests(&Counted { buckets: vec![(f64::INFINITY, 1.0)], sum_s: 90.0 }, MINUTE).unwrap();
        assert_eq!(long, [Answered { began_ns: MINUTE.1 - 90_000_000_000, took_ns: 90_000_000_000 }]);
        assert_eq!(requests(&counted(&[]), MINUTE).unwrap(), []);
    }

    #[test]
    fn lots_go_together() {
        let (one, then) =
            (Lots::of(&counted(&[0.001, 20.0])), Lots { most: 1, bounds_s: vec![1.0, f64::INFINITY] });
        assert_eq!((one.bucket_at(0.005), one.bucket_at(0.3)), ((0.0, 0.005), (0.25, 0.5)));
        assert_eq!(one.bucket_at(11.0), (10.0, f64::INFINITY));
        let both = Lots::both(Some(one), &Some(then.clone())).unwrap();
        assert_eq!(both, Lots { most: 2, ..then.clone() });
        assert_eq!(Lots::both(None, &Some(then.clone())), Some(then.clone()));
        assert_eq!(Lots::both(Some(then.clone()), &None), Some(then));
        assert_eq!(counted(&[]).mean_s(), None);
    }

    #[test]
    fn counts_that_contradict_each_other_are_refused() {
        let of = |counts: f64, sum_s| Counted {
            buckets: vec![(0.01, counts), (0.02, counts), (f64::INFINITY, counts)],
            sum_s,
        };
        let said = |c: Counted| requests(&c, MINUTE).unwrap_err().to_string();
        assert!(requests(&of(10.0, 0.05), MINUTE).is_ok());
        // Milliseconds for seconds.
        assert!(said(of(10.0, 50.0)).contains("the buckets give a total of 0 to 0.1 s, but the sum is 50 s"));
        assert!(said(of(10.0, -1.0)).contains("the sum is -1 s"));
        assert!(said(of(1e12, 1.0)).contains("same server process"));
        assert!(said(of(f64::NAN, 1.0)).contains("same server process"));
        assert!(said(of(1.0, f64::NAN)).contains("same server process"));
    }
}
