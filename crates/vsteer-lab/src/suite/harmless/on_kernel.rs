//! The same question on a real kernel: random hosts of one pCPU, emulated in exact virtual time.
//!
//! Each host runs once, as it is. Where the default plan changes something, the host runs again from the start, and goes on
//! with the plan's weights; both parts are recorded. On one pCPU a default plan can change nothing but weights.

use super::default_plan;
use crate::drawn::compared::{GROWTH, LATE_NS, WAKES};
use crate::drive::Vsteer;
use crate::emulated::job::Job;
use crate::emulated::{self, Options, Ran};
use crate::fetch::cache_folder;
use crate::fetch::kernels::{self, Which};
use crate::suite::{Bench, Evidence, Findings};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use vsteer_core::model::{HostModel, derive};
use vsteer_core::nouns::{HostConfig, VmId};
use vsteer_core::plan::Plan;
use vsteer_core::random::Random;
use vsteer_core::setting::Change;
use vsteer_core::stats::{mean, quantile};
use vsteer_core::topology::Parts;
use vsteer_core::{CpuSet, Fault, FaultKind, Topology};
use vsteer_record::Recording;

const HOSTS: u64 = 30;
/// At least this many of them must get a plan that changes something.
const PLANNED: usize = 3;
/// Hosts of one boot, and boots at a time.
const AT_ONCE: usize = 5;
const BOOTS: usize = 2;
const LIMIT: Duration = Duration::from_secs(1_800);
/// 2^3 ns per instruction: fewer instructions to emulate per virtual second. A work unit then takes [`UNIT_US`], in µs.
const SHIFT: u32 = 3;
const UNIT_US: f64 = 80.0;
/// The pCPU of the VMs. The other one is the observer's.
const PCPU: u32 = 1;
const RECORD_S: u32 = 10;

/// The VMs of a host, as a job has them: one that computes, and others.
fn vms(seed: u64) -> String {
    let mut r = Random::new(seed, 5);
    let many = r.within(2, 5);
    (0..many).map(|i| vm(&mut r, i)).collect()
}

fn vm(r: &mut Random, number: u64) -> String {
    let share = |r: &mut Random| 0.01 + 0.09 * r.unit();
    let units = |us: f64| (us / UNIT_US).round().max(1.0);
    let kind = if number == 0 { 0 } else { r.within(1, 3) };
    let (kind, workload) = match kind {
        0 => ("hog", "burn".to_owned()),
        1 => {
            let period_us = 1_000.0 * r.within(3, 25) as f64;
            let work = units(period_us * share(r));
            ("timer", format!("periodic,period_us={period_us},work_units={work}"))
        }
        2 => {
            let mean = r.within(3, 40) as f64;
            let rate_hz = (share(r) / (mean * UNIT_US / 1e6)).round().max(1.0);
            ("server", format!("server,rate_hz={rate_hz},mean_units={mean},seed={number}"))
        }
        _ => {
            let sleep_us = 1_000.0 * r.within(3, 30) as f64;
            let work = units(sleep_us * share(r));
            ("desk", format!("sleeper,sleep_us={sleep_us},work_units={work}"))
        }
    };
    let mut text = format!(
        "[[case.vm]]\nname = \"{kind}{number}\"\nworkload = \"{workload}\"\ncpus = \"{PCPU}\"\nvcpus = {}\n",
        r.within(1, 2)
    );
    if r.unit() < 0.3 {
        text += &format!("weight = {}\n", [25, 50, 200, 800][r.within(0, 3) as usize]);
    }
    if r.unit() < 0.12 {
        text += &format!("quota_us = {}\n", 10_000 * r.within(2, 8));
    }
    text
}

/// A host, and the default plan for it.
struct Planned {
    seed: u64,
    plan: Plan,
}

/// The name of a host's case, and of the one that goes on with the plan.
fn case(seed: u64) -> String {
    format!("host-{seed}")
}

fn case_after(seed: u64) -> String {
    format!("host-{seed}-after")
}

fn as_it_is(seed: u64) -> String {
    format!("[[case]]\nname = \"{}\"\nrecord_s = {RECORD_S}\n{}", case(seed), vms(seed))
}

