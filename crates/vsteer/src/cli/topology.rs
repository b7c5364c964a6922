//! Options of `vsteer topology`.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer topology
  vsteer topology --root captured --json    Read a captured machine")]
pub struct TopologyArgs {
    /// Read the machine whose /sys and /proc were captured in FOLDER
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub root: PathBuf,
}
