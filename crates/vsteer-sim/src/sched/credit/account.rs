//! Ticks and accounting: charges the running vCPUs, distributes credits, and parks capped vCPUs.
//!
//! The arithmetic follows the source step by step, including its rounding. The rounding decides whether a
//! vCPU ends a period at 0 or at -1, and so its priority.

use super::{ACTIVE, BOOST, CREDITS_PER_MS, Credit, LEAVING, MS, NONE, OVER, PARKED, QUEUED, UNDER};
use crate::policy::{Held, Orders, View};
use crate::setup::{Pcpu, Vcpu};
use crate::state::State;

impl Credit {
    /// One tick on every busy pCPU; false if none is busy.
    pub(super) fn tick(&mut self, view: &View<'_>, orders: &mut Orders) -> bool {
        let mut busy = false;
        for p in 0..self.queues.len() {
            let current = self.queues[p].current;
            if current == NONE {
                continue;
            }
            busy = true;
            self.tick_unit(view, p as u32, current, orders);
            if self.queues[p].sort_epoch != self.sort_epoch {
                self.queues[p].sort_epoch = self.sort_epoch;
                self.sort(p);
            }
        }
        busy
    }

    #[inline]
    fn tick_unit(&mut self, view: &View<'_>, p: u32, v: u32, orders: &mut Orders) {
        self.burn(v, view.now_ns());
        let unit = &mut self.units[v as usize];
        if self.xen3_accounts {
            unit.credit -= (self.tick_ns * CREDITS_PER_MS / MS) as i32;
        }
        if unit.pri == BOOST {
            unit.pri = UNDER;
        }
        if unit.flags & ACTIVE == 0 {
            self.join_active(v);
        } else if self.place(view, v, false) != p {
            self.units[v as usize].flags |= LEAVING;
            orders.interrupt(Pcpu(p));
        }
    }

    fn join_active(&mut self, v: u32) {
        let unit = &mut self.units[v as usize];
        unit.flags |= ACTIVE;
        let d = unit.domain;
        let domain = &mut self.domains[d as usize];
        (unit.active_prev, unit.active_next) = (NONE, domain.active);
        if domain.active != NONE {
            self.units[domain.active as usize].active_prev = v;
        }
        domain.active = v;
        domain.active_units += 1;
        self.weight += u64::from(domain.weight);
        if domain.active_units == 1 {
            self.push_domain(d);
        }
    }

    fn leave_active(&mut self, v: u32) {
        let unit = &mut self.units[v as usize];
        unit.flags &= !ACTIVE;
        let (d, prev, next) = (unit.domain, unit.active_prev, unit.active_next);
        if next != NONE {
            self.units[next as usize].active_prev = prev;
        }
        let domain = &mut self.domains[d as usize];
        if prev != NONE {
            self.units[prev as usize].active_next = next;
        } else {
            domain.active = next;
        }
        domain.active_units -= 1;
        self.weight -= u64::from(domain.weight);
        if domain.active_units == 0 {
            self.unlink_domain(d);
        }
    }

    /// Adds a domain to the head of the active domains.
    fn push_domain(&mut self, d: u32) {
        let first = self.first_domain;
        let domain = &mut self.domains[d as usize];
        (domain.prev, domain.next) = (NONE, first);
        if first != NONE {
            self.domains[first as usize].prev = d;
        }
        self.first_domain = d;
    }

    fn unlink_domain(&mut self, d: u32) {
        let (prev, next) = (self.domains[d as usize].prev, self.domains[d as usize].next);
        if next != NONE {
            self.domains[next as usize].prev = prev;
        }
        if prev != NONE {
            self.domains[prev as usize].next = next;
        } else {
            self.first_domain = next;
        }
    }

    /// Distributes the credits of a period.
    pub(super) fn accounting(&mut self, view: &View<'_>, orders: &mut Orders) {
        let weight_total = self.weight as i64;
        let mut credit_total = self.credits_per_slice * self.pool.len() as i64;
        if self.balance < 0 {
            credit_total -= self.balance;
        }
        if weight_total == 0 {
            self.balance = 0;
            return;
        }
        let mut weight_left = weight_total;
        let mut balance = 0;
        let mut extra = false;
        let (mut last_part, mut last_fair, mut last_weight, mut last_more) = (0, 0, 0, 0);
        let mut d = self.first_domain;
        while d != NONE {
            let domain = &self.domains[d as usize];
            let next_domain = domain.next;
            // The list is a chain through memory. This prefetches the next link.
            std::hint::black_box(self.domains.get(next_domain as usize).map(|d| d.weight));
            let (units, weight) = (i64::from(domain.active_units), i64::from(domain.weight));
            let mut unit = domain.active;
            let capped = domain.cap_pct != 0;
            weight_left -= weight * units;
            let mut peak = units * self.credits_per_slice;
            // Equal domains often follow each other, and divisions are most of the cost per unit. So this
            // does not repeat them.
            if self.balance < 0 {
                if weight * units != last_weight {
                    last_weight = weight * units;
                    last_more = up(-self.balance * last_weight, weight_total);
                }
                peak += last_more;
            }
            let mut cap = 0;
            if capped {
                cap = up(i64::from(domain.cap_pct) * self.credits_per_slice, 100);
                peak = peak.min(cap);
                cap = up(cap, units);
            }
            let part = credit_total * weight * units;
            if part != last_part {
                (last_part, last_fair) = (part, up(part, weight_total));
            }
            let mut fair = last_fair;
            if fair < peak {
                extra = true;
            } else {
                if weight_left != 0 {
                    credit_total += up((fair - peak) * weight_total, weight_left);
                }
                if extra {
                    self.unlink_domain(d);
                    self.push_domain(d);
                }
                fair = peak;
            }
            let fair = if units == 1 { fair } else { up(fair, units) };
            while unit != NONE {
                let next = self.units[unit as usize].active_next;
                balance += self.pay(view, unit, fair, capped.then_some(cap), orders);
                unit = next;
            }
            d = next_domain;
        }
        self.balance = balance;
        self.sort_epoch = self.sort_epoch.wrapping_add(1);
    }

