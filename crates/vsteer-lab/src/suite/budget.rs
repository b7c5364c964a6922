//! The time budget of tests. Every case states its minutes, and tools/budget has the sums that they must not
//! exceed.
//!
//! The minutes are for a quiet machine with two pCPUs and a filled cache of packages. `vsteer-lab test` warns
//! about a case that takes longer than stated.

/// How long a case takes alone, min.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Minutes {
    /// At the size of `test`.
    pub short: f64,
    /// At the size of the full promise.
    pub full: f64,
}

impl Minutes {
    pub const fn new(short: f64, full: f64) -> Minutes {
        Minutes { short, full }
    }
}

#[cfg(test)]
mod tests {
    use crate::suite::{CASES, PARTS};
    use std::collections::BTreeMap;

    /// `NAME MINUTES` a line.
    const BUDGET: &str = include_str!("../../../../tools/budget");

    fn budget() -> BTreeMap<&'static str, f64> {
        let lines = BUDGET.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
        lines
            .map(|l| {
                let mut words = l.split_whitespace();
                (words.next().unwrap(), words.next().unwrap().parse().unwrap())
            })
            .collect()
    }

    #[test]
    fn the_cases_of_make_test_fit_the_budget() {
        let stated: f64 = CASES.iter().chain(PARTS).filter(|c| c.in_test).map(|c| c.minutes.short).sum();
        assert!(stated > 5.0 && stated <= budget()["lab"], "{stated} min are stated");
    }

    #[test]
    fn setup_build_and_lab_fit_the_budget_of_ci() {
        let budget = budget();
        let parts = budget["setup"] + budget["build"] + budget["lab"];
        assert!(parts <= budget["ci"], "{parts} min of {budget:?}");
    }

    #[test]
    fn every_case_states_its_minutes() {
        for case in CASES.iter().chain(PARTS) {
            let of = case.minutes;
            assert!(of.short > 0.0 && of.full >= of.short, "{}: {of:?}", case.name);
        }
    }
}
