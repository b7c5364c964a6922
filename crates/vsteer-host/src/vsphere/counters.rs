//! Maps vSphere's CPU counters of a VM to vsteer's counters.
//!
//! A counter has one value per interval. Real-time intervals are 20 s (kept for an hour). Intervals of the
//! statistics are 5 minutes, half an hour, two hours or a day. Sums (`cpu.ready.summation`) are milliseconds
//! *within* the interval, so a share is the value divided by the interval's own length, which each sample
//! contains. Averages (`cpu.readiness.average`) are hundredths of a percent. vsteer converts both to
//! nanoseconds and adds the samples up to counters that only rise, as in all other collectors.
//!
//! vsteer asks which counters exist for which objects (`QueryAvailablePerfMetric`). Instance `""` is the VM's
//! group; `"0"`, `"1"`, ... are its vCPUs. vsteer never computes one from the other. A counter that does not
//! exist is `None`. The statistics keep the ready time of groups from level 1, the other counters of groups
//! from levels 2 and 3, and vCPUs from level 3.
//!
//! | vSphere, cpu. | here |
//! |---|---|
//! | run, system, overlap, used, costop, wait (`.summation`) | run, system, overlap, used, co-stopped, blocked |
//! | ready (`.summation`), which includes maxlimited | wait; ready is wait minus maxlimited |
//! | maxlimited (`.summation`) | limited |
//! | readiness (`.average`) | wait of a vCPU, if ready is missing; never of a group, because VMware does not document whether it is a sum or a mean over vCPUs |
//!
//! Sources: VMware, vSphere Web Services API reference (7.0): PerformanceManager, "CPU counters".
//! "Interpreting esxtop Statistics" says of esxtop's columns that ready includes max limited. vsteer assumes
//! the same here, because the same kernel counts.
//!
//! Left out: memory, disks and networks; the counters of hosts except `utilization`.

use roxmltree::Node;
use std::collections::{BTreeMap, BTreeSet};
use vsteer_core::nouns::{Collector, ThreadCounters};

use super::soap::child_text;

/// A counter that vsteer reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Counter {
    Run,
    Ready,
    Readiness,
    MaxLimited,
    CoStop,
    Used,
    Overlap,
    System,
    Wait,
    /// Belongs to a pCPU of the host.
    Utilization,
}

impl Counter {
    /// All counters with their names in vSphere: `cpu.NAME.ROLLUP`.
    pub(super) const ALL: [(Counter, &'static str, &'static str); 10] = [
        (Counter::Run, "run", "summation"),
        (Counter::Ready, "ready", "summation"),
        (Counter::Readiness, "readiness", "average"),
        (Counter::MaxLimited, "maxlimited", "summation"),
        (Counter::CoStop, "costop", "summation"),
        (Counter::Used, "used", "summation"),
        (Counter::Overlap, "overlap", "summation"),
        (Counter::System, "system", "summation"),
        (Counter::Wait, "wait", "summation"),
        (Counter::Utilization, "utilization", "average"),
    ];

    fn of(group: &str, name: &str, rollup: &str) -> Option<Counter> {
        let found = Counter::ALL.iter().find(|(_, n, r)| group == "cpu" && *n == name && *r == rollup);
        found.map(|(counter, ..)| *counter)
    }

    /// Converts the value of an interval of `interval_s` seconds to ns; `None` if there is no value (-1).
    pub(super) fn ns(self, value: i64, interval_s: u64) -> Option<u64> {
        let value = u64::try_from(value).ok()?;
        match self {
            Counter::Readiness | Counter::Utilization => {
                // Hundredths of a percent of the interval.
                let ns = u128::from(value) * u128::from(interval_s) * 100_000;
                u64::try_from(ns).ok()
            }
            _ => value.checked_mul(1_000_000),
        }
    }
}

/// The numbers that this service assigned to its counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    by_number: BTreeMap<u32, Counter>,
}

impl Numbers {
    /// Reads the property `perfCounter`.
    pub(super) fn of(property: Node<'_, '_>) -> Numbers {
        let mut by_number = BTreeMap::new();
        for info in property.descendants().filter(|n| n.tag_name().name() == "PerfCounterInfo") {
            let key_of = |name: &str| {
                let element = info.children().find(|n| n.tag_name().name() == name)?;
                child_text(element, "key")
            };
            let number = child_text(info, "key").and_then(|k| k.trim().parse::<u32>().ok());
            let counter = (|| {
                Counter::of(&key_of("groupInfo")?, &key_of("nameInfo")?, &child_text(info, "rollupType")?)
            })();
            if let (Some(number), Some(counter)) = (number, counter) {
                by_number.insert(number, counter);
            }
        }
        Numbers { by_number }
    }

