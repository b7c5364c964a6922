//! The counters of one world, group or pCPU: what does a row add to them?
//!
//! esxtop's value is a share of the interval, so the sum of value times interval is a cumulative counter. `%
//! Ready` includes `% Max Limited`; this file separates the two.
//!
//! If a world's row lacks a value, or its states show that it has ended, the sample leaves the world out. The
//! model counts only intervals with the world at both ends. GAP(bad-cell): so one cell costs its world two intervals,
//! and a sum over the rest is right. If a counter lacks a value in most rows, vsteer counts
//! the world without that counter ([`Account::give_up`]): a file may have `-0.03` in every row of one column.

use super::columns::{
    COSTOP, CPU, LIMITED, MEMBERS, MIGRATES, OVERLAP, READY, RUN, SWITCHES, SYSTEM, USED, WAIT,
};
use super::times::Moment;
use std::collections::VecDeque;
use vsteer_core::nouns::{PcpuSample, ThreadCounters};

/// The states of a world add up to 100 %. If their sum is below this (percent), the world has ended.
const GONE: f64 = 1.0;
/// A larger value is not valid: a group has a few thousand worlds at most, and no world switches that often
/// in a second.
const MOST: f64 = 1e7;
/// Without valid values in so many rows on end, a counter is missing from then on.
const GIVEN_UP_AFTER: u8 = 8;

/// A range of slots with its counters.
#[derive(Debug)]
pub(super) struct Account {
    slot: usize,
    /// Which counters have a column...
    pub(super) has_column: [bool; CPU.len()],
    /// ... and values.
    pub(super) there: [bool; CPU.len()],
    /// In how many rows on end each counter had no valid value.
    invalid_rows: [u8; CPU.len()],
    was_lacking: bool,
    pub(super) counters: ThreadCounters,
    pub(super) worlds: Option<u32>,
    pub(super) seen: bool,
    /// Present in every row since the last sample.
    pub(super) whole: bool,
}

impl Account {
    pub(super) fn new(slot: usize, filled: &[bool]) -> Account {
        let has_column: [bool; CPU.len()] = std::array::from_fn(|k| filled[slot + k]);
        Account {
            slot,
            has_column,
            there: has_column,
            invalid_rows: [0; CPU.len()],
            was_lacking: false,
            counters: ThreadCounters::default(),
            worlds: None,
            seen: false,
            whole: true,
        }
    }

    /// The counters of a row without a valid value.
    fn invalid<'a>(&'a self, values: &'a [f64]) -> impl Iterator<Item = usize> + 'a {
        let is_invalid = |k: &usize| self.there[*k] && !(0.0..=MOST).contains(&values[self.slot + k]);
        (USED..=MIGRATES).filter(is_invalid)
    }

    /// Does a row have any value of it?
    fn is_present(&self, values: &[f64]) -> bool {
        self.invalid(values).count() < self.there[USED..=MIGRATES].iter().filter(|there| **there).count()
    }

    /// Drops counters without valid values in most of the first rows. Otherwise one such counter hides the world.
    pub(super) fn give_up(&mut self, rows: &VecDeque<(Moment, Vec<f64>)>) {
        // The first row only marks the start of counting.
        let present: Vec<&[f64]> =
            rows.iter().skip(1).map(|(_, v)| v.as_slice()).filter(|v| self.is_present(v)).collect();
        let mut rows_without = [0; CPU.len()];
        present.iter().for_each(|v| self.invalid(v).for_each(|k| rows_without[k] += 1));
        for (there, without) in self.there.iter_mut().zip(rows_without) {
            *there &= without * 2 <= present.len();
        }
    }

    /// Does the row lack a value that it should have? A counter that lacks it too often is dropped.
    fn is_lacking(&mut self, values: &[f64]) -> bool {
        if self.invalid(values).next().is_none() {
            // Almost every row is so: it must cost nothing more.
            if self.was_lacking {
                self.invalid_rows = [0; CPU.len()];
            }
            self.was_lacking = false;
            return false;
        }
        self.was_lacking = true;
        if self.is_present(values) {
            let invalid: Vec<usize> = self.invalid(values).collect();
            for k in USED..=MIGRATES {
                self.invalid_rows[k] = if invalid.contains(&k) { self.invalid_rows[k] + 1 } else { 0 };
                self.there[k] &= self.invalid_rows[k] < GIVEN_UP_AFTER;
            }
        }
        self.invalid(values).next().is_some()
    }

