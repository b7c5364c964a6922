//! Did it help? Two stretches of samples compared, with the smallest difference that would have been seen.
//!
//! Per VM and quantity the series of shares per interval are compared by batch means (see [`crate::stats`]); the
//! level is divided among all comparisons of the verdict (Bonferroni), so that "better" or "worse" anywhere in it
//! is wrong in [`Options::alpha`] of the cases at most. A difference that is real but smaller than
//! [`Options::least`] is called none: nobody would act on it.

use crate::model::{HostModel, Shares, series};
use crate::nouns::{Batch, VmId};
use crate::plan::{Forecast, Interval};
use crate::stats::{Comparison, compare};
use serde::{Deserialize, Serialize};

/// How sure a verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Probability of any false "better" or "worse" in the whole verdict.
    pub alpha: f64,
    /// Probability of finding a difference as large as the smallest one it claims to see.
    pub power: f64,
    /// Least difference worth naming, as a share of a pCPU.
    pub least: f64,
}

impl Default for Options {
    fn default() -> Self {
        Options { alpha: 0.05, power: 0.9, least: 0.01 }
    }
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Ready share (ready and limited where the collector cannot split them), summed over vCPUs: less is better.
    Ready,
    /// Run share, summed over vCPUs: more is better, it is the VM's work.
    Run,
}

impl Quantity {
    /// All of them.
    pub const ALL: [Quantity; 2] = [Quantity::Ready, Quantity::Run];

    fn of(self, s: &Shares) -> Option<f64> {
        match self {
            Quantity::Ready => s.ready.or(s.wait),
            Quantity::Run => s.run,
        }
    }

    fn more_is_better(self) -> bool {
        self == Quantity::Run
    }
}

/// The answer for one VM and quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It improved.
    Better,
    /// It worsened.
    Worse,
    /// Neither is shown.
    NoDifference,
}

/// One comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Which VM.
    pub vm: VmId,
    /// Its name.
    pub name: String,
    /// What was compared.
    pub quantity: Quantity,
    /// Means, standard error, block length.
    pub comparison: Comparison,
    /// The answer.
    pub outcome: Outcome,
    /// Half the confidence interval of the difference, at the verdict's level.
    pub half_width: f64,
    /// The smallest difference that would have been found.
    pub smallest_visible: f64,
    /// What the plan had forecast for `after`, where there was a plan.
    pub forecast: Option<Interval>,
}

/// A quantity that could not be compared, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCompared {
    /// The VM's name.
    pub name: String,
    /// Why not.
    pub why: String,
}

/// How well what was forecast came true.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Quantities with a forecast.
    pub of: usize,
    /// Those that came to lie in its interval.
    pub within: usize,
    /// How far the ready shares were off the most likely value, on average, as a part of a pCPU.
    pub ready_off: Option<f64>,
}

/// The verdict over all VMs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// How sure it is.
    pub options: Options,
    /// Every comparison, largest change of ready first.
    pub findings: Vec<Finding>,
    /// What could not be compared.
    pub not_compared: Vec<NotCompared>,
}

impl Verdict {
    /// How well the plan's forecast came true; `None` without one.
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

    /// In one word: better when something improved and nothing worsened; worse when something worsened and nothing
    /// improved; no difference when neither is shown; `None` when some improved and some worsened.
    pub fn overall(&self) -> Option<Outcome> {
        let any = |o: Outcome| self.findings.iter().any(|f| f.outcome == o);
        match (any(Outcome::Better), any(Outcome::Worse)) {
            (true, false) => Some(Outcome::Better),
            (false, true) => Some(Outcome::Worse),
            (false, false) => Some(Outcome::NoDifference),
            (true, true) => None,
        }
    }
}

/// Compares two recordings. The models name the VMs; `forecast` is the plan's, where there was one.
pub fn verify(
    before: (&HostModel, &[Batch]),
    after: (&HostModel, &[Batch]),
    forecast: Option<&Forecast>,
    options: Options,
) -> Verdict {
    let mut not_compared = Vec::new();
    let mut raw = Vec::new();
    for vm in &before.0.vms {
        if after.0.vm(&vm.id).is_none() {
            not_compared
                .push(NotCompared { name: vm.name.clone(), why: "it is not in the second recording".into() });
            continue;
        }
        for quantity in Quantity::ALL {
            let a = series(before.1, &vm.id, |s| quantity.of(s));
            let b = series(after.1, &vm.id, |s| quantity.of(s));
            match compare(&a, &b) {
                Some(c) => raw.push((vm, quantity, c)),
                None => not_compared.push(NotCompared {
                    name: vm.name.clone(),
                    why: format!(
                        "{quantity:?}: {} and {} samples are too few; observe for longer",
                        a.len(),
                        b.len()
                    ),
                }),
            }
        }
    }
    for vm in after.0.vms.iter().filter(|v| before.0.vm(&v.id).is_none()) {
        not_compared
            .push(NotCompared { name: vm.name.clone(), why: "it is not in the first recording".into() });
    }
    let alpha = options.alpha / raw.len().max(1) as f64;
    let mut findings: Vec<Finding> = raw
        .into_iter()
        .map(|(vm, quantity, comparison)| {
            let half_width = comparison.half_width(alpha);
            let difference = comparison.difference();
            let shown = difference.abs() > half_width.max(options.least);
            let outcome = match (shown, (difference > 0.0) == quantity.more_is_better()) {
                (false, _) => Outcome::NoDifference,
                (true, true) => Outcome::Better,
                (true, false) => Outcome::Worse,
            };
            let expected =
                forecast.and_then(|f| f.vms.iter().find(|v| v.vm == vm.id)).map(|f| match quantity {
                    Quantity::Ready => f.ready_after,
                    Quantity::Run => f.run_after,
                });
            Finding {
                vm: vm.id.clone(),
                name: vm.name.clone(),
                quantity,
                comparison,
                outcome,
                half_width,
                smallest_visible: comparison.smallest_visible(alpha, options.power).max(options.least),
                forecast: expected,
            }
        })
        .collect();
    findings.sort_by(|a, b| {
        let size = |f: &Finding| f.comparison.difference().abs();
        a.quantity.cmp(&b.quantity).then(size(b).total_cmp(&size(a)))
    });
    Verdict { options, findings, not_compared }
}
