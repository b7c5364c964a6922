//! Does the controller keep levels that were missed without it, and report in time that no weights can keep
//! them?
//!
//! **The published third scenario**, Poisson arrivals, 300 s per interval. One run has no control: `vsteer
//! steer` only observes, with levels that are never missed. (It must run, because its use of the emulated
//! host makes the VMs' pCPU stand still, which would not happen on a real one.) VM1's level is 0.85 of its
//! mean in the fifth interval, the others' 1.5 of theirs, so that from then on VM1 is late without control.
//! The simulator shows that some weights meet all levels (`vsteer estimate --weight`). Another run uses
//! `vsteer steer`: from the sixth interval on all levels must hold, after at most two changes of weights for
//! each shift of load. Two more use the published rules, `--rule paper` and `--rule sandpiper`: vsteer's own must miss levels in
//! fewer intervals than each of them.
//!
//! **The published second scenario:** loads rise until no weights keep the levels, which here are 1.6 times
//! the means under the middle load. "Move" must be reported in the last interval, and not before.
//!
//! Short: half a minute per interval, known levels, one seed.
//!
//! Left out: the move itself (two libvirtd: `lab run move`).

use super::{Server, UNITS_PUBLISHED, boot_all, servers};
use crate::drive::Vsteer;
use crate::emulated::job::Job;
use crate::emulated::{self, Ran};
use crate::fetch::cache_folder;
use crate::fetch::kernels::{self, FullKernel, Which};
use crate::interrupt;
use crate::suite::steered::{
    NAMES, Scenario, Steered, failed, holds, levels_file, means_ms, missed, steered, told,
};
use crate::suite::{Bench, Case, Findings, Minutes};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use vsteer_core::Fault;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "control",
    doc: "vsteer steer holds service levels on the emulated host, against two published rules and nobody, and says in time who must go",
    in_test: true,
    minutes: Minutes::new(2.0, 195.0),
    beside: true,
    run,
};

const INTERVAL_S: u32 = 300;
const SEEDS: u64 = 5;
const CHANGES_MOST: usize = 2;
/// The interval whose means give the levels, and the first interval in which they must hold.
const LEVELS_FROM: usize = 4;
const HELD_FROM: usize = 5;
/// Levels relative to the means of the fifth interval.
const LEVELS: [f64; 3] = [0.85, 1.5, 1.5];
/// Levels of the second scenario, relative to the means under the same load in the third scenario's fourth
/// interval.
const LEVELS_OF_SECOND: f64 = 1.6;
/// Rules of `steer` that others published.
const PUBLISHED: [&str; 2] = ["paper", "sandpiper"];
/// Seconds between two looks at the logs.
const LOG_EVERY_S: u32 = 2;

const THIRD: Scenario = Scenario {
    intervals_s: &[INTERVAL_S; 7],
    rates_hz: [
        &[10, 15, 30, 35, 45, 45, 45],
        &[10, 15, 30, 35, 45, 45, 45],
        &[50, 50, 120, 130, 170, 170, 170],
    ],
};
const SECOND: Scenario =
    Scenario { intervals_s: &[240, 240, 60], rates_hz: [&[30, 35, 45], &[30, 35, 45], &[120, 130, 180]] };
const SHORT: Scenario =
    Scenario { intervals_s: &[60, 60, 60], rates_hz: [&[30, 45, 45], &[30, 45, 45], &[120, 170, 170]] };

impl Scenario {
    fn servers(&self, seed: u64) -> String {
        let of = |i: usize| Server {
            name: NAMES[i],
            rates_hz: self.rates_hz[i],
            mean_units: UNITS_PUBLISHED[i],
            service: "fixed",
        };
        servers(&[of(0), of(1), of(2)], self.intervals_s, "", seed)
    }

    /// No control, and everything is recorded.
    fn alone(&self, seed: u64) -> Result<Job, Fault> {
        self.job(seed, [1e6; 3], 60, "own", "collector = \"schedstat\"\ninterval_ms = 60000\n")
    }

    /// Control by this rule.
    fn steered(&self, seed: u64, levels_ms: [f64; 3], period_s: u32, rule: &str) -> Result<Job, Fault> {
        self.job(seed, levels_ms, period_s, rule, "observe = false\n")
    }

    fn job(
        &self,
        seed: u64,
        levels_ms: [f64; 3],
        period_s: u32,
        rule: &str,
        more: &str,
    ) -> Result<Job, Fault> {
        let sla = levels_file("steered", levels_ms, period_s);
        let text = format!(
            "files = {{ \"/files/sla.toml\" = {sla:?} }}\n[[case]]\nname = \"steered\"\n{more}ask = false\nbegin_s = 1\n\
             record_s = {}\nlog_every_s = {}\ncommand = [\"--json\", \"steer\", \"--sla\", \"/files/sla.toml\", \"--yes\", \"--rule\", \"{rule}\"]\n{}",
            self.length_s(),
            LOG_EVERY_S.min(period_s),
            self.servers(seed)
        );
        Job::parse(&text)
    }
}

