//! Linux's fair class, but for its rules: the tree of groups, quotas, placement, balancing.
//!
//! **Idea.** The class of CFS and the one of EEVDF differ in who of a line runs next and for how long ([`Rules`]). What
//! lies around that has stayed the same: a line per group and pCPU, the shares of groups that run on several pCPUs,
//! bandwidth, which pCPU a woken task gets, pulling and balancing. It is here once; [`super::eevdf`] and [`super::cfs`]
//! hold the rules, and say in their essays what of all this is modelled.
//!
//! Source: kernel/sched/fair.c of Linux 6.12.117 and 6.1.192 (names follow it). Read, not copied.

use super::super::bits::Bits;
use super::super::policy::{Choice, Held, Orders, Values, View, Why};
use super::super::setup::{Group, Host, Pcpu, Pool, Vcpu, Vm};
use crate::Fault;
use crate::nouns::SchedClass;
pub(super) use line::{Entity, Line, NICE_0, next_tick};
pub use line::{Lines, Rules};

mod line;
mod place;
mod quota;

pub(super) const NONE: u32 = u32::MAX;
pub(super) const US: u64 = 1_000;
pub(super) const MS: u64 = 1_000_000;

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
    /// Of a class that preempts nobody when it wakes (`SCHED_BATCH`, `SCHED_IDLE`).
    polite: bool,
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
    /// A task of a higher class runs here.
    above: bool,
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
pub struct Fair<R> {
    lines: Lines<R>,
    pub(super) tick_ns: i64,
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

/// What the class is told by [`super::linux::Linux`], which keeps the classes apart.
impl<R: Rules> Fair<R> {
    pub(super) fn new(host: &Host, pool: Pool, values: &Values) -> Result<Fair<R>, Fault> {
        let pcpus = host.pcpus.len();
        let own = &host.pools[pool.i()];
        let mut entities: Vec<Entity> =
            host.vcpus.iter().map(|v| Entity::new(weight_of(v.class), true)).collect();
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
            above: false,
        };
        Ok(Fair {
            lines: Lines { entities, lines, rules: R::new(host, values) },
            tick_ns: (1_000_000_000 / values.get("hz")) as i64,
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
                    polite: matches!(v.class, Some(SchedClass::Batch(_) | SchedClass::Idle)),
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

    pub(super) fn wake(&mut self, view: &View<'_>, v: Vcpu, orders: &mut Orders) {
        let now_ns = view.now_ns() as i64;
        let delayed = self.lines.entities[v.i()].delayed;
        // One that is still in line wakes where it is; else it may choose.
        let p = if delayed { self.tasks[v.i()].cpu } else { self.select(view, v) };
        self.tasks[v.i()].cpu = p;
        self.charge(p, now_ns, orders);
        self.enqueue(p, v.0, now_ns, orders);
        if self.tasks[v.i()].runnable {
            self.preempt(p, v.0, orders);
            self.remind(p, now_ns, orders);
            self.watch_balance(view, p, orders);
        }
    }

    /// Is a task of this class on `p` right now?
    pub(super) fn runs(&self, p: u32) -> bool {
        self.cpus[p as usize].current != NONE
    }

    /// Is one awake there?
    pub(super) fn awake(&self, p: u32) -> bool {
        self.cpus[p as usize].runnable > 0
    }

    /// Is one awake there besides one that blocks just now?
    pub(super) fn waiting(&self, p: u32, why: Why) -> bool {
        let leaves = matches!(why, Why::Blocked(v) if v.0 == self.cpus[p as usize].current);
        self.cpus[p as usize].runnable > u32::from(leaves)
    }

    /// The pCPU that `v` is on, or was.
    pub(super) fn cpu_of(&self, v: u32) -> u32 {
        self.tasks[v as usize].cpu
    }

    /// A task of a higher class gets `p`; who of this one ran there stays in its lines.
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
                self.charge(p, view.now_ns() as i64, orders);
                self.share(line);
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

/// `cpu.weight` of a group that says none.
const DEFAULT_WEIGHT: u32 = 100;

/// A cgroup weight as the kernel's shares (`sched_weight_from_cgroup`): 100 is 1,024.
fn shares(weight: Option<u32>) -> i64 {
    let weight = i64::from(weight.unwrap_or(DEFAULT_WEIGHT));
    ((weight * NICE_0 + 50) / 100).max(2)
}

/// Levels: from a task up to the top line of its pCPU.
impl<R: Rules> Fair<R> {
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
            over |= R::charge(&mut self.lines, e, from_ns, now_ns - from_ns);
            let line = self.lines.entities[e as usize].line;
            over |= self.spend(line, now_ns, now_ns - from_ns, orders);
            e = self.above(e);
        }
        if over {
            self.forget(self.cpus[p as usize].current);
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

    /// The same for one that was preempted: it is to come back when its preemptor is done.
    fn prefer_last(&mut self, e: u32) {
        let mut e = e;
        while e != NONE && self.lines.entities[e as usize].queued {
            let line = self.lines.entities[e as usize].line;
            self.lines.lines[line as usize].last = e;
            e = self.above(e);
        }
    }

    /// `e` is no longer preferred (or passed over), nor those above it on its account.
    #[inline]
    fn forget(&mut self, e: u32) {
        let buddies: [fn(&mut Line) -> &mut u32; 3] = [|l| &mut l.next, |l| &mut l.last, |l| &mut l.skip];
        for buddy in buddies {
            let mut e = e;
            while e != NONE {
                let line = self.lines.entities[e as usize].line as usize;
                let it = buddy(&mut self.lines.lines[line]);
                if *it != e {
                    break;
                }
                *it = NONE;
                e = self.lines.lines[line].owner;
            }
        }
    }

    /// A tick finds who runs on `p`.
    fn tick(&mut self, p: u32) {
        let running = self.cpus[p as usize].runnable;
        let mut e = self.cpus[p as usize].current;
        while e != NONE {
            let line = self.lines.entities[e as usize].line;
            if self.lines.lines[line as usize].queued > 1 && R::tick(&mut self.lines, e, running) {
                self.forget(e);
                self.cpus[p as usize].resched = true;
            }
            e = self.above(e);
        }
    }

    /// Who is awake on `p` has changed, and with it perhaps when its slice ends.
    fn remind(&mut self, p: u32, now_ns: i64, orders: &mut Orders) {
        let cpu = &self.cpus[p as usize];
        if R::SLICES_VARY && cpu.current != NONE && !cpu.resched {
            orders.end_slice(Pcpu(p), (now_ns as u64).saturating_add(self.slice(p, now_ns)));
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
                R::undelay(&mut self.lines, e);
            } else {
                // A second one in line: whoever runs has a slice that ends.
                if self.lines.lines[line as usize].queued == 1 {
                    orders.interrupt(Pcpu(p));
                }
                R::enter(&mut self.lines, line, e);
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
            self.forget(e);
            if sleep && R::stays(&self.lines, e) {
                self.lines.entities[e as usize].delayed = true;
                self.lines.entities[e as usize].protected = false;
                return;
            }
            let line = self.lines.entities[e as usize].line;
            R::leave(&mut self.lines, e, sleep);
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
                let e = R::pick(&self.lines, line);
                if e == NONE {
                    assert_eq!(line, p, "a line without an entity has an owner in line");
                    return NONE;
                }
                if self.lines.entities[e as usize].delayed {
                    R::leave_delayed(&mut self.lines, e);
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
                        self.forget(owner);
                        if self.lines.entities[owner as usize].delayed {
                            R::leave_delayed(&mut self.lines, owner);
                        } else if R::stays(&self.lines, owner) {
                            self.lines.entities[owner as usize].delayed = true;
                            break;
                        } else {
                            R::leave(&mut self.lines, owner, true);
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
                R::picked(&mut self.lines, e);
                self.forget(e);
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
        let Cpu { current, above, .. } = self.cpus[p as usize];
        if above {
            return;
        }
        if current == NONE {
            self.reschedule(p, orders);
            return;
        }
        if self.tasks[v as usize].polite {
            return;
        }
        let (mut old, mut new) = (current, v);
        loop {
            let (a, b) = (self.lines.entities[old as usize].line, self.lines.entities[new as usize].line);
            if a == b {
                if old != new && R::preempts(&self.lines, old, new) {
                    self.reschedule(p, orders);
                    if R::BUDDIES {
                        self.prefer(new);
                        let line = self.lines.entities[current as usize].line;
                        if (old as usize) < self.tasks.len() && R::crowded(&self.lines, line) {
                            self.prefer_last(old);
                        }
                    }
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
                let running = self.cpus[p as usize].runnable;
                least_ns = least_ns.min(R::slice_ns(&self.lines, e, running).max(1));
            }
            if self.branches[line.group as usize].quota.is_some() {
                least_ns = least_ns.min(line.runtime_ns.max(1));
            }
            e = self.above(e);
        }
        if least_ns == i64::MAX {
            return u64::MAX;
        }
        (next_tick(now_ns + least_ns, self.tick_ns) - now_ns) as u64
    }

    /// sched_yield: its slice counts as used.
    fn forfeit(&mut self, v: u32) {
        self.forget(v);
        R::forfeit(&mut self.lines, v);
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
            R::reweigh(&mut self.lines, owner, weight);
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

/// How much longer slices are on this machine (`get_update_sysctl_factor`): by its CPUs, not the pool's.
pub(super) fn scaling(host: &Host, values: &Values) -> u64 {
    match values.get("tunable_scaling") {
        0 => 1,
        _ => 1 + u64::from((host.pcpus.len() as u64).min(8).ilog2()),
    }
}
