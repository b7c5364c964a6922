//! Measures how far a VM's vCPUs drifted apart: what each used, how far it advanced, and when a skew reaches
//! a limit.

use super::{Coscheduling, Esxi, Is, SHARES, SKEW};
use crate::policy::{Orders, View};
use crate::setup::{Pcpu, Vcpu};

impl Esxi {
    /// Charges running `v` for the time since the last charge.
    pub(super) fn charge(&mut self, v: u32, now_ns: i64) {
        let unit = &mut self.units[v as usize];
        let ns = now_ns - unit.since_ns;
        unit.used += ns * SHARES / unit.shares;
        unit.advanced_ns += ns;
        unit.since_ns = now_ns;
    }

    /// What `v` has used up to now.
    pub(super) fn used(&self, v: u32, now_ns: i64) -> i64 {
        let unit = &self.units[v as usize];
        match unit.is {
            Is::On(_) => unit.used + (now_ns - unit.since_ns) * SHARES / unit.shares,
            _ => unit.used,
        }
    }

    pub(super) fn advanced(&self, v: u32, now_ns: i64) -> i64 {
        let unit = &self.units[v as usize];
        match unit.is {
            Is::On(_) | Is::Blocked => unit.advanced_ns + now_ns - unit.since_ns,
            Is::Ready | Is::Stopped => unit.advanced_ns,
        }
    }

    pub(super) fn siblings(&self, vm: usize) -> std::ops::Range<u32> {
        self.machines[vm].first..self.machines[vm].first + self.machines[vm].vcpus
    }

    /// How far `v` is ahead of its slowest sibling.
    pub(super) fn ahead(&self, v: u32, now_ns: i64) -> i64 {
        let siblings = self.siblings(self.units[v as usize].vm as usize);
        let slowest = siblings.map(|s| self.advanced(s, now_ns)).min();
        self.advanced(v, now_ns) - slowest.expect("it is one of them")
    }

    /// How long at least one vCPU of the VM has run.
    pub(super) fn any_ns(&self, vm: usize, now_ns: i64) -> i64 {
        let machine = &self.machines[vm];
        machine.any_ns + if machine.running > 0 { now_ns - machine.any_since_ns } else { 0 }
    }

    /// Moves `v` to another state. A running vCPU must have been charged before.
    pub(super) fn turn(&mut self, v: u32, to: Is, now_ns: i64) {
        let vm = self.units[v as usize].vm as usize;
        let any_ns = self.any_ns(vm, now_ns);
        let unit = &mut self.units[v as usize];
        let from = std::mem::replace(&mut unit.is, to);
        match from {
            Is::Blocked => unit.advanced_ns += now_ns - unit.since_ns,
            Is::Ready => unit.skew_ns += any_ns - unit.mark_ns,
            Is::On(_) | Is::Stopped => {}
        }
        unit.since_ns = now_ns;
        unit.mark_ns = any_ns;
        let machine = &mut self.machines[vm];
        if let Is::On(_) = from {
            machine.running -= 1;
            if machine.running == 0 {
                machine.any_ns = any_ns;
            }
        }
        if let Is::On(_) = to {
            machine.running += 1;
            if machine.running == 1 {
                machine.any_since_ns = now_ns;
            }
        }
    }

    /// When to check the vCPU on `p`: its quantum ends, or it is too far ahead.
    pub(super) fn end_ns(&self, p: usize, now_ns: i64) -> i64 {
        let v = self.current[p];
        let ends_ns = self.ends_ns[p];
        if self.mode != Coscheduling::Relaxed {
            return ends_ns;
        }
        let vm = self.units[v as usize].vm as usize;
        let waits = |s: &u32| matches!(self.units[*s as usize].is, Is::Ready | Is::Stopped);
        let slowest = self.siblings(vm).filter(waits).map(|s| self.advanced(s, now_ns)).min();
        // Siblings that also advance do not fall behind.
        slowest.map_or(ends_ns, |s| ends_ns.min(now_ns + s + self.costop_ns - self.advanced(v, now_ns)))
    }

    /// Something about `vm` changed. Updates until when its running vCPUs may continue, and when to check the
    /// skew. `asking` is the pCPU that asks, which gets the answer directly.
    pub(super) fn check(&mut self, vm: usize, now_ns: i64, asking: u32, orders: &mut Orders) {
        if self.mode == Coscheduling::None || self.machines[vm].vcpus < 2 {
            return;
        }
        // If the slowest one waits, it catches up with no sibling. Then there is nothing to check until it
        // runs.
        let advances = |s: u32| matches!(self.units[s as usize].is, Is::On(_) | Is::Blocked);
        let slowest = self.siblings(vm).min_by_key(|s| (self.advanced(*s, now_ns), advances(*s)));
        let catches_up = slowest.is_some_and(advances);
        let mut check_ns = i64::MAX;
        for v in self.siblings(vm) {
            match (self.mode, self.units[v as usize].is) {
                (Coscheduling::Relaxed, Is::On(p)) if p != asking => {
                    let end_ns = self.end_ns(p as usize, now_ns);
                    if end_ns > now_ns {
                        orders.end_slice(Pcpu(p), end_ns as u64);
                    } else {
                        orders.interrupt(Pcpu(p));
                    }
                }
                (Coscheduling::Relaxed, Is::Stopped) => {
                    let left_ns = self.ahead(v, now_ns) - self.costart_ns;
                    if left_ns <= 0 || catches_up {
                        check_ns = check_ns.min(now_ns + left_ns.max(1));
                    }
                }
                (Coscheduling::Strict, Is::Ready) if self.machines[vm].running > 0 => {
                    let unit = &self.units[v as usize];
                    let skew_ns = unit.skew_ns + self.any_ns(vm, now_ns) - unit.mark_ns;
                    check_ns = check_ns.min(now_ns + (self.costop_ns - skew_ns).max(1));
                }
                _ => {}
            }
        }
        self.machines[vm].check_ns = check_ns;
    }

    /// Handles a skew of `vm` that may have reached its limit.
    pub(super) fn reached(&mut self, view: &View<'_>, vm: usize, now_ns: i64, orders: &mut Orders) {
        if self.mode == Coscheduling::Strict {
            let any_ns = self.any_ns(vm, now_ns);
            let over = |v: u32| {
                let unit = &self.units[v as usize];
                unit.is == Is::Ready && unit.skew_ns + any_ns - unit.mark_ns >= self.costop_ns
            };
            if !self.machines[vm].stopped && self.siblings(vm).any(over) {
                self.costop(vm, now_ns, orders);
            }
            return;
        }
        for v in self.siblings(vm) {
            if self.units[v as usize].is == Is::Stopped && self.ahead(v, now_ns) <= self.costart_ns {
                self.turn(v, Is::Ready, now_ns);
                self.queue.push(v);
                orders.release(Vcpu(v));
                if let Some(p) = self.place(view, v, now_ns) {
                    orders.interrupt(Pcpu(p));
                }
            }
        }
    }

    /// Sets the timer to the next check. If one is due now, its timer is set already.
    pub(super) fn arm(&self, now_ns: i64, orders: &mut Orders) {
        let next = self.machines.iter().map(|m| m.check_ns).min().unwrap_or(i64::MAX);
        if next > now_ns {
            orders.set_timer(SKEW, if next == i64::MAX { u64::MAX } else { next as u64 });
        }
    }
}
