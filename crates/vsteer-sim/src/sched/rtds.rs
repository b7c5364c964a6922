//! Xen's RTDS: every vCPU has reserved a budget per period.
//!
//! **Purpose.** Guaranteed CPU time by a deadline for VMs with real-time work. Part of Xen since 4.5, from
//! RT-Xen.
//!
//! **Idea.** Every vCPU is a deferrable server with a budget and a period; its deadline is the end of the
//! period. All pCPUs share one queue ordered by deadline, and the earliest ones run (global EDF). A running
//! vCPU burns its budget by the nanosecond. A blocked one keeps it until the period ends. Without budget it
//! waits for the next period, here as *limited*. With `extra_time` it continues at a lower priority level
//! with a new budget.
//!
//! **What follows from this**: on one pCPU, vCPUs whose reservations sum to at most 1 meet every deadline
//! (Liu and Layland 1973). On several pCPUs this does not hold (Dhall's effect). CPU time beyond the
//! reservations goes only to vCPUs with `extra_time`.
//!
//! **Parameters**: none of the scheduler; per vCPU a [`Reservation`], by default 4 ms in 10 ms with extra
//! time.
//!
//! **Modelled**: budgets, replenishment at deadlines, priority levels of extra time, the global queue,
//! tickling with its mask of pCPUs that are already tickled, affinity.
//!
//! **Not modelled**
//! - `GAP(rtds-races)`: interrupts and the global lock take no time.
//! - `GAP(rtds-tasklets)`: no tasklets, no core scheduling.
//!
//! As in the source, replenishing a waiting vCPU that still had budget interrupts no pCPU. The next pCPU that
//! schedules considers it.
//!
//! **Sources**: xen/common/sched/rt.c of Xen 4.23-unstable (commit c447b730, 2026-08); Xi, Wilson, Lu, Gill,
//! "RT-Xen", EMSOFT 2011. Read, not copied.

use super::super::bits::Bits;
use super::super::policy::{About, Choice, Conserving, Held, Orders, Policy, Values, View, Why};
use super::super::setup::{Host, Pcpu, Pool, Reservation, Vcpu, Vm};
use vsteer_core::Fault;

const NONE: u32 = u32::MAX;
/// Timer for the next replenishment.
const REPLENISH: u32 = 0;
/// RTDS_DEFAULT_BUDGET and RTDS_DEFAULT_PERIOD.
const DEFAULT: Reservation = Reservation { budget_ns: 4_000_000, period_ns: 10_000_000, extra_time: true };

#[derive(Debug, Clone)]
struct Unit {
    reservation: Reservation,
    budget_ns: i64,
    deadline_ns: u64,
    start_ns: u64,
    level: u32,
    cpu: u32,
    /// It is in the queue of vCPUs that wait with budget.
    queued: bool,
    /// Waiting without budget.
    depleted: bool,
}

/// The scheduler of one pool.
#[derive(Debug)]
pub struct Rtds {
    units: Vec<Unit>,
    /// Waiting vCPUs with budget, the most urgent first.
    queue: Vec<u32>,
    /// Awake vCPUs by deadline, whose budgets will be replenished.
    replenish: Vec<u32>,
    /// The vCPUs that are being replenished, for the second walk.
    due: Vec<u32>,
    current: Vec<u32>,
    tickled: Bits,
}

impl Policy for Rtds {
    const ABOUT: About = About {
        name: "rtds",
        doc: "Xen RTDS: budgets per period, global earliest deadline first",
        source: "xen/common/sched/rt.c, Xen 4.23-unstable (c447b730)",
        parameters: &[],
        default_weight: 0,
        weights: (0, 0),
        proportional: false,
        // If two vCPUs wake at the same time, the pCPU that was tickled for one may take the other. As in the
        // source, no other idle pCPU is then interrupted, which matters if affinities differ.
        conserving: Conserving::No(
            "a tickled pCPU may take another vCPU, and that vCPU's own idle pCPU \
            gets no interrupt",
        ),
        caps: false,
        quotas: false,
        classes: false,
        reservations: true,
        warps: false,
        soft_affinities: false,
        gaps: &[
            "rtds-races: interrupts and locks take no time",
            "rtds-tasklets: no tasklets, no core scheduling",
        ],
    };
    const TIMERS: u32 = 1;

