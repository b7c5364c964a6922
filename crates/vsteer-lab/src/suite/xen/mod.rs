//! Does what vsteer reads from a real Xen agree with what its domains know, and does the simulator agree with
//! both?
//!
//! Two boots of the emulated Xen (exact virtual time, all domains on one pCPU), one with Credit and one with
//! Credit2. For each domain there are three descriptions: the trace of the scheduler, what Xen reports to the
//! domain itself, and the simulator's result for the same set-up ([`simulated`]).
//!
//! A third boot makes changes: a weight without effect is found, fixed by a plan, and the plan rolled back
//! ([`repair`]). At full size, more boots steer by service levels ([`steer`]), one has Linux domains with
//! parallel loops ([`loops`]), and one is observed without a trace ([`sampled`]).
//!
//! Short: one case of each scheduler, and no claim about the simulator.

mod loops;
mod repair;
mod sampled;
mod simulated;
mod steer;

use super::{Bench, Case, Findings, Minutes};
use crate::drive::{self, Vsteer};
use crate::fetch::cache_folder;
use crate::interrupt;
use crate::xen::job::Job;
use crate::xen::results::{CaseResult, DomainResult};
use crate::xen::{self, Options, Ran};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use vsteer_core::Fault;
use vsteer_core::stats::{mean, quantile};

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "xen",
    doc: "a real Xen: what is traced, what is done about dead weights, steering, parallel loops, looks without a trace",
    in_test: true,
    minutes: Minutes::new(3.0, 90.0),
    beside: true,
    run,
};

/// Its parts as separate cases.
pub const TRACED: Case = Case {
    name: "xen-traced",
    doc: "on a real Xen: traced runstates as the domains know them, weights and caps, and the simulator beside both",
    in_test: false,
    minutes: Minutes::new(2.0, 30.0),
    beside: false,
    run: |bench| part(bench, traced),
};
/// See [`TRACED`].
pub const REPAIR: Case = Case {
    name: "xen-repair",
    doc: "on a real Xen: a weight that does nothing is found, fixed by a plan, and the plan rolled back",
    in_test: false,
    minutes: Minutes::new(1.5, 1.5),
    beside: false,
    run: |bench| part(bench, repaired),
};
/// See [`TRACED`].
pub const STEER: Case = Case {
    name: "xen-steer",
    doc: "on a real Xen: vsteer steer holds service levels through Domain-0, and says in time who must go",
    in_test: false,
    minutes: Minutes::new(40.0, 40.0),
    beside: false,
    run: |bench| part(bench, steer::claims),
};
/// See [`TRACED`].
pub const OPENMP: Case = Case {
    name: "xen-openmp",
    doc: "on a real Xen: parallel loops of two Linux domains, pinned and floating, beside the simulator's",
    in_test: false,
    minutes: Minutes::new(20.0, 20.0),
    beside: false,
    run: |bench| part(bench, loops::claims),
};
/// See [`TRACED`].
pub const SAMPLED: Case = Case {
    name: "xen-sampled",
    doc: "on a real Xen: vCPUs that are looked at, without a trace, beside what the domains know",
    in_test: false,
    minutes: Minutes::new(5.0, 5.0),
    beside: false,
    run: |bench| part(bench, sampled::claims),
};

const LIMIT: Duration = Duration::from_secs(1800);
/// Allowed difference between trace and domain, points.
const RUNSTATE_POINTS: f64 = 1.0;
/// Allowed differences between Xen and simulator: shares in points, dispatches and 99th percentiles as
/// relative errors.
const SHARE_POINTS: f64 = 2.0;
const PART: f64 = 0.20;
/// With fewer domains than this, some cases are missing.
const FULL_FROM: usize = 6;
/// A 99th percentile of fewer wake-ups is left out.
const WAKE_UPS_FROM: usize = 500;

