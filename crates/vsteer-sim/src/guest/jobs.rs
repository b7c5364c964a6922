//! Measurements of a guest: its finished jobs, and the length of its sleeps as it sees them.

use serde::{Deserialize, Serialize};
use vsteer_core::nouns::{HISTOGRAM_BUCKETS, Histogram};

/// The measured jobs of a guest: from the release or arrival of each to its end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Jobs {
    /// Jobs done.
    pub done: u64,
    /// How many of these ended after their deadline (the next release; a frame's due time); 0 for servers,
    /// which have no deadlines.
    pub late: u64,
    /// Refused requests or dropped frames, which were never done.
    pub dropped: u64,
    /// Sum of all response times, ns.
    pub response_ns: u64,
    /// The longest response time, ns.
    pub response_max_ns: u64,
    /// Response times of all jobs.
    pub response: Histogram,
}

/// [`Jobs`] while they are counted.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    /// `u64::MAX` for no deadline.
    deadline_ns: u64,
    pub(super) done: u64,
    late: u64,
    pub(super) dropped: u64,
    response_ns: u64,
    response_max_ns: u64,
    response: Vec<u32>,
}

impl Tally {
    pub(super) fn new(deadline_ns: u64) -> Tally {
        Tally {
            deadline_ns,
            done: 0,
            late: 0,
            dropped: 0,
            response_ns: 0,
            response_max_ns: 0,
            response: vec![0; HISTOGRAM_BUCKETS],
        }
    }

    pub(super) fn count(&mut self, response_ns: u64) {
        self.done += 1;
        self.late += u64::from(response_ns > self.deadline_ns);
        self.response_ns += response_ns;
        self.response_max_ns = self.response_max_ns.max(response_ns);
        self.response[usize::from(Histogram::bucket_of(response_ns))] += 1;
    }

    pub(super) fn jobs(&self) -> Jobs {
        Jobs {
            done: self.done,
            late: self.late,
            dropped: self.dropped,
            response_ns: self.response_ns,
            response_max_ns: self.response_max_ns,
            response: histogram(&self.response),
        }
    }
}

/// What a guest measures of its own sleeps.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sleeps {
    /// Requested sleeps.
    pub asked: u64,
    /// Sum of the requested lengths, ns; 0 if the guest does not report it.
    pub asked_ns: u64,
    /// Sleeps whose end the guest saw itself (those of a guest that polls).
    pub seen: u64,
    /// Sum of the times from the start of each of these until the guest continued, ns.
    pub took_ns: u64,
    /// Sum of the times from the start of each of these until the work after it was done, ns.
    pub cycle_ns: u64,
    /// How long each of these took.
    pub took: Histogram,
}

/// [`Sleeps`] while a guest that polls counts them.
#[derive(Debug, Clone)]
pub(super) struct Naps {
    seen: u64,
    took_ns: u64,
    cycle_ns: u64,
    took: Vec<u32>,
}

impl Naps {
    pub(super) fn new() -> Naps {
        Naps { seen: 0, took_ns: 0, cycle_ns: 0, took: vec![0; HISTOGRAM_BUCKETS] }
    }

    pub(super) fn over(&mut self, took_ns: u64) {
        self.seen += 1;
        self.took_ns += took_ns;
        self.took[usize::from(Histogram::bucket_of(took_ns))] += 1;
    }

    pub(super) fn worked(&mut self, cycle_ns: u64) {
        self.cycle_ns += cycle_ns;
    }

    pub(super) fn sleeps(&self) -> Sleeps {
        let Naps { seen, took_ns, cycle_ns, .. } = *self;
        Sleeps { asked: seen, asked_ns: 0, seen, took_ns, cycle_ns, took: histogram(&self.took) }
    }
}

fn histogram(counts: &[u32]) -> Histogram {
    let row: Vec<u64> = counts.iter().map(|c| u64::from(*c)).collect();
    Histogram::from_row(&row)
}
