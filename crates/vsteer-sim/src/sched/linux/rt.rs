//! The real-time classes: on every pCPU, the highest priority always runs first.
//!
//! There is a queue per pCPU, including the running task, ordered by priority. A preempted task keeps its
//! place before its equals. An RR task goes behind them when its turn is over. A woken task stays on its pCPU
//! unless a task at least as high runs there. Then it looks for the pCPU with the lowest priority. Waiting
//! tasks are pushed to such pCPUs. A pCPU that would change to lower work first pulls waiting tasks from
//! other pCPUs.
//!
//! Source: kernel/sched/rt.c and cpupri.c of Linux 6.1.192.

use super::super::fair::{NONE, next_tick};
use crate::policy::{Held, Orders, Values, View, Why};
use crate::setup::{Host, Pcpu, Pool, Vcpu};
use vsteer_core::nouns::SchedClass;
use vsteer_core::{Fault, FaultKind};

#[derive(Debug, Clone)]
struct Task {
    /// 1 to 99, higher runs first; 0 means the fair class.
    priority: u8,
    round_robin: bool,
    /// May it run on more than one pCPU?
    movable: bool,
    cpu: u32,
    /// The remaining ticks of its turn.
    left: u64,
}

#[derive(Debug, Clone)]
struct Queue {
    list: Vec<u32>,
    current: u32,
    charged_ns: i64,
    /// The run time of real-time tasks in this period.
    time_ns: i64,
    throttled: bool,
}

#[derive(Debug)]
pub(super) struct Rt {
    tasks: Vec<Task>,
    queues: Vec<Queue>,
    any: bool,
    tick_ns: i64,
    /// The number of ticks of a turn.
    turn: u64,
    /// The allowed run time in a period; `i64::MAX` means all of it.
    runtime_ns: i64,
    pub(super) period_ns: u64,
    /// Is the period's timer set?
    counting: bool,
}

impl Rt {
    pub(super) fn new(host: &Host, pool: Pool, values: &Values, throttles: bool) -> Result<Rt, Fault> {
        let tick_ns = 1_000_000_000 / values.get("hz");
        let turn = (values.get("rr_timeslice_ms") * 1_000_000).div_ceil(tick_ns);
        let mut tasks = Vec::with_capacity(host.vcpus.len());
        for v in &host.vcpus {
            let (priority, round_robin) = match v.class {
                Some(SchedClass::Fifo(priority)) => (priority, false),
                Some(SchedClass::RoundRobin(priority)) => (priority, true),
                Some(class @ (SchedClass::Deadline | SchedClass::Ext)) => {
                    let whose = &host.vms[v.vm.i()].name;
                    return Err(Fault::new(
                        FaultKind::BadInput,
                        format!("VM {whose:?}, vCPU {}: class {class}", v.index),
                    )
                    .help("fair and real-time classes are simulated"));
                }
                _ => (0, false),
            };
            if v.class.is_some_and(SchedClass::is_realtime) && !(1..=99).contains(&priority) {
                let whose = &host.vms[v.vm.i()].name;
                return Err(Fault::new(
                    FaultKind::BadInput,
                    format!("VM {whose:?}, vCPU {}: real-time priority {priority}", v.index),
                )
                .help("from 1 to 99"));
            }
            let movable = v.affinity.len() > 1;
            let priority = if v.pool == pool { priority } else { 0 };
            tasks.push(Task { priority, round_robin, movable, cpu: NONE, left: turn });
        }
        let n = tasks.iter().filter(|t| t.priority > 0).count();
        let queue = || Queue {
            list: Vec::with_capacity(n),
            current: NONE,
            charged_ns: 0,
            time_ns: 0,
            throttled: false,
        };
        let (mut runtime_ns, mut period_ns) = (i64::MAX, u64::MAX);
        if throttles {
            period_ns = values.get("sched_rt_period_us") * 1000;
            let us = values.get("sched_rt_runtime_us") * 1000;
            runtime_ns = if us >= period_ns { i64::MAX } else { us as i64 };
        }
        Ok(Rt {
            tasks,
            queues: host.pcpus.iter().map(|_| queue()).collect(),
            any: n > 0,
            tick_ns: tick_ns as i64,
            turn,
            runtime_ns,
            period_ns,
            counting: false,
        })
    }

    #[inline]
    pub(super) fn any(&self) -> bool {
        self.any
    }

    #[inline]
    pub(super) fn is(&self, v: u32) -> bool {
        self.tasks[v as usize].priority > 0
    }

    pub(super) fn current(&self, p: u32) -> u32 {
        self.queues[p as usize].current
    }

