//! Linux's CFS: the scheduler keeps the virtual times of all tasks equal.
//!
//! **Purpose.** Linux's fair class from 2.6.23 to 6.5. So most KVM hosts used it for fifteen years (for
//! example Debian 12 with 6.1). It provides shares by weight at every level of the cgroup tree, quotas, and
//! short waits for tasks that sleep much.
//!
//! **Idea.** A running task's virtual time advances at 1,024/weight of real time. The task with the least
//! virtual time runs next (the leftmost of the tree). It keeps its pCPU for its part of a period of
//! `latency_us`, which grows when more than eight tasks are awake. A task that wakes gets a virtual time at
//! most half a period behind the least one of its line. It cannot save more by sleeping, but this is enough
//! to preempt almost any task. It preempts if it is behind the running one by more than the wake-up
//! granularity.
//!
//! **What follows from this**: a task that sleeps regularly runs at once when it wakes, unlike under EEVDF.
//! At each wake-up it may run ahead of its share by half a period. Tasks that never sleep alternate at the
//! tick after their slice: two on one pCPU of a large machine (24 ms latency) each get 12 ms and one tick.
//!
//! **Parameters**: below; the defaults are the source's.
//!
//! **Modelled**: virtual time and the least one of each line, slices by period and weight at all levels
//! (`ALT_PERIOD`, `BASE_SLICE`), ticks and their checks, placement of new tasks (`START_DEBIT`) and of
//! sleepers (`GENTLE_FAIR_SLEEPERS`), wake-up preemption with its granularity by weight, the buddies `next`,
//! `last` and `skip`, moving between lines with the distance to the least kept. As for EEVDF: the cgroup tree
//! with a line per group and pCPU, shares of groups that run on several pCPUs by decaying load averages,
//! quotas at every level, nice levels, the real-time classes above with their throttling ([`super::linux`]),
//! placement, pulling, balancing.
//!
//! **Not modelled**
//! - `GAP(cfs-load)`: balancing uses the runnable tasks of this moment, not load. So there is no
//!   `wake_affine` between waker and wakee, no misfit, no asymmetric capacity, no NUMA balancing. The search
//!   for an idle pCPU is never cut short (`SIS_UTIL`). Load averages continue while a group is throttled. The
//!   loads of an idle pCPU are not updated while no task waits anywhere.
//! - `GAP(cfs-balance)`: one pass per balancing interval over all pCPUs in order. The kernel's passes run per
//!   domain, depend on costs and failures, and move tasks by load. Moving one more task so that surplus tasks
//!   take turns is not modelled.
//! - `GAP(cfs-slack)`: unused quota returns to the pool when a line empties. The timer that gives it to
//!   throttled siblings before the period ends is not modelled.
//! - `GAP(cfs-slots)`: a group keeps lines for twice as many pCPUs as it has vCPUs. A line reused for another
//!   pCPU keeps the virtual times of the former one, and forgets its load.
//! - `GAP(cfs-rt)`: real-time limits per cgroup (`RT_GROUP_SCHED`, off in distributions) are not modelled,
//!   nor the deadline class. An idle task does not make way for others at once. If a real-time task could go
//!   to several pCPUs, it takes the nearest with the lowest number; the kernel takes them in turn.
//! - `GAP(cfs-levels)`: at every event the simulator charges all levels of the running task. The kernel
//!   charges the levels that the event affects, and the others at the next tick.
//! - `GAP(cfs-phase)`: the ticks of all pCPUs coincide, on multiples of their period. So do the periods of
//!   quotas, which the kernel starts at random offsets.
//!
//! **Sources**: kernel/sched/fair.c and features.h of Linux 6.1.192 (Debian's linux-source-6.1 6.1.192-2;
//! names follow them). Read, not copied.

use super::super::policy::{About, Conserving, Parameter, Values};
use super::fair::{Line, Lines, MS, NONE, Rules, US, parameters, scaling};
use super::linux::Linux;
use crate::setup::Host;

