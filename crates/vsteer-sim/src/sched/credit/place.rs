//! Chooses the pCPU of a vCPU: tickling, placing and stealing.
//!
//! The masks are Xen's. In addition this file counts the idle pCPUs per core and socket. So a tick that would
//! find no better pCPU knows this without a walk over the idlers.

use super::{ANYWHERE, Credit, LEAVING, NONE, PINNED, SOFT, YIELD};
use crate::bits::{Bits, after};
use crate::policy::{Orders, View};
use crate::setup::{Host, Pcpu, Vcpu};

/// Buffers for temporary masks.
#[derive(Debug)]
pub(super) struct Scratch {
    cpus: Bits,
    idlers: Bits,
    others: Bits,
}

impl Scratch {
    pub(super) fn new(pcpus: usize) -> Scratch {
        Scratch { cpus: Bits::new(pcpus), idlers: Bits::new(pcpus), others: Bits::new(pcpus) }
    }
}

/// The number of idlers of each core and socket.
#[derive(Debug)]
pub(super) struct Idleness {
    core: Vec<u32>,
    socket: Vec<u32>,
    /// The number of cores with each number of idlers.
    cores_with: Vec<u32>,
}

impl Idleness {
    pub(super) fn new(host: &Host) -> Idleness {
        let threads = host.cores.iter().map(Bits::len).max().unwrap_or(1);
        let mut cores_with = vec![0; threads + 1];
        cores_with[0] = host.cores.len() as u32;
        Idleness { core: vec![0; host.cores.len()], socket: vec![0; host.sockets.len()], cores_with }
    }

    #[inline]
    pub(super) fn more(&mut self, core: u32, socket: u32) {
        self.socket[socket as usize] += 1;
        let n = &mut self.core[core as usize];
        self.cores_with[*n as usize] -= 1;
        *n += 1;
        self.cores_with[*n as usize] += 1;
    }

    /// True if no pCPU is idle.
    #[inline]
    pub(super) fn none(&self) -> bool {
        self.cores_with[0] as usize == self.core.len()
    }

    /// True if, after adding `counted` to this core and its socket, no core has more idlers than this one,
    /// and no socket has more than twice as many.
    #[inline]
    fn none_better(&self, core: u32, socket: u32, counted: u32) -> bool {
        let mine = (self.core[core as usize] + counted) as usize;
        let twice = 2 * (self.socket[socket as usize] + counted);
        self.cores_with[mine + 1..].iter().all(|n| *n == 0) && self.socket.iter().all(|n| *n <= twice)
    }

    #[inline]
    pub(super) fn less(&mut self, core: u32, socket: u32) {
        self.socket[socket as usize] -= 1;
        let n = &mut self.core[core as usize];
        self.cores_with[*n as usize] -= 1;
        *n -= 1;
        self.cores_with[*n as usize] += 1;
    }
}

impl Credit {
    /// Queued `new` may deserve a pCPU now. Interrupts a pCPU that should run it, if there is one.
    #[inline]
    pub(super) fn tickle(&mut self, view: &View<'_>, new: u32, at: u32, orders: &mut Orders) {
        let (pri, cpu, flags) = {
            let unit = &self.units[new as usize];
            (unit.pri, unit.cpu, unit.flags)
        };
        let current = self.queues[cpu as usize].current;
        if flags & PINNED != 0 && self.idlers.contains(cpu as usize) {
            self.interrupt(cpu, orders);
            return;
        }
        let idlers_empty = self.idle.none();
        if current == NONE || (idlers_empty && pri > self.units[current as usize].pri) {
            self.interrupt(cpu, orders);
            return;
        }
        if idlers_empty {
            return;
        }
        let words = self.idlers.words();
        let from = if self.tickle_one { self.queues[at as usize].tickled as usize } else { 0 };
        let found = if flags & ANYWHERE != 0 {
            self.idlers.after(from)
        } else {
            let facts = &view.host().vcpus[new as usize];
            let soft = facts.soft_affinity.as_ref().filter(|_| flags & SOFT != 0);
            let mut masks = [soft, Some(&facts.affinity)].into_iter().flatten();
            masks.find_map(|mask| after(words, from, |w| mask.word(w) & self.idlers.word(w)))
        };
        let Some(found) = found else {
            // No allowed pCPU is idle. It takes its own if its priority is higher than that of the running
            // vCPU.
            if pri > self.units[current as usize].pri {
                self.interrupt(cpu, orders);
            }
            return;
        };
        if self.tickle_one {
            self.queues[at as usize].tickled = found as u32;
            self.interrupt(found as u32, orders);
        } else {
            self.tickle_all(view, new, orders);
        }
    }

