//! What can be said on the command line. The manual pages and the completions are made from this.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use vsteer_host::vsphere::Statistics;

/// Shows, predicts and removes the time that virtual machines wait for a CPU.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 110,
    after_help = "Exit codes: see `vsteer help exit-codes`. Read-only is the default \
everywhere; only `apply`, `steer --yes`, `realtime --yes`, `experiment --yes` and `rollback` change anything."
)]
pub struct Cli {
    /// Print results as JSON on standard output; progress and messages stay on standard error.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Live table of VMs, vCPUs, pCPUs and nodes, as esxtop shows them.
    Top(Top),
    /// Record raw samples to a folder that survives a crash or a full disk.
    Record(Record),
    /// Show a recording as `top` would have shown it.
    Replay(Replay),
    /// Write a recording in another format.
    Export(Export),
    /// Say who makes whom wait, and why: findings, worst first, with evidence.
    Diagnose(Diagnose),
    /// Propose the changes that remove the delay, each with what is expected of it. Changes nothing.
    Plan(PlanArgs),
    /// Which VM belongs on which NUMA node, and how many sockets and cores its guest should be shown.
    Numa(Numa),
    /// Make the changes of a plan. Without --yes or --try: shows what would be done.
    Apply(Apply),
    /// Take back what `apply` did, also after a crash.
    Rollback(Rollback),
    /// Say whether things are better, worse or no different between two recordings.
    Verify(Verify),
    /// What if? Simulate a scenario: hosts, VMs, workloads and a scheduler from a file. Touches no host.
    Simulate(Simulate),
    /// How many more VMs of a kind fit on the host, and on each node, before a level breaks. Simulated.
    Headroom(Headroom),
    /// How long will requests take in the next interval? From access logs or Prometheus histograms and a recording, by several
    /// estimators, beside what clients then saw.
    Estimate(Estimate),
    /// Keep every VM inside its service level by setting weights, or say what to move. Without --yes: says what it would do.
    Steer(Steer),
    /// Let real-time guests run when they wake, or when their timers end, without patching host or guest.
    Realtime(Realtime),
    /// One HTML file: findings, timelines, blame matrix, plan and verdict.
    Report(Report),
    /// Is this host, or this guest, set up for VMs? Three states per setting, with the reason, the change and its undo.
    Audit(Audit),
    /// Which setting really helps on this host, by how much, and how sure: run settings fairly and often enough, and say.
    Experiment(Experiment),
    /// Print the host's topology as vsteer reads it.
    Topology(TopologyArgs),
    /// Print shell completions.
    Completions {
        /// For which shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder.
    Man {
        /// The folder.
        folder: PathBuf,
    },
    /// The exit codes and their meanings.
    ExitCodes,
    /// Runs `vsteer-NAME`: `lab`, `demo` and whatever else is installed beside this program.
    #[command(external_subcommand)]
    Other(Vec<String>),
}

/// How samples are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CollectorChoice {
    /// eBPF where the kernel allows it, else polling, saying why.
    Auto,
    /// Measured in the kernel: all states, lag, overlap, blame. Needs root.
    Ebpf,
    /// Polling /proc: run and wait only. Needs no privilege beyond reading.
    Schedstat,
    /// Xen, where no trace is wanted: vCPUs are looked at some fifty times a second. Run is exact, ready and blocked are estimated
    /// (1.6 points after 12 s at 20 % ready), of a domain with a cap only ready and limited together.
    Sampled,
}

/// Where to look.
#[derive(Debug, Clone, Args)]
pub struct Source {
    /// libvirt connection URI (`qemu:///system`, …), a Xen host (`xen:`, `xen+ssh://root@host`) or a vSphere
    /// (`vsphere://USER@ESXI`, `vsphere://USER@VCENTER/ESXI`; untried on a real one); without it: every VM of this host, libvirt
    /// or not, or in a Xen Domain-0 its domains.
    #[arg(long, value_name = "URI")]
    pub connect: Option<String>,
    /// How samples are taken.
    #[arg(long, value_enum, default_value = "auto")]
    pub collector: CollectorChoice,
    /// Only VMs of this name (may be given again).
    #[arg(long = "vm", value_name = "NAME")]
    pub vms: Vec<String>,
    /// With --connect vsphere://: which of the counters that it keeps are read: those of the last hour, every 20s, or its statistics of
    /// every 5m, 30m, 2h or 24h (a day, a week, a month, a year of them). The last --for of them is read at once: nothing is waited for.
    #[arg(long, value_name = "INTERVAL", default_value = "20s", value_parser = statistics)]
    pub statistics: Statistics,
    /// How a vSphere is logged in to.
    #[command(flatten)]
    pub login: Login,
}

