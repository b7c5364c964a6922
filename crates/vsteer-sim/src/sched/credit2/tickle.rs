//! Chooses the pCPU to interrupt for a vCPU that joins its queue.
//!
//! First an idle core (the vCPU's own pCPU, if that core includes it), then an idle thread, in the soft
//! affinity before the hard one. Otherwise the pCPU whose vCPU is most worth preempting: the largest lead in
//! credit, minus the resistance to moving, plus a bonus if that suits the soft affinities. Sources as in
//! [`super`].

use super::{COMPENSATION, CREDIT_INIT, Credit2, NONE};
use crate::bits::Bits;
use crate::policy::{Orders, View};
use crate::setup::{Pcpu, Vcpu};

impl Credit2 {
    pub(super) fn interrupt(&mut self, p: u32, orders: &mut Orders) {
        let q = self.queue_of[p as usize] as usize;
        self.queues[q].tickled.insert(p as usize);
        orders.interrupt(Pcpu(p));
    }

    /// Finds a pCPU for queued `new` (`runq_tickle`).
    pub(super) fn tickle(&mut self, view: &View<'_>, new: u32, orders: &mut Orders) {
        let unit = &self.units[new as usize];
        let (cpu, pinned) = (unit.cpu as usize, unit.pinned);
        let queue = &self.queues[unit.queue as usize];
        let found = if pinned && queue.idle.contains(cpu) && !queue.tickled.contains(cpu) {
            Some(cpu)
        } else {
            self.idle_for(view, new).or_else(|| self.least_worth(view, new))
        };
        if let Some(p) = found {
            self.interrupt(p as u32, orders);
            self.units[new as usize].tickled = p as u32;
        }
    }

    fn idle_for(&mut self, view: &View<'_>, new: u32) -> Option<usize> {
        let (host, facts) = (view.host(), &view.host().vcpus[new as usize]);
        let unit = &self.units[new as usize];
        let (cpu, queue) = (unit.cpu as usize, &self.queues[unit.queue as usize]);
        for affinity in [facts.soft_affinity.as_ref(), Some(&facts.affinity)].into_iter().flatten() {
            self.mask.copy_from(&queue.idle);
            self.mask.subtract(&queue.tickled);
            let whole = |p: usize| {
                let core = &host.cores[host.pcpus[p].core as usize];
                core.iter().all(|s| queue.idle.contains(s) && !queue.tickled.contains(s))
            };
            self.mask.keep(affinity);
            let own = |mask: &Bits| mask.contains(cpu);
            if own(&self.mask) && whole(cpu) {
                return Some(cpu);
            }
            let (mut at, mut first) = (cpu, None);
            while let Some(p) = self.mask.after(at).filter(|p| first != Some(*p)) {
                if whole(p) {
                    return Some(p);
                }
                first = first.or(Some(p));
                at = p;
            }
            if own(&self.mask) {
                return Some(cpu);
            }
            if first.is_some() {
                return first;
            }
        }
        None
    }

    fn least_worth(&mut self, view: &View<'_>, new: u32) -> Option<usize> {
        let facts = &view.host().vcpus[new as usize];
        let unit = &self.units[new as usize];
        let (cpu, q) = (unit.cpu as usize, unit.queue as usize);
        let likes = |v: usize, p: usize| {
            view.host().vcpus[v].soft_affinity.as_ref().is_none_or(|soft| soft.contains(p))
        };
        let (mut best, mut most) = (None, 0);
        // Its own pCPU first, then the others in order of their numbers.
        let own = facts.affinity.contains(cpu).then_some(cpu);
        for i in own.into_iter().chain(facts.affinity.iter().filter(|i| *i != cpu)) {
            let queue = &self.queues[q];
            let busy = queue.active.contains(i) && !queue.idle.contains(i) && !queue.tickled.contains(i);
            if !busy {
                continue;
            }
            let Some(ahead) = self.score(view, new, i).filter(|ahead| *ahead > 0) else { continue };
            let bonus = |yes: bool| if yes { CREDIT_INIT } else { 0 };
            let liked = likes(new as usize, i);
            let score = ahead + bonus(liked) + bonus(!likes(self.current[i] as usize, i));
            if score > most {
                (best, most) = (Some(i), score);
                if i == cpu && liked {
                    break;
                }
            }
        }
        best
    }

    /// The lead in credit of `new` over the vCPU that runs on `p` (`tickle_score`); `None` if that may not be
    /// preempted.
    fn score(&mut self, view: &View<'_>, new: u32, p: usize) -> Option<i64> {
        let (current, now_ns) = (self.current[p], view.now_ns() as i64);
        if current == NONE {
            return None;
        }
        // If a vCPU was chosen at this same time, the engine does not show it on its pCPU yet.
        let on = view.running(Pcpu(p as u32)) == Some(Vcpu(current));
        let ran_ns = if on { now_ns - view.since_ns(Vcpu(current)) as i64 } else { 0 };
        if self.ratelimit_ns > COMPENSATION && ran_ns <= self.ratelimit_ns - COMPENSATION {
            return None;
        }
        self.burn(current, now_ns);
        let ahead = self.units[new as usize].credit - self.units[current as usize].credit;
        Some(if self.units[new as usize].cpu as usize == p { ahead } else { ahead - self.resist })
    }
}
