//! Which change removes the delay at the least cost to others?
//!
//! Every action of [`ACTIONS`] may propose one set of steps; each is forecast, those that break a rule are set aside
//! with the reason, and of the rest the one whose delayed VMs wait least is chosen, the gentler where two are
//! alike. No proposal, no delayed VM: an empty plan, which says so.
//!
//! The rules (both from what people lose otherwise): nobody's work rate falls by more than [`Limits::work_loss`], and
//! nobody's ready share grows by more than [`Limits::ready_growth`].

use super::action::{ACTIONS, Action, Context};
use super::{Alternative, Plan, Stage};
use crate::delay::{is_delayed_by_others, is_sleeper, runs_briefly};
use crate::forecast::fluid;
use crate::forecast::{Forecast, Forecaster, VmForecast};
use crate::model::{HostModel, VmModel};
use crate::nouns::{HostConfig, VmConfig, VmId};
use crate::plan::limits::Limits;
use crate::setting::{Change, Scope, Step};
use crate::{Fault, FaultKind};

/// Actions whose settings vSphere has: it places vCPUs, weighs and schedules in its own way.
const ON_VSPHERE: [&str; 2] = ["node", "topology"];

/// The delayed VMs that `steps` change and that may use all the time they now wait, in words, where that is more of the
/// others' work than allowed.
fn appetite(c: &Context<'_>, steps: &[Step]) -> Option<String> {
    // Who goes to a node that has room takes nobody's work.
    if steps.iter().all(|s| matches!(s.change, Change::NodeAffinity(_))) {
        return None;
    }
    let is_delayed = |id: &VmId| c.delayed.iter().any(|d| d.id == *id);
    let raised = |id: &VmId| is_delayed(id) && steps.iter().any(|s| s.vm == *id);
    let hungry: Vec<&VmModel> = c.model.vms.iter().filter(|vm| raised(&vm.id) && !runs_briefly(vm)).collect();
    let more: f64 = hungry.iter().filter_map(|vm| vm.vcpus.ready.or(vm.vcpus.wait)).sum();
    let others: f64 = c.model.vms.iter().filter(|vm| !is_delayed(&vm.id)).filter_map(|vm| vm.vcpus.run).sum();
    (more > c.limits.work_loss * others).then(|| {
        let names: Vec<String> = hungry.iter().map(|vm| format!("{:?}", vm.name)).collect();
        format!(
            "VM {} runs for long at a time and might take {:.0} % of the others' work",
            names.join(", "),
            100.0 * more / others.max(f64::MIN_POSITIVE)
        )
    })
}

/// A rule that the forecast breaks, in words; `None` when it keeps both.
fn broken_rule(forecast: &Forecast, limits: &Limits) -> Option<String> {
    forecast.vms.iter().find_map(|f: &VmForecast| {
        let loss = 1.0 - f.work_ratio();
        if loss > limits.work_loss && f.run_before > 0.02 {
            return Some(format!("VM {:?} would lose {:.0} % of its work", f.name, 100.0 * loss));
        }
        let growth = f.ready_after.likely - f.ready_before;
        (growth > limits.ready_growth)
            .then(|| format!("the ready share of VM {:?} would grow by {:.0} points", f.name, 100.0 * growth))
    })
}

/// How long the delayed VMs are expected to wait, as a sum of shares.
fn remaining_wait(forecast: &Forecast, delayed: &[&VmConfig]) -> f64 {
    forecast.vms.iter().filter(|f| delayed.iter().any(|d| d.id == f.vm)).map(|f| f.ready_after.likely).sum()
}

/// Chooses a plan by fluid fair share. `only`: consider the action of this name alone, and let it break the rules if it
/// must.
///
/// # Errors
/// `Usage` where `only` is no action's name.
pub fn plan(
    config: &HostConfig,
    model: &HostModel,
    limits: Limits,
    scope: Scope,
    only: Option<&str>,
) -> Result<Plan, Fault> {
    plan_by(config, model, limits, scope, only, &mut |steps: &[Step]| {
        Ok(fluid::forecast(config, model, steps))
    })
}

/// The plan of these steps, whatever they cost others.
///
/// # Errors
/// As `forecaster`.
pub fn plan_of(
    config: &HostConfig,
    title: &str,
    steps: Vec<Step>,
    scope: Scope,
    forecaster: &mut dyn Forecaster,
) -> Result<Plan, Fault> {
    let (unchanged, forecast) = (forecaster.forecast(&[])?, forecaster.forecast(&steps)?);
    let mut plan = Plan::new(config.clone(), title.to_owned(), steps, scope, forecast);
    plan.on_the_way = on_the_way(unchanged, &plan.steps, forecaster)?;
    Ok(plan)
}

/// Steps up to which a plan says what is expected after each.
const STEPS_TOLD: usize = 8;

/// What is expected on the way to the last of `steps`, beginning with `unchanged`.
fn on_the_way(
    unchanged: Forecast,
    steps: &[Step],
    forecaster: &mut dyn Forecaster,
) -> Result<Vec<Stage>, Fault> {
    if steps.is_empty() {
        return Ok(Vec::new());
    }
    let told = |n: &usize| steps.len() <= STEPS_TOLD || steps[*n].vm != steps[n - 1].vm;
    let after = (1..steps.len())
        .filter(told)
        .map(|n| Ok(Stage { steps: n, forecast: forecaster.forecast(&steps[..n])? }));
    std::iter::once(Ok(Stage { steps: 0, forecast: unchanged })).chain(after).collect()
}

