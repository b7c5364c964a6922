//! One series of a histogram in one scrape: what its lines say, and whether that can be.
//!
//! Buckets are cumulative, so a bound that a series does not have may still be known: if the bounds on both sides of it
//! have the same count, that is its count. Exporters that write a bucket only after its first request then lose no
//! bound, and sparse native histograms neither.

use std::collections::BTreeMap;

/// A server may count a request between the moments at which a scrape reads the buckets and `_count`. This many
/// requests may differ, and this part of all.
const RACE: f64 = 10.0;
const RACE_PART: f64 = 1e-3;
/// Creation times that differ by less are the same time, rounded. Seconds.
const CREATED_NEAR_S: f64 = 1e-3;
/// Sums are rounded when a server adds up: this part is not a fall.
const ROUNDED: f64 = 1e-9;

/// What the lines of one series say.
#[derive(Debug, Clone, Default)]
pub(super) struct Raw {
    /// Upper bounds and cumulative counts, in the order of the lines.
    pub buckets: Vec<(f64, f64)>,
    pub sum: Option<f64>,
    pub count: Option<f64>,
    /// When the counters began, s since 1970.
    pub created_s: Option<f64>,
}

/// Why a series is wrong, and what to do.
#[derive(Debug, PartialEq)]
pub(super) struct Wrong {
    pub why: String,
    pub help: &'static str,
}

const COMPLETE: &str = "give the complete text of a scrape";
const TIMES: &str = "choose a histogram of response times";

fn wrong<T>(why: impl Into<String>, help: &'static str) -> Result<T, Wrong> {
    Err(Wrong { why: why.into(), help })
}

/// One series of a histogram whose counts agree.
#[derive(Debug, Clone)]
pub(super) struct Series {
    /// Upper bounds in order, the last infinite, and cumulative counts.
    pub buckets: Vec<(f64, f64)>,
    pub sum: f64,
    count: f64,
    created_s: Option<f64>,
}

impl Raw {
    /// The series, if its lines agree; `None` if it has no buckets, so is not a histogram.
    pub(super) fn checked(mut self) -> Result<Option<Series>, Wrong> {
        if self.buckets.is_empty() {
            return Ok(None);
        }
        self.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.buckets.dedup();
        let pairs = || self.buckets.windows(2).map(|two| (two[0], two[1]));
        if let Some(((low, one), (_, other))) = pairs().find(|(low, high)| low.0 == high.0) {
            let why = format!("its bucket le=\"{low}\" has two values, {one} and {other}");
            return wrong(why, "save each scrape in a file of its own");
        }
        if let Some(((low, below), (high, upto))) = pairs().find(|(low, high)| low.1 > high.1) {
            let why = format!("{below} values were {low} or less, but {upto} were {high} or less");
            return wrong(why, "buckets are cumulative: check that the program counts correctly");
        }
        let Some((_, all)) = self.buckets.last().copied().filter(|(le, _)| *le == f64::INFINITY) else {
            return wrong("it has no bucket le=\"+Inf\"", COMPLETE);
        };
        let count = self.count.unwrap_or(all);
        if (count - all).abs() > RACE + RACE_PART * all.max(count) {
            return wrong(format!("its _count is {count}, but its last bucket has {all}"), COMPLETE);
        }
        let below_0 = self.buckets.iter().rfind(|(le, _)| *le < 0.0).map_or(0.0, |(_, n)| *n);
        if below_0 > 0.0 {
            return wrong(format!("{below_0} of its values are below 0, so they are not times"), TIMES);
        }
        self.buckets.retain(|(le, _)| *le >= 0.0);
        let sum = match self.sum {
            None if all == 0.0 => 0.0,
            None => return wrong("it has no _sum, so its mean is not known", COMPLETE),
            Some(sum) if !sum.is_finite() => {
                return wrong(format!("its _sum is {sum}, so its mean is not known"), TIMES);
            }
            Some(sum) if sum < 0.0 => {
                return wrong(format!("its _sum is {sum}, below 0, so its values are not times"), TIMES);
            }
            Some(sum) => sum,
        };
        Ok(Some(Series { buckets: self.buckets, sum, count, created_s: self.created_s }))
    }
}

impl Series {
    /// How many requests it counted.
    pub(super) fn total(&self) -> f64 {
        self.buckets.last().map_or(0.0, |(_, n)| *n)
    }

    /// How many took this long or less; `None` if its buckets do not tell.
    pub(super) fn upto(&self, le: f64) -> Option<f64> {
        let next = self.buckets.partition_point(|(bound, _)| *bound < le);
        let (bound, above) = *self.buckets.get(next)?;
        let below = if next == 0 { 0.0 } else { self.buckets[next - 1].1 };
        (bound == le || below == above).then_some(above)
    }

