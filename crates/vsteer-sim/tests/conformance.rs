//! Does every scheduler keep to what no machine can break, whatever the load?
//!
//! Random hosts (sockets, nodes, threads, pools, pins, caps, weights, groups, demands of every kind, costs), each from
//! one printed seed, run under every policy with all invariants checked at every event; and the same input twice must
//! give the same output, also when it is run in pieces. `VSTEER_SIM_SEEDS=1000` runs more of them.

use vsteer_core::CpuSet;
use vsteer_core::nouns::{Quota, SchedClass};
use vsteer_core::random::Random;
use vsteer_core::topology::NodeId;
use vsteer_core::topology::machine;
use vsteer_sim::engine::Stop;
use vsteer_sim::guest::display::DisplaySpec;
use vsteer_sim::guest::driver::{Asked, ServedSpec};
use vsteer_sim::guest::lock::{LockSpec, Order};
use vsteer_sim::guest::poke::Waiting;
use vsteer_sim::guest::team::{LoopSpec, Pause, Schedule};
use vsteer_sim::guest::{Burst, Demand, Times};
use vsteer_sim::policy::{About, Values};
use vsteer_sim::sched::{Entry, POLICIES, Simulation};
use vsteer_sim::setup::{Costs, GroupSetup, Reservation, Setup, Vcpu, VcpuSetup, Vm, VmSetup, Warp};
use vsteer_sim::state::State;

const MS: u64 = 1_000_000;
/// Long enough for thirty accounting periods of Credit.
const RUN_NS: u64 = 900 * MS;

struct Dice(Random);