const CREDIT: &str = include_str!("../../../../../scenarios/xen/credit.toml");
const CREDIT2: &str = include_str!("../../../../../scenarios/xen/credit2.toml");

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    interrupt::watch()?;
    let vsteer = &Vsteer::beside(&bench.lab.program)?.program;
    let mut figures = traced(bench, vsteer, &mut findings)?;
    figures["repair"] = repaired(bench, vsteer, &mut findings)?;
    if bench.full {
        figures["steered"] = steer::claims(bench, vsteer, &mut findings)?;
        // With the wall clock, nothing else may run at the same time.
        figures["loops"] = loops::claims(bench, vsteer, &mut findings)?;
        figures["sampled"] = sampled::claims(bench, vsteer, &mut findings)?;
    }
    findings.figures = figures;
    Ok(findings)
}

/// The trace, the domains and the simulator.
fn traced(bench: &Bench, vsteer: &Path, findings: &mut Findings) -> Result<Value, Fault> {
    let mut figures = Vec::new();
    let mut all: Vec<Compared> = Vec::new();
    for ran in boots(bench, vsteer) {
        let (job, ran) = ran?;
        for (case, result) in job.cases.iter().zip(&ran.cases) {
            let told = simulated::simulate(job.scheduler, case, result)?;
            let compared: Vec<Compared> =
                result.domains.iter().zip(told).map(|(d, s)| Compared::of(&ran, result, d, &s)).collect();
            figures.push(json!({ "case": result, "scheduler": ran.scheduler, "simulated": compared.iter().map(Compared::value).collect::<Vec<_>>() }));
            all.extend(compared);
        }
    }
    let (runstate, apart) = claim_runstates(&all, bench.full, findings);
    weights(&all, bench.full, findings);
    if bench.full {
        boosted(bench, findings)?;
    }
    let off = Off::of(&all);
    if bench.full {
        off.claim(findings);
    }
    let told = |what: &[f64]| json!({ "mean": mean(what), "worst": quantile(what, 1.0) });
    Ok(json!({
        "cases": figures,
        "summary": {
            "runstate_max_error_points": runstate,
            "observed_max_error_points": apart,
            "simulator_share_points": told(&off.shares),
            "simulator_dispatches": told(&off.dispatches),
            "simulator_wake_p99": told(&off.wakes),
        },
    }))
}

/// Boots both jobs, two at a time: one pCPU of this machine emulates one.
fn boots(bench: &Bench, vsteer: &Path) -> Vec<Result<(Job, Ran), Fault>> {
    let jobs = [("xen-credit", CREDIT), ("xen-credit2", CREDIT2)];
    let jobs = jobs.map(|(name, text)| Job::parse(text).map(|job| (name, short_or_not(job, bench.full))));
    std::thread::scope(|scope| {
        let started: Vec<_> = jobs
            .into_iter()
            .map(|job| {
                scope.spawn(move || {
                    let (name, job) = job?;
                    let ran = xen::run(&job, &options(bench, vsteer, name)?)?;
                    Ok((job, ran))
                })
            })
            .collect();
        started.into_iter().map(|t| t.join().expect("a boot does not panic")).collect()
    })
}

/// Claims that trace and observer agree with the domains' own runstates. Returns both largest differences, in points.
fn claim_runstates(all: &[Compared], full: bool, findings: &mut Findings) -> (f64, f64) {
    let worst = all.iter().max_by(|a, b| a.own_points.total_cmp(&b.own_points));
    let runstate = worst.map_or(f64::INFINITY, |w| w.own_points);
    findings.claim(
        format!(
            "each domain's shares by the trace and by its own runstate are within {RUNSTATE_POINTS} point"
        ),
        runstate <= RUNSTATE_POINTS && all.len() >= if full { FULL_FROM } else { 4 },
        format!("{} domains, worst {runstate:.2}: {}", all.len(), worst.map_or("-", |w| w.name.as_str())),
    );
    let mut by = |who: &str, points: fn(&Compared) -> Option<f64>| {
        let all: Vec<f64> = all.iter().filter_map(points).collect();
        let apart = quantile(&all, 1.0).unwrap_or(f64::INFINITY);
        findings.claim(
            format!("{who} in Domain-0 and each domain's own runstate are within {RUNSTATE_POINTS} point"),
            apart <= RUNSTATE_POINTS,
            format!("{} domains, worst {apart:.2}", all.len()),
        );
        apart
    };
    let apart = by("`vsteer record`", |c| c.observed_points);
    by("the service", |c| c.served_points);
    (runstate, apart)
}

