//! An input with its right answer, and the judgement.

use vsteer_record::prometheus::{Between, Histogram, between};
use vsteer_record::unit::Unit;

/// The name that most inputs have.
pub const NAME: &str = "http_request_duration_seconds";

#[derive(Debug, Clone)]
pub enum Right {
    Read {
        /// Times of the requests in between, seconds.
        new: Vec<f64>,
        bounds: Bounds,
        resets: usize,
    },
    /// Words of the fault.
    Refused(&'static str),
}

#[derive(Debug, Clone)]
pub enum Bounds {
    /// These and the infinite one, seconds.
    These(Vec<f64>),
    /// Around each time two that differ at most by this factor.
    Factor(f64),
}

#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    pub before: Vec<u8>,
    pub after: Vec<u8>,
    pub wanted: String,
    pub unit: Option<Unit>,
    pub right: Right,
}

impl Case {
    pub fn of(&self) -> Histogram {
        self.wanted.parse().unwrap()
    }

    /// What is wrong; `None` if nothing is.
    pub fn wrong(&self) -> Option<String> {
        let read = between(&self.before, &self.after, &self.of(), self.unit);
        let why = match (&self.right, read) {
            (Right::Refused(words), Err(fault)) => {
                let said = fault.to_string();
                let has_help = fault.cause.is_some() && fault.help.is_some();
                if said.contains(words) && has_help { None } else { Some(format!("not {words:?}: {said}")) }
            }
            (Right::Refused(words), Ok(read)) => Some(format!("read, not refused by {words:?}: {read:?}")),
            (Right::Read { .. }, Err(fault)) => Some(format!("refused: {fault}")),
            (Right::Read { new, bounds, resets }, Ok(read)) => judge(&read, new, bounds, *resets),
        };
        why.map(|why| format!("{}: {why}", self.name))
    }
}

fn judge(read: &Between, new: &[f64], bounds: &Bounds, resets: usize) -> Option<String> {
    let wrong = |what: &str| Some(format!("wrong {what}: {read:?}"));
    let (buckets, sum): (_, f64) = (&read.counted.buckets, new.iter().sum());
    for (le, n) in buckets {
        if new.iter().filter(|t| *t <= le).count() as f64 != *n {
            return wrong(&format!("count at {le}"));
        }
    }
    let ordered = buckets.windows(2).all(|two| two[0].0 < two[1].0);
    if !ordered || buckets.last().is_none_or(|(le, n)| le.is_finite() || *n != new.len() as f64) {
        return wrong("end or order of bounds");
    }
    if (read.counted.sum_s - sum).abs() > 1e-9 * sum.max(1e-6) {
        return wrong(&format!("sum, not {sum}"));
    }
    if read.resets != resets {
        return wrong("resets");
    }
    match bounds {
        Bounds::These(these) => {
            let is: Vec<f64> = buckets.iter().map(|(le, _)| *le).filter(|le| le.is_finite()).collect();
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * b.abs();
            let same = is.len() == these.len() && is.iter().zip(these).all(|(a, b)| near(*a, *b));
            if same { None } else { wrong(&format!("bounds, not {these:?}")) }
        }
        Bounds::Factor(factor) => new.iter().find_map(|t| {
            let high = buckets.iter().find(|(le, _)| t <= le)?.0;
            let low = buckets.iter().rfind(|(le, _)| le < t).map_or(0.0, |(le, _)| *le);
            let wide = high / low > factor * (1.0 + 1e-9);
            wide.then(|| format!("{t} is only known to be in {low} to {high}: {read:?}"))
        }),
    }
}