    fn priority(&self, v: u32) -> u8 {
        if v == NONE { 0 } else { self.tasks[v as usize].priority }
    }

    fn highest(&self, p: usize) -> u8 {
        self.queues[p].list.first().map_or(0, |v| self.priority(*v))
    }

    /// The pCPU for `v` among those with the lowest priority: its own, else the nearest.
    fn lowest(&self, view: &View<'_>, v: u32) -> Option<u32> {
        let (task, host) = (&self.tasks[v as usize], view.host());
        if !task.movable {
            return None;
        }
        let allowed = &host.vcpus[v as usize].affinity;
        let own = task.cpu as usize;
        let place = &host.pcpus[own];
        let near = |p: usize| {
            let its = &host.pcpus[p];
            let apart = [p != own, its.core != place.core, its.llc != place.llc, its.node != place.node];
            apart.into_iter().filter(|a| *a).count()
        };
        let open = allowed.iter().filter(|p| !self.queues[*p].throttled);
        let best = open.min_by_key(|p| (self.highest(*p), near(*p), *p))?;
        (self.highest(best) < task.priority).then_some(best as u32)
    }

    /// Inserts `v` into the queue of `p`: behind its equals, or before them.
    fn insert(&mut self, p: u32, v: u32, before: bool) {
        let own = self.priority(v);
        let tasks = &self.tasks;
        let ahead = |q: &u32| {
            let its = tasks[*q as usize].priority;
            its > own || (its == own && !before)
        };
        let list = &mut self.queues[p as usize].list;
        let at = list.partition_point(ahead);
        list.insert(at, v);
        self.tasks[v as usize].cpu = p;
    }

    fn remove(&mut self, p: u32, v: u32) {
        self.queues[p as usize].list.retain(|q| *q != v);
    }

    /// `v` wakes. True if a period of throttling begins with it.
    pub(super) fn wake(&mut self, view: &View<'_>, v: u32, orders: &mut Orders) -> bool {
        let host = view.host();
        if self.tasks[v as usize].cpu == NONE {
            let load = |p: &usize| (self.queues[*p].list.len(), view.running(Pcpu(*p as u32)).is_some(), *p);
            let first = host.vcpus[v as usize].affinity.iter().min_by_key(load);
            self.tasks[v as usize].cpu = first.expect("an affinity is not empty") as u32;
        }
        let own = self.priority(v);
        let mut p = self.tasks[v as usize].cpu;
        let current = self.current(p);
        let in_the_way =
            current != NONE && (!self.tasks[current as usize].movable || self.priority(current) >= own);
        if in_the_way && let Some(other) = self.lowest(view, v) {
            p = other;
        }
        self.insert(p, v, false);
        let began = self.runtime_ns != i64::MAX && !std::mem::replace(&mut self.counting, true);
        if self.queues[p as usize].throttled {
            orders.hold(Vcpu(v), Held::Limited);
            return began;
        }
        let current = self.current(p);
        if self.priority(current) < own {
            orders.interrupt(Pcpu(p));
            return began;
        }
        let its = &self.tasks[current as usize];
        if its.priority == own
            && its.movable
            && self.lowest(view, current).is_some()
            && self.lowest(view, v).is_none()
        {
            // The running task can go to another pCPU, but this one cannot.
            self.remove(p, v);
            self.insert(p, v, true);
            orders.interrupt(Pcpu(p));
            return began;
        }
        if its.round_robin && its.priority == own {
            // From now on its turn has an end.
            orders.interrupt(Pcpu(p));
        }
        self.push(view, p, orders);
        began
    }

    /// Moves waiting tasks of `p` to pCPUs with lower work.
    fn push(&mut self, view: &View<'_>, p: u32, orders: &mut Orders) {
        loop {
            let Queue { list, current, .. } = &self.queues[p as usize];
            let waits = |v: &&u32| **v != *current && self.tasks[**v as usize].movable;
            let Some(&v) = list.iter().find(waits) else { return };
            if self.priority(v) > self.priority(*current) {
                orders.interrupt(Pcpu(p));
                return;
            }
            let Some(to) = self.lowest(view, v).filter(|to| *to != p) else { return };
            self.remove(p, v);
            self.insert(to, v, false);
            orders.interrupt(Pcpu(to));
        }
    }

