//! Xen's SEDF: time is reserved by period and slice, and the rest is distributed by weight.
//!
//! **Purpose.** Xen's real-time scheduler from 2.0 to 4.5. Before RTDS, it was the choice for VMs that play
//! media.
//!
//! **Idea.** Each vCPU has a slice in every period, and a deadline at the period's end. On each pCPU,
//! consider the vCPUs whose period has begun and whose slice is not used up; the one with the earliest
//! deadline runs. The rest is *extra time*, given in quanta of 0.5 ms to vCPUs that may use it. vCPUs that
//! lost part of their slice by blocking inside their period come first, ordered by how much they lost. Then
//! the rest follows, by weight or in proportion to the reservation. A vCPU that wakes inside its period gets
//! no more of its slice in that period. A vCPU that wakes after its deadline begins a period at that moment.
//!
//! **What follows from this**: reservations that sum to at most 1 on a pCPU are met, whatever the others do.
//! A vCPU that often blocks inside its period depends on extra time. The last 0.5 ms before the next period
//! are not given out and may stay idle.
//!
//! **Parameters**: none of the scheduler; per vCPU a [`Reservation`], whose extra time is in proportion to
//! it. A vCPU without one is best effort: no slice, extra time by its VM's weight (`extraweight`, default 1).
//!
//! **Modelled**: run queue, wait queue and both extra queues of each pCPU with their scores, the three ways
//! to wake, slices that end where another's period begins, quanta, and the pCPU left idle before a period.
//!
//! **Not modelled**
//! - `GAP(sedf-placement)`: vCPUs are distributed over pCPUs in turn and stay there; the source puts vCPU n
//!   of every VM on pCPU n.
//! - `GAP(sedf-weights)`: the source can turn weights into slices of 100 ms periods; here they divide extra
//!   time.
//! - `GAP(sedf-races)`: interrupts take no time; the penalty for an overrun slice is too small to matter.
//!
//! **Sources**: xen/common/sched_sedf.c of Xen 4.5.0 (a8ac2290ed). Read, not copied.

use super::super::policy::{About, Choice, Conserving, Held, Orders, Policy, Values, View, Why};
use super::super::setup::{Host, Pcpu, Pool, Reservation, Vcpu, Vm};
use vsteer_core::Fault;

const NONE: u32 = u32::MAX;
/// EXTRA_QUANTUM.
const QUANTUM_NS: i64 = 500_000;
/// WEIGHT_PERIOD: the period of vCPUs without a reservation.
const PERIOD_NS: i64 = 100_000_000;
/// The extra queues: vCPUs that lost part of their slice by blocking (EXTRA_PEN_Q), and all that may use
/// extra time (EXTRA_UTIL_Q).
const PENALTY: usize = 0;
const SHARED: usize = 1;
/// Timer for pCPUs that idle until a period begins.
const IDLE: u32 = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
    None,
    Run,
    Wait,
}

#[derive(Debug, Clone)]
struct Unit {
    cpu: u32,
    period_ns: i64,
    slice_ns: i64,
    /// Its weight in extra time; 0 means in proportion to its reservation.
    weight: i64,
    aware: bool,
    deadline_ns: i64,
    start_ns: i64,
    used_ns: i64,
    /// Has it blocked before?
    blocked: bool,
    wants_penalty: bool,
    /// The extra queue from which it runs.
    extra: Option<usize>,
    score: [i64; 2],
    in_extra: [bool; 2],
    on: On,
    held: bool,
}

impl Unit {
    fn begin_ns(&self) -> i64 {
        self.deadline_ns - self.period_ns
    }
}

#[derive(Debug, Clone)]
struct Cpu {
    run: Vec<u32>,
    wait: Vec<u32>,
    extra: [Vec<u32>; 2],
    current: u32,
    expires_ns: i64,
    /// While it idles: when to decide again.
    look_ns: u64,
}

/// The scheduler of one pool.
#[derive(Debug)]
pub struct Sedf {
    units: Vec<Unit>,
    cpus: Vec<Cpu>,
}

impl Policy for Sedf {
    const ABOUT: About = About {
        name: "sedf",
        doc: "Xen SEDF: slices per period by earliest deadline, extra time by weight; per-pCPU queues",
        source: "xen/common/sched_sedf.c, Xen 4.5.0 (a8ac2290ed)",
        parameters: &[],
        default_weight: 1,
        weights: (1, 32_767),
        proportional: true,
        conserving: Conserving::No(
            "vCPUs never move to another pCPU, and the last 0.5 ms before a period are not dealt out",
        ),
        caps: false,
        quotas: false,
        classes: false,
        reservations: true,
        warps: false,
        soft_affinities: false,
        gaps: &[
            "sedf-placement: vCPUs are dealt to pCPUs in turn and stay",
            "sedf-weights: weights divide extra time, they are not turned into slices",
            "sedf-races: interrupts take no time",
        ],
    };
    const TIMERS: u32 = 1;

