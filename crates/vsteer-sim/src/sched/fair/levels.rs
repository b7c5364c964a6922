//! Works on all levels from a task up to the top line of its pCPU: joining and leaving, choosing the next
//! task, and the length of its turn.
//!
//! If tasks of all groups compete in one line (7.3), [`super::flat`] replaces the work that this file does
//! level by level.
//!
//! [`super::line`] describes one level and what the rules decide there. A group is in the line above exactly
//! while its own line has entities and is not throttled.

use super::flat::Leaves;
use super::share::Then;
use super::{Branch, Cpu, Entity, Fair, NONE, Rules, next_tick, quota};
use crate::policy::{Held, Orders};
use crate::setup::{Group, Pcpu, Vcpu};

impl<R: Rules> Fair<R> {
    /// The line of `group` on `p`; if it has none there, a free one. Also its owner in the line above.
    pub(super) fn line_of(&mut self, group: u32, p: u32) -> u32 {
        if group == Group(0).0 {
            return p;
        }
        let Branch { first, lines, parent, .. } = self.branches[group as usize];
        let mut free = NONE;
        let (mut found, mut least) = (NONE, i64::MAX);
        for line in first..first + lines {
            let l = &self.lines.lines[line as usize];
            if l.pcpu == p {
                found = line;
                break;
            }
            let out = l.queued == 0 && !l.throttled && !self.lines.entities[l.owner as usize].queued;
            // A line that was never used, otherwise the one with the least load.
            let left = if l.pcpu == NONE { -1 } else { self.load_left(line) };
            if out && (free == NONE || left < least) {
                (free, least) = (line, left);
            }
        }
        if found == NONE {
            if free == NONE {
                free = self.free_line(first, lines);
            }
            found = free;
            self.release_runtime(found, 0);
            self.forget_load(found);
            self.lines.lines[found as usize].pcpu = p;
            let owner = self.lines.lines[found as usize].owner;
            self.lines.entities[owner as usize].vlag = 0;
        }
        let above = self.line_of(parent, p);
        let owner = self.lines.lines[found as usize].owner;
        let entity = &mut self.lines.entities[owner as usize];
        if !entity.queued {
            entity.line = above;
        }
        found
    }

    /// A line without entities, whose owner may still owe CPU time or whose quota may still have a debt. Both
    /// debts are dropped.
    pub(super) fn free_line(&mut self, first: u32, lines: u32) -> u32 {
        let empty = |line: &u32| self.lines.lines[*line as usize].queued == 0;
        let line = (first..first + lines).find(empty).expect("a group has more lines than vCPUs");
        self.leave_upwards(self.lines.lines[line as usize].owner);
        self.lines.lines[line as usize].throttled = false;
        self.lines.lines[line as usize].runtime_ns = 0;
        line
    }

    /// The entity above `e`; `NONE` at the top.
    #[inline]
    pub(super) fn above(&self, e: u32) -> u32 {
        self.lines.lines[self.lines.entities[e as usize].line as usize].owner
    }

    /// Charges the running task on `p` at every level up to `now_ns`. Asks for a new decision if a slice or
    /// quota is used up.
    pub(super) fn charge(&mut self, p: u32, now_ns: i64, orders: &mut Orders) {
        let cpu = &mut self.cpus[p as usize];
        let (from_ns, mut e) = (cpu.charged_ns, cpu.current);
        cpu.charged_ns = now_ns;
        if e == NONE || now_ns == from_ns {
            return;
        }
        let mut over = false;
        if self.flat {
            let standing = self.standing(e);
            over = R::charge(&mut self.lines, standing, from_ns, now_ns - from_ns);
        }
        while e != NONE {
            if !self.flat {
                over |= R::charge(&mut self.lines, e, from_ns, now_ns - from_ns);
            }
            let line = self.lines.entities[e as usize].line;
            over |= self.spend(line, now_ns, now_ns - from_ns, orders);
            e = self.above(e);
        }
        if over {
            self.forget(self.cpus[p as usize].current);
            self.reschedule(p, orders);
        }
    }

