//! Did the change help? Compares two recordings and reports the smallest difference that the comparison would find.
//!
//! For each VM and quantity, batch means of the shares per interval are compared (see [`crate::stats`]). The level
//! is divided among all comparisons of the verdict (Bonferroni). So the probability that any "better" or "worse" is
//! wrong is at most [`Options::alpha`]. A difference smaller than [`Options::least`] counts as no difference,
//! because it does not matter in practice.
//!
//! With a plan, most of the level goes to the waits of the VMs that it forecasts to wait less. If all of them do, the rest gets
//! the whole level (a gatekeeping procedure: the probability of any wrong outcome stays the same).
//!
//! Two differences are shown and not judged. CPU time is work only of a VM that wants all its vCPUs all the time: another one
//! may do the same work with less. And waits that changed as the load did ([`load`]) would have changed without the plan.

mod load;

use crate::Interval;
use crate::forecast::{Forecast, VmForecast};
use crate::model::{HostModel, Shares, VmModel, all_series};
use crate::nouns::{Batch, HostConfig, VmConfig, VmId};
use crate::plan::Plan;
use crate::plural::counted;
use crate::stats::{Comparison, compare};
use crate::{Fault, FaultKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Error probabilities of a verdict, and the least difference that counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Probability of any false "better" or "worse" in the whole verdict.
    pub alpha: f64,
    /// Probability of finding a difference of the size [`Finding::smallest_visible`].
    pub power: f64,
    /// Least difference that counts, as a share of a pCPU.
    pub least: f64,
}

impl Default for Options {
    fn default() -> Self {
        Options { alpha: 0.05, power: 0.9, least: 0.01 }
    }
}

/// The compared quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Ready share, summed over vCPUs; less is better. Includes limited time if one recording cannot separate the two
    /// ([`Finding::with_limited`]).
    Ready,
    /// Run share, summed over vCPUs. Of a VM that never sleeps it is its work, so more is better.
    Run,
}

impl Quantity {
    /// All quantities.
    pub const ALL: [Quantity; 2] = [Quantity::Ready, Quantity::Run];

    fn more_is_better(self) -> bool {
        self == Quantity::Run
    }
}

/// Result for one VM and quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The quantity improved.
    Better,
    /// The quantity got worse.
    Worse,
    /// The comparison shows neither.
    NoDifference,
}

/// Why a difference is neither better nor worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotJudged {
    /// The VM ran for another time, and its work was not measured.
    WorkNotMeasured,
    /// The load changed in the direction that explains the difference.
    LoadChanged,
}

/// Comparison of one quantity of one VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// VM that was compared.
    pub vm: VmId,
    /// Name of the VM.
    pub name: String,
    /// Compared quantity.
    pub quantity: Quantity,
    /// True if ready includes limited time on both sides, because one recording cannot separate the two.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_limited: bool,
    /// Means, standard error and block length.
    pub comparison: Comparison,
    /// Result of the comparison.
    pub outcome: Outcome,
    /// Why a visible difference is not judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_judged: Option<NotJudged>,
    /// Half the confidence interval of the difference, at the verdict's level.
    pub half_width: f64,
    /// Smallest difference that the comparison would find with probability [`Options::power`].
    pub smallest_visible: f64,
    /// The plan's forecast for `after`; `None` without a plan that forecast this quantity.
    pub forecast: Option<Interval>,
}

impl Finding {
    /// Name of the compared quantity as collectors use it: `ready`, `wait` (ready and limited together), `run`.
    pub fn compared(&self) -> &'static str {
        match (self.quantity, self.with_limited) {
            (Quantity::Ready, false) => "ready",
            (Quantity::Ready, true) => "wait",
            (Quantity::Run, _) => "run",
        }
    }
}

/// A quantity that could not be compared, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCompared {
    /// Name of the VM.
    pub name: String,
    /// Reason.
    pub why: String,
}

