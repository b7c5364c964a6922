//! The discrete-event engine: simulates a host under a scheduler, with time, states and accounts.
//!
//! Idea: a host is a queue of its next events (policy timers, pCPUs, blocked vCPUs, in that order at the same
//! time), and nothing else changes it. A pCPU has one event: the end of its vCPU's burst or of its slice,
//! whichever comes first. A blocked vCPU has one: its wake-up. Everything in between is computed on request:
//! work done, time in each state, the effect of ticks. Every vCPU is in exactly one [`State`]. When it leaves
//! a state, its time there is added in integer nanoseconds, so the sum is exactly the elapsed time.
//!
//! The order at the same time is fixed (slots of the queue; interrupts in the order of requests). There is no
//! hashing, and floating point only in the guests' draws. So the same setup gives the same bytes on every
//! machine. The engine allocates nothing while it runs (`tests/sim_allocations.rs` counts). Hosts are
//! independent of each other: thousands run one after the other, each within its cache.
//!
//! Hot data is two adjacent cache lines per vCPU ([`Hot`]: its activity, and its account), one per guest, one
//! per pCPU ([`Running`](super::hot::Running)).
//!
//! Left out: time that the hypervisor itself needs (interrupts reach a pCPU at once; a switch may cost the
//! next vCPU time, see [`Costs`](super::setup::Costs)), frequency and power, memory bandwidth, halt polling.

use super::account::Account;
use super::event::NEVER;
use super::guest::Next;
use super::hot::{Hot, NONE};
use super::policy::{Choice, Held, Orders, Policy, Values, View, Why};
use super::setup::{Host, Pcpu, Setup, Vcpu, Vm};
use super::state::State;
use core::Core;
use serde::Serialize;
use vsteer_core::{Fault, FaultKind};

mod core;

/// Receives everything that happens, for checks, timelines and blame. The default does nothing and costs
/// nothing.
pub trait Watch {
    /// `v` changed its state; `p` is the pCPU that it left or got.
    #[inline]
    fn moved(&mut self, _now_ns: u64, _v: Vcpu, _from: State, _to: State, _p: Option<Pcpu>) {}

    /// An event has been handled completely.
    #[inline]
    fn event_over(&mut self, _view: &View<'_>) {}
}

impl Watch for () {}

/// Passes every transition to both.
impl<A: Watch, B: Watch> Watch for (A, B) {
    fn moved(&mut self, now_ns: u64, v: Vcpu, from: State, to: State, p: Option<Pcpu>) {
        self.0.moved(now_ns, v, from, to, p);
        self.1.moved(now_ns, v, from, to, p);
    }

    fn event_over(&mut self, view: &View<'_>) {
        self.0.event_over(view);
        self.1.event_over(view);
    }
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The end was reached.
    Reached,
    /// The allowed number of steps was used; the run can continue.
    Steps,
    /// Time stood still for too many events, because the policy or a guest loops.
    Runaway,
}

/// A host under a policy.
pub struct Engine<P: Policy, W: Watch = ()> {
    core: Core<W>,
    policies: Vec<P>,
    orders: Orders,
    /// The number of events at the current time; above a bound they count as endless.
    standing: u64,
    runaway: u64,
}

impl<P: Policy> Engine<P> {
    /// A host at time 0, without a watch.
    ///
    /// # Errors
    /// As [`Host::new`], and if the policy refuses.
    pub fn new(setup: &Setup, values: &Values) -> Result<Engine<P>, Fault> {
        Engine::watched(setup, values, ())
    }
}

impl<P: Policy, W: Watch> Engine<P, W> {
    /// A host at time 0. `watch` receives every transition.
    ///
    /// # Errors
    /// As [`Host::new`], and if the policy refuses.
    pub fn watched(setup: &Setup, values: &Values, watch: W) -> Result<Engine<P, W>, Fault> {
        let host = Host::new(setup)?;
        for vm in &host.vms {
            check_weight::<P>(&vm.name, vm.weight, vm.cap_pct)?;
        }
        let (pcpus, vcpus, pools) = (host.pcpus.len(), host.vcpus.len(), host.pools.len());
        let core = Core::new(setup, host, pools * P::TIMERS as usize, watch)?;
        let policies: Result<Vec<P>, Fault> =
            (0..pools as u32).map(|k| P::new(&core.host, super::setup::Pool(k), values)).collect();
        let mut engine = Engine {
            policies: policies?,
            orders: Orders::new(pcpus, vcpus),
            standing: 0,
            runaway: 100_000 + 1000 * (pcpus + vcpus) as u64,
            core,
        };
        for pool in 0..pools {
            engine.policies[pool].start(&engine.core.view(), &mut engine.orders);
            engine.obey(pool);
        }
        engine.drain();
        Ok(engine)
    }

