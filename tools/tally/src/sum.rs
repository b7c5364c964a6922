//! The sums of a run, and what a person has to know beside them.
//!
//! A test that one stage left out and another ran is counted once, by the stage that ran it. A test whose reason begins
//! with `helper` is a part of other tests, which run it as a process of its own, and is not counted.

use crate::claims::Claims;
use crate::expected::Expected;
use crate::harness::{Outcome, Results, Test};
use crate::stage::{Kind, Stage};
use std::collections::BTreeMap;

const HELPER: &str = "helper";

/// What a run came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sum {
    passed: usize,
    failed: Vec<String>,
    skipped: Vec<String>,
    /// The run had no privilege: its ignored tests are for another run.
    unprivileged: bool,
}

/// All tests of a run, each with its last outcome, and what could not be counted.
fn tests(stages: &[Stage]) -> (BTreeMap<Test, Outcome>, Vec<String>) {
    let (mut all, mut faults) = (BTreeMap::<Test, Outcome>::new(), Vec::new());
    for stage in stages.iter().filter(|s| s.kind == Kind::Tests) {
        let results = Results::of(&stage.output);
        let failed = results.tests.values().any(|o| *o == Outcome::Failed);
        // An empty stage of tests is a mistake in how it was called.
        if results.tests.is_empty() {
            faults.push(format!("stage {} ran no test", stage.name));
        } else if stage.status != Some(0) && !failed && results.faults.is_empty() {
            faults.push(format!("stage {} failed, although no test did", stage.name));
        }
        faults.extend(results.faults);
        for (test, outcome) in results.tests {
            match all.get(&test) {
                // A stage that leaves a test out says nothing about it, and no stage makes a failure good.
                Some(Outcome::Failed) => {}
                Some(Outcome::Passed) if matches!(outcome, Outcome::Skipped(_)) => {}
                _ => drop(all.insert(test, outcome)),
            }
        }
    }
    all.retain(|_, o| !matches!(o, Outcome::Skipped(why) if why.starts_with(HELPER)));
    (all, faults)
}

/// The names of tests that a run of the ignored tests must leave out: expected ones and helpers.
pub fn left_out(stages: &[Stage], expected: &Expected) -> Vec<String> {
    let mut names: Vec<String> = expected.leave_out.iter().map(|r| r.test.clone()).collect();
    for stage in stages.iter().filter(|s| s.kind == Kind::Tests) {
        let all = Results::of(&stage.output).tests;
        let is_helper = |o: &Outcome| matches!(o, Outcome::Skipped(why) if why.starts_with(HELPER));
        names.extend(all.into_iter().filter(|(_, o)| is_helper(o)).map(|(t, _)| t.name));
    }
    names
}

impl Sum {
    /// Adds up the stages of a run. `strict`: a skip that is not expected is a failure. `unprivileged`: ignored tests are
    /// for another run.
    pub fn of(stages: &[Stage], expected: &Expected, strict: bool, unprivileged: bool) -> Sum {
        let mut sum = Sum { unprivileged, ..Sum::default() };
        let (all, faults) = tests(stages);
        sum.failed.extend(faults);
        for (test, outcome) in &all {
            match outcome {
                Outcome::Passed => sum.passed += 1,
                Outcome::Failed => sum.failed.push(test.told()),
                Outcome::Skipped(why) => {
                    let reason = expected.reason(&test.name);
                    if strict && !unprivileged && reason.is_none() {
                        sum.failed.push(format!("{}: an unexpected skip: {why}", test.told()));
                    } else {
                        let why = if why.is_empty() { reason.unwrap_or("no reason given") } else { why };
                        sum.skipped.push(format!("{}: {why}", test.told()));
                    }
                }
            }
        }
        for stage in stages {
            let status = stage.status.map_or("did not end".to_owned(), |s| format!("status {s}"));
            match stage.kind {
                Kind::Tests => {}
                Kind::Gate if stage.status == Some(0) => {}
                Kind::Gate => sum.failed.push(format!("stage {}: {status}", stage.name)),
                Kind::Claims => sum.claims(stage, expected, strict, &status),
            }
        }
        if strict && !all.is_empty() {
            for rule in expected.leave_out.iter().chain(&expected.may_skip) {
                if !all.keys().any(|t| t.name == rule.test) {
                    sum.failed.push(format!("expected to be skipped, but there is no test {}", rule.test));
                }
            }
        }
        sum
    }

    fn claims(&mut self, stage: &Stage, expected: &Expected, strict: bool, status: &str) {
        let claims = Claims::of(stage.claims.as_deref().unwrap_or_default());
        let failed = claims.claims.iter().any(|(_, o)| *o == Outcome::Failed) || !claims.faults.is_empty();
        if stage.status != Some(0) && !failed {
            self.failed.push(format!("stage {}: {status}, although no claim failed", stage.name));
        }
        self.failed.extend(claims.faults);
        let skipped = claims.claims.iter().filter(|(_, o)| matches!(o, Outcome::Skipped(_))).count();
        if strict && skipped > expected.claims_most {
            self.failed
                .push(format!("{skipped} claims were not judged, at most {} may", expected.claims_most));
        }
        for (claim, outcome) in claims.claims {
            match outcome {
                Outcome::Passed => self.passed += 1,
                Outcome::Failed => self.failed.push(claim),
                Outcome::Skipped(why) => self.skipped.push(format!("{claim}: {why}")),
            }
        }
    }

