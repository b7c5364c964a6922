//! Options of `vsteer top`.

use super::host::Source;
use super::words::duration;
use clap::Args;
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