    /// Runs until `end_ns`, or for `steps` events. Events at `end_ns` itself wait for the next call, so that
    /// a run in pieces gives the same result.
    pub fn run(&mut self, end_ns: u64, steps: u64) -> Stop {
        let mut left = steps;
        if !self.core.large {
            // One of many hosts: the others have displaced its data from the cache. This loads all of it at
            // once instead of piece by piece.
            (0..self.core.hot.len()).for_each(|v| self.touch(v));
        }
        loop {
            let (at_ns, slot) = self.core.queue.next();
            if at_ns >= end_ns {
                break;
            }
            if left == 0 {
                return Stop::Steps;
            }
            left -= 1;
            assert!(at_ns >= self.core.now_ns, "time runs backwards: {} to {at_ns}", self.core.now_ns);
            if at_ns == self.core.now_ns {
                self.standing += 1;
                if self.standing > self.runaway {
                    return Stop::Runaway;
                }
            } else {
                self.standing = 0;
                self.core.now_ns = at_ns;
            }
            if self.core.large {
                // Now the next event is known before this one is handled.
                self.core.queue.set(slot, NEVER);
                self.touch_next();
            }
            if slot >= self.core.first_vcpu {
                self.vcpu_event(slot - self.core.first_vcpu);
            } else if slot >= self.core.first_pcpu {
                self.pcpu_event(slot - self.core.first_pcpu);
            } else {
                self.core.queue.set(slot, NEVER);
                let timers = P::TIMERS.max(1);
                let (pool, timer) = (slot / timers as usize, slot as u32 % timers);
                self.policies[pool].timer(&self.core.view(), timer, &mut self.orders);
                self.obey(pool);
            }
            self.drain();
            let core = &mut self.core;
            core.watch.event_over(&View {
                now_ns: core.now_ns,
                host: &core.host,
                hot: &core.hot,
                running: &core.running,
            });
        }
        self.core.now_ns = self.core.now_ns.max(end_ns);
        Stop::Reached
    }

    /// Sets a VM's weight and cap from now on.
    ///
    /// # Errors
    /// `BadInput` for a weight or cap that the policy does not accept.
    pub fn change(&mut self, vm: Vm, weight: Option<u32>, cap_pct: Option<u32>) -> Result<(), Fault> {
        let facts = &mut self.core.host.vms[vm.i()];
        check_weight::<P>(&facts.name, weight, cap_pct)?;
        (facts.weight, facts.cap_pct) = (weight, cap_pct);
        let pool = facts.pool.i();
        self.policies[pool].changed(&self.core.view(), vm, weight, cap_pct, &mut self.orders);
        self.obey(pool);
        self.drain();
        Ok(())
    }

    /// The time, ns.
    pub fn now_ns(&self) -> u64 {
        self.core.now_ns
    }

    /// The simulated host.
    pub fn host(&self) -> &Host {
        &self.core.host
    }

    /// The watch.
    pub fn watch(&self) -> &W {
        &self.core.watch
    }

    /// The policy's instance for a pool.
    pub fn policy(&self, pool: usize) -> &P {
        &self.policies[pool]
    }

    /// A vCPU's account up to now.
    pub fn account(&self, v: Vcpu) -> Account {
        self.core.account(v)
    }

    /// How long each job of a vCPU took from its release to its end, in order, if it has recorded jobs that
    /// do not repeat.
    pub fn took_ns(&self, v: Vcpu) -> &[u64] {
        match self.core.links.holds(v.i()) {
            true => self.core.links.took_ns(v.i()),
            false => self.core.guests[v.i()].took_ns(),
        }
    }

    /// How long a pCPU was not idle, ns.
    pub fn busy_ns(&self, p: Pcpu) -> u64 {
        let r = &self.core.running[p.i()];
        r.busy_ns + if r.vcpu == NONE { 0 } else { self.core.now_ns - r.busy_since_ns }
    }