    /// A tick while a task runs on `p`: updates loads and shares, and checks whether the task should stop
    /// (`entity_tick`).
    pub(super) fn tick(&mut self, p: u32) {
        let Cpu { runnable, charged_ns, mut current, .. } = self.cpus[p as usize];
        if self.flat {
            if current != NONE {
                self.flat_tick(p, current);
            }
            return;
        }
        while current != NONE {
            let e = current;
            let line = self.lines.entities[e as usize].line;
            self.update_load(e, line, charged_ns, Then::Tell);
            self.share_of(e);
            if self.lines.lines[line as usize].queued > 1 && R::tick(&mut self.lines, e, runnable) {
                self.forget(e);
                self.cpus[p as usize].resched = true;
            }
            current = self.above(e);
        }
    }

    /// The awake tasks on `p` have changed, so the end of the running slice may have changed too.
    pub(super) fn remind(&mut self, p: u32, now_ns: i64, orders: &mut Orders) {
        let cpu = &self.cpus[p as usize];
        if R::SLICES_VARY && cpu.current != NONE && !cpu.resched {
            orders.end_slice(Pcpu(p), (now_ns as u64).saturating_add(self.slice(p, now_ns)));
        }
    }

    pub(super) fn reschedule(&mut self, p: u32, orders: &mut Orders) {
        self.cpus[p as usize].resched = true;
        orders.interrupt(Pcpu(p));
    }

    /// Awake `v` joins its line on `p`, and its groups join every line above in which they are new
    /// (`enqueue_task_fair`).
    pub(super) fn enqueue(&mut self, p: u32, v: u32, now_ns: i64, orders: &mut Orders) {
        if self.flat {
            self.flat_enqueue(p, v, now_ns, orders);
            return;
        }
        let mut line = self.line_of(self.tasks[v as usize].group, p);
        let mut e = v;
        while e != NONE {
            let entity = &self.lines.entities[e as usize];
            if entity.queued {
                if entity.delayed {
                    R::undelay(&mut self.lines, e);
                    self.update_load(e, line, now_ns, Then::Nothing);
                }
                break;
            }
            self.update_load(e, line, now_ns, Then::Attach);
            self.share_of(e);
            // There is a second entity in line, so the running one's slice now has an end.
            if self.lines.lines[line as usize].queued == 1 {
                orders.interrupt(Pcpu(p));
            }
            if e != v {
                R::told(&mut self.lines, e, now_ns);
            }
            R::enter(&mut self.lines, line, e);
            if self.first_in(line, now_ns, orders) {
                break;
            }
            e = self.lines.lines[line as usize].owner;
            if e != NONE {
                line = self.lines.entities[e as usize].line;
            }
        }
        let held = self.held(v);
        // A task that stayed in line while it slept changes nothing further up.
        if e != v && !held {
            self.update_upwards(e, now_ns);
        }
        if held {
            self.limit(v, orders);
        } else {
            self.list(p, v);
        }
    }

    /// An entity entered `line`. If it is the first one, the line has load now, and it may be throttled from
    /// the start. True if it is throttled.
    pub(super) fn first_in(&mut self, line: u32, now_ns: i64, orders: &mut Orders) -> bool {
        let l = &self.lines.lines[line as usize];
        if l.queued == 1 && l.owner != NONE && !l.throttled {
            self.enter_quota(line, now_ns, orders);
            self.list_load(line);
        }
        self.lines.lines[line as usize].throttled
    }

    /// `v` leaves `p`, because it sleeps or goes to another pCPU.
    pub(super) fn dequeue(&mut self, p: u32, v: u32, sleep: bool) {
        self.unlist(p, v);
        if self.flat {
            self.flat_leave(p, v, if sleep { Leaves::Asleep } else { Leaves::Moved });
        } else {
            self.leave(p, v, sleep);
        }
    }

