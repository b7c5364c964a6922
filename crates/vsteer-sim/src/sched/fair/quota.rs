//! Quotas: when a group has used its quota in a period, and when it continues.
//!
//! At the start of each period, a group's quota fills a pool. A pCPU on which the group runs takes slices of
//! 5 ms from the pool. If its share is used and the pool is empty, the group's line there is throttled. It
//! leaves the line above, and everything below it waits as limited until the next period pays its debt.
//!
//! Source: kernel/sched/fair.c, Linux 6.12.117 (`account_cfs_rq_runtime`, `throttle_cfs_rq`,
//! `distribute_cfs_runtime`).

use super::share::Then;
use super::{Entity, Fair, NONE, QUOTA, Rules};
use crate::policy::{Orders, View};
use crate::setup::{Pcpu, Vcpu};
use vsteer_core::nouns::Quota;
use vsteer_core::random::Random;

/// The share that a line keeps when it empties (`min_cfs_rq_runtime`).
pub(super) const KEEP_NS: i64 = 1_000_000;

/// A group's bandwidth.
#[derive(Debug, Clone)]
pub(super) struct Bandwidth {
    quota_ns: i64,
    period_ns: i64,
    /// Offset of the periods from multiples of their length, ns.
    phase_ns: i64,
    /// The rest in the pool.
    runtime_ns: i64,
    /// The start of the next period; 0 while no line asks.
    next_ns: i64,
    /// No line has taken anything since the start of the period.
    idle: bool,
}

impl Bandwidth {
    /// A bandwidth whose periods have a start at `begins_ns`. Without it, `phases` draws the offset. Without
    /// both, all periods start together.
    pub(super) fn new(quota: Quota, begins_ns: Option<u64>, phases: &mut Option<Random>) -> Bandwidth {
        let (quota_ns, period_ns) = (quota.quota_us as i64 * 1000, quota.period_us * 1000);
        let drawn_ns = phases.as_mut().map_or(0, |r| r.within(0, period_ns - 1));
        Bandwidth {
            quota_ns,
            period_ns: period_ns as i64,
            phase_ns: begins_ns.map_or(drawn_ns, |ns| ns % period_ns) as i64,
            runtime_ns: quota_ns,
            next_ns: 0,
            idle: false,
        }
    }
}

impl<R: Rules> Fair<R> {
    /// Uses `ns` of `line`'s share. True if nothing is left in the share and in the pool.
    pub(super) fn spend(&mut self, line: u32, now_ns: i64, ns: i64, orders: &mut Orders) -> bool {
        let l = &mut self.lines.lines[line as usize];
        if !self.quotas || self.branches[l.group as usize].quota.is_none() {
            return false;
        }
        l.runtime_ns -= ns;
        if l.runtime_ns > 0 {
            return false;
        }
        !self.take(line, now_ns, self.quota_slice_ns, orders)
    }

    /// Fills `line`'s share up to `target_ns` from the pool, as far as possible. True if the share is not
    /// empty.
    fn take(&mut self, line: u32, now_ns: i64, target_ns: i64, orders: &mut Orders) -> bool {
        let l = &mut self.lines.lines[line as usize];
        let quota = self.branches[l.group as usize].quota.as_mut().expect("a group with a quota");
        let begins = quota.next_ns == 0;
        if begins {
            quota.runtime_ns = quota.quota_ns;
            // The clock of periods starts again with its former offset.
            let periods = (now_ns - quota.phase_ns).div_euclid(quota.period_ns) + 1;
            quota.next_ns = periods * quota.period_ns + quota.phase_ns;
        }
        let amount_ns = (target_ns - l.runtime_ns).clamp(0, quota.runtime_ns.max(0));
        quota.runtime_ns -= amount_ns;
        quota.idle = false;
        l.runtime_ns += amount_ns;
        let left = l.runtime_ns > 0;
        if begins {
            self.arm(now_ns, orders);
        }
        left
    }

    /// Sets the timer to the start of the next period. A period that starts now is being handled already.
    fn arm(&self, now_ns: i64, orders: &mut Orders) {
        let next = self.branches.iter().filter_map(|b| b.quota.as_ref()).filter(|q| q.next_ns > now_ns);
        orders.set_timer(QUOTA, next.map(|q| q.next_ns as u64).min().unwrap_or(u64::MAX));
    }

