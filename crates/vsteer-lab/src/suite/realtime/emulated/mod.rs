//! Does a guest's timer bring its vCPU to a pCPU, on unmodified kernels, at no cost to others?
//!
//! The tables of VIT (Park et al., J. KIISE 37(1), 2010, tables 2 and 3) on Linux and KVM: an application
//! sleeps for 30 ms and then computes, a third of a pCPU on average, in a VM beside one that computes without
//! end. It runs alone, with that competitor, with `vsteer realtime`, and with a static priority. Then all
//! again with a thread of low priority in its VM, so that the VM asks for 70 %, above its half. Further
//! tests: the time from the end of a timer to the vCPU's running, with 1, 8 and 32 such VMs and four that
//! compute; timers that end together, in the order of requests; and the shares of VMs that always ask.
//!
//! All runs on one pCPU of emulated hosts: times are counts of instructions, the same each time (see
//! [`crate::emulated`]). At full size on the oldest and the newest suitable kernel, short on the newest.

pub mod cycles;
mod faults;
mod jobs;
mod shares;
mod times;

use super::boots;
use crate::emulated::job::Job;
use crate::emulated::{self, Options, Ran};
use crate::fetch::kernels::Which;
use crate::report::window::VmWindow;
use crate::suite::{Bench, Findings};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use vsteer_core::{Fault, FaultKind};

/// The claims.
///
/// # Errors
/// None: if an emulated host fails, that is a claim that does not hold, and earlier results are reported.
pub fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    let kernels: &[Which] = if bench.full { &[boots::SERIES, Which::Newest] } else { &[Which::Newest] };
    let mut figures = Map::new();
    for which in kernels {
        let mut found = Map::new();
        let mut kernel = String::new();
        if let Err(fault) = of_kernel(bench, *which, &mut kernel, &mut findings, &mut found) {
            findings.claim(format!("{kernel}: all of it runs to its end"), false, fault.to_string());
        }
        figures.insert(kernel, Value::Object(found));
    }
    findings.figures = json!({ "kernels": figures, "seed": bench.seed });
    Ok(findings)
}

/// The claims for one kernel; its name is reported as soon as it is known.
fn of_kernel(
    bench: &Bench,
    which: Which,
    kernel: &mut String,
    findings: &mut Findings,
    found: &mut Map<String, Value>,
) -> Result<(), Fault> {
    let boot = |job: Job, name: &str| Boot::of(&job, boots::options(bench, which, name)?);
    let (two, one) = std::thread::scope(|scope| {
        let other = scope.spawn(|| boot(jobs::expiries(bench.full)?, "realtime-one"));
        let two = boot(jobs::tables(bench.full)?, "realtime");
        Ok((two?, other.join().expect("a boot does not panic")?))
    })?;
    *kernel = format!("Linux {}", two.ran.kernel.release);
    found.append(&mut two.tables(kernel, bench.full, findings)?);
    one.expiries(kernel, bench.full, findings, found)?;
    two.simulated(kernel, findings, found)?;
    two.together(kernel, findings, found);
    two.shares(kernel, findings, found)?;
    two.quotas(kernel, findings, found)?;
    two.faults(kernel, findings)?;
    boot(jobs::starved()?, "realtime-starved")?.starved(kernel, findings)?;
    if !bench.full {
        return Ok(());
    }
    one.above(kernel, findings, found)?;
    one.costs(kernel, findings, found)?;
    let own = boot(jobs::own_work()?, "realtime-own")?;
    own.own_work(kernel, findings, found)?;
    own.switches(kernel, findings, found);
    own.niced(kernel, findings, found);
    own.counted(kernel, findings)?;
    let options = boots::options(bench, which, "realtime-moved")?;
    let moved = Boot { ran: boots::boot(jobs::MOVED, &options, jobs::moved)?, options };
    moved.moved(kernel, findings)?;
    boot(jobs::comings()?, "realtime-comings")?.comings(kernel, findings)?;
    if which == Which::Newest {
        let again = |name: &str| boot(jobs::expiries(false)?, name);
        same(kernel, &again("realtime-once")?, &again("realtime-again")?, findings)?;
    }
    Ok(())
}

/// Do two equal runs give the same bytes?
fn same(kernel: &str, one: &Boot, other: &Boot, findings: &mut Findings) -> Result<(), Fault> {
    let (first, second) = (one.bytes("expiry-8")?, other.bytes("expiry-8")?);
    let differ: Vec<&String> =
        first.keys().chain(second.keys()).filter(|file| first.get(*file) != second.get(*file)).collect();
    findings.claim(
        format!("{kernel}: run again, what the policy reports and the VMs' reports are the same to the byte"),
        !first.is_empty() && differ.is_empty(),
        format!(
            "{} files, {} bytes; different: {differ:?}",
            first.len(),
            first.values().map(Vec::len).sum::<usize>()
        ),
    );
    Ok(())
}

/// The results of one boot.
struct Boot {
    ran: Ran,
    options: Options,
}

impl Boot {
    fn of(job: &Job, options: Options) -> Result<Boot, Fault> {
        Ok(Boot { ran: emulated::run(job, &options)?, options })
    }

    fn window(&self, case: &str, name: &str) -> Option<&VmWindow> {
        let case = self.ran.cases.iter().find(|c| c.name == case)?;
        case.measured.iter().flatten().find(|m| m.name == name).map(|m| &m.window)
    }

    fn units(&self, case: &str, name: &str) -> f64 {
        self.window(case, name).map_or(f64::NAN, |w| w.work_units_per_s)
    }

    /// The policy's final output.
    fn said(&self, case: &str) -> Result<Value, Fault> {
        let file = self.options.output.join(case).join("command.out");
        let text = std::fs::read_to_string(&file);
        let text = text.map_err(|e| Fault::io(format!("reading {}", file.display()), &e))?;
        serde_json::from_str(&text).map_err(|e| {
            Fault::new(FaultKind::Failed, format!("case {case}: the policy did not report")).because(e)
        })
    }

    /// The files of a case, by name.
    fn bytes(&self, case: &str) -> Result<BTreeMap<String, Vec<u8>>, Fault> {
        let folder = self.options.output.join(case);
        let told = |e: std::io::Error| Fault::io(format!("reading {}", folder.display()), &e);
        let mut all = BTreeMap::new();
        for entry in std::fs::read_dir(&folder).map_err(told)? {
            let entry = entry.map_err(told)?;
            if entry.file_type().is_ok_and(|t| t.is_file()) {
                let name = entry.file_name().to_string_lossy().into_owned();
                all.insert(name, std::fs::read(entry.path()).map_err(told)?);
            }
        }
        Ok(all)
    }
}

/// A value of one VM in the output.
fn of(said: &Value, name: &str, what: &str) -> f64 {
    let vm = vms(said).find(|vm| vm["name"] == name);
    vm.map_or(f64::NAN, |vm| vm[what].as_f64().unwrap_or(f64::NAN))
}

fn vms(said: &Value) -> impl Iterator<Item = &Value> {
    said["vms"].as_array().into_iter().flatten()
}

fn sum(said: &Value, what: &str) -> u64 {
    vms(said).filter_map(|vm| vm[what].as_u64()).sum()
}

/// The largest value; NaN if one is NaN.
fn worst(all: impl Iterator<Item = f64>) -> f64 {
    all.fold(0.0, |worst: f64, one| if one.is_nan() || one > worst { one } else { worst })
}
