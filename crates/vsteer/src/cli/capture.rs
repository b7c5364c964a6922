//! Options of `vsteer capture`.

use super::words::duration;
use clap::Args;
use std::path::PathBuf;

/// `vsteer capture`.
#[derive(Debug, Args)]
#[command(after_help = "Example: vsteer capture -o host --redact && vsteer diagnose --connect tree:host")]
pub struct Capture {
    /// Make this folder. An existing folder must be empty.
    #[arg(short, long, value_name = "FOLDER")]
    pub output: PathBuf,
    /// Replace the names of VMs, hosts and users, UUIDs and MAC addresses by neutral ones.
    #[arg(long)]
    pub redact: bool,
    /// Wait TIME between the two looks.
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub length: std::time::Duration,
    /// Capture only VMs of this name (may be given again) [default: all].
    #[arg(long = "vm", value_name = "NAME")]
    pub vms: Vec<String>,
}
