//! Which requests did a server answer? One by one as in a log, or counted in a histogram. `vsteer-sla` evaluates them.

/// A request in a log, times in ns of any clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// When it came.
    pub began_ns: u64,
    /// Time until the answer, ns.
    pub took_ns: u64,
}

/// Counts of a histogram in an interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// Upper bounds, seconds, in order, the last infinite; and the number of requests up to each bound.
    pub buckets: Vec<(f64, f64)>,
    /// Sum of all response times, seconds.
    pub sum_s: f64,
}

impl Counted {
    /// The counts of these requests with the given upper bounds, seconds.
    pub fn of(bounds_s: &[f64], took_s: &[f64]) -> Counted {
        let upto = |le: &f64| (*le, took_s.iter().filter(|t| *t <= le).count() as f64);
        Counted { buckets: bounds_s.iter().map(upto).collect(), sum_s: took_s.iter().sum() }
    }

    /// Number of requests.
    pub fn count(&self) -> f64 {
        self.buckets.last().map_or(0.0, |(_, n)| *n)
    }

    /// Mean response time, seconds; `None` without requests.
    pub fn mean_s(&self) -> Option<f64> {
        (self.count() > 0.0).then(|| self.sum_s / self.count())
    }
}
