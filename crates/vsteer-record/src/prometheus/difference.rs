//! How long did the requests between two scrapes take? The difference of two scrapes, series by series.
//!
//! Series that the labels do not distinguish are summed with `le` kept, as in `sum by (le)`. The bounds of the result
//! are those at which every series that counted something is known in both scrapes. A series that is new counts from
//! 0, and so does one whose counters started again.

use super::Scrape;
use super::series::Series;
use vsteer_core::requests::Counted;
use vsteer_core::{Fault, FaultKind, limits};

/// A server reads its buckets one after the other while it counts. So a bucket may grow by this many more than the next
/// one, and by this part of all.
const RACE: f64 = 10.0;
const RACE_PART: f64 = 0.02;

/// The requests between two scrapes.
#[derive(Debug, Clone, PartialEq)]
pub struct Between {
    /// How many requests took how long.
    pub counted: Counted,
    /// How many series were summed.
    pub series: usize,
    /// How many of these series were reset in between. Requests between the first scrape and the reset are
    /// missing.
    pub resets: usize,
    /// How many bounds are left out, because not all series and scrapes have them.
    pub left_out: usize,
}

/// A series in two scrapes.
struct Growth<'a> {
    now: &'a Series,
    /// `None` if it counts from 0.
    then: Option<&'a Series>,
    was_reset: bool,
}

impl Growth<'_> {
    fn of<'a>(now: &'a Series, then: Option<&'a Series>) -> Growth<'a> {
        let was_reset = then.is_some_and(|then| now.restarted_since(then));
        Growth { now, then: then.filter(|_| !was_reset), was_reset }
    }

    fn count(&self) -> f64 {
        self.now.total() - self.then.map_or(0.0, Series::total)
    }

    /// Rounding may let a sum fall by next to nothing.
    fn sum(&self) -> f64 {
        (self.now.sum - self.then.map_or(0.0, |then| then.sum)).max(0.0)
    }

    /// How many requests took this long or less; `None` if a scrape does not tell.
    fn upto(&self, le: f64) -> Option<f64> {
        Some(self.now.upto(le)? - self.then.map_or(Some(0.0), |then| then.upto(le))?)
    }

    fn bounds(&self) -> impl Iterator<Item = f64> {
        self.now.buckets.iter().chain(self.then.iter().flat_map(|then| &then.buckets)).map(|(le, _)| *le)
    }
}

impl Scrape {
    /// The requests counted since `before`.
    ///
    /// # Errors
    /// As [`Scrape::checked`] of this scrape; `BadInput` if the scrapes have different units or no bound in common, or if
    /// their buckets contradict each other.
    pub fn since(&self, before: &Scrape) -> Result<Between, Fault> {
        self.checked()?;
        let fault = |why: String| {
            Fault::new(FaultKind::BadInput, format!("cannot read the histogram {}", self.of)).because(why)
        };
        let there = !before.series.is_empty();
        if there && !self.assumes_seconds && !before.assumes_seconds && self.unit != before.unit {
            return Err(fault(format!("its unit changed from {} to {}", before.unit, self.unit))
                .help("use scrapes of one version of the program"));
        }
        let unit = if there && self.assumes_seconds { before.unit } else { self.unit };
        let pairs = || self.series.iter().map(|(labels, now)| (now, before.series.get(labels)));
        // Native buckets are finer, if all have them.
        let native =
            pairs().all(|(now, then)| now.native.is_some() && then.is_none_or(|then| then.native.is_some()));
        let grown: Vec<Growth<'_>> = pairs()
            .filter_map(|(now, then)| Some(Growth::of(now.of(native)?, then.and_then(|t| t.of(native)))))
            .collect();
        let (bounds, left_out) = common(&grown).map_err(|(why, help)| fault(why).help(help))?;
        let mut buckets: Vec<(f64, f64)> =
            bounds.into_iter().map(|le| (le, grown.iter().filter_map(|g| g.upto(le)).sum())).collect();
        even_out(&mut buckets).map_err(|why| {
            fault(why).help("check that both scrapes come from one process and are in the right order")
        })?;
        buckets.iter_mut().for_each(|(le, _)| *le = unit.seconds(*le));
        // In seconds, bounds may exceed what a number holds, or come too near to each other to differ.
        buckets.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                kept.1 = next.1;
            }
            is_same
        });
        let sum = grown.iter().map(Growth::sum).sum();
        let counted = Counted { buckets, sum_s: unit.seconds(sum) };
        let resets = grown.iter().filter(|g| g.was_reset).count();
        Ok(Between { counted, series: grown.len(), resets, left_out })
    }
}

/// The bounds at which all series are known, in order, and how many others there are.
fn common(grown: &[Growth<'_>]) -> Result<(Vec<f64>, usize), (String, &'static str)> {
    // A series that counted nothing is known everywhere.
    let moved: Vec<&Growth<'_>> = grown.iter().filter(|g| g.count() > 0.0).collect();
    let mut bounds: Vec<f64> = match moved.as_slice() {
        [] => grown.iter().flat_map(Growth::bounds).collect(),
        moved => moved.iter().flat_map(|g| g.bounds()).collect(),
    };
    bounds.sort_by(f64::total_cmp);
    bounds.dedup();
    let all = bounds.len();
    if all > limits::METRICS_BOUNDS {
        let why = format!("its series have {all} different bounds, more than {}", limits::METRICS_BOUNDS);
        return Err((why, "choose one series by its labels"));
    }
    for growth in &moved {
        bounds.retain(|le| growth.upto(*le).is_some());
    }
    if bounds.len() == 1 && all > 1 {
        let (who, help) = match moved.as_slice() {
            [_] => ("the two scrapes", "use scrapes of one version of the program"),
            _ => ("its series", "choose one series by its labels"),
        };
        return Err((format!("{who} have no bound in common"), help));
    }
    let left_out = all - bounds.len();
    Ok((bounds, left_out))
}

/// Takes away what a bucket grew by more than the next one, if that can come from counting during the scrape.
fn even_out(buckets: &mut [(f64, f64)]) -> Result<(), String> {
    let total = buckets.last().map_or(0.0, |(_, n)| *n);
    let slack = RACE + RACE_PART * total;
    for i in (1..buckets.len()).rev() {
        let ((low, below), (high, upto)) = (buckets[i - 1], buckets[i]);
        if below > upto + slack {
            return Err(format!("{below} values were {low} or less, but {upto} were {high} or less"));
        }
        buckets[i - 1].1 = below.min(upto);
    }
    Ok(())
}
