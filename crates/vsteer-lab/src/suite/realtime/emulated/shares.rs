//! How a pCPU is divided: the tables of VIT, shares by weight, quotas, the host's own work.

use super::jobs::{NICE, UNIT_US};
use super::{Boot, of, sum, vms, worst};
use crate::drive::Vsteer;
use crate::files::write_file;
use crate::suite::Findings;
use serde_json::{Map, Value, json};
use std::time::Duration;
use vsteer_core::Fault;

/// The scenario of the first table, for the simulator.
const SCENARIO: &str = include_str!("../../../../../../scenarios/realtime-sleeper.toml");
/// The allowed difference of latencies and shares that are claimed to be the same.
const SAME: f64 = 0.02;
/// The least cost of a static priority for the competitor, if the VM asks for more than its half.
const PRIORITY_COSTS: f64 = 0.25;
/// The allowed error of shares by weight, and of quotas.
const FAIR: f64 = 0.01;
/// The allowed difference from what the kernel's scheduler gives.
const OWN_WORK: f64 = 0.03;

/// What the application in the VM `rt` measured, and the competitor's work.
#[derive(Clone, Copy)]
struct Row {
    sleep_ms: f64,
    cycle_ms: f64,
    /// The competitor's units per second.
    job: f64,
}

impl Boot {
    fn row(&self, case: &str) -> Row {
        let window = self.window(case, "rt");
        let late = window.and_then(|w| w.lateness).map_or(f64::NAN, |l| l.mean_ms);
        let cycle = window.and_then(|w| w.response).map_or(f64::NAN, |r| r.mean_ms);
        Row { sleep_ms: 30.0 + late, cycle_ms: cycle, job: self.units(case, "job") }
    }

    pub(super) fn tables(
        &self,
        kernel: &str,
        full: bool,
        findings: &mut Findings,
    ) -> Result<Map<String, Value>, Fault> {
        let mut figures = Map::new();
        let alone_job = self.units("job-alone", "job");
        for load in ["sleeper", "thread"] {
            let row = |name: &str| self.row(&format!("{load}-{name}"));
            let (alone, beside, vit, first) = (row("alone"), row("competitor"), row("vit"), row("priority"));
            let told = |r: Row| format!("{:.3} and {:.3} ms", r.sleep_ms, r.cycle_ms);
            let same = |a: f64, b: f64| (a / b - 1.0).abs() <= SAME;
            findings.claim(
                format!(
                    "{kernel}, {load}: sleep, and sleep and work, last as long with VIT as alone (within 2 %)"
                ),
                same(vit.sleep_ms, alone.sleep_ms) && same(vit.cycle_ms, alone.cycle_ms),
                format!(
                    "alone {}, with the competitor {}, VIT {}, static priority {}",
                    told(alone),
                    told(beside),
                    told(vit),
                    told(first)
                ),
            );
            let (half, shown) = (alone_job / 2.0, |job: f64| format!("{:.1} %", 100.0 * job / alone_job));
            if load == "sleeper" {
                // The VM asks for less than its half. Any policy that serves it at once gives it what it asks
                // for, and the competitor gets the rest.
                findings.claim(
                    format!("{kernel}, {load}: VIT and a static priority cost the competitor the same (within 2 %)"),
                    same(vit.job, first.job),
                    format!(
                        "it keeps {} and {} of a pCPU, {} without either",
                        shown(vit.job),
                        shown(first.job),
                        shown(beside.job)
                    ),
                );
            } else {
                findings.claim(
                    format!("{kernel}, {load}: with VIT the competitor keeps its half (within 2 %)"),
                    same(vit.job, half),
                    shown(vit.job),
                );
                findings.claim(
                    format!("{kernel}, {load}: a static priority costs it more than a quarter of that"),
                    first.job < half * (1.0 - PRIORITY_COSTS),
                    shown(first.job),
                );
            }
            let row = |r: Row| json!({ "sleep_ms": r.sleep_ms, "cycle_ms": r.cycle_ms, "competitor": r.job / alone_job });
            let mut rows = json!({ "alone": row(alone), "competitor": row(beside), "vit": row(vit), "priority": row(first) });
            if load == "thread" && full {
                rows["vit_by_timer"] = row(self.row("thread-timer"));
            }
            figures.insert(load.to_owned(), rows);
        }
        Ok(figures)
    }

