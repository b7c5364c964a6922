//! Xen's Credit2: credits burn by weight, and all vCPUs of a queue get new credits at once.
//!
//! **Purpose.** Xen's default scheduler since 4.12. Like Credit it shares pCPUs by weight and caps VMs. It
//! has no priorities that guests can exploit, no ticks, and far fewer queues.
//!
//! **Idea.** Several pCPUs share a queue ordered by credit (a socket's pCPUs, at most 16). A vCPU with the
//! largest weight of the queue burns one credit per nanosecond; others burn more. The vCPU with the most
//! credit runs until its credit equals that of the next one, for at least 0.5 ms (or the rate limit) and at
//! most 10 ms. If the next vCPU to run has no credit left, every vCPU of the queue gets 10 ms worth, limited
//! to 10.5 ms in total. So sleeping saves no credit, and no vCPU stays in debt forever. A vCPU that wakes
//! interrupts an idle pCPU of its queue. If there is none, it interrupts the pCPU whose vCPU has the least
//! credit compared with it. When credits are renewed, queues are balanced by decaying load.
//!
//! **What follows from this**: a vCPU that sleeps much has 10 ms of credit and preempts busy vCPUs as soon as
//! the rate limit allows. A wake-up rarely waits much longer than that, unless similar vCPUs are ahead.
//! Weights apply within a queue, not between queues. So two VMs pinned to different sockets get what their
//! sockets have.
//!
//! **Parameters**: below; defaults are the source's.
//!
//! **Modelled**: credits with their residual and lower bound, reset and its clipping, slices by credit with
//! in-flight credit of the vCPU that leaves, rate limit and its tolerance, migration resistance and
//! compensation, queues by core, socket, node or all with their limit of pCPUs, tickling (pinned, idle cores,
//! idle threads, by score), soft and hard affinity, soft-affinity preemption, caps by budgets with quotas,
//! parking and replenishment, yield, load averages of queues and vCPUs, initial placement, balancing by one
//! exchange.
//!
//! **Not modelled**
//! - `GAP(credit2-races)`: interrupts and locks take no time. So balancing skips no queue because of a
//!   contended lock, a switch ends at once, and a leaving vCPU returns its unused budget at the same time.
//! - `GAP(credit2-phase)`: the budgets of VMs that were capped at the same time are replenished at the same
//!   times.
//! - `GAP(credit2-units)`: one vCPU per scheduling unit (no core scheduling), no tasklets, no
//!   `sched_smt_power_savings`.
//!
//! **Sources**: xen/common/sched/credit2.c of Xen 4.23-unstable (commit c447b730, 2026-08); names follow it.
//! Read, not copied.

use super::super::bits::Bits;
use super::super::policy::{About, Choice, Orders, Policy, Values, View, Why};
use super::super::setup::{Host, Pcpu, Pool, Vcpu, Vm};
use crate::state::State;
use vsteer_core::Fault;

mod about;
mod arrange;
mod candidate;
mod credits;
mod load;
mod tickle;

const NONE: u32 = u32::MAX;
const US: i64 = 1_000;
/// CSCHED2_CREDIT_INIT, which is also the longest slice. CSCHED2_CREDIT_MIN is its negative.
const CREDIT_INIT: i64 = 10_000 * US;
/// CSCHED2_MIN_TIMER: the shortest slice, and the most credit that a reset carries over.
const MIN_TIMER: i64 = 500 * US;
/// CSCHED2_MIGRATE_COMPENSATION, and CSCHED2_RATELIMIT_TICKLE_TOLERANCE.
const COMPENSATION: i64 = 50 * US;
/// Below the credit of any vCPU.
const IDLE_CREDIT: i64 = -CREDIT_INIT - 1;
/// Timer of the replenishment of budgets.
const REPLENISH: u32 = 0;

