//! How fast is the simulator, measured against a bare loop of the same shape in the same run?
//!
//! The bare loop is what a person writes who wants nothing but the events: a queue of three priorities per core, one
//! indexed heap (4-ary, which is the faster here), no policy, no states, no accounts, no checks. Both draw the same
//! exponential times from the same generator. Tasks sleep Exp(50 ms) and compute Exp(5 ms): at ten per core a load of
//! 0.91. The engine runs Xen's Credit scheduler in full. Events are wake-ups, dispatches, preemptions and blocks.
//!
//! One JSON line per shape: simulated seconds per second of each of CPU time (medians of alternating repetitions, after a warm-up),
//! their ratio, and whether the promised ratio is kept. Exits with 1 where one is not.
//! `sim_speed [REPETITIONS] [SHAPE]`, where SHAPE is a shape's name.

use std::collections::VecDeque;
use vsteer_core::random::Random;
use vsteer_core::topology::machine;
use vsteer_sim::guest::{Demand, Times};
use vsteer_sim::policy::Values;
use vsteer_sim::sched::{Simulation, find};
use vsteer_sim::setup::{Setup, VcpuSetup, VmSetup};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const SLEEP_NS: u64 = 50 * MS;
const COMPUTE_NS: u64 = 5 * MS;

struct Shape {
    name: &'static str,
    hosts: usize,
    vcpus: usize,
    pcpus: usize,
    slice_ms: u64,
    /// Simulated per repetition and host, after as much of warm-up.
    run_ns: u64,
    needs: f64,
}

const SHAPES: &[Shape] = &[
    Shape { name: "5000/512", hosts: 1, vcpus: 5000, pcpus: 512, slice_ms: 30, run_ns: 5 * S, needs: 0.45 },
    Shape {
        name: "5000/512, 1 ms slices",
        hosts: 1,
        vcpus: 5000,
        pcpus: 512,
        slice_ms: 1,
        run_ns: 3 * S,
        needs: 0.45,
    },
    Shape { name: "40/4", hosts: 1, vcpus: 40, pcpus: 4, slice_ms: 30, run_ns: 500 * S, needs: 0.45 },
    Shape { name: "1000/100", hosts: 1, vcpus: 1000, pcpus: 100, slice_ms: 30, run_ns: 20 * S, needs: 0.45 },
    Shape {
        name: "10000/1000",
        hosts: 1,
        vcpus: 10_000,
        pcpus: 1000,
        slice_ms: 30,
        run_ns: 2 * S,
        needs: 0.45,
    },
    Shape {
        name: "1000 hosts x 40/4",
        hosts: 1000,
        vcpus: 40,
        pcpus: 4,
        slice_ms: 30,
        run_ns: 4 * S,
        needs: 0.6,
    },
];

/// An indexed 4-ary heap: every source has at most one event, and may move it.
struct Heap {
    heap: Vec<(u64, u32)>,
    at: Vec<u32>,
}

const OUT: u32 = u32::MAX;

impl Heap {
    fn new(sources: usize) -> Heap {
        Heap { heap: Vec::with_capacity(sources), at: vec![OUT; sources] }
    }

    fn put(&mut self, mut i: usize, entry: (u64, u32)) {
        while i > 0 {
            let parent = (i - 1) / 4;
            if self.heap[parent] <= entry {
                break;
            }
            self.heap[i] = self.heap[parent];
            self.at[self.heap[i].1 as usize] = i as u32;
            i = parent;
        }
        loop {
            let first = 4 * i + 1;
            if first >= self.heap.len() {
                break;
            }
            let last = (first + 4).min(self.heap.len());
            let mut least = first;
            for c in first + 1..last {
                if self.heap[c] < self.heap[least] {
                    least = c;
                }
            }
            if self.heap[least] >= entry {
                break;
            }
            self.heap[i] = self.heap[least];
            self.at[self.heap[i].1 as usize] = i as u32;
            i = least;
        }
        self.heap[i] = entry;
        self.at[entry.1 as usize] = i as u32;
    }