/// The simulator's errors, one per domain.
struct Off {
    shares: Vec<f64>,
    dispatches: Vec<f64>,
    wakes: Vec<f64>,
}

impl Off {
    fn of(all: &[Compared]) -> Off {
        let values = |of: fn(&Compared) -> Option<f64>| all.iter().filter_map(of).collect::<Vec<f64>>();
        Off {
            shares: values(|c| Some(c.share_points)),
            dispatches: values(|c| c.dispatches_off),
            wakes: values(|c| c.wake_off),
        }
    }

    fn claim(&self, findings: &mut Findings) {
        let told = |what: &[f64]| {
            format!(
                "mean {}, worst {}, {} domains",
                shown(mean(what)),
                shown(quantile(what, 1.0)),
                what.len()
            )
        };
        let within = |what: &[f64], most: f64| !what.is_empty() && what.iter().all(|x| *x <= most);
        findings.claim(
            format!("simulator: run, ready and parked shares within {SHARE_POINTS} points, each domain"),
            within(&self.shares, SHARE_POINTS),
            told(&self.shares),
        );
        findings.claim(
            format!("simulator: dispatches per second within {:.0} %, each domain", 100.0 * PART),
            within(&self.dispatches, PART),
            told(&self.dispatches),
        );
        findings.claim(
            format!("simulator: the wake-up p99 within {:.0} %, each domain", 100.0 * PART),
            within(&self.wakes, PART),
            told(&self.wakes),
        );
    }
}

fn part(
    bench: &Bench,
    claims: fn(&Bench, &Path, &mut Findings) -> Result<Value, Fault>,
) -> Result<Findings, Fault> {
    interrupt::watch()?;
    let mut findings = Findings::default();
    findings.figures = claims(bench, &Vsteer::beside(&bench.lab.program)?.program, &mut findings)?;
    Ok(findings)
}

fn options(bench: &Bench, vsteer: &Path, name: &str) -> Result<Options, Fault> {
    Ok(Options {
        cache: cache_folder()?,
        guest: bench.lab.guest.clone(),
        vsteer: vsteer.to_owned(),
        output: PathBuf::from(bench.fresh(name)?),
        limit: LIMIT,
        seed: bench.seed,
    })
}

/// The boot that makes changes.
fn repaired(bench: &Bench, vsteer: &Path, findings: &mut Findings) -> Result<Value, Fault> {
    let options = options(bench, vsteer, "xen-repair")?;
    let ran = xen::run(&Job::parse(repair::JOB)?, &options)?;
    repair::claims(&ran, &options.output, findings)
}

fn shown(x: Option<f64>) -> String {
    x.map_or_else(|| "-".to_owned(), |x| format!("{x:.2}"))
}

/// In the short case only the first case, with a shorter recording.
fn short_or_not(mut job: Job, full: bool) -> Job {
    if !full {
        job.cases.truncate(1);
        job.cases.iter_mut().for_each(|c| c.record_s = 20);
    }
    job
}

