//! What will a set of steps do to every VM?
//!
//! A [`Forecast`] has, per VM, the observed and expected run and ready
//! time. A [`Forecaster`] makes it: [`fluid`] needs only samples; `vsteer-sim` has forecasters that simulate.

pub mod fluid;

use crate::nouns::VmId;
use crate::setting::Step;
use crate::{Fault, Interval};
use serde::{Deserialize, Serialize};

/// A way to forecast what steps do to a host that was observed.
pub trait Forecaster {
    /// Forecast for `steps`; without steps, the method's result for the present host.
    ///
    /// # Errors
    /// The method's own, and `Interrupted`.
    fn forecast(&mut self, steps: &[Step]) -> Result<Forecast, Fault>;

    /// A forecast that takes a fraction of the time and may be some points off, to rank many sets of steps by; `None` if the
    /// method has none. With twice the `effort`, from 1 to 8, it takes twice as long.
    ///
    /// # Errors
    /// As [`Forecaster::forecast`].
    fn rough(&mut self, _steps: &[Step], _effort: u64) -> Result<Option<Forecast>, Fault> {
        Ok(None)
    }
}

impl<F: FnMut(&[Step]) -> Result<Forecast, Fault>> Forecaster for F {
    fn forecast(&mut self, steps: &[Step]) -> Result<Forecast, Fault> {
        self(steps)
    }
}

/// A forecast is withheld if the method is off by more than this per vCPU for the unchanged host. Of random hosts' waiting VMs
/// that is less than one in ten (`lab run forecasts`).
pub const WITHHELD_FROM: f64 = 0.15;

/// A plan mentions the null error of a VM from this size on, as a share, summed over its vCPUs.
const OFF_TOLD_FROM: f64 = 0.02;

/// Forecast for one VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmForecast {
    /// Id of the VM.
    pub vm: VmId,
    /// Name of the VM.
    pub name: String,
    /// Sum over its vCPUs of the run share, as observed and as expected.
    pub run_before: f64,
    /// Expected run share, summed over vCPUs.
    pub run_after: Interval,
    /// Sum over its vCPUs of ready, as observed.
    pub ready_before: f64,
    /// Whether `ready_before` and `ready_after` include limited time, because the collector could not separate it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_limited: bool,
    /// Expected ready share, summed over vCPUs.
    pub ready_after: Interval,
    /// Mean wait after a wake-up, ns, as observed; `None` when nothing woke or it was not measured.
    pub wake_wait_ns_before: Option<f64>,
    /// Expected mean wait after a wake-up, ns.
    pub wake_wait_ns_after: Option<Interval>,
    /// Sum over its vCPUs of lag, as observed; `None` where the method does not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_before: Option<f64>,
    /// Expected lag, summed over vCPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_after: Option<Interval>,
    /// Sum over its vCPUs of co-stop, as observed; `None` where there is none, or the method does not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costop_before: Option<f64>,
    /// Expected co-stop, summed over vCPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costop_after: Option<Interval>,
    /// Sum over its vCPUs of limited time, as observed; `None` where the method does not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_before: Option<f64>,
    /// Expected limited time, summed over vCPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_after: Option<Interval>,
    /// What the method by itself says that the VM waits now, less what it waited, summed over its vCPUs: ready, limited and
    /// co-stopped. `None` where the method does not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub null_error: Option<f64>,
    /// The null error is so large that nobody is shown this forecast: it tells nothing of the VM ([`VmForecast::checked`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
    /// 99th percentile of the wait after a wake-up, ns, as observed; `None` where the method does not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_p99_ns_before: Option<f64>,
    /// Expected 99th percentile of the wait after a wake-up, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_p99_ns_after: Option<Interval>,
}

