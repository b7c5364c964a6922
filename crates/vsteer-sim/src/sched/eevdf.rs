//! Linux's EEVDF: of the tasks that are owed CPU time, the one with the earliest virtual deadline runs.
//!
//! **Purpose.** Linux's fair class since 6.6; on KVM every vCPU is one of its tasks. It provides shares by
//! weight at every level of the cgroup tree, quotas, no starvation, and waits bounded by the slice.
//!
//! **Idea.** Each task has a virtual time that advances at 1,024/weight of real time while it runs. The
//! weighted average over all tasks in line is the virtual time that an ideal machine would have given to
//! each. A task behind the average is owed CPU time (its lag is >= 0) and is *eligible*. Each task asks for a
//! slice and has a virtual deadline: the time at which it would have the slice at its fair rate. Of the
//! eligible tasks, the one with the earliest deadline runs. A task that goes to sleep keeps its lag (up to
//! two slices), so it neither gains nor loses by sleeping. A task that had too much stays in line while
//! asleep, until that is made up (delayed dequeue). A running task keeps its pCPU until its slice is used or
//! it is ahead of the average (`RUN_TO_PARITY`).
//!
//! **What follows from this**: slices end only at ticks, so at 250 Hz a nominal slice of 2.8 ms lasts 4 ms. A
//! task that wakes runs at once only if the current task is ahead of the average or has used its slice.
//! Otherwise it waits up to a slice longer. A task that is chosen again at the end of its slice is no longer
//! protected and continues only while it is owed time. A VM's weight counts once for any number of vCPUs.
//!
//! **Parameters**: [`Earliest::ABOUT`]; the defaults are the source's.
//!
//! **Modelled**: lag, eligibility, virtual deadlines, slice scaled by the number of CPUs, placement with lag,
//! `PLACE_DEADLINE_INITIAL`, `PLACE_REL_DEADLINE`, `DELAY_DEQUEUE` with `DELAY_ZERO`, `RUN_TO_PARITY` (a
//! change of weight ends the protection, as in the source), the end of an unprotected task's right to run
//! (`PREEMPT_SHORT`), preferring the group of a task that went to sleep (`PICK_BUDDY`), wake-up preemption,
//! slices checked at ticks (computed, not simulated: see `charge`), the cgroup tree with a line per group and
//! pCPU, shares of groups that run on several pCPUs by decaying load averages (`fair/share.rs`), quotas at
//! every level with slices taken from the group's pool, throttling and refill at periods, nice levels, the
//! real-time classes above with the fair server ([`super::linux`]), wake-up placement (previous pCPU, idle
//! core, idle sibling in the last-level cache), pulling by a pCPU that becomes idle, periodic balancing.
//!
//! **Not modelled**
//! - `GAP(eevdf-load)`: balancing uses the runnable tasks of this moment, not load. So there is no
//!   `wake_affine` between waker and wakee, no misfit, no asymmetric capacity, no NUMA balancing. The search
//!   for an idle pCPU is never cut short (`SIS_UTIL`). Load averages continue while a group is throttled. The
//!   loads of an idle pCPU are not updated while no task waits anywhere.
//! - `GAP(eevdf-balance)`: one pass per balancing interval over all pCPUs in order. The kernel's passes run
//!   per domain, depend on costs and failures, and move tasks by load. Moving one more task so that surplus
//!   tasks take turns is not modelled.
//! - `GAP(eevdf-slack)`: unused quota returns to the pool when a line empties. The timer that gives it to
//!   throttled siblings before the period ends is not modelled.
//! - `GAP(eevdf-slots)`: a group keeps lines for twice as many pCPUs as it has vCPUs. A line reused for
//!   another pCPU forgets its lag and its load.
//! - `GAP(eevdf-rt)`: real-time limits per cgroup (`RT_GROUP_SCHED`, off in distributions) are not modelled,
//!   nor the deadline class. An idle task does not make way for others at once. If a real-time task could go
//!   to several pCPUs, it takes the nearest with the lowest number; the kernel takes them in turn.
//! - `GAP(eevdf-6.17)`: of the changes after 6.12, throttling of each task as it returns to its guest (6.18)
//!   is modelled only with `flat`. Custom slices are not modelled, so all slices are equal except those that
//!   groups keep (below). So a protection until the shortest slice in line (6.17) ends at the deadline.
//! - `GAP(eevdf-flat)`: where 7.3's single line of tasks is simulated (`flat`, `hrtick`), a failed wake-up
//!   preemption does not shorten the protection, and of `cgroup_mode` only `concur` exists. Without `flat`,
//!   `hrtick` is a timer that never fails.
//! - `GAP(eevdf-levels)`: every event charges all levels of the running task. The source charges the levels
//!   that the event affects, and the others at the next tick.
//! - `GAP(eevdf-phase)`: the ticks of all pCPUs coincide, on multiples of their period. So do the periods of
//!   quotas, unless a setup gives their start or `quota_phases` draws it at random.
//!
//! **After 6.12** (`places_anew`, `held_at_ticks`): the weight of a group changes at every tick, so the
//! effect of a change on its virtual time matters. In 6.12.117 (and again in 7.0) the average of the line
//! stays, and the entity's distance from it is scaled. From 6.13 to 6.19 the entity is placed again, like one
//! that enters. If it is the running one, it is already part of the average. Then its distance grows by up to
//! a half each time. If it is owed time and weighs more than all others together, each new weight adds as
//! much to its claim as it received since the last one. So it keeps the pCPU while its weight keeps changing,
//! for hundreds of ms. Since 6.17 an unprotected entity is compared with the others at every tick. A new
//! weight ends the protection, as before.
//!
//! **A base slice that is set while VMs run** (`kept_slice_us`): a task uses the new slice from its next
//! deadline on. A group's entity uses it only after a task below it wakes or goes to sleep. A VM whose vCPUs
//! never sleep keeps the old slice. So a longer slice does not lengthen the waits of a task that waits only
//! for such VMs. This holds from 6.12 to 7.2. On 6.16 with 6 ms instead of 1.4 ms, the recorded p99 of
//! wake-ups stayed at 4.2 ms, while a simulation without this gave 9.9 ms.
//!
//! **Sources**: kernel/sched/fair.c and features.h of Linux 6.12.117 (Debian's linux-source-6.12
//! 6.12.117-1~deb12u1; names follow them); Stoica and Abdel-Wahab, "Earliest Eligible Virtual Deadline
//! First", TR-95-22, 1995. Written from memory first, then compared with that source function by function.
//! Read, not copied. The changes after 6.12: mainline commits 6d71a9c61604 (6.13) and 101f3498b4bd (7.0,
//! which reverts it and says why), and the layout of `struct sched_entity` in a running 6.18.44; from memory
//! of them, not compared with that source.

