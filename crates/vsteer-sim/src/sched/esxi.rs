//! Proportional share with co-scheduling, as in ESXi: who runs when the vCPUs of a VM must not drift apart?
//!
//! **Purpose.** A guest with several vCPUs expects them to advance together: who spins for a lock whose holder is
//! not on a pCPU burns its time. ESX 2 ran all vCPUs of a VM at once or none; since ESX 3 it only keeps them from
//! drifting.
//!
//! **Idea.** CPU time goes by shares: the vCPU that used least for its shares runs, for 50 ms, and one that wakes takes
//! over from the one that used most, if that is more. A vCPU *advances* while it runs and while it is blocked.
//! - **Strict**: a vCPU's skew grows while it waits and a sibling runs. Once that of one exceeds the limit, the
//!   whole VM is *co-stopped*, until there are pCPUs for all of its vCPUs that want one: then it is *co-started*,
//!   all at once.
//! - **Relaxed**: a vCPU's skew is how far it is ahead of the slowest sibling (`idle_catches_up`: one that has gone
//!   idle has nothing left to catch up with; whether ESXi sees it so is not published). Beyond the limit that vCPU
//!   alone is co-stopped, until the slowest has caught up to the lower limit. Nobody needs more than one pCPU at a
//!   time.
//!
//! **What follows from this**: under strict co-scheduling pCPUs stay idle beside VMs that want more of them than
//! are free (fragmentation), and wide VMs wait for long; relaxed, a VM's ready time is low as long as all of its
//! vCPUs get their turn, and co-stop shows where they do not.
//!
//! **Parameters**: below. The quantum is the published one; "a few milliseconds" is all that is published of the
//! limits.
//!
//! **Modelled**: shares per VM divided among its vCPUs (1,000 each unless said), the quantum, preemption at
//! wake-up, skew of both kinds, co-stop and co-start.
//!
//! **Not modelled**
//! - `GAP(esxi-closed)`: the source is not public. What its papers leave open is as simple here as can be: virtual
//!   time, of which a sleeper may be behind by a quantum; a woken vCPU preempts where it is behind by a
//!   millisecond, a co-start by a quantum.
//! - `GAP(esxi-placement)`: one queue for all pCPUs; no NUMA clients, no cost of migration, no hyper-threading policy.
//! - `GAP(esxi-limits)`: no reservations, limits, or resource pools.
//!
//! **Sources**: VMware, "The CPU Scheduler in VMware vSphere 5.1", technical white paper, 2013 (strict
//! co-scheduling in ESX 2.x, relaxed since 3.x, the progress of each vCPU since 4.x). From memory of the paper, not
//! held against a live host.

use super::super::policy::{About, Choice, Held, Orders, Policy, Values, View, Why};
use super::super::setup::{Host, Pcpu, Pool, Vcpu, Vm};
use vsteer_core::Fault;

mod about;
mod costop;
mod skew;

const NONE: u32 = u32::MAX;
const US: i64 = 1_000;
/// Shares of a vCPU that says nothing ("normal").
const SHARES: i64 = 1000;
/// By how much one that wakes must be behind to preempt.
const PREEMPT_NS: i64 = 1_000_000;
/// At least so much lies between the limits: else a vCPU could stop and start within nanoseconds.
const APART_NS: i64 = 50 * US;
/// Timer of the next moment at which a skew reaches a limit.
const SKEW: u32 = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coscheduling {
    None,
    Strict,
    Relaxed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    Blocked,
    Ready,
    Stopped,
    /// On this pCPU.
    On(u32),
}

#[derive(Debug, Clone)]
struct Unit {
    vm: u32,
    shares: i64,
    is: Is,
    since_ns: i64,
    /// CPU time at 1,000 shares.
    used: i64,
    /// Time that it ran or was blocked up to `since_ns`.
    advanced_ns: i64,
    /// Strict: waited while a sibling ran, since the last co-start, up to `mark_ns` of its VM's running time.
    skew_ns: i64,
    mark_ns: i64,
}

#[derive(Debug, Clone)]
struct Machine {
    first: u32,
    vcpus: u32,
    /// How many run, since when any does, and for how long any did before.
    running: u32,
    any_since_ns: i64,
    any_ns: i64,
    /// Strict: the whole VM is co-stopped.
    stopped: bool,
    /// When a skew may reach a limit.
    check_ns: i64,
}