impl Dice {
    fn upto(&mut self, n: u64) -> u64 {
        self.0.within(0, n)
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.0.within(1, n) == 1
    }
    fn time(&mut self) -> Times {
        let size = 10 + self.upto(14);
        let ns = MS / 50 + self.upto(1 << size);
        match self.upto(2) {
            0 => Times::Fixed(ns),
            1 => Times::Exponential(ns),
            _ => Times::Uniform(ns / 2, ns),
        }
    }
    fn demand(&mut self) -> Demand {
        match self.upto(10) {
            10 => Demand::Display(DisplaySpec {
                period_ns: [10, 16, 50][self.upto(2) as usize] * MS,
                work: self.time(),
                device: self.one_in(2).then(|| self.time()),
                reset_ns: self.one_in(2).then(|| self.upto(100 * MS)),
                drop: self.one_in(2),
            }),
            9 => {
                let sleeps = Demand::SleepCompute { sleep: self.time(), compute: self.time() };
                Demand::Ticked { tick_ns: [1, 4, 10][self.upto(2) as usize] * MS, demand: Box::new(sleeps) }
            }
            0 => Demand::Idle,
            1 | 2 => Demand::Hog,
            3 | 4 => Demand::SleepCompute { sleep: self.time(), compute: self.time() },
            5 => Demand::Periodic {
                // Round numbers, so that events of several vCPUs and ticks fall on the same instant.
                period_ns: [5, 10, 16, 30][self.upto(3) as usize] * MS,
                offset_ns: Some(self.upto(3) * 5 * MS),
                work: self.time(),
            },
            6 => Demand::Server { between: self.time(), service: self.time() },
            7 => Demand::OnOff {
                on: Times::Fixed(40 * MS),
                off: self.time(),
                compute: self.time(),
                sleep: self.time(),
            },
            _ => {
                let burst = |d: &mut Dice| Burst { sleep_ns: d.upto(5 * MS), compute_ns: 1 + d.upto(9 * MS) };
                let n = 1 + self.upto(5);
                Demand::Recorded { bursts: (0..n).map(|_| burst(self)).collect(), repeat: self.one_in(2) }
            }
        }
    }
    fn waiting(&mut self) -> Waiting {
        match self.upto(2) {
            0 => Waiting::Spin,
            1 => Waiting::Sleep,
            _ => Waiting::SpinThenSleep(1 + self.upto(MS)),
        }
    }
    /// One for all vCPUs of a VM, which depend on each other by it or on a driver.
    fn linked(&mut self, driver: &str) -> Demand {
        match self.upto(2) {
            0 => Demand::Loop(Box::new(LoopSpec {
                team: 0,
                iterations: 1 + self.upto(30),
                work: self.time(),
                schedule: [Schedule::Static, Schedule::Dynamic, Schedule::Task][self.upto(2) as usize],
                chunk: self.one_in(2).then(|| 1 + self.upto(7)),
                threads: self.one_in(2).then(|| 1 + self.upto(7) as u32),
                overhead_ns: self.upto(5000),
                wait: self.waiting(),
                serial: self.one_in(2).then(|| self.time()),
                pause: match self.upto(3) {
                    0 => None,
                    1 => Some(Pause::For(self.time())),
                    2 => Some(Pause::Every(Times::Fixed([10, 16, 30][self.upto(2) as usize] * MS))),
                    _ => Some(Pause::Every(self.time())),
                },
            })),
            1 => Demand::Lock(Box::new(LockSpec {
                lock: 0,
                outside: self.time(),
                sleep: self.one_in(2).then(|| self.time()),
                inside: self.time(),
                wait: self.waiting(),
                order: if self.one_in(2) { Order::Ticket } else { Order::Running },
            })),
            _ => Demand::Served(Box::new(ServedSpec {
                asked: Asked::Drawn { between: self.time(), service: self.time() },
                driver: driver.into(),
                before: self.time(),
                after: self.time(),
                backlog: 1 + self.upto(20) as u32,
            })),
        }
    }
    fn some_of(&mut self, pcpus: &CpuSet) -> CpuSet {
        let all: Vec<u32> = pcpus.iter().collect();
        let mut set: CpuSet = all.iter().copied().filter(|_| self.one_in(2)).collect();
        set.insert(all[self.upto(all.len() as u64 - 1) as usize]);
        set
    }
    fn quota(&mut self) -> Quota {
        let period_us = [10_000, 20_000, 100_000][self.upto(2) as usize];
        Quota { quota_us: 1000 + self.upto(2 * period_us), period_us }
    }
    /// Either no pools or two.
    fn pools(&mut self, all: &CpuSet) -> Vec<CpuSet> {
        match all.len() {
            n if n > 2 && self.one_in(3) => {
                let cut = 1 + self.upto(n as u64 - 2) as u32;
                vec![CpuSet::first(cut), all.difference(&CpuSet::first(cut))]
            }
            _ => Vec::new(),
        }
    }
    fn groups(&mut self, about: &About) -> Vec<GroupSetup> {
        let n = self.upto(2);
        let group = |i| GroupSetup {
            name: format!("g{i}"),
            parent: if i > 0 && self.one_in(2) { Some(0) } else { None },
            weight: None,
            quota: if about.quotas && self.one_in(3) { Some(self.quota()) } else { None },
        };
        (0..n).map(group).collect()
    }
    fn class(&mut self) -> SchedClass {
        match self.upto(5) {
            0 => SchedClass::Other(self.upto(39) as i8 - 20),
            1 => SchedClass::Batch(self.upto(39) as i8 - 20),
            2 => SchedClass::Idle,
            3 => SchedClass::RoundRobin(1 + self.upto(3) as u8),
            _ => SchedClass::Fifo(1 + self.upto(3) as u8),
        }
    }
    /// Properties of a vCPU apart from its demand, on a host with these pCPUs, some of which are its pool's.
    fn vcpu(&mut self, demand: Demand, about: &About, all: &CpuSet, in_pool: &CpuSet) -> VcpuSetup {
        let mut v = VcpuSetup::new(demand);
        v.polls = self.one_in(6);
        v.affinity = self.one_in(4).then(|| self.some_of(in_pool));
        v.soft_affinity = self.one_in(4).then(|| self.some_of(all));
        v.from_ns = if self.one_in(4) { self.upto(200 * MS) } else { 0 };
        v.quota = (about.quotas && self.one_in(5)).then(|| self.quota());
        v.class = (about.classes && self.one_in(4)).then(|| self.class());
        v.reservation = self.one_in(2).then(|| Reservation {
            budget_ns: 1 + self.upto(4 * MS),
            period_ns: 10 * MS,
            extra_time: self.one_in(2),
        });
        v
    }
    /// The VM with this number on a host of these pCPUs and pools.
    fn vm(&mut self, i: u64, about: &About, all: &CpuSet, pools: &[CpuSet]) -> VmSetup {
        let pool = self.upto(pools.len().max(1) as u64 - 1) as usize;
        let in_pool = pools.get(pool).unwrap_or(all);
        // The first VM is every other one's driver domain.
        let shared = (i > 0 && self.one_in(3)).then(|| self.linked("vm0"));
        let n = 1 + self.upto(3);
        let vcpu = |k| {
            let demand = match &shared {
                Some(shared) => shared.clone(),
                None if i == 0 && k == 0 => Demand::Driver,
                None => self.demand(),
            };
            self.vcpu(demand, about, all, in_pool)
        };
        let vcpus = (0..n).map(vcpu).collect();
        let mut vm = VmSetup::new(format!("vm{i}"), vcpus);
        vm.pool = pool;
        if about.default_weight > 0 && self.one_in(2) {
            let (least, most) = about.weights;
            vm.weight = Some(
                (about.default_weight / 4 + self.upto(4 * u64::from(about.default_weight)) as u32)
                    .clamp(least, most),
            );
        }
        vm.cap_pct = (about.caps && self.one_in(3)).then(|| 1 + self.upto(250) as u32);
        vm.quota = (about.quotas && self.one_in(4)).then(|| self.quota());
        vm.vit = self.one_in(3);
        vm.warp = self.one_in(4).then(|| Warp {
            value_ns: self.upto(50) * MS,
            limit_ns: self.upto(3) * 5 * MS,
            unwarp_ns: self.upto(3) * 5 * MS,
        });
        vm
    }
    fn costs(&mut self) -> Costs {
        Costs {
            switch_ns: self.upto(5000),
            cold_core_ns: self.upto(20_000),
            cold_llc_ns: self.upto(100_000),
            remote_speed: 1000 - self.upto(400) as u32,
            smt_speed: 1000 - self.upto(400) as u32,
            capacity: false,
            speed: 1500 - self.upto(1000) as u32,
        }
    }
}

