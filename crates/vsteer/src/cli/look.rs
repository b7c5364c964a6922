//! Commands that look, and change nothing: top, record, replay, diagnose, numa, audit, topology, report, export.

use super::source::{Source, Window};
use super::words::{bytes, duration, named_threshold};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

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
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
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
    /// Use another threshold: `ready_group=8%`, `wake_p99_ns=3ms`. May be given several times. An unknown name lists all
    #[arg(long, value_name = "NAME=VALUE", value_parser = named_threshold)]
    pub threshold: Vec<(String, f64)>,
    /// What to look at.
    #[command(flatten)]
    pub window: Window,
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
    /// Write all that is looked at beneath this folder instead, to be looked at elsewhere (`--root`): of processes QEMU's alone, without passwords.
    #[arg(long, value_name = "FOLDER")]
    pub capture: Option<PathBuf>,
}

/// `vsteer capture`.
#[derive(Debug, Args)]
#[command(after_help = "Example: vsteer capture -o host --redact && vsteer diagnose --connect tree:host")]
pub struct Capture {
    /// Make this folder. An existing folder must be empty.
    #[arg(short, long, value_name = "FOLDER")]
    pub output: PathBuf,
    /// Replace the names of VMs, hosts and users, UUIDs and MAC addresses by neutral ones.
    #[arg(long)]
    pub redact: bool,
    /// Wait TIME between the two looks.
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub length: std::time::Duration,
    /// Capture only VMs of this name (may be given again) [default: all].
    #[arg(long = "vm", value_name = "NAME")]
    pub vms: Vec<String>,
}

/// `vsteer topology`.
#[derive(Debug, Args)]
pub struct TopologyArgs {
    /// Read the machine beneath this folder (a captured /sys and /proc).
    #[arg(long, default_value = "/")]
    pub root: PathBuf,
}
