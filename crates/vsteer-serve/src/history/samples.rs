//! Which samples make up a minute? Those from the last one before it to the last one in it.
//!
//! One model is derived over the whole minute. Samples some seconds apart are enough, because counters are cumulative; what was
//! blamed in between is kept. Neighbouring minutes share a sample, so no time is counted twice or left out.

use super::events::Events;
use super::rows;
use crate::seen::Seen;
use crate::spaced::{Spaced, Steps};
use std::sync::Arc;
use vsteer_core::diagnose::diagnose;
use vsteer_core::nouns::Batch;
use vsteer_core::thresholds::Thresholds;
use vsteer_record::history::{Event, EventKind, MINUTE_MS, Minute};

/// The minute that is being observed.
#[derive(Default)]
pub struct Samples {
    /// Start of the minute, ms since 1970.
    unix_ms: u64,
    spaced: Spaced,
    count: u64,
    newest: Option<Arc<Seen>>,
}

/// All samples of a minute.
pub struct Whole {
    unix_ms: u64,
    kept: Steps,
    count: u64,
    seen: Arc<Seen>,
}

fn minute_of(batch: &Batch) -> u64 {
    batch.unix_ns / 1_000_000 / MINUTE_MS * MINUTE_MS
}

impl Samples {
    /// Takes a sample. Returns the minute before if this one is the first of another minute.
    pub fn see(&mut self, seen: &Arc<Seen>) -> Option<Whole> {
        let batch = seen.totals.batch();
        let done = self.newest.as_ref().filter(|_| minute_of(batch) != self.unix_ms).cloned();
        let done = done.and_then(|_| self.close());
        self.unix_ms = minute_of(batch);
        self.count += 1;
        self.spaced.see(seen.totals.shared(), &seen.blame);
        self.newest = Some(Arc::clone(seen));
        done
    }

    /// Ends the minute with its newest sample, which the next one begins with.
    fn close(&mut self) -> Option<Whole> {
        let seen = self.newest.take()?;
        let kept = self.spaced.close(seen.totals.shared());
        let count = std::mem::take(&mut self.count);
        Some(Whole { unix_ms: self.unix_ms, kept, count, seen })
    }

    /// The minute that is not over yet, when the service stops.
    pub fn finish(&mut self) -> Option<Whole> {
        self.close()
    }
}

impl Whole {
    /// The event of a service that stops after this minute.
    pub fn stopped(&self) -> Event {
        let unix_ms = self.seen.totals.batch().unix_ns / 1_000_000;
        let text = "The service stopped".to_owned();
        Event { unix_ms, kind: EventKind::Stopped, text, ..Event::default() }
    }

    /// Name of the host.
    pub fn hostname(&self) -> &str {
        &self.seen.config.hostname
    }

    /// What is stored of the minute. Without two samples these are only events.
    pub fn row(&self, events: &mut Events, thresholds: Thresholds) -> Minute {
        let seen = &self.seen;
        let model = self.kept.derive(&seen.config, &seen.collector).ok();
        let batches = self.kept.batches();
        let findings = model.as_ref().map(|m| diagnose(&seen.config, m, thresholds)).unwrap_or_default();
        let now_ms = seen.totals.batch().unix_ns / 1_000_000;
        let mut events = events.since_before(now_ms, &seen.config, &findings);
        // What was found in the first minute began after the service did.
        let begun_ms = batches.first().map_or(now_ms, |first| first.unix_ns / 1_000_000);
        let first = events.iter_mut().filter(|e| e.kind == EventKind::Observing);
        first.for_each(|e| e.unix_ms = begun_ms.min(now_ms.saturating_sub(1)));
        let mut minute = Minute { unix_ms: self.unix_ms, events, ..Minute::default() };
        if let Some(model) = &model {
            minute.vms = rows::of_vms(model, &seen.config, &batches, self.count, self.unix_ms);
            minute.host = Some(rows::of_host(model, &minute.vms, &findings, self.count, self.unix_ms));
        }
        minute
    }
}