/// How well the forecast matched the measured values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Number of quantities with a forecast.
    pub of: usize,
    /// Number of these whose measured value lies in the forecast's interval.
    pub within: usize,
    /// Mean distance of the ready shares from the most likely value, as a share of a pCPU.
    pub ready_off: Option<f64>,
}

/// The verdict over all VMs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Options that the verdict was made with.
    pub options: Options,
    /// What all VMs asked for, in pCPUs, if it changed visibly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Comparison>,
    /// Every comparison, largest change of ready first.
    pub findings: Vec<Finding>,
    /// Quantities that could not be compared, with reasons.
    pub not_compared: Vec<NotCompared>,
}

impl Verdict {
    /// How well the plan's forecast matched; `None` without a forecast.
    pub fn score(&self) -> Option<Score> {
        let told = || self.findings.iter().filter_map(|f| Some((f, f.forecast?)));
        let within = told().filter(|(f, i)| (i.low..=i.high).contains(&f.comparison.after)).count();
        let off: Vec<f64> = told()
            .filter(|(f, _)| f.quantity == Quantity::Ready)
            .map(|(f, i)| (f.comparison.after - i.likely).abs())
            .collect();
        let of = told().count();
        (of > 0).then(|| Score { of, within, ready_off: crate::stats::mean(&off) })
    }

    /// Overall result. `Better`: something improved and nothing got worse. `Worse`: the reverse. `NoDifference`:
    /// neither. `None`: some quantities improved and some got worse, or nothing was compared
    /// ([`Verdict::unfounded`]).
    pub fn overall(&self) -> Option<Outcome> {
        if self.findings.is_empty() {
            return None;
        }
        let any = |o: Outcome| self.findings.iter().any(|f| f.outcome == o);
        match (any(Outcome::Better), any(Outcome::Worse)) {
            (true, false) => Some(Outcome::Better),
            (false, true) => Some(Outcome::Worse),
            (false, false) => Some(Outcome::NoDifference),
            (true, true) => None,
        }
    }

    /// Why there is no verdict; `None` if at least one quantity was compared.
    pub fn unfounded(&self) -> Option<String> {
        if !self.findings.is_empty() {
            return None;
        }
        let all: Vec<String> =
            self.not_compared.iter().map(|n| format!("VM {:?}: {}", n.name, n.why)).collect();
        let more = all.len().saturating_sub(REASONS_TOLD);
        let told = all.into_iter().take(REASONS_TOLD).collect::<Vec<String>>().join("; ");
        Some(match (told.is_empty(), more) {
            (true, _) => "the recordings contain no VM".to_owned(),
            (false, 0) => told,
            (false, more) => format!("{told}; and {more} more"),
        })
    }
}

/// Most reasons printed in one line if nothing was compared.
const REASONS_TOLD: usize = 4;

/// One of the two recordings.
struct Side<'a> {
    model: &'a HostModel,
    shares: BTreeMap<&'a VmId, Vec<Shares>>,
    intervals: usize,
}

impl<'a> Side<'a> {
    fn of((model, batches): (&'a HostModel, &'a [Batch])) -> Side<'a> {
        Side { model, shares: all_series(batches), intervals: batches.len().saturating_sub(1) }
    }

    /// A share of a VM per interval in which it was measured.
    fn series(&self, vm: &VmId, term: impl Fn(&Shares) -> Option<f64>) -> Vec<f64> {
        self.shares.get(vm).into_iter().flatten().filter_map(term).collect()
    }
}