/// The host as it is, and then with the weights of its plan.
fn with_plan(planned: &Planned) -> Result<String, Fault> {
    let change = |step: &vsteer_core::setting::Step| match &step.change {
        Change::Weight(to) => {
            let name = &step.vm_name;
            let weight = (100.0 * to.to.relative()).round().clamp(1.0, 10_000.0);
            Ok(format!("{{ name = \"{name}\", weight = {weight} }}"))
        }
        other => {
            let what = format!("host {}: on one pCPU a default plan changes {other:?}", planned.seed);
            Err(Fault::new(FaultKind::Unsupported, what))
        }
    };
    let changes = planned.plan.steps.iter().map(change).collect::<Result<Vec<_>, _>>()?.join(", ");
    let after = case_after(planned.seed);
    Ok(format!(
        "{}[[case]]\nname = \"{after}\"\nrecord_s = {RECORD_S}\ncontinues = true\nchange = [{changes}]\n",
        as_it_is(planned.seed)
    ))
}

/// Runs the cases, some in each boot; the folder of each boot.
fn boots(bench: &Bench, name: &str, cases: &[String]) -> Result<Vec<Ran>, Fault> {
    let vsteer = Vsteer::beside(&bench.lab.program)?;
    let cache = cache_folder()?;
    let which = Which::Newest;
    let kernel = kernels::resolve(&cache, which, emulated::needed(which), false)?;
    let one = |(n, cases): (usize, &[String])| -> Result<Ran, Fault> {
        let job = Job::parse(&format!("shift = {SHIFT}\nsettle_s = 8\n{}", cases.concat()))?;
        let options = Options {
            cache: cache.clone(),
            kernel: which,
            guest: bench.lab.guest.clone(),
            vsteer: vsteer.program.clone(),
            output: PathBuf::from(bench.fresh(&format!("{name}-{n}"))?),
            limit: LIMIT,
            seed: bench.seed,
        };
        emulated::run_on(kernel.clone(), &job, &options)
    };
    let chunks: Vec<(usize, &[String])> = cases.chunks(AT_ONCE).enumerate().collect();
    let mut ran = Vec::new();
    for some in chunks.chunks(BOOTS) {
        let done: Vec<Result<Ran, Fault>> = std::thread::scope(|scope| {
            let all: Vec<_> = some.iter().map(|chunk| scope.spawn(|| one(*chunk))).collect();
            all.into_iter().map(|boot| boot.join().expect("a run does not panic")).collect()
        });
        ran.extend(done.into_iter().collect::<Result<Vec<_>, _>>()?);
    }
    Ok(ran)
}

/// What the observer recorded, of a host that has the VMs' pCPU alone.
fn recorded(ran: &[Ran], case: &str) -> Result<(HostConfig, HostModel), Fault> {
    let folder =
        ran.iter().flat_map(|r| &r.cases).find(|c| c.name == case).and_then(|c| c.recording.as_ref());
    let none = || Fault::new(FaultKind::NothingThere, format!("the recording of {case} is missing"));
    seen(folder.ok_or_else(none)?)
}

fn seen(folder: &Path) -> Result<(HostConfig, HostModel), Fault> {
    let recording = Recording::open(folder)?;
    let mut config = recording.configs[0].config.clone();
    let cpus = CpuSet::first(PCPU + 1);
    config.topology = Topology::new(Parts {
        present: cpus.clone(),
        online: cpus,
        allowed: CpuSet::single(PCPU),
        ..Parts::default()
    })?;
    let model = derive(&config, &recording.manifest.collector, &recording.batches)?;
    Ok((config, model))
}

/// What a VM waited per vCPU, and the 99th percentile of its wake-ups, ns; 0 if they are few.
fn waits(model: &HostModel, vm: &VmId) -> Option<(f64, f64)> {
    let vm = model.vm(vm)?;
    let all: Vec<f64> =
        vm.vcpu_threads().map(|t| t.shares.ready.unwrap_or(0.0) + t.shares.limited.unwrap_or(0.0)).collect();
    let late = vm.wake_latency.filter(|q| q.count >= WAKES).map_or(0.0, |q| q.p99_ns);
    Some((mean(&all)?, late))
}