    fn new(host: &Host, pool: Pool, _values: &Values) -> Result<Sedf, Fault> {
        let mut on = vec![0usize; host.pcpus.len()];
        let units = host.vcpus.iter().map(|v| {
            let cpu = v.affinity.iter().min_by_key(|p| (on[*p], *p)).expect("an affinity is not empty");
            on[cpu] += usize::from(v.pool == pool);
            let best_effort = Reservation { budget_ns: 0, period_ns: PERIOD_NS as u64, extra_time: true };
            let reserved = v.reservation.unwrap_or(best_effort);
            let weight = host.vms[v.vm.i()].weight.unwrap_or(Self::ABOUT.default_weight);
            Unit {
                cpu: cpu as u32,
                period_ns: reserved.period_ns as i64,
                slice_ns: reserved.budget_ns as i64,
                weight: if v.reservation.is_some() { 0 } else { weight.into() },
                aware: reserved.extra_time,
                deadline_ns: 0,
                start_ns: 0,
                used_ns: 0,
                blocked: false,
                wants_penalty: false,
                extra: None,
                score: [0; 2],
                in_extra: [false; 2],
                on: On::None,
                held: false,
            }
        });
        let units: Vec<Unit> = units.collect();
        let cpus = on.iter().map(|n| {
            let queue = || Vec::with_capacity(*n);
            Cpu {
                run: queue(),
                wait: queue(),
                extra: [queue(), queue()],
                current: NONE,
                expires_ns: 0,
                look_ns: u64::MAX,
            }
        });
        Ok(Sedf { cpus: cpus.collect(), units })
    }

