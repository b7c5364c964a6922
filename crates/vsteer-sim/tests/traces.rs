//! Does each scheduler decide, step by step, what its paper or source says? Traces worked by hand.
//!
//! Each test states what the rules give at every decision; a [`Trace`] records who really ran when. There is no live
//! check behind these: they hold the program to the reading of the source that the comments write down.

use vsteer_core::CpuSet;
use vsteer_core::nouns::SchedClass;
use vsteer_core::topology::machine;
use vsteer_sim::engine::{Engine, Stop, Watch};
use vsteer_sim::guest::{Burst, Demand};
use vsteer_sim::policy::{Policy, Values};
use vsteer_sim::sched::cfs::Cfs;
use vsteer_sim::sched::credit2::Credit2;
use vsteer_sim::sched::eevdf::Eevdf;
use vsteer_sim::sched::esxi::Esxi;
use vsteer_sim::sched::sedf::Sedf;
use vsteer_sim::setup::{Pcpu, Reservation, Setup, Vcpu, VcpuSetup, VmSetup};
use vsteer_sim::state::State;

const MS: u64 = 1_000_000;

/// Who got which pCPU when, in microseconds.
#[derive(Default)]
struct Trace(Vec<(u64, u32, u32)>);

impl Watch for Trace {
    fn moved(&mut self, now_ns: u64, v: Vcpu, _from: State, to: State, p: Option<Pcpu>) {
        if to == State::Running {
            assert_eq!(now_ns % 1000, 0, "these traces happen at whole microseconds");
            self.0.push((now_ns / 1000, p.expect("it runs somewhere").0, v.0));
        }
    }
}

fn trace<P: Policy>(setup: &Setup, set: &[(&str, u64)], until_ms: u64) -> Vec<(u64, u32, u32)> {
    let mut values = Values::defaults(P::ABOUT.parameters);
    set.iter().for_each(|(name, value)| values.set(name, *value).unwrap());
    let mut engine = Engine::<P, Trace>::watched(setup, &values, Trace::default()).unwrap();
    assert_eq!(engine.run(until_ms * MS, u64::MAX), Stop::Reached);
    engine.watch().0.clone()
}

/// The same on one pCPU: when, and who.
fn on_one<P: Policy>(vms: Vec<VmSetup>, set: &[(&str, u64)], until_ms: u64) -> Vec<(u64, u32)> {
    let setup = Setup::new(machine(1, 1, 1, 1).unwrap(), vms, 1);
    trace::<P>(&setup, set, until_ms).into_iter().map(|(t, _, v)| (t, v)).collect()
}

fn vm(name: &str, demand: Demand) -> VmSetup {
    VmSetup::new(name, vec![VcpuSetup::new(demand)])
}

/// Sleeps and computes, us each, once.
fn bursts(us: &[(u64, u64)]) -> Demand {
    let burst = |(sleep, compute): &(u64, u64)| Burst { sleep_ns: sleep * 1000, compute_ns: compute * 1000 };
    Demand::Recorded { bursts: us.iter().map(burst).collect(), repeat: false }
}

/// Slices of 3 ms, ticks of 1 ms; A of weight 2 and B of weight 1 never sleep. In virtual ms, V the weighted average:
/// - 0: A was first (deadline 1.5). 3: A at 1.5 has used its slice; V = 1, A is ahead: B, protected up to 3.
/// - 6: B at 3; V = 2: A at 1.5, up to 3. 9: A at 3, V = 3: both are owed nothing, A's deadline of 4.5 comes before
///   B's of 6: A once more, but not protected any longer.
/// - 10: A at 3.5 is ahead of V = 3 1/3: B. 13: B at 6, V = 4 1/3: A, protected up to 4.5.
/// - 15: A at 4.5 again (V = 5, B at 6 is ahead), 18: again (6, 6, V = 6: 7.5 before 9). 19: A at 6.5, V = 6 1/3: B.
///
/// From 9 to 18 everything has moved on by 3: so it goes on.
#[test]
fn eevdf_two_to_one() {
    let vms = vec![vm("a", Demand::Hog).weight(200), vm("b", Demand::Hog)];
    let set = [("base_slice_us", 3000), ("tunable_scaling", 0), ("hz", 1000)];
    let ms: Vec<(u64, u32)> =
        on_one::<Eevdf>(vms, &set, 32).into_iter().map(|(us, v)| (us / 1000, v)).collect();
    assert_eq!(ms, [(0, 0), (3, 1), (6, 0), (10, 1), (13, 0), (19, 1), (22, 0), (28, 1), (31, 0)]);
}

