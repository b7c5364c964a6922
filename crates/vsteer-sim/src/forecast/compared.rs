//! Measures how much a simulated host differs from the measured one, vCPU by vCPU.
//!
//! Calibration: does the simulation reproduce the measurement? Prediction: does it forecast the measurement
//! after a change? Two cheap forecasts serve as references: no change, and fluid fair share.
//!
//! A vCPU that hardly waits is easy to forecast, so errors are means over vCPUs that wait. Percentiles of few
//! wake-ups do not count.
//!
//! Left out: errors of the run share, which a waiting vCPU's ready share implies.

use super::replay::Got;
use serde::Serialize;
use std::collections::BTreeMap;
use vsteer_core::model::{HostModel, ThreadModel};
use vsteer_core::nouns::{HostConfig, Tid, VmId, VmThread};
use vsteer_core::stats::mean;
use vsteer_core::{Fault, FaultKind};

/// If a vCPU waits less than this share both before and after the change, its error does not count.
const WAITS_FROM: f64 = 0.05;
/// The error of a 99th percentile does not count if there are fewer wake-ups than this.
const WAKE_UPS_FROM: u64 = 1000;

/// The measured and simulated values to compare.
pub struct Sides<'a> {
    /// Measured before the change.
    pub model: &'a HostModel,
    /// Simulated with the configuration before the change.
    pub as_it_was: &'a [Got],
    /// Simulated with the change.
    pub predicted: Option<&'a [Got]>,
    /// Ready shares with the change, by fluid fair share.
    pub fluid: &'a BTreeMap<Tid, f64>,
    /// Measured after the change.
    pub then: Option<&'a HostModel>,
}

/// One vCPU: measured and simulated before a change, predicted and measured after it.
#[derive(Debug)]
pub struct Row<'a> {
    /// Its VM's name.
    pub vm: &'a str,
    /// The vCPU's number in the VM.
    pub vcpu: u32,
    /// Measured before the change.
    pub measured: Option<&'a ThreadModel>,
    /// Simulated with the configuration before the change.
    pub simulated: &'a Got,
    /// Simulated with the change.
    pub predicted: Option<&'a Got>,
    /// The ready share by fluid fair share.
    pub fluid: Option<f64>,
    /// Measured after the change.
    pub then: Option<&'a ThreadModel>,
}

impl Row<'_> {
    /// Does it wait, before or after the change?
    pub fn waits(&self) -> bool {
        ready(self.measured).unwrap_or(0.0).max(ready(self.then).unwrap_or(0.0)) >= WAITS_FROM
    }
}

/// All vCPUs, and the errors over those that wait.
#[derive(Debug)]
pub struct Compared<'a> {
    /// Every vCPU.
    pub rows: Vec<Row<'a>>,
    /// Errors of the simulation before the change.
    pub calibration: Errors,
    /// Errors of the simulation with the change.
    pub prediction: Errors,
    /// Mean error of the ready share of the forecast "no change".
    pub no_change: Option<f64>,
    /// Mean error of the ready share of fluid fair share.
    pub fluid: Option<f64>,
}

impl<'a> Compared<'a> {
    /// Compares these values.
    pub fn of(sides: &Sides<'a>) -> Compared<'a> {
        let row = |got: &'a Got| {
            let same = |g: &&Got| g.thread.tid == got.thread.tid;
            Some(Row {
                vm: &sides.model.vm(&got.thread.vm)?.name,
                vcpu: got.thread.role.vcpu()?,
                measured: measured(got, sides.model),
                simulated: got,
                predicted: sides.predicted.and_then(|all| all.iter().find(same)),
                fluid: sides.fluid.get(&got.thread.tid).copied(),
                then: sides.then.and_then(|m| measured(got, m)),
            })
        };
        let rows: Vec<Row<'a>> = sides.as_it_was.iter().filter_map(row).collect();
        let waiting = || rows.iter().filter(|r| r.waits());
        Compared {
            calibration: Errors::of(waiting().map(|r| (Some(r.simulated), r.measured))),
            prediction: Errors::of(waiting().map(|r| (r.predicted, r.then))),
            no_change: ready_error(waiting().filter_map(|r| Some((ready(r.measured)?, ready(r.then)?)))),
            fluid: ready_error(waiting().filter_map(|r| Some((r.fluid?, ready(r.then)?)))),
            rows,
        }
    }
}

