//! What does a server say of the requests that it answered: one by one, as a log has them, or counted in a histogram?
//!
//! Left out: what follows from them, which is `vsteer-sla`'s.

/// A request as a log has it, ns of any clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// When it came.
    pub began_ns: u64,
    /// Until it was answered.
    pub took_ns: u64,
}

/// What a histogram counted in an interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// Upper bounds, seconds, in order, the last infinite; and how many requests took so long or less.
    pub buckets: Vec<(f64, f64)>,
    /// What all took together, seconds.
    pub sum_s: f64,
}

impl Counted {
    /// What these would have been counted as, by upper bounds in seconds.
    pub fn of(bounds_s: &[f64], took_s: &[f64]) -> Counted {
        let upto = |le: &f64| (*le, took_s.iter().filter(|t| *t <= le).count() as f64);
        Counted { buckets: bounds_s.iter().map(upto).collect(), sum_s: took_s.iter().sum() }
    }

    /// Requests.
    pub fn count(&self) -> f64 {
        self.buckets.last().map_or(0.0, |(_, n)| *n)
    }

    /// What they took in the mean, seconds; `None` of none.
    pub fn mean_s(&self) -> Option<f64> {
        (self.count() > 0.0).then(|| self.sum_s / self.count())
    }
}
