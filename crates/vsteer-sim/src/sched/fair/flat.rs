//! One line of tasks per pCPU for tasks of all groups: the fair class of Linux 7.3.
//!
//! **Idea.** Groups only determine weights. A group's line on a pCPU holds its awake tasks there and adds up
//! their load, but no entity competes in it. Every task competes in the top line of its pCPU
//! ([`Fair::standing`]). Its weight there is what the groups above leave it: its part of the first group,
//! times that group's part of the next one, and so on ([`Fair::worth`]). This weight is computed when the
//! task joins, when it gets the pCPU, and at every tick while it runs. A waiting task keeps its weight. Two
//! tasks of one VM compete separately. When the second joins, the first keeps its former weight until the
//! next tick.
//!
//! A group's weight counts once for each of its tasks that is runnable on average, up to the number of pCPUs
//! (`cgroup_mode` concur, [`Fair::times`]).
//!
//! A slice ends by a timer (`HRTICK`), which is set in only two cases: for a task that gets the pCPU from
//! another one, and when a task joins the line while the timer is not set. A task that is picked again at the
//! end of its slice continues without a timer, unprotected, until a task wakes or a tick finds it. This
//! causes the waits of several slices on 7.3. Without it, the simulated turns of a vCPU that never sleeps
//! lasted at most 1.4 ms (99 of 100), but 3.2 ms were recorded.
//!
//! If a group's quota is used up, its tasks leave one by one: the running one at once, the others when their
//! turn comes (`sched_throttle_work`). While none of them is in line, the group's averages stand still. When
//! the next period pays, they join again, in the reverse order of leaving.
//!
//! Source: kernel/sched/fair.c of Linux 7.3.4 (`enqueue_hierarchy`, `__dequeue_task`, `__calc_prop_weight`,
//! `calc_concur_shares`, `set_next_task_fair`, `hrtick_start_fair`, `hrtick_update`, `wakeup_preempt_fair`,
//! `throttle_cfs_rq_work`, `tg_unthrottle_up`) and sched.h (`put_prev_set_next_task`). Read, not copied.

use super::share::Then;
use super::{Cpu, Entity, Fair, NICE_0, NONE, Rules, quota};
use crate::policy::Orders;
use crate::setup::Pcpu;

/// Why a task leaves its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaves {
    /// It sleeps. If it is not eligible, it stays in line as delayed.
    Asleep,
    /// It stayed as delayed, and its turn has come.
    Delayed,
    /// Its group's quota is used up.
    Throttled,
    /// It moves to another pCPU.
    Moved,
}

impl<R: Rules> Fair<R> {
    /// The entity for task `v` in the top line, if all tasks compete there; otherwise the task's own entity.
    #[inline]
    pub(super) fn standing(&self, v: u32) -> u32 {
        if self.flat { self.first_standing + v } else { v }
    }

    /// How many times a group's weight counts (`tg_tasks`, `tg_cpus`).
    ///
    /// Two tasks that never sleep have an average of about 2,047 of 2,048. The group keeps its last value
    /// while the change is below a 64th. So whether they count twice would depend on whether the value was
    /// reached from above. A VM starts with more awake threads than it keeps, and measurements showed it
    /// counts twice. So this function accepts a value that is too small by less than a 32nd.
    pub(super) fn times(&self, group: u32) -> i64 {
        if !self.flat {
            return 1;
        }
        let runnable = self.loads.groups_runnable[group as usize];
        ((runnable + runnable / 32) >> NICE_0.ilog2()).clamp(1, self.cpus.len() as i64)
    }

    /// The weight of `v` among all tasks of its pCPU, in 1/1,024 of the unit (`__calc_prop_weight`).
    fn worth(&self, v: u32) -> i64 {
        const LEAST: i128 = 2;
        let mut weight = i128::from(NICE_0 << 10);
        let mut e = v;
        while e != NONE {
            let entity = &self.lines.entities[e as usize];
            let line = &self.lines.lines[entity.line as usize];
            let all = if line.owner == NONE { NICE_0 } else { line.weight.max(1) };
            weight = (weight * i128::from(entity.scaled) / i128::from(all << 10)).max(LEAST);
            e = line.owner;
        }
        weight as i64
    }

    /// Sets the weight of a group's entity, and updates its line.
    pub(super) fn weigh(&mut self, e: u32, scaled: i64) {
        let before = self.lines.entities[e as usize].weight;
        self.lines.set_weight(e, scaled);
        let Entity { line, queued, weight, .. } = self.lines.entities[e as usize];
        let line = &mut self.lines.lines[line as usize];
        if queued && line.owner != NONE {
            line.weight += weight - before;
        }
    }

    /// Adds an entity to a group's line. The top line contains only tasks.
    fn join(&mut self, line: u32, e: u32) {
        if self.lines.lines[line as usize].owner != NONE {
            self.lines.link(line, e);
            return;
        }
        let entity = &mut self.lines.entities[e as usize];
        (entity.queued, entity.line, entity.fresh) = (true, line, false);
    }

