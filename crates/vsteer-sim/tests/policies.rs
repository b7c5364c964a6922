//! Does each scheduler do what its theory or its source says, to the nanosecond where that can be worked out?

use vsteer_core::nouns::Quota;
use vsteer_core::random::Random;
use vsteer_core::topology::machine;
use vsteer_sim::account::Account;
use vsteer_sim::engine::Stop;
use vsteer_sim::guest::{Burst, Demand, Times};
use vsteer_sim::policy::Values;
use vsteer_sim::sched::find;
use vsteer_sim::setup::{Reservation, Setup, Vcpu, VcpuSetup, VmSetup, Warp};
use vsteer_sim::state::State;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Every vCPU's account after `until_ns` of these VMs on `pcpus` pCPUs under the policy's defaults but for `set`.
fn run(policy: &str, pcpus: u32, vms: Vec<VmSetup>, set: &[(&str, u64)], until_ns: u64) -> Vec<Account> {
    let entry = find(policy).unwrap();
    let mut values = Values::defaults(entry.about.parameters);
    set.iter().for_each(|(name, value)| values.set(name, *value).unwrap());
    let setup = Setup::new(machine(1, 1, pcpus, 1).unwrap(), vms, 1);
    let mut s = (entry.checked)(&setup, &values).unwrap();
    assert_eq!(s.run(until_ns, u64::MAX), Stop::Reached);
    (0..s.host().vcpus.len() as u32).map(|v| s.account(Vcpu(v))).collect()
}

fn one(demand: Demand) -> VmSetup {
    VmSetup::new("vm", vec![VcpuSetup::new(demand)])
}

fn periodic(work_ms: u64, period_ms: u64) -> Demand {
    Demand::Periodic { period_ns: period_ms * MS, offset_ns: Some(0), work: Times::Fixed(work_ms * MS) }
}

fn ran(a: &Account) -> u64 {
    a.ns[State::Running as usize]
}

fn reserved(work_ms: u64, period_ms: u64) -> VmSetup {
    let mut vm = one(periodic(work_ms, period_ms));
    let (budget_ns, period_ns) = (work_ms * MS, period_ms * MS);
    vm.vcpus[0].reservation = Some(Reservation { budget_ns, period_ns, extra_time: false });
    vm
}

/// Liu and Layland 1973: under EDF on one processor, reservations that sum to no more than 1 meet every deadline.
#[test]
fn edf_meets_every_deadline_up_to_full_load() {
    let mut random = Random::new(11, 0);
    for case in 0..30 {
        let (mut left, mut sets) = (1.0, Vec::new());
        for _ in 0..6 {
            let period_ms = [4, 5, 8, 10, 16, 20][random.within(0, 5) as usize];
            let work_ms = random.within(1, period_ms);
            let share = work_ms as f64 / period_ms as f64;
            if share <= left + 1e-9 {
                left -= share;
                sets.push((work_ms, period_ms));
            }
        }
        let vms = sets.iter().map(|(w, p)| reserved(*w, *p)).collect();
        for (a, set) in run("rtds", 1, vms, &[], 2 * S + MS).iter().zip(&sets) {
            let jobs = a.jobs.as_ref().unwrap();
            assert_eq!(jobs.late, 0, "case {case}: {set:?} of {sets:?}");
            assert_eq!(jobs.done, 2000 / set.1, "case {case}: {set:?} of {sets:?}");
        }
    }
    let full = run("rtds", 1, vec![reserved(2, 4), reserved(3, 6)], &[], 12 * S);
    assert!(full.iter().all(|a| a.jobs.as_ref().unwrap().late == 0), "exactly 1");
    let over = run("rtds", 1, vec![reserved(3, 5), reserved(3, 5)], &[], S);
    assert!(over.iter().any(|a| a.jobs.as_ref().unwrap().late > 0), "1.2 cannot be met");
}

#[test]
fn a_budget_is_what_a_hog_gets_and_no_more() {
    let mut vm = one(Demand::Hog);
    vm.vcpus[0].reservation = Some(Reservation { budget_ns: 3 * MS, period_ns: 10 * MS, extra_time: false });
    let a = &run("rtds", 1, vec![vm], &[], S)[0];
    assert_eq!(ran(a), 300 * MS);
    assert_eq!(a.ns[State::Limited as usize], 700 * MS, "held by its reservation, not ready");
}

