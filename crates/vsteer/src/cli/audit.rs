//! Options of `vsteer audit`.

use clap::Args;
use std::path::PathBuf;

/// `vsteer audit`.
#[derive(Debug, Args)]
#[command(
    after_help = "Nothing is changed. What a change would bring on this machine `vsteer experiment` measures. Tried on a cloud guest; on real hosts \
(cpufreq, amd_pstate, RAPL) untried: their files are read as the kernel documents them."
)]
pub struct Audit {
    /// Read the machine beneath this folder (a captured /sys, /proc and /etc).
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub root: PathBuf,
    /// Show what is as it should be and what does not apply, too.
    #[arg(long)]
    pub all: bool,
    /// Write all that is looked at beneath this folder instead, to be looked at elsewhere (`--root`): of processes QEMU's alone, without passwords.
    #[arg(long, value_name = "FOLDER")]
    pub capture: Option<PathBuf>,
}