/// Waits of a VM in both recordings: ready, if both recordings measured it in every interval. Otherwise ready and
/// limited together on both sides (`true`), because comparing unlike quantities would show a quota as a change.
fn waited(before: &Side<'_>, after: &Side<'_>, vm: &VmId) -> (Vec<f64>, Vec<f64>, bool) {
    let of = |side: &Side<'_>, term: fn(&Shares) -> Option<f64>| side.series(vm, term);
    let (ready_a, ready_b) = (of(before, |s| s.ready), of(after, |s| s.ready));
    let (wait_a, wait_b) = (of(before, |s| s.wait), of(after, |s| s.wait));
    let told = |ready: &[f64], wait: &[f64]| !ready.is_empty() && ready.len() >= wait.len();
    if told(&ready_a, &wait_a) && told(&ready_b, &wait_b) {
        (ready_a, ready_b, false)
    } else {
        (wait_a, wait_b, true)
    }
}

/// The part of the level for the waits of the VMs that the plan is to help.
const GATE: f64 = 0.8;

/// One quantity of a VM in both recordings.
struct Compared<'a> {
    vm: &'a VmModel,
    quantity: Quantity,
    with_limited: bool,
    /// It is CPU time of a VM that wants all its vCPUs all the time.
    is_work: bool,
    comparison: Comparison,
}

/// Compares two recordings. The models name the VMs; `forecast` is that of the plan, if any.
pub fn verify(
    before: (&HostModel, &[Batch]),
    after: (&HostModel, &[Batch]),
    forecast: Option<&Forecast>,
    options: Options,
) -> Verdict {
    let (before, after) = (Side::of(before), Side::of(after));
    let (compared, not_compared) = compare_all(&before, &after);
    let helped = |f: &VmForecast| f.ready_after.likely < f.ready_before - options.least;
    let planned: BTreeSet<VmId> = forecast
        .map(|f| f.vms.iter().filter(|f| helped(f)).map(|f| f.vm.clone()).collect())
        .unwrap_or_default();
    let load = load::changed(&before, &after, &planned, options.least);
    let judge = |c: &Compared<'_>, alpha: f64| finding(c, alpha, forecast, load.as_ref(), options);
    let first = |c: &&Compared<'_>| c.quantity == Quantity::Ready && planned.contains(&c.vm.id);
    // CPU time that does not measure work is never judged, so it takes no part of the level.
    let rest = |c: &&Compared<'_>| !first(c) && (c.quantity == Quantity::Ready || c.is_work);
    let parts = [compared.iter().filter(first).count(), compared.iter().filter(rest).count()];
    let [gate, others] = if parts[0] == 0 { [0.0, 1.0] } else { [GATE, 1.0 - GATE] };
    let each = |level: f64, of: usize| options.alpha * level / of.max(1) as f64;
    let mut findings: Vec<Finding> =
        compared.iter().filter(first).map(|c| judge(c, each(gate, parts[0]))).collect();
    let passed = parts[0] > 0 && findings.iter().all(|f| f.outcome == Outcome::Better);
    let level = each(if passed { 1.0 } else { others }, parts[1]);
    findings.extend(compared.iter().filter(|c| !first(c)).map(|c| judge(c, level)));
    findings.sort_by(|a, b| {
        let size = |f: &Finding| f.comparison.difference().abs();
        a.quantity.cmp(&b.quantity).then(size(b).total_cmp(&size(a)))
    });
    Verdict { options, load, findings, not_compared }
}

/// Are these recordings of one host, and is a plan of a simulated host of this one?
///
/// Simulated hosts number their VMs, and saved traces of Xen know domains by number: there VMs of different hosts have
/// the same ids. Elsewhere an id stands for one VM, whatever its name.
///
/// # Errors
/// `BadInput`, which names the first VM that differs.
pub fn of_one_host(before: &HostConfig, after: &HostConfig, plan: Option<&Plan>) -> Result<(), Fault> {
    let other = |config: &HostConfig, id: &VmId, name: &str| match config.vm(id) {
        Some(vm) if (config.is_simulated() || id.0.starts_with("xen:domain-")) && vm.name != name => {
            Some(vm.name.clone())
        }
        _ => None,
    };
    for vm in &before.vms {
        if let Some(name) = other(after, &vm.id, &vm.name) {
            return Err(Fault::new(
                FaultKind::BadInput,
                "the recordings are of different hosts, or of different VMs",
            )
            .because(format!("VM {} is {:?} in the first and {name:?} in the second", vm.id.0, vm.name))
            .help("record the same VMs before and after the change"));
        }
    }
    let Some(plan) = plan else { return Ok(()) };
    let known = |vm: &&VmConfig| before.vm(&vm.id).is_some() && other(before, &vm.id, &vm.name).is_none();
    match plan.parent.vms.iter().find(|vm| !known(vm)) {
        Some(vm) if plan.parent.is_simulated() => {
            Err(Fault::new(FaultKind::BadInput, format!("plan {} is of another host", plan.id))
                .because(format!("VM {:?} of the plan is not in the first recording", vm.name))
                .help("give the plan that was made from the first recording, or leave it out"))
        }
        _ => Ok(()),
    }
}

