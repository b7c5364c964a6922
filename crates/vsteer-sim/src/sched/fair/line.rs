//! Entities in lines, and what the rules of a fair class decide about them.
//!
//! A line is what the kernel calls a `cfs_rq`: the entities (tasks, or groups as a whole) that compete at one level on
//! one pCPU, the running one among them. Virtual time runs at 1,024 / weight of real time.
//!
//! The kernel keeps the weighted sum of virtual times relative to a moving base in 64 bits; here it is absolute in 128,
//! which is the same value without the care.

use super::NONE;
use crate::policy::{About, Values};
use crate::setup::Host;

/// Weight of nice 0.
pub(in crate::sched) const NICE_0: i64 = 1024;

/// A task or a group on one pCPU.
#[derive(Debug, Clone)]
pub struct Entity {
    /// In whole units, of which nice 0 is 1,024.
    pub(in crate::sched) weight: i64,
    /// In 1/1,024 of them: precision of a group's worth on a pCPU.
    pub(in crate::sched) scaled: i64,
    pub(in crate::sched) vruntime: i64,
    pub(in crate::sched) deadline: i64,
    /// While it is in no line: what it was owed when it left.
    pub(in crate::sched) vlag: i64,
    pub(in crate::sched) next: u32,
    prev: u32,
    /// The line it is in, or was in last.
    pub(in crate::sched) line: u32,
    pub(in crate::sched) queued: bool,
    /// It sleeps, and stays in line until what it had too much of is made up (`sched_delayed`).
    pub(in crate::sched) delayed: bool,
    /// The deadline is relative to the virtual time, because the entity is moving.
    pub(in crate::sched) relative: bool,
    /// Protected until its deadline changes (`RUN_TO_PARITY`). As in the source, that is so when its slice is renewed,
    /// and until 6.17 also when its weight is: a group whose share a tick changes may be preempted before its slice is
    /// used.
    pub(in crate::sched) protected: bool,
    /// CPU time since it became the running one of its line.
    pub(in crate::sched) ran_ns: i64,
    /// A group asks for so much at a time that was set since; 0: what tasks ask for.
    pub(in crate::sched) kept_ns: i64,
    /// A task never queued before; a group is taken to be one that was.
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

    /// Virtual time that `ns` of CPU are for it.
    pub(in crate::sched) fn virtual_of(&self, ns: i64) -> i64 {
        if self.weight == NICE_0 {
            ns
        } else {
            (i128::from(ns) * i128::from(NICE_0) / i128::from(self.weight)) as i64
        }
    }

    /// CPU time after which its virtual time has grown by at least `ns`.
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
    /// Entities in it, delayed ones too.
    pub(in crate::sched) queued: u32,
    pub(in crate::sched) weight: i64,
    pub(in crate::sched) sum: i128,
    /// Who of them runs.
    pub(in crate::sched) current: u32,
    /// The `next` buddy: the entity to prefer if that is fair.
    pub(in crate::sched) next: u32,
    /// The `last` buddy: who was preempted, to be preferred after its preemptor.
    pub(in crate::sched) last: u32,
    /// The `skip` buddy: who yielded.
    pub(in crate::sched) skip: u32,
    /// The entity that stands for this line one level up; `NONE` at the top.
    pub(in crate::sched) owner: u32,
    pub(in crate::sched) pcpu: u32,
    pub(in crate::sched) group: u32,
    /// Tasks below it that are awake, throttled ones not among them. Kept where tasks stand in the top line.
    pub(in crate::sched) awake: u32,
    /// Virtual time when the last one left: where the next one begins.
    pub(in crate::sched) floor: i64,
    /// With a quota: what is left of the share this pCPU took, ns.
    pub(in crate::sched) runtime_ns: i64,
    pub(in crate::sched) throttled: bool,
    /// Which throttling of the pool it was.
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

/// What a fair class decides: who of a line runs, for how long, and where a newcomer's virtual time begins.
///
/// Everything else (the tree of groups, quotas, who runs on which pCPU) is the same for all of them.
pub trait Rules: Sized {
    /// The line in the table of the scheduler that they are the fair class of.
    const ABOUT: About;
    /// Does a slice depend on who else is awake on the pCPU?
    const SLICES_VARY: bool = false;
    /// Is the class kept from starving by a server (since 6.12), or by throttling those above it?
    const FAIR_SERVER: bool;
    /// Is a task that preempts on waking preferred, and the one that it preempts after it?
    const BUDDIES: bool = false;
    /// How long a line waits before it tells its group its load again.
    const TELL_EVERY_NS: i64;
    /// Does a group keep its weight on a pCPU where nobody of it is in line any longer?
    const EMPTY_KEEPS_WEIGHT: bool;

    /// Does each task stand in the top line of its pCPU, whatever groups it is in?
    fn flat(&self) -> bool {
        false
    }

    /// Do slices end by a timer of their own, and not at the tick that finds them used?
    fn exact(&self) -> bool {
        false
    }

    /// The rules with these parameters.
    fn new(host: &Host, values: &Values) -> Self;
    /// Somebody below group entity `e` came or went.
    fn told(_l: &mut Lines<Self>, _e: u32, _now_ns: i64) {}
    /// `e` joins `line`.
    fn enter(l: &mut Lines<Self>, line: u32, e: u32);
    /// `e` leaves its line. `sleep`: it has nothing to do; else it only moves.
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
    /// One that stayed leaves for good.
    fn leave_delayed(l: &mut Lines<Self>, e: u32) {
        Self::leave(l, e, true);
    }
    /// One that stayed wakes.
    fn undelay(_l: &mut Lines<Self>, _e: u32) {}
    /// Changes the weight, in 1/1,024 of the unit.
    fn reweigh(l: &mut Lines<Self>, e: u32, scaled: i64);
    /// Running `e` used `ns` of CPU since `from_ns`. True where it should not go on.
    fn charge(l: &mut Lines<Self>, e: u32, from_ns: i64, ns: i64) -> bool;
    /// A tick finds `e` running, of `running` on its pCPU. True where it should not go on.
    fn tick(_l: &mut Lines<Self>, _e: u32, _running: u32) -> bool {
        false
    }
    /// `e` becomes the running one of its line.
    fn picked(l: &mut Lines<Self>, e: u32);
    /// Who of the line runs.
    fn pick(l: &Lines<Self>, line: u32) -> u32;
    /// Does `new`, which woke, take over from `old`, which runs, in the line of both?
    fn preempts(l: &mut Lines<Self>, old: u32, new: u32) -> bool;
    /// After how much CPU time running `e`, one of several in its line, is to be looked at by a tick.
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
    /// To the end of `line`.
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

    /// Off its line.
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
            // Alone it was the average of its line.
            l.floor = l.floor.max(vruntime);
        }
    }

    /// `e` gives up the pCPU and stays in line: behind those of the same deadline.
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