    fn set(&mut self, source: u32, at_ns: u64) {
        let i = self.at[source as usize];
        if i == OUT {
            self.heap.push((at_ns, source));
            self.put(self.heap.len() - 1, (at_ns, source));
        } else {
            self.put(i as usize, (at_ns, source));
        }
    }

    fn remove(&mut self, source: u32) {
        let i = self.at[source as usize] as usize;
        self.at[source as usize] = OUT;
        let last = self.heap.pop().expect("it is in");
        if i < self.heap.len() {
            self.put(i, last);
        }
    }
}

#[derive(Clone)]
struct Task {
    work_ns: u64,
    random: Random,
    core: u32,
    priority: u8,
}

#[derive(Clone)]
struct Core {
    queues: [VecDeque<u32>; 3],
    current: u32,
    from_ns: u64,
    work_end_ns: u64,
}

struct Bare {
    now_ns: u64,
    slice_ns: u64,
    heap: Heap,
    tasks: Vec<Task>,
    cores: Vec<Core>,
    events: u64,
}

impl Bare {
    fn new(shape: &Shape, seed: u64) -> Bare {
        let (n, c) = (shape.vcpus, shape.pcpus);
        let queue = || VecDeque::with_capacity(n.min(256));
        let mut heap = Heap::new(n + c);
        let tasks = (0..n).map(|i| {
            let mut random = Random::new(seed, i as u64);
            heap.set((c + i) as u32, random.exponential(SLEEP_NS as f64) as u64);
            let work_ns = random.exponential(COMPUTE_NS as f64) as u64;
            Task { work_ns, random, core: (i % c) as u32, priority: 0 }
        });
        let tasks = tasks.collect();
        let core = || Core { queues: [queue(), queue(), queue()], current: OUT, from_ns: 0, work_end_ns: 0 };
        let cores = (0..c).map(|_| core()).collect();
        Bare { now_ns: 0, slice_ns: shape.slice_ms * MS, heap, tasks, cores, events: 0 }
    }

    fn dispatch(&mut self, c: usize) {
        let core = &mut self.cores[c];
        let next = core.queues.iter_mut().find_map(VecDeque::pop_front);
        let Some(t) = next else {
            core.current = OUT;
            if self.heap.at[c] != OUT {
                self.heap.remove(c as u32);
            }
            return;
        };
        self.events += 1;
        core.current = t;
        core.from_ns = self.now_ns;
        core.work_end_ns = self.now_ns + self.tasks[t as usize].work_ns;
        self.heap.set(c as u32, core.work_end_ns.min(self.now_ns + self.slice_ns));
    }

    fn run(&mut self, end_ns: u64) {
        while self.heap.heap[0].0 < end_ns {
            let (at_ns, source) = self.heap.heap[0];
            self.now_ns = at_ns;
            let c = source as usize;
            if c < self.cores.len() {
                let core = &mut self.cores[c];
                let t = core.current as usize;
                let task = &mut self.tasks[t];
                if at_ns >= core.work_end_ns {
                    self.events += 1;
                    let sleep_ns = task.random.exponential(SLEEP_NS as f64) as u64;
                    task.work_ns = task.random.exponential(COMPUTE_NS as f64) as u64;
                    self.heap.set((self.cores.len() + t) as u32, at_ns + sleep_ns);
                } else {
                    self.events += 1;
                    task.work_ns -= at_ns - core.from_ns;
                    task.priority = (task.priority + 1).min(2);
                    core.queues[usize::from(task.priority)].push_back(t as u32);
                }
                self.dispatch(c);
                continue;
            }
            let t = c - self.cores.len();
            self.events += 1;
            self.heap.remove(source);
            let task = &mut self.tasks[t];
            task.priority = 0;
            let c = task.core as usize;
            let core = &mut self.cores[c];
            core.queues[0].push_back(t as u32);
            if core.current == OUT {
                self.dispatch(c);
            } else {
                let current = &mut self.tasks[core.current as usize];
                if current.priority > 0 {
                    self.events += 1;
                    current.work_ns -= at_ns - core.from_ns;
                    core.queues[usize::from(current.priority)].push_back(core.current);
                    self.dispatch(c);
                }
            }
        }
        self.now_ns = end_ns;
    }
}

