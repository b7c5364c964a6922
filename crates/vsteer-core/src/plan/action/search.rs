//! Changes weights or pCPUs of up to three VMs so that all VMs together wait less: the best of many candidates.
//!
//! The other actions follow rules. This one asks the forecast, which must be a quick simulation. Every change of one VM is a
//! candidate ([`changes`]). The best ones are put together to pairs, and the best pairs to threes. A rough forecast ranks them.
//! The best few are then forecast in full, with other seeds: among many candidates, the one with the luckiest forecast looks
//! best. Of those that keep the rules, the one with the fewest changed VMs is proposed, if it gains nearly as much as the best.
//!
//! A VM that the simulation does not understand ([`is_understood`]) is not changed, and that it waits less does not count.
//!
//! Weights change only in VMs where they have an effect, and fall to a quarter at most: a VM that computes little today may
//! need its weight tomorrow. Only VMs that wait get other pCPUs, and only more of them: near their memory, and not of another
//! speed.
//!
//! Only on request, because it is right less often than a default plan must be. Of 150 random hosts, an earlier form of it, with
//! fewer rules, gave 65 a plan. One of these made a VM wait 5 points longer, and all VMs together wait longer.
//!
//! `GAP(cures)`: of 78 hosts with a cure among random candidates, this finds half of its gain on 13 (`lab run cures`), and a
//! default plan on 4. Most others have a VM that never sleeps because it waits. No counter tells how much more it would use.

use super::{Action, Context, Propose, Proposed, placing};
use crate::delay::{is_delayed, is_sleeper, kept_waiting};
use crate::forecast::{Forecast, Forecaster, VmForecast};
use crate::nouns::{VmConfig, VmThread};
use crate::setting::{self, Change, Step};
use crate::{CpuSet, Fault};

pub const ACTION: Action = Action {
    name: "search",
    doc: "change weights or pCPUs of up to three VMs: the best of many simulated candidates",
    severity: 4,
    asked_only: true,
    on_vsphere: false,
    propose: Propose::BySearch(propose),
};

/// At most this many changes of one VM are looked at; this many of the best are put together, for at most this many VMs.
const CHANGES: usize = 100;
const TOGETHER: usize = 9;
const VMS: usize = 3;
/// Efforts of [`Forecaster::rough`] for all candidates, and for the best of them.
const EFFORTS: (u64, u64) = (2, 8);
/// This many get more effort, and this many of them are forecast in full.
const SHORT_LIST: usize = 24;
const FULLY: usize = 12;
/// All VMs together must wait this much less: in pCPUs, and as a part of what they wait. Each part of a candidate must add
/// [`ADDS`], in pCPUs.
const GAIN: f64 = 0.05;
const GAIN_PART: f64 = 0.01;
const ADDS: f64 = 0.01;
/// A candidate with fewer changed VMs is taken if it gains this part of what the best does.
const NEARLY: f64 = 0.85;
/// By how much a VM may wait longer per vCPU. The rules of a plan allow more, and a forecast may be off.
const GROWTH: f64 = 0.042;
/// The same in the rough forecast with the first and the second effort.
const GROWTHS_ROUGH: (f64, f64) = (0.25, 0.10);
/// What a VM is expected to wait longer than this, per vCPU, counts this many times against the gain. So candidates that may
/// keep [`GROWTH`] are looked at first.
const EXCESS_FROM: f64 = 0.025;
const EXCESS_COSTS: f64 = 3.0;
/// A VM is understood if the simulation of the present host is off by at most this part of what it waits, or by this much per
/// vCPU.
const OFF: f64 = 0.5;
const OFF_LEAST: f64 = 0.02;
/// The 99th percentile of wake-ups may grow by this factor, or stay below this, ns.
const LATER: f64 = 1.2;
const LATE_NS: f64 = 1.5e6;
/// New weights as multiples of the present one, for a VM that waits and for others that do not mostly sleep.
const OF_WAITING: [f64; 3] = [2.0, 8.0, 0.25];
const OF_OTHERS: [f64; 1] = [0.25];
/// Weights relative to the default.
const WEIGHTS: std::ops::RangeInclusive<f64> = 0.1..=64.0;