    /// Adds an interval.
    pub(super) fn go_on(&mut self, values: &[f64], ns: u64, is_first: bool) {
        let lacking = !is_first && self.is_lacking(values);
        let v = |k: usize| values[self.slot + k];
        let states = [RUN, READY, COSTOP, WAIT];
        let all = states.iter().filter(|k| self.there[**k]).map(|k| v(*k)).sum::<f64>();
        let gone = self.there[RUN] && self.there[WAIT] && all < GONE;
        // The first row covers the time before the start. It only shows which worlds exist at the start.
        self.seen = is_first || (!lacking && !gone);
        self.whole &= self.seen;
        if !self.seen {
            return;
        }
        let there = self.there;
        let share = |k: usize| there[k].then(|| v(k) / 100.0);
        let time = |share: Option<f64>| share.map(|s| (s * ns as f64 + 0.5) as u64);
        let count = |k: usize| there[k].then(|| (v(k).max(0.0) * ns as f64 / 1e9 + 0.5) as u64);
        let (ready, limited) = (share(READY), share(LIMITED));
        let c = &mut self.counters;
        let raise = |counter: &mut Option<u64>, by: Option<u64>| {
            *counter = by.map(|by| counter.unwrap_or(0).saturating_add(by));
        };
        raise(&mut c.run_ns, time(share(RUN)));
        // Both values are rounded, so their difference may be negative by a hundredth of a percent.
        raise(&mut c.ready_ns, time(ready.zip(limited).map(|(r, l)| (r - l).max(0.0))));
        raise(&mut c.limited_ns, time(limited));
        raise(&mut c.wait_ns, time(ready));
        raise(&mut c.costop_ns, time(share(COSTOP)));
        raise(&mut c.blocked_ns, time(share(WAIT)));
        raise(&mut c.overlap_ns, time(share(OVERLAP)));
        raise(&mut c.system_ns, time(share(SYSTEM)));
        raise(&mut c.used_ns, time(share(USED)));
        raise(&mut c.switches, count(SWITCHES));
        raise(&mut c.migrations, count(MIGRATES));
        if there[MEMBERS] && v(MEMBERS) >= 1.0 {
            self.worlds = Some(v(MEMBERS) as u32);
        }
    }
}

/// A pCPU, and how long it was busy and idle in the rows that say so.
#[derive(Debug)]
pub(super) struct Pcpu {
    cpu: u32,
    slot: usize,
    busy_ns: u64,
    idle_ns: u64,
}

impl Pcpu {
    pub(super) fn new(cpu: u32, slot: usize) -> Pcpu {
        Pcpu { cpu, slot, busy_ns: 0, idle_ns: 0 }
    }

    /// Adds an interval. An interval without a valid value counts neither as busy nor as idle.
    pub(super) fn go_on(&mut self, values: &[f64], ns: u64) {
        let value = values[self.slot];
        if value.is_nan() {
            return;
        }
        let busy_ns = ((value / 100.0).clamp(0.0, 1.0) * ns as f64 + 0.5) as u64;
        self.busy_ns = self.busy_ns.saturating_add(busy_ns);
        self.idle_ns = self.idle_ns.saturating_add(ns.saturating_sub(busy_ns));
    }

    /// The times up to `all_ns` after the start. Intervals without a value count as the mean of the others; without any
    /// value, the pCPU is missing.
    pub(super) fn sample(&self, all_ns: u64) -> Option<PcpuSample> {
        let known_ns = self.busy_ns.saturating_add(self.idle_ns);
        if known_ns == 0 && all_ns > 0 {
            return None;
        }
        let of_all = |ns: u64| match known_ns >= all_ns {
            true => ns,
            false => (u128::from(ns) * u128::from(all_ns) / u128::from(known_ns)) as u64,
        };
        let (user_ns, idle_ns) = (of_all(self.busy_ns), of_all(self.idle_ns));
        Some(PcpuSample { cpu: self.cpu, user_ns, idle_ns, ..PcpuSample::default() })
    }
}