#[derive(Debug, Clone)]
struct Unit {
    vm: u32,
    cpu: u32,
    queue: u32,
    credit: i64,
    residual: i64,
    weight: i64,
    start_ns: i64,
    /// The pCPU that was interrupted for it.
    tickled: u32,
    /// With a cap: how long it may run before it asks its VM for more.
    budget: Option<i64>,
    queued: bool,
    parked: bool,
    pinned: bool,
    /// The queue to which it moves when it leaves its pCPU.
    moves_to: u32,
    avgload: i64,
    load_at: i64,
}

/// A queue shared by some pCPUs.
#[derive(Debug, Clone)]
struct Queue {
    /// Waiting vCPUs, the one with the most credit first.
    list: Vec<u32>,
    /// All vCPUs that belong to this queue.
    units: Vec<u32>,
    active: Bits,
    idle: Bits,
    tickled: Bits,
    cpus: i64,
    max_weight: i64,
    pick_bias: u32,
    /// The number of runnable vCPUs, running or not.
    load: i64,
    load_at: i64,
    avgload: i64,
    b_avgload: i64,
}

#[derive(Debug, Clone)]
struct Domain {
    weight: i64,
    vcpus: i64,
    /// Budget per period; 0 means no cap.
    tot_budget: i64,
    budget: i64,
    quota: i64,
    next_ns: u64,
    parked: Vec<u32>,
}

/// The scheduler of one pool.
#[derive(Debug)]
pub struct Credit2 {
    ratelimit_ns: i64,
    /// In Xen, a vCPU that leaves a pCPU is in the queue again only after the switch.
    inflight: bool,
    resist: i64,
    period_ns: i64,
    units: Vec<Unit>,
    queues: Vec<Queue>,
    domains: Vec<Domain>,
    /// The queue of each pCPU of the pool.
    queue_of: Vec<u32>,
    current: Vec<u32>,
    /// The vCPU that is about to get a pCPU.
    chosen: u32,
    /// Buffers for temporary masks and lists.
    mask: Bits,
    unparked: Vec<u32>,
}

impl Policy for Credit2 {
    const ABOUT: About = about::ABOUT;
    const TIMERS: u32 = 1;

    fn new(host: &Host, pool: Pool, values: &Values) -> Result<Credit2, Fault> {
        let (pcpus, vcpus) = (host.pcpus.len(), host.vcpus.len());
        let period_ns = values.get("cap_period_ms") as i64 * 1_000_000;
        let (queues, queue_of) = arrange::arrange(host, pool, values);
        let units = host.vcpus.iter().map(|v| Unit {
            vm: v.vm.0,
            cpu: NONE,
            queue: NONE,
            credit: CREDIT_INIT,
            residual: 0,
            weight: weight(host.vms[v.vm.i()].weight),
            start_ns: 0,
            tickled: NONE,
            budget: host.vms[v.vm.i()].cap_pct.map(|_| 0),
            queued: false,
            parked: false,
            pinned: v.affinity.len() == 1,
            moves_to: NONE,
            avgload: 1 << (load::PRECISION - 1),
            load_at: 0,
        });
        let domains = host.vms.iter().map(|vm| {
            let mut domain = Domain {
                weight: weight(vm.weight),
                vcpus: vm.vcpus.into(),
                tot_budget: 0,
                budget: 0,
                quota: 0,
                next_ns: u64::MAX,
                parked: Vec::with_capacity(vm.vcpus as usize),
            };
            if let Some(cap_pct) = vm.cap_pct.filter(|_| vm.pool == pool) {
                domain.cap(cap_pct, period_ns, 0);
            }
            domain
        });
        Ok(Credit2 {
            ratelimit_ns: values.get("ratelimit_us") as i64 * US,
            inflight: values.get("inflight") == 1,
            resist: values.get("migrate_resist_us") as i64 * US,
            period_ns,
            units: units.collect(),
            queues,
            domains: domains.collect(),
            queue_of,
            current: vec![NONE; pcpus],
            chosen: NONE,
            mask: Bits::new(pcpus),
            unparked: Vec::with_capacity(vcpus),
        })
    }