/// The same slices, equal weights: who sleeps while it is ahead of the average stays in line until that has caught up,
/// and is then placed where it left.
/// - 0: A runs, alone until B begins to wait at 500 us: B is placed at V = 0.5, its deadline 3.5, A's 3. A is protected.
/// - 1,000: A at 1 sleeps; V = 0.75: it is ahead, and stays in line (delayed). B runs from 0.5 on.
/// - 1,200: A wakes; V = (1 + 0.7) / 2 = 0.85: still ahead, so it is as if it had not slept. B is protected.
/// - 4,000: the tick finds B at 3.5, its deadline; V = 2.25: A from 1 on.
/// - 4,300: A at 1.3 sleeps; V = 2.4: it is owed 1.1, and leaves. B runs alone.
/// - 5,300: A wakes, and is owed 1.1 again: B at 4.5 is V, A placed at 4.5 - 2.2 = 2.3, deadline 5.3, B's is 6.5. B's
///   slice was renewed at 4,000 and A took over since, so it is protected up to 6.5, but ahead of V = 3.4: A.
#[test]
fn eevdf_sleepers_take_their_lag_along() {
    let vms = vec![
        vm("a", bursts(&[(0, 1000), (200, 300), (1000, 400), (90_000, 1)])),
        vm("b", bursts(&[(500, 50_000)])),
    ];
    let set = [("base_slice_us", 3000), ("tunable_scaling", 0), ("hz", 1000)];
    let us = on_one::<Eevdf>(vms, &set, 7);
    assert_eq!(us, [(0, 0), (1000, 1), (4000, 0), (4300, 1), (5300, 0), (5700, 1)]);
}

const CFS: [(&str, u64); 2] = [("tunable_scaling", 0), ("hz", 1000)];

/// Periods of 6 ms: A of weight 2 has 4 of them, B 2; a slice is over at the first tick that finds *more* than that used,
/// so A runs 5 and B 3, each time the one with less virtual time: (A, B) is (2.5, 0) at 5, (2.5, 3) at 8, (5, 3) at 13,
/// (5, 6) at 16, (7.5, 6) at 21, (7.5, 9) at 24, (10, 9) at 29, (10, 12) at 32, (12.5, 12) at 37, (12.5, 15) at 40;
/// (15, 15) at 45: the one that waits goes first. (15, 18) at 48; at 53 A's slice is over, but at 17.5 it is still behind
/// B's 18 and goes on, its slice used: the next tick looks again, and 18 is not less than 18.
#[test]
fn cfs_two_to_one() {
    let vms = vec![vm("a", Demand::Hog).weight(200), vm("b", Demand::Hog)];
    let ms: Vec<u64> = on_one::<Cfs>(vms, &CFS, 56)
        .into_iter()
        .enumerate()
        .map(|(i, (us, v))| {
            assert_eq!(i as u32 % 2, v, "they take turns");
            us / 1000
        })
        .collect();
    assert_eq!(ms, [0, 5, 8, 13, 16, 21, 24, 29, 32, 37, 40, 45, 48, 54]);
}

/// B never sleeps; A wakes at
/// - 10: it is put at 10 - 3, half a period behind the least (B's own), 3 behind B: more than 1, it takes over.
/// - 13: it slept at 8, B is at 12: put at 9, 3 behind: takes over.
/// - 14.5: it slept at 10, B is at 12.5: 9.5 would be a gift, it stays at 10; 2.5 behind: takes over.
/// - 15.6: at 11, B at 12.6: takes over.
/// - 16.7: at 12, B at 12.7: 0.7 is not more than the granularity. B, that runs since 16.6, has 3 of the 6: the tick at
///   20 finds 3.4 used.
#[test]
fn cfs_sleepers_preempt_within_what_they_saved() {
    let a = bursts(&[(10_000, 1000), (2000, 1000), (500, 1000), (100, 1000), (100, 1000), (90_000, 1)]);
    let us = on_one::<Cfs>(vec![vm("a", a), vm("b", Demand::Hog)], &CFS, 30);
    let a_runs: Vec<u64> = us.iter().filter(|(_, v)| *v == 0).map(|(t, _)| *t).collect();
    assert_eq!(a_runs, [10_000, 13_000, 14_500, 15_600, 20_000]);
}

fn classed(name: &str, demand: Demand, class: SchedClass) -> VmSetup {
    let mut vm = vm(name, demand);
    vm.vcpus[0].class = Some(class);
    vm
}