    /// The simulator's BVT with VIT on the same scenario, and its EEVDF without priority for a VM.
    pub(super) fn simulated(
        &self,
        kernel: &str,
        findings: &mut Findings,
        figures: &mut Map<String, Value>,
    ) -> Result<(), Fault> {
        let file = self.options.output.join("sleeper.toml");
        write_file(&file, SCENARIO.as_bytes())?;
        let file = file.to_string_lossy().into_owned();
        let vsteer = Vsteer::beside(&self.options.vsteer)?;
        let told = vsteer.json(&["simulate", &file], Duration::from_secs(60))?;
        let of = |vm: &str, what: &str| {
            let all = told["points"][0]["vms"].as_array().into_iter().flatten();
            let mean = all.filter(|v| v["vm"] == vm).find_map(|v| v["figures"][what]["mean"].as_f64());
            mean.unwrap_or(f64::NAN)
        };
        let measured = self.row("sleeper-vit");
        let pairs = [
            ("sleep, ms", of("rt", "sleep_mean") / 1e6, measured.sleep_ms),
            ("sleep and work, ms", of("rt", "cycle_mean") / 1e6, measured.cycle_ms),
            ("competitor, pCPUs", of("job", "run"), measured.job / self.units("job-alone", "job")),
        ];
        findings.claim(
            format!("{kernel}: the simulator's BVT with VIT says of the same what is measured (within 2 %)"),
            pairs.iter().all(|(_, simulated, measured)| (simulated / measured - 1.0).abs() <= SAME),
            format!("simulated and measured: {pairs:.3?}"),
        );
        let shown = pairs.map(|(what, simulated, measured)| json!({ "what": what, "simulated": simulated, "measured": measured }));
        figures.insert("simulated".to_owned(), json!(shown));
        Ok(())
    }

    /// Five VMs, one with double weight, that ask for as much as they can get.
    pub(super) fn shares(
        &self,
        kernel: &str,
        findings: &mut Findings,
        figures: &mut Map<String, Value>,
    ) -> Result<(), Fault> {
        let said = self.said("fair")?;
        let all: f64 = vms(&said).filter_map(|vm| vm["cpu_s"].as_f64()).sum();
        let mut off = Vec::new();
        let shares: Map<String, Value> = vms(&said)
            .map(|vm| {
                let name = vm["name"].as_str().unwrap_or_default();
                let due = if name == "double" { 2.0 / 6.0 } else { 1.0 / 6.0 };
                let share = vm["cpu_s"].as_f64().unwrap_or(f64::NAN) / all;
                off.push((share / due - 1.0).abs());
                (name.to_owned(), json!(share))
            })
            .collect();
        let told = shares
            .iter()
            .map(|(name, share)| format!("{name} {:.2} %", 100.0 * share.as_f64().unwrap_or(f64::NAN)));
        findings.claim(
            format!("{kernel}: each VM's CPU time is its weighted share (within 1 %), whatever it asks for"),
            off.len() == 5 && worst(off.into_iter()) <= FAIR,
            format!("{}; {} calls", told.collect::<Vec<_>>().join(", "), sum(&said, "calls")),
        );
        figures.insert("shares".to_owned(), json!({ "shares": shares, "vms": said["vms"] }));
        Ok(())
    }

    /// VMs with quotas, for the whole VM and for each vCPU, beside one that takes the rest; and one that
    /// loses its quota.
    pub(super) fn quotas(
        &self,
        kernel: &str,
        findings: &mut Findings,
        figures: &mut Map<String, Value>,
    ) -> Result<(), Fault> {
        let said = self.said("quota")?;
        let passed = said["seconds"].as_f64().unwrap_or(f64::NAN);
        let share = |name: &str| of(&said, name, "cpu_s") / passed;
        let due = [("limited", 0.2), ("parts", 2.0 * 5.0 / 70.0)];
        let got = due.map(|(name, due)| (name, share(name), due));
        findings.claim(
            format!("{kernel}: a VM gets what its quota is (cpu.max of the whole, or of each vCPU) within 1 %, and who has none the rest"),
            got.iter().all(|(_, got, due)| (got / due - 1.0).abs() <= FAIR) && share("job") >= (1.0 - 0.2 - 1.0 / 7.0) * 0.97,
            format!("{got:.4?}; the rest {:.4}", share("job")),
        );
        figures.insert(
            "quotas".to_owned(),
            json!(got.map(|(name, got, due)| json!({ "vm": name, "got": got, "quota": due }))),
        );
        let said = self.said("unlimited")?;
        let (limited, job) = (of(&said, "limited", "cpu_s"), of(&said, "job", "cpu_s"));
        // A hundredth for 8 s, then half.
        let due = 0.08 + 3.0;
        findings.claim(
            format!("{kernel}: a VM whose quota is taken away gets its half from then on (within 5 %)"),
            (limited / due - 1.0).abs() <= 0.05,
            format!("{limited:.3} of {due:.2} s, the other {job:.3}"),
        );
        Ok(())
    }

