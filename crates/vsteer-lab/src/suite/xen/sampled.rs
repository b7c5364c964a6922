//! How large are the errors of sampling vCPUs without a trace? Compared with the domains' own runstate, which
//! Xen reports to them exactly.
//!
//! It uses the wall clock, because an emulation that counts instructions runs pCPUs in turn. Then a sample
//! from one pCPU is taken when the other goes idle, so it is not random. (An error of 6.6 points was seen in
//! this way, for a domain that changes its state 600 times a second.)

use super::options;
use crate::suite::{Bench, Findings};
use crate::xen::{self, job::Job};
use serde_json::{Value, json};
use std::path::Path;
use vsteer_core::Fault;
use vsteer_core::stats::{mean, quantile};

const JOB: &str = include_str!("../../../../../scenarios/xen/sampled.toml");
/// 60 s have some 3,000 samples: three standard errors of a share of one half. Emulated hypercalls at
/// slightly other times than reported may cause a part of the error.
const POINTS: f64 = 3.0;

/// Runs it, makes the claims, and returns the numbers.
///
/// # Errors
/// The boot fails; something was not sampled.
pub(super) fn claims(bench: &Bench, vsteer: &Path, findings: &mut Findings) -> Result<Value, Fault> {
    let ran = xen::run(&Job::parse(JOB)?, &options(bench, vsteer, "xen-sampled")?)?;
    let of = ran.cases.iter().flat_map(|c| c.domains.iter().map(|d| (c.name.as_str(), d)));
    let all: Vec<(String, f64, Value)> = of
        .filter_map(|(case, d)| {
            let (told, own) = d.sampled?;
            let name = format!("{case}, {}", d.name);
            let value = json!({"domain": name, "sampled": told, "own": own});
            Some((name, told.points_apart(&own), value))
        })
        .collect();
    let points: Vec<f64> = all.iter().map(|(_, points, _)| *points).collect();
    let worst = all.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    findings.claim(
        format!(
            "`vsteer record --collector sampled` and each domain's own runstate are within {POINTS} points, ready and parked together"
        ),
        all.len() == ran.cases.iter().map(|c| c.domains.len()).sum::<usize>()
            && quantile(&points, 1.0).is_some_and(|worst| worst <= POINTS),
        worst.map_or("nothing".to_owned(), |(name, points, _)| {
            format!("{} domains, mean {:.2}, worst {points:.2}: {name}", all.len(), mean(&all.iter().map(|a| a.1).collect::<Vec<_>>()).unwrap_or(f64::NAN))
        }),
    );
    Ok(json!({"points": {"mean": mean(&points), "worst": quantile(&points, 1.0)},
        "domains": all.into_iter().map(|(.., value)| value).collect::<Vec<_>>()}))
}