    /// Did the counters start again since the series was `then`? A count fell, or the server says so.
    pub(super) fn restarted_since(&self, then: &Series) -> bool {
        let fell = |le: f64| matches!((self.upto(le), then.upto(le)), (Some(n), Some(was)) if n < was);
        let created_again = matches!(
            (self.created_s, then.created_s),
            (Some(at), Some(was)) if (at - was).abs() > CREATED_NEAR_S
        );
        // Times are never below 0, so their sum falls only if the counters started again.
        let sum_fell = then.sum - self.sum > ROUNDED * then.sum;
        created_again
            || sum_fell
            || self.count < then.count
            || self.buckets.iter().chain(&then.buckets).any(|(le, _)| fell(*le))
    }
}

/// A series in the forms in which a scrape has it. At least one is there.
#[derive(Debug, Clone, Default)]
pub(super) struct Forms {
    /// Buckets of fixed bounds.
    pub classic: Option<Series>,
    /// Exponential buckets.
    pub native: Option<Series>,
}

impl Forms {
    /// The preferred form.
    pub(super) fn of(&self, native: bool) -> Option<&Series> {
        if native { self.native.as_ref() } else { self.classic.as_ref().or(self.native.as_ref()) }
    }
}

/// A histogram's series by their labels without `le`.
pub(super) type AllSeries = BTreeMap<super::words::Labels, Forms>;

#[cfg(test)]
mod tests {
    use super::*;

    const INF: f64 = f64::INFINITY;

    fn raw(buckets: &[(f64, f64)], sum: f64) -> Raw {
        let count = buckets.last().map(|(_, n)| *n);
        Raw { buckets: buckets.to_vec(), sum: Some(sum), count, created_s: None }
    }

    fn series(buckets: &[(f64, f64)], sum: f64) -> Series {
        raw(buckets, sum).checked().unwrap().unwrap()
    }

    #[test]
    fn bounds_between_equal_counts_are_known() {
        let of = series(&[(0.1, 0.0), (0.2, 4.0), (0.5, 4.0), (INF, 9.0)], 8.0);
        assert_eq!([0.05, 0.1, 0.2, 0.3, INF].map(|le| of.upto(le)), [0.0, 0.0, 4.0, 4.0, 9.0].map(Some));
        assert_eq!([0.15, 0.7].map(|le| of.upto(le)), [None, None]);
        assert_eq!(series(&[(INF, 0.0)], 0.0).upto(0.3), Some(0.0));
    }

    #[test]
    fn only_a_fall_is_a_restart() {
        let then = series(&[(0.1, 3.0), (0.2, 4.0), (INF, 9.0)], 8.0);
        let restarted = |of: Series| of.restarted_since(&then);
        assert!(!restarted(then.clone()));
        // Another bound appeared, or one disappeared.
        assert!(!restarted(series(&[(0.05, 1.0), (0.1, 3.0), (0.2, 4.0), (INF, 9.0)], 8.0)));
        assert!(!restarted(series(&[(0.1, 3.0), (INF, 9.0)], 8.0)));
        assert!(restarted(series(&[(0.1, 2.0), (0.2, 4.0), (INF, 9.0)], 8.0)));
        assert!(restarted(series(&[(0.1, 3.0), (0.2, 4.0), (INF, 8.0)], 8.0)));
        assert!(restarted(series(&[(0.1, 3.0), (0.2, 4.0), (INF, 9.0)], 7.0)));
        let created = |at: f64| Series { created_s: Some(at), ..then.clone() };
        assert!(created(5.0).restarted_since(&created(4.0)) && !created(5.0).restarted_since(&created(5.0)));
        assert!(!created(5.0).restarted_since(&then));
    }

    #[test]
    fn what_cannot_be_is_told() {
        let said = |raw: Raw| raw.checked().unwrap_err().why;
        assert!(Raw { sum: Some(1.0), ..Raw::default() }.checked().unwrap().is_none());
        assert!(said(raw(&[(0.1, 2.0)], 1.0)).contains("no bucket le=\"+Inf\""));
        assert!(said(raw(&[(0.1, 2.0), (INF, 1.0)], 1.0)).contains("2 values were 0.1 or less"));
        assert!(said(raw(&[(0.1, 2.0), (0.1, 3.0), (INF, 3.0)], 1.0)).contains("two values, 2 and 3"));
        assert!(said(raw(&[(-0.1, 2.0), (INF, 3.0)], 1.0)).contains("2 of its values are below 0"));
        assert!(said(raw(&[(INF, 3.0)], f64::NAN)).contains("_sum is NaN"));
        assert!(said(raw(&[(INF, 3.0)], -1.0)).contains("below 0"));
        assert!(said(Raw { sum: None, ..raw(&[(INF, 3.0)], 1.0) }).contains("no _sum"));
        let off = |count: f64| Raw { count: Some(count), ..raw(&[(INF, 100.0)], 1.0) }.checked().is_err();
        assert!(off(50.0) && off(150.0) && !off(101.0) && !off(95.0));
    }
}
