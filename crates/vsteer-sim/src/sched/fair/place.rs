//! Chooses the pCPU of a woken task, and the pCPUs that pull tasks from others.
//!
//! A wake-up searches for an idle pCPU only in its last-level cache (`select_idle_sibling`). The rest is
//! balancing: a pCPU that becomes idle pulls at once, the others from time to time.

use super::{BALANCE, Fair, NONE, Rules};
use crate::bits::after;
use crate::policy::{Orders, View};
use crate::setup::{Pcpu, Vcpu};

impl<R: Rules> Fair<R> {
    /// The pCPU for `v`, which wakes: its last one if that is idle, otherwise an idle core of that cache,
    /// otherwise an idle thread of it, otherwise its last one. A task that never ran goes to the pCPU with
    /// the fewest tasks.
    pub(super) fn select(&self, view: &View<'_>, v: Vcpu) -> u32 {
        let host = view.host();
        let allowed = &host.vcpus[v.i()].affinity;
        let before = self.tasks[v.i()].cpu;
        if before == NONE {
            let load = |p: &usize| (self.cpus[*p].runnable, self.busy_threads(view, *p), *p);
            return allowed.iter().min_by_key(load).expect("an affinity is not empty") as u32;
        }
        if self.idle.contains(before as usize) {
            return before;
        }
        let llc = &host.llcs[host.pcpus[before as usize].llc as usize];
        let idle_here = |w: usize| self.idle.word(w) & llc.word(w) & allowed.word(w);
        let (mut at, mut first, mut thread) = (before as usize, None, None);
        while let Some(p) = after(self.idle.words(), at, idle_here) {
            if first == Some(p) {
                break;
            }
            first = first.or(Some(p));
            thread = thread.or(Some(p));
            at = p;
            let core = &host.cores[host.pcpus[p].core as usize];
            if core.is_subset(&self.idle) {
                return p as u32;
            }
        }
        // If no whole core is idle, an idle thread of its own core comes before others.
        let own = &host.cores[host.pcpus[before as usize].core as usize];
        let beside = own.iter().find(|p| self.idle.contains(*p) && allowed.contains(*p));
        beside.or(thread).map_or(before, |p| p as u32)
    }

    /// The number of tasks that want this pCPU.
    fn load(&self, p: usize) -> u32 {
        self.cpus[p].runnable + u32::from(self.cpus[p].above)
    }

    fn busy_threads(&self, view: &View<'_>, p: usize) -> usize {
        let core = &view.host().cores[view.host().pcpus[p].core as usize];
        core.len() - core.common(&self.idle)
    }

    /// Adds `v` to the list of runnable tasks of `p`.
    pub(super) fn list(&mut self, p: u32, v: u32) {
        let cpu = &mut self.cpus[p as usize];
        let tail = std::mem::replace(&mut cpu.tail, v);
        if tail == NONE {
            cpu.head = v;
        }
        cpu.runnable += 1;
        if tail != NONE {
            self.tasks[tail as usize].next = v;
        }
        let task = &mut self.tasks[v as usize];
        debug_assert!(!task.runnable, "task {v} is listed twice");
        (task.prev, task.next, task.runnable) = (tail, NONE, true);
    }

    /// Removes `v` from that list, if it is there.
    pub(super) fn unlist(&mut self, p: u32, v: u32) {
        let task = &mut self.tasks[v as usize];
        if !std::mem::take(&mut task.runnable) {
            return;
        }
        let (prev, next) = (task.prev, task.next);
        let cpu = &mut self.cpus[p as usize];
        cpu.runnable -= 1;
        if cpu.head == v {
            cpu.head = next;
        }
        if cpu.tail == v {
            cpu.tail = prev;
        }
        if prev != NONE {
            self.tasks[prev as usize].next = next;
        }
        if next != NONE {
            self.tasks[next as usize].prev = prev;
        }
    }

    /// A task that waits on `from` and may run on `to`; the one that has waited longest.
    fn movable(&self, view: &View<'_>, from: usize, to: usize) -> Option<u32> {
        let mut v = self.cpus[from].head;
        while v != NONE {
            if v != self.cpus[from].current && view.host().allows(Vcpu(v), Pcpu(to as u32)) {
                return Some(v);
            }
            v = self.tasks[v as usize].next;
        }
        None
    }

    /// The pCPU from which `p` should pull a waiting task: the one with the most runnable tasks in its core,
    /// otherwise in its cache, its node, the pool. `more`: by how many tasks it must be ahead.
    fn busiest(&self, view: &View<'_>, p: usize, more: u32) -> Option<(usize, u32)> {
        let host = view.host();
        let place = &host.pcpus[p];
        let domains = [
            &host.cores[place.core as usize],
            &host.llcs[place.llc as usize],
            &host.nodes[place.node as usize],
            &self.pool,
        ];
        let least = (self.load(p) + more).max(2);
        domains.into_iter().find_map(|domain| {
            let mut best: Option<(usize, u32)> = None;
            for from in domain.iter().filter(|from| *from != p && self.cpus[*from].mine) {
                let load = self.load(from);
                let busier = best.is_none_or(|(b, _)| load > self.load(b));
                if load >= least
                    && busier
                    && let Some(v) = self.movable(view, from, p)
                {
                    best = Some((from, v));
                }
            }
            best
        })
    }

    /// Idle `p` takes a task that waits on another pCPU. True if it got one.
    pub(super) fn pull(&mut self, view: &View<'_>, p: u32, orders: &mut Orders) -> bool {
        if self.balancing {
            self.look(p, view.now_ns() as i64, true);
        }
        let found = self.busiest(view, p as usize, 0);
        found.inspect(|(from, v)| self.shift(view, *v, *from as u32, p, orders)).is_some()
    }

    fn shift(&mut self, view: &View<'_>, v: u32, from: u32, to: u32, orders: &mut Orders) {
        let now_ns = view.now_ns() as i64;
        self.charge(from, now_ns, orders);
        self.dequeue(from, v, false);
        self.tasks[v as usize].cpu = to;
        self.charge(to, now_ns, orders);
        self.enqueue(to, v, now_ns, orders);
    }

    /// Balancing is active while a task waits anywhere. Activates it if one waits on `p`.
    pub(super) fn watch_balance(&mut self, view: &View<'_>, p: u32, orders: &mut Orders) {
        if !self.balancing && self.load(p as usize) > 1 {
            self.balancing = true;
            orders.set_timer(BALANCE, (view.now_ns() / self.balance_ns + 1) * self.balance_ns);
        }
    }

    /// One pass: wakes idle pCPUs so that they pull. At every 16th pass, busy ones also pull if that makes
    /// the numbers more even.
    pub(super) fn balance(&mut self, view: &View<'_>, orders: &mut Orders) {
        self.passes += 1;
        self.balancing = false;
        for p in 0..self.cpus.len() {
            if !self.cpus[p].mine {
                continue;
            }
            self.look(p as u32, view.now_ns() as i64, false);
            if self.cpus[p].current == NONE && !self.cpus[p].above {
                if let Some((from, v)) = self.busiest(view, p, 0) {
                    self.shift(view, v, from as u32, p as u32, orders);
                    self.preempt(p as u32, v, orders);
                }
            } else if self.passes.is_multiple_of(16)
                && let Some((from, v)) = self.busiest(view, p, 2)
            {
                self.shift(view, v, from as u32, p as u32, orders);
                self.preempt(p as u32, v, orders);
            }
        }
        for p in 0..self.cpus.len() as u32 {
            self.watch_balance(view, p, orders);
        }
    }
}
