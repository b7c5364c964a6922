//! How large are the errors of the estimators of response times, forecast before the interval, when the load
//! rises to 85 % and more?
//!
//! The published first scenario with periodic arrivals (phases drawn by the seed; httperf's are random too)
//! and with Poisson ones, and two mixes of our own: bursts, and unequal service times under weights that
//! change. Each interval is recorded separately (`vsteer record --collector schedstat`), and `vsteer
//! estimate` forecasts each from the previous one. It gets only the next one's rates and weights.
//!
//! Every mix runs with several seeds. The means of one interval differ between seeds. No forecast can have a
//! smaller error than that.
//!
//! At full size it also runs on local VMs (local.rs), in wall-clock time.
//!
//! Left out: several pCPUs, where the emulated host's times are not exact.

use super::{Server, UNITS_PUBLISHED, boot_all, servers};

pub mod local;

use crate::drive::Vsteer;
use crate::emulated::job::Job;
use crate::emulated::{self, Ran};
use crate::fetch::cache_folder;
use crate::fetch::kernels::{self, Which};
use crate::interrupt;
use crate::suite::{Bench, Case, Findings, Minutes};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vsteer_core::stats::mean;
use vsteer_core::{Fault, FaultKind};

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "estimators",
    doc: "response times told beforehand: the project's own against the paper's, Sandpiper's and others, load above 70 %",
    in_test: false,
    minutes: Minutes::new(1.4, 150.0),
    beside: true,
    run,
};

/// The promised error beyond the floor.
const WITHIN: f64 = 0.10;
pub(super) const LOADED: f64 = 0.7;
const SEEDS: u64 = 3;
/// From an interval's start to its recording, in which the rest of the previous load is served.
const SETTLE_S: u32 = 2;
/// The observer takes its first sample a second after its start, and must have ended when the next one
/// starts.
const SPARE_S: u32 = 6;
pub(super) const ESTIMATORS: [&str; 7] = ["own", "simulator", "paper", "sandpiper", "ps", "kingman", "last"];

struct Mix {
    name: &'static str,
    intervals_s: &'static [u32],
    servers: [Server; 3],
    arrivals: &'static str,
    /// `cpu.weight` of each VM from this interval on.
    weights: &'static [(usize, [u32; 3])],
}

const fn published(service: &'static str) -> [Server; 3] {
    const SMALL: &[u32] = &[15, 45, 10, 45];
    const LARGE: &[u32] = &[70, 170, 50, 170];
    [
        Server { name: "vm1", rates_hz: SMALL, mean_units: UNITS_PUBLISHED[0], service },
        Server { name: "vm2", rates_hz: SMALL, mean_units: UNITS_PUBLISHED[1], service },
        Server { name: "vm3", rates_hz: LARGE, mean_units: UNITS_PUBLISHED[2], service },
    ]
}

const INTERVALS_S: &[u32] = &[240, 60, 240, 120];

const MIXES: [Mix; 4] = [
    Mix {
        name: "periodic",
        intervals_s: INTERVALS_S,
        servers: published("fixed"),
        arrivals: ",arrivals=periodic",
        weights: &[],
    },
    Mix {
        name: "poisson",
        intervals_s: INTERVALS_S,
        servers: published("fixed"),
        arrivals: "",
        weights: &[],
    },
    Mix {
        name: "bursts",
        intervals_s: INTERVALS_S,
        servers: published("exponential"),
        arrivals: ",arrivals=bursts,burst=4,burst_gap_us=3000",
        weights: &[],
    },
    Mix {
        name: "unequal",
        intervals_s: &[240, 120, 240, 120],
        servers: [
            Server { name: "vm1", rates_hz: &[30, 75, 35, 75], mean_units: 200, service: "mixed" },
            Server { name: "vm2", rates_hz: &[10, 25, 12, 25], mean_units: 500, service: "exponential" },
            Server { name: "vm3", rates_hz: &[50, 125, 60, 125], mean_units: 100, service: "fixed" },
        ],
        arrivals: "",
        weights: &[(2, [200, 100, 50]), (3, [400, 100, 100])],
    },
];

/// Its first two intervals, a minute each: enough to test all parts.
const SHORT: [Mix; 1] =
    [Mix { name: "short", intervals_s: &[60, 60], servers: published("fixed"), arrivals: "", weights: &[] }];

