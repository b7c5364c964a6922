//! Computes the weight of a group on each pCPU from its loads there.
//!
//! A group runs on several pCPUs and has one weight. The kernel divides the weight by the load of the group's
//! lines. Adding up these loads at every event would cost too much. So each line reports its decaying average
//! ([`super::average`]) to the group from time to time: if it has changed by a 64th, and (since 6.7) at the
//! earliest a millisecond after the last report. In that sum, a line replaces its own part by its present
//! content. So a group that wakes on one pCPU has its whole weight there at once.
//!
//! What follows: a vCPU that went to sleep leaves some weight on its line as long as the average lasts. And
//! if a VM's vCPUs run on two pCPUs in turn, their weights add up to more than the VM's weight.
//!
//! Lines without waiting entities are updated when their pCPU becomes idle and every 32 ms.
//!
//! The top line belongs to no group, so its averages and those of its entities are not kept.
//!
//! Source: kernel/sched/fair.c of Linux 6.12.117 and 6.1.192 (`update_load_avg`, `propagate_entity_load_avg`,
//! `update_tg_load_avg`, `calc_group_shares`, `reweight_entity`, `__update_blocked_fair`). Read, not copied.

use super::average::{Did, WHOLE};
use super::load::{Below, Own};
use super::{Fair, Lines, MS, NONE, Rules, unscaled};

/// How often a line without waiting entities is updated (`LOAD_AVG_PERIOD`, ms).
const LOOK_EVERY_NS: i64 = 32 * MS as i64;
/// The least weight of a group on a pCPU, in 1/1,024 of the unit (`MIN_SHARES`, which has the same scale).
const LEAST_SHARES: i64 = 2;

/// What to do after the update of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Nothing,
    /// Report the value to the group.
    Tell,
    /// Report it, and add the entity's load to its line's if it is not part of it yet.
    Attach,
    /// Report it, and subtract the entity's load from its line's.
    Detach,
}

impl<R: Rules> Fair<R> {
    /// Updates the loads of `e`, which is or will be in `line`, and of `line` to `now_ns`
    /// (`update_load_avg`).
    pub(super) fn update_load(&mut self, e: u32, line: u32, now_ns: i64, then: Then) {
        if self.lines.lines[line as usize].owner == NONE {
            // In the top line there is no group above it.
            if e as usize >= self.tasks.len() {
                let below = self.line_below(e) as usize;
                (self.loads.below[below].passes_on, self.loads.below[below].passed_sum) = (false, 0);
            }
            return;
        }
        let entity = &self.lines.entities[e as usize];
        let (weight, fresh, task) = (entity.weight, entity.fresh, (e as usize) < self.tasks.len());
        let runnable = match task {
            true => i64::from(entity.queued && !entity.delayed),
            false => i64::from(self.lines.lines[self.line_below(e) as usize].awake),
        };
        let clock_ns = self.loads.below[line as usize].clock_ns(now_ns);
        let own = &mut self.loads.own[e as usize];
        let attached = own.attached;
        if attached {
            let did = Did {
                load: i64::from(entity.queued),
                runnable,
                running: self.lines.lines[line as usize].current == e,
            };
            own.average.advance(clock_ns, did, weight);
        }
        let mut changed = self.update_line(line, now_ns);
        if !task {
            let below = self.line_below(e);
            if self.loads.below[below as usize].passes_on {
                let weight_below = self.lines.lines[below as usize].weight;
                self.loads.pass_on(e, line, below, weight, weight_below);
                changed = true;
            }
        }
        match then {
            Then::Attach if !attached => {
                if fresh && task {
                    self.begin(e, line, weight);
                }
                self.loads.attach(e, line, weight);
                self.tell(line, now_ns);
            }
            Then::Detach if attached => {
                self.loads.detach(e, line, weight);
                self.tell(line, now_ns);
            }
            Then::Nothing => {}
            _ if changed => self.tell(line, now_ns),
            _ => {}
        }
    }

    /// The assumed load of a task that never ran (`init_entity_runnable_average`,
    /// `post_init_entity_util_avg`).
    fn begin(&mut self, e: u32, line: u32, weight: i64) {
        let (load, util) = {
            let a = &self.loads.below[line as usize].average;
            (a.load, a.util)
        };
        let own = &mut self.loads.own[e as usize].average;
        own.load = weight;
        let most = (WHOLE - util) / 2;
        if most > 0 {
            own.util = if util == 0 { most } else { (util * weight / (load + 1)).min(most) };
        }
        own.runnable = own.util;
    }