fn compare_all<'a>(before: &Side<'a>, after: &Side<'a>) -> (Vec<Compared<'a>>, Vec<NotCompared>) {
    let (mut compared, mut not_compared) = (Vec::new(), Vec::new());
    for vm in &before.model.vms {
        let mut not = |why: String| not_compared.push(NotCompared { name: vm.name.clone(), why });
        if after.model.vm(&vm.id).is_none() {
            not("the VM is not in the second recording".into());
            continue;
        }
        let never_sleeps = load::never_sleeps(before, after, &vm.id);
        for quantity in Quantity::ALL {
            let (a, b, with_limited) = match quantity {
                Quantity::Ready => waited(before, after, &vm.id),
                Quantity::Run => {
                    let run = |side: &Side<'_>| side.series(&vm.id, |s| s.run);
                    (run(before), run(after), false)
                }
            };
            match compare(&a, &b) {
                Some(comparison) => {
                    let is_work = quantity == Quantity::Run && never_sleeps;
                    compared.push(Compared { vm, quantity, with_limited, is_work, comparison });
                }
                None => not(format!(
                    "{}: {} before and {} after are too few; record for longer",
                    if quantity == Quantity::Ready { "ready" } else { "run" },
                    counted(a.len(), "sample"),
                    b.len()
                )),
            }
        }
    }
    for vm in after.model.vms.iter().filter(|v| before.model.vm(&v.id).is_none()) {
        not_compared
            .push(NotCompared { name: vm.name.clone(), why: "the VM is not in the first recording".into() });
    }
    (compared, not_compared)
}

