//! Options of `vsteer history`.

use super::words::duration;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer history                            List all VMs of the last 24 hours, and what happened
  vsteer history web --for 30d              Show the trend of one VM
  vsteer history --from 2026-11-20T00:00 --to 2026-11-21T00:00 --json
  duckdb -c \"SELECT * FROM '/var/lib/vsteer/history/vm/hour/*.parquet'\"

The service keeps the history: minutes for 90 days, hours for two years. See `vsteer serve --help`.")]
pub struct History {
    /// Show only the VM of this name or id [default: all VMs]
    #[arg(value_name = "VM")]
    pub vm: Option<String>,
    #[command(flatten)]
    pub past: Past,
    /// Length of a row: minute, hour, or auto for minutes up to two days
    #[arg(long, value_name = "STEP", default_value = "auto", value_parser = ["minute", "hour", "auto"])]
    pub step: String,
}

/// A stretch of the history.
#[derive(Debug, Args)]
#[command(next_help_heading = "History")]
pub struct Past {
    /// Read the last TIME of the history [default: 24h]
    #[arg(long = "for", value_name = "TIME", value_parser = duration, conflicts_with = "from")]
    pub length: Option<Duration>,
    /// Read the history from this time on, for example 2026-11-21T03:12, 03:12 or \"yesterday 03:12\"
    ///
    /// Times are local (TZ or /etc/localtime) unless they end in Z or an offset such as +09:00.
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Read the history up to this time [default: now]
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
    /// Read the history in FOLDER [default: where `[serve]` keeps it, else /var/lib/vsteer/history]
    #[arg(long = "dir", value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
}
