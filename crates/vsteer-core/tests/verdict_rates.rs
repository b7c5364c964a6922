//! How often is a verdict right? Pairs of made-up recordings whose truth is known.
//!
//! `VSTEER_PAIRS=2000` for the promised number of pairs; with fewer, the bands leave room for chance.

use vsteer_core::model::{HostModel, derive};
use vsteer_core::nouns::*;
use vsteer_core::random::Random;
use vsteer_core::topology;
use vsteer_core::verify::{Options, Outcome, Quantity, Verdict, verify};

type Recording = (HostModel, Vec<Batch>);

/// Shares of a VM of one vCPU.
#[derive(Clone, Copy)]
struct Vm {
    run: f64,
    ready: f64,
}

const SECONDS: usize = 60;
/// Standard deviation of a second's shares, and how much of it lasts into the next.
const NOISE: f64 = 0.02;
const LASTS: f64 = 0.5;

fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| random.unit()).sum::<f64>() - 6.0
}

/// A recording at 1 s. `run_noise`: how much run times vary, in parts of [`NOISE`].
fn recording(vms: &[Vm], seed: u64, run_noise: f64) -> Recording {
    let mut random = Random::new(seed, 0);
    let mut state = vec![[0.0; 2]; vms.len()];
    let mut sums = vec![[0.0; 2]; vms.len()];
    let fresh = NOISE * (1.0_f64 - LASTS * LASTS).sqrt();
    let mut batches = Vec::new();
    for second in 0..=SECONDS as u64 {
        let threads = sums.iter().zip(0..).map(|([run, ready], i)| {
            let ns = |sum: f64| Some((sum * 1e9) as u64);
            let counters = ThreadCounters {
                run_ns: ns(*run),
                ready_ns: ns(*ready),
                limited_ns: Some(0),
                wait_ns: ns(*ready),
                ..ThreadCounters::default()
            };
            let vm = VmId(format!("vm{i}").into());
            ThreadSample {
                vm,
                role: Role::Vcpu(0),
                tid: Tid(i + 1),
                last_cpu: None,
                waiting_ns: None,
                counters,
            }
        });
        batches.push(Batch {
            mono_ns: 1_000_000_000 * (second + 1),
            threads: threads.collect(),
            ..Batch::default()
        });
        for ((vm, state), sums) in vms.iter().zip(&mut state).zip(&mut sums) {
            for (i, (mean, noise)) in [(vm.run, run_noise), (vm.ready, 1.0)].into_iter().enumerate() {
                state[i] = LASTS * state[i] + fresh * normal(&mut random);
                sums[i] += (mean + noise * state[i]).max(0.0);
            }
        }
    }
    let config = HostConfig {
        cgroups: CgroupLayout::V2,
        vms: (0..vms.len())
            .map(|i| VmConfig::new(VmId(format!("vm{i}").into()), format!("vm{i}"), 1))
            .collect(),
        ..HostConfig::new("h", "6.18", topology::machine(1, 1, 2, 1).unwrap())
    };
    let collector = Collector { name: "ebpf".into(), missing: [].into() };
    (derive(&config, &collector, &batches).unwrap(), batches)
}

fn judged(a: &Recording, b: &Recording) -> Verdict {
    verify((&a.0, &a.1), (&b.0, &b.1), None, Options::default())
}

fn pairs() -> usize {
    std::env::var("VSTEER_PAIRS").ok().and_then(|n| n.parse().ok()).unwrap_or(200)
}

/// A pair of 400 VMs takes long.
fn pairs_of_400() -> usize {
    if pairs() >= 2_000 { pairs() } else { pairs() / 20 }
}

/// Three standard deviations of a part of `n` that is seen by chance, and none at the promised number.
fn room(part: f64, n: usize) -> f64 {
    if n >= 2_000 { 0.0 } else { 3.0 * (part * (1.0 - part) / n as f64).sqrt() }
}