    fn part(&mut self, e: u32) {
        let line = self.lines.entities[e as usize].line;
        if self.lines.lines[line as usize].owner != NONE {
            self.lines.unlink(e);
        } else {
            self.lines.entities[e as usize].queued = false;
        }
    }

    /// One more or one less task is awake, in every line above `v`.
    fn count(&mut self, v: u32, more: i32) {
        let mut e = v;
        while e != NONE {
            let line = &mut self.lines.lines[self.lines.entities[e as usize].line as usize];
            line.awake = line.awake.checked_add_signed(more).expect("fewer than none are awake");
            e = line.owner;
        }
    }

    /// Awake `v` joins all lines above it (`enqueue_task_fair`).
    pub(super) fn flat_enqueue(&mut self, p: u32, v: u32, now_ns: i64, orders: &mut Orders) {
        let mut line = self.line_of(self.tasks[v as usize].group, p);
        let standing = self.standing(v);
        let Entity { queued, delayed, .. } = self.lines.entities[v as usize];
        self.list(p, v);
        if queued {
            if delayed {
                R::undelay(&mut self.lines, standing);
                self.update_load(v, line, now_ns, Then::Nothing);
                self.lines.entities[v as usize].delayed = false;
                self.count(v, 1);
            }
            return;
        }
        let mut e = v;
        while e != NONE {
            let joins = !self.lines.entities[e as usize].queued;
            self.update_load(e, line, now_ns, if joins { Then::Attach } else { Then::Tell });
            self.share_of(e);
            if joins {
                self.join(line, e);
                if self.lines.lines[line as usize].queued == 1 {
                    self.loads.below[line as usize].start_clock(now_ns);
                }
                self.first_in(line, now_ns, orders);
            }
            let l = &mut self.lines.lines[line as usize];
            l.awake += 1;
            e = l.owner;
            if e != NONE {
                line = self.lines.entities[e as usize].line;
            }
        }
        let worth = self.worth(v);
        R::reweigh(&mut self.lines, standing, worth);
        R::enter(&mut self.lines, p, standing);
        self.joined(p, now_ns, orders);
    }

    /// Sets the timer to the end of the slice of the running task on `p`, if others are in line
    /// (`hrtick_start_fair`).
    pub(super) fn set_timer(&mut self, p: u32, now_ns: i64) {
        /// The shortest time from now to a timer, and the smallest difference for which a timer is set again.
        const LEAST_NS: i64 = 10_000;
        const APART_NS: i64 = 5_000;
        /// A timer fires later than its set time by an interrupt's entry. Without this delay, a slice charged
        /// in parts, each rounded down, would appear unfinished by a nanosecond and would then continue
        /// without an end.
        const LATE_NS: i64 = 1_000;
        let Cpu { current, timer_ns, runnable, .. } = self.cpus[p as usize];
        if !self.lines.rules.exact() || self.lines.lines[p as usize].queued < 2 {
            return;
        }
        let ends_ns =
            now_ns + R::slice_ns(&self.lines, self.standing(current), runnable).max(LEAST_NS) + LATE_NS;
        if timer_ns == i64::MAX || (timer_ns - ends_ns).abs() > APART_NS {
            self.cpus[p as usize].timer_ns = ends_ns;
        }
    }

    /// A task has joined the line of `p`, so the running task's slice now has an end. Sets its timer if it is
    /// not set (`hrtick_update`). It is not set if the slice had ended and the same task was picked again.
    /// Such a task continues until another task joins or a tick finds it.
    fn joined(&mut self, p: u32, now_ns: i64, orders: &mut Orders) {
        let Cpu { current, timer_ns, .. } = self.cpus[p as usize];
        // If the timer fired while no other task was in line, that was not an event.
        let is_set = timer_ns > now_ns && timer_ns < i64::MAX;
        if current != NONE && !is_set {
            self.cpus[p as usize].timer_ns = i64::MAX;
            self.set_timer(p, now_ns);
            orders.interrupt(Pcpu(p));
        }
    }

    /// The slice's timer has fired: decides whether the running task continues (`hrtick`).
    pub(super) fn goes_off(&mut self, p: u32, now_ns: i64) {
        let cpu = &mut self.cpus[p as usize];
        if cpu.timer_ns <= now_ns {
            (cpu.timer_ns, cpu.resched) = (i64::MAX, true);
        }
    }

