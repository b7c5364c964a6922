//! Does the simulator give the answers that can be worked out by hand?
//!
//! Each test states the law, then its exact or statistical bound. Where a law belongs to one policy it names it.

use vsteer_core::CpuSet;
use vsteer_core::topology::machine;
use vsteer_sim::engine::Stop;
use vsteer_sim::guest::{Demand, Times};
use vsteer_sim::policy::Values;
use vsteer_sim::sched::{POLICIES, Simulation, find};
use vsteer_sim::setup::{Setup, Vcpu, VcpuSetup, VmSetup};
use vsteer_sim::state::State;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

fn hog() -> VcpuSetup {
    VcpuSetup::new(Demand::Hog)
}

fn run(policy: &str, setup: &Setup, set: &[(&str, u64)], until_ns: u64) -> Box<dyn Simulation> {
    let entry = find(policy).unwrap();
    let mut values = Values::defaults(entry.about.parameters);
    set.iter().for_each(|(name, value)| values.set(name, *value).unwrap());
    let mut s = (entry.build)(setup, &values).unwrap();
    assert_eq!(s.run(until_ns, u64::MAX), Stop::Reached);
    s
}

/// The share of the time that vCPU `v` ran.
fn ran(s: &dyn Simulation, v: u32) -> f64 {
    s.account(Vcpu(v)).ns[State::Running as usize] as f64 / s.now_ns() as f64
}

fn near(what: &str, got: f64, law: f64, bound: f64) {
    assert!((got - law).abs() <= bound, "{what}: {got} where the law says {law} +- {bound}");
}

#[test]
fn equal_hogs_share_equally() {
    for entry in POLICIES.iter().filter(|e| e.about.proportional) {
        let name = entry.about.name;
        for (hogs, pcpus) in [(2, 1), (3, 1), (7, 1), (8, 4), (12, 4)] {
            let vms = (0..hogs).map(|i| VmSetup::new(format!("{i}"), vec![hog()])).collect();
            let s = run(name, &Setup::new(machine(1, 1, pcpus, 1).unwrap(), vms, 1), &[], 60 * S);
            let law = f64::from(pcpus) / f64::from(hogs);
            for v in 0..hogs {
                near(&format!("{name}: hog {v} of {hogs} on {pcpus}"), ran(&*s, v), law, 0.01);
            }
            let sum: f64 = (0..hogs).map(|v| ran(&*s, v)).sum();
            near(&format!("{name}: all pCPUs busy"), sum, f64::from(pcpus), 1e-9);
        }
    }
}

#[test]
fn weights_divide_one_pcpu() {
    for entry in POLICIES.iter().filter(|e| e.about.proportional) {
        let (name, w) = (entry.about.name, entry.about.default_weight);
        let vms = [1, 2, 3].map(|k| VmSetup::new(format!("x{k}"), vec![hog()]).weight(k * w)).to_vec();
        let s = run(name, &Setup::new(machine(1, 1, 1, 1).unwrap(), vms, 1), &[], 120 * S);
        for k in 1..=3u32 {
            near(&format!("{name}: weight {k} of 6"), ran(&*s, k - 1), f64::from(k) / 6.0, 0.01);
        }
    }
}

#[test]
fn caps_hold_and_are_reached() {
    for entry in POLICIES.iter().filter(|e| e.about.caps) {
        let name = entry.about.name;
        for cap in [10, 25, 50, 80] {
            let vms = vec![VmSetup::new("capped", vec![hog()]).cap_pct(cap)];
            let s = run(name, &Setup::new(machine(1, 1, 1, 1).unwrap(), vms, 1), &[], 60 * S);
            near(&format!("{name}: cap {cap} %"), ran(&*s, 0), f64::from(cap) / 100.0, 0.02);
            let limited = s.account(Vcpu(0)).ns[State::Limited as usize] as f64 / s.now_ns() as f64;
            near(&format!("{name}: the rest is limited, not ready"), limited, 1.0 - ran(&*s, 0), 0.001);
        }
    }
}

