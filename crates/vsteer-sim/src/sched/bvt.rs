//! Borrowed virtual time (BVT): latency-sensitive VMs may borrow against their own future share.
//!
//! **Purpose.** Xen's scheduler until 3.0, and the one below VIT (Park et al., J. KIISE 37(1), 2010). It
//! shares CPU by weight, and lets a VM run sooner now if it runs later afterwards.
//!
//! **Idea.** A vCPU's actual virtual time (AVT) grows as it runs, more slowly for a larger weight. The vCPU
//! with the least *effective* virtual time runs. That is its AVT minus its VM's warp, while the VM warps. A
//! vCPU that wakes is raised to the system's virtual time (the least AVT on its pCPU), so it gains nothing by
//! sleeping. A running vCPU keeps its pCPU for the context-switch allowance. Warping has a limit, and a pause
//! follows. Warped time is charged like any other, so the share in the long run stays the same.
//!
//! **VIT** (Park et al.): a guest reports an expired timer to the hypervisor by a hypercall. At the next tick
//! the VM is warped, so that it runs at once. The warp ends when the VM has nothing more to do. Its run time
//! is charged as usual, so the VM runs sooner but not more. Of several VMs whose timers have expired, the one
//! that asked first runs first (section 4). Here a VM with `vit` set does so for every wake-up, and asks when
//! it blocks.
//!
//! **Parameters**: below; per VM its weight (100 is the source's `mcu_advance` of 10), a [`Warp`], and `vit`.
//!
//! **Modelled**: charging in whole units of 100 us rounded up, system virtual time, wake-up with its check
//! against the running vCPU, the allowance, warp value, warp limit and unwarp requirement. The source adds
//! the lead over the next vCPU to the allowance in units of 100 us, although it should be nanoseconds. So a
//! turn lasts hardly longer than the allowance. The simulation does the same, because that code ran. VIT's
//! expiry at ticks; its warp until the VM blocks next.
//!
//! **Not modelled**
//! - `GAP(bvt-overflow)`: virtual times are 64 bits wide and never wrap.
//! - `GAP(bvt-weights)`: weights are finer than whole steps of `mcu_advance`.
//! - `GAP(bvt-vit)`: the size of VIT's warp is not published (here it is `vit_warp_ms`).
//! - `GAP(bvt-placement)`: vCPUs are distributed over pCPUs in turn and stay there; Xen 3.0 has no balancing
//!   either.
//!
//! **Sources**: xen/common/sched_bvt.c of Xen 3.0.2 (tag 3.0.2-rc); Duda and Cheriton, "Borrowed-Virtual-Time
//! (BVT) scheduling", SOSP 1999. Read, not copied.

use super::super::policy::{About, Choice, Conserving, Orders, Parameter, Policy, Values, View, Why};
use super::super::setup::{Host, Pcpu, Pool, Vcpu, Vm, Warp};
use vsteer_core::Fault;

const NONE: u32 = u32::MAX;
/// MCU: the smallest charge, ns.
const UNIT_NS: u64 = 100_000;
/// Virtual time per unit at the default weight: MCU_ADVANCE, in thousandths.
const ADVANCE: u64 = 10_000;
const DEFAULT_WEIGHT: u32 = 100;
/// Timer for the next end of a warp or of a pause.
const WARP: u32 = 0;

#[derive(Debug, Clone)]
struct Unit {
    vm: u32,
    cpu: u32,
    /// Actual virtual time at the last charge.
    avt: u64,
    /// Effective virtual time as last computed. May be negative.
    evt: i64,
    /// Start of the run time that is not charged yet, ns.
    start_ns: u64,
    /// Number of the request for its timer, in the order of asking; `u64::MAX` before the first.
    asked: u64,
}

#[derive(Debug, Clone)]
struct Domain {
    advance: u64,
    warp: Option<Warp>,
    warping: bool,
    /// When the present warp reaches its limit; `u64::MAX` without a warp.
    warp_end_ns: u64,
    /// When the VM may warp again; `u64::MAX` if it may warp now.
    pause_end_ns: u64,
    vit: bool,
    /// The tick that will find the VM's timer expired; `u64::MAX` if no timer has expired.
    vit_due_ns: u64,
    /// The VM has been warped since that tick.
    vit_warping: bool,
}

#[derive(Debug, Clone)]
struct Cpu {
    /// System virtual time.
    svt: u64,
    current: u32,
    /// Runnable vCPUs except the running one, in the source's order.
    queue: Vec<u32>,
    slice_end_ns: u64,
}