    fn start(&mut self, view: &View<'_>, orders: &mut Orders) {
        self.arm(view.now_ns(), orders);
    }

    fn arrive(&mut self, view: &View<'_>, v: Vcpu) {
        self.units[v.i()].load_at = load::clock(view.now_ns() as i64);
        let p = self.choose(view, v.0);
        self.units[v.i()].cpu = p;
        self.assign(v.0, self.queue_of[p as usize]);
    }

    fn wake(&mut self, view: &View<'_>, v: Vcpu, orders: &mut Orders) {
        if !self.units[v.i()].parked {
            self.join(view, v.0, orders);
        }
    }

    fn pick(&mut self, view: &View<'_>, p: Pcpu, why: Why, orders: &mut Orders) -> Choice {
        let now_ns = view.now_ns() as i64;
        let q = self.queue_of[p.i()] as usize;
        self.queues[q].tickled.remove(p.i());
        let ran = why.ran().map_or(NONE, |v| v.0);
        if ran != NONE {
            self.burn(ran, now_ns);
            if self.units[ran as usize].budget.is_some_and(|b| b <= 0) {
                self.grab_budget(ran, now_ns, orders);
            }
        }
        let goes_on = |unit: &Unit| !unit.parked && unit.moves_to == NONE;
        let runnable = why.runnable().is_some_and(|v| goes_on(&self.units[v.i()]));
        let next = self.candidate(view, p, why, runnable, orders);
        let returns = runnable && next != ran;
        let slice_ns = if next == NONE {
            self.queues[q].idle.insert(p.i());
            self.update_load(q, NONE, 0, now_ns);
            0
        } else {
            if next == ran {
                self.update_load(q, next, 0, now_ns);
            } else {
                self.unqueue(next);
            }
            self.queues[q].idle.remove(p.i());
            self.chosen = next;
            let waiting = self.queues[q].list.first().map_or(i64::MIN, |v| self.units[*v as usize].credit);
            if self.units[next as usize].credit.max(waiting) <= 0 {
                self.reset(q, next, now_ns, orders);
                self.balance(view, q, orders);
            }
            let inflight = if returns && self.inflight { self.units[ran as usize].credit } else { 0 };
            let unit = &mut self.units[next as usize];
            (unit.start_ns, unit.tickled) = (now_ns, NONE);
            if unit.cpu != p.0 {
                unit.credit += COMPENSATION;
                unit.cpu = p.0;
            }
            let entered_ns = (next == ran).then(|| view.since_ns(Vcpu(next)) as i64);
            self.runtime(q, next, now_ns, entered_ns, inflight)
        };
        (self.current[p.i()], self.chosen) = (next, NONE);
        if ran != NONE && ran != next {
            self.switched_out(view, ran, returns, orders);
        }
        if next == NONE { Choice::IDLE } else { Choice::run(Vcpu(next), slice_ns as u64) }
    }

    fn timer(&mut self, view: &View<'_>, _timer: u32, orders: &mut Orders) {
        for d in 0..self.domains.len() {
            let domain = &mut self.domains[d];
            if domain.next_ns > view.now_ns() {
                continue;
            }
            domain.next_ns += self.period_ns as u64;
            domain.budget += domain.tot_budget;
            if domain.budget > 0 {
                domain.budget = domain.budget.min(domain.tot_budget);
                self.unpark(view, d, orders);
            }
        }
        self.arm(view.now_ns(), orders);
    }

