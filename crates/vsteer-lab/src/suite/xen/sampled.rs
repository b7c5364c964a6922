//! How far off are looks at vCPUs, where there is no trace? Beside the domains' own runstate, which Xen tells them exactly.
//!
//! By the clock on the wall, since an emulation that counts instructions lets pCPUs take turns: a look from one comes when the other goes idle,
//! and is no random one (6.6 points off were seen so, for a domain that changes its state 600 times a second).

use super::options;
use crate::suite::{Bench, Findings};
use crate::xen::{self, job::Job};
use serde_json::{Value, json};
use std::path::Path;
use vsteer_core::Fault;
use vsteer_core::stats::{mean, quantile};

const JOB: &str = include_str!("../../../../../scenarios/xen/sampled.toml");
/// 60 s have some 3,000 looks: three standard errors of a half, of which emulated hypercalls, at other times than they say, may have a part.
const POINTS: f64 = 3.0;

/// Runs it, claims, and gives the figures.
///
/// # Errors
/// The boot fails; something was not looked at.
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
