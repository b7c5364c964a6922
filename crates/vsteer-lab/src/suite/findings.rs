//! The results of a case: claims, and the numbers behind them.
//!
//! A claim must not hold without evidence. For example, 0 is within 1 % of 0, every member of an empty list
//! satisfies any condition, and the largest of no errors is small. So each kind of claim that could hold
//! without evidence requires evidence here.

use crate::case::{Check, Outcome};
use serde::Serialize;
use serde_json::Value;

/// The results of a case.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Findings {
    pub checks: Vec<Check>,
    /// Numbers, for the record.
    pub figures: Value,
}

/// The amount of evidence for a claim.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The amount; NaN if nothing was measured.
    pub amount: f64,
    /// The least amount with which a claim can be judged.
    pub least: f64,
    /// The unit: `vCPUs`, `% ready`.
    pub of_what: &'a str,
}

impl<'a> Evidence<'a> {
    /// A number of things.
    pub fn count(n: usize, least: usize, of_what: &'a str) -> Evidence<'a> {
        assert!(least > 0, "no evidence is not evidence");
        Evidence { amount: n as f64, least: least as f64, of_what }
    }

    /// A measured amount.
    pub fn amount(amount: f64, least: f64, of_what: &'a str) -> Evidence<'a> {
        assert!(least > 0.0, "no evidence is not evidence");
        Evidence { amount, least, of_what }
    }

    fn suffices(&self) -> bool {
        self.amount >= self.least
    }
}

impl Findings {
    /// Adds a claim that cannot hold without evidence.
    pub fn claim(&mut self, claim: impl Into<String>, held: bool, found: impl Into<String>) {
        self.checks.push(Check::new(claim, held, found));
    }

    /// Adds a claim that fails if the evidence is not enough.
    pub fn claim_on(
        &mut self,
        claim: impl Into<String>,
        evidence: Evidence,
        held: bool,
        found: impl Into<String>,
    ) {
        let mut found = found.into();
        if !evidence.suffices() {
            let Evidence { amount, least, of_what } = evidence;
            found = format!("nothing to judge by: {amount} {of_what}, needed {least}; {found}");
        }
        self.claim(claim, held && evidence.suffices(), found);
    }

    /// Adds the claim that none of these values is above `most`. There must be `least` values, and each must
    /// be a number.
    pub fn claim_at_most(
        &mut self,
        claim: impl Into<String>,
        values: &[f64],
        most: f64,
        least: usize,
        of_what: &str,
        found: impl Into<String>,
    ) {
        let evidence = Evidence::count(values.len(), least, of_what);
        self.claim_on(claim, evidence, worst(values.iter().copied()) <= most, found);
    }

    /// Adds the claim that each of these satisfies a condition. There must be `least` of them.
    pub fn claim_each(
        &mut self,
        claim: impl Into<String>,
        each: impl IntoIterator<Item = bool>,
        least: usize,
        of_what: &str,
        found: impl Into<String>,
    ) {
        let each: Vec<bool> = each.into_iter().collect();
        let evidence = Evidence::count(each.len(), least, of_what);
        self.claim_on(claim, evidence, each.iter().all(|e| *e), found);
    }

    /// Adds a claim that cannot be judged because of something other than vsteer.
    pub fn not_judged(&mut self, claim: impl Into<String>, why: impl Into<String>, found: impl Into<String>) {
        self.checks.push(Check::not_judged(claim, why, found));
    }

    /// The number of claims with this outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.checks.iter().filter(|c| c.outcome() == outcome).count()
    }
}

/// The largest of some errors. Infinity if there are none, or if one is not a number, because `f64::max`
/// would drop it.
pub fn worst(values: impl IntoIterator<Item = f64>) -> f64 {
    let larger = |worst: f64, one: f64| if one.is_nan() { f64::INFINITY } else { worst.max(one) };
    values.into_iter().map(|v| larger(f64::NEG_INFINITY, v)).reduce(larger).unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(of: impl FnOnce(&mut Findings)) -> Outcome {
        let mut findings = Findings::default();
        of(&mut findings);
        findings.checks[0].outcome()
    }

    #[test]
    fn equal_figures_of_nothing_are_no_evidence() {
        let sum = |ready: f64, sum: f64| {
            let held = (sum - ready).abs() <= 0.01 * ready;
            let evidence = Evidence::amount(ready, 0.001, "ready share");
            outcome(|f| f.claim_on("rows sum to ready", evidence, held, ""))
        };
        assert_eq!(sum(0.2, 0.2), Outcome::Held);
        assert_eq!(sum(0.2, 0.3), Outcome::Failed);
        assert_eq!(sum(0.0, 0.0), Outcome::Failed);
        assert_eq!(sum(f64::NAN, 0.0), Outcome::Failed);
    }

    #[test]
    fn the_worst_of_nothing_is_not_small() {
        let at_most = |values: &[f64]| outcome(|f| f.claim_at_most("off by 1", values, 1.0, 2, "vCPUs", ""));
        assert_eq!(at_most(&[0.5, 1.0]), Outcome::Held);
        assert_eq!(at_most(&[0.5, 1.5]), Outcome::Failed);
        assert_eq!(at_most(&[]), Outcome::Failed);
        assert_eq!(at_most(&[0.5]), Outcome::Failed);
        assert_eq!(at_most(&[f64::NAN, 0.5]), Outcome::Failed);
        assert_eq!(at_most(&[0.5, f64::NAN]), Outcome::Failed);
        assert_eq!(worst([-3.0, -2.0]), -2.0);
    }

    #[test]
    fn all_of_an_empty_list_is_nothing() {
        let each = |of: &[bool]| outcome(|f| f.claim_each("each", of.iter().copied(), 1, "VMs", ""));
        assert_eq!(
            (each(&[true]), each(&[true, false]), each(&[])),
            (Outcome::Held, Outcome::Failed, Outcome::Failed)
        );
    }

    #[test]
    fn a_claim_that_is_not_judged_neither_holds_nor_fails() {
        assert_eq!(outcome(|f| f.not_judged("late", "the machine was busy", "")), Outcome::NotJudged);
    }
}