    /// `e` leaves its line, and so do the groups in which it is the last one (`dequeue_entities`). If it is
    /// asleep and not eligible, it stays in line as delayed. If it was delayed already, it leaves for good.
    fn leave(&mut self, p: u32, first: u32, sleep: bool) {
        let now_ns = self.cpus[p as usize].charged_ns;
        let (mut e, mut sleeps) = (first, sleep);
        loop {
            self.forget(e);
            let Entity { line, delayed, .. } = self.lines.entities[e as usize];
            if sleeps && !delayed && R::stays(&self.lines, e) {
                self.update_load(e, line, now_ns, Then::Nothing);
                R::delay(&mut self.lines, e);
                // A task that stays in line changes nothing further up.
                if e == first {
                    return;
                }
                break;
            }
            self.update_load(e, line, now_ns, if sleeps { Then::Tell } else { Then::Detach });
            if delayed {
                R::leave_delayed(&mut self.lines, e);
            } else {
                R::leave(&mut self.lines, e, sleeps);
            }
            if !R::EMPTY_KEEPS_WEIGHT {
                self.share_of(e);
            }
            let emptied = self.close(line, e);
            let l = &self.lines.lines[line as usize];
            if l.throttled {
                return;
            }
            e = l.owner;
            if !emptied {
                if sleep && l.queued > 0 {
                    self.prefer_siblings(line);
                }
                break;
            }
            sleeps = true;
        }
        self.update_upwards(e, now_ns);
    }

    /// `e` has left `line`. True if it was the last one, so the line's owner must also leave.
    pub(super) fn close(&mut self, line: u32, e: u32) -> bool {
        let l = &mut self.lines.lines[line as usize];
        if l.current == e {
            l.current = NONE;
        }
        if l.owner == NONE || l.throttled || l.queued > 0 {
            return false;
        }
        self.release_runtime(line, quota::KEEP_NS);
        true
    }

    /// The next task on `p` according to its lines. Delayed entities whose turn comes leave for good.
    pub(super) fn best(&mut self, p: u32, orders: &mut Orders) -> u32 {
        if self.flat {
            return self.flat_best(p, orders);
        }
        let mut line = p;
        loop {
            let e = R::pick(&self.lines, line);
            if e == NONE {
                assert_eq!(line, p, "a line without an entity has an owner in line");
                return NONE;
            }
            if self.lines.entities[e as usize].delayed {
                self.leave(p, e, true);
                line = p;
            } else if (e as usize) < self.tasks.len() {
                return e;
            } else {
                line = self.line_below(e);
            }
        }
    }

    /// The line that group entity `e` represents.
    #[inline]
    pub(super) fn line_below(&self, e: u32) -> u32 {
        // Lines of groups and their owners were made in pairs.
        e - self.tasks.len() as u32 + self.cpus.len() as u32
    }

    /// Makes `next` (or no task) current on `p` at all its levels. At each level that changes, the new entity
    /// is protected.
    pub(super) fn make_current(&mut self, p: u32, next: u32) {
        if self.cpus[p as usize].current == next {
            return;
        }
        if self.flat {
            self.flat_current(p, next);
        } else {
            self.tree_current(p, next);
        }
        self.cpus[p as usize].current = next;
        if next != NONE {
            // The task that ran last is the last one to be moved to another pCPU.
            self.unlist(p, next);
            self.list(p, next);
            if self.flat {
                self.set_timer(p, self.cpus[p as usize].charged_ns);
            }
        }
    }

    fn tree_current(&mut self, p: u32, next: u32) {
        let Cpu { current: before, charged_ns: now_ns, .. } = self.cpus[p as usize];
        let mut e = before;
        while e != NONE {
            let Entity { line, queued, .. } = self.lines.entities[e as usize];
            if self.lines.lines[line as usize].current == e && !self.leads_to(e, next) {
                if queued {
                    self.update_load(e, line, now_ns, Then::Nothing);
                }
                self.lines.lines[line as usize].current = NONE;
                self.lines.put_back(e);
            }
            e = self.above(e);
        }
        let mut e = next;
        while e != NONE {
            let line = self.lines.entities[e as usize].line;
            if self.lines.lines[line as usize].current != e {
                self.update_load(e, line, now_ns, Then::Tell);
                self.lines.lines[line as usize].current = e;
                R::picked(&mut self.lines, e);
                self.forget(e);
            }
            e = self.above(e);
        }
    }

