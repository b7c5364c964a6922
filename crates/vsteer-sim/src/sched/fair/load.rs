//! The load of every entity and line: the sums, and how the load of one entity enters and leaves them.
//!
//! A task takes its load along. If it wakes on another pCPU, the old line removes the load at its next
//! update. If it is moved while it waits, the old line removes the load at once. The line passes such a
//! change on to the group's entity in the line above (`propagate`), one level at each update.
//!
//! Source: kernel/sched/fair.c of Linux 6.12.117 and 6.1.192 (`attach_entity_load_avg`, `update_tg_cfs_load`
//! and others, named below). Read, not copied.

use super::NONE;
use super::average::{Average, LEAST_DIVIDER, WHOLE};

/// The load of a task, or of a group on one pCPU.
#[derive(Debug, Clone, Default)]
pub(super) struct Own {
    pub(super) average: Average,
    /// Is its load part of its line's load?
    pub(super) attached: bool,
}

/// The load of a line.
#[derive(Debug, Clone)]
pub(super) struct Below {
    pub(super) average: Average,
    /// Tasks that woke on another pCPU and must be removed: their number, and their loads.
    pub(super) left: u32,
    pub(super) left_load: i64,
    pub(super) left_util: i64,
    pub(super) left_runnable: i64,
    /// Is there a change to pass on to the entity that represents the line? And how much of `load_sum`,
    /// without weight?
    pub(super) passes_on: bool,
    pub(super) passed_sum: i64,
    /// Last values reported to the group (load, and number of runnable entities in 1/1,024), and when.
    pub(super) told: i64,
    pub(super) told_runnable: i64,
    pub(super) told_ns: i64,
    /// Neighbours in the list of lines with load, of its pCPU and depth.
    pub(super) next: u32,
    pub(super) prev: u32,
    pub(super) listed: bool,
    /// The time at which its clock stopped (the line is throttled and empty), and the sum of earlier stops.
    stopped_ns: Option<i64>,
    behind_ns: i64,
}

impl Below {
    pub(super) fn new() -> Below {
        Below {
            average: Average::default(),
            left: 0,
            left_load: 0,
            left_util: 0,
            left_runnable: 0,
            passes_on: false,
            passed_sum: 0,
            told: 0,
            told_runnable: 0,
            told_ns: i64::MIN / 2,
            next: NONE,
            prev: NONE,
            listed: false,
            stopped_ns: None,
            behind_ns: 0,
        }
    }

    /// Its clock (`cfs_rq_clock_pelt`).
    pub(super) fn clock_ns(&self, now_ns: i64) -> i64 {
        self.stopped_ns.unwrap_or(now_ns) - self.behind_ns
    }

    pub(super) fn stop_clock(&mut self, now_ns: i64) {
        self.stopped_ns.get_or_insert(now_ns);
    }

    pub(super) fn start_clock(&mut self, now_ns: i64) {
        if let Some(since_ns) = self.stopped_ns.take() {
            self.behind_ns += now_ns - since_ns;
        }
    }

    fn pass_on(&mut self, sum: i64) {
        self.passes_on = true;
        self.passed_sum += sum;
    }
}

/// The loads of a pool.
#[derive(Debug)]
pub(super) struct Loads {
    /// By entity.
    pub(super) own: Vec<Own>,
    /// By line.
    pub(super) below: Vec<Below>,
    /// By group: sum of the values from its lines.
    pub(super) groups: Vec<i64>,
    /// The same for the number of runnable entities.
    pub(super) groups_runnable: Vec<i64>,
    /// The first line of every pCPU and depth that has load.
    pub(super) heads: Vec<u32>,
    pub(super) depths: usize,
    /// When each pCPU's lines were last updated.
    pub(super) looked_ns: Vec<i64>,
}

impl Loads {
    /// `depths`: the number of levels of groups, including the root.
    pub(super) fn new(entities: usize, lines: usize, groups: usize, pcpus: usize, depths: usize) -> Loads {
        Loads {
            own: vec![Own::default(); entities],
            below: vec![Below::new(); lines],
            groups: vec![0; groups],
            groups_runnable: vec![0; groups],
            heads: vec![NONE; pcpus * depths],
            depths,
            looked_ns: vec![0; pcpus],
        }
    }

    pub(super) fn head(&mut self, p: u32, depth: u32) -> &mut u32 {
        &mut self.heads[p as usize * self.depths + depth as usize]
    }

    /// `line` of `p` may have load from now on.
    pub(super) fn list(&mut self, line: u32, p: u32, depth: u32) {
        if std::mem::replace(&mut self.below[line as usize].listed, true) {
            return;
        }
        let next = std::mem::replace(self.head(p, depth), line);
        let below = &mut self.below[line as usize];
        (below.prev, below.next) = (NONE, next);
        if next != NONE {
            self.below[next as usize].prev = line;
        }
    }

    pub(super) fn unlist(&mut self, line: u32, p: u32, depth: u32) {
        let below = &mut self.below[line as usize];
        if !std::mem::take(&mut below.listed) {
            return;
        }
        let (prev, next) = (below.prev, below.next);
        match prev {
            NONE => *self.head(p, depth) = next,
            _ => self.below[prev as usize].next = next,
        }
        if next != NONE {
            self.below[next as usize].prev = prev;
        }
    }

    /// Adds `own`'s load to its line's (`enqueue_load_avg`).
    pub(super) fn add(&mut self, e: u32, line: u32, weight: i64) {
        let (own, line) = (&self.own[e as usize].average, &mut self.below[line as usize].average);
        line.load += own.load;
        line.load_sum += weight * own.load_sum;
    }

