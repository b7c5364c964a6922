//! Linux's EEVDF: who runs when every task is owed its share and the one with the earliest virtual deadline is served?
//!
//! **Purpose.** Linux's fair class since 6.6; on KVM every vCPU is one of its tasks. Shares by weight, at every level of
//! the cgroup tree; quotas; no starvation; waits bounded by the slice.
//!
//! **Idea.** Each task has a virtual time that runs at 1,024/weight while it runs. The weighted average of all in line is
//! what a perfect machine would have given everybody; who is behind it is owed (has lag >= 0) and is *eligible*. Each
//! asks for a slice, and has a virtual deadline: when it would have it at its fair rate. Of the eligible the one with
//! the earliest deadline runs. A task that sleeps takes its lag along (up to two slices), so that it neither gains nor
//! loses by sleeping; one that had too much stays in line, asleep, until that is made up (delayed dequeue). Once
//! running, a task is left alone until its slice is used or it is ahead of the average (`RUN_TO_PARITY`).
//!
//! **What follows from this**: slices end at ticks only, so at 250 Hz a nominal 2.8 ms slice lasts 4 ms; a sleeper that
//! wakes runs at once only where the current task is ahead of the average or its slice is used, else up to a slice later;
//! who is chosen again when its slice ends is protected no longer, and goes on only while it is owed; a VM's weight
//! counts once however many vCPUs it has.
//!
//! **Parameters**: [`Eevdf::ABOUT`]; the defaults are the source's.
//!
//! **Modelled**: lag, eligibility, virtual deadlines, slice scaled by the number of CPUs, placement with lag,
//! `PLACE_DEADLINE_INITIAL`, `PLACE_REL_DEADLINE`, `DELAY_DEQUEUE` with `DELAY_ZERO`, `RUN_TO_PARITY` (a change of weight
//! ends the protection, as it does there), the end of an unprotected task's right to run (`PREEMPT_SHORT`), preferring
//! the group of a task that went to sleep (`PICK_BUDDY`), wake-up preemption, slices checked at ticks (computed, not simulated: see [`line::Lines::charge`]), the cgroup tree with a
//! line per group and pCPU, shares of groups that run on several pCPUs, quotas at every level with slices taken from
//! the group's pool, throttling and refill at periods, wake-up placement (previous pCPU, idle core, idle sibling in the
//! last-level cache), pulling by a pCPU that becomes idle, periodic balancing.
//!
//! **Not modelled**
//! - `GAP(eevdf-load)`: no PELT: shares and balancing go by who is runnable now, not by decaying averages; so there is no
//!   `wake_affine` between waker and wakee, no misfit, no asymmetric capacity, no NUMA balancing; the search for an
//!   idle pCPU is never cut short (`SIS_UTIL`). Weights are whole units of 1/1,024.
//! - `GAP(eevdf-balance)`: one pass per balancing interval over all pCPUs in order; the kernel's runs per domain, gated
//!   by costs and failures, and moves tasks by load. Moving one more so that an odd task out takes turns is not modelled.
//! - `GAP(eevdf-slack)`: unused quota returns to the pool when a line empties; the timer that hands it to throttled
//!   siblings before the period ends is not modelled.
//! - `GAP(eevdf-slots)`: a group keeps lines for twice as many pCPUs as it has vCPUs; a line reused for another pCPU
//!   forgets its lag.
//! - `GAP(eevdf-classes)`: every vCPU is nice 0 and of the fair class; `class` is not looked at.
//! - `GAP(eevdf-6.17)`: what came after 6.12 is not here: protection that ends at the shortest slice in line (6.17), and
//!   throttling of each task as it returns to its guest (6.18). Custom slices are not modelled, so all are equal.
//! - `GAP(eevdf-levels)`: every event charges all levels of the running task; the source charges those that the event
//!   touches, and the others at the next tick.
//! - `GAP(eevdf-phase)`: the ticks of all pCPUs coincide, on multiples of their period; so do the periods of quotas, which
//!   the kernel sets off against each other at random.
//!
//! **Sources**: kernel/sched/fair.c and features.h of Linux 6.12.117 (Debian's linux-source-6.12 6.12.117-1~deb12u1;
//! names follow them); Stoica and Abdel-Wahab, "Earliest Eligible Virtual Deadline First", TR-95-22, 1995. Written from
//! memory first, then held against that source function by function. Read, not copied.