    /// Is `e` task `v` or a group above it?
    pub(super) fn leads_to(&self, e: u32, v: u32) -> bool {
        let mut at = v;
        while at != NONE && at != e {
            at = self.above(at);
        }
        at == e
    }

    /// Compares woken `v` with the running task on `p`, in the line that both have in common.
    pub(super) fn preempt(&mut self, p: u32, v: u32, orders: &mut Orders) {
        let Cpu { current, above, .. } = self.cpus[p as usize];
        if above {
            return;
        }
        if current == NONE {
            self.reschedule(p, orders);
            return;
        }
        if self.tasks[v as usize].polite {
            return;
        }
        if self.flat {
            self.flat_preempt(p, current, v, orders);
            return;
        }
        let (mut old, mut new) = (current, v);
        loop {
            let (a, b) = (self.lines.entities[old as usize].line, self.lines.entities[new as usize].line);
            if a == b {
                if old != new && R::preempts(&mut self.lines, old, new) {
                    self.reschedule(p, orders);
                    if R::BUDDIES {
                        self.prefer(new);
                        let line = self.lines.entities[current as usize].line;
                        if (old as usize) < self.tasks.len() && R::crowded(&self.lines, line) {
                            self.prefer_last(old);
                        }
                    }
                }
                return;
            }
            let depth = |line: u32| self.branches[self.lines.lines[line as usize].group as usize].depth;
            let (x, y) = (depth(a), depth(b));
            if x >= y {
                old = self.above(old);
            }
            if y >= x {
                new = self.above(new);
            }
        }
    }

    /// How long the running task on `p` may continue: to its slice timer; or to the tick that finds a slice
    /// or a quota used up, at any level; or to the next tick, if that tick may change a group's weight.
    pub(super) fn slice(&self, p: u32, now_ns: i64) -> u64 {
        let (mut least_ns, mut exact_ns) = (i64::MAX, i64::MAX);
        let Cpu { current, runnable, timer_ns, .. } = self.cpus[p as usize];
        let slice_ns = |e: u32| R::slice_ns(&self.lines, e, runnable).max(1);
        if self.flat && current != NONE && self.lines.lines[p as usize].queued > 1 {
            let standing = self.standing(current);
            if timer_ns < i64::MAX {
                exact_ns = (timer_ns - now_ns).max(1);
            } else {
                least_ns = slice_ns(standing);
            }
            if !self.lines.entities[standing as usize].protected {
                // Every tick checks whether it should stop.
                least_ns = 1;
            }
        }
        let mut e = current;
        while e != NONE {
            let entity = &self.lines.entities[e as usize];
            let line = &self.lines.lines[entity.line as usize];
            if !self.flat && line.queued > 1 {
                let ends = if self.lines.rules.exact() { &mut exact_ns } else { &mut least_ns };
                *ends = slice_ns(e).min(*ends);
            }
            if self.branches[line.group as usize].quota.is_some() {
                least_ns = least_ns.min(line.runtime_ns.max(1));
            }
            if e as usize >= self.tasks.len() && self.drifts(e) {
                least_ns = 1;
            }
            e = self.above(e);
        }
        if least_ns < i64::MAX {
            exact_ns = exact_ns.min(next_tick(now_ns + least_ns, self.tick_ns) - now_ns);
        }
        if exact_ns == i64::MAX { u64::MAX } else { exact_ns as u64 }
    }

    /// sched_yield: its slice counts as used.
    pub(super) fn forfeit(&mut self, v: u32) {
        self.forget(v);
        let standing = self.standing(v);
        R::forfeit(&mut self.lines, standing);
    }

    pub(super) fn limit(&mut self, v: u32, orders: &mut Orders) {
        self.limits += 1;
        let task = &mut self.tasks[v as usize];
        (task.limited, task.limited_as) = (true, self.limits);
        orders.hold(Vcpu(v), Held::Limited);
    }
}
