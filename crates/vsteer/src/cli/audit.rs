//! Options of `vsteer audit`.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer audit                              List settings of this host that need a change
  vsteer audit --all --json                 Print all checks as JSON
  vsteer audit --as tuned:virtual-host      List what this profile of tuned would change here

An audit changes nothing. To measure the effect of a change on your machine, use `vsteer experiment`.
The checks of cpufreq, amd_pstate and RAPL follow the kernel's documentation. They are untried on a host that has these.")]
pub struct Audit {
    /// Audit the machine whose /sys, /proc and /etc were captured in FOLDER
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub root: PathBuf,
    /// Also list settings that are right or do not apply
    #[arg(long)]
    pub all: bool,
    /// List what a profile of tuned would change here
    #[arg(long = "as", value_name = "tuned:PROFILE", value_parser = profile, conflicts_with = "capture")]
    pub as_profile: Option<String>,
    /// Copy the audited files to FOLDER for `--root` elsewhere, without passwords
    #[arg(long, value_name = "FOLDER", help_heading = "Output")]
    pub capture: Option<PathBuf>,
}

/// The name of a profile.
fn profile(text: &str) -> Result<String, String> {
    let name = text.strip_prefix("tuned:").filter(|name| !name.is_empty() && !name.contains('/'));
    name.map(str::to_owned)
        .ok_or_else(|| format!("{text:?} is not a profile: write tuned:NAME, such as tuned:virtual-host"))
}
