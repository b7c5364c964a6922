//! The wanted histogram is not in a scrape. What is there instead?

use super::wanted::Histogram;
use super::words::{Labels, shown};
use std::collections::BTreeSet;
use vsteer_core::{Fault, FaultKind, limits};

/// How many names or sets of labels a fault lists.
const LISTED: usize = 8;

/// Where the wanted histogram was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    Scrape,
    Server,
}

impl Holder {
    fn lacks(self) -> &'static str {
        match self {
            Holder::Scrape => "the scrape holds no such histogram",
            Holder::Server => "the server has no such histogram",
        }
    }

    /// What to do if a page has not a single histogram.
    fn help(self) -> &'static str {
        match self {
            Holder::Scrape => {
                "check that it is a scrape of the right port and path, and send the server a request first: \
                 the scrape has no histogram at all"
            }
            Holder::Server => "check that this server scrapes the VM: it has no histogram at all",
        }
    }
}

/// What a scrape holds beside the wanted series.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// Names of other histograms.
    names: BTreeSet<String>,
    /// Labels of series of the wanted name that have other labels than the wanted ones.
    labels: BTreeSet<Labels>,
    /// The wanted name is a summary's.
    pub is_summary: bool,
    /// The wanted name is a gauge histogram's.
    pub is_gauge: bool,
    /// The wanted name has a sum or a count, but no buckets.
    pub has_no_buckets: bool,
}

impl Others {
    /// Another histogram.
    pub(super) fn name(&mut self, name: &str) {
        if self.names.len() < limits::METRICS_NAMES && !self.names.contains(name) {
            self.names.insert(name.to_owned());
        }
    }

    /// Another series of the wanted name.
    pub(super) fn labels(&mut self, labels: Labels) {
        if self.labels.len() < LISTED {
            self.labels.insert(labels);
        }
    }

    /// The names, the one nearest to the wanted name first.
    fn nearest(&self, wanted: &str) -> Vec<&str> {
        // Names have no limit, and comparing two takes the product of their lengths.
        let short = |name: &str| name.chars().take(limits::VM_NAME).collect::<String>();
        let wanted = short(wanted);
        let mut all: Vec<(usize, &str)> = self
            .names
            .iter()
            .map(|n| (strsim::damerau_levenshtein(&wanted, &short(n)), n.as_str()))
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(_, name)| name).collect()
    }

    /// The fault that the wanted histogram is missing.
    pub(super) fn fault(&self, of: &Histogram, holder: Holder) -> Fault {
        let fault = |why: &str| {
            Fault::new(FaultKind::NothingThere, format!("cannot read the histogram {of}")).because(why)
        };
        if self.is_gauge {
            return fault("it is a gauge histogram, whose counts also fall, so scrapes cannot be subtracted")
                .help("choose a histogram that only counts up");
        }
        if !self.labels.is_empty() {
            let all: Vec<String> = self.labels.iter().map(shown).collect();
            return fault("no series of it has these labels")
                .help(format!("choose among {}", all.join(", ")));
        }
        if self.is_summary {
            return fault(
                "it is a summary, whose quantiles give no quantile for the time between two scrapes",
            )
            .help("let the program export a histogram");
        }
        if self.has_no_buckets {
            return fault("it has a sum and a count, but no buckets")
                .help("let the program export a histogram with buckets");
        }
        let names = self.nearest(&of.metric);
        fault(holder.lacks()).help(match names.as_slice() {
            [] => holder.help().to_owned(),
            [first @ .., _] if first.len() >= LISTED => {
                format!("choose among {}, and {} more", names[..LISTED].join(", "), names.len() - LISTED)
            }
            all => format!("choose among {}", all.join(", ")),
        })
    }
}
