//! The command line of the emulated Xen: `vsteer-lab xen run`.

use crate::{Output, own_program, print};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use vsteer_core::Fault;
use vsteer_lab::fetch::cache_folder;
use vsteer_lab::image;
use vsteer_lab::xen::results::Shares;
use vsteer_lab::xen::{self, Options, Ran, job::Job};

/// What is asked of the emulated Xen.
#[derive(Subcommand)]
pub enum Xen {
    /// Boot it, do a job, hand out traces. Interrupting it cleans up.
    Run(Run),
}

/// One run.
#[derive(Args)]
pub struct Run {
    /// The job (TOML; scenarios/xen has examples).
    job: PathBuf,
    /// Where results go; an earlier run's are replaced.
    #[arg(short, long)]
    output: PathBuf,
    /// The most that it may take, s.
    #[arg(long, default_value_t = 900)]
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

/// Executes the command.
///
/// # Errors
/// As the library's.
pub fn run(what: Xen) -> Result<ExitCode, Fault> {
    let Xen::Run(run) = what;
    let own = own_program()?;
    let options = Options {
        cache: cache_folder()?,
        guest: run.guest.unwrap_or_else(|| image::find_guest(&own)),
        vsteer: run.vsteer.unwrap_or_else(|| own.with_file_name("vsteer")),
        output: std::path::absolute(&run.output)
            .map_err(|e| Fault::io(format!("--output {}", run.output.display()), &e))?,
        limit: Duration::from_secs(run.limit),
        seed: run.seed,
    };
    let text = std::fs::read_to_string(&run.job)
        .map_err(|e| Fault::io(format!("reading {}", run.job.display()), &e))?;
    let job =
        Job::parse(&text).map_err(|e| Fault { what: format!("{}: {}", run.job.display(), e.what), ..e })?;
    let ran = xen::run(&job, &options)?;
    print(&run.json, &ran, || print_run(&ran));
    Ok(ExitCode::SUCCESS)
}

fn print_run(ran: &Ran) {
    println!(
        "Xen, {}, {}, seed {}, {:.0} s",
        ran.scheduler,
        ran.ns_per_instruction
            .map_or("by the clock on the wall".to_owned(), |ns| format!("{ns} ns per instruction")),
        ran.seed,
        ran.took_s
    );
    for case in &ran.cases {
        println!("\n{}: {} ({} records lost)", case.name, case.trace.display(), case.lost);
        println!(
            "  {:14} {:34} {:>27}  {:>27} {:>8} {:>9}",
            "", "", "by trace: run ready blk off", "by itself: run ready blk off", "disp/s", "p99, ms"
        );
        let cells = |s: &Shares| {
            let percent = |x: f64| format!("{:6.2}", 100.0 * x);
            [s.run, s.ready, s.blocked, s.offline].map(percent).join(" ")
        };
        for d in &case.linux {
            for (i, shares) in d.traced.iter().enumerate() {
                println!(
                    "  {:14} {:34} {}",
                    d.name,
                    format!("vCPU {i}, {}", d.console.display()),
                    cells(shares)
                );
            }
        }
        for d in &case.domains {
            println!(
                "  {:14} {:34} {}  {} {:>8.1} {:>9}",
                d.name,
                d.workload,
                cells(&d.traced),
                cells(&d.own),
                d.dispatches_per_s,
                d.wake_p99_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.3}")),
            );
        }
    }
}
