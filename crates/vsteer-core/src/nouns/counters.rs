//! Which counters does a thread have? Every counter, in one table.
//!
//! A row gives a counter's name (its column in recordings and exports, and its key in a collector's `missing`), its
//! meaning, and how it adds up. A `share` row is a time that becomes a share of the time observed; the name after
//! `=>` is that share's. A `vcpu_share` row is the same for vCPUs only. A `count` row is an event, a `histogram`
//! row a distribution of times. `(own)` marks counters of only some hypervisors; a collector without them has
//! nothing missing.
//!
//! To add a counter, add a row here and measure it in its collector. Recordings and exports take their columns from
//! this table, and every other collector reports automatically that it does not measure the new row
//! ([`super::Collector::new`]).
//!
//! Times are ns. Every counter is cumulative and never decreases. `None`: the collector cannot measure it, and its
//! `missing` has the reason.
//!
//! GAP(ebpf-counters): a counter that eBPF counts also needs a slot in C, in `layout.rs` and in `observer.rs`.

use super::Histogram;
use serde::{Deserialize, Serialize};

/// How a counter is summed over threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A time, ns: sums over threads are sums of shares of a pCPU.
    Time,
    /// A number of events.
    Events,
}

/// A table row with a number.
pub struct Counter {
    /// Name of the counter, with the unit last.
    pub name: &'static str,
    /// Meaning of the counter.
    pub meaning: &'static str,
    /// How the counter is summed.
    pub kind: Kind,
    /// Whether only some hypervisors have the counter.
    pub own: bool,
    /// Reads the counter; `None` if not measured.
    pub get: fn(&ThreadCounters) -> Option<u64>,
    /// Sets the counter.
    pub set: fn(&mut ThreadCounters, Option<u64>),
}

/// A table row with a distribution.
pub struct Distribution {
    /// Name of the distribution, as column of recordings.
    pub name: &'static str,
    /// Meaning of the distribution.
    pub meaning: &'static str,
    /// Reads the distribution; `None` if not measured.
    pub get: fn(&ThreadCounters) -> &Option<Histogram>,
    /// The same, to be set.
    pub get_mut: fn(&mut ThreadCounters) -> &mut Option<Histogram>,
}

/// Increase of a cumulative counter; `None` if either end lacks it. A restart counts from 0.
pub(crate) fn rise(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(b?.saturating_sub(a?))
}

fn sum(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? + b?)
}

/// Counters of a file or of another host can hold any number, so a sum may be too large.
fn total(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a?.saturating_add(b?))
}