impl Source {
    /// All VMs of this URI, sampled as is best.
    pub fn at(connect: Option<&str>) -> Source {
        Source {
            connect: connect.map(str::to_owned),
            collector: CollectorChoice::Auto,
            vms: Vec::new(),
            statistics: Statistics::RealTime,
            login: Login::default(),
        }
    }
}

/// How a vSphere is logged in to, beside the URI.
#[derive(Debug, Clone, Default, Args)]
pub struct Login {
    /// With --connect vsphere://: the file whose first line is the password; `-`: standard input. Without it: the kernel's keyring
    /// (`keyctl padd user vsteer:vsphere://USER@HOST:443 @u`), else a prompt.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// With --connect vsphere://: trust the authorities in this PEM file in place of the system's.
    #[arg(long, value_name = "FILE", conflicts_with = "thumbprint")]
    pub ca: Option<PathBuf>,
    /// With --connect vsphere://: trust the one certificate with this SHA-256 thumbprint.
    #[arg(long, value_name = "SHA256")]
    pub thumbprint: Option<String>,
}

fn statistics(text: &str) -> Result<Statistics, String> {
    let names: Vec<&str> = Statistics::ALL.iter().map(|(_, name)| *name).collect();
    let found = Statistics::ALL.iter().find(|(_, name)| *name == text).map(|(of, _)| *of);
    found.ok_or_else(|| format!("{text:?} is none of {}", names.join(", ")))
}

/// A recording, or the live host.
#[derive(Debug, Clone, Args)]
pub struct Window {
    /// A recording: a folder of `vsteer record`, a batch file of `esxtop -b` (.csv, .csv.gz), or a saved xentrace; without it
    /// the live host is observed.
    #[arg(value_name = "RECORDING")]
    pub recording: Option<PathBuf>,
    /// How long to observe the live host; of a vSphere, how much of what it kept is read.
    #[arg(long = "for", value_name = "TIME", default_value = "20s", value_parser = duration)]
    pub length: std::time::Duration,
    /// Only the part of the recording around this time of day or date (`03:12`, `2026-11-21T03:12:05`, UTC).
    #[arg(long, value_name = "TIME", requires = "recording")]
    pub at: Option<String>,
    /// With --at: how much around it.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration, requires = "at")]
    pub around: std::time::Duration,
    /// Where to look.
    #[command(flatten)]
    pub source: Source,
}

/// `vsteer top`.
#[derive(Debug, Args)]
pub struct Top {
    /// A recording (folder, esxtop's batch file, Xen's trace) to be played, an update for each --interval of it; without it the live host.
    #[arg(value_name = "RECORDING")]
    pub recording: Option<PathBuf>,
    /// Batch mode: print rows instead of the live table (CSV, or JSON lines with --json).
    #[arg(short, long)]
    pub batch: bool,
    /// Time between two updates.
    #[arg(short, long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub interval: std::time::Duration,
    /// Stop after so many updates.
    #[arg(short = 'n', long, value_name = "N")]
    pub updates: Option<u64>,
    /// Where to look.
    #[command(flatten)]
    pub source: Source,
}

/// `vsteer record`.
#[derive(Debug, Args)]
pub struct Record {
    /// The folder to make; `NAME.vsteer` by custom.
    #[arg(short, long, value_name = "FOLDER")]
    pub output: PathBuf,
    /// Stop after this time; without it: at Ctrl-C.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub length: Option<std::time::Duration>,
    /// Time between two samples, at most a minute; a crash loses as much.
    #[arg(short, long, value_name = "TIME", default_value = "200ms", value_parser = duration)]
    pub interval: std::time::Duration,
    /// Flight recorder: keep about the newest so many bytes (`2G`, `500M`).
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub ring: Option<u64>,
    /// Mark the moment when any VM fulfils this, and keep what lies around it from the ring's turn (may be given
    /// again): `ready_p99>20ms`, `limited>5% and ready>1%`; also ready_p50, _p95, _max, wake_p99, lag, wait, run.
    #[arg(long, value_name = "CONDITION")]
    pub trigger: Vec<vsteer_core::trigger::Trigger>,
    /// With --trigger: the sliding window that conditions are judged on.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration, requires = "trigger")]
    pub trigger_window: std::time::Duration,
    /// With --trigger: after a mark, how long the same condition of the same VM makes no other.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration, requires = "trigger")]
    pub trigger_quiet: std::time::Duration,
    /// Record every context switch too (12 bytes each; needs eBPF): who ran where, for `report` and `export`.
    #[arg(long)]
    pub events: bool,
    /// With --events: room in the kernel for switches that were not yet read (a power of two).
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "8M", requires = "events")]
    pub event_buffer: u64,
    /// Also record with the polling collector, at the same moments, into this folder: the two check each other.
    #[arg(long, value_name = "FOLDER")]
    pub second: Option<PathBuf>,
    /// Where to look.
    #[command(flatten)]
    pub source: Source,
}

