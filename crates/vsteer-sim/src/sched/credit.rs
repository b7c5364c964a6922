//! Xen's Credit scheduler: VMs get CPU credits by weight, and vCPUs that slept may go first.
//!
//! **Purpose.** Xen's default scheduler from 3.0 (2006) to 4.11, used in the published experiments. It shares
//! pCPUs among VMs by weight, caps them, keeps all pCPUs busy, and lets a vCPU that wakes run soon if it used
//! little.
//!
//! **Idea.** A vCPU burns 10 credits per millisecond of CPU. Every 30 ms the pool distributes the credits
//! that its pCPUs can burn in that time, by weight, to the *active* vCPUs (those that a tick found running).
//! A vCPU with credits is UNDER, one with debt is OVER. A wake-up raises an UNDER vCPU to BOOST until a tick
//! finds it running. Each pCPU has a queue ordered by these three levels. Within a level it is first come,
//! first served, 30 ms each. If a pCPU would run OVER work or nothing, it looks for better work in the queues
//! of its peers and steals it.
//!
//! **What follows from this**, here and on real hosts: credits are distributed per pool. So two VMs pinned to
//! one of many pCPUs get equal time for any weights, because each gets more credits than it can use. A vCPU
//! that sleeps at every tick is never charged by the tick and stays in BOOST. A vCPU that computes across a
//! tick loses its BOOST and waits up to 30 ms for each vCPU ahead of it.
//!
//! **Parameters**: [`Credit::ABOUT`] below; defaults are the source's. `xen3_accounts` selects Xen 3's
//! accounting (xen/common/sched_credit.c of 3.3): a tick charges the running vCPU, and a vCPU with too many
//! credits loses all of them.
//!
//! **Modelled**: credits with their rounding and their bounds, leaving and joining the active list, the
//! credit balance, unused credits passed on in list order, caps with parking, BOOST/UNDER/OVER, the lazy sort
//! of the queues after accounting, yield, the rate limit, `vcpu_migration_delay`, tickling with its idlers
//! mask (one idler, round robin per pCPU, or all), placement by idleness of threads, cores and sockets with
//! `idle_bias`, the move of a running vCPU at a tick, stealing per node with `balance_bias`, its limit of one
//! search per ms, soft and hard affinity, exclusive pins, pools. One part of the source is dead code and
//! therefore absent here. If a better vCPU replaces another (`__runq_tickle`), the source looks for an idler
//! in the newcomer's hard affinity, but in exactly this case there is none.
//!
//! **Not modelled**
//! - `GAP(credit-phase)`: ticks of all pCPUs fall on multiples of the period (Xen aligns them when a pCPU
//!   leaves idle), so one timer serves the host. Accounting happens right after a tick (on hardware at any
//!   phase relative to it).
//! - `GAP(credit-races)`: interrupts and locks take no time. So a search never skips a peer's queue because
//!   of a contended lock, and a tickled pCPU schedules at once.
//! - `GAP(credit-width)`: sums of credits are 64 bits wide; Xen's 32 bits overflow if credits x weight x
//!   vCPUs exceeds 2^32.
//! - `GAP(credit-units)`: one vCPU per scheduling unit (no core scheduling), no tasklets, no
//!   `smt_power_savings`.
//! - `GAP(credit-remote-wake)`: a wake-up counts on the pCPU where the vCPU ran last, like its timer. In Xen,
//!   events from other vCPUs arrive on their pCPU, and so advance another pCPU's round robin over idlers.
//!
//! **Sources**: xen/common/sched/credit.c and core.c of Xen 4.23-unstable (commit c447b730, 2026-08); names
//! follow it. The original: Ackaouy, "The Xen Credit CPU scheduler", Xen Summit 2006. Read, not copied.

use super::super::bits::Bits;
use super::super::policy::{About, Choice, Orders, Policy, Values, View, Why};
use super::super::setup::{Host, Pcpu, Place, Pool, Vcpu, VcpuFacts, Vm, VmFacts};
use vsteer_core::Fault;

mod about;
mod account;
mod place;
mod queue;

