//! Options of `vsteer report`.

use clap::Args;
use std::path::PathBuf;

/// `vsteer report`.
#[derive(Debug, Args)]
pub struct Report {
    /// The recording (before, if there are two).
    pub before: PathBuf,
    /// The recording after.
    pub after: Option<PathBuf>,
    /// The plan that was applied in between.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// The file to write.
    #[arg(short, long, default_value = "report.html")]
    pub output: PathBuf,
}