/// The scheduler of one pool.
#[derive(Debug)]
pub struct Bvt {
    allowance_ns: u64,
    charge_again: bool,
    vit_tick_ns: u64,
    vit_warp: i64,
    units: Vec<Unit>,
    domains: Vec<Domain>,
    cpus: Vec<Cpu>,
    /// Requests for timers so far.
    asks: u64,
}

impl Policy for Bvt {
    const ABOUT: About = About {
        name: "bvt",
        doc: "borrowed virtual time: shares by weight, latency by warping; per-pCPU queues",
        source: "xen/common/sched_bvt.c, Xen 3.0.2; Duda and Cheriton, SOSP 1999",
        parameters: &[
            Parameter {
                name: "ctx_allow_us",
                doc: "context-switch allowance: how long a vCPU runs before one with less virtual time takes over",
                unit: "us",
                default: 5000,
                min: 10,
                max: 1_000_000,
            },
            Parameter {
                name: "charge_again",
                doc: "1: a vCPU that continues is charged again for the whole stretch, as in Xen 3.0.2; 0: \
                    as published",
                unit: "flag",
                default: 0,
                min: 0,
                max: 1,
            },
            Parameter {
                name: "vit_tick_us",
                doc: "time between ticks that check for expired timers of VMs that use the timer hypercall VIT (10 ms: HZ of 100)",
                unit: "us",
                default: 10_000,
                min: 100,
                max: 1_000_000,
            },
            Parameter {
                name: "vit_warp_ms",
                doc: "warp of a VM with VIT, as CPU time at the default weight: the most that it may borrow",
                unit: "ms",
                default: 1000,
                min: 1,
                max: 1_000_000,
            },
        ],
        default_weight: DEFAULT_WEIGHT,
        weights: (1, 10_000),
        proportional: true,
        conserving: Conserving::No("vCPUs never move to another pCPU"),
        caps: false,
        quotas: false,
        classes: false,
        reservations: false,
        warps: true,
        soft_affinities: false,
        gaps: &[
            "bvt-overflow: virtual times do not wrap",
            "bvt-weights: finer than whole steps of mcu_advance",
            "bvt-vit: the size of VIT's warp is not published",
            "bvt-placement: vCPUs are dealt to pCPUs in turn and stay",
        ],
    };
    const TIMERS: u32 = 1;

    fn new(host: &Host, pool: Pool, values: &Values) -> Result<Bvt, Fault> {
        let mut on = vec![0usize; host.pcpus.len()];
        let units = host.vcpus.iter().map(|v| {
            // The allowed pCPU with the fewest vCPUs.
            let cpu = v.affinity.iter().min_by_key(|p| (on[*p], *p)).expect("an affinity is not empty");
            on[cpu] += usize::from(v.pool == pool);
            Unit { vm: v.vm.0, cpu: cpu as u32, avt: 0, evt: 0, start_ns: 0, asked: u64::MAX }
        });
        let units: Vec<Unit> = units.collect();
        let cpu =
            |n: &usize| Cpu { svt: 0, current: NONE, queue: Vec::with_capacity(*n), slice_end_ns: u64::MAX };
        Ok(Bvt {
            allowance_ns: values.get("ctx_allow_us") * 1000,
            charge_again: values.get("charge_again") == 1,
            vit_tick_ns: values.get("vit_tick_us") * 1000,
            vit_warp: (values.get("vit_warp_ms") * 1_000_000 / UNIT_NS * ADVANCE) as i64,
            units,
            domains: host
                .vms
                .iter()
                .map(|vm| Domain {
                    advance: advance(vm.weight),
                    warp: vm.warp,
                    warping: vm.warp.is_some(),
                    warp_end_ns: u64::MAX,
                    pause_end_ns: u64::MAX,
                    vit: vm.vit,
                    vit_due_ns: u64::MAX,
                    vit_warping: false,
                })
                .collect(),
            cpus: on.iter().map(cpu).collect(),
            asks: 0,
        })
    }