    /// How many failed.
    pub fn failed(&self) -> usize {
        self.failed.len()
    }

    /// What to print, the sums last.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.skipped.iter().map(|s| format!("skipped: {s}")).collect();
        lines.extend(self.failed.iter().map(|f| format!("failed: {f}")));
        if self.unprivileged && !self.skipped.is_empty() {
            lines.push(format!(
                "{} tests need more than this run has: `make test` runs them",
                self.skipped.len()
            ));
        }
        let [failed, skipped] = [self.failed.len(), self.skipped.len()];
        lines.push(format!("{} passed, {failed} failed, {skipped} skipped", self.passed));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(name: &str, kind: Kind, status: u8, output: &str) -> Stage {
        let status = Some(status);
        Stage { name: name.into(), kind, status, output: output.into(), claims: None }
    }

    fn ran(lines: &[&str]) -> String {
        let count = |word: &str| lines.iter().filter(|l| l.contains(&format!("... {word}"))).count();
        let tests: String = lines.iter().map(|l| format!("test {l}\n")).collect();
        format!(
            "     Running tests/t.rs (target/debug/deps/t-1)\n\nrunning {} tests\n{tests}\ntest result: ok. {} passed; {} failed; {} ignored; 0 measured\n",
            lines.len(),
            count("ok"),
            count("FAILED"),
            count("ignored")
        )
    }

    fn last(stages: &[Stage], list: &Expected, strict: bool) -> String {
        Sum::of(stages, list, strict, false).lines().pop().unwrap()
    }

    fn list(leave_out: &[&str], may_skip: &[&str]) -> Expected {
        let rule = |t: &&str| crate::expected::Rule { test: (*t).into(), reason: "it cannot".into() };
        Expected {
            leave_out: leave_out.iter().map(rule).collect(),
            may_skip: may_skip.iter().map(rule).collect(),
            claims_most: 1,
        }
    }

    #[test]
    fn a_test_that_a_later_stage_runs_counts_once() {
        let first = ran(&[
            "a ... ok",
            "b ... ignored, needs root",
            "c ... ignored, needs more",
            "d ... ignored, helper of a",
        ]);
        let both =
            [stage("unit", Kind::Tests, 0, &first), stage("root", Kind::Tests, 0, &ran(&["b ... ok"]))];
        assert_eq!(last(&both, &list(&["c"], &[]), true), "2 passed, 0 failed, 1 skipped");
        assert_eq!(left_out(&both[..1], &list(&["c"], &[])), ["c", "d"]);
        // In CI a skip that nobody expects fails, and so does a rule for a test that is gone.
        assert_eq!(last(&both, &list(&[], &[]), true), "2 passed, 1 failed, 0 skipped");
        assert_eq!(last(&both, &list(&["c"], &["gone"]), true), "2 passed, 1 failed, 1 skipped");
        assert_eq!(last(&both, &list(&[], &[]), false), "2 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn no_failing_stage_is_lost() {
        let good = || stage("unit", Kind::Tests, 0, &ran(&["a ... ok"]));
        let sum = |more: Stage| last(&[good(), more], &Expected::default(), false);
        assert_eq!(sum(stage("lints", Kind::Gate, 0, "")), "1 passed, 0 failed, 0 skipped");
        assert_eq!(sum(stage("lints", Kind::Gate, 1, "")), "1 passed, 1 failed, 0 skipped");
        assert_eq!(
            sum(Stage { status: None, ..stage("lints", Kind::Gate, 0, "") }),
            "1 passed, 1 failed, 0 skipped"
        );
        // Another test by the same name in a binary that failed to build: no result, status 101.
        assert_eq!(
            sum(stage("root", Kind::Tests, 101, "error: could not compile")),
            "1 passed, 1 failed, 0 skipped"
        );
        assert_eq!(
            sum(stage("root", Kind::Tests, 101, &ran(&["b ... ok"]))),
            "2 passed, 1 failed, 0 skipped"
        );
        assert_eq!(
            sum(stage("root", Kind::Tests, 101, &ran(&["a ... FAILED"]))),
            "0 passed, 1 failed, 0 skipped"
        );
    }

    #[test]
    fn claims_are_added() {
        let lab = |status: u8, text: &str| {
            let stage = Stage { claims: Some(text.into()), ..stage("lab", Kind::Claims, status, "") };
            [stage]
        };
        let busy = "ok 1 - a: b\nok 2 - a: c # SKIP busy\n1..2\n";
        assert_eq!(last(&lab(0, busy), &list(&[], &[]), true), "1 passed, 0 failed, 1 skipped");
        assert_eq!(last(&lab(0, busy), &Expected::default(), true), "1 passed, 1 failed, 1 skipped");
        assert_eq!(last(&lab(1, busy), &list(&[], &[]), true), "1 passed, 1 failed, 1 skipped");
        assert_eq!(
            last(&lab(1, "not ok 1 - a: b\n1..1\n"), &list(&[], &[]), true),
            "0 passed, 1 failed, 0 skipped"
        );
        assert_eq!(last(&lab(0, ""), &list(&[], &[]), true), "0 passed, 1 failed, 0 skipped");
    }
}
