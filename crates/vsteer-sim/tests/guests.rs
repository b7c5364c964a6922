//! Do guests that depend on each other behave as can be worked out by hand?
//!
//! Each test states the law. vCPUs alone on their pCPUs wait for no scheduler, so these laws hold under every policy; where
//! scheduling matters, the test names the policy.

use vsteer_core::CpuSet;
use vsteer_core::topology::machine;
use vsteer_sim::engine::Stop;
use vsteer_sim::guest::display::DisplaySpec;
use vsteer_sim::guest::driver::{Asked, ServedSpec};
use vsteer_sim::guest::lock::{LockSpec, Order};
use vsteer_sim::guest::poke::Waiting;
use vsteer_sim::guest::team::{LoopSpec, Schedule};
use vsteer_sim::guest::{Demand, Jobs, Times};
use vsteer_sim::policy::Values;
use vsteer_sim::sched::{POLICIES, Simulation, find};
use vsteer_sim::setup::{Setup, Vcpu, VcpuSetup, VmSetup};
use vsteer_sim::state::State;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Every policy but SEDF, which leaves the last 0.5 ms before a period of 100 ms to nobody.
fn policies() -> impl Iterator<Item = &'static str> {
    POLICIES.iter().map(|e| e.about.name).filter(|n| *n != "sedf")
}

fn run(policy: &str, pcpus: u32, vms: Vec<VmSetup>, until_ns: u64) -> Box<dyn Simulation> {
    let entry = find(policy).unwrap();
    let setup = Setup::new(machine(1, 1, pcpus, 1).unwrap(), vms, 1);
    let mut s = (entry.checked)(&setup, &Values::defaults(entry.about.parameters)).unwrap();
    assert_eq!(s.run(until_ns, u64::MAX), Stop::Reached);
    s
}

/// A VM whose vCPUs all have this demand, each pinned to a pCPU of its own.
fn pinned(name: &str, demand: &Demand, n: u32) -> VmSetup {
    let vcpu = |p| VcpuSetup::new(demand.clone()).pinned(CpuSet::single(p));
    VmSetup::new(name, (0..n).map(vcpu).collect())
}

fn free(name: &str, demand: &Demand, n: usize) -> VmSetup {
    VmSetup::new(name, vec![VcpuSetup::new(demand.clone()); n])
}

fn jobs(s: &dyn Simulation, v: u32) -> Jobs {
    s.account(Vcpu(v)).jobs.unwrap()
}

fn parallel(schedule: Schedule, iterations: u64, wait: Waiting) -> LoopSpec {
    LoopSpec {
        team: 0,
        iterations,
        work: Times::Fixed(MS),
        schedule,
        chunk: None,
        threads: None,
        overhead_ns: 0,
        wait,
        serial: None,
        pause: None,
    }
}

/// n equal threads on n pCPUs: a region takes what one thread takes, N/n iterations, whoever waits how.
#[test]
fn a_loop_is_as_fast_as_its_slowest_thread() {
    for policy in policies() {
        for wait in [Waiting::Spin, Waiting::Sleep, Waiting::SpinThenSleep(10 * US)] {
            for (schedule, iterations, takes_ms) in [
                (Schedule::Static, 40, 10),
                (Schedule::Static, 41, 11),
                (Schedule::Dynamic, 41, 11),
                (Schedule::Task, 40, 10),
            ] {
                let demand = Demand::Loop(Box::new(parallel(schedule, iterations, wait)));
                let s = run(policy, 4, vec![pinned("team", &demand, 4)], 2 * S);
                let jobs = jobs(&*s, 0);
                assert_eq!(jobs.response_ns, jobs.done * takes_ms * MS, "{policy} {schedule:?} {wait:?}");
                assert_eq!(jobs.done, (2 * S - 1) / (takes_ms * MS), "{policy} {schedule:?} {wait:?}");
            }
        }
    }
}

/// Two threads of 20 ms each on one pCPU: a region takes 40 ms if they sleep at the barrier. One that spins there keeps its
/// pCPU for the rest of its turn, 10 of Credit's 30 ms.
#[test]
fn spinning_at_a_barrier_costs_who_is_waited_for() {
    let mean_ms = |wait| {
        let demand = Demand::Loop(Box::new(parallel(Schedule::Static, 40, wait)));
        let s = run("credit", 1, vec![free("team", &demand, 2)], 20 * S);
        let jobs = jobs(&*s, 0);
        jobs.response_ns as f64 / jobs.done as f64 / MS as f64
    };
    let (sleeping, spinning) = (mean_ms(Waiting::Sleep), mean_ms(Waiting::Spin));
    assert!((sleeping - 40.0).abs() < 1e-3, "{sleeping}");
    assert!((44.0..56.0).contains(&spinning), "{spinning}");
}

