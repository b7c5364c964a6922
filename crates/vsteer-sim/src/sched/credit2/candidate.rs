//! Chooses the vCPU of a queue that should run on a pCPU.

use super::{Credit2, IDLE_CREDIT, NONE};
use crate::bits::Bits;
use crate::policy::{Orders, View, Why};
use crate::setup::{Pcpu, Vcpu};

impl Credit2 {
    /// The vCPU that should run on `p` (`runq_candidate`): the running one, or the first allowed one of the
    /// queue with more credit.
    pub(super) fn candidate(
        &mut self,
        view: &View<'_>,
        p: Pcpu,
        why: Why,
        runnable: bool,
        orders: &mut Orders,
    ) -> u32 {
        let now_ns = view.now_ns() as i64;
        let q = self.queue_of[p.i()] as usize;
        let yields = matches!(why, Why::Yielded(_));
        let mut next = NONE;
        if let Some(v) = why.runnable().filter(|_| runnable) {
            let ran_ns = now_ns - view.since_ns(v) as i64;
            if !yields && ran_ns < self.ratelimit_ns {
                return v.0;
            }
            let soft = view.host().vcpus[v.i()].soft_affinity.as_ref();
            let rather = soft.filter(|soft| !soft.contains(p.i()));
            let could = |soft: &Bits| {
                soft.iter().any(|i| self.queues[q].idle.contains(i) && !self.queues[q].tickled.contains(i))
            };
            if !rather.is_some_and(could) {
                next = v.0;
            }
        }
        let credit = if next == NONE { IDLE_CREDIT } else { self.units[next as usize].credit };
        let mut i = 0;
        while let Some(&v) = self.queues[q].list.get(i) {
            let unit = &self.units[v as usize];
            if !yields && unit.credit <= credit {
                break;
            }
            let tickled = unit.tickled;
            let others =
                tickled != NONE && tickled != p.0 && self.queues[q].tickled.contains(tickled as usize);
            let resists = unit.cpu != p.0 && credit + self.resist > unit.credit;
            if !view.host().allows(Vcpu(v), p) || others || resists {
                i += 1;
                continue;
            }
            if unit.budget.is_some() && !self.grab_budget(v, now_ns, orders) {
                // It was parked and removed from the queue.
                continue;
            }
            return v;
        }
        next
    }
}