    fn changed(
        &mut self,
        view: &View<'_>,
        vm: Vm,
        new: Option<u32>,
        cap_pct: Option<u32>,
        orders: &mut Orders,
    ) {
        let now_ns = view.now_ns();
        let facts = &view.host().vms[vm.i()];
        let range = facts.first.i()..facts.first.i() + facts.vcpus as usize;
        let before = std::mem::replace(&mut self.domains[vm.i()].weight, weight(new));
        for v in range.clone() {
            self.units[v].weight = weight(new);
            if self.units[v].queue != NONE {
                self.update_max_weight(self.units[v].queue as usize, weight(new), before);
            }
        }
        let capped = self.domains[vm.i()].tot_budget > 0;
        let Some(cap_pct) = cap_pct else {
            if capped {
                let domain = &mut self.domains[vm.i()];
                (domain.tot_budget, domain.next_ns) = (0, u64::MAX);
                range.for_each(|v| self.units[v].budget = None);
                self.unpark(view, vm.i(), orders);
                self.arm(now_ns, orders);
            }
            return;
        };
        let (next_ns, budget) = (self.domains[vm.i()].next_ns, self.domains[vm.i()].budget);
        self.domains[vm.i()].cap(cap_pct, self.period_ns, now_ns);
        if capped {
            (self.domains[vm.i()].next_ns, self.domains[vm.i()].budget) = (next_ns, budget);
            return;
        }
        for v in range {
            let unit = &self.units[v];
            if unit.cpu != NONE && self.current[unit.cpu as usize] == v as u32 {
                self.burn(v as u32, now_ns as i64);
                self.interrupt(self.units[v].cpu, orders);
            }
            self.units[v].budget = Some(0);
        }
        self.arm(now_ns, orders);
    }
}

fn weight(weight: Option<u32>) -> i64 {
    weight.unwrap_or(Credit2::ABOUT.default_weight).into()
}

impl Credit2 {
    /// Sets the timer to the next replenishment. If one is due now, its timer is set already.
    fn arm(&self, now_ns: u64, orders: &mut Orders) {
        let next_ns = self.domains.iter().map(|d| d.next_ns).min().unwrap_or(u64::MAX);
        if next_ns > now_ns {
            orders.set_timer(REPLENISH, next_ns);
        }
    }

    /// Adds runnable `v` to its queue and looks for a pCPU.
    fn join(&mut self, view: &View<'_>, v: u32, orders: &mut Orders) {
        self.update_load(self.units[v as usize].queue as usize, v, 1, view.now_ns() as i64);
        self.enqueue(v);
        self.tickle(view, v, orders);
    }

    /// `v` has left its pCPU (`csched2_context_saved`).
    fn switched_out(&mut self, view: &View<'_>, v: u32, returns: bool, orders: &mut Orders) {
        let now_ns = view.now_ns() as i64;
        let unit = &mut self.units[v as usize];
        let (vm, to) = (unit.vm as usize, std::mem::replace(&mut unit.moves_to, NONE));
        let left = unit.budget.filter(|b| *b > 0);
        if let Some(budget) = left {
            unit.budget = Some(0);
            self.domains[vm].budget += budget;
        }
        // Balancing may just have asked it to move.
        if returns && to == NONE {
            self.enqueue(v);
            self.tickle(view, v, orders);
        } else {
            self.update_load(self.units[v as usize].queue as usize, v, -1, now_ns);
        }
        if left.is_some() && self.domains[vm].budget > 0 {
            self.unpark(view, vm, orders);
        }
        if to != NONE {
            self.deassign(v);
            self.units[v as usize].cpu = self.cycle(view, v, to as usize);
            self.assign(v, to);
            // The engine still shows it as running unless it blocked. Parked vCPUs join when they are
            // released.
            let wants = view.state(Vcpu(v)) == State::Running && !self.units[v as usize].parked;
            if wants {
                self.join(view, v, orders);
            }
        }
    }

    fn enqueue(&mut self, v: u32) {
        let Unit { queue, credit, .. } = self.units[v as usize];
        let list = &mut self.queues[queue as usize].list;
        let at = list.iter().position(|q| credit > self.units[*q as usize].credit).unwrap_or(list.len());
        list.insert(at, v);
        self.units[v as usize].queued = true;
    }

    fn unqueue(&mut self, v: u32) {
        let unit = &mut self.units[v as usize];
        unit.queued = false;
        self.queues[unit.queue as usize].list.retain(|q| *q != v);
    }
}
