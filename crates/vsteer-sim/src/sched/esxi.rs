//! Proportional share with co-scheduling, as in ESXi: the vCPUs of a VM must not drift apart.
//!
//! **Purpose.** A guest with several vCPUs expects them to advance together. A vCPU that spins for a lock
//! wastes its time if the lock's holder is not on a pCPU. ESX 2 ran all vCPUs of a VM at once or none. Since
//! ESX 3 it only limits their drift.
//!
//! **Idea.** CPU time is divided by shares. The vCPU that used least relative to its shares runs, for 50 ms.
//! A vCPU that wakes preempts the one that used most, if the difference is large enough. A vCPU *advances*
//! while it runs and while it is blocked.
//! - **Strict**: a vCPU's skew grows while it waits and a sibling runs. If the skew of one vCPU exceeds the
//!   limit, the whole VM is *co-stopped* until there are pCPUs for all of its vCPUs that want one. Then it is
//!   *co-started*, all vCPUs at once.
//! - **Relaxed**: a vCPU's skew is its lead over the slowest sibling (`idle_catches_up`: an idle vCPU has
//!   nothing left to catch up with; it is not published whether ESXi does so). Above the limit only that vCPU
//!   is co-stopped, until the slowest has caught up to the lower limit. No vCPU needs more than one pCPU at a
//!   time.
//!
//! **What follows from this**: under strict co-scheduling pCPUs stay idle although VMs wait, because those
//! VMs want more pCPUs than are free (fragmentation). VMs with many vCPUs wait long. Under relaxed
//! co-scheduling a VM's ready time is low as long as all of its vCPUs get their turn. Co-stop shows where
//! they do not.
//!
//! **Parameters**: below. The quantum is the published one. Of the limits only "a few milliseconds" is
//! published.
//!
//! **Modelled**: shares per VM divided among its vCPUs (default 1,000 each), the quantum, preemption at
//! wake-up, skew of both kinds, co-stop and co-start.
//!
//! **Not modelled**
//! - `GAP(esxi-closed)`: the source is not public. Where its papers give no details, the simulation takes the
//!   simplest choice: virtual time in which a sleeper may be behind by a quantum; a woken vCPU preempts if it
//!   is behind by a millisecond, a co-start if it is behind by a quantum.
//! - `GAP(esxi-placement)`: one queue for all pCPUs; no NUMA clients, no cost of migration, no
//!   hyper-threading policy.
//! - `GAP(esxi-limits)`: no reservations, limits, or resource pools.
//!
//! **Sources**: VMware, "The CPU Scheduler in VMware vSphere 5.1", technical white paper, 2013 (strict
//! co-scheduling in ESX 2.x, relaxed since 3.x, the progress of each vCPU since 4.x). From memory of the
//! paper, not compared with a live host.

use super::super::policy::{About, Choice, Held, Orders, Policy, Values, View, Why};
use super::super::setup::{Host, Pcpu, Pool, Vcpu, Vm};
use vsteer_core::Fault;

mod about;
mod costop;
mod skew;

const NONE: u32 = u32::MAX;
const US: i64 = 1_000;
/// Default shares of a vCPU ("normal").
const SHARES: i64 = 1000;
/// How far a woken vCPU must be behind to preempt.
const PREEMPT_NS: i64 = 1_000_000;
/// The least distance between the two limits. Otherwise a vCPU could stop and start within nanoseconds.
const APART_NS: i64 = 50 * US;
/// Timer for the next time at which a skew reaches a limit.
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
    /// Used CPU time, scaled to 1,000 shares.
    used: i64,
    /// Time that it ran or was blocked, up to `since_ns`.
    advanced_ns: i64,
    /// Strict: how long it waited while a sibling ran, since the last co-start, up to `mark_ns` of its VM's
    /// running time.
    skew_ns: i64,
    mark_ns: i64,
}

#[derive(Debug, Clone)]
struct Machine {
    first: u32,
    vcpus: u32,
    /// How many vCPUs run, since when at least one runs, and how long at least one ran before.
    running: u32,
    any_since_ns: i64,
    any_ns: i64,
    /// Strict: the whole VM is co-stopped.
    stopped: bool,
    /// When a skew may reach a limit next.
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
    /// The end of the quantum of the vCPU that runs there.
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
        // A new vCPU starts level with its siblings, because no lead existed before it.
        let now_ns = view.now_ns() as i64;
        let machine = &self.machines[self.units[v.i()].vm as usize];
        let most = (machine.first..machine.first + machine.vcpus).map(|s| self.advanced(s, now_ns)).max();
        self.units[v.i()].advanced_ns = most.unwrap_or(0);
        self.units[v.i()].since_ns = now_ns;
    }

    fn wake(&mut self, view: &View<'_>, v: Vcpu, orders: &mut Orders) {
        let now_ns = view.now_ns() as i64;
        let vm = self.units[v.i()].vm as usize;
        // A sleeper may be behind the others by at most a quantum.
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
                    // It has done all of its work, so no sibling has a lead over it.
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
            // It may continue on another idle pCPU.
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
    /// The next vCPU on `p`: the one for which it is reserved, otherwise the one that used least. The vCPU `stays` wins a
    /// tie; only one that is far enough behind in CPU time preempts it.
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

    /// The pCPU for ready `v`: an idle one, otherwise the one whose vCPU used most, if that is enough more.
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