/// A host that this policy accepts, from a seed.
fn random_setup(seed: u64, about: &About) -> Setup {
    let mut d = Dice(Random::new(seed, 1 << 40));
    let (sockets, nodes) = (1 + d.upto(1) as u32, 1 + d.upto(1) as u32);
    let (cores, threads) = (1 + d.upto(2) as u32, 1 + d.upto(1) as u32);
    let topology = machine(sockets, nodes, cores, threads).unwrap();
    let all = topology.usable();
    let pools = d.pools(&all);
    let groups = d.groups(about);
    let vms = (0..1 + d.upto(7)).map(|i| {
        let mut vm = d.vm(i, about, &all, &pools);
        vm.group = d.one_in(2).then(|| d.upto(groups.len().max(1) as u64 - 1) as usize);
        vm.group = vm.group.filter(|_| !groups.is_empty());
        vm.memory_node = d.one_in(3).then(|| NodeId(d.upto(u64::from(sockets * nodes) - 1) as u32));
        vm
    });
    let mut setup = Setup::new(topology, vms.collect(), seed);
    setup.pools = pools;
    setup.groups = groups;
    if d.one_in(2) {
        setup.costs = d.costs();
    }
    setup
}

/// Values of the policy's parameters: the defaults, or any allowed.
fn random_values(seed: u64, about: &About) -> Values {
    let mut values = Values::defaults(about.parameters);
    let mut d = Dice(Random::new(seed, 1 << 41));
    for p in about.parameters {
        if d.one_in(4) {
            // Low in the range more often: that is where the interesting ones are.
            let most = p.max.min(p.default.max(1).saturating_mul(4));
            let value = p.min + d.upto(most.max(p.min) - p.min);
            values.set(p.name, value).unwrap();
        }
    }
    values
}

fn seeds() -> std::ops::RangeInclusive<u64> {
    let n = std::env::var("VSTEER_SIM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(25);
    1..=n
}

/// Everything that came out of it.
fn outcome(s: &dyn Simulation) -> String {
    let accounts: Vec<String> =
        (0..s.host().vcpus.len() as u32).map(|v| format!("{:?}", s.account(Vcpu(v)))).collect();
    accounts.join("\n")
}

/// Runs `f`; when it panics, says for which policy and seed.
fn named(policy: &str, seed: u64, f: impl FnOnce()) {
    if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)) {
        eprintln!("policy {policy}, seed {seed}");
        std::panic::resume_unwind(panic);
    }
}

