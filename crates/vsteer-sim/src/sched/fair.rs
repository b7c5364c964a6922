//! Linux's fair class without its rules: the tree of groups, quotas, placement, balancing.
//!
//! **Idea.** CFS and EEVDF differ in which entity of a line runs next and for how long ([`Rules`]). The rest
//! is the same in both and is here once: a line per group and pCPU, the shares of groups that run on several
//! pCPUs, bandwidth, the pCPU of a woken task, pulling and balancing. [`super::eevdf`] and [`super::cfs`]
//! hold the rules; their heads say what is modelled.
//!
//! Source: kernel/sched/fair.c of Linux 6.12.117 and 6.1.192 (names follow it). Read, not copied.

use super::super::bits::Bits;
use super::super::policy::{Choice, Orders, Values, View, Why};
use super::super::setup::{Host, Pcpu, Pool, Vcpu, VcpuFacts, Vm};
pub(super) use line::{Entity, Line, NICE_0, next_tick, unscaled};
pub use line::{Lines, Rules};
use vsteer_core::Fault;
use vsteer_core::nouns::SchedClass;
use vsteer_core::random::Random;

mod average;
mod buddies;
mod flat;
mod levels;
mod line;
mod load;
pub(super) mod parameters;
mod place;
mod quota;
mod share;

pub(super) const NONE: u32 = u32::MAX;
pub(super) const US: u64 = 1_000;
pub(super) const MS: u64 = 1_000_000;

/// Timer for the refill of quotas.
const QUOTA: u32 = 0;
/// Timer for the periodic balancing.
const BALANCE: u32 = 1;

/// A vCPU's thread. Its entity has the same number.
#[derive(Debug, Clone)]
struct Task {
    cpu: u32,
    group: u32,
    /// Neighbours among the runnable tasks of its pCPU.
    next: u32,
    prev: u32,
    /// In line, awake, and no line above it throttled.
    runnable: bool,
    /// Awake in a throttled line; and its number in the order in which the pool's tasks became so.
    limited: bool,
    limited_as: u64,
    /// Belongs to a class that preempts no task when it wakes (`SCHED_BATCH`, `SCHED_IDLE`).
    polite: bool,
}

#[derive(Debug, Clone)]
struct Cpu {
    current: u32,
    /// The time up to which the current task is charged.
    charged_ns: i64,
    /// Whether the running task should be reconsidered (`TIF_NEED_RESCHED`).
    resched: bool,
    /// Runnable tasks, including the running one; the task that has been there longest is first.
    head: u32,
    tail: u32,
    runnable: u32,
    mine: bool,
    /// A task of a higher class runs here.
    above: bool,
    /// When the running task's slice timer fires, if slices have one; `i64::MAX` if it is not set.
    timer_ns: i64,
}

#[derive(Debug, Clone)]
struct Branch {
    parent: u32,
    depth: u32,
    /// The default is 1,024.
    weight: i64,
    /// Its lines: the first one, and their number.
    first: u32,
    lines: u32,
    /// Are there several tasks below it, so that they may run on several pCPUs at once?
    spread: bool,
    quota: Option<quota::Bandwidth>,
}

impl Task {
    fn new(v: &VcpuFacts) -> Task {
        Task {
            cpu: NONE,
            group: v.group.0,
            next: NONE,
            prev: NONE,
            runnable: false,
            limited: false,
            limited_as: 0,
            polite: matches!(v.class, Some(SchedClass::Batch(_) | SchedClass::Idle)),
        }
    }
}

impl Cpu {
    /// A pCPU on which nothing runs.
    fn new(mine: bool) -> Cpu {
        Cpu {
            current: NONE,
            charged_ns: 0,
            resched: false,
            head: NONE,
            tail: NONE,
            runnable: 0,
            mine,
            above: false,
            timer_ns: i64::MAX,
        }
    }
}

/// The group tree: branches, their lines, and the entities in them.
struct Trees {
    /// The entities of tasks come first, in the order of the tasks' numbers.
    entities: Vec<Entity>,
    /// The pCPUs' own lines come first.
    lines: Vec<Line>,
    branches: Vec<Branch>,
}

impl Trees {
    fn new(host: &Host, pool: Pool, values: &Values) -> Trees {
        let pcpus = host.pcpus.len();
        let below = below(host, pool);
        // Guests use the random streams of their numbers. No guest has this one.
        let mut phases = match values.get("quota_phases") {
            0 => None,
            seed => Some(Random::new(seed, u64::MAX)),
        };
        let mut trees = Trees {
            entities: host.vcpus.iter().map(|v| Entity::new(weight_of(v.class), true)).collect(),
            lines: (0..pcpus as u32).map(|p| Line::new(NONE, p, 0)).collect(),
            branches: Vec::with_capacity(host.groups.len()),
        };
        for (g, group) in host.groups.iter().enumerate() {
            let first = trees.lines.len() as u32;
            let n = if g == 0 { 0 } else { (2 * below[g]).min(pcpus) };
            let weight = shares(group.weight);
            for _ in 0..n {
                trees.lines.push(Line::new(trees.entities.len() as u32, NONE, g as u32));
                trees.entities.push(Entity::new(weight, false));
            }
            trees.branches.push(Branch {
                parent: group.parent.map_or(NONE, |p| p.0),
                depth: group.depth,
                weight,
                first,
                lines: n as u32,
                spread: below[g] > 1,
                quota: group.quota.map(|q| quota::Bandwidth::new(q, group.quota_begins_ns, &mut phases)),
            });
        }
        trees
    }
}

