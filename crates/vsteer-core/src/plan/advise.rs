//! Which change removes the delay at the least cost to other VMs?
//!
//! Every action of [`ACTIONS`] may propose one set of steps, and vsteer forecasts each set. Sets that break a rule
//! become alternatives with the reason. Of the others, vsteer chooses the set after which the delayed VMs wait
//! least. If two are equal, it chooses the gentler action. Without a delayed VM or a proposal the plan is empty and
//! its title says why.
//!
//! vsteer does not propose steps that a program on the host would undo (`contested.rs`).
//!
//! The rules: no VM's work rate falls by more than [`Limits::work_loss`], no VM waits (ready, limited and co-stopped) longer by
//! more than [`Limits::ready_growth`], no VM wakes up much later, where the forecast tells that, and what the others lose is at
//! most a fifth of what the delayed VMs gain.

use super::action::{ACTIONS, Action, Context, Propose};
use super::{Alternative, Plan, Stage, contested};
use crate::delay::{is_delayed, is_delayed_by_others, is_sleeper, runs_briefly};
use crate::forecast::fluid;
use crate::forecast::{Forecast, Forecaster, VmForecast};
use crate::model::{HostModel, VmModel};
use crate::nouns::{HostConfig, VmConfig, VmId};
use crate::plan::limits::Limits;
use crate::setting::{Change, Scope, Step};
use crate::{Fault, FaultKind};

/// The reason to refuse `steps` if they could cost other VMs too much work. A changed VM that runs for long at a
/// time may use all the time that it now waits.
fn appetite(c: &Context<'_>, steps: &[Step]) -> Option<String> {
    // A VM that moves to a node with room takes no work from others.
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
            "VM {} runs for long at a time and might take {:.0} % of the other VMs' work",
            names.join(", "),
            100.0 * more / others.max(f64::MIN_POSITIVE)
        )
    })
}

/// A 99th percentile of wake-ups may grow by less than this factor. Up to [`LATE_NS`], ns, it may grow by any.
const LATER: f64 = 1.5;
const LATE_NS: f64 = 1e6;

/// The rule that the forecast breaks, as text; `None` if it keeps the rules.
fn broken_rule(forecast: &Forecast, limits: &Limits) -> Option<String> {
    forecast.vms.iter().find_map(|f: &VmForecast| {
        let loss = 1.0 - f.work_ratio();
        if loss > limits.work_loss && f.run_before > 0.02 {
            return Some(format!("VM {:?} would lose {:.0} % of its work", f.name, 100.0 * loss));
        }
        if let (Some(was), Some(will)) = (f.wake_p99_ns_before, f.wake_p99_ns_after.map(|p99| p99.likely))
            && will > LATE_NS
            && will > LATER * was
        {
            let [was, will] = [was, will].map(|ns| ns / 1e6);
            let name = &f.name;
            return Some(format!(
                "VM {name:?} would wake up later: 99th percentile {will:.1} ms instead of {was:.1} ms"
            ));
        }
        // A vCPU that is ready instead of limited waits no longer than before.
        let growth = f.wait_grows();
        (growth > limits.ready_growth)
            .then(|| format!("VM {:?} would wait {:.0} percentage points longer", f.name, 100.0 * growth))
    })
}

/// The delayed VMs must gain so much together, as a share of a pCPU.
const GAIN: f64 = 0.01;
/// The others may lose this part of it, in the sum.
const PRICE: f64 = 0.2;
/// Changes of a wait that do not count: as a share of a pCPU, and as a part of the wait.
const GROWS: (f64, f64) = (0.003, 0.02);

/// The reason why the gain is too small, or too dear for the others; `None` if neither.
fn not_worth(forecast: &Forecast, delayed: &[&VmConfig]) -> Option<String> {
    let helped = |f: &&VmForecast| delayed.iter().any(|d| d.id == f.vm);
    if !forecast.vms.iter().any(|f| helped(&f)) {
        return None;
    }
    let less = |f: &VmForecast| -f.wait_grows();
    let gain: f64 = forecast.vms.iter().filter(helped).map(less).sum();
    if gain < GAIN {
        return Some(format!(
            "the delayed VMs would wait only {:.1} % of a pCPU less",
            100.0 * gain.max(0.0)
        ));
    }
    // What one of the others gains may make up for what another one loses.
    let counts = |f: &VmForecast| {
        let growth = -less(f);
        if growth.abs() > GROWS.0.max(GROWS.1 * f.ready_before) { growth } else { 0.0 }
    };
    let lost: f64 = forecast.vms.iter().filter(|f| !helped(f)).map(counts).sum();
    (lost > PRICE * gain).then(|| {
        format!(
            "the delayed VMs would wait {:.1} % of a pCPU less, and the others {:.1} % more",
            100.0 * gain,
            100.0 * lost
        )
    })
}

/// What the delayed VMs wait, measured and forecast, summed: ready, limited and co-stopped, in pCPUs.
fn waits(forecast: &Forecast, delayed: &[&VmConfig]) -> (f64, f64) {
    let of_delayed = forecast.vms.iter().filter(|f| delayed.iter().any(|d| d.id == f.vm));
    of_delayed.map(VmForecast::waits).fold((0.0, 0.0), |sum, waits| (sum.0 + waits.0, sum.1 + waits.1))
}