/// Until 6.11: a tick that finds a FIFO task to have used more than 950 ms of a second takes it off its pCPU, until the
/// second is over and 950 ms are paid back. At 951 that is; then 1 ms of debt is left, and it lasts up to 1,950.
#[test]
fn cfs_throttles_real_time_tasks() {
    let rt = || classed("rt", Demand::Hog, SchedClass::Fifo(50));
    let us = on_one::<Cfs>(vec![rt(), vm("fair", Demand::Hog)], &CFS, 3000);
    let ms: Vec<(u64, u32)> = us.into_iter().map(|(t, v)| (t / 1000, v)).collect();
    assert_eq!(ms, [(0, 0), (951, 1), (1000, 0), (1950, 1), (2000, 0), (2950, 1)]);
    // Also where nobody else wants the pCPU; and not where it may have all of it.
    assert_eq!(on_one::<Cfs>(vec![rt()], &CFS, 1900), [(0, 0), (1_000_000, 0)]);
    let all = [CFS[0], CFS[1], ("sched_rt_runtime_us", 1_000_000)];
    assert_eq!(on_one::<Cfs>(vec![rt()], &all, 1900), [(0, 0)]);
}

/// Since 6.12: the fair class is served at the last moment of a second for 50 ms, and then every second for as long as it
/// gets nothing otherwise; a real-time task that nobody fair waits for is never stopped.
#[test]
fn eevdf_serves_the_fair_class() {
    let rt = || classed("rt", Demand::Hog, SchedClass::Fifo(50));
    let set = [("tunable_scaling", 0), ("hz", 1000)];
    let us = on_one::<Eevdf>(vec![rt(), vm("fair", Demand::Hog)], &set, 3000);
    let ms: Vec<(u64, u32)> = us.into_iter().map(|(t, v)| (t / 1000, v)).collect();
    assert_eq!(ms, [(0, 0), (950, 1), (1000, 0), (1950, 1), (2000, 0), (2950, 1)]);
    assert_eq!(on_one::<Eevdf>(vec![rt()], &set, 3000), [(0, 0)]);
}

/// Equals of SCHED_RR take turns of 100 ms, of SCHED_FIFO none; a higher one runs at once.
#[test]
fn real_time_equals_take_turns_or_not() {
    let set = [("hz", 1000)];
    let hogs = |class: fn(u8) -> SchedClass| {
        let higher = classed("higher", bursts(&[(250_000, 20_000)]), SchedClass::Fifo(2));
        vec![classed("a", Demand::Hog, class(1)), classed("b", Demand::Hog, class(1)), higher]
    };
    let ms = |class| -> Vec<(u64, u32)> {
        on_one::<Eevdf>(hogs(class), &set, 420).into_iter().map(|(t, v)| (t / 1000, v)).collect()
    };
    // The one that is interrupted at 250 goes on, and has half of its turn left.
    assert_eq!(ms(SchedClass::RoundRobin), [(0, 0), (100, 1), (200, 0), (250, 2), (270, 0), (320, 1)]);
    assert_eq!(ms(SchedClass::Fifo), [(0, 0), (250, 2), (270, 0)]);
}

/// Two pCPUs, priorities 50, 40 and, from 10 ms for 5 ms, 60. The 60 preempts the 50 where it wakes; the 50 is pushed to
/// where the 40 runs; when the 60 is done, its pCPU pulls the 40.
#[test]
fn real_time_tasks_are_pushed_and_pulled() {
    let vms = vec![
        classed("a", Demand::Hog, SchedClass::Fifo(50)),
        classed("b", Demand::Hog, SchedClass::Fifo(40)),
        classed("c", bursts(&[(10_000, 5000)]), SchedClass::Fifo(60)),
    ];
    let setup = Setup::new(machine(1, 1, 2, 1).unwrap(), vms, 1);
    let got = trace::<Eevdf>(&setup, &[], 100);
    assert_eq!(got, [(0, 0, 0), (0, 1, 1), (10_000, 0, 2), (10_000, 1, 0), (15_000, 0, 1)]);
}

