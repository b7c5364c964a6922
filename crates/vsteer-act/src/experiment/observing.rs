//! Observes the host at the start and the end of a run, if a measure needs the observer (ready, lag, wake-up delay) or
//! a counter of the kernel (cache misses).
//!
//! It uses the same [`Observe`] as `vsteer top`. The kernel keeps the counters, so nothing wakes up during the run.
//! vsteer lists the VMs at both ends, so it knows a VM that the workload's `prepare` started. Without such a measure
//! it opens nothing and lengthens no run.
//!
//! Left out: any host except the one of `connect`; the observer's own effect on a run.

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

/// Opens the host of a connection URI; without a URI, this host.
pub type Open<'a> = dyn FnMut(Option<&str>) -> Result<Box<dyn Observe>, Fault> + 'a;

/// The observer of the runs.
pub struct Observing {
    host: Box<dyn Observe>,
}

/// State at the start of a run.
pub struct Begun {
    seen: Result<(HostConfig, Batch), Fault>,
    /// The open counter of each measure that uses one.
    counting: Vec<Result<Counting, Fault>>,
}

/// What the observer saw from the start to the end of a run.
pub struct Seen {
    hosts: Result<(HostConfig, HostConfig, HostModel), Fault>,
    counted: Vec<Result<f64, Fault>>,
}

impl Observing {
    /// Opens the host, if a measure needs the observer.
    ///
    /// # Errors
    /// `Unsupported` if the host does not count something that a measure needs; as `open`.
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
                let what = format!("measure {:?}: cannot measure {} here", measure.name, quantity.name);
                return Err(Fault::new(FaultKind::Unsupported, what)
                    .because(why)
                    .help("leave the measure out; vsteer top shows what this host measures"));
            }
        }
        Ok(Some(Observing { host }))
    }

    /// Marks the start of a run.
    pub fn begin(&mut self, experiment: &Experiment) -> Begun {
        // First list the VMs: an unknown VM is not counted.
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

    /// Marks the end of a run.
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

/// Measures that are counters of the kernel: the event, and the VMs.
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

/// The count, if the same vCPUs were there at both ends.
fn count(seen: &Seen, number: usize, vms: &str) -> Result<f64, String> {
    let (before, after, _) = seen.hosts.as_ref().map_err(super::one_line)?;
    let (first, last) = (vcpus(before, vms), vcpus(after, vms));
    if first.values().all(Vec::is_empty) {
        return Err("no VM has this name".to_owned());
    }
    if first != last {
        return Err("a VM or a vCPU started or ended during the run".to_owned());
    }
    match seen.counted.get(number) {
        Some(counted) => counted.as_ref().copied().map_err(super::one_line),
        None => Err("vsteer did not count it".to_owned()),
    }
}

/// Fills in what the observer saw, or why nothing is known.
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
