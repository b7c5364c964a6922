//! Linux: real-time and fair tasks share a host.
//!
//! **Purpose.** KVM hosts mix classes. Most vCPUs are in the fair class. A few vCPUs (and emulator threads)
//! are `SCHED_FIFO` or `SCHED_RR`, so that they need not wait. The order of the classes decides what that
//! costs the others.
//!
//! **Idea.** Every pCPU asks the real-time class first ([`rt`]). That class has a queue per pCPU, the highest
//! priority first, equal ones by arrival (FIFO) or in turns (RR). Tasks are pushed to and pulled from other
//! pCPUs so that the highest ones of the host run. Only if that class has no task, the pCPU asks the fair
//! class ([`super::fair`]). Two mechanisms keep the fair class from starving forever:
//! - until 6.11, **throttling**: real-time tasks of a pCPU may use 950 ms in each second. Then they wait even
//!   if no other task wants the pCPU (their wait is *limited*, not *ready*);
//! - since 6.12, a fair **server**: a reservation of 50 ms in each second, postponed to the last moment. All
//!   run time of fair tasks uses it up. Only if fair tasks get nothing for 950 ms does the server run them,
//!   above the real-time class, and then every second until they get something without it.
//!
//! Here each class keeps its own queues. Only [`Linux`] knows which class holds a pCPU. A fair task that
//! makes way for a real-time task stays in its lines and returns to its tree. The fair class sees such a pCPU
//! as busy and counts one more task.
//!
//! Sources: kernel/sched/rt.c of Linux 6.1.192 and deadline.c of 6.12.117 (names follow them). Read, not
//! copied. For what is left out, see the heads of [`super::eevdf`] and [`super::cfs`].

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

/// The scheduler of one pool: the real-time classes above the fair class with these rules.
#[derive(Debug)]
pub struct Linux<R> {
    fair: Fair<R>,
    rt: Rt,
    /// One per pCPU; empty under rules of a kernel that throttles instead.
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
            // No fair task is left for the server.
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

    /// The run time of a fair task on `p` counts for its server.
    fn charge_server(&mut self, p: u32, now_ns: u64, orders: &mut Orders) {
        if let Some(server) = self.servers.get_mut(p as usize) {
            let before = server.timer_ns;
            server.charge(now_ns as i64, self.fair.runs(p), self.fair.tick_ns);
            if server.timer_ns != before {
                self.arm(now_ns, orders);
            }
        }
    }

    /// Starts the server of `p` if a fair task is awake and the server is off.
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