use super::super::policy::{About, Conserving, Parameter, Values};
use super::fair::{Entity, Lines, MS, NONE, Rules, US, next_tick, parameters, scaling};
use super::linux::Linux;
use crate::setup::Host;

mod place;
#[cfg(test)]
mod tests;

/// Linux's scheduler since 6.6.
pub type Eevdf = Linux<Earliest>;

/// The rules of its fair class.
#[derive(Debug)]
pub struct Earliest {
    slice_ns: i64,
    /// The slice of groups before it was set; 0 if it was never set.
    kept_ns: i64,
    tick_ns: i64,
    /// From 6.13 to 6.19: an entity whose weight changes is placed again.
    places_anew: bool,
    /// In 6.18 (44): a change of weight does not end the protection.
    carries_protection: bool,
    /// Since 6.17: an unprotected entity is compared with the others at every tick.
    held_at_ticks: bool,
    /// One line of all tasks per pCPU, and the other decisions of 7.3.
    flat: bool,
    hrtick: bool,
}

impl Rules for Earliest {
    const ABOUT: About = About {
        name: "eevdf",
        doc: "Linux's fair class since 6.6: earliest eligible virtual deadline first, cgroup weights and \
            quotas",
        source: "kernel/sched/fair.c, Linux 6.12.117",
        parameters: &[
            Parameter {
                name: "base_slice_us",
                doc: "base slice of a task, before scaling by the number of CPUs (750 in Linux 6.6)",
                unit: "us",
                default: 700,
                min: 100,
                max: 100_000,
            },
            Parameter {
                name: "kept_slice_us",
                doc: "slice of groups that were runnable before the base slice changed; 0: it did not change",
                unit: "us",
                default: 0,
                min: 0,
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
                name: "places_anew",
                doc: "a task whose weight changes is placed again (1, Linux 6.13 to 6.19), or its lag is \
                    scaled (0)",
                unit: "flag",
                default: 0,
                min: 0,
                max: 1,
            },
            Parameter {
                name: "carries_protection",
                doc: "a task placed again for its weight stays protected (1, Linux 6.18.44) or not (0)",
                unit: "flag",
                default: 0,
                min: 0,
                max: 1,
            },
            Parameter {
                name: "held_at_ticks",
                doc: "an unprotected task is compared with the others at every tick (1, since Linux 6.17) \
                    or runs while it is owed time (0)",
                unit: "flag",
                default: 0,
                min: 0,
                max: 1,
            },
            Parameter {
                name: "hrtick",
                doc: "slices end by a timer (1, the default since Linux 7.3) or at ticks (0)",
                unit: "flag",
                default: 0,
                min: 0,
                max: 1,
            },
            Parameter {
                name: "flat",
                doc: "tasks of all groups share one queue (1, Linux 7.3: fair/flat.rs) or groups compete \
                    as a whole (0)",
                unit: "flag",
                default: 0,
                min: 0,
                max: 1,
            },
            parameters::HZ,
            parameters::BANDWIDTH_SLICE,
            parameters::QUOTA_PHASES,
            parameters::BALANCE,
            parameters::RR_TIMESLICE,
            Parameter {
                name: "fair_server_runtime_us",
                doc: "time that the fair class gets of each period if real-time tasks leave none; 0: none",
                unit: "us",
                default: 50_000,
                min: 0,
                max: 1_000_000,
            },
            Parameter {
                name: "fair_server_period_us",
                doc: "period of the fair class's minimum",
                unit: "us",
                default: 1_000_000,
                min: 1000,
                max: 4_000_000,
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
            "eevdf-load: balancing counts runnable tasks; no wake_affine, no NUMA balancing, no SIS_UTIL; \
                load of throttled tasks still counts",
            "eevdf-balance: one pass over all pCPUs per interval; a surplus task stays on its pCPU",
            "eevdf-slack: unused quota reaches throttled siblings at the next period",
            "eevdf-slots: a queue reused for another pCPU starts without lag and load",
            "eevdf-rt: no RT_GROUP_SCHED; SCHED_IDLE differs only in weight; of equally good pCPUs, the nearest is taken",
            "eevdf-6.17: throttling as in 6.12, except in flat mode; no custom slices",
            "eevdf-flat: in flat mode (one queue), failed preemptions do not shorten protection; only \
                cgroup_mode=concur is simulated",
            "eevdf-levels: every event charges all levels of the running task",
            "eevdf-phase: ticks of all pCPUs coincide, and so do periods of quotas that nothing sets off",
        ],
    };

    const FAIR_SERVER: bool = true;
    const TELL_EVERY_NS: i64 = MS as i64;
    const EMPTY_KEEPS_WEIGHT: bool = true;

    fn new(host: &Host, values: &Values) -> Earliest {
        let factor = scaling(host, values);
        Earliest {
            slice_ns: (values.get("base_slice_us") * US * factor) as i64,
            kept_ns: (values.get("kept_slice_us") * US) as i64,
            tick_ns: (1_000_000_000 / values.get("hz")) as i64,
            places_anew: values.get("places_anew") == 1,
            carries_protection: values.get("carries_protection") == 1,
            held_at_ticks: values.get("held_at_ticks") == 1,
            flat: values.get("flat") == 1,
            hrtick: values.get("hrtick") == 1,
        }
    }

    /// A group asks for the smallest slice of the entities in its line. It keeps this slice until one of them
    /// wakes or goes to sleep, even if the base slice changes (`se->slice` in `enqueue_task_fair` and
    /// `dequeue_entities`).
    fn told(l: &mut Lines<Earliest>, e: u32, now_ns: i64) {
        l.entities[e as usize].kept_ns = if now_ns == 0 { l.rules.kept_ns } else { 0 };
    }

    fn enter(l: &mut Lines<Earliest>, line: u32, e: u32) {
        l.place(line, e);
        l.link(line, e);
    }

    fn leave(l: &mut Lines<Earliest>, e: u32, sleep: bool) {
        let lag = l.bounded_lag(e);
        let entity = &mut l.entities[e as usize];
        entity.vlag = lag;
        if !sleep {
            entity.deadline -= entity.vruntime;
            entity.relative = true;
        }
        l.unlink(e);
    }

    fn stays(l: &Lines<Earliest>, e: u32) -> bool {
        !l.eligible(e)
    }

    fn delay(l: &mut Lines<Earliest>, e: u32) {
        let lag = l.bounded_lag(e);
        let entity = &mut l.entities[e as usize];
        (entity.delayed, entity.protected, entity.vlag) = (true, false, lag);
    }

    fn leave_delayed(l: &mut Lines<Earliest>, e: u32) {
        let lag = l.lag_asleep(e);
        let entity = &mut l.entities[e as usize];
        entity.vlag = lag;
        entity.delayed = false;
        l.unlink(e);
    }

    /// As if it had never slept, except that it loses the time that it was owed.
    fn undelay(l: &mut Lines<Earliest>, e: u32) {
        let lag = l.lag_asleep(e);
        l.entities[e as usize].delayed = false;
        if l.bounded_lag(e) != lag {
            let line = l.entities[e as usize].line;
            l.unlink(e);
            l.entities[e as usize].vlag = lag;
            l.place(line, e);
            l.link(line, e);
        }
    }

    fn reweigh(l: &mut Lines<Earliest>, e: u32, scaled: i64) {
        l.reweigh(e, scaled);
    }

    /// True if others are in line and either its slice is used, or it is no longer protected and (until 6.15)
    /// ahead of the average.
    ///
    /// The source renews deadlines at ticks. While the entity was alone in line, those ticks were not events.
    /// This function makes up for them: from the first tick after the deadline, at regular ticks.
    fn charge(l: &mut Lines<Earliest>, e: u32, from_ns: i64, ns: i64) -> bool {
        let (slice_ns, tick_ns) = (l.asks_ns(e), l.rules.tick_ns);
        let now_ns = from_ns + ns;
        let entity = &mut l.entities[e as usize];
        let before = entity.vruntime;
        let at = |entity: &Entity, t: i64| before + entity.virtual_of(t - from_ns);
        let vslice = entity.virtual_of(slice_ns);
        let mut renewed = false;
        let past_ns = from_ns + entity.real_of(entity.deadline - before).max(0);
        let first_tick_ns = next_tick(past_ns.max(from_ns + 1), tick_ns);
        if first_tick_ns <= now_ns {
            let every_ns = entity.real_of(vslice).max(1);
            let every_ns = (every_ns + tick_ns - 1) / tick_ns * tick_ns;
            let last_ns = first_tick_ns + (now_ns - first_tick_ns) / every_ns * every_ns;
            entity.deadline = at(entity, last_ns) + vslice;
            renewed = true;
        }
        let grown = entity.virtual_of(ns);
        entity.vruntime += grown;
        if entity.vruntime >= entity.deadline {
            entity.deadline = entity.vruntime + vslice;
            renewed = true;
        }
        if renewed {
            entity.protected = false;
        }
        let (line, weight) = (entity.line, entity.weight);
        let in_line = &mut l.lines[line as usize];
        in_line.sum += i128::from(weight) * i128::from(grown);
        let ends =
            |l: &Lines<Earliest>| !l.entities[e as usize].protected && (l.rules.later() || !l.eligible(e));
        in_line.queued > 1 && (renewed || ends(l))
    }

    fn flat(&self) -> bool {
        self.flat
    }

    fn exact(&self) -> bool {
        self.hrtick
    }

    fn picked(l: &mut Lines<Earliest>, e: u32) {
        l.entities[e as usize].protected = true;
    }

    fn pick(l: &Lines<Earliest>, line: u32) -> u32 {
        match l.lines[line as usize].next {
            NONE => l.best(line),
            next if l.eligible(next) => next,
            _ => l.best(line),
        }
    }

    /// Ends the protection of `old` if `new` asks for less and either would be served earlier or is owed time
    /// while `old` is not (`PREEMPT_SHORT`).
    fn preempts(l: &mut Lines<Earliest>, old: u32, new: u32) -> bool {
        let (o, n) = (&l.entities[old as usize], &l.entities[new as usize]);
        let sooner = n.deadline < o.deadline || !l.eligible(old);
        if l.asks_ns(new) < l.asks_ns(old) && l.eligible(new) && sooner {
            l.entities[old as usize].protected = false;
        }
        l.best(l.entities[old as usize].line) == new
    }

    fn slice_ns(l: &Lines<Earliest>, e: u32, _running: u32) -> i64 {
        let entity = &l.entities[e as usize];
        let used_ns = entity.real_of(entity.deadline - entity.vruntime);
        match entity.protected {
            true => used_ns,
            // When another entity joins, its timer is set to the end of its slice. Every tick also checks,
            // see `slice`.
            false if l.rules.flat => used_ns,
            // The next tick checks.
            false if l.rules.held_at_ticks => 1,
            false => used_ns.min(l.eligible_for_ns(e)),
        }
    }

    fn forfeit(l: &mut Lines<Earliest>, e: u32) {
        if !l.eligible(e) {
            return;
        }
        let slice_ns = l.asks_ns(e);
        let entity = &mut l.entities[e as usize];
        let skipped = entity.deadline - entity.vruntime;
        entity.vruntime = entity.deadline;
        entity.deadline += entity.virtual_of(slice_ns);
        entity.protected = false;
        let (line, weight) = (entity.line, entity.weight);
        l.lines[line as usize].sum += i128::from(weight) * i128::from(skipped);
    }
}

impl Earliest {
    /// True for the decisions of kernels since 6.17, where no other parameter decides.
    fn later(&self) -> bool {
        self.held_at_ticks || self.flat
    }
}

impl Lines<Earliest> {
    /// The slice that `e` asks for, in CPU time.
    fn asks_ns(&self, e: u32) -> i64 {
        match self.entities[e as usize].kept_ns {
            0 => self.rules.slice_ns,
            kept_ns => kept_ns,
        }
    }

