//! Is a weight without effect found? Does the proposed plan fix it, and does its rollback leave nothing
//! behind?
//!
//! One boot of the emulated Xen with Credit. In Domain-0 `vsteer` diagnoses, plans, applies, diagnoses, and
//! rolls back; `xl` reports the state before, between and after. Then the same with a plan that the user
//! specifies.

use crate::drive;
use crate::suite::Findings;
use crate::xen::Ran;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use vsteer_core::{Fault, FaultKind};

/// The job; the numbers below are those of its commands.
pub(super) const JOB: &str = include_str!("../../../../../scenarios/xen/repair.toml");
const BEFORE: [usize; 3] = [1, 2, 3];
const FOUND: usize = 4;
const APPLIED: usize = 6;
const WITH_POOL: [usize; 3] = [7, 8, 9];
const MENDED: usize = 10;
const ROLLED_BACK: usize = 11;
const AFTER: [usize; 3] = [12, 13, 14];
const OWN: usize = 16;
const WITH_OWN: [usize; 3] = [17, 18, 19];
const WITHOUT: [usize; 3] = [21, 22, 23];
/// Allowed error of 33:67, points.
const POINTS: f64 = 2.0;

/// The output of Domain-0's commands.
struct Commands {
    folder: PathBuf,
}

impl Commands {
    fn text(&self, number: usize, kind: &str) -> Result<String, Fault> {
        let file = self.folder.join(format!("command-{number}.{kind}"));
        std::fs::read_to_string(&file).map_err(|e| Fault::io(format!("reading {}", file.display()), &e))
    }

    fn json(&self, number: usize) -> Result<Value, Fault> {
        let odd = |why: String| {
            let said = self.text(number, "txt").unwrap_or_default();
            Fault::new(FaultKind::Failed, format!("command {number} in Domain-0 gave no JSON: {why}"))
                .because(said.trim().to_owned())
        };
        serde_json::from_str(&self.text(number, "out")?).map_err(|e| odd(e.to_string()))
    }

    /// The settings, without what runs where and for how long.
    fn state(&self, numbers: [usize; 3]) -> Result<String, Fault> {
        let [pools, shares, vcpus] = numbers;
        let vcpus = self.text(vcpus, "out")?;
        // Name ID VCPU CPU State Time Hard / Soft.
        let lasting = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let affinity = words.len().saturating_sub(3);
            format!("{} {}\n", words[..3.min(words.len())].join(" "), words[affinity..].join(" "))
        };
        let vcpus: String = vcpus.lines().map(lasting).collect();
        Ok(self.text(pools, "out")? + &self.text(shares, "out")? + &vcpus)
    }
}

/// The part of `heavy` in the pCPU time that both use.
fn heavy_of(told: &Value) -> Option<f64> {
    let run = |name: &str| {
        let vm = told["model"]["vms"].as_array()?.iter().find(|vm| vm["name"] == name)?;
        vm["group"]["run"].as_f64()
    };
    let (light, heavy) = (run("light")?, run("heavy")?);
    Some(100.0 * heavy / (light + heavy))
}

fn names_heavy(told: &Value) -> bool {
    let vms = told["model"]["vms"].as_array().into_iter().flatten();
    let id = vms.into_iter().find(|vm| vm["name"] == "heavy").map(|vm| vm["id"].clone());
    let all = drive::findings(told);
    all.iter().any(|f| f["rule"] == "dead_weight" && Some(&f["vm"]) == id.as_ref())
}

/// Makes the claims, and returns the numbers.
///
/// # Errors
/// A command whose output is missing or not valid.
pub(super) fn claims(ran: &Ran, output: &Path, findings: &mut Findings) -> Result<Value, Fault> {
    let case = ran.cases.first().ok_or_else(|| Fault::new(FaultKind::Failed, "a run without a case"))?;
    let of = Commands { folder: output.join(&case.name) };
    let (found, mended) = (of.json(FOUND)?, of.json(MENDED)?);
    let (before, after) = (heavy_of(&found), heavy_of(&mended));
    let share = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{:.1} : {x:.1}", 100.0 - x));
    findings.claim(
        "a weight that does nothing is found and its domain named",
        names_heavy(&found),
        format!("256:512 pinned in a larger pool get {}", share(before)),
    );
    findings.claim(
        format!("the plan that the finding names makes them 33:67 +- {POINTS}"),
        after.is_some_and(|x| (x - 66.7).abs() <= POINTS) && !names_heavy(&mended),
        share(after),
    );
    let (was, with, is) = (of.state(BEFORE)?, of.state(WITH_POOL)?, of.state(AFTER)?);
    let words = |number: usize| of.text(number, "status").map(|s| s.trim().to_owned());
    findings.claim(
        "weight and cap go along into the new pool",
        with.contains("vsteer-1")
            && ["light 1 256 0", "heavy 2 512 90"].iter().all(|row| has_row(&with, row)),
        format!("`vsteer apply` ended with {}", words(APPLIED)?),
    );
    findings.claim(
        "a rollback leaves pools, weights, caps and pins as they were",
        was == is && was != with,
        format!("`vsteer rollback` ended with {}", words(ROLLED_BACK)?),
    );
    let (own, without) = (of.state(WITH_OWN)?, of.state(WITHOUT)?);
    let set = has_row(&own, "heavy 2 768 40")
        && own.lines().any(|line| line.starts_with("light ") && line.ends_with(" / 1"));
    findings.claim(
        "a plan of one's own (--set) sets weight, cap and soft affinity, and its rollback leaves none of them",
        set && without == is && own != is,
        format!("`vsteer apply` ended with {}", words(OWN)?),
    );
    Ok(
        json!({"heavy_before": before, "heavy_after": after, "before": was, "with": with, "after": is, "own": own, "without": without}),
    )
}

/// Is there a line with these words? The second word is a number that differs from boot to boot.
fn has_row(text: &str, row: &str) -> bool {
    let but_number = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, w)| (*w).to_owned()).collect::<Vec<_>>()
    };
    text.lines().any(|line| but_number(line) == but_number(row))
}
