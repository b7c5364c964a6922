//! The control loop, tested on a simulated pCPU that three VMs share, period after period.

use super::*;
use crate::estimate::find;
use crate::estimate::fluid::Fluid;
use crate::estimate::traffic::Traffic;
use vsteer_core::random::Random;
use vsteer_core::requests::Counted;

const PERIOD_S: f64 = 60.0;
const SERVICE_S: [f64; 3] = [0.0066, 0.0066, 0.0017];

/// A pCPU with three VMs, period after period.
struct World {
    random: Random,
    now_s: f64,
    weights: Vec<f64>,
    rates: [f64; 3],
    dead: Option<Dead>,
    /// More weight is less of the pCPU here.
    contrary: bool,
}

impl World {
    fn new(seed: u64, rates: [f64; 3]) -> World {
        let random = Random::new(seed, 0);
        World { random, now_s: 0.0, weights: vec![1.0; 3], rates, dead: None, contrary: false }
    }

    fn live(&mut self) -> Period {
        let mut traffic = Vec::new();
        for (rate, service_s) in self.rates.iter().zip(SERVICE_S) {
            let mut t = Traffic::default();
            let mut at_s = self.random.exponential(1.0 / rate);
            while at_s < PERIOD_S {
                t.requests.push((at_s, service_s));
                at_s += self.random.exponential(1.0 / rate);
            }
            traffic.push(t);
        }
        // First come first served, and all alike: answers are in the order of arrivals.
        let weigh = |w: &f64| if self.contrary { 1.0 / w } else { *w };
        let weights: Vec<f64> = self.weights.iter().map(weigh).collect();
        let took = Fluid { pcpus: 1.0, vcpus: vec![1; 3] }.responses(&traffic, &weights);
        let ns = |s: f64| ((self.now_s + s) * 1e9) as u64;
        let vm = |i: usize| {
            let of = traffic[i].requests.iter().zip(&took[i]);
            let requests: Vec<Answered> = of
                .map(|((at_s, _), took_s)| Answered { began_ns: ns(*at_s), took_ns: (took_s * 1e9) as u64 })
                .collect();
            let cpu_ns = (requests.len() as f64 * SERVICE_S[i] * 1e9) as u64;
            let dead = self.dead.clone().filter(|_| i == 0);
            Some(VmPeriod {
                requests,
                lots: None,
                vm: Vm { cpu_ns, weight: self.weights[i], vcpus: 1 },
                dead,
            })
        };
        let period = Period { span_ns: (ns(0.0), ns(PERIOD_S)), vms: (0..3).map(vm).collect(), pcpus: 1.0 };
        self.now_s += PERIOD_S;
        period
    }
}

fn holder(levels_ms: [f64; 3]) -> Holder {
    let promise = |(i, ms): (usize, &f64)| Promise {
        vm: format!("vm{}", i + 1),
        level: Level { mean_s: Some(ms / 1e3), p95_s: None, rate_hz: None },
    };
    Holder::new(levels_ms.iter().enumerate().map(promise).collect(), find("own").unwrap(), 200_000)
}

/// Continues for fifteen periods, each shown as `shown` makes it: weights go to the first VM, at most as often as
/// one shift allows. What the first period came to.
fn steered_to_rest(world: &mut World, holder: &mut Holder, shown: fn(Period) -> Period) -> Outcome {
    let mut sets = 0;
    let mut next = |world: &mut World| {
        let outcome = holder.step(shown(world.live()), Around::default());
        match &outcome.decision {
            Decision::Set { weights, .. } => {
                sets += 1;
                assert!(weights[0] > weights[1], "{weights:?}");
                world.weights.clone_from(weights);
            }
            Decision::Move { .. } => panic!("{}", outcome.why),
            Decision::Keep => {}
        }
        outcome
    };
    let first = next(world);
    (1..15).for_each(|_| drop(next(world)));
    assert!((1..=SETS_MOST).contains(&sets), "{sets} changes, {:?}", world.weights);
    first
}

