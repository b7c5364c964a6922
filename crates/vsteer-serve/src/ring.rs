//! What did each VM do during the last 15 minutes, sample by sample?
//!
//! A moment is a row of eight numbers for each VM and one row for the host. The number of rows is bounded: with many VMs, or
//! samples many times a second, the ring reaches back less far. The distribution of wake-up latencies is kept once a minute, as
//! counts since the VM came, so that the difference of any two is a distribution.
//!
//! Left out: threads, culprits, and anything older; the history store has these.

use crate::seen::Seen;
use std::collections::{BTreeMap, VecDeque};
use vsteer_core::model::{HostModel, Shares, VmModel};
use vsteer_core::nouns::{Batch, Histogram, VmId};

/// How far back the ring reaches, ms.
const REACH_MS: u64 = 15 * 60 * 1_000;
/// Rows of all VMs together: 9.6 MB, and less than 20 MB with the room that the queues keep free.
const MOST_ROWS: usize = 300_000;
/// How often wake-up latencies are kept, ms.
const TALLY_EVERY_MS: u64 = 60_000;

/// Numbers of a row.
const WIDTH: usize = 8;
/// A row. A number that was not measured is not a number.
type Row = [f32; WIDTH];
const NONE: Row = [f32::NAN; WIDTH];

/// Columns of a VM. Shares are sums over its vCPUs: 1 is one pCPU.
pub const OF_VM: [&str; WIDTH] =
    ["run", "ready", "limited", "costop", "lag", "wake_p50_ns", "wake_p99_ns", "wake_max_ns"];
/// Columns of the host. `busy` and the pressures are fractions; the others are sums over all VMs.
pub const OF_HOST: [&str; WIDTH] =
    ["busy", "run", "ready", "limited", "costop", "psi_cpu_some", "psi_io_some", "psi_memory_some"];

/// Rows without a gap, from the moment with this number on.
#[derive(Default)]
struct Rows {
    first: u64,
    rows: VecDeque<Row>,
}

impl Rows {
    fn push(&mut self, moment: u64, row: Row) {
        if self.rows.is_empty() {
            self.first = moment;
        }
        while self.first + (self.rows.len() as u64) < moment {
            self.rows.push_back(NONE);
        }
        self.rows.push_back(row);
    }

    /// Forgets all before this moment.
    fn forget(&mut self, oldest: u64) {
        while self.first < oldest && self.rows.pop_front().is_some() {
            self.first += 1;
        }
    }
}

/// Counts by bucket, modulo 2^32.
type Tally = Vec<(u8, u32)>;

/// The last minutes of the host and its VMs.
#[derive(Default)]
pub struct Ring {
    /// Wall-clock time of each moment, ms since 1970 UTC.
    times: VecDeque<u64>,
    /// Number of the oldest moment.
    oldest: u64,
    newest_mono_ns: u64,
    host: Rows,
    vms: BTreeMap<VmId, Rows>,
    tallies: VecDeque<(u64, BTreeMap<VmId, Tally>)>,
}

/// A distribution of times, as [`Histogram`] has it, over the last `seconds`.
pub struct Times {
    /// How long ago it began.
    pub seconds: f64,
    /// The counts.
    pub counts: Histogram,
}

/// A part of the ring: when, and the column of each number.
pub struct Part {
    /// ms since 1970 UTC.
    pub times: Vec<u64>,
    /// Columns, in the order of [`OF_VM`] or [`OF_HOST`].
    pub columns: [Vec<f32>; WIDTH],
}

impl Ring {
    /// Takes what was seen, unless it was taken before.
    pub fn see(&mut self, seen: &Seen) {
        let batch = seen.totals.batch();
        let Some(model) = seen.now.as_deref().filter(|_| batch.mono_ns > self.newest_mono_ns) else { return };
        self.newest_mono_ns = batch.mono_ns;
        self.take(batch.unix_ns / 1_000_000, model);
        let now_ms = batch.unix_ns / 1_000_000;
        if self.tallies.back().is_none_or(|(at, _)| now_ms >= at + TALLY_EVERY_MS) {
            self.tallies.push_back((now_ms, tallies(batch)));
            while self.tallies.len() as u64 > REACH_MS / TALLY_EVERY_MS {
                self.tallies.pop_front();
            }
        }
    }

    fn take(&mut self, unix_ms: u64, model: &HostModel) {
        let moment = self.oldest + self.times.len() as u64;
        self.times.push_back(unix_ms);
        self.host.push(moment, host_row(model));
        for vm in &model.vms {
            match self.vms.get_mut(&vm.id) {
                Some(rows) => rows.push(moment, vm_row(vm)),
                None => self.vms.entry(vm.id.clone()).or_default().push(moment, vm_row(vm)),
            }
        }
        let mut total: usize = self.vms.values().map(|rows| rows.rows.len()).sum();
        let is_old = |at: &u64| at.saturating_add(REACH_MS) < unix_ms;
        while self.times.front().is_some_and(is_old) || total > MOST_ROWS && self.times.len() > 1 {
            self.times.pop_front();
            self.oldest += 1;
            self.host.forget(self.oldest);
            self.vms.values_mut().for_each(|rows| rows.forget(self.oldest));
            self.vms.retain(|_, rows| !rows.rows.is_empty());
            total = self.vms.values().map(|rows| rows.rows.len()).sum();
        }
    }