/// `vsteer replay`.
#[derive(Debug, Args)]
pub struct Replay {
    /// The recording: a folder, or a file of esxtop's or xentrace's.
    pub recording: PathBuf,
    /// List the moments that `record --trigger` marked instead.
    #[arg(long)]
    pub marks: bool,
    /// Time between two rows.
    #[arg(short, long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub interval: std::time::Duration,
}

/// Formats of `vsteer export`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One Parquet file per table, in a folder.
    Parquet,
    /// One CSV file per table, in a folder.
    Csv,
    /// A trace that ui.perfetto.dev opens: shares as counters, and who ran where if switches were recorded.
    Perfetto,
    /// A batch file as `esxtop -b` writes it, for the tools that read those; `.csv` or `.csv.gz`.
    Esxtop,
    /// The recording as one file, for sending.
    Zip,
}

/// `vsteer export`.
#[derive(Debug, Args)]
pub struct Export {
    /// The recording.
    pub recording: PathBuf,
    /// The format.
    #[arg(long, value_enum)]
    pub to: Format,
    /// The file or folder to make.
    #[arg(short, long)]
    pub output: PathBuf,
}

/// `vsteer diagnose`.
#[derive(Debug, Args)]
pub struct Diagnose {
    /// Another threshold in place of the public one, in percent: `ready_group=8%`; `ready_per_vcpu`, `ready_group`,
    /// `costop_per_vcpu`, `costop_group`, `lag_group`, `limited_per_vcpu`, `memory_local`, ... (may be given again).
    #[arg(long, value_name = "NAME=PERCENT", value_parser = named_percent)]
    pub threshold: Vec<(String, f64)>,
    /// What to look at.
    #[command(flatten)]
    pub window: Window,
}

/// Where a plan's changes take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScopeChoice {
    /// In the running VMs only.
    Live,
    /// In the definitions only.
    Persistent,
    /// In both.
    Both,
}

/// `vsteer plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// What to look at.
    #[command(flatten)]
    pub window: Window,
    /// Write the plan here, for `apply`.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Consider this action only, even where it breaks the limits (`unpin`, `node`, `weights`, `realtime`, `separate`; only when named: `quota`, `topology`, `pool`, `pin`).
    #[arg(long, value_name = "ACTION")]
    pub only: Option<String>,
    /// A change of your own in place of vsteer's: what it would do is foretold, and `apply` makes it. `web:weight=512`,
    /// `web:limit=1.5|none` (pCPUs), `web:pin=0-3|any`, `web:prefer=0-7|any` (Xen's soft affinity), `web:budget=4ms/10ms` (Xen's RTDS;
    /// untried); `pin.2=` is vCPU 2 alone. On vSphere also `web:limit=2000MHz`, `web:reservation=500MHz`, `web:nodes=0|any`,
    /// `web:cores-per-socket=6`, `web:latency=high`, and `weight` is its shares. May be given again.
    #[arg(long = "set", value_name = "VM:WHAT=VALUE", conflicts_with = "only")]
    pub set: Vec<vsteer_core::plan::set::Setting>,
    /// Where the changes take effect; live, unless said otherwise, and on vSphere, which keeps every setting with the VM, both.
    #[arg(long, value_enum)]
    pub scope: Option<ScopeChoice>,
    /// Most work that any VM may lose, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    pub work_loss: f64,
    /// With --only pin: what it costs a vCPU to be moved to another core, in microseconds. Otherwise the caches that each core has to itself, filled again.
    #[arg(long, value_name = "US", requires = "only", value_parser = microseconds)]
    pub move_cost_us: Option<f64>,
    /// How forecasts are made.
    #[arg(long, value_enum, default_value = "auto")]
    pub by: Method,
    /// How the plan is printed.
    #[arg(long, value_enum, default_value = "text")]
    pub format: PlanFormat,
}