    /// Interrupts every idle pCPU of `new`'s soft affinity, otherwise of its hard affinity.
    fn tickle_all(&mut self, view: &View<'_>, new: u32, orders: &mut Orders) {
        let facts = &view.host().vcpus[new as usize];
        let masks = [facts.soft_affinity.as_ref(), Some(&facts.affinity)];
        let suitable = masks.into_iter().flatten().find(|mask| mask.intersects(&self.idlers));
        self.scratch.cpus.copy_from(suitable.expect("one was found"));
        self.scratch.cpus.keep(&self.idlers);
        while let Some(p) = self.scratch.cpus.first() {
            self.scratch.cpus.remove(p);
            self.interrupt(p as u32, orders);
        }
    }

    /// Interrupts `p`, which no longer counts as idle, so the next wake-up chooses another pCPU.
    #[inline]
    fn interrupt(&mut self, p: u32, orders: &mut Orders) {
        self.clear_idler(p as usize);
        orders.interrupt(Pcpu(p));
    }

    /// The pCPU that suits `v` best. `v` keeps its own pCPU if that is otherwise idle and no other has more
    /// idle neighbours. Else it gets the idle pCPU with the most idle neighbours (threads of a core count
    /// first; another socket only if it is twice as idle).
    #[inline]
    pub(super) fn place(&mut self, view: &View<'_>, v: u32, commit: bool) -> u32 {
        let own = self.units[v as usize].cpu;
        if !self.any_soft && self.stays(view, v, own) {
            return own;
        }
        self.search(view, v, own, commit)
    }

    /// True if `v` certainly stays, without a search.
    #[inline]
    fn stays(&self, view: &View<'_>, v: u32, own: u32) -> bool {
        let queue = &self.queues[own as usize];
        if self.units[v as usize].flags & ANYWHERE == 0
            && !view.host().vcpus[v as usize].affinity.contains(own as usize)
        {
            return false;
        }
        if self.idle.none() {
            return true;
        }
        let counted = u32::from(!self.idlers.contains(own as usize));
        queue.head == NONE && self.idle.none_better(queue.core, queue.socket, counted)
    }

