//! Run queues: a list per pCPU ordered by priority, with counts of the runnable vCPUs and the idle pCPUs.

use super::{BOOST, Credit, LEAVING, MIGRATING, NONE, PARKED, QUEUED, UNDER, YIELD};
use crate::policy::{Orders, View};

impl Credit {
    /// Adds a unit to its pCPU's queue, behind all with its priority. A yielding unit also goes behind one
    /// with lower priority.
    #[inline]
    pub(super) fn insert(&mut self, v: u32) {
        let (pri, flags, cpu) = {
            let unit = &self.units[v as usize];
            debug_assert!(unit.flags & QUEUED == 0, "vCPU {v} is queued already");
            (unit.pri, unit.flags, unit.cpu)
        };
        let mut before = self.queues[cpu as usize].head;
        while before != NONE && self.units[before as usize].pri >= pri {
            before = self.units[before as usize].next;
        }
        if flags & YIELD != 0 && before != NONE {
            before = self.units[before as usize].next;
        }
        let queue = &mut self.queues[cpu as usize];
        let prev = if before == NONE {
            std::mem::replace(&mut queue.tail, v)
        } else {
            std::mem::replace(&mut self.units[before as usize].prev, v)
        };
        if prev == NONE {
            queue.head = v;
        } else {
            self.units[prev as usize].next = v;
        }
        let unit = &mut self.units[v as usize];
        (unit.prev, unit.next) = (prev, before);
        unit.flags |= QUEUED;
    }

    /// Removes a unit from its queue.
    #[inline]
    pub(super) fn remove(&mut self, v: u32) {
        let unit = &mut self.units[v as usize];
        debug_assert!(unit.flags & QUEUED != 0, "vCPU {v} is in no queue");
        unit.flags &= !(QUEUED | YIELD);
        let (prev, next, cpu) = (unit.prev, unit.next, unit.cpu);
        let queue = &mut self.queues[cpu as usize];
        if prev == NONE {
            queue.head = next;
        } else {
            self.units[prev as usize].next = next;
        }
        if next == NONE {
            queue.tail = prev;
        } else {
            self.units[next as usize].prev = prev;
        }
    }

    #[inline]
    pub(super) fn more_runnable(&mut self, p: u32) {
        let queue = &mut self.queues[p as usize];
        queue.runnable += 1;
        if queue.runnable == 2 {
            self.overloaded.insert(p as usize);
        }
    }

    #[inline]
    pub(super) fn less_runnable(&mut self, p: u32) {
        let queue = &mut self.queues[p as usize];
        queue.runnable -= 1;
        if queue.runnable == 1 {
            self.overloaded.remove(p as usize);
        }
    }

    #[inline]
    pub(super) fn set_idler(&mut self, p: usize) {
        if !self.idlers.contains(p) {
            self.idlers.insert(p);
            let queue = &self.queues[p];
            self.idle.more(queue.core, queue.socket);
        }
    }

    #[inline]
    pub(super) fn clear_idler(&mut self, p: usize) {
        if self.idlers.contains(p) {
            self.idlers.remove(p);
            let queue = &self.queues[p];
            self.idle.less(queue.core, queue.socket);
        }
    }

    /// A unit that was blocked, moved or parked is runnable again: queues it and notifies a pCPU. `at` is the
    /// pCPU on which this happens.
    #[inline]
    pub(super) fn enqueue_woken(&mut self, view: &View<'_>, v: u32, at: u32, orders: &mut Orders) {
        let unit = &mut self.units[v as usize];
        let migrating = unit.flags & MIGRATING != 0;
        unit.flags &= !MIGRATING;
        if !migrating && unit.pri == UNDER && unit.flags & PARKED == 0 {
            unit.pri = BOOST;
        }
        let cpu = unit.cpu;
        self.insert(v);
        self.more_runnable(cpu);
        self.tickle(view, v, at, orders);
    }

    /// Ends a move that a tick began, after `v` has left pCPU `p`.
    pub(super) fn finish_move(
        &mut self,
        view: &View<'_>,
        v: u32,
        p: u32,
        blocked: bool,
        orders: &mut Orders,
    ) {
        let unit = &mut self.units[v as usize];
        unit.flags &= !LEAVING;
        unit.flags |= MIGRATING;
        let parked = unit.flags & PARKED != 0;
        let to = self.place(view, v, true);
        self.units[v as usize].cpu = to;
        if !blocked && !parked {
            self.enqueue_woken(view, v, p, orders);
        }
    }
}
