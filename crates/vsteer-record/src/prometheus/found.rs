//! What a reader finds in a scrape: the wanted histogram's series, and what else is there.
//!
//! The readers of text and of protobuf fill it as they go, so a page is never held as samples. What concerns other
//! metrics is counted, and its first fault is kept for a note.

use super::missing::Others;
use super::series::{AllSeries, Raw, Wrong};
use super::wanted::Histogram;
use super::words::{Labels, shown};
use std::collections::BTreeMap;
use vsteer_core::{Fault, FaultKind, limits};

/// How a scrape ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Text without a line feed at its end.
    Open,
    /// Text with one.
    Line,
    /// `# EOF`, with which OpenMetrics ends.
    Eof,
    /// A protobuf message.
    Message,
}

/// A part of a scrape that could not be read, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Odd {
    /// "line 3".
    pub place: String,
    pub why: String,
}

impl Odd {
    pub(super) fn fault(self) -> Fault {
        Fault::new(FaultKind::BadInput, self.place)
            .because(self.why)
            .help("give the page that GET /metrics returns, in one of Prometheus' formats")
    }
}

/// What was found in a scrape.
#[derive(Debug)]
pub(super) struct Found<'w> {
    pub of: &'w Histogram,
    classic: BTreeMap<Labels, Raw>,
    native: BTreeMap<Labels, Raw>,
    /// Buckets that the wanted histogram may still have.
    room: usize,
    pub others: Others,
    /// The unit that the scrape states for the wanted histogram.
    pub unit: Option<String>,
    pub ending: Ending,
    /// How many samples could be read, also of other metrics.
    pub samples: usize,
    /// How many lines or messages could not, and the first of them.
    pub odd: (usize, Option<Odd>),
}

fn add_bucket(room: &mut usize, into: &mut Raw, bucket: (f64, f64)) -> Result<(), String> {
    *room = room.checked_sub(1).ok_or_else(|| {
        format!("the histogram has more than {} buckets in one scrape", limits::METRICS_BUCKETS)
    })?;
    into.buckets.push(bucket);
    Ok(())
}

impl<'w> Found<'w> {
    pub(super) fn new(of: &'w Histogram) -> Found<'w> {
        Found {
            of,
            classic: BTreeMap::new(),
            native: BTreeMap::new(),
            room: limits::METRICS_BUCKETS,
            others: Others::default(),
            unit: None,
            ending: Ending::Open,
            samples: 0,
            odd: (0, None),
        }
    }

    /// Passes over a part of the scrape that concerns other metrics.
    pub(super) fn pass_over(&mut self, odd: impl FnOnce() -> Odd) {
        self.odd.0 += 1;
        self.odd.1.get_or_insert_with(odd);
    }

    /// Does a series of the wanted name have the wanted labels? Notes the labels if not.
    pub(super) fn wants(&mut self, labels: &Labels) -> bool {
        let wants = self.of.labels.iter().all(|(k, v)| labels.get(k) == Some(v));
        if !wants {
            self.others.labels(labels.clone());
        }
        wants
    }

    /// The series with these labels, in the form with fixed bounds.
    pub(super) fn classic(&mut self, labels: Labels) -> &mut Raw {
        self.classic.entry(labels).or_default()
    }

    /// Adds a bucket to the series with these labels: upper bound and cumulative count.
    pub(super) fn bucket(&mut self, labels: Labels, bucket: (f64, f64)) -> Result<(), String> {
        add_bucket(&mut self.room, self.classic.entry(labels).or_default(), bucket)
    }

    /// Adds a whole series. `native`: it has exponential buckets.
    pub(super) fn series(&mut self, labels: Labels, raw: Raw, native: bool) -> Result<(), String> {
        let all = if native { &mut self.native } else { &mut self.classic };
        let into = all.entry(labels).or_default();
        for bucket in raw.buckets {
            add_bucket(&mut self.room, into, bucket)?;
        }
        (into.sum, into.count, into.created_s) = (raw.sum, raw.count, raw.created_s);
        Ok(())
    }

    /// The series of the wanted histogram, checked.
    ///
    /// # Errors
    /// `BadInput` if the lines of a series contradict each other.
    pub(super) fn checked(&mut self) -> Result<AllSeries, Fault> {
        let mut all = AllSeries::new();
        let several = self.classic.len().max(self.native.len()) > 1;
        for (native, from) in
            [(false, std::mem::take(&mut self.classic)), (true, std::mem::take(&mut self.native))]
        {
            for (labels, raw) in from {
                let at = if several { format!("the series {}: ", shown(&labels)) } else { String::new() };
                let Some(series) = raw.checked().map_err(|Wrong { why, help }| {
                    Fault::new(FaultKind::BadInput, format!("cannot read the histogram {}", self.of))
                        .because(format!("{at}{why}"))
                        .help(help)
                })?
                else {
                    self.others.has_no_buckets = true;
                    continue;
                };
                let forms = all.entry(labels).or_default();
                *(if native { &mut forms.native } else { &mut forms.classic }) = Some(series);
            }
        }
        Ok(all)
    }
}
