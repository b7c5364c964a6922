//! Forecasts on the emulated host, one pCPU, exact virtual time: configurations drawn from the case's seed
//! ([`super::drawn`]), half of them on the oldest suitable kernel and half on the newest.
//!
//! Each is recorded under A, changed to B while its VMs continue to run, and recorded again. Some are
//! recorded once more without another change: the difference between the last two is the least error of any
//! forecast.

use super::drawn::{self, Drawn};
use super::{Errors, claim_of};
use crate::drive::Vsteer;
use crate::emulated::job::Job;
use crate::emulated::results::CaseResult;
use crate::emulated::{self, Options};
use crate::fetch::cache_folder;
use crate::fetch::kernels::{self, FullKernel, Which};
use crate::interrupt;
use crate::suite::{Bench, Findings};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use vsteer_core::Fault;
use vsteer_core::stats::mean;

/// The promise: points of the ready share, and this part of the error of the better one of two cheap
/// forecasts.
const READY_POINTS: f64 = 1.0;
const OF_BASELINE: f64 = 0.5;
/// The promise for the 99th percentile of wake-up latencies: this part or this time, whichever is more.
const WAKE_PART: f64 = 0.15;
const WAKE_NS: f64 = 200_000.0;
const CONFIGURATIONS: u64 = 24;
/// Configurations in one boot.
const PER_BOOT: usize = 4;
/// Parallel boots: one pCPU of this machine emulates one.
const BESIDE: usize = 2;
const LIMIT: Duration = Duration::from_secs(1800);

/// Runs them; returns the cases and their summary.
pub fn run(bench: &Bench, findings: &mut Findings) -> Result<(Vec<Value>, Value), Fault> {
    let number = if bench.full { CONFIGURATIONS } else { 2 };
    eprintln!("vsteer-lab: {number} configurations drawn from seed {}", bench.seed);
    let all: Vec<Drawn> = (0..number).map(|n| drawn::draw(bench.seed, n)).collect();
    let half = all.len().div_ceil(2);
    let cache = cache_folder()?;
    let mut boots: Vec<(FullKernel, &[Drawn])> = Vec::new();
    for (which, some) in [(Which::Newest, &all[..half]), (Which::Oldest, &all[half..])] {
        let kernel = kernels::resolve(&cache, which, emulated::needed(which), false)?;
        boots.extend(some.chunks(PER_BOOT).map(|chunk| (kernel.clone(), chunk)));
    }
    let vsteer = Vsteer { state: bench.output.join("state"), ..Vsteer::beside(&bench.lab.program)? };
    interrupt::watch()?;
    let mut cases = Vec::new();
    for (pass, beside) in boots.chunks(BESIDE).enumerate() {
        let done: Vec<Result<Vec<Value>, Fault>> = std::thread::scope(|scope| {
            let mut started = Vec::new();
            for (i, (kernel, chunk)) in beside.iter().enumerate() {
                let (vsteer, name) = (&vsteer, format!("prediction-{}", BESIDE * pass + i));
                started.push(scope.spawn(move || one_boot(bench, kernel.clone(), chunk, vsteer, &name)));
            }
            started.into_iter().map(|t| t.join().expect("a boot does not panic")).collect()
        });
        for of_boot in done {
            cases.extend(of_boot?);
        }
    }
    let errors = Errors::of(cases.iter().map(|c| &c["told"]));
    claim_of(findings, "exact host", &errors, READY_POINTS);
    let (off, baseline) = (mean(&errors.ready), errors.better_baseline());
    findings.claim(
        "exact host: that is at most half of what foretelling no change, or fluid fair share, is off",
        off.zip(baseline).is_some_and(|(off, baseline)| off <= OF_BASELINE * baseline),
        errors.told(),
    );
    // On this scale the promise is one number: WAKE_NS counts as WAKE_PART.
    let scaled: Vec<f64> = errors
        .wake
        .iter()
        .zip(&errors.wake_ns)
        .map(|(part, ns)| part.min(WAKE_PART * ns / WAKE_NS))
        .collect();
    let within = scaled.iter().filter(|e| **e <= WAKE_PART).count();
    findings.claim(
        "exact host: the wake-up p99 is forecast within 15 % or 200 us, mean over vCPUs",
        mean(&scaled).is_some_and(|e| e <= WAKE_PART),
        format!("{within} of {} vCPUs within; {}", scaled.len(), errors.told()),
    );
    let noise = Errors::of(cases.iter().map(|c| &c["again"]));
    let mut summary = errors.summary();
    summary["seed"] = json!(bench.seed);
    summary["configurations"] = json!(cases.len());
    summary["wakeup_p99_within"] = json!(within);
    summary["wakeup_p99_scaled"] = json!(mean(&scaled));
    summary["repeat_ready_mae_points"] = json!(mean(&noise.no_change));
    summary["kernels"] =
        json!(boots.iter().map(|(k, _)| k).fold(Vec::new(), |mut all: Vec<&FullKernel>, k| {
            if !all.contains(&k) {
                all.push(k);
            }
            all
        }));
    Ok((cases, summary))
}

/// Several configurations in one boot, and the forecast for each.
fn one_boot(
    bench: &Bench,
    kernel: FullKernel,
    all: &[Drawn],
    vsteer: &Vsteer,
    name: &str,
) -> Result<Vec<Value>, Fault> {
    let release = kernel.release.clone();
    let job = Job::parse(&all.iter().map(|d| d.cases.as_str()).collect::<String>())?;
    let options = Options {
        cache: cache_folder()?,
        // The kernel was already selected; this value is only for display.
        kernel: Which::Newest,
        guest: bench.lab.guest.clone(),
        vsteer: vsteer.program.clone(),
        output: PathBuf::from(bench.fresh(name)?),
        limit: LIMIT,
        seed: bench.seed,
    };
    let ran = emulated::run_on(kernel, &job, &options)?;
    let mut phases = ran.cases.iter();
    let mut next = || phases.next().expect("a result for each case of the job");
    all.iter()
        .map(|drawn| {
            let (before, after) = (next(), next());
            let told = foretell(vsteer, before, after)?;
            // The same settings after the change as before it: only the measured values of this are used.
            let repeat = drawn.repeated.then(&mut next);
            let again = repeat.map(|then| foretell(vsteer, after, then)).transpose()?;
            eprintln!(
                "vsteer-lab: Linux {release}, {}: {}: {}",
                drawn.name,
                drawn.what,
                Errors::of([&told]).told()
            );
            Ok(json!({ "name": drawn.name, "what": drawn.what, "kernel": release, "told": told, "again": again }))
        })
        .collect()
}

/// The output of `vsteer simulate --from A --under B`.
fn foretell(vsteer: &Vsteer, before: &CaseResult, after: &CaseResult) -> Result<Value, Fault> {
    let path =
        |c: &CaseResult| c.recording.as_ref().expect("the case's jobs record").to_string_lossy().into_owned();
    vsteer.json(&["simulate", "--from", &path(before), "--under", &path(after)], Duration::from_secs(300))
}