    pub(super) fn counter(&self, number: u32) -> Option<Counter> {
        self.by_number.get(&number).copied()
    }

    pub(super) fn number(&self, counter: Counter) -> Option<u32> {
        self.by_number.iter().find(|(_, c)| **c == counter).map(|(n, _)| *n)
    }
}

/// The object to which a counter belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Instance {
    /// All worlds of a VM together.
    Group,
    /// One vCPU of a VM, or one pCPU of a host.
    Cpu(u32),
}

impl Instance {
    /// `None` if the text is neither.
    pub(super) fn of(text: &str) -> Option<Instance> {
        match text {
            "" => Some(Instance::Group),
            n => n.parse().ok().filter(|n| *n < 4096).map(Instance::Cpu),
        }
    }

    pub(super) fn text(self) -> String {
        match self {
            Instance::Group => String::new(),
            Instance::Cpu(n) => n.to_string(),
        }
    }
}

/// The counters that exist for one VM or host.
pub(super) type Metrics = BTreeSet<(Instance, Counter)>;

/// Adds the values of one interval. `get` returns a counter's ns in it, or `None` if the counter does not
/// exist.
pub(super) fn raise(c: &mut ThreadCounters, is_group: bool, get: &dyn Fn(Counter) -> Option<u64>) {
    let up = |counter: &mut Option<u64>, by: Option<u64>| {
        *counter = by.map(|by| counter.unwrap_or(0).saturating_add(by));
    };
    let limited = get(Counter::MaxLimited);
    let wait = get(Counter::Ready).or_else(|| if is_group { None } else { get(Counter::Readiness) });
    up(&mut c.run_ns, get(Counter::Run));
    up(&mut c.wait_ns, wait);
    up(&mut c.limited_ns, limited);
    // vSphere rounds each value to a millisecond, so the difference could be negative.
    up(&mut c.ready_ns, wait.zip(limited).map(|(w, l)| w.saturating_sub(l)));
    up(&mut c.costop_ns, get(Counter::CoStop));
    up(&mut c.used_ns, get(Counter::Used));
    up(&mut c.overlap_ns, get(Counter::Overlap));
    up(&mut c.system_ns, get(Counter::System));
    up(&mut c.blocked_ns, get(Counter::Wait));
}

/// The measures of a VM as samples name them, and the vSphere counters that each needs.
const MEASURES: [(&str, &[Counter]); 9] = [
    ("run_ns", &[Counter::Run]),
    ("ready_ns", &[Counter::Ready, Counter::MaxLimited]),
    ("limited_ns", &[Counter::MaxLimited]),
    ("wait_ns", &[Counter::Ready]),
    ("costop_ns", &[Counter::CoStop]),
    ("blocked_ns", &[Counter::Wait]),
    ("overlap_ns", &[Counter::Overlap]),
    ("system_ns", &[Counter::System]),
    ("used_ns", &[Counter::Used]),
];

/// Describes which measures exist, and why others do not. `all`: the counters that exist for all VMs. `kept`:
/// where vSphere keeps them, as text for people.
pub(super) fn collector(numbers: &Numbers, all: &Metrics, kept: &str) -> Collector {
    let counts = |name: &str| MEASURES.iter().any(|(what, _)| *what == name);
    let mut collector = Collector::new("vsphere", counts, "vSphere does not count it")
        .without(&["lag_ns"], "vSphere does not count it: co-stop is not the same")
        .without(&["wake_latency", "ready_spell"], "vSphere keeps sums, not distributions")
        .without(&["blame"], "vSphere does not report who ran while another waited");
    let vcpus = all.iter().any(|(i, _)| *i != Instance::Group);
    for (what, needs) in MEASURES {
        if let Some(why) = untold(needs, numbers, all, kept, vcpus) {
            collector = collector.without(&[what], &why);
        }
    }
    if !vcpus && !all.is_empty() {
        let why = format!("vSphere keeps no single vCPUs {kept}, only sums over all worlds of a VM");
        collector = collector.without(&["vcpus"], &why);
    }
    collector
}