/// A of weight 512 burns 1 credit per ns, B of 256 burns 2; both begin with 10 (in ms). At each decision (A, B):
/// - 0: A, nobody else waits: 10 ms. 10: (0, 10): B for the 5 ms that 10 credits are for it. 15: (0, 0): A is not worth
///   more, B stays and has none left: everybody gets 10; A waits with 10, so B gets the least, 0.5 ms.
/// - 15.5: (10, 9): A for 1 ms (1 more credit; the rate limit). 16.5: (9, 9): A stays, 0.5. 17: (8.5, 9): B, the rate
///   limit's 1 ms. 18: (8.5, 7): A for 1.5. 19.5: a tie, 0.5. 20: (6.5, 7): B for 1, and so on every 3 ms:
///   21, 23, 24, 26, 27, 29: (0.5, 1): B for 1.
/// - 30: (0.5, -1): A for 1. 31: (-0.5, -1): A stays, everybody gets 10: (9.5, 9), 0.5 ms. 31.5: a tie, 0.5.
/// - 32: (8.5, 9): B. 33: (8.5, 7): A.
#[test]
fn credit2_two_to_one() {
    let vms = vec![vm("a", Demand::Hog).weight(512), vm("b", Demand::Hog)];
    let us: Vec<u64> = on_one::<Credit2>(vms, &[], 34)
        .into_iter()
        .enumerate()
        .map(|(i, (us, v))| {
            assert_eq!(i as u32 % 2, v, "they take turns");
            us
        })
        .collect();
    let ms = [0, 10, 15, 17, 18, 20, 21, 23, 24, 26, 27, 29, 30, 32, 33].map(|ms| ms * 1000);
    assert_eq!(us[..2], ms[..2]);
    assert_eq!(us[2], 15_500);
    assert_eq!(us[3..], ms[3..]);
}

/// B never sleeps and renews its credit every 10 ms. A wakes at 12 with more credit: it interrupts B, which has run for
/// long. At 13.3 it has more again, but B has run for 0.3 ms: less than the rate limit and its tolerance. Nobody looks
/// again before B's slice is over: it got the 8 ms of its credit at 13.
#[test]
fn credit2_wakes_against_the_rate_limit() {
    let vms = || vec![vm("a", bursts(&[(12_000, 1000), (300, 1000)])), vm("b", Demand::Hog)];
    let us = on_one::<Credit2>(vms(), &[], 25);
    assert_eq!(us, [(0, 1), (12_000, 0), (13_000, 1), (21_000, 0), (22_000, 1)]);
    let us = on_one::<Credit2>(vms(), &[("ratelimit_us", 0)], 25);
    assert_eq!(us, [(0, 1), (12_000, 0), (13_000, 1), (13_300, 0), (14_300, 1)]);
}

fn reserved(name: &str, demand: Demand, us: (u64, u64), extra_time: bool) -> VmSetup {
    let mut vm = vm(name, demand);
    let (budget_ns, period_ns) = (us.0 * 1000, us.1 * 1000);
    vm.vcpus[0].reservation = Some(Reservation { budget_ns, period_ns, extra_time });
    vm
}

/// A has 3 ms in 10 and no extra time; its first deadline lies a slice ahead (3), it wakes before that, so that its
/// period begins then: 3 to 6, 13 to 16 and so on. B has the rest.
#[test]
fn sedf_reserves() {
    let vms = vec![reserved("a", Demand::Hog, (3000, 10_000), false), vm("b", Demand::Hog)];
    let us = on_one::<Sedf>(vms, &[], 25);
    assert_eq!(us, [(0, 1), (3000, 0), (6000, 1), (13_000, 0), (16_000, 1), (23_000, 0)]);
}

/// Extra time by weights 2 and 1, in quanta of 0.5 ms; who ran is put back with a score of 2^17 / weight (65,536 and
/// 131,072), the others lose what it had before. B wakes just after A began: its period begins before A's quantum is over,
/// so the pCPU looks again, and A's quantum of no time counts as one. Queue before each:
/// - 0: B 0, A 65,536. 0.5: A 65,536, B 131,072. 1: B and A 65,536, B was first.
/// - 1.5: A 0, B 131,072. 2: A 65,536, B 131,072. 2.5: as at 1, and from there every 1.5 ms.
#[test]
fn sedf_deals_extra_time_out_by_weight() {
    let vms = vec![vm("a", Demand::Hog).weight(2), vm("b", Demand::Hog)];
    let us = on_one::<Sedf>(vms, &[], 6);
    let expected = [
        (0, 0),
        (0, 1),
        (500, 0),
        (1000, 1),
        (1500, 0),
        (2500, 1),
        (3000, 0),
        (4000, 1),
        (4500, 0),
        (5500, 1),
    ];
    assert_eq!(us, expected);
}