const NONE: u32 = u32::MAX;
/// CSCHED_CREDITS_PER_MSEC.
const CREDITS_PER_MS: u64 = 10;
/// CSCHED_TICKS_PER_TSLICE.
const TICKS_PER_SLICE: u64 = 3;
/// CSCHED_MIN_TIMER = XEN_SYSCTL_SCHED_RATELIMIT_MIN.
const MIN_TIMER_NS: u64 = 100_000;
const MS: u64 = 1_000_000;
const US: u64 = 1_000;

/// Timer of all pCPUs' ticks; fires before the accounting at the same time.
const TICK: u32 = 0;
/// Timer of the accounting.
const ACCT: u32 = 1;

/// Priorities; the highest runs first.
const BOOST: i8 = 0;
const UNDER: i8 = -1;
const OVER: i8 = -2;
const IDLE: i8 = -64;

const QUEUED: u16 = 1;
const PARKED: u16 = 2;
const YIELD: u16 = 4;
const MIGRATING: u16 = 8;
const PINNED: u16 = 16;
const ACTIVE: u16 = 32;
/// Has a soft affinity narrower than its hard affinity.
const SOFT: u16 = 64;
/// A tick wants this running vCPU on another pCPU (`_VPF_migrating`).
const LEAVING: u16 = 128;
/// May run on every pCPU of the pool and has no soft affinity, so its masks need no checks.
const ANYWHERE: u16 = 256;

/// A vCPU, in one cache line.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Unit {
    /// Neighbours in the run queue.
    next: u32,
    prev: u32,
    /// Neighbours in the domain's active list.
    active_next: u32,
    active_prev: u32,
    /// While it runs: the start of CPU time that is not burnt yet. Otherwise that time minus the time it
    /// stopped.
    start_ns: i64,
    last_ran_ns: u64,
    credit: i32,
    /// Credits are whole numbers. This is the remainder of the last burn, in 10^-6 credits.
    residual: u32,
    cpu: u32,
    domain: u32,
    pri: i8,
    flags: u16,
}

/// A pCPU.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Queue {
    head: u32,
    tail: u32,
    current: u32,
    /// The queued ones plus the running one.
    runnable: u32,
    sort_epoch: u32,
    idle_bias: u32,
    /// `last_tickle_cpu`.
    tickled: u32,
    last_balance_ns: u64,
    core: u32,
    socket: u32,
    node: u32,
    mine: bool,
}

#[derive(Debug, Clone)]
struct Domain {
    /// Active units, the newest first.
    active: u32,
    active_units: u32,
    weight: u32,
    cap_pct: u32,
    /// Neighbours in the list of active domains.
    next: u32,
    prev: u32,
}

impl Unit {
    fn new(v: &VcpuFacts, pool: &Bits) -> Unit {
        Unit {
            next: NONE,
            prev: NONE,
            active_next: NONE,
            active_prev: NONE,
            start_ns: 0,
            last_ran_ns: 0,
            credit: 0,
            residual: 0,
            cpu: NONE,
            domain: v.vm.0,
            pri: UNDER,
            flags: if v.affinity.len() == 1 { PINNED } else { 0 }
                | if v.soft_affinity.is_some() { SOFT } else { 0 }
                | if v.soft_affinity.is_none() && v.affinity == *pool { ANYWHERE } else { 0 },
        }
    }
}

impl Queue {
    /// An empty queue of a host with `pcpus` pCPUs.
    fn new(place: &Place, pcpus: usize, mine: bool) -> Queue {
        Queue {
            head: NONE,
            tail: NONE,
            current: NONE,
            runnable: 0,
            sort_epoch: 0,
            idle_bias: pcpus as u32 - 1,
            tickled: 0,
            last_balance_ns: 0,
            core: place.core,
            socket: place.socket,
            node: place.node,
            mine,
        }
    }
}

impl Domain {
    fn new(vm: &VmFacts) -> Domain {
        Domain {
            active: NONE,
            active_units: 0,
            weight: vm.weight.unwrap_or(about::ABOUT.default_weight),
            cap_pct: vm.cap_pct.unwrap_or(0),
            next: NONE,
            prev: NONE,
        }
    }
}