/// Changes of some VMs.
#[derive(Clone)]
struct Candidate {
    vms: Vec<usize>,
    /// The changes of one VM that it consists of, by their numbers, in order.
    parts: Vec<usize>,
    steps: Vec<Step>,
    /// How much less all VMs wait, in pCPUs, and the most by which one waits more, per vCPU.
    gain: f64,
    growth: f64,
    /// The gain, less what [`EXCESS_COSTS`]. Candidates are ranked by it.
    score: f64,
}

impl Candidate {
    /// Is `other` a part of it?
    fn has(&self, other: &Candidate) -> bool {
        other.parts.iter().all(|part| self.parts.contains(part))
    }
}

fn propose(c: &Context<'_>, forecaster: &mut dyn Forecaster) -> Result<Proposed, Fault> {
    if !c.model.vms.iter().any(|vm| is_delayed(vm, &c.limits.thresholds)) {
        return Ok(Err("no VM waits too long".to_owned()));
    }
    // Without steps this costs nothing: the host as it is was simulated already.
    let unchanged = forecaster.forecast(&[])?;
    let none = none_helps(c, &unchanged);
    let all = changes(c, &unchanged);
    if all.is_empty() {
        return Ok(Err(none));
    }
    if forecaster.rough(&all[0].steps, EFFORTS.0)?.is_none() {
        return Ok(Err("this way to forecast is too slow to compare many candidates".to_owned()));
    }
    let mut all = promising(c, forecaster, all, EFFORTS.0, GROWTHS_ROUGH.0)?;
    let mut singles = all.clone();
    best_first(&mut singles, TOGETHER);
    let mut wider = singles.clone();
    for _ in 1..VMS {
        let mut next: Vec<Candidate> = Vec::new();
        for both in wider.iter().flat_map(|a| with_each(a, &singles)) {
            if next.iter().all(|n| n.parts != both.parts) {
                next.push(both);
            }
        }
        wider = promising(c, forecaster, next, EFFORTS.0, GROWTHS_ROUGH.0)?;
        // A part that adds nothing is left out.
        let adds = |k: &Candidate| all.iter().filter(|a| k.has(a)).all(|a| k.score > a.score + ADDS);
        wider.retain(adds);
        all.extend(wider.iter().cloned());
        best_first(&mut wider, TOGETHER / 2);
    }
    best_first(&mut all, SHORT_LIST);
    let all = promising(c, forecaster, all, EFFORTS.1, GROWTHS_ROUGH.1)?;
    let mut kept = Vec::new();
    for candidate in finalists(all) {
        let told = forecaster.forecast(&candidate.steps)?;
        if !harms(c, &told) {
            // Both forecasts, of different seeds, must show it.
            kept.push(Candidate { gain: gain(c, &told).min(candidate.gain), ..candidate });
        }
    }
    let waits: f64 = unchanged.vms.iter().map(|f| f.waits().0).sum();
    let least = GAIN.max(GAIN_PART * waits);
    let most = kept.iter().map(|k| k.gain).fold(0.0, f64::max);
    kept.retain(|k| k.gain >= (NEARLY * most).max(least));
    kept.sort_by(|a, b| a.vms.len().cmp(&b.vms.len()).then(b.gain.total_cmp(&a.gain)));
    Ok(kept.into_iter().next().map(|k| k.steps).ok_or(none))
}

/// Why nothing is proposed, with the waiting VMs of which the simulation knows too little.
fn none_helps(c: &Context<'_>, unchanged: &Forecast) -> String {
    let waits = |f: &&VmForecast| c.model.vm(&f.vm).is_some_and(|vm| is_delayed(vm, &c.limits.thresholds));
    let unclear = unchanged.vms.iter().filter(waits).filter(|f| !is_understood(c, f));
    let names: Vec<String> = unclear.map(|f| format!("{:?}", f.name)).collect();
    let unclear = match names.is_empty() {
        true => String::new(),
        false => format!("; the simulation does not show why VM {} waits", names.join(", ")),
    };
    format!(
        "no change of weights or pCPUs of up to three VMs would help without making another VM wait{unclear}"
    )
}