/// How many of the pool's vCPUs are below each group.
fn below(host: &Host, pool: Pool) -> Vec<usize> {
    let mut below = vec![0usize; host.groups.len()];
    host.vcpus.iter().filter(|v| v.pool == pool).for_each(|v| below[v.group.i()] += 1);
    // Children come after their parents.
    for g in (1..host.groups.len()).rev() {
        let parent = host.groups[g].parent.expect("only the root has none");
        below[parent.i()] += below[g];
    }
    below
}

/// The scheduler of one pool.
#[derive(Debug)]
pub struct Fair<R> {
    lines: Lines<R>,
    loads: load::Loads,
    pub(super) tick_ns: i64,
    tasks: Vec<Task>,
    cpus: Vec<Cpu>,
    branches: Vec<Branch>,
    quota_slice_ns: i64,
    quotas: bool,
    balance_ns: u64,
    /// How often a line was throttled.
    throttles: u64,
    /// How often a task was limited.
    limits: u64,
    /// Do tasks of all groups compete in the top line? Then the entities for them in that line begin at this
    /// number.
    flat: bool,
    first_standing: u32,
    balancing: bool,
    passes: u64,
    pool: Bits,
    idle: Bits,
}

/// Calls from [`super::linux::Linux`], which separates the scheduling classes.
impl<R: Rules> Fair<R> {
    pub(super) fn new(host: &Host, pool: Pool, values: &Values) -> Result<Fair<R>, Fault> {
        let pcpus = host.pcpus.len();
        let own = &host.pools[pool.i()];
        let Trees { mut entities, lines, branches } = Trees::new(host, pool, values);
        let rules = R::new(host, values);
        let (flat, first_standing) = (rules.flat(), entities.len() as u32);
        if flat {
            entities.extend(host.vcpus.iter().map(|v| Entity::new(weight_of(v.class), true)));
        }
        let depths = branches.iter().map(|b| b.depth as usize + 1).max().unwrap_or(1);
        Ok(Fair {
            loads: load::Loads::new(entities.len(), lines.len(), branches.len(), pcpus, depths),
            lines: Lines { entities, lines, rules },
            tick_ns: (1_000_000_000 / values.get("hz")) as i64,
            tasks: host.vcpus.iter().map(Task::new).collect(),
            cpus: (0..pcpus).map(|i| Cpu::new(own.contains(i))).collect(),
            quotas: branches.iter().any(|b| b.quota.is_some()),
            branches,
            quota_slice_ns: (values.get("cfs_bandwidth_slice_us") * US) as i64,
            balance_ns: values.get("balance_ms") * MS,
            balancing: false,
            throttles: 0,
            limits: 0,
            flat,
            first_standing,
            passes: 0,
            pool: own.clone(),
            idle: own.clone(),
        })
    }

    pub(super) fn wake(&mut self, view: &View<'_>, v: Vcpu, orders: &mut Orders) {
        let now_ns = view.now_ns() as i64;
        let delayed = self.lines.entities[v.i()].delayed;
        // A task that is still in line wakes on its pCPU; otherwise a pCPU is chosen.
        let before = self.tasks[v.i()].cpu;
        let p = if delayed { before } else { self.select(view, v) };
        self.tasks[v.i()].cpu = p;
        self.charge(p, now_ns, orders);
        self.wake_load(v.0, before, p, now_ns);
        self.enqueue(p, v.0, now_ns, orders);
        if self.tasks[v.i()].runnable {
            self.preempt(p, v.0, orders);
            self.remind(p, now_ns, orders);
            self.watch_balance(view, p, orders);
        }
    }

    /// Does a task of this class run on `p` now?
    pub(super) fn runs(&self, p: u32) -> bool {
        self.cpus[p as usize].current != NONE
    }

    /// Is a task awake there?
    pub(super) fn awake(&self, p: u32) -> bool {
        self.cpus[p as usize].runnable > 0
    }

    /// Is another entity awake there, apart from one that is blocking now?
    pub(super) fn waiting(&self, p: u32, why: Why) -> bool {
        let leaves = matches!(why, Why::Blocked(v) if v.0 == self.cpus[p as usize].current);
        self.cpus[p as usize].runnable > u32::from(leaves)
    }