    /// Updates a line's own average; true if it may have changed.
    fn update_line(&mut self, line: u32, now_ns: i64) -> bool {
        let gave_up = self.loads.give_up(line);
        let l = &self.lines.lines[line as usize];
        let did = Did { load: l.weight, runnable: i64::from(l.awake), running: l.current != NONE };
        let below = &mut self.loads.below[line as usize];
        let clock_ns = below.clock_ns(now_ns);
        below.average.advance(clock_ns, did, 1) || gave_up
    }

    /// Reports `line`'s load to its group, unless the value changed little or was reported just now
    /// (`update_tg_load_avg`).
    fn tell(&mut self, line: u32, now_ns: i64) {
        let group = self.lines.lines[line as usize].group as usize;
        let below = &mut self.loads.below[line as usize];
        if now_ns - below.told_ns < R::TELL_EVERY_NS {
            return;
        }
        let more = below.average.load - below.told;
        let more_runnable = if self.flat { below.average.runnable - below.told_runnable } else { 0 };
        if more.abs() > below.told / 64 || more_runnable.abs() > below.told_runnable / 64 {
            self.loads.groups[group] += more;
            self.loads.groups_runnable[group] += more_runnable;
            (below.told, below.told_ns) = (below.average.load, now_ns);
            below.told_runnable += more_runnable;
        }
    }

    /// The weight of `line`'s group on its pCPU, in 1/1,024 of the unit (`calc_group_shares`).
    fn shares(&self, line: u32) -> i64 {
        let (l, below) = (&self.lines.lines[line as usize], &self.loads.below[line as usize]);
        let full = (self.branches[l.group as usize].weight << 10) * self.times(l.group);
        let load = l.weight.max(below.average.load);
        let all = self.loads.groups[l.group as usize] - below.told + load;
        let shares = if all > 0 { full * load / all } else { full * load };
        shares.clamp(LEAST_SHARES, full)
    }

    /// Sets the weight of the entity that represents `line` (`update_cfs_group`).
    pub(super) fn share(&mut self, line: u32) {
        let l = &self.lines.lines[line as usize];
        let owner = l.owner;
        let held = !self.flat && self.quotas && (l.throttled || self.held(owner));
        if (R::EMPTY_KEEPS_WEIGHT && l.weight == 0) || held {
            return;
        }
        let (shares, above, p) = (self.shares(line), self.lines.entities[owner as usize].line, l.pcpu);
        if shares == self.lines.entities[owner as usize].scaled {
            return;
        }
        let before = self.lines.entities[owner as usize].weight;
        // Its load is part of the line above only while that line belongs to this pCPU.
        let there = self.lines.lines.get(above as usize).is_some_and(|above| above.pcpu == p);
        let counts = there && self.loads.own[owner as usize].attached;
        if counts {
            self.loads.subtract(owner, above, before);
        }
        if self.flat {
            self.weigh(owner, shares);
        } else {
            R::reweigh(&mut self.lines, owner, shares);
        }
        if counts {
            let weight = unscaled(shares);
            let own = &mut self.loads.own[owner as usize].average;
            own.load = weight * own.load_sum / own.divider();
            self.loads.add(owner, above, weight);
        }
    }

    /// The same for `e`, if it is a group.
    #[inline]
    pub(super) fn share_of(&mut self, e: u32) {
        if e as usize >= self.tasks.len() {
            self.share(self.line_below(e));
        }
    }

    /// Updates loads and shares from `e` upwards, after a change below.
    pub(super) fn update_upwards(&mut self, e: u32, now_ns: i64) {
        let mut e = e;
        while e != NONE {
            let line = self.lines.entities[e as usize].line;
            self.update_load(e, line, now_ns, Then::Tell);
            self.share_of(e);
            if e as usize >= self.tasks.len() {
                R::told(&mut self.lines, e, now_ns);
            }
            let l = &self.lines.lines[line as usize];
            e = if l.throttled { NONE } else { l.owner };
        }
    }

    /// May a tick change the weight of group entity `e`? If all of the group's load is in one line, it has
    /// its whole weight there for any average.
    pub(super) fn drifts(&self, e: u32) -> bool {
        let branch = &self.branches[self.lines.lines[self.line_below(e) as usize].group as usize];
        branch.spread || self.lines.entities[e as usize].scaled != branch.weight << 10
    }

