//! What to observe: a recording or the live host, and when.

#[cfg(feature = "host")]
use super::host::Source;
use super::words::duration;
use clap::Args;
use std::path::PathBuf;
use vsteer_record::config::default_of;

/// A recording, or the live host.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Window")]
pub struct Window {
    /// Recording to read [default: observe the live host]
    ///
    /// Either a folder of `vsteer record`, a batch file of `esxtop -b` (.csv or .csv.gz), or a saved xentrace.
    #[arg(value_name = "RECORDING", help_heading = None)]
    pub recording: Option<PathBuf>,
    /// Observe the live host for TIME
    ///
    /// From a vSphere, vsteer reads the last TIME of the samples that it kept.
    #[arg(long = "for", value_name = "TIME", default_value = default_of("collector.observe_for"), value_parser = duration)]
    pub length: std::time::Duration,
    /// Read the recording only around this time, for example 03:12 or 2026-11-21T03:12:05
    ///
    /// Without a recording, `vsteer diagnose` reads this time in the history of the service. The time can then begin
    /// with `yesterday`.
    ///
    /// Times are local (TZ or /etc/localtime) unless they end in Z or an offset such as +09:00.
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
    /// Read this much of the recording around --at
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration, requires = "at")]
    pub around: std::time::Duration,
    #[cfg(feature = "host")]
    #[command(flatten)]
    pub source: Source,
}