/// Errors over several vCPUs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Errors {
    /// Mean error of the ready share.
    ready: Option<f64>,
    /// How many vCPUs the mean covers.
    vcpus: usize,
    /// Mean relative error of the 99th percentile of the wake-up latency, over vCPUs with enough wake-ups.
    wake_p99: Option<f64>,
}

impl Errors {
    fn of<'a>(pairs: impl Iterator<Item = (Option<&'a Got>, Option<&'a ThreadModel>)>) -> Errors {
        let pairs: Vec<(&Got, &ThreadModel)> =
            pairs.filter_map(|(got, thread)| Some((got?, thread?))).collect();
        let wake: Vec<f64> = pairs
            .iter()
            .filter_map(|(got, thread)| {
                let q = thread.wake_latency.filter(|q| q.count >= WAKE_UPS_FROM)?;
                Some((got.wake.quantile_ns(0.99)? - q.p99_ns).abs() / q.p99_ns)
            })
            .collect();
        let ready = pairs.iter().filter_map(|(got, thread)| Some((got.ready, thread.shares.ready?)));
        Errors { ready: ready_error(ready), vcpus: pairs.len(), wake_p99: mean(&wake) }
    }

    /// The errors as text.
    pub fn told(&self) -> String {
        let Some(ready) = self.ready else { return "no vCPU waited at least 5 % of the time".to_owned() };
        let wake = self.wake_p99.map_or_else(String::new, |w| format!(", of wake-up p99 {:.0} %", 100.0 * w));
        format!(
            "error of ready {:.2} percentage points{wake} (means over {} vCPUs that wait at least 5 %)",
            100.0 * ready,
            self.vcpus
        )
    }
}

/// The errors of the simulation against the measurement, over all vCPUs.
pub fn calibration(got: &[Got], model: &HostModel) -> Errors {
    let pair = |g| -> (Option<&Got>, Option<&ThreadModel>) { (Some(g), measured(g, model)) };
    Errors::of(got.iter().filter(|g| g.thread.role.vcpu().is_some()).map(pair))
}

fn measured<'a>(got: &Got, model: &'a HostModel) -> Option<&'a ThreadModel> {
    model.vm(&got.thread.vm)?.threads.iter().find(|t| t.tid == got.thread.tid)
}

fn ready(thread: Option<&ThreadModel>) -> Option<f64> {
    thread.and_then(|t| t.shares.ready)
}

fn ready_error(pairs: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let errors: Vec<f64> = pairs.map(|(a, b)| (a - b).abs()).collect();
    mean(&errors)
}

/// How much the host's processes outside VMs used, pCPUs. They are not simulated.
pub fn others_pcpus(model: &HostModel) -> f64 {
    let busy: f64 = model.pcpus.iter().map(|p| p.busy).sum();
    let vms: f64 = model.vms.iter().filter_map(|vm| vm.group.run).sum();
    (busy - vms).max(0.0)
}

/// The later configuration, if it has the threads of `config`. It keeps the start of quota periods, because
/// those are known before the change.
///
/// # Errors
/// `BadInput`, with the first thread that is not in the later recording.
pub fn same_threads(config: &HostConfig, later: &HostConfig) -> Result<HostConfig, Fault> {
    let has = |vm: &VmId, t: &VmThread| {
        let vm = later.vms.iter().find(|v| v.id == *vm);
        vm.is_some_and(|v| v.threads.iter().any(|u| u.tid == t.tid && u.role == t.role))
    };
    for vm in &config.vms {
        if let Some(t) = vm.threads.iter().find(|t| t.role.vcpu().is_some() && !has(&vm.id, t)) {
            let what =
                format!("VM {:?}: {} (thread {}) is not in the later recording", vm.name, t.role, t.tid.0);
            return Err(
                Fault::new(FaultKind::BadInput, what).help("take two recordings of the same running VMs")
            );
        }
    }
    let clocks = config.scheduler.as_ref().map(|s| s.quota_clocks.clone()).unwrap_or_default();
    let mut later = later.clone();
    if let Some(scheduler) = &mut later.scheduler {
        scheduler.quota_clocks = clocks;
    }
    Ok(later)
}

#[cfg(test)]
mod tests;