/// Joseph and Pandya 1986: with fixed priorities, the longest response is the least fixed point of
/// R = C + sum over the more important of ceil(R / T) C, reached when all are released at once.
#[test]
fn fixed_priorities_have_the_response_of_joseph_and_pandya() {
    let sets = [(1u64, 4u64), (2, 6), (1, 10), (3, 26)];
    let vms = sets.iter().enumerate().map(|(i, (w, p))| one(periodic(*w, *p)).weight(90 - i as u32));
    let accounts = run("priority", 1, vms.collect(), &[], 20 * S);
    for (i, (work, _)) in sets.iter().enumerate() {
        let (mut response, mut before) = (*work, 0);
        while response != before {
            before = response;
            response = work + sets[..i].iter().map(|(w, p)| before.div_ceil(*p) * w).sum::<u64>();
        }
        assert_eq!(accounts[i].jobs.as_ref().unwrap().response_max_ns, response * MS, "task {i}");
    }
}

#[test]
fn equals_take_turns_or_wait_for_the_first() {
    let hogs = || vec![one(Demand::Hog), one(Demand::Hog)];
    let turns = run("priority", 1, hogs(), &[("slice_us", 10_000)], S);
    assert_eq!(turns.iter().map(ran).collect::<Vec<_>>(), [500 * MS, 500 * MS]);
    let fifo = run("priority", 1, hogs(), &[("slice_us", 0)], S);
    assert_eq!(fifo.iter().map(ran).collect::<Vec<_>>(), [S, 0]);
}

#[test]
fn bvt_turns_last_the_allowance() {
    let a = run("bvt", 1, vec![one(Demand::Hog), one(Demand::Hog)], &[], 10 * S);
    for a in &a {
        assert!((998..=1002).contains(&a.switches), "10 s in turns of 5 ms for two: {}", a.switches);
    }
}

/// A vCPU that wakes runs at once when its virtual time is behind; a warp lends it what it lacks.
#[test]
fn a_warp_buys_latency_and_not_share() {
    let sleeper =
        || one(Demand::Periodic { period_ns: 31 * MS, offset_ns: Some(0), work: Times::Fixed(9 * MS) });
    let plain = run("bvt", 1, vec![sleeper(), one(Demand::Hog), one(Demand::Hog)], &[], 30 * S);
    let mut warped = sleeper();
    warped.warp = Some(Warp { value_ns: 500 * MS, limit_ns: 0, unwarp_ns: 0 });
    let warped = run("bvt", 1, vec![warped, one(Demand::Hog), one(Demand::Hog)], &[], 30 * S);
    let response = |a: &Account| a.jobs.as_ref().unwrap().response_max_ns;
    assert_eq!(response(&warped[0]), 9 * MS, "nobody comes before it");
    assert!(response(&plain[0]) > 12 * MS, "{}", response(&plain[0]));
    // It wants 29 % of a pCPU, less than its third: it gets that either way.
    let shares = [&plain[0], &warped[0]].map(|a| ran(a) as f64 / (30 * S) as f64);
    assert!(shares.iter().all(|s| (s - 9.0 / 31.0).abs() < 0.005), "{shares:?}");
}

/// Slices end at ticks: of two hogs on one pCPU at 250 Hz, each asks for 0.7 ms and gets 4.
#[test]
fn eevdf_slices_end_at_ticks() {
    for (hz, turn_ms) in [(250, 4.0), (1000, 1.0), (100, 10.0)] {
        let a = run("eevdf", 1, vec![one(Demand::Hog), one(Demand::Hog)], &[("hz", hz)], 8 * S);
        for a in &a {
            let turns = 8000.0 / turn_ms / 2.0;
            let got = a.switches as f64;
            assert!((got - turns).abs() < 0.02 * turns, "{hz} Hz: {got} turns, not {turns}");
        }
    }
}

/// A VM's weight counts once, however many vCPUs it has.
#[test]
fn linux_groups_share_before_their_vcpus() {
    for policy in ["eevdf", "cfs"] {
        let many = VmSetup::new("four", vec![VcpuSetup::new(Demand::Hog); 4]);
        let a = run(policy, 1, vec![many, one(Demand::Hog)], &[], 40 * S);
        for (v, share) in [(0, 0.125), (3, 0.125), (4, 0.5)] {
            let got = ran(&a[v]) as f64 / (40 * S) as f64;
            assert!((got - share).abs() < 0.01, "{policy}: vCPU {v}: {got}, not {share}");
        }
    }
}