use super::super::bits::Bits;
use super::super::policy::{About, Choice, Conserving, Held, Orders, Parameter, Policy, Values, View, Why};
use super::super::setup::{Group, Host, Pcpu, Pool, Vcpu, Vm};
use crate::Fault;
use line::{Entity, Line, Lines, NICE_0};

mod line;
mod place;
mod quota;

const NONE: u32 = u32::MAX;
const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Timer of the refill of quotas.
const QUOTA: u32 = 0;
/// Timer of the periodic balancing.
const BALANCE: u32 = 1;

/// A vCPU's thread; entity of the same number.
#[derive(Debug, Clone)]
struct Task {
    cpu: u32,
    group: u32,
    /// Neighbours among the runnable tasks of its pCPU.
    next: u32,
    prev: u32,
    /// In line, awake, and no line above it throttled.
    runnable: bool,
    /// Awake in a throttled line.
    limited: bool,
}

#[derive(Debug, Clone)]
struct Cpu {
    current: u32,
    /// Up to when the current task is charged.
    charged_ns: i64,
    /// Whoever runs should be asked again (`TIF_NEED_RESCHED`).
    resched: bool,
    /// Runnable tasks, the running one among them; the longest there first.
    head: u32,
    tail: u32,
    runnable: u32,
    mine: bool,
}

#[derive(Debug, Clone)]
struct Branch {
    parent: u32,
    depth: u32,
    /// Of 1,024 for the default.
    weight: i64,
    /// Its lines: this many from this one on.
    first: u32,
    lines: u32,
    quota: Option<quota::Bandwidth>,
}

/// The scheduler of one pool.
#[derive(Debug)]
pub struct Eevdf {
    lines: Lines,
    tasks: Vec<Task>,
    cpus: Vec<Cpu>,
    branches: Vec<Branch>,
    quota_slice_ns: i64,
    quotas: bool,
    balance_ns: u64,
    /// How often a line was throttled.
    throttles: u64,
    balancing: bool,
    passes: u64,
    pool: Bits,
    idle: Bits,
}

impl Policy for Eevdf {
    const ABOUT: About = About {
        name: "eevdf",
        doc: "Linux's fair class since 6.6: earliest eligible virtual deadline first, cgroup weights and quotas",
        source: "kernel/sched/fair.c, Linux 6.12.117",
        parameters: &[
            Parameter {
                name: "base_slice_us",
                doc: "what a task asks for, before it is scaled by the number of CPUs (6.6 began with 750)",
                unit: "us",
                default: 700,
                min: 100,
                max: 100_000,
            },
            Parameter {
                name: "tunable_scaling",
                doc: "scale the slice by 1 + log2 of the CPUs, at most 8 (1), or not (0)",
                unit: "flag",
                default: 1,
                min: 0,
                max: 1,
            },
            Parameter {
                name: "hz",
                doc: "ticks per second (CONFIG_HZ): slices end at ticks",
                unit: "1/s",
                default: 250,
                min: 24,
                max: 10_000,
            },
            Parameter {
                name: "cfs_bandwidth_slice_us",
                doc: "how much of a quota a pCPU takes from the group at a time",
                unit: "us",
                default: 5000,
                min: 100,
                max: 1_000_000,
            },
            Parameter {
                name: "balance_ms",
                doc: "between passes of balancing; idle pCPUs look at every pass, busy ones at every 16th",
                unit: "ms",
                default: 4,
                min: 1,
                max: 1000,
            },
        ],
        default_weight: 100,
        weights: (1, 10_000),
        proportional: true,
        // A task that waits in another last-level cache than an idle pCPU's is found by the next balancing.
        conserving: Conserving::Within(20 * MS),
        caps: false,
        quotas: true,
        gaps: &[
            "eevdf-load: shares and balancing by who is runnable now, no PELT, no wake_affine, no NUMA balancing, no SIS_UTIL",
            "eevdf-balance: one pass over all pCPUs per interval; an odd task out does not take turns",
            "eevdf-slack: unused quota reaches throttled siblings at the next period",
            "eevdf-slots: a line reused for another pCPU forgets its lag",
            "eevdf-classes: every vCPU is nice 0 of the fair class",
            "eevdf-6.17: as of 6.12; no custom slices",
            "eevdf-levels: every event charges all levels of the running task",
            "eevdf-phase: ticks of all pCPUs coincide, and so do periods of quotas",
        ],
    };
    const TIMERS: u32 = 2;