/// Why a measure that needs these counters is missing; `None` if it is not missing. `vcpus`: does vSphere
/// report single vCPUs?
fn untold(needs: &[Counter], numbers: &Numbers, all: &Metrics, kept: &str, vcpus: bool) -> Option<String> {
    let of = |counter: Counter, group: bool| {
        all.iter().any(|(i, c)| *c == counter && (*i == Instance::Group) == group)
    };
    let stands_in = |c: Counter, group: bool| c == Counter::Ready && !group && of(Counter::Readiness, false);
    let is_told = |c: Counter, group: bool| of(c, group) || stands_in(c, group);
    let lacks = |group: bool| needs.iter().find(|c| !is_told(**c, group));
    let name = |c: Counter| Counter::ALL.iter().find(|(k, ..)| *k == c).map_or("", |(_, n, _)| n);
    let why = |c: Counter| {
        if numbers.number(c).is_none() {
            format!("this service has no counter cpu.{}", name(c))
        } else {
            format!("cpu.{} is not kept {kept}", name(c))
        }
    };
    match (lacks(false), lacks(true)) {
        (Some(c), Some(_)) => Some(why(*c)),
        (Some(c), None) if vcpus => Some(format!("for single vCPUs, {}; it is known for groups", why(*c))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If a vCPU is ready for 5 % of the time, the result is 5 % for any interval length.
    #[test]
    fn a_share_is_of_the_intervals_own_length() {
        for (interval_s, ready_ms) in
            [(20, 1_000), (300, 15_000), (1_800, 90_000), (7_200, 360_000), (86_400, 4_320_000)]
        {
            let ns = Counter::Ready.ns(ready_ms, interval_s).unwrap();
            assert_eq!(ns * 20, interval_s * 1_000_000_000, "{interval_s} s");
            assert_eq!(Counter::Readiness.ns(500, interval_s), Some(ns), "{interval_s} s");
        }
        assert_eq!(Counter::Ready.ns(-1, 20), None, "no value is not 0");
        assert_eq!(Counter::Ready.ns(i64::MAX, 20), None);
        assert_eq!(Counter::Readiness.ns(i64::MAX, 86_400), None);
    }

    #[test]
    fn ready_is_less_what_was_limited_and_nothing_without() {
        let mut c = ThreadCounters::default();
        let of = |limited: Option<u64>| {
            move |counter: Counter| match counter {
                Counter::Ready => Some(700),
                Counter::MaxLimited => limited,
                _ => None,
            }
        };
        raise(&mut c, false, &of(Some(200)));
        assert_eq!((c.wait_ns, c.limited_ns, c.ready_ns, c.run_ns), (Some(700), Some(200), Some(500), None));
        let mut c = ThreadCounters::default();
        raise(&mut c, false, &of(None));
        assert_eq!((c.wait_ns, c.ready_ns), (Some(700), None));
    }

    #[test]
    fn a_groups_readiness_is_not_taken_for_a_sum() {
        let get = |counter: Counter| (counter == Counter::Readiness).then_some(9);
        for (is_group, wait) in [(true, None), (false, Some(9))] {
            let mut c = ThreadCounters::default();
            raise(&mut c, is_group, &get);
            assert_eq!(c.wait_ns, wait);
        }
    }

    #[test]
    fn why_it_is_missing() {
        let numbers = Numbers {
            by_number: [(12, Counter::Ready), (400, Counter::MaxLimited), (402, Counter::Run)].into(),
        };
        let all: Metrics = [(Instance::Group, Counter::Ready)].into();
        let m = collector(&numbers, &all, "at 300 s").missing;
        assert_eq!(m["run_ns"], "cpu.run is not kept at 300 s");
        assert_eq!(m["costop_ns"], "this service has no counter cpu.costop");
        assert!(m["vcpus"].contains("no single vCPUs") && !m.contains_key("wait_ns"), "{m:?}");
        let all: Metrics = [
            (Instance::Group, Counter::Run),
            (Instance::Group, Counter::Ready),
            (Instance::Cpu(0), Counter::Ready),
        ]
        .into();
        let m = collector(&numbers, &all, "in real time").missing;
        assert!(m["run_ns"].contains("it is known for groups") && !m.contains_key("vcpus"), "{m:?}");
    }
}
