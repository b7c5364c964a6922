//! Options of `vsteer topology`.

use clap::Args;
use std::path::PathBuf;

/// `vsteer topology`.
#[derive(Debug, Args)]
pub struct TopologyArgs {
    /// Read the machine beneath this folder (a captured /sys and /proc).
    #[arg(long, default_value = "/")]
    pub root: PathBuf,
}
