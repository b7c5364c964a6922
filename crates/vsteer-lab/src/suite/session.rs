//! Runs cases, and stores the result of each claim for the summary of a whole test run.
//!
//! In `lab test`, cases whose claims do not depend on this machine's time run two at a time; the others run
//! alone after them, one after the other. Claims are stored as TAP (testanything.org): `ok`, `not ok`, or `ok
//! ... # SKIP reason`.

use super::budget::Minutes;
use super::{Bench, Case, Findings};
use crate::case::Outcome;
use crate::files::write_file;
use crate::slots;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;
use vsteer_core::{Fault, FaultKind};

/// A case that was run.
#[derive(Debug, Clone, Serialize)]
pub struct Ran {
    pub case: &'static str,
    /// True if no claim failed and the case ran to its end.
    pub passed: bool,
    /// How long it took, s.
    pub took_s: f64,
    /// How long it should take at most, min.
    pub stated_min: f64,
    /// Its results.
    #[serde(flatten)]
    pub findings: Findings,
    /// Why it did not run to its end.
    pub fault: Option<Fault>,
}

impl Ran {
    /// A warning if the case took longer than stated.
    pub fn warning(&self) -> Option<String> {
        let took = self.took_s / 60.0;
        (took > self.stated_min).then(|| {
            format!(
                "case {} took {took:.1} min, more than the {:.1} that it states",
                self.case, self.stated_min
            )
        })
    }
}

/// How many claims held, failed, and were not judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Claims that held.
    pub passed: usize,
    /// Claims that failed, and cases that did not run to their end or made no claim.
    pub failed: usize,
    /// Claims that were not judged.
    pub skipped: usize,
}

impl Sums {
    /// The sums over these cases.
    pub fn of(ran: &[Ran]) -> Sums {
        let count = |outcome| ran.iter().map(|r| r.findings.count(outcome)).sum::<usize>();
        Sums {
            passed: count(Outcome::Held),
            failed: count(Outcome::Failed) + ran.iter().filter(|r| cut_short(r).is_some()).count(),
            skipped: count(Outcome::NotJudged),
        }
    }
}

impl std::fmt::Display for Sums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Why a case counts as failed in addition to its claims.
fn cut_short(ran: &Ran) -> Option<String> {
    match &ran.fault {
        Some(fault) => Some(fault.to_string()),
        None if ran.findings.checks.is_empty() => Some("it made no claim".to_owned()),
        None => None,
    }
}

/// Runs a case.
pub fn run(case: &Case, bench: &Bench, stated_min: f64) -> Ran {
    eprintln!("vsteer-lab: case {}: {}", case.name, case.doc);
    let begun = Instant::now();
    let result = std::fs::create_dir_all(&bench.output)
        .map_err(|e| Fault::io(format!("making {}", bench.output.display()), &e))
        .and_then(|()| (case.run)(bench));
    let took_s = begun.elapsed().as_secs_f64();
    let (findings, fault) = match result {
        Ok(findings) => (findings, None),
        Err(fault) => (Findings::default(), Some(fault)),
    };
    let mut ran = Ran { case: case.name, passed: false, took_s, stated_min, findings, fault };
    ran.passed = cut_short(&ran).is_none() && ran.findings.count(Outcome::Failed) == 0;
    ran
}

/// Runs cases; calls `tell` after each. The results are in the given order.
///
/// # Errors
/// `Interrupted`, after every started case has ended.
pub fn run_all(cases: &[&Case], bench: &Bench, tell: &(dyn Fn(&Ran) + Sync)) -> Result<Vec<Ran>, Fault> {
    let together = if bench.full { 1 } else { slots::slots().min(cases.iter().filter(|c| c.beside).count()) };
    let minutes = |case: &Case, beside: bool| {
        let Minutes { short, full } = case.minutes;
        if bench.full { full } else { short * if beside { together as f64 } else { 1.0 } }
    };
    let mut order: Vec<usize> = (0..cases.len()).collect();
    if together > 1 {
        // The longest first, so that no long one remains at the end.
        order.sort_by(|a, b| cases[*b].minutes.short.total_cmp(&cases[*a].minutes.short));
    }
    let (beside, alone): (Vec<usize>, Vec<usize>) =
        order.into_iter().partition(|i| together > 1 && cases[*i].beside);
    let (beside, done) = (Mutex::new(beside.into_iter()), Mutex::new(Vec::new()));
    let one = |i: usize, is_beside: bool| -> bool {
        let ran = run(cases[i], bench, minutes(cases[i], is_beside));
        tell(&ran);
        let stopped = ran.fault.as_ref().is_some_and(|f| f.kind == FaultKind::Interrupted);
        done.lock().expect("no case panics with it").push((i, ran));
        !stopped
    };
    std::thread::scope(|scope| {
        for _ in 0..together {
            scope.spawn(|| {
                loop {
                    let next = beside.lock().expect("no case panics with it").next();
                    let Some(i) = next else { return };
                    if !one(i, true) {
                        return;
                    }
                }
            });
        }
    });
    crate::interrupt::check()?;
    let mut alone = alone;
    alone.sort_unstable();
    for i in alone {
        if !one(i, false) {
            break;
        }
    }
    let mut done = done.into_inner().expect("no case panics with it");
    done.sort_by_key(|(i, _)| *i);
    let ran: Vec<Ran> = done.into_iter().map(|(_, ran)| ran).collect();
    match ran.iter().filter_map(|r| r.fault.as_ref()).find(|f| f.kind == FaultKind::Interrupted) {
        Some(fault) => Err(fault.clone()),
        None => Ok(ran),
    }
}