    fn new(host: &Host, _pool: Pool, _values: &Values) -> Result<Rtds, Fault> {
        let unit = |v: &super::super::setup::VcpuFacts| Unit {
            reservation: v.reservation.unwrap_or(DEFAULT),
            budget_ns: 0,
            deadline_ns: 0,
            start_ns: 0,
            level: 0,
            cpu: v.affinity.first().expect("an affinity is not empty") as u32,
            queued: false,
            depleted: false,
        };
        let n = host.vcpus.len();
        Ok(Rtds {
            units: host.vcpus.iter().map(unit).collect(),
            queue: Vec::with_capacity(n),
            replenish: Vec::with_capacity(n),
            due: Vec::with_capacity(n),
            current: vec![NONE; host.pcpus.len()],
            tickled: Bits::new(host.pcpus.len()),
        })
    }

    fn start(&mut self, _view: &View<'_>, _orders: &mut Orders) {}

    fn arrive(&mut self, view: &View<'_>, v: Vcpu) {
        self.new_period(v.0, view.now_ns());
    }

    fn wake(&mut self, view: &View<'_>, v: Vcpu, orders: &mut Orders) {
        if view.now_ns() >= self.units[v.i()].deadline_ns {
            self.new_period(v.0, view.now_ns());
            self.units[v.i()].depleted = false;
            orders.release(v);
        }
        self.await_replenishment(v.0, orders);
        self.enqueue(v.0, orders);
        self.tickle(view, v.0, orders);
    }

    fn pick(&mut self, view: &View<'_>, p: Pcpu, why: Why, orders: &mut Orders) -> Choice {
        let now_ns = view.now_ns();
        self.tickled.remove(p.i());
        let ran = why.ran().map_or(NONE, |v| v.0);
        if ran != NONE {
            self.burn(ran, now_ns);
        }
        let may = |v: &u32| view.host().allows(Vcpu(*v), p);
        let place = self.queue.iter().position(may);
        let waiting = place.map_or(NONE, |i| self.queue[i]);
        if let Some(v) = why.runnable() {
            let has_budget = self.units[v.i()].budget_ns > 0;
            if has_budget && (waiting == NONE || self.before(v.0, waiting)) {
                return Choice::run(v, self.units[v.i()].budget_ns as u64);
            }
        }
        self.current[p.i()] = waiting;
        if let Some(i) = place {
            self.queue.remove(i);
            let unit = &mut self.units[waiting as usize];
            (unit.queued, unit.start_ns, unit.cpu) = (false, now_ns, p.0);
        }
        if let Some(v) = why.runnable() {
            self.enqueue(v.0, orders);
            self.tickle(view, v.0, orders);
        } else if ran != NONE {
            self.replenish.retain(|v| *v != ran);
            self.arm(orders);
        }
        if waiting == NONE {
            return Choice::IDLE;
        }
        Choice::run(Vcpu(waiting), self.units[waiting as usize].budget_ns as u64)
    }

    fn timer(&mut self, view: &View<'_>, _timer: u32, orders: &mut Orders) {
        let now_ns = view.now_ns();
        let due = self.replenish.partition_point(|v| self.units[*v as usize].deadline_ns <= now_ns);
        let mut units = std::mem::take(&mut self.due);
        units.extend(self.replenish.drain(..due));
        for &v in &units {
            if self.current[self.units[v as usize].cpu as usize] == v {
                // Its use so far belongs to the last period.
                self.burn(v, now_ns);
            }
            self.new_period(v, now_ns);
            if self.units[v as usize].queued {
                self.queue.retain(|q| *q != v);
                self.insert(v);
            } else if self.units[v as usize].depleted {
                self.insert(v);
                orders.release(Vcpu(v));
            }
        }
        // The source builds its second list from the head, so the order is reversed.
        for &v in units.iter().rev() {
            let unit = &mut self.units[v as usize];
            if self.current[unit.cpu as usize] == v {
                if let Some(&first) = self.queue.first()
                    && self.before(first, v)
                {
                    self.tickle(view, first, orders);
                }
            } else if std::mem::take(&mut unit.depleted) {
                self.tickle(view, v, orders);
            }
            self.insert_replenish(v);
        }
        units.clear();
        self.due = units;
        self.arm(orders);
    }

    fn changed(
        &mut self,
        _view: &View<'_>,
        _vm: Vm,
        _weight: Option<u32>,
        _cap_pct: Option<u32>,
        _orders: &mut Orders,
    ) {
    }
}

impl Rtds {
    /// Is `a` strictly more urgent than `b`?
    fn before(&self, a: u32, b: u32) -> bool {
        let key = |v: u32| (self.units[v as usize].level, self.units[v as usize].deadline_ns);
        key(a) < key(b)
    }