#[test]
fn linux_quotas_hold_and_are_reached() {
    let limit = |quota_us, period_us| Some(Quota { quota_us, period_us });
    let cases = [(1u32, 20_000, 100_000), (1, 5_000, 10_000), (4, 150_000, 100_000)];
    for (policy, (vcpus, quota_us, period_us)) in
        ["eevdf", "cfs"].iter().flat_map(|p| cases.iter().map(move |c| (*p, *c)))
    {
        let mut vm = VmSetup::new("limited", vec![VcpuSetup::new(Demand::Hog); vcpus as usize]);
        vm.quota = limit(quota_us, period_us);
        let a = run(policy, 4, vec![vm], &[], 20 * S);
        let sum = a.iter().map(ran).sum::<u64>() as f64 / (20 * S) as f64;
        let law = quota_us as f64 / period_us as f64;
        assert!(
            (sum - law).abs() < 0.03 * law,
            "{policy}: {vcpus} vCPUs, {quota_us}/{period_us}: {sum}, not {law}"
        );
        let limited: u64 = a.iter().map(|a| a.ns[State::Limited as usize]).sum();
        let rest = f64::from(vcpus) - sum;
        let limited = limited as f64 / (20 * S) as f64;
        assert!((limited - rest).abs() < 0.03 * rest, "{policy}: the rest is limited: {limited}, not {rest}");
    }
}

/// A sleeper that uses less than its share is owed when it wakes; it waits for the end of the running slice at most.
#[test]
fn eevdf_sleepers_wait_a_slice_at_most() {
    let sleeper =
        one(Demand::SleepCompute { sleep: Times::Exponential(30 * MS), compute: Times::Fixed(MS / 2) });
    let a = run("eevdf", 1, vec![sleeper, one(Demand::Hog)], &[], 60 * S);
    let worst = a[0].wake_latency.quantile_ns(1.0).unwrap();
    // The tick may come just before 0.7 ms are over: two ticks, and the width of a bucket.
    assert!(worst < 9.0e6, "{worst} ns");
}

/// Xen's rate limit: a vCPU that got a pCPU keeps it for 1 ms, whoever wakes; without it a BOOSTed one runs at once.
#[test]
fn credit_boost_waits_for_the_rate_limit() {
    let sleeper =
        || one(Demand::SleepCompute { sleep: Times::Exponential(7 * MS), compute: Times::Fixed(MS / 10) });
    let vms = || vec![sleeper(), one(Demand::Hog)];
    let worst = |set: &[(&str, u64)]| {
        let a = run("credit", 1, vms(), set, 60 * S);
        a[0].wake_latency.quantile_ns(0.99).unwrap()
    };
    let (limited, unlimited) = (worst(&[]), worst(&[("ratelimit_us", 0)]));
    assert!(unlimited <= 1152.0, "{unlimited} ns: the lowest bucket");
    assert!((0.3e6..1.2e6).contains(&limited), "{limited} ns");
}

/// Two sockets of two pCPUs; two vCPUs that end after a second leave one hog on one and three on the other. Credit2 evens
/// its queues out when credits are renewed: from then on each hog has a pCPU.
#[test]
fn credit2_evens_its_queues_out() {
    let ends = |ms: u64| {
        let bursts = vec![Burst { sleep_ns: 0, compute_ns: ms * MS }];
        one(Demand::Recorded { bursts, repeat: false })
    };
    let hog = || one(Demand::Hog);
    let vms = vec![ends(700), hog(), ends(700), hog(), hog(), hog()];
    let entry = find("credit2").unwrap();
    let setup = Setup::new(machine(2, 1, 2, 1).unwrap(), vms, 1);
    let mut s = (entry.checked)(&setup, &Values::defaults(entry.about.parameters)).unwrap();
    s.run(3 * S, u64::MAX);
    let before: Vec<u64> = (0..6).map(|v| ran(&s.account(Vcpu(v)))).collect();
    s.run(5 * S, u64::MAX);
    let later: Vec<u64> = (0..6).map(|v| ran(&s.account(Vcpu(v))) - before[v as usize]).collect();
    assert_eq!(later, [0, 2 * S, 0, 2 * S, 2 * S, 2 * S]);
}