/// The scheduler of one pool.
#[derive(Debug)]
pub struct Esxi {
    mode: Coscheduling,
    quantum_ns: i64,
    costop_ns: i64,
    costart_ns: i64,
    idle_catches_up: bool,
    units: Vec<Unit>,
    machines: Vec<Machine>,
    queue: Vec<u32>,
    current: Vec<u32>,
    /// When the quantum of who runs there ends.
    ends_ns: Vec<i64>,
    /// The vCPU for which a co-start reserves a pCPU.
    kept: Vec<u32>,
    mine: Vec<bool>,
    stopped: u32,
}

impl Policy for Esxi {
    const ABOUT: About = about::ABOUT;
    const TIMERS: u32 = 1;

    fn new(host: &Host, pool: Pool, values: &Values) -> Result<Esxi, Fault> {
        let units = host.vcpus.iter().map(|v| Unit {
            vm: v.vm.0,
            shares: shares(host.vms[v.vm.i()].weight, host.vms[v.vm.i()].vcpus),
            is: Is::Blocked,
            since_ns: 0,
            used: 0,
            advanced_ns: 0,
            skew_ns: 0,
            mark_ns: 0,
        });
        let machines = host.vms.iter().map(|vm| Machine {
            first: vm.first.0,
            vcpus: vm.vcpus,
            running: 0,
            any_since_ns: 0,
            any_ns: 0,
            stopped: false,
            check_ns: i64::MAX,
        });
        let costop_ns = values.get("costop_us") as i64 * US;
        let pcpus = host.pcpus.len();
        Ok(Esxi {
            mode: match values.get("coscheduling") {
                0 => Coscheduling::None,
                1 => Coscheduling::Strict,
                _ => Coscheduling::Relaxed,
            },
            quantum_ns: values.get("quantum_ms") as i64 * 1000 * US,
            costop_ns,
            idle_catches_up: values.get("idle_catches_up") == 1,
            costart_ns: (values.get("costart_us") as i64 * US).min(costop_ns - APART_NS),
            units: units.collect(),
            machines: machines.collect(),
            queue: Vec::with_capacity(host.vcpus.len()),
            current: vec![NONE; pcpus],
            ends_ns: vec![0; pcpus],
            kept: vec![NONE; pcpus],
            mine: (0..pcpus).map(|p| host.pools[pool.i()].contains(p)).collect(),
            stopped: 0,
        })
    }

