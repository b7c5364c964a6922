//! Options of `vsteer record`.

use super::host::Source;
use super::words::{bytes, duration};
use clap::Args;
use std::path::PathBuf;

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