    /// `p` would change to lower work: takes higher tasks that wait on other pCPUs.
    fn pull(&mut self, view: &View<'_>, p: u32) {
        for from in (0..self.queues.len()).filter(|from| *from != p as usize) {
            let Queue { list, current, throttled, .. } = &self.queues[from];
            if *throttled {
                continue;
            }
            let fits = |v: &&u32| {
                **v != *current && self.tasks[**v as usize].movable && view.host().allows(Vcpu(**v), Pcpu(p))
            };
            let Some(&v) = list.iter().find(fits) else { continue };
            let own = self.priority(v);
            if own > self.highest(p as usize) && own <= self.priority(*current) {
                self.remove(from as u32, v);
                self.insert(p, v, false);
            }
        }
    }

    /// The real-time task of `p` ran until now.
    pub(super) fn ran(&mut self, view: &View<'_>, p: u32, why: Why, orders: &mut Orders) {
        let now_ns = view.now_ns() as i64;
        let queue = &mut self.queues[p as usize];
        let (v, from_ns) = (queue.current, std::mem::replace(&mut queue.charged_ns, now_ns));
        queue.time_ns += now_ns - from_ns;
        let exceeded = queue.time_ns > self.runtime_ns;
        let task = &mut self.tasks[v as usize];
        let ticks = (now_ns / self.tick_ns - from_ns / self.tick_ns) as u64;
        let turns = ticks >= task.left;
        task.left = if turns { self.turn - (ticks - task.left) % self.turn } else { task.left - ticks };
        let own = task.priority;
        let behind = match why {
            Why::Blocked(_) => {
                self.remove(p, v);
                self.queues[p as usize].current = NONE;
                if self.highest(p as usize) < own {
                    self.pull(view, p);
                }
                false
            }
            Why::Yielded(_) => true,
            Why::SliceEnd(_) => turns && self.tasks[v as usize].round_robin,
            Why::Interrupted(_) | Why::Idle => false,
        };
        if behind {
            self.remove(p, v);
            self.insert(p, v, false);
        }
        let queue = &mut self.queues[p as usize];
        if exceeded && !queue.throttled {
            queue.throttled = true;
            for v in &queue.list {
                orders.hold(Vcpu(*v), Held::Limited);
            }
        }
    }

    /// The task that should run on `p`; [`NONE`] leaves the pCPU to the fair class.
    pub(super) fn pick(&mut self, _view: &View<'_>, p: u32) -> u32 {
        let queue = &self.queues[p as usize];
        if queue.throttled { NONE } else { queue.list.first().copied().unwrap_or(NONE) }
    }

    /// `v` runs on `p` from now on. Returns how long at most.
    pub(super) fn run(&mut self, view: &View<'_>, p: u32, v: u32, orders: &mut Orders) -> u64 {
        let now_ns = view.now_ns() as i64;
        let queue = &mut self.queues[p as usize];
        (queue.current, queue.charged_ns) = (v, now_ns);
        self.push(view, p, orders);
        let (queue, task) = (&self.queues[p as usize], &self.tasks[v as usize]);
        let mut end_ns = i64::MAX;
        if self.runtime_ns != i64::MAX {
            end_ns = next_tick(now_ns + (self.runtime_ns + 1 - queue.time_ns).max(1), self.tick_ns);
        }
        let equals = queue.list.iter().filter(|q| self.priority(**q) == task.priority).count();
        if task.round_robin && equals > 1 {
            end_ns = end_ns.min((now_ns / self.tick_ns + task.left as i64) * self.tick_ns);
        }
        if end_ns == i64::MAX { u64::MAX } else { (end_ns - now_ns) as u64 }
    }

    /// `p` changes to the fair class.
    pub(super) fn leave(&mut self, p: u32) {
        self.queues[p as usize].current = NONE;
    }

    /// A period has ended. True if another begins.
    pub(super) fn replenish(&mut self, view: &View<'_>, orders: &mut Orders) -> bool {
        let now_ns = view.now_ns() as i64;
        let mut busy = false;
        for p in 0..self.queues.len() {
            let queue = &mut self.queues[p];
            // Includes the running task's time since its last charge, which is charged later.
            let more_ns = if queue.current == NONE { 0 } else { now_ns - queue.charged_ns };
            queue.time_ns -= (queue.time_ns + more_ns).min(self.runtime_ns);
            busy |= queue.time_ns + more_ns > 0 || !queue.list.is_empty();
            if queue.throttled && queue.time_ns < self.runtime_ns {
                queue.throttled = false;
                queue.list.iter().for_each(|v| orders.release(Vcpu(*v)));
            }
            // Also interrupts the running task, which may now run longer.
            if !queue.list.is_empty() {
                orders.interrupt(Pcpu(p as u32));
            }
        }
        self.counting = busy;
        busy
    }
}
