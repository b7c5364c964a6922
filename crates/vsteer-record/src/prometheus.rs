//! Reads two scrapes of a histogram (Prometheus' exposition formats), and counts how long the requests
//! between them took.
//!
//! A histogram `m` is `m_bucket{le="..."}` (how many requests took that or less, so far), `m_sum` and
//! `m_count`; in protobuf also a native histogram, whose buckets vsteer turns into such bounds. The requests in
//! between are the difference of two scrapes. `vsteer_sla::histogram` draws possible requests from it.
//!
//! A page is text 0.0.4, OpenMetrics 1.0 or protobuf, compressed by gzip or not. Other metrics never refuse a page.
//!
//! Sources: Prometheus' "Exposition formats", "Histograms and summaries", "Metric and label naming",
//! "Native Histograms"; OpenMetrics 1.0; github.com/prometheus/client_model.
//!
//! A Prometheus server that stored the scrapes returns them too ([`stored`]).
//!
//! Left out: summaries (their quantiles cannot be subtracted), scraping itself, values below 0; a counter that was
//! reset and has grown beyond its former value, if the server does not say when it was created.

use crate::unit::Unit;
use vsteer_core::plural::counted;
use vsteer_core::{Fault, FaultKind};

mod difference;
mod form;
mod found;
mod missing;
mod native;
mod protobuf;
mod series;
pub mod stored;
mod text;
mod wanted;
mod wire;
mod words;

pub use difference::Between;
use found::{Ending, Found, Odd};
use missing::Holder;
use series::AllSeries;
pub use wanted::Histogram;

/// A histogram in one scrape.
#[derive(Debug, Clone)]
pub struct Scrape {
    of: Histogram,
    series: AllSeries,
    /// If the histogram is missing, the fault that says what exists instead.
    lacks: Option<Fault>,
    unit: Unit,
    assumes_seconds: bool,
    samples: usize,
    odd: (usize, Option<Odd>),
    ending: Ending,
}

impl Scrape {
    /// Reads the histogram from a page in any form. The histogram may be missing, because many servers have none before
    /// the first request. `unit`: the unit of its times; without it, the one that the page or the histogram's name
    /// states, else seconds ([`Scrape::assumes_seconds`]).
    ///
    /// # Errors
    /// `BadInput` if a part of the page that concerns the histogram cannot be read, if no part can, if the page was cut,
    /// or if the histogram's unit is not a unit of time.
    pub fn read(page: impl AsRef<[u8]>, of: &Histogram, unit: Option<Unit>) -> Result<Scrape, Fault> {
        let mut found = Found::new(of);
        form::read(page.as_ref(), &mut found)?;
        Scrape::of_found(found, unit)
    }

    /// Checks what a reader found.
    fn of_found(mut found: Found<'_>, unit: Option<Unit>) -> Result<Scrape, Fault> {
        let of = found.of;
        let series = if found.others.is_gauge { AllSeries::new() } else { found.checked()? };
        let lacks = series.is_empty().then(|| found.others.fault(of, Holder::Scrape));
        let (unit, assumes_seconds) = match &lacks {
            Some(_) => (Unit::Seconds, false),
            None => unit_of(of, unit, found.unit.as_deref())?,
        };
        let Found { samples, odd, ending, .. } = found;
        Ok(Scrape { of: of.clone(), series, lacks, unit, assumes_seconds, samples, odd, ending })
    }

    /// Checks that the histogram exists.
    ///
    /// # Errors
    /// `NothingThere`, with what exists instead.
    pub fn checked(&self) -> Result<(), Fault> {
        self.lacks.clone().map_or(Ok(()), Err)
    }

    /// Are its times taken to be seconds, although neither the user, nor the page, nor the histogram's name says so?
    pub fn assumes_seconds(&self) -> bool {
        self.assumes_seconds
    }

    /// Has the page any sample, of whatever metric? An empty file has none.
    pub fn has_samples(&self) -> bool {
        self.samples > 0
    }

    /// What was passed over, because it cannot be read and concerns other metrics; `None` if nothing was.
    pub fn passed_over(&self) -> Option<String> {
        let (lines, Some(Odd { place, why })) = &self.odd else { return None };
        let what = if self.ending == Ending::Message { "message" } else { "line" };
        let first = if *lines == 1 { String::new() } else { "the first: ".to_owned() };
        Some(format!("passed over {} of other metrics ({first}{place}: {why})", counted(*lines, what)))
    }

    /// Does it end earlier than a page of the same server ends, so that it was cut? Gives the reason.
    pub fn cut_beside(&self, other: &Scrape) -> Option<&'static str> {
        match (self.ending, other.ending) {
            (Ending::Open, Ending::Line) => Some("it does not end with a line feed, so it was cut"),
            (Ending::Open | Ending::Line, Ending::Eof) => Some("it does not end with # EOF, so it was cut"),
            _ => None,
        }
    }
}

/// The unit of a histogram's times, and whether it is assumed. `stated`: as the page has it.
fn unit_of(of: &Histogram, given: Option<Unit>, stated: Option<&str>) -> Result<(Unit, bool), Fault> {
    if let Some(unit) = given {
        return Ok((unit, false));
    }
    let stated = stated.or_else(|| of.metric.ends_with("_bytes").then_some("bytes"));
    if let Some(word) = stated {
        return Unit::of_word(word).map(|unit| (unit, false)).ok_or_else(|| {
            Fault::new(FaultKind::BadInput, format!("cannot read the histogram {of}"))
                .because(format!("its unit is {word:?}, which is not a unit of time"))
                .help("choose a histogram of response times")
        });
    }
    Ok(Unit::of_name(&of.metric).map_or((Unit::Seconds, true), |unit| (unit, false)))
}

/// The requests that the histogram counted between the pages `before` and `after`. `unit`: as in [`Scrape::read`].
///
/// # Errors
/// As [`Scrape::read`] and [`Scrape::since`].
pub fn between(
    before: impl AsRef<[u8]>,
    after: impl AsRef<[u8]>,
    of: &Histogram,
    unit: Option<Unit>,
) -> Result<Between, Fault> {
    let at = |which: &str, page: &[u8]| {
        Scrape::read(page, of, unit)
            .map_err(|f| Fault { what: format!("the {which} scrape: {}", f.what), ..f })
    };
    let before = at("first", before.as_ref())?;
    at("second", after.as_ref())?.since(&before)
}

#[cfg(test)]
mod tests;
