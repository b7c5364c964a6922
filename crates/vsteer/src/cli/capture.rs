//! Options of `vsteer capture`.

use super::words::duration;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer capture -o host --redact           Copy this host, without names and secrets
  vsteer diagnose --connect tree:host       Observe the copy")]
pub struct Capture {
    /// Create FOLDER for the copy, or use it if it is empty
    #[arg(short, long, value_name = "FOLDER", help_heading = "Output")]
    pub output: PathBuf,
    /// Replace names of VMs, hosts and users, UUIDs and MAC addresses
    #[arg(long)]
    pub redact: bool,
    /// Wait TIME between the two copies, which give rates
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub length: std::time::Duration,
    /// Copy only the VM called NAME (repeatable) [default: all VMs]
    #[arg(long = "vm", value_name = "NAME")]
    pub vms: Vec<String>,
}