/// Four pCPUs, a VM of four hogs and one of two. Strict co-scheduling runs the one or the other, and two pCPUs idle
/// beside the second; relaxed, no pCPU ever idles and everybody gets two thirds.
#[test]
fn strict_coscheduling_wastes_what_relaxed_uses() {
    let vms = || [4, 2].map(|n| VmSetup::new("vm", vec![VcpuSetup::new(Demand::Hog); n])).to_vec();
    let strict = run("esxi", 4, vms(), &[("coscheduling", 1)], 20 * S);
    let relaxed = run("esxi", 4, vms(), &[], 20 * S);
    let share = |a: &[Account]| a.iter().map(ran).sum::<u64>() as f64 / (80 * S) as f64;
    let stopped = |a: &Account| a.ns[State::CoStopped as usize] as f64 / (20 * S) as f64;
    assert_eq!(share(&relaxed), 1.0);
    assert!(
        relaxed.iter().all(|a| (ran(a) as f64 / (20 * S) as f64 - 2.0 / 3.0).abs() < 0.05),
        "{relaxed:?}"
    );
    assert!((0.6..0.9).contains(&share(&strict)), "{}", share(&strict));
    assert!(stopped(&strict[0]) > 0.2, "{}", stopped(&strict[0]));
}

/// VIT: 40 ms of work every 100, beside a hog. BVT alone lets both take turns of 5 ms, so the work takes almost twice as
/// long; warped from the tick that finds its timer expired, it is done in one go. Either way it gets the 40 % it wants,
/// and the hog the rest.
#[test]
fn vit_buys_latency_and_not_share() {
    let work = |offset_ms: u64, vit: bool| {
        let mut vm = one(Demand::Periodic {
            period_ns: 100 * MS,
            offset_ns: Some(offset_ms * MS),
            work: Times::Fixed(40 * MS),
        });
        vm.vit = vit;
        vm
    };
    let responses = |offset_ms, vit| {
        let a = run("bvt", 1, vec![work(offset_ms, vit), one(Demand::Hog)], &[], 30 * S);
        let shares = [0, 1].map(|v| ran(&a[v]) as f64 / (30 * S) as f64);
        assert!((shares[0] - 0.4).abs() < 0.01 && (shares[1] - 0.6).abs() < 0.01, "{shares:?}");
        a[0].jobs.as_ref().unwrap().response_max_ns
    };
    assert_eq!(responses(0, true), 40 * MS, "its timers expire at ticks");
    assert!(responses(0, false) > 70 * MS, "{}", responses(0, false));
    // 7 ms before a tick it waits its turn, up to there.
    let late = responses(3, true);
    assert!((40 * MS..=47 * MS).contains(&late), "{late}");
}

/// Two timers expire at the same ticks. Who asked first runs first, though it uses three times as much: 30 ms of work at once, then
/// the other's 10 ms, then the hog.
#[test]
fn of_timers_that_expire_together_the_first_asked_for_is_first() {
    let work = |offset_ms: u64, work_ms: u64| {
        let mut vm = one(Demand::Periodic {
            period_ns: 100 * MS,
            offset_ns: Some(offset_ms * MS),
            work: Times::Fixed(work_ms * MS),
        });
        vm.vit = true;
        vm
    };
    let a = run("bvt", 1, vec![work(100, 10), work(0, 30), one(Demand::Hog)], &[], 30 * S);
    let slowest = [0, 1].map(|v: usize| a[v].jobs.as_ref().unwrap().response_max_ns);
    assert_eq!(slowest, [40 * MS, 30 * MS]);
}

/// What is borrowed is bounded: one that wants 80 % beside a hog gets its half, whatever it asks for.
#[test]
fn vit_cannot_take_more_than_it_may_borrow() {
    let greedy = |vit: bool| {
        let mut vm =
            one(Demand::SleepCompute { sleep: Times::Fixed(5 * MS), compute: Times::Fixed(20 * MS) });
        vm.vit = vit;
        vm
    };
    for (vit, most) in [(false, 0.51), (true, 0.54)] {
        let a = run("bvt", 1, vec![greedy(vit), one(Demand::Hog)], &[], 30 * S);
        let share = ran(&a[0]) as f64 / (30 * S) as f64;
        assert!(share > 0.4 && share < most, "{vit}: {share}");
    }
}