    fn start(&mut self, _view: &View<'_>, _orders: &mut Orders) {}

    fn arrive(&mut self, _view: &View<'_>, _v: Vcpu) {}

    fn wake(&mut self, view: &View<'_>, v: Vcpu, orders: &mut Orders) {
        let now_ns = view.now_ns() as i64;
        let v = v.0;
        let unit = &mut self.units[v as usize];
        if unit.deadline_ns == 0 {
            unit.deadline_ns = now_ns + unit.slice_ns;
        }
        if now_ns < unit.begin_ns() {
            // It is in extra time; its slice of this period is used up.
            if unit.wants_penalty {
                self.add_extra(v, PENALTY, 0);
            }
        } else if now_ns < unit.deadline_ns {
            self.unblock_short(v);
        } else {
            unit.deadline_ns = now_ns + unit.period_ns;
            unit.used_ns = 0;
        }
        if self.units[v as usize].aware {
            self.add_extra(v, SHARED, 0);
        }
        let later = self.units[v as usize].begin_ns() > now_ns;
        self.queue(v, if later { On::Wait } else { On::Run });
        self.hold_if_waiting(v, orders);
        let unit = &self.units[v as usize];
        if self.should_switch(self.cpus[unit.cpu as usize].current, v) {
            orders.interrupt(Pcpu(unit.cpu));
        }
    }

    fn pick(&mut self, view: &View<'_>, p: Pcpu, why: Why, orders: &mut Orders) -> Choice {
        let now_ns = view.now_ns() as i64;
        if let Some(v) = why.ran() {
            let runnable = why.runnable().is_some();
            self.units[v.i()].blocked |= !runnable;
            if self.units[v.i()].extra.is_some() {
                self.end_extra(v.0, now_ns, runnable);
            } else {
                self.end_slice(v.0, now_ns, runnable);
            }
            if runnable {
                self.hold_if_waiting(v.0, orders);
            }
        }
        self.update_queues(p.i(), now_ns, orders);
        let cpu = &self.cpus[p.i()];
        let begins_ns = cpu.wait.first().map_or(i64::MAX, |w| self.units[*w as usize].begin_ns());
        let (next, ends_ns) = match cpu.run.first() {
            Some(&v) => {
                let unit = &self.units[v as usize];
                (v, (now_ns + unit.slice_ns - unit.used_ns).min(begins_ns))
            }
            None if begins_ns - now_ns < QUANTUM_NS => (NONE, begins_ns),
            None => match [PENALTY, SHARED].into_iter().find(|q| !cpu.extra[*q].is_empty()) {
                Some(q) => {
                    let v = cpu.extra[q][0];
                    self.units[v as usize].extra = Some(q);
                    (v, now_ns + QUANTUM_NS)
                }
                None => (NONE, begins_ns),
            },
        };
        let cpu = &mut self.cpus[p.i()];
        (cpu.current, cpu.expires_ns, cpu.look_ns) = (next, ends_ns, u64::MAX);
        if next == NONE {
            if ends_ns != i64::MAX {
                cpu.look_ns = ends_ns as u64;
            }
            self.arm(orders);
            return Choice::IDLE;
        }
        self.units[next as usize].start_ns = now_ns;
        Choice::run(Vcpu(next), (ends_ns - now_ns).max(1) as u64)
    }

    fn timer(&mut self, view: &View<'_>, _timer: u32, orders: &mut Orders) {
        for (p, cpu) in self.cpus.iter_mut().enumerate() {
            if cpu.look_ns <= view.now_ns() {
                cpu.look_ns = u64::MAX;
                orders.interrupt(Pcpu(p as u32));
            }
        }
        self.arm(orders);
    }

    fn changed(
        &mut self,
        view: &View<'_>,
        vm: Vm,
        weight: Option<u32>,
        _cap_pct: Option<u32>,
        _orders: &mut Orders,
    ) {
        let vm = &view.host().vms[vm.i()];
        for unit in &mut self.units[vm.first.i()..vm.first.i() + vm.vcpus as usize] {
            if unit.weight > 0 {
                unit.weight = weight.unwrap_or(Self::ABOUT.default_weight).into();
            }
        }
    }
}

impl Sedf {
    fn arm(&self, orders: &mut Orders) {
        orders.set_timer(IDLE, self.cpus.iter().map(|c| c.look_ns).min().unwrap_or(u64::MAX));
    }

    /// Adds `v` to the queue of vCPUs that may run (by deadline), or of those that wait for their period (by
    /// its start).
    fn queue(&mut self, v: u32, on: On) {
        let units = &mut self.units;
        units[v as usize].on = on;
        let cpu = &mut self.cpus[units[v as usize].cpu as usize];
        let key = |v: u32| match on {
            On::Wait => units[v as usize].begin_ns(),
            _ => units[v as usize].deadline_ns,
        };
        let list = if on == On::Wait { &mut cpu.wait } else { &mut cpu.run };
        let at = list.iter().position(|q| key(v) < key(*q)).unwrap_or(list.len());
        list.insert(at, v);
    }

    fn unqueue(&mut self, v: u32) {
        let unit = &mut self.units[v as usize];
        let cpu = &mut self.cpus[unit.cpu as usize];
        match std::mem::replace(&mut unit.on, On::None) {
            On::Run => cpu.run.retain(|q| *q != v),
            On::Wait => cpu.wait.retain(|q| *q != v),
            On::None => {}
        }
    }

    /// Adds `v` to an extra queue by score, and reduces the score of all others there by `less`
    /// (`extraq_add_sort_update`).
    fn add_extra(&mut self, v: u32, q: usize, less: i64) {
        let own = self.units[v as usize].score[q];
        let list = &mut self.cpus[self.units[v as usize].cpu as usize].extra[q];
        for other in list.iter() {
            self.units[*other as usize].score[q] -= less;
        }
        let units = &self.units;
        let at = list.iter().position(|other| own < units[*other as usize].score[q]).unwrap_or(list.len());
        list.insert(at, v);
        self.units[v as usize].in_extra[q] = true;
    }

    fn leave_extra(&mut self, v: u32, q: usize) {
        let unit = &mut self.units[v as usize];
        if std::mem::take(&mut unit.in_extra[q]) {
            self.cpus[unit.cpu as usize].extra[q].retain(|other| *other != v);
        }
    }

    /// A vCPU that waits for its period and may not use extra time is limited.
    fn hold_if_waiting(&mut self, v: u32, orders: &mut Orders) {
        let unit = &mut self.units[v as usize];
        let hold = unit.on == On::Wait && unit.in_extra == [false; 2];
        if hold != std::mem::replace(&mut unit.held, hold) {
            if hold {
                orders.hold(Vcpu(v), Held::Limited);
            } else {
                orders.release(Vcpu(v));
            }
        }
    }

    /// It woke inside its period: it gets no more of the slice now, but extra time for what it lost.
    fn unblock_short(&mut self, v: u32) {
        let unit = &mut self.units[v as usize];
        unit.deadline_ns += unit.period_ns;
        let lost_ns = (unit.slice_ns - std::mem::take(&mut unit.used_ns)).max(0);
        if unit.blocked && lost_ns > 0 {
            unit.score[PENALTY] = (unit.period_ns << 10) / lost_ns;
            unit.wants_penalty = true;
            self.leave_extra(v, PENALTY);
            self.add_extra(v, PENALTY, 0);
        }
    }

    /// `v` stops running on its slice (`desched_edf_dom`).
    fn end_slice(&mut self, v: u32, now_ns: i64, runnable: bool) {
        let unit = &mut self.units[v as usize];
        unit.used_ns += now_ns - unit.start_ns;
        let used_up = unit.used_ns >= unit.slice_ns;
        if runnable && !used_up {
            return;
        }
        if used_up {
            unit.used_ns -= unit.slice_ns;
        }
        self.unqueue(v);
        if used_up {
            self.units[v as usize].deadline_ns += self.units[v as usize].period_ns;
        }
        if runnable {
            self.queue(v, On::Wait);
        } else {
            self.leave_extra(v, PENALTY);
            self.leave_extra(v, SHARED);
        }
    }

    /// `v` stops running on extra time (`desched_extra_dom`).
    fn end_extra(&mut self, v: u32, _now_ns: i64, runnable: bool) {
        let unit = &mut self.units[v as usize];
        let q = unit.extra.take().expect("it ran on extra time");
        unit.used_ns = 0;
        let before = unit.score[q];
        if q == PENALTY {
            // One quantum makes up for everything that it lost.
            unit.wants_penalty = false;
        } else {
            // A reservation of a whole pCPU corresponds to a weight of 128.
            unit.score[SHARED] = match unit.weight {
                0 => (unit.period_ns << 10) / unit.slice_ns,
                weight => (1 << 17) / weight,
            };
        }
        let again = runnable && q == SHARED && unit.aware;
        self.leave_extra(v, q);
        if again {
            self.add_extra(v, SHARED, before);
        }
        if !runnable {
            self.unqueue(v);
            self.leave_extra(v, PENALTY);
            self.leave_extra(v, SHARED);
        }
    }

    /// vCPUs whose period has begun may run; vCPUs that missed their deadline get a new one
    /// (`update_queues`).
    fn update_queues(&mut self, p: usize, now_ns: i64, orders: &mut Orders) {
        while let Some(&v) = self.cpus[p].wait.first()
            && self.units[v as usize].begin_ns() <= now_ns
        {
            self.unqueue(v);
            self.queue(v, On::Run);
            self.hold_if_waiting(v, orders);
        }
        while let Some(&v) = self.cpus[p].run.first() {
            let unit = &mut self.units[v as usize];
            let period_ns = unit.period_ns;
            let behind = |ns: i64| (now_ns - ns + period_ns - 1) / period_ns * period_ns;
            if unit.slice_ns == 0 {
                self.unqueue(v);
                let unit = &mut self.units[v as usize];
                unit.deadline_ns += period_ns;
                if unit.begin_ns() < now_ns {
                    unit.deadline_ns += behind(unit.begin_ns());
                }
                if unit.begin_ns() <= now_ns {
                    // The source does not handle a period that begins at exactly this nanosecond.
                    unit.deadline_ns += period_ns;
                }
                self.queue(v, On::Wait);
            } else if unit.deadline_ns < now_ns || unit.used_ns > unit.slice_ns {
                self.unqueue(v);
                let unit = &mut self.units[v as usize];
                unit.deadline_ns += period_ns;
                if unit.deadline_ns < now_ns {
                    unit.deadline_ns += behind(unit.deadline_ns);
                }
                unit.used_ns = 0;
                let later = unit.begin_ns() > now_ns;
                self.queue(v, if later { On::Wait } else { On::Run });
            } else {
                return;
            }
            self.hold_if_waiting(v, orders);
        }
    }

    /// Should the pCPU decide again now that `new` is awake, or only when its slice ends?
    fn should_switch(&self, current: u32, new: u32) -> bool {
        let new = &self.units[new as usize];
        if current == NONE || new.begin_ns() < self.cpus[new.cpu as usize].expires_ns {
            return true;
        }
        let current = &self.units[current as usize];
        match current.extra {
            None => false,
            Some(PENALTY) => new.wants_penalty && new.score[PENALTY] < current.score[PENALTY],
            Some(_) => new.wants_penalty,
        }
    }
}