/// Decides the outcome of a comparison at significance level `alpha`.
fn finding(
    compared: &Compared<'_>,
    alpha: f64,
    forecast: Option<&Forecast>,
    load: Option<&Comparison>,
    options: Options,
) -> Finding {
    let Compared { vm, quantity, with_limited, is_work, comparison } = *compared;
    let half_width = comparison.half_width(alpha);
    let difference = comparison.difference();
    let shown = difference.abs() > half_width.max(options.least);
    // Less load makes waits shorter, and gives the VMs that never sleep more of the pCPUs.
    let by_load =
        load.is_some_and(|l| ((l.difference() > 0.0) == (difference > 0.0)) != quantity.more_is_better());
    let not_judged = match quantity {
        _ if !shown => None,
        Quantity::Run if !is_work => Some(NotJudged::WorkNotMeasured),
        _ => by_load.then_some(NotJudged::LoadChanged),
    };
    let outcome = match (shown, (difference > 0.0) == quantity.more_is_better()) {
        _ if not_judged.is_some() => Outcome::NoDifference,
        (false, _) => Outcome::NoDifference,
        (true, true) => Outcome::Better,
        (true, false) => Outcome::Worse,
    };
    let told = forecast.and_then(|f| f.vms.iter().find(|v| v.vm == vm.id));
    let expected = told.and_then(|f| match quantity {
        // A forecast that includes limited time is not a forecast of ready alone, and the reverse.
        Quantity::Ready => (f.with_limited == with_limited).then_some(f.ready_after),
        Quantity::Run => Some(f.run_after),
    });
    Finding {
        vm: vm.id.clone(),
        name: vm.name.clone(),
        quantity,
        with_limited,
        comparison,
        outcome,
        not_judged,
        half_width,
        smallest_visible: comparison.smallest_visible(alpha, options.power, options.least),
        forecast: expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nouns::{Role, ThreadCounters, ThreadSample, Tid};

    /// Recordings of one VM of one vCPU that runs 48 %, is ready 2 % and is held by a quota 50 % of the time; with
    /// or without separate ready and limited time.
    fn recording(vm: &str, intervals: u64, split: bool) -> (HostModel, Vec<Batch>) {
        let batch = |i: u64| {
            // Not all intervals alike, or a difference of any size would be shown.
            let at = |percent: u64| 10_000_000 * (percent * i + i % 2);
            let counters = ThreadCounters {
                run_ns: Some(at(48)),
                ready_ns: split.then_some(at(2)),
                limited_ns: split.then_some(at(50)),
                wait_ns: Some(at(52)),
                ..ThreadCounters::default()
            };
            let thread = ThreadSample {
                vm: VmId(vm.into()),
                role: Role::Vcpu(0),
                tid: Tid(1),
                last_cpu: None,
                waiting_ns: None,
                counters,
            };
            Batch { mono_ns: 1_000_000_000 * (i + 1), threads: vec![thread], ..Batch::default() }
        };
        let batches: Vec<Batch> = (0..=intervals).map(batch).collect();
        let config = crate::nouns::HostConfig {
            cgroups: crate::nouns::CgroupLayout::V2,
            vms: vec![crate::nouns::VmConfig::new(VmId(vm.into()), vm, 1)],
            ..HostConfig::new("h", "6.18", crate::topology::machine(1, 2, 1, 1).unwrap())
        };
        let collector = crate::nouns::Collector { name: "made up".into(), missing: [].into() };
        (crate::model::derive(&config, &collector, &batches).unwrap(), batches)
    }

    fn of(before: &(HostModel, Vec<Batch>), after: &(HostModel, Vec<Batch>)) -> Verdict {
        verify((&before.0, &before.1), (&after.0, &after.1), None, Options::default())
    }

    #[test]
    fn where_nothing_is_compared_there_is_no_verdict_but_a_reason() {
        let (web, db) = (recording("web", 40, true), recording("db", 40, true));
        let strangers = of(&web, &db);
        assert_eq!(strangers.overall(), None);
        let why = strangers.unfounded().unwrap();
        assert!(why.contains("\"web\"") && why.contains("not in the second recording"), "{why}");
        let short = of(&recording("web", 3, true), &recording("web", 3, true));
        assert_eq!(short.overall(), None);
        assert!(short.unfounded().unwrap().contains("too few"));
        let same = of(&web, &web);
        assert_eq!((same.overall(), same.unfounded()), (Some(Outcome::NoDifference), None));
    }

    #[test]
    fn what_a_quota_holds_is_no_change_where_only_one_recording_tells_it_apart() {
        let (split, whole) = (recording("web", 40, true), recording("web", 40, false));
        for (before, after) in [(&split, &whole), (&whole, &split), (&whole, &whole)] {
            let verdict = of(before, after);
            assert_eq!(verdict.overall(), Some(Outcome::NoDifference), "{verdict:?}");
            let waits = verdict.findings.iter().find(|f| f.quantity == Quantity::Ready).unwrap();
            assert_eq!(waits.compared(), "wait");
            assert!((waits.comparison.before - 0.52).abs() < 0.01, "{waits:?}");
        }
        let both = of(&split, &split);
        let ready = both.findings.iter().find(|f| f.quantity == Quantity::Ready).unwrap();
        assert_eq!(ready.compared(), "ready");
        assert!((ready.comparison.before - 0.02).abs() < 0.01, "{ready:?}");
    }
}