    /// The work of the host itself and of the VMs under the policy, relative to the kernel's scheduler.
    pub(super) fn own_work(
        &self,
        kernel: &str,
        findings: &mut Findings,
        figures: &mut Map<String, Value>,
    ) -> Result<(), Fault> {
        const UNIT_S: f64 = UNIT_US / 1e6;
        let build_s = |case: &str| {
            let window = self.window(case, "make");
            window.and_then(|w| w.response).map_or(f64::NAN, |r| r.mean_ms / 1e3)
        };
        let kept = |what: &str, name: &str| {
            self.units(&format!("{what}-policy"), name) / self.units(&format!("{what}-kernel"), name)
        };
        let (alone, before, with) = (build_s("own-alone"), build_s("own-kernel"), build_s("own-policy"));
        let (job, rt) = (kept("own", "job"), kept("own", "rt"));
        findings.claim(
            format!("{kernel}: make -j4 beside VMs is as fast under the policy as under the kernel's scheduler, and so are they (within 3 %)"),
            with / before <= 1.0 + OWN_WORK && job >= 1.0 - OWN_WORK && rt >= 1.0 - OWN_WORK,
            format!(
                "a build takes {with:.2} s, {before:.2} by the kernel's ({alone:.2} alone); the VM that computes does {:.1} % of what it did, \
                 the one with timers {:.1} %",
                100.0 * job,
                100.0 * rt
            ),
        );
        let eager = [
            build_s("own-eager-policy") / build_s("own-eager-kernel"),
            kept("own-eager", "job"),
            kept("own-eager", "rt"),
        ];
        findings.claim(
            // Its additional work is what it had waited for; the others divide the rest.
            format!("{kernel}: a VM that does the more the less it waits gains at the others' cost alone, in their parts (within 3 %)"),
            eager[2] >= 1.0 && {
                let part = |case: &str| UNIT_S * self.units(case, "rt");
                let left = (1.0 - part("own-eager-policy")) / (1.0 - part("own-eager-kernel"));
                eager[1] >= left * (1.0 - OWN_WORK) && eager[0] <= (1.0 + OWN_WORK) / left
            },
            format!("it does {:.3} of what it did, the VM that computes {:.3}, a build takes {:.3} times as long", eager[2], eager[1], eager[0]),
        );
        figures.insert(
            "own_work".to_owned(),
            json!({
                "build_alone_s": alone, "build_kernel_s": before, "build_policy_s": with, "job_kept": job, "rt_kept": rt,
                "eager": { "build_times": eager[0], "job_kept": eager[1], "rt_kept": eager[2] },
            }),
        );
        self.said("own-policy").map(|_| ())
    }

    /// What a host thread with a higher nice level than another one in its cgroup gets, beside a VM that
    /// computes.
    pub(super) fn niced(&self, kernel: &str, findings: &mut Findings, figures: &mut Map<String, Value>) {
        let part = |case: &str| self.units(case, "niced") / self.units(case, "job");
        let (before, with) = (part("niced-kernel"), part("niced-policy"));
        findings.claim(
            format!("{kernel}: a thread of nice {NICE} beside one of nice 0 has the same part under the policy as under the kernel's scheduler (within 3 %)"),
            (with / before - 1.0).abs() <= OWN_WORK,
            format!("{with:.4} of what a VM beside both does, {before:.4} by the kernel's"),
        );
        figures.insert("niced".to_owned(), json!({ "nice": NICE, "kernel": before, "policy": with }));
    }
}
