//! What is a group's weight worth on each pCPU? Its loads there, and its shares of them.
//!
//! A group runs on several pCPUs and has one weight. The kernel divides it by the load of the group's lines, and
//! since nobody can add these up at every event, each line tells the group its decaying average
//! ([`super::average`]) now and then: where it has changed by a 64th, and (since 6.7) a millisecond after the last
//! time at the earliest. A line's own part of that sum is replaced by what is in it right now, so that a group that
//! wakes on one pCPU is worth its whole weight there at once. What follows: a vCPU that slept leaves its line some
//! weight for as long as the average lasts; and a VM whose vCPUs run on two pCPUs by turns is worth more than its
//! weight in all.
//!
//! Lines that nobody waits in are looked at when their pCPU becomes idle and every 32 ms.
//!
//! The top line is nobody's part: its averages, and those of who stands in it, are not kept.
//!
//! Source: kernel/sched/fair.c of Linux 6.12.117 and 6.1.192 (`update_load_avg`, `propagate_entity_load_avg`,
//! `update_tg_load_avg`, `calc_group_shares`, `reweight_entity`, `__update_blocked_fair`). Read, not copied.

use super::average::{Did, WHOLE};
use super::load::{Below, Own};
use super::{Fair, Lines, MS, NONE, Rules, unscaled};

/// A line that nobody waits in is looked at this often (`LOAD_AVG_PERIOD`, ms).
const LOOK_EVERY_NS: i64 = 32 * MS as i64;
/// The least weight of a group on a pCPU, in 1/1,024 of the unit (`MIN_SHARES`, which is scaled like that).
const LEAST_SHARES: i64 = 2;

/// What else is to be done when a load is brought up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Nothing,
    /// The group gets the value.
    Tell,
    /// So it is, and the load of one that is not in its line's yet is added.
    Attach,
    /// So it is, and the load is taken out of its line's.
    Detach,
}

impl<R: Rules> Fair<R> {
    /// Brings the loads of `e`, which is or will be in `line`, and of `line` up to `now_ns` (`update_load_avg`).
    pub(super) fn update_load(&mut self, e: u32, line: u32, now_ns: i64, then: Then) {
        if self.lines.lines[line as usize].owner == NONE {
            // In the top line: no group is above it.
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

    /// What a task that never ran is taken to be (`init_entity_runnable_average`, `post_init_entity_util_avg`).
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

    /// True where its average may have changed.
    fn update_line(&mut self, line: u32, now_ns: i64) -> bool {
        let gave_up = self.loads.give_up(line);
        let l = &self.lines.lines[line as usize];
        let did = Did { load: l.weight, runnable: i64::from(l.awake), running: l.current != NONE };
        let below = &mut self.loads.below[line as usize];
        let clock_ns = below.clock_ns(now_ns);
        below.average.advance(clock_ns, did, 1) || gave_up
    }

    /// Tells the group of `line` its load, unless the value changed little or was updated just now
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

    /// The weight that `line`'s group is worth on its pCPU, in 1/1,024 of the unit (`calc_group_shares`).
    fn shares(&self, line: u32) -> i64 {
        let (l, below) = (&self.lines.lines[line as usize], &self.loads.below[line as usize]);
        let full = (self.branches[l.group as usize].weight << 10) * self.times(l.group);
        let load = l.weight.max(below.average.load);
        let all = self.loads.groups[l.group as usize] - below.told + load;
        let shares = if all > 0 { full * load / all } else { full * load };
        shares.clamp(LEAST_SHARES, full)
    }

    /// Sets the weight of the entity that stands for `line` (`update_cfs_group`).
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
        // Its load is in the line above only while that is one of this pCPU.
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

    /// The same, where `e` is a group.
    #[inline]
    pub(super) fn share_of(&mut self, e: u32) {
        if e as usize >= self.tasks.len() {
            self.share(self.line_below(e));
        }
    }

    /// Loads and shares from `e` upwards, as whatever changes below them does.
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

    /// May a tick change what group entity `e` is worth? Where all of the group's load is in one line it is worth its
    /// whole weight there, whatever the average is.
    pub(super) fn drifts(&self, e: u32) -> bool {
        let branch = &self.branches[self.lines.lines[self.line_below(e) as usize].group as usize];
        branch.spread || self.lines.entities[e as usize].scaled != branch.weight << 10
    }

    /// `line` has somebody in it, so that it has load.
    pub(super) fn list_load(&mut self, line: u32) {
        let l = &self.lines.lines[line as usize];
        if l.owner != NONE {
            self.loads.list(line, l.pcpu, self.branches[l.group as usize].depth);
        }
    }

    /// Task `v`, which was on `from`, wakes on `to`: elsewhere its load goes with it (`migrate_task_rq_fair`).
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
            // The line was reused for another pCPU; the load was forgotten with it.
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
            // Nobody looked there for as long as it was idle (`migrate_se_pelt_lag`).
            own.average.advance(below.clock_ns(now_ns), Did::default(), weight);
        }
    }

    /// `line` is about to be reused for another pCPU: its load is forgotten.
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

    /// What is left of `line`'s load.
    pub(super) fn load_left(&self, line: u32) -> i64 {
        self.loads.below[line as usize].average.load
    }

    /// Looks at all lines of `p` that have load, the deepest first (`__update_blocked_fair`): at once where `p` becomes
    /// idle, else if that is long ago. Nobody is charged for it: weights stay, and virtual times with them.
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
    /// Sets the weight of `e`, in 1/1,024 of the unit, and nothing else.
    pub(in crate::sched) fn set_weight(&mut self, e: u32, scaled: i64) {
        let entity = &mut self.entities[e as usize];
        (entity.scaled, entity.weight) = (scaled, unscaled(scaled));
    }
}