/// `vsteer numa`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vsteer numa esxtop.csv.gz\n  vsteer numa --connect vsphere://root@esx1 --password-file F\n  vsteer numa --host 2x18 --host-memory 384G --vcpus 12 --memory 16G \
--esxi 7.0.2\n\nNodes: what VMs want of each (run, ready, co-stop), bursts included, beside the published flowchart by the letter. \
Sockets: by the paper's algorithm as printed (doi:10.6109/jkiice.2022.26.10.1432) and by vsteer's own. What ESXi makes of it \
is from VMware's documents: untried on a real one."
)]
pub struct Numa {
    /// What to look at.
    #[command(flatten)]
    pub window: Window,
    /// A host that is only described: sockets x cores of each, such as 2x18.
    #[arg(long, value_name = "SxC", value_parser = sockets_by_cores, conflicts_with = "recording", requires = "vcpus")]
    pub host: Option<(u32, u32)>,
    /// With --host: its memory.
    #[arg(long, value_name = "BYTES", value_parser = bytes, requires = "host")]
    pub host_memory: Option<u64>,
    /// With --host: NUMA nodes of each socket.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub nodes_per_socket: u32,
    /// With --host: hyper-threads of each core.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub threads: u32,
    /// With --host: the VM's vCPUs.
    #[arg(long, value_name = "N", requires = "host", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub vcpus: Option<u32>,
    /// With --host: the VM's memory.
    #[arg(long, value_name = "BYTES", value_parser = bytes, requires = "host")]
    pub memory: Option<u64>,
    /// ESXi's version, where it is not told.
    #[arg(long, value_name = "VERSION")]
    pub esxi: Option<String>,
    /// Cores per socket now, where they are not told.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub cores_per_socket: Option<u32>,
    /// CPU hot add is on.
    #[arg(long)]
    pub hot_add: bool,
    /// numa.vcpu.preferHT is set: a node holds as many vCPUs as it has hyper-threads.
    #[arg(long)]
    pub prefer_ht: bool,
    /// numa.vcpu.min, where it is not 9.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub vcpu_min: Option<u32>,
    /// numa.vcpu.followcorespersocket is set.
    #[arg(long)]
    pub follow_cores_per_socket: bool,
}

/// `2x18`.
fn sockets_by_cores(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once(['x', 'X']).and_then(|(s, c)| Some((s.parse().ok()?, c.parse().ok()?)));
    match parts {
        Some((s @ 1..=64, c @ 1..=1024)) => Ok((s, c)),
        _ => Err(format!("{text:?} is not SOCKETSxCORES, such as 2x18")),
    }
}

/// How a plan is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// For people.
    Text,
    /// As a PowerShell script with VMware PowerCLI, for review; of vSphere's VMs alone. Untried.
    Powercli,
}

/// How a plan's forecasts are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Method {
    /// By replay where the recording has switches and the replay gives back what was measured, else fluid.
    Auto,
    /// By simulating the recorded demands under the changed settings (needs `record --events`).
    Replay,
    /// By fair shares as if time were infinitely divisible.
    Fluid,
    /// By simulating ESXi's co-scheduling with demands fitted to the samples; of vSphere's VMs, and for these what auto is.
    Cosched,
}

fn microseconds(text: &str) -> Result<f64, String> {
    let us = text.trim().parse::<f64>().ok().filter(|us| us.is_finite() && *us >= 0.0);
    us.ok_or_else(|| format!("{text:?} is no number of microseconds, 0 or more"))
}

fn named_percent(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=PERCENT"))?;
    let number = value.trim().trim_end_matches('%').trim().parse::<f64>();
    let percent =
        number.ok().filter(|p| p.is_finite()).ok_or_else(|| format!("{value:?} is not a percentage"))?;
    Ok((name.trim().to_owned(), percent / 100.0))
}

/// `vsteer apply`.
#[derive(Debug, Args)]
pub struct Apply {
    /// The plan, as `plan -o` wrote it.
    pub plan: PathBuf,
    /// Do it.
    #[arg(long, conflicts_with = "try_for")]
    pub yes: bool,
    /// Do it, and undo it by itself after this time unless confirmed by `vsteer apply PLAN --confirm`.
    #[arg(long = "try", value_name = "TIME", value_parser = duration)]
    pub try_for: Option<std::time::Duration>,
    /// Keep what `--try` did.
    #[arg(long, conflicts_with_all = ["yes", "try_for"])]
    pub confirm: bool,
    /// The connection URI, as it was given to `plan`; of a plan of esxtop's file: that of its host (vsphere://USER@HOST).
    #[arg(long, value_name = "URI")]
    pub connect: Option<String>,
    /// How a vSphere is logged in to.
    #[command(flatten)]
    pub login: Login,
}