/// In what part of `n` pairs something holds. `seed` keeps kinds of pairs apart.
fn part(n: usize, seed: u64, holds: impl Fn(u64, u64) -> bool) -> f64 {
    let one = |i: &usize| holds(seed + 2 * *i as u64, seed + 2 * *i as u64 + 1);
    (0..n).filter(one).count() as f64 / n as f64
}

fn at_most(what: &str, part: f64, most: f64, n: usize) {
    println!("{what}: {:.2} % of {n}", 100.0 * part);
    assert!(part <= most + room(most, n), "{what}: {part}");
}

fn any(v: &Verdict, outcome: Outcome) -> bool {
    v.findings.iter().any(|f| f.outcome == outcome)
}

const TWO: [Vm; 2] = [Vm { run: 0.3, ready: 0.15 }, Vm { run: 0.4, ready: 0.1 }];

#[test]
fn unchanged_pairs_are_rarely_told_from_each_other() {
    for (vms, n) in [(TWO.to_vec(), pairs()), (vec![TWO[0]; 400], pairs_of_400())] {
        let wrong = part(n, 1_000_000, |a, b| {
            let v = judged(&recording(&vms, a, 1.0), &recording(&vms, b, 1.0));
            any(&v, Outcome::Better) || any(&v, Outcome::Worse)
        });
        at_most(&format!("unchanged, {} VMs: wrong", vms.len()), wrong, 0.065, n);
    }
}

/// A gain of the smallest visible size is found in nine of ten.
#[test]
fn a_gain_of_the_smallest_visible_size_is_found_as_often_as_promised() {
    for (vms, n) in [(TWO.to_vec(), pairs()), (vec![TWO[0]; 400], pairs_of_400())] {
        let found = part(n, 2_000_000, |a, b| {
            let (before, after) = (recording(&vms, a, 1.0), recording(&vms, b, 1.0));
            let ready = |v: &Verdict| {
                v.findings.iter().find(|f| f.quantity == Quantity::Ready && f.name == "vm0").unwrap().clone()
            };
            let gain = ready(&judged(&before, &after)).smallest_visible;
            let mut better = after.1.clone();
            for (second, batch) in better.iter_mut().enumerate() {
                let less = (gain * 1e9 * second as f64) as u64;
                let c = &mut batch.threads[0].counters;
                // Shares may fall below 0 here: the sums start high enough.
                for counter in [&mut c.ready_ns, &mut c.wait_ns] {
                    *counter = counter.map(|ns| ns + 60_000_000_000 - less);
                }
            }
            ready(&judged(&before, &(after.0, better))).outcome == Outcome::Better
        });
        println!(
            "a gain of the smallest visible size, {} VMs: {:.2} % of {n} found",
            vms.len(),
            100.0 * found
        );
        let room = room(0.9, n);
        assert!((0.88 - room..=0.92 + room).contains(&found), "{found}");
    }
}

/// The same work in less CPU time: a VM that sleeps at times runs less, and nobody waits longer.
#[test]
fn the_same_work_in_less_cpu_time_is_not_worse() {
    let n = pairs();
    let worse = part(n, 3_000_000, |a, b| {
        let less = [Vm { run: 0.2, ..TWO[0] }, TWO[1]];
        any(&judged(&recording(&TWO, a, 1.0), &recording(&less, b, 1.0)), Outcome::Worse)
    });
    at_most("the same work in less CPU time: worse", worse, 0.065, n);
}

/// The load falls by a tenth to a half, and waits with it.
#[test]
fn waits_that_fall_with_the_load_are_not_better() {
    let n = pairs();
    let better = part(n, 4_000_000, |a, b| {
        let keeps = 0.5 + 0.4 * Random::new(a, 1).unit();
        let less = TWO.map(|vm| Vm { run: vm.run * keeps, ready: vm.ready * keeps * keeps });
        any(&judged(&recording(&TWO, a, 1.0), &recording(&less, b, 1.0)), Outcome::Better)
    });
    at_most("the load fell by itself: better", better, 0.065, n);
}
