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
    /// Read the host at URI
    #[arg(long, value_name = "URI", conflicts_with = "root")]
    pub connect: Option<String>,
    /// Send vsteer to a host of ssh:// for this command, instead of running one that is installed there
    #[arg(long, requires = "connect", hide_short_help = true)]
    pub copy_vsteer: bool,
}