/// `vsteer rollback`.
#[derive(Debug, Args)]
pub struct Rollback {
    /// Which plan; without it: every one that is applied, newest first.
    pub id: Option<String>,
    /// libvirt connection URI, as it was given to `apply`.
    #[arg(long, value_name = "URI")]
    pub connect: Option<String>,
    /// How a vSphere is logged in to; what the journal says of it need not be said again.
    #[command(flatten)]
    pub login: Login,
}

/// `vsteer verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// The recording before.
    pub before: PathBuf,
    /// The recording after.
    pub after: PathBuf,
    /// The plan that was applied in between, to compare its forecast.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
}

/// `vsteer simulate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vsteer simulate scenarios/two-hogs.toml\n  vsteer simulate s.toml --seeds 20 \
--sweep vm.web.weight=128,256,512\n  vsteer simulate s.toml -o s.vsteer && vsteer report s.vsteer"
)]
pub struct Simulate {
    /// The scenario file.
    #[arg(required_unless_present_any = ["list", "from", "published"])]
    pub scenario: Option<PathBuf>,
    /// Instead of a scenario: a recording with --events. Its threads' demands are simulated under its own configuration,
    /// beside what was measured.
    #[arg(long, value_name = "RECORDING", conflicts_with_all = ["scenario", "list", "seeds", "sweep", "each"])]
    pub from: Option<PathBuf>,
    /// With --from: a parameter of the recorded host's scheduler that was not at its default, such as `hz=1000`
    /// (--list has them; may be given again).
    #[arg(long, value_name = "KEY=VALUE", requires = "from")]
    pub was: Vec<crate::scenario::file::Setting>,
    /// With --from: simulate it under this plan's changes too.
    #[arg(long, value_name = "FILE", requires = "from", conflicts_with = "under")]
    pub plan: Option<PathBuf>,
    /// With --from: simulate it under the configuration of this later recording of the same VMs too, beside what was
    /// measured there: how far off would the prediction have been?
    #[arg(long, value_name = "RECORDING", requires = "from")]
    pub under: Option<PathBuf>,
    /// List the schedulers with their parameters instead.
    #[arg(long, conflicts_with_all = ["scenario", "output"])]
    pub list: bool,
    /// Simulate the published experiments instead (or one paper's, by its short name) and print each published figure
    /// beside the simulated one: docs/published.md. Ten seeds unless more are asked for.
    #[arg(long, value_name = "PAPER", num_args = 0..=1, require_equals = true, default_missing_value = "",
        conflicts_with_all = ["scenario", "list", "from", "set", "sweep", "each", "wide", "output"])]
    pub published: Option<String>,
    /// With --published: as the page docs/published.md has it.
    #[arg(long, requires = "published")]
    pub markdown: bool,
    /// How many seeds, from the scenario's own upwards: two or more give each figure a 95 % interval.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub seeds: u16,
    /// Change the scenario: `vm.web.weight=512`, `scheduler.policy=eevdf`, `for=60s` (may be given again). With --from:
    /// simulate it with this parameter of its scheduler too, such as `base_slice_us=3000`.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<crate::scenario::file::Setting>,
    /// Run it once for each of these values (may be given again: every combination).
    #[arg(long, value_name = "KEY=V1,V2,...")]
    pub sweep: Vec<crate::scenario::file::Sweep>,
    /// Show every VM; without it, VMs made by one `count` are shown as one line with their mean.
    #[arg(long)]
    pub each: bool,
    /// Show every figure: median wake-up, lag, switches, preemptions and migrations too.
    #[arg(long)]
    pub wide: bool,
    /// Record the first seed's run: samples and every switch, for `top`'s replay, `diagnose`, `report` and `export`. With
    /// --from: the host under the change, or as it was if there is none.
    #[arg(short, long, value_name = "FOLDER", conflicts_with = "sweep")]
    pub output: Option<PathBuf>,
}

