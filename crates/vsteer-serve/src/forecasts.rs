//! Plans and what-if questions over the last minute, without a change of the host.
//!
//! A forecast simulates for seconds. So one thread of low priority computes, one request at a time, and stops when the client
//! leaves or the time is over. The plan that vsteer itself proposes is kept until there is a newer minute.

use crate::seen::Seen;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};
use vsteer_core::forecast::{Forecaster, fluid};
use vsteer_core::model::HostModel;
use vsteer_core::nouns::HostConfig;
use vsteer_core::plan::advise::{plan_by, plan_of};
use vsteer_core::plan::limits::Limits;
use vsteer_core::plan::{Plan, set};
use vsteer_core::setting::{Scope, Step};
use vsteer_core::thresholds::Thresholds;
use vsteer_core::{Fault, FaultKind};
use vsteer_sim::forecast::counted::CountedForecaster;

/// How long one answer may compute.
const LIMIT: Duration = Duration::from_secs(30);
/// The nice level of the thread that computes.
const NICE: i32 = 5;

/// A plan, and why its forecast is not simulated, if so.
#[derive(Debug, Clone)]
pub struct Planned {
    /// The plan.
    pub plan: Arc<Plan>,
    /// Why the forecast is by fluid fair shares.
    pub note: Option<String>,
}

/// Computes plans, one at a time.
pub struct Forecasts {
    thresholds: Thresholds,
    /// Whose turn it is.
    turn: Arc<Semaphore>,
    /// The proposal for this minute.
    kept: Mutex<Option<(Arc<HostModel>, Planned)>>,
}

impl Forecasts {
    /// Plans with these thresholds.
    pub fn new(thresholds: Thresholds) -> Forecasts {
        Forecasts { thresholds, turn: Arc::new(Semaphore::new(1)), kept: Mutex::default() }
    }

    /// The plan for the last minute: with settings the one that makes them, else the one that vsteer proposes.
    ///
    /// # Errors
    /// `NothingThere` in the first seconds; `Failed` if another plan is computed all the time, or this one takes too long; a fault of the
    /// settings.
    pub async fn plan(&self, seen: &Seen, settings: Vec<set::Setting>) -> Result<Planned, Fault> {
        let minute = seen.minute.clone().ok_or_else(|| {
            Fault::new(FaultKind::NothingThere, "a plan needs the samples of 15 seconds")
                .help("try again in 15 seconds")
        })?;
        let asked = !settings.is_empty();
        if let Some(kept) = self.kept(&minute).filter(|_| !asked) {
            return Ok(kept);
        }
        let turn = tokio::time::timeout(LIMIT, Arc::clone(&self.turn).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            return Err(Fault::new(FaultKind::Failed, "another plan is being computed")
                .help("try again in some seconds"));
        };
        // Another client may have asked the same meanwhile.
        if let Some(kept) = self.kept(&minute).filter(|_| !asked) {
            return Ok(kept);
        }
        let (limits, config) =
            (Limits { thresholds: self.thresholds, ..Limits::default() }, Arc::clone(&seen.config));
        let (tell, told) = oneshot::channel();
        let (begun, of) = (Instant::now(), Arc::clone(&minute));
        let compute = move || {
            let _turn = turn;
            let _ = rustix::process::nice(NICE);
            let mut go_on = || begun.elapsed() < LIMIT && !tell.is_closed();
            let planned = planned(&config, &of, &settings, limits, &mut go_on);
            // The client may be gone.
            let _ = tell.send(planned);
        };
        let started = std::thread::Builder::new().name("forecast".to_owned()).spawn(compute);
        started.map_err(|e| Fault::io("starting a thread", &e))?;
        let planned = told.await.map_err(|_| Fault::new(FaultKind::Failed, "the forecast failed"))??;
        if !asked {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            *kept = Some((minute, planned.clone()));
        }
        Ok(planned)
    }

    fn kept(&self, minute: &Arc<HostModel>) -> Option<Planned> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.as_ref().filter(|(of, _)| Arc::ptr_eq(of, minute)).map(|(_, planned)| planned.clone())
    }
}

fn planned(
    config: &HostConfig,
    model: &HostModel,
    settings: &[set::Setting],
    limits: Limits,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Planned, Fault> {
    let counted = CountedForecaster::new(config, model, go_on);
    let simulated = counted.and_then(|told| chosen(config, model, settings, limits, &mut told.asking(go_on)));
    let (plan, note) = match simulated {
        Ok(plan) => (plan, None),
        // As `vsteer plan` does.
        Err(fault) if fault.kind == FaultKind::Unsupported => {
            let mut fluid = |steps: &[Step]| Ok(fluid::forecast(config, model, steps));
            (chosen(config, model, settings, limits, &mut fluid)?, Some(fault.to_string()))
        }
        Err(fault) if fault.kind == FaultKind::Interrupted => {
            let what = format!("the forecast took more than {} s", LIMIT.as_secs());
            return Err(Fault::new(FaultKind::Failed, what).help("run vsteer plan on the host"));
        }
        Err(fault) => return Err(fault),
    };
    Ok(Planned { plan: Arc::new(plan), note })
}

fn chosen(
    config: &HostConfig,
    model: &HostModel,
    settings: &[set::Setting],
    limits: Limits,
    forecaster: &mut dyn Forecaster,
) -> Result<Plan, Fault> {
    let scope = if config.keeps_settings() { Scope::Both } else { Scope::Live };
    if settings.is_empty() {
        return plan_by(config, model, limits, scope, None, forecaster);
    }
    let steps = set::steps(config, settings)?;
    let title = match steps.is_empty() {
        true => "nothing to change: the setting already has this value",
        false => "requested by set",
    };
    plan_of(config, title, steps, scope, forecaster)
}
