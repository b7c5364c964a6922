//! Options of `vsteer audit`.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer audit                              List settings of this host that need a change
  vsteer audit --all --json                 Print all checks as JSON

An audit changes nothing. Measure what a change brings on your machine with `vsteer experiment`.
Checks of cpufreq, amd_pstate and RAPL follow the kernel's documentation; nobody has tried them on such a host.")]
pub struct Audit {
    /// Audit the machine whose /sys, /proc and /etc were captured in FOLDER
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub root: PathBuf,
    /// Also list settings that are right or do not apply
    #[arg(long)]
    pub all: bool,
    /// Copy the audited files to FOLDER for `--root` elsewhere, without passwords
    #[arg(long, value_name = "FOLDER", help_heading = "Output")]
    pub capture: Option<PathBuf>,
}
