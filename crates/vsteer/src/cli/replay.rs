//! Options of `vsteer replay`.

use super::words::duration;
use clap::Args;
use std::path::PathBuf;

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