/// The scheduler of one pool.
#[derive(Debug)]
pub struct Credit {
    slice_ns: u64,
    tick_ns: u64,
    credits_per_slice: i64,
    ratelimit_ns: u64,
    migration_delay_ns: u64,
    balance_ratelimit_ns: u64,
    tickle_one: bool,
    xen3_accounts: bool,
    units: Vec<Unit>,
    queues: Vec<Queue>,
    domains: Vec<Domain>,
    first_domain: u32,
    /// Sum of the weights of all active units.
    weight: u64,
    balance: i64,
    sort_epoch: u32,
    pool: Bits,
    master: u32,
    idlers: Bits,
    idle: place::Idleness,
    /// pCPUs with more than one runnable unit, from which others may steal.
    overloaded: Bits,
    nodes: Vec<Bits>,
    balance_bias: Vec<u32>,
    any_soft: bool,
    ticking: bool,
    /// Buffers for temporary masks.
    scratch: place::Scratch,
}

impl Policy for Credit {
    const ABOUT: About = about::ABOUT;
    const TIMERS: u32 = 2;

    fn new(host: &Host, pool: Pool, values: &Values) -> Result<Credit, Fault> {
        let slice_ms = values.get("tslice_ms");
        let ticks = if slice_ms < TICKS_PER_SLICE { 1 } else { TICKS_PER_SLICE };
        let slice_ns = slice_ms * MS;
        let n = host.pcpus.len();
        let cpus = &host.pools[pool.i()];
        let master = cpus.first().expect("pools are not empty") as u32;
        let queues = host.pcpus.iter().enumerate().map(|(i, place)| Queue::new(place, n, cpus.contains(i)));
        let nodes: Vec<Bits> = host
            .nodes
            .iter()
            .map(|node| {
                let mut bits = node.clone();
                bits.keep(cpus);
                bits
            })
            .collect();
        let credit = Credit {
            slice_ns,
            tick_ns: slice_ms * MS / ticks,
            credits_per_slice: (CREDITS_PER_MS * slice_ms) as i64,
            // Xen limits the rate limit to the slice.
            ratelimit_ns: (values.get("ratelimit_us") * US).min(slice_ns),
            migration_delay_ns: values.get("vcpu_migration_delay_us") * US,
            balance_ratelimit_ns: values.get("load_balance_ratelimit_us") * US,
            tickle_one: values.get("tickle_one_idle_cpu") == 1,
            xen3_accounts: values.get("xen3_accounts") == 1,
            units: host.vcpus.iter().map(|v| Unit::new(v, cpus)).collect(),
            queues: queues.collect(),
            domains: host.vms.iter().map(Domain::new).collect(),
            first_domain: NONE,
            weight: 0,
            balance: 0,
            sort_epoch: 0,
            pool: cpus.clone(),
            master,
            idlers: Bits::new(n),
            idle: place::Idleness::new(host),
            overloaded: Bits::new(n),
            balance_bias: nodes.iter().map(|b| b.first().unwrap_or(0) as u32).collect(),
            nodes,
            any_soft: host.vcpus.iter().any(|v| v.pool == pool && v.soft_affinity.is_some()),
            ticking: false,
            scratch: place::Scratch::new(n),
        };
        Ok(credit)
    }

    fn start(&mut self, view: &View<'_>, orders: &mut Orders) {
        for p in self.pool.clone().iter() {
            self.set_idler(p);
        }
        orders.set_timer(ACCT, view.now_ns() + self.slice_ns);
    }

    fn arrive(&mut self, view: &View<'_>, v: Vcpu) {
        // The first vCPU of a domain starts on the first pCPU (of its node, if it has one). Each further one
        // starts on the pCPU after its predecessor's. Then it is placed like any other.
        let host = view.host();
        let vm = &host.vms[host.vcpus[v.i()].vm.i()];
        let mut cpus = self.pool.clone();
        if let Some(node) = vm.memory_node
            && host.nodes[node as usize].intersects(&cpus)
        {
            cpus.keep(&host.nodes[node as usize]);
        }
        let before = (v != vm.first).then(|| self.units[v.i() - 1].cpu);
        let cpu = match before {
            Some(cpu) if cpu != NONE => cpus.after(cpu as usize),
            _ => cpus.first(),
        };
        self.units[v.i()].cpu = cpu.expect("a pool has a pCPU") as u32;
        // As in Xen, placing marks it as migrating, so the first wake-up gives no BOOST.
        self.units[v.i()].flags |= MIGRATING;
        self.units[v.i()].cpu = self.place(view, v.0, true);
    }