    fn new(host: &Host, pool: Pool, values: &Values) -> Result<Eevdf, Fault> {
        let pcpus = host.pcpus.len();
        let own = &host.pools[pool.i()];
        // get_update_sysctl_factor: the machine's CPUs, not the pool's.
        let factor = match values.get("tunable_scaling") {
            0 => 1,
            _ => 1 + u64::from((pcpus as u64).min(8).ilog2()),
        };
        let mut entities: Vec<Entity> = host.vcpus.iter().map(|_| Entity::new(NICE_0, true)).collect();
        let mut lines: Vec<Line> = (0..pcpus as u32).map(|p| Line::new(NONE, p, 0)).collect();
        // How many vCPUs lie below each group: children come after their parents.
        let mut below = vec![0usize; host.groups.len()];
        host.vcpus.iter().filter(|v| v.pool == pool).for_each(|v| below[v.group.i()] += 1);
        for g in (1..host.groups.len()).rev() {
            let parent = host.groups[g].parent.expect("only the root has none");
            below[parent.i()] += below[g];
        }
        let branches: Vec<Branch> = host
            .groups
            .iter()
            .enumerate()
            .map(|(g, group)| {
                let first = lines.len() as u32;
                let n = if g == 0 { 0 } else { (2 * below[g]).min(pcpus) };
                let weight = shares(group.weight);
                for _ in 0..n {
                    lines.push(Line::new(entities.len() as u32, NONE, g as u32));
                    entities.push(Entity::new(weight, false));
                }
                Branch {
                    parent: group.parent.map_or(NONE, |p| p.0),
                    depth: group.depth,
                    weight,
                    first,
                    lines: n as u32,
                    quota: group.quota.map(quota::Bandwidth::new),
                }
            })
            .collect();
        let cpu = |i| Cpu {
            current: NONE,
            charged_ns: 0,
            resched: false,
            head: NONE,
            tail: NONE,
            runnable: 0,
            mine: own.contains(i),
        };
        Ok(Eevdf {
            lines: Lines {
                entities,
                lines,
                slice_ns: (values.get("base_slice_us") * US * factor) as i64,
                tick_ns: (1_000_000_000 / values.get("hz")) as i64,
            },
            tasks: host
                .vcpus
                .iter()
                .map(|v| Task {
                    cpu: NONE,
                    group: v.group.0,
                    next: NONE,
                    prev: NONE,
                    runnable: false,
                    limited: false,
                })
                .collect(),
            cpus: (0..pcpus).map(cpu).collect(),
            quotas: branches.iter().any(|b| b.quota.is_some()),
            branches,
            quota_slice_ns: (values.get("cfs_bandwidth_slice_us") * US) as i64,
            balance_ns: values.get("balance_ms") * MS,
            balancing: false,
            throttles: 0,
            passes: 0,
            pool: own.clone(),
            idle: own.clone(),
        })
    }