fn engine(shape: &Shape, seed: u64) -> Box<dyn Simulation> {
    let (sleep, compute) = (Times::Exponential(SLEEP_NS), Times::Exponential(COMPUTE_NS));
    let vm =
        |i| VmSetup::new(format!("vm{i}"), vec![VcpuSetup::new(Demand::SleepCompute { sleep, compute })]);
    let topology = machine(1, 1, shape.pcpus as u32, 1).expect("a machine");
    let setup = Setup::new(topology, (0..shape.vcpus).map(vm).collect(), seed);
    let credit = find("credit").expect("it is in the table");
    let mut values = Values::defaults(credit.about.parameters);
    values.set("tslice_ms", shape.slice_ms).expect("an allowed slice");
    (credit.build)(&setup, &values).expect("a host that can be simulated")
}

/// CPU time of this process so far, s: what others take of the machine meanwhile does not count.
fn cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("a Linux with schedstat");
    let ns = text.split(' ').next().and_then(|n| n.parse::<u64>().ok()).expect("its first word is ns");
    ns as f64 / 1e9
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() {
    let mut repetitions = 5;
    let mut only = String::new();
    for word in std::env::args().skip(1) {
        match word.parse() {
            Ok(n) => repetitions = n,
            Err(_) => only = word,
        }
    }
    let mut kept = true;
    for shape in SHAPES.iter().filter(|s| only.is_empty() || s.name == only) {
        let seeds = 0..shape.hosts as u64;
        let mut bare: Vec<Bare> = seeds.clone().map(|s| Bare::new(shape, s)).collect();
        let mut engines: Vec<Box<dyn Simulation>> = seeds.map(|s| engine(shape, s)).collect();
        let (mut bare_rates, mut engine_rates) = (Vec::new(), Vec::new());
        let (mut bare_events, mut engine_events) = (Vec::new(), Vec::new());
        // The first repetition is the warm-up: tasks have spread over the pCPUs when the second begins.
        for repetition in 0..=repetitions {
            let end_ns = (repetition as u64 + 1) * shape.run_ns;
            let simulated = shape.hosts as f64 * shape.run_ns as f64 / S as f64;
            let before: u64 = bare.iter().map(|b| b.events).sum();
            let start = cpu_s();
            bare.iter_mut().for_each(|b| b.run(end_ns));
            let spent = cpu_s() - start;
            let events = bare.iter().map(|b| b.events).sum::<u64>() - before;
            if repetition > 0 {
                bare_rates.push(simulated / spent);
                bare_events.push(events as f64 / spent);
            }
            let before: u64 = engines.iter().map(|e| e.events()).sum();
            let start = cpu_s();
            engines.iter_mut().for_each(|e| {
                e.run(end_ns, u64::MAX);
            });
            let spent = cpu_s() - start;
            let events = engines.iter().map(|e| e.events()).sum::<u64>() - before;
            if repetition > 0 {
                engine_rates.push(simulated / spent);
                engine_events.push(events as f64 / spent);
            }
        }
        let (b, e) = (median(bare_rates), median(engine_rates));
        let ratio = e / b;
        kept &= ratio >= shape.needs;
        println!(
            "{{\"shape\":\"{}\",\"bare_sim_s_per_s\":{b:.1},\"engine_sim_s_per_s\":{e:.1},\"ratio\":{ratio:.3},\
             \"at_least\":{},\"kept\":{},\"bare_events_per_s\":{:.0},\"engine_events_per_s\":{:.0},\
             \"repetitions\":{repetitions}}}",
            shape.name,
            shape.needs,
            ratio >= shape.needs,
            median(bare_events),
            median(engine_events),
        );
    }
    std::process::exit(i32::from(!kept));
}
