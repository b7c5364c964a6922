//! Which change removes the delay at the least cost to others?
//!
//! Every action of [`ACTIONS`] may propose one set of steps; each is forecast, those that break a rule are set aside
//! with the reason, and of the rest the one whose delayed VMs wait least is chosen, the gentler where two are
//! alike. No proposal, no delayed VM: an empty plan, which says so.
//!
//! The rules (both from what people lose otherwise): nobody's work rate falls by more than [`Limits::work_loss`], and
//! nobody's ready share grows by more than [`Limits::ready_growth`].

use super::{Alternative, Plan, Stage};
use super::{node, pin, pool, quota, realtime, separate, topology, unpin, weights};
use crate::forecast::fluid;
use crate::forecast::{Forecast, VmForecast};
use crate::model::{HostModel, VmModel};
use crate::nouns::{Culprit, HostConfig, Manager, VmConfig, VmId};
use crate::setting::{Change, Scope, Step};
use crate::{Fault, FaultKind};
use serde::{Deserialize, Serialize};

/// What a plan may cost, and when a VM counts as delayed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Largest fall of any other VM's work rate, as a fraction of it.
    pub work_loss: f64,
    /// Largest growth of any VM's ready share, summed over its vCPUs, as a fraction of a pCPU.
    pub ready_growth: f64,
    /// A VM is delayed when its vCPUs wait for others more than this share of the time on average…
    pub delayed_ready: f64,
    /// … or this much after a wake-up, at the 99th percentile, ns.
    pub delayed_wake_ns: f64,
    /// A VM that uses less than this share of each vCPU is one that mostly sleeps: for such ones delay hurts most, and
    /// real-time priority is safe.
    pub sleeper_run: f64,
    /// … and sleeps for at least this share of the time.
    pub sleeper_asleep: f64,
    /// What it costs a vCPU to be moved to another core, ns; `None`: by the caches that cores do not share.
    pub move_cost_ns: Option<f64>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            work_loss: 0.10,
            ready_growth: 0.05,
            delayed_ready: 0.01,
            delayed_wake_ns: 2e6,
            sleeper_run: 0.35,
            sleeper_asleep: 0.4,
            move_cost_ns: None,
        }
    }
}

/// What an action is given.
pub struct Context<'a> {
    /// The host's settings.
    pub config: &'a HostConfig,
    /// What was observed.
    pub model: &'a HostModel,
    /// What a plan may cost.
    pub limits: Limits,
    /// The VMs that mostly sleep and wait too long: whom the plan is for.
    pub delayed: Vec<&'a VmConfig>,
}