    /// Wake-ups, dispatches, preemptions and blocks so far.
    pub fn events(&self) -> u64 {
        let of = |h: &Hot| {
            let t = &h.tally;
            let awake = u64::from(!matches!(h.state, State::Blocked | State::Absent));
            2 * u64::from(t.wakeups) - awake + u64::from(t.switches) + u64::from(t.preemptions)
        };
        self.core.hot.iter().map(of).sum()
    }

    /// Prefetches the data of the next event while the present one is handled.
    #[inline(always)]
    fn touch_next(&self) {
        let core = &self.core;
        let (_, slot) = core.queue.next();
        let v = if slot >= core.first_vcpu {
            slot - core.first_vcpu
        } else if slot >= core.first_pcpu {
            core.running[slot - core.first_pcpu].vcpu as usize
        } else {
            return;
        };
        if v < core.hot.len() {
            self.touch(v);
        }
    }

    /// Prefetches the data of a vCPU.
    #[inline(always)]
    fn touch(&self, v: usize) {
        let (core, h) = (&self.core, &self.core.hot[v]);
        std::hint::black_box((h.since_ns, h.tally.wakeups));
        self.policies[h.pool as usize].touch(Vcpu(v as u32));
        core.guests[v].touch();
        core.queue.touch(core.first_vcpu + v);
    }

    fn vcpu_event(&mut self, v: usize) {
        let core = &mut self.core;
        let h = &core.hot[v];
        if h.state == State::Absent {
            let pool = h.pool as usize;
            let next = if h.special { core.special(v, true) } else { core.guests[v].begin(core.now_ns) };
            core.shift(v, State::Blocked, None);
            self.policies[pool].arrive(&core.view(), Vcpu(v as u32));
            core.hot[v].work_ns = next.work_ns;
            if next.at_ns > core.now_ns {
                core.queue.set(core.first_vcpu + v, next.at_ns);
                return;
            }
        }
        self.wake(v);
    }

    #[inline]
    fn wake(&mut self, v: usize) {
        let core = &mut self.core;
        core.queue.set(core.first_vcpu + v, NEVER);
        let h = &mut core.hot[v];
        debug_assert_eq!(h.state, State::Blocked);
        h.woken_ns = core.now_ns;
        let (to, pool) = (h.held, h.pool as usize);
        h.tally.wakeups += 1;
        core.shift(v, to, None);
        self.policies[pool].wake(&core.view(), Vcpu(v as u32), &mut self.orders);
        if self.orders.any() {
            self.obey(pool);
        }
    }

    fn pcpu_event(&mut self, p: usize) {
        let core = &mut self.core;
        let r = &core.running[p];
        let v = r.vcpu as usize;
        if core.now_ns >= r.work_end_ns {
            let Next { at_ns, work_ns } = match core.hot[v].special {
                false => core.guests[v].burst_done(core.now_ns),
                true => core.special(v, false),
            };
            core.hot[v].work_ns = work_ns;
            if at_ns > core.now_ns {
                core.queue.set(core.first_vcpu + v, at_ns);
                core.shift(v, State::Blocked, Some(Pcpu(p as u32)));
                self.ask(p, Why::Blocked(Vcpu(v as u32)));
                return;
            }
            let r = &mut core.running[p];
            r.from_ns = core.now_ns;
            if core.now_ns < r.slice_end_ns {
                core.plan(p);
                return;
            }
        } else {
            core.settle(p);
        }
        self.ask(p, Why::SliceEnd(Vcpu(v as u32)));
    }

    /// Lets interrupted pCPUs ask for decisions, until none is left.
    #[inline]
    fn drain(&mut self) {
        let mut i = 0;
        while i < self.orders.interrupts.len() {
            let p = self.orders.interrupts[i].i();
            i += 1;
            self.orders.pending[p] = false;
            let why = match self.core.running[p].vcpu() {
                None => Why::Idle,
                Some(v) => {
                    self.core.settle(p);
                    Why::Interrupted(v)
                }
            };
            self.ask(p, why);
            // A policy whose pCPUs interrupt each other forever would never return to the loop that counts.
            self.standing += 1;
            assert!(self.standing <= self.runaway, "interrupts without end at {} ns", self.core.now_ns);
        }
        self.orders.interrupts.clear();
    }

