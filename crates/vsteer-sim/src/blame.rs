//! The blame matrix of a simulation: which vCPU ran while another one was ready.
//!
//! Idea: a ready vCPU waits for the pCPU that it ran on last (before its first run, the first pCPU that it
//! may use). Whenever the vCPU on that pCPU changes, every vCPU that waits there charges the time since the
//! last change. The part in which any pCPU that it may use was idle goes to placement, the rest to the vCPU
//! that ran. So between two changes there is only one culprit, and the rows of a vCPU sum exactly to its
//! ready time.
//!
//! A real host's collector does the same (docs/decisions/0001), except that here no culprit is ever too old
//! to be named. Left out: the queue that the policy really used. A vCPU that another pCPU pulls in the end
//! has waited for its old pCPU.

use super::engine::Watch;
use super::ids::vm_id;
use super::setup::{Host, Pcpu, Vcpu};
use crate::state::State;
use std::cell::RefCell;
use std::rc::Rc;
use vsteer_core::nouns::{BlameSample, Culprit, Role};

const NONE: u32 = u32::MAX;

/// How long any pCPU of a set was idle.
#[derive(Debug, Clone, Copy)]
struct IdleClock {
    idle: u32,
    since_ns: u64,
    total_ns: u64,
}

impl IdleClock {
    fn ns(&self, now_ns: u64) -> u64 {
        self.total_ns + if self.idle > 0 { now_ns - self.since_ns } else { 0 }
    }

    fn step(&mut self, idle: bool, now_ns: u64) {
        self.total_ns = self.ns(now_ns);
        self.since_ns = now_ns;
        self.idle = if idle { self.idle + 1 } else { self.idle - 1 };
    }
}

#[derive(Debug, Clone)]
struct Waiter {
    vm: u32,
    role: Role,
    /// The index of its set of allowed pCPUs.
    set: usize,
    pcpu: u32,
    /// Its position among the vCPUs that wait there; `NONE` while it does not wait.
    place: u32,
    /// The time up to which its wait is charged, and its set's clock at that time.
    charged_ns: u64,
    idle_ns: u64,
    /// Blame since the last batch, by VM; placement under `NONE`.
    rows: Vec<(u32, u64)>,
}

#[derive(Debug, Clone)]
struct Queue {
    /// The VM that runs; `NONE` if no VM runs.
    runner: u32,
    waiting: Vec<u32>,
    /// The sets that contain this pCPU.
    sets: Vec<usize>,
}

#[derive(Debug)]
struct Books {
    waiters: Vec<Waiter>,
    queues: Vec<Queue>,
    clocks: Vec<IdleClock>,
}

impl Books {
    fn settle(&mut self, v: u32, now_ns: u64) {
        let w = &mut self.waiters[v as usize];
        let idle_ns = self.clocks[w.set].ns(now_ns);
        let placement_ns = idle_ns - w.idle_ns;
        let rest_ns = now_ns - w.charged_ns - placement_ns;
        (w.charged_ns, w.idle_ns) = (now_ns, idle_ns);
        for (culprit, ns) in [(NONE, placement_ns), (self.queues[w.pcpu as usize].runner, rest_ns)] {
            if ns == 0 {
                continue;
            }
            match w.rows.iter_mut().find(|(c, _)| *c == culprit) {
                Some((_, sum)) => *sum += ns,
                None => w.rows.push((culprit, ns)),
            }
        }
    }

    /// The vCPU on `p` changes.
    fn change(&mut self, p: u32, runner: u32, now_ns: u64) {
        for i in 0..self.queues[p as usize].waiting.len() {
            let v = self.queues[p as usize].waiting[i];
            self.settle(v, now_ns);
        }
        let queue = &mut self.queues[p as usize];
        queue.runner = runner;
        for set in &queue.sets {
            self.clocks[*set].step(runner == NONE, now_ns);
        }
    }

    fn wait(&mut self, v: u32, now_ns: u64) {
        let w = &mut self.waiters[v as usize];
        (w.charged_ns, w.idle_ns) = (now_ns, self.clocks[w.set].ns(now_ns));
        let waiting = &mut self.queues[w.pcpu as usize].waiting;
        w.place = waiting.len() as u32;
        waiting.push(v);
    }

    fn wait_no_longer(&mut self, v: u32, now_ns: u64) {
        self.settle(v, now_ns);
        let w = &mut self.waiters[v as usize];
        let place = std::mem::replace(&mut w.place, NONE);
        let waiting = &mut self.queues[w.pcpu as usize].waiting;
        waiting.swap_remove(place as usize);
        if let Some(moved) = waiting.get(place as usize).copied() {
            self.waiters[moved as usize].place = place;
        }
    }
}

/// A watch whose copies share their data.
#[derive(Debug, Clone)]
pub struct Blame(Rc<RefCell<Books>>);

