//! Is a condition read as it is written, and does it fire when it holds and not otherwise?

use super::*;
use crate::CpuSet;
use crate::nouns::{Histogram, Role, ThreadCounters, ThreadSample, Tid, VmConfig};
use crate::topology::{Parts, Topology};
use proptest::prelude::*;

const S: u64 = 1_000_000_000;

fn config() -> HostConfig {
    let one = || CpuSet::single(0);
    let parts = Parts { present: one(), online: one(), allowed: one(), ..Parts::default() };
    let vm = VmConfig::new(VmId("a".into()), "a".to_owned(), 1);
    HostConfig { vms: vec![vm], ..HostConfig::new("host", "", Topology::new(parts).unwrap()) }
}

fn collector() -> Collector {
    Collector { name: "test".to_owned(), missing: BTreeMap::new() }
}

/// After `at_s` seconds a VM of two vCPUs that was ready for `ready_ns` in all, in spells of 10 ms.
fn batch(at_s: u64, ready_ns: u64) -> Batch {
    let spell = Histogram { counts: vec![(Histogram::bucket_of(10_000_000), ready_ns / 10_000_000)] };
    let counters = ThreadCounters {
        run_ns: Some(at_s * S - ready_ns),
        ready_ns: Some(ready_ns),
        limited_ns: Some(0),
        wait_ns: Some(ready_ns),
        blocked_ns: Some(0),
        lag_ns: Some(0),
        ready_spell: Some(spell),
        ..ThreadCounters::default()
    };
    let thread = |i| ThreadSample {
        vm: VmId("a".into()),
        role: Role::Vcpu(i),
        tid: Tid(i + 1),
        last_cpu: None,
        waiting_ns: None,
        counters: counters.clone(),
    };
    Batch {
        mono_ns: at_s * S,
        unix_ns: (1000 + at_s) * S,
        threads: vec![thread(0), thread(1)],
        ..Batch::default()
    }
}

#[test]
fn what_people_write_is_read() {
    for (text, again) in [
        ("ready_p99>20ms", "ready_p99>20ms"),
        (" ready_p99 > 20 ms ", "ready_p99>20ms"),
        ("limited>5% and ready<1.5% or wake_max>1s", "limited>5% and ready<1.5% or wake_max>1s"),
        ("wake_p50>300µs", "wake_p50>300µs"),
    ] {
        assert_eq!(text.parse::<Trigger>().unwrap().to_string(), again);
    }
    for (text, why) in [
        ("", "neither"),
        ("ready", "neither"),
        ("steal>5%", "not the name of a quantity"),
        ("ready>20ms", "a share in %"),
        ("ready_p99>20", "a time in"),
        ("ready_p99>ms", "begin with a number"),
        ("ready>5% and", "neither"),
        ("ready>-5%", "begin with a number"),
    ] {
        let fault = text.parse::<Trigger>().unwrap_err();
        assert_eq!(fault.kind, FaultKind::Usage);
        assert!(fault.to_string().contains(why), "{text:?}: {fault}");
    }
}

#[test]
fn units_are_what_they_say() {
    let limit = |text: &str| text.parse::<Trigger>().unwrap().any[0][0].limit;
    assert_eq!(limit("ready_p99>20ms"), 20e6);
    assert_eq!((limit("wake_p99>2s"), limit("wake_p99>3us"), limit("wake_p99>4ns")), (2e9, 3e3, 4.0));
    assert_eq!(limit("ready>25%"), 0.25);
}

#[test]
fn it_fires_when_the_share_per_vcpu_passes_the_limit_and_then_keeps_quiet() {
    // Ready for 5 % until 60 s, for 40 % after that, on both vCPUs: the sum would be 10 % and 80 %.
    let ready = |s: u64| if s <= 60 { s * S / 20 } else { 3 * S + (s - 60) * S * 2 / 5 };
    let mut watch = Watch::new(vec!["ready>20%".parse().unwrap()], 10 * S, 60 * S);
    let marks: Vec<Mark> =
        (0..=240).flat_map(|s| watch.see(&batch(s, ready(s)), &config(), &collector())).collect();
    // The window's mean is 5 % + 35 % x seconds / 10: it passes 20 % in the fifth second.
    let at: Vec<u64> = marks.iter().map(|m| m.mono_ns / S).collect();
    assert_eq!(at, [65, 125, 185]);
    assert_eq!((marks[0].unix_ns, marks[0].window_ns), (1065 * S, 10 * S));
    assert_eq!(marks[0].found, "ready 22.50 %");
}

#[test]
fn times_are_quantiles_of_the_window() {
    let mut watch = Watch::new(vec!["ready_p99>9ms and run>1%".parse().unwrap()], 10 * S, 60 * S);
    let marks: Vec<Mark> =
        (0..=12).flat_map(|s| watch.see(&batch(s, s * S / 10), &config(), &collector())).collect();
    assert_eq!(marks.len(), 1);
    assert!(
        marks[0].found.starts_with("ready_p99 10.") && marks[0].found.ends_with("run 90.00 %"),
        "{marks:?}"
    );
    let mut watch = Watch::new(vec!["ready_p99>12ms".parse().unwrap()], 10 * S, 60 * S);
    assert!((0..=12).all(|s| watch.see(&batch(s, s * S / 10), &config(), &collector()).is_empty()));
}

#[test]
fn what_is_not_measured_is_refused_unless_there_is_an_alternative() {
    let missing = BTreeMap::from([("ready_spell".to_owned(), "polling".to_owned())]);
    let c = Collector { name: "schedstat".to_owned(), missing };
    let of = |text: &str| text.parse::<Trigger>().unwrap().measurable(&c);
    assert!(of("ready_p99>1ms").unwrap_err().to_string().contains("polling"));
    assert!(of("ready>1% and ready_p99>1ms").is_err());
    assert!(of("ready_p99>1ms or run>90%").is_ok() && of("run>90%").is_ok());
}

#[test]
fn memory_is_bounded_at_any_pace() {
    let mut watch = Watch::new(vec!["ready>50%".parse().unwrap()], 10 * S, 60 * S);
    for ms in 0..30_000u64 {
        let b = Batch { mono_ns: ms * 1_000_000, ..Batch::default() };
        watch.see(&b, &config(), &collector());
        assert!(watch.samples.len() as u64 <= KEPT + 2);
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
        let _ = text.parse::<Trigger>();
    }

    #[test]
    fn text_round_trips(
        parts in proptest::collection::vec((0..QUANTITIES.len(), any::<bool>(), 0u32..100_000, 0usize..5, any::<bool>()), 1..6)
    ) {
        let mut text = String::new();
        for (i, (q, above, tenths, unit, or)) in parts.iter().enumerate() {
            let quantity = QUANTITIES[*q];
            let unit = if quantity.kind == Kind::Time { UNITS[*unit].0 } else { "%" };
            let join = if i == 0 { "" } else if *or { " or " } else { " and " };
            let value = f64::from(*tenths) / 10.0;
            text += &format!("{join}{}{}{value}{unit}", quantity.name, if *above { ">" } else { "<" });
        }
        let trigger: Trigger = text.parse().unwrap();
        prop_assert_eq!(trigger.to_string(), text);
    }
}
