//! The arithmetic of EEVDF: entities in a line, their average virtual time, lag, eligibility, deadlines.
//!
//! A line is what the kernel calls a `cfs_rq`: the entities (tasks, or groups as a whole) that compete at one level on
//! one pCPU, the running one among them. Virtual time runs at 1,024 / weight of real time. The average of all virtual
//! times, weighted, is what an ideally fair machine would have given each: who is behind it has positive lag, is owed,
//! and is *eligible*; of the eligible the one with the earliest virtual deadline runs.
//!
//! The kernel keeps the weighted sum relative to a moving base in 64 bits; here it is absolute in 128, which is the same
//! value without the care. Divisions round as the kernel's do (towards minus infinity for the average).

use super::NONE;

/// Weight of nice 0.
pub(super) const NICE_0: i64 = 1024;

/// A task or a group on one pCPU.
#[derive(Debug, Clone)]
pub(super) struct Entity {
    pub(super) weight: i64,
    pub(super) vruntime: i64,
    pub(super) deadline: i64,
    /// While it is in no line: what it was owed when it left.
    pub(super) vlag: i64,
    next: u32,
    prev: u32,
    /// The line it is in, or was in last.
    pub(super) line: u32,
    pub(super) queued: bool,
    /// It sleeps, and stays in line until what it had too much of is made up (`sched_delayed`).
    pub(super) delayed: bool,
    /// Its deadline is told relative to its virtual time: it is on the move.
    relative: bool,
    /// Protected until its deadline changes (`RUN_TO_PARITY`). As in the source, that is so when its slice is renewed,
    /// and also when its weight is: a group whose share a tick changes may be preempted before its slice is used.
    pub(super) protected: bool,
    /// A task never queued before; a group is taken to be one that was.
    pub(super) fresh: bool,
}

impl Entity {
    pub(super) fn new(weight: i64, fresh: bool) -> Entity {
        Entity {
            weight,
            vruntime: 0,
            deadline: 0,
            vlag: 0,
            next: NONE,
            prev: NONE,
            line: NONE,
            queued: false,
            delayed: false,
            relative: false,
            protected: false,
            fresh,
        }
    }

    /// Virtual time that `ns` of CPU are for it.
    pub(super) fn virtual_of(&self, ns: i64) -> i64 {
        if self.weight == NICE_0 {
            ns
        } else {
            (i128::from(ns) * i128::from(NICE_0) / i128::from(self.weight)) as i64
        }
    }

    /// CPU time after which its virtual time has grown by at least `ns`.
    pub(super) fn real_of(&self, ns: i64) -> i64 {
        let real = i128::from(ns) * i128::from(self.weight);
        (real + i128::from(NICE_0) - 1).div_euclid(i128::from(NICE_0)) as i64
    }
}

/// The entities that compete at one level on one pCPU.
#[derive(Debug, Clone)]
pub(super) struct Line {
    head: u32,
    tail: u32,
    /// Entities in it, delayed ones too.
    pub(super) queued: u32,
    pub(super) weight: i64,
    sum: i128,
    /// Who of them runs.
    pub(super) current: u32,
    /// Whom to prefer where it is eligible: one of its own went to sleep and left others in line (`next` buddy).
    pub(super) next: u32,
    /// The entity that stands for this line one level up; `NONE` at the top.
    pub(super) owner: u32,
    pub(super) pcpu: u32,
    pub(super) group: u32,
    /// Virtual time when the last one left: where the next one begins.
    floor: i64,
    /// With a quota: what is left of the share this pCPU took, ns.
    pub(super) runtime_ns: i64,
    pub(super) throttled: bool,
    /// Which throttling of the pool it was.
    pub(super) throttled_as: u64,
}

impl Line {
    pub(super) fn new(owner: u32, pcpu: u32, group: u32) -> Line {
        Line {
            head: NONE,
            tail: NONE,
            queued: 0,
            weight: 0,
            sum: 0,
            current: NONE,
            next: NONE,
            owner,
            pcpu,
            group,
            floor: 0,
            runtime_ns: 0,
            throttled: false,
            throttled_as: 0,
        }
    }
}