/// Measured on Xen 4.17 and explained by the source: credits are handed out per pool, so weights do not bind between
/// VMs that are pinned to one pCPU of several; in a pool of one pCPU they do.
#[test]
fn credit_weights_bind_per_pool_not_per_pin() {
    let pinned = |w: u32| VmSetup::new(format!("w{w}"), vec![hog().pinned(CpuSet::single(3))]).weight(w);
    let mut setup = Setup::new(machine(1, 1, 4, 1).unwrap(), vec![pinned(256), pinned(512)], 1);
    let s = run("credit", &setup, &[], 60 * S);
    near("pinned, 256", ran(&*s, 0), 0.5, 0.02);
    near("pinned, 512", ran(&*s, 1), 0.5, 0.02);
    setup.pools = vec![CpuSet::first(3), CpuSet::single(3)];
    setup.vms.iter_mut().for_each(|vm| vm.pool = 1);
    let s = run("credit", &setup, &[], 60 * S);
    near("pool of one, 256", ran(&*s, 0), 1.0 / 3.0, 0.01);
    near("pool of one, 512", ran(&*s, 1), 2.0 / 3.0, 0.01);
}

/// Kleinrock, Queueing Systems I: the mean wait of M/M/1 is rho / (mu - lambda), of M/D/1 half of it. A server alone
/// on its pCPU never waits for the scheduler, so its response time is that wait and the service.
#[test]
fn queues_wait_as_kleinrock_says() {
    // SEDF leaves the last 0.5 ms before a period of 100 ms to nobody: its servers wait for more than their queues.
    for entry in POLICIES.iter().filter(|e| e.about.name != "sedf") {
        let name = entry.about.name;
        for rho in [0.3, 0.6, 0.8] {
            let service_ns = MS;
            let between = Times::Exponential((service_ns as f64 / rho) as u64);
            let mm1 = Demand::Server { between, service: Times::Exponential(service_ns) };
            let md1 = Demand::Server { between, service: Times::Fixed(service_ns) };
            let vms = [mm1, md1].map(|d| VmSetup::new("server", vec![VcpuSetup::new(d)])).to_vec();
            let s = run(name, &Setup::new(machine(1, 1, 2, 1).unwrap(), vms, 7), &[], 400 * S);
            let wait = rho / (1.0 - rho);
            for (v, law) in [(0, 1.0 + wait), (1, 1.0 + wait / 2.0)] {
                let jobs = s.account(Vcpu(v)).jobs.unwrap();
                let mean_ms = jobs.response_ns as f64 / jobs.done as f64 / MS as f64;
                // Successive waits are correlated over some 1/(1-rho)^2 requests, which is what the sample is worth.
                let worth = jobs.done as f64 * (1.0 - rho) * (1.0 - rho);
                near(&format!("{name}, rho {rho}, server {v}"), mean_ms, law, 4.0 * law / worth.sqrt());
                assert_eq!(s.account(Vcpu(v)).ns[State::Ready as usize], 0, "{name}: it waits for nobody");
            }
        }
    }
}

/// A vCPU's burst takes its work divided by its speed, and a switch costs what was said.
#[test]
fn costs_are_paid_exactly() {
    for entry in POLICIES {
        let name = entry.about.name;
        let recorded = |ms: u64| {
            let bursts = vec![vsteer_sim::guest::Burst { sleep_ns: 5 * MS, compute_ns: ms * MS }];
            VcpuSetup::new(Demand::Recorded { bursts, repeat: false })
        };
        // Two threads of one core: 10 ms of work each at 600 of 1,000, plus the switch, slowed alike.
        let mut setup = Setup::new(
            machine(1, 1, 1, 2).unwrap(),
            vec![VmSetup::new("a", vec![recorded(10)]), VmSetup::new("b", vec![recorded(10)])],
            1,
        );
        setup.costs.smt_speed = 600;
        setup.costs.switch_ns = 6000;
        let s = run(name, &setup, &[], S);
        for v in 0..2 {
            let run_ns = s.account(Vcpu(v)).ns[State::Running as usize];
            assert_eq!(run_ns, (10 * MS + 6000) * 10 / 6 + 1, "{name}: rounded up to whole ns");
        }
        setup.vms.pop();
        let s = run(name, &setup, &[], S);
        assert_eq!(
            s.account(Vcpu(0)).ns[State::Running as usize],
            10 * MS + 6000,
            "{name}: full speed alone"
        );
        setup.costs.speed = 1600;
        let s = run(name, &setup, &[], S);
        assert_eq!(
            s.account(Vcpu(0)).ns[State::Running as usize],
            (10 * MS + 6000) * 1000 / 1600,
            "{name}: with a clock above the nominal one"
        );
    }
}