/// A dynamic schedule leaves a thread that gets half a pCPU half of the work: 3 iterations in the time of 2 instead of
/// in the time of 2 / 0.5 and one by itself.
#[test]
fn a_dynamic_schedule_works_around_a_slow_thread() {
    let mean_ms = |schedule| {
        let demand = Demand::Loop(Box::new(parallel(schedule, 3000, Waiting::Sleep)));
        let hog = VmSetup::new("hog", vec![VcpuSetup::new(Demand::Hog).pinned(CpuSet::single(0))]);
        // One of those whose shares are per vCPU: under Linux a VM's weight is divided among its vCPUs.
        let s = run("bvt", 2, vec![pinned("team", &demand, 2), hog], 60 * S);
        let jobs = jobs(&*s, 0);
        jobs.response_ns as f64 / jobs.done as f64 / MS as f64
    };
    let (fixed, dynamic) = (mean_ms(Schedule::Static), mean_ms(Schedule::Dynamic));
    assert!((fixed - 3000.0).abs() < 60.0, "half of 3000 iterations at half speed: {fixed}");
    assert!((dynamic - 2000.0).abs() < 40.0, "3000 iterations at 1.5 pCPUs: {dynamic}");
}

fn lock(order: Order, wait: Waiting) -> Demand {
    let (outside, inside) = (Times::Fixed(50 * US), Times::Fixed(100 * US));
    Demand::Lock(Box::new(LockSpec { lock: 0, outside, sleep: None, inside, wait, order }))
}

/// Three vCPUs that spend a third of a turn outside: the lock is never free, so it passes on every 100 us, and each turn
/// is 100 us with it and two others' turns before, less the time outside.
#[test]
fn a_lock_in_demand_is_never_free_and_never_held_twice() {
    for policy in policies() {
        for order in [Order::Ticket, Order::Running] {
            let s = run(policy, 3, vec![pinned("vm", &lock(order, Waiting::Spin), 3)], S);
            let done: u64 = (0..3).map(|v| jobs(&*s, v).done).sum();
            // From the first moment that somebody wants it.
            assert_eq!(done, (S - 50 * US - 1) / (100 * US), "{policy} {order:?}");
            let last = jobs(&*s, 2);
            assert_eq!(
                last.response_max_ns,
                300 * US,
                "{policy} {order:?}: the first time all want it at once"
            );
            assert!(last.response_ns >= last.done * 250 * US, "{policy} {order:?}");
        }
    }
}

/// Four vCPUs on two pCPUs. A ticket lock passes to vCPUs that are not running, for whom all spin; one that passes to who
/// runs loses far less (Friebel and Biemueller 2008).
#[test]
fn a_preempted_holder_hurts_and_a_preempted_waiter_more() {
    let rate = |pcpus, order, wait| {
        let s = run("credit", pcpus, vec![free("vm", &lock(order, wait), 4)], 20 * S);
        (0..4).map(|v| jobs(&*s, v).done).sum::<u64>() as f64 / 20.0
    };
    let alone = rate(4, Order::Ticket, Waiting::Spin);
    let (ticket, running) = (rate(2, Order::Ticket, Waiting::Spin), rate(2, Order::Running, Waiting::Spin));
    let sleeping = rate(2, Order::Ticket, Waiting::Sleep);
    assert!((alone - 10_000.0).abs() < 10.0, "{alone}");
    assert!(ticket < 0.3 * alone, "{ticket}");
    assert!(running > 2.0 * ticket, "{running} against {ticket}");
    assert!(sleeping > 0.9 * alone, "{sleeping}");
}

/// Nobody waits for a pCPU: a response is the CPU time on its way (and a nanosecond of each of the two interrupts).
#[test]
fn a_request_takes_what_its_way_takes() {
    let served = Demand::Served(Box::new(ServedSpec {
        asked: Asked::Drawn { between: Times::Fixed(10 * MS), service: Times::Fixed(3 * MS) },
        driver: "dom0".into(),
        before: Times::Fixed(200 * US),
        after: Times::Fixed(300 * US),
        backlog: 10,
    }));
    for policy in policies() {
        let vms = vec![free("dom0", &Demand::Driver, 1), free("web", &served, 1)];
        let s = run(policy, 2, vms, S);
        let jobs = jobs(&*s, 1);
        assert_eq!((jobs.done, jobs.dropped), (99, 0), "{policy}");
        assert_eq!(jobs.response_ns, 99 * (3_500 * US + 2), "{policy}");
        assert_eq!(s.account(Vcpu(0)).jobs, None);
        // On one pCPU the two take turns, and nothing else changes but the switches between them.
        let vms = vec![free("dom0", &Demand::Driver, 1), free("web", &served, 1)];
        let s = run(policy, 1, vms, S);
        let one = s.account(Vcpu(1)).jobs.unwrap();
        assert!(one.response_ns >= jobs.response_ns && one.done >= 98, "{policy}: {one:?}");
    }
}