/// `vsteer headroom`.
#[derive(Debug, Args)]
#[command(after_help = "Example: vsteer headroom scenarios/web-servers.toml --kind web --level ready=10% \
--level response_p99=100ms --seeds 10")]
pub struct Headroom {
    /// The scenario file: the host with the VMs that are there. With `--from`: where the VM that more are wanted of
    /// stands.
    #[arg(required_unless_present = "from")]
    pub scenario: Option<PathBuf>,
    /// A recording taken with `--events`: the host, its VMs and what they wanted.
    #[arg(long, value_name = "RECORDING")]
    pub from: Option<PathBuf>,
    /// Of which VM more are wanted: a `name` in the file, or a VM of the recording.
    #[arg(long, value_name = "NAME")]
    pub kind: String,
    /// What no VM may exceed: `ready=10%`, `wake_p99=20ms`, `response_p99=100ms`, `late=1%` (may be given again).
    #[arg(long, value_name = "NAME=VALUE", required = true)]
    pub level: Vec<vsteer_core::scenario::headroom::Level>,
    /// How many seeds, from the scenario's own upwards.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub seeds: u16,
    /// The most VMs more that are tried.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub most: u32,
    /// Change the scenario first, as for `simulate`.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<crate::scenario::file::Setting>,
}

/// `vsteer steer`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example of levels (sla.toml):\n  period = \"60s\"\n  [[vm]]\n  name = \"web\"\n  log = \
\"/var/log/nginx/access.log\"\n  mean = \"9ms\"\n  p95 = \"30ms\"\n  rate = 45\n  [[host]]   # where a VM may go if no weights hold all levels\n  \
connect = \"qemu+ssh://root@other/system\"\n\nNothing is moved: a plan is written, for `vsteer apply`. When it ends, also when it is killed, the former weights \
return. Steering Xen domains is new: on a full pCPU levels were not held yet."
)]
pub struct Steer {
    /// The service levels.
    #[arg(long, value_name = "FILE")]
    pub sla: PathBuf,
    /// Set weights. Without it nothing is changed.
    #[arg(long)]
    pub yes: bool,
    /// End after so long; without it: when interrupted.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub length: Option<std::time::Duration>,
    /// By which estimator (see `vsteer estimate`).
    #[arg(long, value_name = "ESTIMATOR", default_value = "own")]
    pub by: String,
    /// libvirt connection URI; without it every VM of this host, libvirt's or not.
    #[arg(long, value_name = "URI")]
    pub connect: Option<String>,
}

/// `vsteer realtime`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vsteer realtime enable --vm audio --yes\n  vsteer realtime report\n  vsteer realtime disable\n  \
vsteer realtime run --vm audio --measure-only --yes --for 1m\n\n\
By policy: one of sched_ext schedules all ordinary tasks of the host while it runs, by weight, as the kernel does, except that a vCPU \
whose timer ends goes first, on credit. When it ends, however that is, the kernel's own scheduler takes over.\n\
By priority: the VM's threads are in a real-time class while the VM asks for less than it is due, else in their own. Whatever \
ends the service, even SIGKILL, a watchdog puts classes and budgets back (vsteer rollback, should that be killed too)."
)]
pub struct Realtime {
    /// What to do.
    #[command(subcommand)]
    pub what: RealtimeWhat,
}

/// The parts of `vsteer realtime`.
#[derive(Debug, Subcommand)]
pub enum RealtimeWhat {
    /// Keep VMs first until interrupted; then report.
    Run(RealtimeRun),
    /// The same in the background, until `disable`.
    Enable(RealtimeRun),
    /// Who is kept first, and how often that was so.
    Status,
    /// The same, and how late each VM was, as histograms.
    Report,
    /// End it: everything is as it was before.
    Disable,
    /// Print a unit for systemd that keeps VMs first from boot on (tried by `systemd-analyze verify` alone).
    Unit(RealtimeRun),
}

/// How VMs are put first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RealtimeBy {
    /// By a policy where the kernel has sched_ext, else by priority, saying why.
    Auto,
    /// A policy of sched_ext: when a timer of the VM ends, and charged for it.
    Policy,
    /// A real-time class of the kernel's (SCHED_RR): when the VM wakes, for as long as it asks for less than it is due.
    Priority,
}

/// Where the ends of guests' timers are learnt from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RealtimeSource {
    /// What a guest writes to its own timer: needs nothing of the guest.
    Timer,
    /// What a guest says by a hypercall (docs/realtime.md).
    Call,
    /// Its own timer, until it says which timers matter.
    Both,
}

