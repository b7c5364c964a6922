//! Tests of the verdict on two recordings: what is better or worse, how sure the verdict is, and how well a
//! forecast came true.

mod common;

use vsteer_core::Interval;
use vsteer_core::forecast::{Forecast, VmForecast};
use vsteer_core::model::{HostModel, derive};
use vsteer_core::nouns::{
    Batch, CgroupLayout, Collector, HostConfig, Role, ThreadCounters, ThreadSample, Tid, VmConfig, VmId,
};
use vsteer_core::verify::{Finding, NotJudged, Options, Outcome, Quantity, Verdict, of_one_host, verify};

type Recording = (HostModel, Vec<Batch>);

/// A recording of VMs: name, run share and ready share, both as parts of 1,024. `uneven`: how much the seconds differ.
fn recording(vms: &[(&str, u64, u64)], seconds: u64, uneven: u64) -> Recording {
    told(vms, seconds, uneven, |_| true)
}

/// The same, with ready split from limited only in batches for which `split` is true.
fn told(vms: &[(&str, u64, u64)], seconds: u64, uneven: u64, split: impl Fn(u64) -> bool) -> Recording {
    const PART_NS: u64 = 1 << 20;
    let batch = |i: u64| {
        let thread = |(name, run, ready): &(&str, u64, u64)| {
            let ns = |part: u64| Some(PART_NS * (part * i + uneven * (i * i % 7)));
            let counters = ThreadCounters {
                run_ns: ns(*run),
                ready_ns: ns(*ready).filter(|_| split(i)),
                wait_ns: ns(*ready),
                ..ThreadCounters::default()
            };
            ThreadSample {
                vm: VmId((*name).into()),
                role: Role::Vcpu(0),
                tid: Tid(1),
                last_cpu: None,
                waiting_ns: None,
                counters,
            }
        };
        let threads = vms.iter().map(thread).collect();
        Batch { mono_ns: (PART_NS << 10) * (i + 1), threads, ..Batch::default() }
    };
    let batches: Vec<Batch> = (0..=seconds).map(batch).collect();
    let config = HostConfig {
        cgroups: CgroupLayout::V2,
        vms: vms.iter().map(|(name, ..)| VmConfig::new(VmId((*name).into()), *name, 1)).collect(),
        ..HostConfig::new("h", "6.18", vsteer_core::topology::machine(1, 1, 2, 1).unwrap())
    };
    let collector = Collector { name: "made up".into(), missing: [].into() };
    (derive(&config, &collector, &batches).unwrap(), batches)
}

fn judged(before: &Recording, after: &Recording, forecast: Option<&Forecast>, options: Options) -> Verdict {
    verify((&before.0, &before.1), (&after.0, &after.1), forecast, options)
}

fn of(before: &[(&str, u64, u64)], after: &[(&str, u64, u64)]) -> Verdict {
    judged(&recording(before, 60, 0), &recording(after, 60, 0), None, Options::default())
}

fn outcome(v: &Verdict, quantity: Quantity) -> Outcome {
    v.findings.iter().find(|f| f.quantity == quantity).unwrap().outcome
}

#[test]
fn less_ready_is_better_and_more_run_of_a_vm_that_never_sleeps() {
    use Outcome::{Better, NoDifference, Worse};
    for (before, after, ready, run, overall) in [
        ((256, 768), (512, 512), Better, Better, Some(Better)),
        ((512, 512), (256, 768), Worse, Worse, Some(Worse)),
        ((256, 512), (256, 256), Better, NoDifference, Some(Better)),
        // The same work may take less CPU time.
        ((512, 256), (256, 256), NoDifference, NoDifference, Some(NoDifference)),
        ((512, 128), (256, 256), Worse, NoDifference, Some(Worse)),
        // More load makes a VM wait longer.
        ((256, 256), (512, 512), NoDifference, NoDifference, Some(NoDifference)),
        ((256, 256), (256, 256), NoDifference, NoDifference, Some(NoDifference)),
    ] {
        let v = of(&[("web", before.0, before.1)], &[("web", after.0, after.1)]);
        assert_eq!(
            (outcome(&v, Quantity::Ready), outcome(&v, Quantity::Run)),
            (ready, run),
            "{before:?} {after:?}"
        );
        assert_eq!(v.overall(), overall);
        let compared: Vec<&str> = v.findings.iter().map(Finding::compared).collect();
        assert!(compared.contains(&"ready") && compared.contains(&"run"), "{compared:?}");
    }
}

