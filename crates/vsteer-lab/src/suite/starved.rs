//! Does a VM that computes, and is starved by its weight, get a plan that helps?
//!
//! Weights are of VMs, not of vCPUs. So a VM of four vCPUs beside two VMs of one vCPU gets as much time as one of them, and each
//! of its vCPUs a quarter of it. `vsteer diagnose` must say so first, and the plan that it proposes must give the VM more work,
//! as the guest itself counts it. All VMs share the pCPUs, so the others work less: the plan is made only on request.

use super::{Bench, Case, Findings, Minutes};
use crate::contention::Lab;
use crate::drive::{Vsteer, findings, wait};
use crate::report::clock::now_ns;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use vsteer_core::Fault;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "starved",
    doc: "a computing VM with too little weight per vCPU is named, and its plan gives it more work; undone",
    in_test: false,
    minutes: Minutes::new(2.5, 2.5),
    beside: false,
    run,
};

const SPEC: &str = "burn=1x4,burn=2x1";
const VCPUS: u32 = 4;
/// A starved VM boots slowly.
const SETTLE: Duration = Duration::from_secs(25);
const WINDOW: Duration = Duration::from_secs(30);
const LIMIT: Duration = Duration::from_secs(90);
/// With weight for each vCPU, the VM has two thirds of the pCPUs. Before, it has one third, or half while both other VMs are on
/// one pCPU: twice the work, or a third more.
const WORK_TIMES: f64 = 1.2;

/// What the guests did, in units of work per second, by VM.
type Work = BTreeMap<String, f64>;

fn observed(lab: &Lab, v: &Vsteer, recording: &str) -> Result<Work, Fault> {
    let length = format!("{}s", WINDOW.as_secs());
    let since_ns = now_ns();
    v.run(&["record", "-o", recording, "--for", &length, "--connect", &v.uri], false, LIMIT)?;
    let until_ns = now_ns();
    wait("collecting the guests' own reports", Duration::from_secs(3))?;
    let work = lab.window(since_ns, until_ns);
    Ok(work.into_iter().filter_map(|g| Some((g.vm, g.window?.work_units_per_s))).collect())
}

/// The VM of four vCPUs.
fn large(model: &Value) -> Value {
    let vcpus = |vm: &&Value| {
        vm["threads"].as_array().into_iter().flatten().filter(|t| t["role"]["vcpu"].is_u64()).count()
    };
    let all = model["vms"].as_array().into_iter().flatten();
    all.into_iter().find(|vm| vcpus(vm) == VCPUS as usize).cloned().unwrap_or_default()
}

fn run(bench: &Bench) -> Result<Findings, Fault> {
    bench.on_lab(SPEC, bench.seed, |lab, v| on_lab(bench, lab, v))
}

fn on_lab(bench: &Bench, lab: &Lab, v: &Vsteer) -> Result<Findings, Fault> {
    let mut told = Findings::default();
    let (first, second) = (bench.fresh("starved.vsteer")?, bench.fresh("fed.vsteer")?);
    let plan = bench.output.join("starved.json").to_string_lossy().into_owned();
    wait("letting them settle", SETTLE)?;
    let before = observed(lab, v, &first)?;
    let diagnosed = v.json(&["diagnose", &first], LIMIT)?;
    let large = large(&diagnosed["model"]);
    let name = large["name"].as_str().unwrap_or_default();
    let rule = findings(&diagnosed).into_iter().find(|f| f["vm"] == large["id"]).map(|f| f["rule"].clone());
    told.claim(
        "the first finding about the VM of four vCPUs is its weight per vCPU",
        !name.is_empty() && rule.as_ref().is_some_and(|rule| rule == "weight_starved"),
        format!("VM {name:?}: {}", rule.unwrap_or_default()),
    );
    let planned = v.json(&["plan", &first, "--only", "weights", "-o", &plan], LIMIT)?;
    let steps = planned["steps"].as_array().cloned().unwrap_or_default();
    told.claim(
        "the plan raises the weight of this VM alone",
        steps.len() == 1 && steps[0]["vm_name"] == name && steps[0]["change"]["setting"] == "weight",
        format!("{}", planned["title"]),
    );
    let settings = v.settings()?;
    v.json(&["apply", &plan, "--yes", "--connect", &v.uri], LIMIT)?;
    wait("letting the change settle", SETTLE)?;
    let after = observed(lab, v, &second)?;
    let verdict = v.json(&["verify", &first, &second, "--plan", &plan], LIMIT)?;
    v.json(&["rollback", "--connect", &v.uri], LIMIT)?;
    let of = |work: &Work| work.get(name).copied().unwrap_or(f64::NAN);
    let times = of(&after) / of(&before);
    told.claim(
        format!("its guest does at least {WORK_TIMES} times the work"),
        times >= WORK_TIMES,
        format!("{times:.2} times"),
    );
    told.claim("rollback restores the former settings", v.settings()? == settings, "compared");
    told.figures = json!({ "before": before, "after": after, "forecast": planned["forecast"]["vms"],
        "verdict": verdict["verdict"]["findings"] });
    Ok(told)
}