/// The published third scenario: loads rise, and from the interval after the last rise on VM1 has to be 15 % faster
/// than equal weights make it. Not more than two changes, and then every level holds.
#[test]
fn a_shift_of_load_is_answered_and_then_there_is_rest() {
    for seed in 1..=5 {
        let mut world = World::new(seed, [30.0, 30.0, 120.0]);
        let mut holder = holder([25.0, 45.0, 22.0]);
        for _ in 0..5 {
            assert_eq!(holder.step(world.live(), Around::default()).decision, Decision::Keep, "seed {seed}");
        }
        world.rates = [45.0, 45.0, 170.0];
        let first = steered_to_rest(&mut world, &mut holder, |period| period);
        assert!(first.shifted, "seed {seed}: {}", first.why);
    }
}

/// A host on which weights do the contrary: what was set is taken back once that shows, and then there is rest.
#[test]
fn what_makes_it_worse_is_taken_back() {
    for seed in 1..=3 {
        let mut world = World::new(seed, [45.0, 45.0, 170.0]);
        world.contrary = true;
        let mut holder = holder([20.0, 60.0, 30.0]);
        let mut sets: Vec<(Vec<f64>, String)> = Vec::new();
        for _ in 0..9 {
            let outcome = holder.step(world.live(), Around::default());
            if let Decision::Set { weights, .. } = outcome.decision {
                world.weights.clone_from(&weights);
                sets.push((weights, outcome.why));
            }
        }
        let back = sets.last().unwrap();
        assert!((2..=SETS_MOST as usize + 1).contains(&sets.len()), "seed {seed}: {sets:?}");
        assert!(back.1.contains("the former weights return"), "seed {seed}: {sets:?}");
        let before = if sets.len() > 2 { sets[sets.len() - 3].0.clone() } else { vec![1.0; 3] };
        assert_eq!(back.0, before, "seed {seed}");
    }
}

/// The period as histograms with this many scrapes would count it.
fn counted(mut period: Period, scrapes: u64) -> Period {
    const BOUNDS_S: [f64; 9] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, f64::INFINITY];
    let (from_ns, to_ns) = period.span_ns;
    let step_ns = (to_ns - from_ns) / scrapes;
    for vm in period.vms.iter_mut().flatten() {
        let all = std::mem::take(&mut vm.requests);
        for k in 0..scrapes {
            let span = (from_ns + k * step_ns, from_ns + (k + 1) * step_ns);
            // What was still in line at the end is counted in the last.
            let within = |ended: u64| span.0 < ended && (ended <= span.1 || k + 1 == scrapes);
            let took_s: Vec<f64> = all
                .iter()
                .filter(|r| within(r.began_ns + r.took_ns))
                .map(|r| r.took_ns as f64 / 1e9)
                .collect();
            let counted = Counted::of(&BOUNDS_S, &took_s);
            vm.requests.extend(crate::histogram::requests(&counted, span).unwrap());
            vm.lots = Lots::both(vm.lots.take(), &Some(Lots::of(&counted)));
        }
    }
    period
}

/// As by logs ([`a_shift_of_load_is_answered_and_then_there_is_rest`]), and what is measured is the same.
#[test]
fn histograms_do_for_logs() {
    for seed in 1..=5 {
        let mut world = World::new(seed, [30.0, 30.0, 120.0]);
        let mut holder = holder([25.0, 45.0, 22.0]);
        for _ in 0..5 {
            let period = world.live();
            let rates = [0, 1, 2].map(|i| period.vms[i].as_ref().map(|v| v.requests.len()));
            let counted = counted(period, 10);
            assert_eq!(rates, [0, 1, 2].map(|i| counted.vms[i].as_ref().map(|v| v.requests.len())));
            assert_eq!(holder.step(counted, Around::default()).decision, Decision::Keep, "seed {seed}");
        }
        world.rates = [45.0, 45.0, 170.0];
        steered_to_rest(&mut world, &mut holder, |period| counted(period, 10));
    }
}

