//! How much does the harness add to a run? Compared in turn with a bare loop that runs the same command in
//! the same shell.
//!
//! There are two values. The first: how much longer a command of one second is by vsteer's clock than by the
//! bare loop's. The second: the time between runs (writing synced lines, finding the next run), which is the
//! experiment's whole length minus its runs, per run. The median of a few runs makes a round. Rounds are
//! judged with their surroundings ([`crate::suite::judge`]), because this machine may have other work.

use super::super::judge::{Bound, Round, Rule, Verdict};
use super::super::surroundings::Watch;
use super::super::{Bench, Findings};
use crate::drive::Vsteer;
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};
use vsteer_core::stats::{mean, quantile};
use vsteer_core::{Fault, FaultKind};

const LIMIT: Duration = Duration::from_secs(600);
/// Runs of one second in a round, for each setting and for the bare loop; an experiment has at least five
/// blocks.
const SECONDS: usize = 5;
/// How much longer a command of one second may be, as a ratio. Rounds of a calm machine differ by about a
/// hundredth.
const LONGER: Rule =
    Rule { bound: Bound::AtMost(1.01), band: 0.002, least: 2, most: 6, load_only_hurts: false };
/// Blocks of two empty runs in a round.
const MANY: usize = 40;
/// The allowed time between two runs, s.
const BETWEEN: Rule =
    Rule { bound: Bound::AtMost(0.010), band: 0.002, least: 3, most: 6, load_only_hurts: true };

fn median(x: &[f64]) -> f64 {
    quantile(x, 0.5).unwrap_or(f64::NAN)
}

/// The runs' times in an experiment with `blocks` blocks of this command, and its whole length.
fn experiment(bench: &Bench, name: &str, command: &str, blocks: usize) -> Result<(Vec<f64>, f64), Fault> {
    let vsteer = Vsteer { state: bench.output.join("state"), ..Vsteer::beside(&bench.lab.program)? };
    let file = bench.output.join(format!("{name}.toml"));
    let text = format!(
        "name = \"{name}\"\ndesign = \"pair\"\nruns_least = {blocks}\nruns_most = {blocks}\n[workload]\ncommand = {{ sh = \"{command} # {{x}}\" }}\n\
         [[factor]]\nname = \"x\"\nlevels = [\"a\", \"b\"]\n"
    );
    std::fs::write(&file, text).map_err(|e| Fault::io(format!("writing {}", file.display()), &e))?;
    let folder = bench.fresh(&format!("{name}.experiment"))?;
    let file = file.to_string_lossy().into_owned();
    let begun = Instant::now();
    vsteer.run(&["experiment", "run", &file, "-o", &folder, "--yes"], true, LIMIT)?;
    let whole = begun.elapsed().as_secs_f64();
    let took: Vec<f64> = lines(&folder)?.iter().filter_map(|l| l["ran"]["took_s"].as_f64()).collect();
    Ok((took, whole))
}

/// The lines of an experiment's log.
pub fn lines(folder: &str) -> Result<Vec<Value>, Fault> {
    let path = std::path::Path::new(folder).join("log.jsonl");
    let text =
        std::fs::read_to_string(&path).map_err(|e| Fault::io(format!("reading {}", path.display()), &e))?;
    let parsed: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    parsed.map_err(|e| Fault::new(FaultKind::BadInput, path.display().to_string()).because(e))
}

fn bare(command: &str) -> Result<f64, Fault> {
    let begun = Instant::now();
    let done = Command::new("/bin/sh").args(["-c", command]).status();
    done.map_err(|e| Fault::io(format!("running {command}"), &e))?;
    Ok(begun.elapsed().as_secs_f64())
}

pub fn run(bench: &Bench, findings: &mut Findings) -> Result<Value, Fault> {
    const SECOND: &str = "exec sleep 1";
    let (mut alone, mut told, mut rounds) = (Vec::new(), Vec::new(), Vec::new());
    while LONGER.judge(&rounds) == Verdict::Again {
        let watch = Watch::start(&[])?;
        let (took, _) = experiment(bench, "second", SECOND, SECONDS)?;
        let bare = (0..SECONDS).map(|_| bare(SECOND)).collect::<Result<Vec<_>, _>>()?;
        let value = median(&took) / median(&bare);
        rounds.push(Round { value, disturbed: watch.end()?.disturbed() });
        told.extend(took);
        alone.extend(bare);
    }
    let shown = format!(
        "{:.2} ms against {:.2} ms (medians of {} and {})",
        1e3 * median(&told),
        1e3 * median(&alone),
        told.len(),
        alone.len()
    );
    let claim = "a command of 1 s is at most 1 % longer by vsteer's clock than by a bare loop's";
    LONGER.claim(findings, claim, &rounds, shown);
    // Both include the start of vsteer, so it cancels out.
    let (few, few_whole) = experiment(bench, "few", "true", 5)?;
    let (mut many, mut rounds) = (Vec::new(), Vec::new());
    let between = |took: &[f64], whole: f64| whole - took.iter().sum::<f64>();
    while BETWEEN.judge(&rounds) == Verdict::Again {
        let watch = Watch::start(&[])?;
        let (took, whole) = experiment(bench, "many", "true", MANY)?;
        let more = took.len().saturating_sub(few.len());
        let value = (between(&took, whole) - between(&few, few_whole)) / more as f64;
        rounds.push(Round { value, disturbed: watch.end()?.disturbed() });
        many.extend(took);
    }
    let each: Vec<f64> = rounds.iter().map(|r| r.value).collect();
    let shown = format!("{:.2} ms, over {} runs", 1e3 * mean(&each).unwrap_or(f64::NAN), many.len());
    BETWEEN.claim(findings, "between two runs go by at most 10 ms", &rounds, shown);
    Ok(json!({
        "second_by_vsteer_s": told, "second_by_itself_s": alone, "between_runs_s": each,
        "true_by_vsteer_s": median(&many), "runs": many.len(),
    }))
}