    /// The first entity enters `line`, which may be throttled from the start (`check_enqueue_throttle`).
    pub(super) fn enter_quota(&mut self, line: u32, now_ns: i64, orders: &mut Orders) {
        let l = &self.lines.lines[line as usize];
        if self.branches[l.group as usize].quota.is_none() || l.runtime_ns > 0 {
            return;
        }
        if !self.take(line, now_ns, self.quota_slice_ns, orders) {
            self.set_throttled(line);
        }
    }

    fn set_throttled(&mut self, line: u32) {
        self.throttles += 1;
        let l = &mut self.lines.lines[line as usize];
        (l.throttled, l.throttled_as) = (true, self.throttles);
    }

    /// Returns what `line` has above `keep_ns` to the pool.
    pub(super) fn release_runtime(&mut self, line: u32, keep_ns: i64) {
        let l = &mut self.lines.lines[line as usize];
        if let Some(quota) = self.branches[l.group as usize].quota.as_mut()
            && l.runtime_ns > keep_ns
        {
            quota.runtime_ns += l.runtime_ns - keep_ns;
            l.runtime_ns = keep_ns;
        }
    }

    /// Throttles every line above the current task of `p` whose share is empty.
    pub(super) fn throttle(&mut self, p: u32, orders: &mut Orders) {
        let now_ns = self.cpus[p as usize].charged_ns;
        let mut e = self.cpus[p as usize].current;
        while e != NONE {
            let entity = &self.lines.entities[e as usize];
            // A task that blocked may have left its lines. Lines in which it stayed as delayed still count.
            let line = entity.line;
            let queued = entity.queued;
            let l = &self.lines.lines[line as usize];
            let owner = l.owner;
            let spent = queued
                && !l.throttled
                && owner != NONE
                && self.branches[l.group as usize].quota.is_some()
                && l.runtime_ns <= 0;
            // Tries once more, for one nanosecond, because the pool may have been filled in the meantime.
            if spent && !self.take(line, now_ns, 1, orders) {
                self.set_throttled(line);
                if !self.flat {
                    self.leave_upwards(owner);
                    self.limit_below(p, line, orders);
                }
            }
            e = owner;
        }
        let current = self.cpus[p as usize].current;
        if self.flat && current != NONE && self.tasks[current as usize].runnable && self.held(current) {
            self.flat_limit(p, current, orders);
        }
    }

    /// `owner`'s line is throttled: it leaves the line above, and further up while those lines become empty.
    pub(super) fn leave_upwards(&mut self, owner: u32) {
        let mut e = owner;
        while e != NONE && self.lines.entities[e as usize].queued {
            let Entity { line, delayed, .. } = self.lines.entities[e as usize];
            let p = self.lines.lines[line as usize].pcpu;
            self.forget(e);
            self.update_load(e, line, self.cpus[p as usize].charged_ns, Then::Tell);
            if delayed {
                R::leave_delayed(&mut self.lines, e);
            } else {
                R::leave(&mut self.lines, e, true);
            }
            if !self.close(line, e) {
                return;
            }
            e = self.lines.lines[line as usize].owner;
        }
    }

    /// Every runnable task of `p` below `line` becomes limited.
    fn limit_below(&mut self, p: u32, line: u32, orders: &mut Orders) {
        let owner = self.lines.lines[line as usize].owner;
        let mut v = self.cpus[p as usize].head;
        while v != NONE {
            let next = self.tasks[v as usize].next;
            if self.leads_to(owner, v) {
                self.unlist(p, v);
                self.limit(v, orders);
            }
            v = next;
        }
    }

    /// Is a line above task `v` throttled?
    pub(super) fn held(&self, v: u32) -> bool {
        let mut e = v;
        while e != NONE {
            let line = &self.lines.lines[self.lines.entities[e as usize].line as usize];
            if line.throttled {
                return true;
            }
            e = line.owner;
        }
        false
    }