/// Every policy as it is by default, and EEVDF with one line of tasks for all groups.
fn kinds() -> impl Iterator<Item = (&'static Entry, Values)> {
    let flat = POLICIES.iter().filter(|entry| entry.about.name == "eevdf").map(|entry| {
        let mut values = Values::defaults(entry.about.parameters);
        ["flat", "hrtick"].into_iter().for_each(|name| values.set(name, 1).unwrap());
        (entry, values)
    });
    POLICIES.iter().map(|entry| (entry, Values::defaults(entry.about.parameters))).chain(flat)
}

#[test]
fn invariants_hold_at_every_event() {
    for (entry, values) in kinds() {
        let mut events = 0;
        for seed in seeds() {
            named(entry.about.name, seed, || {
                let setup = random_setup(seed, &entry.about);
                let mut s = (entry.checked)(&setup, &values).unwrap();
                assert_eq!(s.run(RUN_NS, u64::MAX), Stop::Reached);
                events += s.events();
            });
        }
        println!("{}: {events} events", entry.about.name);
        assert!(events > 10_000, "{}: {events} events: the scenarios do nothing", entry.about.name);
    }
}

#[test]
fn parameters_and_changes_keep_the_invariants() {
    for entry in POLICIES {
        for seed in seeds() {
            named(entry.about.name, seed, || {
                let setup = random_setup(seed, &entry.about);
                // What a policy promises of idle pCPUs it promises for its defaults.
                let mut s = (entry.build)(&setup, &random_values(seed, &entry.about)).unwrap();
                let mut d = Dice(Random::new(seed, 1 << 42));
                for k in 1..=10 {
                    assert_eq!(s.run(k * RUN_NS / 10, u64::MAX), Stop::Reached);
                    let vm = Vm(d.upto(setup.vms.len() as u64 - 1) as u32);
                    let weight =
                        (entry.about.default_weight > 0).then(|| entry.about.default_weight + k as u32);
                    let cap_pct = entry.about.caps.then(|| 10 * k as u32);
                    s.change(vm, weight, cap_pct).unwrap();
                }
                for v in 0..s.host().vcpus.len() as u32 {
                    let ns = s.account(Vcpu(v)).ns;
                    assert_eq!(ns.iter().sum::<u64>(), RUN_NS, "{v}: {ns:?}");
                }
            });
        }
    }
}

#[test]
fn the_same_input_gives_the_same_output_also_in_pieces() {
    for entry in POLICIES {
        for seed in seeds() {
            let setup = random_setup(seed, &entry.about);
            let values = random_values(seed, &entry.about);
            let mut whole = (entry.build)(&setup, &values).unwrap();
            whole.run(RUN_NS, u64::MAX);
            let mut pieces = (entry.build)(&setup, &values).unwrap();
            let mut d = Dice(Random::new(seed, 1 << 43));
            while pieces.now_ns() < RUN_NS {
                let to_ns = (pieces.now_ns() + d.upto(RUN_NS / 7)).min(RUN_NS);
                while pieces.run(to_ns, 1 + d.upto(500)) == Stop::Steps {}
            }
            assert_eq!(outcome(&*whole), outcome(&*pieces), "policy {}, seed {seed}", entry.about.name);
        }
    }
}

#[test]
fn one_vcpu_alone_runs_whenever_it_wants() {
    for entry in POLICIES {
        let demand =
            Demand::SleepCompute { sleep: Times::Exponential(3 * MS), compute: Times::Exponential(MS) };
        let vms = vec![VmSetup::new("alone", vec![VcpuSetup::new(demand)])];
        let setup = Setup::new(machine(1, 1, 2, 2).unwrap(), vms, 5);
        let mut s = (entry.checked)(&setup, &Values::defaults(entry.about.parameters)).unwrap();
        s.run(2000 * MS, u64::MAX);
        let a = s.account(Vcpu(0));
        // SEDF leaves the last 0.5 ms before a period of 100 ms to nobody.
        let most_ns = if entry.about.name == "sedf" { 10 * MS } else { 0 };
        assert!(a.ns[State::Ready as usize] <= most_ns, "{}", entry.about.name);
        assert!(a.ns[State::Running as usize] > 400 * MS, "{}", entry.about.name);
    }
}
