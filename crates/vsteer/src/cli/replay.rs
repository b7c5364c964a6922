//! Options of `vsteer replay`.

use super::words::duration;
use clap::Args;
use std::path::PathBuf;
use vsteer_record::config::default_of;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer replay before.vsteer
  vsteer replay flight.vsteer --marks       List what `record --trigger` marked")]
pub struct Replay {
    /// Recording to read: a folder of `vsteer record`, a file of `esxtop -b`, or a saved xentrace
    pub recording: PathBuf,
    /// List only the times that `record --trigger` marked
    #[arg(long)]
    pub marks: bool,
    /// Print rows every TIME of the recording
    #[arg(short, long, value_name = "TIME", default_value = default_of("top.interval"), value_parser = duration)]
    pub interval: std::time::Duration,
}