    /// Subtracts `own`'s load from its line's (`dequeue_load_avg`).
    pub(super) fn subtract(&mut self, e: u32, line: u32, weight: i64) {
        let (own, line) = (&self.own[e as usize].average, &mut self.below[line as usize].average);
        take_off(&mut line.load, &mut line.load_sum, own.load, weight * own.load_sum);
    }

    /// Makes `e`'s load part of its line's (`attach_entity_load_avg`).
    pub(super) fn attach(&mut self, e: u32, line: u32, weight: i64) {
        let of_line = &self.below[line as usize].average;
        let divider = of_line.divider();
        let own = &mut self.own[e as usize];
        own.attached = true;
        let a = &mut own.average;
        // Both use the same start of periods.
        (a.last_ns, a.part) = (of_line.last_ns, of_line.part);
        a.util_sum = a.util * divider;
        a.runnable_sum = a.runnable * divider;
        let weighted = a.load * divider;
        a.load_sum = if weight < weighted { weighted / weight } else { 1 };
        let (util, util_sum, load_sum) = (a.util, a.util_sum, a.load_sum);
        let (runnable, runnable_sum) = (a.runnable, a.runnable_sum);
        self.add(e, line, weight);
        let below = &mut self.below[line as usize];
        below.average.util += util;
        below.average.util_sum += util_sum;
        below.average.runnable += runnable;
        below.average.runnable_sum += runnable_sum;
        below.pass_on(load_sum);
    }

    /// Removes `e`'s load from its line's (`detach_entity_load_avg`).
    pub(super) fn detach(&mut self, e: u32, line: u32, weight: i64) {
        self.subtract(e, line, weight);
        let own = &mut self.own[e as usize];
        own.attached = false;
        let Average { util, util_sum, load_sum, runnable, runnable_sum, .. } = own.average;
        let below = &mut self.below[line as usize];
        take_off(&mut below.average.runnable, &mut below.average.runnable_sum, runnable, runnable_sum);
        take_off(&mut below.average.util, &mut below.average.util_sum, util, util_sum);
        below.pass_on(-load_sum);
    }

    /// Removes the load of tasks that woke on another pCPU. True if there were any.
    pub(super) fn give_up(&mut self, line: u32) -> bool {
        let below = &mut self.below[line as usize];
        if below.left == 0 {
            return false;
        }
        let a = &mut below.average;
        let divider = a.divider();
        let runnable_sum = below.left_runnable * divider;
        take_off(&mut a.load, &mut a.load_sum, below.left_load, below.left_load * divider);
        take_off(&mut a.util, &mut a.util_sum, below.left_util, below.left_util * divider);
        take_off(&mut a.runnable, &mut a.runnable_sum, below.left_runnable, runnable_sum);
        (below.left, below.left_load, below.left_util, below.left_runnable) = (0, 0, 0, 0);
        below.pass_on(-runnable_sum >> WHOLE.ilog2());
        true
    }

    /// Passes the changes of `below`'s line on to `e`, which represents it in `line` (`update_tg_cfs_util`,
    /// `update_tg_cfs_load`). `weight` is `e`'s weight, `weight_below` the weight of all entities in its own
    /// line.
    pub(super) fn pass_on(&mut self, e: u32, line: u32, below: u32, weight: i64, weight_below: i64) {
        let from = &mut self.below[below as usize];
        from.passes_on = false;
        let passed = std::mem::take(&mut from.passed_sum);
        let Average { util, load_sum, runnable, .. } = from.average;
        let to = &mut self.below[line as usize];
        to.pass_on(passed);
        let divider = to.average.divider();
        let own = &mut self.own[e as usize].average;
        let more = util - own.util;
        if more != 0 {
            let more_sum = util * divider - own.util_sum;
            (own.util, own.util_sum) = (util, util * divider);
            take_off(&mut to.average.util, &mut to.average.util_sum, -more, -more_sum);
        }
        let more = runnable - own.runnable;
        if more != 0 {
            let more_sum = runnable * divider - own.runnable_sum;
            (own.runnable, own.runnable_sum) = (runnable, runnable * divider);
            take_off(&mut to.average.runnable, &mut to.average.runnable_sum, -more, -more_sum);
        }
        if passed == 0 {
            return;
        }
        let sum = if passed > 0 {
            // Assumes that the new tasks never wanted to run at the same time as the others.
            (own.load_sum + passed).min(divider)
        } else {
            // Assumes that all remaining tasks wanted to run equally much.
            let each = if weight_below > 0 { load_sum / weight_below } else { 0 };
            own.load_sum.min(each)
        };
        // It wanted to run at least while it ran.
        let sum = sum.max(own.util_sum >> WHOLE.ilog2());
        let load = weight * sum / divider;
        let more = load - own.load;
        if more == 0 {
            return;
        }
        let more_sum = weight * (sum - own.load_sum);
        (own.load_sum, own.load) = (sum, load);
        take_off(&mut to.average.load, &mut to.average.load_sum, -more, -more_sum);
    }
}

/// Subtracts a part from a whole. Because of rounding, the parts may be larger than the whole.
fn take_off(average: &mut i64, sum: &mut i64, less: i64, less_sum: i64) {
    *average = (*average - less).max(0);
    *sum = (*sum - less_sum).max(*average * LEAST_DIVIDER);
}