/// `vsteer realtime run`, and with the same options `enable` and `unit`.
#[derive(Debug, Args)]
pub struct RealtimeRun {
    /// Whose timers are honoured (may be given again).
    #[arg(long = "vm", value_name = "NAME", required = true)]
    pub vms: Vec<String>,
    /// Do it. Without it: says what would be done, and changes nothing.
    #[arg(long)]
    pub yes: bool,
    /// How they are put first.
    #[arg(long, value_enum, default_value = "auto")]
    pub by: RealtimeBy,
    /// Where the ends of guests' timers are learnt from (by policy).
    #[arg(long, value_enum, default_value = "both")]
    pub source: RealtimeSource,
    /// Measure how late they are, and put nobody first.
    #[arg(long)]
    pub measure_only: bool,
    /// How far ahead of its share a VM may run: what it may borrow of CPU time (by policy).
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = duration)]
    pub warp: std::time::Duration,
    /// By policy: how long a vCPU may run in one go once its timer has ended. By priority: how much CPU time beyond its due a VM may
    /// have at once.
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = duration)]
    pub limit: std::time::Duration,
    /// Report what the policy's callbacks cost, too: the kernel counts that, at a small cost of its own.
    #[arg(long)]
    pub costs: bool,
    /// Leave out of the report what happens in the first so long.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub warm_up: Option<std::time::Duration>,
    /// End after so long; without it: when interrupted.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub length: Option<std::time::Duration>,
    /// libvirt connection URI; without it every VM of this host, libvirt's or not.
    #[arg(long, value_name = "URI")]
    pub connect: Option<String>,
}

/// `vsteer estimate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vsteer estimate web=/var/log/nginx/access.log db=db.jsonl --from day.vsteer --interval 5m\n  \
vsteer estimate web=access.log db=db.jsonl --from now.vsteer --rate web=80 --weight web=200\n  \
vsteer estimate web=web-scrapes/ db=db.jsonl --from day.vsteer --histogram 'http_request_duration_seconds{job=\"web\"}'"
)]
pub struct Estimate {
    /// Whose requests are in which access log (may be given again): Apache's (%D), nginx's ($request_time) or JSON lines. Or
    /// in which folder scrapes of a Prometheus histogram (--histogram) were saved, each as a file that is named by its time
    /// (seconds since 1970, such as 1767225600.prom; another name: when it was written).
    #[arg(required = true, value_name = "VM=FILE|FOLDER")]
    pub logs: Vec<crate::logs::Log>,
    /// A recording of the host at that time; several: one interval after the other.
    #[arg(long, required = true, num_args = 1.., value_name = "RECORDING")]
    pub from: Vec<PathBuf>,
    /// Cut each recording into intervals of this length: each is foretold from the one before.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub interval: Option<std::time::Duration>,
    /// The logs' format, as the server's configuration has it, or one of apache, apache-combined, nginx, json; without it
    /// the one of these that fits.
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Which histogram of saved scrapes holds the requests, as a query has it: NAME or 'NAME{label="value"}', in seconds unless
    /// the name ends in another unit. With a VM before it: that VM's (may be given again).
    #[arg(long = "histogram", value_name = "[VM=]HISTOGRAM")]
    pub histograms: Vec<crate::scrapes::Named>,
    /// What will be asked of a VM after the last interval, requests per second (may be given again).
    #[arg(long = "rate", value_name = "VM=RATE", value_parser = named_number)]
    pub rates: Vec<(String, f64)>,
    /// What weight a VM will have after the last interval, on its hypervisor's scale (may be given again).
    #[arg(long = "weight", value_name = "VM=WEIGHT", value_parser = named_number)]
    pub weights: Vec<(String, f64)>,
}

/// `NAME=NUMBER`, above 0.
fn named_number(text: &str) -> Result<(String, f64), String> {
    let (name, number) = text.split_once('=').ok_or("write VM=NUMBER")?;
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is no number"))?;
    if !(number.is_finite() && number > 0.0) {
        return Err(format!("{number} is not above 0"));
    }
    Ok((name.to_owned(), number))
}

/// `vsteer report`.
#[derive(Debug, Args)]
pub struct Report {
    /// The recording (before, if there are two).
    pub before: PathBuf,
    /// The recording after.
    pub after: Option<PathBuf>,
    /// The plan that was applied in between.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// The file to write.
    #[arg(short, long, default_value = "report.html")]
    pub output: PathBuf,
}

