//! Looks at the host at a run's begin and end, where a measure is the observer's (ready, lag, wake-up delay).
//!
//! By the same [`Observe`] that `vsteer top` uses; counters are kept by whoever counts, so nothing wakes while the run goes on. Who is there is asked anew at
//! both ends: a VM that the workload's `prepare` started is known. Where no measure asks for it, nothing is opened and no run is any longer.
//!
//! Left out: a host other than the one that is named by `connect`; runs of which the observer itself is a part.

use vsteer_core::experiment::description::Of;
use vsteer_core::experiment::{Experiment, Run, observed};
use vsteer_core::model::{self, HostModel};
use vsteer_core::nouns::{Batch, HostConfig, VmConfig};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::kvm::inventory::is_named;
use vsteer_host::observe::Observe;

/// Opens the host of a connection URI; without one this one.
pub type Open<'a> = dyn FnMut(Option<&str>) -> Result<Box<dyn Observe>, Fault> + 'a;

/// Whoever counts.
pub struct Observing {
    host: Box<dyn Observe>,
}

/// What was seen at a run's begin.
pub struct Begun(Result<(HostConfig, Batch), Fault>);

/// What was seen from a run's begin to its end.
pub type Seen = Result<(HostConfig, HostConfig, HostModel), Fault>;

impl Observing {
    /// Opens the host, where a measure is the observer's.
    ///
    /// # Errors
    /// `Unsupported` where it counts nothing that a measure rests on; as `open`.
    pub fn open(experiment: &Experiment, open: &mut Open<'_>) -> Result<Option<Observing>, Fault> {
        let asked: Vec<_> =
            experiment.measures.iter().filter_map(|m| Some((m, m.of.observed()?.0))).collect();
        if asked.is_empty() {
            return Ok(None);
        }
        let host = open(experiment.connect.as_deref())?;
        let collector = host.collector();
        for (measure, quantity) in asked {
            if let Some(why) = collector.missing.get(quantity.counter) {
                let what = format!("measure {:?}: {} cannot be measured here", measure.name, quantity.name);
                return Err(Fault::new(FaultKind::Unsupported, what)
                    .because(why)
                    .way_out("see vsteer top; leave the measure out"));
            }
        }
        Ok(Some(Observing { host }))
    }

    /// A run begins.
    pub fn begin(&mut self) -> Begun {
        // Who is there first: who is not known is not counted.
        Begun(self.host.config().and_then(|config| Ok((config, self.host.sample()?))))
    }

    /// It has ended.
    pub fn end(&mut self, begun: Begun) -> Seen {
        let (before, first) = begun.0?;
        // The counters first: the run is over.
        let last = self.host.sample()?;
        let after = self.host.config()?;
        let model = model::derive(&after, &self.host.collector(), &[first, last])?;
        Ok((before, after, model))
    }
}

/// Fills in what the observer saw, or why there is nothing.
pub fn measure(experiment: &Experiment, seen: &Seen, run: &mut Run) {
    for (i, m) in experiment.measures.iter().enumerate() {
        let Some((quantity, vms)) = Of::observed(&m.of) else { continue };
        let is_meant = |vm: &VmConfig| is_named(vms, &vm.name, &vm.id);
        let value = match seen {
            Ok((before, after, model)) => observed::value(quantity, &is_meant, (before, after), model),
            Err(fault) => Err(super::one_line(fault)),
        };
        match value {
            Ok(value) => run.values[i] = Some(value),
            Err(why) => run.missing.push(format!("{} of {vms} in run {}: {why}", m.name, run.number)),
        }
    }
}