    /// Starts periods: fills pools, and pays and releases throttled lines.
    pub(super) fn refill(&mut self, view: &View<'_>, orders: &mut Orders) {
        let now_ns = view.now_ns() as i64;
        for g in 0..self.branches.len() {
            let Some(quota) = self.branches[g].quota.as_mut() else { continue };
            if quota.next_ns == 0 || quota.next_ns > now_ns {
                continue;
            }
            let (first, lines) = (self.branches[g].first, self.branches[g].lines);
            let throttled = (first..first + lines).any(|line| self.lines.lines[line as usize].throttled);
            let quota = self.branches[g].quota.as_mut().expect("it has one");
            if quota.idle && !throttled {
                // No line took anything in a whole period, so the clock stops until one does.
                quota.next_ns = 0;
                continue;
            }
            quota.idle = true;
            quota.next_ns += quota.period_ns;
            quota.runtime_ns = quota.quota_ns;
            // The lines that have waited longest are paid first, because the pool may not be enough for all.
            let mut paid = 0;
            loop {
                let next = (first..first + lines).filter(|line| {
                    let l = &self.lines.lines[*line as usize];
                    l.throttled && l.throttled_as > paid
                });
                let Some(line) = next.min_by_key(|line| self.lines.lines[*line as usize].throttled_as) else {
                    break;
                };
                paid = self.lines.lines[line as usize].throttled_as;
                self.pay(view, line, orders);
            }
        }
        self.arm(now_ns, orders);
    }

    /// Pays the debt of a throttled line plus one nanosecond, and releases the line if that was possible.
    fn pay(&mut self, view: &View<'_>, line: u32, orders: &mut Orders) {
        let now_ns = view.now_ns() as i64;
        let l = &mut self.lines.lines[line as usize];
        if !l.throttled {
            return;
        }
        let quota =
            self.branches[l.group as usize].quota.as_mut().expect("only those with one are throttled");
        let amount_ns = (1 - l.runtime_ns).min(quota.runtime_ns.max(0));
        quota.runtime_ns -= amount_ns;
        quota.idle = false;
        l.runtime_ns += amount_ns;
        if l.runtime_ns <= 0 {
            return;
        }
        l.throttled = false;
        let (p, owner, queued) = (l.pcpu, l.owner, l.queued);
        self.charge(p, now_ns, orders);
        if self.flat {
            self.release_last_first(p, owner, now_ns, orders);
        } else {
            if queued > 0 {
                self.enter_upwards(p, owner, now_ns, orders);
            }
            // In the order of their numbers, because the host has few vCPUs.
            for v in 0..self.tasks.len() as u32 {
                if self.may_go_on(v, p, owner) {
                    self.tasks[v as usize].limited = false;
                    orders.release(Vcpu(v));
                    self.list(p, v);
                }
            }
        }
        // Released tasks preempt no task. The running task continues to the end of its slice.
        let cpu = &self.cpus[p as usize];
        if cpu.current == NONE && !cpu.above && cpu.runnable > 0 {
            self.reschedule(p, orders);
        }
        self.watch_balance(view, p, orders);
    }

    /// Is limited `v` a task of `p` below `owner` that nothing limits any more?
    fn may_go_on(&self, v: u32, p: u32, owner: u32) -> bool {
        let task = &self.tasks[v as usize];
        task.limited && task.cpu == p && self.leads_to(owner, v) && !self.held(v)
    }

    /// Tasks below `owner` that left their lines join again, the last one first.
    fn release_last_first(&mut self, p: u32, owner: u32, now_ns: i64, orders: &mut Orders) {
        loop {
            let free = (0..self.tasks.len() as u32).filter(|v| self.may_go_on(*v, p, owner));
            let Some(v) = free.max_by_key(|v| self.tasks[*v as usize].limited_as) else { return };
            self.tasks[v as usize].limited = false;
            orders.release(Vcpu(v));
            self.flat_enqueue(p, v, now_ns, orders);
        }
    }

    /// `owner` has something to run again: it enters the line above, and so on up.
    fn enter_upwards(&mut self, p: u32, owner: u32, now_ns: i64, orders: &mut Orders) {
        let mut e = owner;
        while e != NONE {
            let Entity { line, delayed, queued, .. } = self.lines.entities[e as usize];
            if delayed {
                self.update_load(e, line, now_ns, Then::Tell);
                R::leave_delayed(&mut self.lines, e);
            } else if queued {
                break;
            }
            let group = self.lines.lines[self.line_below(e) as usize].group;
            let line = self.line_of(self.branches[group as usize].parent, p);
            self.update_load(e, line, now_ns, Then::Attach);
            self.share_of(e);
            if self.lines.lines[line as usize].queued == 1 {
                orders.interrupt(Pcpu(p));
            }
            R::enter(&mut self.lines, line, e);
            if self.first_in(line, now_ns, orders) {
                return;
            }
            e = self.lines.lines[line as usize].owner;
        }
        self.update_upwards(e, now_ns);
    }
}