fn of(scenario: &Scenario, ran: &Ran) -> Result<Steered, Fault> {
    steered(scenario, &ran.cases[0].logs, &command_of(ran)?)
}

/// The files of a run's command, without their endings.
pub(super) fn command_of(ran: &Ran) -> Result<PathBuf, Fault> {
    let log = ran.cases[0].logs.values().next().ok_or_else(|| failed("no log"))?;
    Ok(log.with_file_name("command"))
}

fn run(bench: &Bench) -> Result<Findings, Fault> {
    interrupt::watch()?;
    let kernel = kernels::resolve(&cache_folder()?, Which::Newest, emulated::needed(Which::Newest), false)?;
    let mut findings = Findings::default();
    if !bench.full {
        short(bench, &kernel, &mut findings)?;
        return Ok(findings);
    }
    let seeds: Vec<u64> = (0..SEEDS).map(|n| bench.seed + n).collect();
    let alone: Vec<(String, Job)> = seeds
        .iter()
        .map(|seed| Ok((format!("control-alone-{seed}"), THIRD.alone(*seed)?)))
        .collect::<Result<_, Fault>>()?;
    let alone = boot_all(bench, &kernel, &alone)?;
    let mut all = Vec::new();
    let (mut jobs, mut second_jobs, mut published_jobs) = (Vec::new(), Vec::new(), Vec::new());
    for (seed, ran) in seeds.iter().zip(&alone) {
        let means = means_ms(&THIRD, &ran.cases[0].logs)?;
        let levels: Vec<f64> = means[LEVELS_FROM].iter().zip(LEVELS).map(|(m, f)| m * f).collect();
        let levels = [levels[0], levels[1], levels[2]];
        let second = means[3].map(|m| LEVELS_OF_SECOND * m);
        jobs.push((format!("control-own-{seed}"), THIRD.steered(*seed, levels, 60, "own")?));
        second_jobs.push((format!("control-second-{seed}"), SECOND.steered(*seed, second, 20, "own")?));
        for rule in PUBLISHED {
            published_jobs.push((format!("control-{rule}-{seed}"), THIRD.steered(*seed, levels, 60, rule)?));
        }
        all.push((means, levels, second));
    }
    // What can fail comes first.
    jobs.extend(second_jobs.into_iter().chain(published_jobs));
    let vsteer = Vsteer { state: bench.output.join("state"), ..Vsteer::beside(&bench.lab.program)? };
    let ran = boot_all(bench, &kernel, &jobs)?;
    let mut figures = Vec::new();
    let by = |kind: usize, i: usize| &ran[kind * seeds.len() + i];
    for (i, ((seed, alone), (means, levels, second))) in seeds.iter().zip(&alone).zip(&all).enumerate() {
        let feasible = feasible(alone, levels, &vsteer)?;
        findings.claim(
            format!("seed {seed}: some weights meet all levels, by the simulator"),
            feasible["weight"].is_u64(),
            format!("levels {} ms; {feasible}", told(levels)),
        );
        let own = of(&THIRD, by(0, i))?;
        let published = PUBLISHED
            .iter()
            .enumerate()
            .map(|(k, rule)| Ok((*rule, of(&THIRD, &ran[2 * seeds.len() + PUBLISHED.len() * i + k])?)))
            .collect::<Result<Vec<_>, Fault>>()?;
        third(&mut findings, *seed, levels, means, &own, &published);
        let two = of(&SECOND, by(1, i))?;
        let last = SECOND.intervals_s.len() - 1;
        findings.claim(
            format!("seed {seed}: scenario 2: \"move\" is said in the last interval, and not before"),
            two.moves.contains(&last) && two.moves.iter().all(|i| *i == last),
            format!("said in intervals {:?} of {}", two.moves, last + 1),
        );
        figures.push(json!({"seed": seed, "levels_ms": levels, "none_ms": means, "own_ms": own.means,
            "own_changes": own.changes, "published": published.iter().map(|(rule, r)| json!({"rule": rule, "ms": r.means, "changes": r.changes})).collect::<Vec<_>>(), "own_said": own.lines, "second_levels_ms": second,
            "second_said": two.lines, "second_ms": two.means, "feasible": feasible}));
    }
    findings.figures = json!({"seeds": seeds, "runs": figures, "kernel": kernel});
    Ok(findings)
}