    /// `line` has an entity, so it has load.
    pub(super) fn list_load(&mut self, line: u32) {
        let l = &self.lines.lines[line as usize];
        if l.owner != NONE {
            self.loads.list(line, l.pcpu, self.branches[l.group as usize].depth);
        }
    }

    /// Task `v`, which was on `from`, wakes on `to`. If these differ, its load moves along
    /// (`migrate_task_rq_fair`).
    pub(super) fn wake_load(&mut self, v: u32, from: u32, to: u32, now_ns: i64) {
        let line = self.lines.entities[v as usize].line;
        let own = &mut self.loads.own[v as usize];
        if !own.attached {
            return;
        }
        let l = &self.lines.lines[line as usize];
        let there = l.pcpu == from;
        if there && from == to {
            return;
        }
        own.attached = false;
        if !there {
            // The line was reused for another pCPU, and the load was forgotten.
            return;
        }
        let weight = self.lines.entities[v as usize].weight;
        let below = &mut self.loads.below[line as usize];
        own.average.advance(below.average.last_ns, Did::default(), weight);
        below.left += 1;
        below.left_load += own.average.load;
        below.left_util += own.average.util;
        below.left_runnable += own.average.runnable;
        if self.cpus[from as usize].current == NONE {
            // Its load was not updated there while it slept (`migrate_se_pelt_lag`).
            own.average.advance(below.clock_ns(now_ns), Did::default(), weight);
        }
    }

    /// `line` is about to be reused for another pCPU, so its load is forgotten.
    pub(super) fn forget_load(&mut self, line: u32) {
        let l = &self.lines.lines[line as usize];
        let (p, owner, group) = (l.pcpu, l.owner, l.group as usize);
        if p == NONE {
            return;
        }
        self.loads.unlist(line, p, self.branches[group].depth);
        self.loads.groups[group] -= self.loads.below[line as usize].told;
        self.loads.groups_runnable[group] -= self.loads.below[line as usize].told_runnable;
        self.loads.below[line as usize] = Below::new();
        let above = self.lines.entities[owner as usize].line;
        let there = self.lines.lines.get(above as usize).is_some_and(|above| above.pcpu == p);
        if there && self.loads.own[owner as usize].attached {
            let weight = self.lines.entities[owner as usize].weight;
            self.loads.detach(owner, above, weight);
        }
        self.loads.own[owner as usize] = Own::default();
    }

    /// The present load of `line`.
    pub(super) fn load_left(&self, line: u32) -> i64 {
        self.loads.below[line as usize].average.load
    }

    /// Updates all lines of `p` that have load, the deepest first (`__update_blocked_fair`): at once if `p`
    /// becomes idle, otherwise if the last update was long ago. This charges no task, so weights and virtual
    /// times stay.
    pub(super) fn look(&mut self, p: u32, now_ns: i64, idle: bool) {
        let every_ns = if idle { MS as i64 } else { LOOK_EVERY_NS };
        if now_ns - self.loads.looked_ns[p as usize] < every_ns {
            return;
        }
        self.loads.looked_ns[p as usize] = now_ns;
        for depth in (0..self.loads.depths as u32).rev() {
            let mut line = *self.loads.head(p, depth);
            while line != NONE {
                let next = self.loads.below[line as usize].next;
                self.look_at(line, p, depth, now_ns);
                line = next;
            }
        }
    }

    fn look_at(&mut self, line: u32, p: u32, depth: u32, now_ns: i64) {
        if self.update_line(line, now_ns) {
            self.tell(line, now_ns);
        }
        let owner = self.lines.lines[line as usize].owner;
        let (own, below) = (&self.loads.own[owner as usize].average, &self.loads.below[line as usize]);
        if own.load != 0 || own.util != 0 || below.passes_on {
            let above = self.lines.entities[owner as usize].line;
            self.update_load(owner, above, now_ns, Then::Tell);
        }
        let below = &self.loads.below[line as usize];
        let gone = below.average.load_sum == 0 && below.average.util_sum == 0 && below.told == 0;
        if gone && self.lines.lines[line as usize].weight == 0 {
            self.loads.unlist(line, p, depth);
        }
    }
}

impl<R> Lines<R> {
    /// Sets only the weight of `e`, in 1/1,024 of the unit.
    pub(in crate::sched) fn set_weight(&mut self, e: u32, scaled: i64) {
        let entity = &mut self.entities[e as usize];
        (entity.scaled, entity.weight) = (scaled, unscaled(scaled));
    }
}
