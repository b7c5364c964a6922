//! Which skips does a run expect, and why?
//!
//! The list has a rule a line, `RULE: REASON`. Rules:
//!
//! ```text
//! leave-out TEST    no run includes this test
//! may-skip TEST     the run includes this test, and on some machines the test cannot run
//! claims N          at most N claims of the lab may be skipped, of any name
//! ```

use std::path::Path;

/// The list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    pub leave_out: Vec<Rule>,
    pub may_skip: Vec<Rule>,
    pub claims_most: usize,
}

/// A test that is expected to be skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The test's name as its binary has it.
    pub test: String,
    pub reason: String,
}

impl Expected {
    /// Reads the list.
    pub fn read(file: &Path) -> Result<Expected, String> {
        let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        Expected::parse(&text).map_err(|why| format!("{}: {why}", file.display()))
    }

    fn parse(text: &str) -> Result<Expected, String> {
        let mut all = Expected::default();
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let (rule, reason) =
                line.split_once(": ").ok_or_else(|| format!("{line:?} has no reason after \": \""))?;
            let (kind, of) = rule.split_once(' ').ok_or_else(|| format!("{line:?} names no test"))?;
            let rule = Rule { test: of.trim().to_owned(), reason: reason.trim().to_owned() };
            match kind {
                "leave-out" => all.leave_out.push(rule),
                "may-skip" => all.may_skip.push(rule),
                "claims" => {
                    let number = of.trim().parse();
                    all.claims_most = number.map_err(|_| format!("{of:?} is not a number of claims"))?;
                }
                _ => return Err(format!("{kind:?} is not a rule; rules: leave-out, may-skip, claims")),
            }
        }
        Ok(all)
    }

    /// Why a skip of this test is expected; `None` where it is not.
    pub fn reason(&self, test: &str) -> Option<&str> {
        let rules = self.leave_out.iter().chain(&self.may_skip);
        rules.clone().find(|r| r.test == test).map(|r| r.reason.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_a_name_and_a_reason() {
        let list = "# words\n\nleave-out a::b: it: needs\nmay-skip c: no group\nclaims 2: busy\n";
        let all = Expected::parse(list).unwrap();
        assert_eq!(
            (all.reason("a::b"), all.reason("c"), all.reason("d")),
            (Some("it: needs"), Some("no group"), None)
        );
        assert_eq!(all.claims_most, 2);
        for bad in ["leave-out a::b", "may-skip", "claims x: why", "skip a: why"] {
            assert!(Expected::parse(bad).is_err(), "{bad}");
        }
    }
}