/// Beyond what it can serve, a server refuses: three times the load, a third done.
#[test]
fn an_overloaded_server_refuses() {
    let served = Demand::Served(Box::new(ServedSpec {
        asked: Asked::Drawn { between: Times::Fixed(MS), service: Times::Fixed(3 * MS) },
        driver: "dom0".into(),
        before: Times::Fixed(10 * US),
        after: Times::Fixed(10 * US),
        backlog: 10,
    }));
    let s = run("credit", 2, vec![free("dom0", &Demand::Driver, 1), free("web", &served, 1)], 30 * S);
    let jobs = jobs(&*s, 1);
    assert!((9_990..10_001).contains(&jobs.done), "{}", jobs.done);
    assert!((19_970..20_011).contains(&jobs.dropped), "{}", jobs.dropped);
    assert!(jobs.response_max_ns < 31 * MS, "ten wait at most: {}", jobs.response_max_ns);
}

/// 40 ms of work every 50: all frames alone; half a pCPU makes 12.5 frames a second of them.
#[test]
fn frames_go_by_the_cpu_that_is_left_for_them() {
    let spec = DisplaySpec {
        period_ns: 50 * MS,
        work: Times::Fixed(40 * MS),
        device: None,
        reset_ns: None,
        drop: false,
    };
    for policy in ["credit", "eevdf", "cfs", "bvt", "credit2"] {
        let s = run(policy, 1, vec![free("player", &Demand::Display(spec), 1)], 20 * S);
        let a = s.account(Vcpu(0));
        assert_eq!((a.frames, a.jobs.unwrap().late), (Some(400), 0), "{policy}");
        assert_eq!(a.sleeps.map(|s| (s.asked, s.asked_ns)), Some((400, 400 * 10 * MS)), "{policy}");
        let vms = vec![free("player", &Demand::Display(spec), 1), free("hog", &Demand::Hog, 1)];
        let frames = run(policy, 1, vms, 20 * S).account(Vcpu(0)).frames.unwrap();
        assert!((246..254).contains(&frames), "{policy}: {frames}");
    }
}

/// A guest that polls is a hog to the hypervisor; alone, its sleeps last as long as they should.
#[test]
fn a_guest_that_polls_keeps_its_pcpu() {
    let sleeps = Demand::SleepCompute { sleep: Times::Fixed(30 * MS), compute: Times::Fixed(10 * MS) };
    let polling = |name: &str| {
        let mut vm = free(name, &sleeps, 1);
        vm.vcpus[0].polls = true;
        vm
    };
    for policy in policies().filter(|p| *p != "rtds") {
        let s = run(policy, 1, vec![polling("a")], 4 * S);
        let a = s.account(Vcpu(0));
        assert_eq!(a.ns[State::Running as usize], 4 * S, "{policy}");
        let seen = a.sleeps.unwrap();
        assert_eq!((seen.seen, seen.took_ns), (100, 100 * 30 * MS), "{policy}");
        assert_eq!(seen.cycle_ns, 99 * 40 * MS, "{policy}");
    }
    // Two of them take turns of 50 ms: 40 ms a round alone, and more where a turn of the other falls into it.
    let entry = find("bvt").unwrap();
    let mut values = Values::defaults(entry.about.parameters);
    values.set("ctx_allow_us", 50_000).unwrap();
    let setup = Setup::new(machine(1, 1, 1, 1).unwrap(), vec![polling("a"), polling("b")], 1);
    let mut s = (entry.checked)(&setup, &values).unwrap();
    s.run(10 * S, u64::MAX);
    for v in 0..2 {
        let a = s.account(Vcpu(v));
        let share = a.ns[State::Running as usize] as f64 / 10e9;
        assert!((share - 0.5).abs() < 0.01, "{share}");
        assert!(a.sleeps.unwrap().took.quantile_ns(0.99).unwrap() > 50e6);
    }
}

#[test]
fn members_that_do_not_fit_together_are_refused() {
    let entry = find("credit").unwrap();
    let refused = |vms: Vec<VmSetup>| {
        let setup = Setup::new(machine(1, 1, 1, 1).unwrap(), vms, 1);
        let built = (entry.build)(&setup, &Values::defaults(entry.about.parameters));
        built.err().unwrap_or_else(|| panic!("{setup:?}")).to_string()
    };
    let one = parallel(Schedule::Static, 10, Waiting::Spin);
    let other = LoopSpec { iterations: 11, ..one.clone() };
    let vcpus = [one, other].map(|s| VcpuSetup::new(Demand::Loop(Box::new(s))));
    assert!(refused(vec![VmSetup::new("vm", vcpus.to_vec())]).contains("vCPU 1: team 0"));
    let served = Demand::Served(Box::new(ServedSpec {
        asked: Asked::Drawn { between: Times::Fixed(MS), service: Times::Fixed(MS) },
        driver: "dom0".into(),
        before: Times::Fixed(MS),
        after: Times::Fixed(MS),
        backlog: 0,
    }));
    assert!(refused(vec![free("web", &served, 1)]).contains("backlog is 0"));
    let Demand::Served(mut spec) = served else { unreachable!() };
    spec.backlog = 1;
    let through = refused(vec![free("web", &Demand::Served(spec), 1)]);
    assert!(through.contains("\"dom0\""), "{through}");
}