    /// The pCPU that `v` is on, or was.
    pub(super) fn cpu_of(&self, v: u32) -> u32 {
        self.tasks[v as usize].cpu
    }

    /// Gives `p` to a task of a higher class. The task of this class that ran there stays in its lines.
    pub(super) fn make_way(&mut self, view: &View<'_>, p: Pcpu, why: Why, orders: &mut Orders) {
        let p = p.0;
        self.charge(p, view.now_ns() as i64, orders);
        match why {
            Why::Blocked(v) => self.dequeue(p, v.0, true),
            Why::Yielded(v) => self.forfeit(v.0),
            Why::Interrupted(_) | Why::SliceEnd(_) | Why::Idle => {}
        }
        if self.quotas {
            self.throttle(p, orders);
        }
        self.make_current(p, NONE);
        self.cpus[p as usize].above = true;
        self.idle.remove(p as usize);
        self.watch_balance(view, p, orders);
    }

    pub(super) fn pick(&mut self, view: &View<'_>, p: Pcpu, why: Why, orders: &mut Orders) -> Choice {
        let now_ns = view.now_ns() as i64;
        let p = p.0;
        self.cpus[p as usize].above = false;
        self.charge(p, now_ns, orders);
        let current = self.cpus[p as usize].current;
        debug_assert_eq!(why.ran().map_or(NONE, |v| v.0), current);
        if matches!(why, Why::SliceEnd(_)) {
            self.tick(p);
        }
        self.goes_off(p, now_ns);
        match why {
            Why::Blocked(v) => self.dequeue(p, v.0, true),
            // Either a task has joined the line, so that the slice has an end now. Or a share of a quota
            // ended, and the pool had more.
            Why::Interrupted(v) | Why::SliceEnd(v) if !self.cpus[p as usize].resched => {
                return Choice::run(v, self.slice(p, now_ns));
            }
            Why::Yielded(v) => self.forfeit(v.0),
            Why::Interrupted(_) | Why::SliceEnd(_) | Why::Idle => {}
        }
        self.cpus[p as usize].resched = false;
        if self.quotas {
            self.throttle(p, orders);
        }
        let mut next = self.best(p, orders);
        if next == NONE && self.pull(view, p, orders) {
            next = self.best(p, orders);
        }
        self.make_current(p, next);
        self.cpus[p as usize].charged_ns = now_ns;
        if next == NONE {
            self.idle.insert(p as usize);
            self.cpus[p as usize].timer_ns = i64::MAX;
            return Choice::IDLE;
        }
        self.idle.remove(p as usize);
        Choice::run(Vcpu(next), self.slice(p, now_ns))
    }

    pub(super) fn timer(&mut self, view: &View<'_>, timer: u32, orders: &mut Orders) {
        if timer == QUOTA {
            self.refill(view, orders);
        } else {
            self.balance(view, orders);
        }
    }

    pub(super) fn changed(&mut self, view: &View<'_>, vm: Vm, weight: Option<u32>, orders: &mut Orders) {
        let group = view.host().vms[vm.i()].group;
        self.branches[group.i()].weight = shares(weight);
        let Branch { first, lines, .. } = self.branches[group.i()];
        for line in first..first + lines {
            let p = self.lines.lines[line as usize].pcpu;
            if p != NONE {
                let now_ns = view.now_ns() as i64;
                self.charge(p, now_ns, orders);
                self.update_upwards(self.lines.lines[line as usize].owner, now_ns);
                orders.interrupt(Pcpu(p));
            }
        }
    }
}

/// Weights of nice -20 to 19 (`sched_prio_to_weight`): a quarter more for each level.
const NICE: [i64; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904, 3906, 3121,
    2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29,
    23, 18, 15,
];

fn weight_of(class: Option<SchedClass>) -> i64 {
    match class {
        Some(SchedClass::Other(nice) | SchedClass::Batch(nice)) => {
            NICE[(i32::from(nice).clamp(-20, 19) + 20) as usize]
        }
        Some(SchedClass::Idle) => 3,
        _ => NICE_0,
    }
}

/// `cpu.weight` of a group without an own value.
const DEFAULT_WEIGHT: u32 = 100;

/// A cgroup weight as the kernel's shares (`sched_weight_from_cgroup`): 100 is 1,024.
fn shares(weight: Option<u32>) -> i64 {
    let weight = i64::from(weight.unwrap_or(DEFAULT_WEIGHT));
    ((weight * NICE_0 + 50) / 100).max(2)
}

/// The factor by which slices are longer on this machine (`get_update_sysctl_factor`). It depends on the
/// machine's CPUs, not the pool's.
pub(super) fn scaling(host: &Host, values: &Values) -> u64 {
    match values.get("tunable_scaling") {
        0 => 1,
        _ => 1 + u64::from((host.pcpus.len() as u64).min(8).ilog2()),
    }
}
