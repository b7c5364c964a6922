//! The accounts that the engine keeps: how long each vCPU was in which state, and how long it waited.
//!
//! Idea: each counter is stored where the event that raises it reads data anyway, and never falls.
//! [`Account`] is computed on request, up to that moment, including the present state.
//!
//! Left out: shares and rates ([`vsteer_core::model`] derives them, as for a real host).

use super::guest::{Jobs, Sleeps};
use super::setup::Pcpu;
use super::state::STATES;
use serde::Serialize;
use vsteer_core::nouns::{HISTOGRAM_BUCKETS, Histogram};

/// A vCPU's counters; `ns` by [`State`](super::state::State), up to now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Account {
    /// Time in each state, ns, indexed by `State as usize`.
    pub ns: [u64; STATES],
    /// Ready while a sibling ran, ns; `None` without siblings.
    pub lag_ns: Option<u64>,
    /// How often it got a pCPU.
    pub switches: u64,
    /// How often it lost the pCPU while it could run.
    pub preemptions: u64,
    /// Wake-ups.
    pub wakeups: u64,
    /// How often it ran on another pCPU than before.
    pub migrations: u64,
    /// From wake-up to running.
    pub wake_latency: Histogram,
    /// Sum of these latencies, ns.
    pub wake_wait_ns: u64,
    /// Unbroken waits for a pCPU.
    pub ready_spell: Histogram,
    /// The pCPU of its last run.
    pub last_pcpu: Option<Pcpu>,
    /// Its guest's jobs, if it has any.
    pub jobs: Option<Jobs>,
    /// How many frames its guest has shown, if it shows any.
    pub frames: Option<u64>,
    /// What its guest measures of its own sleeps, if it counts them.
    pub sleeps: Option<Sleeps>,
}

/// Is any vCPU of a VM running? For the lag of its siblings.
#[derive(Debug, Clone, Default)]
pub(super) struct Together {
    pub(super) running: u32,
    pub(super) since_ns: u64,
    pub(super) any_ns: u64,
}

impl Together {
    pub(super) fn any_ns(&self, now_ns: u64) -> u64 {
        self.any_ns + if self.running > 0 { now_ns - self.since_ns } else { 0 }
    }
}

/// Latencies by bucket: rows of counts, several per vCPU.
///
/// A row is used once per dispatch and is rarely in the nearest cache. So counts first go to a buffer, which
/// is in that cache, and are added in batches. Then the processor fetches the rows in parallel instead of
/// waiting for each. Counts are bytes, so that a cache line holds 64. Only one in 256 additions needs the
/// carry.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    counts: Vec<u8>,
    carried: Vec<u32>,
    noted: Vec<u32>,
}

/// Woken, then ready until running: both a wake-up latency and a ready spell.
pub(super) const WOKEN_SPELL: usize = 0;
/// Other wake-up latencies (held in between).
pub(super) const WOKEN: usize = 1;
/// Other spells (after preemption, hold or release).
pub(super) const SPELL: usize = 2;
const ROWS: usize = 3;
/// The number of notes before they are added.
const NOTES: usize = 256;

impl Rows {
    pub(super) fn new(vcpus: usize) -> Rows {
        let counts = vcpus * ROWS * HISTOGRAM_BUCKETS;
        assert!(u32::try_from(counts).is_ok(), "a host of {vcpus} vCPUs: at most 7,400,000");
        Rows { counts: vec![0; counts], carried: vec![0; counts], noted: Vec::with_capacity(NOTES) }
    }

    #[inline]
    pub(super) fn count(&mut self, v: usize, row: usize, ns: u64) {
        let bucket = usize::from(Histogram::bucket_of(ns));
        self.noted.push(((v * ROWS + row) * HISTOGRAM_BUCKETS + bucket) as u32);
        if self.noted.len() == NOTES {
            self.add();
        }
    }

    #[inline(never)]
    fn add(&mut self) {
        for i in self.noted.drain(..) {
            let count = &mut self.counts[i as usize];
            *count = count.wrapping_add(1);
            if *count == 0 {
                self.carried[i as usize] += 1;
            }
        }
    }

    /// The sum of both rows of `v`, plus `prompt` in the lowest bucket.
    pub(super) fn sum(&self, v: usize, rows: [usize; 2], prompt: u32) -> Histogram {
        let mut sum = vec![0u64; HISTOGRAM_BUCKETS];
        sum[0] = prompt.into();
        for row in rows {
            let first = (v * ROWS + row) * HISTOGRAM_BUCKETS;
            let counts = self.counts[first..].iter().zip(&self.carried[first..]);
            sum.iter_mut().zip(counts).for_each(|(s, (c, m))| *s += u64::from(*c) + 256 * u64::from(*m));
            let noted = self.noted.iter().map(|i| (*i as usize).wrapping_sub(first));
            noted.filter(|i| *i < HISTOGRAM_BUCKETS).for_each(|i| sum[i] += 1);
        }
        Histogram::from_row(&sum)
    }
}
