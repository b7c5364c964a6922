//! What became of the lab's claims? Read from TAP, the Test Anything Protocol (testanything.org), version 13.
//!
//! `ok`, `not ok`, and `ok ... # SKIP reason` are the three outcomes. The plan `1..N` is the last line. Without it the
//! lab ended early, which is a failure.

use crate::harness::Outcome;

/// What the file of claims holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Claims {
    pub claims: Vec<(String, Outcome)>,
    /// What cannot be counted: each is a failure.
    pub faults: Vec<String>,
}

impl Claims {
    /// Reads a file of claims.
    pub fn of(text: &str) -> Claims {
        let mut all = Claims::default();
        let (mut planned, mut failed_last) = (None, false);
        for line in text.lines() {
            if let Some(n) = line.strip_prefix("1..") {
                planned = n.parse::<usize>().ok();
            } else if let Some(rest) = line.strip_prefix("not ok ") {
                all.claims.push((description(rest), Outcome::Failed));
            } else if let Some(rest) = line.strip_prefix("ok ") {
                let skipped = rest.rsplit_once(" # SKIP ");
                all.claims.push(match skipped {
                    Some((claim, why)) => (description(claim), Outcome::Skipped(why.to_owned())),
                    None => (description(rest), Outcome::Passed),
                });
            } else if let (true, Some(found), Some((claim, _))) =
                (failed_last, line.strip_prefix("# "), all.claims.last_mut())
            {
                // The reason stands beside the failure, because the end of a log is what people read first.
                claim.push_str(&format!(" ({found})"));
            } else if !line.starts_with('#') && !line.starts_with("TAP version") && !line.trim().is_empty() {
                all.faults.push(format!("the lab wrote a line that is not TAP: {line:?}"));
            }
            failed_last = line.starts_with("not ok ");
        }
        match planned {
            None => all.faults.push("the lab ended before its last claim".to_owned()),
            Some(n) if n != all.claims.len() => {
                all.faults.push(format!("the lab made {n} claims and wrote {}", all.claims.len()));
            }
            Some(_) => {}
        }
        all
    }
}

/// Without the number: `7 - case: claim`.
fn description(text: &str) -> String {
    text.split_once("- ").map_or(text, |(_, words)| words).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_outcomes() {
        let all = Claims::of(
            "TAP version 13\nok 1 - a: it holds\n# found: 3\nnot ok 2 - a: it fails\n\
             # found: 4\nok 3 - b: it is late # SKIP the machine was busy\n1..3\n",
        );
        assert_eq!(all.faults, Vec::<String>::new());
        let busy = Outcome::Skipped("the machine was busy".into());
        let expected = [
            ("a: it holds", Outcome::Passed),
            ("a: it fails (found: 4)", Outcome::Failed),
            ("b: it is late", busy),
        ];
        assert_eq!(all.claims, expected.map(|(claim, o)| (claim.to_owned(), o)));
    }

    #[test]
    fn a_lab_that_ends_early_is_a_fault() {
        assert_eq!(Claims::of("ok 1 - a: b\n").faults.len(), 1);
        assert_eq!(Claims::of("").faults.len(), 1);
        assert_eq!(Claims::of("ok 1 - a: b\n1..2\n").faults.len(), 1);
        assert_eq!(Claims::of("ok 1 - a: b\nkilled\n1..1\n").faults.len(), 1);
    }
}