    /// Gives one active unit its credits, and decides: OVER or UNDER, parked or not, active or not. Returns
    /// its credit.
    #[inline]
    fn pay(&mut self, view: &View<'_>, v: u32, fair: i64, cap: Option<i64>, orders: &mut Orders) -> i64 {
        let unit = &mut self.units[v as usize];
        let mut credit = i64::from(unit.credit) + fair;
        let bound = self.credits_per_slice;
        if credit < 0 {
            unit.pri = OVER;
            let park = cap.is_some_and(|cap| credit < -cap) && unit.flags & PARKED == 0;
            credit = credit.max(-bound);
            unit.credit = credit as i32;
            if park {
                self.hold(view, v, orders);
            }
            return credit;
        }
        unit.pri = UNDER;
        unit.credit = credit as i32;
        if unit.flags & PARKED != 0 {
            self.unpark(view, v, orders);
        }
        if credit > bound {
            self.leave_active(v);
            credit = if self.xen3_accounts { 0 } else { credit / 2 };
            self.units[v as usize].credit = credit as i32;
        }
        credit
    }

    /// Releases a parked unit while it is still marked as parked, so that it gets no BOOST.
    fn unpark(&mut self, view: &View<'_>, v: u32, orders: &mut Orders) {
        orders.release(Vcpu(v));
        let wants = matches!(view.state(Vcpu(v)), State::Limited | State::Ready);
        if wants {
            self.enqueue_woken(view, v, self.master, orders);
        }
        self.units[v as usize].flags &= !PARKED;
    }

    /// Moves the UNDER units of a queue before its OVER units and keeps their order, because accounting
    /// changed priorities in place.
    fn sort(&mut self, p: usize) {
        let mut last_under = NONE;
        let mut v = self.queues[p].head;
        while v != NONE {
            let unit = &self.units[v as usize];
            let next = unit.next;
            if unit.pri >= UNDER {
                if unit.prev != last_under {
                    self.move_behind(p, v, last_under);
                }
                last_under = v;
            }
            v = next;
        }
    }

    /// Moves queued `v` behind `after` (to the head if there is none).
    fn move_behind(&mut self, p: usize, v: u32, after: u32) {
        let (prev, next) = (self.units[v as usize].prev, self.units[v as usize].next);
        // It is not at the head, because a unit with lower priority is before it.
        self.units[prev as usize].next = next;
        if next == NONE {
            self.queues[p].tail = prev;
        } else {
            self.units[next as usize].prev = prev;
        }
        let behind = if after == NONE {
            std::mem::replace(&mut self.queues[p].head, v)
        } else {
            std::mem::replace(&mut self.units[after as usize].next, v)
        };
        self.units[v as usize].prev = after;
        self.units[v as usize].next = behind;
        self.units[behind as usize].prev = v;
    }

    /// Charges a running unit for its CPU time so far, in whole credits. `start_ns` advances by the time that
    /// these credits are worth. The carried residual may put `start_ns` slightly into the future, but time is
    /// charged only once.
    #[inline]
    pub(super) fn burn(&mut self, v: u32, now_ns: u64) {
        let unit = &mut self.units[v as usize];
        let delta_ns = now_ns as i64 - unit.start_ns;
        if delta_ns <= 0 {
            return;
        }
        let worth = delta_ns as u64 * CREDITS_PER_MS + u64::from(unit.residual);
        let credits = worth / MS;
        unit.residual = (worth % MS) as u32;
        if !self.xen3_accounts {
            unit.credit -= credits as i32;
        }
        unit.start_ns += (credits * (MS / CREDITS_PER_MS)) as i64;
    }

    pub(super) fn hold(&mut self, view: &View<'_>, v: u32, orders: &mut Orders) {
        let unit = &mut self.units[v as usize];
        unit.flags |= PARKED;
        let (cpu, queued) = (unit.cpu, unit.flags & QUEUED != 0);
        orders.hold(Vcpu(v), Held::Limited);
        if view.running(Pcpu(cpu)) == Some(Vcpu(v)) {
            orders.interrupt(Pcpu(cpu));
        } else if queued {
            self.less_runnable(cpu);
            self.remove(v);
        }
    }
}

/// a / b, rounded up.
fn up(a: i64, b: i64) -> i64 {
    (a + b - 1) / b
}