/// A VM that got worse although the plan did not say so, in words; and by how much the VM that fared worst did.
fn harm(planned: &Planned, ran: &[Ran]) -> Result<(f64, Option<String>), Fault> {
    let (config, before) = recorded(ran, &case(planned.seed))?;
    let (_, after) = recorded(ran, &case_after(planned.seed))?;
    let (mut worst, mut told) = (0.0_f64, None);
    for vm in &config.vms {
        let (Some((was, was_late)), Some((is, is_late))) = (waits(&before, &vm.id), waits(&after, &vm.id))
        else {
            continue;
        };
        worst = worst.max(is - was);
        let harmed = is - was >= GROWTH || was_late > 0.0 && is_late > LATE_NS && is_late > 2.0 * was_late;
        if harmed && !super::named(&planned.plan, &vm.id, is * vm.vcpu_count() as f64) {
            let [was, is, was_late, is_late] = [100.0 * was, 100.0 * is, was_late / 1e6, is_late / 1e6];
            told.get_or_insert(format!(
                "{} waits {is:.1} % instead of {was:.1}, p99 {is_late:.1} ms instead of {was_late:.1}",
                vm.name
            ));
        }
    }
    Ok((worst, told))
}

/// How far the forecast is off for the host as the plan found it, per vCPU, of each VM.
fn null_errors(plan: &Plan) -> Vec<f64> {
    let unchanged = plan.on_the_way.first().map_or(&plan.forecast, |stage| &stage.forecast);
    let vcpus = |vm: &VmId| plan.parent.vm(vm).map_or(1, |vm| vm.vcpu_count().max(1)) as f64;
    unchanged.vms.iter().filter_map(|f| Some(f.null_error?.abs() / vcpus(&f.vm))).collect()
}

/// Judges the default plans of all hosts.
///
/// # Errors
/// A host that cannot be emulated; `Interrupted`.
pub fn run(bench: &Bench, findings: &mut Findings) -> Result<Value, Fault> {
    let seeds: Vec<u64> = (0..HOSTS).map(|i| bench.seed * 1_000 + i).collect();
    let ran = boots(bench, "kernel", &seeds.iter().map(|seed| as_it_is(*seed)).collect::<Vec<_>>())?;
    let (mut planned, mut off) = (Vec::new(), Vec::new());
    for seed in seeds {
        let (config, model) = recorded(&ran, &case(seed))?;
        let plan = default_plan(&config, &model)?;
        off.extend(null_errors(&plan));
        if !plan.steps.is_empty() {
            planned.push(Planned { seed, plan });
        }
    }
    let again = planned.iter().map(with_plan).collect::<Result<Vec<_>, _>>()?;
    let ran = boots(bench, "kernel-after", &again)?;
    let judged = planned.iter().map(|p| Ok((p, harm(p, &ran)?))).collect::<Result<Vec<_>, Fault>>()?;
    let harmed: Vec<String> = judged
        .iter()
        .filter_map(|(p, (_, harm))| Some(format!("host {}: {}", p.seed, harm.as_ref()?)))
        .collect();
    let at = |part| quantile(&off, part);
    let percent = |part| 100.0 * at(part).unwrap_or(f64::NAN);
    findings.claim_on(
        "on the emulated kernel, hosts of one pCPU: no VM gets worse by a default plan",
        Evidence::count(planned.len(), PLANNED, "plans that change something"),
        harmed.is_empty(),
        format!(
            "{HOSTS} hosts, {} plans are empty; largest growth {:.1} points; without a change, forecasts of {} VMs are \
             off by {:.1} points in the median, {:.1} and {:.1} at 75 and 95 %; {}",
            HOSTS as usize - planned.len(),
            100.0 * judged.iter().map(|(_, (worst, _))| *worst).fold(0.0, f64::max),
            off.len(),
            percent(0.5),
            percent(0.75),
            percent(0.95),
            harmed.join("; ")
        ),
    );
    let told = |(p, (worst, harm)): &(&Planned, (f64, Option<String>))| json!({ "seed": p.seed, "plan": p.plan.title, "largest_growth": worst, "harm": harm });
    let null_errors = json!({ "vms": off.len(), "0.5": at(0.5), "0.75": at(0.75), "0.95": at(0.95) });
    Ok(
        json!({ "hosts": HOSTS, "null_error_quantiles": null_errors, "planned": judged.iter().map(told).collect::<Vec<_>>() }),
    )
}
