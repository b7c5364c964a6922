//! The allocation's promises, on random hosts and on those that were wrong once.

use super::*;
use proptest::prelude::*;

fn flow_of(tid: u32, demand: f64, weight: f64, allowed: &str) -> Flow {
    Flow {
        vm: VmId(tid.to_string().into()),
        tid: Tid(tid),
        role: Role::Vcpu(0),
        demand,
        weight,
        allowed: allowed.parse().unwrap(),
        realtime: false,
    }
}

fn cpus(n: u32) -> Capacity {
    (0..n).map(|c| (c, 1.0)).collect()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-4
}

#[test]
fn equal_hogs_share_equally_and_weights_divide() {
    let a = allocate(
        &[flow_of(1, 1.0, 1.0, "0-1"), flow_of(2, 1.0, 1.0, "0-1"), flow_of(3, 1.0, 1.0, "0-1")],
        &[],
        &cpus(2),
    );
    assert!(a.rates.iter().all(|r| near(*r, 2.0 / 3.0)), "{a:?}");
    let a = allocate(&[flow_of(1, 1.0, 1.0, "0"), flow_of(2, 1.0, 3.0, "0")], &[], &cpus(1));
    assert!(near(a.rates[0], 0.25) && near(a.rates[1], 0.75), "{a:?}");
}

#[test]
fn a_pinned_hog_pushes_the_free_one_away() {
    let a = allocate(
        &[flow_of(1, 1.0, 1.0, "0"), flow_of(2, 1.0, 1.0, "0"), flow_of(3, 1.0, 1.0, "0-1")],
        &[],
        &cpus(2),
    );
    assert!(near(a.rates[0], 0.5) && near(a.rates[1], 0.5) && near(a.rates[2], 1.0), "{a:?}");
}

#[test]
fn realtime_is_served_first() {
    let mut rt = flow_of(2, 0.3, 1.0, "0");
    rt.realtime = true;
    let a = allocate(&[flow_of(1, 1.0, 1.0, "0"), rt], &[], &cpus(1));
    assert!(near(a.rates[0], 0.7) && near(a.rates[1], 0.3), "{a:?}");
}

#[test]
fn what_a_quota_keeps_from_some_others_get() {
    let hogs = [1, 2, 3, 4].map(|n| flow_of(n, 1.0, 1.0, "0-1"));
    let of = |flows: &[usize], cpus: f64| Ceiling { flows: flows.to_vec(), cpus };
    let a = allocate(&hogs, &[of(&[0, 1], 0.4)], &cpus(2));
    let near_all = |want: [f64; 4]| a.rates.iter().zip(want).all(|(r, w)| (r - w).abs() < 1e-3);
    assert!(near_all([0.2, 0.2, 0.8, 0.8]), "{a:?}");
    // One of them by itself too: the other of the two gets what it leaves.
    let a = allocate(&hogs, &[of(&[0, 1], 0.4), of(&[0], 0.1)], &cpus(2));
    let near_all = |want: [f64; 4]| a.rates.iter().zip(want).all(|(r, w)| (r - w).abs() < 1e-3);
    assert!(near_all([0.1, 0.3, 0.8, 0.8]), "{a:?}");
}

#[test]
fn on_a_large_host_who_is_apart_is_not_held_to_the_level_of_the_crowded() {
    let crowded = (0..40).map(|n| flow_of(n, 1.0, 1.0, "0-19"));
    let apart = (40..60).map(|n| flow_of(n, 1.0, 1.0, "20-39"));
    let a = allocate(&crowded.chain(apart).collect::<Vec<Flow>>(), &[], &cpus(40));
    assert!(a.rates[..40].iter().all(|r| (r - 0.5).abs() < 1e-3), "{a:?}");
    assert!(a.rates[40..].iter().all(|r| (r - 1.0).abs() < 1e-3), "{a:?}");
}

proptest! {
    #[test]
    fn never_more_than_there_is_and_nothing_idles_while_wanted(
        spec in proptest::collection::vec((0.0f64..1.0, 0.1f64..4.0, 1u8..8, proptest::bool::weighted(0.2)), 1..8)
    ) {
        let flows: Vec<Flow> = spec.iter().enumerate().map(|(i, (d, w, mask, rt))| {
            let allowed: CpuSet = (0..3u32).filter(|c| mask & (1 << c) != 0).collect();
            Flow { realtime: *rt, allowed, ..flow_of(i as u32, *d, *w, "0") }
        }).collect();
        let a = allocate(&flows, &[], &cpus(3));
        for (cpu, used) in &a.used {
            prop_assert!(*used <= 1.0 + 1e-6, "pCPU {} used {}", cpu, used);
        }
        for (f, r) in flows.iter().zip(&a.rates) {
            prop_assert!(*r <= f.demand + 1e-6);
            if *r < f.demand - 1e-3 {
                for c in f.allowed.iter() {
                    prop_assert!(a.used[&c] > 1.0 - 1e-3, "{:?} starves while pCPU {} idles: {:?}", f, c, a);
                }
            }
        }
        let sum: f64 = a.rates.iter().sum();
        prop_assert!((sum - a.used.values().sum::<f64>()).abs() < 1e-5);
    }

    #[test]
    fn nobody_passes_a_quota_and_nothing_idles_that_is_wanted_below_it(
        spec in proptest::collection::vec((0.0f64..1.0, 0.1f64..4.0, 1u8..8), 1..8),
        quotas in proptest::collection::vec((1u8..=255, 0.05f64..2.0), 0..4)
    ) {
        let flows: Vec<Flow> = spec.iter().enumerate().map(|(i, (d, w, mask))| {
            let allowed: CpuSet = (0..3u32).filter(|c| mask & (1 << c) != 0).collect();
            Flow { allowed, ..flow_of(i as u32, *d, *w, "0") }
        }).collect();
        let ceilings: Vec<Ceiling> = quotas.iter().map(|(mask, cpus)| {
            Ceiling { flows: (0..flows.len()).filter(|i| mask & (1 << i) != 0).collect(), cpus: *cpus }
        }).collect();
        let a = allocate(&flows, &ceilings, &cpus(3));
        let of = |c: &Ceiling| c.flows.iter().map(|i| a.rates[*i]).sum::<f64>();
        for c in &ceilings {
            prop_assert!(of(c) <= c.cpus + 1e-5, "{:?} is passed: {:?}", c, a);
        }
        for (i, (f, r)) in flows.iter().zip(&a.rates).enumerate() {
            let held = ceilings.iter().any(|c| c.flows.contains(&i) && of(c) > c.cpus - 1e-3);
            if *r < f.demand - 1e-3 && !held {
                for c in f.allowed.iter() {
                    prop_assert!(a.used[&c] > 1.0 - 1e-3, "{:?} starves while pCPU {} idles: {:?}", f, c, a);
                }
            }
        }
    }
}
