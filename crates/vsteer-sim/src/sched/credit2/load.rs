//! Load averages, the first queue of a vCPU, and the exchange of vCPUs between two queues.
//!
//! A queue's load is the number of its runnable vCPUs; a vCPU's load is 1 if it is runnable. Both decay over
//! about a second, in fixed point. `b_avgload` includes vCPUs that were just moved. Sources as in [`super`].

use super::{Credit2, NONE};
use crate::policy::{Orders, View};
use crate::setup::Vcpu;

/// Bits of the fraction (`LOADAVG_PRECISION_SHIFT`).
pub(super) const PRECISION: u32 = 18;
/// The window: 2^30 ns, in units of 2^10.
const WINDOW: u32 = 20;
/// The smallest difference of loads that balancing evens out: if some pCPUs are idle, and if all are busy.
const UNDERLOAD: i64 = 1 << PRECISION;
const OVERLOAD: i64 = 1 << (PRECISION - 3);

/// Time in the units of load (`LOADAVG_GRANULARITY_SHIFT`).
pub(super) fn clock(now_ns: i64) -> i64 {
    now_ns >> 10
}

fn decayed(avgload: i64, load: i64, elapsed: i64) -> i64 {
    if elapsed > 1 << WINDOW {
        return load << PRECISION;
    }
    avgload + ((elapsed * (load << PRECISION)) >> WINDOW) - ((elapsed * avgload) >> WINDOW)
}

impl Credit2 {
    /// Updates the load of a queue to now, and that of `v`, which became runnable (1) or stopped being
    /// runnable (-1).
    pub(super) fn update_load(&mut self, q: usize, v: u32, change: i64, now_ns: i64) {
        let now = clock(now_ns);
        let queue = &mut self.queues[q];
        let elapsed = now - std::mem::replace(&mut queue.load_at, now);
        queue.avgload = decayed(queue.avgload, queue.load, elapsed);
        queue.b_avgload = decayed(queue.b_avgload, queue.load, elapsed);
        queue.load += change;
        if v != NONE {
            // A change of 0 means that `v` runs and only needs an update.
            self.update_unit(v, i64::from(change <= 0), now);
        }
    }

    fn update_unit(&mut self, v: u32, load: i64, now: i64) {
        let unit = &mut self.units[v as usize];
        let elapsed = now - std::mem::replace(&mut unit.load_at, now);
        unit.avgload = decayed(unit.avgload, load, elapsed);
    }

    /// Assigns `v` to queue `q`.
    pub(super) fn assign(&mut self, v: u32, q: u32) {
        self.units[v as usize].queue = q;
        let (weight, avgload) = (self.units[v as usize].weight, self.units[v as usize].avgload);
        let queue = &mut self.queues[q as usize];
        queue.units.push(v);
        queue.max_weight = queue.max_weight.max(weight);
        queue.b_avgload += avgload;
    }

    pub(super) fn deassign(&mut self, v: u32) {
        let (q, weight) = (self.units[v as usize].queue as usize, self.units[v as usize].weight);
        self.queues[q].units.retain(|u| *u != v);
        self.update_max_weight(q, 0, weight);
        let queue = &mut self.queues[q];
        queue.b_avgload = (queue.b_avgload - self.units[v as usize].avgload).max(0);
    }

    pub(super) fn update_max_weight(&mut self, q: usize, new: i64, old: i64) {
        let queue = &mut self.queues[q];
        if new > queue.max_weight {
            queue.max_weight = new;
        } else if old == queue.max_weight {
            let weights = queue.units.iter().map(|v| self.units[*v as usize].weight);
            queue.max_weight = weights.max().unwrap_or(1);
        }
    }

    /// The next pCPU of queue `q`, in turn, that `v` may use.
    pub(super) fn cycle(&mut self, view: &View<'_>, v: u32, q: usize) -> u32 {
        self.mask.copy_from(&view.host().vcpus[v as usize].affinity);
        self.mask.keep(&self.queues[q].active);
        let p = self.mask.after(self.queues[q].pick_bias as usize).expect("it may use one of the queue");
        self.queues[q].pick_bias = p as u32;
        p as u32
    }