/// All entities and lines of a pool.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) entities: Vec<Entity>,
    pub(super) lines: Vec<Line>,
    pub(super) slice_ns: i64,
    pub(super) tick_ns: i64,
}

impl Lines {
    /// How far `e` is behind the average of its line, rounded down.
    pub(super) fn lag(&self, e: u32) -> i64 {
        let entity = &self.entities[e as usize];
        let line = &self.lines[entity.line as usize];
        let behind = line.sum - i128::from(entity.vruntime) * i128::from(line.weight);
        behind.div_euclid(i128::from(line.weight)) as i64
    }

    fn average(&self, line: u32) -> i64 {
        let line = &self.lines[line as usize];
        if line.weight == 0 { line.floor } else { line.sum.div_euclid(i128::from(line.weight)) as i64 }
    }

    /// Is it owed, or even?
    pub(super) fn eligible(&self, e: u32) -> bool {
        let entity = &self.entities[e as usize];
        let line = &self.lines[entity.line as usize];
        line.sum >= i128::from(entity.vruntime) * i128::from(line.weight)
    }

    /// Lag within what one is allowed to take along: two slices or a tick.
    fn bounded_lag(&self, e: u32) -> i64 {
        let entity = &self.entities[e as usize];
        let limit = entity.virtual_of((2 * self.slice_ns).max(self.tick_ns));
        self.lag(e).clamp(-limit, limit)
    }

    /// Gives `e` its virtual time and deadline in `line`, which it is about to enter (`place_entity`). The lag it comes
    /// with is made larger, because entering shifts the average towards it.
    fn place(&mut self, line: u32, e: u32) {
        let average = self.average(line);
        let l = &self.lines[line as usize];
        let entity = &self.entities[e as usize];
        let mut lag = 0;
        if l.queued > 0 && entity.vlag != 0 {
            let grown = i128::from(entity.vlag) * i128::from(l.weight + entity.weight);
            lag = (grown / i128::from(l.weight.max(1))) as i64;
        }
        let mut slice = entity.virtual_of(self.slice_ns);
        let entity = &mut self.entities[e as usize];
        entity.vruntime = average - lag;
        if entity.relative {
            entity.deadline += entity.vruntime;
            entity.relative = false;
            return;
        }
        if entity.fresh {
            // Those in line are half through their slices on average.
            slice /= 2;
        }
        entity.deadline = entity.vruntime + slice;
    }

    /// Into `line`.
    pub(super) fn enter(&mut self, line: u32, e: u32) {
        debug_assert!(!self.entities[e as usize].queued);
        self.place(line, e);
        self.link(line, e);
    }

    fn link(&mut self, line: u32, e: u32) {
        let tail = self.lines[line as usize].tail;
        let entity = &mut self.entities[e as usize];
        entity.fresh = false;
        entity.queued = true;
        entity.line = line;
        (entity.prev, entity.next) = (tail, NONE);
        let (weight, vruntime) = (entity.weight, entity.vruntime);
        if tail != NONE {
            self.entities[tail as usize].next = e;
        }
        let l = &mut self.lines[line as usize];
        if l.head == NONE {
            l.head = e;
        }
        l.tail = e;
        l.queued += 1;
        l.weight += weight;
        l.sum += i128::from(weight) * i128::from(vruntime);
    }

    fn unlink(&mut self, e: u32) {
        let entity = &mut self.entities[e as usize];
        entity.queued = false;
        let (prev, next, line) = (entity.prev, entity.next, entity.line);
        let (weight, vruntime) = (entity.weight, entity.vruntime);
        if prev != NONE {
            self.entities[prev as usize].next = next;
        }
        if next != NONE {
            self.entities[next as usize].prev = prev;
        }
        let average = self.average(line);
        let l = &mut self.lines[line as usize];
        if l.head == e {
            l.head = next;
        }
        if l.tail == e {
            l.tail = prev;
        }
        l.queued -= 1;
        l.weight -= weight;
        l.sum -= i128::from(weight) * i128::from(vruntime);
        if l.queued == 0 {
            l.floor = l.floor.max(average);
        }
    }

