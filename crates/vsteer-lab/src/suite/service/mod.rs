//! Cases about service levels on the emulated host: three servers on one pCPU whose load follows a schedule,
//! and a log of every request.
//!
//! ```text
//! estimators   the errors of the estimators of response times, interval by interval
//! local        the same on real VMs, in wall-clock time
//! control      does the controller keep levels that were missed without it?
//! kill         if it is killed, do the former weights return? (real VMs, real libvirt)
//! soak         twenty minutes of the controller: loads shift, a VM goes and comes, logs rotate
//! moving       if no weights help, is the right VM moved? (real VMs, two real libvirts)
//! ```
//! The published intervals and rates are those of E. Yang, H. Choi, S. Han, S. Park, "A Priority Allocation
//! Scheme Considering Virtual Machine Scheduling Delays in Xen Environments", J. KIISE 37(4), 2010: a
//! CPU-bound page of 6.6 ms on two VMs and of 1.7 ms on the third.

pub mod control;
pub mod estimators;
pub mod kill;
pub mod moving;
pub mod soak;

use super::Bench;
use crate::contention::Lab;
use crate::emulated::job::Job;
use crate::emulated::{self, Options, Ran};
use crate::fetch::cache_folder;
use crate::fetch::kernels::{FullKernel, Which};
use crate::libvirtd;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use vsteer_core::Fault;

/// Parallel boots: one pCPU of this machine emulates one.
const BESIDE: usize = 2;
const LIMIT: Duration = Duration::from_secs(3000);
/// Work units of 20.6 us each that, with leaving and entering the VM, make up 6.6 and 1.7 ms.
const UNITS_PUBLISHED: [u32; 3] = [320, 320, 83];

/// One server: its rates by interval, and the kind of its requests.
#[derive(Debug, Clone, Copy)]
struct Server {
    name: &'static str,
    rates_hz: &'static [u32],
    mean_units: u32,
    service: &'static str,
}

/// The VMs of a case in the job's form; `more` follows each workload.
fn servers(all: &[Server], intervals_s: &[u32], more: &str, seed: u64) -> String {
    let mut text = String::new();
    for (i, s) in all.iter().enumerate() {
        let rates: Vec<String> =
            s.rates_hz.iter().zip(intervals_s).map(|(r, t)| format!("{r}@{t}")).collect();
        let _ = write!(
            text,
            "[[case.vm]]\nname = \"{}\"\nworkload = \"server,rates={},mean_units={},service={},seed={}{more}\"\ncpus = \"1\"\n",
            s.name,
            rates.join("/"),
            s.mean_units,
            s.service,
            100 * seed + i as u64
        );
    }
    text
}

/// Pins all threads of a lab's VMs to a pCPU.
fn keep_on(lab: &Lab, pcpu: &str) -> Result<(), Fault> {
    for vm in &lab.state().vms {
        for vcpu in 0..vm.vcpus {
            libvirtd::virsh(lab.dir(), &["vcpupin", &vm.name, &vcpu.to_string(), pcpu, "--live"])?;
        }
        libvirtd::virsh(lab.dir(), &["emulatorpin", &vm.name, pcpu, "--live"])?;
    }
    Ok(())
}

/// Runs jobs, two at a time; returns the results in their order.
fn boot_all(bench: &Bench, kernel: &FullKernel, jobs: &[(String, Job)]) -> Result<Vec<Ran>, Fault> {
    let vsteer = crate::drive::Vsteer::beside(&bench.lab.program)?.program;
    let boot = |(name, job): &(String, Job)| -> Result<Ran, Fault> {
        let options = Options {
            cache: cache_folder()?,
            kernel: Which::Newest,
            guest: bench.lab.guest.clone(),
            vsteer: vsteer.clone(),
            output: PathBuf::from(bench.fresh(name)?),
            limit: LIMIT,
            seed: bench.seed,
        };
        emulated::run_on(kernel.clone(), job, &options)
    };
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<Ran, Fault>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..BESIDE {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = jobs.get(i) else { return };
                    eprintln!("vsteer-lab: {} ({} of {})", one.0, i + 1, jobs.len());
                    let ran = boot(one);
                    let failed = ran.is_err();
                    done.lock().expect("nobody panics with it").push((i, ran));
                    if failed {
                        next.store(jobs.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().expect("nobody panics with it");
    done.sort_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, ran)| ran).collect()
}