    /// Executes the policy's orders, except interrupts.
    #[inline]
    fn obey(&mut self, pool: usize) {
        for (timer, at_ns) in self.orders.timers.drain(..) {
            assert!(timer < P::TIMERS, "{}: timer {timer} of {}", P::ABOUT.name, P::TIMERS);
            assert!(at_ns > self.core.now_ns, "{}: timer {timer} set into the past", P::ABOUT.name);
            self.core.queue.set(pool * P::TIMERS as usize + timer as usize, at_ns);
        }
        for (p, end_ns) in self.orders.slices.drain(..) {
            let r = &mut self.core.running[p.i()];
            assert!(r.vcpu != NONE && end_ns > self.core.now_ns, "{}: a slice of {p:?}", P::ABOUT.name);
            r.slice_end_ns = end_ns;
            self.core.plan(p.i());
        }
        for (v, held) in self.orders.holds.drain(..) {
            let to = match held {
                None => State::Ready,
                Some(Held::Limited) => State::Limited,
                Some(Held::CoStopped) => State::CoStopped,
            };
            let h = &mut self.core.hot[v.i()];
            h.held = to;
            if matches!(h.state, State::Ready | State::Limited | State::CoStopped) && h.state != to {
                self.core.shift(v.i(), to, None);
            }
        }
    }

    /// Asks the policy which vCPU `p` runs, and switches to it. `why` names the vCPU that ran until now,
    /// whose work is accounted.
    #[inline]
    fn ask(&mut self, p: usize, why: Why) {
        let pool = self.core.host.pcpus[p].pool.i();
        assert!(pool < self.policies.len(), "pCPU {p} is in no pool");
        let choice = self.policies[pool].pick(&self.core.view(), Pcpu(p as u32), why, &mut self.orders);
        if self.orders.any() {
            self.obey(pool);
        }
        let core = &mut self.core;
        let now_ns = core.now_ns;
        let Choice { vcpu, slice_ns } = choice;
        assert!(slice_ns > 0, "{}: a slice of 0 ns on pCPU {p}", P::ABOUT.name);
        let next = vcpu.map_or(NONE, |v| v.0);
        if let Some(v) = why.runnable() {
            if v.0 == next {
                assert_eq!(
                    core.hot[v.i()].held,
                    State::Ready,
                    "{}: {v:?} is held and runs on",
                    P::ABOUT.name
                );
                core.running[p].slice_end_ns = now_ns.saturating_add(slice_ns);
                core.plan(p);
                return;
            }
            let to = core.hot[v.i()].held;
            core.hot[v.i()].tally.preemptions += u32::from(to == State::Ready);
            core.shift(v.i(), to, Some(Pcpu(p as u32)));
        }
        let was_busy = core.running[p].vcpu != NONE;
        if next == NONE {
            core.running[p].vcpu = NONE;
            core.queue.set(core.first_pcpu + p, NEVER);
        } else {
            core.dispatch(p, next as usize, slice_ns);
        }
        if was_busy != (next != NONE) {
            core.turned(p, !was_busy);
        }
        if next != NONE {
            core.plan(p);
        }
    }
}

fn check_weight<P: Policy>(vm: &str, weight: Option<u32>, cap_pct: Option<u32>) -> Result<(), Fault> {
    let about = P::ABOUT;
    let (least, most) = about.weights;
    let bad = |what: String, help: String| Err(Fault::new(FaultKind::BadInput, what).help(help));
    match weight {
        Some(_) if about.default_weight == 0 => {
            return bad(
                format!(
                    "VM {vm:?} has a weight, but scheduler `{}` has no \
                weights",
                    about.name
                ),
                "leave the weight out".into(),
            );
        }
        Some(w) if !(least..=most).contains(&w) => {
            return bad(
                format!("VM {vm:?} has the weight {w}, which is out of range"),
                format!("give {least} to {most} for scheduler `{}`", about.name),
            );
        }
        _ => {}
    }
    match cap_pct {
        Some(_) if !about.caps => bad(
            format!("VM {vm:?} has a cap, but scheduler `{}` has no caps", about.name),
            "leave the cap \
                out"
            .into(),
        ),
        Some(0) => bad(format!("VM {vm:?} has a cap of 0 %"), "leave the cap out for no cap".into()),
        _ => Ok(()),
    }
}