/// A domain that computes among domains that always wake is named under Credit, which lets those go first,
/// and not under Credit2.
fn boosted(bench: &Bench, findings: &mut Findings) -> Result<(), Fault> {
    let named = |boot: &str| -> Result<Vec<String>, Fault> {
        let recording = bench.output.join(boot).join("mix").join("host.vsteer");
        let told = Vsteer::beside(&bench.lab.program)?
            .json(&["diagnose", &recording.to_string_lossy()], Duration::from_secs(60))?;
        let of = drive::findings(&told).into_iter().filter(|f| f["rule"] == "boost_starved");
        Ok(of.filter_map(|f| f["title"].as_str().map(str::to_owned)).collect())
    };
    let (credit, credit2) = (named("xen-credit")?, named("xen-credit2")?);
    findings.claim(
        "`vsteer diagnose` names the domain that computes among some that wake under Credit, and nobody under Credit2",
        credit.len() == 1 && credit[0].contains("\"hog\"") && credit2.is_empty(),
        format!("Credit: {credit:?}; Credit2: {credit2:?}"),
    );
    Ok(())
}

/// One domain in three descriptions.
struct Compared {
    name: String,
    case: String,
    domain: String,
    scheduler: &'static str,
    run: f64,
    /// The largest difference of a share between trace and domain, points.
    own_points: f64,
    /// The same between `vsteer record` and domain, if it observed.
    observed_points: Option<f64>,
    /// The same between the service and domain.
    served_points: Option<f64>,
    simulated: simulated::Told,
    share_points: f64,
    dispatches_off: Option<f64>,
    wake_off: Option<f64>,
}

impl Compared {
    fn of(ran: &Ran, case: &CaseResult, d: &DomainResult, s: &simulated::Told) -> Compared {
        let off = |told: f64, real: f64| (told - real).abs() / real;
        let wake = d.wake_p99_ms.zip(s.wake_p99_ms).filter(|_| d.wake_ups >= WAKE_UPS_FROM);
        Compared {
            name: format!("{}, {}, {}", ran.scheduler, case.name, d.name),
            case: case.name.clone(),
            domain: d.name.clone(),
            scheduler: ran.scheduler,
            run: d.traced.run,
            own_points: d.traced.points_apart(&d.own),
            observed_points: d.observed.map(|(told, own)| told.points_apart(&own)),
            served_points: d.served.map(|(told, own)| told.points_apart(&own)),
            simulated: *s,
            share_points: d.traced.points_apart(&s.shares),
            // Less than one dispatch in ten seconds cannot be compared.
            dispatches_off: (d.dispatches_per_s > 0.1).then(|| off(s.dispatches_per_s, d.dispatches_per_s)),
            wake_off: wake.map(|(real, told)| off(told, real)),
        }
    }

    fn value(&self) -> Value {
        json!({ "domain": self.domain, "simulated": self.simulated, "share_points": self.share_points,
            "dispatches_off": self.dispatches_off, "wake_p99_off": self.wake_off, "own_points": self.own_points })
    }
}

/// Checks the effect of weights on the real Xen.
fn weights(all: &[Compared], full: bool, findings: &mut Findings) {
    let shares = |scheduler: &str, case: &str| -> Vec<f64> {
        let of = all.iter().filter(|c| c.scheduler == scheduler && c.case == case);
        of.map(|c| 100.0 * c.run).collect()
    };
    let mut claim = |what: &str, scheduler: &str, case: &str, expected: &[f64], points: f64| {
        let got = shares(scheduler, case);
        let near =
            got.len() == expected.len() && got.iter().zip(expected).all(|(g, e)| (g - e).abs() <= points);
        let told: Vec<String> = got.iter().map(|g| format!("{g:.1}")).collect();
        findings.claim(format!("{scheduler}: {what}"), near, told.join(" : "));
    };
    claim("256:512 in a pool of one pCPU give 33:67 +- 2", "credit", "pool", &[33.3, 66.7], 2.0);
    claim("256:512 in a pool of one pCPU give 33:67 +- 2", "credit2", "pool", &[33.3, 66.7], 2.0);
    if full {
        claim("256:512 pinned in a larger pool are dead: 49:50 +- 2", "credit", "pinned", &[49.0, 50.0], 2.0);
        claim(
            "256, 256, 512, 1024 give 12.5, 12.5, 25, 50 +- 3",
            "credit",
            "four",
            &[12.5, 12.5, 25.0, 50.0],
            3.0,
        );
    }
}
