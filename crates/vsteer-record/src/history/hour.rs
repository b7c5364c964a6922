//! What do the minutes of an hour add up to?
//!
//! Times, samples and wake-ups add up exactly. Percentiles of an hour follow from the sum of the minutes' distributions, not
//! from the minutes' percentiles. The culprits of an hour are those of its minutes: what a culprit cost in minutes in which
//! it was not among the first three is left out.

use super::row::{COSTS, Cost, HOUR_MS, HostRow, Minute, VmRow};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use vsteer_core::nouns::Stalls;

fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a?.saturating_add(b?))
}

fn add_vm(to: &mut VmRow, row: &VmRow) {
    to.name.clone_from(&row.name);
    to.vcpus = row.vcpus;
    to.samples = to.samples.saturating_add(row.samples);
    to.covered_us = to.covered_us.saturating_add(row.covered_us);
    to.of_group |= row.of_group;
    to.run_us = sum(to.run_us, row.run_us);
    to.ready_us = sum(to.ready_us, row.ready_us);
    to.wait_us = sum(to.wait_us, row.wait_us);
    to.limited_us = sum(to.limited_us, row.limited_us);
    to.limited_is_estimate |= row.limited_is_estimate;
    to.costop_us = sum(to.costop_us, row.costop_us);
    to.lag_us = sum(to.lag_us, row.lag_us);
    to.wake = to.wake.as_ref().zip(row.wake.as_ref()).map(|(a, b)| a.merged(b));
    to.costs.extend(row.costs.iter().cloned());
}

/// The culprits that cost most, each once.
pub fn largest(costs: Vec<Cost>) -> Vec<Cost> {
    let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
    for cost in costs {
        let us = by_name.entry(cost.culprit).or_default();
        *us = us.saturating_add(cost.us);
    }
    let mut all: Vec<Cost> = by_name.into_iter().map(|(culprit, us)| Cost { culprit, us }).collect();
    all.sort_by(|a, b| b.us.cmp(&a.us).then_with(|| a.culprit.cmp(&b.culprit)));
    all.truncate(COSTS);
    all
}

fn add_host(to: &mut HostRow, row: &HostRow) {
    to.samples = to.samples.saturating_add(row.samples);
    to.covered_us = to.covered_us.saturating_add(row.covered_us);
    to.pcpus = row.pcpus;
    to.busy_us = sum(to.busy_us, row.busy_us);
    to.run_us = sum(to.run_us, row.run_us);
    to.ready_us = sum(to.ready_us, row.ready_us);
    to.wait_us = sum(to.wait_us, row.wait_us);
    to.limited_us = sum(to.limited_us, row.limited_us);
    to.costop_us = sum(to.costop_us, row.costop_us);
    let (a, b) = (to.stalled_us, row.stalled_us);
    to.stalled_us = Stalls {
        cpu_some: sum(a.cpu_some, b.cpu_some),
        io_some: sum(a.io_some, b.io_some),
        io_full: sum(a.io_full, b.io_full),
        memory_some: sum(a.memory_some, b.memory_some),
        memory_full: sum(a.memory_full, b.memory_full),
    };
    to.vms = to.vms.max(row.vms);
    to.findings = to.findings.max(row.findings);
}

/// Hours that are being added up.
#[derive(Debug, Default)]
pub struct Hours {
    /// By hour, name and id.
    vms: BTreeMap<(u64, String, String), VmRow>,
    hosts: BTreeMap<u64, HostRow>,
}

impl Hours {
    /// Adds a minute. Minutes come in order of time.
    pub fn add(&mut self, minute: &Minute) {
        let unix_ms = minute.unix_ms / HOUR_MS * HOUR_MS;
        for row in &minute.vms {
            match self.vms.entry((unix_ms, row.name.clone(), row.vm.clone())) {
                Entry::Occupied(mut sum) => add_vm(sum.get_mut(), row),
                Entry::Vacant(none) => {
                    none.insert(VmRow { unix_ms, ..row.clone() });
                }
            }
        }
        let Some(row) = &minute.host else { return };
        match self.hosts.entry(unix_ms) {
            Entry::Occupied(mut sum) => add_host(sum.get_mut(), row),
            Entry::Vacant(none) => {
                none.insert(HostRow { unix_ms, ..row.clone() });
            }
        }
    }

    /// The rows of all hours.
    pub fn finish(self) -> (Vec<VmRow>, Vec<HostRow>) {
        let done = |mut row: VmRow| {
            row.costs = largest(std::mem::take(&mut row.costs));
            let wake = row.wake.take();
            row.set_wake(wake);
            row
        };
        (self.vms.into_values().map(done).collect(), self.hosts.into_values().collect())
    }
}
