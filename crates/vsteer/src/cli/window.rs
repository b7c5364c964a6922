//! What is looked at: a recording, or the live host; and when.

#[cfg(feature = "host")]
use super::host::Source;
use super::words::duration;
use clap::Args;
use std::path::PathBuf;

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
    /// Read only the part of the recording around this moment: `03:12`, `2026-11-21T03:12:05` (both local time, by `TZ` or
    /// /etc/localtime), `2026-11-21T03:12:05Z` or `2026-11-21T03:12:05+09:00`.
    #[arg(long, value_name = "TIME", requires = "recording")]
    pub at: Option<String>,
    /// With --at: how much around it.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration, requires = "at")]
    pub around: std::time::Duration,
    /// Where to look.
    #[cfg(feature = "host")]
    #[command(flatten)]
    pub source: Source,
}