/// Chooses a plan by the fluid fair-share forecast. `only`: consider only the action of this name, even if it
/// breaks the rules.
///
/// # Errors
/// `Usage` if `only` is not the name of an action.
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

/// The plan of these steps, whatever they cost other VMs.
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

/// A plan with at most this many steps has a forecast after each step.
const STEPS_TOLD: usize = 8;

/// Forecasts before and between `steps`, beginning with `unchanged`.
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
    /// What the delayed VMs are expected to wait, summed.
    wait: f64,
}

/// Like [`plan`], with any forecaster. For an empty list of steps the forecaster must reproduce the measured state.
///
/// # Errors
/// `Usage` if `only` is not the name of an action; errors of `forecaster`.
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
    let context =
        Context { config, model, limits, delayed: delayed(config, model, &limits), asked: only.is_some() };
    let unchanged = forecaster.forecast(&[])?;
    let (mut fit, mut alternatives) = proposals(&context, only, &unchanged, forecaster)?;
    let mut plan = match gentlest(&mut fit, waits(&unchanged, &context.delayed).0) {
        Some(Fit { action, steps, forecast, .. }) => {
            Plan::new(config.clone(), action.doc.to_owned(), steps, scope, forecast)
        }
        None => Plan::new(config.clone(), nothing(&context), Vec::new(), scope, unchanged.clone()),
    };
    for Fit { action, forecast, wait, .. } in fit {
        let why_not = format!(
            "the delayed VMs would still wait {:.1} % of a pCPU, compared with {:.1} % for this plan",
            100.0 * wait,
            100.0 * waits(&plan.forecast, &context.delayed).1
        );
        alternatives.push(Alternative { title: action.doc.to_owned(), why_not, forecast });
    }
    plan.alternatives = alternatives;
    plan.on_the_way = on_the_way(unchanged, &plan.steps, forecaster)?;
    Ok(plan)
}

/// The title of a plan that changes nothing.
fn nothing(c: &Context<'_>) -> String {
    let title = if c.delayed.is_empty() {
        "nothing to change: no VM that mostly sleeps waits too long"
    } else {
        "no change within the limits helps the delayed VMs"
    };
    let waits = c.model.vms.iter().any(|vm| is_delayed(vm, &c.limits.thresholds));
    let more = if waits && !c.asked && !c.config.keeps_settings() {
        "; vsteer plan --only search simulates many more changes"
    } else {
        ""
    };
    format!("{title}{more}")
}

fn known(name: &str) -> Result<(), Fault> {
    if ACTIONS.iter().any(|a| a.name == name) {
        return Ok(());
    }
    let known: Vec<&str> = ACTIONS.iter().map(|a| a.name).collect();
    Err(Fault::new(FaultKind::Usage, format!("{name:?} is not the name of an action"))
        .help(format!("known actions: {}", known.join(", "))))
}

/// VMs that mostly sleep and wait too long because of other VMs.
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

/// Asks every action. Returns the proposals that keep the rules, and the other actions with the reason. An action
/// named by `only` may break the rules.
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
        let proposed = match (on_vsphere, action.on_vsphere) {
            (true, false) => Err("vsteer cannot make this change on vSphere".to_owned()),
            _ => match action.propose {
                Propose::Directly(propose) => propose(context),
                Propose::BySearch(propose) => propose(context, forecaster)?,
            },
        };
        let steps = match proposed {
            Err(why_not) => {
                aside.push(Alternative { title, why_not, forecast: unchanged.clone() });
                continue;
            }
            Ok(steps) => steps,
        };
        if let Some(why_not) = contested::refused(context.config, &steps).filter(|_| only.is_none()) {
            aside.push(Alternative { title, why_not, forecast: unchanged.clone() });
            continue;
        }
        let forecast = forecaster.forecast(&steps)?;
        let for_sleepers = !context.delayed.is_empty();
        let broken = broken_rule(&forecast, &context.limits)
            .or_else(|| appetite(context, &steps))
            .or_else(|| not_worth(&forecast, &context.delayed).filter(|_| for_sleepers));
        match broken.filter(|_| only.is_none()) {
            Some(why_not) => aside.push(Alternative { title, why_not, forecast }),
            None => {
                let (_, wait) = waits(&forecast, &context.delayed);
                fit.push(Fit { action, steps, forecast, wait });
            }
        }
    }
    Ok((fit, aside))
}

/// Removes the chosen proposal from `fit`, and sorts the others, gentlest first.
fn gentlest(fit: &mut Vec<Fit>, waits_now: f64) -> Option<Fit> {
    // Proposals whose waits differ by less than a tenth of the present wait are equal: choose the gentlest.
    let least = fit.iter().map(|f| f.wait).fold(f64::INFINITY, f64::min);
    fit.sort_by_key(|f| f.action.severity);
    let chosen = fit.iter().position(|f| f.wait <= least + 0.1 * waits_now);
    chosen.map(|i| fit.remove(i))
}