/// Writes all claims into a file, after a comment that says what was run, when and where.
///
/// # Errors
/// The file cannot be written.
pub fn write_claims(ran: &[Ran], bench: &Bench, file: &Path) -> Result<(), Fault> {
    let kernel = rustix::system::uname();
    let about = format!(
        "seed {}, {}, {}, Linux {}, {} pCPUs",
        bench.seed,
        if bench.full { "full size" } else { "short" },
        jiff::Timestamp::now().strftime("%Y-%m-%d"),
        kernel.release().to_string_lossy(),
        std::thread::available_parallelism().map_or(1, usize::from)
    );
    write_file(file, tap(ran, &about))
}

fn tap(ran: &[Ran], about: &str) -> String {
    let mut text = format!("TAP version 13\n# {about}\n");
    let mut n = 0;
    // One line each, whatever the text. Only the last ` # SKIP ` of a line is a directive.
    let line = |words: &str| words.replace(['\n', '\r'], " ").replace(" # ", " ");
    for r in ran {
        for check in &r.findings.checks {
            n += 1;
            let claim = line(&format!("{}: {}", r.case, check.claim));
            let _ = match (check.outcome(), &check.not_judged) {
                (Outcome::Failed, _) => writeln!(text, "not ok {n} - {claim}"),
                (_, Some(why)) => writeln!(text, "ok {n} - {claim} # SKIP {}", line(why)),
                (_, None) => writeln!(text, "ok {n} - {claim}"),
            };
            if !check.found.is_empty() {
                let _ = writeln!(text, "# {}", line(&check.found));
            }
        }
        if let Some(why) = cut_short(r) {
            n += 1;
            let _ = writeln!(text, "not ok {n} - {}: it runs to its end\n# {}", r.case, line(&why));
        }
    }
    let _ = writeln!(text, "1..{n}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contention::Options;

    fn held(_: &Bench) -> Result<Findings, Fault> {
        let mut findings = Findings::default();
        findings.claim("it holds", true, "3");
        findings.not_judged("it is\nlate", "the machine was busy", "");
        Ok(findings)
    }

    fn fails(_: &Bench) -> Result<Findings, Fault> {
        let mut findings = Findings::default();
        findings.claim("it holds # SKIP no", false, "two\nlines");
        Ok(findings)
    }

    fn says_nothing(_: &Bench) -> Result<Findings, Fault> {
        Ok(Findings::default())
    }

    fn ends(_: &Bench) -> Result<Findings, Fault> {
        Err(Fault::new(FaultKind::Failed, "no machine"))
    }

    fn case(name: &'static str, beside: bool, run: fn(&Bench) -> Result<Findings, Fault>) -> Case {
        let minutes = Minutes { short: 1.0, full: 2.0 };
        Case { name, doc: "", in_test: true, minutes, beside, run }
    }

    fn bench(folder: &Path) -> Bench {
        let lab = Options::new(Path::new("/vsteer-lab")).unwrap();
        Bench { lab, output: folder.to_owned(), full: false, seed: 1 }
    }

    #[test]
    fn every_outcome_is_counted_and_written_in_the_order_of_the_cases() {
        let folder = tempfile::tempdir().unwrap();
        let cases = [
            case("a", false, held),
            case("b", true, fails),
            case("c", true, says_nothing),
            case("d", true, ends),
        ];
        let told = Mutex::new(0);
        let all: Vec<&Case> = cases.iter().collect();
        let ran = run_all(&all, &bench(folder.path()), &|_| *told.lock().unwrap() += 1).unwrap();
        assert_eq!(*told.lock().unwrap(), 4);
        assert_eq!(ran.iter().map(|r| r.case).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
        assert_eq!(ran.iter().map(|r| r.passed).collect::<Vec<_>>(), [true, false, false, false]);
        assert_eq!(Sums::of(&ran), Sums { passed: 1, failed: 3, skipped: 1 });
        assert_eq!(Sums::of(&ran).to_string(), "1 passed, 3 failed, 1 skipped");
        assert_eq!(
            tap(&ran, "seed 1"),
            "TAP version 13\n# seed 1\nok 1 - a: it holds\n# 3\nok 2 - a: it is late # SKIP the machine was busy\n\
             not ok 3 - b: it holds SKIP no\n# two lines\nnot ok 4 - c: it runs to its end\n# it made no claim\n\
             not ok 5 - d: it runs to its end\n# no machine\n1..5\n"
        );
    }

    #[test]
    fn a_case_that_exceeds_its_statement_is_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let mut ran = run(&case("a", false, held), &bench(folder.path()), 1.0);
        assert_eq!(ran.warning(), None);
        ran.took_s = 90.0;
        assert_eq!(ran.warning().unwrap(), "case a took 1.5 min, more than the 1.0 that it states");
    }
}
