//! Linux: who runs where real-time and fair tasks share a host?
//!
//! **Purpose.** KVM hosts mix classes: vCPUs of the fair class beside a few (and emulator threads) that were made
//! `SCHED_FIFO` or `SCHED_RR` so that they need not wait. What that costs the others is decided by how the classes are
//! put one above the other.
//!
//! **Idea.** Every pCPU asks the real-time class first ([`rt`]): a queue per pCPU, the highest priority first, equals by
//! arrival (FIFO) or in turns (RR); tasks are pushed to and pulled from other pCPUs so that the highest ones of the host
//! run. Only where that has nobody the fair class ([`super::fair`]) is asked. So that it is not starved for ever:
//! - until 6.11, real-time tasks of a pCPU may use 950 ms in each second, and then wait even where nobody else wants the
//!   pCPU: **throttling** (their wait is *limited*, not *ready*);
//! - since 6.12 the fair class has a **server**, a reservation of 50 ms in each second that is put off to the last moment
//!   and used up by what fair tasks run anyway: only where they get nothing for 950 ms does it run them, above the
//!   real-time class, and then every second until they get something without it.
//!
//! How they are put together here: each class keeps its own queues; [`Linux`] alone knows who of which class holds a
//! pCPU. A fair task that makes way for a real-time one stays in its lines and is put back in its tree; the fair class
//! sees such a pCPU as one that is busy and counts one task more.
//!
//! Sources: kernel/sched/rt.c of Linux 6.1.192 and deadline.c of 6.12.117 (names follow them). Read, not copied. What is
//! left out: see the essays of [`super::eevdf`] and [`super::cfs`].

use super::super::policy::{About, Choice, Orders, Policy, Values, View, Why};
use super::super::setup::{Host, Pcpu, Pool, Vcpu, Vm};
use super::fair::{Fair, NONE, Rules, next_tick};
use rt::Rt;
use server::Server;
use vsteer_core::Fault;

mod rt;
mod server;

/// Timer of the real-time period, or of the fair servers.
const STARVATION: u32 = 2;

/// The scheduler of one pool: the real-time classes above the fair one of these rules.
#[derive(Debug)]
pub struct Linux<R> {
    fair: Fair<R>,
    rt: Rt,
    /// One per pCPU; none under rules of a kernel that throttles instead.
    servers: Vec<Server>,
}

impl<R: Rules> Policy for Linux<R> {
    const ABOUT: About = R::ABOUT;
    const TIMERS: u32 = 3;

    fn new(host: &Host, pool: Pool, values: &Values) -> Result<Linux<R>, Fault> {
        let server = Server::new(values, R::FAIR_SERVER);
        Ok(Linux {
            fair: Fair::new(host, pool, values)?,
            rt: Rt::new(host, pool, values, !R::FAIR_SERVER)?,
            servers: server.map_or_else(Vec::new, |s| vec![s; host.pcpus.len()]),
        })
    }

    fn start(&mut self, _view: &View<'_>, _orders: &mut Orders) {}

    fn arrive(&mut self, _view: &View<'_>, _v: Vcpu) {}

    fn wake(&mut self, view: &View<'_>, v: Vcpu, orders: &mut Orders) {
        if self.rt.is(v.0) {
            let began = self.rt.wake(view, v.0, orders);
            if began {
                orders.set_timer(STARVATION, view.now_ns() + self.rt.period_ns);
            }
            return;
        }
        self.fair.wake(view, v, orders);
        if self.rt.any() {
            self.serve(self.fair.cpu_of(v.0), view.now_ns(), orders);
        }
    }

    fn pick(&mut self, view: &View<'_>, p: Pcpu, why: Why, orders: &mut Orders) -> Choice {
        if !self.rt.any() {
            return self.fair.pick(view, p, why, orders);
        }
        let now_ns = view.now_ns();
        let was_rt = self.rt.current(p.0) != NONE;
        if was_rt {
            self.rt.ran(view, p.0, why, orders);
        } else {
            self.charge_server(p.0, now_ns, orders);
        }
        let served = self.servers.get(p.i()).is_some_and(Server::runs);
        let mut left = was_rt;
        if served && self.fair.waiting(p.0, why) {
            let choice = self.pick_fair(view, p, why, was_rt, orders);
            if choice.vcpu.is_some() {
                return choice;
            }
            left = true;
        }
        if served {
            // Nobody is left to be served.
            self.servers[p.i()].stop();
        }
        let next = self.rt.pick(view, p.0);
        if next == NONE {
            return self.pick_fair(view, p, why, left, orders);
        }
        if !was_rt {
            self.fair.make_way(view, p, if left { Why::Idle } else { why }, orders);
        }
        self.serve(p.0, now_ns, orders);
        let slice_ns = self.rt.run(view, p.0, next, orders);
        Choice::run(Vcpu(next), slice_ns)
    }

    fn timer(&mut self, view: &View<'_>, timer: u32, orders: &mut Orders) {
        if timer != STARVATION {
            self.fair.timer(view, timer, orders);
        } else if R::FAIR_SERVER {
            for p in 0..self.servers.len() as u32 {
                self.charge_server(p, view.now_ns(), orders);
                if self.servers[p as usize].timer(view.now_ns()) {
                    orders.interrupt(Pcpu(p));
                }
            }
            self.arm(view.now_ns(), orders);
        } else if self.rt.replenish(view, orders) {
            orders.set_timer(STARVATION, view.now_ns() + self.rt.period_ns);
        }
    }

    fn changed(
        &mut self,
        view: &View<'_>,
        vm: Vm,
        weight: Option<u32>,
        _cap_pct: Option<u32>,
        orders: &mut Orders,
    ) {
        self.fair.changed(view, vm, weight, orders);
    }
}

impl<R: Rules> Linux<R> {
    fn pick_fair(&mut self, view: &View<'_>, p: Pcpu, why: Why, was_rt: bool, orders: &mut Orders) -> Choice {
        self.rt.leave(p.0);
        let mut choice = self.fair.pick(view, p, if was_rt { Why::Idle } else { why }, orders);
        self.serve(p.0, view.now_ns(), orders);
        if let Some(left_ns) = self.servers.get(p.i()).and_then(Server::left_ns) {
            let now_ns = view.now_ns() as i64;
            let end_ns = next_tick(now_ns + left_ns.max(1), self.fair.tick_ns) - now_ns;
            choice.slice_ns = choice.slice_ns.min(end_ns as u64);
        }
        choice
    }

    /// What a fair task ran on `p` counts for its server.
    fn charge_server(&mut self, p: u32, now_ns: u64, orders: &mut Orders) {
        if let Some(server) = self.servers.get_mut(p as usize) {
            let before = server.timer_ns;
            server.charge(now_ns as i64, self.fair.runs(p), self.fair.tick_ns);
            if server.timer_ns != before {
                self.arm(now_ns, orders);
            }
        }
    }

    /// The server of `p` begins to count where there is a fair task and it does not yet.
    fn serve(&mut self, p: u32, now_ns: u64, orders: &mut Orders) {
        let awake = self.fair.awake(p);
        if let Some(server) = self.servers.get_mut(p as usize)
            && awake
            && server.start(now_ns as i64)
        {
            self.arm(now_ns, orders);
        }
    }

    fn arm(&self, now_ns: u64, orders: &mut Orders) {
        let next = self.servers.iter().filter_map(|s| s.timer_ns).filter(|t| *t > now_ns as i64).min();
        orders.set_timer(STARVATION, next.map_or(u64::MAX, |t| t as u64));
    }
}
