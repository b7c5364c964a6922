//! From a task up to the top line of its pCPU: joining and leaving at every level, who runs, shares, buddies.
//!
//! What one level is, and what the rules decide there, is in [`super::line`]. A group is in the line above exactly while
//! its own line holds somebody and is not throttled.

use super::{Branch, Cpu, Fair, Line, NONE, Rules, next_tick, quota};
use crate::sim::policy::{Held, Orders};
use crate::sim::setup::{Group, Pcpu, Vcpu};

impl<R: Rules> Fair<R> {
    /// The line of `group` on `p`, one that is free where it has none there; and its owner in the line above.
    pub(super) fn line_of(&mut self, group: u32, p: u32) -> u32 {
        if group == Group(0).0 {
            return p;
        }
        let Branch { first, lines, parent, .. } = self.branches[group as usize];
        let mut free = NONE;
        let mut found = NONE;
        for line in first..first + lines {
            let l = &self.lines.lines[line as usize];
            if l.pcpu == p {
                found = line;
                break;
            }
            let out = l.queued == 0 && !l.throttled && !self.lines.entities[l.owner as usize].queued;
            if out && (free == NONE || l.pcpu == NONE) {
                free = line;
            }
        }
        if found == NONE {
            if free == NONE {
                free = self.free_line(first, lines);
            }
            found = free;
            self.release_runtime(found, 0);
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

    /// A line whose entities have all gone, though its owner has yet to make up for what it had too much of, or its
    /// quota for what it owes: both are forgiven.
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

    /// Charges who runs on `p` at every level up to `now_ns`; asks for a new decision where a slice or quota is used.
    pub(super) fn charge(&mut self, p: u32, now_ns: i64, orders: &mut Orders) {
        let cpu = &mut self.cpus[p as usize];
        let (from_ns, mut e) = (cpu.charged_ns, cpu.current);
        cpu.charged_ns = now_ns;
        if e == NONE || now_ns == from_ns {
            return;
        }
        let mut over = false;
        while e != NONE {
            over |= R::charge(&mut self.lines, e, from_ns, now_ns - from_ns);
            let line = self.lines.entities[e as usize].line;
            over |= self.spend(line, now_ns, now_ns - from_ns, orders);
            e = self.above(e);
        }
        if over {
            self.forget(self.cpus[p as usize].current);
            self.reschedule(p, orders);
        }
    }

    /// One of `e`'s own went to sleep and left others in line: at every level up, they are preferred.
    pub(super) fn prefer(&mut self, e: u32) {
        let mut e = e;
        while e != NONE && self.lines.entities[e as usize].queued {
            let line = self.lines.entities[e as usize].line;
            self.lines.lines[line as usize].next = e;
            e = self.above(e);
        }
    }

    /// The same for one that was preempted: it is to come back when its preemptor is done.
    pub(super) fn prefer_last(&mut self, e: u32) {
        let mut e = e;
        while e != NONE && self.lines.entities[e as usize].queued {
            let line = self.lines.entities[e as usize].line;
            self.lines.lines[line as usize].last = e;
            e = self.above(e);
        }
    }

    /// `e` is no longer preferred (or passed over), nor those above it on its account.
    #[inline]
    pub(super) fn forget(&mut self, e: u32) {
        let buddies: [fn(&mut Line) -> &mut u32; 3] = [|l| &mut l.next, |l| &mut l.last, |l| &mut l.skip];
        for buddy in buddies {
            let mut e = e;
            while e != NONE {
                let line = self.lines.entities[e as usize].line as usize;
                let it = buddy(&mut self.lines.lines[line]);
                if *it != e {
                    break;
                }
                *it = NONE;
                e = self.lines.lines[line].owner;
            }
        }
    }

    /// A tick finds who runs on `p`.
    pub(super) fn tick(&mut self, p: u32) {
        let running = self.cpus[p as usize].runnable;
        let mut e = self.cpus[p as usize].current;
        while e != NONE {
            let line = self.lines.entities[e as usize].line;
            if self.lines.lines[line as usize].queued > 1 && R::tick(&mut self.lines, e, running) {
                self.forget(e);
                self.cpus[p as usize].resched = true;
            }
            e = self.above(e);
        }
    }

    /// Who is awake on `p` has changed, and with it perhaps when its slice ends.
    pub(super) fn remind(&mut self, p: u32, now_ns: i64, orders: &mut Orders) {
        let cpu = &self.cpus[p as usize];
        if R::SLICES_VARY && cpu.current != NONE && !cpu.resched {
            orders.end_slice(Pcpu(p), (now_ns as u64).saturating_add(self.slice(p, now_ns)));
        }
    }

    /// `e` has left `line`, where others remain; it slept. Its siblings are preferred unless something above is
    /// throttled.
    pub(super) fn prefer_siblings(&mut self, line: u32) {
        let owner = self.lines.lines[line as usize].owner;
        if owner != NONE && !self.lines.lines[line as usize].throttled && !self.held(owner) {
            self.prefer(owner);
        }
    }

    pub(super) fn reschedule(&mut self, p: u32, orders: &mut Orders) {
        self.cpus[p as usize].resched = true;
        orders.interrupt(Pcpu(p));
    }

    /// `v` is awake: into line on `p`, and every line above that it is the first of.
    pub(super) fn enqueue(&mut self, p: u32, v: u32, now_ns: i64, orders: &mut Orders) {
        let mut line = self.line_of(self.tasks[v as usize].group, p);
        let mut e = v;
        let mut held = false;
        loop {
            let entity = &self.lines.entities[e as usize];
            if entity.queued {
                if !entity.delayed {
                    break;
                }
                R::undelay(&mut self.lines, e);
            } else {
                // A second one in line: whoever runs has a slice that ends.
                if self.lines.lines[line as usize].queued == 1 {
                    orders.interrupt(Pcpu(p));
                }
                R::enter(&mut self.lines, line, e);
            }
            let l = &self.lines.lines[line as usize];
            let owner = l.owner;
            if owner == NONE {
                break;
            }
            if l.queued == 1 && !l.throttled {
                self.enter_quota(line, now_ns, orders);
            }
            self.share(line);
            if self.lines.lines[line as usize].throttled {
                held = true;
                break;
            }
            e = owner;
            line = self.lines.entities[e as usize].line;
        }
        // Shares further up, for one of a group may be worth more now.
        let mut above = if held { NONE } else { self.above(e) };
        while above != NONE {
            self.share(self.lines.entities[e as usize].line);
            (e, above) = (above, self.above(above));
        }
        held |= self.held(v);
        if held {
            self.limit(v, orders);
        } else {
            self.list(p, v);
        }
    }

    /// `v` leaves `p`: asleep, or to go elsewhere. Asleep and not eligible, it stays in line as delayed; so do groups
    /// that it was the last of.
    pub(super) fn dequeue(&mut self, p: u32, v: u32, sleep: bool) {
        self.unlist(p, v);
        let asleep = sleep;
        let (mut e, mut sleep) = (v, sleep);
        loop {
            self.forget(e);
            if sleep && R::stays(&self.lines, e) {
                self.lines.entities[e as usize].delayed = true;
                self.lines.entities[e as usize].protected = false;
                return;
            }
            let line = self.lines.entities[e as usize].line;
            R::leave(&mut self.lines, e, sleep);
            if !self.close(line, e) {
                if asleep && self.lines.lines[line as usize].queued > 0 {
                    self.prefer_siblings(line);
                }
                return;
            }
            sleep = true;
            e = self.lines.lines[line as usize].owner;
        }
    }

    /// `e` has left `line`. True where that was the last, and the line's owner has to leave too.
    pub(super) fn close(&mut self, line: u32, e: u32) -> bool {
        let l = &mut self.lines.lines[line as usize];
        if l.current == e {
            l.current = NONE;
        }
        let (owner, empty, throttled) = (l.owner, l.queued == 0, l.throttled);
        if owner == NONE || throttled {
            return false;
        }
        if !empty {
            self.share(line);
            return false;
        }
        self.release_runtime(line, quota::KEEP_NS);
        true
    }

    /// Who runs next on `p` by its lines; delayed ones whose turn comes leave for good.
    pub(super) fn best(&mut self, p: u32) -> u32 {
        'top: loop {
            let mut line = p;
            loop {
                let e = R::pick(&self.lines, line);
                if e == NONE {
                    assert_eq!(line, p, "a line without an entity has an owner in line");
                    return NONE;
                }
                if self.lines.entities[e as usize].delayed {
                    R::leave_delayed(&mut self.lines, e);
                    let mut below = e;
                    loop {
                        if !self.close(line, below) {
                            if self.lines.lines[line as usize].queued > 0 {
                                self.prefer_siblings(line);
                            }
                            break;
                        }
                        let owner = self.lines.lines[line as usize].owner;
                        let above = self.lines.entities[owner as usize].line;
                        self.forget(owner);
                        if self.lines.entities[owner as usize].delayed {
                            R::leave_delayed(&mut self.lines, owner);
                        } else if R::stays(&self.lines, owner) {
                            self.lines.entities[owner as usize].delayed = true;
                            break;
                        } else {
                            R::leave(&mut self.lines, owner, true);
                        }
                        (line, below) = (above, owner);
                    }
                    continue 'top;
                }
                if (e as usize) < self.tasks.len() {
                    return e;
                }
                line = self.line_below(e);
            }
        }
    }

    /// The line that group entity `e` stands for.
    #[inline]
    pub(super) fn line_below(&self, e: u32) -> u32 {
        // Lines of groups and their owners were made in pairs.
        e - self.tasks.len() as u32 + self.cpus.len() as u32
    }

    /// `next` (or nobody) is current on `p` at all its levels; where a level changes hands, the new one is protected.
    pub(super) fn make_current(&mut self, p: u32, next: u32) {
        let before = self.cpus[p as usize].current;
        if before == next {
            return;
        }
        let mut e = before;
        while e != NONE {
            let line = self.lines.entities[e as usize].line;
            let l = &mut self.lines.lines[line as usize];
            if l.current == e && !self.leads_to(e, next) {
                self.lines.lines[line as usize].current = NONE;
                self.lines.put_back(e);
            }
            e = self.above(e);
        }
        let mut e = next;
        while e != NONE {
            let line = self.lines.entities[e as usize].line;
            let l = &mut self.lines.lines[line as usize];
            if l.current != e {
                l.current = e;
                R::picked(&mut self.lines, e);
                self.forget(e);
            }
            e = self.above(e);
        }
        self.cpus[p as usize].current = next;
        if next != NONE {
            // Who ran last is the last to be moved to another pCPU.
            self.unlist(p, next);
            self.list(p, next);
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

    /// Woken `v` against who runs on `p`: compared in the line that both have in common.
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
        let (mut old, mut new) = (current, v);
        loop {
            let (a, b) = (self.lines.entities[old as usize].line, self.lines.entities[new as usize].line);
            if a == b {
                if old != new && R::preempts(&self.lines, old, new) {
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

    /// How long who runs on `p` may go on: to the tick that finds a slice or a quota used up, at any level.
    pub(super) fn slice(&self, p: u32, now_ns: i64) -> u64 {
        let mut least_ns = i64::MAX;
        let mut e = self.cpus[p as usize].current;
        while e != NONE {
            let entity = &self.lines.entities[e as usize];
            let line = &self.lines.lines[entity.line as usize];
            if line.queued > 1 {
                let running = self.cpus[p as usize].runnable;
                least_ns = least_ns.min(R::slice_ns(&self.lines, e, running).max(1));
            }
            if self.branches[line.group as usize].quota.is_some() {
                least_ns = least_ns.min(line.runtime_ns.max(1));
            }
            e = self.above(e);
        }
        if least_ns == i64::MAX {
            return u64::MAX;
        }
        (next_tick(now_ns + least_ns, self.tick_ns) - now_ns) as u64
    }

    /// sched_yield: its slice counts as used.
    pub(super) fn forfeit(&mut self, v: u32) {
        self.forget(v);
        R::forfeit(&mut self.lines, v);
    }

    /// The weight of a group's line among the others of its level: the group's, divided by what runs on each pCPU.
    pub(super) fn share(&mut self, line: u32) {
        let l = &self.lines.lines[line as usize];
        let (owner, own) = (l.owner, l.weight);
        let branch = &self.branches[l.group as usize];
        let all = &self.lines.lines[branch.first as usize..(branch.first + branch.lines) as usize];
        let total: i64 = all.iter().filter(|l| !l.throttled).map(|l| l.weight).sum();
        if own > 0 && total > 0 {
            let weight = (branch.weight * own / total).clamp(2, branch.weight);
            R::reweigh(&mut self.lines, owner, weight);
        }
    }

    /// The same for every group above the current task of `p`, as each tick does (`update_cfs_group`).
    pub(super) fn share_current(&mut self, p: u32) {
        let mut e = self.cpus[p as usize].current;
        while e != NONE {
            let line = self.lines.entities[e as usize].line;
            e = self.above(e);
            if e != NONE {
                self.share(line);
            }
        }
    }

    pub(super) fn limit(&mut self, v: u32, orders: &mut Orders) {
        self.tasks[v as usize].limited = true;
        orders.hold(Vcpu(v), Held::Limited);
    }
}
