//! Forecasts the effect of steps on every VM. Replays a recorded host with its old settings, and again with
//! the steps.
//!
//! Idea: a forecast is as good as its model reproduces the measurement. So the host is first simulated with
//! its old settings (calibration), and the effective weights are derived from the recording
//! ([`super::weights`]). Every set of steps is then one more replay of the same demands. If the simulator has
//! an error for a VM with the old settings, its forecast is at least that uncertain. It is also at least as
//! uncertain as the parts of the window differ from each other. The interval is the larger of both. If the
//! replay does not reproduce a host ([`GIVEN_BACK`]), [`fluid`] makes the forecast instead, and the forecast
//! says so.
//!
//! Left out: as for any replay ([`super::replay`]). `GAP(foretell-calibration)`: the replay's error is
//! measured before weights are derived from the recording, so a replay that forecasts well with them can look
//! bad. `GAP(foretell-appetite)`: the demand of a VM that got less than it wanted is unknown.

use super::demand::Demands;
use super::replay::{Got, Replay, replay};
use super::weights;
use vsteer_core::Fault;
use vsteer_core::Interval;
use vsteer_core::forecast::fluid;
use vsteer_core::forecast::{Forecast, Forecaster, VmForecast};
use vsteer_core::model::{HostModel, VmModel};
use vsteer_core::nouns::{Histogram, HostConfig};
use vsteer_core::setting::Step;

/// Largest mean error of a replay over vCPUs that wait, as a share of a pCPU. A replay with a larger error gives no
/// forecast.
pub const GIVEN_BACK: f64 = 0.02;
/// If a vCPU waits less than this, measured and simulated, it is easy to reproduce, so it does not count.
const WAITS_FROM: f64 = 0.01;
/// Number of parts of the window. Their spread shows how certain a value of the whole is.
const PARTS: usize = 4;
/// Two-sided 95 % of Student's t with [`PARTS`] - 1 degrees of freedom (3.18), divided by the root of
/// [`PARTS`].
const SPREADS: f64 = 3.182 / 2.0;
/// The smallest half-width of an interval of a share, because two recordings of one host differ by as much.
const LEAST_HALF_WIDTH: f64 = 0.003;

/// A recorded host, simulated with its old settings.
pub struct ReplayForecaster<'a> {
    config: &'a HostConfig,
    model: &'a HostModel,
    wanted: &'a Demands,
    window_ns: u64,
    before: Replay,
    as_it_was: Vec<Got>,
    /// The effective weights; derived from the recording at the first forecast.
    factors: Option<Vec<f64>>,
}

impl<'a> ReplayForecaster<'a> {
    /// Simulates `config` with the demands `wanted` and compares the result with `model`.
    ///
    /// # Errors
    /// As [`replay`] and [`Replay::run`].
    pub fn new(
        config: &'a HostConfig,
        model: &'a HostModel,
        wanted: &'a Demands,
        window_ns: u64,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<ReplayForecaster<'a>, Fault> {
        let before = replay(config, wanted, 1)?;
        let as_it_was = before.run(window_ns, window_ns, go_on)?;
        Ok(ReplayForecaster { config, model, wanted, window_ns, before, as_it_was, factors: None })
    }

    /// The mean error of the ready shares of vCPUs that wait, with the old settings; `None` if none waits.
    pub fn calibration(&self) -> Option<f64> {
        let off: Vec<f64> = self
            .as_it_was
            .iter()
            .filter(|g| g.thread.role.vcpu().is_some())
            .filter_map(|g| {
                let vm = self.model.vm(&g.thread.vm)?;
                let ready = vm.threads.iter().find(|t| t.tid == g.thread.tid)?.shares.ready?;
                (ready.max(g.ready) >= WAITS_FROM).then_some((ready - g.ready).abs())
            })
            .collect();
        vsteer_core::stats::mean(&off)
    }

    /// Forecasts the effect of `steps`.
    ///
    /// # Errors
    /// As [`replay`] and [`Replay::run`].
    pub fn forecast(&mut self, steps: &[Step], go_on: &mut dyn FnMut() -> bool) -> Result<Forecast, Fault> {
        if self.factors.is_none() {
            let (before, got) = (&self.before, &self.as_it_was);
            self.factors = Some(weights::effective(before, got, self.model, self.window_ns, go_on)?);
        }
        let mut host: Replay = replay(&fluid::after(self.config, steps), self.wanted, 1)?;
        self.factors.iter().for_each(|factors| weights::scale(&mut host, factors));
        let parts = host.run_in_parts(self.window_ns, self.window_ns, PARTS, go_on)?;
        let vms = self.model.vms.iter().map(|vm| self.vm(vm, &parts)).collect();
        Ok(Forecast { method: "replay of the recording".to_owned(), vms })
    }