    /// How far `e` is behind the average of its line, rounded down.
    fn lag(&self, e: u32) -> i64 {
        let entity = &self.entities[e as usize];
        let line = &self.lines[entity.line as usize];
        let behind = line.sum - i128::from(entity.vruntime) * i128::from(line.weight);
        behind.div_euclid(i128::from(line.weight)) as i64
    }

    fn average(&self, line: u32) -> i64 {
        let line = &self.lines[line as usize];
        if line.weight == 0 { line.floor } else { line.sum.div_euclid(i128::from(line.weight)) as i64 }
    }

    /// Is it owed time, or exactly even?
    fn eligible(&self, e: u32) -> bool {
        let entity = &self.entities[e as usize];
        let line = &self.lines[entity.line as usize];
        line.sum >= i128::from(entity.vruntime) * i128::from(line.weight)
    }

    /// Lag, limited to what an entity may keep: two slices or a tick; in later kernels, a slice and a tick.
    fn bounded_lag(&self, e: u32) -> i64 {
        let entity = &self.entities[e as usize];
        let (slice_ns, tick_ns) = (self.asks_ns(e), self.rules.tick_ns);
        let most_ns = if self.rules.later() { slice_ns + tick_ns } else { (2 * slice_ns).max(tick_ns) };
        let limit = entity.virtual_of(most_ns);
        self.lag(e).clamp(-limit, limit)
    }