/// The load of one VM falls: the other waits less, and nobody changed anything. Where the load rises, shorter waits count.
#[test]
fn shorter_waits_under_less_load_are_not_credited() {
    let waits = |v: &Verdict, name: &str| {
        let f = v.findings.iter().find(|f| f.quantity == Quantity::Ready && f.name == name).unwrap();
        (f.outcome, f.not_judged)
    };
    let of_two = |web: u64, ready: u64| [("web", web, ready), ("db", 512, ready)];
    let v = of(&of_two(600, 200), &of_two(300, 50));
    for name in ["web", "db"] {
        assert_eq!(waits(&v, name), (Outcome::NoDifference, Some(NotJudged::LoadChanged)), "{name}");
    }
    let load = v.load.unwrap();
    assert!((load.before - 1112.0 / 1024.0).abs() < 1e-9 && load.difference() < -0.25, "{load:?}");
    let v = of(&of_two(300, 200), &of_two(600, 50));
    assert_eq!(waits(&v, "db"), (Outcome::Better, None));
    let v = of(&of_two(600, 200), &of_two(600, 50));
    assert_eq!((waits(&v, "db"), v.load), ((Outcome::Better, None), None));
    // One that never sleeps asks for all, however little it gets.
    let burns = |run: u64| [("burn", run, 1024 - run), ("db", 300, 100)];
    let v = of(&burns(400), &burns(600));
    assert_eq!((outcome(&v, Quantity::Run), v.load), (Outcome::Better, None));
}

/// Most of the level is for the VMs that the plan is to help, and all of it for the others once these are.
#[test]
fn the_vms_of_the_plan_are_tested_first() {
    let forecast = |after: f64| {
        let same = |v: f64| Interval { low: v, likely: v, high: v };
        let web = VmForecast { ready_before: 0.3, ready_after: same(after), ..told_of("web", 0.3) };
        Forecast { method: "made up".into(), vms: vec![web, told_of("db", 0.3)] }
    };
    let before = recording(&[("web", 300, 300), ("db", 300, 300)], 60, 40);
    let options = Options { alpha: 0.1, power: 0.8, least: 0.001 };
    let levels = |after: &Recording, forecast: &Forecast| {
        let v = judged(&before, after, Some(forecast), options);
        let of = |name: &str| {
            let f = v.findings.iter().find(|f| f.quantity == Quantity::Ready && f.name == name).unwrap();
            let levels = [0.08, 0.02, 0.1, 0.05];
            let is = |level: &f64| (f.half_width - f.comparison.half_width(*level)).abs() < 1e-12;
            levels.into_iter().find(is)
        };
        (of("web"), of("db"))
    };
    let helped = recording(&[("web", 300, 20), ("db", 300, 300)], 60, 40);
    assert_eq!(levels(&before, &forecast(0.1)), (Some(0.08), Some(0.02)));
    assert_eq!(levels(&helped, &forecast(0.1)), (Some(0.08), Some(0.1)));
    assert_eq!(levels(&helped, &forecast(0.3)), (Some(0.05), Some(0.05)), "it helps nobody");
}

fn told_of(name: &str, ready: f64) -> VmForecast {
    VmForecast::unchanged(VmId(name.into()), name, 0.25, ready)
}

#[test]
fn a_difference_below_the_least_is_named_none_however_sure() {
    let (before, after) = (recording(&[("web", 256, 512)], 60, 0), recording(&[("web", 256, 256)], 60, 0));
    let with = |least: f64| {
        let v = judged(&before, &after, None, Options { least, ..Options::default() });
        let ready = v.findings.iter().find(|f| f.quantity == Quantity::Ready).unwrap().clone();
        assert_eq!(ready.smallest_visible, least, "no second differs from another");
        ready.outcome
    };
    assert_eq!(with(0.25), Outcome::NoDifference);
    assert_eq!(with(0.24), Outcome::Better);
}

#[test]
fn the_level_is_divided_among_all_comparisons() {
    let before = recording(&[("web", 300, 300), ("db", 300, 300)], 60, 40);
    let after = recording(&[("web", 300, 310), ("db", 300, 300)], 60, 40);
    let options = Options { alpha: 0.08, power: 0.8, least: 0.001 };
    let v = judged(&before, &after, None, options);
    assert_eq!(v.findings.len(), 4);
    for f in &v.findings {
        // CPU time that is no work is not judged, and takes no part of it.
        assert!(f.half_width > 0.0 && f.half_width == f.comparison.half_width(0.04), "{f:?}");
        assert_eq!(f.smallest_visible, f.comparison.smallest_visible(0.04, 0.8, 0.001));
        assert_eq!(f.outcome, Outcome::NoDifference, "the seconds differ by far more");
    }
}

#[test]
fn what_changed_most_comes_first_ready_before_run() {
    let v = of(
        &[("a", 100, 100), ("b", 100, 100), ("c", 100, 100)],
        &[("a", 500, 110), ("b", 110, 500), ("c", 300, 300)],
    );
    let order: Vec<(Quantity, &str)> = v.findings.iter().map(|f| (f.quantity, f.name.as_str())).collect();
    use Quantity::{Ready, Run};
    assert_eq!(order, [(Ready, "b"), (Ready, "c"), (Ready, "a"), (Run, "a"), (Run, "c"), (Run, "b")]);
}

