//! Simulated hosts drawn by a seed, on which plans and forecasts are judged: what an observer sees of one, changes of it, and
//! what they do.

pub mod change;
pub mod compared;
mod host;

pub use host::{host, host_on, xen_host};

use crate::interrupt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use vsteer_core::Fault;
use vsteer_core::model::{HostModel, derive};
use vsteer_core::nouns::HostConfig;
use vsteer_sim::blame::Blame;
use vsteer_sim::policy::Values;
use vsteer_sim::samples;
use vsteer_sim::sched::Entry;
use vsteer_sim::setup::{Host, Setup};
use vsteer_sim::trace::Trace;

const S: u64 = 1_000_000_000;
/// What a plan is made from, s.
const OBSERVED_S: u64 = 10;

/// What an observer would record of the host.
///
/// # Errors
/// The setup is not valid.
pub fn observed(entry: &Entry, setup: &Setup) -> Result<(HostConfig, HostModel), Fault> {
    let config = samples::config(setup, entry.about.name, entry.about.default_weight);
    let blame = Blame::new(&Host::new(setup)?);
    let values = Values::defaults(entry.about.parameters);
    let mut s = (entry.watched)(setup, &values, (Trace::default(), blame.clone()))?;
    let mut batches = Vec::new();
    for second in 0..=OBSERVED_S {
        s.run(second * S, u64::MAX);
        batches.push(samples::batch(setup, &*s, blame.drain(s.now_ns())));
    }
    let model = derive(&config, &samples::collector(true), &batches)?;
    Ok((config, model))
}

/// The same for each number below `many`, on all pCPUs; the results are in order.
///
/// # Errors
/// The first of `one`; `Interrupted`.
pub fn on_each<T: Send>(
    what: &str,
    many: u64,
    one: &(dyn Fn(u64) -> Result<T, Fault> + Sync),
) -> Result<Vec<T>, Fault> {
    interrupt::watch()?;
    let (next, done) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<(), Fault> {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= many {
                return Ok(());
            }
            if i > 0 && i.is_multiple_of((many / 10).max(1)) {
                eprintln!("vsteer-lab: {i} of {many} {what}");
            }
            interrupt::check()?;
            let result = one(i)?;
            done.lock().expect("nobody panics").push((i, result));
        }
    };
    std::thread::scope(|scope| -> Result<(), Fault> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let all: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        all.into_iter().try_for_each(|one| one.join().expect("it does not panic"))
    })?;
    let mut done = done.into_inner().expect("nobody panics");
    done.sort_by_key(|(i, _)| *i);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}