    fn search(&mut self, view: &View<'_>, v: u32, own: u32, commit: bool) -> u32 {
        let host = view.host();
        let facts = &host.vcpus[v as usize];
        let Scratch { cpus, idlers, others } = &mut self.scratch;
        let mut cpu = own as usize;
        let mut biased = None;
        for mask in [facts.soft_affinity.as_ref(), Some(&facts.affinity)].into_iter().flatten() {
            cpus.copy_from(mask);
            cpu = if cpus.contains(own as usize) {
                own as usize
            } else {
                cpus.after(own as usize).expect("an affinity is not empty")
            };
            idlers.copy_from(&self.idlers);
            if cpu == own as usize && self.queues[cpu].head == NONE {
                idlers.insert(cpu);
            }
            cpus.keep(idlers);
            if !cpus.contains(cpu)
                && let Some(idle) = cpus.after(cpu)
            {
                cpu = idle;
            }
            // A shortcut for the result of the walk below.
            let here = &host.pcpus[cpu];
            let counted = u32::from(!self.idlers.contains(cpu));
            if idlers.contains(cpu) && self.idle.none_better(here.core, here.socket, counted) {
                break;
            }
            cpus.remove(cpu);
            while let Some(next) = cpus.after(cpu) {
                let (here, there) = (&host.pcpus[cpu], &host.pcpus[next]);
                let (factor, mine, its) = if here.socket == there.socket {
                    (1, &host.cores[here.core as usize], &host.cores[there.core as usize])
                } else {
                    (2, &host.sockets[here.socket as usize], &host.sockets[there.socket as usize])
                };
                others.copy_from(its);
                others.keep(idlers);
                if mine.common(idlers) * factor < others.len() {
                    others.keep(cpus);
                    biased = Some(next);
                    let bias = self.queues[next].idle_bias as usize;
                    cpu = others.after(bias).expect("next is among them");
                    cpus.subtract(&host.cores[host.pcpus[cpu].core as usize]);
                } else {
                    cpus.subtract(others);
                }
            }
            if idlers.contains(cpu) {
                break;
            }
        }
        if commit && let Some(p) = biased {
            self.queues[p].idle_bias = cpu as u32;
        }
        cpu as u32
    }

    /// Finds work for `p` in its peers' queues, with higher priority than `pri`; [`NONE`] if there is none.
    #[inline]
    pub(super) fn steal(&mut self, view: &View<'_>, p: u32, pri: i8) -> u32 {
        if self.overloaded.is_empty() || !self.queues[p as usize].mine {
            return NONE;
        }
        for soft in [true, false] {
            if soft && !self.any_soft {
                continue;
            }
            let nodes = self.nodes.len();
            let own = self.queues[p as usize].node as usize;
            for k in 0..nodes {
                let node = if own + k < nodes { own + k } else { own + k - nodes };
                // Busy peers of the node, from where the last search ended. Xen skips those with one runnable
                // unit during the walk. Leaving them out here keeps the same order.
                let bias = self.balance_bias[node] as usize;
                let (mut peer, mut first) = (bias, None);
                loop {
                    let busy =
                        |w: usize| self.nodes[node].word(w) & !self.idlers.word(w) & self.overloaded.word(w);
                    let Some(next) = after(self.idlers.words(), peer, busy) else { break };
                    if first == Some(next) {
                        break;
                    }
                    first = first.or(Some(next));
                    peer = next;
                    if peer == p as usize {
                        continue;
                    }
                    let stolen = self.steal_from(view, peer, p, pri, soft);
                    if stolen != NONE {
                        self.balance_bias[node] = peer as u32;
                        return stolen;
                    }
                }
            }
        }
        NONE
    }

    #[inline]
    fn steal_from(&mut self, view: &View<'_>, peer: usize, p: u32, pri: i8, soft: bool) -> u32 {
        if self.queues[peer].current == NONE {
            // That pCPU is about to run it itself.
            return NONE;
        }
        let mut v = self.queues[peer].head;
        while v != NONE {
            let unit = &self.units[v as usize];
            if unit.pri <= pri {
                break;
            }
            let allowed = if unit.flags & ANYWHERE != 0 {
                !soft
            } else {
                let facts = &view.host().vcpus[v as usize];
                let mask = if soft { facts.soft_affinity.as_ref() } else { Some(&facts.affinity) };
                mask.is_some_and(|m| m.contains(p as usize))
            };
            let hot =
                self.migration_delay_ns > 0 && view.now_ns() - unit.last_ran_ns < self.migration_delay_ns;
            let may = unit.flags & (YIELD | LEAVING) == 0 && !hot;
            if may && allowed {
                debug_assert_ne!(view.running(Pcpu(peer as u32)), Some(Vcpu(v)));
                self.less_runnable(peer as u32);
                self.remove(v);
                self.units[v as usize].cpu = p;
                self.more_runnable(p);
                return v;
            }
            v = unit.next;
        }
        NONE
    }
}