/// Requests drawn in any order hide how they hang together: taken for a log their mean would seem surer than it is.
#[test]
fn chance_is_not_less_where_a_histogram_counted() {
    let (mut of_log, mut of_lots, mut naive) = (0.0, 0.0, 0.0);
    let took = |p: &Period| -> Vec<f64> {
        let requests = p.vms[0].as_ref().map(|v| v.requests.clone()).unwrap_or_default();
        requests.iter().map(|r| r.took_ns as f64 / 1e9).collect()
    };
    for seed in 1..=20 {
        let period = World::new(seed, [45.0, 45.0, 170.0]).live();
        let few = counted(period.clone(), 10);
        of_log += chance_of(&took(&period), None) / 20.0;
        of_lots += chance_of(&took(&few), few.vms[0].as_ref().and_then(|v| v.lots.as_ref())) / 20.0;
        naive += chance_of(&took(&counted(period, 1)), None) / 20.0;
    }
    assert!(naive < 0.6 * of_log && of_lots > 0.9 * of_log, "{naive} {of_lots} {of_log}");
    // Scraped once a period nothing is known until there are batches.
    let mut world = World::new(1, [45.0, 45.0, 170.0]);
    let mut once: Vec<Period> = (0..6).map(|_| counted(world.live(), 1)).collect();
    let lots = once.iter().filter_map(|p| p.vms[0].as_ref()).fold(None, |all, v| Lots::both(all, &v.lots));
    assert_eq!(chance_of(&took(&once[0]), lots.as_ref()), 1.0);
    let all: Vec<f64> = once.drain(..).flat_map(|p| took(&p)).collect();
    assert_eq!(chance_of(&all[..5 * all.len() / 6], lots.as_ref()), 1.0);
}

#[test]
fn where_nothing_helps_it_says_who_should_go() {
    let mut world = World::new(1, [30.0, 30.0, 120.0]);
    let mut holder = holder([20.0, 20.0, 9.0]);
    for _ in 0..3 {
        assert!(!matches!(holder.step(world.live(), Around::default()).decision, Decision::Move { .. }));
    }
    world.rates = [48.0, 48.0, 185.0];
    let outcome = holder.step(world.live(), Around::default());
    assert!(matches!(outcome.decision, Decision::Move { .. }), "{}", outcome.why);
}

#[test]
fn a_dead_knob_is_told_of_and_not_turned() {
    let mut world = World::new(1, [45.0, 45.0, 170.0]);
    world.dead = Some(Dead::Quota);
    let mut holder = holder([10.0, 100.0, 100.0]);
    for _ in 0..4 {
        let outcome = holder.step(world.live(), Around::default());
        assert_eq!(outcome.decision, Decision::Keep);
        assert!(
            outcome.why.contains("vm1 exceeds its level, but its weight has no effect"),
            "{}",
            outcome.why
        );
    }
}

#[test]
fn a_level_below_the_cpu_time_is_told_of_and_moves_nobody() {
    let mut world = World::new(1, [30.0, 30.0, 120.0]);
    let mut holder = holder([5.0, 100.0, 100.0]);
    for _ in 0..3 {
        let outcome = holder.step(world.live(), Around::default());
        assert_eq!(outcome.decision, Decision::Keep);
        assert!(outcome.why.contains("vm1 needs 6.60 ms of CPU time per request"), "{}", outcome.why);
    }
}

#[test]
fn nobody_asks_and_one_alone_are_no_trouble() {
    let mut holder = holder([10.0; 3]);
    let empty = |vm: f64| VmPeriod {
        requests: Vec::new(),
        lots: None,
        vm: Vm { cpu_ns: 1000, weight: vm, vcpus: 1 },
        dead: None,
    };
    let period = |vms| Period { span_ns: (0, 60_000_000_000), vms, pcpus: 1.0 };
    let outcome = holder.step(period(vec![Some(empty(1.0)), Some(empty(1.0)), None]), Around::default());
    assert_eq!((outcome.decision, outcome.why.as_str()), (Decision::Keep, "no VM has enough requests"));
    let mut world = World::new(3, [60.0, 1.0, 1.0]);
    let mut alone = world.live();
    (alone.vms[1], alone.vms[2]) = (None, None);
    let outcome = holder.step(alone, Around::default());
    // Alone it has all of the pCPU: no weight is better.
    assert!(!matches!(outcome.decision, Decision::Set { .. }), "{}", outcome.why);
}

