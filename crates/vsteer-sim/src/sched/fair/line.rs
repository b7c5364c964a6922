//! Entities in lines, and the decisions of a fair class's rules about them.
//!
//! A line is the kernel's `cfs_rq`: the entities (tasks, or whole groups) that compete at one level on one
//! pCPU, including the running one. Virtual time advances at 1,024 / weight of real time.
//!
//! The kernel keeps the weighted sum of virtual times relative to a moving base in 64 bits. Here the sum is
//! absolute in 128 bits, which gives the same value more simply.

use super::NONE;
use crate::policy::{About, Values};
use crate::setup::Host;

/// Weight of nice 0.
pub(in crate::sched) const NICE_0: i64 = 1024;

/// A task or a group on one pCPU.
#[derive(Debug, Clone)]
pub struct Entity {
    /// In whole units; nice 0 is 1,024.
    pub(in crate::sched) weight: i64,
    /// In 1/1,024 of these units, the precision of a group's weight on a pCPU.
    pub(in crate::sched) scaled: i64,
    pub(in crate::sched) vruntime: i64,
    pub(in crate::sched) deadline: i64,
    /// While it is in no line: the time that it was owed when it left.
    pub(in crate::sched) vlag: i64,
    pub(in crate::sched) next: u32,
    prev: u32,
    /// The present or last line.
    pub(in crate::sched) line: u32,
    pub(in crate::sched) queued: bool,
    /// It sleeps, but stays in line until it has made up for time that it had too much (`sched_delayed`).
    pub(in crate::sched) delayed: bool,
    /// The deadline is relative to the virtual time, because the entity is moving.
    pub(in crate::sched) relative: bool,
    /// Protected until its deadline changes (`RUN_TO_PARITY`). As in the source, the deadline changes when
    /// its slice is renewed, and until 6.17 also when its weight changes. So a group whose share changes at a
    /// tick may be preempted before its slice is used.
    pub(in crate::sched) protected: bool,
    /// CPU time since it became the running entity of its line.
    pub(in crate::sched) ran_ns: i64,
    /// The slice that a group asked for before the base slice was changed; 0 if it uses the tasks' slice.
    pub(in crate::sched) kept_ns: i64,
    /// A task that was never queued. A group always counts as queued before.
    pub(in crate::sched) fresh: bool,
}

impl Entity {
    pub(in crate::sched) fn new(weight: i64, fresh: bool) -> Entity {
        Entity {
            weight,
            scaled: weight << 10,
            vruntime: 0,
            deadline: 0,
            vlag: 0,
            next: NONE,
            prev: NONE,
            line: NONE,
            queued: false,
            delayed: false,
            relative: false,
            protected: false,
            ran_ns: 0,
            kept_ns: 0,
            fresh,
        }
    }

    /// The virtual time for `ns` of CPU time.
    pub(in crate::sched) fn virtual_of(&self, ns: i64) -> i64 {
        if self.weight == NICE_0 {
            ns
        } else {
            (i128::from(ns) * i128::from(NICE_0) / i128::from(self.weight)) as i64
        }
    }

    /// The CPU time after which its virtual time has grown by at least `ns`.
    pub(in crate::sched) fn real_of(&self, ns: i64) -> i64 {
        let real = i128::from(ns) * i128::from(self.weight);
        (real + i128::from(NICE_0) - 1).div_euclid(i128::from(NICE_0)) as i64
    }
}