#[test]
fn who_is_in_one_recording_alone_is_not_compared() {
    let v = of(&[("a", 100, 100), ("b", 100, 100)], &[("b", 100, 100), ("c", 100, 100)]);
    let not: Vec<(&str, &str)> = v.not_compared.iter().map(|n| (n.name.as_str(), n.why.as_str())).collect();
    assert_eq!(
        not,
        [("a", "the VM is not in the second recording"), ("c", "the VM is not in the first recording")]
    );
    assert!(v.findings.iter().all(|f| f.name == "b") && v.findings.len() == 2);
}

#[test]
fn without_a_comparison_four_reasons_are_told_and_how_many_more() {
    let names = ["a", "b", "c", "d", "e"];
    let vms = |n: usize| names[..n].iter().map(|name| (*name, 100, 100)).collect::<Vec<_>>();
    let why = |n: usize| of(&vms(n), &[]).unfounded().unwrap();
    assert_eq!(why(0), "the recordings contain no VM");
    assert_eq!(why(1), "VM \"a\": the VM is not in the second recording");
    assert!(why(4).ends_with("VM \"d\": the VM is not in the second recording"), "{}", why(4));
    assert!(why(5).ends_with("VM \"d\": the VM is not in the second recording; and 1 more"), "{}", why(5));
}

#[test]
fn ready_that_one_recording_tells_for_a_while_only_is_not_held_against_the_others() {
    let whole = recording(&[("web", 256, 256)], 60, 0);
    let partly = told(&[("web", 256, 256)], 60, 0, |i| i < 30);
    for (before, after) in [(&whole, &partly), (&partly, &whole)] {
        let v = judged(before, after, None, Options::default());
        let waits = v.findings.iter().find(|f| f.quantity == Quantity::Ready).unwrap();
        assert_eq!(waits.compared(), "wait");
    }
    let v = judged(&whole, &whole, None, Options::default());
    assert_eq!(v.findings.iter().find(|f| f.quantity == Quantity::Ready).unwrap().compared(), "ready");
}

#[test]
fn a_forecast_is_scored_by_what_it_said_of_this_very_quantity() {
    let at = |low: f64, likely: f64, high: f64| Interval { low, likely, high };
    let web =
        VmForecast { run_after: at(0.4, 0.45, 0.5), ready_after: at(0.0, 0.125, 0.2), ..told_of("web", 0.5) };
    let (before, after) = (recording(&[("web", 256, 512)], 60, 0), recording(&[("web", 512, 256)], 60, 0));
    let score = |vms: Vec<VmForecast>| {
        let forecast = Forecast { method: "made up".into(), vms };
        judged(&before, &after, Some(&forecast), Options::default()).score()
    };
    // The VM ran for a half, within the forecast. It was ready for a quarter, and the forecast was an eighth.
    let got = score(vec![web.clone()]).unwrap();
    assert_eq!((got.of, got.within, got.ready_off), (2, 1, Some(0.125)));
    let got = score(vec![VmForecast { with_limited: true, ..web.clone() }]).unwrap();
    assert_eq!((got.of, got.within, got.ready_off), (1, 1, None), "the forecast was not of ready alone");
    assert_eq!(score(vec![VmForecast { vm: VmId("db".into()), ..web }]), None);
    assert_eq!(judged(&before, &after, None, Options::default()).score(), None);
}

/// Simulated hosts number their VMs: the second VM of any scenario has one and the same id.
#[test]
fn vms_that_only_share_a_number_are_not_compared() {
    let host = |kernel: &str, name: &str| {
        let mut h = common::Host::new(2, 1, 0.5);
        h.vm(name, 1, 0.5, 0.0, 0.0);
        h.config.kernel = kernel.to_owned();
        h.config.vms[0].id = VmId("simulated-0".into());
        h
    };
    let simulated = format!("{}eevdf", vsteer_core::nouns::SIMULATED);
    let (web, db) = (host(&simulated, "web"), host(&simulated, "db"));
    let (real, renamed) = (host("6.18", "web"), host("6.18", "shop"));
    let told = |a: &common::Host, b: &common::Host, of: Option<&common::Host>| {
        of_one_host(&a.config, &b.config, of.map(common::Host::plan).as_ref()).map_err(|e| e.to_string())
    };
    assert_eq!(told(&web, &web, Some(&web)), Ok(()));
    let why = told(&web, &db, None).unwrap_err();
    assert!(why.contains("VM simulated-0 is \"web\" in the first and \"db\" in the second"), "{why}");
    let why = told(&web, &web, Some(&db)).unwrap_err();
    assert!(why.contains("VM \"db\" of the plan is not in the first recording"), "{why}");
    // On a real host the id stands for one VM, which may get another name.
    assert_eq!(told(&real, &renamed, Some(&renamed)), Ok(()));
    // A plan from the API and a recording from a file may know the same VM by different ids.
    let mut other = real.clone();
    other.config.vms[0].id = VmId("another".into());
    assert_eq!(told(&real, &real, Some(&other)), Ok(()));
    let of_trace = |name| {
        let mut h = host("4.17", name);
        h.config.vms[0].id = VmId("xen:domain-3".into());
        h
    };
    assert!(told(&of_trace("web"), &of_trace("db"), None).is_err());
}