    /// The lag of an entity that sleeps in line. Any time that it is owed is lost (`DELAY_ZERO`). In 7.3 its
    /// debt does not grow while it sleeps, whichever entities join.
    fn lag_asleep(&self, e: u32) -> i64 {
        let now = self.bounded_lag(e).min(0);
        if self.rules.flat { now.max(self.entities[e as usize].vlag.min(0)) } else { now }
    }

    /// Real time after which running `e`, with others in line, is ahead of the average and loses its right to
    /// continue.
    fn eligible_for_ns(&self, e: u32) -> i64 {
        let entity = &self.entities[e as usize];
        let line = &self.lines[entity.line as usize];
        let (others, lead) = (
            i128::from(line.weight - entity.weight),
            line.sum - i128::from(entity.vruntime) * i128::from(line.weight),
        );
        // Its own running also moves the average, by its part of the weight.
        entity.real_of((lead.max(-1).div_euclid(others) + 1) as i64)
    }

    /// The entity that the line would run: a protected one (`RUN_TO_PARITY`), otherwise the eligible one with
    /// the earliest deadline.
    fn best(&self, line: u32) -> u32 {
        let l = &self.lines[line as usize];
        if l.queued <= 1 {
            return l.head;
        }
        if l.current != NONE {
            let current = &self.entities[l.current as usize];
            if current.queued && current.protected && self.eligible(l.current) {
                return l.current;
            }
        }
        let mut best = NONE;
        let mut e = l.head;
        while e != NONE {
            let entity = &self.entities[e as usize];
            let earlier = best == NONE || entity.deadline < self.entities[best as usize].deadline;
            if earlier && e != l.current && self.eligible(e) {
                best = e;
            }
            e = entity.next;
        }
        // With equal deadlines the waiting one goes first.
        if l.current != NONE {
            let current = &self.entities[l.current as usize];
            let earlier = best == NONE || current.deadline < self.entities[best as usize].deadline;
            if current.queued && earlier && self.eligible(l.current) {
                best = l.current;
            }
        }
        assert!(best != NONE, "nobody in line {line} is eligible: the average is wrong");
        best
    }
}