/// The entities that compete at one level on one pCPU.
#[derive(Debug, Clone)]
pub struct Line {
    pub(in crate::sched) head: u32,
    tail: u32,
    /// The number of entities, including delayed ones.
    pub(in crate::sched) queued: u32,
    pub(in crate::sched) weight: i64,
    pub(in crate::sched) sum: i128,
    /// The running entity.
    pub(in crate::sched) current: u32,
    /// The `next` buddy: the entity to prefer if that is fair.
    pub(in crate::sched) next: u32,
    /// The `last` buddy: the preempted entity, to be preferred after its preemptor.
    pub(in crate::sched) last: u32,
    /// The `skip` buddy: the entity that yielded.
    pub(in crate::sched) skip: u32,
    /// The entity that represents this line one level up; `NONE` at the top.
    pub(in crate::sched) owner: u32,
    pub(in crate::sched) pcpu: u32,
    pub(in crate::sched) group: u32,
    /// Number of awake tasks below it, except throttled ones. Only policies whose top queue holds tasks use it.
    pub(in crate::sched) awake: u32,
    /// Virtual time when the last entity left, from which the next one starts.
    pub(in crate::sched) floor: i64,
    /// With a quota: what is left of the share this pCPU took, ns.
    pub(in crate::sched) runtime_ns: i64,
    pub(in crate::sched) throttled: bool,
    /// The number of the pool's throttling that throttled it.
    pub(in crate::sched) throttled_as: u64,
}

impl Line {
    pub(in crate::sched) fn new(owner: u32, pcpu: u32, group: u32) -> Line {
        Line {
            head: NONE,
            tail: NONE,
            queued: 0,
            weight: 0,
            sum: 0,
            current: NONE,
            next: NONE,
            last: NONE,
            skip: NONE,
            owner,
            pcpu,
            group,
            awake: 0,
            floor: 0,
            runtime_ns: 0,
            throttled: false,
            throttled_as: 0,
        }
    }
}

/// The decisions of a fair class: which entity of a line runs, for how long, and the first virtual time of a
/// new entity.
///
/// Everything else (the tree of groups, quotas, the choice of pCPUs) is the same for all fair classes.
pub trait Rules: Sized {
    /// The table entry of the scheduler that uses these rules.
    const ABOUT: About;
    /// Does the length of a slice depend on the other awake tasks on the pCPU?
    const SLICES_VARY: bool = false;
    /// Does a server protect the class from starving (since 6.12), or throttling of the classes above it?
    const FAIR_SERVER: bool;
    /// Is a task that preempts at its wake-up preferred, and after it the task that it preempted?
    const BUDDIES: bool = false;
    /// The shortest time between two reports of a line's load to its group.
    const TELL_EVERY_NS: i64;
    /// Does a group keep its weight on a pCPU after its last entity there has left the line?
    const EMPTY_KEEPS_WEIGHT: bool;

    /// Does each task compete in the top line of its pCPU, whatever its groups?
    fn flat(&self) -> bool {
        false
    }

    /// Do slices end by their own timer, instead of at the tick that finds them used?
    fn exact(&self) -> bool {
        false
    }

    /// The rules with these parameters.
    fn new(host: &Host, values: &Values) -> Self;
    /// A task below group entity `e` woke or went to sleep.
    fn told(_l: &mut Lines<Self>, _e: u32, _now_ns: i64) {}
    /// `e` joins `line`.
    fn enter(l: &mut Lines<Self>, line: u32, e: u32);
    /// `e` leaves its line. `sleep`: it has nothing to do; otherwise it only moves.
    fn leave(l: &mut Lines<Self>, e: u32, sleep: bool);
    /// Does `e`, going to sleep, stay in line for now?
    fn stays(_l: &Lines<Self>, _e: u32) -> bool {
        false
    }
    /// `e` goes to sleep and stays in line.
    fn delay(l: &mut Lines<Self>, e: u32) {
        let entity = &mut l.entities[e as usize];
        (entity.delayed, entity.protected) = (true, false);
    }
    /// A delayed entity leaves for good.
    fn leave_delayed(l: &mut Lines<Self>, e: u32) {
        Self::leave(l, e, true);
    }
    /// A delayed entity wakes.
    fn undelay(_l: &mut Lines<Self>, _e: u32) {}
    /// Changes the weight, in 1/1,024 of the unit.
    fn reweigh(l: &mut Lines<Self>, e: u32, scaled: i64);
    /// Running `e` used `ns` of CPU since `from_ns`. True if it should stop.
    fn charge(l: &mut Lines<Self>, e: u32, from_ns: i64, ns: i64) -> bool;
    /// A tick while `e` runs, with `running` tasks on its pCPU. True if it should stop.
    fn tick(_l: &mut Lines<Self>, _e: u32, _running: u32) -> bool {
        false
    }
    /// `e` becomes the running entity of its line.
    fn picked(l: &mut Lines<Self>, e: u32);
    /// The entity of the line that should run.
    fn pick(l: &Lines<Self>, line: u32) -> u32;
    /// Does woken `new` preempt running `old` in their common line?
    fn preempts(l: &mut Lines<Self>, old: u32, new: u32) -> bool;
    /// The CPU time after which a tick should check running `e`, which is one of several in its line.
    fn slice_ns(l: &Lines<Self>, e: u32, running: u32) -> i64;
    /// Running `e` yields.
    fn forfeit(l: &mut Lines<Self>, e: u32);
    /// Are there enough entities in a line to prefer the preempted one after its preemptor?
    fn crowded(_l: &Lines<Self>, _line: u32) -> bool {
        false
    }
}