    /// The same as a [`Forecaster`], which calls `go_on` to ask whether to continue.
    pub fn asking<'b>(&'b mut self, go_on: &'b mut dyn FnMut() -> bool) -> impl Forecaster + 'b {
        move |steps: &[Step]| self.forecast(steps, go_on)
    }

    fn vm(&self, vm: &VmModel, parts: &[Vec<Got>]) -> VmForecast {
        let sum = |got: &[Got], of: &dyn Fn(&Got) -> f64| -> f64 {
            got.iter().filter(|g| g.thread.vm == vm.id && g.thread.role.vcpu().is_some()).map(of).sum()
        };
        let interval = |measured: Option<f64>, of: &dyn Fn(&Got) -> f64| {
            let each: Vec<f64> = parts.iter().map(|part| sum(part, of)).collect();
            let likely = vsteer_core::stats::mean(&each).unwrap_or(0.0);
            let spread = SPREADS * libm::sqrt(vsteer_core::stats::variance(&each).unwrap_or(0.0));
            let off = measured.map_or(0.0, |m| (m - sum(&self.as_it_was, of)).abs());
            let half = spread.max(off).max(LEAST_HALF_WIDTH);
            Interval { low: (likely - half).max(0.0), likely, high: likely + half }
        };
        let measured = |of: &dyn Fn(&vsteer_core::model::Shares) -> Option<f64>| -> Option<f64> {
            let all: Vec<f64> = vm.vcpu_threads().filter_map(|t| of(&t.shares)).collect();
            (!all.is_empty()).then(|| all.iter().sum())
        };
        let (run, ready, lag) =
            (measured(&|s| s.run), measured(&|s| s.ready.or(s.wait)), measured(&|s| s.lag));
        let woken = |got: &[Got]| -> Histogram {
            let own = got.iter().filter(|g| g.thread.vm == vm.id && g.thread.role.vcpu().is_some());
            own.fold(Histogram::default(), |sum, g| sum.merged(&g.wake))
        };
        let p99s: Vec<f64> = parts.iter().filter_map(|part| woken(part).quantile_ns(0.99)).collect();
        let all = parts.iter().fold(Histogram::default(), |sum, part| sum.merged(&woken(part)));
        let wake_p99 = all.quantile_ns(0.99).map(|likely| {
            let low = p99s.iter().copied().fold(likely, f64::min);
            let high = p99s.iter().copied().fold(likely, f64::max);
            // The error with the old settings, applied as a factor in both directions.
            let seen = vm.wake_latency.map(|q| q.p99_ns).zip(woken(&self.as_it_was).quantile_ns(0.99));
            let factor = seen.map_or(1.0, |(m, s)| (m / s).max(s / m));
            Interval { low: low / factor, likely, high: high * factor }
        });
        let waits = sum(&parts.concat(), &|g| g.wake_wait_ns as f64);
        let wakes: u64 = all.total();
        let limited = measured(&|s| s.limited);
        VmForecast {
            run_after: interval(run, &|g| g.run),
            ready_after: interval(ready, &|g| g.ready),
            lag_before: lag,
            lag_after: Some(interval(lag, &|g| g.lag)),
            limited_before: limited,
            limited_after: limited.map(|_| interval(limited, &|g| g.limited)),
            null_error: ready
                .map(|seen| sum(&self.as_it_was, &|g| g.ready + g.limited) - seen - limited.unwrap_or(0.0)),
            wake_wait_ns_after: (wakes > 0).then(|| {
                let likely = waits / wakes as f64;
                Interval { low: likely / 2.0, likely, high: likely * 2.0 }
            }),
            wake_p99_ns_before: vm.wake_latency.map(|q| q.p99_ns),
            wake_p99_ns_after: wake_p99,
            ..VmForecast::unchanged(vm.id.clone(), &vm.name, run.unwrap_or(0.0), ready.unwrap_or(0.0))
        }
    }
}