/// One way to help.
pub struct Action {
    /// Its name in options and reports.
    pub name: &'static str,
    /// What it does, one line.
    pub doc: &'static str,
    /// 0 is the gentlest: decides between actions that help alike.
    pub severity: u32,
    /// Proposed only when asked for by name.
    pub asked_only: bool,
    /// The steps, or why it does not apply here.
    pub propose: fn(&Context<'_>) -> Result<Vec<Step>, String>,
}

/// Every action, one file each.
pub const ACTIONS: &[Action] = &[
    unpin::ACTION,
    node::ACTION,
    weights::ACTION,
    realtime::ACTION,
    separate::ACTION,
    quota::ACTION,
    topology::ACTION,
    pool::ACTION,
    pin::ACTION,
];

/// Actions whose settings vSphere has: it places vCPUs, weighs and schedules in its own way.
const ON_VSPHERE: [&str; 2] = ["node", "topology"];

/// A VM that mostly sleeps: every vCPU uses little and is asleep for a good part of the time. Use alone does not tell:
/// on a crowded host a VM that never sleeps uses little as well, because it waits.
pub fn is_sleeper(vm: &VmModel, limits: &Limits) -> bool {
    if vm.vcpu_threads().next().is_none() {
        // Of a group the worlds are not told apart: nobody knows.
        return vm.worlds.is_some();
    }
    vm.vcpu_threads().all(|t| {
        let (run, wait) = (t.shares.run.unwrap_or(1.0), t.shares.wait.unwrap_or(0.0));
        let asleep = t.shares.blocked.unwrap_or(1.0 - run - wait);
        run <= limits.sleeper_run && asleep >= limits.sleeper_asleep
    })
}

/// How long the VM's threads are ready on account of others, as a share per vCPU: its own threads in each other's way
/// and an idle pCPU not used are nothing that a plan against others mends. All of its vCPUs' ready where who ran
/// meanwhile is not measured.
fn kept_waiting(vm: &VmModel, model: &HostModel) -> Option<f64> {
    let ready = waits_per_vcpu(vm)?;
    let Some(blame) = &model.blame else { return Some(ready) };
    let by_others = |c: &Culprit| match c {
        Culprit::Vm(id) => *id != vm.id,
        Culprit::Process { .. } | Culprit::Kernel { .. } | Culprit::Unattributed => true,
        Culprit::Placement => false,
    };
    let theirs: f64 =
        blame.iter().filter(|b| b.victim == vm.id && by_others(&b.culprit)).map(|b| b.share).sum();
    Some(ready.min(theirs / vm.vcpu_threads().count().max(1) as f64))
}

fn wakes_late(vm: &VmModel, limits: &Limits) -> bool {
    vm.wake_latency.is_some_and(|l| l.p99_ns > limits.delayed_wake_ns && l.count >= 20)
}

/// Ready and co-stopped per vCPU; of a VM of which the group alone is known, whose vCPUs are not counted, of the group, as if
/// one vCPU had waited all of it: too much rather than too little.
fn waits_per_vcpu(vm: &VmModel) -> Option<f64> {
    let waited = |s: &crate::model::Shares| Some(s.ready.or(s.wait)? + s.costop.unwrap_or(0.0));
    vm.per_vcpu(waited).or_else(|| waited(vm.vcpus_or_group().0))
}

/// A VM that waits too long for what it does, for whomever.
pub fn is_delayed(vm: &VmModel, limits: &Limits) -> bool {
    waits_per_vcpu(vm).is_some_and(|w| w > limits.delayed_ready) || wakes_late(vm, limits)
}

/// A VM that waits too long for others.
pub fn is_delayed_by_others(vm: &VmModel, model: &HostModel, limits: &Limits) -> bool {
    // A wake-up that is late on account of nobody is no other's doing either.
    let least = if wakes_late(vm, limits) { limits.delayed_ready / 10.0 } else { limits.delayed_ready };
    kept_waiting(vm, model).is_some_and(|w| w > least)
}

/// What a vCPU runs per wake-up, ns, on average, if it runs briefly: others wait for so long, and no scheduler tick is
/// finer.
const BRIEF_NS: f64 = 1e6;

/// Do the VM's vCPUs run briefly at each wake-up? Then a timer or a device drives it, and what it asks for does not grow
/// when it waits less. `false` where neither wake-ups nor switches were measured.
pub fn runs_briefly(vm: &VmModel) -> bool {
    vm.vcpu_threads().all(|t| {
        // Switches are more frequent than wake-ups, so by them bursts look shorter than they are.
        match (t.shares.run, t.wakeups_per_s.or(t.switches_per_s)) {
            (Some(run), Some(per_s)) => run * 1e9 <= BRIEF_NS * per_s.max(1.0),
            _ => false,
        }
    })
}

/// The delayed VMs that `steps` change and that may use all the time they now wait, in words, where that is more of the
/// others' work than allowed.
fn appetite(c: &Context<'_>, steps: &[Step]) -> Option<String> {
    // Who goes to a node that has room takes nobody's work.
    if steps.iter().all(|s| matches!(s.change, Change::NodeAffinity { .. })) {
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
    plan_by(config, model, limits, scope, only, &mut |steps| Ok(fluid::forecast(config, model, steps)))
}

/// The plan of these steps, whatever they cost others.
///
/// # Errors
/// As `foretell`.
pub fn plan_of(
    config: &HostConfig,
    title: &str,
    steps: Vec<Step>,
    scope: Scope,
    foretell: &mut dyn FnMut(&[Step]) -> Result<Forecast, Fault>,
) -> Result<Plan, Fault> {
    let (unchanged, forecast) = (foretell(&[])?, foretell(&steps)?);
    let mut plan = Plan::new(config.clone(), title.to_owned(), steps, scope, forecast);
    plan.on_the_way = on_the_way(unchanged, &plan.steps, foretell)?;
    Ok(plan)
}

/// Steps up to which a plan says what is expected after each.
const STEPS_TOLD: usize = 8;

/// What is expected on the way to the last of `steps`, beginning with `unchanged`.
fn on_the_way(
    unchanged: Forecast,
    steps: &[Step],
    foretell: &mut dyn FnMut(&[Step]) -> Result<Forecast, Fault>,
) -> Result<Vec<Stage>, Fault> {
    if steps.is_empty() {
        return Ok(Vec::new());
    }
    let told = |n: &usize| steps.len() <= STEPS_TOLD || steps[*n].vm != steps[n - 1].vm;
    let after =
        (1..steps.len()).filter(told).map(|n| Ok(Stage { steps: n, forecast: foretell(&steps[..n])? }));
    std::iter::once(Ok(Stage { steps: 0, forecast: unchanged })).chain(after).collect()
}

/// The same by any method of forecasting what steps do; that of none is what was measured, simulated.
///
/// # Errors
/// `Usage` where `only` is no action's name; as `foretell`.
pub fn plan_by(
    config: &HostConfig,
    model: &HostModel,
    limits: Limits,
    scope: Scope,
    only: Option<&str>,
    foretell: &mut dyn FnMut(&[Step]) -> Result<Forecast, Fault>,
) -> Result<Plan, Fault> {
    if let Some(name) = only
        && !ACTIONS.iter().any(|a| a.name == name)
    {
        let known: Vec<&str> = ACTIONS.iter().map(|a| a.name).collect();
        return Err(Fault::new(FaultKind::Usage, format!("no action is called {name:?}"))
            .way_out(format!("known: {}", known.join(", "))));
    }
    let ids: Vec<&VmId> = model
        .vms
        .iter()
        .filter(|vm| is_sleeper(vm, &limits) && is_delayed_by_others(vm, model, &limits))
        .map(|vm| &vm.id)
        .collect();
    let delayed = config.vms.iter().filter(|vm| ids.contains(&&vm.id)).collect();
    let context = Context { config, model, limits, delayed };
    let on_vsphere = config.vms.iter().any(|vm| matches!(vm.manager, Manager::Vsphere(_)));
    let unchanged = foretell(&[])?;
    let waits_now: f64 = {
        let before = |f: &&VmForecast| context.delayed.iter().any(|d| d.id == f.vm);
        unchanged.vms.iter().filter(before).map(|f| f.ready_before).sum()
    };

    let mut fit: Vec<(&Action, Vec<Step>, Forecast, f64)> = Vec::new();
    let mut alternatives = Vec::new();
    for action in ACTIONS.iter().filter(|a| only.map_or(!a.asked_only, |name| a.name == name)) {
        let proposed = match (on_vsphere, ON_VSPHERE.contains(&action.name)) {
            (true, false) => Err("vSphere has no such setting, or vsteer does not set it there".to_owned()),
            _ => (action.propose)(&context),
        };
        match proposed {
            Err(why_not) => {
                alternatives.push(Alternative {
                    title: action.doc.to_owned(),
                    why_not,
                    forecast: unchanged.clone(),
                });
            }
            Ok(steps) => {
                let forecast = foretell(&steps)?;
                let broken = broken_rule(&forecast, &limits).or_else(|| appetite(&context, &steps));
                match broken.filter(|_| only.is_none()) {
                    Some(why_not) => {
                        alternatives.push(Alternative { title: action.doc.to_owned(), why_not, forecast });
                    }
                    None => {
                        let wait = remaining_wait(&forecast, &context.delayed);
                        fit.push((action, steps, forecast, wait));
                    }
                }
            }
        }
    }
    // Two proposals within a tenth of the present wait of each other are alike: then the gentler one.
    let least = fit.iter().map(|(.., wait)| *wait).fold(f64::INFINITY, f64::min);
    fit.sort_by_key(|(action, ..)| action.severity);
    let chosen = fit.iter().position(|(.., wait)| *wait <= least + 0.1 * waits_now);
    let mut plan = match chosen.map(|i| fit.remove(i)) {
        Some((action, steps, forecast, _)) => {
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
    for (action, _, forecast, wait) in fit {
        let why_not = format!(
            "the delayed VMs would still wait {:.1} % of a pCPU, against {:.1} %",
            100.0 * wait,
            100.0 * remaining_wait(&plan.forecast, &context.delayed)
        );
        alternatives.push(Alternative { title: action.doc.to_owned(), why_not, forecast });
    }
    plan.alternatives = alternatives;
    plan.on_the_way = on_the_way(unchanged, &plan.steps, foretell)?;
    Ok(plan)
}