/// Linux's scheduler until 6.5.
pub type Cfs = Linux<Fairest>;

/// The rules of its fair class.
#[derive(Debug)]
pub struct Fairest {
    latency_ns: i64,
    min_granularity_ns: i64,
    wakeup_granularity_ns: i64,
}

/// The number of tasks above which a period grows (`sched_nr_latency`).
const NR_LATENCY: u32 = 8;

impl Rules for Fairest {
    const ABOUT: About = About {
        name: "cfs",
        doc: "Linux's fair class until 6.5: least virtual time first, cgroup weights and quotas",
        source: "kernel/sched/fair.c, Linux 6.1.192",
        parameters: &[
            Parameter {
                name: "latency_us",
                doc: "period in which every runnable task runs once, before scaling by the number of CPUs",
                unit: "us",
                default: 6000,
                min: 100,
                max: 1_000_000,
            },
            Parameter {
                name: "min_granularity_us",
                doc: "least slice, scaled the same way; with more than 8 runnable tasks, the period is \
                    this per task",
                unit: "us",
                default: 750,
                min: 100,
                max: 100_000,
            },
            Parameter {
                name: "wakeup_granularity_us",
                doc: "how far the running task must be ahead for a woken task to preempt it, scaled the \
                    same way",
                unit: "us",
                default: 1000,
                min: 0,
                max: 100_000,
            },
            Parameter {
                name: "tunable_scaling",
                doc: "scale these three by 1 + log2 of the CPUs, at most 8 (1), or not (0)",
                unit: "flag",
                default: 1,
                min: 0,
                max: 1,
            },
            parameters::HZ,
            parameters::BANDWIDTH_SLICE,
            parameters::QUOTA_PHASES,
            parameters::BALANCE,
            parameters::RR_TIMESLICE,
            Parameter {
                name: "sched_rt_runtime_us",
                doc: "time that real-time tasks may use of each period on a pCPU; the period or more: all \
                    of it",
                unit: "us",
                default: 950_000,
                min: 1,
                max: 10_000_000,
            },
            Parameter {
                name: "sched_rt_period_us",
                doc: "period of the real-time limit",
                unit: "us",
                default: 1_000_000,
                min: 1000,
                max: 10_000_000,
            },
        ],
        default_weight: 100,
        weights: (1, 10_000),
        proportional: true,
        // If a task waits in another last-level cache than that of an idle pCPU, only the next balancing
        // finds it.
        conserving: Conserving::Within(20 * MS),
        caps: false,
        quotas: true,
        classes: true,
        reservations: false,
        warps: false,
        soft_affinities: false,
        gaps: &[
            "cfs-load: balancing counts runnable tasks; no wake_affine, no NUMA balancing, no SIS_UTIL; \
                load of throttled tasks still counts",
            "cfs-balance: one pass over all pCPUs per interval; a surplus task stays on its pCPU",
            "cfs-slack: unused quota reaches throttled siblings at the next period",
            "cfs-slots: a queue reused for another pCPU keeps the former virtual times, not the load",
            "cfs-rt: no RT_GROUP_SCHED; SCHED_IDLE differs only in weight; of equally good pCPUs, the nearest is taken",
            "cfs-levels: the simulator charges all levels of the running task at every event",
            "cfs-phase: ticks of all pCPUs coincide, and so do periods of quotas",
        ],
    };
    const FAIR_SERVER: bool = false;
    const SLICES_VARY: bool = true;
    const BUDDIES: bool = true;
    const TELL_EVERY_NS: i64 = 0;
    const EMPTY_KEEPS_WEIGHT: bool = false;

    fn new(host: &Host, values: &Values) -> Fairest {
        let scaled = |name| (values.get(name) * US * scaling(host, values)) as i64;
        Fairest {
            latency_ns: scaled("latency_us"),
            min_granularity_ns: scaled("min_granularity_us"),
            wakeup_granularity_ns: scaled("wakeup_granularity_us"),
        }
    }