    fn start(&mut self, _view: &View<'_>, _orders: &mut Orders) {}

    fn arrive(&mut self, view: &View<'_>, v: Vcpu) {
        // It begins level with its siblings: nobody is ahead of one that was not there.
        let now_ns = view.now_ns() as i64;
        let machine = &self.machines[self.units[v.i()].vm as usize];
        let most = (machine.first..machine.first + machine.vcpus).map(|s| self.advanced(s, now_ns)).max();
        self.units[v.i()].advanced_ns = most.unwrap_or(0);
        self.units[v.i()].since_ns = now_ns;
    }

    fn wake(&mut self, view: &View<'_>, v: Vcpu, orders: &mut Orders) {
        let now_ns = view.now_ns() as i64;
        let vm = self.units[v.i()].vm as usize;
        // A sleeper may be behind the others by a quantum.
        let awake = self.units.iter().filter(|u| matches!(u.is, Is::On(_) | Is::Ready));
        let least = awake.map(|u| u.used).min();
        if let Some(least) = least {
            let unit = &mut self.units[v.i()];
            unit.used = unit.used.max(least - self.quantum_ns);
        }
        if self.machines[vm].stopped {
            self.turn(v.0, Is::Stopped, now_ns);
            self.costart(view, NONE, orders);
            return;
        }
        self.turn(v.0, Is::Ready, now_ns);
        self.queue.push(v.0);
        if let Some(p) = self.place(view, v.0, now_ns) {
            orders.interrupt(Pcpu(p));
        }
        self.check(vm, now_ns, NONE, orders);
        self.arm(now_ns, orders);
    }

    fn pick(&mut self, view: &View<'_>, p: Pcpu, why: Why, orders: &mut Orders) -> Choice {
        let now_ns = view.now_ns() as i64;
        let ran = why.ran().map_or(NONE, |v| v.0);
        if ran != NONE {
            self.charge(ran, now_ns);
            let vm = self.units[ran as usize].vm as usize;
            if why.runnable().is_none() {
                self.turn(ran, Is::Blocked, now_ns);
                if self.idle_catches_up {
                    // It has done all that it was asked to: nobody is ahead of it in anything.
                    let most = self.siblings(vm).map(|s| self.advanced(s, now_ns)).max();
                    self.units[ran as usize].advanced_ns = most.expect("it is one of them");
                }
            } else if self.machines[vm].stopped {
                self.turn(ran, Is::Stopped, now_ns);
            } else if self.mode == Coscheduling::Relaxed && self.ahead(ran, now_ns) >= self.costop_ns {
                self.turn(ran, Is::Stopped, now_ns);
                orders.hold(Vcpu(ran), Held::CoStopped);
            } else {
                self.turn(ran, Is::Ready, now_ns);
                self.queue.push(ran);
            }
        }
        self.current[p.i()] = NONE;
        self.costart(view, p.0, orders);
        let next = self.best(view, p, if now_ns < self.ends_ns[p.i()] { ran } else { NONE });
        if next != NONE {
            self.queue.retain(|q| *q != next);
            self.turn(next, Is::On(p.0), now_ns);
            if next != ran || now_ns >= self.ends_ns[p.i()] {
                self.ends_ns[p.i()] = now_ns + self.quantum_ns;
            }
        }
        self.kept[p.i()] = NONE;
        self.current[p.i()] = next;
        for v in [ran, next] {
            if v != NONE {
                self.check(self.units[v as usize].vm as usize, now_ns, p.0, orders);
            }
        }
        if ran != NONE && self.units[ran as usize].is == Is::Ready {
            // It may go on elsewhere, where a pCPU idles.
            let idle = self.place(view, ran, now_ns).filter(|other| self.current[*other as usize] == NONE);
            if let Some(other) = idle {
                orders.interrupt(Pcpu(other));
            }
        }
        self.arm(now_ns, orders);
        if next == NONE {
            return Choice::IDLE;
        }
        Choice::run(Vcpu(next), (self.end_ns(p.i(), now_ns) - now_ns).max(1) as u64)
    }

    fn timer(&mut self, view: &View<'_>, _timer: u32, orders: &mut Orders) {
        let now_ns = view.now_ns() as i64;
        for vm in 0..self.machines.len() {
            if self.machines[vm].check_ns <= now_ns {
                self.machines[vm].check_ns = i64::MAX;
                self.reached(view, vm, now_ns, orders);
                self.check(vm, now_ns, NONE, orders);
            }
        }
        self.costart(view, NONE, orders);
        self.arm(now_ns, orders);
    }

    fn changed(
        &mut self,
        view: &View<'_>,
        vm: Vm,
        weight: Option<u32>,
        _cap_pct: Option<u32>,
        _orders: &mut Orders,
    ) {
        let Machine { first, vcpus, .. } = self.machines[vm.i()];
        for v in first..first + vcpus {
            if let Is::On(_) = self.units[v as usize].is {
                self.charge(v, view.now_ns() as i64);
            }
            self.units[v as usize].shares = shares(weight, vcpus);
        }
    }
}

/// A vCPU's part of its VM's shares.
fn shares(weight: Option<u32>, vcpus: u32) -> i64 {
    weight.map_or(SHARES, |w| (i64::from(w) / i64::from(vcpus)).max(1))
}

impl Esxi {
    /// The vCPU that runs next on `p`: the one it is reserved for, else the one that used least; `stays` wins a
    /// tie, and all that are not behind it by enough to preempt.
    fn best(&self, view: &View<'_>, p: Pcpu, stays: u32) -> u32 {
        let kept = self.kept[p.i()];
        if kept != NONE && self.units[kept as usize].is == Is::Ready {
            return kept;
        }
        let others = self.queue.iter().filter(|v| view.host().allows(Vcpu(**v), p) && !self.kept.contains(v));
        let least = |v: &&u32| {
            let grace = if **v == stays { PREEMPT_NS } else { 0 };
            (self.units[**v as usize].used - grace, **v)
        };
        others.min_by_key(least).copied().unwrap_or(NONE)
    }

    /// The pCPU for ready `v`: an idle one, else the one whose vCPU used most, if that is enough more.
    fn place(&self, view: &View<'_>, v: u32, now_ns: i64) -> Option<u32> {
        let affinity = &view.host().vcpus[v as usize].affinity;
        let open = affinity.iter().filter(|p| self.kept[*p] == NONE);
        let worth = |p: &usize| match self.current[*p] {
            NONE => i64::MAX,
            current => self.used(current, now_ns),
        };
        let p = open.max_by_key(|p| (worth(p), std::cmp::Reverse(*p)))?;
        (worth(&p) > self.units[v as usize].used + PREEMPT_NS).then_some(p as u32)
    }
}
