//! Which metrics are there? One table: name, help, unit, kind, and how the values are taken from what was seen.
//!
//! Names follow Prometheus: base units, `_total` for counters, shares from 0 to 1. States of a vCPU are one metric with the
//! label `state`, as node_exporter has modes of a CPU: over all states it grows by one second per second. Parts of a state are
//! metrics of their own. A value that was not measured has no series, and `vsteer_not_measured` says why.

mod compat;
mod format;
mod guests;
mod histograms;
mod host;
#[cfg(feature = "otlp")]
mod otlp;
mod reference;

pub use format::{Format, render};
#[cfg(feature = "otlp")]
pub use otlp::otlp;
#[cfg(test)]
pub use reference::name;
pub use reference::reference;

use crate::seen::Seen;
use prometheus_client::metrics::MetricType;
use std::borrow::Cow;
use vsteer_core::nouns::{Role, ThreadCounters, VmId};

/// Labels of a series.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// A histogram as vsteer counts it.
pub use vsteer_core::nouns::Histogram;

/// What metrics are made from: the newest state of the host, with the counters of each role of each VM.
pub struct View<'a> {
    seen: &'a Seen,
    /// The roles of a VM lie together.
    roles: Vec<OfRole<'a>>,
}

/// What the threads of one role of a VM have counted.
struct OfRole<'a> {
    vm: &'a VmId,
    /// What the VM is called.
    name: &'a str,
    role: Role,
    counters: Cow<'a, ThreadCounters>,
}

impl<'a> View<'a> {
    fn of(seen: &'a Seen) -> View<'a> {
        let all = seen.totals.by_role().into_iter();
        let roles = all.map(|((vm, role), counters)| OfRole { vm, name: seen.name(vm), role, counters });
        View { seen, roles: roles.collect() }
    }
}

impl std::ops::Deref for View<'_> {
    type Target = Seen;

    fn deref(&self) -> &Seen {
        self.seen
    }
}

/// Takes the series of a metric.
pub struct Series<'a> {
    number: &'a mut dyn FnMut(Labels<'_>, f64),
    histogram: &'a mut dyn FnMut(Labels<'_>, &Histogram),
}

impl Series<'_> {
    /// A series with this value.
    fn add(&mut self, labels: Labels<'_>, value: f64) {
        (self.number)(labels, value);
    }

    /// A time in ns, in seconds.
    fn add_ns(&mut self, labels: Labels<'_>, ns: u64) {
        (self.number)(labels, ns as f64 / 1e9);
    }
}

/// A metric.
#[derive(Debug)]
pub struct Metric {
    /// Its name, without unit and `_total`.
    pub name: &'static str,
    /// What it says.
    pub help: &'static str,
    /// Its unit, which stands last in the name; empty: a number.
    pub unit: &'static str,
    /// What kind of metric it is.
    pub kind: MetricType,
    /// Adds its series.
    pub of: fn(&View<'_>, &mut Series<'_>),
}

/// All metrics; with `compat` those under names of others too.
pub fn tables(compat: bool) -> &'static [&'static [Metric]] {
    const ALL: [&[Metric]; 4] = [guests::METRICS, histograms::METRICS, host::METRICS, compat::METRICS];
    if compat { &ALL } else { &ALL[..3] }
}
