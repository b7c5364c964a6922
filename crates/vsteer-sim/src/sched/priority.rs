//! Fixed priorities: the most important vCPU always runs first.
//!
//! **Purpose.** The baseline of real-time work (rate-monotonic analysis, `SCHED_FIFO` and `SCHED_RR`). It is
//! also the "static priority" with which VIT was compared on Xen-ARM (Park et al., J. KIISE 37(1), 2010).
//!
//! **Idea.** A VM's weight is its priority; higher is more important. The most important ready vCPUs run, one
//! per pCPU. A woken one preempts the least important at once. Equals take turns of `slice_us` (round robin),
//! or with a slice of 0 run until they block (first in, first out).
//!
//! **What follows from this**: the waits of a vCPU depend only on vCPUs that are at least as important. On
//! one pCPU its longest response is the fixed point of Joseph and Pandya (1986). A vCPU that computes without
//! end starves all less important ones.
//!
//! **Modelled**: one queue for the pool, immediate preemption, a preempted vCPU before its equals, a vCPU
//! whose slice ended behind them, affinity.
//!
//! **Not modelled**
//! - `GAP(priority-throttle)`: no limit on real-time run time (`sched_rt_runtime_us`).
//! - `GAP(priority-push)`: Linux keeps a queue per CPU and pushes and pulls between them, with the aim that
//!   one queue reaches directly.
//!
//! **Sources**: Liu and Layland, J. ACM 20(1), 1973; sched(7), Linux man-pages 6.9.

use super::super::policy::{About, Choice, Conserving, Orders, Parameter, Policy, Values, View, Why};
use super::super::setup::{Host, Pcpu, Pool, Vcpu, Vm};
use vsteer_core::Fault;

const NONE: u32 = u32::MAX;

/// The scheduler of one pool.
#[derive(Debug)]
pub struct Priority {
    slice_ns: u64,
    /// Priority per vCPU.
    priority: Vec<u32>,
    /// Ready vCPUs, the most important first.
    queue: Vec<u32>,
    current: Vec<u32>,
    /// The last pCPU of each vCPU, or an allowed one.
    cpu: Vec<u32>,
}

impl Policy for Priority {
    const ABOUT: About = About {
        name: "priority",
        doc: "fixed priorities: a VM's weight is its priority, equals take turns",
        source: "Liu and Layland 1973; sched(7)",
        parameters: &[Parameter {
            name: "slice_us",
            doc: "slice among VMs of equal priority; 0: until the vCPU blocks (SCHED_RR has 100 ms)",
            unit: "us",
            default: 100_000,
            min: 0,
            max: 10_000_000,
        }],
        default_weight: 50,
        weights: (1, 99),
        proportional: false,
        conserving: Conserving::Always,
        caps: false,
        quotas: false,
        classes: false,
        reservations: false,
        warps: false,
        soft_affinities: false,
        gaps: &[
            "priority-throttle: no limit on real-time run time",
            "priority-push: one queue instead of pushing and pulling between queues",
        ],
    };
    const TIMERS: u32 = 0;

    fn new(host: &Host, _pool: Pool, values: &Values) -> Result<Priority, Fault> {
        let of = |vm: Vm| host.vms[vm.i()].weight.unwrap_or(Self::ABOUT.default_weight);
        let n = host.vcpus.len();
        let slice_ns = match values.get("slice_us") {
            0 => u64::MAX,
            us => us * 1000,
        };
        Ok(Priority {
            slice_ns,
            priority: host.vcpus.iter().map(|v| of(v.vm)).collect(),
            queue: Vec::with_capacity(n),
            current: vec![NONE; host.pcpus.len()],
            cpu: host
                .vcpus
                .iter()
                .map(|v| v.affinity.first().expect("an affinity is not empty") as u32)
                .collect(),
        })
    }

    fn start(&mut self, _view: &View<'_>, _orders: &mut Orders) {}

    fn arrive(&mut self, _view: &View<'_>, _v: Vcpu) {}

    fn wake(&mut self, view: &View<'_>, v: Vcpu, orders: &mut Orders) {
        self.insert(v.0, false);
        self.place(view, v.0, orders);
    }

    fn pick(&mut self, view: &View<'_>, p: Pcpu, why: Why, orders: &mut Orders) -> Choice {
        if let Some(v) = why.runnable() {
            // A preempted vCPU keeps its turn: it goes before its equals.
            self.insert(v.0, matches!(why, Why::Interrupted(_)));
        }
        let place = self.queue.iter().position(|v| view.host().allows(Vcpu(*v), p));
        let next = place.map_or(NONE, |i| self.queue.remove(i));
        self.current[p.i()] = next;
        if let Some(v) = why.runnable()
            && v.0 != next
        {
            self.place(view, v.0, orders);
        }
        if next == NONE {
            return Choice::IDLE;
        }
        self.cpu[next as usize] = p.0;
        Choice::run(Vcpu(next), self.slice_ns)
    }

    fn timer(&mut self, _view: &View<'_>, _timer: u32, _orders: &mut Orders) {}

    fn changed(
        &mut self,
        view: &View<'_>,
        vm: Vm,
        weight: Option<u32>,
        _cap_pct: Option<u32>,
        orders: &mut Orders,
    ) {
        let vm = &view.host().vms[vm.i()];
        for v in vm.first.0..vm.first.0 + vm.vcpus {
            self.priority[v as usize] = weight.unwrap_or(Self::ABOUT.default_weight);
            if let Some(i) = self.queue.iter().position(|q| *q == v) {
                self.queue.remove(i);
                self.insert(v, false);
            }
        }
        // The running vCPU may now have a lower priority than a waiting one.
        for p in (0..self.current.len()).filter(|p| self.current[*p] != NONE) {
            orders.interrupt(Pcpu(p as u32));
        }
    }
}

impl Priority {
    fn insert(&mut self, v: u32, before_equals: bool) {
        let own = self.priority[v as usize];
        let ahead = |q: &u32| {
            let its = self.priority[*q as usize];
            its > own || (its == own && !before_equals)
        };
        let at = self.queue.partition_point(ahead);
        self.queue.insert(at, v);
    }

    /// Interrupts an idle pCPU for `v`, its last one first. If there is none, interrupts the pCPU with the
    /// least important vCPU, if `v` is more important.
    fn place(&self, view: &View<'_>, v: u32, orders: &mut Orders) {
        let affinity = &view.host().vcpus[v as usize].affinity;
        let own = self.cpu[v as usize] as usize;
        let rank = |p: &usize| match self.current[*p] {
            NONE => (0, *p != own, *p),
            current => (self.priority[current as usize], *p != own, *p),
        };
        let Some(p) = affinity.iter().min_by_key(rank) else { return };
        if rank(&p).0 < self.priority[v as usize] {
            orders.interrupt(Pcpu(p as u32));
        }
    }
}