/// `vsteer audit`.
#[derive(Debug, Args)]
#[command(
    after_help = "Nothing is changed. What a change would bring on this machine `vsteer experiment` measures. Tried on a cloud guest; on real hosts \
(cpufreq, amd_pstate, RAPL) untried: their files are read as the kernel documents them."
)]
pub struct Audit {
    /// Read the machine beneath this folder (a captured /sys, /proc and /etc).
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub root: PathBuf,
    /// Show what is as it should be and what does not apply, too.
    #[arg(long)]
    pub all: bool,
    /// Write all files that are looked at beneath this folder instead, to be looked at elsewhere (`--root`).
    #[arg(long, value_name = "FOLDER")]
    pub capture: Option<PathBuf>,
}

/// `vsteer experiment`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vsteer experiment run huge-pages.toml            what would be set and run, and what is in force now\n  \
vsteer experiment run huge-pages.toml --yes\n  vsteer experiment resume huge-pages.experiment --yes\n  \
vsteer experiment report huge-pages.experiment -o report.html\n  vsteer experiment report --published\n\n\
Every finished run is on disk before the next one starts. Ctrl-C puts settings back; after a crash `vsteer rollback` does, or `resume` goes on. \
The file's form: docs/experiments.md. Power meters other than commands, and tuned, grubby, cpufreq on real hosts: untried."
)]
pub struct Experiment {
    /// What to do.
    #[command(subcommand)]
    pub what: ExperimentWhat,
}

/// The parts of `vsteer experiment`.
#[derive(Debug, Subcommand)]
pub enum ExperimentWhat {
    /// Carry an experiment out. Without --yes: lay it out, look at what is in force, and change nothing.
    Run {
        /// The experiment.
        file: PathBuf,
        /// The folder to make for it; without it NAME.experiment.
        #[arg(short, long, value_name = "FOLDER")]
        output: Option<PathBuf>,
        /// Do it.
        #[arg(long)]
        yes: bool,
    },
    /// Go on where one was cut off, by Ctrl-C, a crash or a boot. Without --yes: say where it is.
    Resume {
        /// Its folder.
        folder: PathBuf,
        /// Do it.
        #[arg(long)]
        yes: bool,
    },
    /// What its runs say, so far: tables here, or a page.
    Report {
        /// Its folder.
        #[arg(required_unless_present = "published")]
        folder: Option<PathBuf>,
        /// A published study of host tuning instead, read again from its own tables.
        #[arg(long, conflicts_with = "folder")]
        published: bool,
        /// Markdown, to paste.
        #[arg(long, conflicts_with = "output")]
        markdown: bool,
        /// One HTML file.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Write the levels that were better as a plan, for `vsteer apply`.
        #[arg(long, value_name = "FILE", conflicts_with = "published")]
        plan: Option<PathBuf>,
    },
    /// Print a unit for systemd that goes on with an experiment after each boot (untried but for `systemd-analyze verify`).
    Unit {
        /// Its folder.
        folder: PathBuf,
    },
}

/// `vsteer topology`.
#[derive(Debug, Args)]
pub struct TopologyArgs {
    /// Read the machine beneath this folder (a captured /sys and /proc).
    #[arg(long, default_value = "/")]
    pub root: PathBuf,
}

/// `200ms`, `20s`, `5m`, `2h`, `7d`; a bare number is seconds.
pub fn duration(text: &str) -> Result<std::time::Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(format!("unknown unit {unit:?}: use ms, s, m, h or d")),
    };
    let n: f64 = number.parse().map_err(|_| format!("{number:?} is not a number (such as 20s or 200ms)"))?;
    let seconds = n * scale;
    if !(0.001..=86_400.0 * 365.0).contains(&seconds) {
        return Err("must be between 1ms and a year".to_owned());
    }
    Ok(std::time::Duration::from_secs_f64(seconds))
}

/// `2G`, `500M`, `64k`; binary multiples.
fn bytes(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit.to_ascii_uppercase().trim_end_matches("IB").trim_end_matches('B') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("unknown unit {unit:?}: use K, M, G or T")),
    };
    let n: u64 = number.parse().map_err(|_| format!("{number:?} is not a whole number (such as 2G)"))?;
    n.checked_shl(shift).filter(|b| *b >= 1 << 20).ok_or_else(|| "must be at least 1M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn times_and_sizes() {
        assert_eq!(duration("200ms").unwrap().as_millis(), 200);
        assert_eq!(duration("1.5m").unwrap().as_secs(), 90);
        assert!(duration("-3s").is_err() && duration("3 parsecs").is_err() && duration("").is_err());
        assert_eq!(bytes("2G").unwrap(), 2 << 30);
        assert!(bytes("3x").is_err() && bytes("10").is_err());
    }
}