macro_rules! counters {
    (
        $(share $time:ident => $share:ident $(($time_own:ident))?, $time_meaning:literal, $share_meaning:literal;)*
        $(count $count:ident, $count_meaning:literal;)*
        $(vcpu_share $vtime:ident => $vshare:ident, $vtime_meaning:literal, $vshare_meaning:literal;)*
        $(histogram $histogram:ident, $histogram_meaning:literal;)*
    ) => {
        /// Counters of one thread since counting began.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct ThreadCounters {
            $(#[doc = $time_meaning] pub $time: Option<u64>,)*
            $(#[doc = $count_meaning] pub $count: Option<u64>,)*
            $(#[doc = $vtime_meaning] pub $vtime: Option<u64>,)*
            $(#[doc = $histogram_meaning] pub $histogram: Option<Histogram>,)*
        }

        impl ThreadCounters {
            /// Increase of each counter since `earlier`.
            #[must_use]
            pub fn since(&self, earlier: &ThreadCounters) -> ThreadCounters {
                let between = |a: &Option<Histogram>, b: &Option<Histogram>| Some(b.as_ref()?.since(a.as_ref()?));
                ThreadCounters {
                    $($time: rise(earlier.$time, self.$time),)*
                    $($count: rise(earlier.$count, self.$count),)*
                    $($vtime: rise(earlier.$vtime, self.$vtime),)*
                    $($histogram: between(&earlier.$histogram, &self.$histogram),)*
                }
            }

            /// Is it a later state of the same counters? The same ones are measured, and none of them is lower.
            pub fn continues(&self, earlier: &ThreadCounters) -> bool {
                // `None` is less than any number.
                let same = |a: Option<u64>, b: Option<u64>| a <= b && a.is_some() == b.is_some();
                $(same(earlier.$time, self.$time) &&)*
                $(same(earlier.$count, self.$count) &&)*
                $(same(earlier.$vtime, self.$vtime) &&)*
                $(earlier.$histogram.is_some() == self.$histogram.is_some() &&)*
                true
            }

            /// Sum per counter; `None` if either lacks it.
            #[must_use]
            pub fn plus(&self, other: &ThreadCounters) -> ThreadCounters {
                let merged = |a: &Option<Histogram>, b: &Option<Histogram>| Some(a.as_ref()?.merged(b.as_ref()?));
                ThreadCounters {
                    $($time: total(self.$time, other.$time),)*
                    $($count: total(self.$count, other.$count),)*
                    $($vtime: total(self.$vtime, other.$vtime),)*
                    $($histogram: merged(&self.$histogram, &other.$histogram),)*
                }
            }

            /// Does it contain the counter or the distribution of this name?
            pub fn holds(&self, name: &str) -> bool {
                let number = COUNTERS.iter().any(|c| c.name == name && (c.get)(self).is_some());
                number || DISTRIBUTIONS.iter().any(|d| d.name == name && (d.get)(self).is_some())
            }

            /// Its times as parts of `observed_ns`.
            pub fn shares(&self, observed_ns: u64) -> Shares {
                let of = |v: Option<u64>| v.filter(|_| observed_ns > 0).map(|v| v as f64 / observed_ns as f64);
                Shares { $($share: of(self.$time),)* $($vshare: of(self.$vtime),)* }
            }

            /// How much its times rose since `earlier`, as parts of `observed_ns`.
            pub fn shares_since(&self, earlier: &ThreadCounters, observed_ns: u64) -> Shares {
                let times = ThreadCounters {
                    $($time: rise(earlier.$time, self.$time),)*
                    $($vtime: rise(earlier.$vtime, self.$vtime),)*
                    ..ThreadCounters::default()
                };
                times.shares(observed_ns)
            }
        }

        /// Every counter that is a number.
        pub const COUNTERS: &[Counter] = &[
            $(Counter {
                name: stringify!($time), meaning: $time_meaning, kind: Kind::Time,
                own: !concat!($(stringify!($time_own))?).is_empty(),
                get: |c| c.$time, set: |c, v| c.$time = v,
            },)*
            $(Counter {
                name: stringify!($count), meaning: $count_meaning, kind: Kind::Events, own: false,
                get: |c| c.$count, set: |c, v| c.$count = v,
            },)*
            $(Counter {
                name: stringify!($vtime), meaning: $vtime_meaning, kind: Kind::Time, own: false,
                get: |c| c.$vtime, set: |c, v| c.$vtime = v,
            },)*
        ];

        /// Every counter that is a distribution.
        pub const DISTRIBUTIONS: &[Distribution] = &[
            $(Distribution {
                name: stringify!($histogram), meaning: $histogram_meaning,
                get: |c| &c.$histogram, get_mut: |c| &mut c.$histogram,
            },)*
        ];

        /// Fractions of the time observed; sums of them for a group of threads.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Shares {
            $(#[doc = $share_meaning] pub $share: Option<f64>,)*
            $(#[doc = $vshare_meaning] pub $vshare: Option<f64>,)*
        }

        impl Shares {
            /// Sum per counter; `None` if either lacks it.
            #[must_use]
            pub fn plus(&self, other: &Shares) -> Shares {
                Shares {
                    $($share: sum(self.$share, other.$share),)*
                    $($vshare: sum(self.$vshare, other.$vshare),)*
                }
            }

            /// The sum of all; `None` terms where any lacks one, all zero for no thread.
            pub fn sum<'a>(all: impl Iterator<Item = &'a Shares>) -> Shares {
                let zero = Shares { $($share: Some(0.0),)* $($vshare: Some(0.0),)* };
                all.fold(zero, |sum, s| sum.plus(s))
            }
        }
    };
}

counters! {
    share run_ns => run,
        "On a pCPU, ns. Includes halt polling and the host's own stolen time.", "On a pCPU.";
    share ready_ns => ready,
        "Ready to run, without a pCPU and not limited, ns.", "Ready to run, without a pCPU.";
    share limited_ns => limited,
        "Throttled by a quota, ns.", "Throttled by a quota.";
    share costop_ns => costop (own),
        "Held back so that sibling vCPUs catch up, ns; neither ready nor limited. Only ESXi and the \
            simulator have it.",
        "Held back so that sibling vCPUs catch up; `None` if the hypervisor has no such state or it was \
            not measured.";
    share wait_ns => wait,
        "Ready and limited together, ns: the run delay of `schedstat`, which does not separate the two.",
        "Ready and limited together: esxtop's `%RDY`.";
    share blocked_ns => blocked,
        "Asleep, from switch-out to wake-up, ns.", "Asleep.";
    share lag_ns => lag,
        "Ready while a sibling vCPU ran, ns (a part of ready).", "Ready while a sibling vCPU ran (part of \
            ready).";
    share waking_ns => waking (own),
        "Ready while the wake-up was on its way to another pCPU, ns (a part of ready). The kernel's run delay begins \
            when it arrives.",
        "Ready while the wake-up was on its way to another pCPU (part of ready).";
    share overlap_ns => overlap,
        "Interrupts and softirqs served while this thread was current, ns (a part of run).",
        "Interrupts served on its time (part of run).";
    share system_ns => system (own),
        "Work of the hypervisor's kernel for this thread while it was not current, ns (esxtop's %SYS; not \
            a part of run).",
        "Work of the hypervisor for this thread while it was not current (not a part of run).";
    share used_ns => used (own),
        "Run, system and less overlap as the hypervisor adds them up, scaled by frequency, ns (esxtop's \
            %USED).",
        "Used as the hypervisor itself adds it up, scaled by frequency.";
    count switches, "Times that the thread got a pCPU.";
    count preemptions, "Times that the thread lost the pCPU while it could still run.";
    count wakeups, "Wake-ups.";
    count migrations, "Moves to another pCPU.";
    vcpu_share exit_ns => exit,
        "Run time of a vCPU outside its guest, in KVM or the VMM, without halt polling, ns; `None` without \
            KVM.",
        "vCPUs: outside their guests, in KVM or the VMM, without halt polling (part of run).";
    vcpu_share halt_poll_ns => halt_poll,
        "Halt polling of a vCPU (a part of run): it polls for an interrupt, ns; `None` without KVM.",
        "vCPUs: halt polling (part of run).";
    histogram wake_latency, "From wake-up to running.";
    histogram ready_spell, "Every uninterrupted wait for a pCPU, after a wake-up or a preemption.";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row reads and sets its own field, and no other.
    #[test]
    fn rows_are_their_own_fields() {
        for (i, row) in COUNTERS.iter().enumerate() {
            let mut c = ThreadCounters::default();
            (row.set)(&mut c, Some(7));
            let set: Vec<usize> = (0..COUNTERS.len()).filter(|k| (COUNTERS[*k].get)(&c).is_some()).collect();
            assert_eq!(set, [i], "{}", row.name);
            assert_eq!(
                row.kind == Kind::Time,
                row.name.ends_with("_ns"),
                "{}: the unit stands last",
                row.name
            );
        }
        for (i, row) in DISTRIBUTIONS.iter().enumerate() {
            let mut c = ThreadCounters::default();
            *(row.get_mut)(&mut c) = Some(Histogram::default());
            let set: Vec<usize> =
                (0..DISTRIBUTIONS.len()).filter(|k| (DISTRIBUTIONS[*k].get)(&c).is_some()).collect();
            assert_eq!(set, [i], "{}", row.name);
        }
    }

    #[test]
    fn what_either_lacks_is_lacking() {
        let one = ThreadCounters { run_ns: Some(5), switches: Some(2), ..ThreadCounters::default() };
        let more = ThreadCounters { run_ns: Some(8), ready_ns: Some(1), ..ThreadCounters::default() };
        let rose = more.since(&one);
        assert_eq!((rose.run_ns, rose.ready_ns, rose.switches), (Some(3), None, None));
        assert_eq!(one.since(&more).run_ns, Some(0), "a counter that restarts counts from 0");
        assert_eq!(one.plus(&more).run_ns, Some(13));
        let shares = rose.shares(6);
        assert_eq!((shares.run, shares.ready, rose.shares(0).run), (Some(0.5), None, None));
        assert_eq!(Shares::sum([shares, shares].iter()).run, Some(1.0));
        assert_eq!(Shares::sum([].iter()).ready, Some(0.0));
    }
}