/// Weights count beside those of VMs that are left out, and of others: together those that are turned stay as heavy
/// as they were, so that nobody else gets less; and what is in force then is what was decided, by which it is known
/// whether it was worse.
#[test]
fn what_is_set_is_together_as_heavy_as_before() {
    let mut set = 0;
    for seed in 1..=3 {
        let mut world = World::new(seed, [45.0, 45.0, 170.0]);
        world.dead = Some(Dead::Quota);
        let mut holder = holder([1000.0, 20.0, 60.0]);
        for _ in 0..4 {
            let outcome = holder.step(world.live(), Around::default());
            if let Decision::Set { weights, .. } = outcome.decision {
                set += 1;
                assert_eq!(weights[0], 1.0, "{weights:?}");
                assert!(
                    (weights[1] + weights[2] - 2.0).abs() < 1e-9 && weights[1] > weights[2],
                    "{weights:?}"
                );
                world.weights.clone_from(&weights);
            }
        }
    }
    assert!(set > 0);
}

/// A VM whose log is silent takes what its host says that it takes: what is left of the pCPU is the others'.
#[test]
fn who_is_not_seen_takes_what_it_takes() {
    let late = |silent: bool| {
        let mut world = World::new(1, [20.0, 20.0, 300.0]);
        let mut holder = holder([20.0, 20.0, 1000.0]);
        for _ in 0..3 {
            let mut period = world.live();
            if silent {
                period.vms[2].as_mut().unwrap().requests.clear();
            }
            holder.step(period, Around::default());
        }
        holder.ground(Around::default()).pcpus
    };
    // 300 requests of 1.7 ms a second.
    let (seen, silent) = (late(false), late(true));
    assert!((seen - 1.0).abs() < 1e-9 && (silent - 0.49).abs() < 0.03, "{seen} {silent}");
}

/// What a rule comes to over intervals of five periods each.
#[derive(Debug, Default)]
struct Kept {
    missed: usize,
    changes: usize,
    moves: usize,
    sum_ms: f64,
}

/// The published third scenario by a rule. Weights are set as it says; the VM that it wants to move stays.
fn kept(seed: u64, rule: Option<Published>, levels_ms: [f64; 3]) -> Kept {
    const RATES: [[f64; 3]; 7] = [
        [10.0, 10.0, 50.0],
        [15.0, 15.0, 50.0],
        [30.0, 30.0, 120.0],
        [35.0, 35.0, 130.0],
        [45.0, 45.0, 170.0],
        [45.0, 45.0, 170.0],
        [45.0, 45.0, 170.0],
    ];
    const PERIODS: usize = 5;
    let mut world = World::new(seed, RATES[0]);
    let mut holder = holder(levels_ms).by_rule(rule);
    let mut all = Kept::default();
    for rates in RATES {
        world.rates = rates;
        let mut means_ms = [0.0; 3];
        for _ in 0..PERIODS {
            let outcome = holder.step(world.live(), Around::default());
            for (mean, seen) in means_ms.iter_mut().zip(&outcome.seen) {
                *mean += 1e3 * seen.map_or(0.0, |s| s.response.mean_s) / PERIODS as f64;
            }
            match outcome.decision {
                Decision::Set { weights, .. } => (world.weights, all.changes) = (weights, all.changes + 1),
                Decision::Move { .. } => all.moves += 1,
                Decision::Keep => {}
            }
        }
        all.missed += usize::from(means_ms.iter().zip(levels_ms).any(|(mean, level)| *mean > level));
        all.sum_ms += means_ms.iter().sum::<f64>();
    }
    all
}

/// After the last rise of load ours keeps every level. The paper's weights do not help VM1 more than VM2, which is as busy,
/// and Sandpiper sends a VM away, because its bound takes each VM to be alone.
#[test]
fn the_published_rules_miss_levels_that_ours_keeps() {
    let of = |rule| (1..=5).map(|seed| kept(seed, rule, [25.0, 45.0, 22.0])).collect::<Vec<_>>();
    let (own, paper, sandpiper) = (of(None), of(Some(Published::Paper)), of(Some(Published::Sandpiper)));
    for (name, all) in [("own", &own), ("paper", &paper), ("sandpiper", &sandpiper)] {
        all.iter().for_each(|kept| println!("{name:<9} {kept:?}"));
    }
    for ((own, paper), sandpiper) in own.iter().zip(&paper).zip(&sandpiper) {
        // The interval in which the load rises is over before a change can help.
        assert!(own.missed <= 1 && own.moves == 0 && own.changes <= 2, "{own:?}");
        assert!(paper.missed == 3 && sandpiper.missed == 3, "{paper:?} {sandpiper:?}");
        assert!(sandpiper.changes == 0 && sandpiper.moves == 15, "{sandpiper:?}");
    }
}