    fn start(&mut self, _view: &View<'_>, _orders: &mut Orders) {}

    fn arrive(&mut self, _view: &View<'_>, v: Vcpu) {
        let unit = &mut self.units[v.i()];
        unit.avt = self.cpus[unit.cpu as usize].svt;
        unit.evt = unit.avt as i64;
    }

    fn wake(&mut self, view: &View<'_>, v: Vcpu, orders: &mut Orders) {
        let now_ns = view.now_ns();
        let p = self.units[v.i()].cpu as usize;
        self.cpus[p].queue.insert(0, v.0);
        let avt = self.units[v.i()].avt.max(self.cpus[p].svt);
        self.units[v.i()].avt = avt;
        self.expire(v.0, now_ns, orders);
        self.units[v.i()].evt = self.effective(v.0, avt);
        let current = self.cpus[p].current;
        if current == NONE {
            orders.interrupt(Pcpu(p as u32));
            return;
        }
        let its = self.effective(current, self.charged(current, now_ns));
        let evt = self.units[v.i()].evt;
        if evt <= its {
            orders.interrupt(Pcpu(p as u32));
            return;
        }
        // The running vCPU's turn ends after its allowance plus its lead, counted from its start. This
        // applies if it is earlier than the present end.
        let end_ns = view.since_ns(Vcpu(current)) + self.turn_ns(current, evt - its);
        if end_ns <= now_ns {
            orders.interrupt(Pcpu(p as u32));
        } else if end_ns < self.cpus[p].slice_end_ns {
            self.cpus[p].slice_end_ns = end_ns;
            orders.end_slice(Pcpu(p as u32), end_ns);
        }
    }

    fn pick(&mut self, view: &View<'_>, p: Pcpu, why: Why, orders: &mut Orders) -> Choice {
        let now_ns = view.now_ns();
        if let Some(v) = why.ran() {
            let avt = self.charged(v.0, now_ns);
            let evt = self.effective(v.0, avt);
            let unit = &mut self.units[v.i()];
            (unit.avt, unit.evt) = (avt, evt);
            self.stop_warp(unit_vm(&self.units, v.0));
            if why.runnable().is_none() {
                let domain = &mut self.domains[unit_vm(&self.units, v.0) as usize];
                (domain.vit_due_ns, domain.vit_warping) = (u64::MAX, false);
                self.asks += 1;
                self.units[v.i()].asked = self.asks;
            }
        }
        let queue = &mut self.cpus[p.i()].queue;
        if let Some(v) = why.runnable() {
            queue.push(v.0);
        }
        let (mut next, mut second, mut least_avt) = (NONE, NONE, u64::MAX);
        for &v in self.cpus[p.i()].queue.iter() {
            let evt = self.units[v as usize].evt;
            if next == NONE || evt < self.units[next as usize].evt {
                (next, second) = (v, next);
            } else if second == NONE || evt < self.units[second as usize].evt {
                second = v;
            }
            least_avt = least_avt.min(self.units[v as usize].avt);
        }
        let first = self.first_to_ask(p, next);
        if first != next {
            (next, second) = (first, next);
        }
        let cpu = &mut self.cpus[p.i()];
        cpu.queue.retain(|v| *v != next);
        cpu.current = next;
        if next == NONE {
            cpu.slice_end_ns = u64::MAX;
            self.arm(now_ns, orders);
            return Choice::IDLE;
        }
        cpu.svt = least_avt;
        if !self.charge_again || why.runnable() != Some(Vcpu(next)) {
            self.units[next as usize].start_ns = now_ns;
        }
        self.begin_warp(self.units[next as usize].vm, now_ns);
        self.arm(now_ns, orders);
        let slice_ns = if second == NONE {
            10 * self.allowance_ns
        } else {
            self.turn_ns(next, self.units[second as usize].evt - self.units[next as usize].evt)
        };
        self.cpus[p.i()].slice_end_ns = now_ns + slice_ns;
        Choice::run(Vcpu(next), slice_ns)
    }

    fn timer(&mut self, view: &View<'_>, _timer: u32, orders: &mut Orders) {
        let now_ns = view.now_ns();
        for d in 0..self.domains.len() {
            if self.domains[d].vit_due_ns <= now_ns {
                self.warp_expired(view, Vm(d as u32), orders);
            }
            let domain = &mut self.domains[d];
            let Some(warp) = domain.warp else { continue };
            if domain.warp_end_ns <= now_ns {
                domain.warp_end_ns = u64::MAX;
                domain.warping = false;
                if warp.unwarp_ns == 0 {
                    // Without a pause there is no second warp, because the source ends warping permanently.
                    domain.warp = None;
                } else {
                    domain.pause_end_ns = now_ns + warp.unwarp_ns;
                }
            } else if domain.pause_end_ns <= now_ns {
                domain.pause_end_ns = u64::MAX;
                domain.warping = true;
            } else {
                continue;
            }
            let first = view.host().vms[d].first;
            orders.interrupt(Pcpu(self.units[first.i()].cpu));
        }
        self.arm(now_ns, orders);
    }

    fn changed(
        &mut self,
        _view: &View<'_>,
        vm: Vm,
        weight: Option<u32>,
        _cap_pct: Option<u32>,
        _orders: &mut Orders,
    ) {
        self.domains[vm.i()].advance = advance(weight);
    }
}

fn advance(weight: Option<u32>) -> u64 {
    let weight = u64::from(weight.unwrap_or(DEFAULT_WEIGHT));
    (ADVANCE * u64::from(DEFAULT_WEIGHT) / weight).max(1)
}

fn unit_vm(units: &[Unit], v: u32) -> u32 {
    units[v as usize].vm
}

impl Bvt {
    /// The present actual virtual time of running `v`, in whole units, rounded up.
    fn charged(&self, v: u32, now_ns: u64) -> u64 {
        let unit = &self.units[v as usize];
        let units = (now_ns - unit.start_ns).div_ceil(UNIT_NS);
        unit.avt + units * self.domains[unit.vm as usize].advance
    }

