//! A host simulated before and after a change, with the same seeds, and who got worse.

use crate::interrupt;
use std::ops::Range;
use vsteer_core::Fault;
use vsteer_core::model::Quantiles;
use vsteer_core::nouns::Histogram;
use vsteer_core::stats::{mean, variance};
use vsteer_sim::ids::Vcpu;
use vsteer_sim::policy::Values;
use vsteer_sim::sched::{Entry, Simulation};
use vsteer_sim::setup::Setup;
use vsteer_sim::state::State;

/// Ready, limited and co-stopped may grow by less, per vCPU.
pub const GROWTH: f64 = 0.05;
/// The 99th percentile of wake-ups may double up to this, ns.
pub const LATE_NS: f64 = 2e6;

/// A VM over a simulation.
pub struct Seen {
    vcpus: f64,
    /// Ready, limited and co-stopped, per vCPU.
    pub waits: f64,
    /// Ready alone, summed over vCPUs.
    pub ready: f64,
    /// On a pCPU, summed over vCPUs.
    pub run: f64,
    wakes: Histogram,
}

/// The VMs of a host, by seed.
pub type Runs = Vec<Vec<Seen>>;

/// Simulates a host once with each seed.
///
/// # Errors
/// `Interrupted`; the setup is not valid.
pub fn runs(entry: &Entry, setup: &Setup, seeds: Range<u64>, length_ns: u64) -> Result<Runs, Fault> {
    let one = |seed: u64| {
        interrupt::check()?;
        simulated(entry, &Setup { seed, ..setup.clone() }, length_ns)
    };
    seeds.map(one).collect()
}

fn simulated(entry: &Entry, setup: &Setup, length_ns: u64) -> Result<Vec<Seen>, Fault> {
    let values = Values::defaults(entry.about.parameters);
    let mut s: Box<dyn Simulation> = (entry.build)(setup, &values)?;
    s.run(length_ns, u64::MAX);
    let mut first = 0;
    let seen = setup.vms.iter().map(|vm| {
        let vcpus = first..first + vm.vcpus.len();
        first = vcpus.end;
        let (mut waits, mut ready, mut run, mut wakes) = (0.0, 0.0, 0.0, Histogram::default());
        for v in vcpus {
            let a = s.account(Vcpu(v as u32));
            let of = |state: State| a.ns[state as usize] as f64 / length_ns as f64;
            ready += of(State::Ready);
            run += of(State::Running);
            waits += of(State::Ready) + of(State::Limited) + of(State::CoStopped);
            wakes = wakes.merged(&a.wake_latency);
        }
        let vcpus = vm.vcpus.len() as f64;
        Seen { vcpus, waits: waits / vcpus, ready, run, wakes }
    });
    Ok(seen.collect())
}

/// What all VMs wait together, in pCPUs, by seed.
pub fn sums(runs: &Runs) -> impl Iterator<Item = f64> {
    runs.iter().map(|vms| vms.iter().map(|vm| vm.waits * vm.vcpus).sum())
}

/// The change of what all VMs wait together, in pCPUs: mean over the seeds, and its standard error.
pub fn sum_grows(before: &Runs, after: &Runs) -> (f64, f64) {
    let each: Vec<f64> = sums(before).zip(sums(after)).map(|(a, b)| b - a).collect();
    let error = variance(&each).map_or(0.0, |v| (v / each.len() as f64).sqrt());
    (mean(&each).unwrap_or(0.0), error)
}

/// Fewer wake-ups have no 99th percentile.
pub const WAKES: u64 = 100;

/// What a VM's vCPUs waited, mean over the seeds, and the 99th percentile of its wake-ups, ns; 0 if they are few.
pub fn of_vm(runs: &Runs, vm: usize) -> (f64, f64) {
    let waits = mean(&runs.iter().map(|vms| vms[vm].waits).collect::<Vec<_>>()).unwrap_or(0.0);
    let wakes = runs.iter().fold(Histogram::default(), |sum, vms| sum.merged(&vms[vm].wakes));
    (waits, Quantiles::of(&wakes).filter(|q| q.count >= WAKES).map_or(0.0, |q| q.p99_ns))
}

/// By how much a VM's waits grew per vCPU; and in words, if it is harmed.
pub fn harm(before: &Runs, after: &Runs, vm: usize) -> (f64, Option<String>) {
    let ((was, was_late), (is, is_late)) = (of_vm(before, vm), of_vm(after, vm));
    let is_harmed = is - was >= GROWTH || was_late > 0.0 && is_late > LATE_NS && is_late > 2.0 * was_late;
    let told = is_harmed.then(|| {
        let [was, is, was_late, is_late] = [100.0 * was, 100.0 * is, was_late / 1e6, is_late / 1e6];
        format!("waits {is:.1} % instead of {was:.1}, p99 {is_late:.1} ms instead of {was_late:.1}")
    });
    (is - was, told)
}
