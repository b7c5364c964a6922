//! Co-stop and co-start: a VM stops as a whole, and starts when there are pCPUs for all of its vCPUs.

use super::{Esxi, Is, NONE, Unit};
use crate::policy::{Held, Orders, View};
use crate::setup::{Pcpu, Vcpu};

impl Esxi {
    /// Stops all vCPUs of `vm`.
    pub(super) fn costop(&mut self, vm: usize, now_ns: i64, orders: &mut Orders) {
        self.machines[vm].stopped = true;
        self.stopped += 1;
        for v in self.siblings(vm) {
            orders.hold(Vcpu(v), Held::CoStopped);
            match self.units[v as usize].is {
                Is::Ready => {
                    self.turn(v, Is::Stopped, now_ns);
                    self.queue.retain(|q| *q != v);
                }
                Is::On(p) => orders.interrupt(Pcpu(p)),
                Is::Blocked | Is::Stopped => {}
            }
        }
    }

    /// Starts co-stopped VMs for which there are enough pCPUs, those that used least first. `asking` is free.
    pub(super) fn costart(&mut self, view: &View<'_>, asking: u32, orders: &mut Orders) {
        if self.stopped == 0 {
            return;
        }
        let now_ns = view.now_ns() as i64;
        let mut tried = None;
        loop {
            let key = |vm: usize| (self.siblings(vm).map(|v| self.units[v as usize].used).min(), vm);
            let waits = |vm: &usize| {
                let still = |v: u32| matches!(self.units[v as usize].is, Is::On(_));
                self.machines[*vm].stopped && !self.siblings(*vm).any(still) && tried < Some(key(*vm))
            };
            let next = (0..self.machines.len()).filter(waits).min_by_key(|vm| key(*vm));
            let Some(vm) = next else { return };
            tried = Some(key(vm));
            self.try_costart(view, vm, asking, now_ns, orders);
        }
    }

    pub(super) fn try_costart(
        &mut self,
        view: &View<'_>,
        vm: usize,
        asking: u32,
        now_ns: i64,
        orders: &mut Orders,
    ) {
        let wants = |unit: &Unit| unit.is == Is::Stopped;
        let mut missing = false;
        for v in self.siblings(vm) {
            let unit = &self.units[v as usize];
            if !wants(unit) {
                continue;
            }
            let allowed = &view.host().vcpus[v as usize].affinity;
            let free = |p: &usize| {
                let current = self.current[*p];
                let open = self.mine[*p] && self.kept[*p] == NONE;
                // A vCPU that waits for this pCPU and used less goes first.
                let before = |q: &u32| {
                    view.host().allows(Vcpu(*q), Pcpu(*p as u32)) && self.units[*q as usize].used < unit.used
                };
                open && match current {
                    NONE => !self.queue.iter().any(before),
                    _ => self.used(current, now_ns) > unit.used + self.quantum_ns,
                }
            };
            let found = allowed.iter().filter(free).min_by_key(|p| (self.current[*p] != NONE, *p));
            match found {
                Some(p) => self.kept[p] = v,
                // It has more vCPUs than allowed pCPUs, so the pCPUs that it can have must be enough.
                None => {
                    missing |= allowed.iter().any(|p| {
                        let kept = self.kept[p];
                        kept == NONE || self.units[kept as usize].vm as usize != vm
                    })
                }
            }
        }
        let own = |kept: u32| kept != NONE && self.units[kept as usize].vm as usize == vm;
        if missing {
            for p in 0..self.kept.len() {
                if own(self.kept[p]) {
                    self.kept[p] = NONE;
                }
            }
            return;
        }
        for p in 0..self.kept.len() as u32 {
            if own(self.kept[p as usize]) && p != asking {
                orders.interrupt(Pcpu(p));
            }
        }
        self.machines[vm].stopped = false;
        self.stopped -= 1;
        for v in self.siblings(vm) {
            orders.release(Vcpu(v));
            self.units[v as usize].skew_ns = 0;
            if self.units[v as usize].is == Is::Stopped {
                self.turn(v, Is::Ready, now_ns);
                self.queue.push(v);
            }
        }
    }
}