impl Blame {
    /// Empty blame for `host`, at time 0.
    pub fn new(host: &Host) -> Blame {
        let mut sets = Vec::new();
        let waiters = host.vcpus.iter().map(|v| {
            let set = sets.iter().position(|s| *s == &v.affinity).unwrap_or_else(|| {
                sets.push(&v.affinity);
                sets.len() - 1
            });
            Waiter {
                vm: v.vm.0,
                role: Role::Vcpu(v.index),
                set,
                pcpu: v.affinity.first().expect("an affinity is not empty") as u32,
                place: NONE,
                charged_ns: 0,
                idle_ns: 0,
                rows: Vec::new(),
            }
        });
        let waiters = waiters.collect();
        let queue = |p| Queue {
            runner: NONE,
            waiting: Vec::new(),
            sets: (0..sets.len()).filter(|s| sets[*s].contains(p)).collect(),
        };
        let queues = (0..host.pcpus.len()).map(queue).collect();
        let clocks = sets.iter().map(|s| IdleClock { idle: s.len() as u32, since_ns: 0, total_ns: 0 });
        let clocks = clocks.collect();
        Blame(Rc::new(RefCell::new(Books { waiters, queues, clocks })))
    }

    /// Blame since the last call, up to `now_ns`, including waits that have not ended.
    pub fn drain(&self, now_ns: u64) -> Vec<BlameSample> {
        let books = &mut *self.0.borrow_mut();
        let mut all = Vec::new();
        for v in 0..books.waiters.len() as u32 {
            if books.waiters[v as usize].place != NONE {
                books.settle(v, now_ns);
            }
            let w = &mut books.waiters[v as usize];
            w.rows.sort_unstable();
            let (victim, role) = (w.vm as usize, w.role);
            all.extend(w.rows.drain(..).map(|(culprit, ns)| BlameSample {
                victim: vm_id(victim),
                role,
                culprit: match culprit {
                    NONE => Culprit::Placement,
                    vm => Culprit::Vm(vm_id(vm as usize)),
                },
                ns: ns as i64,
            }));
        }
        all
    }
}

impl Watch for Blame {
    fn moved(&mut self, now_ns: u64, v: Vcpu, from: State, to: State, p: Option<Pcpu>) {
        let books = &mut *self.0.borrow_mut();
        if from == State::Ready {
            books.wait_no_longer(v.0, now_ns);
        }
        if let Some(Pcpu(p)) = p {
            if from == State::Running {
                books.change(p, NONE, now_ns);
            }
            if to == State::Running {
                let vm = books.waiters[v.i()].vm;
                books.waiters[v.i()].pcpu = p;
                books.change(p, vm, now_ns);
            }
        }
        if to == State::Ready {
            books.wait(v.0, now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::Demand;
    use crate::setup::{Setup, VcpuSetup, VmSetup};
    use vsteer_core::CpuSet;
    use vsteer_core::topology::machine;

    /// Two pCPUs. A may use both, B and C only the first. At 0 all are ready and both pCPUs idle. At 2 B gets
    /// pCPU 0, at 3 A gets the other. C waits for pCPU 0: placement up to 2, then B. At 9 C preempts B: B
    /// waits for C.
    #[test]
    fn waits_are_charged_to_who_ran_and_to_placement() {
        let one = |name: &str, set: CpuSet| VmSetup::new(name, vec![VcpuSetup::new(Demand::Hog).pinned(set)]);
        let vms = vec![one("a", CpuSet::first(2)), one("b", CpuSet::single(0)), one("c", CpuSet::single(0))];
        let host = Host::new(&Setup::new(machine(1, 1, 2, 1).unwrap(), vms, 1)).unwrap();
        let blame = Blame::new(&host);
        let mut watch = blame.clone();
        let (a, b, c) = (Vcpu(0), Vcpu(1), Vcpu(2));
        let (p, q) = (Some(Pcpu(0)), Some(Pcpu(1)));
        for v in [a, b, c] {
            watch.moved(0, v, State::Absent, State::Blocked, None);
            watch.moved(0, v, State::Blocked, State::Ready, None);
        }
        watch.moved(2, b, State::Ready, State::Running, p);
        watch.moved(3, a, State::Ready, State::Running, q);
        watch.moved(9, b, State::Running, State::Ready, p);
        watch.moved(9, c, State::Ready, State::Running, p);
        let told = |now_ns| -> Vec<(u64, String, i64)> {
            let rows = blame.drain(now_ns).into_iter().map(|s| {
                let who = match s.culprit {
                    Culprit::Vm(id) => id.to_string(),
                    other => format!("{other:?}"),
                };
                (s.victim.0.trim_start_matches("simulated-").parse().unwrap(), who, s.ns)
            });
            rows.collect()
        };
        let id = |vm: usize| vm_id(vm).to_string();
        let placement = || "Placement".to_owned();
        let expected = vec![
            // Up to 3, pCPU 1 idled, which A could have used.
            (0, placement(), 3),
            (1, id(2), 5),
            (1, placement(), 2),
            (2, id(1), 7),
            (2, placement(), 2),
        ];
        assert_eq!(told(14), expected);
        assert_eq!(told(16), vec![(1, id(2), 2)], "only what is new");
    }
}