/// A proposal that keeps the rules.
struct Fit {
    action: &'static Action,
    steps: Vec<Step>,
    forecast: Forecast,
    /// How long the delayed VMs would still wait, as a sum of shares.
    wait: f64,
}

/// The same by any method of forecasting what steps do; that of none is what was measured, simulated.
///
/// # Errors
/// `Usage` where `only` is no action's name; as `forecaster`.
pub fn plan_by(
    config: &HostConfig,
    model: &HostModel,
    limits: Limits,
    scope: Scope,
    only: Option<&str>,
    forecaster: &mut dyn Forecaster,
) -> Result<Plan, Fault> {
    if let Some(name) = only {
        known(name)?;
    }
    let context = Context { config, model, limits, delayed: delayed(config, model, &limits) };
    let unchanged = forecaster.forecast(&[])?;
    let (mut fit, mut alternatives) = proposals(&context, only, &unchanged, forecaster)?;
    let mut plan = match gentlest(&mut fit, waits(&context, &unchanged)) {
        Some(Fit { action, steps, forecast, .. }) => {
            Plan::new(config.clone(), action.doc.to_owned(), steps, scope, forecast)
        }
        None => {
            let title = if context.delayed.is_empty() {
                "nothing to change: no VM that mostly sleeps is kept waiting"
            } else {
                "no change helps within the limits"
            };
            Plan::new(config.clone(), title.to_owned(), Vec::new(), scope, unchanged.clone())
        }
    };
    for Fit { action, forecast, wait, .. } in fit {
        let why_not = format!(
            "the delayed VMs would still wait {:.1} % of a pCPU, against {:.1} %",
            100.0 * wait,
            100.0 * remaining_wait(&plan.forecast, &context.delayed)
        );
        alternatives.push(Alternative { title: action.doc.to_owned(), why_not, forecast });
    }
    plan.alternatives = alternatives;
    plan.on_the_way = on_the_way(unchanged, &plan.steps, forecaster)?;
    Ok(plan)
}

/// Is an action called that?
fn known(name: &str) -> Result<(), Fault> {
    if ACTIONS.iter().any(|a| a.name == name) {
        return Ok(());
    }
    let known: Vec<&str> = ACTIONS.iter().map(|a| a.name).collect();
    Err(Fault::new(FaultKind::Usage, format!("no action is called {name:?}"))
        .help(format!("known: {}", known.join(", "))))
}

/// The VMs that mostly sleep and are kept waiting.
fn delayed<'a>(config: &'a HostConfig, model: &HostModel, limits: &Limits) -> Vec<&'a VmConfig> {
    let thresholds = &limits.thresholds;
    let ids: Vec<&VmId> = model
        .vms
        .iter()
        .filter(|vm| is_sleeper(vm, thresholds) && is_delayed_by_others(vm, model, thresholds))
        .map(|vm| &vm.id)
        .collect();
    config.vms.iter().filter(|vm| ids.contains(&&vm.id)).collect()
}

/// How long the delayed VMs wait now, as a sum of shares.
fn waits(context: &Context<'_>, unchanged: &Forecast) -> f64 {
    let before = |f: &&VmForecast| context.delayed.iter().any(|d| d.id == f.vm);
    unchanged.vms.iter().filter(before).map(|f| f.ready_before).sum()
}

/// Asks every action. Returns the proposals that keep the rules, and the others with the reason. An action named by
/// `only` may break the rules.
fn proposals(
    context: &Context<'_>,
    only: Option<&str>,
    unchanged: &Forecast,
    forecaster: &mut dyn Forecaster,
) -> Result<(Vec<Fit>, Vec<Alternative>), Fault> {
    let on_vsphere = context.config.keeps_settings();
    let (mut fit, mut aside) = (Vec::new(), Vec::new());
    for action in ACTIONS.iter().filter(|a| only.map_or(!a.asked_only, |name| a.name == name)) {
        let title = action.doc.to_owned();
        let proposed = match (on_vsphere, ON_VSPHERE.contains(&action.name)) {
            (true, false) => Err("vSphere has no such setting, or vsteer does not set it there".to_owned()),
            _ => (action.propose)(context),
        };
        let steps = match proposed {
            Err(why_not) => {
                aside.push(Alternative { title, why_not, forecast: unchanged.clone() });
                continue;
            }
            Ok(steps) => steps,
        };
        let forecast = forecaster.forecast(&steps)?;
        let broken = broken_rule(&forecast, &context.limits).or_else(|| appetite(context, &steps));
        match broken.filter(|_| only.is_none()) {
            Some(why_not) => aside.push(Alternative { title, why_not, forecast }),
            None => {
                let wait = remaining_wait(&forecast, &context.delayed);
                fit.push(Fit { action, steps, forecast, wait });
            }
        }
    }
    Ok((fit, aside))
}

/// Takes the chosen proposal out of `fit` and leaves the others, the gentlest first.
fn gentlest(fit: &mut Vec<Fit>, waits_now: f64) -> Option<Fit> {
    // Two proposals within a tenth of the present wait of each other are alike: then the gentler one.
    let least = fit.iter().map(|f| f.wait).fold(f64::INFINITY, f64::min);
    fit.sort_by_key(|f| f.action.severity);
    let chosen = fit.iter().position(|f| f.wait <= least + 0.1 * waits_now);
    chosen.map(|i| fit.remove(i))
}
