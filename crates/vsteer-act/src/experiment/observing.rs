//! Looks at the host at a run's begin and end, where a measure is the observer's (ready, lag, wake-up delay) or a counter's of the kernel's (cache misses).
//!
//! By the same [`Observe`] that `vsteer top` uses; counters are kept by whoever counts, so nothing wakes while the run goes on. Who is there is asked anew at
//! both ends: a VM that the workload's `prepare` started is known. Where no measure asks for it, nothing is opened and no run is any longer.
//!
//! Left out: a host other than the one that is named by `connect`; runs of which the observer itself is a part.

use std::collections::BTreeMap;
use vsteer_core::counted::Event;
use vsteer_core::model::{self, HostModel};
use vsteer_core::nouns::{Batch, HostConfig, Tid, VmConfig, VmId};
use vsteer_core::{Fault, FaultKind};
use vsteer_experiment::description::Of;
use vsteer_experiment::{Experiment, Run, observed};
use vsteer_host::counted::{self, Counting};
use vsteer_host::kvm::inventory::is_named;
use vsteer_host::observe::Observe;

/// Opens the host of a connection URI; without one this one.
pub type Open<'a> = dyn FnMut(Option<&str>) -> Result<Box<dyn Observe>, Fault> + 'a;

/// Whoever counts.
pub struct Observing {
    host: Box<dyn Observe>,
}

/// What was seen at a run's begin.
pub struct Begun {
    seen: Result<(HostConfig, Batch), Fault>,
    /// Of each measure that is a counter's.
    counting: Vec<Result<Counting, Fault>>,
}

/// What was seen from a run's begin to its end.
pub struct Seen {
    hosts: Result<(HostConfig, HostConfig, HostModel), Fault>,
    counted: Vec<Result<f64, Fault>>,
}

impl Observing {
    /// Opens the host, where a measure is the observer's.
    ///
    /// # Errors
    /// `Unsupported` where it counts nothing that a measure rests on; as `open`.
    pub fn open(experiment: &Experiment, open: &mut Open<'_>) -> Result<Option<Observing>, Fault> {
        let asked: Vec<_> =
            experiment.measures.iter().filter_map(|m| Some((m, m.of.observed()?.0))).collect();
        for (event, _) in counters(experiment) {
            counted::available(event)?;
        }
        if asked.is_empty() && counters(experiment).next().is_none() {
            return Ok(None);
        }
        let host = open(experiment.connect.as_deref())?;
        let collector = host.collector();
        for (measure, quantity) in asked {
            if let Some(why) = collector.missing.get(quantity.counter) {
                let what = format!("measure {:?}: {} cannot be measured here", measure.name, quantity.name);
                return Err(Fault::new(FaultKind::Unsupported, what)
                    .because(why)
                    .help("see vsteer top; leave the measure out"));
            }
        }
        Ok(Some(Observing { host }))
    }

    /// A run begins.
    pub fn begin(&mut self, experiment: &Experiment) -> Begun {
        // Who is there first: who is not known is not counted.
        let seen = self.host.config().and_then(|config| Ok((config, self.host.sample()?)));
        let counting = match &seen {
            Ok((config, _)) => counters(experiment)
                .map(|(event, vms)| {
                    Counting::begin(event, &vcpus(config, vms).into_values().flatten().collect::<Vec<_>>())
                })
                .collect(),
            Err(_) => Vec::new(),
        };
        Begun { seen, counting }
    }

    /// It has ended.
    pub fn end(&mut self, begun: Begun) -> Seen {
        // The counters first: the run is over.
        let counted = begun.counting.into_iter().map(|c| c.and_then(Counting::end)).collect();
        Seen { hosts: begun.seen.and_then(|(before, first)| self.hosts(before, first)), counted }
    }

    fn hosts(
        &mut self,
        before: HostConfig,
        first: Batch,
    ) -> Result<(HostConfig, HostConfig, HostModel), Fault> {
        let last = self.host.sample()?;
        let after = self.host.config()?;
        let model = model::derive(&after, &self.host.collector(), &[first, last])?;
        Ok((before, after, model))
    }
}

/// Measures that are counters of the kernel's: what, and of which VMs.
fn counters(experiment: &Experiment) -> impl Iterator<Item = (Event, &str)> {
    experiment.measures.iter().filter_map(|m| match &m.of {
        Of::Counter { event, vm } => Some((*event, vm.as_str())),
        _ => None,
    })
}

/// The threads of the vCPUs of each of these VMs.
fn vcpus(host: &HostConfig, vms: &str) -> BTreeMap<VmId, Vec<Tid>> {
    let meant = host.vms.iter().filter(|vm| is_named(vms, &vm.name, &vm.id));
    meant.map(|vm| (vm.id.clone(), vm.vcpus().map(|t| t.tid).collect())).collect()
}

/// What was counted, where the same vCPUs were there at both ends.
fn count(seen: &Seen, number: usize, vms: &str) -> Result<f64, String> {
    let (before, after, _) = seen.hosts.as_ref().map_err(super::one_line)?;
    let (first, last) = (vcpus(before, vms), vcpus(after, vms));
    if first.values().all(Vec::is_empty) {
        return Err("no VM has this name".to_owned());
    }
    if first != last {
        return Err("a VM or a vCPU began or ended during the run".to_owned());
    }
    match seen.counted.get(number) {
        Some(counted) => counted.as_ref().copied().map_err(super::one_line),
        None => Err("it was not counted".to_owned()),
    }
}

/// Fills in what the observer saw, or why there is nothing.
pub fn measure(experiment: &Experiment, seen: &Seen, run: &mut Run) {
    let mut counters = 0;
    for (i, m) in experiment.measures.iter().enumerate() {
        let (value, vms) = match (&m.of, m.of.observed()) {
            (Of::Counter { vm, .. }, _) => {
                counters += 1;
                (count(seen, counters - 1, vm), vm.as_str())
            }
            (_, Some((quantity, vms))) => {
                let is_meant = |vm: &VmConfig| is_named(vms, &vm.name, &vm.id);
                let value = match &seen.hosts {
                    Ok((before, after, model)) => {
                        observed::value(quantity, &is_meant, (before, after), model)
                    }
                    Err(fault) => Err(super::one_line(fault)),
                };
                (value, vms)
            }
            _ => continue,
        };
        match value {
            Ok(value) => run.values[i] = Some(value),
            Err(why) => run.missing.push(format!("{} of {vms} in run {}: {why}", m.name, run.number)),
        }
    }
}
