//! Credits and budgets: charging, the reset of all credits, the length of a turn, and the budget of a cap.
//!
//! Sources as in [`super`].

use super::{CREDIT_INIT, Credit2, Domain, MIN_TIMER};
use crate::policy::{Held, Orders, View};
use crate::setup::Vcpu;
use crate::state::State;

impl Domain {
    pub(super) fn cap(&mut self, cap_pct: u32, period_ns: i64, now_ns: u64) {
        self.tot_budget = period_ns * i64::from(cap_pct) / 100;
        self.quota = (self.tot_budget / self.vcpus).max(MIN_TIMER);
        self.budget = self.tot_budget;
        self.next_ns = now_ns + period_ns as u64;
    }
}

impl Credit2 {
    /// Charges running `v` up to now (`burn_credits`, `t2c_update`).
    pub(super) fn burn(&mut self, v: u32, now_ns: i64) {
        let unit = &mut self.units[v as usize];
        let ns = now_ns - unit.start_ns;
        if ns <= 0 {
            return;
        }
        unit.start_ns = now_ns;
        let burnt = ns * self.queues[unit.queue as usize].max_weight + unit.residual;
        unit.residual = burnt % unit.weight;
        unit.credit = (unit.credit - burnt / unit.weight).max(-CREDIT_INIT);
        if let Some(budget) = &mut unit.budget {
            *budget -= ns;
        }
    }

    /// Renews the credits of all vCPUs in the queue (`reset_credit`).
    pub(super) fn reset(&mut self, q: usize, next: u32, now_ns: i64, orders: &mut Orders) {
        let lowest = self.units[next as usize].credit == -CREDIT_INIT;
        let more = if lowest { 2 * CREDIT_INIT } else { CREDIT_INIT };
        for i in 0..self.queues[q].units.len() {
            let v = self.queues[q].units[i];
            let cpu = self.units[v as usize].cpu;
            if self.current[cpu as usize] == v {
                self.burn(v, now_ns);
                if self.units[v as usize].budget.is_some_and(|b| b <= 0) {
                    self.interrupt(cpu, orders);
                }
            }
            let unit = &mut self.units[v as usize];
            unit.credit = (unit.credit + more).min(CREDIT_INIT + MIN_TIMER);
            unit.start_ns = now_ns;
        }
    }

    /// How long `next` may run (`csched2_runtime`).
    pub(super) fn runtime(
        &self,
        q: usize,
        next: u32,
        now_ns: i64,
        entered_ns: Option<i64>,
        inflight: i64,
    ) -> i64 {
        let unit = &self.units[next as usize];
        let mut least = MIN_TIMER;
        if self.ratelimit_ns > 0 {
            let left = entered_ns.map_or(self.ratelimit_ns, |since| since + self.ratelimit_ns - now_ns);
            least = least.max(left);
        }
        let first = self.queues[q].list.first().map_or(0, |v| self.units[*v as usize].credit);
        let waiting = first.max(0).max(inflight);
        let credit = unit.credit - waiting;
        let mut ns = if credit > 0 { credit * unit.weight / self.queues[q].max_weight } else { 0 };
        if let Some(budget) = unit.budget {
            ns = ns.min(budget);
        }
        if ns < least { least } else { ns.min(CREDIT_INIT) }
    }

    /// May `v` run under its VM's cap? Takes a part of the budget, or parks `v` if none is left
    /// (`unit_grab_budget`).
    pub(super) fn grab_budget(&mut self, v: u32, now_ns: i64, orders: &mut Orders) -> bool {
        let unit = &mut self.units[v as usize];
        let own = unit.budget.expect("it has a cap");
        if own > 0 {
            return true;
        }
        let domain = &mut self.domains[unit.vm as usize];
        domain.budget += own;
        if domain.budget > 0 {
            let taken = domain.budget.min(domain.quota);
            unit.budget = Some(taken);
            domain.budget -= taken;
            return true;
        }
        unit.budget = Some(0);
        if !std::mem::replace(&mut unit.parked, true) {
            domain.parked.insert(0, v);
            orders.hold(Vcpu(v), Held::Limited);
        }
        if self.units[v as usize].queued {
            self.unqueue(v);
            self.update_load(self.units[v as usize].queue as usize, v, -1, now_ns);
        }
        false
    }

    /// Releases the parked vCPUs of a VM.
    pub(super) fn unpark(&mut self, view: &View<'_>, domain: usize, orders: &mut Orders) {
        let mut units = std::mem::take(&mut self.unparked);
        units.append(&mut self.domains[domain].parked);
        for &v in &units {
            self.units[v as usize].parked = false;
            orders.release(Vcpu(v));
            if matches!(view.state(Vcpu(v)), State::Limited | State::Ready) {
                self.join(view, v, orders);
            }
        }
        units.clear();
        self.unparked = units;
    }
}