    fn effective(&self, v: u32, avt: u64) -> i64 {
        let domain = &self.domains[self.units[v as usize].vm as usize];
        let warp = domain.warp.filter(|_| domain.warping);
        let vit = if domain.vit_warping { self.vit_warp } else { 0 };
        avt as i64 - vit - warp.map_or(0, |w| (w.value_ns / UNIT_NS * ADVANCE) as i64)
    }

    /// Of the waiting vCPUs of VMs whose timers have expired, the one that asked first, if `next` is one of them; else `next`.
    fn first_to_ask(&self, p: Pcpu, next: u32) -> u32 {
        let expired = |v: u32| self.domains[unit_vm(&self.units, v) as usize].vit_warping;
        if next == NONE || !expired(next) {
            return next;
        }
        let waiting = self.cpus[p.i()].queue.iter().copied().filter(|v| expired(*v));
        waiting.min_by_key(|v| self.units[*v as usize].asked).unwrap_or(next)
    }

    /// A timer of `v`'s guest expired; the next tick will find it.
    fn expire(&mut self, v: u32, now_ns: u64, orders: &mut Orders) {
        let tick_ns = self.vit_tick_ns;
        let domain = &mut self.domains[self.units[v as usize].vm as usize];
        if !domain.vit || domain.vit_warping {
            return;
        }
        domain.vit_warping = now_ns.is_multiple_of(tick_ns);
        if !domain.vit_warping {
            domain.vit_due_ns = domain.vit_due_ns.min(now_ns.next_multiple_of(tick_ns));
            self.arm(now_ns, orders);
        }
    }

    /// The tick found the expired timer. The VM's waiting vCPUs come first from now on.
    fn warp_expired(&mut self, view: &View<'_>, vm: Vm, orders: &mut Orders) {
        let domain = &mut self.domains[vm.i()];
        (domain.vit_due_ns, domain.vit_warping) = (u64::MAX, true);
        let facts = &view.host().vms[vm.i()];
        for v in facts.first.0..facts.first.0 + facts.vcpus {
            let Unit { cpu, avt, .. } = self.units[v as usize];
            self.units[v as usize].evt = self.effective(v, avt);
            if self.cpus[cpu as usize].queue.contains(&v) {
                orders.interrupt(Pcpu(cpu));
            }
        }
    }

    /// How long `v` may run with this lead over the next vCPU. The head of this file explains the unit of the
    /// lead.
    fn turn_ns(&self, v: u32, lead: i64) -> u64 {
        let domain = &self.domains[self.units[v as usize].vm as usize];
        (lead.max(0) as u64) / domain.advance + self.allowance_ns
    }

    fn begin_warp(&mut self, vm: u32, now_ns: u64) {
        let domain = &mut self.domains[vm as usize];
        if let Some(warp) = domain.warp.filter(|w| domain.warping && w.limit_ns > 0) {
            domain.warp_end_ns = now_ns + warp.limit_ns;
        }
    }

    fn stop_warp(&mut self, vm: u32) {
        self.domains[vm as usize].warp_end_ns = u64::MAX;
    }

    /// Sets the timer to the next event. Events due now are being handled already.
    fn arm(&self, now_ns: u64, orders: &mut Orders) {
        let due = |d: &Domain| d.warp_end_ns.min(d.pause_end_ns).min(d.vit_due_ns);
        let next_ns = self.domains.iter().map(due).min().unwrap_or(u64::MAX);
        if next_ns > now_ns {
            orders.set_timer(WARP, next_ns);
        }
    }
}
