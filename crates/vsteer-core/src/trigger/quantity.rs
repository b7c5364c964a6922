//! Which number of a VM do names like `ready` and `wake_p99` stand for?
//!
//! Conditions (`vsteer record --trigger`) and measures of experiments use these names. Each quantity has a counter
//! and a unit: times in ns, shares as a fraction of a pCPU per vCPU. The terms are the model's (docs/glossary.md):
//! `ready` could run and had no pCPU, `lag` is the part of it while a sibling ran, `wake` is from wake-up to
//! running, `ready_p99` an unbroken wait.
//!
//! Left out: sums over a VM's other threads, and the host's own quantities.

use crate::model::{Quantiles, VmModel};

/// What a quantity is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A time, ns.
    Time,
    /// A fraction of a pCPU per vCPU.
    Share,
}

/// A derived quantity of a VM.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    /// Name of the quantity.
    pub name: &'static str,
    /// The counter that it needs, a field of `ThreadCounters` and a key of a collector's `missing`.
    pub counter: &'static str,
    /// Whether it is a time or a share.
    pub kind: Kind,
    of: fn(&VmModel) -> Option<f64>,
}

/// Quantities are compared by name, which is unique.
impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.name == other.name
    }
}
impl Eq for Quantity {}

const fn time(name: &'static str, counter: &'static str, of: fn(&VmModel) -> Option<f64>) -> Quantity {
    Quantity { name, counter, kind: Kind::Time, of }
}

const fn share(name: &'static str, counter: &'static str, of: fn(&VmModel) -> Option<f64>) -> Quantity {
    Quantity { name, counter, kind: Kind::Share, of }
}

fn ready(vm: &VmModel, of: fn(&Quantiles) -> f64) -> Option<f64> {
    vm.ready_spell.as_ref().map(of)
}

fn wake(vm: &VmModel, of: fn(&Quantiles) -> f64) -> Option<f64> {
    vm.wake_latency.as_ref().map(of)
}

/// All quantities.
pub const QUANTITIES: [Quantity; 13] = [
    time("ready_p50", "ready_spell", |vm| ready(vm, |q| q.p50_ns)),
    time("ready_p95", "ready_spell", |vm| ready(vm, |q| q.p95_ns)),
    time("ready_p99", "ready_spell", |vm| ready(vm, |q| q.p99_ns)),
    time("ready_max", "ready_spell", |vm| ready(vm, |q| q.max_ns)),
    time("wake_p50", "wake_latency", |vm| wake(vm, |q| q.p50_ns)),
    time("wake_p95", "wake_latency", |vm| wake(vm, |q| q.p95_ns)),
    time("wake_p99", "wake_latency", |vm| wake(vm, |q| q.p99_ns)),
    time("wake_max", "wake_latency", |vm| wake(vm, |q| q.max_ns)),
    share("ready", "ready_ns", |vm| vm.per_vcpu(|s| s.ready)),
    share("wait", "wait_ns", |vm| vm.per_vcpu(|s| s.wait)),
    share("lag", "lag_ns", |vm| vm.per_vcpu(|s| s.lag)),
    share("limited", "limited_ns", |vm| vm.per_vcpu(|s| s.limited)),
    share("run", "run_ns", |vm| vm.per_vcpu(|s| s.run)),
];

impl Quantity {
    /// The quantity of this name.
    pub fn named(name: &str) -> Option<&'static Quantity> {
        QUANTITIES.iter().find(|q| q.name == name)
    }

    /// Value for a VM; `None` if not measured.
    pub fn value(&self, vm: &VmModel) -> Option<f64> {
        (self.of)(vm)
    }

    /// The value in the printed unit, ms or per cent.
    pub fn for_people(&self, value: f64) -> f64 {
        match self.kind {
            Kind::Time => value / 1e6,
            Kind::Share => value * 100.0,
        }
    }

    /// That unit.
    pub fn unit(&self) -> &'static str {
        match self.kind {
            Kind::Time => "ms",
            Kind::Share => "%",
        }
    }

    /// The value with its printed unit.
    pub fn shown(&self, value: f64) -> String {
        // 1 µs is finer than the histograms' buckets.
        let digits = if self.kind == Kind::Time { 3 } else { 2 };
        format!("{:.digits$} {}", self.for_people(value), self.unit())
    }
}