/// All entities and lines of a pool.
#[derive(Debug)]
pub struct Lines<R> {
    pub(in crate::sched) entities: Vec<Entity>,
    pub(in crate::sched) lines: Vec<Line>,
    pub(in crate::sched) rules: R,
}

impl<R> Lines<R> {
    /// Appends `e` to `line`.
    pub(in crate::sched) fn link(&mut self, line: u32, e: u32) {
        let tail = self.lines[line as usize].tail;
        let entity = &mut self.entities[e as usize];
        entity.fresh = false;
        entity.queued = true;
        entity.line = line;
        (entity.prev, entity.next) = (tail, NONE);
        let (weight, vruntime) = (entity.weight, entity.vruntime);
        if tail != NONE {
            self.entities[tail as usize].next = e;
        }
        let l = &mut self.lines[line as usize];
        if l.head == NONE {
            l.head = e;
        }
        l.tail = e;
        l.queued += 1;
        l.weight += weight;
        l.sum += i128::from(weight) * i128::from(vruntime);
    }

    /// Removes `e` from its line.
    pub(in crate::sched) fn unlink(&mut self, e: u32) {
        let entity = &mut self.entities[e as usize];
        entity.queued = false;
        let (prev, next, line) = (entity.prev, entity.next, entity.line);
        let (weight, vruntime) = (entity.weight, entity.vruntime);
        if prev != NONE {
            self.entities[prev as usize].next = next;
        }
        if next != NONE {
            self.entities[next as usize].prev = prev;
        }
        let l = &mut self.lines[line as usize];
        if l.head == e {
            l.head = next;
        }
        if l.tail == e {
            l.tail = prev;
        }
        l.queued -= 1;
        l.weight -= weight;
        l.sum -= i128::from(weight) * i128::from(vruntime);
        if l.queued == 0 {
            // Alone in line, its virtual time was the average.
            l.floor = l.floor.max(vruntime);
        }
    }

    /// `e` gives up the pCPU and stays in line, behind entities with the same deadline.
    pub(in crate::sched) fn put_back(&mut self, e: u32) {
        let line = self.entities[e as usize].line;
        if self.entities[e as usize].queued && self.lines[line as usize].tail != e {
            self.unlink(e);
            self.link(line, e);
        }
    }
}

/// A weight in whole units, at least 2 (`scale_load_down`).
pub(in crate::sched) fn unscaled(scaled: i64) -> i64 {
    (scaled >> 10).max(2)
}

/// The first tick at or after `ns`.
pub(in crate::sched) fn next_tick(ns: i64, tick_ns: i64) -> i64 {
    (ns + tick_ns - 1) / tick_ns * tick_ns
}