impl Mix {
    fn job(&self, seed: u64) -> Result<Job, Fault> {
        let mut text = String::new();
        let mut begin_s = 0;
        for (i, length_s) in self.intervals_s.iter().enumerate() {
            let _ = write!(
                text,
                "[[case]]\nname = \"{}\"\ncollector = \"schedstat\"\ninterval_ms = 10000\nask = false\nsettle_s = {SETTLE_S}\n\
                 begin_s = {}\nrecord_s = {}\n",
                i + 1,
                begin_s + SETTLE_S,
                length_s - SPARE_S
            );
            if i == 0 {
                text += &servers(&self.servers, self.intervals_s, self.arrivals, seed);
            } else {
                text += "continues = true\n";
            }
            if let Some((_, weights)) = self.weights.iter().find(|(at, _)| *at == i) {
                for (server, weight) in self.servers.iter().zip(weights) {
                    let _ = writeln!(text, "[[case.change]]\nname = \"{}\"\nweight = {weight}", server.name);
                }
            }
            begin_s += length_s;
        }
        Job::parse(&text)
    }
}

/// The output of `vsteer estimate` for a run.
fn estimated(ran: &Ran, vsteer: &Vsteer) -> Result<Value, Fault> {
    let lacks = |what: &str| Fault::new(FaultKind::Failed, format!("a run without {what}"));
    let logs = &ran.cases.first().ok_or_else(|| lacks("a case"))?.logs;
    let recordings = ran.cases.iter().map(|case| case.recording.clone().ok_or_else(|| lacks("a recording")));
    let logs = logs.iter().map(|(vm, log)| (vm.as_str(), log.as_path()));
    estimate(vsteer, logs, &recordings.collect::<Result<Vec<_>, _>>()?)
}

/// The output of `vsteer estimate` for these VMs' logs and these recordings, one per interval.
///
/// # Errors
/// As [`Vsteer::json`].
pub(super) fn estimate<'a>(
    vsteer: &Vsteer,
    logs: impl Iterator<Item = (&'a str, &'a Path)>,
    recordings: &[PathBuf],
) -> Result<Value, Fault> {
    let mut words: Vec<String> = vec!["estimate".into()];
    words.extend(logs.map(|(vm, log)| format!("{vm}={}", log.display())));
    words.push("--from".into());
    words.extend(recordings.iter().map(|r| r.to_string_lossy().into_owned()));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    vsteer.json(&words, Duration::from_secs(600))
}

fn run(bench: &Bench) -> Result<Findings, Fault> {
    interrupt::watch()?;
    let (mixes, seeds) = if bench.full { (&MIXES[..], SEEDS) } else { (&SHORT[..], 1) };
    let kernel = kernels::resolve(&cache_folder()?, Which::Newest, emulated::needed(Which::Newest), false)?;
    let mut jobs = Vec::new();
    for mix in mixes {
        for seed in 0..seeds {
            jobs.push((
                format!("estimators-{}-{}", mix.name, bench.seed + seed),
                mix.job(bench.seed + seed)?,
            ));
        }
    }
    let vsteer = Vsteer { state: bench.output.join("state"), ..Vsteer::beside(&bench.lab.program)? };
    let runs = boot_all(bench, &kernel, &jobs)?;
    let mut told = Vec::new();
    for ((name, _), ran) in jobs.iter().zip(&runs) {
        eprintln!("vsteer-lab: estimating {name}");
        told.push(json!({"run": name, "sha256": ran.sha256, "estimate": estimated(ran, &vsteer)?}));
    }
    let mut findings = Findings::default();
    let summary = summary_of(&told, seeds as usize);
    claims(&mut findings, &summary, bench.full);
    let by_mix: Map<String, Value> = mixes
        .iter()
        .zip(told.chunks(seeds as usize))
        .map(|(mix, of)| (mix.name.to_owned(), summary_of(of, seeds as usize)))
        .collect();
    findings.figures =
        json!({"summary": summary, "by_mix": by_mix, "runs": told, "kernel": kernel, "load_above": LOADED});
    if bench.full {
        // The results of an hour are reported, even if the second part fails.
        findings.figures["local"] = local::part(bench, &mut findings).unwrap_or_else(|fault| {
            findings.claim("the part on local VMs runs to its end", false, fault.to_string());
            json!({"fault": fault})
        });
    }
    Ok(findings)
}

