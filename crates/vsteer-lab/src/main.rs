//! The command line of the lab: its options, and how results are printed.
//!
//! Results go to standard output, as text or with `--json` as one JSON value. Progress and faults go to
//! standard error. The exit code is that of the fault's class. Everything else is in the library.

mod main_emulated;
mod main_xen;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};
use vsteer_lab::accel::{self, Accel};
use vsteer_lab::contention::spec::Spec;
use vsteer_lab::contention::{Lab, Options, Status, default_dir, down};
use vsteer_lab::fetch::{Fetcher, cache_folder};
use vsteer_lab::report::histogram::Summary;
use vsteer_lab::report::stamp;
use vsteer_lab::report::window::VmMeasured;
use vsteer_lab::suite::session;
use vsteer_lab::{case, demo, image, interrupt, keep, preflight, state, suite};

/// Disposable real VMs to try vsteer on.
#[derive(Parser)]
#[command(name = "vsteer-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// What does the lab need, and is it here?
    Preflight {
        #[command(flatten)]
        output: Output,
    },
    /// Fetch a package into the cache, without installing anything.
    Fetch {
        #[command(subcommand)]
        what: Fetch,
    },
    /// KVM or emulation? Decided by a trial boot of at most 5 s, once per boot of the host.
    Accel {
        /// Try again, whatever the cache says.
        #[arg(long)]
        again: bool,
        /// The guest program (static), if not where cargo puts it.
        #[arg(long)]
        guest: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// A real Xen in exact virtual time.
    Xen {
        #[command(subcommand)]
        what: main_xen::Xen,
    },
    /// A published vSphere testbed as the files that esxtop would have written there.
    Vsphere {
        /// The published tables.
        #[arg(long, default_value = "scenarios/vsphere/vdi.toml")]
        tables: PathBuf,
        /// The folder to write `esxtop.csv` and `host.toml` into.
        #[arg(short, long)]
        output: PathBuf,
    },
    /// A whole host with KVM guests, emulated in exact virtual time.
    Emulated {
        #[command(subcommand)]
        what: main_emulated::Emulated,
    },
    /// Bring a lab up. Interrupting it cleans up.
    Up {
        which: Which,
        #[command(flatten)]
        up: UpArgs,
        #[command(flatten)]
        output: Output,
    },
    /// The lab that is up: its VMs, its libvirt, its secret roles.
    Status {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        output: Output,
    },
    /// What the guests measured over a window: lateness, work, response times, stolen time.
    GuestReport {
        /// The window's beginning on the host's CLOCK_MONOTONIC, in s; when the workloads began, if not given.
        #[arg(long, conflicts_with = "last")]
        since: Option<f64>,
        /// The window's end, likewise; now, if not given.
        #[arg(long, conflicts_with = "last")]
        until: Option<f64>,
        /// The last so many seconds.
        #[arg(long)]
        last: Option<f64>,
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        output: Output,
    },
    /// Take the lab down: VMs, libvirt, cgroups, folders. Safe to repeat, also after a crash.
    Down {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        output: Output,
    },
    /// The whole loop on real VMs: observe, diagnose, plan, apply, observe, verify, report, take back.
    Demo {
        #[command(flatten)]
        up: UpArgs,
        /// Length of each observation, s.
        #[arg(long, default_value_t = 20)]
        duration: u64,
        /// Where recordings, plan and report go.
        #[arg(long, default_value = "demo")]
        output: PathBuf,
        #[command(flatten)]
        json: Output,
    },
    /// One short case per lab: what `make test` runs.
    Test {
        #[command(flatten)]
        up: UpArgs,
        #[command(flatten)]
        claims: ClaimsArg,
        #[command(flatten)]
        output: Output,
    },
    /// Every case, at the size at which its promise is made.
    All {
        #[command(flatten)]
        up: UpArgs,
        #[command(flatten)]
        claims: ClaimsArg,
        #[command(flatten)]
        output: Output,
    },
    /// The cases, and what each holds vsteer to.
    Cases,
    /// Run one case at its full size. Exit code 1 when a claim does not hold. `contention` tries the lab itself.
    Run {
        /// The case's name (see `cases`), or `contention`.
        which: String,
        /// At the size of `test` instead.
        #[arg(long)]
        short: bool,
        #[command(flatten)]
        up: UpArgs,
        #[command(flatten)]
        claims: ClaimsArg,
        /// For how long to measure, s.
        #[arg(long, default_value_t = 20)]
        duration: u64,
        #[command(flatten)]
        output: Output,
    },
    /// (internal) Run a command and reap its descendants.
    #[command(hide = true)]
    Keep {
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// (internal) Keep a pCPU busy: the planted culprit of the case `blame`.
    #[command(hide = true)]
    Hog {
        #[arg(long)]
        cpu: usize,
        #[arg(long)]
        seconds: u64,
    },
    /// (internal) Note when reports arrive.
    #[command(hide = true)]
    Stamp {
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Subcommand)]
enum Fetch {
    /// The distribution's current kernel for VMs.
    Kernel {
        /// Another package: a kernel, or one that depends on a kernel.
        package: Option<String>,
        #[command(flatten)]
        how: How,
    },
    /// A built package.
    Binary {
        package: String,
        #[command(flatten)]
        how: How,
    },
    /// A source package, unpacked and patched.
    Source {
        package: String,
        #[command(flatten)]
        how: How,
    },
}

#[derive(Args)]
struct How {
    /// Ask the archive even for what the cache has.
    #[arg(long)]
    refresh: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Output {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct ClaimsArg {
    /// Write every claim and what came of it into FILE, as TAP (testanything.org).
    #[arg(long, value_name = "FILE")]
    claims: Option<PathBuf>,
}

#[derive(Args)]
struct Place {
    /// The lab's folder [default: $VSTEER_LAB_DIR, else lab-contention in vsteer's cache].
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl Place {
    fn dir(&self) -> Result<PathBuf, Fault> {
        match &self.dir {
            Some(dir) => {
                std::path::absolute(dir).map_err(|e| Fault::io(format!("--dir {}", dir.display()), &e))
            }
            None => default_dir(),
        }
    }
}

#[derive(Args)]
struct UpArgs {
    /// Decides names, order and sizes; drawn if not given, and printed.
    #[arg(long)]
    seed: Option<u64>,
    /// The VMs: KIND[(key=value;...)] and :N or =NxM (N VMs with M vCPUs). Kinds: idle, burn, periodic, server,
    /// burst, sleeper, flood, waker.
    #[arg(long, default_value = "burn:2,periodic:2")]
    vms: String,
    #[command(flatten)]
    place: Place,
    /// Do not try, use this.
    #[arg(long)]
    accel: Option<AccelArg>,
    /// The package that is or leads to the kernel [default: the distribution's own for VMs].
    #[arg(long)]
    kernel: Option<String>,
    /// The guest program (static), if not where cargo puts it.
    #[arg(long)]
    guest: Option<PathBuf>,
}

impl UpArgs {
    fn options(&self) -> Result<Options, Fault> {
        let mut options = Options::new(&own_program()?)?;
        options.dir = self.place.dir()?;
        options.seed = self.seed;
        options.spec = self.vms.parse::<Spec>()?;
        options.accel = self.accel.map(|a| match a {
            AccelArg::Kvm => Accel::Kvm,
            AccelArg::Tcg => Accel::Tcg,
        });
        options.kernel_package = self.kernel.clone();
        if let Some(guest) = &self.guest {
            options.guest = guest.clone();
        }
        Ok(options)
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum AccelArg {
    Kvm,
    Tcg,
}

#[derive(Clone, Copy, ValueEnum)]
enum Which {
    /// VMs that wait for CPUs.
    Contention,
    /// A whole host in exact virtual time: boots, records a small job (see `emulated run`), and powers off.
    Emulated,
}

fn main() -> ExitCode {
    // The case `hostile` starts this program as its attackers, under other names, and `many` as its VMs.
    if let Some(code) = suite::hostile::actor::play().or_else(suite::many::stand_in::play) {
        return code;
    }
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(fault) => {
            eprintln!("error: {fault}");
            ExitCode::from(fault.kind.exit_code())
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Fault> {
    match command {
        Command::Preflight { output } => check_needs(&output)?,
        Command::Fetch { what } => fetch(what)?,
        Command::Emulated { what } => return main_emulated::run(what),
        Command::Xen { what } => return main_xen::run(what),
        Command::Vsphere { tables, output } => {
            let file = vsteer_lab::vsphere::Tables::read(&tables)?.write_before(&output)?;
            eprintln!("vsteer-lab: wrote {}", file.display());
        }
        Command::Accel { again, guest, output } => decide_accel(again, guest, &output)?,
        Command::Up { which: Which::Contention, up, output } => {
            let status = Lab::up(&Options { owner: None, ..up.options()? })?.status();
            print(&output, &status, || {
                println!("up: {} VMs, seed {}, {}", status.vms.len(), status.seed, status.accel.accel);
                println!("libvirt: {}", status.uri);
                println!("next: vsteer-lab status | guest-report --last 20 | down");
            });
        }
        Command::Up { which: Which::Emulated, up, output } => return main_emulated::up(&up, output),
        Command::Status { place, output } => {
            let status = Lab::open(&place.dir()?)?.status();
            print(&output, &status, || print_status(&status));
        }
        Command::GuestReport { since, until, last, place, output } => {
            let now_ns = vsteer_lab::report::clock::now_ns();
            let ns = |s: f64| (s.max(0.0) * 1e9) as u64;
            let lab = Lab::open(&place.dir()?)?;
            let asked_ns = last.map(|s| now_ns.saturating_sub(ns(s))).or(since.map(ns));
            let since_ns = asked_ns.or(lab.state().begun_ns).unwrap_or(0);
            let vms = lab.window(since_ns, until.map_or(now_ns, ns));
            print(&output, &vms, || print_windows(&vms));
        }
        Command::Down { place, output } => take_down(&place, &output)?,
        Command::Test { up, claims, output } => {
            return run_cases(&up, &output, &claims, false, &suite::in_test());
        }
        Command::All { up, claims, output } => {
            let all: Vec<&suite::Case> = suite::CASES.iter().collect();
            return run_cases(&up, &output, &claims, true, &all);
        }
        Command::Cases => print_cases(),
        Command::Run { which, short, up, claims, output, .. } if which != "contention" => {
            return run_cases(&up, &output, &claims, !short, &[case_of(&which)?]);
        }
        Command::Run { up, duration, output, .. } => return run_contention(&up, duration, &output),
        Command::Demo { up, duration, output, json } => {
            let (lab, window) = (up.options()?, Duration::from_secs(duration));
            let shown = demo::demo(&demo::Show { lab, window, output, strict: false })?;
            print(&json, &shown, || print_demo(&shown));
            return Ok(passed_or_failed(shown.passed));
        }
        Command::Keep { command } => keep::run(&command)?,
        Command::Hog { cpu, seconds } => suite::hog(cpu, Duration::from_secs(seconds))?,
        Command::Stamp { place } => stamp_reports(&place)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn passed_or_failed(passed: bool) -> ExitCode {
    ExitCode::from(if passed { 0 } else { FaultKind::Failed.exit_code() })
}

fn check_needs(output: &Output) -> Result<(), Fault> {
    let needs = preflight::look();
    print(output, &needs, || {
        for need in &needs {
            let found = need.found.as_ref().map_or("MISSING".into(), |f| f.display().to_string());
            println!("{:24} {:28} {found}", need.program, need.package);
        }
    });
    preflight::require(&needs)
}

fn decide_accel(again: bool, guest: Option<PathBuf>, output: &Output) -> Result<(), Fault> {
    interrupt::watch()?;
    let emulator = accel::emulator()?;
    let guest = guest.map_or_else(|| own_program().map(|p| image::find_guest(&p)), Ok)?;
    let cache = cache_folder()?;
    let kernel = Fetcher::of_system(&cache, false).kernel()?;
    let decision = accel::decide(&cache, &emulator, &kernel.vmlinuz, &image::read_guest(&guest)?, again)?;
    print(output, &decision, || println!("{}: {}", decision.accel, decision.reason));
    Ok(())
}

fn take_down(place: &Place, output: &Output) -> Result<(), Fault> {
    let down = down::down(&place.dir()?)?;
    print(output, &down, || match down.was_there {
        true => println!("down: {} processes ended", down.processes_ended),
        false => println!("there was no lab"),
    });
    if !down.leftovers.is_empty() {
        return Err(Fault::new(FaultKind::Failed, "the lab left something behind")
            .because(format!("{:?}", down.leftovers)));
    }
    Ok(())
}

/// The case with this name.
fn case_of(name: &str) -> Result<&'static suite::Case, Fault> {
    suite::CASES.iter().chain(suite::PARTS).find(|c| c.name == name).ok_or_else(|| {
        Fault::new(FaultKind::Usage, format!("there is no case {name:?}")).help("vsteer-lab cases lists them")
    })
}

fn run_contention(up: &UpArgs, duration_s: u64, output: &Output) -> Result<ExitCode, Fault> {
    let outcome = case::contention(&up.options()?, Duration::from_secs(duration_s))?;
    print(output, &outcome, || {
        print_windows(&outcome.vms);
        println!("up {:.1} s, down {:.1} s, seed {}", outcome.up_s, outcome.down_s, outcome.seed);
        outcome.checks.iter().for_each(|c| println!("{c}"));
    });
    Ok(passed_or_failed(outcome.passed))
}

/// Stamps reports of the lab's VMs until it is ended.
fn stamp_reports(place: &Place) -> Result<(), Fault> {
    let dir = place.dir()?;
    let state = state::read(&dir)?
        .ok_or_else(|| Fault::new(FaultKind::NothingThere, format!("no lab in {}", dir.display())))?;
    let vms: Vec<String> = state.vms.iter().map(|v| v.name.clone()).collect();
    stamp::run(&dir, &state.token, &vms)
}

fn fetch(what: Fetch) -> Result<(), Fault> {
    interrupt::watch()?;
    let cache = cache_folder()?;
    let fetcher = |how: &How| Fetcher::of_system(&cache, how.refresh);
    let (package, output) = match what {
        Fetch::Kernel { package, how } => {
            let kernel = match package {
                Some(package) => fetcher(&how).kernel_from(&package)?,
                None => fetcher(&how).kernel()?,
            };
            print(&how.output, &kernel, || println!("{}", kernel.vmlinuz.display()));
            return Ok(());
        }
        Fetch::Binary { package, how } => (fetcher(&how).binary(&package)?, how.output),
        Fetch::Source { package, how } => (fetcher(&how).source(&package)?, how.output),
    };
    print(&output, &package, || println!("{}", package.tree.display()));
    Ok(())
}

fn own_program() -> Result<PathBuf, Fault> {
    std::env::current_exe().map_err(|e| Fault::io("finding vsteer-lab's own program file", &e))
}

fn print<T: Serialize>(output: &Output, value: &T, as_text: impl FnOnce()) {
    if output.json {
        println!("{}", serde_json::to_string_pretty(value).expect("results are plain data"));
    } else {
        as_text();
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or("-".into(), |v| format!("{v:.1}"))
}

fn print_status(status: &Status) {
    println!(
        "uri {}\nseed {} accel {} ({})",
        status.uri, status.seed, status.accel.accel, status.accel.reason
    );
    println!(
        "{:20} {:>7} {:>6} {:>8} {:>7} {:>9}  secret workload",
        "VM", "pid", "vCPUs", "MiB", "boot s", "report s"
    );
    for v in &status.vms {
        println!(
            "{:20} {:>7} {:>6} {:>8} {:>7} {:>9}  {}",
            v.vm.name,
            v.pid.map_or("-".into(), |p| p.to_string()),
            v.vm.vcpus,
            v.vm.memory_mib,
            number(v.vm.boot_s),
            number(v.last_report_age_s),
            v.vm.workload
        );
    }
}

fn print_windows(vms: &[VmMeasured]) {
    println!(
        "{:20} {:9} {:>8} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7}",
        "VM", "workload", "window s", "units/s", "n", "mean ms", "p50 ms", "p99 ms", "max ms", "steal%"
    );
    for vm in vms {
        let kind = vm.workload.split(',').next().unwrap_or_default();
        let Some(w) = &vm.window else {
            println!("{:20} {kind:9} absent: {}", vm.vm, vm.absent.as_deref().unwrap_or_default());
            continue;
        };
        // A server's response times are what its users feel; for other workloads, the lateness of timers.
        let durations = w.response.or(w.lateness);
        let ms = |of: fn(&Summary) -> f64| durations.as_ref().map_or("-".into(), |d| format!("{:.2}", of(d)));
        println!(
            "{:20} {kind:9} {:>8.1} {:>9.0} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7}",
            vm.vm,
            w.window_s,
            w.work_units_per_s,
            durations.map_or("-".into(), |d| d.n.to_string()),
            ms(|d| d.mean_ms),
            ms(|d| d.p50_ms),
            ms(|d| d.p99_ms),
            ms(|d| d.max_ms),
            number(w.steal_percent)
        );
    }
}

fn print_cases() {
    println!("{:20} {:>10} {:>9}  what it claims", "case", "short min", "full min");
    for c in suite::CASES.iter().chain(suite::PARTS) {
        println!("{:20} {:>10.1} {:>9.1}  {}", c.name, c.minutes.short, c.minutes.full, c.doc);
    }
}

/// Runs these cases; exit code 1 if a claim failed or nothing was judged.
fn run_cases(
    up: &UpArgs,
    output: &Output,
    claims: &ClaimsArg,
    full: bool,
    cases: &[&suite::Case],
) -> Result<ExitCode, Fault> {
    interrupt::watch()?;
    let lab = up.options()?;
    let bench = suite::Bench { output: cache_folder()?.join("cases"), seed: up.seed.unwrap_or(1), lab, full };
    let tell = |one: &session::Ran| {
        one.findings.checks.iter().for_each(|c| eprintln!("{} {}: {}", c.word(), one.case, c.told()));
        if let Some(fault) = &one.fault {
            eprintln!("FAIL {}: {fault}", one.case);
        }
        let (took, stated) = (one.took_s / 60.0, one.stated_min);
        eprintln!("vsteer-lab: case {} took {took:.1} min of the {stated:.1} that it states", one.case);
        if let Some(warning) = one.warning() {
            eprintln!("vsteer-lab: warning: {warning}");
        }
    };
    let ran = session::run_all(cases, &bench, &tell)?;
    if let Some(file) = &claims.claims {
        session::write_claims(&ran, &bench, file)?;
    }
    let sums = session::Sums::of(&ran);
    print(output, &ran, || println!("{sums}"));
    Ok(passed_or_failed(sums.failed == 0 && sums.passed > 0))
}

fn print_demo(shown: &demo::Demo) {
    let percent = |v: Option<f64>| v.map_or("-".into(), |v| format!("{:.1}", 100.0 * v));
    let late = |v: &demo::Seen| v.lateness_ms.map_or("-".into(), |l| format!("{:.2} / {:.1}", l.mean, l.p99));
    // A periodic VM works for no time, so its rate is not a measure.
    let work = |v: &demo::Seen| match v.work_units_per_s {
        Some(rate) if rate >= 0.5 => format!("{rate:.0}"),
        _ => "-".to_owned(),
    };
    println!("\n{}  (seed {}, {})", shown.plan_title, shown.seed, shown.spec);
    println!(
        "{:<18} {:<10} {:>18} {:>22} {:>24}",
        "VM", "workload", "ready % per vCPU", "late ms mean / p99", "work units/s"
    );
    for b in &shown.before {
        let Some(a) = shown.after.iter().find(|a| a.vm == b.vm) else { continue };
        println!(
            "{:<18} {:<10} {:>8} -> {:>6} {:>14} -> {:>14} {:>10} -> {:>10}",
            b.vm,
            b.workload.split([',', '(']).next().unwrap_or_default(),
            percent(b.ready_share),
            percent(a.ready_share),
            late(b),
            late(a),
            work(b),
            work(a),
        );
    }
    shown.checks.iter().for_each(|c| println!("{c}"));
    println!("report: {}", shown.report.display());
}