    fn start(&mut self, _view: &View<'_>, _orders: &mut Orders) {}

    fn arrive(&mut self, _view: &View<'_>, _v: Vcpu) {}

    fn wake(&mut self, view: &View<'_>, v: Vcpu, orders: &mut Orders) {
        let now_ns = view.now_ns() as i64;
        let delayed = self.lines.entities[v.i()].delayed;
        // One that is still in line wakes where it is; else it may choose.
        let p = if delayed { self.tasks[v.i()].cpu } else { self.select(view, v) };
        self.tasks[v.i()].cpu = p;
        self.charge(p, now_ns, orders);
        self.enqueue(p, v.0, now_ns, orders);
        if self.tasks[v.i()].runnable {
            self.preempt(p, v.0, orders);
            self.watch_balance(view, p, orders);
        }
    }

    fn pick(&mut self, view: &View<'_>, p: Pcpu, why: Why, orders: &mut Orders) -> Choice {
        let now_ns = view.now_ns() as i64;
        let p = p.0;
        self.charge(p, now_ns, orders);
        let current = self.cpus[p as usize].current;
        debug_assert_eq!(why.ran().map_or(NONE, |v| v.0), current);
        match why {
            Why::Blocked(v) => self.dequeue(p, v.0, true),
            // A reminder that its slice has an end now, for somebody has joined the line; or it was its quota's share
            // that ended, and the pool had more.
            Why::Interrupted(v) | Why::SliceEnd(v) if !self.cpus[p as usize].resched => {
                self.share_current(p);
                return Choice::run(v, self.slice(p, now_ns));
            }
            Why::Yielded(v) => self.forfeit(v.0),
            Why::Interrupted(_) | Why::SliceEnd(_) | Why::Idle => {}
        }
        self.cpus[p as usize].resched = false;
        if self.quotas {
            self.throttle(p, orders);
        }
        let mut next = self.best(p);
        if next == NONE && self.pull(view, p, orders) {
            next = self.best(p);
        }
        self.make_current(p, next);
        self.cpus[p as usize].charged_ns = now_ns;
        if next == NONE {
            self.idle.insert(p as usize);
            return Choice::IDLE;
        }
        self.idle.remove(p as usize);
        self.share_current(p);
        Choice::run(Vcpu(next), self.slice(p, now_ns))
    }

    fn timer(&mut self, view: &View<'_>, timer: u32, orders: &mut Orders) {
        if timer == QUOTA {
            self.refill(view, orders);
        } else {
            self.balance(view, orders);
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
        let group = view.host().vms[vm.i()].group;
        self.branches[group.i()].weight = shares(weight);
        let Branch { first, lines, .. } = self.branches[group.i()];
        for line in first..first + lines {
            let p = self.lines.lines[line as usize].pcpu;
            if p != NONE {
                self.charge(p, view.now_ns() as i64, orders);
                self.share(line);
                orders.interrupt(Pcpu(p));
            }
        }
    }
}

/// A cgroup weight as the kernel's shares (`sched_weight_from_cgroup`): 100 is 1,024.
fn shares(weight: Option<u32>) -> i64 {
    let weight = i64::from(weight.unwrap_or(Eevdf::ABOUT.default_weight));
    ((weight * NICE_0 + 50) / 100).max(2)
}

/// Levels: from a task up to the top line of its pCPU.
impl Eevdf {
    /// The line of `group` on `p`, one that is free where it has none there; and its owner in the line above.
    fn line_of(&mut self, group: u32, p: u32) -> u32 {
        if group == Group(0).0 {
            return p;
        }
        let Branch { first, lines, parent, .. } = self.branches[group as usize];
        let mut free = NONE;
        let mut found = NONE;
        for line in first..first + lines {
            let l = &self.lines.lines[line as usize];
            if l.pcpu == p {
                found = line;
                break;
            }
            let out = l.queued == 0 && !l.throttled && !self.lines.entities[l.owner as usize].queued;
            if out && (free == NONE || l.pcpu == NONE) {
                free = line;
            }
        }
        if found == NONE {
            if free == NONE {
                free = self.free_line(first, lines);
            }
            found = free;
            self.release_runtime(found, 0);
            self.lines.lines[found as usize].pcpu = p;
            let owner = self.lines.lines[found as usize].owner;
            self.lines.entities[owner as usize].vlag = 0;
        }
        let above = self.line_of(parent, p);
        let owner = self.lines.lines[found as usize].owner;
        let entity = &mut self.lines.entities[owner as usize];
        if !entity.queued {
            entity.line = above;
        }
        found
    }

    /// A line whose entities have all gone, though its owner has yet to make up for what it had too much of, or its
    /// quota for what it owes: both are forgiven.
    fn free_line(&mut self, first: u32, lines: u32) -> u32 {
        let empty = |line: &u32| self.lines.lines[*line as usize].queued == 0;
        let line = (first..first + lines).find(empty).expect("a group has more lines than vCPUs");
        self.leave_upwards(self.lines.lines[line as usize].owner);
        self.lines.lines[line as usize].throttled = false;
        self.lines.lines[line as usize].runtime_ns = 0;
        line
    }

    /// The entity above `e`; `NONE` at the top.
    #[inline]
    fn above(&self, e: u32) -> u32 {
        self.lines.lines[self.lines.entities[e as usize].line as usize].owner
    }

    /// Charges who runs on `p` at every level up to `now_ns`; asks for a new decision where a slice or quota is used.
    fn charge(&mut self, p: u32, now_ns: i64, orders: &mut Orders) {
        let cpu = &mut self.cpus[p as usize];
        let (from_ns, mut e) = (cpu.charged_ns, cpu.current);
        cpu.charged_ns = now_ns;
        if e == NONE || now_ns == from_ns {
            return;
        }
        let mut over = false;
        while e != NONE {
            over |= self.lines.charge(e, from_ns, now_ns - from_ns);
            let line = self.lines.entities[e as usize].line;
            over |= self.spend(line, now_ns, now_ns - from_ns, orders);
            e = self.above(e);
        }
        if over {
            self.forget_next(self.cpus[p as usize].current);
            self.reschedule(p, orders);
        }
    }

    /// One of `e`'s own went to sleep and left others in line: at every level up, they are preferred.
    fn prefer(&mut self, e: u32) {
        let mut e = e;
        while e != NONE && self.lines.entities[e as usize].queued {
            let line = self.lines.entities[e as usize].line;
            self.lines.lines[line as usize].next = e;
            e = self.above(e);
        }
    }

    /// `e` is no longer preferred, nor those above it on its account.
    fn forget_next(&mut self, e: u32) {
        let mut e = e;
        while e != NONE {
            let line = self.lines.entities[e as usize].line as usize;
            if self.lines.lines[line].next != e {
                return;
            }
            self.lines.lines[line].next = NONE;
            e = self.lines.lines[line].owner;
        }
    }

    /// `e` has left `line`, where others remain; it slept. Its siblings are preferred unless something above is
    /// throttled.
    fn prefer_siblings(&mut self, line: u32) {
        let owner = self.lines.lines[line as usize].owner;
        if owner != NONE && !self.lines.lines[line as usize].throttled && !self.held(owner) {
            self.prefer(owner);
        }
    }

    fn reschedule(&mut self, p: u32, orders: &mut Orders) {
        self.cpus[p as usize].resched = true;
        orders.interrupt(Pcpu(p));
    }

    /// `v` is awake: into line on `p`, and every line above that it is the first of.
    fn enqueue(&mut self, p: u32, v: u32, now_ns: i64, orders: &mut Orders) {
        let mut line = self.line_of(self.tasks[v as usize].group, p);
        let mut e = v;
        let mut held = false;
        loop {
            let entity = &self.lines.entities[e as usize];
            if entity.queued {
                if !entity.delayed {
                    break;
                }
                self.lines.undelay(e);
            } else {
                // A second one in line: whoever runs has a slice that ends.
                if self.lines.lines[line as usize].queued == 1 {
                    orders.interrupt(Pcpu(p));
                }
                self.lines.enter(line, e);
            }
            let l = &self.lines.lines[line as usize];
            let owner = l.owner;
            if owner == NONE {
                break;
            }
            if l.queued == 1 && !l.throttled {
                self.enter_quota(line, now_ns, orders);
            }
            self.share(line);
            if self.lines.lines[line as usize].throttled {
                held = true;
                break;
            }
            e = owner;
            line = self.lines.entities[e as usize].line;
        }
        // Shares further up, for one of a group may be worth more now.
        while !held {
            let line = self.lines.entities[e as usize].line;
            e = self.lines.lines[line as usize].owner;
            if e == NONE {
                break;
            }
            self.share(line);
        }
        held |= self.held(v);
        if held {
            self.limit(v, orders);
        } else {
            self.list(p, v);
        }
    }

    /// `v` leaves `p`: asleep, or to go elsewhere. Asleep and not eligible, it stays in line as delayed; so do groups
    /// that it was the last of.
    fn dequeue(&mut self, p: u32, v: u32, sleep: bool) {
        self.unlist(p, v);
        let asleep = sleep;
        let (mut e, mut sleep) = (v, sleep);
        loop {
            self.forget_next(e);
            if sleep && !self.lines.eligible(e) {
                self.lines.entities[e as usize].delayed = true;
                self.lines.entities[e as usize].protected = false;
                return;
            }
            let line = self.lines.entities[e as usize].line;
            self.lines.leave(e, sleep);
            if !self.close(line, e) {
                if asleep && self.lines.lines[line as usize].queued > 0 {
                    self.prefer_siblings(line);
                }
                return;
            }
            sleep = true;
            e = self.lines.lines[line as usize].owner;
        }
    }

    /// `e` has left `line`. True where that was the last, and the line's owner has to leave too.
    fn close(&mut self, line: u32, e: u32) -> bool {
        let l = &mut self.lines.lines[line as usize];
        if l.current == e {
            l.current = NONE;
        }
        let (owner, empty, throttled) = (l.owner, l.queued == 0, l.throttled);
        if owner == NONE || throttled {
            return false;
        }
        if !empty {
            self.share(line);
            return false;
        }
        self.release_runtime(line, quota::KEEP_NS);
        true
    }

    /// Who runs next on `p` by its lines; delayed ones whose turn comes leave for good.
    fn best(&mut self, p: u32) -> u32 {
        'top: loop {
            let mut line = p;
            loop {
                let next = self.lines.lines[line as usize].next;
                let e = match next {
                    NONE => self.lines.best(line),
                    _ if self.lines.eligible(next) => next,
                    _ => self.lines.best(line),
                };
                if e == NONE {
                    assert_eq!(line, p, "a line without an entity has an owner in line");
                    return NONE;
                }
                if self.lines.entities[e as usize].delayed {
                    self.lines.leave_delayed(e);
                    let mut below = e;
                    loop {
                        if !self.close(line, below) {
                            if self.lines.lines[line as usize].queued > 0 {
                                self.prefer_siblings(line);
                            }
                            break;
                        }
                        let owner = self.lines.lines[line as usize].owner;
                        let above = self.lines.entities[owner as usize].line;
                        self.forget_next(owner);
                        if self.lines.entities[owner as usize].delayed {
                            self.lines.leave_delayed(owner);
                        } else if self.lines.eligible(owner) {
                            self.lines.leave(owner, true);
                        } else {
                            self.lines.entities[owner as usize].delayed = true;
                            break;
                        }
                        (line, below) = (above, owner);
                    }
                    continue 'top;
                }
                if (e as usize) < self.tasks.len() {
                    return e;
                }
                line = self.line_below(e);
            }
        }
    }

    /// The line that group entity `e` stands for.
    #[inline]
    fn line_below(&self, e: u32) -> u32 {
        // Lines of groups and their owners were made in pairs.
        e - self.tasks.len() as u32 + self.cpus.len() as u32
    }

    /// `next` (or nobody) is current on `p` at all its levels; where a level changes hands, the new one is protected.
    fn make_current(&mut self, p: u32, next: u32) {
        let before = self.cpus[p as usize].current;
        if before == next {
            return;
        }
        let mut e = before;
        while e != NONE {
            let line = self.lines.entities[e as usize].line;
            let l = &mut self.lines.lines[line as usize];
            if l.current == e && !self.leads_to(e, next) {
                self.lines.lines[line as usize].current = NONE;
                self.lines.put_back(e);
            }
            e = self.above(e);
        }
        let mut e = next;
        while e != NONE {
            let line = self.lines.entities[e as usize].line;
            let l = &mut self.lines.lines[line as usize];
            if l.current != e {
                l.current = e;
                self.lines.entities[e as usize].protected = true;
                self.forget_next(e);
            }
            e = self.above(e);
        }
        self.cpus[p as usize].current = next;
        if next != NONE {
            // Who ran last is the last to be moved to another pCPU.
            self.unlist(p, next);
            self.list(p, next);
        }
    }

    /// Is `e` task `v` or a group above it?
    fn leads_to(&self, e: u32, v: u32) -> bool {
        let mut at = v;
        while at != NONE && at != e {
            at = self.above(at);
        }
        at == e
    }

    /// Woken `v` against who runs on `p`: compared in the line that both have in common.
    fn preempt(&mut self, p: u32, v: u32, orders: &mut Orders) {
        let current = self.cpus[p as usize].current;
        if current == NONE {
            self.reschedule(p, orders);
            return;
        }
        let (mut old, mut new) = (current, v);
        loop {
            let (a, b) = (self.lines.entities[old as usize].line, self.lines.entities[new as usize].line);
            if a == b {
                if old != new && self.lines.best(a) == new {
                    self.reschedule(p, orders);
                }
                return;
            }
            let depth = |line: u32| self.branches[self.lines.lines[line as usize].group as usize].depth;
            let (x, y) = (depth(a), depth(b));
            if x >= y {
                old = self.above(old);
            }
            if y >= x {
                new = self.above(new);
            }
        }
    }

    /// How long who runs on `p` may go on: to the tick that finds a slice or a quota used up, at any level.
    fn slice(&self, p: u32, now_ns: i64) -> u64 {
        let mut least_ns = i64::MAX;
        let mut e = self.cpus[p as usize].current;
        while e != NONE {
            let entity = &self.lines.entities[e as usize];
            let line = &self.lines.lines[entity.line as usize];
            if line.queued > 1 {
                least_ns = least_ns.min(entity.real_of(entity.deadline - entity.vruntime).max(1));
                if !entity.protected {
                    least_ns = least_ns.min(self.lines.eligible_for_ns(e).max(1));
                }
            }
            if self.branches[line.group as usize].quota.is_some() {
                least_ns = least_ns.min(line.runtime_ns.max(1));
            }
            e = self.above(e);
        }
        if least_ns == i64::MAX {
            return u64::MAX;
        }
        (line::next_tick(now_ns + least_ns, self.lines.tick_ns) - now_ns) as u64
    }

    /// sched_yield: its slice counts as used.
    fn forfeit(&mut self, v: u32) {
        if self.lines.eligible(v) {
            self.lines.forfeit(v);
        }
        self.forget_next(v);
    }

    /// The weight of a group's line among the others of its level: the group's, divided by what runs on each pCPU.
    fn share(&mut self, line: u32) {
        let l = &self.lines.lines[line as usize];
        let (owner, own) = (l.owner, l.weight);
        let branch = &self.branches[l.group as usize];
        let all = &self.lines.lines[branch.first as usize..(branch.first + branch.lines) as usize];
        let total: i64 = all.iter().filter(|l| !l.throttled).map(|l| l.weight).sum();
        if own > 0 && total > 0 {
            let weight = (branch.weight * own / total).clamp(2, branch.weight);
            self.lines.reweigh(owner, weight);
        }
    }

    /// The same for every group above the current task of `p`, as each tick does (`update_cfs_group`).
    fn share_current(&mut self, p: u32) {
        let mut e = self.cpus[p as usize].current;
        while e != NONE {
            let line = self.lines.entities[e as usize].line;
            e = self.above(e);
            if e != NONE {
                self.share(line);
            }
        }
    }

    fn limit(&mut self, v: u32, orders: &mut Orders) {
        self.tasks[v as usize].limited = true;
        orders.hold(Vcpu(v), Held::Limited);
    }
}