    /// All that is kept of a VM, or of the host; `None` if the ring has nothing of it.
    pub fn part(&self, vm: Option<&VmId>) -> Option<Part> {
        let rows = match vm {
            Some(vm) => self.vms.get(vm)?,
            None => &self.host,
        };
        let skip = (rows.first - self.oldest) as usize;
        let column = |i: usize| rows.rows.iter().map(|row| row[i]).collect();
        Some(Part {
            times: self.times.iter().skip(skip).take(rows.rows.len()).copied().collect(),
            columns: std::array::from_fn(column),
        })
    }

    /// Wake-up latencies of a VM's vCPUs: over the last minute or two, and over all that is kept.
    pub fn wake_latencies(&self, vm: &VmId, batch: &Batch) -> Vec<Times> {
        let now_ms = batch.unix_ns / 1_000_000;
        let now = tally(batch, vm);
        let old_enough = |(at, _): &&(u64, _)| now_ms >= at + TALLY_EVERY_MS;
        let last = self.tallies.iter().rev().find(old_enough);
        let all = self.tallies.iter().find(|(_, tallies)| tallies.contains_key(vm));
        let since = |(at, tallies): &(u64, BTreeMap<VmId, Tally>)| {
            let before = tallies.get(vm)?;
            let seconds = now_ms.saturating_sub(*at) as f64 / 1e3;
            (seconds > 0.0).then(|| Times { seconds, counts: difference(before, &now) })
        };
        let mut found: Vec<Times> = [last, all].into_iter().flatten().filter_map(since).collect();
        found.dedup_by(|a, b| a.seconds == b.seconds);
        found
    }
}

/// Shares summed over the vCPUs, or those of the group. Nothing is known of a VM without either.
pub fn shares(vm: &VmModel) -> Shares {
    let is_known = vm.worlds.is_some() || vm.vcpu_threads().next().is_some();
    if is_known { *vm.vcpus_or_group().0 } else { Shares::default() }
}

/// Ready and limited time of the vCPUs, and whether both are measured. Where only their sum is, ready is what is left.
pub fn waits(vm: &VmModel) -> (Option<f64>, Option<f64>, bool) {
    let shares = shares(vm);
    let limited =
        shares.limited.or_else(|| vm.limited().map(|(limited, _)| limited)).filter(|_| shares.run.is_some());
    match (shares.ready, shares.wait) {
        (Some(ready), _) => (Some(ready), limited, shares.limited.is_some()),
        (None, wait) => (wait.map(|wait| (wait - limited.unwrap_or(0.0)).max(0.0)), limited, false),
    }
}

fn number(value: Option<f64>) -> f32 {
    value.map_or(f32::NAN, |value| value as f32)
}

fn vm_row(vm: &VmModel) -> Row {
    let (shares, (ready, limited, _)) = (shares(vm), waits(vm));
    let wake = vm.wake_latency;
    [
        number(shares.run),
        number(ready),
        number(limited),
        number(shares.costop),
        number(shares.lag),
        number(wake.map(|q| q.p50_ns)),
        number(wake.map(|q| q.p99_ns)),
        number(wake.map(|q| q.max_ns)),
    ]
}

fn host_row(model: &HostModel) -> Row {
    // A sum over the VMs that have the value; `None` if no VM has it.
    let sum = |of: fn(&VmModel) -> Option<f64>| model.vms.iter().filter_map(of).reduce(|a, b| a + b);
    let psi = &model.pressure;
    [
        number(model.busy_mean()),
        number(sum(|vm| shares(vm).run)),
        number(sum(|vm| waits(vm).0)),
        number(sum(|vm| waits(vm).1)),
        number(sum(|vm| shares(vm).costop)),
        number(psi.cpu_some),
        number(psi.io_some),
        number(psi.memory_some),
    ]
}

/// Cumulative counts of all vCPUs of a VM.
fn tally(batch: &Batch, vm: &VmId) -> Tally {
    let threads = batch.threads.iter().filter(|t| t.vm == *vm && t.role.vcpu().is_some());
    let mut sums: BTreeMap<u8, u32> = BTreeMap::new();
    for (bucket, count) in threads.filter_map(|t| t.counters.wake_latency.as_ref()).flat_map(|h| &h.counts) {
        // There are fewer than 256 buckets.
        let sum = sums.entry(*bucket as u8).or_default();
        *sum = sum.wrapping_add(*count as u32);
    }
    sums.into_iter().collect()
}

fn tallies(batch: &Batch) -> BTreeMap<VmId, Tally> {
    let mut all: BTreeMap<&VmId, BTreeMap<u8, u32>> = BTreeMap::new();
    for thread in batch.threads.iter().filter(|t| t.role.vcpu().is_some()) {
        let Some(times) = &thread.counters.wake_latency else { continue };
        let sums = all.entry(&thread.vm).or_default();
        for (bucket, count) in &times.counts {
            let sum = sums.entry(*bucket as u8).or_default();
            *sum = sum.wrapping_add(*count as u32);
        }
    }
    all.into_iter().map(|(vm, sums)| (vm.clone(), sums.into_iter().collect())).collect()
}

fn difference(before: &Tally, now: &Tally) -> Histogram {
    let before: BTreeMap<u8, u32> = before.iter().copied().collect();
    let rose = now.iter().map(|(bucket, count)| {
        let rose = count.wrapping_sub(before.get(bucket).copied().unwrap_or(0));
        // A vCPU that was unplugged took its counts along.
        (u16::from(*bucket), u64::from(if rose > u32::MAX / 2 { 0 } else { rose }))
    });
    Histogram { counts: rose.filter(|(_, count)| *count > 0).collect() }
}

#[cfg(test)]
#[path = "ring/tests.rs"]
mod tests;
