//! Does a default plan find a cure where there is one?
//!
//! A cure is a change of weights and pCPUs that harms nobody and after which all VMs wait less in the sum. Random candidates
//! find some: each changes one to three VMs, and leaves every VM a pCPU per vCPU. The candidates are ranked by one short
//! simulation each. The best are then simulated with as many seeds as the plan, so that the best is not the luckiest. The plan
//! of `--only search` is judged beside the default one, and has no claim.

use super::{LENGTH_NS, PAIRS, linux, planned};
use crate::drawn::change::change;
use crate::drawn::compared::{self, Runs, harm, sum_grows};
use crate::drawn::{self, on_each};
use crate::suite::{Bench, Case, Evidence, Findings, Minutes};
use serde_json::json;
use vsteer_core::Fault;
use vsteer_core::random::Random;
use vsteer_core::setting::Step;
use vsteer_core::stats::student_quantile;
use vsteer_sim::sched::Entry;
use vsteer_sim::setup::Setup;
use vsteer_sim::steps;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "cures",
    doc: "on 80 % of the random hosts with a cure, the default plan has half of its gain",
    in_test: false,
    minutes: Minutes::new(2.5, 12.0),
    beside: false,
    run,
};

const HOSTS: u64 = 200;
const HOSTS_SHORT: u64 = 40;
const CANDIDATES: usize = 300;
/// Ranked by one simulation of this length, ns.
const RANKED_NS: u64 = 2_000_000_000;
/// A host whose VMs wait less in the sum, in pCPUs, has nothing to cure.
const WAITS: f64 = 0.05;
/// This many of the best are simulated with all seeds.
const BEST: usize = 6;
/// A cure takes away this much, in pCPUs, significantly at this level.
const CURES: f64 = 0.05;
const LEVEL: f64 = 0.01;
/// The part of the best cure's gain that the plan must have, and the part of the hosts.
const HALF: f64 = 0.5;
const FOUND: f64 = 0.8;

/// A host with a cure.
struct Cured {
    seed: u64,
    /// What the best cure, the default plan and that of `--only search` take away, in pCPUs.
    best: f64,
    plan: f64,
    search: f64,
    /// What the cure changes, and the plan's title.
    cure: String,
    title: String,
}

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let hosts = if bench.full { HOSTS } else { HOSTS_SHORT };
    let kind = linux();
    let host = |i: u64| cured(kind.entry, &drawn::host(bench.seed * 1_000_000 + i));
    let cured: Vec<Cured> = on_each("hosts with candidates", hosts, &host)?.into_iter().flatten().collect();
    let found = cured.iter().filter(|c| c.plan >= HALF * c.best).count();
    let searched = cured.iter().filter(|c| c.search >= HALF * c.best).count();
    let mut findings = Findings::default();
    findings.claim_on(
        format!("on {:.0} % of the hosts with a cure the plan has half of its gain", 100.0 * FOUND),
        Evidence::count(cured.len(), hosts as usize * 3 / 10, "hosts with a cure"),
        found as f64 >= FOUND * cured.len() as f64,
        format!("on {found} of {}; the search on {searched}", cured.len()),
    );
    let told = |c: &Cured| json!({ "seed": c.seed, "best": c.best, "plan": c.plan, "search": c.search, "cure": c.cure, "title": c.title });
    findings.figures = json!({ "hosts": hosts, "cures": cured.iter().map(told).collect::<Vec<_>>() });
    Ok(findings)
}

/// The best cure that was found; `None` if none was.
fn cured(entry: &Entry, setup: &Setup) -> Result<Option<Cured>, Fault> {
    let seed = setup.seed;
    let ranked = |of: &Setup| compared::runs(entry, of, seed..seed + 1, RANKED_NS);
    let before = ranked(setup)?;
    if compared::sums(&before).all(|waits| waits < WAITS) {
        return Ok(None);
    }
    let (config, model) = drawn::observed(entry, setup)?;
    let mut r = Random::new(seed, 2);
    let mut all = Vec::new();
    for _ in 0..CANDIDATES {
        let candidate = change(&mut r, &config);
        let changed = steps::after(setup, &candidate, entry.about.default_weight)?;
        let (grows, _) = sum_grows(&before, &ranked(&changed)?);
        all.push((grows, changed, candidate));
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let seeds = seed * 100..seed * 100 + PAIRS;
    let before = compared::runs(entry, setup, seeds.clone(), LENGTH_NS)?;
    let mut best: Option<(f64, String)> = None;
    for (_, changed, candidate) in all.into_iter().take(BEST).filter(|(grows, ..)| *grows < -CURES) {
        let after = compared::runs(entry, &changed, seeds.clone(), LENGTH_NS)?;
        let (grows, error) = sum_grows(&before, &after);
        let is_cure = grows + student_quantile(LEVEL, PAIRS as f64 - 1.0) * error < 0.0 && -grows >= CURES;
        if is_cure && harms_nobody(&before, &after) && best.as_ref().is_none_or(|(most, _)| -grows > *most) {
            best = Some((-grows, told(&candidate)));
        }
    }
    let Some((best, cure)) = best else { return Ok(None) };
    let gain = |only: Option<&str>| -> Result<(f64, String), Fault> {
        let plan = planned(&config, &model, only)?;
        if plan.steps.is_empty() {
            return Ok((0.0, plan.title));
        }
        let after = steps::after(setup, &plan.steps, entry.about.default_weight)?;
        let (grows, _) = sum_grows(&before, &compared::runs(entry, &after, seeds.clone(), LENGTH_NS)?);
        Ok((-grows, plan.title))
    };
    let ((plan, title), (search, _)) = (gain(None)?, gain(Some("search"))?);
    Ok(Some(Cured { seed, best, plan, search, cure, title }))
}

/// A change, one vCPU of each VM.
fn told(candidate: &[Step]) -> String {
    let mut all: Vec<&Step> = candidate.iter().collect();
    all.dedup_by_key(|s| &s.vm);
    all.iter().map(|s| format!("{}: {}", s.vm_name, s.change)).collect::<Vec<_>>().join(", ")
}

fn harms_nobody(before: &Runs, after: &Runs) -> bool {
    (0..before[0].len()).all(|vm| harm(before, after, vm).1.is_none())
}
