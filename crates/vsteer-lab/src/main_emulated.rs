//! The command line of the emulated host: `vsteer-lab emulated run|kernels`, `vsteer-lab up emulated`.

use crate::{Output, UpArgs, number, own_program, print};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use vsteer_core::Fault;
use vsteer_lab::drive::Vsteer;
use vsteer_lab::emulated::{self, Options, Ran};
use vsteer_lab::fetch::cache_folder;
use vsteer_lab::fetch::kernels::{self, FullKernel, Which};
use vsteer_lab::image;
use vsteer_lab::interrupt;

/// What is asked of the emulated host.
#[derive(Subcommand)]
pub enum Emulated {
    /// Boot it, do a job, hand out recordings. Interrupting it cleans up.
    Run(Run),
    /// The oldest and the newest kernel offered that can be its kernel, fetched.
    Kernels {
        /// Ask the archive even for what the cache has.
        #[arg(long)]
        refresh: bool,
        #[command(flatten)]
        output: Output,
    },
}

/// One run.
#[derive(Args)]
pub struct Run {
    /// The job (TOML; scenarios/emulated has examples).
    job: PathBuf,
    /// Where results go; an earlier run's are replaced.
    #[arg(short, long)]
    output: PathBuf,
    /// The kernel: the oldest or newest of those that have what is needed, one of a series such as 6.18, or the distribution's
    /// own (whose scheduler may still be CFS).
    #[arg(long, value_name = "oldest|newest|own|SERIES", default_value = "newest")]
    kernel: Which,
    /// The most that it may take, s.
    #[arg(long, default_value_t = 600)]
    limit: u64,
    /// Decides what QEMU draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The guest program (static), if not where cargo puts it.
    #[arg(long)]
    guest: Option<PathBuf>,
    /// The observer, if not the vsteer beside this program.
    #[arg(long)]
    vsteer: Option<PathBuf>,
    #[command(flatten)]
    json: Output,
}

/// The job of `up emulated`: two VMs that share a pCPU.
const PAIR: &str = include_str!("../../../scenarios/emulated/pair.toml");

/// Executes the command.
///
/// # Errors
/// As the library's.
pub fn run(what: Emulated) -> Result<ExitCode, Fault> {
    match what {
        Emulated::Run(run) => {
            let own = own_program()?;
            let options = Options {
                cache: cache_folder()?,
                kernel: run.kernel,
                guest: run.guest.unwrap_or_else(|| image::find_guest(&own)),
                vsteer: run.vsteer.map_or_else(|| Vsteer::beside(&own).map(|v| v.program), Ok)?,
                output: std::path::absolute(&run.output)
                    .map_err(|e| Fault::io(format!("--output {}", run.output.display()), &e))?,
                limit: Duration::from_secs(run.limit),
                seed: run.seed,
            };
            let ran = emulated::run(&emulated::read_job(&run.job)?, &options)?;
            print(&run.json, &ran, || print_run(&ran));
        }
        Emulated::Kernels { refresh, output } => {
            interrupt::watch()?;
            let cache = cache_folder()?;
            let resolve = |which| kernels::resolve(&cache, which, kernels::FOR_EMULATED_HOST, refresh);
            let both = [resolve(Which::Oldest)?, resolve(Which::Newest)?];
            print(&output, &both, || both.iter().for_each(print_kernel));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Boots the emulated host with its first example, and keeps the recording.
///
/// # Errors
/// As the library's.
pub fn up(up: &UpArgs, json: Output) -> Result<ExitCode, Fault> {
    let own = own_program()?;
    let cache = cache_folder()?;
    let output = up.place.dir.clone().unwrap_or_else(|| cache.join("lab-emulated"));
    let options = Options {
        kernel: Which::Newest,
        guest: up.guest.clone().unwrap_or_else(|| image::find_guest(&own)),
        vsteer: Vsteer::beside(&own)?.program,
        output: std::path::absolute(&output)
            .map_err(|e| Fault::io(format!("--dir {}", output.display()), &e))?,
        limit: Duration::from_secs(600),
        seed: up.seed.unwrap_or(1),
        cache,
    };
    let ran = emulated::run(&emulated::job::Job::parse(PAIR)?, &options)?;
    print(&json, &ran, || {
        print_run(&ran);
        for recording in ran.cases.iter().filter_map(|c| c.recording.as_ref()) {
            println!("next: vsteer diagnose {}", recording.display());
        }
    });
    Ok(ExitCode::SUCCESS)
}

fn print_kernel(kernel: &FullKernel) {
    println!("Linux {}", kernel.release);
    for package in &kernel.packages {
        for file in &package.files {
            println!("  {} {} sha256 {}", package.name, package.version, file.sha256);
        }
    }
}

fn print_run(ran: &Ran) {
    print_kernel(&ran.kernel);
    println!(
        "{}, {} ns per instruction, seed {}, {:.0} s",
        ran.qemu, ran.ns_per_instruction, ran.seed, ran.took_s
    );
    for case in &ran.cases {
        let recording = case.recording.as_ref().map_or("not recorded".into(), |r| r.display().to_string());
        println!("\n{}: {recording}", case.name);
        for log in case.logs.values() {
            println!("  requests: {}", log.display());
        }
        if let Some(why) = &case.inexact {
            println!("  function only, no times: {why}");
        }
        for m in case.measured.iter().flatten() {
            let durations = m.window.response.or(m.window.lateness);
            let ms = |v: Option<f64>| v.map_or("-".into(), |v| format!("{v:.3}"));
            println!(
                "  {:16} {:30} {:>2} vCPUs {:>9} units/s  ms mean {:>8} p99 {:>8}",
                m.name,
                m.workload,
                m.vcpus,
                number(Some(m.window.work_units_per_s)),
                ms(durations.map(|d| d.mean_ms)),
                ms(durations.map(|d| d.p99_ms)),
            );
        }
    }
    println!("\nsha256 of all results: {}", ran.sha256);
}