/// The candidates after which no VM seems to wait by much more, each with its gain. That it is positive is not asked: all gains
/// are against the same short simulations of the present host, which may have been lucky ones.
fn promising(
    c: &Context<'_>,
    forecaster: &mut dyn Forecaster,
    all: Vec<Candidate>,
    effort: u64,
    growth_most: f64,
) -> Result<Vec<Candidate>, Fault> {
    let mut kept = Vec::new();
    for candidate in all {
        let Some(told) = forecaster.rough(&candidate.steps, effort)? else { continue };
        let growth = told.vms.iter().map(|f| grows(c, f)).fold(0.0, f64::max);
        let excess: f64 = told.vms.iter().map(|f| (grows(c, f) - EXCESS_FROM).max(0.0) * vcpus(c, f)).sum();
        let gain = gain(c, &told);
        if growth < growth_most {
            kept.push(Candidate { gain, growth, score: gain - EXCESS_COSTS * excess, ..candidate });
        }
    }
    Ok(kept)
}

fn best_first(all: &mut Vec<Candidate>, at_most: usize) {
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    all.truncate(at_most);
}

/// Those to forecast in full: the ones that gain most, and as many of those that gain most and seem to cost nobody much.
fn finalists(mut all: Vec<Candidate>) -> Vec<Candidate> {
    let mut gentle: Vec<Candidate> = all.iter().filter(|k| k.growth <= GROWTH / 2.0).cloned().collect();
    best_first(&mut gentle, FULLY / 2);
    all.retain(|k| gentle.iter().all(|g| g.parts != k.parts));
    best_first(&mut all, FULLY - gentle.len());
    [gentle, all].concat()
}

/// `a` together with each of `singles` that changes another VM.
fn with_each(a: &Candidate, singles: &[Candidate]) -> Vec<Candidate> {
    let others = singles.iter().filter(|b| !a.vms.contains(&b.vms[0]));
    let joined = others.map(|b| {
        let mut parts = [a.parts.clone(), b.parts.clone()].concat();
        parts.sort_unstable();
        let (vms, steps) =
            ([a.vms.clone(), b.vms.clone()].concat(), [a.steps.clone(), b.steps.clone()].concat());
        Candidate { vms, parts, steps, gain: 0.0, growth: 0.0, score: 0.0 }
    });
    joined.collect()
}

/// How much less all VMs wait, in pCPUs. That a VM which is not understood waits less does not count, and a VM cannot be spared
/// what it waits for its own threads.
fn gain(c: &Context<'_>, told: &Forecast) -> f64 {
    let one = |f: &VmForecast| {
        let least = if is_understood(c, f) { -for_others(c, f) } else { 0.0 };
        f.wait_grows().max(least)
    };
    -told.vms.iter().map(one).sum::<f64>()
}

/// What a VM waits because of others, in pCPUs: ready as far as others are to blame, and limited.
fn for_others(c: &Context<'_>, f: &VmForecast) -> f64 {
    let ready = c.model.vm(&f.vm).and_then(|vm| kept_waiting(vm, c.model)).unwrap_or(0.0);
    ready * vcpus(c, f) + f.limited_before.unwrap_or(0.0)
}

/// By how much a VM waits longer per vCPU.
fn grows(c: &Context<'_>, f: &VmForecast) -> f64 {
    f.wait_grows() / vcpus(c, f)
}

/// Does the simulation of the present host show about what the VM waits?
fn is_understood(c: &Context<'_>, f: &VmForecast) -> bool {
    let (waits, _) = f.waits();
    f.null_error.unwrap_or(0.0).abs() <= (OFF * waits).max(OFF_LEAST * vcpus(c, f))
}

fn vcpus(c: &Context<'_>, f: &VmForecast) -> f64 {
    c.config.vm(&f.vm).map_or(1, VmConfig::vcpu_count).max(1) as f64
}

/// Might a VM wait too much longer, wake up later, or work less?
fn harms(c: &Context<'_>, told: &Forecast) -> bool {
    told.vms.iter().any(|f| {
        let later = match (f.wake_p99_ns_before, f.wake_p99_ns_after) {
            (Some(was), Some(will)) => will.likely > LATE_NS && will.likely > LATER * was,
            _ => false,
        };
        let works_less = f.run_before > 0.02 && 1.0 - f.work_ratio() > c.limits.work_loss;
        grows(c, f) > GROWTH || later || works_less
    })
}