    /// The first pCPU of new `v`: in the suitable queue with the least load (`csched2_res_pick`).
    pub(super) fn choose(&mut self, view: &View<'_>, v: u32) -> u32 {
        let facts = &view.host().vcpus[v as usize];
        let suits = |q: &usize| facts.affinity.intersects(&self.queues[*q].active);
        let liked = |q: &usize| {
            facts.soft_affinity.as_ref().is_some_and(|soft| soft.intersects(&self.queues[*q].active))
        };
        let load = |q: &usize| (self.queues[*q].b_avgload, *q);
        let all = || (0..self.queues.len()).filter(suits);
        if let Some(q) = all().filter(liked).min_by_key(load) {
            self.mask.copy_from(facts.soft_affinity.as_ref().expect("it has one"));
            self.mask.keep(&self.queues[q].active);
            let p = self.mask.after(self.queues[q].pick_bias as usize).expect("one of them is liked");
            self.queues[q].pick_bias = p as u32;
            return p as u32;
        }
        let q = all().min_by_key(load).expect("an affinity lies in the pool");
        self.cycle(view, v, q)
    }

    /// Balances queue `q` with the queue whose load differs most, by the best exchange (or move) of vCPUs.
    pub(super) fn balance(&mut self, view: &View<'_>, q: usize, orders: &mut Orders) {
        let now_ns = view.now_ns() as i64;
        self.update_load(q, NONE, 0, now_ns);
        let mut other = None;
        let mut delta = 0;
        for o in (0..self.queues.len()).filter(|o| *o != q) {
            self.update_load(o, NONE, 0, now_ns);
            let its = (self.queues[q].b_avgload - self.queues[o].b_avgload).abs();
            if its > delta {
                (other, delta) = (Some(o), its);
            }
        }
        let Some(o) = other else { return };
        // As in the source, which here looks at the last queue of its walk, not at the one that it found.
        let last = self.queues.len() - 1;
        let most = self.queues[q].b_avgload.max(self.queues[last].b_avgload);
        let cpus = self.queues[q].cpus.max(self.queues[last].cpus);
        let tolerance = if most < cpus << PRECISION { UNDERLOAD } else { OVERLOAD };
        if delta < tolerance {
            return;
        }
        let now = clock(now_ns);
        for side in [q, o] {
            for i in 0..self.queues[side].units.len() {
                let v = self.queues[side].units[i];
                self.update_unit(v, i64::from(self.wants(view, v)), now);
            }
        }
        let (own, its) = (self.queues[q].b_avgload, self.queues[o].b_avgload);
        let (mut push, mut pull, mut least) = (NONE, NONE, delta);
        let load = |v: u32| if v == NONE { 0 } else { self.units[v as usize].avgload };
        let mut consider = |a: u32, b: u32| {
            let gap = ((own - load(a) + load(b)) - (its + load(a) - load(b))).abs();
            if gap < least {
                (push, pull, least) = (a, b, gap);
            }
        };
        let goes = |v: &&u32, to: usize| {
            let unit = &self.units[**v as usize];
            let allowed = &view.host().vcpus[**v as usize].affinity;
            unit.moves_to == NONE && allowed.intersects(&self.queues[to].active)
        };
        for &a in self.queues[q].units.iter().filter(|v| goes(v, o)) {
            for &b in self.queues[o].units.iter().filter(|v| goes(v, q)) {
                consider(a, b);
            }
            consider(a, NONE);
        }
        for &b in self.queues[o].units.iter().filter(|v| goes(v, q)) {
            consider(NONE, b);
        }
        for (v, to) in [(push, o), (pull, q)] {
            if v != NONE {
                self.migrate(view, v, to, orders);
            }
        }
    }

    /// Is `v` runnable?
    fn wants(&self, view: &View<'_>, v: u32) -> bool {
        use crate::state::State;
        matches!(view.state(Vcpu(v)), State::Running | State::Ready) && !self.units[v as usize].parked
    }

    /// Moves `v` to queue `to`. A running vCPU moves when it has left its pCPU.
    fn migrate(&mut self, view: &View<'_>, v: u32, to: usize, orders: &mut Orders) {
        let now_ns = view.now_ns() as i64;
        let cpu = self.units[v as usize].cpu;
        let on = v == self.chosen
            || self.current[cpu as usize] == v
            || view.running(crate::setup::Pcpu(cpu)) == Some(Vcpu(v));
        if on {
            self.units[v as usize].moves_to = to as u32;
            self.interrupt(cpu, orders);
            return;
        }
        let queued = self.units[v as usize].queued;
        if queued {
            self.unqueue(v);
            self.update_load(self.units[v as usize].queue as usize, NONE, -1, now_ns);
        }
        self.deassign(v);
        self.units[v as usize].cpu = self.cycle(view, v, to);
        self.assign(v, to as u32);
        if queued {
            self.update_load(to, NONE, 1, now_ns);
            self.enqueue(v);
            self.tickle(view, v, orders);
        }
    }
}