    /// Out of its line, taking its lag along. `sleep`: it has nothing to do; else it only moves.
    pub(super) fn leave(&mut self, e: u32, sleep: bool) {
        let lag = self.bounded_lag(e);
        let entity = &mut self.entities[e as usize];
        entity.vlag = lag;
        if !sleep {
            entity.deadline -= entity.vruntime;
            entity.relative = true;
        }
        self.unlink(e);
    }

    /// `e` gives up the pCPU and stays in line: behind those of the same deadline.
    pub(super) fn put_back(&mut self, e: u32) {
        let line = self.entities[e as usize].line;
        if self.entities[e as usize].queued && self.lines[line as usize].tail != e {
            self.unlink(e);
            self.link(line, e);
        }
    }

    /// Real time in which `e`, running among others, gets ahead of the average and so loses its right to go on.
    pub(super) fn eligible_for_ns(&self, e: u32) -> i64 {
        let entity = &self.entities[e as usize];
        let line = &self.lines[entity.line as usize];
        let (others, lead) = (
            i128::from(line.weight - entity.weight),
            line.sum - i128::from(entity.vruntime) * i128::from(line.weight),
        );
        // Its own running moves the average too: by its part of the weight.
        entity.real_of((lead.max(-1).div_euclid(others) + 1) as i64)
    }

    /// Running `e` counts as having used its slice.
    pub(super) fn forfeit(&mut self, e: u32) {
        let entity = &mut self.entities[e as usize];
        let skipped = entity.deadline - entity.vruntime;
        let vslice = entity.virtual_of(self.slice_ns);
        entity.vruntime = entity.deadline;
        entity.deadline += vslice;
        entity.protected = false;
        let (line, weight) = (entity.line, entity.weight);
        self.lines[line as usize].sum += i128::from(weight) * i128::from(skipped);
    }

    /// A delayed one leaves for good: what it was owed by then is forfeit (`DELAY_ZERO`).
    pub(super) fn leave_delayed(&mut self, e: u32) {
        let lag = self.bounded_lag(e);
        let entity = &mut self.entities[e as usize];
        entity.vlag = lag.min(0);
        entity.delayed = false;
        self.unlink(e);
    }

    /// A delayed one wakes before it left: as if it had never slept, but that what it was owed is forfeit.
    pub(super) fn undelay(&mut self, e: u32) {
        self.entities[e as usize].delayed = false;
        if self.bounded_lag(e) > 0 {
            let line = self.entities[e as usize].line;
            self.unlink(e);
            self.entities[e as usize].vlag = 0;
            self.place(line, e);
            self.link(line, e);
        }
    }

    /// Changes its weight; what it is owed in CPU time stays.
    pub(super) fn reweigh(&mut self, e: u32, weight: i64) {
        let old = self.entities[e as usize].weight;
        if old == weight {
            return;
        }
        let scale = |v: i64| (i128::from(v) * i128::from(old) / i128::from(weight)) as i64;
        if self.entities[e as usize].queued {
            // The average stays where it is (`reweight_eevdf`), so virtual times are told from it.
            let lag = scale(self.bounded_lag(e));
            let line = self.entities[e as usize].line;
            let average = self.average(line);
            self.unlink(e);
            let entity = &mut self.entities[e as usize];
            let deadline = average + scale(entity.deadline - average);
            entity.protected &= deadline == entity.deadline;
            (entity.vruntime, entity.deadline, entity.weight) = (average - lag, deadline, weight);
            self.link(line, e);
        } else {
            let entity = &mut self.entities[e as usize];
            entity.vlag = scale(entity.vlag);
            entity.weight = weight;
        }
    }

    /// Running `e` used `ns` of CPU since `from_ns`. True when others are in line and its slice is over, or it is no
    /// longer protected and ahead of the average.
    ///
    /// Deadlines are renewed at ticks; while it was alone in line those ticks were not events, and are made up for
    /// here: from the first that finds the deadline past, every so many ticks.
    pub(super) fn charge(&mut self, e: u32, from_ns: i64, ns: i64) -> bool {
        let (slice_ns, tick_ns) = (self.slice_ns, self.tick_ns);
        let now_ns = from_ns + ns;
        let entity = &mut self.entities[e as usize];
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
        let l = &mut self.lines[line as usize];
        l.sum += i128::from(weight) * i128::from(grown);
        l.queued > 1 && (renewed || (!self.entities[e as usize].protected && !self.eligible(e)))
    }