    /// Gives a full budget until the next end of a period; periods count from 0.
    fn new_period(&mut self, v: u32, now_ns: u64) {
        let unit = &mut self.units[v as usize];
        let period_ns = unit.reservation.period_ns;
        unit.deadline_ns += ((now_ns - unit.deadline_ns) / period_ns + 1) * period_ns;
        unit.budget_ns = unit.reservation.budget_ns as i64;
        unit.start_ns = now_ns;
        unit.level = 0;
    }

    fn burn(&mut self, v: u32, now_ns: u64) {
        let unit = &mut self.units[v as usize];
        unit.budget_ns -= (now_ns - unit.start_ns) as i64;
        unit.start_ns = now_ns;
        if unit.budget_ns <= 0 {
            unit.budget_ns = 0;
            if unit.reservation.extra_time {
                unit.level = unit.level.saturating_add(1);
                unit.budget_ns = unit.reservation.budget_ns as i64;
            }
        }
    }

    /// Adds `v` to the waiting ones: to the queue, or held if it has no budget.
    fn enqueue(&mut self, v: u32, orders: &mut Orders) {
        if self.units[v as usize].budget_ns > 0 {
            self.insert(v);
        } else {
            self.units[v as usize].depleted = true;
            orders.hold(Vcpu(v), Held::Limited);
        }
    }

    /// Inserts `v` behind all that are equally urgent.
    fn insert(&mut self, v: u32) {
        let at = self.queue.partition_point(|q| !self.before(v, *q));
        self.queue.insert(at, v);
        self.units[v as usize].queued = true;
    }

    fn insert_replenish(&mut self, v: u32) {
        let deadline_ns = self.units[v as usize].deadline_ns;
        let at = self.replenish.partition_point(|q| self.units[*q as usize].deadline_ns <= deadline_ns);
        self.replenish.insert(at, v);
    }

    fn await_replenishment(&mut self, v: u32, orders: &mut Orders) {
        self.insert_replenish(v);
        self.arm(orders);
    }

    fn arm(&self, orders: &mut Orders) {
        let next = self.replenish.first().map_or(u64::MAX, |v| self.units[*v as usize].deadline_ns);
        orders.set_timer(REPLENISH, next);
    }

    /// Interrupts an idle pCPU for `new`, its own first. If there is none, interrupts the pCPU with the least
    /// urgent vCPU, if `new` is more urgent.
    fn tickle(&mut self, view: &View<'_>, new: u32, orders: &mut Orders) {
        if !self.units[new as usize].queued {
            return;
        }
        let affinity = &view.host().vcpus[new as usize].affinity;
        let own = self.units[new as usize].cpu as usize;
        let mut last = NONE;
        let mut p = if affinity.contains(own) { Some(own) } else { affinity.after(own) };
        let first = p;
        while let Some(cpu) = p {
            if !self.tickled.contains(cpu) {
                let current = self.current[cpu];
                if current == NONE {
                    return self.interrupt(cpu, orders);
                }
                if last == NONE || self.before(last, current) {
                    last = current;
                }
            }
            p = affinity.after(cpu).filter(|next| Some(*next) != first);
        }
        if last != NONE && self.before(new, last) {
            self.interrupt(self.units[last as usize].cpu as usize, orders);
        }
    }

    fn interrupt(&mut self, p: usize, orders: &mut Orders) {
        self.tickled.insert(p);
        orders.interrupt(Pcpu(p as u32));
    }
}