    #[inline]
    fn wake(&mut self, view: &View<'_>, v: Vcpu, orders: &mut Orders) {
        let unit = &mut self.units[v.i()];
        if unit.flags & PARKED != 0 {
            return;
        }
        let at = unit.cpu;
        self.enqueue_woken(view, v.0, at, orders);
    }

    #[inline]
    fn pick(&mut self, view: &View<'_>, p: Pcpu, why: Why, orders: &mut Orders) -> Choice {
        let now_ns = view.now_ns();
        let p = p.0;
        let ran = why.ran().map_or(NONE, |v| v.0);
        let mut leaving = false;
        if ran != NONE {
            self.burn(ran, now_ns);
            let unit = &mut self.units[ran as usize];
            if matches!(why, Why::Yielded(_)) {
                unit.flags |= YIELD;
            }
            unit.last_ran_ns = now_ns;
            leaving = unit.flags & LEAVING != 0;
            let runnable = !matches!(why, Why::Blocked(_)) && unit.flags & (PARKED | LEAVING) == 0;
            if runnable {
                let ran_ns = now_ns - view.since_ns(Vcpu(ran));
                if unit.flags & YIELD == 0 && ran_ns < self.ratelimit_ns {
                    let slice_ns =
                        if ran_ns < MIN_TIMER_NS { MIN_TIMER_NS } else { self.ratelimit_ns - ran_ns };
                    return Choice::run(Vcpu(ran), slice_ns);
                }
                unit.start_ns -= now_ns as i64;
                self.insert(ran);
            } else {
                unit.start_ns -= now_ns as i64;
                self.less_runnable(p);
            }
        }
        let head = self.queues[p as usize].head;
        let pri = if head == NONE { IDLE } else { self.units[head as usize].pri };
        let mut next = NONE;
        if pri <= OVER {
            let queue = &mut self.queues[p as usize];
            if now_ns - queue.last_balance_ns > self.balance_ratelimit_ns {
                queue.last_balance_ns = now_ns;
                next = self.steal(view, p, pri);
            }
        }
        if next == NONE && head != NONE {
            self.remove(head);
            next = head;
        }
        self.queues[p as usize].current = next;
        let choice = if next == NONE {
            self.set_idler(p as usize);
            Choice::IDLE
        } else {
            self.clear_idler(p as usize);
            let unit = &mut self.units[next as usize];
            unit.start_ns += now_ns as i64;
            if !self.ticking {
                // Ticks stop on an idle host. When they continue, they fall on multiples of the period.
                self.ticking = true;
                orders.set_timer(TICK, (now_ns / self.tick_ns + 1) * self.tick_ns);
            }
            Choice::run(Vcpu(next), self.slice_ns)
        };
        if leaving {
            self.finish_move(view, ran, p, matches!(why, Why::Blocked(_)), orders);
        }
        choice
    }

    #[inline]
    fn touch(&self, v: Vcpu) {
        let unit = &self.units[v.i()];
        if let Some(queue) = self.queues.get(unit.cpu as usize) {
            // Prefetches the vCPU that `v` is compared with when it wakes, or that follows it when it blocks.
            let other = if queue.current == v.0 { queue.head } else { queue.current };
            std::hint::black_box(self.units.get(other as usize).map(|u| u.pri));
        }
    }

    fn timer(&mut self, view: &View<'_>, timer: u32, orders: &mut Orders) {
        let now_ns = view.now_ns();
        if timer == TICK {
            self.ticking = self.tick(view, orders);
            if self.ticking {
                orders.set_timer(TICK, now_ns + self.tick_ns);
            }
        } else {
            self.accounting(view, orders);
            orders.set_timer(ACCT, now_ns + self.slice_ns);
        }
    }

    fn changed(
        &mut self,
        _view: &View<'_>,
        vm: Vm,
        weight: Option<u32>,
        cap_pct: Option<u32>,
        _orders: &mut Orders,
    ) {
        let domain = &mut self.domains[vm.i()];
        let weight = weight.unwrap_or(Self::ABOUT.default_weight);
        self.weight -= u64::from(domain.weight) * u64::from(domain.active_units);
        self.weight += u64::from(weight) * u64::from(domain.active_units);
        domain.weight = weight;
        domain.cap_pct = cap_pct.unwrap_or(0);
    }
}