/// Errors by estimator, and the floor. `told` holds `seeds` runs of each mix, one after the other.
pub(super) fn summary_of(told: &[Value], seeds: usize) -> Value {
    let mut all = Map::new();
    for name in ESTIMATORS {
        let (mut means, mut p95s, mut unanswered) = (Vec::new(), Vec::new(), 0);
        for (seen, told) in pairs(told, name) {
            match told.as_object() {
                Some(_) => {
                    means.push(apart(&told, &seen, "mean_s"));
                    p95s.push(apart(&told, &seen, "p95_s"));
                }
                None => unanswered += 1,
            }
        }
        all.insert(
            name.into(),
            json!({"mean": mean(&means), "p95": mean(&p95s), "of": means.len(), "unanswered": unanswered}),
        );
    }
    all.insert("floor".into(), floor(told, seeds));
    Value::Object(all)
}

/// What was measured in each loaded interval, and the forecast of the estimator with this name.
fn pairs(told: &[Value], name: &str) -> Vec<(Value, Value)> {
    let mut all = Vec::new();
    for foretold in told.iter().flat_map(|t| t["estimate"]["foretold"].as_array().into_iter().flatten()) {
        if foretold["load"].as_f64().unwrap_or(0.0) <= LOADED {
            continue;
        }
        let by = foretold["told"].as_array().into_iter().flatten().find(|t| t["estimator"] == name);
        let by = by.and_then(|t| t["told"].as_array()).cloned().unwrap_or_default();
        all.extend(foretold["seen"].as_array().into_iter().flatten().cloned().zip(by));
    }
    all
}

fn apart(told: &Value, seen: &Value, key: &str) -> f64 {
    let (told, seen) = (told[key].as_f64().unwrap_or(0.0), seen[key].as_f64().unwrap_or(f64::NAN));
    (told - seen).abs() / seen
}

/// The difference of the same interval's response between seeds: one seed as the forecast, another as the
/// measurement.
fn floor(told: &[Value], seeds: usize) -> Value {
    let (mut means, mut p95s) = (Vec::new(), Vec::new());
    for same in told.chunks(seeds.max(1)) {
        for a in same {
            for b in same.iter().filter(|b| b["run"] != a["run"]) {
                let seen = |t: &Value| {
                    pairs(std::slice::from_ref(t), "last")
                        .into_iter()
                        .map(|(seen, _)| seen)
                        .collect::<Vec<_>>()
                };
                for (a, b) in seen(a).iter().zip(seen(b)) {
                    means.push(apart(a, &b, "mean_s"));
                    p95s.push(apart(a, &b, "p95_s"));
                }
            }
        }
    }
    json!({"mean": mean(&means), "p95": mean(&p95s), "of": means.len()})
}

/// All errors of a summary as text: of means (`mean`) or of 95th percentiles (`p95`).
pub(super) fn in_words(summary: &Value, key: &str) -> String {
    let percent = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{:.1} %", 100.0 * x));
    let of = |name: &&str| format!("{name} {}", percent(summary[name][key].as_f64()));
    ESTIMATORS.iter().chain(&["floor"]).map(of).collect::<Vec<_>>().join(", ")
}

/// Does `own` have a smaller error than each of these?
pub(super) fn own_is_nearest(summary: &Value, key: &str, of: &[&str]) -> bool {
    let error = |name: &str| summary[name][key].as_f64();
    let others: Vec<f64> = of.iter().filter_map(|name| error(name)).collect();
    // Without others to compare with, the claim must not hold.
    !others.is_empty() && others.iter().all(|x| error("own").is_some_and(|own| own < *x))
}

fn claims(findings: &mut Findings, summary: &Value, full: bool) {
    for (key, words) in [("mean", "means"), ("p95", "95th percentiles")] {
        let of = |name: &str| summary[name][key].as_f64();
        // One seed gives no floor.
        let most = WITHIN + of("floor").unwrap_or(0.3);
        findings.claim(
            format!("{words} of loaded intervals are told within 10 % and what differs from seed to seed"),
            of("own").is_some_and(|own| own <= most),
            in_words(summary, key),
        );
        if full {
            let best = own_is_nearest(summary, key, &ESTIMATORS[1..]);
            findings.claim(format!("{words}: nobody else tells them as well"), best, in_words(summary, key));
        }
    }
}