    /// Whom the line would run: `RUN_TO_PARITY` first, else the eligible one with the earliest deadline.
    pub(super) fn best(&self, line: u32) -> u32 {
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
        // Of equal deadlines the waiting one goes first.
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

/// The first tick at or after `ns`.
pub(super) fn next_tick(ns: i64, tick_ns: i64) -> i64 {
    (ns + tick_ns - 1) / tick_ns * tick_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(weights: &[i64]) -> Lines {
        let mut lines = Lines {
            entities: weights.iter().map(|w| Entity::new(*w, true)).collect(),
            lines: vec![Line::new(NONE, 0, 0)],
            slice_ns: 3_000_000,
            tick_ns: 4_000_000,
        };
        (0..weights.len() as u32).for_each(|e| lines.enter(0, e));
        lines
    }

    /// Stoica and Abdel-Wahab 1995: the lags of all clients sum to zero at any time.
    #[test]
    fn lags_sum_to_zero() {
        let mut l = lines(&[1024, 2048, 512]);
        l.charge(1, 0, 5_000_000);
        l.charge(0, 5_000_000, 2_000_000);
        l.reweigh(2, 1000);
        let sum: i64 = (0..3).map(|e| l.lag(e) * l.entities[e as usize].weight).sum();
        // Each lag is rounded down by less than 1.
        assert!((-(1024 + 2048 + 1000)..=0).contains(&sum), "{sum}");
    }

    #[test]
    fn the_eligible_one_with_the_earliest_deadline_is_best() {
        let mut l = lines(&[1024, 1024]);
        l.charge(0, 0, 1_000_000);
        assert!(!l.eligible(0) && l.eligible(1));
        assert_eq!(l.best(0), 1);
        // Protected while eligible only.
        l.lines[0].current = 0;
        l.entities[0].protected = true;
        assert_eq!(l.best(0), 1);
        l.charge(1, 1_000_000, 1_500_000);
        assert_eq!(l.best(0), 0, "it has the earlier deadline as well");
    }

    /// What placement is for: who comes back is owed what it was owed when it left, whatever happened meanwhile.
    #[test]
    fn lag_survives_a_sleep() {
        for sleeper in [0, 2] {
            let mut l = lines(&[1024, 2048, 512]);
            l.charge(0, 0, 2_000_000);
            let owed = l.lag(sleeper);
            assert!(owed != 0 && owed.abs() < 6_000_000, "{owed}: within what may be taken along");
            l.leave(sleeper, true);
            l.charge(1, 2_000_000, 9_000_000);
            l.enter(0, sleeper);
            assert!((l.lag(sleeper) - owed).abs() <= 3, "{} after, {owed} before", l.lag(sleeper));
        }
    }

    /// A slice of 3 ms under ticks of 4 ms is renewed at every tick; skipped ticks must leave the same deadline.
    #[test]
    fn ticks_made_up_for_equal_ticks_that_happened() {
        for slice_ns in [3_000_000, 7_000_000] {
            let (mut eager, mut lazy) = (lines(&[700]), lines(&[700]));
            eager.slice_ns = slice_ns;
            lazy.slice_ns = slice_ns;
            let mut at = 1_000_000;
            for tick in [4_000_000, 8_000_000, 12_000_000, 16_000_000, 20_000_000, 24_000_000] {
                eager.charge(0, at, tick - at);
                at = tick;
            }
            lazy.charge(0, 1_000_000, 23_000_000);
            let (a, b) = (&eager.entities[0], &lazy.entities[0]);
            // Virtual times are rounded once instead of six times.
            assert!((a.deadline - b.deadline).abs() <= 6, "{} {}", a.deadline, b.deadline);
            assert!((a.vruntime - b.vruntime).abs() <= 6);
        }
    }
}