fn third(
    findings: &mut Findings,
    seed: u64,
    levels: &[f64; 3],
    none: &[[f64; 3]],
    own: &Steered,
    published: &[(&str, Steered)],
) {
    let from = |means: &[[f64; 3]]| means[HELD_FROM..].iter().map(told).collect::<Vec<_>>().join(", ");
    findings.claim(
        format!("seed {seed}: every level holds from the sixth interval on"),
        own.means[HELD_FROM..].iter().all(|m| holds(m, levels)),
        format!("levels {} ms; steered {}; changes {:?}", told(levels), from(&own.means), own.changes),
    );
    findings.claim(
        format!("seed {seed}: at most {CHANGES_MOST} changes of weights for each shift of load, and the first weights return"),
        own.changes.iter().all(|n| *n <= CHANGES_MOST) && own.restored,
        format!("{:?}, returned: {}", own.changes, own.restored),
    );
    findings.claim(
        format!("seed {seed}: with nobody the violation lasts"),
        missed(&none[HELD_FROM..], levels),
        from(none),
    );
    let of = |steered: &Steered| {
        let late = steered.means.iter().filter(|means| !holds(means, levels)).count();
        let sum_ms: f64 = steered.means.iter().flatten().sum();
        (late, steered.changes.iter().sum::<usize>(), sum_ms)
    };
    let line = |rule: &str, (late, changes, sum_ms): (usize, usize, f64)| {
        format!(
            "{rule}: levels missed in {late} intervals, {changes} changes, delays add up to {sum_ms:.0} ms"
        )
    };
    let ours = of(own);
    let others: Vec<_> = published.iter().map(|(rule, steered)| (*rule, of(steered))).collect();
    let told: Vec<String> =
        std::iter::once(("own", ours)).chain(others.clone()).map(|(rule, kept)| line(rule, kept)).collect();
    findings.claim(
        format!(
            "seed {seed}: the own rule misses levels in fewer intervals than the paper's and Sandpiper's"
        ),
        others.iter().all(|(_, other)| ours.0 < other.0),
        told.join("; "),
    );
}

/// Weights of VM1 with which, according to the simulator, every level holds, at the last interval's rates,
/// which are the fifth's.
fn feasible(ran: &Ran, levels: &[f64; 3], vsteer: &Vsteer) -> Result<Value, Fault> {
    let lacks = || failed("the run has no recording");
    let recording = ran.cases[0].recording.as_ref().ok_or_else(lacks)?.to_string_lossy().into_owned();
    let logs: Vec<String> =
        ran.cases[0].logs.iter().map(|(vm, file)| format!("{vm}={}", file.display())).collect();
    let interval = format!("{INTERVAL_S}s");
    let mut tried = Vec::new();
    for weight in [130_u32, 160, 200, 250, 320] {
        let changed = format!("vm1={weight}");
        let mut words: Vec<&str> = vec!["estimate"];
        words.extend(logs.iter().map(String::as_str));
        words.extend(["--from", &recording, "--interval", &interval, "--weight", &changed]);
        let told = vsteer.json(&words, Duration::from_secs(300))?;
        // The last entry is for after the last interval, with the fifth's rates and the changed weight.
        let last = told["foretold"].as_array().and_then(|f| f.last()).cloned().unwrap_or_default();
        let all = last["told"].as_array().cloned().unwrap_or_default();
        let simulator =
            all.iter().find(|t| t["estimator"] == "simulator").map(|t| t["told"].clone()).unwrap_or_default();
        let ms: Vec<f64> =
            (0..3).map(|i| 1e3 * simulator[i]["mean_s"].as_f64().unwrap_or(f64::INFINITY)).collect();
        let fits = ms.iter().zip(levels).all(|(m, level)| m <= level);
        tried.push(json!({"weight": weight, "simulated_ms": ms}));
        if fits {
            return Ok(json!({"weight": weight, "simulated_ms": ms}));
        }
    }
    Ok(json!({"weight": null, "tried": tried}))
}

/// Half a minute per interval: weights go to VM1, and return.
fn short(bench: &Bench, kernel: &FullKernel, findings: &mut Findings) -> Result<(), Fault> {
    let levels = [27.0, 90.0, 45.0];
    let jobs = [("control-short".to_owned(), SHORT.steered(bench.seed, levels, 15, "own")?)];
    let ran = boot_all(bench, kernel, &jobs)?;
    let own = of(&SHORT, &ran[0])?;
    let heavier = own.lines.iter().filter(|l| l["set"] == true).all(|l| {
        let weights = l["decision"]["set"]["weights"].as_array().cloned().unwrap_or_default();
        weights.first().and_then(Value::as_f64) > weights.get(1).and_then(Value::as_f64)
    });
    findings.claim(
        "vsteer steer gives VM1 more weight when the load rises, at most twice, and the first weights return at its end",
        (1..=CHANGES_MOST).contains(&own.changes.iter().sum()) && heavier && own.restored,
        format!("changes {:?}, returned: {}, means {:?} ms, levels {}", own.changes, own.restored, own.means, told(&levels)),
    );
    findings.figures = json!({"own_ms": own.means, "said": own.lines});
    Ok(())
}