    /// `v` leaves all lines above it in which it is the last one (`__dequeue_task`).
    pub(super) fn flat_leave(&mut self, p: u32, v: u32, why: Leaves) {
        let now_ns = self.cpus[p as usize].charged_ns;
        let standing = self.standing(v);
        let Entity { line, delayed, .. } = self.lines.entities[v as usize];
        if why == Leaves::Asleep && !delayed && R::stays(&self.lines, standing) {
            self.update_load(v, line, now_ns, Then::Nothing);
            R::delay(&mut self.lines, standing);
            self.lines.entities[v as usize].delayed = true;
            self.count(v, -1);
            return;
        }
        if delayed {
            R::leave_delayed(&mut self.lines, standing);
        } else {
            R::leave(&mut self.lines, standing, why != Leaves::Moved);
        }
        let top = &mut self.lines.lines[p as usize];
        if top.current == standing {
            top.current = NONE;
        }
        let held = self.quotas && self.held(v);
        let mut then = if why == Leaves::Moved { Then::Detach } else { Then::Tell };
        let (mut e, mut goes) = (v, true);
        while e != NONE {
            let line = self.lines.entities[e as usize].line;
            self.update_load(e, line, now_ns, then);
            if goes {
                self.part(e);
                let l = &mut self.lines.lines[line as usize];
                if l.owner != NONE && l.current == e {
                    l.current = NONE;
                }
                goes = l.owner != NONE && l.queued == 0;
                if goes {
                    self.release_runtime(line, quota::KEEP_NS);
                    if held && self.held(e) {
                        self.loads.below[line as usize].stop_clock(now_ns);
                    }
                }
            }
            self.share_of(e);
            let l = &mut self.lines.lines[line as usize];
            l.awake -= u32::from(!delayed);
            e = l.owner;
            then = Then::Tell;
        }
        self.lines.entities[v as usize].delayed = false;
    }

    /// The next task on `p`. Delayed tasks whose turn comes leave for good. Tasks of a throttled group leave
    /// until the group is paid.
    pub(super) fn flat_best(&mut self, p: u32, orders: &mut Orders) -> u32 {
        loop {
            let standing = R::pick(&self.lines, p);
            if standing == NONE {
                return NONE;
            }
            let v = standing - self.first_standing;
            if self.lines.entities[v as usize].delayed {
                self.flat_leave(p, v, Leaves::Delayed);
            } else if self.quotas && self.held(v) {
                self.flat_limit(p, v, orders);
            } else {
                return v;
            }
        }
    }

    /// Awake `v` of a throttled group leaves until the group is paid.
    pub(super) fn flat_limit(&mut self, p: u32, v: u32, orders: &mut Orders) {
        self.unlist(p, v);
        self.flat_leave(p, v, Leaves::Throttled);
        self.limit(v, orders);
    }

    /// Makes `next` (or no task) current on `p`, and in the lines of all its groups (`set_next_task_fair`).
    pub(super) fn flat_current(&mut self, p: u32, next: u32) {
        let Cpu { current: before, charged_ns: now_ns, .. } = self.cpus[p as usize];
        let mut e = before;
        while e != NONE {
            let Entity { line, queued, .. } = self.lines.entities[e as usize];
            let l = &self.lines.lines[line as usize];
            if l.owner != NONE && l.current == e && !self.leads_to(e, next) {
                if queued {
                    self.update_load(e, line, now_ns, Then::Nothing);
                }
                self.lines.lines[line as usize].current = NONE;
            }
            e = self.above(e);
        }
        if before != NONE {
            self.lines.lines[p as usize].current = NONE;
            self.lines.put_back(self.standing(before));
        }
        let mut e = next;
        while e != NONE {
            let line = self.lines.entities[e as usize].line;
            let l = &self.lines.lines[line as usize];
            if l.owner != NONE && l.current != e {
                self.update_load(e, line, now_ns, Then::Tell);
                self.lines.lines[line as usize].current = e;
            }
            e = self.above(e);
        }
        if next != NONE {
            let (standing, worth) = (self.standing(next), self.worth(next));
            self.lines.lines[p as usize].current = standing;
            R::reweigh(&mut self.lines, standing, worth);
            R::picked(&mut self.lines, standing);
        }
    }

    /// A tick while `v` runs: updates loads and shares at every level, then the task's own weight
    /// (`task_tick_fair`).
    pub(super) fn flat_tick(&mut self, p: u32, v: u32) {
        let now_ns = self.cpus[p as usize].charged_ns;
        let mut e = v;
        while e != NONE {
            let line = self.lines.entities[e as usize].line;
            self.update_load(e, line, now_ns, Then::Tell);
            self.share_of(e);
            e = self.above(e);
        }
        let (standing, worth) = (self.standing(v), self.worth(v));
        R::reweigh(&mut self.lines, standing, worth);
    }

    /// Compares woken `v` with running `current` (`wakeup_preempt_fair`).
    pub(super) fn flat_preempt(&mut self, p: u32, current: u32, v: u32, orders: &mut Orders) {
        let (old, new) = (self.standing(current), self.standing(v));
        loop {
            let best = R::pick(&self.lines, p);
            if best == new {
                self.lines.entities[old as usize].protected = false;
                self.reschedule(p, orders);
                return;
            }
            let best = best - self.first_standing;
            if !self.lines.entities[best as usize].delayed {
                return;
            }
            self.flat_leave(p, best, Leaves::Delayed);
        }
    }
}