    fn enter(l: &mut Lines<Fairest>, line: u32, e: u32) {
        let least = l.lines[line as usize].floor;
        let before = l.entities[e as usize].line;
        let came_from = l.lines.get(before as usize).map_or(0, |before| before.floor);
        let entity = &mut l.entities[e as usize];
        if entity.relative {
            // A move to another line changes nothing about its lead.
            entity.relative = false;
            entity.vruntime += least;
            l.link(line, e);
            return;
        }
        if entity.fresh {
            // The current period belongs to the tasks in line, so a new task starts as if it had used its
            // slice of that period.
            entity.vruntime = least;
            l.link(line, e);
            let slice_ns = l.slice(e, 1);
            l.shift(e, slice_ns);
            return;
        }
        if before != line {
            entity.vruntime += least - came_from;
        }
        entity.vruntime = entity.vruntime.max(least - l.rules.latency_ns / 2);
        l.link(line, e);
    }

    fn leave(l: &mut Lines<Fairest>, e: u32, sleep: bool) {
        let line = l.entities[e as usize].line;
        let least = l.lines[line as usize].floor;
        l.unlink(e);
        l.lines[line as usize].floor = least;
        if !sleep {
            let entity = &mut l.entities[e as usize];
            entity.vruntime -= least;
            entity.relative = true;
        }
        l.advance(line);
    }

    fn reweigh(l: &mut Lines<Fairest>, e: u32, scaled: i64) {
        let before = l.entities[e as usize].weight;
        l.set_weight(e, scaled);
        let entity = &l.entities[e as usize];
        let more = entity.weight - before;
        if entity.queued {
            let line = &mut l.lines[entity.line as usize];
            line.weight += more;
            line.sum += i128::from(more) * i128::from(entity.vruntime);
        }
    }

    fn charge(l: &mut Lines<Fairest>, e: u32, _from_ns: i64, ns: i64) -> bool {
        l.entities[e as usize].ran_ns += ns;
        l.shift(e, ns);
        l.advance(l.entities[e as usize].line);
        false
    }

    fn tick(l: &mut Lines<Fairest>, e: u32, running: u32) -> bool {
        let ideal_ns = l.slice(e, running);
        let entity = &l.entities[e as usize];
        if entity.ran_ns > ideal_ns {
            return true;
        }
        // A task that just failed to preempt need not wait for the whole slice. As in the source, this
        // compares virtual time with real time.
        let first = l.leftmost(entity.line);
        entity.ran_ns >= l.rules.min_granularity_ns
            && first != NONE
            && entity.vruntime - l.entities[first as usize].vruntime > ideal_ns
    }

    fn picked(l: &mut Lines<Fairest>, e: u32) {
        l.entities[e as usize].ran_ns = 0;
    }

    fn pick(l: &Lines<Fairest>, line: u32) -> u32 {
        let Line { current, next, last, skip, .. } = l.lines[line as usize];
        let before = |a: u32, b: u32| l.entities[a as usize].vruntime < l.entities[b as usize].vruntime;
        let current = if current != NONE && l.entities[current as usize].queued { current } else { NONE };
        let first = l.leftmost(line);
        let left = match first {
            NONE => current,
            _ if current != NONE && before(current, first) => current,
            _ => first,
        };
        if left == NONE {
            return NONE;
        }
        let fair = |buddy: u32| buddy != NONE && l.ahead(buddy, left) < 1;
        if fair(next) {
            return next;
        }
        if fair(last) {
            return last;
        }
        if skip == left {
            let second = if skip == current { first } else { l.second(line, left, current) };
            if fair(second) {
                return second;
            }
        }
        left
    }

    fn preempts(l: &mut Lines<Fairest>, old: u32, new: u32) -> bool {
        l.ahead(old, new) == 1
    }