impl VmForecast {
    /// The forecast of a VM for which nothing changes. `run` and `ready` are its shares, summed over its vCPUs.
    pub fn unchanged(vm: VmId, name: impl Into<String>, run: f64, ready: f64) -> VmForecast {
        let same = |share: f64| Interval { low: share, likely: share, high: share };
        VmForecast {
            vm,
            name: name.into(),
            run_before: run,
            run_after: same(run),
            ready_before: ready,
            with_limited: false,
            ready_after: same(ready),
            wake_wait_ns_before: None,
            wake_wait_ns_after: None,
            lag_before: None,
            lag_after: None,
            costop_before: None,
            costop_after: None,
            limited_before: None,
            limited_after: None,
            null_error: None,
            withheld: false,
            wake_p99_ns_before: None,
            wake_p99_ns_after: None,
        }
    }

    /// Withholds the forecast if the method is further off for the unchanged host than [`WITHHELD_FROM`].
    pub fn checked(mut self, vcpus: usize) -> VmForecast {
        let off = self.null_error.map_or(0.0, f64::abs);
        self.withheld = off > WITHHELD_FROM * vcpus.max(1) as f64;
        self
    }

    /// What the method gets wrong of the unchanged host, in words; `None` if the forecast does not tell.
    pub fn null_error_told(&self) -> Option<String> {
        let off = self.null_error?;
        let word = if off > 0.0 { "more" } else { "less" };
        Some(format!("{:.1} points {word} than it did", 100.0 * off.abs()))
    }

    /// What it waits, observed and expected, summed over vCPUs: ready, limited and co-stopped.
    pub fn waits(&self) -> (f64, f64) {
        let both = |before: Option<f64>, after: Option<Interval>| {
            before.zip(after).map_or((0.0, 0.0), |(before, after)| (before, after.likely))
        };
        let limited = both(self.limited_before, self.limited_after);
        let costop = both(self.costop_before, self.costop_after);
        (self.ready_before + limited.0 + costop.0, self.ready_after.likely + limited.1 + costop.1)
    }

    /// By how much it is expected to wait longer, summed over vCPUs: ready, limited and co-stopped.
    pub fn wait_grows(&self) -> f64 {
        let (before, after) = self.waits();
        after - before
    }

    /// The change of its work rate: 1.0 unchanged, 0.9 a tenth less.
    pub fn work_ratio(&self) -> f64 {
        if self.run_before > 0.0 { self.run_after.likely / self.run_before } else { 1.0 }
    }
}

/// What a set of changes is expected to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// How it was computed.
    pub method: String,
    /// Per VM, in the configuration's order.
    pub vms: Vec<VmForecast>,
}

impl Forecast {
    /// The VMs of which the null error is worth a sentence: all whose forecast is withheld, and of the others the worst.
    pub fn far_off(&self) -> Vec<&VmForecast> {
        let off = |v: &VmForecast| v.null_error.map_or(0.0, f64::abs);
        let (withheld, shown): (Vec<_>, Vec<_>) = self.vms.iter().partition(|v| v.withheld);
        let worst =
            shown.into_iter().max_by(|a, b| off(a).total_cmp(&off(b))).filter(|v| off(v) >= OFF_TOLD_FROM);
        withheld.into_iter().chain(worst).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A VM of two vCPUs of which the method is off by `off` in sum.
    fn of(name: &str, off: f64) -> VmForecast {
        let vm = VmForecast::unchanged(VmId(name.into()), name, 0.5, 0.4);
        VmForecast { null_error: Some(off), ..vm }.checked(2)
    }

    #[test]
    fn a_forecast_that_does_not_fit_the_unchanged_host_is_withheld() {
        assert!(of("a", 0.31).withheld && of("a", -0.31).withheld);
        assert!(!of("a", 0.29).withheld && !of("a", -0.29).withheld);
        assert_eq!(of("a", -0.31).null_error_told().unwrap(), "31.0 points less than it did");
    }

    #[test]
    fn null_errors_worth_a_sentence_are_those_withheld_and_the_worst_of_the_others() {
        let told = |vms: Vec<VmForecast>| {
            let all = Forecast { method: String::new(), vms };
            all.far_off().into_iter().map(|v| v.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(told(vec![of("a", 0.1), of("b", 0.4), of("c", -0.2), of("d", -0.5)]), ["b", "d", "c"]);
        assert!(told(vec![of("a", 0.01)]).is_empty());
    }
}