/// A has 3 in 10 and extra time, C 4 in 20, B is best effort. All wake at 0, where deadlines lie a slice ahead, so that
/// they are inside a period: A's next begins at 3, C's at 4. What they did so far is extra time.
/// - 0: A, at once B, whose period begins now; A is put back at 10 / 3 (3,413). C, B's equal at 0, behind it.
/// - 0.5: C 0, A 3,413, B 131,072: C. 1: A, C 5,120: A. 1.5: C, less A's 3,413, is at 1,707: C. 2: A at 1,706: A, whose
///   1 ms is done at 2.5; it sleeps up to 5.5. C at 5,120 is ahead of B up to 4, where its slice begins.
/// - 5.5: A wakes inside its period (3 to 13): no slice before 13, but first in extra time, for it lost 3 of 10. C's slice
///   is not interrupted. 8: C's slice is used: A's penalty is paid with the 0.4 ms it wants.
#[test]
fn sedf_makes_up_for_blocking() {
    let vms = vec![
        reserved("a", bursts(&[(0, 1000), (3000, 400), (90_000, 1)]), (3000, 10_000), true),
        vm("b", Demand::Hog),
        reserved("c", Demand::Hog, (4000, 20_000), true),
    ];
    let us = on_one::<Sedf>(vms, &[], 9);
    let expected =
        [(0, 0), (0, 1), (500, 2), (1000, 0), (1500, 2), (2000, 0), (2500, 2), (8000, 0), (8400, 2)];
    assert_eq!(us, expected);
}

/// A VM of two hogs, one on each pCPU (vCPUs 0 and 1), and another hog (2) on the second: quanta of 10 ms.
fn pair_and_rival() -> Setup {
    let on = |p: u32| VcpuSetup::new(Demand::Hog).pinned(CpuSet::single(p));
    let vms = vec![VmSetup::new("pair", vec![on(0), on(1)]), VmSetup::new("rival", vec![on(1)])];
    Setup::new(machine(1, 1, 2, 1).unwrap(), vms, 1)
}

fn esxi(coscheduling: u64) -> Vec<(u64, u32, u32)> {
    let set = [("coscheduling", coscheduling), ("quantum_ms", 10)];
    trace::<Esxi>(&pair_and_rival(), &set, 45).into_iter().map(|(us, p, v)| (us / 1000, p, v)).collect()
}

/// Without co-scheduling vCPU 0 has its pCPU for itself.
#[test]
fn esxi_without_coscheduling() {
    assert_eq!(esxi(0), [(0, 0, 0), (0, 1, 1), (10, 1, 2), (20, 1, 1), (30, 1, 2), (40, 1, 1)]);
}

/// Relaxed: from 10 on vCPU 1 waits; at 13 its sibling is 3 ms ahead (13 to 10) and is co-stopped. At 20 the rival has
/// used as much as vCPU 1, which goes on; at 21 it has come to within 2 ms (11 to 13): co-start. At 30 they are at 22 and
/// 20, at 31 3 ms apart again; at 41 vCPU 1 is at 21.
#[test]
fn esxi_relaxed() {
    let expected =
        [(0, 0, 0), (0, 1, 1), (10, 1, 2), (20, 1, 1), (21, 0, 0), (30, 1, 2), (40, 1, 1), (41, 0, 0)];
    assert_eq!(esxi(2), expected);
}

/// Strict: at 13 vCPU 1 has waited for 3 ms while its sibling ran: both are co-stopped, and pCPU 0 idles until 20, when
/// there are pCPUs for both.
#[test]
fn esxi_strict() {
    let expected =
        [(0, 0, 0), (0, 1, 1), (10, 1, 2), (20, 1, 1), (20, 0, 0), (30, 1, 2), (40, 1, 1), (40, 0, 0)];
    assert_eq!(esxi(1), expected);
}

/// A sleeps for 45 ms, in which B's credit was renewed four times, and so was A's: cut off at 10.5 each time. At 45 it takes
/// over from B (10.5 to 5) for the 5.5 ms that it is ahead; 50.5: a tie, 0.5 more. 51: (4.5, 5): B, for 1 ms (the rate
/// limit), though A has 24 ms of work left. 52: (4.5, 4): A.
#[test]
fn credit2_sleepers_save_nothing_up() {
    let us = on_one::<Credit2>(vec![vm("a", bursts(&[(45_000, 30_000)])), vm("b", Demand::Hog)], &[], 60);
    assert_eq!(us[..4], [(0, 1), (45_000, 0), (51_000, 1), (52_000, 0)]);
}