    fn slice_ns(l: &Lines<Fairest>, e: u32, running: u32) -> i64 {
        let ideal_ns = l.slice(e, running);
        let entity = &l.entities[e as usize];
        let used_ns = ideal_ns + 1 - entity.ran_ns;
        let first = l.leftmost(entity.line);
        if first == NONE {
            return used_ns;
        }
        let lead = ideal_ns + 1 + l.entities[first as usize].vruntime - entity.vruntime;
        used_ns.min(entity.real_of(lead).max(l.rules.min_granularity_ns - entity.ran_ns))
    }

    fn forfeit(l: &mut Lines<Fairest>, e: u32) {
        let mut e = e;
        while e != NONE {
            let line = l.entities[e as usize].line as usize;
            l.lines[line].skip = e;
            e = l.lines[line].owner;
        }
    }

    fn crowded(l: &Lines<Fairest>, line: u32) -> bool {
        l.lines[line as usize].queued >= NR_LATENCY
    }
}

impl Lines<Fairest> {
    /// `e`'s part of a period with `running` tasks awake on its pCPU, by weight at every level.
    fn slice(&self, e: u32, running: u32) -> i64 {
        let period_ns = if running > NR_LATENCY {
            i64::from(running) * self.rules.min_granularity_ns
        } else {
            self.rules.latency_ns
        };
        let mut slice_ns = period_ns;
        let mut at = e;
        while at != NONE {
            let entity = &self.entities[at as usize];
            let line = &self.lines[entity.line as usize];
            // An entity that is not in the line yet counts as if it were.
            let all = line.weight + if entity.queued { 0 } else { entity.weight };
            slice_ns = (i128::from(slice_ns) * i128::from(entity.weight) / i128::from(all.max(1))) as i64;
            at = line.owner;
        }
        slice_ns.max(self.rules.min_granularity_ns)
    }

    /// Advances `e`, which is in a line, by `ns` of CPU time.
    fn shift(&mut self, e: u32, ns: i64) {
        let entity = &mut self.entities[e as usize];
        let grown = entity.virtual_of(ns);
        entity.vruntime += grown;
        self.lines[entity.line as usize].sum += i128::from(entity.weight) * i128::from(grown);
    }

    /// The waiting entity with the least virtual time; of equal ones, the one that waits longest.
    fn leftmost(&self, line: u32) -> u32 {
        self.second(line, NONE, NONE)
    }

    /// The entity with the least virtual time except `first`. `current` counts as a waiting one only if it
    /// has the least.
    fn second(&self, line: u32, first: u32, current: u32) -> u32 {
        let l = &self.lines[line as usize];
        let mut least = NONE;
        let mut e = l.head;
        while e != NONE {
            let entity = &self.entities[e as usize];
            let less = least == NONE || entity.vruntime < self.entities[least as usize].vruntime;
            if less && e != l.current && e != first {
                least = e;
            }
            e = entity.next;
        }
        let of = |e: u32| self.entities[e as usize].vruntime;
        if current != NONE && (least == NONE || of(current) < of(least)) { current } else { least }
    }

    /// Advances the least virtual time of a line (`update_min_vruntime`).
    fn advance(&mut self, line: u32) {
        let l = &self.lines[line as usize];
        let mut least = i64::MAX;
        let mut e = l.head;
        while e != NONE {
            let entity = &self.entities[e as usize];
            least = least.min(entity.vruntime);
            e = entity.next;
        }
        let l = &mut self.lines[line as usize];
        if l.queued > 0 {
            l.floor = l.floor.max(least);
        }
    }

    /// Compares virtual times (`wakeup_preempt_entity`): 1 if `a` is ahead of `b` by more than the wake-up
    /// granularity (in `b`'s virtual time), 0 if it is ahead by less, -1 if it is not ahead.
    fn ahead(&self, a: u32, b: u32) -> i32 {
        let (a, b) = (&self.entities[a as usize], &self.entities[b as usize]);
        match a.vruntime - b.vruntime {
            ahead if ahead <= 0 => -1,
            ahead => i32::from(ahead > b.virtual_of(self.rules.wakeup_granularity_ns)),
        }
    }
}