/// Every change of one VM that is worth a look, of the VMs that wait most first.
fn changes(c: &Context<'_>, unchanged: &Forecast) -> Vec<Candidate> {
    let waits =
        |vm: &VmConfig| c.model.vm(&vm.id).and_then(|m| m.vcpus.ready.or(m.vcpus.wait)).unwrap_or(0.0);
    let is_understood =
        |vm: &VmConfig| unchanged.vms.iter().find(|f| f.vm == vm.id).is_some_and(|f| is_understood(c, f));
    let mut order: Vec<usize> =
        (0..c.config.vms.len()).filter(|i| is_understood(&c.config.vms[*i])).collect();
    order.sort_by(|a, b| waits(&c.config.vms[*b]).total_cmp(&waits(&c.config.vms[*a])));
    let mut all = Vec::new();
    for i in order {
        let vm = &c.config.vms[i];
        let sets = weights(c, vm).into_iter().map(|step| vec![step]).chain(places(c, vm));
        all.extend(sets.map(|steps| (i, steps)));
    }
    all.truncate(CHANGES);
    let one = |(part, (vm, steps)): (usize, (usize, Vec<Step>))| Candidate {
        vms: vec![vm],
        parts: vec![part],
        steps,
        gain: 0.0,
        growth: 0.0,
        score: 0.0,
    };
    all.into_iter().enumerate().map(one).collect()
}

/// More weight for a VM that waits, less for one that computes.
fn weights(c: &Context<'_>, vm: &VmConfig) -> Vec<Step> {
    let Some(seen) = c.model.vm(&vm.id) else { return Vec::new() };
    let has_effect = vm.pinned_within().is_none() && vm.idle_group().is_none();
    let Some(from) = vm.weight.filter(|_| has_effect) else { return Vec::new() };
    let times: &[f64] = match (is_delayed(seen, &c.limits.thresholds), is_sleeper(seen, &c.limits.thresholds))
    {
        (true, _) => &OF_WAITING,
        (false, false) => &OF_OTHERS,
        (false, true) => &[],
    };
    let to = times.iter().map(|t| t * from.relative()).filter(|to| WEIGHTS.contains(to));
    let step = |relative: f64| {
        let change = Change::Weight(setting::Weight { from, to: from.with_relative(relative) });
        let reason = if relative > from.relative() {
            "it waits, and with more weight all VMs together wait less"
        } else {
            "with less weight for it, all VMs together wait less"
        };
        Step { vm: vm.id.clone(), vm_name: vm.name.clone(), change, reason: reason.to_owned() }
    };
    to.map(step).collect()
}

/// More pCPUs for a VM that waits: those of its nodes, and all near its memory. A pin that is narrower than it was would have to
/// follow the load, which no plan does.
fn places(c: &Context<'_>, vm: &VmConfig) -> Vec<Vec<Step>> {
    let usable = c.usable_of(vm);
    let now = vm.vcpus().fold(CpuSet::new(), |all, t| all.union(&t.affinity));
    let waits = c.model.vm(&vm.id).is_some_and(|m| is_delayed(m, &c.limits.thresholds));
    if !waits || c.has_unequal_cores() || !now.is_subset(&usable) {
        return Vec::new();
    }
    let nodes = c.config.topology.nodes();
    let near = match c.near_memory(vm) {
        Some(near) => near.intersection(&usable),
        None if nodes.iter().filter(|n| !n.cpus.is_empty()).count() < 2 => usable.clone(),
        // Nobody knows where its memory is, so it stays on its nodes.
        None => CpuSet::new(),
    };
    let own =
        nodes.iter().filter(|n| n.cpus.intersects(&now)).fold(CpuSet::new(), |all, n| all.union(&n.cpus));
    let sets = [own.intersection(&usable), near.union(&now)];
    let wider = |to: &&CpuSet| now.is_subset(to) && **to != now;
    let mut told: Vec<CpuSet> = sets.iter().filter(wider).cloned().collect();
    told.dedup();
    let reason = "it waits on the pCPUs of its pin, and with these all VMs together wait less";
    let part = |t: &VmThread, to: &CpuSet| match c.kept_on(vm, t) {
        Some(kept) => to.intersection(&kept).union(&t.affinity),
        None => to.clone(),
    };
    told.iter().map(|to| placing(vm, &|t| Some(part(t, to)), reason)).filter(|s| !s.is_empty()).collect()
}
